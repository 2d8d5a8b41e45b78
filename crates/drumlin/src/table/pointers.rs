//! Cached pointers: the fast path to a cached block, kept beside the fence that points to it.
//!
//! A lookup in the cache's map takes a lock and costs several CPU cache misses. The cache therefore also stores a
//! block in a pointer that its readers can reach directly. There is one pointer for each fence of an index block and
//! one for each filter module. Reading a set pointer takes one load, and the reader borrows the block without touching
//! a reference count.
//!
//! Invariants:
//! - Only the cache sets and clears pointers, under the lock of the block's shard. A pointer therefore never leads to a
//!   block that the cache has evicted.
//! - A null pointer carries no information. When an index block is read again, its pointers start as null; they are set
//!   as readers request its blocks.
//! - The cache entry that set a pointer owns it as a [`PointerOwner`]. Dropping the owner clears the pointer, so
//!   pointers are always null when they are dropped.

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
    /// Whether a reader used the pointer since the last call of `take_used`.
    used: AtomicBool,
}

impl<B> Cached<B> {
    pub(super) fn new(block: B) -> Arc<Cached<B>> {
        Arc::new(Cached { block, used: AtomicBool::new(false) })
    }

    /// Returns whether a reader used the block through its pointer since the last call, and clears the mark.
    pub(super) fn take_used(&self) -> bool {
        self.used.load(Relaxed) && self.used.swap(false, Relaxed)
    }
}

/// Cached pointers to the blocks that one index block, or one filter module, points to.
///
/// Pointers are null when they are dropped, so nothing needs to be freed. The drop of an `ArcSwapOption` would still
/// check each pointer for threads that borrow from it. For 500 pointers that took 30 us, most of a lookup when the
/// index did not fit into the cache.
#[derive(Debug)]
pub(super) struct Pointers<B>(Arc<[ManuallyDrop<ArcSwapOption<Cached<B>>>]>);

impl<B> Clone for Pointers<B> {
    fn clone(&self) -> Pointers<B> {
        Pointers(self.0.clone())
    }
}

impl<B> Pointers<B> {
    /// Creates `count` null pointers.
    pub(super) fn new(count: usize) -> Pointers<B> {
        Pointers((0..count).map(|_| ManuallyDrop::new(ArcSwapOption::empty())).collect())
    }

    /// Returns the memory held, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    /// Returns pointer number `at`.
    pub(super) fn pointer(&self, at: usize) -> Pointer<'_, B> {
        Pointer { pointers: self, at }
    }

    fn is(&self, other: &Pointers<B>) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Borrowed cached pointer. An out-of-range number yields a pointer that always stays null.
#[derive(Debug)]
pub(super) struct Pointer<'a, B> {
    pointers: &'a Pointers<B>,
    at: usize,
}

impl<B> Clone for Pointer<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Pointer<'_, B> {}

impl<B> Pointer<'_, B> {
    /// Borrows the block behind the pointer. Marks it as used if `trace` is set.
    #[inline]
    pub(super) fn borrow(&self, trace: bool) -> Option<Borrowed<B>> {
        let guard = self.pointers.0.get(self.at)?.load();
        let cached = guard.as_ref()?;
        // Avoids most stores: all readers of the block share this cache line.
        if trace && !cached.used.load(Relaxed) {
            cached.used.store(true, Relaxed);
        }
        Some(Borrowed(guard))
    }

    /// Returns an owner of this pointer, which clears it on drop.
    pub(super) fn owned(&self) -> PointerOwner<B> {
        PointerOwner { pointers: self.pointers.clone(), at: self.at }
    }
}

/// Owner of the pointer that leads to a cached block. Clears the pointer on drop.
#[derive(Debug)]
pub(super) struct PointerOwner<B> {
    pointers: Pointers<B>,
    at: usize,
}

impl<B> PointerOwner<B> {
    /// Returns whether this is the owner of `pointer`.
    pub(super) fn is(&self, pointer: &Pointer<'_, B>) -> bool {
        self.at == pointer.at && self.pointers.is(pointer.pointers)
    }

    /// Makes the pointer lead to a block.
    pub(super) fn set(&self, block: Arc<Cached<B>>) {
        if let Some(pointer) = self.pointers.0.get(self.at) {
            pointer.store(Some(block));
        }
    }
}

impl<B> Drop for PointerOwner<B> {
    fn drop(&mut self) {
        if let Some(pointer) = self.pointers.0.get(self.at) {
            pointer.store(None);
        }
    }
}

/// Block borrowed through its pointer. It stays alive even if the cache evicts it meanwhile.
pub(super) struct Borrowed<B>(Guard<Option<Arc<Cached<B>>>>);

impl<B> Borrowed<B> {
    /// Returns the block.
    #[inline]
    pub(super) fn block(&self) -> Option<&B> {
        self.0.as_ref().map(|cached| &cached.block)
    }
}
