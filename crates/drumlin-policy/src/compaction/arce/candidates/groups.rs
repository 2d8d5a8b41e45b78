//! Counts the bytes that a compaction of neighbours on the age line rewrites.
//!
//! A file that shares no keys with another input is trivially moved and costs nothing. Files that share keys,
//! directly or through other files, form a group that is rewritten. All files of the line are sorted by first key
//! once per decision, and bounds become places in that order. Each candidate then needs a single pass that compares
//! integers.

use crate::compaction::arce::candidates::interval::Candidate;
use crate::compaction::arce::candidates::link::Link;
use crate::compaction::arce::candidates::sorted::{SortedKeys, digits, shared_prefix};
use alloc::borrow::Cow;
use alloc::vec;
use alloc::vec::Vec;
use drumlin_types::Key;
use drumlin_types::contract::FileView;

/// A file: its link, the places that it spans, and its size.
struct GroupSpan {
    link: usize,
    /// First place, in the order of first keys, after the end of this file.
    end: usize,
    bytes: f64,
}

/// Sorts by first key: by integers, and by the keys themselves where integers are equal.
fn sort_by_start(files: &mut Vec<(usize, &FileView)>) {
    let starts = || files.iter().map(|(_, file)| &file.bounds.start);
    let Some(first) = starts().next() else { return };
    let prefix = starts().fold(first.len(), |prefix, start| shared_prefix(&first[..prefix], start));
    let mut order: Vec<(u64, usize)> =
        starts().enumerate().map(|(at, start)| (digits(start, prefix), at)).collect();
    order.sort_unstable();
    let key = |at: usize| &files[at].1.bounds.start;
    if order.windows(2).any(|pair| pair[0].0 == pair[1].0 && key(pair[0].1) > key(pair[1].1)) {
        order.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| key(a.1).cmp(key(b.1))));
    }
    *files = order.into_iter().map(|(_, at)| files[at]).collect();
}

/// The files of a line, sorted by first key.
pub(crate) struct Groups {
    spans: Vec<GroupSpan>,
    /// Places of the files of each link, one link after the other.
    places: Vec<usize>,
    /// Index in `places` at which each link begins, and the end of the last one.
    begins: Vec<usize>,
}

/// A candidate with less than this fraction (1/4) of all files is collected link by link.
const FEW_FILES: usize = 4;

impl Groups {
    pub(crate) fn of(links: &[Link<'_>]) -> Groups {
        let mut files: Vec<(usize, &FileView)> = Vec::new();
        for (at, link) in links.iter().enumerate() {
            files.extend(link.files().map(|file| (at, file)));
        }
        sort_by_start(&mut files);
        let starts: Vec<Key> = files.iter().map(|(_, file)| file.bounds.start.clone()).collect();
        let starts = SortedKeys::new(Cow::Owned(starts));
        let span = |&(link, file): &(usize, &FileView)| {
            let end = file.bounds.end.as_ref().map_or(usize::MAX, |end| starts.before(end));
            GroupSpan { link, end, bytes: file.bytes as f64 }
        };
        let spans: Vec<GroupSpan> = files.iter().map(span).collect();
        // A counting sort of the places by link.
        let mut begins = vec![0; links.len() + 1];
        spans.iter().for_each(|span| begins[span.link + 1] += 1);
        (1..begins.len()).for_each(|at| begins[at] += begins[at - 1]);
        let (mut next, mut places) = (begins.clone(), vec![0; spans.len()]);
        for (place, span) in spans.iter().enumerate() {
            places[next[span.link]] = place;
            next[span.link] += 1;
        }
        Groups { spans, places, begins }
    }

    /// Returns the bytes that a compaction of `candidate` rewrites.
    pub(crate) fn rewritten(&self, candidate: &Candidate) -> f64 {
        let links = candidate.from..candidate.to;
        let places = &self.places[self.begins[links.start]..self.begins[links.end]];
        if places.len() * FEW_FILES < self.spans.len() {
            let mut places = places.to_vec();
            places.sort_unstable();
            return in_groups(places.into_iter().map(|at| (at, &self.spans[at])));
        }
        in_groups(self.spans.iter().enumerate().filter(|(_, span)| links.contains(&span.link)))
    }
}

/// Returns the bytes of all groups of more than one file. `spans` come with their places, in order.
fn in_groups<'a>(spans: impl Iterator<Item = (usize, &'a GroupSpan)>) -> f64 {
    let (mut bytes, mut group, mut count, mut end) = (0.0, 0.0, 0, 0);
    for (at, span) in spans {
        if at >= end {
            // A file that forms a group alone is not rewritten.
            bytes += if count > 1 { group } else { 0.0 };
            (group, count) = (0.0, 0);
        }
        (group, count, end) = (group + span.bytes, count + 1, end.max(span.end));
    }
    bytes + if count > 1 { group } else { 0.0 }
}
