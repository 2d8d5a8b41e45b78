//! Counts of writes and scans, exact.

use crate::base::metrics::Metrics;
use crate::base::thread_counters::ThreadCounters;
use drumlin_env::sync::plain::atomic::{
    Ordering::{Acquire, Release, SeqCst},
    fence,
};

// The counters.
const COMMITS: usize = 0;
const OPERATIONS: usize = 1;
const USER_BYTES: usize = 2;
const LOG_BYTES: usize = 3;
const SCANS_BEGUN: usize = 4;
const SCANS_ENDED: usize = 5;

/// Counts of writes and scans since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct OperationCounts(ThreadCounters<6>);

impl OperationCounts {
    /// Counts a published commit.
    #[inline]
    pub(crate) fn committed(&self, operations: u64, user_bytes: u64) {
        self.0.add(COMMITS, 1);
        self.0.add(OPERATIONS, operations);
        self.0.add(USER_BYTES, user_bytes);
    }

    /// Counts bytes written to the log.
    #[inline]
    pub(crate) fn logged(&self, bytes: u64) {
        self.0.add(LOG_BYTES, bytes);
    }

    /// Counts an iterator or cursor that begins. The fence pairs with the one in
    /// [`live_scans`](OperationCounts::live_scans): either the scan sees that the store is closed, or close counts the
    /// scan.
    #[inline]
    pub(crate) fn scan_begins(&self) {
        self.0.add(SCANS_BEGUN, 1);
        fence(SeqCst);
    }

    /// Counts an iterator or cursor that is dropped.
    #[inline]
    pub(crate) fn scan_ends(&self) {
        // A thread that sees this end also sees the beginning, which another thread may have counted.
        fence(Release);
        self.0.add(SCANS_ENDED, 1);
    }

    /// Returns the number of iterators and cursors that are not dropped.
    pub(crate) fn live_scans(&self) -> u64 {
        fence(SeqCst);
        // Ends are read first, so the beginning of each ended scan is counted too. An ended scan never hides a live
        // one.
        let ended = self.0.total(SCANS_ENDED);
        fence(Acquire);
        self.0.total(SCANS_BEGUN).saturating_sub(ended)
    }

    /// Fills the counts into `metrics`.
    pub(crate) fn fill(&self, metrics: &mut Metrics) {
        metrics.iterators = self.live_scans();
        metrics.scans = self.0.total(SCANS_BEGUN);
        metrics.commits = self.0.total(COMMITS);
        metrics.operations = self.0.total(OPERATIONS);
        metrics.user_bytes_written = self.0.total(USER_BYTES);
        metrics.log_bytes_written = self.0.total(LOG_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "scans begin and end on different threads")]
    fn scans_that_end_on_other_threads_hide_no_live_one() {
        let counts = OperationCounts::default();
        let (send, receive) = std::sync::mpsc::sync_channel(10);
        let scans = if cfg!(miri) { 100 } else { 20_000 };
        counts.scan_begins();
        std::thread::scope(|scope| {
            let counts = &counts;
            scope.spawn(move || {
                for _ in 0..scans {
                    counts.scan_begins();
                    send.send(()).expect("the other thread lives");
                }
            });
            scope.spawn(move || receive.iter().for_each(|()| counts.scan_ends()));
            for _ in 0..scans {
                assert!((1..=scans + 1).contains(&counts.live_scans()));
            }
        });
        assert_eq!(counts.live_scans(), 1);
        counts.scan_ends();
        let mut metrics = Metrics::default();
        counts.fill(&mut metrics);
        assert_eq!((metrics.scans, metrics.iterators), (scans + 1, 0));
    }
}
