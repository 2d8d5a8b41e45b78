//! The files of a run as one cursor.
//!
//! Files have disjoint bounds and are sorted by key, so the cursor holds one open file at a time and opens
//! the next when it gets there. A file is clipped to its bounds, which may be narrower than its table.
//!
//! Invariant: valid exactly when `open` holds a cursor that is valid.

use super::clip::ClippedCursor;
use super::sticky::Sticky;
use crate::cursor::Cursor;
use crate::error::Result;
use crate::slice::Slice;
use drumlin_types::{KeyRange, Kind, Seq};

/// The files of one run, in key order.
pub(crate) trait OpenFile: Send {
    /// Walks one table.
    type Cursor: Cursor;
    /// A cursor over the whole table of file `index`.
    fn open(&self, index: usize) -> Result<Self::Cursor>;
    /// The keys that file `index` answers for.
    fn bounds(&self, index: usize) -> &KeyRange;
    /// Number of files.
    fn len(&self) -> usize;
    /// Whether the table of file `index` may hold entries outside its bounds.
    fn is_narrowed(&self, index: usize) -> bool {
        let _ = index;
        true
    }
}

/// Walks the files of a run.
pub(crate) struct RunCursor<F: OpenFile> {
    files: F,
    /// The open file and its index.
    open: Option<(usize, ClippedCursor<F::Cursor>)>,
    error: Sticky,
}

impl<F: OpenFile> RunCursor<F> {
    /// A cursor over `files`. Opens none before it is needed. Not valid until a seek.
    pub(crate) fn new(files: F) -> RunCursor<F> {
        RunCursor { files, open: None, error: Sticky::default() }
    }

    fn guarded(&mut self, body: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.error.check()?;
        let result = body(self);
        if result.is_err() {
            self.open = None;
        }
        self.error.keep(result)
    }

    fn current(&self) -> &ClippedCursor<F::Cursor> {
        &self.open.as_ref().expect("the cursor is valid").1
    }

    /// The first file for which `is_past` is false; `is_past` holds for a leading part of the files.
    fn first_not(&self, is_past: impl Fn(&KeyRange) -> bool) -> usize {
        let (mut low, mut high) = (0, self.files.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if is_past(self.files.bounds(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Moves to file `index` with `seek`; keeps the cursor if that file is open already.
    fn enter(
        &mut self,
        index: usize,
        seek: impl FnOnce(&mut ClippedCursor<F::Cursor>) -> Result<()>,
    ) -> Result<()> {
        if let Some((open, cursor)) = &mut self.open
            && *open == index
        {
            return seek(cursor);
        }
        let bounds = match self.files.is_narrowed(index) {
            true => self.files.bounds(index).clone(),
            false => KeyRange::all(),
        };
        let mut cursor = ClippedCursor::new(self.files.open(index)?, bounds);
        seek(&mut cursor)?;
        self.open = Some((index, cursor));
        Ok(())
    }

    /// While the open file has no more entries, goes on to the next one.
    fn settle_forward(&mut self) -> Result<()> {
        while let Some((index, cursor)) = &self.open {
            let next = index + 1;
            if cursor.valid() || next == self.files.len() {
                break;
            }
            self.enter(next, |cursor| cursor.seek_first())?;
        }
        Ok(())
    }

    /// While the open file has no more entries, goes back to the one before.
    fn settle_backward(&mut self) -> Result<()> {
        while let Some((index, cursor)) = &self.open {
            if cursor.valid() || *index == 0 {
                break;
            }
            let previous = index - 1;
            self.enter(previous, |cursor| cursor.seek_last())?;
        }
        Ok(())
    }
}

impl<F: OpenFile> Cursor for RunCursor<F> {
    #[inline]
    fn valid(&self) -> bool {
        self.open.as_ref().is_some_and(|(_, cursor)| cursor.valid())
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.current().key()
    }

    #[inline]
    fn seq(&self) -> Seq {
        self.current().seq()
    }

    #[inline]
    fn kind(&self) -> Kind {
        self.current().kind()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.current().value()
    }

    fn value_slice(&self) -> Slice {
        self.current().value_slice()
    }

    fn seek_first(&mut self) -> Result<()> {
        self.guarded(|run| {
            if run.files.len() == 0 {
                return Ok(());
            }
            run.enter(0, |cursor| cursor.seek_first())?;
            run.settle_forward()
        })
    }

    fn seek_last(&mut self) -> Result<()> {
        self.guarded(|run| {
            let Some(last) = run.files.len().checked_sub(1) else { return Ok(()) };
            run.enter(last, |cursor| cursor.seek_last())?;
            run.settle_backward()
        })
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        self.guarded(|run| {
            let index = run.first_not(|bounds| !bounds.is_before_end(key));
            if index == run.files.len() {
                run.open = None;
                return Ok(());
            }
            run.enter(index, |cursor| cursor.seek(key, seq))?;
            run.settle_forward()
        })
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.guarded(|run| {
            let Some(index) = run.first_not(|bounds| *bounds.start < *key).checked_sub(1) else {
                run.open = None;
                return Ok(());
            };
            run.enter(index, |cursor| cursor.seek_before(key))?;
            run.settle_backward()
        })
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.guarded(|run| match &mut run.open {
            Some((_, cursor)) => {
                cursor.next()?;
                run.settle_forward()
            }
            None => Ok(()),
        })
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.guarded(|run| match &mut run.open {
            Some((_, cursor)) => {
                cursor.prev()?;
                run.settle_backward()
            }
            None => Ok(()),
        })
    }
}
