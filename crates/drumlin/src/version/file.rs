//! A reference to a table: the keys it answers for, and what is known of the entries in them.
//!
//! Invariants: the bounds lie inside the table's own bounds; `entries` is exact for the bounds, so that
//! "entries in = entries out + entries dropped" stays checkable after a part was merged away; the
//! sequence range is that of the whole table, hence an upper bound for the part.

use super::pins::TableHandle;
use drumlin_env::sync::{Arc, atomic};
use drumlin_format::manifest::{FileRecord, ValueRef};
use drumlin_types::contract::{FileState, FileView, LookupStats};
use drumlin_types::{KeyRange, RunId, Seq, TableId};

/// What a reference holds, as counts.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Counts {
    /// Stored bytes; estimated for a part of a table.
    pub(crate) bytes: u64,
    /// Point entries, exact.
    pub(crate) entries: u64,
    /// Distinct keys; in proportion for a part.
    pub(crate) keys: u64,
    /// Point tombstones; in proportion for a part.
    pub(crate) tombstones: u64,
    /// Range tombstones of the table.
    pub(crate) range_tombstones: u64,
}

impl Counts {
    /// The counts of a part that holds exactly `entries` of these entries.
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

/// Lookups that one sampled lookup stands for.
pub(crate) const LOOKUP_SAMPLE: u64 = 16;

/// Lookup counters of one reference, decayed, sampled by all reading threads without a lock.
#[derive(Default)]
pub(crate) struct AccessCounters {
    /// Lookups that reached the file and found no version of their key there.
    empty: atomic::AtomicU64,
    /// Lookups that found one.
    found: atomic::AtomicU64,
    /// Those of them that found a tombstone.
    dead: atomic::AtomicU64,
}

/// What a lookup found in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hit {
    Nothing,
    Version,
    Tombstone,
}

impl AccessCounters {
    /// Counts a sampled lookup.
    pub(crate) fn count(&self, hit: Hit) {
        let add = |counter: &atomic::AtomicU64| counter.fetch_add(LOOKUP_SAMPLE, atomic::Ordering::Relaxed);
        match hit {
            Hit::Nothing => add(&self.empty),
            Hit::Version => add(&self.found),
            Hit::Tombstone => {
                add(&self.dead);
                add(&self.found)
            }
        };
    }

    /// Leaves `factor` of all counts. What is counted meanwhile is not lost.
    pub(crate) fn decay(&self, factor: f64) {
        for counter in [&self.empty, &self.found, &self.dead] {
            let now = counter.load(atomic::Ordering::Relaxed);
            let gone = now - ((now as f64 * factor) as u64).min(now);
            counter.fetch_sub(gone, atomic::Ordering::Relaxed);
        }
    }

    /// Counters for a part of the file that holds `entries` of its `whole` entries.
    fn part(&self, entries: u64, whole: u64) -> AccessCounters {
        let share = |counter: &atomic::AtomicU64| {
            let count = u128::from(counter.load(atomic::Ordering::Relaxed));
            atomic::AtomicU64::new((count * u128::from(entries) / u128::from(whole.max(1))) as u64)
        };
        AccessCounters { empty: share(&self.empty), found: share(&self.found), dead: share(&self.dead) }
    }
}

/// A file of a tree. Immutable but for its access counters.
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
    /// Whether the predecessor of each entry is counted dead in its value file.
    pub(crate) accounted: bool,
    /// The value files that the table points into.
    pub(crate) value_refs: Arc<[ValueRef]>,
    pub(crate) access: Arc<AccessCounters>,
}

impl FileMeta {
    pub(crate) fn id(&self) -> TableId {
        self.table.id
    }

    /// Whether the bounds leave entries of the table out.
    pub(crate) fn is_narrowed(&self) -> bool {
        self.counts.entries != self.table_entries
    }

    /// The reference to the part of this file in `range`, which holds exactly `entries` entries.
    pub(crate) fn narrowed(&self, range: KeyRange, entries: u64) -> FileMeta {
        debug_assert!(self.bounds.covers(&range));
        FileMeta {
            table: self.table.clone(),
            bounds: range,
            counts: self.counts.part(entries),
            value_refs: self.value_refs.clone(),
            access: Arc::new(self.access.part(entries, self.counts.entries)),
            ..*self
        }
    }

    /// The manifest's record of the file.
    pub(crate) fn record(&self, level: u8, run: RunId) -> FileRecord {
        let lookups = self.lookups();
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
            value_refs: self.value_refs.to_vec(),
            lookups: [lookups.empty as f32, lookups.found as f32, lookups.dead as f32],
        }
    }

    /// The file that `record` describes.
    pub(crate) fn from_record(record: &FileRecord, table: Arc<TableHandle>) -> FileMeta {
        let count = |n: f32| atomic::AtomicU64::new(if n.is_finite() && n > 0.0 { n as u64 } else { 0 });
        let [empty, found, dead] = record.lookups.map(count);
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
            value_refs: record.value_refs.clone().into(),
            access: Arc::new(AccessCounters { empty, found, dead }),
        }
    }

    /// What lookups found lately.
    pub(crate) fn lookups(&self) -> LookupStats {
        let read = |counter: &atomic::AtomicU64| counter.load(atomic::Ordering::Relaxed) as f64;
        LookupStats {
            empty: read(&self.access.empty),
            found: read(&self.access.found),
            dead: read(&self.access.dead),
        }
    }

    /// The file, or the part of it in `bounds`, as a policy sees it.
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
        write!(f, "{}{:?}#{}-{}", self.table.id, self.bounds, self.min_seq, self.max_seq)
    }
}
