//! Frame: the framing of each record in an append-only file. Log segments, manifests and decision logs consist of a
//! file header followed by frames.
//!
//! ```text
//!  0  header checksum    u32   over bytes 4..32
//!  4  payload checksum   u32   over payload and padding
//!  8  payload length     u32   without padding
//! 12  tag                u32   meaning defined by the file kind
//! 16  mark               u64   logs and manifests: position below which all was durable when the frame was written
//! 24  word               u64   meaning defined by the file kind
//! 32  payload, then zeros up to a multiple of 8
//! ```
//!
//! Both checksums are bound to the file's number and the frame's offset. Stale frames of a recycled file, and frames
//! that a user stored inside a value, are therefore never accepted.
//!
//! A file that was being appended to at a crash may end in arbitrary bytes. To distinguish a torn end from corruption,
//! [`later_mark`] searches for frames *after* the first invalid one, at each multiple of 8. The separate header
//! checksum keeps this search linear: it trusts a length only after verifying the header, so it does not checksum the
//! same bytes repeatedly. The header also preserves the mark of a frame whose payload is lost.
//!
//! Invariants: frames begin at multiples of 8 of their file. A frame is never changed after it is written.

use crate::bytes::{Reader, put_u32, put_u64};
use crate::checksum::checksum;
use crate::error::EncodeError;
use alloc::vec::Vec;
use drumlin_types::bug;

/// Length of the frame header.
pub(crate) const FRAME_HEADER_LEN: usize = 32;
/// Alignment of frames.
pub(crate) const FRAME_ALIGNMENT: usize = 8;
/// Maximum length of a payload.
pub(crate) const MAX_PAYLOAD_LEN: usize = u32::MAX as usize;

/// Fields of a frame whose meaning the file kind defines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameFields {
    pub(crate) tag: u32,
    pub(crate) mark: u64,
    pub(crate) word: u64,
}

/// A frame with valid checksums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) fields: FrameFields,
    pub(crate) payload: &'a [u8],
    /// Header checksum.
    pub(crate) checksum: u32,
    /// Offset of the first byte after the frame.
    pub(crate) end: u64,
}

/// Result of reading a frame at an offset.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found<'a> {
    Frame(Frame<'a>),
    /// No frame: the end of the bytes, or zeros in place of a header.
    Blank,
    /// Bytes that are no valid frame of this file.
    Bad,
}

/// Returns the length of a frame with a payload of `payload_len` bytes.
pub(crate) const fn frame_len(payload_len: usize) -> u64 {
    (FRAME_HEADER_LEN as u64) + padded_len(payload_len as u64)
}

const fn padded_len(payload_len: u64) -> u64 {
    payload_len.next_multiple_of(FRAME_ALIGNMENT as u64)
}

/// Appends the frame for `offset` of the file numbered `file_id`. Returns its header checksum.
pub(crate) fn put_frame(
    out: &mut Vec<u8>,
    file_id: u64,
    offset: u64,
    fields: FrameFields,
    payload: &[u8],
) -> Result<u32, EncodeError> {
    if payload.len() > MAX_PAYLOAD_LEN {
        return Err(EncodeError { what: "record longer than 4 GiB" });
    }
    debug_assert!(offset.is_multiple_of(FRAME_ALIGNMENT as u64), "frames are aligned");
    let padding = padded_len(payload.len() as u64) as usize - payload.len();
    let padding = &[0; FRAME_ALIGNMENT][..padding];
    out.reserve(frame_len(payload.len()) as usize);
    let start = out.len();
    put_u32(out, 0);
    put_u32(out, checksum(file_id, offset, &[payload, padding]));
    put_u32(out, payload.len() as u32);
    put_u32(out, fields.tag);
    put_u64(out, fields.mark);
    put_u64(out, fields.word);
    let sum = header_checksum(file_id, offset, &out[start + 4..]);
    out[start..start + 4].copy_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(payload);
    out.extend_from_slice(padding);
    Ok(sum)
}

fn header_checksum(file_id: u64, offset: u64, covered: &[u8]) -> u32 {
    if bug!("header-without-kind") {
        // Seeded bug: the checksum omits the tag, and with it the record's kind.
        return checksum(file_id, offset, &[&covered[..8], &covered[12..]]);
    }
    checksum(file_id, offset, &[covered])
}

/// A frame header with a valid checksum.
struct Header {
    fields: FrameFields,
    payload_checksum: u32,
    payload_len: u32,
    checksum: u32,
}

fn read_header(file_id: u64, offset: u64, head: &[u8; FRAME_HEADER_LEN]) -> Option<Header> {
    let mut reader = Reader::new(head);
    let sum = reader.u32().ok()?;
    if header_checksum(file_id, offset, reader.peek()) != sum {
        return None;
    }
    let payload_checksum = reader.u32().ok()?;
    let payload_len = reader.u32().ok()?;
    let fields = FrameFields { tag: reader.u32().ok()?, mark: reader.u64().ok()?, word: reader.u64().ok()? };
    Some(Header { fields, payload_checksum, payload_len, checksum: sum })
}

/// Reads the frame at `offset` of `bytes`, which hold the file numbered `file_id` from its start.
pub(crate) fn read_frame(bytes: &[u8], file_id: u64, offset: u64) -> Found<'_> {
    let rest = usize::try_from(offset).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
    let Some((head, body)) = rest.split_first_chunk::<FRAME_HEADER_LEN>() else {
        return if rest.iter().all(|&byte| byte == 0) { Found::Blank } else { Found::Bad };
    };
    if head.iter().all(|&byte| byte == 0) {
        return Found::Blank;
    }
    match read_header(file_id, offset, head) {
        Some(header) => read_body(file_id, offset, &header, body).map_or(Found::Bad, Found::Frame),
        None => Found::Bad,
    }
}

fn read_body<'a>(file_id: u64, offset: u64, header: &Header, body: &'a [u8]) -> Option<Frame<'a>> {
    let padded = padded_len(u64::from(header.payload_len));
    let body = body.get(..usize::try_from(padded).ok()?)?;
    if checksum(file_id, offset, &[body]) != header.payload_checksum {
        return None;
    }
    Some(Frame {
        fields: header.fields,
        payload: body.get(..header.payload_len as usize)?,
        checksum: header.checksum,
        end: offset.checked_add(FRAME_HEADER_LEN as u64)?.checked_add(padded)?,
    })
}

/// Returns the offset of the next valid frame at or after `from`. Runs in linear time, like [`later_mark`].
pub(crate) fn next_frame(bytes: &[u8], file_id: u64, from: u64) -> Option<u64> {
    let mut budget = bytes.len() as u64;
    let mut offset = from.checked_next_multiple_of(FRAME_ALIGNMENT as u64)?;
    loop {
        let rest = usize::try_from(offset).ok().and_then(|at| bytes.get(at..))?;
        let (head, body) = rest.split_first_chunk::<FRAME_HEADER_LEN>()?;
        let blank = head.first_chunk::<8>() == Some(&[0; 8]);
        if let Some(header) =
            Some(head).filter(|_| !blank).and_then(|head| read_header(file_id, offset, head))
        {
            let cost = u64::from(header.payload_len).min(body.len() as u64);
            if cost <= budget && read_body(file_id, offset, &header, body).is_some() {
                return Some(offset);
            }
            budget = budget.saturating_sub(cost);
        }
        offset += FRAME_ALIGNMENT as u64;
    }
}

/// Returns whether a frame that begins at `offset` extends beyond the end of `bytes`.
pub(crate) fn is_cut(bytes: &[u8], file_id: u64, offset: u64) -> bool {
    let rest = usize::try_from(offset).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
    match rest.split_first_chunk::<FRAME_HEADER_LEN>() {
        None => rest.iter().any(|&byte| byte != 0),
        Some((head, body)) => read_header(file_id, offset, head)
            .is_some_and(|header| padded_len(u64::from(header.payload_len)) > body.len() as u64),
    }
}

/// Returns the largest mark of any frame at or after `from` in `bytes`, which hold the file numbered `file_id` from its
/// start.
///
/// A chance match of a 32-bit header checksum must not make a valid store look corrupt, so the payload has to match
/// as well. The total length of mismatching payloads that are checksummed is limited to the length of the file. Real
/// frames do not overlap and cannot exceed it. Once the limit is exceeded, a valid header counts without its payload.
/// Hostile bytes therefore cost at most linear time.
pub(crate) fn later_mark(bytes: &[u8], file_id: u64, from: u64) -> Option<u64> {
    let mut budget = bytes.len() as u64;
    let mut offset = from.checked_next_multiple_of(FRAME_ALIGNMENT as u64)?;
    let mut largest = None;
    while let Some(rest) = usize::try_from(offset).ok().and_then(|at| bytes.get(at..)) {
        let Some((head, body)) = rest.split_first_chunk::<FRAME_HEADER_LEN>() else { break };
        let next = offset + FRAME_ALIGNMENT as u64;
        // Skip the checksum where the header checksum and the payload checksum are zero: most such places are blank.
        let blank = head.first_chunk::<8>() == Some(&[0; 8]);
        let Some(header) = Some(head).filter(|_| !blank).and_then(|head| read_header(file_id, offset, head))
        else {
            offset = next;
            continue;
        };
        match read_body(file_id, offset, &header, body) {
            Some(frame) => {
                largest = largest.max(Some(header.fields.mark));
                offset = frame.end;
            }
            None => {
                let cost = u64::from(header.payload_len).min(body.len() as u64);
                if cost > budget {
                    largest = largest.max(Some(header.fields.mark));
                }
                budget = budget.saturating_sub(cost);
                offset = next;
            }
        }
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const FIELDS: FrameFields = FrameFields { tag: 7, mark: 99, word: 5 };

    fn frame(file_id: u64, offset: u64, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        put_frame(&mut out, file_id, offset, FIELDS, payload).expect("short");
        assert_eq!(out.len() as u64, frame_len(payload.len()));
        out
    }

    #[test]
    fn a_frame_reads_back_only_at_its_place() {
        let mut bytes = vec![0; 16];
        bytes.extend(frame(3, 16, b"hello"));
        match read_frame(&bytes, 3, 16) {
            Found::Frame(found) => {
                assert_eq!((found.fields, found.payload, found.end), (FIELDS, &b"hello"[..], 56));
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(read_frame(&bytes, 4, 16), Found::Bad));
        assert!(matches!(read_frame(&bytes[8..], 3, 8), Found::Bad));
        assert!(matches!(read_frame(&bytes, 3, 56), Found::Blank));
        assert!(matches!(read_frame(&[0; 40], 3, 0), Found::Blank));
        assert!(matches!(read_frame(&bytes, 3, u64::MAX), Found::Blank));
    }

    #[test]
    fn each_changed_bit_is_seen() {
        let good = frame(3, 16, b"hello");
        for index in 0..good.len() {
            for bit in 0..8 {
                let mut bytes = vec![0; 16];
                bytes.extend(&good);
                bytes[16 + index] ^= 1 << bit;
                assert!(matches!(read_frame(&bytes, 3, 16), Found::Bad), "byte {index} bit {bit}");
            }
        }
    }

    #[test]
    fn later_marks_are_found_behind_damage() {
        let mut bytes = frame(3, 0, &[1; 100]);
        let second = bytes.len();
        bytes.extend(frame(3, second as u64, &[2; 10]));
        assert_eq!(later_mark(&bytes, 3, 0), Some(99));
        bytes[40] ^= 1;
        assert_eq!(later_mark(&bytes, 3, 8), Some(99));
        assert_eq!(later_mark(&bytes, 3, second as u64 + 8), None);
        assert_eq!(later_mark(&bytes, 4, 0), None);
        assert_eq!(later_mark(&bytes, 3, u64::MAX), None);
    }

    #[test]
    fn overlapping_headers_count_once_the_budget_is_spent() {
        // Headers whose payloads overlap all that follows. A correct writer never makes them.
        let mut bytes = Vec::new();
        for index in 0..100u64 {
            let long = frame(3, index * 32, &[9; 3000]);
            bytes.extend(&long[..FRAME_HEADER_LEN]);
        }
        bytes.resize(100 * 32 + 3000, 0);
        assert_eq!(later_mark(&bytes, 3, 0), Some(99));
        bytes.truncate(FRAME_HEADER_LEN);
        bytes.resize(4000, 0);
        assert_eq!(later_mark(&bytes, 3, 0), None);
    }
}
