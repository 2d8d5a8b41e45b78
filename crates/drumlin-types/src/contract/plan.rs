//! What a policy may answer: plans, a pace, a forecast. All plain data.

use super::policy::Think;
use super::tree::RunTag;
use crate::{KeyRange, RunId, TableId, Ticket};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// Part of a table that a plan uses. The range is clipped to the file's bounds on admission.
#[derive(Clone, PartialEq, Debug)]
pub struct Take {
    /// The table.
    pub table: TableId,
    /// The keys of it that are taken.
    pub range: KeyRange,
}

/// Where a plan's output goes inside its output level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Place {
    /// A run of its own.
    #[default]
    NewRun,
    /// An existing run, whose remaining files leave the key range free; otherwise a new run is made.
    Run(RunId),
}

/// One decided merge.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Inputs that are claimed at once.
    pub take: Vec<Take>,
    /// Files of the output level that may be merged along when a piece starts; not claimed before.
    pub may_fold: Vec<Take>,
    /// Output level, at or below every input level.
    pub out: u8,
    /// Where in the output level the output goes.
    pub place: Place,
    /// Tag persisted with the output run.
    pub tag: RunTag,
    /// Policy time (flushes) by which the plan should be done.
    pub deadline: Option<u64>,
    /// Larger goes first among plans without a deadline.
    pub priority: f64,
    /// Value per byte of key sub-ranges, to order the plan's pieces; empty means lowest key first.
    pub piece_priority: Vec<(KeyRange, f64)>,
    /// Why, with the numbers that led to it.
    pub reason: String,
}

impl Plan {
    /// A plan that merges `take` into a new run of level `out`.
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

/// Which runs a pace counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PaceScope {
    /// Runs of level 0 only.
    #[default]
    Level0,
    /// Covered runs of all levels.
    All,
}

/// How fast writers are admitted, as a function of the run count (arce.md 3.5).
///
/// Below `slow` there is no limit. Between `slow` and `stop` the rate falls; above `stop` writers wait.
#[derive(Clone, PartialEq, Debug)]
pub struct Pace {
    /// Which runs are counted.
    pub scope: PaceScope,
    /// Run count at which slowing begins; infinite for never.
    pub slow: f64,
    /// Run count at which the safety mark binds.
    pub stop: f64,
    /// Merge passes per written byte that the pace leaves room for.
    pub passes: f64,
    /// Bytes per second that merges drain, for the safety mark; 0 when unknown.
    pub drain: f64,
    /// Full stop at `stop`, as the originals of the presets do; for comparisons.
    pub hard_stop: bool,
    /// The policy's own count of runs on the tree that it saw; `None` for all runs of the scope.
    pub covered: Option<f64>,
}

impl Pace {
    /// No limit below `stop` runs.
    pub fn free(scope: PaceScope, stop: f64) -> Pace {
        Pace { scope, slow: f64::INFINITY, stop, passes: 2.0, drain: 0.0, hard_stop: false, covered: None }
    }
}

/// A run that a scheduled policy expects, for the filters' look-ahead.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RunForecast {
    /// Flushes from now until the run appears.
    pub born: u32,
    /// Flushes from now until it is merged away.
    pub dies: u32,
    /// Its size in bytes.
    pub bytes: u64,
}

/// What `decide` returns.
#[derive(Default)]
pub struct Decision {
    /// Merges to admit, in this order.
    pub plans: Vec<Plan>,
    /// Tickets whose pieces that have not started are to be withdrawn.
    pub park: Vec<Ticket>,
    /// Admission of writers; `None` keeps the present pace.
    pub pace: Option<Pace>,
    /// Coming runs, nearest first.
    pub forecast: Vec<RunForecast>,
    /// A longer search that the engine steps off the write path.
    pub think: Option<Box<dyn Think>>,
}

/// How a plan ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlanResult {
    /// All pieces are installed.
    Done,
    /// It was not admitted.
    Refused,
    /// Some pieces were withdrawn or failed; those installed stay.
    Cut,
}

/// News for `observe`.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// A flush was installed: table bytes written, entries.
    Flushed {
        /// Bytes of the new table.
        bytes: u64,
        /// Its entries.
        entries: u64,
    },
    /// A plan ended.
    Plan {
        /// Its ticket; 0 when it was refused.
        ticket: Ticket,
        /// The plan's reason, as given.
        reason: String,
        /// How it ended.
        result: PlanResult,
        /// Why it was refused or cut; empty when done.
        why: String,
        /// Bytes read.
        bytes_in: u64,
        /// Bytes written.
        bytes_out: u64,
        /// Entries dropped.
        dropped: u64,
    },
    /// The answer of a `Think` request.
    Thought(
        /// The policy's own encoding; empty when the search was given up.
        Vec<u8>,
    ),
}
