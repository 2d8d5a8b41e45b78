//! The map of a collected value file: where its live records went. Reserved: the engine writes and reads no maps.
//!
//! ```text
//! map      header block, 64 bytes | blocks | root | footer
//!
//! header    0  magic "drumlMAP", version, checksum  (`file_header`)
//!          16  number     u64   of this map
//!          24  collected  u64   number of the value file that it replaces; zeros follow
//!
//! block    per entry: distance of the old offset from the previous one varint (in the first entry: the old offset)
//!          | index of the target varint | new offset varint; sealed
//! root     targets   count varint | per target: number of the value file varint, in increasing order
//!          | entries varint
//!          | blocks  count varint | per block: distance of its first old offset from that of the previous block varint
//!                    (in the first block: the offset) | entries varint | sealed length varint; sealed
//! footer   place of the root  (`footer`)
//! ```
//!
//! Blocks lie next to each other, in increasing order of old offsets. A lookup keeps the root in memory and reads one
//! block. Lengths of values are in the pointers, not in the map.
//!
//! Invariant: a map has at least one entry. A value file without live records needs no map.

use super::footer::{Footer, FooterKind};
use crate::bytes::{Reader, put_u64, put_varint};
use crate::checksum::hash64;
use crate::compression::Compression;
use crate::error::{Corruption, DecodeError, EncodeError};
use crate::file_header::HeaderKind;
use crate::limits::{MAX_LEN, MAX_NUMBER};
use crate::seal::{SEAL_LEN, seal};
use crate::table::Handle;
use alloc::vec::Vec;
use drumlin_types::ValueFileId;

/// Version of the format of maps.
pub const MAP_VERSION: u32 = 1;
/// Length of a map's header block.
pub const MAP_HEADER_LEN: usize = 64;
/// Length at which a block of a map ends.
pub const MAP_BLOCK_BYTES: usize = 4 << 10;
/// Maximum number of value files that a map points to.
pub const MAX_MAP_TARGETS: usize = 1 << 16;

const HEADER: HeaderKind = HeaderKind {
    magic: *b"drumlMAP",
    len: MAP_HEADER_LEN,
    version: MAP_VERSION,
    too_short: "map is shorter than its header",
    wrong_magic: "not a map",
    version_name: "map format",
};

/// The footer of a map.
pub const MAP_FOOTER: FooterKind =
    FooterKind { magic: *b"drumlMFT", version: MAP_VERSION, version_name: HEADER.version_name };

/// Header of a map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapHeader {
    /// Number of the map.
    pub number: u64,
    /// The collected value file.
    pub collected: ValueFileId,
}

impl MapHeader {
    fn encode(&self) -> Vec<u8> {
        let mut fields = Vec::with_capacity(16);
        put_u64(&mut fields, self.number);
        put_u64(&mut fields, self.collected.0);
        HEADER.encode(self.number, &fields).0
    }

    /// Decodes the header block at the start of `bytes`, of the map `number`.
    pub fn decode(bytes: &[u8], number: u64) -> Result<MapHeader, DecodeError> {
        let (mut reader, _) = HEADER.decode(bytes, number)?;
        let header = MapHeader {
            number: reader.u64_up_to(MAX_NUMBER)?,
            collected: ValueFileId(reader.u64_up_to(MAX_NUMBER)?),
        };
        if header.number != number {
            return Err(Corruption::new("map's header names another map", 16).into());
        }
        if reader.take_rest().iter().any(|&byte| byte != 0) {
            return Err(Corruption::new("map's header has unknown fields", 32).into());
        }
        Ok(header)
    }
}

/// New place of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewPlace {
    /// Value file that the record is in now.
    pub file: ValueFileId,
    /// Offset of the record there.
    pub offset: u64,
}

/// Result of building a map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapSummary {
    /// The whole file.
    pub bytes: Vec<u8>,
    /// Number of entries.
    pub entries: u64,
    /// XXH3-64 of the whole file.
    pub checksum: u64,
}

/// Builds a map in memory. It is small beside the records that it describes.
pub struct MapBuilder {
    header: MapHeader,
    targets: Vec<ValueFileId>,
    entries: Vec<(u64, NewPlace)>,
}

impl MapBuilder {
    /// Returns the builder of an empty map.
    #[must_use]
    pub fn new(header: MapHeader) -> MapBuilder {
        MapBuilder { header, targets: Vec::new(), entries: Vec::new() }
    }

    /// Adds the record that was at `old_offset`. Offsets must increase.
    pub fn add(&mut self, old_offset: u64, new: NewPlace) {
        if let Err(index) = self.targets.binary_search(&new.file) {
            self.targets.insert(index, new.file);
        }
        self.entries.push((old_offset, new));
    }

    /// Encodes the map. It fails when it has no entries, when offsets do not increase, or when a limit is exceeded.
    pub fn finish(self) -> Result<MapSummary, EncodeError> {
        self.check()?;
        let mut bytes = self.header.encode();
        let mut blocks: Vec<(u64, u64, u32)> = Vec::new();
        let mut block = Vec::new();
        let (mut first, mut count, mut previous) = (0, 0, 0);
        for &(old, new) in &self.entries {
            if count == 0 {
                (first, previous) = (old, 0);
            }
            put_varint(&mut block, old - previous);
            let target = self.targets.binary_search(&new.file).unwrap_or_default();
            put_varint(&mut block, target as u64);
            put_varint(&mut block, new.offset);
            (previous, count) = (old, count + 1);
            if block.len() + SEAL_LEN >= MAP_BLOCK_BYTES {
                blocks.push((first, count, self.seal_into(&mut bytes, &block)));
                block.clear();
                count = 0;
            }
        }
        if count > 0 {
            blocks.push((first, count, self.seal_into(&mut bytes, &block)));
        }
        let root_offset = bytes.len() as u64;
        let sealed_len = self.seal_into(&mut bytes, &self.encode_root(&blocks));
        let footer = Footer { root: Handle { offset: root_offset, sealed_len } };
        let footer = footer.encode(MAP_FOOTER, self.header.number, bytes.len() as u64);
        bytes.extend_from_slice(&footer);
        Ok(MapSummary { entries: self.entries.len() as u64, checksum: hash64(&bytes), bytes })
    }

    fn check(&self) -> Result<(), EncodeError> {
        let fail = |what| Err(EncodeError { what });
        if self.entries.is_empty() {
            return fail("a map has no entries");
        }
        if !self.entries.is_sorted_by(|(a, _), (b, _)| a < b) {
            return fail("entries of a map are out of order");
        }
        let most = self.entries.iter().map(|(old, new)| (*old).max(new.offset)).max();
        let largest = self.targets.iter().map(|file| file.0).max();
        let header = self.header.number.max(self.header.collected.0).max(largest.unwrap_or(0));
        if self.targets.len() > MAX_MAP_TARGETS || header > MAX_NUMBER || most > Some(MAX_LEN) {
            return fail("a map exceeds its limits");
        }
        Ok(())
    }

    /// Appends the sealed `block` to `bytes`; returns its sealed length, which is far below 2^32.
    fn seal_into(&self, bytes: &mut Vec<u8>, block: &[u8]) -> u32 {
        let trailer = seal(self.header.number, bytes.len() as u64, block, Compression::None);
        bytes.extend_from_slice(block);
        bytes.extend_from_slice(&trailer);
        (block.len() + SEAL_LEN) as u32
    }

    fn encode_root(&self, blocks: &[(u64, u64, u32)]) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.targets.len() as u64);
        self.targets.iter().for_each(|target| put_varint(&mut out, target.0));
        put_varint(&mut out, self.entries.len() as u64);
        put_varint(&mut out, blocks.len() as u64);
        let mut previous = 0;
        for &(first, count, sealed_len) in blocks {
            put_varint(&mut out, first - previous);
            put_varint(&mut out, count);
            put_varint(&mut out, u64::from(sealed_len));
            previous = first;
        }
        out
    }
}

/// A block of a map, without its entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapBlock {
    /// Old offset of its first entry.
    pub first: u64,
    /// Number of entries.
    pub entries: u64,
    /// Place of the block in the map.
    pub handle: Handle,
}

/// The root of a map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapRoot {
    /// Value files that the map points to, in increasing order.
    pub targets: Vec<ValueFileId>,
    /// Number of entries.
    pub entries: u64,
    /// Blocks, in increasing order of old offsets.
    pub blocks: Vec<MapBlock>,
}

impl MapRoot {
    /// Decodes the root that begins at `limit` of its map.
    pub fn decode(bytes: &[u8], limit: u64) -> Result<MapRoot, Corruption> {
        let at = |what| Err(Corruption::new(what, limit));
        let mut reader = Reader::at(bytes, limit);
        let count = reader.count(1)?;
        if count > MAX_MAP_TARGETS {
            return at("map points to too many value files");
        }
        let mut root = MapRoot { targets: Vec::with_capacity(count), entries: 0, blocks: Vec::new() };
        for _ in 0..count {
            root.targets.push(ValueFileId(reader.varint_up_to(MAX_NUMBER)?));
        }
        root.entries = reader.varint_up_to(MAX_LEN)?;
        let count = reader.count(3)?;
        root.blocks.reserve_exact(count);
        let (mut first, mut offset, mut entries) = (0u64, MAP_HEADER_LEN as u64, 0u64);
        for index in 0..count {
            let distance = reader.varint_up_to(MAX_LEN)?;
            let of_block = reader.varint_up_to(MAX_LEN)?;
            let handle = Handle { offset, sealed_len: reader.varint_u32()? };
            first = first.saturating_add(distance);
            entries = entries.saturating_add(of_block);
            offset = handle.end();
            if first > MAX_LEN || (index > 0 && distance == 0) {
                return at("blocks of the map are out of order");
            }
            root.blocks.push(MapBlock { first, entries: of_block, handle });
        }
        reader.finish()?;
        if offset != limit || entries != root.entries {
            return at("parts of the map are not next to each other");
        }
        if root.blocks.iter().any(|block| block.entries == 0) || !root.targets.is_sorted_by(|a, b| a < b) {
            return at("root of the map is not in canonical form");
        }
        if root.entries == 0 {
            return at("map has no entries");
        }
        Ok(root)
    }

    /// Returns the block that holds `old_offset`, if the map has it.
    #[must_use]
    pub fn block_of(&self, old_offset: u64) -> Option<&MapBlock> {
        let after = self.blocks.partition_point(|block| block.first <= old_offset);
        self.blocks.get(after.checked_sub(1)?)
    }

    /// Decodes all entries of `block`, whose content without its seal is `bytes`, and passes them to `visit` until it
    /// returns false.
    pub fn each_entry(
        &self,
        block: &MapBlock,
        bytes: &[u8],
        mut visit: impl FnMut(u64, NewPlace) -> bool,
    ) -> Result<(), Corruption> {
        let mut reader = Reader::at(bytes, block.handle.offset);
        let mut old = 0u64;
        for index in 0..block.entries {
            let distance = reader.varint_up_to(MAX_LEN)?;
            old = old.saturating_add(distance);
            if old > MAX_LEN || (index == 0 && old != block.first) || (index > 0 && distance == 0) {
                return Err(reader.damage("entries of the map are out of order"));
            }
            let target = reader.varint_up_to(MAX_MAP_TARGETS as u64)? as usize;
            let Some(&file) = self.targets.get(target) else {
                return Err(reader.damage("map names a value file that it does not list"));
            };
            let offset = reader.varint_up_to(MAX_LEN)?;
            if !visit(old, NewPlace { file, offset }) {
                return Ok(());
            }
        }
        reader.finish()
    }

    /// Returns where the record went that was at `old_offset`, if the map has it. `bytes` are the content of the block
    /// that [`MapRoot::block_of`] returned, without its seal.
    pub fn find(
        &self,
        block: &MapBlock,
        bytes: &[u8],
        old_offset: u64,
    ) -> Result<Option<NewPlace>, Corruption> {
        let mut found = None;
        self.each_entry(block, bytes, |old, new| {
            if old == old_offset {
                found = Some(new);
            }
            old < old_offset
        })?;
        Ok(found)
    }
}
