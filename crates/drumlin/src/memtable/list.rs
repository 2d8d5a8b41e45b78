//! Insert-only list of entries in internal order: key ascending, sequence number descending.
//!
//! **Node.** One piece of the arena: a link to the next node, the header, then the key and the value. It never moves,
//! and only its link changes.
//!
//! **The list is authoritative.** An entry is in the memtable once its node is linked, with one compare-and-swap on
//! the link of the previous node. If the swap fails, another node was inserted in between. The search then continues
//! from the old neighbour, which is still in the list because nodes are never removed.
//!
//! **The guide is a hint.** To find the neighbour without a walk from the head, a search first asks the `guide`, a
//! tree over the nodes, for a node before the wanted place, and walks from there. The guide may lag behind or be in
//! the middle of a change; that only makes the walk longer. This allows readers to use it without locks while writers
//! reorder it in place.
//!
//! **Skips** let readers pass parts of the list whose entries are hidden from them, without walking these again.
//!
//! Readers take no lock. A link is stored with `Release` after its node is complete and loaded with `Acquire`, so a
//! reader that sees a node sees all of it.
//!
//! Invariants:
//! * The list is strictly ascending in internal order, as long as (key, seq) is unique.
//! * The guide only points to linked nodes.
//! * Nodes live as long as the list. A [`NodeRef`] exists only for a complete node and never outlives its list.

use super::arena::Arena;
use super::guide::{Guide, Spot};
use super::node::{EntryPosition, MemEntry, Node, NodeRef};
use super::skips::{Skips, WORTH};
use crate::base::prefetch::prefetch;
use core::ptr::NonNull;
use drumlin_env::sync::Arc;
use drumlin_types::{Kind, Seq, bug};

/// Number of steps after which a walk asks the guide again, since the first hint may come from the middle of a
/// change.
const PATIENCE: usize = 64;

/// Ordered list of nodes. Any number of threads may insert and read.
pub(super) struct List {
    /// Start of the list: a node before all others, without a key.
    head: NonNull<Node>,
    guide: Guide,
    skips: Skips,
    arena: Arena,
}

// SAFETY: the head is memory of the arena, which moves with the list; nothing else owns nodes.
unsafe impl Send for List {}
// SAFETY: everything that changes behind a shared reference is atomic; the arena is made for sharing.
unsafe impl Sync for List {}

impl List {
    /// Creates an empty list.
    pub(super) fn new() -> List {
        let arena = Arena::new();
        let head =
            NodeRef::allocate(&arena, &EntryPosition { key: &[], seq: Seq::MAX }, Kind::Delete, &[]).as_ptr();
        // SAFETY: the head was just made in this arena, which the list keeps beside the guide.
        let guide = unsafe { Guide::new(&arena, NodeRef::new(head)) };
        List { head, guide, skips: Skips::new(), arena }
    }

    /// Returns the bytes of the arena that entries and guide take.
    pub(super) fn bytes(&self) -> usize {
        self.arena.bytes()
    }

    #[cfg(test)]
    /// Returns the bytes that the arena holds.
    pub(super) fn held_bytes(&self) -> usize {
        self.arena.held_bytes()
    }

    /// Adds an entry. (`key`, `seq`) must not be in the list yet.
    #[cfg(test)]
    pub(super) fn insert(&self, key: &[u8], seq: Seq, kind: Kind, value: &[u8]) {
        self.approach(key, seq).insert(kind, value);
    }

    /// Finds the place of an entry that is going to be added, and prefetches the nodes around it.
    pub(super) fn approach<'a>(&'a self, key: &'a [u8], seq: Seq) -> Approach<'a> {
        let place = EntryPosition { key, seq };
        let spot = self.guide.spot(&place);
        spot.prefetch();
        Approach { list: self, place, spot }
    }

    fn insert_at(&self, place: EntryPosition<'_>, spot: Spot<'_>, kind: Kind, value: &[u8]) {
        let node = NodeRef::allocate(&self.arena, &place, kind, value);
        let (before, after) = self.search_from(&place, &spot);
        debug_assert!(
            after.is_none_or(|next| next.place() != place),
            "sequence number {} is used twice",
            place.seq
        );
        let is_watched = link(node, before, after);
        self.show_to_guide(node, spot);
        if is_watched && !bug!("insert-into-skipped-span") {
            self.skips.report(&place);
        }
    }

    /// Watches the links from `first` on, up to `stop` or to the first entry that is not older than `below`, and
    /// records that part.
    fn record(&self, first: NodeRef<'_>, stop: Option<NodeRef<'_>>, below: Seq) {
        let reports = self.skips.reports();
        let skips = self.skips.load();
        let mut at = skips.partition_point(|skip| !first.is_before(&skip.to()));
        let (mut last, mut max_seq) = (first, 0);
        let mut node = Some(first);
        while let Some(here) = node {
            if here.seq() >= below || stop.is_some_and(|stop| !here.is_before(&stop.place())) {
                break;
            }
            (last, max_seq) = (here, max_seq.max(here.seq()));
            if let Some(skip) = skips.get(at).filter(|skip| !here.is_before(&skip.from())) {
                at += 1;
                if skip.max_seq() < below {
                    max_seq = max_seq.max(skip.max_seq());
                    last = self.search(&skip.to()).0;
                }
            }
            // The link behind the last entry stays unwatched: it is outside the part, and entries that are added at the
            // end of the list would each have to be reported.
            let is_inside = |next: NodeRef<'_>| {
                next.seq() < below && stop.is_none_or(|stop| next.is_before(&stop.place()))
            };
            if !last.next().is_some_and(is_inside) {
                break;
            }
            node = last.watch();
        }
        if max_seq > 0 {
            self.skips.record(&first.place(), &last.place(), max_seq, reports);
        }
    }

    fn show_to_guide<'a>(&'a self, node: NodeRef<'a>, spot: Spot<'a>) {
        // SAFETY: nodes only come from this list's arena, which is also the guide's.
        unsafe { self.guide.add(&self.arena, node, spot) };
    }

    fn head(&self) -> NodeRef<'_> {
        // SAFETY: the head was made in `new`, in this list's arena.
        unsafe { NodeRef::new(self.head) }
    }

    /// Returns the last node before `place`, or else the head, and the first node that is not before it.
    fn search(&self, place: &EntryPosition<'_>) -> (NodeRef<'_>, Option<NodeRef<'_>>) {
        self.search_from(place, &self.guide.spot(place))
    }

    fn search_from<'a>(
        &'a self,
        place: &EntryPosition<'_>,
        spot: &Spot<'a>,
    ) -> (NodeRef<'a>, Option<NodeRef<'a>>) {
        let start = self.guide.node_before(place, spot).unwrap_or(self.head());
        let (before, after, arrived) = walk(start, place, PATIENCE);
        if arrived {
            return (before, after);
        }
        let start = self.guide.node_before(place, &self.guide.spot(place));
        let start = start.filter(|node| before.is_before(&node.place()));
        let (before, after, _) = walk(start.unwrap_or(before), place, usize::MAX);
        (before, after)
    }

    #[cfg(test)]
    /// Returns the newest version of `key` that is not newer than `seq`.
    pub(super) fn get(&self, key: &[u8], seq: Seq) -> Option<MemEntry<'_>> {
        let (_, found) = self.search(&EntryPosition { key, seq });
        found.filter(|node| node.key() == key).map(NodeRef::entry)
    }

    /// Returns the versions of `key` that are not newer than `seq`, newest first.
    pub(super) fn versions<'a>(
        &'a self,
        key: &[u8],
        seq: Seq,
    ) -> impl Iterator<Item = MemEntry<'a>> + use<'a> {
        let (_, found) = self.search(&EntryPosition { key, seq });
        let mut upcoming = found.filter(|node| node.key() == key);
        core::iter::from_fn(move || {
            let node = upcoming?;
            upcoming = node.next().filter(|next| next.key() == node.key());
            Some(node.entry())
        })
    }
}

/// Place of an entry that is going to be added. Entries may be added around it meanwhile: the place is a hint, like all
/// places in the guide.
pub(super) struct Approach<'a> {
    list: &'a List,
    place: EntryPosition<'a>,
    spot: Spot<'a>,
}

impl Approach<'_> {
    /// Adds the entry. Its (key, seq) must not be in the list yet.
    pub(super) fn insert(self, kind: Kind, value: &[u8]) {
        self.list.insert_at(self.place, self.spot, kind, value);
    }
}

/// Links `node` after `before`, or further on if other nodes have been inserted there. Returns whether the link was
/// watched.
fn link<'a>(node: NodeRef<'a>, before: NodeRef<'a>, after: Option<NodeRef<'a>>) -> bool {
    let (mut before, mut after) = (before, after);
    loop {
        if let Some(is_watched) = before.link(node, after) {
            return is_watched;
        }
        (before, after, _) = walk(before, &node.place(), usize::MAX);
    }
}

/// Walks at most `steps` nodes from `from`, which is before `place` or the head. Returns the last node before
/// `place`, the node after it, and whether the walk got there.
fn walk<'a>(
    from: NodeRef<'a>,
    place: &EntryPosition<'_>,
    steps: usize,
) -> (NodeRef<'a>, Option<NodeRef<'a>>, bool) {
    let mut before = from;
    for _ in 0..steps {
        let after = before.next();
        match after {
            Some(node) if node.is_before(place) => before = node,
            _ => return (before, after, true),
        }
    }
    (before, before.next(), false)
}

/// Cursor over a list, which it keeps alive.
pub(super) struct ListCursor {
    list: Arc<List>,
    /// Node of `list`.
    node: Option<NonNull<Node>>,
}

// SAFETY: the node is memory of the list, which is `Send` and `Sync` and moves with the cursor.
unsafe impl Send for ListCursor {}

impl ListCursor {
    /// Creates a cursor on no entry.
    pub(super) fn new(list: Arc<List>) -> ListCursor {
        ListCursor { list, node: None }
    }

    fn node(&self) -> Option<NodeRef<'_>> {
        // SAFETY: `node` is a node of `list`, which lives as long as the cursor.
        self.node.map(|node| unsafe { NodeRef::new(node) })
    }

    /// Returns the entry under the cursor.
    pub(super) fn entry(&self) -> Option<MemEntry<'_>> {
        self.node().map(NodeRef::entry)
    }

    /// Moves to no entry.
    pub(super) fn leave(&mut self) {
        self.node = None;
    }

    pub(super) fn seek_first(&mut self) {
        self.node = self.list.head().next().map(NodeRef::as_ptr);
    }

    pub(super) fn seek_last(&mut self) {
        let mut node = self.list.guide.last_node().unwrap_or(self.list.head());
        while let Some(next) = node.next() {
            node = next;
        }
        self.node = (node != self.list.head()).then_some(node.as_ptr());
    }

    /// Moves to the first entry at or after (`key`, `seq`).
    pub(super) fn seek(&mut self, key: &[u8], seq: Seq) {
        self.node = self.list.search(&EntryPosition { key, seq }).1.map(NodeRef::as_ptr);
    }

    /// Moves to the last entry before (`key`, `seq`).
    pub(super) fn seek_before(&mut self, key: &[u8], seq: Seq) {
        self.node = self.node_before(&EntryPosition { key, seq });
    }

    /// Moves to the next entry and prefetches the one after it. Neighbours in order lie far apart in memory, so a
    /// walk without prefetching would wait for each of them.
    pub(super) fn next(&mut self) {
        let node = self.node().and_then(NodeRef::next);
        if let Some(upcoming) = node.and_then(NodeRef::next) {
            let start = upcoming.as_ptr().as_ptr();
            prefetch(start);
            prefetch(start.wrapping_byte_add(64));
        }
        self.node = node.map(NodeRef::as_ptr);
    }

    /// Moves to the previous entry. Links go forward only, so this searches for it.
    pub(super) fn prev(&mut self) {
        self.node = self.node().and_then(|node| self.node_before(&node.place()));
    }

    /// Moves from an entry older than `below` to the next one that is not older or whose key is not before `end`.
    /// Returns the number of entries that it walked.
    pub(super) fn skip(&mut self, end: Option<&[u8]>, below: Seq) -> usize {
        let Some(first) = self.node() else { return 0 };
        let list = &*self.list;
        let skips = list.skips.load();
        let mut at = skips.partition_point(|skip| !first.is_before(&skip.to()));
        let (mut node, mut walked) = (Some(first), 0);
        while let Some(here) = node.filter(|n| n.seq() < below && end.is_none_or(|end| n.key() < end)) {
            let skip = skips.get(at).filter(|skip| !here.is_before(&skip.from()));
            if let Some(skip) = skip {
                at += 1;
                if skip.max_seq() < below {
                    let to = match end {
                        Some(key) if key <= skip.to().key => EntryPosition { key, seq: Seq::MAX },
                        _ => skip.to(),
                    };
                    node = list.search(&to).1;
                    continue;
                }
            }
            walked += 1;
            node = here.next();
        }
        if walked >= WORTH {
            list.record(first, node, below);
        }
        self.node = node.map(NodeRef::as_ptr);
        walked
    }

    /// Moves backward like `skip`, to the previous entry that is not older than `below` or whose key is before
    /// `start`.
    pub(super) fn skip_back(&mut self, start: &[u8], below: Seq) -> usize {
        let Some(first) = self.node() else { return 0 };
        let list = &*self.list;
        let skips = list.skips.load();
        let before =
            |place: &EntryPosition<'_>| Some(list.search(place).0).filter(|node| *node != list.head());
        let (mut node, mut walked) = (Some(first), 0);
        while let Some(here) = node.filter(|n| n.seq() < below && n.key() >= start) {
            let at = skips.partition_point(|skip| !here.is_before(&skip.to()));
            let skip = skips.get(at).filter(|skip| !here.is_before(&skip.from()) && skip.max_seq() < below);
            node = match skip {
                Some(skip) if skip.from().key < start => before(&EntryPosition { key: start, seq: Seq::MAX }),
                Some(skip) => before(&skip.from()),
                None => {
                    walked += 1;
                    before(&here.place())
                }
            };
        }
        if walked >= WORTH
            && let Some(passed) = node.unwrap_or(list.head()).next()
        {
            list.record(passed, first.next(), below);
        }
        self.node = node.map(NodeRef::as_ptr);
        walked
    }

    fn node_before(&self, place: &EntryPosition<'_>) -> Option<NonNull<Node>> {
        let (before, _) = self.list.search(place);
        (before != self.list.head()).then_some(before.as_ptr())
    }
}

#[cfg(test)]
mod tests;
