//! Index that counts how many ranges of a set overlap a given range, without visiting each.
//!
//! A range overlaps unless it begins after the given range's end or ends before its start, and no range does both. So
//! two sorted lists suffice: the count of ranges that begin before the end, minus those that end before the start.

use alloc::vec::Vec;
use drumlin_types::{Key, KeyRange};

/// Bounds of a set of ranges, which may overlap each other.
pub(super) struct Overlaps<'a> {
    starts: Vec<&'a Key>,
    /// Ends of the ranges that have one.
    ends: Vec<&'a Key>,
}

impl<'a> Overlaps<'a> {
    pub(super) fn of(ranges: impl IntoIterator<Item = &'a KeyRange>) -> Overlaps<'a> {
        let (mut starts, mut ends) = (Vec::new(), Vec::new());
        for range in ranges.into_iter().filter(|range| !range.is_empty()) {
            starts.push(&range.start);
            ends.extend(&range.end);
        }
        starts.sort_unstable();
        ends.sort_unstable();
        Overlaps { starts, ends }
    }

    /// Returns how many of the ranges share a key with `range`.
    pub(super) fn count(&self, range: &KeyRange) -> usize {
        if range.is_empty() {
            return 0;
        }
        let begun = self.starts.partition_point(|start| range.is_before_end(start));
        begun - self.ends.partition_point(|end| **end <= range.start)
    }

    /// Returns whether any of the ranges shares a key with `range`.
    pub(super) fn any(&self, range: &KeyRange) -> bool {
        self.count(range) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix;

    #[test]
    fn counts_are_those_of_looking_at_each() {
        let mut dice = SplitMix::new(7);
        for case in 0..2000 {
            let mut draw = || {
                let (a, b) = (dice.below(12) as u8, dice.below(12) as u8);
                KeyRange::new(Key::new(&[a]), Some(Key::new(&[b])).filter(|_| b > 0))
            };
            let ranges: Vec<KeyRange> = (0..case % 9).map(|_| draw()).collect();
            let overlaps = Overlaps::of(&ranges);
            for _ in 0..8 {
                let asked = draw();
                let met = ranges.iter().filter(|range| range.overlaps(&asked)).count();
                assert_eq!(overlaps.count(&asked), met, "{asked:?} of {ranges:?}");
                assert_eq!(overlaps.any(&asked), met > 0);
            }
        }
    }
}
