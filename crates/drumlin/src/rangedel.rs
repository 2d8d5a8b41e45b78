//! Range tombstones, cut into fragments so that a lookup is one binary search.
//!
//! A tombstone `(start, end, seq)` hides every version older than `seq` of the keys `start <= k < end`.
//! The fragments of a set of tombstones are disjoint ranges, sorted, each with the sequence numbers of
//! all tombstones that cover it, newest first.

use drumlin_types::{Key, KeyRange, Seq};

/// One range tombstone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RangeTombstone {
    /// The keys it hides.
    pub(crate) range: KeyRange,
    /// Versions older than this are hidden.
    pub(crate) seq: Seq,
}

/// A disjoint piece of the key space and the tombstones over it, newest first.
#[derive(Clone, Debug)]
pub(crate) struct Fragment {
    pub(crate) range: KeyRange,
    pub(crate) seqs: Vec<Seq>,
}

/// A set of range tombstones, ready for lookups.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeTombstones {
    fragments: Vec<Fragment>,
}

impl RangeTombstones {
    /// Fragments `tombstones`; empty ranges are ignored.
    pub(crate) fn new(tombstones: &[RangeTombstone]) -> RangeTombstones {
        let mut edges: Vec<&Key> = Vec::with_capacity(tombstones.len() * 2);
        let live: Vec<&RangeTombstone> = tombstones.iter().filter(|t| !t.range.is_empty()).collect();
        for tombstone in &live {
            edges.push(&tombstone.range.start);
            edges.extend(tombstone.range.end.as_ref());
        }
        edges.sort();
        edges.dedup();
        let mut by_start = live;
        by_start.sort_by(|a, b| a.range.start.cmp(&b.range.start));
        let mut upcoming = by_start.into_iter().peekable();
        let mut open: Vec<&RangeTombstone> = Vec::new();
        let mut fragments: Vec<Fragment> = Vec::new();
        for (i, edge) in edges.iter().enumerate() {
            open.retain(|t| t.range.is_before_end(edge));
            while let Some(t) = upcoming.next_if(|t| t.range.start == **edge) {
                open.push(t);
            }
            if open.is_empty() {
                continue;
            }
            let mut seqs: Vec<Seq> = open.iter().map(|t| t.seq).collect();
            seqs.sort_unstable_by(|a, b| b.cmp(a));
            seqs.dedup();
            let end = edges.get(i + 1).map(|e| (*e).clone());
            fragments.push(Fragment { range: KeyRange::new((*edge).clone(), end), seqs });
        }
        RangeTombstones { fragments }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    /// The fragments in key order.
    pub(crate) fn fragments(&self) -> &[Fragment] {
        &self.fragments
    }

    /// The fragment that covers `key`.
    pub(crate) fn fragment(&self, key: &[u8]) -> Option<&Fragment> {
        let after = self.fragments.partition_point(|f| *f.range.start <= *key);
        let fragment = self.fragments[..after].last()?;
        let is_end = || drumlin_types::bug!("B22") && fragment.range.end.as_deref() == Some(key);
        (fragment.range.is_before_end(key) || is_end()).then_some(fragment)
    }

    /// The newest tombstone over `key` that `snapshot` sees; 0 when there is none.
    pub(crate) fn covering(&self, key: &[u8], snapshot: Seq) -> Seq {
        match self.fragment(key) {
            Some(f) => f.seqs[f.seqs.partition_point(|&s| s > snapshot)..].first().copied().unwrap_or(0),
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tombstone(start: &str, end: Option<&str>, seq: Seq) -> RangeTombstone {
        let end = end.map(|e| Key::new(e.as_bytes()));
        RangeTombstone { range: KeyRange::new(Key::new(start.as_bytes()), end), seq }
    }

    #[test]
    fn overlapping_tombstones() {
        let set = RangeTombstones::new(&[
            tombstone("b", Some("f"), 10),
            tombstone("d", Some("h"), 20),
            tombstone("x", None, 5),
            tombstone("m", Some("m"), 99),
        ]);
        let at = |key: &str, snapshot| set.covering(key.as_bytes(), snapshot);
        assert_eq!([at("a", 99), at("b", 99), at("d", 99), at("d", 15), at("d", 9)], [0, 10, 20, 10, 0]);
        assert_eq!([at("f", 99), at("h", 99), at("m", 99), at("x", 99), at("zz", 99)], [20, 0, 0, 5, 5]);
        assert_eq!(set.fragments().len(), 4);
    }

    #[test]
    fn agrees_with_the_plain_definition() {
        let mut state = 7u64;
        let mut draw = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        for _ in 0..500 {
            let list: Vec<RangeTombstone> = (0..draw(8))
                .map(|_| {
                    let (a, b) = (draw(9) as u8, draw(9) as u8);
                    let end = (draw(10) > 0).then(|| Key::new(&[b]));
                    RangeTombstone { range: KeyRange::new(Key::new(&[a]), end), seq: 1 + draw(20) }
                })
                .collect();
            let set = RangeTombstones::new(&list);
            for key in 0..10u8 {
                for snapshot in [0, 3, 11, 30] {
                    let plain = list.iter().filter(|t| t.range.contains(&[key]) && t.seq <= snapshot);
                    assert_eq!(set.covering(&[key], snapshot), plain.map(|t| t.seq).max().unwrap_or(0));
                }
            }
        }
    }
}
