//! Reads: what a user sees of the versions in memtables and tables.
//!
//! Two paths lead from versions to values. Both read at one snapshot and interpret versions by the same code
//! ([`crate::base::resolve`]).
//!
//! ```text
//! scan   table cursor -> RunCursor --+
//!        table cursor -> RunCursor --+--> MergeCursor --> VisibleIter --> Iter (public)
//!        memtable cursor ------------+     internal        user keys       owned, double-ended
//!                                          entries
//! get    memtable, memtable, level 0, level 1, ...  --> GetState --> value
//! ```
//!
//! - `clip`: cursor over the keys of a range only. `run`: the files of a run as one cursor, opened when reached.
//!   `merge` (with `heads`): merging iterator over many cursors, in both directions.
//! - `coverage`: newest range tombstone over a key, cached from key to key.
//! - `dead`: key ranges that a scan found empty, remembered for later scans.
//! - `visible`: one value per user key, after snapshot, tombstones, expiry and merge operands.
//! - `get`: point lookups level by level, which open no more files than necessary.
//!
//! Invariants:
//! - Results depend on (key, seq) alone, never on the source of a version. The one exception are point lookups, which
//!   rely on the recency invariant of the tree to stop early.
//! - A range tombstone applies only within the bounds of the file reference that holds it.
//! - An error is never mistaken for the end of the data: the cursor keeps it and returns it at every further call.
//! - A memtable may gain entries newer than the snapshot while a cursor walks it. The reader skips them.

mod clip;
mod coverage;
mod dead;
mod get;
mod heads;
mod merge;
mod run;
mod sticky;
#[cfg(test)]
mod tests;
mod visible;

pub(crate) use clip::ClippedCursor;
pub(crate) use coverage::TombstoneSource;
pub(crate) use dead::DeadSpans;
pub(crate) use get::{Flow, GetState, Source, get, get_many};
pub(crate) use merge::MergeCursor;
pub(crate) use run::{OpenFile, RunCursor};
pub(crate) use visible::{VisibleIter, VisibleOptions};
