//! The disk budget, as the log sees it.
//!
//! 1. Tables and log together stay within the limit. Tables count from their completion until they are unlinked. While
//!    they are written, what they may take is reserved.
//! 2. The log leaves a part to compactions, since a log that took their disk space would keep a full store full.
//!    Deletions may use most of that part, because they free disk space once they are flushed and compacted.
//! 3. A log segment takes at most a sixteenth of the limit. The log has two segments at least, and deletions need the
//!    next one while a flush has not yet released the others.
//! 4. The limit may be set so low that compactions have no disk space. It is then *exceeded* until use has fallen to
//!    the limit less the part left to compactions. Meanwhile deletions may use two log segments more than was in use
//!    when the limit became exceeded. A flush may exceed the limit by less than the log holds. Nothing else brings use
//!    back below the limit.

use crate::base::error::{Error, ErrorKind, Result};
use crate::version::Obsolete;
use drumlin_env::sync::Arc;
use drumlin_env::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::path::Path;

/// Fraction of the budget that flushes and the log leave to compactions, as a divisor.
const COMPACTION_SHARE: u64 = 8;
/// Largest part of the budget that they leave, in bytes: what two pieces of 64 MiB need, with a margin.
const COMPACTION_MAX: u64 = 160 << 20;

/// Fraction of the budget that the file of a log segment may take, as a divisor.
const SEGMENT_SHARE: u64 = 16;

/// Returns the part of `budget` that flushes and the log leave to compactions.
pub(crate) fn left_to_compactions(budget: u64) -> u64 {
    (budget / COMPACTION_SHARE).min(COMPACTION_MAX)
}

/// Part of the disk budget that a log segment may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogShare {
    /// The space that tables and compactions leave.
    Writes,
    /// For commits that only delete: also three quarters of the part left to compactions. The rest is for their flush.
    Deletes,
    /// All space that tables and running compactions leave. For the record that `close` writes.
    Close,
}

impl LogShare {
    /// Returns the part of the budget `limit` that a segment in this share leaves.
    fn leaves(self, limit: u64) -> u64 {
        match self {
            LogShare::Writes => left_to_compactions(limit),
            LogShare::Deletes => left_to_compactions(limit) / 4,
            LogShare::Close => 0,
        }
    }
}

/// Limit on the disk space that the log and the tables may use together.
#[derive(Default)]
pub(crate) struct DiskBudget {
    /// Limit in bytes; 0 for no limit.
    limit: AtomicU64,
    /// Bytes that were in use when the limit was set too low; 0 if it is not exceeded.
    used_when_exceeded: AtomicU64,
    /// Bytes that the flush under way may write.
    flush: AtomicU64,
    /// Bytes that compactions under way may write.
    compactions: AtomicU64,
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
        self.compare(log, left_to_compactions(limit));
    }

    /// Compares the limit with the use of a store that was just opened, with `log` bytes of log. Writes within the
    /// limit leave at least a quarter of the part left to compactions, which is enough for one compaction. So the limit
    /// is exceeded only if less is left.
    pub(crate) fn opened(&self, log: u64) {
        self.compare(log, LogShare::Deletes.leaves(self.limit.load(Relaxed)));
    }

    /// Returns the largest length of the file of a log segment, except for a record that is longer.
    pub(crate) fn segment_most(&self) -> u64 {
        match self.limit.load(Relaxed) {
            0 => u64::MAX,
            limit => limit / SEGMENT_SHARE,
        }
    }

    /// Marks the limit as exceeded if less than `margin` bytes are left.
    fn compare(&self, log: u64, margin: u64) {
        let (limit, tables) = (self.limit.load(Relaxed), self.tables.bytes_on_disk());
        let used = if fits(limit, tables, log, margin) { 0 } else { (tables + log).max(1) };
        self.used_when_exceeded.store(used, Relaxed);
    }

    /// Returns whether the limit allows `used` bytes, whatever is in use or reserved.
    pub(super) fn allows(&self, used: u64) -> bool {
        fits(self.limit.load(Relaxed), 0, used, 0)
    }

    /// Returns whether the limit was set too low for what was in use, and use has not fallen far enough. The log has
    /// `log` bytes.
    pub(crate) fn is_exceeded(&self, log: u64) -> bool {
        let limit = self.limit.load(Relaxed);
        if fits(limit, self.tables.bytes_on_disk(), log, left_to_compactions(limit)) {
            self.used_when_exceeded.store(0, Relaxed);
        }
        self.used_when_exceeded.load(Relaxed) > 0
    }

    /// Reserves `bytes` for the flush that begins; 0 once it has ended.
    pub(crate) fn reserve_for_flush(&self, bytes: u64) {
        self.flush.store(bytes, Relaxed);
    }

    /// Lowers the reservation for the flush under way to `bytes`, what it may still write.
    pub(crate) fn lower_for_flush(&self, bytes: u64) {
        self.flush.fetch_min(bytes, Relaxed);
    }

    /// Returns the bytes that the flush under way may still write.
    pub(crate) fn for_flush(&self) -> u64 {
        self.flush.load(Relaxed)
    }

    /// Reserves `bytes` for all compactions under way.
    pub(crate) fn reserve_for_compactions(&self, bytes: u64) {
        self.compactions.store(bytes, Relaxed);
    }

    /// Returns the bytes that compactions under way may write.
    pub(crate) fn for_compactions(&self) -> u64 {
        self.compactions.load(Relaxed)
    }

    /// Counts a log file that could not be unlinked, until maintenance has unlinked it.
    pub(super) fn count_until_removed(&self, path: &Path, bytes: u64) {
        self.tables.push_file(path.to_owned(), bytes);
    }

    /// Ends all reservations, since no flush or compaction runs any more.
    pub(crate) fn release_reservations(&self) {
        self.reserve_for_flush(0);
        self.reserve_for_compactions(0);
    }

    /// Returns an error if the budget does not allow the log of `log` bytes to grow by `more` bytes in `share`.
    pub(super) fn check(&self, share: LogShare, log: u64, more: u64) -> Result<()> {
        self.check_segment(share, log, more, more)
    }

    /// As [`check`](DiskBudget::check), for a segment whose file has `wanted` bytes: `more` of them are new, and the
    /// rest is that of a file that is reused.
    pub(super) fn check_segment(&self, share: LogShare, log: u64, more: u64, wanted: u64) -> Result<()> {
        let (is_exceeded, log) = (self.is_exceeded(log), log + more);
        let limit = self.limit.load(Relaxed);
        let (finished, flush) = (self.tables.bytes_on_disk(), self.for_flush());
        let tables = finished + flush;
        let kept = share.leaves(limit).max(self.for_compactions());
        let most = self.used_when_exceeded.load(Relaxed).saturating_add(2 * wanted);
        let leads_back = share == LogShare::Deletes && is_exceeded && tables.saturating_add(log) <= most;
        if leads_back || fits(limit, tables, log, kept) {
            return Ok(());
        }
        let what = format!(
            "disk_budget of {limit} bytes is used up: tables use {finished}, the running flush may add {flush}, the \
             log would need {log}, and {kept} are kept for compactions; delete ranges, drop keyspaces or raise \
             disk_budget"
        );
        Err(Error::new(ErrorKind::NoSpace, what))
    }
}

fn fits(limit: u64, tables: u64, log: u64, kept: u64) -> bool {
    limit == 0 || tables.saturating_add(log).saturating_add(kept) <= limit
}

#[cfg(test)]
mod tests {
    use super::*;

    impl DiskBudget {
        /// Lets tables use `bytes`.
        fn set_tables(&self, bytes: u64) {
            self.tables.take_files();
            self.tables.push_file("/s/table".into(), bytes);
        }
    }

    /// Returns a budget of 8000 bytes of which tables use `tables`.
    fn budget(tables: u64) -> DiskBudget {
        let budget = DiskBudget::new(8000, Arc::default());
        budget.set_tables(tables);
        budget
    }

    #[test]
    fn a_limit_bounds_the_length_of_a_segment() {
        let budget = budget(0);
        assert_eq!(budget.segment_most(), 500);
        budget.set_limit(0, 0);
        assert_eq!(budget.segment_most(), u64::MAX);
    }

    /// Compactions and deletions use the part that other writes leave. A store that is as full as that is not over its
    /// budget, so deletions must not exceed it.
    #[test]
    fn a_full_budget_is_not_exceeded() {
        let budget = budget(6700);
        budget.opened(900);
        assert!(!budget.is_exceeded(900));
        let error = budget.check(LogShare::Deletes, 900, 500).expect_err("over the limit");
        assert_eq!(error.kind(), ErrorKind::NoSpace);
    }

    #[test]
    fn a_lowered_budget_is_exceeded_until_its_margin_is_free_again() {
        let budget = budget(7000);
        budget.set_limit(7500, 900);
        budget.check(LogShare::Deletes, 900, 200).expect("deletions lead back");
        budget.check(LogShare::Deletes, 1100, 200).expect("a second segment");
        budget.check(LogShare::Deletes, 1300, 200).expect_err("no third one");
        budget.check(LogShare::Writes, 900, 200).expect_err("other writes do not lead back");
        // A flush under way takes some of the slack. A segment in a file that is reused has the same slack.
        budget.reserve_for_flush(100);
        budget.check(LogShare::Deletes, 900, 200).expect("a new file");
        budget.check_segment(LogShare::Deletes, 900, 0, 200).expect("a file that is reused");
        budget.reserve_for_flush(0);
        // The part left to compactions is 937 bytes.
        budget.set_tables(5800);
        assert!(budget.is_exceeded(900));
        budget.set_tables(5600);
        // Use has fallen, whatever the next segment adds to it.
        budget.check(LogShare::Deletes, 900, 1500).expect_err("over the limit");
        assert!(!budget.is_exceeded(900));
        budget.set_tables(6500);
        assert!(!budget.is_exceeded(900), "it was not lowered again");
    }

    /// What a flush may write is reserved until its tables are finished.
    #[test]
    fn reservations_count_and_end() {
        let budget = budget(5000);
        budget.check(LogShare::Writes, 1900, 100).expect("a thousand bytes are left to compactions");
        budget.reserve_for_flush(500);
        budget.check(LogShare::Writes, 1900, 100).expect_err("the flush needs them");
        budget.lower_for_flush(100);
        budget.lower_for_flush(300);
        assert_eq!(budget.for_flush(), 100, "it only falls");
        budget.reserve_for_compactions(2500);
        budget.check(LogShare::Close, 900, 100).expect_err("compactions are running");
        budget.release_reservations();
        budget.check(LogShare::Close, 900, 2100).expect("nothing runs any more");
    }
}
