//! How often the program allocates, when it was built to count that.
//!
//! A program that installs [`Counting`] as its global allocator counts each allocation of each thread; the command does
//! so under its feature `counted`, for the gate. Other builds have no figure.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Whether anything was ever counted: without the allocator installed, nothing is.
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// The system's allocator, counted.
pub struct Counting;

fn note() {
    // A thread that is ending has no counter any more, and nobody who would read it.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
    if !INSTALLED.load(Relaxed) {
        INSTALLED.store(true, Relaxed);
    }
}

// SAFETY: every call is the system allocator's, with the caller's arguments; the count beside it allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller keeps the promises of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller keeps the promises of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: the caller keeps the promises of `realloc`; the memory came from the system's allocator.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the promises of `dealloc`; the memory came from the system's allocator.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Allocations of the calling thread so far; `None` when nobody counts.
pub fn of_this_thread() -> Option<u64> {
    INSTALLED.load(Relaxed).then(|| COUNT.with(Cell::get))
}
