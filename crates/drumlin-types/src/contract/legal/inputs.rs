//! A plan's takes, resolved against a tree: what it reads, and what it leaves behind of each file.
//!
//! A table may be referenced by several files with disjoint bounds, even in different levels, so a take
//! may mean several files. A file that is leaving belongs to an earlier plan and is passed over.

use super::illegal::Illegal;
use crate::contract::flight::FileSpan;
use crate::contract::plan::{Plan, Take};
use crate::contract::tree::{FileState, FileView, RunView, TreeView};
use crate::{KeyRange, Seq, TableId};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The files that `takes` mean, clipped, in tree order. Takes that mean nothing give nothing.
pub fn spans(tree: &TreeView, takes: &[Take]) -> Vec<FileSpan> {
    if takes.is_empty() {
        return Vec::new();
    }
    let wanted = by_table(takes);
    let mut found = Vec::new();
    for (level, _, file) in tree.files().filter(|(_, _, file)| !is_leaving(file)) {
        for range in wanted.get(&file.table).into_iter().flatten() {
            found.extend(file.bounds.intersect(range).map(|part| span(level, file, part)));
        }
    }
    found
}

/// Every part of a live file that overlaps `range` and is not in `inputs`: what a merge of `inputs` does
/// not see. Files that other plans have claimed are in it, files yet to come are not: their inputs are.
pub fn outside(tree: &TreeView, inputs: &[FileSpan], range: &KeyRange) -> Vec<FileSpan> {
    let taken = Taken::of(inputs);
    let mut found = Vec::new();
    for (level, _, file) in tree.files().filter(|(_, _, file)| !matches!(file.state, FileState::Coming(_))) {
        if let Some(part) = file.bounds.intersect(range) {
            found.extend(taken.rests(file, &part).map(|rest| span(level, file, rest)));
        }
    }
    found
}

/// The keys that are taken of each table, sorted and disjoint.
#[derive(Default)]
pub(super) struct Taken(BTreeMap<TableId, Vec<KeyRange>>);

impl Taken {
    pub(super) fn of(spans: &[FileSpan]) -> Taken {
        let mut taken = Taken::default();
        for span in spans {
            taken.add(span.table, span.range.clone());
        }
        taken
    }

    /// Adds keys that were not taken before.
    pub(super) fn add(&mut self, table: TableId, range: KeyRange) {
        let ranges = self.0.entry(table).or_default();
        let at = ranges.partition_point(|r| r.start < range.start);
        ranges.insert(at, range);
    }

    /// Whether any of the keys of `take` are taken.
    fn meets(&self, take: &Take) -> bool {
        let ranges = self.0.get(&take.table).map_or(&[][..], Vec::as_slice);
        let after = ranges.partition_point(|r| r.start <= take.range.start);
        ranges[after.saturating_sub(1)..].iter().take(2).any(|r| r.overlaps(&take.range))
    }

    /// What is left of `file` inside `part`, from the lowest key.
    pub(super) fn rests<'a>(
        &'a self,
        file: &FileView,
        part: &KeyRange,
    ) -> impl Iterator<Item = KeyRange> + use<'a> {
        let mut cuts = self.0.get(&file.table).into_iter().flatten();
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

/// A run of which something stays behind, and the smallest sequence number of what does.
pub(super) struct Staying<'t> {
    pub(super) run: &'t RunView,
    pub(super) min_seq: Seq,
}

/// A plan's inputs, known to exist, to be free and to lie at or above the output level.
pub(super) struct Inputs<'t> {
    pub(super) spans: Vec<FileSpan>,
    pub(super) taken: Taken,
    /// By level, the runs that are not taken whole: the others are in nobody's way. Plans often take
    /// hundreds of runs that all overlap, so looking at each from each would be quadratic.
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
        let mut spans = Vec::new();
        let mut staying = Vec::new();
        for (level, runs) in tree.levels.iter().enumerate() {
            let mut of_level = Vec::new();
            for run in &runs.runs {
                let mut min_seq = None;
                for file in run.files.iter().filter(|file| !is_leaving(file)) {
                    let ranges = wanted.get(&file.table).map_or(&[][..], Vec::as_slice);
                    for range in ranges {
                        let part = file.bounds.intersect(range);
                        spans.extend(part.map(|part| (span(level as u8, file, part), file)));
                    }
                    if !ranges.iter().any(|range| range.covers(&file.bounds)) {
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
        let taken = Taken::of(&spans);
        if let Some(missing) = plan.take.iter().find(|take| !taken.meets(take)) {
            return Err(Illegal::Missing(missing.clone()));
        }
        match spans.iter().find(|span| span.level > plan.out) {
            Some(span) => Err(Illegal::Upward { input: span.clone(), out: plan.out }),
            None => Ok(Inputs { spans, taken, staying }),
        }
    }

    pub(super) fn add(&mut self, span: FileSpan) {
        self.taken.add(span.table, span.range.clone());
        self.spans.push(span);
    }
}

/// `part` of `file` as a span.
pub(super) fn span(level: u8, file: &FileView, part: KeyRange) -> FileSpan {
    FileSpan { level, table: file.table, range: part, min_seq: file.min_seq, max_seq: file.max_seq }
}

pub(super) fn is_leaving(file: &FileView) -> bool {
    matches!(file.state, FileState::Leaving(_))
}

fn by_table(takes: &[Take]) -> BTreeMap<TableId, Vec<&KeyRange>> {
    let mut wanted: BTreeMap<TableId, Vec<&KeyRange>> = BTreeMap::new();
    for take in takes {
        wanted.entry(take.table).or_default().push(&take.range);
    }
    for ranges in wanted.values_mut() {
        ranges.sort_by(|a, b| a.start.cmp(&b.start));
    }
    wanted
}

fn refuse_doubles(wanted: &BTreeMap<TableId, Vec<&KeyRange>>) -> Result<(), Illegal> {
    for (&table, ranges) in wanted {
        // Sorted by start: any overlap shows between neighbours, or swallows a neighbour whole.
        for pair in ranges.windows(2) {
            if let Some(range) = pair[0].intersect(pair[1]) {
                return Err(Illegal::Twice { table, range });
            }
        }
    }
    Ok(())
}
