//! Rules for what a compaction may drop, derived from the files that it does not read.
//!
//! - A tombstone may be dropped when no file outside the compaction covers its key and holds an older sequence number.
//!   Whether a snapshot still needs the tombstone is checked elsewhere, by the compaction itself.
//! - Adjacent merge operands may be combined when no file outside holds a sequence number between theirs for the key.
//!
//! Both answers stay valid until the compaction is installed, whatever else is installed before. No version older than
//! the existing ones can appear, and moving a version does not change its sequence number. This holds only if files
//! claimed by other compactions count as outside.
//!
//! [`DropGuard`] cuts the files outside into disjoint fragments of the key space. Each fragment lists the sequence
//! ranges found there. A compaction asks for ascending keys, so the guard caches the last fragment.

use super::inputs::outside;
use crate::contract::flight::FileSpan;
use crate::contract::tree::TreeView;
use crate::{Key, KeyRange, Seq};
use alloc::vec::Vec;
use core::cell::Cell;

/// Sequence ranges of all files outside a piece (a subcompaction), by key.
#[derive(Debug)]
pub struct DropGuard {
    range: KeyRange,
    /// Start keys of the fragments. Fragment `i` ends at `starts[i + 1]`, or at the end of the range.
    starts: Vec<Key>,
    fragments: Vec<Fragment>,
    last: Cell<usize>,
}

#[derive(Default, Debug)]
struct Fragment {
    /// Smallest and largest sequence numbers of the files that cover the fragment, sorted.
    ages: Vec<(Seq, Seq)>,
}

impl Fragment {
    fn oldest(&self) -> Seq {
        self.ages
            .first()
            .map_or(Seq::MAX, |&(min, max)| if crate::bug!("drop-by-newest-seq") { max } else { min })
    }
}

impl DropGuard {
    /// Returns the guard for a piece that compacts `inputs` within `range`. `tree` is the current tree.
    pub fn for_piece(tree: &TreeView, inputs: &[FileSpan], range: &KeyRange) -> DropGuard {
        DropGuard::new(&outside(tree, inputs, range), range)
    }

    /// Returns a guard over `range` from all files outside the compaction, including claimed ones.
    pub fn new(outside: &[FileSpan], range: &KeyRange) -> DropGuard {
        let mut parts: Vec<(KeyRange, (Seq, Seq))> = outside
            .iter()
            .filter_map(|file| Some((file.range.intersect(range)?, (file.min_seq, file.max_seq))))
            .collect();
        parts.sort_by(|a, b| a.0.start.cmp(&b.0.start));
        let mut starts: Vec<Key> = Vec::with_capacity(2 * parts.len() + 1);
        starts.push(range.start.clone());
        for (part, _) in &parts {
            starts.push(part.start.clone());
            starts.extend(part.end.clone().filter(|end| range.is_before_end(end)));
        }
        starts.sort_unstable();
        starts.dedup();
        let mut fragments = Vec::with_capacity(starts.len());
        let mut upcoming = parts.iter().peekable();
        let mut open: Vec<&(KeyRange, (Seq, Seq))> = Vec::new();
        for start in &starts {
            open.retain(|(part, _)| part.is_before_end(start));
            while let Some(part) = upcoming.next_if(|(part, _)| part.start == *start) {
                open.push(part);
            }
            let mut ages: Vec<(Seq, Seq)> = open.iter().map(|(_, ages)| *ages).collect();
            ages.sort_unstable();
            ages.dedup();
            fragments.push(Fragment { ages });
        }
        DropGuard { range: range.clone(), starts, fragments, last: Cell::new(0) }
    }

    /// Returns whether no file outside covers `key` and holds a sequence number below `seq`.
    ///
    /// A tombstone with this number then hides nothing outside. `false` for a key outside the guard's range.
    pub fn is_bottom(&self, key: &[u8], seq: Seq) -> bool {
        self.fragment(key).is_some_and(|fragment| fragment.oldest() >= seq)
    }

    /// Returns whether no file outside covers `key` with sequence numbers between `oldest` and `newest`.
    ///
    /// Merge operands with these numbers may then be combined. `false` for a key outside the guard's range.
    pub fn is_contiguous(&self, key: &[u8], newest: Seq, oldest: Seq) -> bool {
        let is_apart = |&(min, max): &(Seq, Seq)| min >= newest || max <= oldest;
        self.fragment(key).is_some_and(|fragment| fragment.ages.iter().all(is_apart))
    }

    /// Returns the smallest sequence number of any file outside that covers a key of `range`; `Seq::MAX` when no file
    /// does.
    pub fn oldest_in(&self, range: &KeyRange) -> Seq {
        let first = self.starts.partition_point(|start| *start <= range.start).saturating_sub(1);
        let past = self.starts.partition_point(|start| range.is_before_end(start));
        let covered = self.fragments.get(first..past).unwrap_or_default();
        covered.iter().map(Fragment::oldest).min().unwrap_or(Seq::MAX)
    }

    fn fragment(&self, key: &[u8]) -> Option<&Fragment> {
        if !self.range.contains(key) {
            return None;
        }
        let holds =
            |at: usize| *self.starts[at] <= *key && self.starts.get(at + 1).is_none_or(|next| *key < **next);
        let last = self.last.get();
        let at = if holds(last) {
            last
        } else if last + 1 < self.starts.len() && holds(last + 1) {
            last + 1
        } else {
            self.starts.partition_point(|start| **start <= *key) - 1
        };
        self.last.set(at);
        self.fragments.get(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TableId;

    fn range(start: &str, end: &str) -> KeyRange {
        KeyRange::new(Key::new(start.as_bytes()), Some(Key::new(end.as_bytes())))
    }

    fn file(start: &str, end: &str, min_seq: Seq, max_seq: Seq) -> FileSpan {
        FileSpan { level: 1, table: TableId(1), range: range(start, end), min_seq, max_seq }
    }

    #[test]
    fn a_tombstone_goes_only_above_nothing_older() {
        let files = [file("a", "f", 10, 20), file("d", "k", 5, 8), file("m", "z", 30, 40)];
        let guard = DropGuard::new(&files, &range("b", "p"));
        assert!(guard.is_bottom(b"b", 10));
        assert!(!guard.is_bottom(b"b", 11));
        assert!(!guard.is_bottom(b"e", 6));
        assert!(guard.is_bottom(b"f", 5));
        assert!(guard.is_bottom(b"k", 99), "no file covers k");
        assert!(!guard.is_bottom(b"p", 1), "outside the range nothing is known");
        assert!(!guard.is_bottom(b"a", 1));
        assert_eq!(guard.oldest_in(&range("b", "d")), 10);
        assert_eq!(guard.oldest_in(&range("b", "e")), 5);
        assert_eq!(guard.oldest_in(&range("k", "m")), Seq::MAX);
        assert_eq!(guard.oldest_in(&range("k", "n")), 30);
    }

    #[test]
    fn operands_fold_only_with_nothing_between() {
        let guard = DropGuard::new(&[file("a", "f", 10, 20), file("a", "f", 40, 50)], &KeyRange::all());
        assert!(guard.is_contiguous(b"a", 40, 20));
        assert!(!guard.is_contiguous(b"a", 41, 20));
        assert!(!guard.is_contiguous(b"a", 40, 19));
        assert!(guard.is_contiguous(b"a", 10, 1));
        assert!(guard.is_contiguous(b"f", 41, 1));
    }

    #[test]
    fn keys_in_any_order_get_the_same_answer() {
        let files = [file("b", "c", 3, 3), file("d", "e", 5, 5), file("f", "g", 7, 7)];
        let guard = DropGuard::new(&files, &KeyRange::all());
        for keys in ["abcdefg", "gfedcba", "agbfced"] {
            for key in keys.bytes() {
                let covers = |f: &&FileSpan| f.range.contains(&[key]);
                let oldest = files.iter().find(covers).map_or(Seq::MAX, |f| f.min_seq);
                for seq in 1..9 {
                    assert_eq!(guard.is_bottom(&[key], seq), oldest >= seq);
                }
            }
        }
    }
}
