//! How memtables and the block cache share the memory budget.
//!
//! Memtables may hold three eighths of the budget. An eighth is for compactions and flushes, but at least 5 MiB, and at
//! most five sixteenths. The cache has the rest: half of the budget if it is 40 MiB or more. But memtables seldom hold
//! that much, and the cache gets the memory that they do not need. It shrinks when they grow, down to its own part, and
//! grows when they shrink.
//!
//! The cache's part also has to hold the trees (what is known about each file) and the open tables. With many files, or
//! files with long keys, fewer bytes are left for blocks. Trees are charged here, open tables inside the cache.
//!
//! The memory kept for memtables is the *reserve*. It is at least twice the size of a memtable for each keyspace: one
//! that is filled and one that is flushed. So in normal operation nothing moves. When flushes fall behind, the reserve
//! rises at once, by one step more than is needed. With each flush it falls by half of the excess, and by at least one
//! step.
//!
//! Invariant: reserve, trees and cache together are what compactions and flushes leave of the budget, except for blocks
//! that readers hold. If trees exceed three quarters of the cache's smallest part, the cache keeps a quarter of it.

use crate::keyspace::KeyspaceState;
use crate::table::BlockCache;
use drumlin_env::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use drumlin_env::sync::{Arc, Mutex};

/// The reserve and the charge for trees move in steps of this fraction of the memtables' limit.
const STEPS: usize = 16;
/// The cache keeps one part in this many of its smallest size, however large the trees are.
const CACHE_LEAST_SHARE: usize = 4;

/// Division of the memory between memtables and block cache.
#[derive(Debug)]
pub(crate) struct Shares {
    /// Largest number of bytes that memtables may hold.
    most: usize,
    /// Bytes of reserve and cache together.
    whole: usize,
    cache: Arc<BlockCache>,
    /// Bytes kept for memtables. Changed under the lock.
    reserve: AtomicUsize,
    /// Bytes charged for the trees of all keyspaces. Changed under the lock.
    trees: AtomicUsize,
    moving: Mutex<()>,
    /// Bytes of large writes that were admitted and are not in memtables yet. Raised under the lock.
    writes: AtomicUsize,
    admission: Mutex<()>,
}

impl Shares {
    /// Creates the division. Memtables may hold `most` bytes, of which `kept` are reserved from the start. `cache` has
    /// its smallest size now.
    pub(crate) fn new(most: usize, kept: usize, cache: Arc<BlockCache>) -> Shares {
        let whole = most + cache.memory();
        let shares = Shares {
            most,
            whole,
            cache,
            reserve: AtomicUsize::new(most),
            trees: AtomicUsize::new(0),
            moving: Mutex::new(()),
            writes: AtomicUsize::new(0),
            admission: Mutex::new(()),
        };
        shares.set(kept);
        shares
    }

    /// Returns the largest number of bytes that memtables may hold.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Reserves `bytes` for a large write if memtables, which hold `held`, have room for them below `most`. An empty
    /// store takes any write. Returns whether it did.
    pub(crate) fn reserve(&self, bytes: usize, most: usize, held: impl Fn() -> usize) -> bool {
        let _admission = self.admission.lock();
        let taken = self.taken(held);
        let fits = taken == 0 || taken.saturating_add(bytes) <= most;
        if fits {
            self.writes.fetch_add(bytes, Relaxed);
        }
        fits
    }

    /// Returns the bytes that memtables, which hold `held`, and large writes take together.
    pub(crate) fn taken(&self, held: impl Fn() -> usize) -> usize {
        // In this order: a write releases its bytes when a memtable has them.
        let reserved = self.writes.load(Acquire);
        reserved + held()
    }

    /// Releases `bytes` that a large write has reserved.
    pub(crate) fn release(&self, bytes: usize) {
        self.writes.fetch_sub(bytes, Release);
    }

    /// Returns the bytes that large writes have reserved.
    #[inline]
    pub(crate) fn reserved(&self) -> usize {
        self.writes.load(Relaxed)
    }

    /// Raises the reserve if memtables, which hold `bytes`, exceed it.
    #[inline]
    pub(crate) fn hold(&self, bytes: usize) {
        let bytes = bytes.min(self.most);
        if bytes > self.reserve.load(Relaxed) {
            let _moving = self.moving.lock();
            // Another writer may have raised it in between.
            if bytes > self.reserve.load(Relaxed) {
                self.set(bytes + self.step());
            }
        }
    }

    /// Adjusts the reserve after a flush. Memtables now hold `bytes`, and `expected` in normal operation. If the
    /// reserve is much larger than both, it falls.
    pub(crate) fn flushed(&self, bytes: usize, expected: usize) {
        let _moving = self.moving.lock();
        let (reserve, needed) = (self.reserve.load(Relaxed), bytes.max(expected).min(self.most));
        if reserve > needed + self.step() {
            self.set(needed.max(reserve - ((reserve - needed) / 2).max(self.step())));
        } else if reserve < needed {
            self.set(needed);
        }
    }

    /// Charges for trees, which take `bytes`. What they take below one step is left to the part for compactions.
    pub(crate) fn hold_trees(&self, bytes: usize) {
        let charge = bytes - bytes % self.step().max(1);
        if charge != self.trees.load(Relaxed) {
            let _moving = self.moving.lock();
            self.trees.store(charge, Relaxed);
            self.fit();
        }
    }

    fn step(&self) -> usize {
        self.most / STEPS
    }

    fn set(&self, reserve: usize) {
        let reserve = reserve.min(self.most);
        if self.reserve.swap(reserve, Relaxed) != reserve {
            self.fit();
        }
    }

    /// Gives the cache what reserve and trees leave.
    fn fit(&self) {
        let rest = self.whole - self.reserve.load(Relaxed);
        let least = (self.whole - self.most) / CACHE_LEAST_SHARE;
        self.cache.set_memory(rest.saturating_sub(self.trees.load(Relaxed)).max(least));
    }
}

/// Returns the bytes that the memtables of `keyspaces` hold in normal operation: for each, one memtable that is filled
/// and one that is flushed.
pub(crate) fn expected_memtable_bytes(keyspaces: &[Arc<KeyspaceState>]) -> usize {
    keyspaces
        .iter()
        .map(|keyspace| keyspace.memtable_limit().saturating_mul(2))
        .fold(0, usize::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(kept: usize) -> Shares {
        Shares::new(96 << 20, kept, Arc::new(BlockCache::new(128 << 20)))
    }

    fn reserve(shares: &Shares) -> usize {
        let reserve = shares.reserve.load(Relaxed);
        assert_eq!(reserve + shares.cache.capacity(), 224 << 20);
        assert!(reserve <= shares.most());
        reserve >> 20
    }

    #[test]
    fn the_cache_has_what_memtables_leave() {
        let shares = shares(32 << 20);
        assert_eq!(reserve(&shares), 32);
        shares.hold(32 << 20);
        assert_eq!(reserve(&shares), 32);
        shares.hold(40 << 20);
        assert_eq!(reserve(&shares), 46, "one step more than needed");
        shares.hold(1 << 30);
        assert_eq!(reserve(&shares), 96);
        assert_eq!(shares.cache.capacity(), 128 << 20, "the cache keeps its half");
    }

    #[test]
    fn what_memtables_leave_comes_back_with_flushes() {
        let shares = shares(32 << 20);
        shares.hold(90 << 20);
        assert_eq!(reserve(&shares), 96);
        shares.flushed(80 << 20, 32 << 20);
        assert_eq!(reserve(&shares), 88);
        let mut seen = Vec::new();
        for _ in 0..5 {
            shares.flushed(8 << 20, 32 << 20);
            seen.push(reserve(&shares));
        }
        assert_eq!(seen, [60, 46, 39, 33, 33], "it falls to less than a step above the usual");
        shares.flushed(0, 64 << 20);
        assert_eq!(reserve(&shares), 64, "the usual size has changed");
    }

    #[test]
    fn trees_take_their_part_of_the_cache() {
        let shares = shares(32 << 20);
        let cache = |trees: usize| {
            shares.hold_trees(trees);
            shares.cache.capacity() >> 20
        };
        assert_eq!(cache((6 << 20) - 1), 192, "less than a step");
        assert_eq!(cache(13 << 20), 180);
        assert_eq!(cache(1 << 40), 32, "a quarter of the smallest part is left");
        assert_eq!(cache(0), 192);
        shares.hold_trees(24 << 20);
        shares.hold(1 << 30);
        assert_eq!(shares.cache.capacity() >> 20, 104);
    }

    #[test]
    fn more_keyspaces_than_memory_leave_the_cache_its_half() {
        let shares = shares(1 << 40);
        assert_eq!(reserve(&shares), 96);
        shares.flushed(0, 1 << 40);
        assert_eq!(reserve(&shares), 96);
    }
}
