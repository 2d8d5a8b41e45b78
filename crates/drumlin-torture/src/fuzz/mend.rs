//! Corrects checksums in damaged bytes, so that the damage reaches the decoder behind them.
//!
//! The code does not trust the layout, changes bytes in place, and leaves alone what does not fit. It makes no
//! decision on whether bytes are sound.

use drumlin_format::checksum::checksum;
use drumlin_format::index::{IndexLayout, IndexView};
use drumlin_format::seal::SEAL_LEN;
use drumlin_format::table::{FOOTER_LEN, Handle, Properties};

/// Changes nothing.
pub fn nothing(_: &mut [u8]) {}

/// Bytes of a frame's header (`drumlin_format::frame`).
const FRAME_HEADER_LEN: usize = 32;
/// Offset of the fields in a file's header; the first field is the file's number (`drumlin_format::file_header`).
const FIELDS: usize = 16;

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|four| u32::from_le_bytes(*four))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|eight| u64::from_le_bytes(*eight))
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes.iter_mut().skip(at).zip(value).for_each(|(to, from)| *to = *from);
}

/// Corrects the header block of `len` bytes at the start of the file numbered `number`; returns its checksum.
pub fn header(bytes: &mut [u8], number: u64, len: usize) -> u32 {
    if bytes.len() < len {
        return 0;
    }
    put(bytes, FIELDS, &number.to_le_bytes());
    let sum = checksum(number, 0, &[&bytes[..FIELDS - 4], &bytes[FIELDS..len]]);
    put(bytes, FIELDS - 4, &sum.to_le_bytes());
    sum
}

/// Corrects the frames from `from` on of the file numbered `number`, up to the first that does not fit. With a
/// `chain`, the frames are numbered, and each receives the checksum of the one before; the first receives `chain`.
pub fn frames(bytes: &mut [u8], number: u64, from: usize, mut chain: Option<u32>) {
    let (mut at, mut index) = (from, 0u64);
    while let Some(len) = u32_at(bytes, at + 8) {
        let padded = (len as usize).next_multiple_of(8);
        let Some(body) = bytes.get(at + FRAME_HEADER_LEN..).and_then(|rest| rest.get(..padded)) else {
            break;
        };
        if body.is_empty() && bytes[at..at + FRAME_HEADER_LEN].iter().all(|byte| *byte == 0) {
            break;
        }
        let sum = checksum(number, at as u64, &[body]);
        put(bytes, at + 4, &sum.to_le_bytes());
        if let Some(link) = chain {
            put(bytes, at + 12, &link.to_le_bytes());
            put(bytes, at + 24, &index.to_le_bytes());
        }
        let sum = checksum(number, at as u64, &[&bytes[at + 4..at + FRAME_HEADER_LEN]]);
        put(bytes, at, &sum.to_le_bytes());
        chain = chain.map(|_| sum);
        index += 1;
        at += FRAME_HEADER_LEN + padded;
    }
}

/// Corrects the checksum in the last line of the pointer file.
pub fn pointer(bytes: &mut [u8]) {
    let Some(at) = bytes.windows(6).position(|window| window == b"check ") else { return };
    let sum = format!("{:08x}\n", checksum(0, 0, &[&bytes[..at]]));
    put(bytes, at + 6, sum.as_bytes());
}

/// Corrects the checksum of the block at `handle` of the table numbered `number`.
fn seal(bytes: &mut [u8], number: u64, handle: Handle) -> Option<()> {
    let start = usize::try_from(handle.offset).ok()?;
    let block = bytes.get_mut(start..)?.get_mut(..handle.sealed_len as usize)?;
    let stored = block.len().checked_sub(SEAL_LEN)?;
    let sum = checksum(number, handle.offset, &[&block[..=stored]]);
    put(block, stored + 1, &sum.to_le_bytes());
    Some(())
}

fn stored(bytes: &[u8], handle: Handle) -> Option<&[u8]> {
    let start = usize::try_from(handle.offset).ok()?;
    bytes.get(start..)?.get(..(handle.sealed_len as usize).checked_sub(SEAL_LEN)?)
}

fn handle_at(bytes: &[u8], at: usize) -> Option<Handle> {
    Some(Handle { offset: u64_at(bytes, at)?, sealed_len: u32_at(bytes, at + 8)? })
}

/// Maximum number of blocks to correct: an index may point at the same block again and again.
const MOST_SEALS: usize = 1000;

/// Corrects all blocks of the index at `handle`, and those below it.
fn index(bytes: &mut [u8], number: u64, handle: Handle, left: &mut usize) -> Option<()> {
    seal(bytes, number, handle);
    let layout = IndexLayout::parse(stored(bytes, handle)?).ok()?;
    for at in 0..layout.count() {
        *left = left.checked_sub(1)?;
        let fence = IndexView::parse(stored(bytes, handle)?).ok()?.fence(at).ok()?;
        let child = Handle { offset: fence.offset, sealed_len: fence.sealed_len };
        // An index of indexes has only indexes of data blocks below it.
        if layout.level() == 1 && child.end() <= handle.offset {
            index(bytes, number, child, left)?;
        } else {
            seal(bytes, number, child);
        }
    }
    Some(())
}

/// Corrects the table numbered `number`: the checksums of all reachable blocks, and the footer.
pub fn table(bytes: &mut [u8], number: u64) {
    let Some(footer) = bytes.len().checked_sub(FOOTER_LEN) else { return };
    table_blocks(bytes, number, footer);
    footer_at(bytes, number, footer as u64, footer);
}

fn table_blocks(bytes: &mut [u8], number: u64, footer: usize) -> Option<()> {
    let (properties, root) = (handle_at(bytes, footer)?, handle_at(bytes, footer + 12)?);
    seal(bytes, number, properties);
    if let Some(found) = stored(bytes, properties).and_then(|b| Properties::decode(b, footer as u64).ok()) {
        let modules = found.filter.modules.iter().filter_map(|module| module.handle(footer as u64));
        let others = found.tombstones.iter().map(|(handle, _)| *handle);
        modules.chain(others).for_each(|handle| seal(bytes, number, handle).unwrap_or_default());
    }
    index(bytes, number, root, &mut { MOST_SEALS })
}

/// Corrects the checksum of the footer at `at`, whose offset in the table numbered `number` is `offset`.
pub fn footer_at(bytes: &mut [u8], number: u64, offset: u64, at: usize) {
    let Some(covered) = bytes.get(at..at + FOOTER_LEN - 12) else { return };
    let sum = checksum(number, offset, &[covered]);
    put(bytes, at + FOOTER_LEN - 12, &sum.to_le_bytes());
}

/// Corrects the footer of the value file or map numbered `number`, and the seal of the block that the footer names.
pub fn value_footer(bytes: &mut [u8], number: u64) {
    let Some(at) = bytes.len().checked_sub(drumlin_format::value::FOOTER_LEN) else { return };
    let (Some(offset), Some(sealed_len)) = (u64_at(bytes, at), u32_at(bytes, at + 8)) else { return };
    let sum = checksum(number, at as u64, &[&bytes[at..at + 16]]);
    put(bytes, at + 16, &sum.to_le_bytes());
    let _ = seal(bytes, number, Handle { offset, sealed_len });
}
