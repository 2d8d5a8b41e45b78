//! The tree as a policy sees it: levels of runs of files, as plain data without handles.

use crate::{Key, KeyRange, RunId, Seq, TableId, Ticket};
use alloc::vec::Vec;

/// Policy-defined bytes attached to a run and persisted with it. At most [`RunTag::MAX`] bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RunTag(pub Vec<u8>);

impl RunTag {
    /// Maximum length of a tag, in bytes.
    pub const MAX: usize = 32;
}

/// State of a file with respect to unfinished compactions. A ticket is a scheduled compaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FileState {
    /// No unfinished compaction involves the file.
    #[default]
    Free,
    /// The file is an installed part of an unfinished compaction's output.
    Settling(Ticket),
    /// The file is claimed as an input of an unfinished compaction, and still serves reads.
    Leaving(Ticket),
    /// The file is the estimated output of an unfinished compaction and does not exist yet.
    Coming(Ticket),
    /// The file is installed and serves reads, but no plan may take it: its table is damaged, or, without the pipeline,
    /// a compaction blocks it.
    Unavailable,
}

impl FileState {
    /// Returns whether the file is installed, so that readers meet it.
    pub fn serves_reads(self) -> bool {
        !matches!(self, FileState::Coming(_))
    }
}

/// Lookup statistics of a file: decayed counts of point lookups.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LookupStats {
    /// Lookups that probed the file and did not find the key.
    pub empty: f64,
    /// Lookups that found a version of the key.
    pub found: f64,
    /// Lookups among `found` that found a tombstone.
    pub dead: f64,
}

impl LookupStats {
    /// Returns the lookups of a part of the file that has this share of them.
    pub fn part(&self, share: f64) -> LookupStats {
        LookupStats { empty: share * self.empty, found: share * self.found, dead: share * self.dead }
    }
}

/// A reference to a table, with the key bounds in force. Several references may share a table if their bounds are
/// disjoint.
#[derive(Clone, PartialEq, Debug)]
pub struct FileView {
    /// Number of the table file.
    pub table: TableId,
    /// Key bounds of the reference. They may be narrower than the table.
    pub bounds: KeyRange,
    /// Stored bytes inside the bounds. Scaled by the share of entries when the bounds are narrower than the table.
    pub bytes: u64,
    /// Exact number of entries inside the bounds, without range tombstones.
    pub entries: u64,
    /// Number of distinct user keys. Scaled by the share of entries when the bounds are narrower than the table.
    pub keys: u64,
    /// Number of point tombstones. Scaled by the share of entries when the bounds are narrower than the table.
    pub tombstones: u64,
    /// Number of range tombstones that overlap the bounds. All those of the table when the bounds are narrower than it.
    pub range_tombstones: u64,
    /// Smallest sequence number in the table.
    pub min_seq: Seq,
    /// Largest sequence number in the table.
    pub max_seq: Seq,
    /// Filter bits per key, as built.
    pub filter_bits: f64,
    /// False-positive rate of the filter, as built; 1 without a filter.
    pub fp_rate: f64,
    /// Lookup statistics.
    pub lookups: LookupStats,
    /// State with respect to unfinished compactions.
    pub state: FileState,
}

impl FileView {
    /// Returns whether a plan may take this file.
    pub fn is_takeable(&self) -> bool {
        matches!(self.state, FileState::Free | FileState::Settling(_))
    }
}

/// A sorted run: files with disjoint bounds, sorted by key.
#[derive(Clone, PartialEq, Debug)]
pub struct RunView {
    /// Id of the run, stable for its whole life.
    pub id: RunId,
    /// Tag set by the policy.
    pub tag: RunTag,
    /// Files in key order.
    pub files: Vec<FileView>,
}

impl RunView {
    /// Returns the bytes inside the bounds of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|f| f.bytes).sum()
    }

    /// Returns the largest sequence number of any file; 0 for an empty run.
    pub fn max_seq(&self) -> Seq {
        self.files.iter().map(|f| f.max_seq).max().unwrap_or(0)
    }

    /// Returns the smallest sequence number of any file; `Seq::MAX` for an empty run.
    pub fn min_seq(&self) -> Seq {
        self.files.iter().map(|f| f.min_seq).min().unwrap_or(Seq::MAX)
    }

    /// Returns whether every file is free or settling.
    pub fn is_takeable(&self) -> bool {
        self.files.iter().all(FileView::is_takeable)
    }

    /// Returns the file whose bounds contain `key`.
    pub fn file_for(&self, key: &[u8]) -> Option<&FileView> {
        let after = self.files.partition_point(|f| *f.bounds.start <= *key);
        self.files[..after].last().filter(|f| f.bounds.contains(key))
    }

    /// Returns the files that overlap `range`, which must not be empty, in key order.
    ///
    /// A binary search finds the start of the range; the scan backwards from there reads states only. In a view of
    /// unfinished compactions a coming file may overlap leaving files. The leaving files are disjoint among themselves,
    /// and so are all other files.
    pub fn meeting<'a>(&'a self, range: &'a KeyRange) -> impl Iterator<Item = &'a FileView> {
        let begun = self.files.partition_point(|f| f.bounds.start <= range.start);
        // Among the files before the range, only the last leaving and the last other file can reach into it.
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

    /// Returns the smallest range that contains all files.
    pub fn hull(&self) -> Option<KeyRange> {
        let first = self.files.first()?;
        let last = self.files.last()?;
        Some(KeyRange::new(first.bounds.start.clone(), last.bounds.end.clone()))
    }

    /// Returns whether no file overlaps `range`.
    pub fn has_gap_for(&self, range: &KeyRange) -> bool {
        !self.files.iter().any(|f| f.bounds.overlaps(range))
    }
}

/// A level: a set of runs in no particular age order.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LevelView {
    /// The runs.
    pub runs: Vec<RunView>,
}

impl LevelView {
    /// Returns the bytes of all runs.
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(RunView::bytes).sum()
    }

    /// Returns all files of all runs.
    pub fn files(&self) -> impl Iterator<Item = &FileView> {
        self.runs.iter().flat_map(|r| r.files.iter())
    }
}

/// False-positive rate that is assumed while no file has a filter: about that of ten bits per key.
pub const UNKNOWN_FALSE_POSITIVE_RATE: f64 = 0.01;

/// The whole tree of one keyspace, level 0 first.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TreeView {
    /// The levels. The engine always has `LEVELS` of them; tests may use fewer.
    pub levels: Vec<LevelView>,
}

impl TreeView {
    /// Returns an empty tree with `levels` levels.
    pub fn empty(levels: usize) -> TreeView {
        TreeView { levels: (0..levels).map(|_| LevelView::default()).collect() }
    }

    /// Returns every file with its level and run.
    pub fn files(&self) -> impl Iterator<Item = (u8, &RunView, &FileView)> {
        self.levels.iter().enumerate().flat_map(|(level, l)| {
            l.runs.iter().flat_map(move |run| run.files.iter().map(move |f| (level as u8, run, f)))
        })
    }

    /// Returns the bytes of all levels.
    pub fn bytes(&self) -> u64 {
        self.levels.iter().map(LevelView::bytes).sum()
    }

    /// Returns the number of runs in all levels.
    pub fn runs(&self) -> usize {
        self.levels.iter().map(|l| l.runs.len()).sum()
    }

    /// Returns the mean false-positive rate of the filters of files that serve reads, weighted by the counted lookups
    /// that found nothing in the file: only those can be false positives. Each file counts as at least one lookup.
    /// [`UNKNOWN_FALSE_POSITIVE_RATE`] for an empty tree.
    pub fn false_positive_rate(&self) -> f64 {
        let (mut sum, mut weight) = (0.0, 0.0);
        for (_, _, file) in self.files().filter(|(_, _, f)| f.state.serves_reads()) {
            let rate = if file.fp_rate.is_nan() { 0.0 } else { file.fp_rate.clamp(0.0, 1.0) };
            let lookups = file.lookups.empty.max(1.0);
            sum += rate * lookups;
            weight += lookups;
        }
        if weight > 0.0 { sum / weight } else { UNKNOWN_FALSE_POSITIVE_RATE }
    }

    /// Returns the deepest level that holds a file.
    pub fn deepest(&self) -> Option<u8> {
        self.levels.iter().rposition(|l| l.runs.iter().any(|r| !r.files.is_empty())).map(|l| l as u8)
    }

    /// Returns the tree of files that serve reads now: all but the coming ones. For cost models.
    pub fn live(&self) -> TreeView {
        self.filtered(|f| f.state.serves_reads())
    }

    /// Returns the projected tree: the tree after all unfinished compactions, with leaving files removed and coming
    /// files present. For triggers, schedules and legality.
    pub fn projected(&self) -> TreeView {
        self.filtered(|f| match f.state {
            FileState::Leaving(_) => false,
            FileState::Coming(_) => !crate::bug!("project-without-outputs"),
            FileState::Free | FileState::Settling(_) | FileState::Unavailable => true,
        })
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

    /// Returns the smallest range that contains the bounds of all files, for callers that split the key space.
    pub fn hull(&self) -> Option<KeyRange> {
        self.files().map(|(_, _, f)| f.bounds.clone()).reduce(|a, b| a.hull(&b))
    }

    /// Returns all file bounds, sorted and distinct. They are natural split points for subcompactions.
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

    #[test]
    fn the_false_positive_rate_counts_empty_lookups_only() {
        let mut tree = parse_tree("L1: [b..d #1-2] | [a..z #3-4]").unwrap();
        let mut runs = tree.levels[1].runs.iter_mut();
        let (old, new) = (&mut runs.next().unwrap().files[0], &mut runs.next().unwrap().files[0]);
        // Every lookup finds its key in the old run, so that it has a small filter.
        (old.fp_rate, old.lookups.found) = (0.3, 1e6);
        (new.fp_rate, new.lookups.empty) = (0.001, 1e6);
        assert!((tree.false_positive_rate() - 0.001).abs() < 1e-5, "{}", tree.false_positive_rate());
        assert_eq!(TreeView::empty(2).false_positive_rate(), UNKNOWN_FALSE_POSITIVE_RATE);
    }
}
