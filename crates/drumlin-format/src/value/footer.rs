//! Footer of value files and maps: the place of the block that describes the rest of the file.
//!
//! ```text
//!  0  offset         u64   of the described block
//!  8  sealed length  u32
//! 12  version        u32
//! 16  checksum       u32   over bytes 0..16; bound to the file's number and the footer's offset
//! 20  magic          8 bytes, one per file kind
//! ```

use crate::bytes::{Reader, put_u32, put_u64};
use crate::checksum::checksum;
use crate::error::{Corruption, DecodeError};
use crate::limits::MAX_LEN;
use crate::table::Handle;
use alloc::vec::Vec;

/// Length of the footer.
pub const FOOTER_LEN: usize = 28;
const COVERED_LEN: usize = 16;

/// Parameters of one kind of footer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FooterKind {
    pub(super) magic: [u8; 8],
    pub(super) version: u32,
    pub(super) version_name: &'static str,
}

/// Footer of a value file or a map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Footer {
    /// Place of the properties of a value file, or of the root of a map.
    pub root: Handle,
}

impl Footer {
    /// Encodes the footer at `offset` of the file `file_id`.
    #[must_use]
    pub fn encode(&self, kind: FooterKind, file_id: u64, offset: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_LEN);
        put_u64(&mut out, self.root.offset);
        put_u32(&mut out, self.root.sealed_len);
        put_u32(&mut out, kind.version);
        let sum = checksum(file_id, offset, &[&out]);
        put_u32(&mut out, sum);
        out.extend_from_slice(&kind.magic);
        out
    }

    /// Decodes the footer of the file `file_id` of length `file_len` from its last [`FOOTER_LEN`] bytes.
    pub fn decode(
        kind: FooterKind,
        bytes: &[u8],
        file_id: u64,
        file_len: u64,
    ) -> Result<Footer, DecodeError> {
        let offset = file_len.saturating_sub(FOOTER_LEN as u64);
        let at = |what| Corruption::new(what, offset);
        if bytes.len() != FOOTER_LEN || file_len < FOOTER_LEN as u64 {
            return Err(at("file is shorter than its footer").into());
        }
        let (covered, rest) = bytes.split_at(COVERED_LEN);
        let mut reader = Reader::at(rest, offset);
        let sum = reader.u32()?;
        if reader.array::<8>()? != kind.magic {
            return Err(at("file does not end with the magic of its kind").into());
        }
        if checksum(file_id, offset, &[covered]) != sum {
            return Err(at("footer: checksum mismatch").into());
        }
        let mut reader = Reader::at(covered, offset);
        let root = Handle { offset: reader.u64_up_to(MAX_LEN)?, sealed_len: reader.u32()? };
        match reader.u32()? {
            0 => Err(at("file has no version").into()),
            version if version > kind.version => {
                Err(DecodeError::NewerFormat { what: kind.version_name, found: version, known: kind.version })
            }
            _ => Ok(Footer { root: root.check(offset, offset)? }),
        }
    }
}
