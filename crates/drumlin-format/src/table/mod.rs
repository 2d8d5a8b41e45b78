//! The table: an immutable file of sorted entries.
//!
//! ```text
//! data blocks          in key order, from offset 0, without gaps             (`block`)
//! range tombstones     one block; absent without range tombstones            (`tombstones`)
//! filter modules       last to first, so that module 0 is nearest the end    (`filter`)
//! index partitions     absent if the index is flat                           (`index`)
//! index root           one index block                                       (`index`)
//! properties           counts, bounds, places of the other blocks            (`properties`)
//! footer               40 bytes
//!
//! footer    0  properties offset         u64
//!           8  properties sealed length  u32
//!          12  root offset               u64
//!          20  root sealed length        u32
//!          24  version                   u32
//!          28  checksum                  u32   over bytes 0..28; bound to the table's number and the footer's offset
//!          32  magic "drumlTAB"
//! ```
//!
//! Every block is followed by its seal (`seal`), a checksum bound to the table's number and the block's offset. Only
//! data blocks are ever compressed. Seals and footer together cover every byte of the file, so a truncated, exchanged
//! or rearranged file is detected.
//!
//! A reader fetches the end of the file in one read: footer, properties, root and usually the first filter module.
//!
//! Invariants: (key, seq) is strictly ascending in internal order over the whole table. Range tombstones are not
//! entries: they have a block of their own, and separate counts and bounds in the properties. Separators, filter and
//! tags refer to user keys.

mod builder;
mod properties;
mod salvage;
#[cfg(test)]
mod tests;
mod tombstones;

pub use builder::{
    BuildError, FilterSpec, MAX_BLOCK_TARGET, Sink, TableBuilder, TableSettings, TableSummary,
};
pub use properties::{FilterDescriptor, ModuleDescriptor, Owner, Properties, ValueReference};
pub use salvage::find_block;
pub use tombstones::{Tombstone, decode_tombstones, encode_tombstones};

use crate::bytes::{Reader, put_u32, put_u64};
use crate::checksum::checksum;
use crate::error::{Corruption, DecodeError};
use crate::limits::MAX_LEN;
use crate::seal::SEAL_LEN;
use alloc::vec::Vec;

/// Length of the footer.
pub const FOOTER_LEN: usize = 40;
/// Version of the table format.
pub const TABLE_VERSION: u32 = 1;
/// Magic number: the last eight bytes of every table.
pub const TABLE_MAGIC: [u8; 8] = *b"drumlTAB";
/// Filter format: no filter.
pub const FILTER_NONE: u8 = 0;

/// Place of a sealed, uncompressed block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Handle {
    /// Offset in the file.
    pub offset: u64,
    /// Stored length, including the seal.
    pub sealed_len: u32,
}

impl Handle {
    /// Returns the first offset after the block.
    pub const fn end(self) -> u64 {
        self.offset.saturating_add(self.sealed_len as u64)
    }

    /// Checks that the block can lie before `limit`.
    pub(crate) fn check(self, limit: u64, at: u64) -> Result<Handle, Corruption> {
        if self.end() > limit || (self.sealed_len as usize) < SEAL_LEN {
            return Err(Corruption::new("block lies outside its file", at));
        }
        Ok(self)
    }
}

/// Footer of a table: the places of properties and index root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Footer {
    /// Place of the properties.
    pub properties: Handle,
    /// Place of the index root.
    pub root: Handle,
}

impl Footer {
    /// Encodes the footer at `offset` of the file `file_id`.
    pub fn encode(&self, file_id: u64, offset: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_LEN);
        for handle in [self.properties, self.root] {
            put_u64(&mut out, handle.offset);
            put_u32(&mut out, handle.sealed_len);
        }
        put_u32(&mut out, TABLE_VERSION);
        let sum = checksum(file_id, offset, &[&out]);
        put_u32(&mut out, sum);
        out.extend_from_slice(&TABLE_MAGIC);
        out
    }

    /// Decodes the footer of the file `file_id` of length `file_len` from its last [`FOOTER_LEN`] bytes.
    pub fn decode(bytes: &[u8], file_id: u64, file_len: u64) -> Result<Footer, DecodeError> {
        let offset = file_len.saturating_sub(FOOTER_LEN as u64);
        let at = |what| Corruption::new(what, offset);
        if bytes.len() != FOOTER_LEN || file_len < FOOTER_LEN as u64 {
            return Err(at("table is shorter than its footer").into());
        }
        let (covered, rest) = bytes.split_at(FOOTER_LEN - 12);
        let mut reader = Reader::at(rest, offset);
        let sum = reader.u32()?;
        if reader.array::<8>()? != TABLE_MAGIC {
            return Err(at("file does not end with the table magic").into());
        }
        if checksum(file_id, offset, &[covered]) != sum {
            return Err(at("table footer: checksum mismatch").into());
        }
        let mut reader = Reader::at(covered, offset);
        let mut handle =
            || Ok::<_, Corruption>(Handle { offset: reader.u64_up_to(MAX_LEN)?, sealed_len: reader.u32()? });
        let footer = Footer { properties: handle()?, root: handle()? };
        let version = reader.u32()?;
        if version > TABLE_VERSION {
            return Err(DecodeError::NewerFormat {
                what: "table version",
                found: version,
                known: TABLE_VERSION,
            });
        }
        if version == 0 {
            return Err(at("table has no version").into());
        }
        footer.properties.check(offset, offset)?;
        footer.root.check(offset, offset)?;
        Ok(footer)
    }
}
