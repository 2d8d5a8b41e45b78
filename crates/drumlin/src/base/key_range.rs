//! Conversion of Rust ranges of keys, such as `a..b` or `a..=b`, to half-open key ranges.

use drumlin_types::{Key, KeyRange};
use std::ops::{Bound, RangeBounds};

/// Returns the half-open key range that is equal to `range`.
pub(crate) fn key_range<K: AsRef<[u8]>>(range: impl RangeBounds<K>) -> KeyRange {
    let start = match range.start_bound() {
        Bound::Included(key) => Key::new(key.as_ref()),
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
