//! Failure states of an open store: closed, read-only, poisoned, failing jobs, disk full.
//!
//! - *Poisoned* is permanent: the log or the manifest failed, or a thread panicked. No write is accepted any more;
//!   reads go on.
//! - *Failing* is temporary: a flush or compaction is retried, and only calls that wait for it return its error.

use crate::base::error::{Error, ErrorKind, Result};
use drumlin_env::sync::{Condvar, Mutex, atomic};

/// Number of consecutive failures after which a call that waits for the job returns an error.
const FAILURES_MAX: u64 = 3;

/// Health of an open store.
#[derive(Default)]
pub(crate) struct Health {
    poisoned: atomic::AtomicBool,
    first_cause: Mutex<Option<Error>>,
    /// Number of flushes that have failed so far, and the last error.
    flush_failures: Mutex<(u64, Option<Error>)>,
    /// Number of consecutive compactions that failed for a temporary reason, and the last error.
    merge_failures: Mutex<(u64, Option<Error>)>,
    /// Whether the last flush failed for lack of disk space.
    pub(crate) disk_full: atomic::AtomicBool,
    /// Whether the last compaction failed for lack of disk space. Finished outputs that wait are then installed early,
    /// to free their inputs.
    pub(crate) merge_short: atomic::AtomicBool,
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
        // Sequentially consistent with the count of open iterators, which close reads.
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
            None => Err(Error::new(ErrorKind::Poisoned, "an earlier failure stopped all writes")),
        }
    }

    /// Marks the store as poisoned by `error`. Returns whether that is the first cause.
    pub(super) fn poison(&self, error: &Error) -> bool {
        let mut cause = self.first_cause.lock();
        let is_first = cause.is_none();
        cause.get_or_insert_with(|| error.clone());
        drop(cause);
        self.poisoned.store(true, atomic::Ordering::Release);
        is_first
    }

    /// Records a failed flush.
    pub(crate) fn flush_failed(&self, error: &Error) {
        let mut failures = self.flush_failures.lock();
        *failures = (failures.0 + 1, Some(error.clone()));
        drop(failures);
        if error.kind() == ErrorKind::NoSpace {
            self.disk_full.store(true, atomic::Ordering::Release);
        }
    }

    /// Returns the number of flushes that have failed so far.
    pub(crate) fn failed_flushes(&self) -> u64 {
        self.flush_failures.lock().0
    }

    /// Records a compaction that failed and will be retried.
    pub(crate) fn merge_failed(&self, error: &Error) {
        let mut failures = self.merge_failures.lock();
        *failures = (failures.0 + 1, Some(error.clone()));
    }

    /// Records a compaction that succeeded.
    pub(crate) fn merge_succeeded(&self) {
        *self.merge_failures.lock() = (0, None);
    }

    /// Returns the last error once [`FAILURES_MAX`] compactions in a row have failed. They are still retried.
    pub(crate) fn check_merges(&self) -> Result<()> {
        let failures = self.merge_failures.lock();
        match &failures.1 {
            Some(error) if failures.0 >= FAILURES_MAX => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Returns the last error once [`FAILURES_MAX`] flushes have failed since the count was `before`, so that a caller
    /// that waits for a flush gets an error. The flush is still retried.
    pub(crate) fn check_flushes(&self, before: u64) -> Result<()> {
        let failures = self.flush_failures.lock();
        match &failures.1 {
            Some(error) if failures.0 >= before + FAILURES_MAX => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Records that disk space was freed, so that flushes and compactions may have enough.
    pub(crate) fn space_freed(&self) {
        self.disk_full.store(false, atomic::Ordering::Release);
        self.merge_short.store(false, atomic::Ordering::Release);
    }
}
