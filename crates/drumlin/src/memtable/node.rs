//! Node of the list: one piece of the arena that holds a link to the next node, the header, the key and the value.
//!
//! Invariants:
//! * A node is complete before another thread sees it. After that only its link changes, and the node never moves.
//! * Links point to complete nodes of the same list. They are stored with `Release` and loaded with `Acquire`, so a
//!   thread that sees a node sees all of it.
//! * A [`NodeRef`] exists only for a complete node and never outlives the arena that holds it.

use super::arena::{ALIGN, Arena};
use core::cmp::Ordering;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};
use drumlin_env::sync::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use drumlin_types::{Kind, Seq};

/// Bit of a watched link. A writer that inserts a node there must report it (see `skips`).
const WATCHED: usize = 1;
const _: () = assert!(align_of::<Node>() > WATCHED);

fn is_watched(link: *mut Node) -> bool {
    link.addr() & WATCHED != 0
}

fn watched(link: *mut Node) -> *mut Node {
    link.map_addr(|address| address | WATCHED)
}

fn unwatched(link: *mut Node) -> *mut Node {
    link.map_addr(|address| address & !WATCHED)
}

/// Exclusive upper bound on key lengths: the header stores the length in 24 bits.
const KEY_LEN_LIMIT: usize = 1 << 24;
const _: () = assert!(drumlin_types::MAX_KEY_LEN < KEY_LEN_LIMIT);

/// Fixed part of a node. The key and the value follow it directly.
#[repr(C)]
pub(super) struct Node {
    next: AtomicPtr<Node>,
    seq: Seq,
    /// Key length in the upper 24 bits, kind in the lower 8.
    shape: u32,
    value_len: u32,
}
const _: () = assert!(align_of::<Node>() <= ALIGN);

/// Reference to a complete node of a list that lives for `'a`. All access to a finished node goes through it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeRef<'a>(NonNull<Node>, PhantomData<&'a Arena>);

impl<'a> NodeRef<'a> {
    /// Creates a node with this place, not linked yet.
    pub(super) fn allocate(
        arena: &'a Arena,
        place: &EntryPosition<'_>,
        kind: Kind,
        value: &[u8],
    ) -> NodeRef<'a> {
        let key = place.key;
        assert!(
            key.len() < KEY_LEN_LIMIT && value.len() <= u32::MAX as usize,
            "lengths are checked on entry"
        );
        let node = arena.allocate(size_of::<Node>() + key.len() + value.len()).cast::<Node>();
        let shape = ((key.len() as u32) << 8) | kind as u32;
        let next = AtomicPtr::new(ptr::null_mut());
        // SAFETY: the piece belongs to this thread alone and is as long as the three parts together, written here one
        // after the other; it starts at a multiple of ALIGN, which suffices for a node.
        unsafe {
            node.write(Node { next, seq: place.seq, shape, value_len: value.len() as u32 });
            let bytes = node.add(1).cast::<u8>().as_ptr();
            ptr::copy_nonoverlapping(key.as_ptr(), bytes, key.len());
            ptr::copy_nonoverlapping(value.as_ptr(), bytes.add(key.len()), value.len());
        }
        NodeRef(node, PhantomData)
    }

    /// # Safety
    /// `node` came from `as_ptr` of a node whose arena lives for `'a`.
    pub(super) unsafe fn new(node: NonNull<Node>) -> NodeRef<'a> {
        NodeRef(node, PhantomData)
    }

    pub(super) fn as_ptr(self) -> NonNull<Node> {
        self.0
    }

    fn header(self) -> &'a Node {
        // SAFETY: the node is complete and lives for 'a; only its link changes, which is atomic.
        unsafe { self.0.as_ref() }
    }

    pub(super) fn key(self) -> &'a [u8] {
        let len = (self.header().shape >> 8) as usize;
        // SAFETY: `allocate` put `len` bytes directly after the header, and no thread changes them.
        unsafe { core::slice::from_raw_parts(self.0.add(1).cast().as_ptr(), len) }
    }

    pub(super) fn entry(self) -> MemEntry<'a> {
        let (header, key) = (self.header(), self.key());
        // SAFETY: `allocate` put `value_len` bytes after the key, and no thread changes them.
        let value = unsafe {
            let start = self.0.add(1).cast::<u8>().add(key.len());
            core::slice::from_raw_parts(start.as_ptr(), header.value_len as usize)
        };
        MemEntry { key, seq: header.seq, kind: Kind::ALL[(header.shape & 0xff) as usize], value }
    }

    /// Returns the next node.
    pub(super) fn next(self) -> Option<NodeRef<'a>> {
        let next = NonNull::new(unwatched(self.header().next.load(Acquire)));
        // SAFETY: only complete nodes of the same list are linked.
        next.map(|next| unsafe { NodeRef::new(next) })
    }

    /// Watches the link to the next node from now on, and returns that node.
    pub(super) fn watch(self) -> Option<NodeRef<'a>> {
        let link = &self.header().next;
        let mut next = link.load(Acquire);
        while !is_watched(next) {
            match link.compare_exchange(next, watched(next), AcqRel, Acquire) {
                Ok(_) => break,
                Err(now) => next = now,
            }
        }
        // SAFETY: only complete nodes of the same list are linked.
        NonNull::new(unwatched(next)).map(|next| unsafe { NodeRef::new(next) })
    }

    /// Links `node` after this one and before `after`. Returns whether the link was watched; if so, the links on both
    /// sides of the new node are watched too. Returns `None`, with nothing changed, if `after` is no longer next.
    /// Until `node` is linked, it must belong to the caller alone.
    pub(super) fn link(self, node: NodeRef<'a>, after: Option<NodeRef<'a>>) -> Option<bool> {
        let after = after.map_or(ptr::null_mut(), |after| after.0.as_ptr());
        let link = &self.header().next;
        node.header().next.store(after, Relaxed);
        if drumlin_types::bug!("link-without-exchange") {
            link.store(node.0.as_ptr(), Release);
            return Some(false);
        }
        match link.compare_exchange(after, node.0.as_ptr(), Release, Relaxed) {
            Ok(_) => Some(false),
            Err(now) if now == watched(after) => {
                node.header().next.store(now, Relaxed);
                let linked = link.compare_exchange(now, watched(node.0.as_ptr()), Release, Relaxed);
                linked.is_ok().then_some(true)
            }
            Err(_) => None,
        }
    }

    /// Returns the node's sequence number.
    pub(super) fn seq(self) -> Seq {
        self.header().seq
    }

    /// Returns the node's place in internal order.
    pub(super) fn place(self) -> EntryPosition<'a> {
        EntryPosition { key: self.key(), seq: self.header().seq }
    }

    /// Returns whether this node comes before `place`.
    pub(super) fn is_before(self, place: &EntryPosition<'_>) -> bool {
        self.place().cmp(place) == Ordering::Less
    }
}

/// Place in internal order: key ascending, sequence number descending.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryPosition<'k> {
    pub(super) key: &'k [u8],
    pub(super) seq: Seq,
}

impl EntryPosition<'_> {
    pub(super) fn cmp(&self, other: &EntryPosition<'_>) -> Ordering {
        self.key.cmp(other.key).then(other.seq.cmp(&self.seq))
    }
}

/// Entry of a memtable, borrowed from its node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemEntry<'a> {
    /// User key.
    pub(crate) key: &'a [u8],
    /// Sequence number.
    pub(crate) seq: Seq,
    /// Kind of the entry.
    pub(crate) kind: Kind,
    /// Value, operand or encoded pointer, depending on the kind.
    pub(crate) value: &'a [u8],
}
