//! Runs as the presets count them.
//!
//! The outputs that a ticket (scheduled compaction) has installed and those that it will still install count as one
//! run. Presets leave that run alone, because compacting half-built runs would rewrite bytes that need no rewrite
//! once the run is complete. A run is idle when no unfinished plan touches it. Presets that take
//! whole runs take only idle ones.

use alloc::string::String;
use alloc::vec::Vec;
use drumlin_types::contract::{FileState, FileView, Plan, RunView, Take, TreeView};
use drumlin_types::{KeyRange, RunId, Seq, Ticket};

/// One run of a level, or all outputs of one ticket in that level.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackRun<'a> {
    pub(super) level: u8,
    pub(super) view: &'a RunView,
    pub(super) bytes: u64,
    pub(super) max_seq: Seq,
    /// Whether every file is free, so that a preset may take the run.
    pub(super) idle: bool,
}

/// Returns the runs of a level of a projected tree, newest first. All runs of one ticket form one entry, which is not
/// idle.
pub(super) fn stack(tree: &TreeView, level: u8) -> Vec<StackRun<'_>> {
    let mut half_built: Vec<(Ticket, usize)> = Vec::new();
    let mut runs: Vec<StackRun<'_>> = Vec::new();
    for view in tree.levels.get(usize::from(level)).map(|l| &l.runs).into_iter().flatten() {
        let idle = view.files.iter().all(|f| f.state == FileState::Free);
        let run = StackRun { level, view, bytes: view.bytes(), max_seq: view.max_seq(), idle };
        let Some(ticket) = lone_ticket(view) else {
            runs.push(run);
            continue;
        };
        match half_built.iter().find(|(t, _)| *t == ticket) {
            Some(&(_, at)) => {
                runs[at].bytes += run.bytes;
                runs[at].max_seq = runs[at].max_seq.max(run.max_seq);
            }
            None => {
                half_built.push((ticket, runs.len()));
                runs.push(run);
            }
        }
    }
    runs.sort_by_key(|run| core::cmp::Reverse(run.max_seq));
    runs
}

/// Returns the ticket that produces all files of `run`, if there is exactly one.
fn lone_ticket(run: &RunView) -> Option<Ticket> {
    let mut tickets = run.files.iter().map(|f| match f.state {
        FileState::Settling(ticket) | FileState::Coming(ticket) => Some(ticket),
        FileState::Free | FileState::Leaving(_) | FileState::Unavailable => None,
    });
    let first = tickets.next()??;
    tickets.all(|ticket| ticket == Some(first)).then_some(first)
}

/// Returns all runs of the tree, newest first for every key: by level, and newest first within a level.
pub(super) fn line(tree: &TreeView) -> Vec<StackRun<'_>> {
    (0..tree.levels.len()).flat_map(|level| stack(tree, level as u8)).collect()
}

pub(super) fn bytes(runs: &[StackRun<'_>]) -> u64 {
    runs.iter().map(|run| run.bytes).sum()
}

pub(super) fn all_idle(runs: &[StackRun<'_>]) -> bool {
    runs.iter().all(|run| run.idle)
}

/// Returns a plan that compacts whole runs into a new run of level `out`, with every further run that must not stay
/// behind. Returns `None` when `chosen` is empty, when one of them is not idle, or when the plan would only rewrite a
/// single run of `out`.
pub(super) fn whole_runs(tree: &TreeView, chosen: &[StackRun<'_>], out: u8, reason: String) -> Option<Plan> {
    if chosen.is_empty() || !all_idle(chosen) {
        return None;
    }
    let mut runs: Vec<(u8, &RunView)> = chosen.iter().map(|run| (run.level, run.view)).collect();
    let mut next = 0;
    while let Some(&(level, run)) = runs.get(next) {
        next += 1;
        for other_level in level..out {
            for other in &tree.levels.get(usize::from(other_level))?.runs {
                let is_chosen = runs.iter().any(|(_, run)| run.id == other.id);
                if is_chosen || !must_join(run, other, other_level > level) {
                    continue;
                }
                if other.files.iter().any(|f| f.state != FileState::Free) {
                    return None;
                }
                runs.push((other_level, other));
            }
        }
    }
    if let [(level, _)] = runs[..]
        && level == out
    {
        return None;
    }
    let files = runs.iter().flat_map(|(_, run)| &run.files);
    let take = files.map(|f| Take { table: f.table, range: f.bounds.clone() }).collect();
    Some(Plan::new(take, out, reason))
}

/// Returns whether `other` must move too when `run` moves down past it.
fn must_join(run: &RunView, other: &RunView, is_deeper: bool) -> bool {
    let meets = |f: &FileView| overlapping(other, &f.bounds).any(|g| is_deeper || g.min_seq <= f.max_seq);
    run.files.iter().any(meets)
}

/// Returns the largest run of a level by bytes; leveled outputs are placed in its gap.
pub(super) fn largest_run(tree: &TreeView, level: u8) -> Option<RunId> {
    tree.levels.get(usize::from(level))?.runs.iter().max_by_key(|run| run.bytes()).map(|run| run.id)
}

/// Returns the files of a run that share keys with `range`.
pub(super) fn overlapping<'a>(run: &'a RunView, range: &KeyRange) -> impl Iterator<Item = &'a FileView> {
    let is_before = |f: &FileView| f.bounds.end.as_ref().is_some_and(|end| *end <= range.start);
    let files = run.files[run.files.partition_point(is_before)..].iter();
    files.take_while(|f| range.is_before_end(&f.bounds.start)).filter(|f| f.bounds.overlaps(range))
}
