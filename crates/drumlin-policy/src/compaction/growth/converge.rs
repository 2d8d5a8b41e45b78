//! Merges of the present cycle: from the runs that are there to the runs that the schedule wants.
//!
//! The target after t units is known, so the policy asks only how the tree differs from it. All runs inside one target
//! run become one plan, and a cascade over several levels is one merge by construction. If the tree lags behind, the
//! next target run covers more of it and the merges in between never happen, so that lag never adds bytes.
//!
//! Invariant: the levels of the runs of H never fall from new to old. The output level is capped by every older run
//! that still serves reads, so no merge waits for a clear.

use super::position::{CycleRun, Position, vertical};
use super::schedule::{Schedule, Slot};
use super::tag::{Cycle, Units, encode};
use crate::compaction::reason::{Counted, size};
use crate::compaction::stack::overlapping;
use alloc::format;
use alloc::vec::Vec;
use drumlin_types::Seq;
use drumlin_types::contract::legal::close_plan;
use drumlin_types::contract::{Plan, Take, TreeView};

/// Open runs (parts of a unit) that are left alone.
const OPEN_RUNS: usize = 4;

/// Input of the plans.
pub(super) struct Scene<'a> {
    /// Tree after all unfinished compactions.
    pub(super) projected: &'a TreeView,
    /// Tree of all files, with their states.
    pub(super) tree: &'a TreeView,
    pub(super) cycle: &'a Cycle,
    pub(super) schedule: &'a Schedule,
    /// Units of all cycles before this one, for deadlines.
    pub(super) before: u64,
}

/// Returns the merges that are due, newest runs first.
pub(super) fn plans(scene: &Scene<'_>, position: &Position<'_>) -> Vec<Plan> {
    let slots = scene.schedule.target(position.units);
    let mut plans: Vec<Plan> = slots.iter().rev().filter_map(|slot| of_slot(scene, position, slot)).collect();
    let open = |run: &&CycleRun<'_>| run.units.is_open && run.units.hi > position.units;
    let short: Vec<CycleRun<'_>> = position.current.iter().filter(open).copied().collect();
    if short.len() > OPEN_RUNS {
        let depth = slots.len().min(255) as u8;
        let unit = position.units.saturating_add(1);
        let slot = Slot { lo: unit, hi: unit, depth, dies: scene.schedule.units() };
        plans.extend(merge(scene, position, &slot, &short));
    }
    plans
}

/// Returns the merge of all runs of the cycle into one, unless one of them is busy.
pub(super) fn collapsed(scene: &Scene<'_>, position: &Position<'_>) -> Option<Plan> {
    let slot = Slot { lo: 1, hi: position.units, depth: 0, dies: scene.schedule.units() };
    merge(scene, position, &slot, &position.current)
}

fn of_slot(scene: &Scene<'_>, position: &Position<'_>, slot: &Slot) -> Option<Plan> {
    let is_inside = |run: &&CycleRun<'_>| slot.lo <= run.units.lo && run.units.hi <= slot.hi;
    let inside: Vec<CycleRun<'_>> = position.current.iter().filter(is_inside).copied().collect();
    merge(scene, position, slot, &inside)
}

/// Returns the plan that merges `runs` into one, unless one of them is busy.
fn merge(scene: &Scene<'_>, position: &Position<'_>, slot: &Slot, runs: &[CycleRun<'_>]) -> Option<Plan> {
    if runs.len() < 2 || !runs.iter().all(|run| run.run.idle) {
        return None;
    }
    let units = Units {
        lo: runs.iter().map(|run| run.units.lo).min()?,
        hi: runs.iter().map(|run| run.units.hi).max()?,
        is_open: runs.iter().all(|run| run.units.is_open),
    };
    let deepest = runs.iter().map(|run| run.run.level).max()?;
    let oldest = runs.iter().map(|run| run.run.view.min_seq()).min()?;
    let label = (vertical(scene.projected).0).saturating_sub(1).saturating_sub(slot.depth);
    let out = label.min(ceiling(scene.tree, runs, oldest)?).max(deepest);
    let bytes: u64 = runs.iter().map(|run| run.run.bytes).sum();
    let files = runs.iter().flat_map(|run| &run.run.view.files);
    let take = files.map(|f| Take { table: f.table, range: f.bounds.clone() }).collect();
    let reason = format!(
        "cycle {} unit {}/{}: units {} to {} ({}, {}) to level {out} until unit {}",
        scene.cycle.number,
        position.units,
        scene.cycle.units,
        units.lo,
        units.hi,
        Counted(runs.len(), "run"),
        size(bytes),
        slot.dies
    );
    let mut plan = Plan::new(take, out, reason);
    plan.tag = encode(scene.cycle, &units);
    plan.deadline = Some(scene.before.saturating_add(u64::from(slot.dies)));
    close_plan(scene.projected, &plan).ok()
}

/// Returns the lowest-numbered level of H that holds an older run which overlaps one of `runs`, whatever compaction it
/// takes part in. The level above V1 if there is none.
fn ceiling(tree: &TreeView, runs: &[CycleRun<'_>], oldest: Seq) -> Option<u8> {
    let first_vertical = vertical(tree).0;
    let levels = tree.levels.iter().enumerate().take(usize::from(first_vertical));
    for (level, view) in levels {
        for other in &view.runs {
            let is_input =
                runs.iter().any(|run| run.run.level as usize == level && run.run.view.id == other.id);
            if is_input || other.min_seq() > oldest {
                continue;
            }
            let mut files = runs.iter().flat_map(|run| &run.run.view.files);
            if files.any(|f| overlapping(other, &f.bounds).next().is_some()) {
                return Some(level as u8);
            }
        }
    }
    first_vertical.checked_sub(1)
}
