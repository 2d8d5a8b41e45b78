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
//! - [`decide`], [`scene`], [`plans`], [`foreseen`], [`values`], [`outlook`]: the policy itself: what it sees, merges, by
//!   when, in which order of keys, and asks for.
//! - [`explain`], [`state`], [`switches`]: its words, what it saves, what can be switched off.

pub(crate) mod cover;
mod decide;
mod drift;
mod estimate;
mod explain;
mod foreseen;
mod groups;
mod guard;
mod interference;
mod interval;
mod line;
#[cfg(test)]
mod lockstep;
mod model;
mod neglect;
mod outlook;
mod plans;
mod prices;
pub(crate) mod real;
mod rollout;
mod scene;
mod score;
mod search;
mod sorted;
mod state;
mod switches;
mod values;

use super::arguments::Arguments;
use alloc::boxed::Box;
use drumlin_types::contract::{CompactionPolicy, Pin, PolicyError};
use switches::Switches;

/// The policy `arce`, with a fixed tuple `arce:M/c/q/rho`, and with parts switched off.
pub(super) fn build(arguments: &Arguments<'_>) -> Result<Box<dyn CompactionPolicy>, PolicyError> {
    let (mut pin, mut switches) = (None, Switches::ALL);
    for (at, part) in arguments.text.split(',').enumerate().filter(|(_, part)| !part.is_empty()) {
        if part.starts_with("no-") {
            if !switches.off(part) {
                let names = Switches::names();
                return Err(arguments.error(format_args!("{part}: must be one of {names}")));
            }
        } else if at == 0 {
            pin = Some(part.parse::<Pin>().map_err(|what| arguments.error(what))?);
        } else {
            return Err(arguments.error(format_args!("{part}: a tuple comes first")));
        }
    }
    Ok(Box::new(decide::Arce::new(pin, switches)))
}
