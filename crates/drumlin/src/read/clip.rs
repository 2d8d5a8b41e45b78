//! Cursor that shows only the keys of a range.
//!
//! File references may be narrower than their tables, and a compaction piece (subcompaction) reads only its part of
//! each input. Entries outside the range may be stale and must never be shown.
//!
//! Invariant: the cursor is valid exactly when the inner cursor is on an entry inside the bounds.

use crate::base::cursor::{Cursor, Hidden};
use crate::base::error::Result;
use crate::base::slice::Slice;
use drumlin_types::{KeyRange, Kind, Seq};

/// Cursor `inner`, clipped to `bounds`.
pub(crate) struct ClippedCursor<C> {
    inner: C,
    bounds: KeyRange,
    inside: bool,
}

impl<C: Cursor> ClippedCursor<C> {
    /// Creates a cursor that clips `inner` to `bounds`. It is invalid until a seek.
    pub(crate) fn new(inner: C, bounds: KeyRange) -> ClippedCursor<C> {
        ClippedCursor { inner, bounds, inside: false }
    }

    /// Updates `inside` after a forward move: false past the end.
    #[inline]
    fn check_end(&mut self, moved: Result<()>) -> Result<()> {
        self.inside = moved.is_ok() && self.inner.valid() && self.bounds.is_before_end(self.inner.key());
        moved
    }

    /// Updates `inside` after a backward move: false before the start.
    #[inline]
    fn check_start(&mut self, moved: Result<()>) -> Result<()> {
        self.inside = moved.is_ok() && self.inner.valid() && *self.inner.key() >= *self.bounds.start;
        moved
    }
}

impl<C: Cursor> Cursor for ClippedCursor<C> {
    #[inline]
    fn valid(&self) -> bool {
        self.inside
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.inner.key()
    }

    #[inline]
    fn seq(&self) -> Seq {
        self.inner.seq()
    }

    #[inline]
    fn kind(&self) -> Kind {
        self.inner.kind()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.inner.value()
    }

    fn value_slice(&self) -> Slice {
        self.inner.value_slice()
    }

    #[inline]
    fn is_warm(&self) -> bool {
        self.inner.is_warm()
    }

    fn seek_first(&mut self) -> Result<()> {
        let moved = self.inner.seek(&self.bounds.start, Seq::MAX);
        self.check_end(moved)
    }

    fn seek_last(&mut self) -> Result<()> {
        let moved = match &self.bounds.end {
            Some(end) => self.inner.seek_before(end),
            None => self.inner.seek_last(),
        };
        self.check_start(moved)
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        if *key < *self.bounds.start {
            return self.seek_first();
        }
        let moved = self.inner.seek(key, seq);
        self.check_end(moved)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        if !self.bounds.is_before_end(key) {
            return self.seek_last();
        }
        let moved = self.inner.seek_before(key);
        self.check_start(moved)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let moved = self.inner.next();
        self.check_end(moved)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        let moved = self.inner.prev();
        self.check_start(moved)
    }

    fn skip(&mut self, hidden: &Hidden<'_>) -> Result<usize> {
        let (moved, looked) = parts(self.inner.skip(hidden));
        self.check_end(moved).map(|()| looked)
    }

    fn skip_back(&mut self, hidden: &Hidden<'_>) -> Result<usize> {
        let (moved, looked) = parts(self.inner.skip_back(hidden));
        self.check_start(moved).map(|()| looked)
    }
}

fn parts(moved: Result<usize>) -> (Result<()>, usize) {
    match moved {
        Ok(looked) => (Ok(()), looked),
        Err(error) => (Err(error), 0),
    }
}
