//! Which keys a memtable may hold: most lookups of keys that it does not hold end here, after a few loads.
//!
//! A Bloom filter of one 64-bit word a key: the key's hash chooses a word and four bits in it, so adding a key is one
//! atomic operation and asking for one a load and a comparison. A filter cannot grow, so there are
//! several, each eight times as large as the one before and made when that is full; a key goes into the one at
//! hand, and is looked for in all that exist. At sixteen bits a key about two in a hundred absent keys pass.
//!
//! Invariant: a key that was added before is never denied. "Before" is by the happens-before order of the caller: bits
//! are set before the entry is linked, and whoever may see the entry sees them.

use drumlin_env::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// Keys that the first filter is made for.
const FIRST_KEYS: usize = 1 << 10;
/// Each filter is larger than the one before by two to this.
const GROWTH_BITS: usize = 3;
/// Together for more keys than a list has room for.
const FILTERS: usize = 6;
/// Words per key are one in this many: sixteen bits a key.
const KEYS_A_WORD: usize = 4;

/// A set of keys, by their hashes.
pub(super) struct Presence {
    filters: [OnceLock<Box<[AtomicU64]>>; FILTERS],
}

impl Presence {
    /// No keys; no memory either.
    pub(super) fn new() -> Presence {
        Presence { filters: [const { OnceLock::new() }; FILTERS] }
    }

    /// Adds the key with this `hash`, when about `keys` are here already.
    pub(super) fn add(&self, hash: u64, keys: usize) {
        let number = filter_for(keys);
        let words = self.filters[number].get_or_init(|| {
            let words = (FIRST_KEYS << (GROWTH_BITS * number)) / KEYS_A_WORD;
            (0..words).map(|_| AtomicU64::new(0)).collect()
        });
        words[word_of(hash, words.len())].fetch_or(bits_of(hash), Relaxed);
    }

    /// Whether the key with this `hash` may have been added.
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        let bits = bits_of(hash);
        let mut made = self.filters.iter().filter_map(OnceLock::get);
        made.any(|words| words[word_of(hash, words.len())].load(Relaxed) & bits == bits)
    }

    /// Bytes of memory held.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.filters.iter().filter_map(OnceLock::get).map(|words| size_of_val(&**words)).sum()
    }
}

/// Number of the filter that takes the next key after `keys`.
fn filter_for(keys: usize) -> usize {
    let mut room = FIRST_KEYS;
    let mut number = 0;
    while keys >= room && number + 1 < FILTERS {
        number += 1;
        room += FIRST_KEYS << (GROWTH_BITS * number);
    }
    number
}

/// The word for `hash` among `words`, a power of two: by the high bits, which `bits_of` does not use.
#[inline]
fn word_of(hash: u64, words: usize) -> usize {
    (hash >> 32) as usize & (words - 1)
}

/// Four of the 64 bits of a word, perhaps some of them the same.
#[inline]
fn bits_of(hash: u64) -> u64 {
    (1 << (hash & 63)) | (1 << (hash >> 6 & 63)) | (1 << (hash >> 12 & 63)) | (1 << (hash >> 18 & 63))
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_format::filter::mix;

    #[test]
    fn keys_that_were_added_pass_and_few_others_do() {
        let set = Presence::new();
        assert!(!set.may_contain(mix(1)));
        assert_eq!(set.bytes(), 0);
        let keys: u64 = if cfg!(miri) { 100 } else { 40_000 };
        for n in 0..keys {
            set.add(mix(n), n as usize);
        }
        assert!((0..keys).all(|n| set.may_contain(mix(n))));
        let passed = (keys..2 * keys).filter(|&n| set.may_contain(mix(n))).count() as f64;
        assert!(passed < 0.06 * keys as f64, "{passed} of {keys}");
        assert!(set.bytes() <= 20 * keys as usize + (FIRST_KEYS << 6) * 2);
    }

    /// A late filter for an early key, as when threads are between counting and adding.
    #[test]
    fn filters_made_out_of_turn_are_found() {
        let set = Presence::new();
        set.add(mix(1), 5 * FIRST_KEYS);
        set.add(mix(2), 0);
        assert!(set.may_contain(mix(1)) && set.may_contain(mix(2)));
    }

    #[test]
    fn filters_fill_one_after_the_other() {
        let at = |keys| filter_for(keys);
        assert_eq!(
            [at(0), at(1023), at(1024), at(9215), at(9216), at(usize::MAX)],
            [0, 0, 1, 1, 2, FILTERS - 1]
        );
    }
}
