//! ARCE: adaptive compaction. Which runs to merge, when, and how hard to slow writers (arce.md).
//!
//! No shape is fixed. At each decision the legal merges of the tree as it is are listed, each is scored as
//! what readers gain minus what a busy slot costs, and the best one is started, or none. Four numbers, the
//! tuple, steer the score; a search that simulates what is to come picks them again when load or tree
//! change.
//!
//! - [`real`], [`model`], [`estimate`], [`interference`]: numbers; what operations cost; what was measured.
//! - [`sorted`], [`cover`], [`line`], [`groups`], [`interval`], [`score`]: the runs by age, the merges of
//!   them, the best one.
//! - [`guard`]: bounds on what is rewritten.
//! - [`rollout`], [`search`], [`drift`]: choosing the tuple, and when.
//! - [`decide`], [`scene`], [`plans`], [`outlook`]: the policy itself: what it sees, merges, and asks for.
//! - [`explain`], [`state`]: its words, what it saves.

pub(crate) mod cover;
mod decide;
mod drift;
mod estimate;
mod explain;
mod groups;
mod guard;
mod interference;
mod interval;
mod line;
#[cfg(test)]
mod lockstep;
mod model;
mod outlook;
mod plans;
pub(crate) mod real;
mod rollout;
mod scene;
mod score;
mod search;
mod sorted;
mod state;

use super::arguments::Arguments;
use alloc::boxed::Box;
use drumlin_types::contract::{CompactionPolicy, Pin, PolicyError};

/// The policy `arce`, or with a fixed tuple `arce:M/c/q/rho`.
pub(super) fn build(arguments: &Arguments<'_>) -> Result<Box<dyn CompactionPolicy>, PolicyError> {
    let pin = match arguments.text {
        "" => None,
        text => Some(text.parse::<Pin>().map_err(|what| arguments.error(what))?),
    };
    Ok(Box::new(decide::Arce::new(pin)))
}
