//! Errors of decoders and encoders.
//!
//! A decoder can fail in two ways: the bytes are corrupt, or a newer version of Drumlin wrote them. The error says what
//! was being decoded and at which offset of the input. The caller adds the kind and number of the file. Messages are
//! fixed strings, so an error never contains user data, and creating one allocates nothing.

use core::fmt;

/// Corruption: bytes that no version of Drumlin writes at this place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corruption {
    /// What was being decoded, and what is wrong with it.
    pub what: &'static str,
    /// Offset of the fault, from the start of the decoder's input, or of the file if the decoder was given its place.
    pub offset: u64,
}

impl Corruption {
    /// Returns a corruption error at `offset`.
    pub const fn new(what: &'static str, offset: u64) -> Corruption {
        Corruption { what, offset }
    }

    /// Returns the same error for an input that begins at `base` of its file.
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

/// Reason why bytes could not be decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// The bytes are corrupt.
    Corruption(Corruption),
    /// The bytes are intact, but only a newer version understands them.
    NewerFormat {
        /// What was being decoded.
        what: &'static str,
        /// Version, or tag of the item, that was found.
        found: u32,
        /// Newest version or tag that this build understands.
        known: u32,
    },
}

impl DecodeError {
    /// Returns the same error for an input that begins at `base` of its file.
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

/// A value that the format cannot represent. Encoders reject every value that their decoder would reject.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EncodeError {
    /// Limit that the value breaks.
    pub what: &'static str,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }
}

impl core::error::Error for EncodeError {}
