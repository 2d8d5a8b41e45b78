//! Reads past the page cache: whole pages into aligned memory, from which the wanted bytes are copied.
//!
//! The system demands that place, length and memory of such a read are multiples of the disk's block. 4 KiB serves all
//! disks in use. Each thread keeps one buffer for it.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// What place, length and memory of a direct read are multiples of.
const PAGE: u64 = 4096;
/// Most bytes that a thread's buffer keeps from read to read.
const KEPT: usize = 2 << 20;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Reads at `offset` into `buf`, as `read_at` of the standard library, from a file that was opened for direct reads.
pub(crate) fn read_at(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    let too_far = || io::Error::from(io::ErrorKind::InvalidInput);
    let start = offset - offset % PAGE;
    let end = offset.checked_add(buf.len() as u64).and_then(|end| end.checked_next_multiple_of(PAGE));
    let len = usize::try_from(end.ok_or_else(too_far)? - start).map_err(|_| too_far())?;
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < len + PAGE as usize {
            buffer.resize(len + PAGE as usize, 0);
        }
        let aligned = buffer.as_ptr().align_offset(PAGE as usize);
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
