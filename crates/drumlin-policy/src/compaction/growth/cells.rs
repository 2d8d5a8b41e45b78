//! Cells: the parts of the key space that a clear pushes into V2 or keeps in V1.
//!
//! Cells are cut at the file bounds of V2, so that pushing one rewrites whole files. A push rewrites the bytes of V2
//! in the cell and removes those of H and V1. So the densest cells go first: those with the most bytes above V2 per
//! byte of V2. This is RocksDB's `kMinOverlappingRatio`, over key ranges instead of files.

use crate::compaction::stack::overlapping;
use crate::share::share;
use alloc::vec::Vec;
use drumlin_types::contract::RunView;
use drumlin_types::{Key, KeyRange};

/// Bytes added to those of V2 in a cell, so that cells without data in V2 have a finite density.
const BLOCK: u64 = 4096;

/// A part of the key space.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Cell {
    pub(super) range: KeyRange,
    /// Bytes of old runs of H.
    pub(super) old: u64,
    /// Bytes of V1, and the number of its runs.
    pub(super) v1: u64,
    pub(super) v1_runs: usize,
    /// Bytes of V2, and the number of its runs.
    pub(super) v2: u64,
    pub(super) v2_runs: usize,
    /// Whether a plan may take all files of the old runs, of V1 and of V2.
    pub(super) is_free: [bool; 3],
}

impl Cell {
    /// Returns the bytes that a push removes from H and V1.
    fn above(&self) -> u64 {
        self.old + self.v1
    }
}

/// Returns the cells of a tree whose V2 has the runs `v2`. Each cell but the last holds `least` bytes of the largest
/// run of V2, or a little more.
///
/// Keys of H and V1 are assumed to be distributed like those of V2. So the bytes of each file are divided over its
/// cells in proportion to their bytes in V2.
pub(super) fn cells(old: &[&RunView], v1: &[RunView], v2: &[RunView], least: u64) -> Vec<Cell> {
    let edges = edges(v2, least);
    let starts = core::iter::once(Key::empty()).chain(edges.iter().cloned());
    let ends = edges.iter().cloned().map(Some).chain([None]);
    let ranges = starts.zip(ends).map(|(start, end)| KeyRange::new(start, end));
    let mut cells: Vec<Cell> = ranges.map(|range| cell(v2, range)).collect();
    for run in old {
        spread(run, &mut cells, |cell, bytes, is_free| {
            cell.old += bytes;
            cell.is_free[0] &= is_free;
        });
    }
    for run in v1 {
        spread(run, &mut cells, |cell, bytes, is_free| {
            cell.v1 += bytes;
            cell.is_free[1] &= is_free;
        });
        for cell in &mut cells {
            cell.v1_runs += usize::from(overlapping(run, &cell.range).next().is_some());
        }
    }
    cells
}

/// Returns the keys at which the largest run of V2 is cut.
fn edges(v2: &[RunView], least: u64) -> Vec<Key> {
    let Some(largest) = v2.iter().max_by_key(|run| run.bytes()) else { return Vec::new() };
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

/// Returns the cell of `range` with what V2 has there.
fn cell(v2: &[RunView], range: KeyRange) -> Cell {
    let (mut bytes, mut runs, mut is_free) = (0, 0, true);
    for run in v2 {
        let before = bytes;
        for file in overlapping(run, &range) {
            bytes += ((share(&file.bounds, &range) * file.bytes as f64) as u64).max(1);
            is_free &= file.is_takeable();
        }
        runs += usize::from(bytes > before);
    }
    Cell { range, old: 0, v1: 0, v1_runs: 0, v2: bytes, v2_runs: runs, is_free: [true, true, is_free] }
}

/// Divides the bytes of the files of `run` over the cells that they overlap, at least one byte for each.
fn spread(run: &RunView, cells: &mut [Cell], mut add: impl FnMut(&mut Cell, u64, bool)) {
    for file in &run.files {
        let first = cells
            .partition_point(|cell| cell.range.end.as_ref().is_some_and(|end| *end <= file.bounds.start));
        let past = cells.partition_point(|cell| file.bounds.is_before_end(&cell.range.start));
        let Some(met) = cells.get_mut(first..past.max(first + 1)) else { continue };
        let weight = |cell: &Cell| {
            // The outermost cells are unbounded, so the share of their key range has no meaning.
            let is_open = cell.range.start.is_empty() || cell.range.end.is_none();
            let part = if is_open { 1.0 } else { share(&cell.range, &file.bounds) };
            (cell.v2 + BLOCK) as f64 * part.max(1e-6)
        };
        let all: f64 = met.iter().map(weight).sum();
        for cell in met {
            let bytes = (file.bytes as f64 * weight(cell) / all) as u64;
            add(cell, bytes.max(1), file.is_takeable());
        }
    }
}

/// Returns for each cell whether it is pushed: the densest first, until at most `kept` bytes stay above V2. A cell with
/// several runs of V2 is always pushed, which merges them.
pub(super) fn pushed(cells: &[Cell], kept: u64) -> Vec<bool> {
    let mut is_pushed: Vec<bool> = cells.iter().map(|cell| cell.v2_runs > 1).collect();
    let stays = cells.iter().zip(&is_pushed).filter(|(_, pushed)| !**pushed);
    let mut rest: u64 = stays.map(|(cell, _)| cell.above()).sum();
    let density = |cell: &Cell| cell.above() as f64 / (cell.v2 + BLOCK) as f64;
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
            v1: 0,
            v1_runs: 0,
            v2: 10 << 20,
            v2_runs: 1,
            is_free: [true; 3],
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
        assert_eq!(found.iter().map(|cell| cell.v2_runs).collect::<Vec<_>>(), [2, 1]);
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
        assert_eq!(cells.iter().map(|cell| cell.v2).sum::<u64>(), 25 << 20);
        let old: u64 = cells.iter().map(|cell| cell.old).sum();
        assert!(old.abs_diff(25 << 20) <= 2, "{old}");
        assert!(cells.iter().all(|cell| cell.is_free == [true; 3] && cell.v2_runs == 1));
    }

    /// Bytes of a file go to the cells by their bytes in V2, whatever the width of the cells.
    #[test]
    fn wide_cells_with_few_keys_get_few_bytes() {
        let tree =
            parse_tree("L1: [a..z #9-10 22M]  L6: [a..b #1-2 10M][b..c #1-2 10M][c..z #1-2 2M]").unwrap();
        let old: Vec<&RunView> = tree.levels[1].runs.iter().collect();
        let cells = cells(&old, &[], &tree.levels[6].runs, 2 << 20);
        let found: Vec<u64> = cells.iter().map(|cell| cell.old >> 19).collect();
        assert_eq!(found, [19, 19, 4], "in half megabytes");
    }
}
