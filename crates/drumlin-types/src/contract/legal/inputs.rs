//! A plan's takes, resolved against a tree: what it reads, and what it leaves behind of each file.
//!
//! A table may be referenced by several files with disjoint bounds, even in different levels, so a take
//! may mean several files. A file that is leaving belongs to an earlier plan and is passed over.

use super::illegal::Illegal;
use crate::contract::flight::FileSpan;
use crate::contract::plan::{Plan, Take};
use crate::contract::tree::{FileState, FileView, TreeView};
use crate::{KeyRange, TableId};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The files that `takes` mean, clipped, in tree order. Takes that mean nothing give nothing.
pub fn spans(tree: &TreeView, takes: &[Take]) -> Vec<FileSpan> {
    meant(tree, takes).map(|(span, _)| span).collect()
}

fn meant<'a>(tree: &'a TreeView, takes: &[Take]) -> impl Iterator<Item = (FileSpan, &'a FileView)> {
    let wanted = by_table(takes);
    let mut found = Vec::new();
    for (level, _, file) in tree.files().filter(|(_, _, file)| !is_leaving(file)) {
        for range in wanted.get(&file.table).into_iter().flatten() {
            found.extend(file.bounds.intersect(range).map(|part| (span(level, file, part), file)));
        }
    }
    found.into_iter()
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

/// A plan's inputs, known to exist, to be free and to lie at or above the output level.
pub(super) struct Inputs {
    pub(super) spans: Vec<FileSpan>,
    pub(super) taken: Taken,
}

impl Inputs {
    pub(super) fn resolve(tree: &TreeView, plan: &Plan) -> Result<Inputs, Illegal> {
        if plan.take.is_empty() {
            return Err(Illegal::Empty);
        }
        if usize::from(plan.out) >= tree.levels.len() {
            return Err(Illegal::NoLevel { out: plan.out, levels: tree.levels.len() });
        }
        refuse_doubles(&plan.take)?;
        let mut spans = Vec::new();
        for (span, file) in meant(tree, &plan.take) {
            if !file.is_takeable() {
                return Err(Illegal::Busy(span));
            }
            spans.push(span);
        }
        for take in &plan.take {
            let is_meant = |span: &FileSpan| span.table == take.table && span.range.overlaps(&take.range);
            if !spans.iter().any(is_meant) {
                return Err(Illegal::Missing(take.clone()));
            }
        }
        let taken = Taken::of(&spans);
        match spans.iter().find(|span| span.level > plan.out) {
            Some(span) => Err(Illegal::Upward { input: span.clone(), out: plan.out }),
            None => Ok(Inputs { spans, taken }),
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

fn refuse_doubles(takes: &[Take]) -> Result<(), Illegal> {
    for (table, ranges) in by_table(takes) {
        // Sorted by start: any overlap shows between neighbours, or swallows a neighbour whole.
        for pair in ranges.windows(2) {
            if let Some(range) = pair[0].intersect(pair[1]) {
                return Err(Illegal::Twice { table, range });
            }
        }
    }
    Ok(())
}
