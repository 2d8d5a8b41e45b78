//! Weights of levels: their bytes and runs after all plans are done, compared with the policy's target shape.
//!
//! Bytes and runs are never mixed. A level is over its size by bytes where the target shape gives bytes, otherwise by
//! runs.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use drumlin_types::contract::{FileState, FileView, LevelDesign, LevelView, TreeView};
use drumlin_types::{KeyRange, Ticket};

/// Weight of one level.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LevelWeight {
    /// Bytes after all plans under way, W'.
    pub bytes: f64,
    /// Runs after all plans under way; all outputs of a ticket, installed or expected, count as one.
    pub runs: f64,
    /// Intended content of the level, from the policy.
    pub design: LevelDesign,
}

impl LevelWeight {
    /// Returns the fill of the level: 1 means as designed.
    pub fn fill(&self) -> f64 {
        if self.design.bytes.is_finite() {
            self.bytes / self.design.bytes.max(1.0)
        } else if self.design.runs.is_finite() {
            self.runs / self.design.runs.max(1.0)
        } else {
            0.0
        }
    }

    /// Returns the bytes beyond the target shape.
    fn extra(&self) -> f64 {
        if self.design.bytes.is_finite() { (self.bytes - self.design.bytes).max(0.0) } else { 0.0 }
    }
}

/// Weights of all levels.
#[derive(Clone, PartialEq, Debug)]
pub struct Weights {
    /// Weights by level, level 0 first.
    pub levels: Vec<LevelWeight>,
    /// Live bytes of the tree.
    pub live: f64,
    /// XB: extra bytes of the levels above the last.
    pub extra: f64,
}

impl Weights {
    /// Computes the weights of a view with its plans under way.
    pub fn of(view: &TreeView, design: &[LevelDesign]) -> Weights {
        let weigh = |(at, level): (usize, &LevelView)| {
            let bytes = level.files().filter(|f| !is_leaving(f)).map(|f| f.bytes as f64).sum();
            let mut design = design.get(at).copied().unwrap_or(LevelDesign::FREE);
            // The bottommost level has no level to move to, so it is as large as designed however large it is.
            if at + 1 == view.levels.len() {
                design.bytes = design.bytes.max(bytes);
            }
            LevelWeight { bytes, runs: runs(level) as f64, design }
        };
        let levels: Vec<LevelWeight> = view.levels.iter().enumerate().map(weigh).collect();
        let live = view.files().filter(|(_, _, f)| !is_coming(f)).map(|(_, _, f)| f.bytes as f64).sum();
        let last = levels.iter().rposition(|l| l.bytes > 0.0).unwrap_or(0);
        let extra = levels[..last.min(levels.len())].iter().map(LevelWeight::extra).sum();
        Weights { levels, live, extra }
    }

    /// Returns the fill of a level; 0 for a level that does not exist.
    pub fn fill(&self, level: u8) -> f64 {
        self.levels.get(usize::from(level)).map_or(0.0, LevelWeight::fill)
    }

    /// Returns the fill of the fullest level.
    pub fn fullest(&self) -> f64 {
        self.levels.iter().map(LevelWeight::fill).fold(0.0, f64::max)
    }

    /// Returns the growth factor from one level's size to the next, if two sizes are given.
    pub fn growth(&self) -> Option<f64> {
        let sizes = self.levels.windows(2).map(|pair| (pair[0].design.bytes, pair[1].design.bytes));
        sizes.filter(|(a, b)| a.is_finite() && b.is_finite() && *a > 0.0).map(|(a, b)| b / a).next()
    }
}

fn is_leaving(file: &FileView) -> bool {
    matches!(file.state, FileState::Leaving(_))
}

fn is_coming(file: &FileView) -> bool {
    matches!(file.state, FileState::Coming(_))
}

fn runs(level: &LevelView) -> usize {
    let mut tickets: BTreeSet<Ticket> = BTreeSet::new();
    let mut runs = 0;
    for run in &level.runs {
        let mut owner = None;
        let mut is_mixed = false;
        for file in run.files.iter().filter(|f| !is_leaving(f)) {
            let ticket = match file.state {
                FileState::Settling(ticket) | FileState::Coming(ticket) => Some(ticket),
                _ => None,
            };
            is_mixed |= owner.is_some_and(|owner| owner != ticket);
            owner = Some(ticket);
        }
        match owner {
            Some(Some(ticket)) if !is_mixed => drop(tickets.insert(ticket)),
            Some(_) => runs += 1,
            None => {}
        }
    }
    runs + tickets.len()
}

/// Returns the largest number of `files` that cover one key of `range`.
pub fn depth<'a>(files: impl Iterator<Item = &'a FileView>, range: &KeyRange) -> usize {
    let mut starts = Vec::new();
    let mut ends = Vec::new();
    for file in files.filter(|f| f.bounds.overlaps(range)) {
        starts.push(core::cmp::max(&file.bounds.start, &range.start));
        ends.extend(&file.bounds.end);
    }
    starts.sort_unstable();
    ends.sort_unstable();
    let (mut deepest, mut ended) = (0, 0);
    for (begun, start) in starts.iter().enumerate() {
        ended += ends[ended..].partition_point(|end| end <= start);
        deepest = deepest.max(begun + 1 - ended);
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_types::contract::draw::plain_file;
    use drumlin_types::{Key, TableId};

    fn range(start: &str, end: &str) -> KeyRange {
        KeyRange::new(Key::new(start.as_bytes()), Some(Key::new(end.as_bytes())))
    }

    #[test]
    fn depth_counts_what_covers_one_key() {
        let files = ["ac", "bd", "ce", "xz"].map(|s| plain_file(TableId(1), range(&s[..1], &s[1..]), 1, 1));
        let at = |r: KeyRange| depth(files.iter(), &r);
        assert_eq!(at(range("a", "z")), 2);
        assert_eq!(at(range("e", "x")), 0);
        assert_eq!(at(range("a", "b")), 1);
        assert_eq!(at(KeyRange::all()), 2);
        let more = files.iter().chain(&files);
        assert_eq!(depth(more, &range("a", "z")), 4);
    }
}
