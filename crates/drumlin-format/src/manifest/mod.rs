//! The manifest: the store's state as a sequence of atomic edits.
//!
//! ```text
//! manifest   header block, 32 bytes | edit | edit | ... | zeros
//!
//! header      0  magic "drumlMAN", version, checksum  (`file_header`)
//!            16  number       u64   of this manifest
//!            24  store id     u64   random, chosen when the store was created
//!
//! edit        0  checksums, length                 (`frame`)
//!            12  chain        u32   header checksum of the previous edit; of the header block in the first edit
//!            16  synced mark  u64   offset in this file below which all was durable when this edit was written
//!            24  index        u64   0, 1, 2, ...
//!            32  changes (`codec`), then zeros up to a multiple of 8
//! ```
//!
//! The file is padded with zeros to a multiple of 16 KiB. It is extended to that length, durably, before the edits that
//! need the space are written. A shorter file has therefore been truncated and is corrupt.
//!
//! The first edits of a manifest hold the whole state; later edits hold changes to it. A new manifest is written to a
//! new file. The file and its directory are synced, and then the file `CURRENT` (`pointer`) makes it current. `CURRENT`
//! also stores the length of the manifest at that time. A manifest that was opened for reading is never appended to,
//! since its tail may be torn.
//!
//! Reading stops at the first place without a valid edit. If `CURRENT`, or the mark of a later edit, proves that
//! bytes after that place were durable, the manifest is corrupt. Otherwise those bytes were never acknowledged and are
//! ignored. An intact edit that breaks the chain, or whose changes cannot be decoded, is always corruption and never a
//! torn end.

mod change;
mod codec;

pub use change::{
    Change, Edit, FileRecord, KeyspaceLookups, MAX_BLOB_LEN, MAX_BUCKETS, MAX_CHANGES, MAX_NAME_LEN,
    MAX_VALUE_REFS, MapRecord, TableLife, ValueFileRecord, ValueFileState, ValueRef,
};

use crate::bytes::put_u64;
use crate::error::{Corruption, DecodeError, EncodeError};
use crate::file_header::HeaderKind;
use crate::frame::{self, FrameFields};
use crate::limits::MAX_NUMBER;
use alloc::vec::Vec;

/// Length of a manifest's header block.
pub const MANIFEST_HEADER_LEN: usize = 32;
/// Allocation step of a manifest's file.
pub const MANIFEST_STEP: u64 = 16 << 10;
/// Version of the manifest format.
pub const MANIFEST_VERSION: u32 = 1;

/// Returns the length of the file whose edits end at `end`.
#[must_use]
pub const fn file_len(end: u64) -> u64 {
    end.saturating_add(MANIFEST_STEP - 1) / MANIFEST_STEP * MANIFEST_STEP
}

const HEADER: HeaderKind = HeaderKind {
    magic: *b"drumlMAN",
    len: MANIFEST_HEADER_LEN,
    version: MANIFEST_VERSION,
    too_short: "manifest shorter than its header",
    wrong_magic: "not a manifest",
    version_name: "manifest format",
};

/// Header of a manifest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ManifestHeader {
    /// Number of the manifest.
    pub number: u64,
    /// Id of the store that it belongs to.
    pub store: u64,
}

impl ManifestHeader {
    fn encode(self) -> (Vec<u8>, u32) {
        let mut fields = Vec::with_capacity(16);
        put_u64(&mut fields, self.number);
        put_u64(&mut fields, self.store);
        HEADER.encode(self.number, &fields)
    }

    /// Decodes the header of the manifest numbered `number`. Also returns the first link of its chain.
    fn decode(bytes: &[u8], number: u64) -> Result<(ManifestHeader, u32), DecodeError> {
        let (mut reader, chain) = HEADER.decode(bytes, number)?;
        let header = ManifestHeader { number: reader.u64_up_to(MAX_NUMBER)?, store: reader.u64()? };
        if header.number != number {
            return Err(Corruption::new("manifest header names another manifest", 16).into());
        }
        Ok((header, chain))
    }
}

/// Encodes a manifest edit by edit. It does no I/O: the caller writes the returned bytes in order.
#[derive(Clone, Debug)]
pub struct ManifestWriter {
    number: u64,
    offset: u64,
    chain: u32,
    index: u64,
    synced: u64,
}

impl ManifestWriter {
    /// Begins a manifest. Also returns its header block.
    #[must_use]
    pub fn create(header: ManifestHeader) -> (ManifestWriter, Vec<u8>) {
        let (block, chain) = header.encode();
        let offset = block.len() as u64;
        (ManifestWriter { number: header.number, offset, chain, index: 0, synced: 0 }, block)
    }

    /// Returns the offset of the next edit: the length of the file so far, without padding.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Encodes `edit`. The returned bytes belong at the [`offset`](Self::offset) before the call.
    pub fn append(&mut self, edit: &Edit) -> Result<Vec<u8>, EncodeError> {
        let payload = edit.encode()?;
        let fields = FrameFields { tag: self.chain, mark: self.synced, word: self.index };
        let mut bytes = Vec::new();
        self.chain = frame::put_frame(&mut bytes, self.number, self.offset, fields, &payload)?;
        self.offset += bytes.len() as u64;
        self.index += 1;
        Ok(bytes)
    }

    /// Records that the file is durable up to `offset`. Later edits carry this offset as their mark.
    pub fn synced_to(&mut self, offset: u64) {
        self.synced = self.synced.max(offset.min(self.offset));
    }
}

/// Iterator over the edits of a manifest.
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
    /// Returns a scanner of `bytes`, which hold the manifest numbered `number` from its start.
    pub fn new(bytes: &'a [u8], number: u64) -> Result<ManifestScanner<'a>, DecodeError> {
        let (header, chain) = ManifestHeader::decode(bytes, number)?;
        let offset = MANIFEST_HEADER_LEN as u64;
        Ok(ManifestScanner { bytes, header, offset, chain, index: 0, over: false })
    }

    /// Returns the header of the manifest.
    #[must_use]
    pub const fn header(&self) -> ManifestHeader {
        self.header
    }

    /// Returns the offset after the edits scanned so far.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the largest mark of any edit after those scanned so far.
    #[must_use]
    pub fn later_mark(&self) -> Option<u64> {
        frame::later_mark(self.bytes, self.header.number, self.offset)
    }

    /// Returns whether the file was truncated: it is shorter than the edits scanned so far require, or the next edit
    /// extends beyond its end.
    fn is_cut(&self) -> bool {
        (self.bytes.len() as u64) < file_len(self.offset)
            || frame::is_cut(self.bytes, self.header.number, self.offset)
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

/// Returns whether `bytes`, the manifest numbered `number`, were ever the current manifest. A manifest receives edits
/// with a mark only while it is current.
#[must_use]
pub fn was_in_force(bytes: &[u8], number: u64) -> bool {
    frame::later_mark(bytes, number, MANIFEST_HEADER_LEN as u64).is_some_and(|mark| mark > 0)
}

/// Result of reading a manifest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ManifestEnd {
    /// Header of the manifest.
    pub header: ManifestHeader,
    /// Offset after the last edit.
    pub end: u64,
    /// Number of edits.
    pub edits: u64,
    /// Whether bytes that were never acknowledged followed and were ignored.
    pub torn: bool,
}

/// Decodes the manifest numbered `number` from `bytes` and passes its edits to `visit` in order.
///
/// `synced` is the durable length of the manifest according to the pointer. If this fails, the visited edits must not
/// be used.
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
    if scanner.is_cut() {
        return Err(DecodeError::from(Corruption::new(
            "manifest is truncated: it is shorter than its allocated length",
            bytes.len() as u64,
        ))
        .into());
    }
    if end < synced || scanner.later_mark().is_some_and(|mark| mark > end) {
        let what = "manifest is damaged before a position that was durable";
        return Err(DecodeError::from(Corruption::new(what, end)).into());
    }
    let torn = bytes.iter().skip(end as usize).any(|byte| *byte != 0);
    Ok(ManifestEnd { header: scanner.header(), end, edits, torn })
}
