//! Sorted keys in which bounds are found by comparing integers.
//!
//! A decision looks up thousands of bounds among a few hundred keys, and comparing keys byte by byte would take most
//! of its time. The keys share a prefix. The eight bytes after it, read as an integer, distinguish nearly all keys.
//! Where two integers are equal the keys themselves are compared, so every answer is exact.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::cmp::Ordering;
use drumlin_types::Key;

/// Keys in ascending order.
#[derive(Clone, Debug, Default)]
pub(crate) struct SortedKeys<'a> {
    keys: Cow<'a, [Key]>,
    /// Length of the prefix that all keys share.
    prefix: usize,
    /// Up to eight bytes of the prefix, as an integer.
    head: u64,
    /// Eight bytes of each key after the prefix, as an integer.
    digits: Vec<u64>,
}

impl<'a> SortedKeys<'a> {
    /// Wraps `keys`, which must be sorted.
    pub(crate) fn new(keys: Cow<'a, [Key]>) -> SortedKeys<'a> {
        let prefix = match &keys[..] {
            [first, .., last] => shared_prefix(first, last),
            _ => 0,
        };
        let digits = keys.iter().map(|key| digits(key, prefix)).collect();
        let head = keys.first().map_or(0, |first| head(first, prefix));
        SortedKeys { keys, prefix, head, digits }
    }

    /// Returns the number of keys.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns the key at `at`.
    pub(crate) fn get(&self, at: usize) -> Option<&Key> {
        self.keys.get(at)
    }

    /// Returns the number of keys before `bound`.
    pub(crate) fn before(&self, bound: &[u8]) -> usize {
        let Some(first) = self.keys.first() else { return 0 };
        if self.prefix > 0 {
            let order = if self.prefix <= DIGITS && bound.len() >= self.prefix {
                head(bound, self.prefix).cmp(&self.head)
            } else {
                bound[..bound.len().min(self.prefix)].cmp(&first[..self.prefix])
            };
            match order {
                Ordering::Less => return 0,
                Ordering::Greater => return self.keys.len(),
                Ordering::Equal => {}
            }
        }
        let own = digits(bound, self.prefix);
        // Bounds of large runs usually lie beyond either end.
        match self.digits[..] {
            [first, ..] if own < first => return 0,
            [.., last] if own > last => return self.keys.len(),
            _ => {}
        }
        let from = self.digits.partition_point(|digits| *digits < own);
        let equal = self.digits[from..].partition_point(|digits| *digits == own);
        from + self.keys[from..from + equal].partition_point(|key| **key < *bound)
    }
}

/// Returns the number of leading bytes that both keys share.
pub(crate) fn shared_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Bytes of an integer.
const DIGITS: usize = 8;

/// Returns the eight bytes of `key` after `prefix` as a big-endian integer; missing bytes are zero.
#[inline]
pub(crate) fn digits(key: &[u8], prefix: usize) -> u64 {
    let rest = key.get(prefix..).unwrap_or_default();
    if let Some(digits) = rest.first_chunk() {
        return u64::from_be_bytes(*digits);
    }
    let number = rest.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    if rest.is_empty() { 0 } else { number << (8 * (DIGITS - rest.len())) }
}

/// Returns the first `count` bytes of `key`, at most eight, as an integer. `count` must not be 0.
#[inline]
fn head(key: &[u8], count: usize) -> u64 {
    digits(key, 0) >> (8 * DIGITS.saturating_sub(count).min(DIGITS - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SplitMix;

    #[test]
    fn bounds_are_found_as_by_comparing_keys() {
        let mut dice = SplitMix::new(17);
        for round in 0..300 {
            // Long common prefixes, equal integers, short keys.
            let shared = [0, 3, 12][round % 3];
            let mut draw = |least: usize| {
                let mut key = Vec::from([7u8; 12]);
                key.truncate(shared);
                let count = least + dice.below(11);
                key.extend((0..count).map(|_| [0u8, 0, 1, 255][dice.below(4)]));
                Key::new(&key)
            };
            let mut keys: Vec<Key> = (0..40).map(|_| draw(1)).collect();
            keys.sort();
            let mut bounds: Vec<Key> = (0..40).map(|_| draw(0)).collect();
            bounds.extend([Key::empty(), Key::new(&[7; 5]), Key::new(&[255; 40])]);
            let sorted = SortedKeys::new(Cow::Borrowed(&keys));
            for bound in bounds.iter().chain(&keys) {
                assert_eq!(sorted.before(bound), keys.partition_point(|key| key < bound), "{bound:?}");
            }
        }
        assert_eq!(SortedKeys::default().before(b"a"), 0);
    }
}
