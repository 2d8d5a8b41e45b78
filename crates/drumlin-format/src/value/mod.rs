//! Value files: large values apart from the tree, which holds pointers to them.
//!
//! ```text
//! value file   header block, 64 bytes | record | record | ... | key blocks | properties | footer
//!
//! header        0  magic "drumlVAL", version, checksum  (`file_header`)
//!              16  number       u64   of this file
//!              24  created seq  u64   newest sequence number of the store when the file was begun
//!              32  keyspace     u32
//!              36  class        u8    lifetime class, 0 for the shortest; zeros follow
//!
//! record       checksum u32 | codec u8 | raw length varint | stored length varint | stored bytes    (`record`)
//! key blocks   data blocks (`block`), one entry per record in the order of the records; each sealed
//! properties   counts, bounds and the lengths of the key blocks; sealed                             (`properties`)
//! footer       place of the properties                                                             (`footer`)
//! ```
//!
//! Records are in internal order: user key ascending, sequence number descending. A record does not contain its key.
//! Its checksum covers the key, the sequence number and the place of the record, so a reader that follows a pointer to
//! the wrong record notices.
//!
//! A key block's entry has the kind `PutPointer`. Its value is
//!
//! ```text
//! record offset varint | raw length varint | stored length varint
//! ```
//!
//! A tree entry of the kind `PutPointer` holds a `pointer`.
//!
//! Reserved: the engine writes no maps and no places that are gone. A compaction copies
//! a live value to a new file and replaces its pointer. The engine does not read key blocks, properties and footers
//! either; they let a tool, or a collector that reads no table, find all records.
//!
//! Invariant: every byte of a value file is covered by the header's checksum, a record's checksum, a seal or the
//! footer's checksum.

mod builder;
mod footer;
mod map;
mod pointer;
mod properties;
mod record;
#[cfg(test)]
mod tests;

pub use builder::{BuildError, ValueFileBuilder, ValueFileSettings, ValueFileSummary};
pub use footer::{FOOTER_LEN, Footer, FooterKind};
pub use map::{
    MAP_BLOCK_BYTES, MAP_FOOTER, MAP_HEADER_LEN, MAP_VERSION, MAX_MAP_TARGETS, MapBlock, MapBuilder,
    MapHeader, MapRoot, MapSummary, NewPlace,
};
pub use pointer::{Place, ValuePointer};
pub use properties::ValueFileProperties;
pub use record::{MAX_RECORD_HEADER_LEN, Record, RecordKey, encode_record_header, record_len};

use crate::block::BlockView;
use crate::bytes::{Reader, put_u32, put_u64, put_varint};
use crate::error::{Corruption, DecodeError};
use crate::file_header::HeaderKind;
use crate::limits::{MAX_KEYSPACE, MAX_LEN, MAX_NUMBER, MAX_SEQ};
use alloc::vec::Vec;
use drumlin_types::{KeyspaceId, Kind, Seq, ValueFileId};

/// Length of a value file's header block.
pub const VALUE_HEADER_LEN: usize = 64;
/// Version of the format of value files.
pub const VALUE_FILE_VERSION: u32 = 1;
/// Target length of key blocks. They are read one after the other, so they are larger than data blocks of a table.
pub const KEY_BLOCK_BYTES: usize = 32 << 10;

const HEADER: HeaderKind = HeaderKind {
    magic: *b"drumlVAL",
    len: VALUE_HEADER_LEN,
    version: VALUE_FILE_VERSION,
    too_short: "value file is shorter than its header",
    wrong_magic: "not a value file",
    version_name: "value file format",
};

/// The footer of a value file.
pub const VALUE_FOOTER: FooterKind =
    FooterKind { magic: *b"drumlVFT", version: VALUE_FILE_VERSION, version_name: HEADER.version_name };

/// Header of a value file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueFileHeader {
    /// Number of the file.
    pub file: ValueFileId,
    /// Newest sequence number of the store when the file was begun.
    pub created_seq: Seq,
    /// Keyspace of all its values.
    pub keyspace: KeyspaceId,
    /// Lifetime class, 0 to 5; 0 for the shortest.
    pub class: u8,
}

impl ValueFileHeader {
    /// Encodes the header block.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut fields = Vec::with_capacity(VALUE_HEADER_LEN);
        put_u64(&mut fields, self.file.0);
        put_u64(&mut fields, self.created_seq);
        put_u32(&mut fields, self.keyspace.0);
        fields.push(self.class);
        HEADER.encode(self.file.0, &fields).0
    }

    /// Decodes the header block at the start of `bytes`, of the value file `file`.
    pub fn decode(bytes: &[u8], file: ValueFileId) -> Result<ValueFileHeader, DecodeError> {
        let (mut reader, _) = HEADER.decode(bytes, file.0)?;
        let header = ValueFileHeader {
            file: ValueFileId(reader.u64_up_to(MAX_NUMBER)?),
            created_seq: reader.u64_up_to(MAX_SEQ)?,
            keyspace: KeyspaceId(reader.u32()?),
            class: reader.u8()?,
        };
        if header.file != file {
            return Err(Corruption::new("value file's header names another file", 16).into());
        }
        if header.keyspace.0 > MAX_KEYSPACE {
            return Err(Corruption::new("number exceeds its limit", 32).into());
        }
        if reader.take_rest().iter().any(|&byte| byte != 0) {
            return Err(Corruption::new("value file's header has unknown fields", 37).into());
        }
        Ok(header)
    }
}

/// Place of a record in its file, and the lengths of its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecordPlace {
    /// Offset of the record in the file.
    pub offset: u64,
    /// Length of the value.
    pub raw_len: u32,
    /// Length of the stored bytes.
    pub stored_len: u32,
}

impl RecordPlace {
    /// Returns the length of the record.
    #[must_use]
    pub fn record_len(&self) -> u64 {
        record_len(self.raw_len, self.stored_len)
    }

    /// Returns the first offset after the record.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.record_len())
    }

    fn encode_into(&self, out: &mut Vec<u8>) {
        put_varint(out, self.offset);
        put_varint(out, u64::from(self.raw_len));
        put_varint(out, u64::from(self.stored_len));
    }

    fn decode_from(reader: &mut Reader<'_>) -> Result<RecordPlace, Corruption> {
        let place = RecordPlace {
            offset: reader.varint_up_to(MAX_LEN)?,
            raw_len: reader.varint_u32()?,
            stored_len: reader.varint_u32()?,
        };
        if place.stored_len > place.raw_len {
            return Err(reader.damage("value is stored in more bytes than it has"));
        }
        Ok(place)
    }
}

/// Returns the place that entry `index` of a key block names.
pub fn key_block_place(block: BlockView<'_>, index: usize) -> Result<RecordPlace, Corruption> {
    let entry = block.entry(index)?;
    let at = entry.value_offset as u64;
    if entry.kind != Kind::PutPointer {
        return Err(Corruption::new("key block has an entry that is not a record's", at));
    }
    let mut reader = Reader::at(entry.value, at);
    let place = RecordPlace::decode_from(&mut reader)?;
    reader.finish()?;
    Ok(place)
}
