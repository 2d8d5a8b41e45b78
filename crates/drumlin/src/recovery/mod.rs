//! Opening a store after any crash.
//!
//! 1. [`state`]: the edits of the manifest give trees, options and numbers.
//! 2. [`replay`]: the log gives the commits that are not in tables yet, up to the first gap. A store whose manifest or
//!    log was truncated is refused ([`evidence`]).
//! 3. A new log segment continues the chain of segments where recovery stopped, which seals a torn tail (order rule
//!    O6). A new manifest holds the recovered state.
//! 4. Files that no version refers to are removed, or set aside ([`orphans`]). File numbers are never used again (O4).
//! 5. Unless the store was closed in order, `ops::open` flushes the recovered commits before it returns. Bytes that a
//!    failed sync left in the page cache can be read, and synced again without an error, although they are not on disk
//!    (order rule O10). So nothing may depend on them until they are in tables.
//!
//! A store that is opened read-only gets steps 1 and 2 only: the recovered commits stay in memtables, and nothing on
//! disk changes.
//!
//! A crash at any point of this, and another recovery, give the same store.

mod assemble;
pub(crate) mod evidence;
pub(crate) mod open;
pub(crate) mod orphans;
pub(crate) mod replay;
pub(crate) mod state;
