//! The pointer: the file `CURRENT`, which says which manifest is in force.
//!
//! ```text
//! drumlin 1
//! manifest 000012
//! synced 4096
//! check 89abcdef
//! ```
//!
//! Text, so that a person can read it. The last line is a checksum of all before it, in hexadecimal, bound to no
//! file number, since the pointer is the one file that has none. `synced` is the length up to which the manifest
//! was durable when the pointer was written: without it, damage at the end of a fresh manifest would look like a
//! torn tail. The first line and the last keep their form in all versions.
//!
//! Invariant: one content for one pointer. A reader accepts exactly what the writer would write.

use crate::checksum::checksum;
use crate::error::{Corruption, DecodeError};
use alloc::format;
use alloc::string::String;

/// Version of the pointer's format.
pub const POINTER_VERSION: u32 = 1;
/// Longest content that is looked at.
pub const MAX_POINTER_LEN: usize = 256;

/// Which manifest is in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pointer {
    /// Its number.
    pub manifest: u64,
    /// Its length when the pointer was written, all of it durable.
    pub synced: u64,
}

impl Pointer {
    /// The content of the file.
    #[must_use]
    pub fn encode(&self) -> String {
        let Pointer { manifest, synced } = self;
        let text = format!("drumlin {POINTER_VERSION}\nmanifest {manifest:06}\nsynced {synced}\n");
        let check = checksum(0, 0, &[text.as_bytes()]);
        format!("{text}check {check:08x}\n")
    }

    /// Reads the content of the file.
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
            return Err(damaged("pointer does not match its checksum"));
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
        let pointer = Pointer { manifest, synced };
        if pointer.encode().as_bytes() != bytes {
            return Err(damaged("pointer has another form than it should"));
        }
        Ok(pointer)
    }
}
