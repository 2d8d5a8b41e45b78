//! The block of range tombstones.
//!
//! ```text
//! block       count varint | tombstone | tombstone | ...
//! tombstone   start slice | has end u8, 0 or 1 | end slice (if has end is 1) | seq varint
//! ```
//!
//! Tombstones are sorted by start, then by descending sequence number.

use crate::MAX_BOUND_LEN;
use crate::bytes::{Reader, put_bool, put_slice, put_varint};
use crate::error::Corruption;
use crate::limits::MAX_SEQ;
use alloc::vec::Vec;
use drumlin_types::{Key, KeyRange, Seq};

/// A range tombstone: hides all versions older than `seq` of the keys in `range`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tombstone {
    /// Keys that it hides; never empty.
    pub range: KeyRange,
    /// Sequence number. Older versions are hidden.
    pub seq: Seq,
}

/// Sorts the tombstones and encodes them.
pub fn encode_tombstones(tombstones: &mut Vec<Tombstone>) -> Vec<u8> {
    tombstones
        .sort_by(|a, b| (&a.range.start, b.seq, &a.range.end).cmp(&(&b.range.start, a.seq, &b.range.end)));
    tombstones.dedup();
    let mut out = Vec::new();
    put_varint(&mut out, tombstones.len() as u64);
    for Tombstone { range, seq } in tombstones {
        put_slice(&mut out, &range.start);
        put_bool(&mut out, range.end.is_some());
        if let Some(end) = &range.end {
            put_slice(&mut out, end);
        }
        put_varint(&mut out, *seq);
    }
    out
}

/// Decodes a block made by [`encode_tombstones`].
pub fn decode_tombstones(bytes: &[u8]) -> Result<Vec<Tombstone>, Corruption> {
    let mut reader = Reader::new(bytes);
    let count = reader.count(3)?;
    let mut tombstones: Vec<Tombstone> = Vec::new();
    for _ in 0..count {
        let at = reader.offset();
        // An output file may end right after a key of maximum length, and then a tombstone begins at its successor.
        let start = Key::new(reader.slice_up_to(MAX_BOUND_LEN)?);
        let end = if reader.bool()? { Some(Key::new(reader.slice_up_to(MAX_BOUND_LEN)?)) } else { None };
        let range = KeyRange::new(start, end);
        if range.is_empty() {
            return Err(Corruption::new("range tombstone is empty", at));
        }
        if tombstones.last().is_some_and(|before| before.range.start > range.start) {
            return Err(Corruption::new("range tombstones are out of order", at));
        }
        tombstones.push(Tombstone { range, seq: reader.varint_up_to(MAX_SEQ)? });
    }
    reader.finish()?;
    Ok(tombstones)
}
