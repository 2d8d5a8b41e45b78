//! Reads past the page cache: whole pages into aligned memory, from which the wanted bytes are copied.
//!
//! The system demands that place and length of such a read are multiples of a block, and that its memory starts at one.
//! Newer systems tell how long that is for a file; 4 KiB serves all disks in use. The less has to be read around what is
//! wanted the better, but memory always starts at a page. Each thread keeps one buffer for it.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// What the memory of a direct read starts at a multiple of, and its place and length where the system does not tell.
pub(crate) const PAGE: usize = 4096;
/// Most bytes that a thread's buffer keeps from read to read.
const KEPT: usize = 2 << 20;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The block of direct reads from `file`, in bytes.
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

/// The whole blocks, of `block` bytes each, around `len` bytes at `offset`; `None` where no file reaches.
pub(crate) fn around(offset: u64, len: usize, block: u64) -> Option<(u64, usize)> {
    let start = offset - offset % block;
    let end = offset.checked_add(len as u64)?.checked_next_multiple_of(block)?;
    Some((start, usize::try_from(end - start).ok()?))
}

/// Reads at `offset` into `buf`, as `read_at` of the standard library, from a file that was opened for direct reads and
/// has this block.
pub(crate) fn read_at(file: &File, block: u64, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    let too_far = || io::Error::from(io::ErrorKind::InvalidInput);
    let (start, len) = around(offset, buf.len(), block).ok_or_else(too_far)?;
    BUFFER.with_borrow_mut(|buffer| {
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
