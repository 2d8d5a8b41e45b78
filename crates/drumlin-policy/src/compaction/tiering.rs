//! Tiering: a level holds up to T runs, and its T oldest runs become one run of the next level. The last level is
//! compacted in place. Tiering writes each byte about once per level and reads up to T runs per level.

use super::arguments::Arguments;
use super::preset::Preset;
use super::reason::amount;
use super::rule::{Proposals, Rule, RuleScene, StallTriggers};
use super::stack::{stack, whole_runs};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use drumlin_types::contract::{CompactionPolicy, LevelDesign, PaceScope, Plan, PolicyError, TreeView};

#[derive(Debug)]
struct Tiering {
    ratio: usize,
}

pub(super) fn build(arguments: &Arguments<'_>) -> Result<Box<dyn CompactionPolicy>, PolicyError> {
    let ratio = arguments.number("T", 10, 2..=100)?;
    Ok(Preset::boxed(Tiering { ratio }, arguments.hard_stop))
}

/// Returns the compaction of a full tier `level`: its `ratio` oldest runs become a new run of `out`.
pub(super) fn full_tier(tree: &TreeView, level: u8, ratio: usize, out: u8) -> Option<Plan> {
    let runs = stack(tree, level);
    let oldest = &runs[runs.len().checked_sub(ratio)?..];
    let count = runs.len();
    let reason = format!(
        "level {level} has {count} runs, {ratio} allowed: the oldest {} to level {out}",
        amount(oldest)
    );
    let mut plan = whole_runs(tree, oldest, out, reason)?;
    plan.priority = count as f64 / ratio as f64;
    Some(plan)
}

impl Rule for Tiering {
    fn name(&self) -> String {
        format!("tiering:{}", self.ratio)
    }

    fn proposals<'s>(&'s self, scene: &'s RuleScene<'_>) -> Proposals<'s> {
        let last = scene.last_level();
        Box::new((0..=last).filter_map(move |l| full_tier(scene.tree, l, self.ratio, (l + 1).min(last))))
    }

    fn design(&self, scene: &RuleScene<'_>) -> Vec<LevelDesign> {
        let tier = LevelDesign { bytes: f64::INFINITY, runs: self.ratio as f64 };
        (0..=scene.last_level()).map(|_| tier).collect()
    }

    fn stall_triggers(&self, _: &RuleScene<'_>) -> StallTriggers {
        let slow = self.ratio as f64;
        StallTriggers::above(PaceScope::Level0, slow, 4.0)
    }
}
