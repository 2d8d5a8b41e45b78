//! The inputs of a scheduling decision.

use super::fold::FoldCosts;
use super::limits::Settings;
use drumlin_types::contract::{LevelDesign, TreeView};

/// State that scheduling decisions are based on.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    /// Installed tree, with all files free except those marked as coming, which must not be taken.
    pub tree: &'a TreeView,
    /// Intended content of each level, from the policy.
    pub design: &'a [LevelDesign],
    /// Scheduler limits.
    pub settings: &'a Settings,
    /// Costs that decide on folding.
    pub costs: FoldCosts,
    /// Bytes of disk space that compactions may still write.
    pub room: u64,
    /// Monotonic time in microseconds.
    pub now: u64,
}
