//! Memtable: point entries in a sorted list, range tombstones beside it, and counters for other parts of the store.
//!
//! Use:
//! 1. A writer calls `begin_write` under the lock that also seals memtables, inserts outside that lock, and calls
//!    `end_write`. A sealed memtable may be flushed once it `is_complete`, its commits are visible, and no checkpoint
//!    holds it back.
//! 2. Readers call `get`, `versions` and `cursor` at any time. Each entry that they find is complete, but batches may
//!    be partial: a reader names its snapshot, and only published snapshots are atomic.
//! 3. Range tombstones are rare, so new ones go into a list under a lock. The first reader after a change fragments
//!    them for lookups. One atomic load shows whether there are any.
//!
//! Invariants:
//! * Entries are never changed or removed; counters and `bytes` only rise.
//! * A counter or bound covers at least every operation whose insert has returned.
//! * `get`, `versions` and cursors return point entries only. The reader applies the range tombstones.

use super::combined::{CombinedOperand, CombinedOperands};
use super::list::{Approach, List, ListCursor};
use super::node::MemEntry;
use super::presence::Presence;
use crate::base::cache_padded::CachePadded;
use crate::base::cursor::{Cursor, Hidden};
use crate::base::error::Result;
use crate::base::rangedel::{RangeTombstone, RangeTombstones};
use arc_swap::ArcSwap;
use drumlin_env::sync::{
    Arc, Mutex,
    atomic::{
        AtomicBool, AtomicU64, AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};
use drumlin_format::filter::key_hash;
use drumlin_types::{KeyRange, Kind, LogNumber, Seq};

/// Recent writes of one keyspace, shared by all its writers and readers.
///
/// `Arc` stores its reference counts directly before this value, and each write changes them. The alignment puts them
/// on other cache lines than the fields. Each write also changes `counts` and `writers`, so these have lines of their
/// own.
#[repr(align(128))]
pub(crate) struct Memtable {
    /// First log segment that may hold its writes.
    first_log: LogNumber,
    list: Arc<List>,
    presence: Presence,
    /// Seed of the key hashes in `presence`.
    seed: u64,
    /// Set when no writer starts any more. A flush may then wait for the writers that have started.
    sealed: AtomicBool,
    counts: CachePadded<Counts>,
    writers: CachePadded<AtomicUsize>,
    ranges: Ranges,
    pub(super) combined: CombinedOperands,
}

/// Counters of a memtable. They also count operations whose insert has not returned yet.
struct Counts {
    entries: AtomicUsize,
    tombstones: AtomicUsize,
    /// `Seq::MAX` while empty.
    min_seq: AtomicU64,
    max_seq: AtomicU64,
}

impl Counts {
    fn new() -> Counts {
        Counts {
            entries: AtomicUsize::new(0),
            tombstones: AtomicUsize::new(0),
            min_seq: AtomicU64::new(Seq::MAX),
            max_seq: AtomicU64::new(0),
        }
    }

    /// Counts a point entry. Returns the previous number of entries.
    fn count_entry(&self, seq: Seq, kind: Kind) -> usize {
        self.extend_seq_bounds(seq);
        if kind == Kind::Delete {
            self.tombstones.fetch_add(1, Relaxed);
        }
        self.entries.fetch_add(1, Release)
    }

    /// Extends the bounds by `seq`.
    fn extend_seq_bounds(&self, seq: Seq) {
        // Usually the bounds already cover `seq`, and a load is cheaper than an update.
        if seq < self.min_seq.load(Relaxed) {
            self.min_seq.fetch_min(seq, Relaxed);
        }
        if seq > self.max_seq.load(Relaxed) {
            self.max_seq.fetch_max(seq, Relaxed);
        }
    }
}

/// Bytes charged for a range tombstone besides its keys. They cover the tombstone itself (twice while it is
/// fragmented again), the reference counts of its keys, their places among the fragments, and its entries at nodes.
const RANGE_TOMBSTONE_BYTES: usize = 320;

/// Range tombstones of a memtable.
struct Ranges {
    /// Tombstones added since the last reader fragmented them.
    new: Mutex<Vec<RangeTombstone>>,
    /// Number of all tombstones; set under the lock of `new`, read without it.
    count: AtomicUsize,
    bytes: AtomicUsize,
    arranged: ArcSwap<Arranged>,
}

struct Arranged {
    count: usize,
    tombstones: Arc<RangeTombstones>,
}

impl Ranges {
    fn new() -> Ranges {
        let none = Arranged { count: 0, tombstones: Arc::new(RangeTombstones::default()) };
        Ranges {
            new: Mutex::new(Vec::new()),
            count: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            arranged: ArcSwap::from_pointee(none),
        }
    }

    fn add(&self, tombstone: RangeTombstone) {
        let ends = tombstone.range.start.len() + tombstone.range.end.as_ref().map_or(0, |end| end.len());
        self.bytes.fetch_add(ends + RANGE_TOMBSTONE_BYTES, Relaxed);
        let mut new = self.new.lock();
        new.push(tombstone);
        self.count.store(self.count.load(Relaxed) + 1, Release);
    }

    fn arranged(&self) -> Arc<RangeTombstones> {
        let arranged = self.arranged.load();
        if arranged.count == self.count.load(Acquire) {
            return arranged.tombstones.clone();
        }
        drop(arranged);
        let mut new = self.new.lock();
        let arranged = self.arranged.load();
        // Another reader may have done the work while this one waited for the lock.
        if new.is_empty() {
            return arranged.tombstones.clone();
        }
        let tombstones = Arc::new(arranged.tombstones.with(std::mem::take(&mut *new)));
        let count = self.count.load(Relaxed);
        self.arranged.store(Arc::new(Arranged { count, tombstones: tombstones.clone() }));
        tombstones
    }
}

impl Memtable {
    /// Returns whether a combined operand of `key` would be kept.
    pub(crate) fn wants_combined(&self, key: &[u8]) -> bool {
        self.combined.wants(key)
    }

    /// Returns the combined operand of `key` for a reader at `snapshot`.
    pub(crate) fn combined_operand(&self, key: &[u8], snapshot: Seq) -> Option<Arc<CombinedOperand>> {
        self.combined.get(key, snapshot)
    }

    /// Combines the operands of `key` in `chain`, newest first, with `below`, whose operands directly precede them in
    /// age, and keeps the result. `combine` combines an older and a newer operand, if it can. Does nothing if a
    /// combined operand as new exists already.
    pub(crate) fn keep_combined(
        &self,
        key: &[u8],
        chain: &[(Seq, &[u8])],
        below: Option<&CombinedOperand>,
        combine: impl FnMut(&[u8], &[u8]) -> Option<Vec<u8>>,
    ) {
        self.combined.keep(key, chain, below, combine);
    }
}

/// Entry that is going to be added to a memtable.
pub(crate) struct NewEntry<'a> {
    memtable: &'a Memtable,
    hash: u64,
    seq: Seq,
    place: Approach<'a>,
}

impl NewEntry<'_> {
    /// Adds the entry.
    pub(crate) fn insert(self, kind: Kind, value: &[u8]) {
        debug_assert!(kind != Kind::DeleteRange, "range tombstones are kept apart");
        let entries_before = self.memtable.counts.count_entry(self.seq, kind);
        self.memtable.presence.add(self.hash, entries_before);
        self.place.insert(kind, value);
    }
}

impl Memtable {
    /// Creates an empty memtable. `seed` is the seed of the key hashes that lookups pass.
    pub(crate) fn new(first_log: LogNumber, seed: u64) -> Memtable {
        Memtable {
            first_log,
            list: Arc::new(List::new()),
            presence: Presence::new(),
            seed,
            sealed: AtomicBool::new(false),
            counts: CachePadded(Counts::new()),
            writers: CachePadded(AtomicUsize::new(0)),
            ranges: Ranges::new(),
            combined: CombinedOperands::new(),
        }
    }

    /// Returns the first log segment that may hold its writes. A later memtable of the keyspace has the same number or
    /// a higher one.
    pub(crate) fn first_log(&self) -> LogNumber {
        self.first_log
    }

    #[cfg(test)]
    /// Adds an entry. The conditions of `approach` apply.
    pub(crate) fn insert(&self, key: &[u8], seq: Seq, kind: Kind, value: &[u8]) {
        self.approach(key, seq).insert(kind, value);
    }

    /// Prepares to add an entry: finds its place, and prefetches what adding it reads. (`key`, `seq`) must be new, and
    /// key and value must respect the length limits.
    pub(crate) fn approach<'a>(&'a self, key: &'a [u8], seq: Seq) -> NewEntry<'a> {
        let hash = key_hash(key, self.seed);
        self.presence.prefetch(hash, self.counts.entries.load(Relaxed));
        NewEntry { memtable: self, hash, seq, place: self.list.approach(key, seq) }
    }

    /// Adds a tombstone over every key of `range`. Ignores an empty range.
    pub(crate) fn insert_range_tombstone(&self, range: KeyRange, seq: Seq) {
        if range.is_empty() {
            return;
        }
        self.counts.extend_seq_bounds(seq);
        self.ranges.add(RangeTombstone { range, seq });
    }

    /// Returns whether there may be point entries of the key with this hash.
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        self.presence.may_contain(hash)
    }

    #[cfg(test)]
    /// Returns the newest version of `key` that `snapshot` sees.
    pub(crate) fn get(&self, key: &[u8], snapshot: Seq) -> Option<MemEntry<'_>> {
        self.list.get(key, snapshot)
    }

    /// Returns the versions of `key` that `snapshot` sees, newest first.
    pub(crate) fn versions<'a>(
        &'a self,
        key: &[u8],
        snapshot: Seq,
    ) -> impl Iterator<Item = MemEntry<'a>> + use<'a> {
        self.list.versions(key, snapshot)
    }

    /// Returns all range tombstones, fragmented for lookups.
    pub(crate) fn range_tombstones(&self) -> Arc<RangeTombstones> {
        self.ranges.arranged()
    }

    /// Returns whether there are range tombstones, with one atomic load.
    pub(crate) fn has_range_tombstones(&self) -> bool {
        self.ranges.count.load(Acquire) != 0
    }

    /// Returns a cursor over the point entries, initially on none. It keeps the memtable alive and sees entries that
    /// are added later.
    pub(crate) fn cursor(self: &Arc<Self>) -> MemCursor {
        MemCursor { cursor: ListCursor::new(self.list.clone()), memtable: self.clone() }
    }

    /// Returns the bytes that the entries and range tombstones take, for comparison with the memtable size limit.
    pub(crate) fn bytes(&self) -> usize {
        self.list.bytes() + self.ranges.bytes.load(Relaxed) + self.combined.bytes()
    }

    #[cfg(test)]
    /// Returns the memory held in bytes, including free space in the arena, for the memory budget.
    pub(crate) fn held_bytes(&self) -> usize {
        self.list.held_bytes() + self.presence.bytes() + self.ranges.bytes.load(Relaxed)
    }

    /// Returns the number of point entries, with those whose insert has begun. Exact once no writer is left.
    pub(crate) fn entries(&self) -> usize {
        self.counts.entries.load(Acquire)
    }

    #[cfg(test)]
    /// Returns the number of point entries that are deletions.
    pub(crate) fn tombstones(&self) -> usize {
        self.counts.tombstones.load(Relaxed)
    }

    #[cfg(test)]
    /// Returns the smallest sequence number of all entries and range tombstones; 0 if there are none.
    pub(crate) fn min_seq(&self) -> Seq {
        match self.counts.min_seq.load(Relaxed) {
            Seq::MAX => 0,
            seq => seq,
        }
    }

    /// Returns the largest sequence number of all entries and range tombstones; 0 if there are none.
    pub(crate) fn max_seq(&self) -> Seq {
        self.counts.max_seq.load(Relaxed)
    }

    /// Returns whether no point entry and no range tombstone was counted. A write in progress may be counted already,
    /// although its entry is not in the list yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries() == 0 && !self.has_range_tombstones()
    }

    /// Returns whether the memtable has entries or a writer that may still add some. Either no writer may call
    /// `begin_write` meanwhile, or the caller must not need the entries of such a writer.
    ///
    /// Reads the number of writers before the number of entries. A writer inserts before it ends, so a caller that
    /// finds no writer sees all their entries. In the opposite order, both reads could miss a commit that inserts and
    /// ends between them.
    pub(crate) fn holds_writes(&self) -> bool {
        if drumlin_types::bug!("entries-before-writers") {
            return !self.is_empty() || self.writers() > 0;
        }
        self.writers() > 0 || !self.is_empty()
    }

    /// Registers a writer that is about to insert. The memtable must not be sealed at the same time.
    pub(crate) fn begin_write(&self) {
        self.writers.fetch_add(1, AcqRel);
    }

    /// Unregisters a writer that has inserted everything.
    pub(crate) fn end_write(&self) {
        let before = self.writers.fetch_sub(1, AcqRel);
        debug_assert!(before > 0, "end_write without begin_write");
    }

    /// Returns whether every writer has inserted its entries. Their commits may not be published yet.
    pub(crate) fn is_complete(&self) -> bool {
        self.writers() == 0
    }

    /// Marks the memtable as sealed: no writer starts any more.
    pub(crate) fn seal(&self) {
        self.sealed.store(true, Release);
    }

    /// Returns whether the memtable is sealed, so that a flush may wait for the last writer.
    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed.load(Acquire)
    }

    /// Returns the number of writers between `begin_write` and `end_write`.
    fn writers(&self) -> usize {
        self.writers.load(Acquire)
    }
}

/// Cursor over the point entries of a memtable.
pub(crate) struct MemCursor {
    cursor: ListCursor,
    memtable: Arc<Memtable>,
}

impl MemCursor {
    fn entry(&self) -> MemEntry<'_> {
        self.cursor.entry().expect("the cursor is on an entry")
    }

    /// Returns whether all entries in the range of `hidden` are hidden. Entries that are being inserted may be
    /// ignored, since they are newer than the snapshot of any reader.
    fn is_hidden(&self, hidden: &Hidden<'_>) -> bool {
        self.memtable.max_seq() < hidden.below
    }

    /// Moves to the first entry after the range of `hidden`.
    fn seek_end(&mut self, hidden: &Hidden<'_>) {
        match hidden.end {
            Some(end) => self.cursor.seek(end, Seq::MAX),
            None => self.cursor.leave(),
        }
    }
}

impl Cursor for MemCursor {
    fn valid(&self) -> bool {
        self.cursor.entry().is_some()
    }
    fn key(&self) -> &[u8] {
        self.entry().key
    }
    fn seq(&self) -> Seq {
        self.entry().seq
    }
    fn kind(&self) -> Kind {
        self.entry().kind
    }
    fn value(&self) -> &[u8] {
        self.entry().value
    }
    fn seek_first(&mut self) -> Result<()> {
        self.cursor.seek_first();
        Ok(())
    }
    fn seek_last(&mut self) -> Result<()> {
        self.cursor.seek_last();
        Ok(())
    }
    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        self.cursor.seek(key, seq);
        Ok(())
    }
    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        // No version of a key comes before (key, MAX).
        self.cursor.seek_before(key, Seq::MAX);
        Ok(())
    }
    fn next(&mut self) -> Result<()> {
        self.cursor.next();
        Ok(())
    }
    fn prev(&mut self) -> Result<()> {
        self.cursor.prev();
        Ok(())
    }
    fn seek_over(&mut self, key: &[u8], seq: Seq, hidden: &Hidden<'_>) -> Result<()> {
        match self.is_hidden(hidden) {
            true => self.seek_end(hidden),
            false => self.cursor.seek(key, seq),
        }
        Ok(())
    }
    fn skip(&mut self, hidden: &Hidden<'_>) -> Result<usize> {
        if self.is_hidden(hidden) {
            self.seek_end(hidden);
            return Ok(1);
        }
        Ok(1 + self.cursor.skip(hidden.end, hidden.below))
    }
    fn skip_back(&mut self, hidden: &Hidden<'_>) -> Result<usize> {
        if self.is_hidden(hidden) {
            self.cursor.seek_before(hidden.start, Seq::MAX);
            return Ok(1);
        }
        Ok(1 + self.cursor.skip_back(hidden.start, hidden.below))
    }
}
