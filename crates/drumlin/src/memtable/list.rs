//! An insert-only list of entries in internal order: key ascending, sequence number descending.
//!
//! **Node.** One piece of the arena: a link to the next node, the header, then the key and the value. It is
//! never moved, and never changed but for its link.
//!
//! **The list is the truth.** An entry is in the memtable from the moment its node is linked, with one
//! compare-and-swap on the link of the node before it. Where that fails, another node came between, and the
//! search goes on from the old neighbour, which is still in the list because nothing ever leaves it.
//!
//! **The guide is a hint.** To find the neighbour without a walk from the head, a search first asks the
//! `guide`, a tree over the nodes, for some node before the wanted place, and walks on from there. The guide
//! may lag behind or be in the middle of a change; then the walk is longer, and nothing else. That is what
//! lets readers use it without locks while writers reorder it in place.
//!
//! Readers take no lock. A link is stored with `Release` after its node is complete and loaded with
//! `Acquire`, so a reader that sees a node sees all of it.
//!
//! Invariants:
//! * The list is strictly ascending in internal order, as long as (key, seq) is unique.
//! * The guide only ever names nodes that are linked.
//! * Nodes live as long as the list. A [`NodeRef`] exists only for a complete node and never outlives its
//!   list.

use super::arena::Arena;
use super::block::prefetch;
use super::guide::{Guide, Spot};
use super::node::{MemEntry, Node, NodeRef, Place};
use core::ptr::NonNull;
use drumlin_env::sync::Arc;
use drumlin_types::{Kind, Seq};

/// A walk longer than this asks the guide again: it may have been caught in the middle of a change.
const PATIENCE: usize = 64;

/// The list. Insert and read from as many threads as you like.
pub(super) struct List {
    /// The start: a node before all others, without a key.
    head: NonNull<Node>,
    guide: Guide,
    arena: Arena,
}

// SAFETY: the head is memory of the arena, which moves with the list; nodes are owned by nobody else.
unsafe impl Send for List {}
// SAFETY: all that changes behind a shared reference is atomic; the arena is made for sharing.
unsafe impl Sync for List {}

impl List {
    /// An empty list.
    pub(super) fn new() -> List {
        let arena = Arena::new();
        let head = NodeRef::allocate(&arena, &Place { key: &[], seq: Seq::MAX }, Kind::Delete, &[]).as_ptr();
        // SAFETY: the head was just made in this arena, which the list keeps beside the guide.
        let guide = unsafe { Guide::new(&arena, NodeRef::new(head)) };
        List { head, guide, arena }
    }

    /// Bytes of the arena that entries and guide take.
    pub(super) fn bytes(&self) -> usize {
        self.arena.bytes()
    }

    #[cfg(test)]
    /// Bytes that the arena holds.
    pub(super) fn held_bytes(&self) -> usize {
        self.arena.held_bytes()
    }

    /// Adds an entry. (`key`, `seq`) must not be in the list yet.
    pub(super) fn insert(&self, key: &[u8], seq: Seq, kind: Kind, value: &[u8]) {
        let place = Place { key, seq };
        let node = NodeRef::allocate(&self.arena, &place, kind, value);
        let spot = self.guide.spot(&place);
        let (before, after) = self.search_from(&place, &spot);
        debug_assert!(after.is_none_or(|next| next.place() != place), "sequence number {seq} is used twice");
        link(node, before, after);
        self.show_to_guide(node, spot);
    }

    fn show_to_guide<'a>(&'a self, node: NodeRef<'a>, spot: Spot<'a>) {
        // SAFETY: nodes only come from this list's arena, which is the guide's too.
        unsafe { self.guide.add(&self.arena, node, spot) };
    }

    fn head(&self) -> NodeRef<'_> {
        // SAFETY: it was made in `new`, in this list's arena.
        unsafe { NodeRef::new(self.head) }
    }

    /// The last node before `place`, perhaps the head, and the first that is not.
    fn search(&self, place: &Place<'_>) -> (NodeRef<'_>, Option<NodeRef<'_>>) {
        self.search_from(place, &self.guide.spot(place))
    }

    fn search_from<'a>(&'a self, place: &Place<'_>, spot: &Spot<'a>) -> (NodeRef<'a>, Option<NodeRef<'a>>) {
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
    /// The newest version of `key` that is not newer than `seq`.
    pub(super) fn get(&self, key: &[u8], seq: Seq) -> Option<MemEntry<'_>> {
        let (_, found) = self.search(&Place { key, seq });
        found.filter(|node| node.key() == key).map(NodeRef::entry)
    }

    /// The versions of `key` that are not newer than `seq`, newest first.
    pub(super) fn versions<'a>(
        &'a self,
        key: &[u8],
        seq: Seq,
    ) -> impl Iterator<Item = MemEntry<'a>> + use<'a> {
        let (_, found) = self.search(&Place { key, seq });
        let mut upcoming = found.filter(|node| node.key() == key);
        core::iter::from_fn(move || {
            let node = upcoming?;
            upcoming = node.next().filter(|next| next.key() == node.key());
            Some(node.entry())
        })
    }
}

/// Links `node` in behind `before`, or further on if other nodes have come between.
fn link<'a>(node: NodeRef<'a>, before: NodeRef<'a>, after: Option<NodeRef<'a>>) {
    let (mut before, mut after) = (before, after);
    while !before.link(node, after) {
        (before, after, _) = walk(before, &node.place(), usize::MAX);
    }
}

/// From `from`, which is before `place` or the head, to the last such node and the node after it; but only so
/// many `steps`. Says whether it got there.
fn walk<'a>(from: NodeRef<'a>, place: &Place<'_>, steps: usize) -> (NodeRef<'a>, Option<NodeRef<'a>>, bool) {
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

/// A place in a list, which it keeps alive.
pub(super) struct ListCursor {
    list: Arc<List>,
    /// A node of `list`.
    node: Option<NonNull<Node>>,
}

// SAFETY: the node is memory of the list, which is `Send` and `Sync` and comes along.
unsafe impl Send for ListCursor {}

impl ListCursor {
    /// A cursor on no entry.
    pub(super) fn new(list: Arc<List>) -> ListCursor {
        ListCursor { list, node: None }
    }

    fn node(&self) -> Option<NodeRef<'_>> {
        // SAFETY: `node` is a node of `list`, which lives as long as the cursor.
        self.node.map(|node| unsafe { NodeRef::new(node) })
    }

    /// The entry under the cursor.
    pub(super) fn entry(&self) -> Option<MemEntry<'_>> {
        self.node().map(NodeRef::entry)
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

    /// To the first entry at or after (`key`, `seq`).
    pub(super) fn seek(&mut self, key: &[u8], seq: Seq) {
        self.node = self.list.search(&Place { key, seq }).1.map(NodeRef::as_ptr);
    }

    /// To the last entry before (`key`, `seq`).
    pub(super) fn seek_before(&mut self, key: &[u8], seq: Seq) {
        self.node = self.node_before(&Place { key, seq });
    }

    /// To the following entry. The one after that is fetched from memory meanwhile: neighbours in order lie far
    /// apart, and whoever walks on would wait for each of them.
    pub(super) fn next(&mut self) {
        let node = self.node().and_then(NodeRef::next);
        if let Some(upcoming) = node.and_then(NodeRef::next) {
            let start = upcoming.as_ptr().as_ptr();
            prefetch(start);
            prefetch(start.wrapping_byte_add(64));
        }
        self.node = node.map(NodeRef::as_ptr);
    }

    /// Links go one way only, so this searches for the node before.
    pub(super) fn prev(&mut self) {
        self.node = self.node().and_then(|node| self.node_before(&node.place()));
    }

    fn node_before(&self, place: &Place<'_>) -> Option<NonNull<Node>> {
        let (before, _) = self.list.search(place);
        (before != self.list.head()).then_some(before.as_ptr())
    }
}

#[cfg(test)]
mod tests;
