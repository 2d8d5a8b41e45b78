//! Unified compaction (UCS, Cassandra): one number w ranges from leveled to tiered. Runs are put into buckets whose
//! sizes grow by f, and a bucket with t runs is compacted. For w >= 0, t = f = 2 + w (tiered); for w < 0, f = 2 - w
//! and t = 2 (leveled). The lowest bucket begins at `m = F * (1 - 0.9 / f)`. Each bucket may have its own w, which
//! `adaptive-ucs` uses; the last w holds for all deeper buckets.
//!
//! The output goes to the level of the oldest input. It goes deeper as far as its bucket says and the next older run
//! allows, so that a bucket corresponds to about one level.

use super::arguments::Arguments;
use super::preset::Preset;
use super::reason::amount;
use super::rule::{Proposals, Rule, RuleScene, StallTriggers};
use super::stack::{StackRun, line, whole_runs};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use drumlin_types::contract::{CompactionPolicy, PaceScope, Plan, PolicyError};

#[derive(Debug)]
pub(super) struct Ucs {
    /// Value of w for each bucket; at least one.
    pub(super) ws: Vec<i32>,
    /// Upper bound on concurrent plans, if there is one.
    pub(super) most: Option<usize>,
}

/// Returns f, the growth factor of the buckets for w.
pub(super) fn growth(w: i32) -> f64 {
    f64::from(2 + w.abs())
}

/// Returns t, the number of runs at which a bucket is compacted for w.
pub(super) fn trigger(w: i32) -> usize {
    2 + w.max(0) as usize
}

/// Allowed values of w.
pub(super) const BOUNDS: core::ops::RangeInclusive<i32> = -10..=36;

pub(super) fn build(arguments: &Arguments<'_>) -> Result<Box<dyn CompactionPolicy>, PolicyError> {
    let w = arguments.number("w", 0, BOUNDS)?;
    Ok(Preset::boxed(Ucs { ws: Vec::from([w]), most: None }, arguments.hard_stop))
}

impl Ucs {
    fn w(&self, bucket: usize) -> i32 {
        self.ws.get(bucket).or(self.ws.last()).copied().unwrap_or(0)
    }

    fn bucket(&self, scene: &RuleScene<'_>, bytes: u64) -> usize {
        let first = growth(self.w(0));
        let mut bound = scene.flush_bytes() * (1.0 - 0.9 / first) * first;
        let mut bucket = 0;
        while bytes as f64 >= bound && bound.is_finite() {
            bucket += 1;
            bound *= growth(self.w(bucket));
        }
        bucket
    }

    fn merge(&self, scene: &RuleScene<'_>, line: &[StackRun<'_>], bucket: usize) -> Option<Plan> {
        let is_member = |run: &StackRun<'_>| self.bucket(scene, run.bytes) == bucket;
        // Only idle runs count. A run under construction would otherwise be compacted again right after it is
        // complete.
        let members: Vec<StackRun<'_>> =
            line.iter().filter(|run| run.idle && is_member(run)).copied().collect();
        let count = members.len();
        let trigger = trigger(self.w(bucket));
        if count < trigger {
            return None;
        }
        let oldest = members.last()?;
        let next_older = line.iter().skip_while(|run| run.view.id != oldest.view.id).nth(1);
        let floor = next_older.map_or(scene.last_level(), |run| run.level);
        let wanted = self.bucket(scene, super::stack::bytes(&members)).min(usize::from(floor)) as u8;
        let out = wanted.max(oldest.level);
        let reason = format!(
            "bucket {bucket} has {count} runs, {} allowed: {} to level {out}",
            trigger - 1,
            amount(&members)
        );
        let mut plan = whole_runs(scene.tree, &members, out, reason)?;
        plan.priority = count as f64 / trigger as f64;
        Some(plan)
    }
}

impl Rule for Ucs {
    fn name(&self) -> String {
        format!("ucs:{}", self.w(0))
    }

    fn most(&self, slots: usize) -> usize {
        (2 * slots + 1).min(self.most.unwrap_or(usize::MAX))
    }

    fn proposals<'s>(&'s self, scene: &'s RuleScene<'_>) -> Proposals<'s> {
        let line = line(scene.tree);
        let deepest = line.iter().map(|run| self.bucket(scene, run.bytes)).max().unwrap_or(0);
        Box::new((0..=deepest).filter_map(move |bucket| self.merge(scene, &line, bucket)))
    }

    fn stall_triggers(&self, scene: &RuleScene<'_>) -> StallTriggers {
        // A tree at rest has fewer than t runs in every bucket.
        let deepest = self.bucket(scene, scene.tree.bytes());
        let runs: usize = (0..=deepest).map(|bucket| trigger(self.w(bucket)) - 1).sum();
        let slow = runs.max(20) as f64;
        StallTriggers::above(PaceScope::All, slow, 16.0)
    }
}
