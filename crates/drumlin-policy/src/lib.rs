//! Every decision that Drumlin takes, pure and deterministic: the same picture of the tree, the load and
//! the costs gives the same answer on every machine.
//!
//! - [`budget`]: the time that searches of policies get.
//! - [`compaction`]: the compaction policies and their registry, [`by_name`].
//! - [`pace`]: how fast writers are admitted.
//! - [`schedule`]: when plans run, and in what order they install.
//! - [`sim`]: trees without data, on which policies are tried out.
//!
//! What belongs here: choosing what to merge, and simulating it. What does not: I/O, clocks, threads,
//! locks, the merge itself. What is legal is decided in `drumlin_types::contract::legal`.
//!
//! Architecture invariant: this crate depends on `drumlin-types` alone and is `no_std`.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod budget;
pub mod compaction;
mod digits;
pub mod pace;
mod random;
pub mod schedule;
mod share;
pub mod sim;

pub use compaction::{by_name, names};
pub use random::SplitMix;
