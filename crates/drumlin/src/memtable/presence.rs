//! Bloom filter over the keys of a memtable. It ends most lookups of absent keys after a few loads.
//!
//! Each key uses one 64-bit word: the key's hash selects a word and four bits in it. Adding a key is one atomic
//! operation; a check is one load and a comparison. A filter cannot grow, so there are several, each eight times as
//! large as the previous one and created when that is full. A key goes into the filter current at that time, and a
//! check covers all existing filters. At sixteen bits per key about 2 % of absent keys pass.
//!
//! Invariant: a key that was added before is never ruled out. "Before" means the happens-before order of the caller:
//! a writer sets the bits before it links the entry, so a reader that may see the entry sees the bits.

use crate::base::prefetch::prefetch;
use drumlin_env::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// Number of keys that the first filter is sized for.
const FIRST_KEYS: usize = 1 << 10;
/// Binary logarithm of the growth factor from one filter to the next.
const GROWTH_BITS: usize = 3;
/// Number of filters. Together they hold more keys than a list has room for.
const FILTERS: usize = 6;
/// Number of keys per word, which makes sixteen bits per key.
const KEYS_A_WORD: usize = 4;

/// Set of keys, represented by their hashes.
pub(super) struct Presence {
    filters: [OnceLock<Box<[AtomicU64]>>; FILTERS],
}

impl Presence {
    /// Creates an empty set, which holds no memory.
    pub(super) fn new() -> Presence {
        Presence { filters: [const { OnceLock::new() }; FILTERS] }
    }

    /// Adds the key with this `hash`. `keys` is the approximate number of keys added before.
    pub(super) fn add(&self, hash: u64, keys: usize) {
        let number = filter_for(keys);
        let words = self.filters[number].get_or_init(|| {
            let words = (FIRST_KEYS << (GROWTH_BITS * number)) / KEYS_A_WORD;
            (0..words).map(|_| AtomicU64::new(0)).collect()
        });
        words[word_of(hash, words.len())].fetch_or(bits_of(hash), Relaxed);
    }

    /// Prefetches what `add` changes.
    pub(super) fn prefetch(&self, hash: u64, keys: usize) {
        if let Some(words) = self.filters[filter_for(keys)].get() {
            prefetch(&words[word_of(hash, words.len())]);
        }
    }

    /// Returns whether the key with this `hash` may have been added.
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        let bits = bits_of(hash);
        let mut made = self.filters.iter().filter_map(OnceLock::get);
        made.any(|words| words[word_of(hash, words.len())].load(Relaxed) & bits == bits)
    }

    /// Returns the memory held, in bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.filters.iter().filter_map(OnceLock::get).map(|words| size_of_val(&**words)).sum()
    }
}

/// Returns the number of the filter that takes the next key after `keys` keys.
fn filter_for(keys: usize) -> usize {
    let mut room = FIRST_KEYS;
    let mut number = 0;
    while keys >= room && number + 1 < FILTERS {
        number += 1;
        room += FIRST_KEYS << (GROWTH_BITS * number);
    }
    number
}

/// Returns the word for `hash` among `words`, a power of two. It uses the high bits, which `bits_of` does not use.
#[inline]
fn word_of(hash: u64, words: usize) -> usize {
    (hash >> 32) as usize & (words - 1)
}

/// Returns a mask of four bits of a word, some of which may coincide.
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

    /// A later filter holds an early key, as when threads are between counting and adding.
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
