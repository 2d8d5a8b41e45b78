//! User keys and half-open key ranges. Keys are ordered bytewise.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::fmt;
use core::ops::Deref;

/// A user key. Cheap to clone: clones share the bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<[u8]>);

impl Key {
    /// Returns a key that holds a copy of `bytes`.
    pub fn new(bytes: &[u8]) -> Key {
        Key(Arc::from(bytes))
    }

    /// Returns the empty key, the smallest key.
    pub fn empty() -> Key {
        Key(Arc::from(&[][..]))
    }

    /// Returns the smallest key greater than `bytes`: `bytes` followed by a zero byte.
    pub fn successor(bytes: &[u8]) -> Key {
        let mut next = Vec::with_capacity(bytes.len() + 1);
        next.extend_from_slice(bytes);
        next.push(0);
        Key(Arc::from(next))
    }

    /// Returns the smallest key greater than every key with this `prefix`, or `None` when no such key exists.
    pub fn prefix_end(prefix: &[u8]) -> Option<Key> {
        let last = prefix.iter().rposition(|&b| b != 0xff)?;
        let mut end = prefix[..=last].to_vec();
        end[last] += 1;
        Some(Key(Arc::from(end)))
    }

    /// Returns the bytes of the key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Deref for Key {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}
impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}
impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Key {
        Key::new(bytes)
    }
}
impl From<Vec<u8>> for Key {
    fn from(bytes: Vec<u8>) -> Key {
        Key(Arc::from(bytes))
    }
}
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

/// A half-open range of keys: includes `start`, excludes `end`. Without an end it is unbounded above.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct KeyRange {
    /// First key of the range.
    pub start: Key,
    /// First key after the range; `None` when the range has no upper bound.
    pub end: Option<Key>,
}

impl KeyRange {
    /// Returns the range `start..end`.
    pub fn new(start: Key, end: Option<Key>) -> KeyRange {
        KeyRange { start, end }
    }

    /// Returns the range of all keys.
    pub fn all() -> KeyRange {
        KeyRange { start: Key::empty(), end: None }
    }

    /// Returns the range `first..=last`.
    pub fn inclusive(first: &[u8], last: &[u8]) -> KeyRange {
        KeyRange { start: Key::new(first), end: Some(Key::successor(last)) }
    }

    /// Returns the range of keys that start with `prefix`.
    pub fn prefix(prefix: &[u8]) -> KeyRange {
        KeyRange { start: Key::new(prefix), end: Key::prefix_end(prefix) }
    }

    /// Returns whether the range contains no key.
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    /// Returns whether the range contains `key`.
    pub fn contains(&self, key: &[u8]) -> bool {
        *key >= *self.start && self.is_before_end(key)
    }

    /// Returns whether `key` is less than the end of the range.
    pub fn is_before_end(&self, key: &[u8]) -> bool {
        match &self.end {
            Some(end) => *key < **end,
            None => true,
        }
    }

    /// Returns whether the two ranges have a key in common.
    pub fn overlaps(&self, other: &KeyRange) -> bool {
        !self.is_empty()
            && !other.is_empty()
            && self.is_before_end(&other.start)
            && other.is_before_end(&self.start)
    }

    /// Returns the intersection of the two ranges, or `None` when they have no key in common.
    pub fn intersect(&self, other: &KeyRange) -> Option<KeyRange> {
        if !self.overlaps(other) {
            return None;
        }
        let start = core::cmp::max(&self.start, &other.start).clone();
        Some(KeyRange { start, end: min_end(&self.end, &other.end).clone() })
    }

    /// Returns whether `self` contains every key of `other`.
    pub fn covers(&self, other: &KeyRange) -> bool {
        other.is_empty() || (self.start <= other.start && min_end(&self.end, &other.end) == &other.end)
    }

    /// Returns the smallest range that covers both.
    pub fn hull(&self, other: &KeyRange) -> KeyRange {
        if self.is_empty() {
            return other.clone();
        }
        if other.is_empty() {
            return self.clone();
        }
        let start = core::cmp::min(&self.start, &other.start).clone();
        let end = match (&self.end, &other.end) {
            (Some(a), Some(b)) => Some(core::cmp::max(a, b).clone()),
            _ => None,
        };
        KeyRange { start, end }
    }

    /// Returns the parts of `self` before and after `cut`. Either part may be absent.
    pub fn subtract(&self, cut: &KeyRange) -> (Option<KeyRange>, Option<KeyRange>) {
        if !self.overlaps(cut) {
            return (Some(self.clone()), None);
        }
        let before = KeyRange { start: self.start.clone(), end: Some(cut.start.clone()) };
        let after = cut.end.as_ref().map(|end| KeyRange { start: end.clone(), end: self.end.clone() });
        (Some(before).filter(|r| !r.is_empty()), after.filter(|r| !r.is_empty()))
    }
}

fn min_end<'a>(a: &'a Option<Key>, b: &'a Option<Key>) -> &'a Option<Key> {
    match (a, b) {
        (Some(x), Some(y)) if x > y => b,
        (None, Some(_)) => b,
        _ => a,
    }
}

impl fmt::Debug for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.end {
            Some(end) => write!(f, "[{:?}..{:?})", self.start, end),
            None => write!(f, "[{:?}..)", self.start),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: &str, end: &str) -> KeyRange {
        KeyRange::new(Key::new(start.as_bytes()), Some(Key::new(end.as_bytes())))
    }

    #[test]
    fn intersections_and_rests() {
        let whole = range("b", "y");
        assert_eq!(whole.intersect(&range("a", "c")), Some(range("b", "c")));
        assert_eq!(whole.intersect(&range("y", "z")), None);
        assert_eq!(whole.intersect(&KeyRange::all()), Some(whole.clone()));
        assert_eq!(whole.subtract(&range("c", "d")), (Some(range("b", "c")), Some(range("d", "y"))));
        assert_eq!(whole.subtract(&range("a", "d")), (None, Some(range("d", "y"))));
        assert_eq!(whole.subtract(&KeyRange::all()), (None, None));
        assert_eq!(whole.subtract(&range("z", "zz")), (Some(whole.clone()), None));
    }

    #[test]
    fn cover_and_hull() {
        assert!(KeyRange::all().covers(&range("a", "b")));
        assert!(!range("a", "b").covers(&KeyRange::all()));
        assert!(range("a", "c").covers(&range("a", "c")));
        assert_eq!(range("a", "b").hull(&range("x", "z")), range("a", "z"));
        assert_eq!(range("a", "b").hull(&KeyRange::all()), KeyRange::all());
    }

    #[test]
    fn prefixes_end_where_they_should() {
        assert_eq!(Key::prefix_end(b"a\xff\xff").as_deref(), Some(&b"b"[..]));
        assert_eq!(Key::prefix_end(b"\xff"), None);
        assert_eq!(Key::prefix_end(b""), None);
        assert!(KeyRange::inclusive(b"a", b"c").contains(b"c"));
        assert!(!KeyRange::inclusive(b"a", b"c").contains(b"c\0"));
    }
}
