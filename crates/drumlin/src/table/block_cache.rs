//! Cache of verified, decompressed blocks.
//!
//! The key of a block is its table and offset. Tables are immutable and table numbers are never reused, so an entry
//! can be useless but never wrong. The cache consists of shards, each with its own lock.
//!
//! Values of value files are blocks too, with the number of their value file in place of a table's: both are drawn from
//! one sequence of file numbers. What is said of tables below holds for value files.
//!
//! Each shard evicts by S3-FIFO ("FIFO queues are all you need for cache eviction", SOSP 2023):
//! - A new block enters a small queue, as a probationary block.
//! - When it leaves the small queue, it moves to the main queue if it was requested again meanwhile. Otherwise it is
//!   evicted, and the shard keeps only its key for a while, as a ghost.
//! - A block that is inserted while it has a ghost enters the main queue at once.
//! - The main queue gives each block one more round per request, at most three.
//! - Index and filter blocks enter the main queue directly. They get three rounds at the start and at each request,
//!   because a lookup without them costs more than one read.
//!
//! A scan therefore passes through the small queue and leaves other blocks in place.
//!
//! A compaction replaces cached blocks of its inputs by blocks of its outputs (`carry`). It takes the rounds of the
//! input blocks, and inserts the output blocks into the main queue without a round. Both are evicted at the front of
//! their queue unless they are requested again. Input blocks in the main queue were queued earlier, so they are evicted
//! first. The pointer of an output block is set when a reader first asks for it.
//!
//! Readers that have a cached pointer to a block (see `pointers`) find the block there and only set its "used" mark.
//! The mark counts when the block reaches the front of its queue. The pointer of a probationary block is set only when
//! it is requested again. Setting and clearing pointers costs more than the queues do, and most blocks of scans are
//! used once.
//!
//! No pointer leads to a value, so a hit costs a lookup in the map. A value is found only by the sequence number of its
//! version, which no other version in the store has. So an intact pointer that is wrong does not find another value.
//! Values of more than [`MOST_CACHED_VALUE`] bytes are not cached.
//!
//! When a table is deleted, the cache drops its blocks at once. It finds them in a per-table list. With small tables
//! that live for a second, walking the queues would cost more than the compactions. The keys of dropped blocks stay
//! in the queues until they reach the front, or until about half of the queued keys are stale.
//!
//! An evicted block stays in memory until no pinned reader can use it (`base/epoch.rs`). While such blocks hold more
//! than one part in [`RETIRED_SHARE`] of the capacity, the cache takes no new blocks. Otherwise a pinned reader that is
//! not scheduled would keep in memory everything that others evict.
//!
//! Blocks and open tables share the cache's memory. Open tables hold index roots, range tombstones and the state of
//! their filters. What they hold beyond 1/32 of the memory lowers the capacity for blocks, in steps of 1/64, down to a
//! quarter of the memory. The capacity changes in steps, because each change locks every shard.
//!
//! Invariants: every entry is in exactly one queue, once, and in the list of its table. The entries never exceed
//! the capacity. Each shard has an equal share of the capacity and does not keep a block larger than its share.

use super::block::{Block, BlockRef, Cached, CachedPointer, PointerOwner, ValueBlock};
use super::scan_length::ScanLength;
use crate::base::epoch::{Epochs, Pin};
use crate::base::slice::Slice;
use crate::base::thread_counters::ThreadCounters;
use drumlin_env::sync::atomic::{AtomicUsize, Ordering};
use drumlin_env::sync::{Arc, Mutex, MutexGuard};
use drumlin_format::filter::mix;
use drumlin_types::{Seq, TableId, ValueFileId};
use std::collections::hash_map::Entry as MapEntry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// Overhead of an entry in bytes, besides its block: map, queue, and the block's own header.
const ENTRY_OVERHEAD: usize = 300;
/// Maximum rounds of a block in the main queue.
const MOST_ROUNDS: u8 = 3;
/// The small queue gets one part in this many of the capacity.
const PROBATION_SHARE: usize = 10;
/// Minimum capacity of a shard when the cache is created, so that it can keep large blocks such as filters. Trees and
/// open tables may take up to fifteen sixteenths of it later.
const LEAST_SHARD_BYTES: usize = 4 << 20;
const MOST_SHARDS: usize = 64;
/// Evicted blocks that readers may still use hold at most one part in this many of the capacity, but at least
/// `RETIRED_LEAST` bytes.
const RETIRED_SHARE: usize = 16;
const RETIRED_LEAST: usize = 256 << 10;
/// Open tables hold one part in this many of the cache's memory without a charge: they use the store's part for
/// compactions.
const TABLES_FREE_SHARE: usize = 32;
/// The capacity follows what open tables hold in steps of one part in this many of the cache's memory.
const TABLES_STEPS: usize = 64;
/// Blocks keep at least one part in this many of the cache's memory.
const BLOCKS_LEAST_SHARE: usize = 4;
/// Length of the largest values that are cached.
pub(crate) const MOST_CACHED_VALUE: usize = 64 << 10;
/// Bytes of a record besides its value, at most. An uncompressed value shares the buffer of its record.
const RECORD_OVERHEAD: usize = 64;
/// Number of stale keys that a shard's queues may hold beyond the number of its blocks.
const STALE: usize = 1024;

/// Key of a block: table and offset.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct BlockKey {
    table: TableId,
    offset: u64,
}

impl BlockKey {
    fn new(table: TableId, offset: u64) -> BlockKey {
        BlockKey {
            table: if drumlin_types::bug!("cache-key-without-table") { TableId(0) } else { table },
            offset,
        }
    }

    fn hash(self) -> u64 {
        mix(self.offset ^ self.table.0.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

/// Hasher for block keys. They are not user data, so an unseeded mixer is sufficient.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = mix(self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ value);
    }
}

type KeyBuilder = BuildHasherDefault<KeyHasher>;

#[derive(Debug)]
struct CachedBlock {
    cached: Arc<Cached>,
    charge: usize,
    /// Remaining rounds in the main queue. In the small queue: number of requests.
    rounds: u8,
    /// Whether the entry is in the main queue.
    is_main: bool,
    /// Whether it was requested again, since it was inserted or since a compaction last took its rounds. A block that
    /// was inserted while it had a ghost counts as requested again.
    is_warm: bool,
    /// The pointer that leads to the block.
    owner: Option<PointerOwner>,
    /// Index in the list of the table.
    index: u32,
}

impl CachedBlock {
    fn used(&mut self) {
        let gain = if self.cached.block.is_important() { MOST_ROUNDS } else { 1 };
        self.rounds = (self.rounds + gain).min(MOST_ROUNDS);
        self.is_warm = true;
    }

    /// Returns the rounds, after counting the use that readers marked.
    fn rounds(&mut self) -> u8 {
        if self.cached.take_used() {
            self.used();
        }
        self.rounds
    }

    /// Sets the entry's rounds to zero. Returns whether it was warm, and marks it as not warm until a reader asks for
    /// it again.
    fn hand_over(&mut self) -> bool {
        self.rounds();
        self.rounds = 0;
        std::mem::take(&mut self.is_warm)
    }

    /// Makes `pointer` lead to the block, in place of an earlier pointer.
    fn settle(&mut self, pointer: CachedPointer<'_>, epochs: &Arc<Epochs>) {
        if self.owner.as_ref().is_some_and(|owner| owner.is(&pointer)) {
            return;
        }
        let hint = self.cached.block.first_read();
        self.owner = Some(pointer.set(Arc::clone(&self.cached), hint, self.charge, epochs));
    }
}

/// Counters since the cache was created, and its current contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CacheStats {
    /// Lookups that found their block.
    pub(crate) hits: u64,
    /// Lookups that did not find their block.
    pub(crate) misses: u64,
    /// Lookups of values in value files that found them, and those that did not.
    pub(crate) value_hits: u64,
    pub(crate) value_misses: u64,
    /// Evicted blocks.
    pub(crate) evictions: u64,
    /// Blocks of outputs that compactions inserted in place of blocks of their inputs.
    pub(crate) carried: u64,
    /// Number of blocks held.
    pub(crate) blocks: u64,
    /// Bytes charged for the blocks held.
    pub(crate) bytes: u64,
}

/// Adds the offset of `key` to the list of its table. Returns its index there.
fn list(of_table: &mut HashMap<TableId, Vec<u64>, KeyBuilder>, key: BlockKey) -> u32 {
    let offsets = of_table.entry(key.table).or_default();
    offsets.push(key.offset);
    (offsets.len() - 1) as u32
}

#[derive(Debug, Default)]
struct Shard {
    capacity: usize,
    entries: HashMap<BlockKey, CachedBlock, KeyBuilder>,
    /// Offsets of the entries of each table, unordered.
    of_table: HashMap<TableId, Vec<u64>, KeyBuilder>,
    small: VecDeque<BlockKey>,
    main: VecDeque<BlockKey>,
    small_bytes: usize,
    main_bytes: usize,
    /// Upper bound on the number of queued keys whose tables are deleted.
    stale: usize,
    /// Ghosts: keys evicted from the small queue, oldest first. `ghost_set` holds the same keys.
    ghosts: VecDeque<BlockKey>,
    ghost_set: HashSet<BlockKey, KeyBuilder>,
    hits: u64,
    misses: u64,
    evictions: u64,
    carried: u64,
}

impl Shard {
    fn get(&mut self, key: BlockKey, pointer: CachedPointer<'_>, epochs: &Arc<Epochs>) -> Option<Block> {
        match self.entries.get_mut(&key) {
            Some(entry) => {
                entry.used();
                entry.settle(pointer, epochs);
                self.hits += 1;
                Some(entry.cached.block.clone())
            }
            None => {
                self.misses += 1;
                None
            }
        }
    }

    fn value(&mut self, key: BlockKey, seq: Seq, marks: bool) -> Option<Slice> {
        let entry = self.entries.get_mut(&key)?;
        let Block::Value(block) = &entry.cached.block else { return None };
        if block.seq != seq {
            return None;
        }
        let value = block.value.clone();
        if marks {
            entry.used();
        }
        Some(value)
    }

    /// Inserts a block. `pointer` leads to it once it is in the main queue.
    fn insert(&mut self, key: BlockKey, block: Block, pointer: Option<(CachedPointer<'_>, &Arc<Epochs>)>) {
        let charge = block.held_bytes() + ENTRY_OVERHEAD;
        if charge > self.capacity {
            return;
        }
        let important = block.is_important();
        let MapEntry::Vacant(vacant) = self.entries.entry(key) else {
            // Two readers missed at the same time. Both blocks are equal.
            return;
        };
        let rounds = if important { MOST_ROUNDS } else { 0 };
        let has_ghost = self.ghost_set.contains(&key);
        let is_main = important || has_ghost;
        let cached = Cached::new(block);
        let index = list(&mut self.of_table, key);
        let is_warm = has_ghost;
        let entry =
            vacant.insert(CachedBlock { cached, charge, rounds, is_main, is_warm, owner: None, index });
        if is_main {
            if let Some((pointer, epochs)) = pointer {
                entry.settle(pointer, epochs);
            }
            self.main.push_back(key);
            self.main_bytes += charge;
        } else {
            self.small.push_back(key);
            self.small_bytes += charge;
        }
        self.shrink();
    }

    fn carry(&mut self, key: BlockKey, block: Block) -> bool {
        let charge = block.held_bytes() + ENTRY_OVERHEAD;
        if charge > self.capacity {
            return false;
        }
        let MapEntry::Vacant(vacant) = self.entries.entry(key) else { return false };
        vacant.insert(CachedBlock {
            cached: Cached::new(block),
            charge,
            rounds: 0,
            is_main: true,
            is_warm: false,
            owner: None,
            index: list(&mut self.of_table, key),
        });
        self.main.push_back(key);
        self.main_bytes += charge;
        self.carried += 1;
        self.shrink();
        true
    }

    fn shrink(&mut self) {
        while self.small_bytes + self.main_bytes > self.capacity {
            if self.small_bytes > self.capacity / PROBATION_SHARE || self.main.is_empty() {
                self.leave_probation();
            } else {
                self.turn_main();
            }
        }
        while self.ghosts.len() > self.entries.len().max(16) {
            if let Some(key) = self.ghosts.pop_front() {
                self.ghost_set.remove(&key);
            }
        }
    }

    /// Moves the oldest probationary block to the main queue, or evicts it.
    fn leave_probation(&mut self) {
        let Some(key) = self.small.pop_front() else { return };
        let Some(entry) = self.entries.get_mut(&key).filter(|entry| !entry.is_main) else {
            self.stale = self.stale.saturating_sub(1);
            return;
        };
        self.small_bytes -= entry.charge;
        if entry.rounds() > 0 {
            (entry.rounds, entry.is_main) = (0, true);
            self.main_bytes += entry.charge;
            self.main.push_back(key);
            return;
        }
        self.evict(key);
        if self.ghost_set.insert(key) {
            self.ghosts.push_back(key);
        }
    }

    /// Gives the oldest block of the main queue another round, or evicts it.
    fn turn_main(&mut self) {
        let Some(key) = self.main.pop_front() else { return };
        let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.is_main) else {
            self.stale = self.stale.saturating_sub(1);
            return;
        };
        if entry.rounds() > 0 {
            entry.rounds -= 1;
            self.main.push_back(key);
            return;
        }
        self.main_bytes -= entry.charge;
        self.evict(key);
    }

    /// Evicts a block that has left its queue.
    fn evict(&mut self, key: BlockKey) {
        let Some(entry) = self.entries.remove(&key) else { return };
        self.evictions += 1;
        let Some(offsets) = self.of_table.get_mut(&key.table) else { return };
        offsets.swap_remove(entry.index as usize);
        let moved = offsets.get(entry.index as usize).map(|offset| BlockKey { offset: *offset, ..key });
        if offsets.is_empty() {
            self.of_table.remove(&key.table);
        }
        if let Some(moved) = moved.and_then(|moved| self.entries.get_mut(&moved)) {
            moved.index = entry.index;
        }
    }

    /// Drops the blocks of `table`. Ghosts of its earlier evicted blocks age out as usual.
    fn forget_table(&mut self, table: TableId) {
        for offset in self.of_table.remove(&table).into_iter().flatten() {
            let Some(entry) = self.entries.remove(&BlockKey { table, offset }) else { continue };
            let bytes = if entry.is_main { &mut self.main_bytes } else { &mut self.small_bytes };
            *bytes -= entry.charge;
            self.stale += 1;
        }
        if self.stale > self.entries.len() + STALE {
            let entries = &self.entries;
            self.small.retain(|key| entries.contains_key(key));
            self.main.retain(|key| entries.contains_key(key));
            self.stale = 0;
        }
    }
}

/// Block cache, shared by all tables of a store.
#[derive(Debug)]
pub(crate) struct BlockCache {
    shards: Box<[Mutex<Shard>]>,
    /// Bytes for blocks and open tables together. Changed under the lock `resizing`.
    memory: AtomicUsize,
    /// Bytes for blocks. Changed under the lock `resizing`.
    capacity: AtomicUsize,
    /// Bytes that open tables hold, with those that only readers still have open.
    tables: AtomicUsize,
    resizing: Mutex<()>,
    /// Epochs that readers of the cached pointers pin.
    epochs: Arc<Epochs>,
    /// Hits by pointer.
    pointer_hits: ThreadCounters<1>,
    /// Scan length for tables that have no estimate of their own.
    scans: ScanLength,
    /// Lookups of values: hits and misses.
    value_lookups: ThreadCounters<2>,
}

impl BlockCache {
    /// Creates a cache of `capacity` bytes with epochs of its own.
    pub(crate) fn new(capacity: usize) -> BlockCache {
        BlockCache::with_epochs(capacity, Epochs::new())
    }

    /// Creates a cache of `capacity` bytes whose readers pin `epochs`. The initial capacity fixes the number of shards.
    pub(crate) fn with_epochs(capacity: usize, epochs: Arc<Epochs>) -> BlockCache {
        let shards: usize = 1 << (capacity / LEAST_SHARD_BYTES).clamp(1, MOST_SHARDS).ilog2();
        let cache = BlockCache {
            shards: (0..shards).map(|_| Mutex::new(Shard::default())).collect(),
            memory: AtomicUsize::new(0),
            capacity: AtomicUsize::new(0),
            tables: AtomicUsize::new(0),
            resizing: Mutex::new(()),
            epochs,
            pointer_hits: Default::default(),
            scans: ScanLength::default(),
            value_lookups: Default::default(),
        };
        cache.set_memory(capacity);
        cache
    }

    /// Returns the epochs that readers of the cache pin.
    #[inline]
    pub(crate) fn epochs(&self) -> &Arc<Epochs> {
        &self.epochs
    }

    fn shard(&self, key: BlockKey) -> &Mutex<Shard> {
        // Uses the high bits, because the maps inside the shards use the low bits.
        &self.shards[(key.hash() >> 48) as usize % self.shards.len()]
    }

    /// Returns the block of `table` at `offset`, if it is cached. `pointer` is the cached pointer to this block.
    #[inline]
    pub(super) fn get<'p>(
        &self,
        table: TableId,
        offset: u64,
        pointer: CachedPointer<'p>,
        pin: &'p Pin<'_>,
    ) -> Option<BlockRef<'p>> {
        if let Some(block) = pointer.borrow(true, pin) {
            self.pointer_hits.add(0, 1);
            return Some(BlockRef::Borrowed(block));
        }
        let key = BlockKey::new(table, offset);
        self.shard(key).lock().get(key, pointer, &self.epochs).map(BlockRef::Owned)
    }

    /// Returns the block like `get`, without marking it as used. For readers that should not keep blocks in the cache.
    pub(super) fn peek<'p>(
        &self,
        table: TableId,
        offset: u64,
        pointer: CachedPointer<'p>,
        pin: &'p Pin<'_>,
    ) -> Option<BlockRef<'p>> {
        if let Some(block) = pointer.borrow(false, pin) {
            return Some(BlockRef::Borrowed(block));
        }
        let key = BlockKey::new(table, offset);
        let shard = self.shard(key).lock();
        shard.entries.get(&key).map(|entry| BlockRef::Owned(entry.cached.block.clone()))
    }

    /// Sets the rounds of the cached block of `table` at `offset` to zero, since a compaction has read it. The block is
    /// evicted at the front of its queue unless a reader asks for it again. Returns whether it was warm.
    pub(super) fn hand_over(&self, table: TableId, offset: u64) -> bool {
        let key = BlockKey::new(table, offset);
        self.shard(key).lock().entries.get_mut(&key).is_some_and(CachedBlock::hand_over)
    }

    /// Inserts a block of a table that nobody reads yet, in place of blocks that the table replaces. It enters the main
    /// queue without a round, so it is evicted at the front of the queue unless a reader asks for it. Returns whether
    /// it was inserted.
    pub(super) fn carry(&self, table: TableId, offset: u64, block: Block) -> bool {
        let key = BlockKey::new(table, offset);
        self.takes_blocks() && self.shard(key).lock().carry(key, block)
    }

    pub(super) fn scans(&self) -> &ScanLength {
        &self.scans
    }

    /// Inserts a block. The pointer of a block that enters the main queue is set.
    pub(super) fn insert(&self, table: TableId, offset: u64, pointer: CachedPointer<'_>, block: Block) {
        if !self.takes_blocks() {
            return;
        }
        let key = BlockKey::new(table, offset);
        self.shard(key).lock().insert(key, block, Some((pointer, &self.epochs)));
    }

    /// Returns the value of the version `seq` at `offset` of a value file, if it is cached. With `marks` the value
    /// counts as used.
    pub(crate) fn value(&self, file: ValueFileId, offset: u64, seq: Seq, marks: bool) -> Option<Slice> {
        let key = BlockKey::new(TableId(file.0), offset);
        self.shard(key).lock().value(key, seq, marks)
    }

    /// Counts a lookup of a value, which found it or did not.
    pub(crate) fn count_value(&self, is_hit: bool) {
        self.value_lookups.add(usize::from(!is_hit), 1);
    }

    /// Inserts the value of the version `seq` at `offset` of a value file.
    pub(crate) fn insert_value(&self, file: ValueFileId, offset: u64, seq: Seq, value: Slice) {
        if value.held_bytes() > MOST_CACHED_VALUE + RECORD_OVERHEAD || !self.takes_blocks() {
            return;
        }
        let key = BlockKey::new(TableId(file.0), offset);
        self.shard(key).lock().insert(key, Block::Value(ValueBlock { seq, value }), None);
    }

    /// Clears the rounds of the cached value at `offset` of a value file, since its copy replaces it. Returns whether
    /// it was warm: readers had asked for it more than once.
    pub(crate) fn hand_over_value(&self, file: ValueFileId, offset: u64) -> bool {
        self.hand_over(TableId(file.0), offset)
    }

    /// Inserts the copy of a warm value, which nobody reads yet, like a block of a compaction's output.
    pub(crate) fn carry_value(&self, file: ValueFileId, offset: u64, seq: Seq, value: Slice) {
        if value.held_bytes() <= MOST_CACHED_VALUE + RECORD_OVERHEAD {
            self.carry(TableId(file.0), offset, Block::Value(ValueBlock { seq, value }));
        }
    }

    /// Drops the values of a value file that is about to be deleted.
    pub(crate) fn forget_values(&self, file: ValueFileId) {
        self.forget_table(TableId(file.0));
    }

    /// Returns whether the cache takes new blocks, after freeing evicted ones if those hold too much memory.
    fn takes_blocks(&self) -> bool {
        if self.retires_too_much() {
            self.epochs.try_collect();
        }
        !self.retires_too_much()
    }

    /// Returns whether evicted blocks that readers may still use hold too much memory.
    fn retires_too_much(&self) -> bool {
        self.epochs.retired_bytes() > (self.capacity() / RETIRED_SHARE).max(RETIRED_LEAST)
    }

    /// Returns whether the cache could hold a block of `bytes`.
    pub(super) fn admits(&self, bytes: usize) -> bool {
        bytes + ENTRY_OVERHEAD <= self.capacity() / self.shards.len()
    }

    /// Drops all blocks of a deleted table.
    pub(crate) fn forget_table(&self, table: TableId) {
        for shard in &self.shards {
            shard.lock().forget_table(table);
        }
    }

    /// Returns the bytes that blocks may hold.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Returns the bytes that blocks and open tables may hold together.
    pub(crate) fn memory(&self) -> usize {
        self.memory.load(Ordering::Relaxed)
    }

    /// Changes the bytes that blocks and open tables may hold together. Evicts the excess at once.
    pub(crate) fn set_memory(&self, bytes: usize) {
        let resizing = self.resizing.lock();
        self.memory.store(bytes, Ordering::Relaxed);
        self.resize(&resizing);
    }

    /// Charges `bytes` for a table that was opened, and adjusts the capacity.
    pub(super) fn hold_table(&self, bytes: usize) {
        self.tables.fetch_add(bytes, Ordering::SeqCst);
        self.fit();
    }

    /// Removes the charge of a table that nobody has open any more. The capacity rises at the next `fit`, since the
    /// caller may hold a shard's lock.
    pub(super) fn release_table(&self, bytes: usize) {
        self.tables.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Adjusts the capacity to what open tables hold, if it differs by a step. Evicts the excess at once.
    pub(super) fn fit(&self) {
        if self.capacity_now() != self.capacity.load(Ordering::SeqCst) {
            self.resize(&self.resizing.lock());
        }
    }

    /// Returns the capacity that fits the memory and the open tables of this moment.
    fn capacity_now(&self) -> usize {
        let memory = self.memory();
        let charged = self.tables.load(Ordering::SeqCst).saturating_sub(memory / TABLES_FREE_SHARE);
        let charged = charged.next_multiple_of((memory / TABLES_STEPS).max(1));
        memory.saturating_sub(charged).max(memory / BLOCKS_LEAST_SHARE)
    }

    /// Sets the capacity. The guard keeps two changes from giving shards different capacities.
    fn resize(&self, _resizing: &MutexGuard<'_, ()>) {
        loop {
            let capacity = self.capacity_now();
            self.capacity.store(capacity, Ordering::SeqCst);
            for shard in &self.shards {
                let mut shard = shard.lock();
                shard.capacity = capacity / self.shards.len();
                shard.shrink();
            }
            // A table that was opened meanwhile may have seen the earlier capacity, and found that it fits.
            if capacity == self.capacity_now() {
                return;
            }
        }
    }

    /// Returns the counters.
    pub(crate) fn stats(&self) -> CacheStats {
        let [value_hits, value_misses] = [0, 1].map(|index| self.value_lookups.total(index));
        let hits = self.pointer_hits.total(0);
        let mut stats = CacheStats { hits, value_hits, value_misses, ..CacheStats::default() };
        for shard in &self.shards {
            let shard = shard.lock();
            stats.hits += shard.hits;
            stats.misses += shard.misses;
            stats.evictions += shard.evictions;
            stats.carried += shard.carried;
            stats.blocks += shard.entries.len() as u64;
            stats.bytes += (shard.small_bytes + shard.main_bytes) as u64;
        }
        stats
    }

    /// Number of keys in the queues.
    #[cfg(test)]
    pub(super) fn names(&self) -> usize {
        let of = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            shard.small.len() + shard.main.len()
        };
        self.shards.iter().map(of).sum()
    }

    /// Panics if an invariant is broken. Returns the number of blocks that pointers lead to.
    #[cfg(test)]
    pub(super) fn check(&self) -> usize {
        let mut settled = 0;
        for shard in &self.shards {
            let shard = shard.lock();
            let charges = |is_main: bool| -> usize {
                shard
                    .entries
                    .values()
                    .filter(|entry| entry.is_main == is_main)
                    .map(|entry| entry.charge)
                    .sum()
            };
            assert_eq!((charges(false), charges(true)), (shard.small_bytes, shard.main_bytes));
            let is_queued = |(key, entry): (&BlockKey, &CachedBlock)| {
                if entry.is_main { shard.main.contains(key) } else { shard.small.contains(key) }
            };
            assert!(shard.entries.iter().all(is_queued));
            let queued = shard.small.iter().chain(&shard.main);
            let held: HashSet<BlockKey> =
                queued.clone().filter(|key| shard.entries.contains_key(key)).copied().collect();
            assert_eq!(held.len(), shard.entries.len());
            assert_eq!(queued.count(), shard.entries.len() + shard.stale);
            let listed = shard.of_table.iter().flat_map(|(table, offsets)| {
                offsets.iter().map(|offset| BlockKey { table: *table, offset: *offset })
            });
            assert_eq!(listed.collect::<HashSet<BlockKey>>(), held);
            let is_at_index = |(key, entry): (&BlockKey, &CachedBlock)| {
                shard.of_table[&key.table][entry.index as usize] == key.offset
            };
            assert!(shard.entries.iter().all(is_at_index));
            assert!(shard.of_table.values().map(Vec::len).sum::<usize>() == shard.entries.len());
            assert!(shard.small_bytes + shard.main_bytes <= shard.capacity);
            assert_eq!(shard.ghosts.len(), shard.ghost_set.len());
            assert!(
                shard.entries.values().all(|e| {
                    let is_value = matches!(e.cached.block, Block::Value(_));
                    !e.is_main || (e.owner.is_some() != is_value) || e.rounds == 0
                }),
                "what stays has a pointer, once a reader has asked for it"
            );
            settled += shard.entries.values().filter(|entry| entry.owner.is_some()).count();
        }
        settled
    }
}
