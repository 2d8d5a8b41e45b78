//! The pointer: the file `CURRENT`, which names the current manifest.
//!
//! ```text
//! drumlin 1                 format version
//! manifest 000012           number of the current manifest, at least six digits
//! synced 4096               length up to which that manifest was durable when the pointer was written
//! check 89abcdef            checksum of all preceding bytes, in hexadecimal
//! ```
//!
//! The file is text, so that a person can read it. Every line ends with a newline, and the comments above are not part
//! of the file. The checksum is bound to file number 0 and offset 0, since the pointer is the one file without a
//! number.
//!
//! `synced` distinguishes corruption from a torn write: without it, damage at the end of a new manifest would look like
//! a torn tail. The first and the last line have the same form in all versions.
//!
//! Invariant: each pointer has exactly one encoding. A reader accepts only what the writer would write.

use crate::checksum::checksum;
use crate::error::{Corruption, DecodeError};
use crate::limits::{MAX_LEN, MAX_NUMBER};
use alloc::format;
use alloc::string::String;

/// Version of the pointer's format.
pub const POINTER_VERSION: u32 = 1;
/// Maximum length of the file; a longer file is corrupt.
pub const MAX_POINTER_LEN: usize = 256;

/// Content of the pointer file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pointer {
    /// Number of the current manifest.
    pub manifest: u64,
    /// Length of the manifest when the pointer was written. All of it is durable.
    pub synced: u64,
}

impl Pointer {
    /// Returns the content of the file.
    #[must_use]
    pub fn encode(&self) -> String {
        let Pointer { manifest, synced } = self;
        let text = format!("drumlin {POINTER_VERSION}\nmanifest {manifest:06}\nsynced {synced}\n");
        let check = checksum(0, 0, &[text.as_bytes()]);
        format!("{text}check {check:08x}\n")
    }

    /// Decodes the content of the file.
    pub fn decode(bytes: &[u8]) -> Result<Pointer, DecodeError> {
        let damaged = |what| DecodeError::from(Corruption::new(what, 0));
        if bytes.len() > MAX_POINTER_LEN {
            return Err(damaged("pointer is too long"));
        }
        let content = core::str::from_utf8(bytes).map_err(|_| damaged("pointer is not text"))?;
        let Some((text, check)) = content.split_once("check ") else {
            return Err(damaged("pointer has no checksum"));
        };
        if check != format!("{:08x}\n", checksum(0, 0, &[text.as_bytes()])) {
            return Err(damaged("CURRENT: checksum mismatch"));
        }
        let mut lines = text.lines();
        let mut field = |name: &str| -> Option<u64> {
            let (found, value) = lines.next()?.split_once(' ')?;
            (found == name).then(|| value.parse().ok()).flatten()
        };
        let version = field("drumlin").and_then(|version| u32::try_from(version).ok());
        match version {
            None | Some(0) => return Err(damaged("pointer has no version")),
            Some(found) if found > POINTER_VERSION => {
                return Err(DecodeError::NewerFormat {
                    what: "pointer format",
                    found,
                    known: POINTER_VERSION,
                });
            }
            Some(_) => {}
        }
        let (Some(manifest), Some(synced)) = (field("manifest"), field("synced")) else {
            return Err(damaged("pointer lacks a field"));
        };
        if manifest > MAX_NUMBER || synced > MAX_LEN {
            return Err(damaged("number exceeds its limit"));
        }
        let pointer = Pointer { manifest, synced };
        if pointer.encode().as_bytes() != bytes {
            return Err(damaged("pointer is not in canonical form"));
        }
        Ok(pointer)
    }
}
