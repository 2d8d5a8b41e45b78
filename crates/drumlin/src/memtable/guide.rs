//! Guide: a tree over the nodes of a list that finds a node close before any place.
//!
//! **Why not a skip list.** The cost of a search is its cache misses, one for each node that it reads. In a skip list
//! of a million entries a search reads some fifteen nodes that are in no cache. The guide keeps the deciding part of
//! each comparison, eight key bytes, side by side in blocks. A search scans a few short arrays and reads two or three
//! nodes. The guide is a B-link tree: blocks of one level are linked both ways, and a block that is split gives its
//! upper half to a new right neighbour.
//!
//! **The guide is only a hint.** Readers take no lock and may read a block during a change. A search therefore checks
//! the node that it ends at with a full comparison, and moves left until the check holds: to the previous slot, to
//! the previous block, at last to the head of the list. It moves right wherever the right neighbour starts before the
//! wanted place, and at last along the list. It meets linked nodes only, so a wrong hint costs only time.
//!
//! **Writers do not wait for each other.** Each leaf has a lock. The blocks above, and the set of leaves, share
//! another lock, the *version*, which is odd while it is held. A writer that finds a lock taken gives its node no
//! slot and counts it as missed in the leaf. The next writer rebuilds a leaf that is full or has missed several
//! nodes. If the leaf has missed any, it rebuilds from the list itself. A node that is missed while its leaf is split
//! may fall into the new leaf, and stays without a slot until that leaf misses another. Splitting a leaf takes both
//! locks, the leaf's first.
//!
//! Invariants:
//! * While no writer changes the guide, the blocks of each level cover all places, each block has a slot one level
//!   up, and slots are in order.
//! * A node without a slot was counted as missed, in the leaf that covered it when its writer came.
//! * Blocks live in the arena of the list, as long as it does.

use super::arena::Arena;
use super::block::{BlockLink, SlotBlock, Target, WIDTH};
use super::node::{EntryPosition, NodeRef};
use drumlin_env::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

/// Number of slots filled in each block when targets are spread over new blocks.
const FILL: usize = WIDTH * 3 / 4;
/// Number of missed nodes at which a leaf is rebuilt even if it is not full.
const MISSED_LIMIT: u32 = 8;
/// Maximum attempts of a writer to find the leaf of its node while the tree changes.
const ATTEMPTS: usize = 3;

/// Position of a place in the guide, with the version at which it was found.
pub(super) struct Spot<'a> {
    leaf: &'a SlotBlock,
    /// Number of the leaf's slots that start before the place.
    before: usize,
    version: usize,
}

impl Spot<'_> {
    /// Prefetches the nodes around the place.
    pub(super) fn prefetch(&self) {
        for slot in self.before.saturating_sub(1)..(self.before + 1).min(WIDTH) {
            self.leaf.prefetch_target(slot);
        }
    }
}

/// B-link tree of hints.
pub(super) struct Guide {
    root: BlockLink,
    /// The last leaf or one close to it: shortcut for entries that arrive in order.
    edge: BlockLink,
    /// Odd while a writer holds the lock of the blocks above the leaves; rises by two with each change.
    version: AtomicUsize,
}

impl Guide {
    /// Creates a guide over an empty list that starts at `head`.
    ///
    /// # Safety
    /// `head` is of `arena`, which lives as long as the guide and is the one passed to `add`.
    pub(super) unsafe fn new(arena: &Arena, head: NodeRef<'_>) -> Guide {
        // SAFETY: no neighbours, no targets; the caller guarantees the condition on the head.
        let root = unsafe { SlotBlock::allocate(arena, (0, head), (None, None), &[]) };
        Guide {
            root: BlockLink::new(Some(root)),
            edge: BlockLink::new(Some(root)),
            version: AtomicUsize::new(0),
        }
    }

    fn root(&self) -> &SlotBlock {
        self.root.get().expect("set from the start")
    }

    /// Returns the block of `level` whose range contains `place`, and how many of its slots start before it.
    fn descend(&self, place: &EntryPosition<'_>, level: u32) -> (&SlotBlock, usize) {
        let at_end = self.edge.get().filter(|edge| level == 0 && edge.low().is_before(place));
        let mut block = at_end.unwrap_or(self.root());
        // Digits are meaningful only within the range of their block. A step down from a parent ends in that range;
        // the other steps may not.
        let mut sideways = at_end.is_some();
        loop {
            let count = block.count();
            let before = block.slots_before(place, count);
            if (before == count || sideways)
                && let Some(right) = block.right.get()
                && right.low().is_before(place)
            {
                block = right;
                sideways = true;
            } else if block.level == level {
                return (block, before);
            } else {
                block = block.child(before.saturating_sub(1));
                sideways = false;
                block.prefetch();
            }
        }
    }

    /// Returns the position of `place` in the guide.
    pub(super) fn spot(&self, place: &EntryPosition<'_>) -> Spot<'_> {
        let version = self.version.load(Acquire);
        let (leaf, before) = self.descend(place, 0);
        Spot { leaf, before, version }
    }

    /// Returns a linked node before `place`, usually the last one; `None` if the
    /// caller must start at the head of the list.
    pub(super) fn node_before<'a>(&self, place: &EntryPosition<'_>, spot: &Spot<'a>) -> Option<NodeRef<'a>> {
        let Spot { mut leaf, mut before, .. } = *spot;
        if before < WIDTH {
            // Most likely the node after the place, which the caller reads next.
            leaf.prefetch_target(before);
        }
        loop {
            while before > 0 {
                before -= 1;
                let node = leaf.node(before);
                if node.is_before(place) {
                    return Some(node);
                }
            }
            leaf = leaf.left.get()?;
            before = leaf.count();
        }
    }

    /// Returns a linked node at or near the end of the list.
    pub(super) fn last_node(&self) -> Option<NodeRef<'_>> {
        let mut leaf = self.edge.get()?;
        while let Some(right) = leaf.right.get() {
            leaf = right;
        }
        leaf.count().checked_sub(1).map(|slot| leaf.node(slot))
    }

    /// Gives `node`, which was just linked, a slot if that requires no waiting. `spot` is its position from before it
    /// was linked.
    ///
    /// # Safety
    /// `node` is of `arena`, and `arena` is that of the guide.
    pub(super) unsafe fn add(&self, arena: &Arena, node: NodeRef<'_>, spot: Spot<'_>) {
        let mut spot = spot;
        for _ in 0..ATTEMPTS {
            // The spot may be older than a log write. The node should not count as missed in a leaf that it no longer
            // belongs to.
            if self.version.load(Relaxed) != spot.version {
                spot = self.spot(&node.place());
            }
            let Spot { leaf, version, .. } = spot;
            if !leaf.try_lock() {
                leaf.missed.fetch_add(1, Release);
                return;
            }
            // If the tree was not being changed and has not changed since, this is the right leaf. It stays so,
            // because a change of its range takes its lock.
            fence(Acquire);
            let sure = version.is_multiple_of(2) && self.version.load(Relaxed) == version;
            if sure {
                self.add_to_leaf(arena, leaf, node);
            }
            leaf.unlock();
            if sure {
                return;
            }
        }
        spot.leaf.missed.fetch_add(1, Release);
    }

    /// Adds `node` to `leaf`. The caller holds the lock of `leaf`, whose range contains `node`.
    fn add_to_leaf(&self, arena: &Arena, leaf: &SlotBlock, node: NodeRef<'_>) {
        let count = leaf.count();
        let slot = leaf.slots_before(&node.place(), count);
        // A rebuild from the list may have given the node a slot already: in this leaf, or as the first of a new leaf
        // on the right, whose range begins with it.
        let is_known = match slot < count {
            true => leaf.node(slot) == node,
            false => leaf.right.get().is_some_and(|right| right.low() == node),
        };
        if is_known {
            return;
        }
        let missed = leaf.missed.load(Acquire);
        if count < WIDTH && missed < MISSED_LIMIT {
            // SAFETY: a linked node, of the leaf's arena.
            unsafe { leaf.put(slot, Target::node(node)) };
            return;
        }
        let targets = if missed > 0 {
            leaf.listed()
        } else {
            let mut targets = leaf.targets();
            targets.insert(slot, Target::node(node));
            targets
        };
        if targets.len() <= WIDTH {
            // SAFETY: nodes of the leaf's part of the list.
            unsafe { leaf.fill(&targets) };
        } else if self.lock() {
            self.spread(arena, leaf, &targets, slot == count);
            self.unlock();
        } else {
            leaf.missed.fetch_add(1, Release);
            return;
        }
        // The nodes counted before the list was read have slots now.
        leaf.missed.fetch_sub(missed, Relaxed);
    }

    /// Takes the lock of the blocks above the leaves if it is free. Returns whether it did.
    fn lock(&self) -> bool {
        let version = self.version.load(Relaxed);
        let locked = version.is_multiple_of(2)
            && self.version.compare_exchange(version, version + 1, Acquire, Relaxed).is_ok();
        // A reader that sees one of the following changes also sees, if it looks afterwards, that the version has
        // changed.
        fence(Release);
        locked
    }

    fn unlock(&self) {
        self.version.fetch_add(1, Release);
    }

    /// Spreads `targets`, too many for `block`, over it and new blocks on its right. `growing` means that the new
    /// target is the last. If nothing is on the right either, more are likely to follow, so `block` stays full. The
    /// caller holds the lock.
    fn spread(&self, arena: &Arena, block: &SlotBlock, targets: &[Target], growing: bool) {
        let each = targets.len().div_ceil(targets.len().div_ceil(FILL));
        let own = if growing && block.right.get().is_none() { WIDTH } else { each };
        let mut last = block;
        for part in targets[own..].chunks(each) {
            let (low, right) = (block.low_of(part[0]), last.right.get());
            // SAFETY: all are of one arena; the targets are of `block`'s level, and `chunks` returns fewer than
            // WIDTH.
            let new = unsafe { SlotBlock::allocate(arena, (block.level, low), (Some(last), right), part) };
            let back = match right {
                Some(right) => Some(&right.left),
                None if block.level == 0 => Some(&self.edge),
                None => None,
            };
            // SAFETY: blocks of one arena live equally long, and as long as the guide.
            unsafe {
                if let Some(back) = back {
                    back.set(new);
                }
                last.right.set(new);
            }
            self.add_block(arena, new);
            last = new;
        }
        // SAFETY: some of the targets that `block` had, and new ones of its level.
        unsafe { block.fill(&targets[..own]) };
    }

    /// Gives a new block a slot one level up. Its left neighbour already links to it. The caller holds the lock.
    fn add_block(&self, arena: &Arena, block: &SlotBlock) {
        let level = block.level + 1;
        let root = self.root();
        if root.level < level {
            let targets = [Target::block(root), Target::block(block)];
            // SAFETY: the old root and its new neighbour are complete, of one arena, and one level lower.
            unsafe {
                self.root.set(SlotBlock::allocate(arena, (level, root.low()), (None, None), &targets));
            }
            return;
        }
        let (parent, slot) = self.descend(&block.low().place(), level);
        let count = parent.count();
        if count < WIDTH {
            // SAFETY: complete, of one arena, and one level lower.
            unsafe { parent.put(slot, Target::block(block)) };
        } else {
            let mut targets = parent.targets();
            targets.insert(slot, Target::block(block));
            self.spread(arena, parent, &targets, slot == count);
        }
    }
}

/// Result of a check of the guide.
#[cfg(test)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Census {
    pub(super) levels: u32,
    /// Number of nodes that leaves point to.
    pub(super) slots: usize,
    /// Number of nodes in the list.
    pub(super) nodes: usize,
    pub(super) missed: usize,
}

#[cfg(test)]
impl Guide {
    /// Checks every invariant of the shape, while no writer changes the guide.
    pub(super) fn check(&self) -> Census {
        let root = self.root();
        let mut census = Census { levels: root.level + 1, slots: 0, nodes: 0, missed: 0 };
        assert!(root.left.get().is_none() && root.right.get().is_none());
        let mut row = vec![root];
        while row[0].level > 0 {
            for block in &row {
                block.check();
            }
            let below: Vec<&SlotBlock> =
                row.iter().flat_map(|block| (0..block.count()).map(|slot| block.child(slot))).collect();
            for (i, block) in below.iter().enumerate() {
                assert_eq!(block.level + 1, row[0].level);
                let (left, right) = (i.checked_sub(1).map(|left| below[left]), below.get(i + 1).copied());
                assert_eq!(block.left.get().map(Target::block), left.map(Target::block));
                assert_eq!(block.right.get().map(Target::block), right.map(Target::block));
            }
            row = below;
        }
        for leaf in &row {
            leaf.check();
            census.slots += leaf.count();
            census.nodes += leaf.listed().len();
            census.missed += leaf.missed.load(Acquire) as usize;
        }
        assert_eq!(self.edge.get().map(Target::block), row.last().map(|leaf| Target::block(leaf)));
        census
    }

    /// Returns the first nodes of all leaves but the first.
    pub(super) fn lows(&self) -> Vec<NodeRef<'_>> {
        let mut leaf = self.root();
        while leaf.level > 0 {
            leaf = leaf.child(0);
        }
        core::iter::successors(leaf.right.get(), |leaf| leaf.right.get()).map(SlotBlock::low).collect()
    }

    /// Restores the guide to its state before the first split, as seen by a reader that was stopped there.
    pub(super) fn forget_all_but_the_first_leaf(&self) {
        let mut leaf = self.root();
        while leaf.level > 0 {
            leaf = leaf.child(0);
        }
        // SAFETY: a block of the guide.
        unsafe {
            self.root.set(leaf);
            self.edge.set(leaf);
        }
    }

    /// Takes the lock until the result is dropped, like a writer that is stopped during a change.
    pub(super) fn hold(&self) -> impl Drop {
        struct Held<'a>(&'a Guide);
        impl Drop for Held<'_> {
            fn drop(&mut self) {
                self.0.unlock();
            }
        }
        assert!(self.lock());
        Held(self)
    }
}
