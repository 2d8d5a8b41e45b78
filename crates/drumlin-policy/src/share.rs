//! Estimates of how much of a file lies in a part of its bounds, and projection of a tree by one plan.
//!
//! Keys are treated as evenly spread numbers (`digits`). Where the engine has better figures, from fences,
//! it puts them into the view. The estimates here only order candidates and keep several plans of one decision
//! consistent.

use crate::digits::Digits;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use drumlin_types::contract::draw::plain_file;
use drumlin_types::contract::legal::spans;
use drumlin_types::contract::{FileState, FileView, Plan, RunView, TreeView};
use drumlin_types::{Key, KeyRange, RunId, TableId, Ticket};

/// Returns the share of `whole` that lies in `part`, from 0 to 1.
pub fn share(whole: &KeyRange, part: &KeyRange) -> f64 {
    KeyScale::of(whole).share_of(whole, part)
}

/// Like [`share`], for a `part` that lies in `whole`.
fn share_inside(whole: &KeyRange, part: &KeyRange) -> f64 {
    if part == whole { 1.0 } else { KeyScale::of(whole).share(&part.start, part.end.as_ref()) }
}

/// End of an unbounded range, as a number.
const OPEN: f64 = u32::MAX as f64 * 4_294_967_296.0;

/// Precomputed numbering of a key range, for the shares of many parts of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct KeyScale {
    digits: Digits,
    start: f64,
    width: f64,
}

impl KeyScale {
    /// Returns the scale of `whole`.
    pub fn of(whole: &KeyRange) -> KeyScale {
        let digits = Digits::of(whole);
        let start = digits.number(&whole.start) as f64;
        let width = whole.end.as_ref().map_or(OPEN, |end| digits.number(end) as f64) - start;
        KeyScale { digits, start, width }
    }

    /// Returns the share of `whole`, whose scale this is, that lies in `part`.
    pub(crate) fn share_of(&self, whole: &KeyRange, part: &KeyRange) -> f64 {
        whole.intersect(part).map_or(0.0, |part| self.share_inside(whole, &part))
    }

    /// Like [`KeyScale::share_of`], for a `part` that lies in `whole`.
    pub(crate) fn share_inside(&self, whole: &KeyRange, part: &KeyRange) -> f64 {
        if part == whole { 1.0 } else { self.share(&part.start, part.end.as_ref()) }
    }

    /// Returns the share of the range that lies below `key`, a key inside it.
    pub fn below(&self, key: &[u8]) -> f64 {
        let below = self.digits.number(key) as f64 - self.start;
        if self.width <= 0.0 { 1.0 } else { (below / self.width).clamp(0.0, 1.0) }
    }

    /// Returns the share of the range that `from..to`, which lies in it, covers.
    pub(crate) fn share(&self, from: &[u8], to: Option<&Key>) -> f64 {
        let from = self.digits.number(from) as f64;
        let to = to.map_or(self.start + self.width, |end| self.digits.number(end) as f64);
        if self.width <= 0.0 { 1.0 } else { ((to - from) / self.width).clamp(0.0, 1.0) }
    }
}

/// Returns `file` narrowed to `bounds`, which lie in its own, with counts in proportion.
pub(crate) fn narrowed(file: &FileView, bounds: KeyRange) -> FileView {
    let part = share_inside(&file.bounds, &bounds);
    let scaled = |n: u64| (n as f64 * part) as u64;
    FileView {
        bytes: scaled(file.bytes),
        entries: scaled(file.entries),
        keys: scaled(file.keys),
        tombstones: scaled(file.tombstones),
        bounds,
        ..*file
    }
}

/// Splits `file` into the parts outside `cut` and the part inside it. The counts of all parts add up to those of
/// `file`.
pub fn split(file: &FileView, cut: &KeyRange) -> (Vec<FileView>, Option<FileView>) {
    let Some(part) = file.bounds.intersect(cut) else { return (vec![file.clone()], None) };
    let (before, after) = file.bounds.subtract(&part);
    let rests: Vec<FileView> = before.into_iter().chain(after).map(|b| narrowed(file, b)).collect();
    // Rounding goes to the part that is cut out, so that the totals are preserved.
    let rest = |count: fn(&FileView) -> u64| count(file).saturating_sub(rests.iter().map(count).sum::<u64>());
    let inside = FileView {
        bytes: rest(|f| f.bytes),
        entries: rest(|f| f.entries),
        keys: rest(|f| f.keys),
        tombstones: rest(|f| f.tombstones),
        bounds: part,
        ..*file
    };
    (rests, Some(inside))
}

/// Projects the tree as if `plan` were admitted under `ticket`: its inputs leave and its output comes.
pub(crate) fn project(tree: &mut TreeView, plan: &Plan, ticket: Ticket) {
    let inputs = spans(tree, &plan.take);
    let Some(hull) = inputs.iter().map(|f| f.range.clone()).reduce(|a, b| a.hull(&b)) else { return };
    let min = inputs.iter().map(|f| f.min_seq).min().unwrap_or_default();
    let max = inputs.iter().map(|f| f.max_seq).max().unwrap_or_default();
    let mut coming = plain_file(TableId(u64::MAX - ticket.0), hull, min, max);
    let mut cuts: BTreeMap<TableId, Vec<&KeyRange>> = BTreeMap::new();
    for input in &inputs {
        cuts.entry(input.table).or_default().push(&input.range);
    }
    for level in &mut tree.levels {
        for run in &mut level.runs {
            if run.files.iter().any(|file| cuts.contains_key(&file.table)) {
                run.files = core::mem::take(&mut run.files)
                    .into_iter()
                    .flat_map(|file| match cuts.get(&file.table) {
                        Some(cuts) => without(file, cuts, &mut coming),
                        None => vec![file],
                    })
                    .collect();
            }
        }
        level.runs.retain(|run| !run.files.is_empty());
    }
    coming.state = FileState::Coming(ticket);
    let run = RunView { id: RunId(u64::MAX - ticket.0), tag: plan.tag.clone(), files: vec![coming] };
    if let Some(level) = tree.levels.get_mut(usize::from(plan.out)) {
        level.runs.push(run);
    }
}

/// Returns the parts of `file` outside `cuts`, and adds the counts of the parts inside to `sum`.
fn without(file: FileView, cuts: &[&KeyRange], sum: &mut FileView) -> Vec<FileView> {
    let mut rests = vec![file];
    for cut in cuts {
        let mut left = Vec::with_capacity(rests.len() + 1);
        for rest in &rests {
            let (around, taken) = split(rest, cut);
            left.extend(around);
            if let Some(taken) = taken {
                sum.bytes += taken.bytes;
                sum.entries += taken.entries;
                sum.keys += taken.keys;
                sum.tombstones += taken.tombstones;
            }
        }
        rests = left;
    }
    rests
}

/// Returns the plan with all free files that it may fold added to its inputs.
pub fn folding(tree: &TreeView, plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    if plan.may_fold.is_empty() {
        return plan;
    }
    let free: BTreeSet<TableId> =
        tree.files().filter(|(_, _, f)| f.is_takeable()).map(|(_, _, f)| f.table).collect();
    let mut taken: BTreeMap<TableId, Vec<KeyRange>> = BTreeMap::new();
    for take in &plan.take {
        taken.entry(take.table).or_default().push(take.range.clone());
    }
    for fold in core::mem::take(&mut plan.may_fold).into_iter().filter(|fold| free.contains(&fold.table)) {
        let taken = taken.entry(fold.table).or_default();
        if !taken.iter().any(|range| range.overlaps(&fold.range)) {
            taken.push(fold.range.clone());
            plan.take.push(fold);
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: &str, end: &str) -> KeyRange {
        KeyRange::new(Key::new(start.as_bytes()), Some(Key::new(end.as_bytes())))
    }

    #[test]
    fn shares_follow_the_keys() {
        assert_eq!(share(&range("a", "e"), &range("b", "c")), 0.25);
        assert_eq!(share(&range("user0", "user4"), &range("user1", "user2")), 0.25);
        assert_eq!(share(&range("a", "e"), &range("a", "z")), 1.0);
        assert_eq!(share(&range("a", "e"), &range("x", "z")), 0.0);
        assert_eq!(share(&KeyRange::all(), &KeyRange::all()), 1.0);
        assert!(share(&KeyRange::all(), &range("a", "b")) < 0.01);
    }

    #[test]
    fn splits_keep_every_byte() {
        let mut file = plain_file(TableId(1), range("a", "z"), 1, 9);
        (file.bytes, file.entries) = (1001, 77);
        let (rests, inside) = split(&file, &range("c", "m"));
        assert_eq!(rests.len(), 2);
        assert_eq!(rests.iter().chain(&inside).map(|f| f.bytes).sum::<u64>(), 1001);
        assert_eq!(rests.iter().chain(&inside).map(|f| f.entries).sum::<u64>(), 77);
        assert_eq!(split(&file, &range("z", "zz")), (vec![file.clone()], None));
    }
}
