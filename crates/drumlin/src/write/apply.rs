//! Applies an operation to a memtable. Commits and log replay both use it.

use crate::base::error::{Error, ErrorKind, Result};
use crate::memtable::Memtable;
use drumlin_format::batch::{Operation, range_end};
use drumlin_types::{Key, KeyRange, Kind, Seq};

/// Inserts an operation into a memtable.
pub(crate) fn insert(memtable: &Memtable, operation: &Operation<'_>, seq: Seq) -> Result<()> {
    if operation.kind == Kind::DeleteRange {
        let end = range_end(operation.value).map_err(|e| Error::new(ErrorKind::Bug, e.what))?;
        let range = KeyRange::new(Key::new(operation.key), end.map(Key::new));
        memtable.insert_range_tombstone(range, seq);
    } else {
        memtable.insert(operation.key, seq, operation.kind, operation.value);
    }
    Ok(())
}
