//! The snapshot that one decision is based on.

use crate::compaction::arce::candidates::cover::CoverScale;
use crate::compaction::arce::candidates::line::{AgeLine, Samples};
use crate::compaction::arce::measure::model::{CostModel, Met, Stall};
use crate::compaction::arce::measure::prices::Prices;
use crate::compaction::arce::score::formula::{Choice, Need, Tuple};
use drumlin_types::Ticket;
use drumlin_types::contract::PolicyInput;

/// Inputs of one decision: the age line of the tree, the present cost model, the parameters and limits in force.
pub(crate) struct ScoreScene<'a> {
    pub(crate) input: &'a PolicyInput<'a>,
    pub(crate) line: AgeLine<'a>,
    pub(crate) samples: Samples<'a>,
    pub(crate) scale: CoverScale,
    pub(crate) model: CostModel,
    pub(crate) tuple: Tuple,
    pub(crate) stall: Stall,
    pub(crate) max_runs: f64,
    pub(crate) need: Need,
    pub(crate) disk_short: bool,
    /// Output bytes of compactions per input byte, once measured.
    pub(crate) shrink: Option<f64>,
    pub(crate) short_first: bool,
    /// Whether runs are counted by all keys instead of requested keys.
    pub(crate) by_all_keys: bool,
}

impl ScoreScene<'_> {
    /// Returns the runs that readers meet.
    pub(crate) fn met(&self) -> Met {
        Met { runs: self.line.runs, cost: self.line.cost }
    }

    /// Returns the share of the disk budget that is in use.
    pub(crate) fn disk_share(&self) -> f64 {
        self.input.limits.disk_used as f64 / self.input.limits.disk_budget.max(1) as f64
    }

    /// Returns the nanoseconds that writers waited lately, per operation.
    pub(crate) fn waited(&self) -> f64 {
        let load = self.input.load;
        let rate = load.gets + load.seeks + load.writes;
        let waited = load.waited * 1e9 / rate;
        if waited.is_finite() { waited.clamp(0.0, 1e9) } else { 0.0 }
    }

    /// Returns the read cost, in uncached runs, that the rest of a running compaction removes; `removed` is its
    /// covered runs.
    pub(crate) fn relief_of(&self, ticket: Ticket, removed: f64) -> f64 {
        if self.scale.is_uniform() {
            return removed;
        }
        self.line.relief_of(ticket, self.input.tree, &self.samples, &self.scale)
    }

    /// Returns the covered runs that the rest of a running compaction of another policy removes.
    pub(crate) fn removed_by_other(&self, ticket: Ticket) -> f64 {
        let uniform = self.scale.priced(Prices::UNIFORM);
        self.line.relief_of(ticket, self.input.tree, &self.samples, &uniform).max(0.0)
    }

    /// Returns the covered runs above which writers are slowed; infinite for never.
    pub(crate) fn slow(&self) -> f64 {
        let slow = if self.tuple.slow_above.is_infinite() {
            f64::INFINITY
        } else {
            self.tuple.slow_above.min(self.max_runs)
        };
        if self.disk_short { slow.min((self.line.runs - 1.0).max(0.0)) } else { slow }
    }

    /// Returns the conditions of a choice with a rewrite budget of `budget` bytes.
    pub(crate) fn choice(&self, budget: f64) -> Choice<'_> {
        Choice {
            model: &self.model,
            tuple: self.tuple,
            stall: self.stall,
            met: self.met(),
            need: self.need,
            budget,
            last_slot: false,
            beside: None,
            short_first: self.short_first,
        }
    }
}
