//! Everything that one decision looks at.

use super::cover::Scale;
use super::line::{AgeLine, Samples};
use super::model::{Met, Model, Stall};
use super::score::{Choice, Need, Tuple};
use drumlin_types::Ticket;
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
    /// Bytes written per byte read by merges, once known.
    pub(super) shrink: Option<f64>,
    pub(super) short_first: bool,
    /// Runs count by all keys, not by those that readers want.
    pub(super) by_all_keys: bool,
}

impl Scene<'_> {
    /// The runs that readers meet.
    pub(super) fn met(&self) -> Met {
        Met { runs: self.line.runs, cost: self.line.cost }
    }

    /// Nanoseconds that writers waited of late, per operation.
    pub(super) fn waited(&self) -> f64 {
        let load = self.input.load;
        let rate = load.gets + load.seeks + load.writes;
        let waited = load.waited * 1e9 / rate;
        if waited.is_finite() { waited.clamp(0.0, 1e9) } else { 0.0 }
    }

    /// What of a merge under way is still to come does for readers, when it takes `removed` runs away.
    pub(super) fn relief_of(&self, ticket: Ticket, removed: f64) -> f64 {
        if self.scale.is_even() {
            return removed;
        }
        self.line.relief_of(ticket, self.input.tree, &self.samples, &self.scale)
    }

    /// Covered runs from which on writers are slowed; infinite for never.
    pub(super) fn slow(&self) -> f64 {
        let slow =
            if self.tuple.calm.is_infinite() { f64::INFINITY } else { self.tuple.calm.min(self.max_runs) };
        if self.disk_short { slow.min((self.line.runs - 1.0).max(0.0)) } else { slow }
    }

    /// What is chosen under, with so many bytes to spare.
    pub(super) fn choice(&self, balance: f64) -> Choice<'_> {
        Choice {
            model: &self.model,
            tuple: self.tuple,
            stall: self.stall,
            met: self.met(),
            need: self.need,
            balance,
            last_slot: false,
            beside: None,
            short_first: self.short_first,
        }
    }
}
