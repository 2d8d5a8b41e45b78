//! Shared vocabulary of Drumlin: keys, ranges, sequence numbers, ids, and the contract between engine and policies.
//!
//! The contract ([`contract`]) says what a policy sees, what it may return, and which plans are legal.
//!
//! This crate holds plain data that two crates must agree on, and the rules of the tree that engine and policies
//! both check. It holds no I/O, clocks, threads, randomness or on-disk encodings.
//!
//! Architecture invariant: this crate depends on no other crate of the workspace and is `no_std`.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod bug;
pub mod contract;
pub mod history;
mod id;
mod key;
mod seq;
mod spelling;

pub use id::{KeyspaceId, LogNumber, RunId, TableId, Ticket, ValueFileId};
pub use key::{Key, KeyRange};
pub use seq::{Kind, Seq};
pub use spelling::nearest;

/// Number of levels of a tree: level 0 (newest data) to [`MAX_LEVEL`].
pub const LEVELS: usize = 7;
/// The deepest level.
pub const MAX_LEVEL: u8 = LEVELS as u8 - 1;
/// Maximum length of a user key, in bytes. Keys are copied into index entries and file bounds, so they must stay
/// small compared with a block.
pub const MAX_KEY_LEN: usize = 1 << 20;
/// Maximum length of a value, in bytes. Lengths are stored in 32 bits.
pub const MAX_VALUE_LEN: u64 = u32::MAX as u64;
