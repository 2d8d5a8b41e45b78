//! The policy trait: pure decisions over plain data.

use super::flight::TicketView;
use super::load::{CostView, LimitView, LoadView};
use super::plan::{Decision, Outcome};
pub use super::search::SearchTask;
use super::tree::{RunTag, TreeView};
use crate::Key;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Complete input of a `decide` call.
#[derive(Clone, Copy)]
pub struct PolicyInput<'a> {
    /// The tree with the states of its files. It includes files that are still being written.
    pub tree: &'a TreeView,
    /// Unfinished tickets, oldest first.
    pub tickets: &'a [TicketView],
    /// Observed load.
    pub load: &'a LoadView,
    /// Measured costs.
    pub costs: &'a CostView,
    /// Limits set by the user or the engine.
    pub limits: &'a LimitView,
    /// Sample of the keys of recent point lookups, sorted. Written keys fill the sample when there are few lookups.
    pub wanted: &'a [Key],
    /// Sample of the start keys of recent scans, sorted.
    pub wanted_seeks: &'a [Key],
    /// Monotonic time in microseconds.
    pub now: u64,
    /// Random seed, new for each call.
    pub seed: u64,
    /// Whether adaptation is frozen. A frozen policy keeps its parameters and learned state, still decides on
    /// compactions and the write rate limit, and requests no search. It ignores later what was counted while it was
    /// frozen.
    pub frozen: bool,
}

/// Error: a policy cannot use a saved state or an option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyError(
    /// Message that names the option, its value and its bounds.
    pub String,
);

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl core::error::Error for PolicyError {}

/// Intended size of a level.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LevelDesign {
    /// Target size in bytes; infinite when only the number of runs counts.
    pub bytes: f64,
    /// Target number of runs that cover a key; infinite when the policy sets no bound.
    pub runs: f64,
}

impl LevelDesign {
    /// A level without bounds.
    pub const FREE: LevelDesign = LevelDesign { bytes: f64::INFINITY, runs: f64::INFINITY };
}

/// A compaction policy.
///
/// A policy is pure: the same calls with the same inputs return the same decisions on every machine. It never blocks,
/// and it never panics on a tree that satisfies invariant R. It receives events only through `observe`.
pub trait CompactionPolicy: fmt::Debug + Send {
    /// Returns the policy's name with arguments, in the form that `drumlin_policy::by_name` accepts.
    fn name(&self) -> String;

    /// Decides which compactions to schedule and how fast to admit writes.
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision;

    /// Receives the final state of each plan, and each flush.
    fn observe(&mut self, outcome: &Outcome) {
        let _ = outcome;
    }

    /// Returns the intended size of each level, level 0 first.
    ///
    /// The scheduler derives from it which levels exceed their size, and how many extra runs they hold. Omitted levels
    /// are unbounded.
    fn design(&self, tree: &TreeView, limits: &LimitView) -> Vec<LevelDesign> {
        let _ = (tree, limits);
        Vec::new()
    }

    /// Freezes or unfreezes adaptation. A frozen policy does not learn. Each `decide` call also carries this flag.
    fn freeze(&mut self, frozen: bool) {
        let _ = frozen;
    }

    /// Returns the tag for the run that a flush of `bytes` is about to create.
    fn flush_tag(&mut self, bytes: u64, tree: &TreeView) -> RunTag {
        let _ = (bytes, tree);
        RunTag::default()
    }

    /// Describes the policy's current state and its causes, as lines of text. The text contains no user keys.
    fn explain(&self) -> String {
        String::new()
    }

    /// Returns the state to persist: versioned, at most 4 KiB.
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Restores a state returned by `save`. On error the policy keeps its default state.
    fn restore(&mut self, blob: &[u8]) -> Result<(), PolicyError> {
        let _ = blob;
        Ok(())
    }
}
