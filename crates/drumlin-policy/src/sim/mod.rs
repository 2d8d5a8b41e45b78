//! Trees without data, on which policies are tried out: bytes, runs, merges, and virtual time.
//!
//! - [`world`]: a tree with flushes, admitted plans, their pieces and installs, under the same rules of
//!   legality and waiting as in the engine.
//! - [`desk`]: one decision over many runs, for what it costs; [`crowd`]: one admission over many files.
//! - [`mod@unit`]: equal flushes and instant merges, for exact figures.
//! - [`pipeline`]: slots and a device in virtual time, for the scheduler.
//! - [`mod@phases`]: changing mixes of operations in virtual time; `waits` of its writers, `foresight` of
//!   its policy, `space` of its tables, `neighbours` that merges wait for.

pub mod crowd;
pub mod desk;
pub mod foresight;
mod neighbours;
pub mod phases;
pub mod pipeline;
mod space;
pub mod unit;
mod waits;
pub mod world;

pub use phases::{PLANS, PhaseReport, Setup, Stage, phases, stages};
pub use unit::{UnitReport, unit_flushes};
pub use world::{Totals, World};
