//! A node of the list: one piece of the arena, with a link to the next node, then the header, the key and the
//! value.
//!
//! Invariants:
//! * A node is complete before anybody else sees it, and then never changes but for its link, and never
//!   moves.
//! * Links name complete nodes of the same list, stored with `Release` and loaded with `Acquire`: who sees a
//!   node sees all of it.
//! * A [`NodeRef`] exists only for a complete node and never outlives the arena that holds it.

use super::arena::{ALIGN, Arena};
use core::cmp::Ordering;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};
use drumlin_env::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};
use drumlin_types::{Kind, Seq};

/// Keys must be shorter than this: the length has 24 bits in the header.
const KEY_LEN_LIMIT: usize = 1 << 24;
const _: () = assert!(drumlin_types::MAX_KEY_LEN < KEY_LEN_LIMIT);

/// The fixed part of a node. The key and the value lie right behind it.
#[repr(C)]
pub(super) struct Node {
    next: AtomicPtr<Node>,
    seq: Seq,
    /// Key length in the upper 24 bits, kind in the lower 8.
    shape: u32,
    value_len: u32,
}
const _: () = assert!(align_of::<Node>() <= ALIGN);

/// A complete node of a list that lives for `'a`. The only way to touch a node once it is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeRef<'a>(NonNull<Node>, PhantomData<&'a Arena>);

impl<'a> NodeRef<'a> {
    /// A node with this place, which is linked nowhere.
    pub(super) fn allocate(arena: &'a Arena, place: &Place<'_>, kind: Kind, value: &[u8]) -> NodeRef<'a> {
        let key = place.key;
        assert!(
            key.len() < KEY_LEN_LIMIT && value.len() <= u32::MAX as usize,
            "lengths are checked on entry"
        );
        let node = arena.allocate(size_of::<Node>() + key.len() + value.len()).cast::<Node>();
        let shape = ((key.len() as u32) << 8) | kind as u32;
        let next = AtomicPtr::new(ptr::null_mut());
        // SAFETY: the piece is this thread's alone and as long as the three parts together, written here one
        // after the other; it starts at a multiple of ALIGN, and a node needs no more than that.
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
        // SAFETY: `allocate` put `len` bytes right behind the header, and nobody changes them.
        unsafe { core::slice::from_raw_parts(self.0.add(1).cast().as_ptr(), len) }
    }

    pub(super) fn entry(self) -> MemEntry<'a> {
        let (header, key) = (self.header(), self.key());
        // SAFETY: `allocate` put `value_len` bytes behind the key, and nobody changes them.
        let value = unsafe {
            let start = self.0.add(1).cast::<u8>().add(key.len());
            core::slice::from_raw_parts(start.as_ptr(), header.value_len as usize)
        };
        MemEntry { key, seq: header.seq, kind: Kind::ALL[(header.shape & 0xff) as usize], value }
    }

    /// The next node.
    pub(super) fn next(self) -> Option<NodeRef<'a>> {
        let next = NonNull::new(self.header().next.load(Acquire));
        // SAFETY: only complete nodes of the same list are linked.
        next.map(|next| unsafe { NodeRef::new(next) })
    }

    /// Puts `node` behind this one, in front of `after`; false, and nothing changed, when `after` is no
    /// longer next. Until it is linked, `node` must be the caller's alone.
    pub(super) fn link(self, node: NodeRef<'a>, after: Option<NodeRef<'a>>) -> bool {
        let after = after.map_or(ptr::null_mut(), |after| after.0.as_ptr());
        node.header().next.store(after, Relaxed);
        self.header().next.compare_exchange(after, node.0.as_ptr(), Release, Relaxed).is_ok()
    }

    /// Where the node stands.
    pub(super) fn place(self) -> Place<'a> {
        Place { key: self.key(), seq: self.header().seq }
    }

    /// Whether this node comes before `place`.
    pub(super) fn is_before(self, place: &Place<'_>) -> bool {
        self.place().cmp(place) == Ordering::Less
    }
}

/// A place in internal order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Place<'k> {
    pub(super) key: &'k [u8],
    pub(super) seq: Seq,
}

impl Place<'_> {
    fn cmp(&self, other: &Place<'_>) -> Ordering {
        self.key.cmp(other.key).then(other.seq.cmp(&self.seq))
    }
}

/// An entry of a memtable, where it lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemEntry<'a> {
    /// User key.
    pub(crate) key: &'a [u8],
    /// Sequence number.
    pub(crate) seq: Seq,
    /// What the entry says about the key.
    pub(crate) kind: Kind,
    /// Value, operand or encoded pointer, as the kind says.
    pub(crate) value: &'a [u8],
}
