//! Depth of the tree at the keys that reads access, and the cost of those reads.
//!
//! Compactions that do not wait for each other leave *extra runs*: in each level, the runs that cover a key beyond
//! the number that the policy intends (one, if it sets no number). A read is classified by its extra runs, summed
//! over all levels, at its key or at the start key of a range, in the tree at the start of the read.
//!
//! The scheduler bounds the runs of a level at one key. So after each change of the tree, the deepest place of each
//! level is determined and reported beside that bound.

use crate::drumlin_engine::Open;
use drumlin::{FileShape, LevelShape, Metrics};
use hdrhistogram::Histogram;
use serde::Serialize;

/// Lower bounds of the classes of reads, in extra runs.
const CLASSES: [u64; 5] = [0, 1, 3, 5, 9];
const NAMES: [&str; 5] = ["0", "1-2", "3-4", "5-8", "> 8"];
/// Upper bound of the read time histogram, in nanoseconds.
const LONGEST: u64 = 1 << 42;

/// Reads with a similar number of extra runs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ReadsAt {
    /// Kind of read: `get` or `range`.
    pub kind: &'static str,
    /// Range of extra runs of the class.
    pub extra: &'static str,
    /// Share of the phase's reads of this kind.
    pub share: f64,
    /// Mean virtual nanoseconds.
    pub nanos: f64,
    /// Mean number of blocks fetched.
    pub fetched: f64,
    /// 99th percentile in nanoseconds.
    pub p99: f64,
}

/// Deepest place of a level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Deepest {
    /// Number of the level.
    pub level: u8,
    /// Maximum number of runs that covered one key.
    pub runs: u64,
    /// Number of runs that the policy intends.
    pub design: Option<u64>,
    /// Limit on runs at one key: from this number on, no compaction adds a run, except the oldest one in progress.
    pub most: Option<u64>,
}

/// State of the tree during a phase, with the reads counted so far.
pub(super) struct Depths {
    stamp: Option<Stamp>,
    levels: Vec<LevelShape>,
    deepest: Vec<Deepest>,
    classes: [[Class; CLASSES.len()]; 2],
}

/// Counters of flushes, compactions and trivial moves, which change with every change of the tree.
type Stamp = [u64; 3];

struct Class {
    times: Histogram<u64>,
    nanos: u64,
    fetched: u64,
}

impl Class {
    fn new() -> Result<Class, String> {
        let times = Histogram::new_with_bounds(1, LONGEST, 3).map_err(|e| e.to_string())?;
        Ok(Class { times, nanos: 0, fetched: 0 })
    }
}

impl Depths {
    pub(super) fn new() -> Result<Depths, String> {
        let classes = || -> Result<[Class; CLASSES.len()], String> {
            Ok([Class::new()?, Class::new()?, Class::new()?, Class::new()?, Class::new()?])
        };
        Ok(Depths { stamp: None, levels: Vec::new(), deepest: Vec::new(), classes: [classes()?, classes()?] })
    }

    /// Prepares for an operation on `open`: updates the tree if it has changed. Returns the blocks fetched so far.
    pub(super) fn meet(&mut self, open: &Open) -> u64 {
        let Metrics { flushes, compactions: merges, moves, cache_misses, .. } = open.db.metrics();
        let stamp = [flushes, merges, moves];
        if self.stamp.replace(stamp) != Some(stamp) {
            self.see(open.levels());
        }
        cache_misses
    }

    /// Records a changed tree.
    fn see(&mut self, levels: Vec<LevelShape>) {
        for level in levels.iter().filter(|level| !level.runs.is_empty()) {
            let files = level.runs.iter().flat_map(|run| &run.files);
            let (runs, design, most) = (deepest(files), level.design_runs, level.most_runs);
            match self.deepest.iter_mut().find(|d| d.level == level.level) {
                Some(before) if before.runs >= runs => {}
                Some(before) => *before = Deepest { level: level.level, runs, design, most },
                None => self.deepest.push(Deepest { level: level.level, runs, design, most }),
            }
        }
        self.deepest.sort_by_key(|d| d.level);
        self.levels = levels;
    }

    /// Returns the number of extra runs at `key`, summed over all levels.
    fn extra(&self, key: &[u8]) -> u64 {
        let covers = |f: &FileShape| *f.first <= *key && f.end.as_ref().is_none_or(|end| *key < **end);
        let extra = |level: &LevelShape| {
            let there = level.runs.iter().filter(|run| run.files.iter().any(covers)).count() as u64;
            there.saturating_sub(level.design_runs.unwrap_or(1))
        };
        self.levels.iter().map(extra).sum()
    }

    /// Counts a read of `key` that took `nanos` and fetched `fetched` blocks.
    pub(super) fn count(&mut self, is_range: bool, key: &[u8], nanos: u64, fetched: u64) {
        let extra = self.extra(key);
        let at = CLASSES.iter().rposition(|least| extra >= *least).unwrap_or(0);
        let class = &mut self.classes[usize::from(is_range)][at];
        class.times.saturating_record(nanos);
        class.nanos += nanos;
        class.fetched += fetched;
    }

    /// Returns the results of the phase. Recorded times are divided by `slower`.
    pub(super) fn result(self, slower: f64) -> (Vec<ReadsAt>, Vec<Deepest>) {
        let mut reads = Vec::new();
        for (kind, classes) in ["get", "range"].into_iter().zip(&self.classes) {
            let all: u64 = classes.iter().map(|class| class.times.len()).sum();
            for (extra, class) in NAMES.into_iter().zip(classes).filter(|(_, class)| !class.times.is_empty())
            {
                let each = |sum: u64| sum as f64 / class.times.len() as f64;
                reads.push(ReadsAt {
                    kind,
                    extra,
                    share: class.times.len() as f64 / all as f64,
                    nanos: each(class.nanos) / slower,
                    fetched: each(class.fetched),
                    p99: class.times.value_at_quantile(0.99) as f64 / slower,
                });
            }
        }
        (reads, self.deepest)
    }
}

/// Returns the largest number of `files` that cover one key.
fn deepest<'a>(files: impl Iterator<Item = &'a FileShape>) -> u64 {
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for file in files {
        starts.push(&file.first);
        ends.extend(&file.end);
    }
    starts.sort_unstable();
    ends.sort_unstable();
    let (mut most, mut ended) = (0, 0);
    for (begun, start) in starts.iter().enumerate() {
        ended += ends[ended..].iter().take_while(|end| *end <= start).count();
        most = most.max(begun + 1 - ended);
    }
    most as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin::{FileRole, RunShape};

    fn file(bounds: &str) -> FileShape {
        let (first, end) = (bounds[..1].into(), Some(bounds[1..].into()));
        FileShape {
            table: 1,
            first,
            end,
            bytes: 1,
            entries: 1,
            tombstones: 0,
            range_tombstones: 0,
            min_seq: 1,
            max_seq: 1,
            narrowed: false,
            filter_bits: 0.0,
            filter_false_positive_rate: 1.0,
            filter_skipped: false,
            lookups_empty: 0.0,
            lookups_found: 0.0,
            lookups_dead: 0.0,
            state: FileRole::Free,
        }
    }

    fn level(level: u8, design_runs: Option<u64>, runs: &[&[&str]]) -> LevelShape {
        let run = |files: &&[&str]| RunShape {
            id: 1,
            tag: Vec::new(),
            files: files.iter().map(|bounds| file(bounds)).collect(),
        };
        LevelShape { level, design_runs, most_runs: Some(9), runs: runs.iter().map(run).collect() }
    }

    #[test]
    fn reads_are_counted_by_the_extra_runs_at_their_key() {
        let mut depths = Depths::new().unwrap();
        depths.see(vec![
            level(0, Some(2), &[&["az"], &["az"], &["az"]]),
            level(1, Some(1), &[&["ac", "ce"], &["bd"], &["bc"]]),
            level(2, None, &[&["az"], &["am"]]),
        ]);
        assert_eq!([b"a", b"b", b"c", b"p"].map(|key| depths.extra(key)), [2, 4, 3, 1]);
        for (is_range, key, nanos) in
            [(false, b"a", 100), (false, b"b", 700), (false, b"p", 200), (true, b"c", 5)]
        {
            depths.count(is_range, key, nanos, 1);
        }
        let (reads, deepest) = depths.result(10.0);
        let found: Vec<_> = reads.iter().map(|r| (r.kind, r.extra, r.nanos)).collect();
        assert_eq!(found, [("get", "1-2", 15.0), ("get", "3-4", 70.0), ("range", "3-4", 0.5)]);
        assert!((reads[0].share - 2.0 / 3.0).abs() < 1e-9 && reads[0].p99 >= 20.0);
        let runs: Vec<_> = deepest.iter().map(|d| (d.level, d.runs)).collect();
        assert_eq!(runs, [(0, 3), (1, 3), (2, 2)]);
    }
}
