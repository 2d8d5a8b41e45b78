//! An insert-only skip list: entries in internal order (key ascending, sequence number descending).
//!
//! **Node.** One piece of the arena, never moved, never changed but for its links:
//!
//! ```text
//!   link h-1 | .. | link 1 | link 0 | prefix seq shape value_len | key | value
//!                                   ^ a node pointer points here
//! ```
//!
//! The tower of links grows downward from the header. So the key is at a fixed place, and the
//! two fields that a search touches in nearly every node, the lowest link and the *prefix*, are neighbours. The prefix
//! is the first eight key bytes as a big-endian number, short keys filled up with zeros: if two prefixes differ, the keys
//! differ in the same sense, and only equal ones need a look at the key. Beside each link lies its *hint*, the prefix of the
//! node that the link leads to: most of a search's steps down a level are decided by it, and do not touch that node.
//! In a list that is larger than the processor's caches a node touched is a cache miss.
//!
//! **Height.** A node has another level with probability 1/2. With hints only the nodes that a search moves to are touched,
//! and one in two makes them fewest: half a node a level, where one in four makes one and a half on half as many
//! levels. The draw is a hash of the list's seed, the
//! key's prefix and the sequence number: the same entries make the same list in whatever order the
//! threads come, and nobody who does not know the seed can make a slow one.
//!
//! **Insert.** Find the neighbours on each level of the new node, then link it in from level 0 upward, each
//! level: the hint is lowered, then the link set with one compare-and-swap; where that fails, another node came between, and the search goes on from
//! the old neighbour, which is still in the list because nothing ever leaves it. An entry is in the list from
//! the moment it is linked on level 0; the levels above only shorten the way. Appending has a short cut: the last node of each
//! level is remembered, so keys that come in order need no search.
//!
//! **Read.** From the highest level down, with no lock. A link is stored with `Release` after its node is
//! complete and loaded with `Acquire`, so a reader that sees a node sees all of it.
//!
//! Invariants:
//! * Every node reachable on level l is at least l+1 high and reachable on level l-1 (at the latest once
//!   its insert has returned).
//! * A link's hint is not above the prefix of any node that the link led to at any time. It is seldom below that of its
//!   present node, and then only costs a look at the node.
//! * Each level is strictly ascending in internal order, as long as (key, seq) is unique.
//! * Nodes live as long as the list. A [`NodeRef`] exists only for a complete node and never outlives its list.

use super::arena::{ALIGN, Arena};
use core::cmp::Ordering;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};
use drumlin_env::sync::{
    Arc,
    atomic::{
        AtomicPtr, AtomicU64, AtomicUsize,
        Ordering::{Acquire, Relaxed, Release},
    },
};
use drumlin_types::{Kind, Seq};

/// With one node in two on each next level, good for 2^20 entries, and hardly worse for ten times as many.
const MAX_HEIGHT: usize = 20;

/// Keys must be shorter than this: the length has 24 bits in the header.
const KEY_LEN_LIMIT: usize = 1 << 24;
const _: () = assert!(drumlin_types::MAX_KEY_LEN < KEY_LEN_LIMIT);

/// The fixed part of a node. The links lie before it, the key and the value behind it.
#[repr(C)]
struct Node {
    prefix: u64,
    seq: Seq,
    /// Key length in the upper 24 bits, then 5 bits of height, 3 bits of kind.
    shape: u32,
    value_len: u32,
}
const _: () = assert!(align_of::<Node>() <= ALIGN && size_of::<Node>() == 24);
const _: () = assert!(MAX_HEIGHT < 32 && Kind::ALL.len() <= 8);

/// From one node to the next on a level, with the *hint*: a prefix that is not above that of the next node.
#[repr(C)]
struct Link {
    node: AtomicPtr<Node>,
    hint: AtomicU64,
}
const _: () = assert!(align_of::<Link>() <= ALIGN);

impl Link {
    /// The end of a level.
    fn end() -> Link {
        Link { node: AtomicPtr::new(ptr::null_mut()), hint: AtomicU64::new(u64::MAX) }
    }

    /// Lowers the hint to `prefix`, if it is higher.
    fn lower_hint(&self, prefix: u64) {
        if prefix < self.hint.load(Relaxed) {
            self.hint.fetch_min(prefix, Relaxed);
        }
    }
}

impl Node {
    fn key_len(&self) -> usize {
        (self.shape >> 8) as usize
    }

    fn height(&self) -> usize {
        ((self.shape >> 3) & 31) as usize
    }

    fn kind(&self) -> Kind {
        Kind::ALL[(self.shape & 7) as usize]
    }
}

/// A complete node of a list that lives for `'a`. The only way to touch a node once it is made.
#[derive(Clone, Copy, PartialEq, Eq)]
struct NodeRef<'a>(NonNull<Node>, PhantomData<&'a SkipList>);

impl<'a> NodeRef<'a> {
    /// # Safety
    /// `node` is a complete node, made by `SkipList::allocate`, of a list that lives for `'a`.
    unsafe fn new(node: NonNull<Node>) -> NodeRef<'a> {
        NodeRef(node, PhantomData)
    }

    fn header(self) -> &'a Node {
        // SAFETY: the node is complete and lives for 'a; nobody changes a header.
        unsafe { self.0.as_ref() }
    }

    fn key(self) -> &'a [u8] {
        // SAFETY: `allocate` put `key_len` bytes right behind the header, and nobody changes them.
        unsafe { core::slice::from_raw_parts(self.0.add(1).cast().as_ptr(), self.header().key_len()) }
    }

    fn value(self) -> &'a [u8] {
        let header = self.header();
        // SAFETY: `allocate` put `value_len` bytes behind the key, and nobody changes them.
        unsafe {
            let start = self.0.add(1).cast::<u8>().add(header.key_len());
            core::slice::from_raw_parts(start.as_ptr(), header.value_len as usize)
        }
    }

    /// # Safety
    /// The node is more than `level` high. So is every node that was reached over a link of that level.
    unsafe fn link(self, level: usize) -> &'a Link {
        debug_assert!(level < self.header().height());
        // SAFETY: `allocate` put and initialised as many links before the header as the node is high.
        unsafe { self.0.cast::<Link>().sub(level + 1).as_ref() }
    }

    /// The node after this one on `level`.
    ///
    /// # Safety
    /// As for `link`.
    unsafe fn next(self, level: usize) -> Option<NodeRef<'a>> {
        // SAFETY: the caller keeps the contract of `link`; only complete nodes are ever linked.
        unsafe { NonNull::new(self.link(level).node.load(Acquire)).map(|node| NodeRef::new(node)) }
    }

    /// Whether this node comes before `place`.
    #[inline]
    fn is_before(self, place: &Place<'_>) -> bool {
        let header = self.header();
        if header.prefix != place.prefix {
            return header.prefix < place.prefix;
        }
        match self.key().cmp(place.key) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => header.seq > place.seq,
        }
    }

    fn entry(self) -> MemEntry<'a> {
        let header = self.header();
        MemEntry { key: self.key(), seq: header.seq, kind: header.kind(), value: self.value() }
    }
}

/// A place in internal order.
struct Place<'k> {
    prefix: u64,
    key: &'k [u8],
    seq: Seq,
}

impl<'k> Place<'k> {
    fn new(key: &'k [u8], seq: Seq) -> Place<'k> {
        Place { prefix: prefix(key), key, seq }
    }
}

/// The first eight bytes of `key` as a number that orders as the key does.
fn prefix(key: &[u8]) -> u64 {
    match key.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(bytes)
        }
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

/// The neighbours of a place on one level: adjacent, or they were when they were read.
#[derive(Clone, Copy)]
struct Gap<'a> {
    before: NodeRef<'a>,
    after: Option<NodeRef<'a>>,
    /// A prefix that is not above that of `after`. Above that of the place, it says that `after` is not at the place.
    hint: u64,
}

/// The neighbours of a place on each level.
type Neighbours<'a> = [Gap<'a>; MAX_HEIGHT];

/// The list. Insert and read from as many threads as you like.
pub(super) struct SkipList {
    /// The start of every level: a node of full height, before all others, without a key.
    head: NonNull<Node>,
    /// Height of the highest node. Only a hint where to start: links above it are null, or just being set.
    height: AtomicUsize,
    /// The last node of each level, or one close to it; null before the first.
    last: [AtomicPtr<Node>; MAX_HEIGHT],
    seed: u64,
    arena: Arena,
}

// SAFETY: the head is memory of the arena, which moves with the list; nodes are owned by nobody else.
unsafe impl Send for SkipList {}
// SAFETY: all that changes behind a shared reference, links and hints, is atomic; the arena is made for sharing.
unsafe impl Sync for SkipList {}

impl SkipList {
    /// An empty list. `seed` decides the heights.
    pub(super) fn new(seed: u64) -> SkipList {
        let arena = Arena::new();
        let head = allocate(&arena, &Place::new(&[], Seq::MAX), Kind::Delete, &[], MAX_HEIGHT);
        let last = [const { AtomicPtr::new(ptr::null_mut()) }; MAX_HEIGHT];
        SkipList { head, height: AtomicUsize::new(1), last, seed, arena }
    }

    /// Bytes of the arena that entries take.
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
        let place = Place::new(key, seq);
        let height = draw_height(self.seed, &place);
        let node = allocate(&self.arena, &place, kind, value, height);
        // SAFETY: complete, and of this list's arena.
        let node = unsafe { NodeRef::new(node) };
        if height > self.height.load(Relaxed) {
            self.height.fetch_max(height, Relaxed);
        }
        let mut around =
            self.neighbours_at_end(&place, height).unwrap_or_else(|| self.neighbours(&place, height));
        debug_assert!(
            around[0].after.is_none_or(|next| next.header().seq != seq || next.key() != key),
            "sequence number {seq} is used twice for one key"
        );
        for (level, gap) in around.iter_mut().enumerate().take(height) {
            // SAFETY: the new node is `height` high.
            let own = unsafe { node.link(level) };
            loop {
                own.hint.store(gap.hint, Relaxed);
                own.node.store(to_ptr(gap.after), Relaxed);
                // SAFETY: the node before was found on this very level.
                let link = unsafe { gap.before.link(level) };
                link.lower_hint(place.prefix);
                if link.node.compare_exchange(to_ptr(gap.after), node.0.as_ptr(), Release, Relaxed).is_ok() {
                    break;
                }
                // SAFETY: the node before is on this level.
                *gap = unsafe { walk(gap.before, level, &place, None) };
            }
            if gap.after.is_none() {
                self.last[level].store(node.0.as_ptr(), Release);
            }
        }
    }

    /// The neighbours of `place` on the levels below `height`, found from the top.
    fn neighbours(&self, place: &Place<'_>, height: usize) -> Neighbours<'_> {
        let mut gap = self.whole();
        let mut around = [gap; MAX_HEIGHT];
        for level in (0..self.height.load(Relaxed).max(height)).rev() {
            // SAFETY: the head is on every level, and a node of a level is on those below.
            gap = unsafe { walk(gap.before, level, place, Some(gap)) };
            around[level] = gap;
        }
        around
    }

    /// The same, if `place` comes after all nodes, as far as one look at the remembered ends can tell.
    fn neighbours_at_end(&self, place: &Place<'_>, height: usize) -> Option<Neighbours<'_>> {
        let mut around = [self.whole(); MAX_HEIGHT];
        for (level, gap) in around.iter_mut().enumerate().take(height) {
            let last = NonNull::new(self.last[level].load(Acquire))?;
            // SAFETY: only complete nodes of this list are remembered.
            let last = unsafe { NodeRef::new(last) };
            if !last.is_before(place) {
                return None;
            }
            // SAFETY: a node is remembered for a level that it is on.
            *gap = unsafe { walk(last, level, place, None) };
        }
        Some(around)
    }

    fn head(&self) -> NodeRef<'_> {
        // SAFETY: made complete in `new`, in this list's arena.
        unsafe { NodeRef::new(self.head) }
    }

    /// The gap that holds every place.
    fn whole(&self) -> Gap<'_> {
        Gap { before: self.head(), after: None, hint: u64::MAX }
    }

    /// The last node before `place`, perhaps the head, and the first that is not.
    fn search(&self, place: &Place<'_>) -> Gap<'_> {
        let mut gap = self.whole();
        for level in (0..self.height.load(Relaxed)).rev() {
            // SAFETY: the head is on every level, and a node of a level is on those below.
            gap = unsafe { walk(gap.before, level, place, Some(gap)) };
        }
        gap
    }

    /// The newest node of `key` that is not newer than `seq`. A node that the hint rules out is not touched.
    fn find(&self, key: &[u8], seq: Seq) -> Option<NodeRef<'_>> {
        let place = Place::new(key, seq);
        let gap = self.search(&place);
        gap.after.filter(|node| gap.hint <= place.prefix && node.key() == key)
    }

    fn first_node(&self) -> Option<NodeRef<'_>> {
        // SAFETY: the head is on every level.
        unsafe { self.head().next(0) }
    }

    fn last_node(&self) -> Option<NodeRef<'_>> {
        let mut node = self.head();
        for level in (0..self.height.load(Relaxed)).rev() {
            // SAFETY: the head is on every level, and a node of a level is on those below.
            while let Some(next) = unsafe { node.next(level) } {
                node = next;
            }
        }
        (node != self.head()).then_some(node)
    }

    #[cfg(test)]
    /// The newest version of `key` that is not newer than `seq`.
    pub(super) fn get(&self, key: &[u8], seq: Seq) -> Option<MemEntry<'_>> {
        self.find(key, seq).map(NodeRef::entry)
    }

    /// The versions of `key` that are not newer than `seq`, newest first.
    pub(super) fn versions<'a>(
        &'a self,
        key: &[u8],
        seq: Seq,
    ) -> impl Iterator<Item = MemEntry<'a>> + use<'a> {
        let mut upcoming = self.find(key, seq);
        core::iter::from_fn(move || {
            let node = upcoming?;
            // SAFETY: every node is on level 0.
            upcoming = unsafe { node.next(0) }.filter(|next| next.key() == node.key());
            Some(node.entry())
        })
    }
}

/// From `from`, which is on `level` and before `place`, to the last such node; and the node after it.
/// `above` is the gap on the level above, if it is known: its end is not before `place`.
///
/// A node whose prefix the hint already shows to be above the place's is not touched. The link is loaded before the
/// hint: whoever linked a node lowered the hint first, so the hint covers the node that was seen.
///
/// # Safety
/// `from` is more than `level` high.
#[inline(always)]
unsafe fn walk<'a>(from: NodeRef<'a>, level: usize, place: &Place<'_>, above: Option<Gap<'a>>) -> Gap<'a> {
    let mut before = from;
    loop {
        // SAFETY: `before` is `from`, or was reached over a link of this level.
        let link = unsafe { before.link(level) };
        let Some(node) = NonNull::new(link.node.load(Acquire)) else {
            return Gap { before, after: None, hint: u64::MAX };
        };
        // SAFETY: only complete nodes are ever linked.
        let node = unsafe { NodeRef::new(node) };
        if let Some(above) = above
            && above.after == Some(node)
        {
            return Gap { before, ..above };
        }
        let hint = link.hint.load(Relaxed);
        if hint > place.prefix {
            return Gap { before, after: Some(node), hint };
        }
        if !node.is_before(place) {
            return Gap { before, after: Some(node), hint: node.header().prefix };
        }
        before = node;
    }
}

fn to_ptr(node: Option<NodeRef<'_>>) -> *mut Node {
    node.map_or(ptr::null_mut(), |node| node.0.as_ptr())
}

/// 1 with probability 1/2, 2 with 1/4, and so on.
fn draw_height(seed: u64, place: &Place<'_>) -> usize {
    // The finaliser of SplitMix64, whose output bits all depend on all input bits.
    let mut hash = seed ^ place.prefix.rotate_left(32) ^ place.seq.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^= hash >> 31;
    MAX_HEIGHT.min(1 + hash.trailing_zeros() as usize)
}

/// A complete node with null links, linked nowhere.
fn allocate(arena: &Arena, place: &Place<'_>, kind: Kind, value: &[u8], height: usize) -> NonNull<Node> {
    let key = place.key;
    assert!(key.len() < KEY_LEN_LIMIT && value.len() <= u32::MAX as usize, "lengths are checked on entry");
    let tower = height * size_of::<Link>();
    let piece = arena.allocate(tower + size_of::<Node>() + key.len() + value.len());
    let shape = ((key.len() as u32) << 8) | ((height as u32) << 3) | kind as u32;
    let header = Node { prefix: place.prefix, seq: place.seq, shape, value_len: value.len() as u32 };
    // SAFETY: the piece is this thread's alone and as long as the four parts together, written here one
    // after the other; it starts at a multiple of ALIGN, and links and header need no more than that.
    unsafe {
        for slot in 0..height {
            piece.cast::<Link>().add(slot).write(Link::end());
        }
        let node = piece.add(tower).cast::<Node>();
        node.write(header);
        let bytes = node.add(1).cast::<u8>().as_ptr();
        ptr::copy_nonoverlapping(key.as_ptr(), bytes, key.len());
        ptr::copy_nonoverlapping(value.as_ptr(), bytes.add(key.len()), value.len());
        node
    }
}

/// A place in a list, which it keeps alive.
pub(super) struct ListCursor {
    list: Arc<SkipList>,
    /// A node of `list`.
    node: Option<NonNull<Node>>,
}

// SAFETY: the node is memory of the list, which is `Send` and `Sync` and comes along.
unsafe impl Send for ListCursor {}

impl ListCursor {
    /// A cursor on no entry.
    pub(super) fn new(list: Arc<SkipList>) -> ListCursor {
        ListCursor { list, node: None }
    }

    fn node(&self) -> Option<NodeRef<'_>> {
        // SAFETY: `node` is a complete node of `list`, which lives as long as the cursor.
        self.node.map(|node| unsafe { NodeRef::new(node) })
    }

    /// The entry under the cursor.
    pub(super) fn entry(&self) -> Option<MemEntry<'_>> {
        self.node().map(NodeRef::entry)
    }

    pub(super) fn seek_first(&mut self) {
        self.node = self.list.first_node().map(|node| node.0);
    }

    pub(super) fn seek_last(&mut self) {
        self.node = self.list.last_node().map(|node| node.0);
    }

    /// To the first entry at or after (`key`, `seq`).
    pub(super) fn seek(&mut self, key: &[u8], seq: Seq) {
        self.node = self.list.search(&Place::new(key, seq)).after.map(|node| node.0);
    }

    /// To the last entry before (`key`, `seq`).
    pub(super) fn seek_before(&mut self, key: &[u8], seq: Seq) {
        let before = self.list.search(&Place::new(key, seq)).before;
        self.node = (before != self.list.head()).then_some(before.0);
    }

    pub(super) fn next(&mut self) {
        // SAFETY: every node is on level 0.
        self.node = self.node().and_then(|node| unsafe { node.next(0) }).map(|node| node.0);
    }

    /// Links go one way only, so this searches from the head for the node before.
    pub(super) fn prev(&mut self) {
        self.node = self.node().and_then(|node| {
            let header = node.header();
            let place = Place { prefix: header.prefix, key: node.key(), seq: header.seq };
            let before = self.list.search(&place).before;
            (before != self.list.head()).then_some(before.0)
        });
    }
}
