//! The short way to a cached block: a slot beside the fence that leads to it.
//!
//! Finding a block in the cache's map takes a lock and several cache misses. So the cache also puts each block into
//! a slot that its readers have at hand: one for each fence of an index block, one for each filter module. A full slot
//! is one load away, and a reader borrows the block from it without counting a reference.
//!
//! Invariants: a slot is filled and emptied by the cache alone, under the lock of the shard that the block is in, so it
//! never leads to a block that the cache has let go. An empty slot says nothing: slots of an index block that was read
//! again start empty, and are filled as its blocks are asked for. Who fills a slot holds it as its [`Home`], and a home
//! that goes empties it: so slots that go are empty.

use super::block::{Block, DataBlock};
use arc_swap::{ArcSwapOption, Guard};
use drumlin_env::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};
use std::mem::ManuallyDrop;

/// A block in the cache.
#[derive(Debug)]
pub(super) struct Cached {
    pub(super) block: Block,
    /// Whether it was asked for since the cache looked last.
    used: AtomicBool,
}

impl Cached {
    pub(super) fn new(block: Block) -> Arc<Cached> {
        Arc::new(Cached { block, used: AtomicBool::new(false) })
    }

    /// Whether it was asked for by its slot since the last call.
    pub(super) fn take_used(&self) -> bool {
        self.used.load(Relaxed) && self.used.swap(false, Relaxed)
    }
}

/// Slots for the blocks that one index block, or one filter, leads to.
///
/// They are empty when they go, so there is nothing to drop. `ArcSwapOption` would look all the same, for each of them,
/// whether some thread still borrows from it: 500 slots took 30 us, and where the index does not fit into the cache that
/// was most of a lookup.
#[derive(Clone, Debug)]
pub(super) struct Slots(Arc<[ManuallyDrop<ArcSwapOption<Cached>>]>);

impl Slots {
    /// `count` empty slots.
    pub(super) fn new(count: usize) -> Slots {
        Slots((0..count).map(|_| ManuallyDrop::new(ArcSwapOption::empty())).collect())
    }

    /// Bytes of memory held.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    /// Slot number `at`.
    pub(super) fn slot(&self, at: usize) -> Slot<'_> {
        Slot { slots: self, at }
    }

    fn is(&self, other: &Slots) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// One slot, borrowed. A number out of bounds makes one that stays empty.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot<'a> {
    slots: &'a Slots,
    at: usize,
}

impl Slot<'_> {
    /// The block in it. It counts as asked for if `trace` says so.
    #[inline]
    pub(super) fn borrow(&self, trace: bool) -> Option<Borrowed> {
        let guard = self.slots.0.get(self.at)?.load();
        let cached = guard.as_ref()?;
        // Seldom written: the line is shared by all that read the block.
        if trace && !cached.used.load(Relaxed) {
            cached.used.store(true, Relaxed);
        }
        Some(Borrowed(guard))
    }

    /// The slot to keep.
    pub(super) fn owned(&self) -> Home {
        Home { slots: self.slots.clone(), at: self.at }
    }
}

/// The slot that a block of the cache is in; it is emptied when this goes.
#[derive(Debug)]
pub(super) struct Home {
    slots: Slots,
    at: usize,
}

impl Home {
    /// Whether it is this slot.
    pub(super) fn is(&self, slot: &Slot<'_>) -> bool {
        self.at == slot.at && self.slots.is(slot.slots)
    }

    /// Puts a block in.
    pub(super) fn fill(&self, block: Arc<Cached>) {
        if let Some(slot) = self.slots.0.get(self.at) {
            slot.store(Some(block));
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Some(slot) = self.slots.0.get(self.at) {
            slot.store(None);
        }
    }
}

/// A block borrowed from its slot: it stays whole even if the cache lets it go meanwhile.
pub(super) struct Borrowed(Guard<Option<Arc<Cached>>>);

/// A block that a reader works on.
pub(super) enum BlockRef {
    /// One that is in its slot.
    Borrowed(Borrowed),
    /// Any other.
    Owned(Block),
}

impl BlockRef {
    /// The block.
    #[inline]
    pub(super) fn block(&self) -> Option<&Block> {
        match self {
            BlockRef::Borrowed(borrowed) => borrowed.0.as_ref().map(|cached| &cached.block),
            BlockRef::Owned(block) => Some(block),
        }
    }

    /// The block, if it is a data block.
    #[inline]
    pub(super) fn data(&self) -> Option<&DataBlock> {
        match self.block() {
            Some(Block::Data(block)) => Some(block),
            _ => None,
        }
    }
}
