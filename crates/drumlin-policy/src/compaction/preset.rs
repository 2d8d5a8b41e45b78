//! Adapter that makes a compaction policy of a rule.
//!
//! A rule proposes and [`Round`] selects. The adapter adds the write rate limit: the run counts at which writers slow
//! down and stop, and the rate at which compactions remove runs.

use super::round::Round;
use super::rule::{Rule, RuleScene, StallTriggers};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use drumlin_types::contract::{
    CompactionPolicy, CostView, Decision, FileView, LevelDesign, LimitView, Pace, Plan, PolicyInput, TreeView,
};

/// Adapter that makes a policy of a rule.
#[derive(Debug)]
pub(super) struct Preset<R> {
    pub(super) rule: R,
    pub(super) hard_stop: bool,
}

impl<R: Rule + 'static> Preset<R> {
    pub(super) fn boxed(rule: R, hard_stop: bool) -> Box<dyn CompactionPolicy> {
        Box::new(Preset { rule, hard_stop })
    }
}

impl<R: Rule> CompactionPolicy for Preset<R> {
    fn name(&self) -> String {
        let name = self.rule.name();
        match (self.hard_stop, name.contains(':')) {
            (false, _) => name,
            (true, true) => name + ",hard-stop",
            (true, false) => name + ":hard-stop",
        }
    }

    fn design(&self, tree: &TreeView, limits: &LimitView) -> Vec<LevelDesign> {
        self.rule.design(&RuleScene { tree, limits, seed: 0 })
    }

    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let limits = input.limits;
        let tree = input.tree.projected();
        let StallTriggers { scope, slow, stop } =
            self.rule.stall_triggers(&RuleScene { tree: &tree, limits, seed: input.seed });
        let plans = Round::new(&self.rule, input, tree).plans();
        let under_way = input.tickets.iter().map(|ticket| &ticket.plan).chain(&plans);
        let drain = drain(under_way, input.tree, input.costs, limits);
        let pace = Pace { scope, slow, stop, passes: 2.0, drain, hard_stop: self.hard_stop, covered: None };
        Decision { plans, pace: Some(pace), ..Decision::default() }
    }
}

/// Returns the drain rate of the best plan in bytes per second: flushes' worth of removed runs, divided by compaction
/// time.
pub(super) fn drain<'a>(
    plans: impl Iterator<Item = &'a Plan>,
    tree: &TreeView,
    costs: &CostView,
    limits: &LimitView,
) -> f64 {
    if costs.compaction_bytes_per_s.is_nan() || costs.compaction_bytes_per_s <= 0.0 {
        return 0.0;
    }
    let mut files: Vec<(usize, &FileView)> = Vec::new();
    for (number, run) in tree.levels.iter().flat_map(|level| &level.runs).enumerate() {
        files.extend(run.files.iter().map(|file| (number, file)));
    }
    files.sort_by_key(|(_, file)| file.table);
    let rate = |plan: &Plan| {
        let mut taken: BTreeSet<usize> = BTreeSet::new();
        // Files that a plan may fold count as folded. At worst the run count falls sooner than this says.
        for take in plan.take.iter().chain(&plan.may_fold) {
            let first = files.partition_point(|(_, file)| file.table < take.table);
            let of_table = files[first..].iter().take_while(|(_, file)| file.table == take.table);
            let meets = of_table.enumerate().filter(|(_, (_, file))| file.bounds.overlaps(&take.range));
            taken.extend(meets.map(|(at, _)| first + at));
        }
        let bytes: u64 = taken.iter().map(|at| files[*at].1.bytes).sum();
        let holding = taken.iter().filter(|at| files[**at].1.bytes > 0);
        let runs: BTreeSet<usize> = holding.map(|at| files[*at].0).collect();
        let removed = runs.len() as f64 - 1.0;
        let seconds = costs.compaction_fixed_ns.max(0.0) / 1e9 + bytes as f64 / costs.compaction_bytes_per_s;
        if removed > 0.0 && seconds > 0.0 { limits.memtable_bytes as f64 * removed / seconds } else { 0.0 }
    };
    plans.map(rate).fold(0.0, f64::max)
}
