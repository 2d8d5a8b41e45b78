//! Universal compaction, as in RocksDB. Runs are ordered by age. With four runs or more, the first rule that applies
//! is used:
//!
//! 1. Compact everything into one run when the runs newer than the oldest have at least twice its size.
//! 2. Starting at the newest possible run, take each next older run that is at most 1.01 times as large as the sum of
//!    those taken so far. At least two runs must qualify.
//! 3. Compact the newest runs so that four runs remain.
//!
//! When the oldest run is among the inputs, the output goes to the last level. Otherwise it goes to the level just
//! above the next older run.

use super::arguments::Arguments;
use super::preset::Preset;
use super::reason::{amount, size};
use super::rule::{Proposals, Rule, RuleScene, StallTriggers};
use super::stack::{StackRun, all_idle, bytes, line, whole_runs};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
use drumlin_types::contract::{CompactionPolicy, PaceScope, Plan, PolicyError};

const TRIGGER: usize = 4;
const SIZE_RATIO_PERCENT: u64 = 1;
const MAX_SPACE_PERCENT: u64 = 200;

#[derive(Debug)]
struct Universal;

pub(super) fn build(arguments: &Arguments<'_>) -> Result<Box<dyn CompactionPolicy>, PolicyError> {
    arguments.none()?;
    Ok(Preset::boxed(Universal, arguments.hard_stop))
}

/// Returns the compaction of the runs `range` of the age order, into a level that preserves that order.
pub(super) fn interval(
    scene: &RuleScene<'_>,
    line: &[StackRun<'_>],
    range: Range<usize>,
    why: &str,
) -> Option<Plan> {
    let chosen = line.get(range.clone())?;
    let deepest = chosen.last()?.level;
    let out = match line.get(range.end) {
        None => scene.last_level(),
        Some(older) => deepest.max(older.level.saturating_sub(1)),
    };
    let reason = format!(
        "{why}: {} of {} from the {}. newest, to level {out}",
        amount(chosen),
        line.len(),
        range.start + 1
    );
    whole_runs(scene.tree, chosen, out, reason)
}

impl Universal {
    fn by_space(&self, scene: &RuleScene<'_>, line: &[StackRun<'_>]) -> Option<Plan> {
        let (oldest, newer) = line.split_last()?;
        let extra = bytes(newer);
        if extra.saturating_mul(100) < oldest.bytes.saturating_mul(MAX_SPACE_PERCENT) || !all_idle(line) {
            return None;
        }
        let why = format!("{} are newer than the oldest run of {}", size(extra), size(oldest.bytes));
        interval(scene, line, 0..line.len(), &why)
    }

    fn by_ratio(&self, scene: &RuleScene<'_>, line: &[StackRun<'_>]) -> Option<Plan> {
        (0..line.len()).find_map(|start| {
            let mut gathered = line[start].bytes;
            let mut end = start + 1;
            while let Some(run) = line.get(end).filter(|run| run.idle && line[start].idle) {
                if u128::from(gathered) * u128::from(100 + SIZE_RATIO_PERCENT) < u128::from(run.bytes) * 100 {
                    break;
                }
                gathered += run.bytes;
                end += 1;
            }
            (end - start >= 2).then(|| interval(scene, line, start..end, "similar sizes")).flatten()
        })
    }

    fn by_count(&self, scene: &RuleScene<'_>, line: &[StackRun<'_>]) -> Option<Plan> {
        let idle = line.iter().filter(|run| run.idle).count();
        let surplus = (idle + 1).checked_sub(TRIGGER).filter(|&n| n > 1)?;
        let first = line.iter().position(|run| run.idle)?;
        interval(scene, line, first..first + surplus, &format!("{idle} runs, {TRIGGER} allowed"))
    }
}

impl Rule for Universal {
    fn name(&self) -> String {
        "universal".into()
    }

    fn proposals<'s>(&'s self, scene: &'s RuleScene<'_>) -> Proposals<'s> {
        let line = line(scene.tree);
        if line.len() < TRIGGER {
            return Box::new(core::iter::empty());
        }
        let rules = [self.by_space(scene, &line), self.by_ratio(scene, &line), self.by_count(scene, &line)];
        let mut plans: Vec<Plan> = rules.into_iter().flatten().collect();
        plans.iter_mut().for_each(|plan| plan.priority = line.len() as f64 / TRIGGER as f64);
        Box::new(plans.into_iter())
    }

    fn stall_triggers(&self, _: &RuleScene<'_>) -> StallTriggers {
        StallTriggers { scope: PaceScope::All, slow: 20.0, stop: 36.0 }
    }
}
