//! How memtables and the block cache share the memory budget.
//!
//! Memtables may hold three eighths of it, and the cache has half. But memtables seldom hold so much, and what they do not
//! hold the cache has too: it gives way when they grow, down to its half, and gets back what they leave.
//!
//! The memory that is kept for memtables, the reserve, is at least twice the size of a memtable for each keyspace, one that
//! is filled and one that is flushed, so that in the usual course nothing moves. Where flushes fall behind it rises at
//! once, a step more than is needed; it falls by half of what is too much with each flush, and by no less than a step.
//!
//! Invariant: reserve and cache together are seven eighths of the budget, up to blocks that readers hold.

use crate::keyspace::KeyspaceState;
use crate::table::BlockCache;
use drumlin_env::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use drumlin_env::sync::{Arc, Mutex};

/// The reserve moves by steps of this share of what memtables may hold.
const STEPS: usize = 16;

/// The division of the memory.
#[derive(Debug)]
pub(crate) struct Shares {
    /// Most bytes of memtables.
    most: usize,
    /// What reserve and cache hold together.
    whole: usize,
    cache: Arc<BlockCache>,
    /// Bytes kept for memtables; changed under the lock.
    reserve: AtomicUsize,
    moving: Mutex<()>,
}

impl Shares {
    /// Memtables may hold `most` bytes, and `cache` has its least size now; of `kept` bytes it keeps out from the start.
    pub(crate) fn new(most: usize, kept: usize, cache: Arc<BlockCache>) -> Shares {
        let whole = most + cache.capacity();
        let shares = Shares { most, whole, cache, reserve: AtomicUsize::new(most), moving: Mutex::new(()) };
        shares.set(kept);
        shares
    }

    /// Most bytes of memtables.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Memtables hold `bytes`: the reserve rises where that is more.
    #[inline]
    pub(crate) fn hold(&self, bytes: usize) {
        let bytes = bytes.min(self.most);
        if bytes > self.reserve.load(Relaxed) {
            let _moving = self.moving.lock();
            // Another writer may have raised it meanwhile.
            if bytes > self.reserve.load(Relaxed) {
                self.set(bytes + self.step());
            }
        }
    }

    /// A flush ended, memtables hold `bytes`, and `usual` is what they hold in the usual course: the reserve falls where
    /// that is much less.
    pub(crate) fn flushed(&self, bytes: usize, usual: usize) {
        let _moving = self.moving.lock();
        let (reserve, needed) = (self.reserve.load(Relaxed), bytes.max(usual).min(self.most));
        if reserve > needed + self.step() {
            self.set(needed.max(reserve - ((reserve - needed) / 2).max(self.step())));
        } else if reserve < needed {
            self.set(needed);
        }
    }

    fn step(&self) -> usize {
        self.most / STEPS
    }

    fn set(&self, reserve: usize) {
        let reserve = reserve.min(self.most);
        if self.reserve.swap(reserve, Relaxed) != reserve {
            self.cache.set_capacity(self.whole - reserve);
        }
    }
}

/// What the memtables of `keyspaces` hold in the usual course: of each, one that is filled and one that is flushed.
pub(crate) fn usual(keyspaces: &[Arc<KeyspaceState>]) -> usize {
    keyspaces
        .iter()
        .map(|keyspace| keyspace.memtable_bytes().saturating_mul(2))
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
        assert_eq!(reserve(&shares), 46, "a step more");
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
        assert_eq!(seen, [60, 46, 39, 33, 33], "the usual, and less than a step");
        shares.flushed(0, 64 << 20);
        assert_eq!(reserve(&shares), 64, "another usual");
    }

    #[test]
    fn more_keyspaces_than_memory_leave_the_cache_its_half() {
        let shares = shares(1 << 40);
        assert_eq!(reserve(&shares), 96);
        shares.flushed(0, 1 << 40);
        assert_eq!(reserve(&shares), 96);
    }
}
