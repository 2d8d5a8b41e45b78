//! Byte slices that are cheap to clone. Reads return keys and values in this form.
//!
//! A slice is a range of a shared, immutable buffer: a cached block, a read-ahead buffer, or bytes of its own. It keeps
//! the whole buffer alive, so programs should copy out the bytes that they keep for long.

use super::prefetch::{LINE, prefetch};
use drumlin_env::sync::Arc;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, Range};

/// Bytes of the reference counts before a shared buffer.
const COUNTS: usize = 2 * size_of::<usize>();

/// Immutable bytes, reference counted. Reads return keys and values in this form. Cloning copies no bytes.
///
/// It derefs to `[u8]`. A slice keeps the whole buffer alive that holds its bytes, such as a block of a table (4 KiB by
/// default, `block_bytes`). To keep bytes for long, copy them with [`to_vec`](slice::to_vec).
///
/// ```
/// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
/// # let users = drumlin::Db::open(dir.path())?.keyspace("users")?;
/// users.put("ada", "1815")?;
/// let value = users.get("ada")?.expect("a value");
/// assert_eq!(&*value, b"1815");
/// let copy: Vec<u8> = value.to_vec();
/// # assert_eq!(copy, b"1815");
/// # Ok::<(), drumlin::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Slice {
    buffer: Arc<[u8]>,
    start: usize,
    len: usize,
}

impl Slice {
    /// Creates a slice of all of `buffer`.
    pub(crate) fn new(buffer: Arc<[u8]>) -> Slice {
        let len = buffer.len();
        Slice { buffer, start: 0, len }
    }

    /// Returns the part `range` of this slice, in the same buffer; `None` if the range is not inside the slice.
    pub(crate) fn part(&self, range: Range<usize>) -> Option<Slice> {
        if range.start > range.end || range.end > self.len {
            return None;
        }
        let buffer = Arc::clone(&self.buffer);
        Some(Slice { buffer, start: self.start + range.start, len: range.end - range.start })
    }

    /// Returns the bytes from `start` on, in the same buffer. The result is empty when the slice is shorter.
    pub(crate) fn skip(&self, start: usize) -> Slice {
        self.part(start.min(self.len)..self.len).unwrap_or_default()
    }

    /// Prefetches the first `len` bytes of the slice, a few cache lines at most, and what lies before them.
    #[inline]
    pub(crate) fn prefetch(&self, len: usize) {
        const MOST: usize = 4 * LINE;
        let start = self.counts();
        let in_line = start.addr() % LINE;
        for offset in (0..(in_line + COUNTS + len).min(MOST)).step_by(LINE) {
            prefetch(start.wrapping_add(offset).wrapping_sub(in_line));
        }
    }

    /// Returns the address of the reference counts, if the slice is at the start of its buffer: directly before the
    /// bytes.
    #[inline]
    pub(crate) fn counts(&self) -> *const u8 {
        self.buffer.as_ptr().wrapping_add(self.start).wrapping_sub(COUNTS)
    }

    /// Returns the size of the buffer that this slice keeps alive, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.buffer.len()
    }
}

impl Deref for Slice {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.buffer[self.start..self.start + self.len]
    }
}
impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
impl Borrow<[u8]> for Slice {
    fn borrow(&self) -> &[u8] {
        self
    }
}
impl From<Vec<u8>> for Slice {
    fn from(bytes: Vec<u8>) -> Slice {
        Slice::new(Arc::from(bytes))
    }
}
impl From<&[u8]> for Slice {
    fn from(bytes: &[u8]) -> Slice {
        Slice::new(Arc::from(bytes))
    }
}
impl From<Slice> for Vec<u8> {
    fn from(slice: Slice) -> Vec<u8> {
        slice.to_vec()
    }
}
impl PartialEq for Slice {
    fn eq(&self, other: &Slice) -> bool {
        **self == **other
    }
}
impl Eq for Slice {}
impl PartialEq<[u8]> for Slice {
    fn eq(&self, other: &[u8]) -> bool {
        **self == *other
    }
}
impl PartialEq<&[u8]> for Slice {
    fn eq(&self, other: &&[u8]) -> bool {
        **self == **other
    }
}
impl<const N: usize> PartialEq<[u8; N]> for Slice {
    fn eq(&self, other: &[u8; N]) -> bool {
        **self == *other
    }
}
impl<const N: usize> PartialEq<&[u8; N]> for Slice {
    fn eq(&self, other: &&[u8; N]) -> bool {
        **self == **other
    }
}
impl PartialOrd for Slice {
    fn partial_cmp(&self, other: &Slice) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Slice {
    fn cmp(&self, other: &Slice) -> Ordering {
        (**self).cmp(&**other)
    }
}
impl Hash for Slice {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}
impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_share_the_buffer() {
        let whole = Slice::from(b"drumlin".to_vec());
        let part = whole.part(1..5).expect("inside");
        assert_eq!(part, b"ruml");
        assert_eq!(part.part(1..3).expect("inside"), b"um");
        assert_eq!(part.skip(2), b"ml");
        assert_eq!(part.skip(9), b"");
        assert_eq!(part.held_bytes(), 7);
        let outside = [3..5, 5..5];
        assert!(outside.into_iter().all(|range| part.part(range).is_none()));
        #[expect(clippy::reversed_empty_ranges, reason = "hostile ranges must be refused")]
        let reversed = 3..2;
        assert!(part.part(reversed).is_none());
        assert_eq!(Slice::default(), b"");
    }
}
