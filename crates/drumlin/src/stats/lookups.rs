//! Lookup statistics: exact counts of the outcomes of point lookups, without contention between threads.
//!
//! A single counter would make all readers of a store share one cache line. Here each thread adds to one of
//! [`SHARDS`] cache lines, assigned in turn. A reading is the sum over them.

use drumlin_env::sync::plain::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::cell::Cell;

/// Number of counter shards.
const SHARDS: usize = 32;

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Counters of one shard.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    gets: AtomicU64,
    denied: AtomicU64,
    absent: AtomicU64,
    found: AtomicU64,
    returned: AtomicU64,
}

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
pub(crate) struct Epochs {
    /// Number of point lookups at the start of the current epoch.
    pub(crate) began: AtomicU64,
    /// Number of epochs so far.
    pub(crate) count: AtomicU64,
}

/// Lookup statistics since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct LookupCounts([Shard; SHARDS]);

impl LookupCounts {
    fn shard(&self) -> &Shard {
        let number = SHARD.get();
        if number < SHARDS {
            return &self.0[number];
        }
        let number = THREADS.fetch_add(1, Relaxed) % SHARDS;
        SHARD.set(number);
        &self.0[number]
    }

    /// Counts `gets` lookups. Returns the previous count of this shard.
    #[inline]
    pub(crate) fn gets(&self, gets: u64) -> u64 {
        self.shard().gets.fetch_add(gets, Relaxed)
    }

    /// Counts a table whose filter ruled the key out.
    #[inline]
    pub(crate) fn denied(&self) {
        self.shard().denied.fetch_add(1, Relaxed);
    }

    /// Counts a table that was searched and has no version.
    #[inline]
    pub(crate) fn absent(&self) {
        self.shard().absent.fetch_add(1, Relaxed);
    }

    /// Counts a table that was searched and has a version.
    #[inline]
    pub(crate) fn found(&self) {
        self.shard().found.fetch_add(1, Relaxed);
    }

    /// Counts lookups whose result came from a table.
    #[inline]
    pub(crate) fn returned(&self, lookups: u64) {
        self.shard().returned.fetch_add(lookups, Relaxed);
    }

    /// Returns the number of lookups so far.
    pub(crate) fn total_gets(&self) -> u64 {
        self.0.iter().map(|shard| shard.gets.load(Relaxed)).sum()
    }

    /// Returns all totals.
    pub(crate) fn totals(&self) -> LookupTotals {
        self.0.iter().fold(LookupTotals::default(), |sum, shard| LookupTotals {
            gets: sum.gets + shard.gets.load(Relaxed),
            denied: sum.denied + shard.denied.load(Relaxed),
            absent: sum.absent + shard.absent.load(Relaxed),
            found: sum.found + shard.found.load(Relaxed),
            returned: sum.returned + shard.returned.load(Relaxed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "counts on real threads")]
    fn nothing_is_lost_between_threads() {
        let counts = LookupCounts::default();
        std::thread::scope(|scope| {
            for _ in 0..SHARDS + 3 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        counts.gets(2);
                        counts.denied();
                        counts.absent();
                        counts.found();
                        counts.returned(3);
                    }
                });
            }
        });
        let all = (SHARDS as u64 + 3) * 100;
        let wanted = LookupTotals { gets: 2 * all, denied: all, absent: all, found: all, returned: 3 * all };
        assert_eq!((counts.totals(), counts.total_gets()), (wanted, 2 * all));
    }
}
