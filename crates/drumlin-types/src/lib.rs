//! The vocabulary of Drumlin: keys, ranges, sequence numbers, ids, and the contract between the engine
//! and its policies (what a policy sees, what it may answer, what is legal).
//!
//! What belongs here: plain data that two crates must agree on, and the rules of the tree that both the
//! engine and the policies check. What does not: I/O, clocks, threads, randomness, bytes on disk.
//!
//! Architecture invariant: this crate depends on no other crate of the workspace and is `no_std`.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod bug;
pub mod contract;
mod id;
mod key;
mod seq;

pub use id::{KeyspaceId, LogNumber, RunId, TableId, Ticket, ValueFileId};
pub use key::{Key, KeyRange};
pub use seq::{Kind, Seq};

/// Levels of a tree, 0 (newest) to `MAX_LEVEL`.
pub const LEVELS: usize = 7;
/// The deepest level.
pub const MAX_LEVEL: u8 = LEVELS as u8 - 1;
/// Longest user key, in bytes. Keys live in fences and bounds, so they must stay small beside a block.
pub const MAX_KEY_LEN: usize = 1 << 20;
/// Longest value, in bytes: lengths are stored as 32 bits.
pub const MAX_VALUE_LEN: u64 = u32::MAX as u64;
