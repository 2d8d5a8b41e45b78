//! A link of the age line: runs that are compacted together, because they share keys at overlapping ages.

use alloc::vec::Vec;
use core::ops::Deref;
use core::slice;
use drumlin_types::contract::{FileState, FileView, RunView};
use drumlin_types::{KeyRange, RunId, Seq};

/// Runs that are compacted together; nearly always one run.
#[derive(Debug)]
pub(crate) struct Link<'a> {
    pub(crate) level: u8,
    pub(crate) runs: Runs<'a>,
}

/// One run without an allocation, or a list of runs.
#[derive(Debug)]
pub(crate) enum Runs<'a> {
    One(&'a RunView),
    More(Vec<&'a RunView>),
}

impl<'a> Deref for Runs<'a> {
    type Target = [&'a RunView];

    #[inline]
    fn deref(&self) -> &[&'a RunView] {
        match self {
            Runs::One(run) => slice::from_ref(run),
            Runs::More(runs) => runs,
        }
    }
}

/// Returns the files of a run that a plan may take or build on: all that no unfinished plan has claimed as inputs.
#[inline]
pub(crate) fn staying(run: &RunView) -> impl Iterator<Item = &FileView> + Clone {
    run.files.iter().filter(|f| !matches!(f.state, FileState::Leaving(_)))
}

impl Link<'_> {
    #[inline]
    pub(crate) fn files(&self) -> impl Iterator<Item = &FileView> {
        self.runs.iter().flat_map(|run| staying(run))
    }

    #[inline]
    pub(crate) fn overlaps(&self, range: &KeyRange) -> bool {
        self.files().any(|f| f.bounds.overlaps(range))
    }

    /// Returns the id of the newest run.
    #[inline]
    pub(crate) fn id(&self) -> RunId {
        self.runs.first().map_or(RunId(0), |run| run.id)
    }
}

/// A run with the range of its sequence numbers.
pub(crate) struct Aged<'a> {
    pub(crate) run: &'a RunView,
    min_seq: Seq,
    pub(crate) max_seq: Seq,
}

/// Returns the run with its ages; `None` if unfinished plans have claimed all its files.
#[inline]
pub(crate) fn aged(run: &RunView) -> Option<Aged<'_>> {
    let max_seq = staying(run).map(|f| f.max_seq).max()?;
    let min_seq = staying(run).map(|f| f.min_seq).min()?;
    Some(Aged { run, min_seq, max_seq })
}

/// Returns the end of the link that begins with the run at `from`.
#[inline]
pub(crate) fn link_end(aged: &[Aged<'_>], from: usize) -> usize {
    let mut end = from + 1;
    let mut at = from;
    while at < end {
        // Only runs whose largest sequence number reaches the ages of this run can interlock with it. Usually there
        // are none.
        let reaches = |other: &Aged<'_>| other.max_seq >= aged[at].min_seq;
        if !aged.get(end).is_some_and(reaches) {
            at += 1;
            continue;
        }
        let reach = aged[at..].partition_point(reaches) + at;
        let last = (end..reach).rev().find(|&other| interlock(aged[at].run, aged[other].run));
        end = last.map_or(end, |last| last + 1);
        at += 1;
    }
    end
}

/// Returns the files of `run` that share keys with `range`.
#[inline]
pub(crate) fn around<'a>(run: &'a RunView, range: &'a KeyRange) -> impl Iterator<Item = &'a FileView> {
    let is_before = |f: &FileView| f.bounds.end.as_ref().is_some_and(|end| *end <= range.start);
    let files = run.files[run.files.partition_point(is_before)..].iter();
    let near = files.take_while(|f| range.is_before_end(&f.bounds.start));
    near.filter(|f| !matches!(f.state, FileState::Leaving(_)) && f.bounds.overlaps(range))
}

/// Returns whether `newer` has a file that is not newer than a file of `older` with common keys. Ages elsewhere do
/// not matter: a partly compacted run may span many ages where it shares no keys with the other run.
#[inline]
fn interlock(newer: &RunView, older: &RunView) -> bool {
    if newer.files.len() <= older.files.len() {
        staying(newer).any(|f| around(older, &f.bounds).any(|other| other.max_seq >= f.min_seq))
    } else {
        staying(older).any(|f| around(newer, &f.bounds).any(|other| f.max_seq >= other.min_seq))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_types::contract::RunTag;
    use drumlin_types::contract::draw::plain_file;
    use drumlin_types::{Key, TableId};

    /// Builds a run from files given as first key, end key, smallest and largest sequence number.
    fn run(id: u64, files: &[(u8, u8, Seq, Seq)]) -> RunView {
        let file = |(at, &(from, to, min, max)): (usize, &(u8, u8, Seq, Seq))| {
            let bounds = KeyRange::new(Key::new(&[from]), Some(Key::new(&[to])));
            plain_file(TableId(id * 100 + at as u64), bounds, min, max)
        };
        RunView { id: RunId(id), tag: RunTag::default(), files: files.iter().enumerate().map(file).collect() }
    }

    #[test]
    fn runs_interlock_where_they_share_keys_and_ages() {
        // A partly compacted run: below key 50 it reaches back to the first flush, above it holds only the latest.
        let merged = run(9, &[(0, 50, 1, 90), (50, 100, 80, 90)]);
        let rest = run(5, &[(50, 100, 41, 50)]);
        assert!(!interlock(&merged, &rest), "older than all that it shares keys with");
        assert!(interlock(&merged, &run(5, &[(40, 100, 41, 50)])));
        assert!(interlock(&merged, &run(5, &[(0, 10, 1, 5), (20, 30, 41, 50), (60, 70, 3, 4)])));
        assert!(!interlock(&merged, &run(5, &[(50, 60, 1, 5), (60, 70, 41, 50), (80, 90, 3, 4)])));
        assert!(!interlock(&run(9, &[(0, 100, 51, 90)]), &rest));
    }
}
