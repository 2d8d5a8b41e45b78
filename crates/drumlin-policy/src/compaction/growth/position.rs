//! Where a tree stands in its cycle: the runs of the present cycle, and what older cycles left.
//!
//! The *horizontal part*, H, is every level above the two last ones, V1 and V2. A run of H belongs to the present
//! cycle if its tag says so. Every other run of H is *old*: the next clear moves it into V1 and V2.

use super::shape::UNITS;
use super::tag::{Cycle, Units, decode};
use crate::compaction::stack::{StackRun, stack};
use alloc::vec::Vec;
use drumlin_types::contract::{RunView, TreeView};

/// Run of the present cycle.
#[derive(Clone, Copy, Debug)]
pub(super) struct CycleRun<'a> {
    pub(super) run: StackRun<'a>,
    pub(super) units: Units,
}

/// Runs of the horizontal part.
#[derive(Debug, Default)]
pub(super) struct Position<'a> {
    /// Runs of the present cycle, newest first.
    pub(super) current: Vec<CycleRun<'a>>,
    /// All other runs of H, newest first.
    pub(super) old: Vec<StackRun<'a>>,
    /// Number of whole units of the present cycle (t).
    pub(super) units: u16,
    /// Bytes of the runs of the present cycle.
    pub(super) current_bytes: u64,
    /// Bytes of the old runs.
    pub(super) old_bytes: u64,
    /// Bytes of open runs of the unit `units` + 1.
    pub(super) open_bytes: u64,
}

/// Returns the numbers of the levels V1 and V2.
pub(super) fn vertical(tree: &TreeView) -> (u8, u8) {
    let last = (tree.levels.len() as u8).saturating_sub(1);
    (last.saturating_sub(1), last)
}

/// Returns whether `run`, a run of H, belongs to the cycle with this number.
pub(super) fn belongs(run: &RunView, cycle: u32) -> bool {
    decode(&run.tag).is_some_and(|(of, _)| of.number == cycle)
}

/// Returns the position of `tree`, which may be projected or not, in the cycle with this number.
pub(super) fn position(tree: &TreeView, cycle: u32) -> Position<'_> {
    let mut found = Position::default();
    for level in 0..vertical(tree).0 {
        for run in stack(tree, level) {
            match decode(&run.view.tag).filter(|(of, _)| of.number == cycle) {
                Some((_, units)) => {
                    found.current_bytes += run.bytes;
                    found.current.push(CycleRun { run, units });
                }
                None => {
                    found.old_bytes += run.bytes;
                    found.old.push(run);
                }
            }
        }
    }
    let closed = found.current.iter().filter(|run| !run.units.is_open);
    found.units = closed.map(|run| run.units.hi).max().unwrap_or(0);
    let is_open = |run: &&CycleRun<'_>| run.units.is_open && run.units.hi > found.units;
    found.open_bytes = found.current.iter().filter(is_open).map(|run| run.run.bytes).sum();
    found
}

/// Returns the newest cycle that a run of H belongs to.
pub(super) fn newest_cycle(tree: &TreeView) -> Option<Cycle> {
    let runs = tree.levels.iter().take(usize::from(vertical(tree).0)).flat_map(|level| &level.runs);
    runs.filter_map(|run| decode(&run.tag)).map(|(cycle, _)| cycle).max_by_key(|cycle| cycle.number)
}

impl Position<'_> {
    /// Returns whether an old run may hold newer versions than a run of the present cycle. Old runs are older than
    /// the whole cycle unless another policy was in force since it began.
    pub(super) fn is_broken(&self) -> bool {
        let oldest = self.current.iter().map(|run| run.run.view.min_seq()).min();
        oldest.is_some_and(|oldest| self.old.iter().any(|old| old.max_seq > oldest))
    }

    /// Returns the units of the next flush, of `bytes` bytes.
    pub(super) fn next(&self, bytes: u64, unit_bytes: u64) -> Units {
        let lo = self.units.saturating_add(1);
        let gathered = self.open_bytes.saturating_add(bytes);
        if unit_bytes == 0 {
            return Units { lo, hi: lo, is_open: false };
        }
        // The unit stays open if more than half of another such flush still fits into it.
        if gathered.saturating_add(bytes / 2) < unit_bytes {
            return Units { lo, hi: lo, is_open: true };
        }
        let rounded = (gathered + unit_bytes / 2) / unit_bytes;
        let more = rounded.clamp(1, u64::from(*UNITS.end())) as u16 - 1;
        Units { lo, hi: lo.saturating_add(more), is_open: false }
    }
}
