//! Dividing a plan into pieces.
//!
//! 1. A file that overlaps no other input goes by reference: a *move* piece, which costs no I/O. Not so
//!    when it holds tombstones that the merge could drop.
//! 2. The others are grouped by key into pieces of about the target size, cut at bounds of input files,
//!    always between user keys. Versions and merge operands of a key stay together.
//! 3. No merge piece reaches over a moved file, nor over a file that stays in the destination run, so
//!    every output fits between them.

use crate::version::Tree;
use drumlin_types::contract::FileSpan;
use drumlin_types::{Key, KeyRange};

/// A piece to be: its keys and its inputs, clipped to them.
#[derive(Debug, PartialEq)]
pub(crate) struct Cut {
    pub(crate) range: KeyRange,
    pub(crate) inputs: Vec<FileSpan>,
    pub(crate) bytes: u64,
    pub(crate) is_move: bool,
}

/// Cuts the inputs `spans` of a plan with output level `out` into pieces of about `target` bytes. A cut
/// is made at each of `breaks`.
pub(crate) fn cut(tree: &Tree, spans: &[FileSpan], out: u8, target: u64, mut breaks: Vec<Key>) -> Vec<Cut> {
    let mut pieces = Vec::new();
    let mut merging = Vec::new();
    for (i, span) in spans.iter().enumerate() {
        let alone = !spans.iter().enumerate().any(|(j, other)| i != j && span.range.overlaps(&other.range));
        if alone && may_move(tree, span, out) {
            let bytes = bytes_of(tree, span);
            breaks.push(span.range.start.clone());
            pieces.push(Cut { range: span.range.clone(), inputs: vec![span.clone()], bytes, is_move: true });
        } else {
            merging.push(span.clone());
        }
    }
    pieces.extend(cut_merge(tree, &merging, target, &breaks));
    pieces.sort_by(|a, b| a.range.start.cmp(&b.range.start));
    pieces
}

/// Whether `span` may change its place without being read: it is a whole reference, it sinks or changes
/// its run, and it holds no tombstone that would come to rest with nothing older below it.
fn may_move(tree: &Tree, span: &FileSpan, out: u8) -> bool {
    let Some((_, _, file)) = tree.refs(span.table).find(|(_, _, f)| f.bounds == span.range) else {
        return false;
    };
    if file.counts.tombstones == 0 && file.counts.range_tombstones == 0 {
        return span.level < out;
    }
    let below = tree.files().any(|(level, _, f)| level > out && f.bounds.overlaps(&span.range));
    span.level < out && below
}

fn bytes_of(tree: &Tree, span: &FileSpan) -> u64 {
    let parts = tree.refs(span.table).filter(|(_, _, file)| file.bounds.overlaps(&span.range));
    // A part of a file counts as half of it.
    parts
        .map(|(_, _, f)| if span.range.covers(&f.bounds) { f.counts.bytes } else { f.counts.bytes / 2 })
        .sum()
}

fn cut_merge(tree: &Tree, spans: &[FileSpan], target: u64, breaks: &[Key]) -> Vec<Cut> {
    let Some(hull) = spans.iter().map(|s| s.range.clone()).reduce(|a, b| a.hull(&b)) else {
        return Vec::new();
    };
    let mut edges: Vec<Key> = spans.iter().map(|s| s.range.start.clone()).collect();
    edges.extend(spans.iter().filter_map(|s| s.range.end.clone()));
    edges.extend(breaks.iter().cloned());
    edges.sort();
    edges.dedup();
    edges.retain(|edge| *edge > hull.start && hull.end.as_ref().is_none_or(|end| edge < end));
    // Bytes between neighbouring edges, with each file spread evenly over the gaps that it spans.
    let mut gaps = vec![0u64; edges.len() + 1];
    for span in spans {
        let first = edges.partition_point(|edge| *edge <= span.range.start);
        let last = match &span.range.end {
            Some(end) => edges.partition_point(|edge| edge < end),
            None => edges.len(),
        };
        let share = bytes_of(tree, span) / (last - first + 1) as u64;
        gaps[first..=last].iter_mut().for_each(|gap| *gap += share);
    }
    let mut pieces = Vec::new();
    let mut start = hull.start.clone();
    let mut bytes = 0;
    for (i, gap) in gaps.iter().enumerate() {
        bytes += gap;
        let end = edges.get(i).cloned();
        let forced = end.as_ref().is_some_and(|edge| breaks.contains(edge));
        if bytes >= target || forced || end.is_none() {
            let range = KeyRange::new(start.clone(), end.clone().or_else(|| hull.end.clone()));
            pieces.extend(piece(spans, range, bytes));
            bytes = 0;
            start = end.unwrap_or(start);
        }
    }
    pieces
}

fn piece(spans: &[FileSpan], range: KeyRange, bytes: u64) -> Option<Cut> {
    let inputs: Vec<FileSpan> = spans
        .iter()
        .filter_map(|span| Some(FileSpan { range: span.range.intersect(&range)?, ..span.clone() }))
        .collect();
    (!inputs.is_empty()).then_some(Cut { range, inputs, bytes, is_move: false })
}
