//! Key range that a command selects.

use std::ops::Bound;

/// Range of keys from `start` (inclusive) to `end` (exclusive).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Bounds {
    /// First key of the range.
    pub(crate) start: Vec<u8>,
    /// First key after the range; `None` if the range is unbounded.
    pub(crate) end: Option<Vec<u8>>,
}

impl Bounds {
    /// Creates the range of keys in `[from, to)` that start with `prefix`.
    pub(crate) fn new(from: Option<&[u8]>, to: Option<&[u8]>, prefix: Option<&[u8]>) -> Bounds {
        let prefix = prefix.unwrap_or_default();
        let start = from.unwrap_or_default().max(prefix).to_vec();
        let prefix_end = prefix_end(prefix);
        let end = match (to, prefix_end.as_deref()) {
            (Some(to), Some(prefix_end)) => Some(to.min(prefix_end).to_vec()),
            (Some(end), None) | (None, Some(end)) => Some(end.to_vec()),
            (None, None) => None,
        };
        Bounds { start, end }
    }

    /// Returns whether the range is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    /// Returns the range as a pair of bounds.
    pub(crate) fn as_range(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let end = self.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        (Bound::Included(&self.start), end)
    }
}

/// Returns the smallest key above every key that starts with `prefix`, if there is one.
fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_and_prefix_meet() {
        let bounds = |from: Option<&str>, to: Option<&str>, prefix: Option<&str>| {
            Bounds::new(from.map(str::as_bytes), to.map(str::as_bytes), prefix.map(str::as_bytes))
        };
        let expect = |start: &str, end: Option<&str>| Bounds {
            start: start.as_bytes().to_vec(),
            end: end.map(|e| e.as_bytes().to_vec()),
        };
        assert_eq!(bounds(None, None, None), expect("", None));
        assert_eq!(bounds(Some("b"), Some("d"), None), expect("b", Some("d")));
        assert_eq!(bounds(None, None, Some("ab")), expect("ab", Some("ac")));
        assert_eq!(bounds(Some("aba"), None, Some("ab")), expect("aba", Some("ac")));
        assert_eq!(bounds(Some("a"), Some("abz"), Some("ab")), expect("ab", Some("abz")));
        assert!(bounds(Some("b"), Some("b"), None).is_empty());
        assert!(bounds(Some("x"), None, Some("ab")).is_empty());
        assert!(!bounds(None, None, Some("ab")).is_empty());
    }

    #[test]
    fn a_prefix_of_high_bytes_has_no_end() {
        assert_eq!(Bounds::new(None, None, Some(b"\xff\xff")).end, None);
        assert_eq!(Bounds::new(None, None, Some(b"a\xff")).end, Some(b"b".to_vec()));
    }
}
