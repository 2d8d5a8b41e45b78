//! Lookup statistics: exact counts of the outcomes of point lookups, without contention between threads.

use crate::base::thread_counters::ThreadCounters;
use drumlin_env::sync::plain::atomic::AtomicU64;

const GETS: usize = 0;
const DENIED: usize = 1;
const ABSENT: usize = 2;
const FOUND: usize = 3;
const RETURNED: usize = 4;

/// Totals of the lookup statistics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LookupTotals {
    /// Number of point lookups.
    pub(crate) gets: u64,
    /// Number of tables whose filter ruled the key out.
    pub(crate) denied: u64,
    /// Number of tables searched that have no version.
    pub(crate) absent: u64,
    /// Number of tables searched that have a version.
    pub(crate) found: u64,
    /// Number of lookups whose result came from a table.
    pub(crate) returned: u64,
}

/// Decay epochs of the lookup statistics.
#[derive(Debug, Default)]
pub(crate) struct DecayEpochs {
    /// Number of point lookups at the start of the current epoch.
    pub(crate) began: AtomicU64,
    /// Number of epochs so far.
    pub(crate) count: AtomicU64,
    /// Monotonic time at which the statistics were last saved, in microseconds; 0 if they were not.
    pub(crate) saved: AtomicU64,
}

/// Lookup statistics since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct LookupCounts(ThreadCounters<5>);

impl LookupCounts {
    /// Counts `gets` lookups. Returns the previous count of this thread, or of many threads together.
    #[inline]
    pub(crate) fn add_gets(&self, gets: u64) -> u64 {
        self.0.add(GETS, gets)
    }

    /// Counts a table whose filter ruled the key out.
    #[inline]
    pub(crate) fn denied(&self) {
        self.0.add(DENIED, 1);
    }

    /// Counts a table that was searched and has no version.
    #[inline]
    pub(crate) fn absent(&self) {
        self.0.add(ABSENT, 1);
    }

    /// Counts a table that was searched and has a version.
    #[inline]
    pub(crate) fn found(&self) {
        self.0.add(FOUND, 1);
    }

    /// Counts lookups whose result came from a table.
    #[inline]
    pub(crate) fn returned(&self, lookups: u64) {
        self.0.add(RETURNED, lookups);
    }

    /// Returns the number of lookups so far.
    pub(crate) fn total_gets(&self) -> u64 {
        self.0.total(GETS)
    }

    /// Returns all totals.
    pub(crate) fn totals(&self) -> LookupTotals {
        LookupTotals {
            gets: self.0.total(GETS),
            denied: self.0.total(DENIED),
            absent: self.0.total(ABSENT),
            found: self.0.total(FOUND),
            returned: self.0.total(RETURNED),
        }
    }
}
