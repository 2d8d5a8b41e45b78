//! Every byte that Drumlin puts on disk.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod block;
pub mod bytes;
pub mod checksum;
pub mod compression;
pub mod error;
pub mod filter;
pub mod index;
pub mod seal;
pub mod table;
