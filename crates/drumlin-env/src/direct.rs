//! Direct reads, past the page cache: they read whole blocks into aligned memory and copy out the wanted bytes.
//!
//! The system requires that offset, length and memory address of such a read are aligned to a block. Newer systems
//! report the block length of a file; 4 KiB fits all disks in use. A smaller block means fewer extra bytes around the
//! wanted ones. The memory is always aligned to a page. Each thread keeps one buffer for these reads.

use crate::local;
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Alignment of the memory of direct reads, and of their offset and length where the system reports no block length.
pub(crate) const PAGE: usize = 4096;
/// Maximum bytes that a thread's buffer keeps between reads.
const KEPT: usize = 2 << 20;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Returns the block length of direct reads from `file`, in bytes.
pub(crate) fn block_of(file: &File) -> u64 {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{AtFlags, StatxFlags, statx};
        let told = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
        let told = told.ok().filter(|told| told.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
        if let Some(told) = told {
            let (block, memory) = (told.stx_dio_offset_align, told.stx_dio_mem_align);
            if block.is_power_of_two() && memory as usize <= PAGE {
                return u64::from(block);
            }
        }
    }
    let _ = file;
    PAGE as u64
}

/// Returns offset and length of the whole blocks, of `block` bytes each, around `len` bytes at `offset`. Returns
/// `None` for offsets beyond any file.
pub(crate) fn around(offset: u64, len: usize, block: u64) -> Option<(u64, usize)> {
    let start = offset - offset % block;
    let end = offset.checked_add(len as u64)?.checked_next_multiple_of(block)?;
    Some((start, usize::try_from(end - start).ok()?))
}

/// Reads at `offset` into `buf`, as the standard library's `read_at` does. `file` must be open for direct reads with
/// this block length.
pub(crate) fn read_at(file: &File, block: u64, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    let too_far = || io::Error::from(io::ErrorKind::InvalidInput);
    let (start, len) = around(offset, buf.len(), block).ok_or_else(too_far)?;
    local::with(&BUFFER, |buffer| {
        if buffer.len() < len + PAGE {
            buffer.resize(len + PAGE, 0);
        }
        let aligned = buffer.as_ptr().align_offset(PAGE);
        let pages = buffer.get_mut(aligned..aligned + len).ok_or_else(too_far)?;
        let read = file.read_at(pages, start)?;
        let skip = (offset - start) as usize;
        let count = read.saturating_sub(skip).min(buf.len());
        buf[..count].copy_from_slice(&pages[skip..skip + count]);
        if buffer.len() > KEPT {
            *buffer = Vec::new();
        }
        Ok(count)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_blocks_around_a_range() {
        assert_eq!(around(0, 1, 512), Some((0, 512)));
        assert_eq!(around(511, 2, 512), Some((0, 1024)));
        assert_eq!(around(4096, 4096, 4096), Some((4096, 4096)));
        assert_eq!(around(1000, 0, 512), Some((512, 512)));
        assert_eq!(around(u64::MAX - 10, 100, 512), None);
    }
}
