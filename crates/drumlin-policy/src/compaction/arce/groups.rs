//! What a merge of neighbours on the line really rewrites: the files that hang together.
//!
//! Files that share no keys with another input of a merge go by reference and cost nothing. All files of
//! the line are sorted by their first key once per decision, and bounds become places in that order, so
//! that each candidate is one pass of comparing numbers.

use super::interval::Candidate;
use super::line::Link;
use super::sorted::{SortedKeys, digits, shared_prefix};
use alloc::borrow::Cow;
use alloc::vec::Vec;
use drumlin_types::Key;
use drumlin_types::contract::FileView;

struct Span {
    link: usize,
    /// The first place, in the order of first keys, that lies behind this file.
    end: usize,
    bytes: f64,
}

/// Sorts by first key: by numbers, and by the keys where numbers are equal.
fn sort_by_start(files: &mut Vec<(usize, &FileView)>) {
    let starts = || files.iter().map(|(_, file)| &file.bounds.start);
    let (Some(least), Some(most)) = (starts().min(), starts().max()) else { return };
    let prefix = shared_prefix(least, most);
    let mut order: Vec<(u64, usize)> =
        starts().enumerate().map(|(at, start)| (digits(start, prefix), at)).collect();
    order.sort_unstable();
    let key = |at: usize| &files[at].1.bounds.start;
    if order.windows(2).any(|pair| pair[0].0 == pair[1].0 && key(pair[0].1) > key(pair[1].1)) {
        order.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| key(a.1).cmp(key(b.1))));
    }
    *files = order.into_iter().map(|(_, at)| files[at]).collect();
}

/// The files of a line by their first key.
pub(super) struct Groups {
    spans: Vec<Span>,
}

impl Groups {
    pub(super) fn of(links: &[Link<'_>]) -> Groups {
        let mut files: Vec<(usize, &FileView)> = Vec::new();
        for (at, link) in links.iter().enumerate() {
            files.extend(link.files().map(|file| (at, file)));
        }
        sort_by_start(&mut files);
        let starts: Vec<Key> = files.iter().map(|(_, file)| file.bounds.start.clone()).collect();
        let starts = SortedKeys::new(Cow::Owned(starts));
        let span = |&(link, file): &(usize, &FileView)| {
            let end = file.bounds.end.as_ref().map_or(usize::MAX, |end| starts.before(end));
            Span { link, end, bytes: file.bytes as f64 }
        };
        Groups { spans: files.iter().map(span).collect() }
    }

    /// Bytes that a merge of `candidate` rewrites.
    pub(super) fn rewritten(&self, candidate: &Candidate) -> f64 {
        let (mut bytes, mut group, mut count, mut end) = (0.0, 0.0, 0, 0);
        let links = candidate.from..candidate.to;
        for (at, span) in self.spans.iter().enumerate().filter(|(_, span)| links.contains(&span.link)) {
            if at >= end {
                // A group alone is not rewritten.
                bytes += if count > 1 { group } else { 0.0 };
                (group, count) = (0.0, 0);
            }
            (group, count, end) = (group + span.bytes, count + 1, end.max(span.end));
        }
        bytes + if count > 1 { group } else { 0.0 }
    }
}
