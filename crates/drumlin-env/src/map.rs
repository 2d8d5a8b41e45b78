//! Files written through a memory mapping: a log record costs a copy instead of a system call.
//!
//! The mapped pages are the kernel's page cache. So copied bytes survive the end of the process, as bytes passed to
//! `write` do, and a sync of the file covers them. Two things differ from `write`:
//!
//! 1. If the disk has no space for a page at its first access, the process gets a signal that ends it, not an error.
//!    So the engine maps only preallocated files, on file systems where preallocation also covers overwrites.
//!    Elsewhere [`Mapping::of`] returns `None`, and the file is written with `write`.
//! 2. Only the next sync reports a failure to write a page back. This also holds for `write`.
//!
//! Invariants: The mapping covers whole bytes of the file from its start. A mapped file is truncated only once no
//! thread copies into it any more; otherwise a signal would end the process. No reference into the mapping is ever
//! made; bytes are only copied in.

#![allow(unsafe_code)]

use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags, madvise, mmap, msync, munmap};
use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};

/// File systems on which preallocation of a range covers overwrites, by their `statfs(2)` numbers.
const RESERVING: [u64; 3] = [EXT4, XFS, TMPFS];
const EXT4: u64 = 0xEF53;
const XFS: u64 = 0x5846_5342;
const TMPFS: u64 = 0x0102_1994;

/// A memory mapping of a file, from its start.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is unmapped only when dropped.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference only permits copying bytes in; `write` states the duties of its callers.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the whole of `file`, which is preallocated to its end. Returns `None` where a mapped write could fail
    /// later.
    pub(crate) fn of(file: &File) -> io::Result<Option<Mapping>> {
        let kind = rustix::fs::fstatfs(file)?.f_type as u64;
        let len = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        if !RESERVING.contains(&kind) || len == 0 || len > isize::MAX as usize {
            return Ok(None);
        }
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a fresh mapping at an address that the system chooses overlaps nothing.
        let start = unsafe { mmap(ptr::null_mut(), len, access, flags, file, 0) };
        let Some(start) = start.ok().and_then(|start| NonNull::new(start.cast::<u8>())) else {
            return Ok(None);
        };
        Ok(Some(Mapping { start, len }))
    }

    /// Reads in the pages that are only on disk, so that no later copy waits for them. Old systems lack this call;
    /// the error is harmless.
    pub(crate) fn populate(&self) {
        // SAFETY: the range is exactly this mapping, and the call does not change its bytes.
        let _ = unsafe { madvise(self.start.as_ptr().cast(), self.len, Advice::LinuxPopulateRead) };
    }

    /// Prefaults the pages of a range for writing, so that copies into them cause no page faults. The pages count as
    /// changed, so the next sync of the file writes them. Returns whether the system did so. It needs Linux 5.14.
    /// Without it, the first copy into a page faults, and all threads that copy into that page meanwhile sleep.
    pub(crate) fn prefault_writes(&self, offset: u64, len: u64) -> bool {
        let (start, end) = self.page_aligned(offset, len);
        // SAFETY: the start is that of a page inside the mapping. The system rounds the length up to the end of a page,
        // and the last page of the mapping belongs to it whole. The call does not change bytes.
        let done = unsafe {
            madvise(self.start.as_ptr().add(start).cast(), end - start, Advice::LinuxPopulateWrite)
        };
        done.is_ok()
    }

    /// Makes the first copy into a page bring in that page alone. By default the system brings in the pages around it
    /// too, as many as the read-ahead of the device: clearing 8 MiB of a fresh file takes 3 ms.
    pub(crate) fn fetch_singly(&self) {
        // SAFETY: the range is exactly this mapping, and the call does not change its bytes.
        let _ = unsafe { madvise(self.start.as_ptr().cast(), self.len, Advice::Random) };
    }

    /// Copies `data` to `offset`. Returns `false`, having copied nothing, when it does not fit. As with positioned
    /// writes, threads that write at the same time must write to different ranges.
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> bool {
        let fits = usize::try_from(offset).ok().and_then(|at| Some((at, at.checked_add(data.len())?)));
        let Some((at, _)) = fits.filter(|&(_, end)| end <= self.len) else { return false };
        // SAFETY: the range lies inside the mapping, which lives as long as `self`. `data` is memory of this program
        // and not part of the mapping, into which no reference exists.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), self.start.as_ptr().add(at), data.len()) };
        true
    }

    /// Returns the part of a range that is inside the mapping, with its start moved back to the start of a page.
    fn page_aligned(&self, offset: u64, len: u64) -> (usize, usize) {
        let page = rustix::param::page_size();
        let end = usize::try_from(offset.saturating_add(len)).unwrap_or(usize::MAX).min(self.len);
        (usize::try_from(offset).unwrap_or(usize::MAX).min(end) / page * page, end)
    }

    /// Makes bytes copied into the range durable: syncs the pages that it touches, and no others.
    pub(crate) fn sync(&self, offset: u64, len: u64) -> io::Result<()> {
        let (start, end) = self.page_aligned(offset, len);
        // SAFETY: as in `prefault_writes`.
        unsafe { msync(self.start.as_ptr().add(start).cast(), end - start, MsyncFlags::SYNC) }?;
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and no thread copies into it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temp::TempDir;
    use std::os::unix::fs::FileExt;

    #[test]
    fn what_is_copied_in_is_in_the_file_and_nothing_goes_beyond_it() {
        let dir = TempDir::new("drumlin-map").unwrap();
        let path = dir.path().join("log");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        assert!(Mapping::of(&file).unwrap().is_none(), "an empty file has nothing to map");
        file.write_all_at(&[7; 10_000], 0).unwrap();
        let Some(mapping) = Mapping::of(&file).unwrap() else { return };
        assert!(mapping.write(5_000, b"drumlin"));
        assert!(mapping.write(9_999, b"d"));
        assert!(!mapping.write(9_999, b"dr"));
        assert!(!mapping.write(u64::MAX, b"d"));
        for (offset, len) in [(5_000, 7), (0, 10_000), (9_999, 100), (20_000, 1), (0, 0)] {
            mapping.sync(offset, len).unwrap();
        }
        // Writes by system calls and through the mapping see each other, before and after a sync.
        file.write_all_at(b"call", 6_000).unwrap();
        file.sync_data().unwrap();
        assert!(mapping.write(6_004, b"copy"));
        file.write_all_at(b"!", 6_008).unwrap();
        file.sync_data().unwrap();
        drop(mapping);
        let mut bytes = vec![0; 10_000];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes[5_999..6_010], b"\x07callcopy!\x07");
        assert_eq!((&bytes[4_999..5_008], bytes[9_999]), (&b"\x07drumlin\x07"[..], b'd'));
        assert_eq!(file.metadata().unwrap().len(), 10_000);
    }

    /// Returns the number of page faults of this thread that needed no read.
    fn faults() -> Option<u64> {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(7)?.parse().ok()
    }

    #[test]
    fn copies_into_prefaulted_pages_cause_no_faults() {
        let dir = TempDir::new("drumlin-map").unwrap();
        let page = rustix::param::page_size() as u64;
        let file =
            File::options().read(true).write(true).create_new(true).open(dir.path().join("log")).unwrap();
        file.write_all_at(&vec![7; 64 * page as usize], 0).unwrap();
        file.sync_all().unwrap();
        let Some(mapping) = Mapping::of(&file).unwrap() else { return };
        mapping.populate();
        let copy = |pages: std::ops::Range<u64>| {
            let before = faults().unwrap_or(0);
            pages.for_each(|number| assert!(mapping.write(number * page + 9, b"drumlin")));
            faults().unwrap_or(0) - before
        };
        let others = copy(0..32);
        let is_supported = mapping.prefault_writes(0, page);
        let is_done = mapping.prefault_writes(32 * page + 1, 32 * page - 1);
        assert_eq!(is_done, is_supported, "a range that begins inside a page");
        let prefaulted = copy(32..64);
        // Reading the counter may cause a fault itself.
        assert!(!is_done || prefaulted <= 4, "{prefaulted} faults in prefaulted pages, {others} in others");
        for (offset, len) in [(64 * page, 1), (u64::MAX, u64::MAX), (0, 0)] {
            mapping.prefault_writes(offset, len);
        }
        println!("{others} faults, {prefaulted} in prefaulted pages");
    }
}
