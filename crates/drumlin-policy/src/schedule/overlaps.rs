//! How many of many ranges a range meets, without looking at each.
//!
//! A range is met unless it begins behind the end or ends before the start, and no range does both. So two sorted lists
//! answer: those that begin before the end, less those that end before the start.

use alloc::vec::Vec;
use drumlin_types::{Key, KeyRange};

/// The bounds of a set of ranges, which may overlap each other.
pub(super) struct Overlaps<'a> {
    starts: Vec<&'a Key>,
    /// Ends of those that have one.
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

    /// How many of the ranges share a key with `range`.
    pub(super) fn count(&self, range: &KeyRange) -> usize {
        if range.is_empty() {
            return 0;
        }
        let begun = self.starts.partition_point(|start| range.is_before_end(start));
        begun - self.ends.partition_point(|end| **end <= range.start)
    }

    /// Whether any of them does.
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
