//! Mapping of the key space to columns.
//!
//! The bounds of all files divide the key space into intervals. Each file distributes its bytes evenly over the
//! intervals that it covers. The width of an interval is the sum of the bytes it receives from all files. So the
//! width of a key range depends on the data stored in it and not on the form of the keys, and an empty key range has
//! no width. On this axis, a file's bytes are distributed evenly between its bounds.

use crate::store::{FileShape, KeyspaceShape};

/// The axis, divided into columns of equal width.
pub(super) struct Axis {
    /// Distinct bounds of files, sorted.
    cuts: Vec<Vec<u8>>,
    /// Bytes to the left of each cut, and of the end of the key space.
    positions: Vec<f64>,
    columns: usize,
}

impl Axis {
    /// Builds the axis for all files of `shape`.
    pub(super) fn new(shape: &KeyspaceShape, columns: usize) -> Axis {
        let files: Vec<_> = files(shape).collect();
        let mut cuts: Vec<_> = files.iter().map(|f| f.first.clone()).collect();
        cuts.extend(files.iter().filter_map(|f| f.end.clone()));
        cuts.sort_unstable();
        cuts.dedup();
        let mut axis = Axis { positions: vec![0.0; cuts.len() + 1], cuts, columns };
        axis.positions = axis.weigh(&files);
        axis
    }

    /// Returns the running sums of the bytes per interval.
    fn weigh(&self, files: &[&FileShape]) -> Vec<f64> {
        let mut change = vec![0.0; self.positions.len()];
        for file in files {
            let (from, to) = self.intervals(file);
            let share = file.bytes as f64 / (to - from) as f64;
            change[from] += share;
            change[to] -= share;
        }
        let (mut density, mut sum) = (0.0, 0.0);
        let mut positions = vec![0.0];
        for step in &change[..change.len() - 1] {
            density += step;
            // Floating-point sums may be slightly negative where no data is stored.
            sum += f64::max(density, 0.0);
            positions.push(sum);
        }
        positions
    }

    /// Returns the first interval that `file` covers and the first one after it; the range holds at least one
    /// interval.
    fn intervals(&self, file: &FileShape) -> (usize, usize) {
        let place = |key: &Vec<u8>| self.cuts.binary_search(key).unwrap_or_else(|place| place);
        let from = place(&file.first);
        let to = file.end.as_ref().map_or(self.cuts.len(), place);
        (from, to.max(from + 1))
    }

    /// Adds the bytes of `file` that lie in each column to `columns`.
    pub(super) fn add(&self, file: &FileShape, columns: &mut [f64]) {
        let total = self.positions.last().copied().unwrap_or(0.0);
        if total <= 0.0 || columns.is_empty() {
            return;
        }
        let scale = self.columns as f64 / total;
        let (from, to) = self.intervals(file);
        let (left, right) = (self.positions[from] * scale, self.positions[to] * scale);
        let last = columns.len() - 1;
        let first_column = (left as usize).min(last);
        let width = right - left;
        if width <= 0.0 {
            columns[first_column] += file.bytes as f64;
            return;
        }
        for (column, bytes) in columns.iter_mut().enumerate().skip(first_column) {
            let overlap = right.min((column + 1) as f64) - left.max(column as f64);
            if overlap <= 0.0 {
                break;
            }
            *bytes += file.bytes as f64 * overlap / width;
        }
    }
}

/// Returns all files of a tree.
pub(super) fn files(shape: &KeyspaceShape) -> impl Iterator<Item = &FileShape> {
    shape.levels.iter().flat_map(|level| level.runs.iter().flat_map(|run| run.files.iter()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{LevelShape, RunShape};

    fn file(first: &str, end: Option<&str>, bytes: u64) -> FileShape {
        let end = end.map(|end| end.as_bytes().to_vec());
        FileShape { first: first.as_bytes().to_vec(), end, bytes, ..FileShape::default() }
    }

    fn shape(runs: Vec<Vec<FileShape>>) -> KeyspaceShape {
        let runs = runs.into_iter().map(|files| RunShape { files, ..RunShape::default() }).collect();
        KeyspaceShape {
            levels: vec![LevelShape { runs, ..LevelShape::default() }],
            ..KeyspaceShape::default()
        }
    }

    fn columns(shape: &KeyspaceShape, run: usize, count: usize) -> Vec<f64> {
        let axis = Axis::new(shape, count);
        let mut columns = vec![0.0; count];
        shape.levels[0].runs[run].files.iter().for_each(|f| axis.add(f, &mut columns));
        columns.iter().map(|bytes| (bytes * 1000.0).round() / 1000.0).collect()
    }

    #[test]
    fn room_is_given_by_bytes_and_files_lie_evenly_in_theirs() {
        let shape = shape(vec![
            vec![file("a", Some("b"), 300), file("b", Some("z"), 100)],
            vec![file("a", Some("z"), 400)],
        ]);
        // Interval [a, b) has 300 + 200 bytes, and [b, z) has 100 + 200.
        assert_eq!(columns(&shape, 0, 8), [60.0, 60.0, 60.0, 60.0, 60.0, 33.333, 33.333, 33.333]);
        assert_eq!(columns(&shape, 1, 8), [50.0; 8]);
    }

    #[test]
    fn gaps_take_no_room_and_no_byte_is_lost() {
        let shape = shape(vec![vec![file("a", Some("b"), 50), file("x", None, 50)]]);
        assert_eq!(columns(&shape, 0, 4), [25.0; 4]);
    }

    #[test]
    fn degenerate_trees_are_drawn_too() {
        assert_eq!(columns(&shape(vec![vec![]]), 0, 4), [0.0; 4]);
        assert_eq!(columns(&shape(vec![vec![file("a", Some("b"), 0)]]), 0, 4), [0.0; 4]);
        // Bounds in the wrong order must not cause a panic.
        let odd = shape(vec![vec![file("b", Some("a"), 8), file("c", Some("c"), 8)]]);
        assert_eq!(columns(&odd, 0, 4).iter().sum::<f64>(), 16.0);
    }

    #[test]
    fn random_trees_lose_no_byte() {
        let mut state = 7u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let runs = (0..1 + draw(4)).map(|_| {
                let mut keys: Vec<_> = (0..2 + draw(6)).map(|_| format!("{:03}", draw(500))).collect();
                keys.sort();
                keys.dedup();
                keys.windows(2).map(|pair| file(&pair[0], Some(&pair[1]), draw(1000))).collect()
            });
            let shape = shape(runs.collect());
            let axis = Axis::new(&shape, 40);
            for run in &shape.levels[0].runs {
                let mut columns = vec![0.0; 40];
                run.files.iter().for_each(|f| axis.add(f, &mut columns));
                let bytes: u64 = run.files.iter().map(|f| f.bytes).sum();
                let drawn: f64 = columns.iter().sum();
                assert!((drawn - bytes as f64).abs() < 1e-6 * (1.0 + bytes as f64), "{drawn} of {bytes}");
            }
        }
    }
}
