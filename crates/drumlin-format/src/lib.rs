//! On-disk formats of Drumlin: pure functions between bytes and values.
//!
//! A store is a directory. Each module below describes one kind of file, or one part of it:
//!
//! ```text
//! names        file names, one per kind          pointer      CURRENT: names the current manifest
//! log          write-ahead log: segments,        manifest     edits of the store's state
//!              records, recovery                 table        sorted table file
//! batch        payload of a log record           decisions    log of policy decisions
//! value        value files, pointers to them, maps of collected ones
//!
//! block        data block of a table             index        index block of a table
//! filter       filter of a table                 seal         trailer of every table block
//! compression  compression of single blocks
//!
//! file_header  first block of most kinds of      frame        record framing of append-only files
//!              files
//! bytes        checked reads, varints, slices    checksum     CRC-32C bound to file and offset; XXH3
//! limits       largest numbers                   error        corruption, or a newer format
//! ```
//!
//! Rules for all formats:
//! - No byte is used before its checksum is verified. A checksum covers the file's number and the offset, so intact
//!   bytes in the wrong place are corruption. (The pointer file has no number; the manifest that it names has one.)
//! - Decoders trust no bytes. They return an error that names the offset, and never panic. They allocate
//!   memory in proportion to the input, within named limits (`MAX_..`).
//! - Each value has exactly one encoding. An encoder rejects every value that its decoder would reject.
//! - Each file kind stores a version number at a fixed place. A newer version is an error of its own.
//!
//! Integers of fixed width are little endian. Offsets and lengths are in bytes.
//!
//! Architecture invariant: no I/O, no clock, no randomness; `no_std`.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod batch;
pub mod block;
pub mod bytes;
pub mod checksum;
pub mod compression;
pub mod decisions;
pub mod error;
mod file_header;
pub mod filter;
mod frame;
pub mod index;
pub mod limits;
pub mod log;
pub mod manifest;
pub mod names;
pub mod pointer;
pub mod seal;
pub mod table;
pub mod value;

/// Maximum length of a key range bound, in bytes: the length of the successor of a key of maximum length.
pub const MAX_BOUND_LEN: usize = drumlin_types::MAX_KEY_LEN + 1;
