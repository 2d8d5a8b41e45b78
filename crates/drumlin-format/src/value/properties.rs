//! The properties block of a value file.
//!
//! ```text
//! counts       records varint | raw bytes varint | record bytes varint
//! seqs         smallest varint | largest varint
//! key bounds   first key slice | last key slice
//! key blocks   offset varint | count varint | per block: sealed length varint
//! ```
//!
//! A value file has at least one record. The key blocks lie next to each other, directly before the properties.

use super::VALUE_HEADER_LEN;
use crate::bytes::{Reader, put_slice, put_varint};
use crate::error::Corruption;
use crate::limits::{MAX_LEN, MAX_SEQ};
use crate::seal::SEAL_LEN;
use crate::table::Handle;
use alloc::vec::Vec;
use drumlin_types::{Key, MAX_KEY_LEN, Seq};

/// Counts, bounds and places of a value file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ValueFileProperties {
    /// Number of records.
    pub records: u64,
    /// Total length of the values.
    pub raw_bytes: u64,
    /// Total length of the records: their checksums, lengths and stored bytes.
    pub record_bytes: u64,
    /// Smallest sequence number of a record.
    pub min_seq: Seq,
    /// Largest sequence number of a record.
    pub max_seq: Seq,
    /// First key.
    pub first_key: Key,
    /// Last key.
    pub last_key: Key,
    /// Offset of the first key block.
    pub key_blocks_offset: u64,
    /// Lengths of the key blocks, seals included.
    pub key_block_lens: Vec<u32>,
}

impl ValueFileProperties {
    /// Returns the places of the key blocks, in key order.
    pub fn key_blocks(&self) -> impl Iterator<Item = Handle> + '_ {
        let mut offset = self.key_blocks_offset;
        self.key_block_lens.iter().map(move |&sealed_len| {
            let handle = Handle { offset, sealed_len };
            offset = handle.end();
            handle
        })
    }

    /// Encodes the block.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let counts = [self.records, self.raw_bytes, self.record_bytes, self.min_seq, self.max_seq];
        counts.into_iter().for_each(|count| put_varint(&mut out, count));
        put_slice(&mut out, &self.first_key);
        put_slice(&mut out, &self.last_key);
        put_varint(&mut out, self.key_blocks_offset);
        put_varint(&mut out, self.key_block_lens.len() as u64);
        self.key_block_lens.iter().for_each(|&len| put_varint(&mut out, u64::from(len)));
        out
    }

    /// Decodes the block that begins at `limit` of its file.
    pub fn decode(bytes: &[u8], limit: u64) -> Result<ValueFileProperties, Corruption> {
        let mut reader = Reader::at(bytes, limit);
        let r = &mut reader;
        let mut properties = ValueFileProperties {
            records: r.varint_up_to(MAX_LEN)?,
            raw_bytes: r.varint_up_to(MAX_LEN)?,
            record_bytes: r.varint_up_to(MAX_LEN)?,
            min_seq: r.varint_up_to(MAX_SEQ)?,
            max_seq: r.varint_up_to(MAX_SEQ)?,
            first_key: Key::new(r.slice_up_to(MAX_KEY_LEN)?),
            last_key: Key::new(r.slice_up_to(MAX_KEY_LEN)?),
            key_blocks_offset: r.varint_up_to(MAX_LEN)?,
            key_block_lens: Vec::new(),
        };
        let count = r.count(1)?;
        properties.key_block_lens.reserve_exact(count);
        for _ in 0..count {
            properties.key_block_lens.push(r.varint_u32()?);
        }
        reader.finish()?;
        properties.check(limit)?;
        Ok(properties)
    }

    fn check(&self, limit: u64) -> Result<(), Corruption> {
        let at = |what| Err(Corruption::new(what, limit));
        if self.records == 0 || self.key_block_lens.is_empty() {
            return at("value file has no records");
        }
        if self.min_seq > self.max_seq || self.first_key > self.last_key {
            return at("bounds of the value file are reversed");
        }
        if self.key_block_lens.iter().any(|&len| len as usize <= SEAL_LEN) {
            return at("key block is shorter than its seal");
        }
        let records_end = (VALUE_HEADER_LEN as u64).saturating_add(self.record_bytes);
        let blocks_end = self.key_blocks().last().map_or(self.key_blocks_offset, Handle::end);
        if self.key_blocks_offset != records_end || blocks_end != limit {
            return at("parts of the value file are not next to each other");
        }
        Ok(())
    }
}
