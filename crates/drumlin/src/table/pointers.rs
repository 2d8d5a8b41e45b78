//! Cached pointers: the fast path to a cached block, kept beside the fence that points to it.
//!
//! A lookup in the cache's map takes a lock and costs several CPU cache misses. The cache therefore also stores a
//! block in a pointer that its readers can reach directly. There is one pointer for each fence of an index block and
//! one for each filter module. Reading a set pointer takes one load. The reader is pinned (`base/epoch.rs`) and borrows
//! the block without touching a reference count.
//!
//! Beside each pointer lies the address of what readers of the block read next, such as the bytes of a data block. A
//! reader prefetches it together with the block's own line, because otherwise it would wait for memory twice.
//!
//! Invariants:
//! - Only the cache sets and clears pointers, under the lock of the block's shard. A pointer therefore never leads to a
//!   block that the cache has evicted.
//! - A null pointer carries no information. When an index block is read again, its pointers start as null; they are set
//!   as readers request its blocks.
//! - The cache entry that set a pointer owns it as a [`PointerOwner`]. Dropping the owner clears the pointer, so
//!   pointers are always null when they are dropped.

use crate::base::epoch::{EpochPtrs, Epochs, Pin};
use drumlin_env::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

/// Block in the cache. A reader needs one CPU cache line of it, if the block has at most 56 bytes.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Cached<B> {
    /// Whether a reader used the pointer since the last call of `take_used`.
    used: AtomicBool,
    pub(super) block: B,
}

impl<B> Cached<B> {
    pub(super) fn new(block: B) -> Arc<Cached<B>> {
        Arc::new(Cached { used: AtomicBool::new(false), block })
    }

    /// Returns whether a reader used the block through its pointer since the last call, and clears the mark.
    pub(super) fn take_used(&self) -> bool {
        self.used.load(Relaxed) && self.used.swap(false, Relaxed)
    }
}

/// Cached pointers to the blocks that one index block, or one filter module, points to.
#[derive(Debug)]
pub(super) struct Pointers<B: Send + Sync + 'static>(EpochPtrs<Cached<B>>);

impl<B: Send + Sync> Clone for Pointers<B> {
    fn clone(&self) -> Pointers<B> {
        Pointers(self.0.clone())
    }
}

impl<B: Send + Sync> Pointers<B> {
    /// Creates `count` null pointers for readers that pin `epochs`.
    pub(super) fn new(count: usize, epochs: &Epochs) -> Pointers<B> {
        Pointers(EpochPtrs::new(count, epochs))
    }

    /// Returns the memory held, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// Returns pointer number `at`.
    pub(super) fn pointer(&self, at: usize) -> CachedPointer<'_, B> {
        CachedPointer { pointers: self, at }
    }

    /// Prefetches pointer number `at` itself.
    #[inline]
    pub(super) fn prefetch_pointer(&self, at: usize) {
        self.0.prefetch_pointer(at);
    }

    fn is(&self, other: &Pointers<B>) -> bool {
        self.0.is(&other.0)
    }
}

/// Borrowed cached pointer. An out-of-range number yields a pointer that always stays null.
#[derive(Debug)]
pub(super) struct CachedPointer<'a, B: Send + Sync + 'static> {
    pointers: &'a Pointers<B>,
    at: usize,
}

impl<B: Send + Sync> Clone for CachedPointer<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Send + Sync> Copy for CachedPointer<'_, B> {}

impl<'a, B: Send + Sync> CachedPointer<'a, B> {
    /// Borrows the block behind the pointer. Marks it as used if `trace` is set.
    #[inline]
    pub(super) fn borrow(&self, trace: bool, pin: &'a Pin<'_>) -> Option<&'a B> {
        self.prefetch();
        let cached = self.pointers.0.load(self.at, pin)?;
        // Avoids most stores: all readers of the block share this cache line.
        if trace && !cached.used.load(Relaxed) {
            cached.used.store(true, Relaxed);
        }
        Some(&cached.block)
    }

    /// Prefetches the block behind the pointer, and the start of its bytes.
    #[inline]
    pub(super) fn prefetch(&self) {
        self.pointers.0.prefetch(self.at);
    }

    /// Makes the pointer lead to a block that holds `bytes` of memory. Readers go on to the memory at `hint`. Returns
    /// the owner of the pointer.
    pub(super) fn set(
        &self,
        block: Arc<Cached<B>>,
        hint: *const u8,
        bytes: usize,
        epochs: &Arc<Epochs>,
    ) -> PointerOwner<B> {
        self.pointers.0.store(self.at, Some((block, hint)), bytes, epochs);
        PointerOwner { pointers: self.pointers.clone(), at: self.at, bytes, epochs: epochs.clone() }
    }
}

/// Owner of the pointer that leads to a cached block. Clears the pointer on drop.
#[derive(Debug)]
pub(super) struct PointerOwner<B: Send + Sync + 'static> {
    pointers: Pointers<B>,
    at: usize,
    bytes: usize,
    epochs: Arc<Epochs>,
}

impl<B: Send + Sync> PointerOwner<B> {
    /// Returns whether this is the owner of `pointer`.
    pub(super) fn is(&self, pointer: &CachedPointer<'_, B>) -> bool {
        self.at == pointer.at && self.pointers.is(pointer.pointers)
    }
}

impl<B: Send + Sync> Drop for PointerOwner<B> {
    fn drop(&mut self) {
        self.pointers.0.store(self.at, None, self.bytes, &self.epochs);
    }
}
