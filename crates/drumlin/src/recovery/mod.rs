//! Opening a store after any crash.
//!
//! 1. [`open`]: check that the directory holds a store, or may get one, and lock it.
//! 2. [`state`]: the edits of the manifest give trees, options and numbers.
//! 3. [`evidence`]: a store whose manifest or tables were truncated is refused.
//! 4. [`replay`]: the log gives the commits that are not in tables yet, up to the first gap. A truncated log is
//!    refused.
//! 5. `assemble`: a new log segment continues the chain of segments where recovery stopped, which ends a torn tail
//!    (order rule O6).
//! 6. `assemble`: a new manifest holds the recovered state, and `CURRENT` points to it.
//! 7. [`orphans`]: files that no tree refers to are removed, or set aside. File numbers are never used again (O4).
//! 8. [`open`]: the replayed log is made durable where a power loss could tear the order of commits.
//! 9. `ops::open` starts the lanes. Unless the store was closed in order, it flushes the recovered commits before it
//!    returns. Bytes that a failed sync left in the page cache can be read, and synced again without an error, although
//!    they are not on disk (order rule O10). So nothing may depend on them until they are in tables.
//!
//! A store that is opened read-only gets steps 1 to 4 only: the recovered commits stay in memtables, and nothing on
//! disk changes.
//!
//! A crash at any point of this, and another recovery, give the same store.

mod assemble;
pub(crate) mod evidence;
pub(crate) mod open;
pub(crate) mod orphans;
pub(crate) mod replay;
pub(crate) mod state;
