//! What can be wrong with bytes from disk.
//!
//! Two things only: the bytes are damaged, or a newer Drumlin wrote them. A decoder knows what it was reading
//! and how far into its input it had come; the caller knows which file that was, and adds kind and number.
//! Messages are fixed strings, so no error ever carries a user's bytes, and making one allocates nothing.

use core::fmt;

/// Bytes that no version of Drumlin can have written here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corruption {
    /// What was being read and what is wrong with it.
    pub what: &'static str,
    /// Where, in bytes from the start of the decoder's input, or of the file where the decoder was told its place.
    pub offset: u64,
}

impl Corruption {
    /// Damage found at `offset`.
    pub const fn new(what: &'static str, offset: u64) -> Corruption {
        Corruption { what, offset }
    }

    /// The same damage, for an input that begins at `base` of its file.
    #[must_use]
    pub const fn based(self, base: u64) -> Corruption {
        Corruption { what: self.what, offset: self.offset.saturating_add(base) }
    }
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {}", self.what, self.offset)
    }
}

impl core::error::Error for Corruption {}

/// Why bytes could not be decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// The bytes are damaged.
    Corruption(Corruption),
    /// The bytes are sound, but only a newer version understands them.
    NewerFormat {
        /// What was being read.
        what: &'static str,
        /// The version, or the tag of the item, that was found.
        found: u32,
        /// The newest one that this build knows.
        known: u32,
    },
}

impl DecodeError {
    /// The same error, for an input that begins at `base` of its file.
    #[must_use]
    pub const fn based(self, base: u64) -> DecodeError {
        match self {
            DecodeError::Corruption(damage) => DecodeError::Corruption(damage.based(base)),
            newer @ DecodeError::NewerFormat { .. } => newer,
        }
    }
}

impl From<Corruption> for DecodeError {
    fn from(damage: Corruption) -> DecodeError {
        DecodeError::Corruption(damage)
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Corruption(damage) => damage.fmt(f),
            DecodeError::NewerFormat { what, found, known } => {
                write!(f, "{what} {found} is newer than {known}, the newest that this version understands")
            }
        }
    }
}

impl core::error::Error for DecodeError {}

/// A value that the format cannot hold. Encoders refuse whatever their decoder would.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EncodeError {
    /// Which limit the value breaks.
    pub what: &'static str,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }
}

impl core::error::Error for EncodeError {}
