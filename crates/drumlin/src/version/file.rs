//! A reference to a table: the keys that it serves, and statistics about the entries in them.
//!
//! Invariants:
//! - The bounds lie inside the table's own bounds.
//! - `entries` is exact for the bounds, so that "entries in = entries out + entries dropped" can still be checked after
//!   a part of the table was compacted away.
//! - The sequence range is that of the whole table, so it contains the range of the part.

use super::pins::TableHandle;
use super::value_handle::ValueFileUse;
use drumlin_env::sync::{Arc, atomic};
use drumlin_format::manifest::FileRecord;
use drumlin_types::contract::{FileState, FileView, LookupStats};
use drumlin_types::{KeyRange, RunId, Seq, TableId};

/// Sizes of what a reference holds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Counts {
    /// Stored bytes; estimated for a part of a table.
    pub(crate) bytes: u64,
    /// Point entries, exact.
    pub(crate) entries: u64,
    /// Distinct keys; for a part of a table, scaled by its share of the entries.
    pub(crate) keys: u64,
    /// Point tombstones; for a part of a table, scaled by its share of the entries.
    pub(crate) tombstones: u64,
    /// Range tombstones of the whole table.
    pub(crate) range_tombstones: u64,
}

impl Counts {
    /// Returns the counts of a part that holds exactly `entries` of these entries.
    pub(crate) fn part(&self, entries: u64) -> Counts {
        let share = |n: u64| {
            let whole = self.entries.max(1);
            (u128::from(n) * u128::from(entries)).div_ceil(u128::from(whole)) as u64
        };
        Counts {
            bytes: share(self.bytes),
            entries,
            keys: share(self.keys),
            tombstones: share(self.tombstones),
            range_tombstones: self.range_tombstones,
        }
    }
}

/// Number of lookups that one sampled lookup stands for.
pub(crate) const LOOKUP_SAMPLE: u64 = 16;

/// Sampled lookups in a row that found nothing after which a skipped filter is used again: 256 lookups. Where one
/// lookup in ten finds nothing, as many come in a row once in 10^16.
const MOST_EMPTY_IN_A_ROW: u64 = 16;

/// Marker in place of the birth of a table that existed when the store was opened.
const AT_THE_OPEN: u64 = u64::MAX;

/// Lookup counters of one reference, decayed over time. All reading threads sample into them without a lock.
#[derive(Default)]
pub(crate) struct AccessCounters {
    /// Lookups that reached the file and found no version of their key in it.
    empty: atomic::AtomicU64,
    /// Lookups that found a version of their key.
    found: atomic::AtomicU64,
    /// Lookups among `found` that found a tombstone.
    dead: atomic::AtomicU64,
    /// Number of the keyspace's lookups since the open when the table was built; [`AT_THE_OPEN`] if it existed before.
    birth: atomic::AtomicU64,
    /// While lookups skip the filter: the number of empty lookups at which they use it again.
    skipped_until: atomic::AtomicU64,
    /// Sampled lookups in a row that found no version of their key.
    empty_in_a_row: atomic::AtomicU64,
    /// Whether the manifest has counts of the file that are not zero.
    recorded: atomic::AtomicBool,
}

/// Result of a lookup in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hit {
    Nothing,
    Version,
    Tombstone,
}

impl AccessCounters {
    /// Counts a sampled lookup.
    fn count(&self, hit: Hit) {
        let add = |counter: &atomic::AtomicU64| counter.fetch_add(LOOKUP_SAMPLE, atomic::Ordering::Relaxed);
        match hit {
            Hit::Nothing => add(&self.empty),
            Hit::Version => add(&self.found),
            Hit::Tombstone => {
                add(&self.dead);
                add(&self.found)
            }
        };
        let in_a_row = &self.empty_in_a_row;
        if hit == Hit::Nothing {
            in_a_row.fetch_add(1, atomic::Ordering::Relaxed);
        } else if in_a_row.load(atomic::Ordering::Relaxed) > 0 {
            in_a_row.store(0, atomic::Ordering::Relaxed);
        }
    }

    /// Returns whether the latest lookups did not find their key.
    fn finds_nothing_lately(&self) -> bool {
        self.empty_in_a_row.load(atomic::Ordering::Relaxed) >= MOST_EMPTY_IN_A_ROW
    }

    /// Notes that the table was built after `lookups` lookups of the keyspace since the open.
    pub(crate) fn born(&self, lookups: u64) {
        self.birth.store(lookups, atomic::Ordering::Relaxed);
    }

    /// Returns how many of the keyspace's `lookups` lookups since the open the table has lived for, and whether that is
    /// its whole life: it is not if the table was there at the open.
    pub(crate) fn life(&self, lookups: u64) -> (u64, bool) {
        match self.birth.load(atomic::Ordering::Relaxed) {
            AT_THE_OPEN => (lookups, false),
            birth => (lookups.saturating_sub(birth), true),
        }
    }

    /// Multiplies all counts by `factor`. Lookups that are counted at the same time are not lost.
    pub(crate) fn decay(&self, factor: f64) {
        for counter in [&self.empty, &self.found, &self.dead] {
            let now = counter.load(atomic::Ordering::Relaxed);
            let gone = now - ((now as f64 * factor) as u64).min(now);
            counter.fetch_sub(gone, atomic::Ordering::Relaxed);
        }
    }

    /// Notes that `lookups` are about to replace the counts in the manifest. Returns whether that is needed: counts of
    /// zero need no record if the manifest has none.
    pub(crate) fn replaces_recorded(&self, lookups: [f32; 3]) -> bool {
        let any = lookups.iter().any(|count| *count > 0.0);
        self.recorded.swap(any, atomic::Ordering::Relaxed) || any
    }

    /// Adds the lookups that a new reference takes over.
    pub(crate) fn inherit(&self, lookups: &LookupStats) {
        for (counter, count) in
            [(&self.empty, lookups.empty), (&self.found, lookups.found), (&self.dead, lookups.dead)]
        {
            // The cast saturates, and NaN becomes 0.
            counter.fetch_add(count as u64, atomic::Ordering::Relaxed);
        }
    }
}

/// Bytes of a reference without its keys: itself, its counters, its table's handle and cached pointer, its place in the
/// index of its run, and what the allocator adds to each.
const FILE_BYTES: usize =
    size_of::<FileMeta>() + size_of::<AccessCounters>() + size_of::<TableHandle>() + 200;

/// A file of a tree. Immutable except for its lookup counters.
pub(crate) struct FileMeta {
    pub(crate) table: Arc<TableHandle>,
    pub(crate) bounds: KeyRange,
    pub(crate) counts: Counts,
    /// Point entries of the whole table.
    pub(crate) table_entries: u64,
    pub(crate) min_seq: Seq,
    pub(crate) max_seq: Seq,
    pub(crate) filter_bits: f32,
    pub(crate) fp_rate: f32,
    /// Checksum of the whole file.
    pub(crate) checksum: u64,
    /// Whether the value file already counts the predecessor of each entry as dead.
    pub(crate) accounted: bool,
    /// Value files that the table points into.
    pub(crate) values: Arc<[ValueFileUse]>,
    pub(crate) access: Arc<AccessCounters>,
    /// Whether lookups skip the filter. Apart from the counters, which most lookups do not touch.
    pub(crate) skips_filter: atomic::AtomicBool,
}

impl FileMeta {
    pub(crate) fn id(&self) -> TableId {
        self.table.id
    }

    /// Returns whether the bounds exclude entries of the table.
    pub(crate) fn is_narrowed(&self) -> bool {
        self.counts.entries != self.table_entries
    }

    /// Returns a reference to the part of this file in `range`, which holds exactly `entries` entries. It has no
    /// lookups yet.
    pub(crate) fn narrowed(&self, range: KeyRange, entries: u64) -> FileMeta {
        debug_assert!(self.bounds.covers(&range));
        let access = AccessCounters::default();
        access.born(self.access.birth.load(atomic::Ordering::Relaxed));
        FileMeta {
            table: self.table.clone(),
            bounds: range,
            counts: self.counts.part(entries),
            values: self.values.clone(),
            access: Arc::new(access),
            // The number of lookups at which the whole file's filter is used again does not apply to a part.
            skips_filter: atomic::AtomicBool::new(false),
            ..*self
        }
    }

    /// Returns the bytes of memory that the reference takes, with the handle of its table and without the open table.
    pub(crate) fn held_bytes(&self) -> usize {
        let end = self.bounds.end.as_ref().map_or(0, |end| end.len());
        FILE_BYTES + self.bounds.start.len() + end + size_of_val(&*self.values)
    }

    /// Returns the manifest's record of the file.
    pub(crate) fn record(&self, level: u8, run: RunId) -> FileRecord {
        let lookups = self.lookups();
        let lookups = [lookups.empty as f32, lookups.found as f32, lookups.dead as f32];
        // Records of a checkpoint are made here too, so this only sets the mark and never clears it.
        if lookups.iter().any(|count| *count > 0.0) {
            self.access.recorded.store(true, atomic::Ordering::Relaxed);
        }
        FileRecord {
            table: self.table.id,
            start: self.bounds.start.clone(),
            end: self.bounds.end.clone(),
            level,
            run,
            file_len: self.table.len,
            bytes: self.counts.bytes,
            entries: self.counts.entries,
            keys: self.counts.keys,
            tombstones: self.counts.tombstones,
            range_tombstones: self.counts.range_tombstones,
            table_entries: self.table_entries,
            min_seq: self.min_seq,
            max_seq: self.max_seq,
            filter_bits: self.filter_bits,
            fp_rate: self.fp_rate,
            checksum: self.checksum,
            accounted: self.accounted,
            value_refs: self.values.iter().map(ValueFileUse::reference).collect(),
            lookups,
        }
    }

    /// Creates the file that `record` describes. `values` are the value files that it points to.
    pub(crate) fn from_record(
        record: &FileRecord,
        table: Arc<TableHandle>,
        values: Arc<[ValueFileUse]>,
    ) -> FileMeta {
        let count = |n: f32| atomic::AtomicU64::new(if n.is_finite() && n > 0.0 { n as u64 } else { 0 });
        let [empty, found, dead] = record.lookups.map(count);
        let recorded = record.lookups.iter().any(|count| *count > 0.0);
        FileMeta {
            table,
            bounds: KeyRange::new(record.start.clone(), record.end.clone()),
            counts: Counts {
                bytes: record.bytes,
                entries: record.entries,
                keys: record.keys,
                tombstones: record.tombstones,
                range_tombstones: record.range_tombstones,
            },
            table_entries: record.table_entries,
            min_seq: record.min_seq,
            max_seq: record.max_seq,
            filter_bits: record.filter_bits,
            fp_rate: record.fp_rate,
            checksum: record.checksum,
            accounted: record.accounted,
            values,
            access: Arc::new(AccessCounters {
                empty,
                found,
                dead,
                birth: atomic::AtomicU64::new(AT_THE_OPEN),
                skipped_until: atomic::AtomicU64::new(0),
                empty_in_a_row: atomic::AtomicU64::new(0),
                recorded: atomic::AtomicBool::new(recorded),
            }),
            skips_filter: atomic::AtomicBool::new(false),
        }
    }

    /// Returns whether lookups skip the filter, because its probes cost more than it saves.
    #[inline]
    pub(crate) fn skips_filter(&self) -> bool {
        self.skips_filter.load(atomic::Ordering::Relaxed)
    }

    /// Lets lookups skip the filter until there are this many empty lookups. With `None`, or if the latest lookups
    /// found nothing, they use it.
    pub(crate) fn skip_filter(&self, until: Option<f64>) {
        let until = until.filter(|_| !self.access.finds_nothing_lately());
        // The cast saturates.
        self.access.skipped_until.store(until.unwrap_or(0.0) as u64, atomic::Ordering::Relaxed);
        // Lookups read the line, so it is only written when it changes.
        if self.skips_filter() != until.is_some() {
            self.skips_filter.store(until.is_some(), atomic::Ordering::Relaxed);
        }
    }

    /// Counts a sampled lookup. A skipped filter is used again once enough lookups did not find their key, in all or in
    /// a row.
    pub(crate) fn count(&self, hit: Hit) {
        self.access.count(hit);
        if hit == Hit::Nothing && self.skips_filter() {
            let read = |counter: &atomic::AtomicU64| counter.load(atomic::Ordering::Relaxed);
            let is_worth_it = read(&self.access.empty) >= read(&self.access.skipped_until);
            if is_worth_it || self.access.finds_nothing_lately() {
                self.skips_filter.store(false, atomic::Ordering::Relaxed);
            }
        }
    }

    /// Returns the recent lookup statistics.
    pub(crate) fn lookups(&self) -> LookupStats {
        let read = |counter: &atomic::AtomicU64| counter.load(atomic::Ordering::Relaxed) as f64;
        LookupStats {
            empty: read(&self.access.empty),
            found: read(&self.access.found),
            dead: read(&self.access.dead),
        }
    }

    /// Returns the file, or the part of it in `bounds`, as a policy sees it.
    pub(crate) fn view(&self, bounds: KeyRange, counts: Counts, state: FileState) -> FileView {
        FileView {
            table: self.table.id,
            bounds,
            bytes: counts.bytes,
            entries: counts.entries,
            keys: counts.keys,
            tombstones: counts.tombstones,
            range_tombstones: counts.range_tombstones,
            min_seq: self.min_seq,
            max_seq: self.max_seq,
            filter_bits: f64::from(self.filter_bits),
            fp_rate: f64::from(self.fp_rate),
            lookups: self.lookups(),
            state,
        }
    }
}

impl std::fmt::Debug for FileMeta {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the bounds: this text becomes part of errors, which hold no user keys.
        write!(f, "{}#{}-{}", self.table.id, self.min_seq, self.max_seq)
    }
}
