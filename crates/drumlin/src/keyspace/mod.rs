//! Keyspaces: the view that readers load, and the state that changes it.
//!
//! ```text
//! KeyspaceState ── view ──> View ── active memtable, sealed memtables, tree
//!   └── options, merge operator, meter, dead spans (key ranges found empty), failures of jobs
//! ```
//!
//! The handle that programs hold is in `api`.

mod failures;
mod state;

pub(crate) use state::{KeyspaceState, View};
