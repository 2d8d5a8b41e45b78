//! Files that are written through memory: a log record costs a copy instead of a system call.
//!
//! The pages of such a file are the kernel's page cache itself, so what was copied survives the end of the process
//! like what was handed to `write`, and a sync of the file covers it. Two things differ from `write`:
//!
//! 1. A page that cannot get room on disk when it is first touched ends the process with a signal instead of giving
//!    an error. So only file systems are mapped whose reservation holds for overwrites, and only files that were
//!    reserved: [`Mapping::of`] gives none elsewhere, and the file is written with `write`.
//! 2. A failure to write a page back is told by the next sync alone. For `write` that is so as well.
//!
//! Invariants: the mapping covers whole bytes of the file from its start; while it is mapped the file is cut only
//! once nobody copies into it any more, which would end the process with a signal; no reference into the mapping is
//! ever made, bytes are only copied in.

#![allow(unsafe_code)]

use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags, madvise, mmap, msync, munmap};
use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};

/// File systems whose reservation of a range holds for writes over it, by the numbers of `statfs(2)`.
const RESERVING: [u64; 3] = [EXT4, XFS, TMPFS];
const EXT4: u64 = 0xEF53;
const XFS: u64 = 0x5846_5342;
const TMPFS: u64 = 0x0102_1994;

/// The start of a file, in memory.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is unmapped only when dropped.
unsafe impl Send for Mapping {}
// SAFETY: all that a shared reference allows is copying bytes in, of which `write` says what callers keep to.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// The whole of `file`, which is reserved to its end; `None` where a mapping could fail later.
    pub(crate) fn of(file: &File) -> io::Result<Option<Mapping>> {
        let kind = rustix::fs::fstatfs(file)?.f_type as u64;
        let len = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        if !RESERVING.contains(&kind) || len == 0 || len > isize::MAX as usize {
            return Ok(None);
        }
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a fresh mapping at a place that the system chooses overlaps nothing.
        let start = unsafe { mmap(ptr::null_mut(), len, access, flags, file, 0) };
        let Some(start) = start.ok().and_then(|start| NonNull::new(start.cast::<u8>())) else {
            return Ok(None);
        };
        Ok(Some(Mapping { start, len }))
    }

    /// Reads what of it is on disk alone, so that no later copy waits for it. Old systems do not know how: no harm.
    pub(crate) fn populate(&self) {
        // SAFETY: exactly this mapping, which is not changed by it.
        let _ = unsafe { madvise(self.start.as_ptr().cast(), self.len, Advice::LinuxPopulateRead) };
    }

    /// Copies `data` to `offset`; `false`, and nothing is done, when it would not fit. Threads that write at the
    /// same time write to different ranges, as with positioned writes whose outcome matters.
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> bool {
        let fits = usize::try_from(offset).ok().and_then(|at| Some((at, at.checked_add(data.len())?)));
        let Some((at, _)) = fits.filter(|&(_, end)| end <= self.len) else { return false };
        // SAFETY: the range lies inside the mapping, which lives as long as `self`; `data` is memory of this program
        // and no part of the mapping, into which no reference exists.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), self.start.as_ptr().add(at), data.len()) };
        true
    }

    /// Makes what was copied into the range last: the pages that it touches, and no others.
    pub(crate) fn sync(&self, offset: u64, len: u64) -> io::Result<()> {
        let page = rustix::param::page_size();
        let end = usize::try_from(offset.saturating_add(len)).unwrap_or(usize::MAX).min(self.len);
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(end) / page * page;
        // SAFETY: whole pages of the mapping, whose bytes this does not change.
        unsafe { msync(self.start.as_ptr().add(start).cast(), end - start, MsyncFlags::SYNC) }?;
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nobody copies into it any more.
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
        file.sync_data().unwrap();
        drop(mapping);
        let mut bytes = vec![0; 10_000];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!((&bytes[4_999..5_008], bytes[9_999]), (&b"\x07drumlin\x07"[..], b'd'));
        assert_eq!(file.metadata().unwrap().len(), 10_000);
    }
}
