//! Applies an operation to a memtable. Commits and log replay both use it.

use crate::base::error::{Error, ErrorKind, Result};
use crate::memtable::{Memtable, NewEntry};
use drumlin_format::batch::{Operation, range_end};
use drumlin_types::{Key, KeyRange, Kind, Seq};

/// Operation that is going to be applied.
pub(crate) struct Upcoming<'a> {
    memtable: &'a Memtable,
    operation: Operation<'a>,
    seq: Seq,
    /// `None` for a range tombstone.
    entry: Option<NewEntry<'a>>,
}

impl<'a> Upcoming<'a> {
    /// Prepares to apply `operation` to `memtable`. What this reads is in the CPU cache soon, so a caller that does
    /// something else before it applies the operation does not wait for memory.
    pub(crate) fn new(memtable: &'a Memtable, operation: Operation<'a>, seq: Seq) -> Upcoming<'a> {
        let is_entry = operation.kind != Kind::DeleteRange;
        let entry = is_entry.then(|| memtable.approach(operation.key, seq));
        Upcoming { memtable, operation, seq, entry }
    }

    /// Applies the operation.
    pub(crate) fn apply(self) -> Result<()> {
        let Upcoming { memtable, operation, seq, entry } = self;
        if let Some(entry) = entry {
            entry.insert(operation.kind, operation.value);
            return Ok(());
        }
        let end = range_end(operation.value).map_err(|e| Error::new(ErrorKind::Bug, e.what))?;
        let range = KeyRange::new(Key::new(operation.key), end.map(Key::new));
        memtable.insert_range_tombstone(range, seq);
        Ok(())
    }
}

/// Inserts an operation into a memtable.
pub(crate) fn insert(memtable: &Memtable, operation: &Operation<'_>, seq: Seq) -> Result<()> {
    Upcoming::new(memtable, *operation, seq).apply()
}
