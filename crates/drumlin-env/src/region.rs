//! Regions: 2 MiB blocks of memory, in huge pages where the system has them.
//!
//! A memtable touches its memory in random order. In 4 KiB pages, new memory costs a page fault per page, and each
//! access far from the previous one costs a page table walk. In one huge page it costs one fault and few walks.
//! Returned regions stay in a process-wide pool of up to 64 MiB: the next memtable needs as many regions, and a
//! pooled region needs neither page faults nor clearing.
//!
//! Invariants: a region has one owner; its bytes are zeros or those that the previous owner left.

#![allow(unsafe_code)]

use crate::sync::plain::Mutex;
use crate::sync::plain::atomic::{AtomicBool, Ordering::Relaxed};
use std::ptr::NonNull;

/// Length and alignment of a region, in bytes.
pub const REGION_BYTES: usize = 2 << 20;

/// Maximum number of regions in the pool.
const KEPT: usize = 32;

/// Number of regions to preallocate once some have been taken.
const AHEAD: usize = 2;

static SPARE: Mutex<Vec<Region>> = Mutex::new(Vec::new());

/// Whether the last [`Region::take`] left fewer than [`AHEAD`] regions in the pool.
static IS_SHORT: AtomicBool = AtomicBool::new(false);
/// Whether [`is_asked_for`] has not yet reported the shortage.
static IS_ASKED_FOR: AtomicBool = AtomicBool::new(false);

/// Returns whether [`make_ready`] has work that has not been reported yet. Returns `true` once per shortage.
pub fn is_asked_for() -> bool {
    IS_ASKED_FOR.load(Relaxed) && IS_ASKED_FOR.swap(false, Relaxed)
}

/// Preallocates one region if few are left: the system clears new memory when it is first touched, which takes
/// milliseconds. Returns whether more are needed.
pub fn make_ready() -> bool {
    if !IS_SHORT.load(Relaxed) {
        return false;
    }
    let made = system::map().map(|start| Region { start });
    let Some(region) = made else { return false };
    system::touch(region.start);
    let mut spare = SPARE.lock();
    if spare.len() < KEPT {
        spare.push(region);
    }
    let is_short = spare.len() < AHEAD;
    IS_SHORT.store(is_short, Relaxed);
    is_short
}

/// Memory of [`REGION_BYTES`] bytes.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
}

// SAFETY: the region is plain memory that belongs to this value alone.
unsafe impl Send for Region {}
// SAFETY: a shared reference gives access to the address only.
unsafe impl Sync for Region {}

impl Region {
    /// Returns a region with arbitrary content. Returns `None` where the system has no regions or no memory.
    pub fn take() -> Option<Region> {
        let (spare, left) = {
            let mut spare = SPARE.lock();
            (spare.pop(), spare.len())
        };
        if left < AHEAD {
            IS_SHORT.store(true, Relaxed);
            IS_ASKED_FOR.store(true, Relaxed);
        }
        if spare.is_some() {
            return spare;
        }
        system::map().map(|start| Region { start })
    }

    /// Returns the region to the pool.
    pub fn give_back(self) {
        let mut spare = SPARE.lock();
        if spare.len() < KEPT {
            spare.push(self);
        }
    }

    /// Returns the address of the first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        system::unmap(self.start, REGION_BYTES);
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use super::REGION_BYTES;
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    use std::ptr::{self, NonNull};

    /// Maps one region.
    pub(super) fn map() -> Option<NonNull<u8>> {
        // A range of twice the length contains an address that is a multiple of the length.
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a fresh mapping at an address that the system chooses overlaps nothing.
        let whole = unsafe { mmap_anonymous(ptr::null_mut(), 2 * REGION_BYTES, access, flags) };
        let whole = NonNull::new(whole.ok()?.cast::<u8>())?;
        let before = whole.as_ptr().align_offset(REGION_BYTES);
        // SAFETY: `before` is less than the length of a region, so all three parts lie in the mapping.
        let (start, after) = unsafe { (whole.add(before), whole.add(before + REGION_BYTES)) };
        unmap(whole, before);
        unmap(after, REGION_BYTES - before);
        // A system without huge pages returns an error; small pages work as well.
        // SAFETY: the range is exactly the remaining part of the mapping, and the call does not change its bytes.
        let _ = unsafe { madvise(start.as_ptr().cast(), REGION_BYTES, Advice::LinuxHugepage) };
        Some(start)
    }

    /// Writes to each page of a region that nobody uses yet.
    pub(super) fn touch(start: NonNull<u8>) {
        for offset in (0..REGION_BYTES).step_by(rustix::param::page_size()) {
            // SAFETY: the write is inside the region, which belongs to the caller. It is volatile, so the compiler
            // keeps it.
            unsafe { start.add(offset).write_volatile(0) };
        }
    }

    /// Unmaps whole pages that are no longer in use.
    pub(super) fn unmap(start: NonNull<u8>, len: usize) {
        if len > 0 {
            // SAFETY: the range is part of a mapping from `map`, and its owner unmaps it once.
            let _ = unsafe { munmap(start.as_ptr().cast(), len) };
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    use std::ptr::NonNull;

    pub(super) fn map() -> Option<NonNull<u8>> {
        None
    }

    pub(super) fn touch(_: NonNull<u8>) {}

    pub(super) fn unmap(_: NonNull<u8>, _: usize) {}
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn regions_are_aligned_apart_and_used_again() {
        let regions: Vec<Region> = (0..KEPT + 8).map(|_| Region::take().unwrap()).collect();
        for (number, region) in regions.iter().enumerate() {
            assert_eq!(region.start().addr().get() % REGION_BYTES, 0);
            // SAFETY: this test owns the region, which is `REGION_BYTES` long.
            unsafe { region.start().write_bytes(number as u8, REGION_BYTES) };
        }
        for (number, region) in regions.iter().enumerate() {
            // SAFETY: the loop above wrote these bytes.
            let bytes = unsafe { std::slice::from_raw_parts(region.start().as_ptr(), REGION_BYTES) };
            assert!(bytes.iter().all(|&byte| byte == number as u8));
        }
        let mut starts: Vec<_> = regions.iter().map(Region::start).collect();
        regions.into_iter().for_each(Region::give_back);
        assert!(SPARE.lock().len() <= KEPT);
        let again = Region::take().unwrap();
        starts.retain(|&start| start == again.start());
        assert_eq!(starts.len(), 1);
        again.give_back();
        // The next takers receive the preallocated regions.
        let taken: Vec<Region> = std::iter::repeat_with(Region::take).take(KEPT + 1).flatten().collect();
        assert!(is_asked_for() && !is_asked_for());
        while make_ready() {}
        let ready: Vec<_> = SPARE.lock().iter().map(Region::start).collect();
        assert!(ready.len() >= AHEAD && taken.iter().all(|region| !ready.contains(&region.start())));
        assert_eq!(Region::take().map(|region| ready.contains(&region.start())), Some(true));
    }
}
