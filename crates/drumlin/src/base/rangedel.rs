//! Range tombstones, indexed so that a lookup takes logarithmic time, however much the tombstones overlap.
//!
//! A tombstone `(start, end, seq)` hides every version older than `seq` of the keys `start <= k < end`.
//!
//! The starts and ends of the tombstones cut the key space into sorted *fragments*. A segment tree covers the
//! fragments. It stores each tombstone at the few nodes that together make up its range, so n tombstones take O(n log
//! n) numbers. Storing tombstones per fragment would take n * n numbers when a queue is trimmed repeatedly (`[0, 1)`,
//! `[0, 2)` and so on). The tombstones over a key are at the nodes from its fragment up to the root. Each node lists
//! them newest first.
//!
//! A memtable gets new tombstones between lookups. So its tombstones are a list of such indexes, and each index holds
//! more tombstones than the next one. New tombstones are indexed together with the indexes at the list's end that hold
//! at most as many. So each tombstone is indexed a logarithmic number of times (Bentley and Saxe's logarithmic method).

use drumlin_types::{Key, KeyRange, Seq, bug};
use std::sync::Arc;

/// One range tombstone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RangeTombstone {
    /// Range of the keys that it hides.
    pub(crate) range: KeyRange,
    /// Sequence number of the tombstone. It hides older versions.
    pub(crate) seq: Seq,
}

impl RangeTombstone {
    /// Returns the part of the tombstone inside `range`.
    pub(crate) fn clip(&self, range: &KeyRange) -> Option<RangeTombstone> {
        Some(RangeTombstone { range: self.range.intersect(range)?, seq: self.seq })
    }
}

/// Bytes of an allocated key besides its own: reference counts and the allocator's share.
const KEY_OVERHEAD: usize = 24;

/// Immutable index over a list of range tombstones.
#[derive(Debug, Default)]
pub(crate) struct Fragmented {
    list: Vec<RangeTombstone>,
    /// First key of each fragment. A fragment ends where the next begins; the last one has no end.
    starts: Vec<Key>,
    /// Position in `seqs` where each node's numbers begin, followed by the end of the last node. Node 1 is the root.
    /// The children of `n` are `2n` and `2n + 1`. Fragment `f` is the leaf `starts.len() + f`.
    nodes: Vec<usize>,
    /// Sequence numbers of the tombstones at each node, newest first.
    seqs: Vec<Seq>,
}

impl Fragmented {
    /// Builds the index of `list`. Ignores empty ranges.
    pub(crate) fn new(mut list: Vec<RangeTombstone>) -> Fragmented {
        list.retain(|t| !t.range.is_empty());
        if list.is_empty() {
            return Fragmented::default();
        }
        list.sort_unstable_by_key(|t| std::cmp::Reverse(t.seq));
        let mut starts: Vec<Key> = Vec::with_capacity(list.len() * 2);
        for tombstone in &list {
            starts.push(tombstone.range.start.clone());
            starts.extend(tombstone.range.end.clone());
        }
        starts.sort_unstable();
        starts.dedup();
        let leaves = starts.len();
        let place = |key: &Key| starts.partition_point(|start| start < key);
        let places: Vec<(usize, usize)> = list
            .iter()
            .map(|t| (place(&t.range.start), t.range.end.as_ref().map_or(leaves, place)))
            .collect();
        // The numbers per node are counted first, so that all nodes share one allocation.
        let mut nodes = vec![0; 2 * leaves + 1];
        for &place in &places {
            each_node(leaves, place, |node| nodes[node + 1] += 1);
        }
        for node in 1..nodes.len() {
            nodes[node] += nodes[node - 1];
        }
        let mut next = nodes.clone();
        let mut seqs = vec![0; nodes[2 * leaves]];
        for (tombstone, &place) in list.iter().zip(&places) {
            each_node(leaves, place, |node| {
                seqs[next[node]] = tombstone.seq;
                next[node] += 1;
            });
        }
        Fragmented { list, starts, nodes, seqs }
    }

    /// Returns whether there are no tombstones.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// All tombstones, newest first.
    pub(crate) fn list(&self) -> &[RangeTombstone] {
        &self.list
    }

    /// Returns the bytes of memory that the index holds. Keys are shared by list and fragments.
    fn held_bytes(&self) -> usize {
        let keys = self.starts.iter().map(|start| start.len() + KEY_OVERHEAD).sum::<usize>();
        size_of_val(&*self.list)
            + size_of_val(&*self.starts)
            + keys
            + size_of_val(&*self.nodes)
            + size_of_val(&*self.seqs)
    }

    /// Returns all fragments in key order, including those without tombstones.
    pub(crate) fn fragments(&self) -> impl Iterator<Item = (usize, KeyRange)> {
        let end = |f: usize| self.starts.get(f + 1).cloned();
        self.starts.iter().enumerate().map(move |(f, start)| (f, KeyRange::new(start.clone(), end(f))))
    }

    /// Returns the fragment of `key`, the first key of that fragment, and the first key of the next fragment.
    fn around(&self, key: &[u8]) -> (Option<usize>, Option<&Key>, Option<&Key>) {
        let next = self.starts.partition_point(|start| **start <= *key);
        let fragment = next.checked_sub(1);
        (fragment, fragment.map(|f| &self.starts[f]), self.starts.get(next))
    }

    /// Returns the sequence number of the newest tombstone over `fragment` that `snapshot` sees; 0 when there is none.
    pub(crate) fn newest(&self, fragment: usize, snapshot: Seq) -> Seq {
        let mut node = self.starts.len() + fragment;
        let mut newest = 0;
        while node > 0 {
            let seqs = &self.seqs[self.nodes[node]..self.nodes[node + 1]];
            let seen = match seqs.first() {
                Some(&first) if first <= snapshot => Some(first),
                Some(_) => seqs.get(seqs.partition_point(|&seq| seq > snapshot)).copied(),
                None => None,
            };
            newest = newest.max(seen.unwrap_or(0));
            node /= 2;
        }
        newest
    }

    /// Returns the sequence number of the newest tombstone over `key` that `snapshot` sees; 0 when there is none.
    pub(crate) fn covering(&self, key: &[u8], snapshot: Seq) -> Seq {
        let (Some(fragment), start, _) = self.around(key) else { return 0 };
        let newest = self.newest(fragment, snapshot);
        if bug!("range-tombstone-end-inclusive")
            && newest == 0
            && fragment > 0
            && start.is_some_and(|start| **start == *key)
        {
            return self.newest(fragment - 1, snapshot);
        }
        newest
    }
}

/// Calls `visit` with the nodes that together cover exactly the leaves `place.0..place.1`.
fn each_node(leaves: usize, place: (usize, usize), mut visit: impl FnMut(usize)) {
    let (mut from, mut to) = (leaves + place.0, leaves + place.1);
    while from < to {
        if from % 2 == 1 {
            visit(from);
            from += 1;
        }
        if to % 2 == 1 {
            to -= 1;
            visit(to);
        }
        (from, to) = (from / 2, to / 2);
    }
}

/// Indexed set of range tombstones that can grow.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeTombstones {
    /// The indexes. None is empty, and each has more tombstones than the next.
    parts: Vec<Arc<Fragmented>>,
}

impl RangeTombstones {
    /// Builds the set of `list`. Ignores empty ranges.
    pub(crate) fn new(list: Vec<RangeTombstone>) -> RangeTombstones {
        RangeTombstones::default().with(list)
    }

    /// Returns the set of these tombstones and the `new` ones.
    pub(crate) fn with(&self, mut new: Vec<RangeTombstone>) -> RangeTombstones {
        let mut parts = self.parts.clone();
        while let Some(part) = parts.pop_if(|part| part.list.len() <= new.len()) {
            new.extend_from_slice(&part.list);
        }
        let part = Fragmented::new(new);
        if !part.is_empty() {
            parts.push(Arc::new(part));
        }
        RangeTombstones { parts }
    }

    /// Returns whether there are no tombstones.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Returns the bytes of memory that the tombstones and their indexes hold.
    pub(crate) fn held_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.held_bytes()).sum()
    }

    /// Returns all tombstones, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &RangeTombstone> {
        self.parts.iter().flat_map(|part| part.list())
    }

    /// Returns the sequence number of the newest tombstone over `key` that `snapshot` sees; 0 when there is none.
    pub(crate) fn covering(&self, key: &[u8], snapshot: Seq) -> Seq {
        self.parts.iter().map(|part| part.covering(key, snapshot)).max().unwrap_or(0)
    }

    /// Returns the same as [`covering`](Self::covering), and also reports where that result holds. It passes `edges` a
    /// range for each index: the first key, if any, and the key after the range, if any. Within all of them the result
    /// is the same.
    pub(crate) fn covering_between<'a>(
        &'a self,
        key: &[u8],
        snapshot: Seq,
        mut edges: impl FnMut(Option<&'a Key>, Option<&'a Key>),
    ) -> Seq {
        let mut newest = 0;
        for part in &self.parts {
            let (fragment, start, end) = part.around(key);
            edges(start, end);
            newest = newest.max(fragment.map_or(0, |fragment| part.newest(fragment, snapshot)));
        }
        newest
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
        let set = RangeTombstones::new(vec![
            tombstone("b", Some("f"), 10),
            tombstone("d", Some("h"), 20),
            tombstone("x", None, 5),
            tombstone("m", Some("m"), 99),
        ]);
        let at = |key: &str, snapshot| set.covering(key.as_bytes(), snapshot);
        assert_eq!([at("a", 99), at("b", 99), at("d", 99), at("d", 15), at("d", 9)], [0, 10, 20, 10, 0]);
        assert_eq!([at("f", 99), at("h", 99), at("m", 99), at("x", 99), at("zz", 99)], [20, 0, 0, 5, 5]);
    }

    #[test]
    fn agrees_with_the_plain_definition() {
        let mut state = 7u64;
        let mut draw = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        for round in 0..500 {
            let list: Vec<RangeTombstone> = (0..draw(if round < 400 { 8 } else { 40 }))
                .map(|_| {
                    let (a, b) = (draw(9) as u8, draw(9) as u8);
                    let end = (draw(10) > 0).then(|| Key::new(&[b]));
                    RangeTombstone { range: KeyRange::new(Key::new(&[a]), end), seq: 1 + draw(20) }
                })
                .collect();
            let set = RangeTombstones::new(list.clone());
            let mut grown = RangeTombstones::default();
            let mut rest = &list[..];
            while !rest.is_empty() {
                let (here, later) = rest.split_at(1 + draw(rest.len().min(4) as u64) as usize);
                (grown, rest) = (grown.with(here.to_vec()), later);
            }
            assert!(grown.parts.is_sorted_by(|a, b| a.list.len() > b.list.len()));
            for key in 0..10u8 {
                for snapshot in [0, 3, 11, 30] {
                    let plain = list.iter().filter(|t| t.range.contains(&[key]) && t.seq <= snapshot);
                    let plain = plain.map(|t| t.seq).max().unwrap_or(0);
                    assert_eq!(set.covering(&[key], snapshot), plain);
                    assert_eq!(grown.covering(&[key], snapshot), plain);
                    let mut edges = Vec::new();
                    let note = |start: Option<&Key>, end: Option<&Key>| {
                        edges.push(KeyRange::new(start.cloned().unwrap_or(Key::empty()), end.cloned()));
                    };
                    assert_eq!(grown.covering_between(&[key], snapshot, note), plain);
                    for other in (0..10u8).filter(|&other| edges.iter().all(|range| range.contains(&[other])))
                    {
                        assert_eq!(set.covering(&[other], snapshot), plain);
                    }
                }
            }
        }
    }

    /// A queue is trimmed repeatedly. The index grows like n log n. When trims alternate with reads, the total indexing
    /// work grows like n log n too.
    #[test]
    fn a_trimmed_queue_is_small() {
        let n: u32 = 4096;
        let trim = |i: u32| RangeTombstone {
            range: KeyRange::new(Key::new(b""), Some(Key::new(&i.to_be_bytes()))),
            seq: Seq::from(i),
        };
        let all = Fragmented::new((1..=n).map(trim).collect());
        assert_eq!(all.list().len(), n as usize);
        assert!(all.seqs.len() < n as usize * 2 * 13, "{}", all.seqs.len());
        let mut grown = RangeTombstones::default();
        let mut arranged = 0;
        for i in 1..=n {
            grown = grown.with(vec![trim(i)]);
            arranged += grown.parts.last().map_or(0, |part| part.list.len());
            assert_eq!(grown.covering(&(i / 2).to_be_bytes(), Seq::MAX), Seq::from(i));
        }
        assert!(grown.parts.len() <= 13 && arranged <= 13 * n as usize, "{} {arranged}", grown.parts.len());
        assert_eq!(grown.covering(&100u32.to_be_bytes(), 200), 200);
        assert_eq!(grown.covering(&100u32.to_be_bytes(), 100), 0);
    }
}
