//! Every byte that Drumlin puts on disk, described once: pure functions between bytes and values.
//!
//! ```text
//! names      which files there are          pointer    CURRENT: the manifest in force
//! log        segments, records, recovery    manifest   edits of the store's state
//! batch      the payload of a log record    decisions  what policies decided, and why
//!
//! bytes      checked reading, varints       checksum   CRC-32C bound to file and offset; XXH3
//! error      damaged, or newer              frame      records of append-only files
//!                                           file_header
//! ```
//!
//! Rules that hold for all of it:
//! - No byte is used before its checksum is verified, and a checksum covers the file's number and the offset: a
//!   piece in the wrong place is damage. (The pointer has no number; the manifest that it names has.)
//! - Bytes are hostile. A decoder gives an error that names the offset; it never panics, and allocates in
//!   proportion to its input, within named limits (`MAX_..`).
//! - One encoding per value. An encoder refuses what its decoder would refuse.
//! - Each file kind has a version at a place that never moves. A newer one is an error of its own kind.
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
pub mod log;
pub mod manifest;
pub mod names;
pub mod pointer;
pub mod seal;
pub mod table;

/// Longest bound of a key range, in bytes: the successor of a longest key.
pub const MAX_BOUND_LEN: usize = drumlin_types::MAX_KEY_LEN + 1;
