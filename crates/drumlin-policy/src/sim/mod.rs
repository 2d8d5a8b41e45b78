//! Trees without data, on which policies are tried out: counts of bytes, runs and merges, no time yet.
//!
//! - [`world`]: a tree with flushes, admitted plans, their pieces and installs, under the same rules of
//!   legality and waiting as in the engine.
//! - [`mod@unit`]: equal flushes and instant merges, for exact figures.

pub mod unit;
pub mod world;

pub use unit::{UnitReport, unit_flushes};
pub use world::{Totals, World};
