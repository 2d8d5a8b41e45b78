//! Every decision that Drumlin makes, pure and deterministic: the same tree, load and costs give the same decision on
//! every machine.
//!
//! - [`budget`]: the CPU budget of policy searches.
//! - [`compaction`]: the compaction policies and their registry, [`by_name`].
//! - [`digits`]: keys as numbers, for places between two keys.
//! - [`filter`]: how many filter bits each table gets.
//! - [`growth`]: the schedules of the growth policies, for simulators.
//! - [`lifetime`]: how long a value is likely to live, and which values are written together.
//! - [`pace`]: the write rate limit.
//! - [`schedule`]: when plans run, and in what order their outputs are installed.
//! - [`share`]: how much of a file lies in a part of its bounds.
//! - [`value`]: which value files compactions collect.
//!
//! The crate chooses compactions. It contains no I/O, clocks, threads or locks, and no merging of entries.
//! `drumlin_types::contract::legal` defines which plans are legal. The crate `drumlin-sim` simulates the policies and
//! the scheduler.
//!
//! The feature `experiments` adds what only tests and experiments need: the policy `chaos`, and arguments that switch
//! parts of `arce` off. It is off by default, and `cargo xtask tidy` checks that no program that embeds a store gets it
//! unasked.
//!
//! Architecture invariant: this crate depends on `drumlin-types` alone and is `no_std`.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod budget;
pub mod compaction;
pub mod digits;
pub mod filter;
pub mod growth;
pub mod lifetime;
pub mod pace;
mod random;
mod real;
pub mod schedule;
pub mod share;
pub mod value;

pub use compaction::{by_name, names};
pub use random::SplitMix;
