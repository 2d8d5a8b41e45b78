//! Which of the recently wanted keys a run covers, as bit masks (arce.md 2.1).
//!
//! A mask has a bit for each of up to 256 sampled keys: those of point lookups and those at which scans
//! began, apart. The covered runs s of a tree are the mean number of runs that cover a sampled key;
//! merging a set of runs takes away y of them: the sum of their bits less the bits of their union. Runs
//! without a common key give y = 0, whatever they weigh.

use super::prices::Prices;
use super::sorted::SortedKeys;
use drumlin_types::contract::FileView;

/// Bits of a mask.
pub(crate) const BITS: usize = 256;

/// One bit for each sampled key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Mask([u64; BITS / 64]);

impl Mask {
    /// The first `count` bits.
    pub(crate) fn first(count: usize) -> Mask {
        let mut mask = Mask::default();
        mask.set(0, count);
        mask
    }

    /// Sets the bits from `from` up to, not including, `to`.
    fn set(&mut self, from: usize, to: usize) {
        for (index, word) in self.0.iter_mut().enumerate() {
            let start = from.clamp(index * 64, index * 64 + 64) - index * 64;
            let end = to.clamp(index * 64, index * 64 + 64) - index * 64;
            if start < end {
                let below = |bit: usize| if bit == 64 { u64::MAX } else { (1 << bit) - 1 };
                *word |= below(end) & !below(start);
            }
        }
    }

    /// The keys of the sample that lie in one of `files`, which are sorted and disjoint. A sample holds no
    /// more keys than a mask has bits.
    ///
    /// Goes from key to key, so that a run of many files takes no longer than the sample is large.
    pub(crate) fn of(keys: &SortedKeys<'_>, files: &[&FileView]) -> Mask {
        let mut mask = Mask::default();
        let (mut at, mut left) = (0, files);
        while let Some(key) = keys.get(at) {
            let is_past = |f: &&FileView| f.bounds.end.as_ref().is_some_and(|end| end <= key);
            left = &left[left.partition_point(is_past)..];
            let Some((file, rest)) = left.split_first() else { break };
            let from = if file.bounds.start <= *key { at } else { keys.before(&file.bounds.start) };
            let to = file.bounds.end.as_ref().map_or(keys.len(), |end| keys.before(end));
            mask.set(from, to);
            (at, left) = (to.max(at), rest);
        }
        mask
    }

    /// The number of keys.
    pub(crate) fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// The number of keys, eight by eight.
    pub(crate) fn by_eight(&self) -> [u8; BITS / 8] {
        let mut counts = [0; BITS / 8];
        let bytes = self.0.iter().flat_map(|word| word.to_le_bytes());
        counts.iter_mut().zip(bytes).for_each(|(count, byte)| *count = byte.count_ones() as u8);
        counts
    }

    fn union(&mut self, other: &Mask) {
        self.0.iter_mut().zip(other.0).for_each(|(word, more)| *word |= more);
    }

    /// Leaves out what `other` has. Whether anything changed.
    fn remove(&mut self, other: &Mask) -> bool {
        let mut common = 0;
        for (word, other) in self.0.iter_mut().zip(other.0) {
            common |= *word & other;
            *word &= !other;
        }
        common != 0
    }
}

/// What a run covers of both samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cover {
    pub(crate) points: Mask,
    pub(crate) seeks: Mask,
}

impl Cover {
    /// Takes in what `other` covers.
    pub(crate) fn union(&mut self, other: &Cover) {
        self.points.union(&other.points);
        self.seeks.union(&other.seeks);
    }
}

/// How many keys of both samples are covered.
pub(crate) type Counts = [u32; 2];

impl Cover {
    /// How many keys it covers.
    pub(crate) fn counts(&self) -> Counts {
        [self.points.count(), self.seeks.count()]
    }

    /// Leaves out what `other` covers, and brings `counts` up to that.
    pub(crate) fn remove(&mut self, other: &Cover, counts: &mut Counts) {
        if self.points.remove(&other.points) {
            counts[0] = self.points.count();
        }
        if self.seeks.remove(&other.seeks) {
            counts[1] = self.seeks.count();
        }
    }
}

/// How bits become runs: the sizes of the samples, and how much each sample matters to readers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Scale {
    /// Runs per bit of the points and of the seeks.
    weights: [f64; 2],
    sizes: Counts,
    /// What a run that covers every key has.
    pub(crate) full: Cover,
    /// What runs cost by their sizes.
    prices: Prices,
}

impl Scale {
    /// The scale for samples of `points` and `seeks` keys, when a covered run costs the mean operation
    /// `costs` by way of each. Costs of nothing count both alike.
    pub(crate) fn new(points: usize, seeks: usize, costs: [f64; 2]) -> Scale {
        let sizes = [points.min(BITS), seeks.min(BITS)];
        let full = Cover { points: Mask::first(sizes[0]), seeks: Mask::first(sizes[1]) };
        // What nobody sampled says nothing, and what costs nothing counts alike.
        let known = |i: usize, cost: f64| if sizes[i] > 0 { cost } else { 0.0 };
        let mut costs = [known(0, costs[0]), known(1, costs[1])];
        if costs[0] + costs[1] <= 0.0 {
            costs = [known(0, 1.0), known(1, 1.0)];
        }
        let sum = costs[0] + costs[1];
        let weight =
            |i: usize| if sum > 0.0 && sizes[i] > 0 { costs[i] / sum / sizes[i] as f64 } else { 0.0 };
        let (weights, sizes) = ([weight(0), weight(1)], sizes.map(|size| size as u32));
        Scale { weights, sizes, full, prices: Prices::EVEN }
    }

    /// The same with other prices.
    pub(crate) fn priced(self, prices: Prices) -> Scale {
        Scale { prices, ..self }
    }

    /// Whether all covered runs cost the same.
    pub(crate) fn is_even(&self) -> bool {
        self.prices.are_even()
    }

    /// The dear runs that a run of `bytes` costs as much as, when it counts as `weight` covered runs.
    pub(crate) fn cost(&self, bytes: f64, weight: f64) -> f64 {
        weight * self.prices.of(bytes, weight)
    }

    /// Runs per key of the points and of the seeks.
    pub(crate) fn weights(&self) -> [f64; 2] {
        self.weights
    }

    /// The covered runs that a run counts as, 0 to 1.
    pub(crate) fn runs(&self, cover: &Cover) -> f64 {
        if *cover == self.full && self.weights != [0.0, 0.0] {
            return 1.0;
        }
        self.counted(cover.counts())
    }

    /// The covered runs that so many covered keys count as.
    pub(crate) fn counted(&self, counts: Counts) -> f64 {
        if counts == self.sizes && self.weights != [0.0, 0.0] {
            return 1.0;
        }
        self.weights[0] * f64::from(counts[0]) + self.weights[1] * f64::from(counts[1])
    }

    /// The covered runs that merging takes away.
    #[cfg(test)]
    pub(crate) fn removed(&self, covers: &[Cover]) -> f64 {
        let mut union = Cover::default();
        covers.iter().for_each(|cover| union.union(cover));
        covers.iter().map(|cover| self.runs(cover)).sum::<f64>() - self.runs(&union)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::Cow;
    use drumlin_types::contract::draw::plain_file;
    use drumlin_types::{Key, KeyRange, TableId};
    use std::vec::Vec;

    fn cover(count: usize) -> Cover {
        Cover { points: Mask::first(count), seeks: Mask::default() }
    }

    #[test]
    fn nested_masks_take_their_smaller_ones_away() {
        let scale = Scale::new(256, 0, [1.0, 0.0]);
        assert_eq!(scale.removed(&[cover(256), cover(128), cover(64)]), 0.75);
        assert_eq!(scale.removed(&[cover(256), cover(256), cover(256)]), 2.0);
    }

    #[test]
    fn masks_are_what_their_ranges_hold() {
        let keys: Vec<Key> = (0..250u16).map(|n| Key::new(&n.to_be_bytes())).collect();
        let range =
            |a: u16, b: u16| KeyRange::new(Key::new(&a.to_be_bytes()), Some(Key::new(&b.to_be_bytes())));
        let sorted = SortedKeys::new(Cow::Borrowed(&keys));
        for ranges in [
            Vec::from([range(0, 1)]),
            Vec::from([range(3, 64), range(64, 65), range(127, 129)]),
            Vec::from([range(200, 900)]),
            Vec::from([range(10, 10), KeyRange::new(Key::new(&[0, 128]), None)]),
            Vec::new(),
        ] {
            let files: Vec<FileView> =
                ranges.iter().map(|range| plain_file(TableId(1), range.clone(), 1, 2)).collect();
            let mask = Mask::of(&sorted, &files.iter().collect::<Vec<_>>());
            for (bit, key) in keys.iter().enumerate() {
                let is_in = ranges.iter().any(|range| range.contains(key));
                assert_eq!(mask.0[bit / 64] >> (bit % 64) & 1 == 1, is_in, "{bit} of {ranges:?}");
            }
        }
        let all = plain_file(TableId(1), KeyRange::all(), 1, 2);
        assert_eq!(Mask::of(&sorted, &[&all]), Mask::first(250));
    }

    #[test]
    fn disjoint_runs_are_nothing_to_merge() {
        let (mut low, mut high) = (Cover::default(), Cover::default());
        low.points.set(0, 100);
        high.points.set(100, 256);
        let scale = Scale::new(256, 0, [1.0, 1.0]);
        assert_eq!(scale.removed(&[low, high]), 0.0);
        assert_eq!(scale.runs(&low) + scale.runs(&high), 1.0);
        // A sample that matters to nobody counts when there is no other.
        assert_eq!(Scale::new(256, 0, [0.0, 1.0]).runs(&cover(256)), 1.0);
        // No samples at all: nothing is known to be covered.
        assert_eq!(Scale::new(0, 0, [1.0, 1.0]).runs(&low), 0.0);
    }
}
