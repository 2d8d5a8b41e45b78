//! The memtable: point entries in a sorted list, range tombstones beside it, and the counts that others go by.
//!
//! How it is used:
//! 1. A writer calls `begin_write` under the lock that also seals memtables, inserts outside that lock, and
//!    calls `end_write`. A sealed memtable is complete, and may be flushed, once `writers` is 0.
//! 2. Readers call `get`, `versions` and `cursor` at any time. What they find is whole, but says nothing
//!    about batches: a reader names the snapshot that it may see, and only published ones are atomic.
//! 3. Range tombstones are rare, so new ones are a list under a lock. The first reader that comes after a change
//!    arranges them for lookups, and one atomic load says that there are none.
//!
//! Invariants:
//! * Entries are never changed or removed; counts and `bytes` only rise.
//! * A count or bound covers at least every operation whose insert has returned.
//! * `get`, `versions` and cursors show point entries only: laying the range tombstones over them is the
//!   reader's part.

use super::list::{List, ListCursor};
use super::node::MemEntry;
use super::presence::Presence;
use crate::cursor::Cursor;
use crate::error::Result;
use crate::rangedel::{RangeTombstone, RangeTombstones};
use arc_swap::ArcSwap;
use drumlin_env::sync::{
    Arc, Mutex,
    atomic::{
        AtomicU64, AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};
use drumlin_format::filter::key_hash;
use drumlin_types::{KeyRange, Kind, Seq};

/// Recent writes of one keyspace. Shared by all its writers and readers.
pub(crate) struct Memtable {
    id: u64,
    list: Arc<List>,
    presence: Presence,
    /// Seed of the key hashes that `presence` goes by.
    seed: u64,
    entries: AtomicUsize,
    tombstones: AtomicUsize,
    /// `Seq::MAX` while empty.
    min_seq: AtomicU64,
    max_seq: AtomicU64,
    writers: AtomicUsize,
    ranges: Ranges,
}

/// What a range tombstone takes besides its keys, arranged for lookups: itself, twice while it is being arranged again,
/// the counts of its keys, their places among the fragments, and what it leaves at nodes.
const RANGE_TOMBSTONE_BYTES: usize = 320;

/// The range tombstones of a memtable.
struct Ranges {
    /// Those that no reader has met.
    new: Mutex<Vec<RangeTombstone>>,
    /// Of all; set under the lock of `new`, read without.
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
    /// An empty memtable. `seed` is that of the key hashes that lookups bring.
    pub(crate) fn new(id: u64, seed: u64) -> Memtable {
        Memtable {
            id,
            list: Arc::new(List::new()),
            presence: Presence::new(),
            seed,
            entries: AtomicUsize::new(0),
            tombstones: AtomicUsize::new(0),
            min_seq: AtomicU64::new(Seq::MAX),
            max_seq: AtomicU64::new(0),
            writers: AtomicUsize::new(0),
            ranges: Ranges::new(),
        }
    }

    /// The number it was made with. Later memtables have higher ones.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Adds an entry. (`key`, `seq`) must be new; key and value must keep to the length limits.
    pub(crate) fn insert(&self, key: &[u8], seq: Seq, kind: Kind, value: &[u8]) {
        debug_assert!(kind != Kind::DeleteRange, "range tombstones are kept apart");
        self.presence.add(key_hash(key, self.seed), self.entries.load(Relaxed));
        self.list.insert(key, seq, kind, value);
        if kind == Kind::Delete {
            self.tombstones.fetch_add(1, Relaxed);
        }
        self.count(seq);
        self.entries.fetch_add(1, Release);
    }

    /// Adds a tombstone over every key of `range`. An empty range is ignored.
    pub(crate) fn insert_range_tombstone(&self, range: KeyRange, seq: Seq) {
        if range.is_empty() {
            return;
        }
        self.count(seq);
        self.ranges.add(RangeTombstone { range, seq });
    }

    fn count(&self, seq: Seq) {
        // The usual case by far: no lower and no higher than what was seen. A load is cheaper than an update.
        if seq < self.min_seq.load(Relaxed) {
            self.min_seq.fetch_min(seq, Relaxed);
        }
        if seq > self.max_seq.load(Relaxed) {
            self.max_seq.fetch_max(seq, Relaxed);
        }
    }

    /// Whether there may be point entries of the key with this hash.
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        self.presence.may_contain(hash)
    }

    #[cfg(test)]
    /// The newest version of `key` that `snapshot` sees.
    pub(crate) fn get(&self, key: &[u8], snapshot: Seq) -> Option<MemEntry<'_>> {
        self.list.get(key, snapshot)
    }

    /// The versions of `key` that `snapshot` sees, newest first.
    pub(crate) fn versions<'a>(
        &'a self,
        key: &[u8],
        snapshot: Seq,
    ) -> impl Iterator<Item = MemEntry<'a>> + use<'a> {
        self.list.versions(key, snapshot)
    }

    /// All range tombstones, ready for lookups.
    pub(crate) fn range_tombstones(&self) -> Arc<RangeTombstones> {
        self.ranges.arranged()
    }

    /// Whether there are range tombstones: one atomic load.
    pub(crate) fn has_range_tombstones(&self) -> bool {
        self.ranges.count.load(Acquire) != 0
    }

    /// A cursor over the point entries, on none of them yet. It keeps the memtable alive, and sees entries
    /// that are added later.
    pub(crate) fn cursor(self: &Arc<Self>) -> MemCursor {
        MemCursor { cursor: ListCursor::new(self.list.clone()), _memtable: self.clone() }
    }

    /// Bytes that the entries and range tombstones take: what to compare with the size to flush at.
    pub(crate) fn bytes(&self) -> usize {
        self.list.bytes() + self.ranges.bytes.load(Relaxed)
    }

    #[cfg(test)]
    /// Bytes of memory held, room for entries to come included: what to charge to the memory budget.
    pub(crate) fn held_bytes(&self) -> usize {
        self.list.held_bytes() + self.presence.bytes() + self.ranges.bytes.load(Relaxed)
    }

    /// Point entries.
    pub(crate) fn entries(&self) -> usize {
        self.entries.load(Acquire)
    }

    #[cfg(test)]
    /// Point entries that are deletes.
    pub(crate) fn tombstones(&self) -> usize {
        self.tombstones.load(Relaxed)
    }

    #[cfg(test)]
    /// Smallest sequence number of all entries and range tombstones; 0 when there are none.
    pub(crate) fn min_seq(&self) -> Seq {
        match self.min_seq.load(Relaxed) {
            Seq::MAX => 0,
            seq => seq,
        }
    }

    /// Largest sequence number of all entries and range tombstones; 0 when there are none.
    pub(crate) fn max_seq(&self) -> Seq {
        self.max_seq.load(Relaxed)
    }

    /// Whether there are neither point entries nor range tombstones.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries() == 0 && !self.has_range_tombstones()
    }

    /// A writer is about to insert. To be called where the memtable cannot be sealed at the same time.
    pub(crate) fn begin_write(&self) {
        self.writers.fetch_add(1, AcqRel);
    }

    /// That writer has inserted everything.
    pub(crate) fn end_write(&self) {
        let before = self.writers.fetch_sub(1, AcqRel);
        debug_assert!(before > 0, "end_write without begin_write");
    }

    /// Writers between `begin_write` and `end_write`. When a sealed memtable has none, all its entries are
    /// seen.
    pub(crate) fn writers(&self) -> usize {
        self.writers.load(Acquire)
    }
}

/// Walks the point entries of a memtable.
pub(crate) struct MemCursor {
    cursor: ListCursor,
    _memtable: Arc<Memtable>,
}

impl MemCursor {
    fn entry(&self) -> MemEntry<'_> {
        self.cursor.entry().expect("the cursor is on an entry")
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
}
