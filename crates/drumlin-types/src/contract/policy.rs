//! The policy trait: pure decisions over plain data.

use super::flight::TicketView;
use super::load::{CostView, LimitView, LoadView};
use super::plan::{Decision, Outcome};
use super::tree::{RunTag, TreeView};
use crate::Key;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// All that a policy may look at.
#[derive(Clone, Copy)]
pub struct PolicyInput<'a> {
    /// The tree with the states of its files, coming files included.
    pub tree: &'a TreeView,
    /// Unfinished tickets, oldest first.
    pub tickets: &'a [TicketView],
    /// Observed load.
    pub load: &'a LoadView,
    /// Measured costs.
    pub costs: &'a CostView,
    /// Limits.
    pub limits: &'a LimitView,
    /// Keys that point lookups wanted lately, sorted. Written keys stand in where there are few.
    pub wanted: &'a [Key],
    /// Keys at which scans began lately, sorted.
    pub wanted_seeks: &'a [Key],
    /// Monotonic time, microseconds.
    pub now: u64,
    /// Fresh randomness for this call.
    pub seed: u64,
    /// Whether adaptation is frozen: the policy keeps what it has found and learned, merges and paces by that, and asks for no
    /// search. What was counted meanwhile is no news to it later.
    pub frozen: bool,
}

/// A policy's saved state could not be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyError(
    /// What is wrong, naming option, value and bounds.
    pub String,
);

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl core::error::Error for PolicyError {}

/// What a level is meant to hold.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LevelDesign {
    /// Bytes; infinite when only runs count.
    pub bytes: f64,
    /// Runs that cover a key; infinite when the policy sets no bound.
    pub runs: f64,
}

impl LevelDesign {
    /// A level that may hold anything.
    pub const FREE: LevelDesign = LevelDesign { bytes: f64::INFINITY, runs: f64::INFINITY };
}

/// A compaction policy.
///
/// Pure: the same calls with the same inputs give the same answers, on every machine. It never blocks
/// and never panics on a tree that keeps invariant R. It learns only through `observe`.
pub trait CompactionPolicy: fmt::Debug + Send {
    /// Its name with arguments, as `drumlin_policy::by_name` takes it.
    fn name(&self) -> String;

    /// What to merge now, and how fast to admit writers.
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision;

    /// Hears how a plan ended and what was flushed.
    fn observe(&mut self, outcome: &Outcome) {
        let _ = outcome;
    }

    /// What it means each level to hold, level 0 first: the scheduler tells by it which levels are over their
    /// size, and how many extra runs they have. Levels left out may hold anything.
    fn design(&self, tree: &TreeView, limits: &LimitView) -> Vec<LevelDesign> {
        let _ = (tree, limits);
        Vec::new()
    }

    /// Adaptation is frozen from now on, or no longer: it learns nothing meanwhile. Each decision is told so as well.
    fn freeze(&mut self, frozen: bool) {
        let _ = frozen;
    }

    /// The tag of the run that a flush of `bytes` is about to make.
    fn flush_tag(&mut self, bytes: u64, tree: &TreeView) -> RunTag {
        let _ = (bytes, tree);
        RunTag::default()
    }

    /// What it goes by at present and what led to it, in lines for people. No user keys.
    fn explain(&self) -> String {
        String::new()
    }

    /// State that must survive, versioned, at most 4 KiB.
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes back what `save` gave. An error leaves the policy as it was, with defaults.
    fn restore(&mut self, blob: &[u8]) -> Result<(), PolicyError> {
        let _ = blob;
        Ok(())
    }
}

/// A longer search over an immutable copy of the picture, stepped by the engine in bounded slices.
pub trait Think: Send {
    /// Does one slice of work, under a millisecond; `Some` ends the search with its encoded answer.
    fn step(&mut self) -> Option<Vec<u8>>;

    /// Whether it answers to another load, so that what was saved up for such searches may be spent on it.
    fn is_urgent(&self) -> bool {
        false
    }

    /// The answer as far as it is known, for an engine that cannot go on now; it may still be improved.
    fn best(&self) -> Option<Vec<u8>> {
        None
    }
}
