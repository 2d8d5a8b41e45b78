//! The tree as a policy sees it: levels of runs of files, plain data, no handles.

use crate::{Key, KeyRange, RunId, Seq, TableId, Ticket};
use alloc::vec::Vec;

/// A few bytes that a policy attaches to a run; they are persisted with it. At most [`RunTag::MAX`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RunTag(pub Vec<u8>);

impl RunTag {
    /// Longest tag, in bytes.
    pub const MAX: usize = 32;
}

/// What plans in flight do to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FileState {
    /// No unfinished plan touches it.
    #[default]
    Free,
    /// An installed part of an unfinished plan's output.
    Settling(Ticket),
    /// Claimed by an unfinished plan, and still read.
    Leaving(Ticket),
    /// An estimated output of an unfinished plan, not there yet.
    Coming(Ticket),
}

/// What point lookups found in a file, as decayed counts of lookups.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LookupStats {
    /// Lookups that reached the file and did not find the key there.
    pub empty: f64,
    /// Lookups that found a version of the key there.
    pub found: f64,
    /// The part of `found` that found a tombstone.
    pub dead: f64,
}

/// One reference to a table, with the bounds that are in force. Two references may share a table; their
/// bounds are then disjoint.
#[derive(Clone, PartialEq, Debug)]
pub struct FileView {
    /// The physical table.
    pub table: TableId,
    /// The keys this reference answers for; may be narrower than the table.
    pub bounds: KeyRange,
    /// Stored bytes inside the bounds (estimated from the fences when narrowed).
    pub bytes: u64,
    /// Entries inside the bounds, exact. Range tombstones are not entries.
    pub entries: u64,
    /// Distinct user keys, estimated in proportion when narrowed.
    pub keys: u64,
    /// Tombstones, estimated in proportion when narrowed.
    pub tombstones: u64,
    /// Range tombstones that reach into the bounds (those of the whole table when narrowed).
    pub range_tombstones: u64,
    /// Smallest sequence number in the table.
    pub min_seq: Seq,
    /// Largest sequence number in the table.
    pub max_seq: Seq,
    /// Filter bits per key as built.
    pub filter_bits: f64,
    /// False-positive rate of the filter as built; 1 without a filter.
    pub fp_rate: f64,
    /// What lookups found.
    pub lookups: LookupStats,
    /// What plans in flight do to it.
    pub state: FileState,
}

impl FileView {
    /// Whether a plan may take this file.
    pub fn is_takeable(&self) -> bool {
        matches!(self.state, FileState::Free | FileState::Settling(_))
    }
}

/// A sorted run: files with disjoint bounds, sorted by key.
#[derive(Clone, PartialEq, Debug)]
pub struct RunView {
    /// Its id, stable for the life of the run.
    pub id: RunId,
    /// The policy's tag.
    pub tag: RunTag,
    /// Files in key order.
    pub files: Vec<FileView>,
}

impl RunView {
    /// Bytes inside the bounds of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|f| f.bytes).sum()
    }

    /// Largest sequence number of any file; 0 for an empty run.
    pub fn max_seq(&self) -> Seq {
        self.files.iter().map(|f| f.max_seq).max().unwrap_or(0)
    }

    /// Smallest sequence number of any file; `Seq::MAX` for an empty run.
    pub fn min_seq(&self) -> Seq {
        self.files.iter().map(|f| f.min_seq).min().unwrap_or(Seq::MAX)
    }

    /// Whether every file is free or settling.
    pub fn is_takeable(&self) -> bool {
        self.files.iter().all(FileView::is_takeable)
    }

    /// The file whose bounds hold `key`.
    pub fn file_for(&self, key: &[u8]) -> Option<&FileView> {
        let after = self.files.partition_point(|f| *f.bounds.start <= *key);
        self.files[..after].last().filter(|f| f.bounds.contains(key))
    }

    /// The files that share keys with `range`, which is not empty, in key order. Of those before it the states alone
    /// are looked at, no keys. In a view of plans under way a coming file may lie where others leave: so neither the
    /// files that leave meet each other, nor the rest.
    pub fn meeting<'a>(&'a self, range: &'a KeyRange) -> impl Iterator<Item = &'a FileView> {
        let begun = self.files.partition_point(|f| f.bounds.start <= range.start);
        // Of each kind only the last that begins no later can reach into the range.
        let mut last: [Option<&FileView>; 2] = [None; 2];
        let mut found = 0;
        for file in self.files[..begun].iter().rev() {
            let is_leaving = matches!(file.state, FileState::Leaving(_));
            if !last.iter().flatten().any(|f| matches!(f.state, FileState::Leaving(_)) == is_leaving) {
                last[1 - found] = Some(file);
                found += 1;
            }
            if found == last.len() {
                break;
            }
        }
        let inside = self.files[begun..].iter().take_while(|f| range.is_before_end(&f.bounds.start));
        last.into_iter().flatten().chain(inside).filter(|f| f.bounds.overlaps(range))
    }

    /// The smallest range that holds all files.
    pub fn hull(&self) -> Option<KeyRange> {
        let first = self.files.first()?;
        let last = self.files.last()?;
        Some(KeyRange::new(first.bounds.start.clone(), last.bounds.end.clone()))
    }

    /// Whether `range` lies in the gaps between the files.
    pub fn has_gap_for(&self, range: &KeyRange) -> bool {
        !self.files.iter().any(|f| f.bounds.overlaps(range))
    }
}

/// A level: runs, in no particular age order.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LevelView {
    /// The runs.
    pub runs: Vec<RunView>,
}

impl LevelView {
    /// Bytes of all runs.
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(RunView::bytes).sum()
    }

    /// All files of all runs.
    pub fn files(&self) -> impl Iterator<Item = &FileView> {
        self.runs.iter().flat_map(|r| r.files.iter())
    }
}

/// The whole tree of one keyspace, level 0 first.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TreeView {
    /// Levels, always `LEVELS` of them in the engine; tests may use fewer.
    pub levels: Vec<LevelView>,
}

impl TreeView {
    /// An empty tree of `levels` levels.
    pub fn empty(levels: usize) -> TreeView {
        TreeView { levels: (0..levels).map(|_| LevelView::default()).collect() }
    }

    /// Every file with its level and run.
    pub fn files(&self) -> impl Iterator<Item = (u8, &RunView, &FileView)> {
        self.levels.iter().enumerate().flat_map(|(level, l)| {
            l.runs.iter().flat_map(move |run| run.files.iter().map(move |f| (level as u8, run, f)))
        })
    }

    /// Bytes of all levels.
    pub fn bytes(&self) -> u64 {
        self.levels.iter().map(LevelView::bytes).sum()
    }

    /// Number of runs over all levels.
    pub fn runs(&self) -> usize {
        self.levels.iter().map(|l| l.runs.len()).sum()
    }

    /// The deepest level that holds a file.
    pub fn deepest(&self) -> Option<u8> {
        self.levels.iter().rposition(|l| l.runs.iter().any(|r| !r.files.is_empty())).map(|l| l as u8)
    }

    /// Files that now answer reads: all but the coming ones. For cost models.
    pub fn live(&self) -> TreeView {
        self.filtered(|f| !matches!(f.state, FileState::Coming(_)))
    }

    /// The tree after all unfinished plans: leaving files gone, coming ones there. For triggers,
    /// schedules and legality.
    pub fn projected(&self) -> TreeView {
        self.filtered(|f| !matches!(f.state, FileState::Leaving(_)))
    }

    fn filtered(&self, keep: impl Fn(&FileView) -> bool) -> TreeView {
        let levels = self.levels.iter().map(|level| {
            let runs = level.runs.iter().map(|run| RunView {
                id: run.id,
                tag: run.tag.clone(),
                files: run.files.iter().filter(|f| keep(f)).cloned().collect(),
            });
            LevelView { runs: runs.filter(|r| !r.files.is_empty()).collect() }
        });
        TreeView { levels: levels.collect() }
    }

    /// Largest key bound in use, for callers that cut the key space.
    pub fn hull(&self) -> Option<KeyRange> {
        self.files().map(|(_, _, f)| f.bounds.clone()).reduce(|a, b| a.hull(&b))
    }

    /// All bounds of files, sorted and distinct: natural places to cut a merge.
    pub fn edges(&self) -> Vec<Key> {
        let mut edges: Vec<Key> = self
            .files()
            .flat_map(|(_, _, f)| core::iter::once(f.bounds.start.clone()).chain(f.bounds.end.clone()))
            .collect();
        edges.sort();
        edges.dedup();
        edges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::draw::parse_tree;

    #[test]
    fn what_meets_a_range_is_all_that_overlaps_it() {
        let text = "L1: [b..d #1-2][d..f #1-2 ~1][f..k #1-2 ~1][p..t #1-2 ~2][t..v #1-2] \
                    | [d..e #3-4 ^1][g..j #3-4 ^1][q..s #3-4 ^2]";
        let mut runs = parse_tree(text).unwrap().levels[1].runs.clone();
        let coming = core::mem::take(&mut runs[1].files);
        let mut run = runs.swap_remove(0);
        let alone = run.clone();
        run.files.extend(coming);
        run.files.sort_by(|a, b| a.bounds.start.cmp(&b.bounds.start));
        let keys: Vec<Key> = (b'a'..=b'z').map(|letter| Key::new(&[letter])).collect();
        for (at, start) in keys.iter().enumerate() {
            let ends = keys[at + 1..].iter().map(|end| Some(end.clone())).chain([None]);
            for range in ends.map(|end| KeyRange::new(start.clone(), end)) {
                for run in [&run, &alone] {
                    let all: Vec<&FileView> =
                        run.files.iter().filter(|f| f.bounds.overlaps(&range)).collect();
                    assert_eq!(run.meeting(&range).collect::<Vec<_>>(), all, "{range:?}");
                }
            }
        }
    }
}
