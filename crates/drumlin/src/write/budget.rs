//! The disk budget, as the log sees it.
//!
//! 1. Tables and log together stay within the limit. Tables count from their completion until they are unlinked. While
//!    they are written, what they may take is reserved.
//! 2. The log leaves a part to compactions, since a log that took their disk space would keep a full store full.
//!    Deletions may use most of that part, because they free disk space once they are flushed and compacted.
//! 3. The limit may be set below what is in use. It is then *exceeded* until the use has come down to the limit less
//!    the part left to compactions. Meanwhile deletions and flushes may exceed it further, since nothing else leads
//!    back.

use crate::base::error::{Error, ErrorKind, Result};
use crate::version::Obsolete;
use drumlin_env::sync::Arc;
use drumlin_env::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Fraction of the budget that flushes and the log leave to compactions, as a divisor.
const MERGE_SHARE: u64 = 8;
/// Largest part of the budget that they leave, in bytes: what two pieces of 64 MiB need, with a margin.
const MERGE_MOST: u64 = 160 << 20;

/// Returns the part of `budget` that flushes and the log leave to compactions.
pub(crate) fn left_to_merges(budget: u64) -> u64 {
    (budget / MERGE_SHARE).min(MERGE_MOST)
}

/// Part of the disk budget that a log segment may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogShare {
    /// What tables and compactions leave.
    Writes,
    /// For commits that only delete: also three quarters of the part left to compactions. The rest is for their flush.
    Deletes,
    /// All that tables leave. For the record that `close` writes.
    Close,
}

impl LogShare {
    /// Returns the part of the budget `limit` that a segment in this share leaves.
    fn leaves(self, limit: u64) -> u64 {
        match self {
            LogShare::Writes => left_to_merges(limit),
            LogShare::Deletes => left_to_merges(limit) / 4,
            LogShare::Close => 0,
        }
    }
}

/// Limit on the disk space that the log and the tables may use together.
#[derive(Default)]
pub(crate) struct DiskBudget {
    /// Limit in bytes; 0 for no limit.
    limit: AtomicU64,
    is_exceeded: AtomicBool,
    /// Bytes that the flush under way may write.
    flush: AtomicU64,
    /// Bytes that compactions under way may write.
    merges: AtomicU64,
    /// Counts the bytes of all finished tables.
    tables: Arc<Obsolete>,
}

impl DiskBudget {
    pub(crate) fn new(limit: u64, tables: Arc<Obsolete>) -> DiskBudget {
        DiskBudget { limit: AtomicU64::new(limit), tables, ..DiskBudget::default() }
    }

    /// Changes the limit. The log has `log` bytes.
    pub(crate) fn set_limit(&self, limit: u64, log: u64) {
        self.limit.store(limit, Relaxed);
        self.is_exceeded
            .store(!fits(limit, self.tables.bytes_on_disk(), log, left_to_merges(limit)), Relaxed);
    }

    /// Takes note of `used` bytes of tables and log in a store that is being opened. Its tables are not counted yet.
    /// Returns whether the limit allows them.
    pub(super) fn opened(&self, used: u64) -> bool {
        let limit = self.limit.load(Relaxed);
        self.is_exceeded.store(!fits(limit, 0, used, left_to_merges(limit)), Relaxed);
        fits(limit, 0, used, 0)
    }

    /// Returns whether the limit was set below what is in use, and the use has not come down yet.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.is_exceeded.load(Relaxed)
    }

    /// Reserves `bytes` for the flush that begins; 0 once it has ended.
    pub(crate) fn reserve_for_flush(&self, bytes: u64) {
        self.flush.store(bytes, Relaxed);
    }

    /// Returns the bytes that the flush under way may write.
    pub(crate) fn for_flush(&self) -> u64 {
        self.flush.load(Relaxed)
    }

    /// Reserves `bytes` for all compactions under way.
    pub(crate) fn reserve_for_merges(&self, bytes: u64) {
        self.merges.store(bytes, Relaxed);
    }

    /// Returns the bytes that compactions under way may write.
    pub(crate) fn for_merges(&self) -> u64 {
        self.merges.load(Relaxed)
    }

    /// Returns an error if the budget does not allow `log` bytes of log segments in `share`.
    pub(super) fn check(&self, share: LogShare, log: u64) -> Result<()> {
        let (limit, tables) = (self.limit.load(Relaxed), self.tables.bytes_on_disk() + self.for_flush());
        if fits(limit, tables, log, left_to_merges(limit).max(self.for_merges())) {
            self.is_exceeded.store(false, Relaxed);
            return Ok(());
        }
        let kept = share.leaves(limit).max(self.for_merges());
        // Half of the limit is the largest log that deletions can make of an exceeded budget.
        let leads_back = share == LogShare::Deletes && self.is_exceeded() && log <= limit / 2;
        if leads_back || fits(limit, tables, log, kept) {
            return Ok(());
        }
        let what = format!(
            "disk_budget is {limit} bytes: tables use {tables}, the log would need {log}, and {kept} are reserved for \
             compactions"
        );
        Err(Error::new(ErrorKind::NoSpace, what))
    }
}

fn fits(limit: u64, tables: u64, log: u64, kept: u64) -> bool {
    limit == 0 || tables.saturating_add(log).saturating_add(kept) <= limit
}
