//! Lazy leveling: tiers of T runs above the last filled level, which is one run. T runs of the level before the last
//! are compacted together with the last level.
//!
//! The last level is the deepest filled one, and at least level 1. When it holds T times the bytes that one
//! compaction into it brings, it moves one level down, and its old level becomes a tier like the others.

use super::arguments::Arguments;
use super::leveling::surplus;
use super::preset::Preset;
use super::reason::{Size, amount};
use super::rule::{Proposals, Rule, RuleScene, StallTriggers, power};
use super::stack::{bytes, stack, whole_runs};
use super::tiering::full_tier;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use drumlin_types::contract::{CompactionPolicy, PaceScope, Plan, PolicyError, TreeView};

#[derive(Debug)]
struct LazyLeveling {
    ratio: usize,
}

pub(super) fn build(arguments: &Arguments<'_>) -> Result<Box<dyn CompactionPolicy>, PolicyError> {
    let ratio = arguments.number("T", 10, 2..=100)?;
    Ok(Preset::boxed(LazyLeveling { ratio }, arguments.hard_stop))
}

impl LazyLeveling {
    fn last(&self, scene: &RuleScene<'_>) -> u8 {
        scene.tree.deepest().unwrap_or(0).max(1).min(scene.last_level())
    }

    /// Returns the plan that moves a last level at its limit one level down. With a single run this is a trivial
    /// move.
    fn sink(&self, scene: &RuleScene<'_>, last: u8) -> Option<Plan> {
        let runs = stack(scene.tree, last);
        let limit = scene.flush_bytes() * power(self.ratio as f64, last + 1);
        if last >= scene.last_level() || (bytes(&runs) as f64) < limit {
            return None;
        }
        let reason = format!(
            "level {last} is the last and holds {}, limit {}: to level {}",
            amount(&runs),
            Size(limit),
            last + 1
        );
        whole_runs(scene.tree, &runs, last + 1, reason)
    }

    /// Returns the plan that compacts a full tier before the last level together with the last level.
    fn join(&self, tree: &TreeView, last: u8) -> Option<Plan> {
        let level = last.checked_sub(1)?;
        let runs = stack(tree, level);
        let mut oldest = runs[runs.len().checked_sub(self.ratio)?..].to_vec();
        let below = stack(tree, last);
        let (count, ratio) = (runs.len(), self.ratio);
        let reason = format!(
            "level {level} has {count} runs, {ratio} allowed: the oldest {} and {} of the last level, {last}",
            amount(&oldest),
            amount(&below)
        );
        oldest.extend(below);
        let mut plan = whole_runs(tree, &oldest, last, reason)?;
        plan.priority = count as f64 / ratio as f64;
        Some(plan)
    }
}

impl Rule for LazyLeveling {
    fn name(&self) -> String {
        format!("lazy-leveling:{}", self.ratio)
    }

    fn proposals<'s>(&'s self, scene: &'s RuleScene<'_>) -> Proposals<'s> {
        let last = self.last(scene);
        let tiers = (0..last.saturating_sub(1)).filter_map(|l| full_tier(scene.tree, l, self.ratio, l + 1));
        let last_ones = [self.sink(scene, last), self.join(scene.tree, last), surplus(scene.tree, last, 1)];
        Box::new(tiers.chain(last_ones.into_iter().flatten()))
    }

    fn stall_triggers(&self, _: &RuleScene<'_>) -> StallTriggers {
        let slow = self.ratio as f64;
        StallTriggers::above(PaceScope::Level0, slow, 4.0)
    }
}
