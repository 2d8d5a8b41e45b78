//! The clear: moves what older cycles left in H to V1 and V2, cell by cell.
//!
//! A *push* merges all of a cell, old runs, V1 and V2, into V2. A *keep* merges the old runs of a cell with V1, or,
//! while V1 is tiered, into a new run of V1. Plans cover neighbouring cells of the same kind in key order, and a
//! bounded number of bytes is in flight. Each decision chooses the pushes anew for what is left. So recovery needs no
//! state: the old runs are in the tree.

use super::cells::{Cell, cells, pushed};
use super::converge::similar;
use super::position::{Position, vertical};
use super::tag::{Cycle, Units, encode};
use crate::compaction::reason::{Counted, size};
use crate::compaction::stack::{largest_run, overlapping};
use crate::share::share;
use alloc::format;
use alloc::vec::Vec;
use drumlin_types::contract::legal::close_plan;
use drumlin_types::contract::{
    FileState, LevelView, LimitView, Place, Plan, RunTag, RunView, Take, TicketView, TreeView,
};
use drumlin_types::{KeyRange, RunId};

/// Lower bound on the bytes that a clear may have in flight.
const IN_FLIGHT: u64 = 256 << 20;
/// Upper bound on the number of cells.
const CELLS: u64 = 512;

/// Number of runs of a tiered V1 in a cell above which a keep merges them.
const V1_RUNS: usize = 8;

/// Number of old runs above which those that cannot go down are merged.
const OLD_RUNS: usize = 8;

/// What a clear does with a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Merges old runs, V1 and V2 into V2.
    Push,
    /// Merges old runs and V1 into V1.
    Keep,
    /// Merges old runs into a new run of V1.
    KeepApart,
    /// Merges old runs and the undamaged files of V1 into a new run of V1.
    KeepAround,
    /// Nothing, or nothing yet.
    Nothing,
}

/// Input of a clear.
pub(super) struct Clear<'a> {
    /// Tree after all unfinished compactions.
    pub(super) projected: &'a TreeView,
    pub(super) tickets: &'a [TicketView],
    pub(super) limits: &'a LimitView,
    /// Cycle that began with the clear.
    pub(super) cycle: &'a Cycle,
    /// Most bytes above V2 after the clear; 0 to push everything.
    pub(super) kept: u64,
    /// Whether V1 gets a new run for each clear.
    pub(super) is_tiered: bool,
    /// Whether no compaction is unfinished. A file that no plan may take is then damaged, not just busy.
    pub(super) is_quiet: bool,
    /// Whether clears are those of the paper: everything goes into V1, and then V1 cell by cell into V2.
    pub(super) is_published: bool,
    /// Deadline of the plans: the number of units, over all cycles, by which the clear should be done.
    pub(super) deadline: u64,
}

impl Clear<'_> {
    fn level(&self, level: u8) -> &[RunView] {
        self.projected.levels.get(usize::from(level)).map_or(&[], |level: &LevelView| &level.runs)
    }

    /// Returns the next plans of the clear or, between clears, of the pushes that V1 or V2 needs.
    pub(super) fn plans(&self, position: &Position<'_>) -> Vec<Plan> {
        let (v1, v2) = vertical(self.projected);
        if let Some(plan) = self.move_oldest_run(position, v1, v2) {
            return Vec::from([plan]);
        }
        let old = self.old();
        let is_clear = !old.is_empty();
        let v1_bytes: u64 = self.level(v1).iter().map(RunView::bytes).sum();
        // Between clears, V1 is left alone until it is a quarter too large.
        let slack = if self.is_published { 0 } else { self.kept / 4 };
        let is_large = !self.is_tiered && v1_bytes > self.kept + slack;
        if !is_clear && !is_large && self.level(v2).len() < 2 {
            return Vec::new();
        }
        let bytes: u64 = self.level(v2).iter().map(RunView::bytes).sum();
        let least = (bytes / CELLS).max(self.limits.file_bytes / 2).max(1);
        let cells = cells(&old, self.level(v1), self.level(v2), least);
        let in_flight = (bytes / 50).max(IN_FLIGHT);
        let started = |t: &&TicketView| t.plan.out >= v1;
        let busy: u64 =
            self.tickets.iter().filter(started).map(|t| t.bytes.saturating_sub(t.bytes_done)).sum();
        let mut left = in_flight.saturating_sub(busy);
        let mut most = (2 * self.limits.slots.max(1) as usize + 1)
            .saturating_sub(self.tickets.iter().filter(started).count());
        let pushes = if is_clear { !self.is_published } else { is_large };
        let kept = if pushes { self.kept } else { u64::MAX };
        let is_pushed = pushed(&cells, kept);
        let step = |(cell, is_pushed): (&Cell, &bool)| self.step(cell, *is_pushed, is_clear);
        let steps: Vec<Step> = cells.iter().zip(&is_pushed).map(step).collect();
        // The published clear is one compaction; its pushes are one file each.
        let most_bytes = match self.is_published {
            true if is_clear => u64::MAX,
            true => 0,
            false => in_flight / 2,
        };
        let mut plans = Vec::new();
        let mut at = 0;
        while at < cells.len() && left > 0 && most > 0 {
            let end = group(&cells, &steps, at, most_bytes);
            if end > at {
                let (plan, bytes) = self.plan(&old, &cells[at..end], steps[at]);
                let out = plan.as_ref().map(|plan| plan.out);
                plans.extend(plan);
                left = left.saturating_sub(bytes);
                most -= 1;
                // The next plans join the run that this one creates. Its number is known once the plan is admitted.
                if out.is_some_and(|out| self.place(out) == Place::NewRun) {
                    break;
                }
            }
            at = end.max(at + 1);
        }
        plans
    }

    /// Returns what is done with `cell`. A cell with a damaged file in V2 is kept instead of pushed, and one with a
    /// damaged file in V1 gets a new run there.
    fn step(&self, cell: &Cell, is_pushed: bool, is_clear: bool) -> Step {
        let [is_old_free, is_v1_free, is_v2_free] = cell.is_free;
        let is_due = is_clear && cell.old > 0 || is_pushed && (cell.v1 > 0 || cell.v2_runs > 1);
        let may_go_round = self.is_quiet && cell.old > 0;
        if !is_due || !is_old_free {
            Step::Nothing
        } else if is_pushed && is_v1_free && is_v2_free {
            Step::Push
        } else if is_pushed && !may_go_round {
            Step::Nothing
        } else if self.is_tiered && cell.v1_runs <= V1_RUNS {
            Step::KeepApart
        } else if is_v1_free {
            Step::Keep
        } else if may_go_round {
            Step::KeepAround
        } else {
            Step::Nothing
        }
    }

    /// Returns the merge, within H, of the newest old runs of similar size. A damaged table below such runs keeps
    /// them from going down. Without the merge, each cycle would add more of them.
    pub(super) fn merged_old(&self, position: &Position<'_>) -> Option<Plan> {
        let free = position.old.iter().take_while(|run| run.idle).count();
        let runs = similar(&position.old[..free], |run| run.bytes);
        if free <= OLD_RUNS || runs.len() < 2 {
            return None;
        }
        let files = runs.iter().flat_map(|run| &run.view.files);
        let take: Vec<Take> = files.map(|f| Take { table: f.table, range: f.bounds.clone() }).collect();
        let out = runs.iter().map(|run| run.level).max()?;
        let bytes: u64 = runs.iter().map(|run| run.bytes).sum();
        let reason = format!(
            "cycle {}: {} old runs ({}) become one, since a damaged table keeps them from going down",
            self.cycle.number,
            runs.len(),
            size(bytes)
        );
        let plan = Plan::new(take, out, reason);
        close_plan(self.projected, &plan).ok().filter(|closed| closed.take.len() == plan.take.len())
    }

    /// Returns the merge of all runs of V1 into one, for readers.
    pub(super) fn merged_v1(&self) -> Option<Plan> {
        let (v1, _) = vertical(self.projected);
        let is_free = |run: &&RunView| run.files.iter().all(|f| f.state == FileState::Free);
        let runs: Vec<&RunView> = self.level(v1).iter().filter(is_free).collect();
        if runs.len() < 2 {
            return None;
        }
        let files = || runs.iter().flat_map(|run| &run.files);
        let take = files().map(|f| Take { table: f.table, range: f.bounds.clone() }).collect();
        let bytes: u64 = runs.iter().map(|run| run.bytes()).sum();
        let reason = format!("{} runs of V1 ({}) become one for readers", runs.len(), size(bytes));
        close_plan(self.projected, &Plan::new(take, v1, reason)).ok()
    }

    /// Returns the old runs of H.
    fn old(&self) -> Vec<&RunView> {
        let levels = 0..vertical(self.projected).0;
        let runs = levels.flat_map(|level| self.level(level));
        runs.filter(|run| !super::position::belongs(run, self.cycle.number)).collect()
    }

    /// Returns the plan that carries out `step` on `cells`, with its input bytes.
    fn plan(&self, old: &[&RunView], cells: &[Cell], step: Step) -> (Option<Plan>, u64) {
        let is_pushed = step == Step::Push;
        let (v1, v2) = vertical(self.projected);
        let hull = cells.iter().map(|cell| cell.range.clone()).reduce(|a, b| a.hull(&b));
        let Some(range) = hull else { return (None, 0) };
        let sum = |part: fn(&Cell) -> u64| cells.iter().map(part).sum::<u64>();
        let from_old = sum(|c| c.old);
        let from_v1 = match step {
            Step::KeepApart => 0,
            Step::KeepAround => takeable_bytes(self.level(v1), &range),
            _ => sum(|c| c.v1),
        };
        let from_v2 = if is_pushed { sum(|c| c.v2) } else { 0 };
        let mut take: Vec<Take> = old.iter().flat_map(|run| takes(run, &range)).collect();
        if step != Step::KeepApart {
            // Damaged files may stay in V1, since the output lies beside them.
            take.extend(self.level(v1).iter().flat_map(|run| takes(run, &range)));
        }
        if is_pushed {
            take.extend(self.level(v2).iter().flat_map(|run| takes(run, &range)));
        }
        let out = if is_pushed { v2 } else { v1 };
        let what = if is_pushed { "push" } else { "keep in V1" };
        let mut from = format!("{} of H", size(from_old));
        for (bytes, part) in [(from_v1, "V1"), (from_v2, "V2")].iter().filter(|(bytes, _)| *bytes > 0) {
            from += &format!(", {} of {part}", size(*bytes));
        }
        let (cycle, count) = (self.cycle.number, Counted(cells.len(), "key range"));
        let reason = format!("cycle {cycle} clear: {what} {count} ({from}) to level {out}");
        let mut plan = Plan::new(take, out, reason);
        plan.place = if step == Step::KeepAround { Place::NewRun } else { self.place(out) };
        plan.tag = self.tag(out);
        plan.deadline = Some(self.deadline);
        (close_plan(self.projected, &plan).ok(), from_old + from_v1 + from_v2)
    }

    /// Returns the run that outputs join: the largest one, or in a tiered V1 the one of this clear.
    fn place(&self, out: u8) -> Place {
        let of_clear = |run: &&RunView| run.tag == self.tag(out);
        let run: Option<RunId> = match self.tag(out).0.is_empty() {
            true => largest_run(self.projected, out),
            false => self.level(out).iter().find(of_clear).map(|run| run.id),
        };
        run.map_or(Place::NewRun, Place::Run)
    }

    /// Returns the tag of outputs. Only runs of a tiered V1 have one, so that the plans of a clear share a run.
    fn tag(&self, out: u8) -> RunTag {
        if !self.is_tiered || out != vertical(self.projected).0 {
            return RunTag::default();
        }
        encode(self.cycle, &Units { lo: 1, hi: self.cycle.units, is_open: false })
    }

    /// Returns the trivial move of a run into an empty V2: the oldest run of V1 or, if V1 is empty too, the oldest
    /// old run of H if it holds at least half of the old bytes. Another policy left such a run, and merging it would
    /// rewrite everything.
    fn move_oldest_run(&self, position: &Position<'_>, v1: u8, v2: u8) -> Option<Plan> {
        if !self.level(v2).is_empty() {
            return None;
        }
        if let Some(oldest) = self.level(v1).iter().min_by_key(|run| run.min_seq()) {
            // The published scheme pushes V1 into V2 cell by cell.
            return if self.is_published { None } else { self.moved(oldest, v2) };
        }
        let oldest = position.old.iter().min_by_key(|run| run.view.min_seq())?;
        let is_large = position.old.len() >= 2 && oldest.bytes >= position.old_bytes / 2;
        if is_large { self.moved(oldest.view, v2) } else { None }
    }

    /// Returns the trivial move of all of `run` to level `out`, unless a part of it is busy or damaged.
    fn moved(&self, run: &RunView, out: u8) -> Option<Plan> {
        if !run.files.iter().all(|file| file.state == FileState::Free) {
            return None;
        }
        let take = run.files.iter().map(|f| Take { table: f.table, range: f.bounds.clone() }).collect();
        let cycle = self.cycle.number;
        let reason = format!("cycle {cycle}: the oldest run, {}, moves to level {out}", size(run.bytes()));
        let mut plan = Plan::new(take, out, reason);
        plan.deadline = Some(self.deadline);
        close_plan(self.projected, &plan).ok().filter(|closed| closed.take.len() == plan.take.len())
    }
}

/// Returns the end of the cells from `at` on that one plan takes: cells with the same step, of at most `most` bytes
/// unless there is only one.
fn group(cells: &[Cell], steps: &[Step], at: usize, most: u64) -> usize {
    let mut bytes = 0;
    let mut end = at;
    while end < cells.len() && steps[end] != Step::Nothing && steps[end] == steps[at] {
        bytes += cells[end].old + cells[end].v1 + cells[end].v2;
        if end > at && bytes > most {
            break;
        }
        end += 1;
    }
    end
}

/// Returns the parts of the files of `run` in `range`.
fn takes(run: &RunView, range: &KeyRange) -> Vec<Take> {
    let part = |f: &drumlin_types::contract::FileView| {
        Some(Take { table: f.table, range: f.bounds.intersect(range)? })
    };
    overlapping(run, range).filter(|f| f.is_takeable()).filter_map(part).collect()
}

/// Returns about how many bytes of `runs` in `range` a plan may take.
fn takeable_bytes(runs: &[RunView], range: &KeyRange) -> u64 {
    let files = runs.iter().flat_map(|run| overlapping(run, range)).filter(|f| f.is_takeable());
    files.map(|f| (share(&f.bounds, range) * f.bytes as f64) as u64).sum()
}
