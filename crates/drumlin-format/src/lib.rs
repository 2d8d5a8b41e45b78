//! Every byte that Drumlin puts on disk.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod batch;
pub mod bytes;
pub mod checksum;
pub mod error;
mod file_header;
mod frame;
pub mod log;
pub mod manifest;
pub mod names;
pub mod pointer;

/// Longest bound of a key range, in bytes: the successor of a longest key.
pub const MAX_BOUND_LEN: usize = drumlin_types::MAX_KEY_LEN + 1;
