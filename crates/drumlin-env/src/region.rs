//! Regions: 2 MiB of memory each, in large pages where the system has them.
//!
//! Memory that is touched all over, as that of a memtable is, costs a page fault for each 4 KiB when it is new, and a
//! walk through the page tables for each access that is far from the one before. In one large page it costs one fault
//! and few walks. Regions that are given back are kept for the next taker, up to 64 MiB of them in the process: the
//! memtable that follows another one needs as many, and what is kept needs neither fault nor clearing.
//!
//! Invariants: a region has one owner; its bytes are those that the owner before left, or zeros.

#![allow(unsafe_code)]

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::ptr::NonNull;

/// Length of a region, and what its address is a multiple of.
pub const REGION_BYTES: usize = 2 << 20;

/// Regions that are kept for reuse.
const KEPT: usize = 32;

/// Regions that are made ready ahead of need, once some have been taken.
const AHEAD: usize = 2;

static SPARE: Mutex<Vec<Region>> = Mutex::new(Vec::new());

/// Fewer than [`AHEAD`] were left at the last taking.
static IS_SHORT: AtomicBool = AtomicBool::new(false);
/// Nobody was told of that yet.
static IS_ASKED_FOR: AtomicBool = AtomicBool::new(false);

/// Whether [`make_ready`] has something to do that nobody was told of; says so once.
pub fn is_asked_for() -> bool {
    IS_ASKED_FOR.load(Relaxed) && IS_ASKED_FOR.swap(false, Relaxed)
}

/// Makes one region ready for its next taker, if few are left: the system clears a new region when it is first touched,
/// which takes milliseconds. `false` when there are enough.
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

// SAFETY: plain memory that belongs to this value alone.
unsafe impl Send for Region {}
// SAFETY: a shared reference gives the address only.
unsafe impl Sync for Region {}

impl Region {
    /// A region, or `None` where the system has no such thing or no memory. Its bytes may be anything.
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

    /// Gives it back, for the next taker.
    pub fn give_back(self) {
        let mut spare = SPARE.lock();
        if spare.len() < KEPT {
            spare.push(self);
        }
    }

    /// The first byte.
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
        // An address that is a multiple of the length is found somewhere in twice the length.
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a fresh mapping at a place that the system chooses overlaps nothing.
        let whole = unsafe { mmap_anonymous(ptr::null_mut(), 2 * REGION_BYTES, access, flags) };
        let whole = NonNull::new(whole.ok()?.cast::<u8>())?;
        let before = whole.as_ptr().align_offset(REGION_BYTES);
        // SAFETY: `before` is below the length of a region, so all three parts lie in the mapping.
        let (start, after) = unsafe { (whole.add(before), whole.add(before + REGION_BYTES)) };
        unmap(whole, before);
        unmap(after, REGION_BYTES - before);
        // A system without large pages says no, and small ones do as well.
        // SAFETY: exactly the part that is left of the mapping, whose bytes this does not change.
        let _ = unsafe { madvise(start.as_ptr().cast(), REGION_BYTES, Advice::LinuxHugepage) };
        Some(start)
    }

    /// Writes to each page of a region that nobody has.
    pub(super) fn touch(start: NonNull<u8>) {
        for offset in (0..REGION_BYTES).step_by(rustix::param::page_size()) {
            // SAFETY: inside the region, which is the caller's own; the write is volatile, so it is made.
            unsafe { start.add(offset).write_volatile(0) };
        }
    }

    /// Unmaps whole pages that nobody uses any more.
    pub(super) fn unmap(start: NonNull<u8>, len: usize) {
        if len > 0 {
            // SAFETY: a part of a mapping of `map`, given back once by its owner.
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
            // SAFETY: the region is this test's own, and as long as that.
            unsafe { region.start().write_bytes(number as u8, REGION_BYTES) };
        }
        for (number, region) in regions.iter().enumerate() {
            // SAFETY: written above.
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
        // What is made ready ahead serves the next takers.
        let taken: Vec<Region> = std::iter::repeat_with(Region::take).take(KEPT + 1).flatten().collect();
        assert!(is_asked_for() && !is_asked_for());
        while make_ready() {}
        let ready: Vec<_> = SPARE.lock().iter().map(Region::start).collect();
        assert!(ready.len() >= AHEAD && taken.iter().all(|region| !ready.contains(&region.start())));
        assert_eq!(Region::take().map(|region| ready.contains(&region.start())), Some(true));
    }
}
