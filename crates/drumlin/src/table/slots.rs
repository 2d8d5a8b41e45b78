//! Slots: the fast path to a cached block, kept beside the fence that points to it.
//!
//! A lookup in the cache's map takes a lock and costs several CPU cache misses. The cache therefore also stores a
//! block in a slot that its readers can reach directly. There is one slot for each fence of an index block and one
//! for each filter module. Reading a filled slot takes one load, and the reader borrows the block without touching a
//! reference count.
//!
//! Invariants:
//! - Only the cache fills and empties slots, under the lock of the block's shard. A slot therefore never holds a
//!   block that the cache has evicted.
//! - An empty slot carries no information. When an index block is read again, its slots start empty; they fill as
//!   readers request its blocks.
//! - The cache entry that filled a slot owns it as a [`Home`]. Dropping a home empties its slot, so slots are always
//!   empty when they are dropped.

use arc_swap::{ArcSwapOption, Guard};
use drumlin_env::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};
use std::mem::ManuallyDrop;

/// Block in the cache.
#[derive(Debug)]
pub(super) struct Cached<B> {
    pub(super) block: B,
    /// Whether a reader used the slot since the last call of `take_used`.
    used: AtomicBool,
}

impl<B> Cached<B> {
    pub(super) fn new(block: B) -> Arc<Cached<B>> {
        Arc::new(Cached { block, used: AtomicBool::new(false) })
    }

    /// Returns whether a reader used the block through its slot since the last call, and clears the mark.
    pub(super) fn take_used(&self) -> bool {
        self.used.load(Relaxed) && self.used.swap(false, Relaxed)
    }
}

/// Slots for the blocks that one index block, or one filter module, points to.
///
/// Slots are empty when they are dropped, so nothing needs to be freed. The drop of an `ArcSwapOption` would still
/// check each slot for threads that borrow from it. For 500 slots that took 30 us, most of a lookup when the index
/// did not fit into the cache.
#[derive(Debug)]
pub(super) struct Slots<B>(Arc<[ManuallyDrop<ArcSwapOption<Cached<B>>>]>);

impl<B> Clone for Slots<B> {
    fn clone(&self) -> Slots<B> {
        Slots(self.0.clone())
    }
}

impl<B> Slots<B> {
    /// Creates `count` empty slots.
    pub(super) fn new(count: usize) -> Slots<B> {
        Slots((0..count).map(|_| ManuallyDrop::new(ArcSwapOption::empty())).collect())
    }

    /// Returns the memory held, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    /// Returns slot number `at`.
    pub(super) fn slot(&self, at: usize) -> Slot<'_, B> {
        Slot { slots: self, at }
    }

    fn is(&self, other: &Slots<B>) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Borrowed slot. An out-of-range number yields a slot that always stays empty.
#[derive(Debug)]
pub(super) struct Slot<'a, B> {
    slots: &'a Slots<B>,
    at: usize,
}

impl<B> Clone for Slot<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Slot<'_, B> {}

impl<B> Slot<'_, B> {
    /// Borrows the block in the slot. Marks it as used if `trace` is set.
    #[inline]
    pub(super) fn borrow(&self, trace: bool) -> Option<Borrowed<B>> {
        let guard = self.slots.0.get(self.at)?.load();
        let cached = guard.as_ref()?;
        // Avoids most stores: all readers of the block share this cache line.
        if trace && !cached.used.load(Relaxed) {
            cached.used.store(true, Relaxed);
        }
        Some(Borrowed(guard))
    }

    /// Returns an owner of this slot, which empties it on drop.
    pub(super) fn owned(&self) -> Home<B> {
        Home { slots: self.slots.clone(), at: self.at }
    }
}

/// Owner of the slot that a cached block is in. Empties the slot on drop.
#[derive(Debug)]
pub(super) struct Home<B> {
    slots: Slots<B>,
    at: usize,
}

impl<B> Home<B> {
    /// Returns whether this is the home of `slot`.
    pub(super) fn is(&self, slot: &Slot<'_, B>) -> bool {
        self.at == slot.at && self.slots.is(slot.slots)
    }

    /// Stores a block in the slot.
    pub(super) fn fill(&self, block: Arc<Cached<B>>) {
        if let Some(slot) = self.slots.0.get(self.at) {
            slot.store(Some(block));
        }
    }
}

impl<B> Drop for Home<B> {
    fn drop(&mut self) {
        if let Some(slot) = self.slots.0.get(self.at) {
            slot.store(None);
        }
    }
}

/// Block borrowed from its slot. It stays alive even if the cache evicts it meanwhile.
pub(super) struct Borrowed<B>(Guard<Option<Arc<Cached<B>>>>);

impl<B> Borrowed<B> {
    /// Returns the block.
    #[inline]
    pub(super) fn block(&self) -> Option<&B> {
        self.0.as_ref().map(|cached| &cached.block)
    }
}
