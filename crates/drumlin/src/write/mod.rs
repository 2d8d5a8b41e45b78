//! The write path.
//!
//! `ops/write.rs` lists all steps of a write. Those in this folder:
//!
//! 1. [`commit_lock`]: a commit reserves sequence numbers, log space and memtables under one short lock. If the lock is
//!    taken, a commit that gets it may do that for others ([`waiting`]).
//! 2. It writes its record into the log ([`log`]) and its entries into the memtables ([`apply`]), outside the lock.
//! 3. [`publish`]: commits become visible in order.
//! 4. [`sync`]: a `Sync` commit then waits for an fsync that covers its record; concurrent syncs share one.
//!
//! [`segment`] preallocates the log files, and makes their headers and directory entries durable later.
//!
//! Invariants:
//! - Sequence numbers are dense and follow log order.
//! - A commit is acknowledged only when every commit before it is written, so the log has no hole before an
//!   acknowledged record.
//! - Segment N is synced in full before anything in segment N+1 counts as synced (order rule O2).
//! - After a failed write or sync of the log no commit reserves a place in it (O10): the store is poisoned. Commits
//!   that had reserved theirs may still write their records, and return the error.

pub(crate) mod apply;
pub(crate) mod budget;
pub(crate) mod commit_lock;
pub(crate) mod log;
pub(crate) mod operations;
pub(crate) mod pacing;
pub(crate) mod publish;
pub(crate) mod request;
pub(crate) mod segment;
mod sync;
#[expect(unsafe_code, reason = "requests on the stacks of other threads")]
mod waiting;

pub(crate) use commit_lock::CommitLock;
pub(crate) use publish::{CommitPoint, Publisher};
pub(crate) use sync::DurableLog;
