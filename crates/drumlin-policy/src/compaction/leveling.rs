//! Leveling: every level is one run, T times larger than the one above. A flush is compacted with level 1 at once. A
//! level that has reached its size is compacted whole into the next.
//!
//! Runs that a ticket (scheduled compaction) is still building stay behind, provided that the idle runs hold more
//! than half of the level's size. Where compactions wait for each other, a level is never idle as a whole, so it
//! would otherwise never be emptied.
//!
//! A level that another policy left with several runs is compacted in place when nothing else is due.

use super::arguments::Arguments;
use super::preset::Preset;
use super::reason::{Size, amount, size};
use super::rule::{Proposals, Rule, RuleScene, StallTriggers, power};
use super::stack::{StackRun, bytes, largest_run, stack, whole_runs};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use drumlin_types::contract::{
    CompactionPolicy, LevelDesign, PaceScope, Place, Plan, PolicyError, Take, TreeView,
};

#[derive(Debug)]
struct Leveling {
    ratio: usize,
}

pub(super) fn build(arguments: &Arguments<'_>) -> Result<Box<dyn CompactionPolicy>, PolicyError> {
    let ratio = arguments.number("T", 10, 2..=100)?;
    Ok(Preset::boxed(Leveling { ratio }, arguments.hard_stop))
}

impl Leveling {
    fn size(&self, scene: &RuleScene<'_>, level: u8) -> f64 {
        scene.flush_bytes() * power(self.ratio as f64, level)
    }

    fn step(&self, scene: &RuleScene<'_>, level: u8) -> Option<Plan> {
        let runs = stack(scene.tree, level);
        let below = stack(scene.tree, level + 1);
        let limit = if level == 0 { 1.0 } else { self.size(scene, level) };
        let filled = bytes(&runs);
        if runs.is_empty() || (filled as f64) < limit {
            return None;
        }
        let what = if level == 0 {
            format!("{} flushed", amount(&runs))
        } else {
            format!("{} of {}", size(filled), Size(limit))
        };
        let reason = format!(
            "level {level} holds {what}: all of it and {} below, to level {}",
            amount(&below),
            level + 1
        );
        let idle: Vec<StackRun<'_>> = runs.into_iter().filter(|run| run.idle).collect();
        if idle.is_empty() || (level > 0 && 2.0 * bytes(&idle) as f64 <= limit) {
            return None;
        }
        let mut plan = whole_runs(scene.tree, &idle, level + 1, reason)?;
        let beside = below.iter().flat_map(|run| &run.view.files);
        plan.may_fold = beside.map(|f| Take { table: f.table, range: f.bounds.clone() }).collect();
        plan.place = largest_run(scene.tree, level + 1).map_or(Place::NewRun, Place::Run);
        plan.priority = filled as f64 / limit.max(scene.flush_bytes());
        Some(plan)
    }
}

/// Returns the plan that compacts the runs beyond `allowed` of a level in place, the newest runs first.
pub(super) fn surplus(tree: &TreeView, level: u8, allowed: usize) -> Option<Plan> {
    let runs: Vec<StackRun<'_>> = stack(tree, level);
    let surplus = runs.len().checked_sub(allowed).filter(|&n| n > 0)?;
    let newest = &runs[..=surplus];
    let reason = format!(
        "level {level} has {} runs, {allowed} allowed: the newest {} in place",
        runs.len(),
        amount(newest)
    );
    let mut plan = whole_runs(tree, newest, level, reason)?;
    plan.priority = -1.0;
    Some(plan)
}

impl Rule for Leveling {
    fn name(&self) -> String {
        format!("leveling:{}", self.ratio)
    }

    fn proposals<'s>(&'s self, scene: &'s RuleScene<'_>) -> Proposals<'s> {
        let last = scene.last_level();
        let mut steps: Vec<Plan> = (0..last).filter_map(|level| self.step(scene, level)).collect();
        // The fullest level goes first. Otherwise flushes would keep level 1 busy, and it could never be emptied.
        steps.sort_by(|a, b| b.priority.total_cmp(&a.priority));
        Box::new(steps.into_iter().chain((1..=last).filter_map(|level| surplus(scene.tree, level, 1))))
    }

    fn design(&self, scene: &RuleScene<'_>) -> Vec<LevelDesign> {
        let level = |level| match level {
            0 => LevelDesign { bytes: f64::INFINITY, runs: 1.0 },
            _ => LevelDesign { bytes: self.size(scene, level), runs: 1.0 },
        };
        (0..=scene.last_level()).map(level).collect()
    }

    fn stall_triggers(&self, _: &RuleScene<'_>) -> StallTriggers {
        StallTriggers { scope: PaceScope::Level0, slow: 1.0, stop: 4.0 }
    }
}
