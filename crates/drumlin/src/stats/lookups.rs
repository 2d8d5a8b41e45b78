//! What point lookups met, counted exactly and without threads getting in each other's way.
//!
//! All readers of a store would share one counter's cache line. Here each thread adds to one of [`SHARDS`] lines, given
//! out in turn; a reading is the sum over them.

use drumlin_env::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::cell::Cell;

/// Lines to count on.
const SHARDS: usize = 32;

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The counts of one shard.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    gets: AtomicU64,
    denied: AtomicU64,
    absent: AtomicU64,
    found: AtomicU64,
    returned: AtomicU64,
}

/// A reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LookupTotals {
    /// Point lookups.
    pub(crate) gets: u64,
    /// Tables whose filter said no.
    pub(crate) denied: u64,
    /// Tables that were searched and have no version.
    pub(crate) absent: u64,
    /// Tables that were searched and have one.
    pub(crate) found: u64,
    /// Lookups that took their answer from a table.
    pub(crate) returned: u64,
}

/// Counts since the store was opened.
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

    /// Counts `gets` lookups; gives how many there were on this shard before.
    #[inline]
    pub(crate) fn gets(&self, gets: u64) -> u64 {
        self.shard().gets.fetch_add(gets, Relaxed)
    }

    /// A filter said no.
    #[inline]
    pub(crate) fn denied(&self) {
        self.shard().denied.fetch_add(1, Relaxed);
    }

    /// A table was searched for nothing.
    #[inline]
    pub(crate) fn absent(&self) {
        self.shard().absent.fetch_add(1, Relaxed);
    }

    /// A table was searched and had a version.
    #[inline]
    pub(crate) fn found(&self) {
        self.shard().found.fetch_add(1, Relaxed);
    }

    /// Counts lookups that took their answer from a table.
    #[inline]
    pub(crate) fn returned(&self, lookups: u64) {
        self.shard().returned.fetch_add(lookups, Relaxed);
    }

    /// Lookups so far.
    pub(crate) fn total_gets(&self) -> u64 {
        self.0.iter().map(|shard| shard.gets.load(Relaxed)).sum()
    }

    /// All counts.
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
