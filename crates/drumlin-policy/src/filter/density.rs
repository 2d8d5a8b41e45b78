//! How the lookups of a keyspace are spread over its keys.
//!
//! The keys are divided into buckets that held equal numbers of keys when they were made. Sampled lookups are counted
//! by bucket. With them, a new table takes over lookups by the place of its keys, not only by their number. Without
//! buckets, lookups would be assumed to be spread evenly, which is wrong under a skewed load.

use crate::share::share;
use alloc::vec;
use alloc::vec::Vec;
use drumlin_types::{Key, KeyRange};

/// Division of all keys into consecutive buckets.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Buckets {
    /// First key of each bucket but the first, in increasing order.
    splits: Vec<Key>,
    /// Length of the prefix that all of them have in common.
    prefix: usize,
    /// The eight bytes after the prefix as big-endian numbers, in the order of the splits. Most searches need only
    /// these, so they touch few cache lines.
    numbers: Vec<u64>,
}

/// Returns the first eight bytes of `bytes` as a number that orders as they do, with zeros in place of missing ones.
fn number(bytes: &[u8]) -> u64 {
    let mut first = [0; 8];
    first.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    u64::from_be_bytes(first)
}

impl Buckets {
    /// Returns the buckets with these bounds. Equal bounds count once.
    pub fn new(mut splits: Vec<Key>) -> Buckets {
        splits.sort();
        splits.dedup();
        splits.retain(|split| !split.is_empty());
        let prefix = match (splits.first(), splits.last()) {
            (Some(first), Some(last)) => first.iter().zip(last.iter()).take_while(|(a, b)| a == b).count(),
            _ => 0,
        };
        let numbers = splits.iter().map(|split| number(&split[prefix..])).collect();
        Buckets { splits, prefix, numbers }
    }

    /// Returns the number of buckets, at least 1.
    pub fn count(&self) -> usize {
        self.splits.len() + 1
    }

    /// Returns the bounds between the buckets.
    pub fn splits(&self) -> &[Key] {
        &self.splits
    }

    /// Returns the bucket of `key`.
    pub fn of(&self, key: &[u8]) -> usize {
        let common = self.splits.first().and_then(|first| first.get(..self.prefix)).unwrap_or_default();
        let Some(rest) = key.strip_prefix(common) else {
            return self.splits.partition_point(|split| **split <= *key);
        };
        let number = number(rest);
        let first = self.numbers.partition_point(|split| *split < number);
        // Numbers may be equal where splits differ after eight bytes. Only these are compared as keys.
        let equal = self.numbers[first..].partition_point(|split| *split == number);
        first + self.splits[first..first + equal].partition_point(|split| **split <= *key)
    }

    /// Returns the first and the last bucket that `range`, which must not be empty, overlaps.
    pub fn overlapping(&self, range: &KeyRange) -> (usize, usize) {
        let first = self.of(&range.start);
        let last = range
            .end
            .as_ref()
            .map_or(self.splits.len(), |end| self.splits.partition_point(|split| split < end));
        (first, last.max(first))
    }

    /// Returns the keys of bucket `number`.
    pub fn range(&self, number: usize) -> KeyRange {
        let start = number.checked_sub(1).map_or_else(Key::empty, |before| self.splits[before].clone());
        KeyRange::new(start, self.splits.get(number).cloned())
    }

    /// Returns, for each file of one run, its share of all keys. Of a bucket that several files overlap, each has an
    /// equal part. A bucket without files counts for no file.
    pub fn shares(&self, run: &[KeyRange]) -> Vec<f64> {
        self.weighted_shares(run, |_| 1.0)
    }

    /// Like [`shares`](Buckets::shares), but each bucket counts by its `weight`.
    fn weighted_shares(&self, run: &[KeyRange], weight: impl Fn(usize) -> f64) -> Vec<f64> {
        let mut files = vec![0u32; self.count()];
        let overlaps: Vec<(usize, usize)> = run.iter().map(|bounds| self.overlapping(bounds)).collect();
        for (first, last) in &overlaps {
            files[*first..=*last].iter_mut().for_each(|count| *count += 1);
        }
        let total: f64 = (0..self.count()).map(&weight).sum();
        let part = |bucket: usize| weight(bucket) / f64::from(files[bucket].max(1));
        overlaps.iter().map(|(first, last)| (*first..=*last).map(part).sum::<f64>() / total).collect()
    }
}

/// Buckets and the recent lookups in each.
#[derive(Clone, PartialEq, Debug)]
pub struct Density {
    /// The buckets.
    pub buckets: Buckets,
    /// Lookups in each bucket, decayed.
    pub lookups: Vec<f64>,
}

impl Default for Density {
    fn default() -> Density {
        Density::new(Buckets::default())
    }
}

impl Density {
    /// Returns the density without lookups.
    pub fn new(buckets: Buckets) -> Density {
        Density { lookups: vec![0.0; buckets.count()], buckets }
    }

    /// Returns the weight of an entry in bucket `number`: the lookups of the bucket plus one, so that no entry is
    /// without weight.
    pub fn weight(&self, number: usize) -> f64 {
        let lookups = self.lookups.get(number).copied().unwrap_or(0.0);
        1.0 + if lookups.is_finite() { lookups.max(0.0) } else { 0.0 }
    }

    /// Returns the mean weight of an entry in `range`.
    pub fn mean_weight(&self, range: &KeyRange) -> f64 {
        let (first, last) = self.buckets.overlapping(range);
        (first..=last).map(|number| self.weight(number)).sum::<f64>() / (last - first + 1) as f64
    }

    /// Returns, for each file of one run, its share of the weight of all buckets, about that of all lookups.
    pub fn shares(&self, run: &[KeyRange]) -> Vec<f64> {
        self.buckets.weighted_shares(run, |number| self.weight(number))
    }

    /// Returns the density over other buckets. Each of them takes lookups of the present buckets in proportion to the
    /// keys that they share.
    pub fn over(&self, buckets: Buckets) -> Density {
        let mut lookups = vec![0.0; buckets.count()];
        for (number, count) in self.lookups.iter().enumerate().filter(|(_, count)| **count > 0.0) {
            let whole = self.buckets.range(number);
            let (first, last) = buckets.overlapping(&whole);
            let parts: Vec<f64> = (first..=last).map(|new| share(&whole, &buckets.range(new))).collect();
            let total: f64 = parts.iter().sum();
            for (new, part) in (first..=last).zip(&parts) {
                // Keys that are too alike to be told apart by number are divided evenly.
                let part = if total > 0.0 { part / total } else { 1.0 / parts.len() as f64 };
                lookups[new] += count * part;
            }
        }
        Density { buckets, lookups }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SplitMix;

    fn key(text: &str) -> Key {
        Key::new(text.as_bytes())
    }

    fn range(start: &str, end: &str) -> KeyRange {
        KeyRange::new(key(start), Some(key(end)))
    }

    fn buckets(splits: &[&str]) -> Buckets {
        Buckets::new(splits.iter().map(|split| key(split)).collect())
    }

    #[test]
    fn keys_and_ranges_have_their_buckets() {
        let four = buckets(&["m", "g", "t", "m", ""]);
        assert_eq!(four.count(), 4);
        assert_eq!(["a", "g", "l", "m", "z"].map(|text| four.of(text.as_bytes())), [0, 1, 1, 2, 3]);
        assert_eq!(four.overlapping(&range("a", "g")), (0, 0));
        assert_eq!(four.overlapping(&range("a", "g\0")), (0, 1));
        assert_eq!(four.overlapping(&KeyRange::new(key("h"), None)), (1, 3));
        assert_eq!(four.overlapping(&KeyRange::all()), (0, 3));
        assert_eq!(four.range(0), KeyRange::new(Key::empty(), Some(key("g"))));
        assert_eq!(four.range(3), KeyRange::new(key("t"), None));
        assert_eq!(Buckets::default().overlapping(&KeyRange::all()), (0, 0));
    }

    #[test]
    fn numbers_find_the_same_buckets_as_keys() {
        let mut dice = SplitMix::new(5);
        let mut draw = |prefix: &str| {
            let bytes = (0..dice.below(12)).map(|_| b"a\0b\xff"[dice.below(4)]);
            [prefix.as_bytes(), &bytes.collect::<Vec<u8>>()].concat()
        };
        for prefix in ["", "user", "a long prefix"] {
            for count in [0, 1, 2, 40] {
                let buckets = Buckets::new((0..count).map(|_| Key::new(&draw(prefix))).collect());
                let others = ["", "use", "user", "v"].map(|text| text.as_bytes().to_vec());
                let keys = (0..200).map(|_| draw(prefix)).chain(others);
                for key in keys.chain(buckets.splits.iter().map(|split| split.to_vec())) {
                    let expected = buckets.splits.partition_point(|split| **split <= *key);
                    assert_eq!(buckets.of(&key), expected, "{key:?} in {:?}", buckets.splits);
                }
            }
        }
    }

    #[test]
    fn files_share_buckets_evenly() {
        let four = buckets(&["g", "m", "t"]);
        assert_eq!(four.shares(&[KeyRange::all()]), [1.0]);
        assert_eq!(four.shares(&[range("a", "m"), KeyRange::new(key("m"), None)]), [0.5, 0.5]);
        // A run over a part of the keys has a part of them.
        assert_eq!(four.shares(&[range("h", "i")]), [0.25]);
        assert_eq!(four.shares(&[range("a", "c"), range("c", "h")]), [0.125, 0.375]);
        assert!(four.shares(&[]).is_empty());
        assert_eq!(Buckets::default().shares(&[range("a", "b"), range("c", "d")]), [0.5, 0.5]);
    }

    #[test]
    fn lookups_weigh_and_move_to_other_buckets() {
        let mut density = Density::new(buckets(&["g", "m", "t"]));
        density.lookups = vec![9.0, 0.0, 0.0, 0.0];
        assert_eq!(density.shares(&[range("a", "g"), range("g", "z")]), [10.0 / 13.0, 3.0 / 13.0]);
        density.lookups[2] = f64::NAN;
        assert_eq!(density.weight(2), 1.0);
        density.lookups = vec![0.0, 8.0, 4.0, 2.0];
        let coarse = density.over(buckets(&["m"]));
        assert_eq!(coarse.lookups, [8.0, 6.0]);
        let fine = coarse.over(buckets(&["m", "x"]));
        assert!((fine.lookups.iter().sum::<f64>() - 14.0).abs() < 1e-9, "{fine:?}");
        assert_eq!(fine.lookups[0], 8.0);
    }
}
