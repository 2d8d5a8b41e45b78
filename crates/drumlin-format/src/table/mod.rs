//! The table: one sorted, immutable file of entries.
//!
//! ```text
//! data blocks          in key order, from offset 0, next to each other      (module block)
//! range tombstones     one block, if there are any                          (module tombstones)
//! filter modules       last to first, so that the first comes with the tail (module filter)
//! index partitions     if the index is not flat                             (module index)
//! index root
//! properties           counts, bounds, and where everything lies
//! footer               40 bytes
//!
//! footer   properties offset u64, sealed length u32 | root offset u64, sealed length u32 | version u32
//!          | checksum u32 | magic
//! ```
//!
//! Every block is followed by its seal (module seal), which binds it to the table's number and its offset. The
//! footer's checksum covers the bytes before it in the footer, its offset and the table's number too. So each
//! byte of the file is covered, and a file that is cut, swapped or mixed up is found out.
//!
//! A reader fetches the end of the file once: footer, properties, root and usually the first filter module.
//!
//! Invariants: (key, seq) rises strictly in internal order over the whole table. Range tombstones are no entries:
//! they have a block of their own, and counts and bounds of their own in the properties. Separators, filter and
//! tags speak of user keys.

mod builder;
mod properties;
#[cfg(test)]
mod tests;
mod tombstones;

pub use builder::{
    BuildError, FilterSpec, MAX_BLOCK_TARGET, Sink, TableBuilder, TableSettings, TableSummary,
};
pub use properties::{FilterDescriptor, ModuleDescriptor, Properties, ValueReference};
pub use tombstones::{Tombstone, decode_tombstones, encode_tombstones};

use crate::bytes::{Reader, put_u32, put_u64};
use crate::checksum::checksum;
use crate::error::{Corruption, DecodeError};
use crate::seal::SEAL_LEN;
use alloc::vec::Vec;

/// Length of the footer.
pub const FOOTER_LEN: usize = 40;
/// The newest version of the format.
pub const TABLE_VERSION: u32 = 1;
/// The last eight bytes of every table.
pub const TABLE_MAGIC: [u8; 8] = *b"drumlTAB";
/// Filter format: none.
pub const FILTER_NONE: u8 = 0;
/// Filter format: blocked Bloom.
pub const FILTER_BLOOM: u8 = 1;

/// Where a sealed, uncompressed block lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Handle {
    /// Offset in the file.
    pub offset: u64,
    /// Stored length, with the seal.
    pub sealed_len: u32,
}

impl Handle {
    /// First offset behind the block.
    pub const fn end(self) -> u64 {
        self.offset.saturating_add(self.sealed_len as u64)
    }

    /// Whether the block can lie before `limit`.
    fn check(self, limit: u64, at: u64) -> Result<Handle, Corruption> {
        if self.end() > limit || (self.sealed_len as usize) < SEAL_LEN {
            return Err(Corruption::new("block lies outside its file", at));
        }
        Ok(self)
    }
}

/// The end of a table: where properties and index root lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Footer {
    /// The properties.
    pub properties: Handle,
    /// The root of the index.
    pub root: Handle,
}

impl Footer {
    /// The footer's bytes, for the file `file_id`, at `offset`.
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

    /// Reads the footer of the file `file_id`, which is `file_len` long, from its last [`FOOTER_LEN`] bytes.
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
            return Err(at("file does not end like a table").into());
        }
        if checksum(file_id, offset, &[covered]) != sum {
            return Err(at("footer has the wrong checksum").into());
        }
        let mut reader = Reader::at(covered, offset);
        let mut handle = || Ok::<_, Corruption>(Handle { offset: reader.u64()?, sealed_len: reader.u32()? });
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
