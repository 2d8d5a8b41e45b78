//! Point lookups in an open store, and creation of iterators and cursors.
//!
//! 1. A lookup loads one view of the keyspace, memtables and a tree (`keyspace/state.rs`), and the visible sequence
//!    number (`write/publish.rs`).
//! 2. In each run of the tree it finds the one file whose bounds contain the key (`version/tree.rs`).
//! 3. [`read::get`](crate::read::get) (`read/get.rs`) searches memtables and levels in its order. [`MemSource`] and
//!    [`FileSource`] adapt them to it: `memtable/memtable.rs`, `table/lookup.rs`.
//! 4. `GetState::finish` makes a value of the versions found: deletion, expiry, merge operands (`base/resolve.rs`).
//!
//! Sampled lookups also feed the statistics.

use crate::base::error::Result;
use crate::base::merge_operator::MergeOperator;
use crate::base::metrics::Counters;
use crate::base::resolve::call_operator;
use crate::base::slice::Slice;
use crate::base::snapshots::ReadPoint;
use crate::keyspace::{KeyspaceState, View};
use crate::memtable::{LONG, Memtable};
use crate::ops::iter::Iter;
use crate::ops::range_cursor::RangeCursor;
use crate::ops::scan::{OpenReader, Scan};
use crate::read::{Flow, GetState, Source, VisibleOptions};
use crate::stats::{LookupCounts, OperationKind, Stopwatch};
use crate::store::Store;
use crate::table::{Lookup, TableCache};
use crate::version::{FileMeta, Hit, LOOKUP_SAMPLE, Tree};
use drumlin_env::sync::{Arc, atomic};
use drumlin_format::filter::key_hash;
use drumlin_types::{KeyRange, Kind, Seq};
use std::cell::Cell;

/// Memtable as a source of a lookup.
pub(crate) struct MemSource<'a> {
    pub(crate) memtable: &'a Arc<Memtable>,
    /// Merge operator, which combines the operands of hot keys.
    pub(crate) operator: Option<&'a dyn MergeOperator>,
}

impl MemSource<'_> {
    /// Looks up a `key` with many operands. Uses the combined operand of the key, if it has one, in place of the
    /// operands that it combines. Then combines the newer operands with it into a new one.
    #[cold]
    fn look_up_long(&self, key: &[u8], snapshot: Seq, state: &mut GetState) {
        let combined = self.memtable.combined_operand(key, snapshot);
        let mut chain: Vec<(Seq, &[u8])> = Vec::new();
        // Whether all versions seen so far are plain operands, and so in `chain`.
        let (mut is_whole, mut below) = (true, None);
        for entry in self.memtable.versions(key, snapshot) {
            if let Some(combined) = combined.as_deref().filter(|combined| entry.seq <= combined.high) {
                below = Some(combined);
                break;
            }
            if state.offer(entry.seq, entry.kind, || Slice::from(entry.value)) == Flow::Done {
                break;
            }
            is_whole &= entry.kind == Kind::Merge;
            if is_whole {
                chain.push((entry.seq, entry.value));
            }
        }
        // A range tombstone between the combined operand and the newer operands ends the key's history, so the combined
        // operand does not count.
        let below = below.filter(|combined| {
            !state.hides(combined.high) || drumlin_types::bug!("combined-across-range-delete")
        });
        if let Some(combined) = below
            && state.offer(combined.high, Kind::Merge, || Slice::from(&*combined.operand)) == Flow::Continue
        {
            for entry in self.memtable.versions(key, combined.low - 1) {
                if state.offer(entry.seq, entry.kind, || Slice::from(entry.value)) == Flow::Done {
                    break;
                }
            }
        }
        if let Some(operator) = self.operator.filter(|_| chain.len() >= LONG) {
            let combine = |left: &[u8], right: &[u8]| {
                call_operator(operator, |operator| operator.partial_merge(key, left, right)).ok().flatten()
            };
            self.memtable.keep_combined(key, &chain, below.filter(|_| is_whole), combine);
        }
    }
}

impl Source for MemSource<'_> {
    fn max_seq(&self) -> Seq {
        self.memtable.max_seq()
    }

    fn lookup(&self, key: &[u8], hash: u64, snapshot: Seq, state: &mut GetState) -> Result<()> {
        if self.memtable.has_range_tombstones() {
            state.cover(self.memtable.range_tombstones().covering(key, snapshot));
        }
        if !self.memtable.may_contain(hash) {
            return Ok(());
        }
        let before = state.operands();
        for entry in self.memtable.versions(key, snapshot) {
            if state.offer(entry.seq, entry.kind, || Slice::from(entry.value)) == Flow::Done {
                break;
            }
            if state.operands() == before + LONG {
                state.take_back(before);
                self.look_up_long(key, snapshot, state);
                break;
            }
        }
        Ok(())
    }
}

/// File of a run as a source of a lookup.
pub(crate) struct FileSource<'a> {
    pub(crate) file: &'a Arc<FileMeta>,
    pub(crate) tables: &'a TableCache,
    pub(crate) counts: &'a LookupCounts,
    /// Set when a version is found.
    pub(crate) reached: &'a Cell<bool>,
    /// Whether the lookup is counted in the file's lookup statistics.
    pub(crate) counts_files: bool,
    /// Store whose costs the duration of the probe is added to; `None` if the lookup is not timed.
    pub(crate) timed: Option<&'a Store>,
}

impl Source for FileSource<'_> {
    fn max_seq(&self) -> Seq {
        self.file.max_seq
    }

    fn lookup(&self, key: &[u8], hash: u64, snapshot: Seq, state: &mut GetState) -> Result<()> {
        let table = self.file.table.open(self.tables)?;
        if self.file.counts.range_tombstones > 0 {
            state.cover(table.range_tombstones().covering(key, snapshot));
        }
        let began = self.timed.map(|store| store.files.env.clock().monotonic_nanos());
        let mut hit = Hit::Nothing;
        let outcome = table.lookup(key, hash, snapshot, |found| {
            if hit == Hit::Nothing {
                hit = if found.kind == Kind::Delete { Hit::Tombstone } else { Hit::Version };
            }
            state.offer(found.seq, found.kind, || found.value) == Flow::Continue
        })?;
        match outcome {
            Lookup::Denied => self.counts.denied(),
            Lookup::Absent => self.counts.absent(),
            Lookup::Found => {
                self.counts.found();
                self.reached.set(true);
            }
        }
        if self.counts_files {
            self.file.access.count(hit);
        }
        if let (Some(store), Some(began)) = (self.timed, began) {
            let nanos = store.files.env.clock().monotonic_nanos().saturating_sub(began);
            match outcome {
                Lookup::Denied => store.costs.probes.denied(nanos),
                Lookup::Absent | Lookup::Found => store.costs.probes.reached(nanos),
            }
        }
        Ok(())
    }
}

impl Store {
    /// Returns a view of `keyspace`, and the newest sequence number up to which the view holds all commits. If the view
    /// is still the newest after it has read the number, it holds every memtable up to that number.
    pub(crate) fn view_at(&self, keyspace: &KeyspaceState) -> (Arc<View>, Seq) {
        loop {
            let view = keyspace.view();
            let seq = self.publisher.visible();
            if keyspace.is_newest(&view) {
                return (view, seq);
            }
        }
    }

    /// Returns the value of `key` as of `snapshot`, or its current value.
    pub(crate) fn get(
        &self,
        keyspace: &Arc<KeyspaceState>,
        key: &[u8],
        snapshot: Option<ReadPoint>,
    ) -> Result<Option<Slice>> {
        self.background.step_in_simulation();
        self.health.check_open()?;
        let counts_files = is_sampled(self.lookups.gets(1));
        if keyspace.meter.counts(OperationKind::Point, 1) {
            return self.get_timed(keyspace, key, snapshot, counts_files);
        }
        loop {
            let view = keyspace.peek();
            let seq = snapshot.map_or_else(|| self.publisher.visible(), |point| point.seq);
            // All commits up to a snapshot were visible before the view was loaded.
            if snapshot.is_some() || keyspace.is_newest(&view) {
                // Checked after the view was loaded: a drop marks the keyspace before it empties the view.
                keyspace.check_alive()?;
                return self.get_in(keyspace, &view, key, (seq, snapshot), (counts_files, None));
            }
        }
    }

    /// Does a sampled lookup: records its key and its duration.
    #[cold]
    fn get_timed(
        &self,
        keyspace: &Arc<KeyspaceState>,
        key: &[u8],
        snapshot: Option<ReadPoint>,
        counts_files: bool,
    ) -> Result<Option<Slice>> {
        keyspace.meter.wants(OperationKind::Point, key);
        let began = self.files.env.clock().monotonic_nanos();
        let (view, visible) = self.view_at(keyspace);
        keyspace.check_alive()?;
        let seq = snapshot.map_or(visible, |point| point.seq);
        let value = self.get_in(keyspace, &view, key, (seq, snapshot), (counts_files, Some(self)));
        let nanos = self.files.env.clock().monotonic_nanos().saturating_sub(began);
        self.costs.got(nanos);
        keyspace.activity.get_latency.record(nanos);
        value
    }

    /// Returns `file` as a source of one lookup. The source sets `reached` when it finds a version.
    pub(crate) fn file_source<'a>(
        &'a self,
        file: &'a Arc<FileMeta>,
        reached: &'a Cell<bool>,
        (counts_files, timed): (bool, Option<&'a Store>),
    ) -> FileSource<'a> {
        FileSource { file, tables: &self.files.tables, counts: &self.lookups, reached, counts_files, timed }
    }

    fn get_in(
        &self,
        keyspace: &KeyspaceState,
        view: &View,
        key: &[u8],
        (seq, snapshot): (Seq, Option<ReadPoint>),
        (counts_files, timed): (bool, Option<&Store>),
    ) -> Result<Option<Slice>> {
        let hash = key_hash(key, self.files.filter_seed);
        let reached = Cell::new(false);
        let operator = keyspace.operator.as_deref();
        let memtables = view.memtables().filter(|m| !m.is_empty());
        let memtables = memtables.map(|memtable| MemSource { memtable, operator });
        let levels = view.tree.levels.iter().map(|level| {
            let files = level.runs.iter().filter_map(|run| run.file_for(key));
            files.map(|file| self.file_source(file, &reached, (counts_files, timed)))
        });
        let state = crate::read::get(key, hash, seq, memtables, levels)?;
        if reached.get() {
            self.lookups.returned(1);
        }
        state.finish(key, &keyspace.resolver(), || self.time_of(snapshot))
    }

    /// Returns the time at which a read judges expiry, in microseconds since the Unix epoch: the time of its snapshot,
    /// or the current time.
    pub(crate) fn time_of(&self, snapshot: Option<ReadPoint>) -> u64 {
        match snapshot {
            _ if drumlin_types::bug!("snapshot-expires-now") => self.files.unix_micros(),
            Some(point) => point.micros,
            None => self.files.unix_micros(),
        }
    }

    /// Returns an iterator over `range` as of `snapshot`, or of the current state.
    pub(crate) fn iter(
        self: &Arc<Self>,
        keyspace: &Arc<KeyspaceState>,
        range: KeyRange,
        snapshot: Option<ReadPoint>,
    ) -> Iter {
        let keys_only = Arc::new(atomic::AtomicBool::new(false));
        let mut scan = self.scan_of(keyspace, range, snapshot);
        let bounds = &scan.options.bounds;
        let stopwatch = self.stopwatch(keyspace, Some(&bounds.start), bounds, &scan.view.tree);
        let flag = keys_only.clone();
        let open = Box::new(move || {
            scan.options.keys_only = flag.load(atomic::Ordering::Relaxed);
            scan.open()
        });
        Iter::new(open, keys_only, stopwatch)
    }

    /// Returns a cursor over `range` as of `snapshot`, or of the current state.
    pub(crate) fn cursor(
        self: &Arc<Self>,
        keyspace: &Arc<KeyspaceState>,
        range: KeyRange,
        snapshot: Option<ReadPoint>,
    ) -> Result<RangeCursor> {
        let scan = self.scan_of(keyspace, range, snapshot);
        let view = scan.open()?;
        Ok(RangeCursor::new(view, scan.reader, keyspace.clone(), scan.view.tree.clone()))
    }

    /// Returns a stopwatch if the next seek is timed. The seek goes to `key`, or to the end of `range` if that
    /// is `None`, in `tree`.
    #[inline]
    pub(crate) fn stopwatch(
        &self,
        keyspace: &KeyspaceState,
        key: Option<&[u8]>,
        range: &KeyRange,
        tree: &Tree,
    ) -> Option<Stopwatch> {
        keyspace.meter.counts(OperationKind::Seek, 1).then(|| {
            // A run that does not cover the seek key is still searched if it has later keys of the range.
            let key = tree.met_at(key, range);
            keyspace.meter.wants(OperationKind::Seek, key);
            let (costs, activity) = (self.costs.clone(), keyspace.activity.clone());
            Stopwatch::new(self.files.env.clone(), costs, activity, tree.covering(key))
        })
    }

    fn scan_of(
        self: &Arc<Self>,
        keyspace: &Arc<KeyspaceState>,
        bounds: KeyRange,
        snapshot: Option<ReadPoint>,
    ) -> Scan {
        self.background.step_in_simulation();
        Counters::add(&self.metrics.scans, 1);
        let (view, visible) = self.view_at(keyspace);
        let options = VisibleOptions {
            snapshot: snapshot.map_or(visible, |point| point.seq),
            now_micros: self.time_of(snapshot),
            bounds,
            keys_only: false,
            keyspace: keyspace.name.clone(),
            operator: keyspace.operator.clone(),
            operator_name: keyspace.operator_name.clone(),
            pointers: None,
            tombstones: Vec::new(),
            dead: Some(keyspace.dead.clone()),
        };
        let reader = OpenReader::new(self);
        let may_begin = self
            .health
            .check_open()
            .and_then(|()| self.check_own(keyspace))
            .and_then(|()| keyspace.check_alive());
        Scan { reader, view, options, refused: may_begin.err() }
    }
}

/// Returns whether the lookup numbered `number` is counted in the lookup statistics. One in each block of
/// [`LOOKUP_SAMPLE`] lookups is, at a pseudo-random place in the block, so that a periodic access pattern causes no
/// bias.
pub(crate) fn is_sampled(number: u64) -> bool {
    let block = number / LOOKUP_SAMPLE;
    (block.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % LOOKUP_SAMPLE == number % LOOKUP_SAMPLE
}
