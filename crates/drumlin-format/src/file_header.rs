//! File header: the first block of a log segment, a manifest, a decision log, a value file or a map.
//!
//! ```text
//!  0  magic      8 bytes, one per file kind
//!  8  version    u32   format version of the file
//! 12  checksum   u32   over the whole block except these four bytes; bound to the file's number and offset 0
//! 16  fields           defined by the file kind; zeros up to the end of the block
//! ```
//!
//! The first sixteen bytes and the length of the block are the same in all versions, so that every version can
//! distinguish "newer" from "corrupt". The file number in the checksum makes a header invalid in a renamed or recycled
//! file.

use crate::bytes::{Reader, put_u32};
use crate::checksum::checksum;
use crate::error::{Corruption, DecodeError};
use alloc::vec::Vec;

/// Length of the part before the fields.
pub(crate) const PREFIX_LEN: usize = 16;
/// Length of the part before the checksum.
const BEFORE_CHECKSUM: usize = 12;

/// Parameters of one kind of file header.
pub(crate) struct HeaderKind {
    pub(crate) magic: [u8; 8],
    /// Length of the block.
    pub(crate) len: usize,
    /// Newest version that this build understands, and the one that it writes.
    pub(crate) version: u32,
    /// Error messages.
    pub(crate) too_short: &'static str,
    pub(crate) wrong_magic: &'static str,
    pub(crate) version_name: &'static str,
}

impl HeaderKind {
    /// Encodes the header block of the file numbered `number`; returns the block and its checksum. The fields must fit.
    pub(crate) fn encode(&self, number: u64, fields: &[u8]) -> (Vec<u8>, u32) {
        let mut block = Vec::with_capacity(self.len);
        block.extend_from_slice(&self.magic);
        put_u32(&mut block, self.version);
        let mut rest = fields.to_vec();
        debug_assert!(PREFIX_LEN + rest.len() <= self.len, "fields fit into the block");
        rest.resize(self.len - PREFIX_LEN, 0);
        let sum = checksum(number, 0, &[&block, &rest]);
        put_u32(&mut block, sum);
        block.extend_from_slice(&rest);
        (block, sum)
    }

    /// Verifies the block at the start of `bytes`, of the file numbered `number`. Returns its fields and its checksum.
    pub(crate) fn decode<'a>(&self, bytes: &'a [u8], number: u64) -> Result<(Reader<'a>, u32), DecodeError> {
        let mut reader = Reader::new(bytes);
        let Ok(block) = reader.bytes(self.len) else {
            return Err(Corruption::new(self.too_short, 0).into());
        };
        let mut reader = Reader::new(block);
        let front = reader.bytes(BEFORE_CHECKSUM)?;
        let stored = reader.u32()?;
        if !front.starts_with(&self.magic) {
            return Err(Corruption::new(self.wrong_magic, 0).into());
        }
        if checksum(number, 0, &[front, reader.peek()]) != stored {
            return Err(Corruption::new("file header: checksum mismatch", 0).into());
        }
        match self.version_of(front)? {
            0 => Err(Corruption::new("format version 0", self.magic.len() as u64).into()),
            version if version > self.version => {
                Err(DecodeError::NewerFormat { what: self.version_name, found: version, known: self.version })
            }
            _ => Ok((reader, stored)),
        }
    }

    /// Returns the version in the block at the start of `bytes`.
    pub(crate) fn version_of(&self, bytes: &[u8]) -> Result<u32, Corruption> {
        Reader::new(bytes.get(self.magic.len()..).unwrap_or_default()).u32()
    }
}
