//! The manifest: the store's state as a sequence of edits, each of which happens whole or not at all.
//!
//! ```text
//! manifest   header block, 32 bytes | edit | edit | ...
//!
//! header      0  magic, version, checksum          (`file_header`)
//!            16  number       u64   of this manifest
//!            24  store id     u64   drawn when the store was created
//!
//! edit        0  checksums, length                 (`frame`)
//!            12  chain        u32   header checksum of the edit before; of the header block in the first
//!            16  synced mark  u64   offset in this file below which all was durable when this was written
//!            24  index        u64   0, 1, 2, ...
//!            32  changes (`edit`), zeros up to a multiple of 8
//! ```
//!
//! The first edits of a manifest hold the whole state; those after it hold what changed. A new manifest is written
//! to a new file, synced with its directory, and made current by the pointer (`pointer`), which also says how long
//! it was then. A manifest is never appended to after it was opened for reading: its tail may be torn.
//!
//! The end. Reading stops at the first place that holds no edit. Whatever follows was never promised, unless the
//! pointer or the mark of a later edit says that it was durable: then the manifest is damaged. An edit that is
//! intact but breaks the chain, or whose changes cannot be read, is never taken for a torn end.

mod change;
mod codec;

pub use change::{
    Change, Edit, FileRecord, MAX_BLOB_LEN, MAX_CHANGES, MAX_NAME_LEN, MAX_VALUE_REFS, MapRecord,
    ValueFileRecord, ValueFileState, ValueRef,
};

use crate::bytes::put_u64;
use crate::error::{Corruption, DecodeError, EncodeError};
use crate::file_header::HeaderKind;
use crate::frame::{self, FrameFields};
use alloc::vec::Vec;

/// Bytes of the block that opens a manifest.
pub const MANIFEST_HEADER_LEN: usize = 32;
/// Version of the manifest format.
pub const MANIFEST_VERSION: u32 = 1;

const HEADER: HeaderKind = HeaderKind {
    magic: *b"drumlMAN",
    len: MANIFEST_HEADER_LEN,
    version: MANIFEST_VERSION,
    too_short: "manifest shorter than its header",
    wrong_magic: "not a manifest",
    version_name: "manifest format",
};

/// What a manifest says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ManifestHeader {
    /// Its number.
    pub number: u64,
    /// The store that it belongs to.
    pub store: u64,
}

impl ManifestHeader {
    fn encode(self) -> (Vec<u8>, u32) {
        let mut fields = Vec::with_capacity(16);
        put_u64(&mut fields, self.number);
        put_u64(&mut fields, self.store);
        HEADER.encode(self.number, &fields)
    }

    /// Reads the header of the manifest numbered `number`, and the first link of its chain.
    fn decode(bytes: &[u8], number: u64) -> Result<(ManifestHeader, u32), DecodeError> {
        let (mut reader, chain) = HEADER.decode(bytes, number)?;
        let header = ManifestHeader { number: reader.u64()?, store: reader.u64()? };
        if header.number != number {
            return Err(Corruption::new("manifest header names another manifest", 16).into());
        }
        Ok((header, chain))
    }
}

/// Makes the bytes of a manifest, edit by edit. It does no I/O: the caller writes what it returns, in order.
#[derive(Clone, Debug)]
pub struct ManifestWriter {
    number: u64,
    offset: u64,
    chain: u32,
    index: u64,
    synced: u64,
}

impl ManifestWriter {
    /// Begins a manifest; returns the bytes that open the file, too.
    #[must_use]
    pub fn create(header: ManifestHeader) -> (ManifestWriter, Vec<u8>) {
        let (block, chain) = header.encode();
        let offset = block.len() as u64;
        (ManifestWriter { number: header.number, offset, chain, index: 0, synced: 0 }, block)
    }

    /// Where the next edit belongs: the length of the file so far.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// The bytes of `edit`, which belong at [`offset`](Self::offset) as it was before the call.
    pub fn append(&mut self, edit: &Edit) -> Result<Vec<u8>, EncodeError> {
        let payload = edit.encode()?;
        let fields = FrameFields { tag: self.chain, mark: self.synced, word: self.index };
        let mut bytes = Vec::new();
        self.chain = frame::put_frame(&mut bytes, self.number, self.offset, fields, &payload)?;
        self.offset += bytes.len() as u64;
        self.index += 1;
        Ok(bytes)
    }

    /// Takes note that the file is durable up to `offset`. Later edits carry it as their mark.
    pub fn synced_to(&mut self, offset: u64) {
        self.synced = self.synced.max(offset.min(self.offset));
    }
}

/// Walks over the edits of a manifest.
#[derive(Clone, Debug)]
pub struct ManifestScanner<'a> {
    bytes: &'a [u8],
    header: ManifestHeader,
    offset: u64,
    chain: u32,
    index: u64,
    over: bool,
}

impl<'a> ManifestScanner<'a> {
    /// Walks over `bytes`, the manifest numbered `number` from its start.
    pub fn new(bytes: &'a [u8], number: u64) -> Result<ManifestScanner<'a>, DecodeError> {
        let (header, chain) = ManifestHeader::decode(bytes, number)?;
        let offset = MANIFEST_HEADER_LEN as u64;
        Ok(ManifestScanner { bytes, header, offset, chain, index: 0, over: false })
    }

    /// What the manifest says about itself.
    #[must_use]
    pub const fn header(&self) -> ManifestHeader {
        self.header
    }

    /// Offset behind the edits walked over so far.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// The largest mark of any edit behind those walked over so far.
    #[must_use]
    pub fn later_mark(&self) -> Option<u64> {
        frame::later_mark(self.bytes, self.header.number, self.offset)
    }

    fn edit(&mut self) -> Result<Option<Edit>, DecodeError> {
        let found = match frame::read_frame(self.bytes, self.header.number, self.offset) {
            frame::Found::Frame(found) => found,
            frame::Found::Blank | frame::Found::Bad => return Ok(None),
        };
        let FrameFields { tag, mark, word } = found.fields;
        if tag != self.chain || word != self.index {
            return Err(Corruption::new("manifest edit does not follow the one before", self.offset).into());
        }
        if mark > self.offset {
            return Err(Corruption::new("manifest edit with a synced mark beyond itself", self.offset).into());
        }
        let payload_at = self.offset.saturating_add(frame::FRAME_HEADER_LEN as u64);
        let edit = Edit::decode(found.payload).map_err(|error| error.based(payload_at))?;
        self.offset = found.end;
        self.chain = found.checksum;
        self.index += 1;
        Ok(Some(edit))
    }
}

impl Iterator for ManifestScanner<'_> {
    type Item = Result<Edit, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let found = self.edit();
        self.over = !matches!(found, Ok(Some(_)));
        found.transpose()
    }
}

/// What was read from a manifest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ManifestEnd {
    /// What the manifest says about itself.
    pub header: ManifestHeader,
    /// Offset behind the last edit.
    pub end: u64,
    /// Number of edits.
    pub edits: u64,
    /// Whether something unpromised followed and was dropped.
    pub torn: bool,
}

/// Reads the manifest numbered `number` from `bytes` and hands its edits to `visit` in order. The pointer says that
/// it was durable up to `synced`. If this fails, what was visited must not be used.
pub fn replay<E: From<DecodeError>>(
    bytes: &[u8],
    number: u64,
    synced: u64,
    mut visit: impl FnMut(Edit) -> Result<(), E>,
) -> Result<ManifestEnd, E> {
    let mut scanner = ManifestScanner::new(bytes, number)?;
    let mut edits = 0;
    for edit in scanner.by_ref() {
        visit(edit?)?;
        edits += 1;
    }
    let end = scanner.offset();
    if end < synced || scanner.later_mark().is_some_and(|mark| mark > end) {
        let what = "manifest is damaged before a position that was durable";
        return Err(DecodeError::from(Corruption::new(what, end)).into());
    }
    Ok(ManifestEnd { header: scanner.header(), end, edits, torn: end < bytes.len() as u64 })
}
