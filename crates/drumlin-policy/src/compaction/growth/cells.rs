//! Cells: the parts of the key space that a clear pushes into V2 or keeps in V1.
//!
//! Cells are cut at the file bounds of V2, so that pushing one rewrites whole files. Pushing costs the bytes of V2 in
//! the cell and removes those of H and V1, so the densest cells go first. This is the choice of the least overlap, over
//! key ranges instead of files.

use crate::compaction::stack::overlapping;
use crate::share::share;
use alloc::vec::Vec;
use drumlin_types::contract::{FileView, RunView};
use drumlin_types::{Key, KeyRange};

/// Bytes that a push reads of V2 at least, so that empty cells have a finite density.
const BLOCK: u64 = 4096;

/// A part of the key space.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Cell {
    pub(super) range: KeyRange,
    /// Bytes of old runs of H.
    pub(super) old: u64,
    /// Bytes of V1.
    pub(super) middle: u64,
    /// Bytes of V2.
    pub(super) bottom: u64,
    /// Number of runs of V2.
    pub(super) bottom_runs: usize,
    /// Whether a plan may take all its files.
    pub(super) is_free: bool,
}

impl Cell {
    /// Returns the bytes that a push removes from H and V1.
    fn above(&self) -> u64 {
        self.old + self.middle
    }
}

/// Returns the cells of a tree whose V2 has the runs `bottom`: of `least` bytes of V2 each, or a little more.
pub(super) fn cells(old: &[&RunView], middle: &[RunView], bottom: &[RunView], least: u64) -> Vec<Cell> {
    let edges = edges(bottom, least);
    let starts = core::iter::once(Key::empty()).chain(edges.iter().cloned());
    let ends = edges.iter().cloned().map(Some).chain([None]);
    let ranges = starts.zip(ends).map(|(start, end)| KeyRange::new(start, end));
    ranges.map(|range| cell(old, middle, bottom, range)).collect()
}

/// Returns the keys at which the largest run of V2 is cut.
fn edges(bottom: &[RunView], least: u64) -> Vec<Key> {
    let Some(largest) = bottom.iter().max_by_key(|run| run.bytes()) else { return Vec::new() };
    let (mut edges, mut gathered) = (Vec::new(), 0);
    for file in &largest.files {
        if gathered >= least.max(1) && !file.bounds.start.is_empty() {
            edges.push(file.bounds.start.clone());
            gathered = 0;
        }
        gathered += file.bytes;
    }
    edges
}

fn cell(old: &[&RunView], middle: &[RunView], bottom: &[RunView], range: KeyRange) -> Cell {
    let mut is_free = true;
    let mut bytes = |run: &RunView| -> u64 {
        let part = |file: &FileView| {
            is_free &= file.is_takeable();
            // A file of the cell counts, however small its share.
            ((share(&file.bounds, &range) * file.bytes as f64) as u64).max(1)
        };
        overlapping(run, &range).map(part).sum()
    };
    let old = old.iter().map(|run| bytes(run)).sum();
    let middle = middle.iter().map(&mut bytes).sum();
    let of_bottom = bottom.iter().map(&mut bytes).sum();
    let bottom_runs = bottom.iter().filter(|run| overlapping(run, &range).next().is_some()).count();
    Cell { range, old, middle, bottom: of_bottom, bottom_runs, is_free }
}

/// Returns for each cell whether it is pushed: the densest first, until at most `kept` bytes stay above V2. A cell with
/// several runs of V2 is always pushed, which merges them.
pub(super) fn pushed(cells: &[Cell], kept: u64) -> Vec<bool> {
    let mut is_pushed: Vec<bool> = cells.iter().map(|cell| cell.bottom_runs > 1).collect();
    let stays = cells.iter().zip(&is_pushed).filter(|(_, pushed)| !**pushed);
    let mut rest: u64 = stays.map(|(cell, _)| cell.above()).sum();
    let density = |cell: &Cell| cell.above() as f64 / (cell.bottom + BLOCK) as f64;
    let mut order: Vec<usize> = (0..cells.len()).filter(|at| !is_pushed[*at]).collect();
    order.sort_by(|a, b| density(&cells[*b]).total_cmp(&density(&cells[*a])));
    for at in order {
        if rest <= kept {
            break;
        }
        rest -= cells[at].above();
        is_pushed[at] = true;
    }
    is_pushed
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_types::contract::draw::parse_tree;

    #[test]
    fn the_densest_cells_are_pushed() {
        let cell = |old: u64| Cell {
            range: KeyRange::all(),
            old: old << 20,
            middle: 0,
            bottom: 10 << 20,
            bottom_runs: 1,
            is_free: true,
        };
        let cells: Vec<Cell> = [6, 1, 4, 2, 8, 3, 5, 1].map(cell).into();
        let pushed_cells = |kept: u64| -> Vec<usize> {
            let pushed = pushed(&cells, kept << 20);
            (0..8).filter(|at| pushed[*at]).map(|at| at + 1).collect()
        };
        assert_eq!(pushed_cells(18), [1, 5]);
        assert_eq!(pushed_cells(22), [5]);
        assert_eq!(pushed_cells(30), [0usize; 0]);
        assert_eq!(pushed_cells(0).len(), 8);
    }

    #[test]
    fn several_runs_of_the_last_level_are_merged() {
        let tree = parse_tree("L6: [a..g #1-2 9M][g..z #1-2 9M] | [b..d #3-4 1M]").unwrap();
        let found = cells(&[], &[], &tree.levels[6].runs, 9 << 20);
        assert_eq!(found.iter().map(|cell| cell.bottom_runs).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(pushed(&found, u64::MAX), [true, false]);
    }

    #[test]
    fn cells_divide_all_keys_and_all_bytes() {
        let tree =
            parse_tree("L1: [a..z #9-10 25M]  L6: [a..g #1-2 6M][g..m #1-2 6M][m..t #1-2 7M][t..z #1-2 6M]");
        let tree = tree.unwrap();
        let old: Vec<&RunView> = tree.levels[1].runs.iter().collect();
        let cells = cells(&old, &[], &tree.levels[6].runs, 10 << 20);
        assert_eq!(cells.len(), 2);
        assert_eq!(cells[0].range.end.as_ref(), Some(&cells[1].range.start));
        assert!(cells[0].range.start.is_empty() && cells[1].range.end.is_none());
        assert_eq!(cells.iter().map(|cell| cell.bottom).sum::<u64>(), 25 << 20);
        let old: u64 = cells.iter().map(|cell| cell.old).sum();
        assert!(old.abs_diff(25 << 20) <= 2, "{old}");
        assert!(cells.iter().all(|cell| cell.is_free && cell.bottom_runs == 1));
    }
}
