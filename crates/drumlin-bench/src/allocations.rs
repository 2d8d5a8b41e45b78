//! How often the program allocates, when it was built to count that.
//!
//! A program that installs [`Counting`] as its global allocator counts each allocation of each thread; the feature
//! `counted` of the command does so for the gate. Others have no figure.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Whether anything was ever counted: without the allocator installed, nothing is.
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Notes one allocation of the calling thread.
pub fn note() {
    // A thread that is ending has no counter any more, and nobody who would read it.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
    if !INSTALLED.load(Relaxed) {
        INSTALLED.store(true, Relaxed);
    }
}

/// Allocations of the calling thread so far; `None` when nobody counts.
pub fn of_this_thread() -> Option<u64> {
    INSTALLED.load(Relaxed).then(|| COUNT.with(Cell::get))
}
