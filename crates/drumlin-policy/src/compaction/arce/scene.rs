//! Everything that one decision looks at.

use super::cover::Scale;
use super::line::{AgeLine, Samples};
use super::model::{Model, Stall};
use super::score::{Choice, Need, Tuple};
use drumlin_types::contract::PolicyInput;

/// The picture of a decision: the tree by age, the present model, what is in force.
pub(super) struct Scene<'a> {
    pub(super) input: &'a PolicyInput<'a>,
    pub(super) line: AgeLine<'a>,
    pub(super) samples: Samples<'a>,
    pub(super) scale: Scale,
    pub(super) model: Model,
    pub(super) tuple: Tuple,
    pub(super) stall: Stall,
    pub(super) max_runs: f64,
    pub(super) need: Need,
    pub(super) disk_short: bool,
    pub(super) short_first: bool,
}

impl Scene<'_> {
    /// What is chosen under, with so many bytes to spare.
    pub(super) fn choice(&self, balance: f64) -> Choice<'_> {
        Choice {
            model: &self.model,
            tuple: self.tuple,
            stall: self.stall,
            runs: self.line.runs,
            need: self.need,
            balance,
            last_slot: false,
            beside: None,
            short_first: self.short_first,
        }
    }
}
