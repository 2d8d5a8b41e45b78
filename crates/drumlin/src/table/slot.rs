//! A way around the cache's lock and map for the few blocks that nearly every lookup of a table needs.
//!
//! The cache owns such a block; a slot in the open table remembers it weakly. Getting it through the slot costs
//! neither a lock nor a search. The block notes that it was asked for, and the cache looks at that note when it
//! is the block's turn to go. Once the cache has let go of it, the slot is empty by itself.

use arc_swap::ArcSwapWeak;
use drumlin_env::sync::atomic::{AtomicBool, Ordering};
use drumlin_env::sync::{Arc, Weak};
use std::fmt;

/// A block with a note whether it was asked for.
#[derive(Debug)]
pub(super) struct Noted<T> {
    pub(super) block: T,
    touched: AtomicBool,
}

impl<T> Noted<T> {
    pub(super) fn new(block: T) -> Arc<Noted<T>> {
        Arc::new(Noted { block, touched: AtomicBool::new(false) })
    }

    /// Whether it was asked for since this was last called.
    pub(super) fn take_touched(&self) -> bool {
        self.touched.load(Ordering::Relaxed) && self.touched.swap(false, Ordering::Relaxed)
    }
}

/// Remembers a block that the cache owns.
pub(super) struct Slot<T>(ArcSwapWeak<Noted<T>>);

impl<T> Default for Slot<T> {
    fn default() -> Slot<T> {
        Slot(ArcSwapWeak::new(Weak::new()))
    }
}

impl<T> Slot<T> {
    /// The block, if the cache still has it.
    pub(super) fn get(&self) -> Option<Arc<Noted<T>>> {
        let block = self.0.load().upgrade()?;
        // Writing only on change keeps the line shared between cores.
        if !block.touched.load(Ordering::Relaxed) {
            block.touched.store(true, Ordering::Relaxed);
        }
        Some(block)
    }

    /// Remembers `block`.
    pub(super) fn set(&self, block: &Arc<Noted<T>>) {
        self.0.store(Arc::downgrade(block));
    }
}

impl<T> fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.load().strong_count() > 0 { "Slot(full)" } else { "Slot(empty)" })
    }
}
