//! Growth by proven schedules (docs/design/growth.md; paper: Vertiorizon, SIGMOD 2025).
//!
//! A leveled or tiered tree decides level by level when to merge. Here the whole life of every run is planned ahead
//! for a *cycle* of n units, where a *unit* is one full flush. So the cost of a cycle is known before it begins, and
//! the schedule writes the fewest bytes for the number of runs that readers meet. At the end of the cycle a *clear*
//! moves all runs above the last two levels into these.
//!
//! ```text
//! levels 0 to 4   H: the runs of the present cycle, merged by the schedule
//! level 5         V1: key ranges that clears kept; the densest go on to V2
//! level 6         V2: most of the data, one run
//! ```
//!
//! - `horizontal-leveling:l`, `horizontal-tiering:l`: the paper's schedules, optimal for every n. Each clear pushes all
//!   of H into V2.
//! - `horizontal-lazy:T/L`: lazy leveling with the tiered schedule in place of its tiers.
//! - `vertiorizon`: the schedule with the least merge output + read weight * run units. It keeps cells in V1.
//! - `vertiorizon:paper`: the scheme as published, for comparison.
//!
//! # Where the code is
//!
//! - [`curve`], [`shape`], [`schedule`], [`widths`]: sizes of merged runs, and the optimal schedules.
//! - [`published`]: the paper's algorithms and tuning, for comparison.
//! - [`tag`], [`position`]: what the tree itself says about its cycle.
//! - [`space`], [`read_weight`], [`family`], [`tuning`]: n, V1 and the weight of reads, which policy uses what, and the
//!   next cycle.
//! - [`converge`], [`cells`], [`clear`]: merges of the present cycle, and clears. [`collapse`]: merges for readers of a
//!   store without writes.
//! - [`policy`], [`explanation`]: the policy call, and what it tells people.

mod cells;
mod clear;
mod collapse;
mod converge;
mod curve;
mod explanation;
mod family;
mod policy;
mod position;
mod published;
mod read_weight;
mod schedule;
mod shape;
mod space;
mod tag;
mod tuning;
mod widths;

use super::arguments::Arguments;
use alloc::boxed::Box;
use alloc::format;
use drumlin_types::contract::{CompactionPolicy, PolicyError};
use family::Family;
use policy::Growth;

pub(crate) use curve::SizeCurve;
pub(crate) use schedule::Schedule;
pub use shape::Shape;

type Built = Result<Box<dyn CompactionPolicy>, PolicyError>;

pub(super) fn leveling(arguments: &Arguments<'_>) -> Built {
    built(arguments, Family::horizontal(arguments, true)?)
}

pub(super) fn tiering(arguments: &Arguments<'_>) -> Built {
    built(arguments, Family::horizontal(arguments, false)?)
}

pub(super) fn lazy(arguments: &Arguments<'_>) -> Built {
    built(arguments, Family::lazy(arguments)?)
}

pub(super) fn vertiorizon(arguments: &Arguments<'_>) -> Built {
    built(arguments, Family::vertiorizon(arguments)?)
}

fn built(arguments: &Arguments<'_>, family: Family) -> Built {
    match arguments.hard_stop {
        true => Err(PolicyError(format!("{} = hard-stop: there is no such argument", arguments.policy))),
        false => Ok(Box::new(Growth::new(family))),
    }
}
