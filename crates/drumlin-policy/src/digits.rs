//! Keys as numbers, to interpolate positions between two keys and to make keys at such positions.
//!
//! The bytes after the common prefix of a range's two ends are the digits of a fraction. In binary keys each byte is
//! a digit, and eight digits count. Text keys use only a few byte values. Counted in bytes, "user0999" is only a
//! fiftieth of the way from "user0000" to "user2000", and nothing lies between "user0:" and "user1". So where both
//! ends are text, the digits are the decimals, letters and other characters that occur in these ends.
//!
//! Architecture invariant: numbers follow key order. A key that is not smaller than another never gets a smaller
//! number, whatever its characters. So unevenly spread keys make estimates inexact but never reverse their order.

use alloc::vec::Vec;
use drumlin_types::{Key, KeyRange};

/// Number of leading key bytes that are inspected to recognize text.
const LOOKED_AT: usize = 64;
/// Least total length of both ends that makes them text; shorter printable ends may be binary keys. Split keys in
/// text have at least this length, too.
const TEXT: usize = 10;
/// Upper bound on the number of text digits that count.
const MOST_DIGITS: u32 = 16;

/// Set of ASCII characters, one bit each.
type Set = u128;

const DECIMALS: Set = span(b'0', b'9');
/// Letters of hexadecimal numbers and all letters, in lower and upper case.
const LETTERS: [(Set, Set); 2] = [(span(b'a', b'f'), span(b'a', b'z')), (span(b'A', b'F'), span(b'A', b'Z'))];
const PRINTED: Set = span(b' ', b'~');

const fn span(from: u8, to: u8) -> Set {
    ((1 << (to + 1)) - 1) & !((1 << from) - 1)
}

/// Numbering of the keys of a range.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Digits {
    /// Length of the prefix that both ends have in common.
    prefix: usize,
    /// Characters that serve as digits of text; empty for binary keys.
    set: Set,
    /// Number of different digits, and number of digits that count.
    base: u64,
    count: u32,
}

impl Digits {
    /// Returns the numbering of the keys in `range`.
    pub(crate) fn of(range: &KeyRange) -> Digits {
        let Some(end) = &range.end else { return Digits { prefix: 0, set: 0, base: 256, count: 8 } };
        let prefix = common_prefix(&range.start, end);
        let is_text = printed(&range.start).zip(printed(end)).is_some_and(|(a, b)| a + b >= TEXT);
        let set = if is_text { characters(&range.start, prefix) | characters(end, prefix) } else { 0 };
        // A single character cannot number anything.
        if set.count_ones() < 2 {
            return Digits { prefix, set: 0, base: 256, count: 8 };
        }
        let base = u64::from(set.count_ones());
        let count = (1..=MOST_DIGITS).take_while(|n| base.checked_pow(*n).is_some_and(|all| all >> 63 == 0));
        Digits { prefix, set, base, count: count.last().unwrap_or(1) }
    }

    /// Returns the number of `key`, which begins with the prefix.
    pub(crate) fn number(&self, key: &[u8]) -> u64 {
        let rest = key.get(self.prefix..).unwrap_or_default();
        if self.set == 0 {
            let mut bytes = [0u8; 8];
            bytes.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            return u64::from_be_bytes(bytes);
        }
        let (mut number, mut left) = (0, self.count);
        for byte in rest.iter().take(self.count as usize) {
            left -= 1;
            let bit = if *byte < 128 { 1 << *byte } else { 0 };
            let below = if *byte < 128 { self.set & (bit - 1) } else { self.set };
            number = number * self.base + u64::from(below.count_ones());
            if self.set & bit == 0 {
                // The byte lies between two digits or after all of them. Following bytes must not carry the number
                // past the next digit.
                break;
            }
        }
        number * self.base.pow(left)
    }

    /// Returns a short key with that number that begins with `start`'s prefix.
    fn key(&self, start: &[u8], mut number: u64) -> Key {
        let mut bytes: Vec<u8> = start.iter().take(self.prefix).copied().collect();
        if self.set == 0 {
            bytes.extend_from_slice(&number.to_be_bytes());
            while bytes.len() > self.prefix + 1 && bytes.last() == Some(&0) {
                bytes.pop();
            }
            return Key::new(&bytes);
        }
        let characters: Vec<u8> = (0..128).filter(|byte| self.set & (1 << byte) != 0).collect();
        let mut digits = Vec::new();
        for _ in 0..self.count {
            digits.push((number % self.base) as usize);
            number /= self.base;
        }
        digits.reverse();
        while self.prefix + digits.len() > TEXT && digits.last() == Some(&0) {
            digits.pop();
        }
        bytes.extend(digits.iter().filter_map(|digit| characters.get(*digit)));
        Key::new(&bytes)
    }
}

/// Returns a key inside `range`, at the fraction `part / parts` of the way.
pub fn between(range: &KeyRange, part: u64, parts: u64) -> Option<Key> {
    let digits = Digits::of(range);
    let (low, high) =
        (digits.number(&range.start), range.end.as_ref().map_or(u64::MAX, |e| digits.number(e)));
    let offset = u128::from(high.checked_sub(low)?) * u128::from(part) / u128::from(parts.max(1));
    let key = digits.key(&range.start, low + offset as u64);
    (key > range.start && range.is_before_end(&key)).then_some(key)
}

/// Returns the length of the common prefix. Compares in blocks, because the ends of a file often have long ones.
fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    const BLOCK: usize = 32;
    let blocks = a.chunks_exact(BLOCK).zip(b.chunks_exact(BLOCK));
    let equal = blocks.take_while(|(a, b)| a == b).count() * BLOCK;
    equal + a[equal..].iter().zip(&b[equal..]).take_while(|(a, b)| a == b).count()
}

/// Returns the length of `key` if its inspected bytes are all printable. The zero byte that file ends have after
/// their last key does not count.
fn printed(key: &[u8]) -> Option<usize> {
    let key = key.strip_suffix(&[0]).unwrap_or(key);
    let is_printed = |byte: &u8| *byte < 128 && PRINTED & (1 << byte) != 0;
    key.iter().take(LOOKED_AT).all(is_printed).then_some(key.len())
}

/// Returns the digits that `key` uses after `prefix`: whole classes of characters, and single characters that belong
/// to none.
fn characters(key: &[u8], prefix: usize) -> Set {
    let key = key.strip_suffix(&[0]).unwrap_or(key).get(prefix..).unwrap_or_default();
    let key = &key[..key.len().min(MOST_DIGITS as usize)];
    let seen = key.iter().filter(|byte| **byte < 128).fold(0, |set: Set, byte| set | 1 << byte);
    let mut set = seen;
    if seen & DECIMALS != 0 {
        set |= DECIMALS;
    }
    for (hexadecimal, all) in LETTERS {
        if seen & all & !hexadecimal != 0 {
            set |= all;
        } else if seen & hexadecimal != 0 {
            set |= hexadecimal;
        }
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SplitMix;
    use crate::share::share;
    use alloc::{format, vec};

    fn range(start: &[u8], end: &[u8]) -> KeyRange {
        KeyRange::new(Key::new(start), Some(Key::new(end)))
    }

    /// Returns the range of a file from `first` to `last`.
    fn file(first: &str, last: &str) -> KeyRange {
        range(first.as_bytes(), format!("{last}\0").as_bytes())
    }

    #[test]
    fn decimals_are_numbered_by_ten() {
        let whole = file("user0000000000", "user0002559999");
        for quarter in 1..4u64 {
            let key = between(&whole, quarter, 4).unwrap();
            let number: f64 = core::str::from_utf8(&key[4..]).unwrap().parse().unwrap();
            let full = 10f64.powi(14 - key.len() as i32);
            assert!((number * full - 640_000.0 * quarter as f64).abs() < 2.0, "{key:?}");
            let part = share(&whole, &KeyRange::new(whole.start.clone(), Some(key)));
            assert!((part - quarter as f64 / 4.0).abs() < 1e-5, "{part}");
        }
        assert_eq!(between(&file("user0", "user4"), 1, 2), Some(Key::new(b"user200000")));
        assert_eq!(between(&range(b" ", b"@"), 1, 2), Some(Key::new(b"0")), "binary, perhaps");
    }

    #[test]
    fn prefixes_are_compared_in_blocks() {
        for length in [0, 1, 31, 32, 33, 64, 100] {
            let key = vec![7; length];
            for at in 0..length {
                let mut other = key.clone();
                other[at] = 8;
                assert_eq!(common_prefix(&key, &other), at);
            }
            for other in 0..=length {
                assert_eq!(common_prefix(&key, &key[..other]), other);
            }
        }
    }

    /// Splits hexadecimal digests, words and binary keys at tenths: about a tenth of the keys lies in each part.
    #[test]
    fn cuts_are_even_whatever_keys_are_written_in() {
        let mut dice = SplitMix::new(3);
        let mut keys: [Vec<Vec<u8>>; 5] = Default::default();
        for _ in 0..4000 {
            let (one, other) = (dice.next_u64(), dice.next_u64());
            keys[0].push(format!("{one:016x}").into_bytes());
            keys[1].push(format!("{:08X}-{:04X}", one as u32, other as u16).into_bytes());
            let letter = |n: u64| char::from(b'a' + (n % 26) as u8);
            keys[2].push((0..9).map(|n| letter(one >> (n * 6)) as u8).collect());
            keys[3].push(format!("t/{:06}/{:09}", one % 3, other % 1_000_000_000).into_bytes());
            keys[4].push([one.to_be_bytes(), other.to_be_bytes()].concat());
        }
        for (kind, mut keys) in keys.into_iter().enumerate() {
            keys.sort();
            let whole = range(&keys[0], &[&keys[3999][..], &[0]].concat());
            let cuts: Vec<Key> = (1..10).map(|part| between(&whole, part, 10).unwrap()).collect();
            assert!(cuts.windows(2).all(|pair| pair[0] < pair[1]));
            for (at, cut) in cuts.iter().enumerate() {
                let below = keys.partition_point(|key| key[..] < cut[..]) as f64 / 4000.0;
                // Kind 3 has three table numbers before the decimals, which is almost nothing to interpolate by.
                let off = if kind == 3 { 0.3 } else { 0.04 };
                assert!((below - (at + 1) as f64 / 10.0).abs() < off, "{kind}: {below} below cut {at}");
            }
        }
    }

    /// Numbers follow the order of the keys for all ends and even the strangest keys.
    #[test]
    fn numbers_follow_the_order_of_keys() {
        let mut dice = SplitMix::new(8);
        let mut key = |text: bool| -> Vec<u8> {
            let length = dice.below(9);
            let byte = |n: usize| if text { b"019afgzAFZ-:/ "[n % 14] } else { (n % 256) as u8 };
            (0..length).map(|_| byte(dice.below(1 << 20))).collect()
        };
        let mut texts = 0;
        for turn in 0..20_000 {
            let mut ends = [key(turn % 4 != 0), key(turn % 4 != 0)];
            ends.sort();
            let [start, end] = ends;
            if start == end {
                continue;
            }
            let whole = range(&start, &end);
            let digits = Digits::of(&whole);
            texts += usize::from(digits.set != 0);
            let prefix = &start[..digits.prefix];
            let mut inside: Vec<Vec<u8>> = (0..4).map(|n| [prefix, &key(n % 2 == 0)].concat()).collect();
            inside.extend([start.clone(), end.clone()]);
            inside.extend(between(&whole, 1, 2).map(|key| key.to_vec()));
            inside.sort();
            let numbers: Vec<u64> = inside.iter().map(|key| digits.number(key)).collect();
            assert!(numbers.is_sorted(), "{inside:?} {numbers:?} {digits:?}");
        }
        assert!(texts > 5000, "{texts}");
    }
}
