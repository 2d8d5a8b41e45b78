//! A tree: levels of runs of files, immutable. An edit creates the next tree, which shares every unchanged run with
//! this one.

use super::file::FileMeta;
use super::run_index::RunIndex;
use crate::base::error::{Error, ErrorKind, Result};
use drumlin_env::sync::{Arc, OnceLock};
use drumlin_types::contract::RunTag;
use drumlin_types::{Key, KeyRange, LEVELS, RunId, TableId};

/// A sorted run: files with disjoint bounds, in key order.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) id: RunId,
    pub(crate) tag: RunTag,
    pub(crate) files: Vec<Arc<FileMeta>>,
    /// Range tombstones of all its files. Set by [`Run::share`].
    pub(crate) range_tombstones: u64,
    /// Bytes of memory that its files take, without open tables. Set by [`Run::share`].
    held_bytes: usize,
    /// Index over the files. Set by [`Run::share`].
    index: RunIndex,
}

impl Run {
    /// Creates a run without files.
    pub(crate) fn new(id: RunId, tag: RunTag) -> Run {
        Run { id, tag, files: Vec::new(), range_tombstones: 0, held_bytes: 0, index: RunIndex::default() }
    }

    /// Finishes the run after its files were added, and makes it shareable.
    pub(crate) fn share(mut self) -> Arc<Run> {
        self.range_tombstones = self.files.iter().map(|f| f.counts.range_tombstones).sum();
        self.held_bytes = self.files.iter().map(|file| file.held_bytes()).sum();
        self.index = RunIndex::new(&self.files);
        Arc::new(self)
    }

    /// Returns the one file of a finished run whose bounds contain `key`.
    #[inline]
    pub(crate) fn file_for(&self, key: &[u8]) -> Option<&Arc<FileMeta>> {
        self.index.file_for(&self.files, key)
    }
}

/// A level: runs, in no particular age order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Level {
    pub(crate) runs: Vec<Arc<Run>>,
}

/// Tree of one keyspace.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) levels: Vec<Level>,
    filters: OnceLock<FilterTotals>,
}

/// Filters of all files of a tree.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct FilterTotals {
    /// Distinct keys of each file, summed over all files.
    pub(crate) keys: f64,
    /// Filter bits of these keys. A reference to a part of a table counts with the bits of its own keys.
    pub(crate) bits: f64,
}

/// A change of one tree. Removals are applied first.
#[derive(Default, Debug)]
pub(crate) struct KeyspaceEdit {
    /// References to remove, by table and first key of the bounds.
    pub(crate) remove: Vec<(TableId, Key)>,
    /// Runs to create before files are added to them.
    pub(crate) runs: Vec<(u8, RunId, RunTag)>,
    /// Files to add, with level and run.
    pub(crate) add: Vec<(u8, RunId, Arc<FileMeta>)>,
}

impl Tree {
    pub(crate) fn empty() -> Tree {
        Tree { levels: vec![Level::default(); LEVELS], filters: OnceLock::new() }
    }

    /// Returns every file with its level and run.
    pub(crate) fn files(&self) -> impl Iterator<Item = (u8, &Arc<Run>, &Arc<FileMeta>)> {
        self.levels.iter().enumerate().flat_map(|(level, l)| {
            l.runs.iter().flat_map(move |run| run.files.iter().map(move |f| (level as u8, run, f)))
        })
    }

    /// Returns keys and filter bits of all files. They are summed once for each tree.
    pub(crate) fn filters(&self) -> FilterTotals {
        *self.filters.get_or_init(|| {
            self.files().fold(FilterTotals::default(), |sum, (_, _, file)| {
                let keys = file.counts.keys as f64;
                FilterTotals { keys: sum.keys + keys, bits: sum.bits + keys * f64::from(file.filter_bits) }
            })
        })
    }

    /// Returns the bytes of memory that the tree takes, without open tables.
    pub(crate) fn held_bytes(&self) -> usize {
        self.levels.iter().flat_map(|level| &level.runs).map(|run| run.held_bytes).sum()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.files().map(|(_, _, f)| f.counts.bytes).sum()
    }

    pub(crate) fn runs(&self) -> usize {
        self.levels.iter().map(|l| l.runs.len()).sum()
    }

    /// Returns the number of runs that have a file whose bounds contain `key`.
    pub(crate) fn covering(&self, key: &[u8]) -> usize {
        self.levels.iter().flat_map(|l| &l.runs).filter(|run| run.file_for(key).is_some()).count()
    }

    /// Returns the key at which to count the runs that a scan reads. The scan starts at `key`, or for `None` goes
    /// backward from the end of `range`. The result is `key` itself if a run covers it. Otherwise it is the largest
    /// start among the files that the scan meets first, one in each run.
    pub(crate) fn met_at<'a>(&'a self, key: Option<&'a [u8]>, range: &KeyRange) -> &'a [u8] {
        let runs = self.levels.iter().flat_map(|l| &l.runs);
        match key {
            Some(key) if self.covering(key) > 0 => key,
            Some(key) => {
                let is_past = |f: &Arc<FileMeta>| !f.bounds.is_before_end(key);
                let first = |run: &'a Arc<Run>| run.files.get(run.files.partition_point(is_past));
                let starts = runs.filter_map(first).map(|file| &*file.bounds.start);
                starts.filter(|start| range.is_before_end(start)).max().unwrap_or(key)
            }
            None => {
                let is_inside = |f: &Arc<FileMeta>| range.is_before_end(&f.bounds.start);
                let last = |run: &'a Arc<Run>| run.files[..run.files.partition_point(is_inside)].last();
                runs.filter_map(last).map(|file| &*file.bounds.start).max().unwrap_or_default()
            }
        }
    }

    /// Returns the references to `table`, with level and run.
    pub(crate) fn refs(&self, table: TableId) -> impl Iterator<Item = (u8, &Arc<Run>, &Arc<FileMeta>)> {
        self.files().filter(move |(_, _, f)| f.id() == table)
    }

    /// Returns the tree after `edit`. Runs that become empty are removed. An edit that does not fit the tree is a bug.
    pub(crate) fn apply(&self, edit: &KeyspaceEdit) -> Result<Tree> {
        let mut levels: Vec<Vec<Run>> =
            self.levels.iter().map(|level| level.runs.iter().map(|run| Run::clone(run)).collect()).collect();
        let mut touched = Vec::new();
        for (table, start) in &edit.remove {
            let run = remove_file(&mut levels, *table, start)
                .ok_or_else(|| bug(format!("edit removes a reference to {table} that is not in the tree")))?;
            touched.push(run);
        }
        for (level, id, tag) in &edit.runs {
            let runs = level_mut(&mut levels, *level)?;
            if !runs.iter().any(|run| run.id == *id) {
                runs.push(Run::new(*id, tag.clone()));
            }
        }
        for (level, id, file) in &edit.add {
            let run = level_mut(&mut levels, *level)?
                .iter_mut()
                .find(|run| run.id == *id)
                .ok_or_else(|| bug(format!("edit adds {file:?} to {id}, which is not in level {level}")))?;
            add_file(run, file.clone())?;
            touched.push(*id);
        }
        Ok(Tree {
            levels: levels
                .into_iter()
                .zip(&self.levels)
                .map(|(new, old)| share(new, old, &touched))
                .collect(),
            filters: OnceLock::new(),
        })
    }
}

fn bug(what: String) -> Error {
    Error::new(ErrorKind::Bug, what)
}

fn level_mut(levels: &mut [Vec<Run>], level: u8) -> Result<&mut Vec<Run>> {
    levels.get_mut(level as usize).ok_or_else(|| bug(format!("edit names level {level}")))
}

fn remove_file(levels: &mut [Vec<Run>], table: TableId, start: &Key) -> Option<RunId> {
    for run in levels.iter_mut().flatten() {
        if let Some(at) = run.files.iter().position(|f| f.id() == table && f.bounds.start == *start) {
            run.files.remove(at);
            return Some(run.id);
        }
    }
    None
}

fn add_file(run: &mut Run, file: Arc<FileMeta>) -> Result<()> {
    let at = run.files.partition_point(|f| f.bounds.start < file.bounds.start);
    let clash = |f: &Arc<FileMeta>| f.bounds.overlaps(&file.bounds);
    if file.bounds.is_empty() || run.files.get(at).is_some_and(clash) || (at > 0 && clash(&run.files[at - 1]))
    {
        return Err(bug(format!("edit adds {file:?} where {} has other files", run.id)));
    }
    run.files.insert(at, file);
    Ok(())
}

/// Builds a level. Keeps the old `Arc` of every run that the edit did not touch.
fn share(new: Vec<Run>, old: &Level, touched: &[RunId]) -> Level {
    let keep = |run: Run| match old.runs.iter().find(|r| r.id == run.id) {
        Some(same) if !touched.contains(&run.id) => same.clone(),
        _ => run.share(),
    };
    Level { runs: new.into_iter().filter(|run| !run.files.is_empty()).map(keep).collect() }
}
