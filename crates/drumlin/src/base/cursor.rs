//! The internal iterator interface. Memtables, tables, runs and the merging iterator all implement it.
//!
//! Internal order is user key ascending, then sequence number descending. So the newest version of a key comes first.
//! (key, seq) is unique within a keyspace.
//!
//! A cursor is *valid* when it is on an entry. `next` past the last entry and `prev` before the first entry make it
//! invalid; only a seek makes it valid again. After an error every further call returns an error and `valid` is false,
//! so an error never looks like the end of the data.

use crate::base::error::Result;
use crate::base::slice::Slice;
use drumlin_types::{Kind, Seq};

/// Direction in which a reader moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Direction {
    #[default]
    Forward,
    Backward,
}

/// Entries that a reader may skip: keys in a range, with sequence numbers below a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hidden<'a> {
    /// The first key of the range.
    pub(crate) start: &'a [u8],
    /// The first key after the range; `None` when the range has no end.
    pub(crate) end: Option<&'a [u8]>,
    /// Entries with smaller sequence numbers are hidden.
    pub(crate) below: Seq,
}

impl Hidden<'_> {
    /// Returns whether `key` is in the range. `key` must not be before the range.
    #[inline]
    pub(crate) fn is_before_end(&self, key: &[u8]) -> bool {
        self.end.is_none_or(|end| key < end)
    }

    /// Returns whether a range that ends at `end` has no key after this range.
    pub(crate) fn reaches(&self, end: Option<&[u8]>) -> bool {
        match (self.end, end) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(hidden), Some(end)) => end <= hidden,
        }
    }
}

/// Iterates over entries in both directions, in internal order.
pub(crate) trait Cursor: Send {
    /// Whether the cursor is on an entry.
    fn valid(&self) -> bool;
    /// User key of the entry. Only when valid.
    fn key(&self) -> &[u8];
    /// Sequence number of the entry. Only when valid.
    fn seq(&self) -> Seq;
    /// Kind of the entry. Only when valid.
    fn kind(&self) -> Kind;
    /// Value of the entry. Only when valid.
    fn value(&self) -> &[u8];
    /// Value of the entry as a slice to keep. It shares memory where the source allows that. Only when valid.
    fn value_slice(&self) -> Slice {
        Slice::from(self.value())
    }
    /// Whether the block of the entry is warm: readers asked for it more than once while the cache remembered it. Only
    /// when valid, and only known to the cursors of compactions.
    fn is_warm(&self) -> bool {
        false
    }
    /// Moves to the first entry.
    fn seek_first(&mut self) -> Result<()>;
    /// Moves to the last entry.
    fn seek_last(&mut self) -> Result<()>;
    /// Moves to the first entry at or after (`key`, `seq`) in internal order. That is the newest version of `key` that
    /// is not newer than `seq`, or else the first entry of a later key.
    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()>;
    /// Moves to the last entry whose user key is smaller than `key`.
    fn seek_before(&mut self, key: &[u8]) -> Result<()>;
    /// Moves to the next entry. Only when valid.
    fn next(&mut self) -> Result<()>;
    /// Moves to the previous entry. Only when valid.
    fn prev(&mut self) -> Result<()>;
    /// Moves like [`seek`](Self::seek), but may skip hidden entries. `key` must not be before the hidden range.
    fn seek_over(&mut self, key: &[u8], seq: Seq, hidden: &Hidden<'_>) -> Result<()> {
        let _ = hidden;
        self.seek(key, seq)
    }
    /// Moves to a later entry and skips hidden entries only. The cursor must be on a hidden entry. Returns the number
    /// of entries that it examined.
    fn skip(&mut self, hidden: &Hidden<'_>) -> Result<usize> {
        let _ = hidden;
        self.next().map(|()| 1)
    }
    /// Moves to an earlier entry and skips hidden entries only. The cursor must be on a hidden entry. Returns the
    /// number of entries that it examined.
    fn skip_back(&mut self, hidden: &Hidden<'_>) -> Result<usize> {
        let _ = hidden;
        self.prev().map(|()| 1)
    }
}

impl Cursor for Box<dyn Cursor> {
    fn valid(&self) -> bool {
        (**self).valid()
    }
    fn key(&self) -> &[u8] {
        (**self).key()
    }
    fn seq(&self) -> Seq {
        (**self).seq()
    }
    fn kind(&self) -> Kind {
        (**self).kind()
    }
    fn value(&self) -> &[u8] {
        (**self).value()
    }
    fn value_slice(&self) -> Slice {
        (**self).value_slice()
    }
    fn is_warm(&self) -> bool {
        (**self).is_warm()
    }
    fn seek_first(&mut self) -> Result<()> {
        (**self).seek_first()
    }
    fn seek_last(&mut self) -> Result<()> {
        (**self).seek_last()
    }
    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        (**self).seek(key, seq)
    }
    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        (**self).seek_before(key)
    }
    fn next(&mut self) -> Result<()> {
        (**self).next()
    }
    fn prev(&mut self) -> Result<()> {
        (**self).prev()
    }
    fn seek_over(&mut self, key: &[u8], seq: Seq, hidden: &Hidden<'_>) -> Result<()> {
        (**self).seek_over(key, seq, hidden)
    }
    fn skip(&mut self, hidden: &Hidden<'_>) -> Result<usize> {
        (**self).skip(hidden)
    }
    fn skip_back(&mut self, hidden: &Hidden<'_>) -> Result<usize> {
        (**self).skip_back(hidden)
    }
}
