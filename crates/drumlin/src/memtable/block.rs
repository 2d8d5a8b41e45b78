//! Block of the guide: a short sorted array of slots that point to nodes or to other blocks.
//!
//! The *low* of a block is the node at which its range of places starts. The range ends at the low of its right
//! neighbour. In a *leaf* (level 0) slots point to nodes of the list; above, they point to blocks of the level below.
//! Each slot also stores the *digits* of its target's low: eight key bytes as a big-endian number. They are taken
//! after the bytes that all keys of the block's range share, with zeros after the end of the key. If the range lies
//! within the versions of one key, the digits are the inverted sequence number. Different digits therefore order as
//! the places do; equal digits require a comparison of the nodes.
//!
//! Slots are atomics that one writer at a time changes in place while readers scan them. The writer shifts slots one
//! by one from the end, so a reader misses none. However, a reader may see the digits of one target beside another
//! target, or digits computed for another number of shared bytes. Readers check what they find.
//!
//! Invariants:
//! * A target below the count is a linked node in a leaf, and a complete block of the level below elsewhere.
//! * `level` and `low` never change. The end of the range only moves left, when the block is split.
//! * Blocks and their targets are memory of one arena and live as long as it does.

use super::arena::{ALIGN, Arena};
use super::node::{EntryPosition, Node, NodeRef};
use crate::base::prefetch::{LINE, prefetch};
use core::ptr::{self, NonNull};
use drumlin_env::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Number of slots in a block: few enough to scan, enough for a flat tree.
pub(super) const WIDTH: usize = 32;

/// Value of `shared` if the range lies within the versions of one key.
const ONE_KEY: u32 = u32::MAX;

/// Target of a slot: a node in a leaf, else a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Target(NonNull<Node>);

impl Target {
    pub(super) fn node(node: NodeRef<'_>) -> Target {
        Target(node.as_ptr())
    }

    /// The pointer type is wrong for blocks; `SlotBlock::low_of` and `SlotBlock::child` cast it back.
    pub(super) fn block(block: &SlotBlock) -> Target {
        Target(NonNull::from(block).cast())
    }
}

/// Link to a block; may be empty.
pub(super) struct BlockLink(AtomicPtr<SlotBlock>);

impl BlockLink {
    pub(super) fn new(block: Option<&SlotBlock>) -> BlockLink {
        BlockLink(AtomicPtr::new(block.map_or(ptr::null_mut(), |block| ptr::from_ref(block).cast_mut())))
    }

    pub(super) fn get(&self) -> Option<&SlotBlock> {
        // SAFETY: the caller of `set` guarantees that the block lives as long as this link. The first block does too,
        // since all blocks of a guide are in one arena.
        unsafe { self.0.load(Acquire).as_ref() }
    }

    /// # Safety
    /// `block` lives as long as this link.
    pub(super) unsafe fn set(&self, block: &SlotBlock) {
        self.0.store(ptr::from_ref(block).cast_mut(), Release);
    }
}

/// Sorted array of slots.
#[repr(C)]
pub(super) struct SlotBlock {
    /// 0 for a leaf.
    pub(super) level: u32,
    count: AtomicU32,
    /// Number of leading bytes that all keys of the range share, or `ONE_KEY`. The digits depend on it.
    shared: AtomicU32,
    /// Leaf only: number of nodes of its range that have no slot, or had none when they were counted.
    pub(super) missed: AtomicU32,
    /// Node at which the range starts; the head of the list for the first block of each level.
    low: NonNull<Node>,
    pub(super) left: BlockLink,
    pub(super) right: BlockLink,
    /// Leaf only: lock for changes of the slots. Above the leaves, the guide's lock protects them.
    locked: AtomicBool,
    digits: [AtomicU64; WIDTH],
    targets: [AtomicPtr<Node>; WIDTH],
}
const _: () = assert!(align_of::<SlotBlock>() <= ALIGN);

impl SlotBlock {
    /// Creates a block between `left` and `right`. No block links to it yet.
    ///
    /// # Safety
    /// `low` and the neighbours are of `arena`; `targets` are at most `WIDTH` and meet the conditions of `fill`.
    pub(super) unsafe fn allocate<'a>(
        arena: &'a Arena,
        (level, low): (u32, NodeRef<'_>),
        (left, right): (Option<&SlotBlock>, Option<&SlotBlock>),
        targets: &[Target],
    ) -> &'a SlotBlock {
        let block = arena.allocate(size_of::<SlotBlock>()).cast::<SlotBlock>();
        let empty = SlotBlock {
            level,
            count: AtomicU32::new(0),
            shared: AtomicU32::new(0),
            missed: AtomicU32::new(0),
            low: low.as_ptr(),
            left: BlockLink::new(left),
            right: BlockLink::new(right),
            locked: AtomicBool::new(false),
            digits: [const { AtomicU64::new(0) }; WIDTH],
            targets: [const { AtomicPtr::new(ptr::null_mut()) }; WIDTH],
        };
        // SAFETY: the piece belongs to this thread alone, is long enough, and is aligned to ALIGN, which suffices for
        // a block; from now on it is only shared. The caller guarantees the conditions on the targets.
        unsafe {
            block.write(empty);
            let block = block.as_ref();
            block.fill(targets);
            block
        }
    }

    /// Returns the number of slots in use.
    pub(super) fn count(&self) -> usize {
        self.count.load(Acquire) as usize
    }

    pub(super) fn low(&self) -> NodeRef<'_> {
        // SAFETY: the low of a block is of the same arena.
        unsafe { NodeRef::new(self.low) }
    }

    fn target(&self, slot: usize) -> Target {
        Target(NonNull::new(self.targets[slot].load(Acquire)).expect("slots below the count are set"))
    }

    /// Returns the targets of all slots in use.
    pub(super) fn targets(&self) -> Vec<Target> {
        (0..self.count()).map(|slot| self.target(slot)).collect()
    }

    /// Returns the node that `slot` of a leaf points to. `slot` must be below the count.
    pub(super) fn node(&self, slot: usize) -> NodeRef<'_> {
        assert_eq!(self.level, 0, "leaves name nodes");
        self.low_of(self.target(slot))
    }

    /// Returns the block that `slot` of a block above the leaves points to. `slot` must be below the count.
    pub(super) fn child(&self, slot: usize) -> &SlotBlock {
        assert_ne!(self.level, 0, "leaves have no children");
        // SAFETY: above the leaves targets are complete blocks, of the same arena.
        unsafe { self.target(slot).0.cast::<SlotBlock>().as_ref() }
    }

    /// Returns the node at which a target of this block starts.
    pub(super) fn low_of(&self, target: Target) -> NodeRef<'_> {
        // SAFETY: targets are complete nodes in a leaf, complete blocks above, all of the same arena.
        unsafe {
            match self.level {
                0 => NodeRef::new(target.0),
                _ => NodeRef::new(target.0.cast::<SlotBlock>().as_ref().low),
            }
        }
    }

    /// Returns how many of the first `count` slots start before `place`, which must lie in the block's range.
    pub(super) fn slots_before(&self, place: &EntryPosition<'_>, count: usize) -> usize {
        let wanted = digits(place, self.shared.load(Relaxed));
        let smaller = |slot: &AtomicU64| usize::from(slot.load(Relaxed) < wanted);
        let before: usize = self.digits[..count].iter().map(smaller).sum();
        let tied = self.digits[before..count].iter().take_while(|slot| slot.load(Relaxed) == wanted).count();
        let (mut least, mut most) = (before, before + tied);
        while least < most {
            let middle = usize::midpoint(least, most);
            let starts_before = self.low_of(self.target(middle)).is_before(place);
            (least, most) = if starts_before { (middle + 1, most) } else { (least, middle) };
        }
        least
    }

    /// Inserts `target` at `slot`. A slot must be free, and the caller must hold the lock of this level.
    ///
    /// # Safety
    /// The conditions of `fill` apply.
    pub(super) unsafe fn put(&self, slot: usize, target: Target) {
        let count = self.count();
        for to in (slot + 1..=count).rev() {
            self.digits[to].store(self.digits[to - 1].load(Relaxed), Relaxed);
            self.targets[to].store(self.targets[to - 1].load(Relaxed), Release);
        }
        let place = self.low_of(target).place();
        self.targets[slot].store(target.0.as_ptr(), Release);
        self.digits[slot].store(digits(&place, self.shared.load(Relaxed)), Relaxed);
        self.count.store(count as u32 + 1, Release);
    }

    /// Replaces all slots by `targets`, which are in order. The caller must hold the lock of this level.
    ///
    /// # Safety
    /// In a leaf the targets are linked nodes, above it complete blocks of the level below; all are of this block's
    /// arena.
    pub(super) unsafe fn fill(&self, targets: &[Target]) {
        let shared = shared(self.low(), self.right.get().map(SlotBlock::low));
        self.shared.store(shared, Relaxed);
        for (slot, &target) in targets.iter().enumerate() {
            self.targets[slot].store(target.0.as_ptr(), Release);
            self.digits[slot].store(digits(&self.low_of(target).place(), shared), Relaxed);
        }
        self.count.store(targets.len() as u32, Release);
    }

    /// Returns the nodes of a leaf's range, read from the list.
    pub(super) fn listed(&self) -> Vec<Target> {
        let high = self.right.get().map(SlotBlock::low);
        // The head of the list is not an entry: the first leaf starts after it.
        let first = match self.left.get() {
            Some(_) => Some(self.low()),
            None => self.low().next(),
        };
        let nodes = core::iter::successors(first, |node| node.next());
        nodes.take_while(|node| Some(*node) != high).map(Target::node).collect()
    }

    /// Takes the lock of a leaf if it is free. Returns whether it did.
    pub(super) fn try_lock(&self) -> bool {
        !self.locked.swap(true, Acquire)
    }

    pub(super) fn unlock(&self) {
        self.locked.store(false, Release);
    }

    /// Prefetches the memory of the block, which is about to be scanned.
    pub(super) fn prefetch(&self) {
        for line in (0..size_of::<SlotBlock>()).step_by(LINE) {
            prefetch(ptr::from_ref(self).wrapping_byte_add(line));
        }
    }

    /// Prefetches the target of `slot`.
    pub(super) fn prefetch_target(&self, slot: usize) {
        prefetch(self.targets[slot].load(Relaxed));
    }
}

/// Returns the digits of a place in a block whose keys share `shared` bytes.
fn digits(place: &EntryPosition<'_>, shared: u32) -> u64 {
    if shared == ONE_KEY {
        return !place.seq;
    }
    let rest = place.key.get(shared as usize..).unwrap_or(&[]);
    match rest.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(bytes)
        }
    }
}

/// Returns the number of leading bytes that all keys between two nodes share.
fn shared(low: NodeRef<'_>, high: Option<NodeRef<'_>>) -> u32 {
    let Some(high) = high else { return 0 };
    if low.key() == high.key() {
        return ONE_KEY;
    }
    low.key().iter().zip(high.key()).take_while(|(a, b)| a == b).count() as u32
}

#[cfg(test)]
impl SlotBlock {
    /// Checks the slots, while no writer changes them.
    pub(super) fn check(&self) {
        let shared = self.shared.load(Relaxed);
        let lows: Vec<NodeRef<'_>> = self.targets().into_iter().map(|target| self.low_of(target)).collect();
        for (low, found) in lows.iter().zip(&self.digits) {
            assert_eq!(found.load(Relaxed), digits(&low.place(), shared));
            assert!(!low.is_before(&self.low().place()), "below the range");
            assert!(
                self.right.get().is_none_or(|right| low.is_before(&right.low().place())),
                "above the range"
            );
        }
        assert!(lows.is_sorted_by(|a, b| a.is_before(&b.place())));
        let first = lows.first().copied();
        assert!(self.level == 0 && self.left.get().is_none() || first == Some(self.low()), "low has no slot");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_types::{Kind, Seq};

    /// Digits never contradict the order of places, for any two nodes as bounds of the range.
    #[test]
    fn digits_order_as_places_do() {
        let arena = Arena::new();
        let keys: [&[u8]; 12] = [
            b"",
            b"\0",
            b"\0\0\0\0\0\0\0\0\0",
            b"a",
            b"a\0",
            b"aa",
            b"aaaaaaaa",
            b"aaaaaaaab",
            b"aaaaaaaab\0",
            b"aaaaaaaac",
            b"b",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ];
        let seqs = [Seq::MAX, 7, 3, 0];
        let nodes: Vec<NodeRef<'_>> = keys
            .iter()
            .flat_map(|key| seqs.map(|seq| EntryPosition { key, seq }))
            .map(|place| NodeRef::allocate(&arena, &place, Kind::Put, b""))
            .collect();
        for low in (0..nodes.len()).step_by(if cfg!(miri) { 9 } else { 1 }) {
            for high in low + 1..=nodes.len() {
                let shared = shared(nodes[low], nodes.get(high).copied());
                let digits = nodes[low..high].iter().map(|node| digits(&node.place(), shared));
                assert!(digits.is_sorted());
            }
        }
        assert_eq!(shared(nodes[0], Some(nodes[1])), ONE_KEY);
        assert_eq!(shared(nodes[28], Some(nodes[39])), 8);
    }
}
