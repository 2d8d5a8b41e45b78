//! Heap use per thread and of the process, in programs built to count it.
//!
//! A program that installs [`Counting`] as its global allocator can use [`peak_of`] to measure the peak heap use of a
//! call, and [`peak_of_all`] that of the whole process. In other programs the result is 0. An allocation that the
//! system refuses ends the process, so [`set_case`] records the input first.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

/// Whether all threads together are counted, too. Off by default, because the counter is shared.
static IS_WATCHED: AtomicBool = AtomicBool::new(false);
/// Bytes that all threads took since the watch began, less those that they freed.
static ALL_LIVE: AtomicI64 = AtomicI64::new(0);
static ALL_PEAK: AtomicI64 = AtomicI64::new(0);

thread_local! {
    /// Bytes in use by this thread; negative when it frees memory that other threads allocated.
    static LIVE: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
    static CASE: Cell<(&'static str, u64)> = const { Cell::new(("", 0)) };
}

/// The system's allocator, with counting.
pub struct Counting;

fn note(bytes: i64) {
    if IS_WATCHED.load(Relaxed) {
        let live = ALL_LIVE.fetch_add(bytes, Relaxed) + bytes;
        ALL_PEAK.fetch_max(live, Relaxed);
    }
    // A thread that is ending has no counters any more, and nothing reads them.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

fn note_taken(memory: *mut u8, size: usize) {
    if !memory.is_null() {
        return note(size as i64);
    }
    let (target, case) = CASE.try_with(Cell::get).unwrap_or(("", 0));
    if !target.is_empty() {
        eprintln!(
            "{size} bytes are more than there are\nrepro: cargo xtask sim fuzz --target {target} --case {case:#x}"
        );
    }
}

// SAFETY: every call goes to the system allocator with the caller's arguments; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller fulfils the contract of `alloc`.
        let memory = unsafe { System.alloc(layout) };
        note_taken(memory, layout.size());
        memory
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller fulfils the contract of `alloc_zeroed`.
        let memory = unsafe { System.alloc_zeroed(layout) };
        note_taken(memory, layout.size());
        memory
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller fulfils the contract of `realloc`; the memory came from the system's allocator.
        let moved = unsafe { System.realloc(memory, layout, size) };
        if !moved.is_null() {
            note(-(layout.size() as i64));
        }
        note_taken(moved, size);
        moved
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        note(-(layout.size() as i64));
        // SAFETY: the caller fulfils the contract of `dealloc`; the memory came from the system's allocator.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Runs `f`; returns its result and this thread's peak heap use meanwhile, relative to the start.
pub fn peak_of<T>(f: impl FnOnce() -> T) -> (T, u64) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = f();
    (result, u64::try_from(PEAK.get() - before).unwrap_or(0))
}

/// Runs `f`; returns its result and the peak heap use of the whole process meanwhile, relative to the start. One call
/// at a time may run.
pub fn peak_of_all<T>(f: impl FnOnce() -> T) -> (T, u64) {
    ALL_LIVE.store(0, Relaxed);
    ALL_PEAK.store(0, Relaxed);
    IS_WATCHED.store(true, Relaxed);
    let result = f();
    IS_WATCHED.store(false, Relaxed);
    (result, u64::try_from(ALL_PEAK.load(Relaxed)).unwrap_or(0))
}

/// Returns the bytes of heap in use by the whole process, relative to the start of the call of [`peak_of_all`] under
/// way.
pub fn live_of_all() -> u64 {
    u64::try_from(ALL_LIVE.load(Relaxed)).unwrap_or(0)
}

/// Records the input that this thread is about to run.
pub fn set_case(target: &'static str, case: u64) {
    CASE.set((target, case));
}
