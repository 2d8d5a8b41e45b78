//! The clear: what older cycles left in H goes to V1 and V2, cell by cell.
//!
//! A *push* merges all of a cell, old runs, V1 and V2, into V2. A *keep* merges the old runs of a cell with V1, or,
//! while V1 is tiered, into a new run of V1. Plans cover neighbouring cells of the same kind in key order, and a
//! bounded number of bytes is in flight. The choice of pushes is made anew for what is left at each decision, so that
//! recovery needs no state: the old runs are in the tree.

use super::cells::{Cell, cells, pushed};
use super::position::{Position, vertical};
use super::tag::{Cycle, Units, encode};
use crate::compaction::reason::size;
use crate::compaction::stack::{largest_run, overlapping};
use alloc::format;
use alloc::vec::Vec;
use drumlin_types::contract::legal::close_plan;
use drumlin_types::contract::{
    FileState, LevelView, LimitView, Place, Plan, RunTag, RunView, Take, TicketView, TreeView,
};
use drumlin_types::{KeyRange, RunId};

/// Bytes in flight that any clear may have.
const IN_FLIGHT: u64 = 256 << 20;
/// Most cells.
const CELLS: u64 = 512;

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
    /// Whether clears are those of the paper: everything goes into V1, and then V1 cell by cell into V2.
    pub(super) is_published: bool,
    /// When it should be done.
    pub(super) deadline: u64,
}

impl Clear<'_> {
    fn level(&self, level: u8) -> &[RunView] {
        self.projected.levels.get(usize::from(level)).map_or(&[], |level: &LevelView| &level.runs)
    }

    /// Returns the next plans of the clear, or of the pushes that V1 needs beside one.
    pub(super) fn plans(&self, position: &Position<'_>) -> Vec<Plan> {
        let (middle, bottom) = vertical(self.projected);
        if let Some(plan) = self.sink(position, middle, bottom) {
            return Vec::from([plan]);
        }
        let old = self.old();
        let is_clear = !old.is_empty();
        let middle_bytes: u64 = self.level(middle).iter().map(RunView::bytes).sum();
        // Between clears, V1 is left alone until it is a quarter too large.
        let slack = if self.is_published { 0 } else { self.kept / 4 };
        let is_large = !self.is_tiered && middle_bytes > self.kept + slack;
        if !is_clear && !is_large && self.level(bottom).len() < 2 {
            return Vec::new();
        }
        let bytes: u64 = self.level(bottom).iter().map(RunView::bytes).sum();
        let least = (bytes / CELLS).max(self.limits.file_bytes / 2).max(1);
        let cells = cells(&old, self.level(middle), self.level(bottom), least);
        let in_flight = (bytes / 50).max(IN_FLIGHT);
        let started = |t: &&TicketView| t.plan.out >= middle;
        let busy: u64 =
            self.tickets.iter().filter(started).map(|t| t.bytes.saturating_sub(t.bytes_done)).sum();
        let mut left = in_flight.saturating_sub(busy);
        let mut most = (2 * self.limits.slots.max(1) as usize + 1)
            .saturating_sub(self.tickets.iter().filter(started).count());
        let pushes = if is_clear { !self.is_published } else { is_large };
        let kept = if pushes { self.kept } else { u64::MAX };
        let is_pushed = pushed(&cells, kept);
        let mut plans = Vec::new();
        let mut at = 0;
        while at < cells.len() && left > 0 && most > 0 {
            // The published clear is one compaction; its pushes are one file each.
            let most_bytes = match self.is_published {
                true if is_clear => u64::MAX,
                true => 0,
                false => in_flight / 2,
            };
            let end = self.group(&cells, &is_pushed, at, most_bytes, is_clear);
            if end > at {
                let (plan, bytes) = self.plan(&old, &cells[at..end], is_pushed[at]);
                let out = plan.as_ref().map(|plan| plan.out);
                plans.extend(plan);
                left = left.saturating_sub(bytes);
                most -= 1;
                // The next plans join the run that this one begins. Its number is known once the plan is admitted.
                if out.is_some_and(|out| self.place(out) == Place::NewRun) {
                    break;
                }
            }
            at = end.max(at + 1);
        }
        plans
    }

    /// Returns the old runs of H.
    fn old(&self) -> Vec<&RunView> {
        let levels = 0..vertical(self.projected).0;
        let runs = levels.flat_map(|level| self.level(level));
        runs.filter(|run| !super::position::belongs(run, self.cycle.number)).collect()
    }

    /// Returns the end of the cells from `at` on that one plan takes: cells of the same kind with something to do.
    fn group(&self, cells: &[Cell], is_pushed: &[bool], at: usize, most: u64, is_clear: bool) -> usize {
        let is_due = |cell: &Cell, is_pushed: bool| {
            cell.is_free
                && match is_clear {
                    true => cell.old > 0 || is_pushed && cell.bottom_runs > 1,
                    false => is_pushed && (cell.middle > 0 || cell.bottom_runs > 1),
                }
        };
        let mut bytes = 0;
        let mut end = at;
        while end < cells.len() && is_due(&cells[end], is_pushed[end]) && is_pushed[end] == is_pushed[at] {
            bytes += cells[end].old + cells[end].middle + cells[end].bottom;
            if end > at && bytes > most {
                break;
            }
            end += 1;
        }
        end
    }

    /// Returns the plan for some cells, with its input bytes.
    fn plan(&self, old: &[&RunView], cells: &[Cell], is_pushed: bool) -> (Option<Plan>, u64) {
        let (middle, bottom) = vertical(self.projected);
        let hull = cells.iter().map(|cell| cell.range.clone()).reduce(|a, b| a.hull(&b));
        let Some(range) = hull else { return (None, 0) };
        let sum = |part: fn(&Cell) -> u64| cells.iter().map(part).sum::<u64>();
        let (from_old, from_middle, from_bottom) = (sum(|c| c.old), sum(|c| c.middle), sum(|c| c.bottom));
        let mut take: Vec<Take> = old.iter().flat_map(|run| takes(run, &range)).collect();
        let mut bytes = from_old;
        if is_pushed || !self.is_tiered {
            take.extend(self.level(middle).iter().flat_map(|run| takes(run, &range)));
            bytes += from_middle;
        }
        if is_pushed {
            take.extend(self.level(bottom).iter().flat_map(|run| takes(run, &range)));
            bytes += from_bottom;
        }
        let out = if is_pushed { bottom } else { middle };
        let what = if is_pushed { "push" } else { "keep" };
        let reason = format!(
            "cycle {} clear: {what} {} cells ({} of H, {} of V1, {} of V2) to level {out}",
            self.cycle.number,
            cells.len(),
            size(from_old),
            size(from_middle),
            size(from_bottom),
        );
        let mut plan = Plan::new(take, out, reason);
        plan.place = self.place(out);
        plan.tag = self.tag(out);
        plan.deadline = Some(self.deadline);
        (close_plan(self.projected, &plan).ok(), bytes)
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

    /// Returns the move of the oldest run into an empty V2, if most old bytes are in it. Another policy left it, and
    /// merging it would rewrite everything.
    fn sink(&self, position: &Position<'_>, middle: u8, bottom: u8) -> Option<Plan> {
        if !self.level(middle).is_empty() || !self.level(bottom).is_empty() || position.old.len() < 2 {
            return None;
        }
        let oldest = position.old.iter().min_by_key(|run| run.view.min_seq())?;
        if !oldest.idle || oldest.bytes < position.old_bytes / 2 {
            return None;
        }
        let files = oldest.view.files.iter().filter(|f| f.state == FileState::Free);
        let take: Vec<Take> = files.map(|f| Take { table: f.table, range: f.bounds.clone() }).collect();
        let reason = format!(
            "cycle {}: the oldest run, {} of {} old, moves to level {bottom}",
            self.cycle.number,
            size(oldest.bytes),
            size(position.old_bytes)
        );
        let mut plan = Plan::new(take, bottom, reason);
        plan.deadline = Some(self.deadline);
        close_plan(self.projected, &plan).ok().filter(|closed| closed.take.len() == plan.take.len())
    }
}

/// Returns the parts of the files of `run` in `range`.
fn takes(run: &RunView, range: &KeyRange) -> Vec<Take> {
    let part = |f: &drumlin_types::contract::FileView| {
        Some(Take { table: f.table, range: f.bounds.intersect(range)? })
    };
    overlapping(run, range).filter_map(part).collect()
}
