//! Resolves a plan's takes against a tree: what the plan reads, and what it leaves behind of each file.
//!
//! Several files with disjoint bounds may reference one table, even in different levels. One take may therefore match
//! several files. Leaving files belong to an earlier plan and are skipped.

use super::illegal::Illegal;
use crate::contract::flight::FileSpan;
use crate::contract::plan::{Plan, Take};
use crate::contract::tree::{FileState, FileView, RunView, TreeView};
use crate::{KeyRange, Seq, TableId};
use alloc::vec;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::cell::OnceCell;
use core::ops::Range;

/// Returns the files that match `takes`, clipped, in tree order. A take without a match adds nothing.
pub fn spans(tree: &TreeView, takes: &[Take]) -> Vec<FileSpan> {
    if takes.is_empty() {
        return Vec::new();
    }
    let wanted = by_table(takes);
    let mut found = Vec::new();
    for (level, _, file) in tree.files().filter(|(_, _, file)| !is_leaving(file)) {
        for (_, range) in wanted.of(file.table) {
            found.extend(file.bounds.intersect(range).map(|part| span(level, file, part)));
        }
    }
    found
}

/// Returns every part of a live file that overlaps `range` and is not in `inputs`.
///
/// A compaction of `inputs` does not see these parts. Files claimed by other plans are included. Files still being
/// written are not, since their inputs are.
pub fn outside(tree: &TreeView, inputs: &[FileSpan], range: &KeyRange) -> Vec<FileSpan> {
    let taken = Taken::of(inputs);
    let mut found = Vec::new();
    for (level, _, file) in tree.files().filter(|(_, _, file)| file.state.serves_reads()) {
        if let Some(part) = file.bounds.intersect(range) {
            found.extend(taken.rests(file, &part).map(|rest| span(level, file, rest)));
        }
    }
    found
}

/// Key ranges sorted by table, then by start key.
struct ByTable<R>(Vec<(TableId, R)>);

impl<R: Borrow<KeyRange>> ByTable<R> {
    fn new(mut ranges: Vec<(TableId, R)>) -> ByTable<R> {
        ranges.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.borrow().start.cmp(&b.1.borrow().start)));
        ByTable(ranges)
    }

    fn of(&self, table: TableId) -> &[(TableId, R)] {
        &self.0[self.places(table, 0)]
    }

    /// Returns the positions of the ranges of `table`. `guess` is the position to try first.
    fn places(&self, table: TableId, guess: usize) -> Range<usize> {
        let begins = |at: usize| self.0.get(at).is_some_and(|(other, _)| *other == table);
        let from = if begins(guess) && (guess == 0 || self.0[guess - 1].0 != table) {
            guess
        } else {
            self.0.partition_point(|(other, _)| *other < table)
        };
        let count = self.0[from..].iter().take_while(|(other, _)| *other == table).count();
        from..from + count
    }
}

/// Key ranges taken of each table. They are disjoint.
pub(super) struct Taken(ByTable<KeyRange>);

impl Taken {
    pub(super) fn of(spans: &[FileSpan]) -> Taken {
        Taken(ByTable::new(spans.iter().map(|span| (span.table, span.range.clone())).collect()))
    }

    /// Adds a range that was not taken before.
    pub(super) fn add(&mut self, table: TableId, range: KeyRange) {
        let ranges = &mut self.0.0;
        let at = ranges.partition_point(|(other, r)| (*other, &r.start) < (table, &range.start));
        ranges.insert(at, (table, range));
    }

    /// Returns the parts of `part` that are not taken of `file`, in key order.
    pub(super) fn rests<'a>(
        &'a self,
        file: &FileView,
        part: &KeyRange,
    ) -> impl Iterator<Item = KeyRange> + use<'a> {
        let mut cuts = self.0.of(file.table).iter().map(|(_, range)| range);
        let mut left = Some(part.clone());
        core::iter::from_fn(move || {
            for cut in cuts.by_ref() {
                let range = left.take()?;
                if !range.overlaps(cut) {
                    left = Some(range);
                    continue;
                }
                let (before, after) = range.subtract(cut);
                left = after;
                if before.is_some() {
                    return before;
                }
            }
            left.take()
        })
    }
}

/// A run that the plan does not take whole, with the smallest sequence number of the files that stay behind.
pub(super) struct Staying<'t> {
    pub(super) run: &'t RunView,
    pub(super) min_seq: Seq,
}

/// Inputs of a plan. They exist, may be taken, and lie at or above the output level.
pub(super) struct Inputs<'t> {
    pub(super) spans: Vec<FileSpan>,
    /// Built on first use. Often no file stays behind, and it is never needed.
    taken: OnceCell<Taken>,
    /// Runs that are not taken whole, by level. Runs that are taken whole cannot conflict. Plans often take hundreds of
    /// runs that all overlap, so comparing every pair would be quadratic.
    pub(super) staying: Vec<Vec<Staying<'t>>>,
}

impl<'t> Inputs<'t> {
    pub(super) fn resolve(tree: &'t TreeView, plan: &Plan) -> Result<Inputs<'t>, Illegal> {
        if plan.take.is_empty() {
            return Err(Illegal::Empty);
        }
        if usize::from(plan.out) >= tree.levels.len() {
            return Err(Illegal::NoLevel { out: plan.out, levels: tree.levels.len() });
        }
        let wanted = by_table(&plan.take);
        refuse_doubles(&wanted)?;
        let mut spans = Vec::with_capacity(plan.take.len());
        let mut staying = Vec::with_capacity(tree.levels.len());
        // `met` records which wanted ranges match a file. `next` is the position after the last file's ranges, because
        // plans often take runs in the order of their tables.
        let mut met = vec![false; wanted.0.len()];
        let mut next = 0;
        for (level, runs) in tree.levels.iter().enumerate() {
            let mut of_level = Vec::new();
            for run in &runs.runs {
                let mut min_seq = None;
                for file in run.files.iter().filter(|file| !is_leaving(file)) {
                    let places = wanted.places(file.table, next);
                    next = if places.is_empty() { next } else { places.end };
                    let whole = places.clone().find(|at| wanted.0[*at].1.covers(&file.bounds));
                    if let Some(at) = whole.filter(|_| !file.bounds.is_empty()) {
                        spans.push((span(level as u8, file, file.bounds.clone()), file));
                        met[at] = true;
                        continue;
                    }
                    for at in places {
                        if let Some(part) = file.bounds.intersect(wanted.0[at].1) {
                            spans.push((span(level as u8, file, part), file));
                            met[at] = true;
                        }
                    }
                    if whole.is_none() {
                        min_seq = Some(min_seq.map_or(file.min_seq, |seq: Seq| seq.min(file.min_seq)));
                    }
                }
                of_level.extend(min_seq.map(|min_seq| Staying { run, min_seq }));
            }
            staying.push(of_level);
        }
        if let Some((span, _)) = spans.iter().find(|(_, file)| !file.is_takeable()) {
            return Err(Illegal::Busy(span.clone()));
        }
        let spans: Vec<FileSpan> = spans.into_iter().map(|(span, _)| span).collect();
        if met.contains(&false) {
            let taken = Taken::of(&spans);
            let is_met = |take: &&Take| taken.0.of(take.table).iter().any(|(_, r)| r.overlaps(&take.range));
            if let Some(missing) = plan.take.iter().find(|take| !is_met(take)) {
                return Err(Illegal::Missing(missing.clone()));
            }
        }
        match spans.iter().find(|span| span.level > plan.out) {
            Some(span) => Err(Illegal::Upward { input: span.clone(), out: plan.out }),
            None => Ok(Inputs { spans, taken: OnceCell::new(), staying }),
        }
    }

    /// Returns the key ranges that are taken of each table.
    pub(super) fn taken(&self) -> &Taken {
        self.taken.get_or_init(|| Taken::of(&self.spans))
    }

    pub(super) fn add(&mut self, span: FileSpan) {
        if let Some(taken) = self.taken.get_mut() {
            taken.add(span.table, span.range.clone());
        }
        self.spans.push(span);
    }
}

/// Returns `part` of `file` as a span.
pub(super) fn span(level: u8, file: &FileView, part: KeyRange) -> FileSpan {
    FileSpan { level, table: file.table, range: part, min_seq: file.min_seq, max_seq: file.max_seq }
}

pub(super) fn is_leaving(file: &FileView) -> bool {
    matches!(file.state, FileState::Leaving(_))
}

fn by_table(takes: &[Take]) -> ByTable<&KeyRange> {
    ByTable::new(takes.iter().map(|take| (take.table, &take.range)).collect())
}

fn refuse_doubles(wanted: &ByTable<&KeyRange>) -> Result<(), Illegal> {
    // The ranges are sorted by start, so any overlap shows in a pair of neighbours.
    for pair in wanted.0.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
        if let Some(range) = pair[0].1.intersect(pair[1].1) {
            return Err(Illegal::Twice { table: pair[0].0, range });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::draw::plain_file;
    use crate::contract::tree::LevelView;
    use crate::{Key, RunId};
    use alloc::string::String;

    /// A tree of `runs` runs over the same keys in level 0 and as many in level 1.
    fn tree(runs: u64) -> TreeView {
        let mut tree = TreeView { levels: (0..4).map(|_| LevelView::default()).collect() };
        let all = KeyRange::new(Key::new(b"a"), Some(Key::new(b"z")));
        for n in 0..2 * runs {
            let file = plain_file(TableId(n + 1), all.clone(), 1000 - n, 1000 - n);
            let run = RunView { id: RunId(n + 1), tag: Default::default(), files: Vec::from([file]) };
            tree.levels[usize::from(n >= runs)].runs.push(run);
        }
        tree
    }

    fn plan(tables: u64) -> Plan {
        let take = |n: u64| Take { table: TableId(n + 1), range: KeyRange::all() };
        Plan::new((0..tables).map(take).collect(), 2, String::new())
    }

    #[test]
    fn what_is_taken_whole_is_not_looked_at() {
        let tree = tree(200);
        let staying = |tables: u64| -> Vec<usize> {
            let inputs = Inputs::resolve(&tree, &plan(tables)).unwrap();
            inputs.staying.iter().map(Vec::len).collect()
        };
        // Number of runs that each input is compared with, by level.
        assert_eq!(staying(400), [0, 0, 0, 0]);
        assert_eq!(staying(399), [0, 1, 0, 0]);
        assert_eq!(staying(150), [50, 200, 0, 0]);
    }

    #[test]
    fn a_take_in_part_leaves_its_run() {
        let tree = tree(1);
        let part = KeyRange::new(Key::new(b"c"), Some(Key::new(b"d")));
        let take = |range: &KeyRange| Take { table: TableId(1), range: range.clone() };
        let inputs = Inputs::resolve(&tree, &Plan::new(Vec::from([take(&part)]), 0, String::new())).unwrap();
        assert_eq!((inputs.staying[0].len(), inputs.staying[0][0].min_seq), (1, 1000));
        let rests = |range: &KeyRange| inputs.taken().rests(&tree.levels[0].runs[0].files[0], range).count();
        assert_eq!(rests(&part), 0);
        assert_eq!(rests(&KeyRange::new(Key::new(b"d"), Some(Key::new(b"e")))), 1);
    }
}
