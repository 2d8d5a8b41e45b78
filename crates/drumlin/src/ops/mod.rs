//! Operations of an open store. Each file implements one operation as a sequence of steps.
//!
//! ```text
//! write    validate, admit, reserve, log, apply, publish, sync
//! get      view, memtables, runs from new to old, resolve          multi_get: the same for many keys, read in parallel
//! scan     view, one cursor per source, merge, visible versions    iter, range_cursor: the public types
//! open, flush, compact, checkpoint, sync, keyspaces, options, verify, shape, decisions, close
//! probed   which tables a lookup probes (feature `testing`)
//! ```
//!
//! An operation may use every folder below `ops`. No operation uses `api`.

pub(crate) mod admission;
mod checkpoint;
mod close;
mod compact;
mod decisions;
mod estimate;
mod flush;
mod get;
pub(crate) mod iter;
mod keyspaces;
mod multi_get;
pub(crate) mod open;
mod options;
#[cfg(feature = "testing")]
pub(crate) mod probed;
pub(crate) mod range_cursor;
pub(crate) mod scan;
pub(crate) mod shape;
mod sync;
pub(crate) mod verify;
pub(crate) mod write;
