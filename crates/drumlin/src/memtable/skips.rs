//! Records of parts of the list that hold no entry newer than a given sequence number. Readers from whom those
//! entries are hidden skip such parts.
//!
//! A memtable receives writes together with the range tombstones that hide them. It also receives the tombstones of a
//! queue together with new entries at its tail. The newest entry of the memtable therefore says nothing about a part
//! of the list. A reader that has walked many hidden entries records the part that it walked, with the newest
//! sequence number there. The next reader passes that part with one search.
//!
//! The list keeps growing, so a record must become invalid when an entry is inserted into its part. Before a reader
//! records a part, it walks the part again and *watches* each link by setting a bit in it. A writer whose node goes
//! into a watched link reports the place of the node after linking it and before its insert returns. Either the walk
//! meets the node, or the writer meets the bit.
//!
//! Invariants:
//! * A record covers the places from `from` to before `to`. Every entry there that any reader may see has at most its
//!   `max_seq`. A newer entry belongs to a writer that has not reported it yet.
//! * All links between two neighbours of a recorded part are watched, since bits are never cleared. This includes the
//!   links on both sides of a new node.
//! * `reports` rises with each report, under the lock. A walked part is recorded only if `reports` has not risen
//!   since.
//! * Reports and records take the lock. Skipping takes none: a report happens before its entry becomes visible to a
//!   reader, and so before that reader loads the records.

use super::node::EntryPosition;
use arc_swap::{ArcSwap, Guard};
use drumlin_env::sync::{
    Arc, Mutex,
    atomic::{
        AtomicU64,
        Ordering::{Acquire, Release},
    },
};
use drumlin_types::Seq;

/// Number of entries that a reader walks before it records the part. Tests have few entries.
pub(super) const WORTH: usize = if cfg!(any(test, sim)) { 4 } else { 64 };

/// Maximum number of records of a memtable. Together with `LONGEST_KEY` it bounds their memory.
const MOST: usize = 64;
/// Maximum length in bytes of the keys that bound a record.
const LONGEST_KEY: usize = 1 << 10;

/// Owned place.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Kept {
    key: Box<[u8]>,
    seq: Seq,
}

impl Kept {
    fn of(place: &EntryPosition<'_>) -> Kept {
        Kept { key: place.key.into(), seq: place.seq }
    }

    /// Returns the place directly after `place`. Sequence numbers of entries start at 1.
    fn behind(place: &EntryPosition<'_>) -> Kept {
        Kept { key: place.key.into(), seq: place.seq.saturating_sub(1) }
    }

    fn place(&self) -> EntryPosition<'_> {
        EntryPosition { key: &self.key, seq: self.seq }
    }

    fn is_before(&self, place: &EntryPosition<'_>) -> bool {
        self.place().cmp(place).is_lt()
    }
}

/// Record of a part that readers may skip.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Skip {
    from: Kept,
    to: Kept,
    max_seq: Seq,
}

impl Skip {
    /// Returns the start of the part.
    pub(super) fn from(&self) -> EntryPosition<'_> {
        self.from.place()
    }

    /// Returns the first place after the part.
    pub(super) fn to(&self) -> EntryPosition<'_> {
        self.to.place()
    }

    /// Returns an upper bound on the sequence numbers of the entries in the part.
    pub(super) fn max_seq(&self) -> Seq {
        self.max_seq
    }

    fn is_empty(&self) -> bool {
        !self.from.is_before(&self.to())
    }
}

/// All records of a list.
pub(super) struct Skips {
    /// Disjoint, in order.
    records: ArcSwap<Vec<Arc<Skip>>>,
    reports: AtomicU64,
    update: Mutex<()>,
}

impl Skips {
    pub(super) fn new() -> Skips {
        Skips {
            records: ArcSwap::from_pointee(Vec::new()),
            reports: AtomicU64::new(0),
            update: Mutex::new(()),
        }
    }

    /// Returns the current records.
    pub(super) fn load(&self) -> Guard<Arc<Vec<Arc<Skip>>>> {
        self.records.load()
    }

    /// Returns the number of reports. A reader calls this before it walks a part that it will record.
    pub(super) fn reports(&self) -> u64 {
        self.reports.load(Acquire)
    }

    /// Reports that an entry was linked at `place` into a watched link. Cuts the place out of its record.
    pub(super) fn report(&self, place: &EntryPosition<'_>) {
        let _update = self.update.lock();
        let records = self.records.load();
        let at = records.partition_point(|skip| !place.cmp(&skip.to()).is_lt());
        if let Some(hit) = records.get(at).filter(|skip| !place.cmp(&skip.from()).is_lt()) {
            let before = Skip { to: Kept::of(place), ..(**hit).clone() };
            let behind = Skip { from: Kept::behind(place), ..(**hit).clone() };
            // A key that is too long to bound a record ends this one.
            let is_kept = |skip: &Skip| place.key.len() <= LONGEST_KEY && !skip.is_empty();
            let rests = [before, behind].into_iter().filter(is_kept).map(Arc::new);
            let mut list = (**records).clone();
            list.splice(at..=at, rests);
            self.store(list);
        }
        // Last, so that a reader of the new number also reads the new records.
        self.reports.fetch_add(1, Release);
    }

    /// Records that no entry from `first` to `last`, both of which are entries, is newer than `max_seq`. Every link
    /// between them has been watched since the caller read `reports`. Does nothing if a record with a newer `max_seq`
    /// overlaps.
    pub(super) fn record(
        &self,
        first: &EntryPosition<'_>,
        last: &EntryPosition<'_>,
        max_seq: Seq,
        reports: u64,
    ) {
        if first.key.len().max(last.key.len()) > LONGEST_KEY {
            return;
        }
        let Some(_update) = self.update.try_lock() else { return };
        if self.reports.load(Acquire) != reports {
            return;
        }
        let mut new = Skip { from: Kept::of(first), to: Kept::behind(last), max_seq };
        let records = self.records.load();
        let begin = records.partition_point(|skip| !new.from.is_before(&skip.to()));
        let end = begin + records[begin..].partition_point(|skip| skip.from.is_before(&new.to()));
        for skip in &records[begin..end] {
            if skip.max_seq > max_seq {
                return;
            }
            if skip.from.is_before(&new.from()) {
                new.from = skip.from.clone();
            }
            if new.to.is_before(&skip.to()) {
                new.to = skip.to.clone();
            }
        }
        let mut list = (**records).clone();
        list.splice(begin..end, [Arc::new(new)]);
        self.store(list);
    }

    fn store(&self, mut list: Vec<Arc<Skip>>) {
        while list.len() > MOST {
            let oldest = (0..list.len()).min_by_key(|&i| list[i].max_seq).unwrap_or(0);
            list.remove(oldest);
        }
        self.records.store(Arc::new(list));
    }
}
