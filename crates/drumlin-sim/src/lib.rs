//! Simulators for policies and the scheduler: trees without data, with bytes, runs, compactions and virtual time.
//!
//! - [`world`]: a tree with flushes, admitted plans, their pieces and installs, under the engine's rules of legality
//!   and waiting.
//! - [`desk`]: one decision over many runs, to measure its cost. [`crowd`]: one admission over many files.
//! - [`mod@unit`]: equal flushes and instant compactions, for exact figures.
//! - [`mod@trade_off`]: what growth schemes write and how many runs they keep, without a tree.
//! - [`values`]: value files without a tree, for what collection copies.
//! - [`pipeline`]: slots and a device in virtual time, for the scheduler.
//! - [`mod@phases`]: changing operation mixes in virtual time. It uses `waits` (of writers), `foresight` (policy
//!   predictions), `space` (of tables) and `neighbours` (busy files that compactions wait for).
//!
//! The crate is for tests, benchmarks and the command; no program that embeds a store needs it. Like the code that it
//! runs, it is pure: no I/O, clocks, threads or locks.
//!
//! Architecture invariant: this crate depends on `drumlin-types` and `drumlin-policy` alone and is `no_std`.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod crowd;
pub mod desk;
pub mod foresight;
mod neighbours;
pub mod phases;
pub mod pipeline;
mod space;
pub mod trade_off;
pub mod unit;
pub mod values;
mod waits;
pub mod world;

pub use phases::{PLANS, PhaseReport, Setup, Stage, phases, stages};
pub use trade_off::{Scheme, least_writes, trade_off};
pub use unit::{UnitReport, unit_flushes};
pub use world::{Totals, World};
