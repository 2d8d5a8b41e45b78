//! Failure states of an open store: closed, read-only, poisoned, failing jobs, disk full.
//!
//! - *Poisoned* is permanent: the log or the manifest failed, or a thread panicked. No write is accepted any more;
//!   reads go on.
//! - *Failing* is temporary: a flush or compaction is retried, and only calls that wait for it return its error.

use crate::base::error::{Error, ErrorKind, Result};
use crate::keyspace::KeyspaceState;
use drumlin_env::sync::{Condvar, Mutex, atomic};

/// Health of an open store.
#[derive(Default)]
pub(crate) struct Health {
    poisoned: atomic::AtomicBool,
    first_cause: Mutex<Option<Error>>,
    /// Number of flushes and compactions that have failed so far.
    failures: atomic::AtomicU64,
    /// How often disk space was freed.
    times_freed: atomic::AtomicU64,
    /// Whether the last flush failed for lack of disk space.
    pub(crate) disk_full: atomic::AtomicBool,
    /// Whether the last log segment that a write needed found no disk space. Only a segment that finds space clears it:
    /// until then all compactions under way are needed, not only the next one.
    pub(crate) log_full: atomic::AtomicBool,
    /// Whether the last compaction failed for lack of disk space. Finished outputs that wait are then installed early,
    /// to free their inputs.
    pub(crate) compaction_lacks_space: atomic::AtomicBool,
    pub(crate) closed: atomic::AtomicBool,
    /// Result of the close, once it has finished.
    pub(crate) close_ended: Mutex<Option<Result<()>>>,
    pub(crate) close_moved: Condvar,
    /// Whether the store is read-only: no lane runs, and no file is created, changed or removed.
    pub(crate) read_only: bool,
}

impl Health {
    pub(crate) fn new(read_only: bool) -> Health {
        Health { read_only, ..Health::default() }
    }

    /// Returns an error once the store was closed.
    pub(crate) fn check_open(&self) -> Result<()> {
        // Pairs with the fence in `OperationCounts::scan_begins`.
        if self.closed.load(atomic::Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Closed, "the store was closed"));
        }
        Ok(())
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(atomic::Ordering::Acquire)
    }

    /// Returns an error if the store was opened read-only.
    pub(crate) fn check_read_only(&self) -> Result<()> {
        if self.read_only { Err(Error::read_only()) } else { Ok(()) }
    }

    /// Returns an error if nothing can be written: the first cause if the store is poisoned, and always if it was
    /// opened read-only.
    pub(crate) fn check_poison(&self) -> Result<()> {
        self.check_read_only()?;
        if !self.is_poisoned() {
            return Ok(());
        }
        match &*self.first_cause.lock() {
            Some(error) => Err(error.with_kind(ErrorKind::Poisoned)),
            None => {
                Err(Error::new(ErrorKind::Poisoned, "a write failed in a way that leaves the disk in doubt"))
            }
        }
    }

    /// Marks the store as poisoned by `error`. Returns whether that is the first cause.
    pub(crate) fn poison(&self, error: &Error) -> bool {
        let mut cause = self.first_cause.lock();
        let is_first = cause.is_none();
        cause.get_or_insert_with(|| error.clone());
        drop(cause);
        self.poisoned.store(true, atomic::Ordering::Release);
        is_first
    }

    /// Records a failed flush of `keyspace`.
    pub(crate) fn flush_failed(&self, keyspace: &KeyspaceState, error: &Error) {
        keyspace.flush_failures.failed(self.next_failure(), error);
        if error.kind() == ErrorKind::NoSpace {
            self.disk_full.store(true, atomic::Ordering::Release);
        }
    }

    /// Records a compaction of `keyspace` that failed and will be retried.
    pub(crate) fn compaction_failed(&self, keyspace: &KeyspaceState, error: &Error) {
        keyspace.compaction_failures.failed(self.next_failure(), error);
    }

    fn next_failure(&self) -> u64 {
        self.failures.fetch_add(1, atomic::Ordering::AcqRel) + 1
    }

    /// Returns the number of the last failure. A call that waits ignores failures up to the one when it began.
    pub(crate) fn last_failure(&self) -> u64 {
        self.failures.load(atomic::Ordering::Acquire)
    }

    /// Returns whether a flush or the log found no disk space.
    pub(crate) fn lacks_space(&self) -> bool {
        self.disk_full.load(atomic::Ordering::Acquire) || self.log_full.load(atomic::Ordering::Acquire)
    }

    /// Records that disk space was freed, so that flushes and compactions may have enough.
    pub(crate) fn space_freed(&self) {
        self.disk_full.store(false, atomic::Ordering::Release);
        self.compaction_lacks_space.store(false, atomic::Ordering::Release);
    }

    /// Counts that disk space was freed or given back: a file was removed, a limit was raised, or a piece has ended and
    /// with it what was reserved for it. The caller holds the control lock.
    pub(crate) fn count_freed(&self) {
        self.times_freed.fetch_add(1, atomic::Ordering::AcqRel);
    }

    /// Returns how often disk space was freed. What was found out about disk space before the last time is out of date.
    pub(crate) fn times_freed(&self) -> u64 {
        self.times_freed.load(atomic::Ordering::Acquire)
    }
}
