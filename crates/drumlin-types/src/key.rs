//! User keys and half-open ranges of them. Keys are ordered as byte strings.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::fmt;
use core::ops::Deref;

/// A user key, cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<[u8]>);

impl Key {
    /// A copy of `bytes`.
    pub fn new(bytes: &[u8]) -> Key {
        Key(Arc::from(bytes))
    }

    /// The empty key, the smallest of all.
    pub fn empty() -> Key {
        Key(Arc::from(&[][..]))
    }

    /// The smallest key above `bytes`: `bytes` followed by a zero byte.
    pub fn successor(bytes: &[u8]) -> Key {
        let mut next = Vec::with_capacity(bytes.len() + 1);
        next.extend_from_slice(bytes);
        next.push(0);
        Key(Arc::from(next))
    }

    /// The smallest key above every key that starts with `prefix`; `None` when there is none.
    pub fn prefix_end(prefix: &[u8]) -> Option<Key> {
        let last = prefix.iter().rposition(|&b| b != 0xff)?;
        let mut end = prefix[..=last].to_vec();
        end[last] += 1;
        Some(Key(Arc::from(end)))
    }

    /// The bytes.
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

/// A half-open range of keys: `start` is in it, `end` is not. No end means unbounded.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct KeyRange {
    /// First key of the range.
    pub start: Key,
    /// First key after the range, or `None` for "to the last key there is".
    pub end: Option<Key>,
}

impl KeyRange {
    /// `start..end`.
    pub fn new(start: Key, end: Option<Key>) -> KeyRange {
        KeyRange { start, end }
    }

    /// Every key.
    pub fn all() -> KeyRange {
        KeyRange { start: Key::empty(), end: None }
    }

    /// `first..=last`.
    pub fn inclusive(first: &[u8], last: &[u8]) -> KeyRange {
        KeyRange { start: Key::new(first), end: Some(Key::successor(last)) }
    }

    /// The keys that start with `prefix`.
    pub fn prefix(prefix: &[u8]) -> KeyRange {
        KeyRange { start: Key::new(prefix), end: Key::prefix_end(prefix) }
    }

    /// Whether no key is in the range.
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    /// Whether `key` is in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        *key >= *self.start && self.is_before_end(key)
    }

    /// Whether `key` lies before the end of the range.
    pub fn is_before_end(&self, key: &[u8]) -> bool {
        match &self.end {
            Some(end) => *key < **end,
            None => true,
        }
    }

    /// Whether some key is in both ranges.
    pub fn overlaps(&self, other: &KeyRange) -> bool {
        !self.is_empty()
            && !other.is_empty()
            && self.is_before_end(&other.start)
            && other.is_before_end(&self.start)
    }

    /// The keys in both ranges, if there are any.
    pub fn intersect(&self, other: &KeyRange) -> Option<KeyRange> {
        if !self.overlaps(other) {
            return None;
        }
        let start = core::cmp::max(&self.start, &other.start).clone();
        Some(KeyRange { start, end: min_end(&self.end, &other.end).clone() })
    }

    /// Whether every key of `other` is in `self`.
    pub fn covers(&self, other: &KeyRange) -> bool {
        other.is_empty() || (self.start <= other.start && min_end(&self.end, &other.end) == &other.end)
    }

    /// The smallest range that covers both.
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

    /// What is left of `self` before and after `cut`. Either side may be absent.
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
