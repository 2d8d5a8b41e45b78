//! Merges of the present cycle: from the runs that are there to the runs that the schedule wants.
//!
//! The schedule says which runs should exist after t units, so the policy plans only the difference between these
//! target runs and the tree. All runs inside one target run become one plan. So a cascade over several levels is a
//! single merge. If merges lag, the next target run covers more units, and the merges in between never happen. So lag
//! never adds written bytes.
//!
//! Invariant: of two runs of H that overlap, the older one is never in a shallower level. A merge's output goes no
//! deeper than any older overlapping run that still serves reads, so no merge waits for a clear. A run that
//! overlapped nothing when it was made may lie deeper than an older run that overlaps other inputs. It waits until
//! that run is gone, and the others are merged without it.

use super::position::{CycleRun, Position, vertical};
use super::schedule::{PlannedRun, Schedule};
use super::tag::{Cycle, Units, encode};
use crate::compaction::reason::{Counted, size};
use crate::compaction::stack::overlapping;
use alloc::format;
use alloc::vec::Vec;
use drumlin_types::Seq;
use drumlin_types::contract::legal::close_plan;
use drumlin_types::contract::{Plan, Take, TreeView};

/// Number of open runs (parts of a unit) above which they are merged.
const OPEN_RUNS: usize = 4;

/// Input of the plans.
pub(super) struct MergeInput<'a> {
    /// Tree after all unfinished compactions.
    pub(super) projected: &'a TreeView,
    /// Tree of all files, with their states.
    pub(super) tree: &'a TreeView,
    pub(super) cycle: &'a Cycle,
    pub(super) schedule: &'a Schedule,
    /// Units of all cycles before this one, for deadlines.
    pub(super) earlier_units: u64,
}

/// Returns the merges that are due, newest runs first.
pub(super) fn plans(input: &MergeInput<'_>, position: &Position<'_>) -> Vec<Plan> {
    let planned = input.schedule.target(position.units);
    let mut plans: Vec<Plan> =
        planned.iter().rev().filter_map(|planned_run| of_planned(input, position, planned_run)).collect();
    let open = |run: &&CycleRun<'_>| run.units.is_open && run.units.hi > position.units;
    let short: Vec<CycleRun<'_>> = position.current.iter().filter(open).copied().collect();
    if short.len() > OPEN_RUNS {
        let depth = planned.len().min(255) as u8;
        let unit = position.units.saturating_add(1);
        let planned_run = PlannedRun { lo: unit, hi: unit, depth, dies: input.schedule.units() };
        // A damaged run stays, and newer ones are merged without it.
        let idle = short.iter().take_while(|run| run.run.idle).count();
        plans.extend(merge(input, position, &planned_run, similar(&short[..idle], |run| run.run.bytes)));
    }
    plans
}

/// Returns the merge of all runs of the cycle into one, unless one of them is busy.
pub(super) fn collapsed(input: &MergeInput<'_>, position: &Position<'_>) -> Option<Plan> {
    let planned_run = PlannedRun { lo: 1, hi: position.units, depth: 0, dies: input.schedule.units() };
    merge(input, position, &planned_run, &position.current)
}

/// Returns the newest runs, up to the first that has more than twice the bytes of all newer ones. So each byte of a
/// unit of f flushes is merged about log2(f) times.
pub(super) fn similar<T>(runs: &[T], bytes_of: impl Fn(&T) -> u64) -> &[T] {
    let (mut bytes, mut end) = (0u64, 0);
    while let Some(run) = runs.get(end).filter(|run| end == 0 || bytes_of(run) <= bytes.saturating_mul(2)) {
        bytes = bytes.saturating_add(bytes_of(run));
        end += 1;
    }
    &runs[..end]
}

fn of_planned(input: &MergeInput<'_>, position: &Position<'_>, planned_run: &PlannedRun) -> Option<Plan> {
    // A run that reaches into the next planned run counts as inside this one, so that each run has a place.
    let is_inside = |run: &&CycleRun<'_>| (planned_run.lo..=planned_run.hi).contains(&run.units.lo);
    let inside: Vec<CycleRun<'_>> = position.current.iter().filter(is_inside).copied().collect();
    merge(input, position, planned_run, &inside)
}

/// Returns the plan that merges `runs` into one, unless one of them is busy. Those below an older run that overlaps any
/// of them are left out.
fn merge(
    input: &MergeInput<'_>,
    position: &Position<'_>,
    planned_run: &PlannedRun,
    runs: &[CycleRun<'_>],
) -> Option<Plan> {
    if runs.len() < 2 || !runs.iter().all(|run| run.run.idle) {
        return None;
    }
    let is_open = runs.iter().all(|run| run.units.is_open);
    // Open parts that are merged with whole units do not count as a whole unit.
    let counted = runs.iter().filter(|run| is_open || !run.units.is_open);
    let units = Units {
        lo: runs.iter().map(|run| run.units.lo).min()?,
        hi: counted.map(|run| run.units.hi).max()?,
        is_open,
    };
    let deepest = runs.iter().map(|run| run.run.level).max()?;
    let oldest = runs.iter().map(|run| run.run.view.min_seq()).min()?;
    let label = (vertical(input.projected).0).saturating_sub(1).saturating_sub(planned_run.depth);
    let ceiling = ceiling(input.tree, runs, oldest)?;
    // An older overlapping run lies above an input. This input waits until that run is gone. The others are merged
    // without it, because the older run may be damaged and stay for ever.
    if ceiling < deepest {
        let above: Vec<CycleRun<'_>> = runs.iter().filter(|run| run.run.level <= ceiling).copied().collect();
        return merge(input, position, planned_run, &above);
    }
    let out = label.min(ceiling).max(deepest);
    let bytes: u64 = runs.iter().map(|run| run.run.bytes).sum();
    let files = runs.iter().flat_map(|run| &run.run.view.files);
    let take = files.map(|f| Take { table: f.table, range: f.bounds.clone() }).collect();
    let reason = format!(
        "cycle {} unit {}/{}: units {} to {} ({}, {}) to level {out}, next merged at unit {}",
        input.cycle.number,
        position.units,
        input.cycle.units,
        units.lo,
        units.hi,
        Counted(runs.len(), "run"),
        size(bytes),
        planned_run.dies
    );
    let mut plan = Plan::new(take, out, reason);
    plan.tag = encode(input.cycle, &units);
    plan.deadline = Some(input.earlier_units.saturating_add(u64::from(planned_run.dies)));
    // If closing the plan adds files, it is dropped: they belong to no unit of this cycle.
    close_plan(input.projected, &plan).ok().filter(|closed| closed.take.len() == plan.take.len())
}

/// Returns the shallowest level of H that holds an older run that overlaps one of `runs`, or the level above V1 if
/// there is none. Runs that are being compacted count too.
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
