//! The record of a value file: one value.
//!
//! ```text
//! checksum u32 | codec u8 | raw length varint | stored length varint | stored bytes
//!
//! checksum     CRC-32C( file id u64 | record offset u64 | seq u64 | key length u32 | key | rest of the record )
//! ```
//!
//! The codec is a compression method (`compression`). The stored bytes are never longer than the value. The checksum
//! covers key, sequence number and place, so a copy of a value gets a new checksum, after the old one was verified.

use crate::bytes::{Reader, put_varint, varint_len};
use crate::checksum::checksum;
use crate::compression::{Compression, is_plausible};
use crate::error::Corruption;
use alloc::vec::Vec;
use drumlin_types::Seq;

/// Maximum length of a record without its stored bytes.
pub const MAX_RECORD_HEADER_LEN: usize = CHECKSUM_LEN + 1 + 5 + 5;
const CHECKSUM_LEN: usize = 4;

/// The version that a record belongs to, and the record's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordKey<'a> {
    /// Number of the value file.
    pub file_id: u64,
    /// Offset of the record.
    pub offset: u64,
    /// User key.
    pub key: &'a [u8],
    /// Sequence number of the version.
    pub seq: Seq,
}

impl RecordKey<'_> {
    fn checksum(&self, fields: &[u8], stored: &[u8]) -> u32 {
        let mut front = [0; 12];
        let (seq, key_len) = front.split_at_mut(8);
        seq.copy_from_slice(&self.seq.to_le_bytes());
        key_len.copy_from_slice(&(self.key.len() as u32).to_le_bytes());
        checksum(self.file_id, self.offset, &[&front, self.key, fields, stored])
    }
}

/// Returns the length of a record whose value has `raw_len` bytes, stored in `stored_len` bytes.
#[must_use]
pub const fn record_len(raw_len: u32, stored_len: u32) -> u64 {
    let lengths = varint_len(raw_len as u64) + varint_len(stored_len as u64);
    (CHECKSUM_LEN + 1 + lengths) as u64 + stored_len as u64
}

/// Replaces the content of `out` with the start of a record, up to its stored bytes. These follow: at most `raw_len`,
/// which is less than 2^32.
pub fn encode_record_header(
    out: &mut Vec<u8>,
    version: &RecordKey<'_>,
    codec: Compression,
    raw_len: u32,
    stored: &[u8],
) {
    out.clear();
    out.extend_from_slice(&[0; CHECKSUM_LEN]);
    out.push(codec as u8);
    put_varint(out, u64::from(raw_len));
    put_varint(out, stored.len() as u64);
    let sum = version.checksum(out.get(CHECKSUM_LEN..).unwrap_or_default(), stored);
    if let Some(place) = out.first_chunk_mut::<CHECKSUM_LEN>() {
        *place = sum.to_le_bytes();
    }
}

/// A verified record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Compression of the stored bytes.
    pub codec: Compression,
    /// Length of the value.
    pub raw_len: u32,
    /// Stored bytes.
    pub stored: &'a [u8],
}

impl<'a> Record<'a> {
    /// Verifies the record that fills `bytes` and belongs to `version`. The caller knows its length from a pointer or
    /// from the key blocks. Offsets of errors are those of the file.
    pub fn decode(bytes: &'a [u8], version: &RecordKey<'_>) -> Result<Record<'a>, Corruption> {
        let at = |what| Corruption::new(what, version.offset);
        let mut reader = Reader::at(bytes, version.offset);
        let sum = reader.u32()?;
        let covered = reader.peek();
        let codec = reader.u8()?;
        let raw_len = reader.varint_u32()?;
        let stored_len = reader.varint_u32()?;
        let fields_len = covered.len() - reader.remaining();
        let stored = reader.take_rest();
        if stored.len() != stored_len as usize {
            return Err(at("the length of a value record differs from its pointer"));
        }
        let fields = covered.get(..fields_len).unwrap_or_default();
        if version.checksum(fields, stored) != sum && !drumlin_types::bug!("value-record-unverified") {
            return Err(at("value record: checksum mismatch"));
        }
        let codec = Compression::from_u8(codec).ok_or(at("unknown compression"))?;
        if stored_len > raw_len || !is_plausible(codec, u64::from(stored_len), u64::from(raw_len)) {
            return Err(at("value record has an impossible raw length"));
        }
        Ok(Record { codec, raw_len, stored })
    }
}
