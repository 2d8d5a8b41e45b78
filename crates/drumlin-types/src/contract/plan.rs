//! Decisions of a policy: plans, withdrawals, a write rate limit, a forecast, and sometimes a search. All but the
//! search are plain data.

use super::search::SearchTask;
use super::tree::RunTag;
use crate::{KeyRange, RunId, TableId, Ticket};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// Part of a table that a plan uses. Admission clips the range to the file's bounds.
#[derive(Clone, PartialEq, Debug)]
pub struct Take {
    /// Number of the table.
    pub table: TableId,
    /// Key range that the plan takes.
    pub range: KeyRange,
}

/// Placement of a plan's output within the output level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Place {
    /// A new run.
    #[default]
    NewRun,
    /// An existing run. A new run is made instead if the remaining files of this run overlap the output.
    Run(RunId),
}

/// A planned compaction.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Inputs. All are claimed when the plan is admitted.
    pub take: Vec<Take>,
    /// Files of the output level that a piece (a subcompaction) may add to its inputs when it starts. They are not
    /// claimed before that.
    pub may_fold: Vec<Take>,
    /// Output level, at or below every input level.
    pub out: u8,
    /// Placement of the output within the output level.
    pub place: Place,
    /// Tag that is persisted with the output run.
    pub tag: RunTag,
    /// Policy time, counted in flushes, by which the plan should be done.
    pub deadline: Option<u64>,
    /// Negative: an intra-level compaction of extra runs, which the scheduler admits only if it pays. Otherwise the
    /// value does not affect scheduling, which takes plans in the order of the proposals. The engine keeps the number
    /// unchanged with the ticket, where the policy may read it back: `arce` puts the number of covered runs there that
    /// the plan removes.
    pub priority: f64,
    /// Value of compacting each key sub-range. A piece gets its share of the values; the scheduler divides that by the
    /// bytes of the piece and runs the highest first. Empty means lowest key first.
    pub piece_priority: Vec<(KeyRange, f64)>,
    /// Reason for the plan, with the numbers behind it. The engine keeps it unchanged with the ticket, where the policy
    /// may read it back: with `arce` the first word says whether the plan was a must or elective.
    pub reason: String,
}

impl Plan {
    /// Returns a plan that compacts `take` into a new run of level `out`.
    pub fn new(take: Vec<Take>, out: u8, reason: String) -> Plan {
        Plan {
            take,
            may_fold: Vec::new(),
            out,
            place: Place::NewRun,
            tag: RunTag::default(),
            deadline: None,
            priority: 0.0,
            piece_priority: Vec::new(),
            reason,
        }
    }
}

/// Selects the runs that a pace counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PaceScope {
    /// Runs of level 0 only.
    #[default]
    Level0,
    /// Runs of all levels. If [`Pace::covered`] is set, the count starts from it, and runs that appear or vanish later
    /// change it.
    All,
}

/// Write rate limit as a function of the run count.
///
/// Up to `slow` runs there is no limit. From there to `slow + 1` the rate falls to what leaves bandwidth for `passes`
/// compaction passes, and stays there. Above three quarters of `stop` it falls further with the drain rate. Writers
/// wait from `stop + 8` runs on, or from `stop` on if `hard_stop` is set.
#[derive(Clone, PartialEq, Debug)]
pub struct Pace {
    /// Which runs are counted.
    pub scope: PaceScope,
    /// Run count at which throttling begins; infinite for never.
    pub slow: f64,
    /// Run limit. The rate narrows from three quarters of it on; [`Pace::stops_at`] is where writers wait.
    pub stop: f64,
    /// Number of compaction passes per written byte that the limit leaves bandwidth for.
    pub passes: f64,
    /// Bytes per second that compactions drain, for the limit near `stop`; 0 when unknown.
    pub drain: f64,
    /// Whether writers stop completely at `stop`, as in the systems that the presets imitate. For comparisons.
    pub hard_stop: bool,
    /// Covered runs of the tree that the policy saw, as counted by the policy; `None` to count all runs of the scope.
    pub covered: Option<f64>,
}

impl Pace {
    /// Number of runs above `stop` at which writers wait, unless `hard_stop` is set.
    const SLACK: f64 = 8.0;

    /// Returns the run count from which on writers wait.
    pub fn stops_at(&self) -> f64 {
        if self.hard_stop { self.stop } else { self.stop + Pace::SLACK }
    }

    /// Returns a pace without a limit below `stop` runs.
    pub fn free(scope: PaceScope, stop: f64) -> Pace {
        Pace { scope, slow: f64::INFINITY, stop, passes: 2.0, drain: 0.0, hard_stop: false, covered: None }
    }
}

/// A run that a policy expects to appear, used to plan filter memory ahead.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RunForecast {
    /// Number of flushes until the run appears.
    pub born: u32,
    /// Number of flushes until the run is compacted away.
    pub dies: u32,
    /// Size of the run in bytes.
    pub bytes: u64,
}

/// The result of `decide`.
#[derive(Default)]
pub struct Decision {
    /// Compactions to schedule, in this order.
    pub plans: Vec<Plan>,
    /// Tickets to withdraw: those of their pieces that have not started are withdrawn.
    pub withdraw: Vec<Ticket>,
    /// New write rate limit; `None` keeps the present one.
    pub pace: Option<Pace>,
    /// Expected runs, nearest first.
    pub forecast: Vec<RunForecast>,
    /// A longer search, which the engine steps off the write path.
    pub search: Option<Box<dyn SearchTask>>,
}

/// Final state of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlanResult {
    /// All pieces were installed.
    Done,
    /// The plan was not admitted, since it breaks a rule.
    Refused,
    /// The plan was legal, and was not admitted: enough work was scheduled, or a neighbouring file or level was busy.
    Deferred,
    /// Some pieces were withdrawn, by the policy or after an error. Installed pieces stay installed.
    Withdrawn,
}

/// Event passed to `observe`.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// A flush was installed.
    Flushed {
        /// Bytes of the new table.
        bytes: u64,
        /// Number of entries of the new table.
        entries: u64,
    },
    /// A plan ended.
    Plan {
        /// Ticket of the plan; 0 when it was not admitted.
        ticket: Ticket,
        /// Reason, as given in the plan.
        reason: String,
        /// Final state.
        result: PlanResult,
        /// Cause of the refusal or the withdrawal; empty when done.
        why: String,
        /// Bytes read.
        bytes_in: u64,
        /// Bytes written.
        bytes_out: u64,
        /// Entries dropped.
        dropped: u64,
    },
    /// A search that the policy asked for ended, or has a first result.
    SearchEnded(
        /// Result in the policy's own encoding; empty when the search was abandoned.
        Vec<u8>,
    ),
}
