//! Cursor over the files of a run.
//!
//! Files have disjoint bounds and are sorted by key. The cursor holds one open file at a time and opens the next one
//! when it gets there. It clips a file to its bounds, which may be narrower than its table.
//!
//! A skip passes a file without opening it, by its sequence numbers and bounds, if all its entries in the range of
//! the skip are hidden.
//!
//! Invariant: the cursor is valid exactly when `open` holds a valid cursor.

use super::clip::ClippedCursor;
use super::sticky::Sticky;
use crate::base::cursor::{Cursor, Hidden};
use crate::base::error::Result;
use crate::base::slice::Slice;
use drumlin_types::{KeyRange, Kind, Seq, bug};

/// Files of one run, in key order.
pub(crate) trait OpenFile: Send {
    /// Cursor over one table.
    type Cursor: Cursor;
    /// Opens a cursor over the whole table of file `index`.
    fn open(&self, index: usize) -> Result<Self::Cursor>;
    /// Returns the key range in force for file `index`.
    fn bounds(&self, index: usize) -> &KeyRange;
    /// Returns the number of files.
    fn len(&self) -> usize;
    /// Returns an upper bound on the sequence numbers in file `index`.
    fn max_seq(&self, index: usize) -> Seq {
        let _ = index;
        Seq::MAX
    }
    /// Returns whether the table of file `index` may hold entries outside the file's bounds.
    fn is_narrowed(&self, index: usize) -> bool {
        let _ = index;
        true
    }
}

/// Cursor over the files of a run.
pub(crate) struct RunCursor<F: OpenFile> {
    files: F,
    /// The open file and its index.
    open: Option<(usize, ClippedCursor<F::Cursor>)>,
    error: Sticky,
}

impl<F: OpenFile> RunCursor<F> {
    /// Creates a cursor over `files`. It opens files on demand and is invalid until a seek.
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

    /// Returns the index of the first file for which `is_past` is false. `is_past` must hold for a prefix of the
    /// files.
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

    /// Moves to file `index` with `seek`. Keeps the cursor if that file is already open.
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

    /// Returns whether all entries of file `index` in the range of `hidden` are hidden.
    fn is_hidden(&self, index: usize, hidden: &Hidden<'_>) -> bool {
        self.files.max_seq(index) < hidden.below || bug!("run-hidden-by-old-tombstone")
    }

    /// Moves from file `index` past hidden entries, to the first entry that is visible or must be checked. All
    /// entries of the file from the cursor's position on are hidden.
    fn leap(&mut self, mut index: usize, hidden: &Hidden<'_>) -> Result<()> {
        while self.is_hidden(index, hidden) {
            match hidden.end {
                Some(end) if !hidden.reaches(self.files.bounds(index).end.as_deref()) => {
                    self.enter(index, |cursor| cursor.seek(end, Seq::MAX))?;
                    return self.settle_forward();
                }
                _ => index += 1,
            }
            if index == self.files.len() {
                self.open = None;
                return Ok(());
            }
        }
        self.enter(index, |cursor| cursor.seek_first())?;
        self.settle_forward()
    }

    /// Moves like `leap`, but backward.
    fn leap_back(&mut self, mut index: usize, hidden: &Hidden<'_>) -> Result<()> {
        while self.is_hidden(index, hidden) {
            if *self.files.bounds(index).start < *hidden.start {
                self.enter(index, |cursor| cursor.seek_before(hidden.start))?;
                return self.settle_backward();
            }
            let Some(before) = index.checked_sub(1) else {
                self.open = None;
                return Ok(());
            };
            index = before;
        }
        self.enter(index, |cursor| cursor.seek_last())?;
        self.settle_backward()
    }

    /// Moves to the next file while the open file has no more entries.
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

    /// Moves to the previous file while the open file has no more entries.
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

    #[inline]
    fn is_warm(&self) -> bool {
        self.current().is_warm()
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

    fn seek_over(&mut self, key: &[u8], seq: Seq, hidden: &Hidden<'_>) -> Result<()> {
        let index = self.first_not(|bounds| !bounds.is_before_end(key));
        if index == self.files.len() || !self.is_hidden(index, hidden) {
            return self.seek(key, seq);
        }
        self.guarded(|run| run.leap(index, hidden))
    }

    fn skip(&mut self, hidden: &Hidden<'_>) -> Result<usize> {
        match &self.open {
            Some((index, _)) if self.is_hidden(*index, hidden) => {
                let index = *index;
                self.guarded(|run| run.leap(index, hidden)).map(|()| 1)
            }
            _ => self.next().map(|()| 1),
        }
    }

    fn skip_back(&mut self, hidden: &Hidden<'_>) -> Result<usize> {
        match &self.open {
            Some((index, _)) if self.is_hidden(*index, hidden) => {
                let index = *index;
                self.guarded(|run| run.leap_back(index, hidden)).map(|()| 1)
            }
            _ => self.prev().map(|()| 1),
        }
    }
}
