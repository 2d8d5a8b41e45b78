//! Reading: what a user sees of the versions that lie in memtables and tables.
//!
//! Two ways lead from versions to values. Both work on one snapshot and share the meaning of a version
//! (`resolve`).
//!
//! ```text
//! scan   table cursor -> RunCursor --+
//!        table cursor -> RunCursor --+--> MergeCursor --> VisibleIter --> Iter (public)
//!        memtable cursor ------------+     internal        user keys       owned, double-ended
//!                                          entries
//! get    memtable, memtable, level 0, level 1, ...  --> GetState --> value
//! ```
//!
//! - `clip`: a cursor shows only the keys of a range. `run`: the files of a run as one cursor, opened when
//!   reached. `merge` (with `heads`): many cursors as one, both ways.
//! - `coverage`: the newest range tombstone over a key, remembered from key to key.
//! - `visible`: one value per user key, by snapshot, tombstones, expiry and merge operands.
//! - `get`: the level rule, which finds a key without opening more files than it must.
//!
//! Invariants:
//! - Answers depend on (key, seq) alone, never on which source a version comes from. The level rule is the
//!   one exception: it relies on the recency invariant of the tree to stop early.
//! - A range tombstone counts only inside the bounds of the file reference that holds it.
//! - An error is never taken for the end of the data: it is kept and given again at every further call.
//! - Entries newer than the snapshot may appear in a memtable while a cursor walks it. They are skipped.

mod clip;
mod coverage;
mod get;
mod heads;
mod merge;
mod resolve;
mod run;
mod sticky;
#[cfg(test)]
mod tests;
mod visible;

pub(crate) use clip::ClippedCursor;
pub(crate) use coverage::TombstoneSource;
pub(crate) use get::{Flow, GetState, Source, get, get_many};
pub(crate) use merge::MergeCursor;
#[cfg(test)]
pub(crate) use resolve::PointerReader;
pub(crate) use resolve::Resolver;
pub(crate) use run::{OpenFile, RunCursor};
pub(crate) use visible::{VisibleIter, VisibleOptions};
