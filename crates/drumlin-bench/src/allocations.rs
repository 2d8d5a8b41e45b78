//! Counts the allocations of each thread, in builds that install the counting allocator.
//!
//! A program that installs [`Counting`] as its global allocator counts each allocation of each thread. The `drumlin`
//! command does so under its feature `counted`, for the regression gate. Other builds report no count.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Whether any allocation was counted; stays false if [`Counting`] is not the global allocator.
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// The system allocator, with a count of allocations.
pub struct Counting;

fn note() {
    // A thread that is exiting has already destroyed its counter; its remaining allocations are not counted.
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

/// Returns the number of allocations of the calling thread so far; `None` if [`Counting`] is not installed.
pub fn of_this_thread() -> Option<u64> {
    INSTALLED.load(Relaxed).then(|| COUNT.with(Cell::get))
}
