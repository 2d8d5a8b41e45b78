//! How memtables and the block cache share the memory budget.
//!
//! Memtables may hold three eighths of the budget. An eighth is for compactions and flushes, but at least 5 MiB, and at
//! most five sixteenths. The cache has the rest: half of the budget if it is 40 MiB or more. But memtables seldom hold
//! that much, and the cache gets the memory that they do not need. It shrinks when they grow, down to its own part, and
//! grows when they shrink.
//!
//! The cache's part also holds the trees (the metadata of each file) and the open tables. With many files, or files
//! with long keys, fewer bytes are left for blocks. Trees are charged here, open tables inside the cache.
//!
//! The memory kept for memtables is the *reserve*. It is at least twice the size of a memtable for each keyspace: one
//! that is filled and one that is flushed. So in normal operation nothing moves. When flushes fall behind, the reserve
//! rises at once, by one step more than is needed. With each flush it falls by half of the excess, and by at least one
//! step.
//!
//! Invariant: reserve, charge for trees and cache together are what compactions and flushes leave of the budget, except
//! for blocks that readers hold. There is one exception: the cache keeps a quarter of its smallest part, so very large
//! trees exceed the budget.

use crate::keyspace::KeyspaceState;
use crate::table::BlockCache;
use drumlin_env::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use drumlin_env::sync::{Arc, Mutex};

/// A step is one part in this many of the memtables' limit. The charge for trees is a multiple of a step. The reserve
/// moves by at least one step, unless it reaches a bound. So the cache is seldom resized.
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
    /// Bytes of large writes that wait to be admitted.
    waiting: AtomicUsize,
    /// Number of large writes admitted so far.
    large_admitted: AtomicUsize,
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
            waiting: AtomicUsize::new(0),
            large_admitted: AtomicUsize::new(0),
            admission: Mutex::new(()),
        };
        shares.set(kept);
        shares
    }

    /// Returns the largest number of bytes that memtables may hold.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Admits a large write of `bytes` if memtables, which hold `held`, and admitted writes then stay within `most`.
    /// Returns whether the write was admitted. If nothing is held, any write is admitted. Its bytes are not part of the
    /// memtables' reserve. The caller must release them.
    pub(crate) fn admit_write(&self, bytes: usize, most: usize, held: impl Fn() -> usize) -> bool {
        let _admission = self.admission.lock();
        let taken = self.taken(held);
        let fits = taken == 0 || taken.saturating_add(bytes) <= most;
        if fits {
            self.writes.fetch_add(bytes, Relaxed);
            self.large_admitted.fetch_add(1, Relaxed);
        }
        fits
    }

    /// Returns the bytes that memtables, which hold `held`, and large writes take together.
    pub(crate) fn taken(&self, held: impl Fn() -> usize) -> usize {
        // The order matters: a write releases its bytes only once a memtable holds them, so no write is missed. `held`
        // must look at each memtable that a write may still be in.
        let admitted = self.writes.load(Acquire);
        admitted + held()
    }

    /// Releases the `bytes` of an admitted write.
    pub(crate) fn release_write(&self, bytes: usize) {
        self.writes.fetch_sub(bytes, Release);
    }

    /// Returns the bytes of large writes that were admitted or wait for it.
    #[inline]
    pub(crate) fn large(&self) -> usize {
        self.writes.load(Relaxed) + self.waiting.load(Relaxed)
    }

    /// Returns the bytes that memtables may hold for a small write to be admitted, if they may hold `most` otherwise.
    /// Small writes leave the memory that large writes wait for. Otherwise they would take what each flush frees, and a
    /// large write could wait for ever. But a small write does so only until one large write was admitted: `began` is
    /// [`large_admitted`](Self::large_admitted) as the small write first asked. Batches that only delete, for which
    /// `most` is larger, leave none: on a full disk they lead to free space.
    pub(crate) fn most_for_small(&self, most: usize, began: usize) -> usize {
        match most > self.most || self.large_admitted() != began {
            true => most,
            false => most.saturating_sub(self.waiting.load(Acquire)),
        }
    }

    /// Returns the number of large writes admitted so far.
    #[inline]
    pub(crate) fn large_admitted(&self) -> usize {
        self.large_admitted.load(Relaxed)
    }

    /// Records that a large write of `bytes` waits. The caller must record its end.
    pub(crate) fn large_waits(&self, bytes: usize) {
        self.waiting.fetch_add(bytes, Release);
    }

    /// Records that a large write of `bytes` no longer waits.
    pub(crate) fn large_waited(&self, bytes: usize) {
        self.waiting.fetch_sub(bytes, Release);
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

    /// Charges for the memory of trees. Calls `bytes` under the lock, so that the later of two concurrent calls counts.
    /// Charges whole steps only: the part for compactions bears the rest.
    pub(crate) fn hold_trees(&self, bytes: impl Fn() -> usize) {
        let _moving = self.moving.lock();
        let bytes = bytes();
        let charge = bytes - bytes % self.step().max(1);
        if charge != self.trees.load(Relaxed) {
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
    use crate::api::db::{Builder, Db};
    use drumlin_env::MemEnv;

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
            shares.hold_trees(|| trees);
            shares.cache.capacity() >> 20
        };
        assert_eq!(cache((6 << 20) - 1), 192, "less than a step");
        assert_eq!(cache(13 << 20), 180);
        assert_eq!(cache(1 << 40), 32, "a quarter of the smallest part is left");
        assert_eq!(cache(0), 192);
        shares.hold_trees(|| 24 << 20);
        shares.hold(1 << 30);
        assert_eq!(shares.cache.capacity() >> 20, 104);
    }

    #[test]
    fn a_dropped_keyspace_gives_its_memory_back() {
        let db = Db::builder("/s")
            .env(MemEnv::new(1).env())
            .memory_budget(8 << 20)
            .and_then(Builder::open)
            .expect("open");
        let options = [("file_bytes", "4KiB"), ("compaction", "tiering:20")];
        let keys = db.keyspace_with("k", &options).expect("a keyspace");
        let cache = keys.store.files.cache.clone();
        for number in 0..500_u32 {
            let mut key = vec![0; 2000];
            drumlin_env::Random::new(number.into(), "key").fill(&mut key);
            keys.put(key, "value").expect("put");
        }
        db.flush().expect("flush");
        let (with, tree) = (cache.memory(), keys.state.view().tree.held_bytes());
        assert!(tree > 500 << 10, "{tree} bytes of trees");
        drop(keys);
        db.drop_keyspace("k").expect("dropped");
        // The charge was a whole number of steps.
        let step = (3 << 20) / STEPS;
        assert_eq!(cache.memory() - with, tree - tree % step);
    }

    #[test]
    fn small_writes_and_large_ones_take_turns() {
        let shares = shares(32 << 20);
        let most = shares.most();
        let began = shares.large_admitted();
        assert_eq!(shares.most_for_small(most, began), most);
        // Three large writes wait, for more than all of the memory.
        (0..3).for_each(|_| shares.large_waits(60 << 20));
        assert_eq!(shares.most_for_small(most, began), 0);
        assert!(shares.admit_write(60 << 20, most, || 0));
        shares.large_waited(60 << 20);
        shares.large_waits(60 << 20);
        assert_eq!(shares.most_for_small(most, began), most, "it has let one large write pass");
        let began = shares.large_admitted();
        assert_eq!(shares.most_for_small(most, began), 0, "the next small write lets one pass again");
        assert_eq!(shares.most_for_small(most + 1, began), most + 1, "deletions let none pass");
    }

    #[test]
    fn more_keyspaces_than_memory_leave_the_cache_its_half() {
        let shares = shares(1 << 40);
        assert_eq!(reserve(&shares), 96);
        shares.flushed(0, 1 << 40);
        assert_eq!(reserve(&shares), 96);
    }
}
