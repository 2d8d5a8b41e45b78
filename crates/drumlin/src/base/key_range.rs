//! Conversion of Rust ranges of keys, such as `a..b` or `a..=b`, to half-open key ranges.

use drumlin_types::{Key, KeyRange, MAX_KEY_LEN};
use std::ops::{Bound, RangeBounds};

/// Returns the half-open key range that is equal to `range`.
pub(crate) fn key_range<K: AsRef<[u8]>>(range: impl RangeBounds<K>) -> KeyRange {
    let start = match range.start_bound() {
        Bound::Included(key) => Key::new(key.as_ref()),
        // No key is longer, so the next one differs in an earlier byte. After the last key comes nothing.
        Bound::Excluded(key) if key.as_ref().len() == MAX_KEY_LEN => match Key::prefix_end(key.as_ref()) {
            Some(next) => next,
            None => return KeyRange::new(Key::new(key.as_ref()), Some(Key::new(key.as_ref()))),
        },
        Bound::Excluded(key) => Key::successor(key.as_ref()),
        Bound::Unbounded => Key::empty(),
    };
    let end = match range.end_bound() {
        Bound::Included(key) => Some(Key::successor(key.as_ref())),
        Bound::Excluded(key) => Some(Key::new(key.as_ref())),
        Bound::Unbounded => None,
    };
    KeyRange::new(start, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_keys_have_successors() {
        let range = |key: &[u8]| key_range::<&[u8]>((Bound::Excluded(key), Bound::Unbounded));
        assert_eq!(range(b"a"), KeyRange::new(Key::new(b"a\0"), None));
        let mut longest = vec![0xff; MAX_KEY_LEN];
        assert!(range(&longest).is_empty(), "no key follows");
        longest[0] = b'a';
        assert_eq!(range(&longest), KeyRange::new(Key::new(b"b"), None));
    }
}
