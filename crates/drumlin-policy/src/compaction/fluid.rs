//! Fluid growth (Moose): each level i has its own size ratio r_i and run count K_i. Its capacity is `C_i = F * r_1 *
//! .. * r_i`, and a run of it is full at `C_i / K_i`.
//!
//! Data that arrives in a level joins its newest run while that run is not full, and becomes a new run otherwise. A
//! level at its capacity is compacted whole into the next one. K = 1 is leveling, K = r is tiering.

use super::arguments::Arguments;
use super::leveling::surplus;
use super::preset::Preset;
use super::reason::{Size, amount, size};
use super::rule::{Proposals, Rule, RuleScene, StallTriggers};
use super::stack::{StackRun, bytes, stack, whole_runs};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use drumlin_types::LEVELS;
use drumlin_types::contract::{CompactionPolicy, PaceScope, Plan, PolicyError};

#[derive(Debug)]
struct Fluid {
    /// Size ratios r_1, r_2, ..; the last one repeats.
    ratios: Vec<u32>,
    /// Run counts K_1, K_2, ..; the last one repeats.
    runs: Vec<u32>,
}

pub(super) fn build(arguments: &Arguments<'_>) -> Result<Box<dyn CompactionPolicy>, PolicyError> {
    let text = if arguments.text.is_empty() { "40,40,41/6,6,6" } else { arguments.text };
    let (ratios, runs) = text.split_once('/').ok_or_else(|| arguments.error("must be r,../K,.."))?;
    let rule = Fluid {
        ratios: arguments.numbers(ratios, "r", 2..=1000)?,
        runs: arguments.numbers(runs, "K", 1..=1000)?,
    };
    if rule.ratios.len().max(rule.runs.len()) > LEVELS {
        return Err(arguments.error(format_args!("at most {LEVELS} values")));
    }
    for level in 1..=LEVELS {
        let (r, k) = (repeating(&rule.ratios, level), repeating(&rule.runs, level));
        if k > r {
            return Err(arguments.error(format_args!("K must be 1 to {r} at level {level}")));
        }
    }
    Ok(Preset::boxed(rule, arguments.hard_stop))
}

/// Returns entry `level` of a vector that counts from 1 and repeats its last entry.
fn repeating(values: &[u32], level: usize) -> u32 {
    values.get(level - 1).or(values.last()).copied().unwrap_or(2)
}

impl Fluid {
    fn capacity(&self, scene: &RuleScene<'_>, level: u8) -> f64 {
        let product = |c: f64, l: usize| c * f64::from(repeating(&self.ratios, l));
        (1..=usize::from(level)).fold(scene.flush_bytes(), product)
    }

    fn allowed(&self, level: u8) -> u32 {
        repeating(&self.runs, usize::from(level))
    }

    /// Returns the plan that compacts all of `level` into the next one, if it is due.
    fn step(&self, scene: &RuleScene<'_>, level: u8) -> Option<Plan> {
        let mut runs: Vec<StackRun<'_>> = stack(scene.tree, level);
        let limit = if level == 0 { 1.0 } else { self.capacity(scene, level) };
        let filled = bytes(&runs);
        if runs.is_empty() || (filled as f64) < limit {
            return None;
        }
        let out = level + 1;
        let full = self.capacity(scene, out) / f64::from(self.allowed(out));
        let newest = stack(scene.tree, out).into_iter().next();
        let joined = newest.filter(|run| (run.bytes as f64) < full);
        let target = match &joined {
            Some(run) => format!("joining the newest run ({} of {})", size(run.bytes), Size(full)),
            None => format!("as a run (full at {})", Size(full)),
        };
        let reason = format!(
            "level {level} holds {}, due at {}: to level {out}, {target}",
            amount(&runs),
            Size(limit)
        );
        runs.extend(joined);
        let mut plan = whole_runs(scene.tree, &runs, out, reason)?;
        plan.priority = filled as f64 / limit.max(scene.flush_bytes());
        Some(plan)
    }
}

impl Rule for Fluid {
    fn name(&self) -> String {
        let list = |values: &[u32]| values.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        format!("fluid:{}/{}", list(&self.ratios), list(&self.runs))
    }

    fn proposals<'s>(&'s self, scene: &'s RuleScene<'_>) -> Proposals<'s> {
        let last = scene.last_level();
        let steps = (0..last).filter_map(|level| self.step(scene, level));
        let tidy = (1..=last).filter_map(|level| surplus(scene.tree, level, self.allowed(level) as usize));
        Box::new(steps.chain(tidy))
    }

    fn stall_triggers(&self, _: &RuleScene<'_>) -> StallTriggers {
        StallTriggers { scope: PaceScope::Level0, slow: 1.0, stop: 4.0 }
    }
}
