//! Bit masks of the recently requested keys that a run covers.
//!
//! A mask has one bit for each of up to 256 sampled keys. Keys of point lookups and start keys of scans have separate
//! masks. The covered runs s of a tree are the mean number of runs that cover a sampled key. A compaction removes y
//! covered runs: the sum of its inputs' bits minus the bits of their union, as a share of the sample. Runs without
//! common keys give y = 0, whatever their size.

use crate::compaction::arce::candidates::sorted::SortedKeys;
use crate::compaction::arce::measure::prices::Prices;
use drumlin_types::contract::FileView;

/// Number of bits in a mask.
pub(crate) const BITS: usize = 256;

/// A set of sampled keys, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Mask([u64; BITS / 64]);

impl Mask {
    /// Returns a mask of the first `count` bits.
    pub(crate) fn first(count: usize) -> Mask {
        let mut mask = Mask::default();
        mask.set(0, count);
        mask
    }

    /// Sets the bits `from..to`.
    fn set(&mut self, from: usize, to: usize) {
        for (index, word) in self.0.iter_mut().enumerate() {
            let below = |bit: usize| match bit.saturating_sub(index * 64) {
                bit @ ..64 => (1 << bit) - 1,
                _ => u64::MAX,
            };
            *word |= below(to) & !below(from);
        }
    }

    /// Returns the sampled keys that lie in one of `files`, which must be sorted and disjoint. A sample has at most
    /// as many keys as a mask has bits.
    ///
    /// Steps from key to key, so the time depends on the size of the sample and not on the number of files.
    pub(crate) fn of(keys: &SortedKeys<'_>, files: &[&FileView]) -> Mask {
        let mut mask = Mask::default();
        if let [file] = files {
            let end = file.bounds.end.as_ref();
            mask.set(keys.before(&file.bounds.start), end.map_or(keys.len(), |end| keys.before(end)));
            return mask;
        }
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

    /// Returns whether the mask has the key at `at`.
    pub(crate) fn has(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    /// Returns the number of keys.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        let [a, b, c, d] = self.0;
        a.count_ones() + b.count_ones() + c.count_ones() + d.count_ones()
    }

    #[inline]
    fn union(&mut self, other: &Mask) {
        let ([a, b, c, d], [e, f, g, h]) = (self.0, other.0);
        self.0 = [a | e, b | f, c | g, d | h];
    }

    /// Removes the keys of `other`. Returns whether anything changed.
    #[inline]
    fn remove(&mut self, other: &Mask) -> bool {
        let ([a, b, c, d], [e, f, g, h]) = (self.0, other.0);
        self.0 = [a & !e, b & !f, c & !g, d & !h];
        (a & e) | (b & f) | (c & g) | (d & h) != 0
    }
}

/// Sums over many masks, for each group of eight sampled keys.
///
/// Eight counts share a word until one of them could overflow its byte.
#[derive(Clone, Default)]
pub(crate) struct ByEight {
    sums: [u32; BITS / 8],
    words: [u64; BITS / 64],
    /// Masks in `words`.
    added: u32,
}

impl ByEight {
    /// Number of masks that a byte can count, with eight keys each.
    const MOST: u32 = u8::MAX as u32 / 8;

    pub(crate) fn add(&mut self, mask: &Mask) {
        if self.added == Self::MOST {
            self.carry();
        }
        let ([a, b, c, d], [e, f, g, h], ones) = (self.words, mask.0, ones_per_byte);
        self.words = [a + ones(e), b + ones(f), c + ones(g), d + ones(h)];
        self.added += 1;
    }

    fn carry(&mut self) {
        let counts = self.words.iter().flat_map(|word| word.to_le_bytes());
        self.sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += u32::from(count));
        (self.words, self.added) = (Default::default(), 0);
    }

    /// Returns the sums.
    pub(crate) fn sums(mut self) -> [u32; BITS / 8] {
        self.carry();
        self.sums
    }
}

/// Returns the number of ones in each byte of `word`, in that byte.
#[inline]
fn ones_per_byte(word: u64) -> u64 {
    let by_two = word - (word >> 1 & 0x5555_5555_5555_5555);
    let by_four = (by_two & 0x3333_3333_3333_3333) + (by_two >> 2 & 0x3333_3333_3333_3333);
    (by_four + (by_four >> 4)) & 0x0f0f_0f0f_0f0f_0f0f
}

/// The sampled keys of both kinds that a run covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cover {
    pub(crate) points: Mask,
    pub(crate) seeks: Mask,
}

impl Cover {
    /// Adds the keys that `other` covers.
    #[inline]
    pub(crate) fn union(&mut self, other: &Cover) {
        self.points.union(&other.points);
        self.seeks.union(&other.seeks);
    }
}

/// Numbers of covered keys of both kinds.
pub(crate) type Counts = [u32; 2];

impl Cover {
    /// Returns the numbers of covered keys.
    pub(crate) fn counts(&self) -> Counts {
        [self.points.count(), self.seeks.count()]
    }

    /// Removes the keys that `other` covers, and updates `counts`.
    #[inline]
    pub(crate) fn remove(&mut self, other: &Cover, counts: &mut Counts) {
        if self.points.remove(&other.points) {
            counts[0] = self.points.count();
        }
        if self.seeks.remove(&other.seeks) {
            counts[1] = self.seeks.count();
        }
    }
}

/// Converts covered keys to covered runs: the sample sizes, and the weight of each sample for readers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct CoverScale {
    /// Runs per bit of the point and the seek sample.
    weights: [f64; 2],
    sizes: Counts,
    /// Cover of a run over all keys.
    pub(crate) full: Cover,
    /// Read cost of runs by their sizes.
    prices: Prices,
}

impl CoverScale {
    /// Returns the scale for samples of `points` and `seeks` keys. `costs` is what a covered run adds to the mean
    /// operation by way of lookups and of seeks. If both are 0, both samples count alike.
    pub(crate) fn new(points: usize, seeks: usize, costs: [f64; 2]) -> CoverScale {
        let sizes = [points.min(BITS), seeks.min(BITS)];
        let full = Cover { points: Mask::first(sizes[0]), seeks: Mask::first(sizes[1]) };
        // An empty sample counts nothing.
        let known = |i: usize, cost: f64| if sizes[i] > 0 { cost } else { 0.0 };
        let mut costs = [known(0, costs[0]), known(1, costs[1])];
        if costs[0] + costs[1] <= 0.0 {
            costs = [known(0, 1.0), known(1, 1.0)];
        }
        let sum = costs[0] + costs[1];
        let weight =
            |i: usize| if sum > 0.0 && sizes[i] > 0 { costs[i] / sum / sizes[i] as f64 } else { 0.0 };
        let (weights, sizes) = ([weight(0), weight(1)], sizes.map(|size| size as u32));
        CoverScale { weights, sizes, full, prices: Prices::UNIFORM }
    }

    /// Returns the same scale with other prices.
    pub(crate) fn priced(self, prices: Prices) -> CoverScale {
        CoverScale { prices, ..self }
    }

    /// Returns whether all covered runs cost readers the same.
    pub(crate) fn is_uniform(&self) -> bool {
        self.prices.are_uniform()
    }

    /// Returns the read cost, in uncached runs, of a run of `bytes` that counts as `weight` covered runs.
    pub(crate) fn cost(&self, bytes: f64, weight: f64) -> f64 {
        weight * self.prices.of(bytes, weight)
    }

    /// Returns the runs per key of the point and the seek sample.
    pub(crate) fn weights(&self) -> [f64; 2] {
        self.weights
    }

    /// Returns the covered runs that a run counts as, 0 to 1.
    pub(crate) fn runs(&self, cover: &Cover) -> f64 {
        if *cover == self.full && self.weights != [0.0, 0.0] {
            return 1.0;
        }
        self.counted(cover.counts())
    }

    /// Returns the covered runs that these numbers of covered keys count as.
    #[inline]
    pub(crate) fn counted(&self, counts: Counts) -> f64 {
        if counts == self.sizes && self.weights != [0.0, 0.0] {
            return 1.0;
        }
        self.weights[0] * f64::from(counts[0]) + self.weights[1] * f64::from(counts[1])
    }

    /// Returns the covered runs that a compaction removes.
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
        let scale = CoverScale::new(256, 0, [1.0, 0.0]);
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
    fn sums_by_eight_are_counted_bits() {
        let mut dice = crate::SplitMix::new(3);
        let (mut sums, mut expected) = (ByEight::default(), [0; BITS / 8]);
        for round in 0..100 {
            let mut mask = Mask::first(if round % 3 == 0 { BITS } else { 0 });
            (0..4).for_each(|_| mask.set(dice.below(BITS), dice.below(BITS + 1)));
            sums.add(&mask);
            let bytes = mask.0.iter().flat_map(|word| word.to_le_bytes());
            expected.iter_mut().zip(bytes).for_each(|(sum, byte): (&mut u32, u8)| *sum += byte.count_ones());
            assert_eq!(sums.clone().sums(), expected);
        }
    }

    #[test]
    fn disjoint_runs_are_nothing_to_merge() {
        let (mut low, mut high) = (Cover::default(), Cover::default());
        low.points.set(0, 100);
        high.points.set(100, 256);
        let scale = CoverScale::new(256, 0, [1.0, 1.0]);
        assert_eq!(scale.removed(&[low, high]), 0.0);
        assert_eq!(scale.runs(&low) + scale.runs(&high), 1.0);
        // A sample of no weight counts if there is no other.
        assert_eq!(CoverScale::new(256, 0, [0.0, 1.0]).runs(&cover(256)), 1.0);
        // Without samples, no key is covered.
        assert_eq!(CoverScale::new(0, 0, [1.0, 1.0]).runs(&low), 0.0);
    }
}
