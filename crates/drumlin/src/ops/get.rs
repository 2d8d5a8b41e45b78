//! Point lookups in an open store, and creation of iterators and cursors.
//!
//! 1. A lookup pins the store's epochs (`base/epoch.rs`), so that it can follow pointers without counting references.
//!    It loads one view of the keyspace, memtables and a tree (`keyspace/state.rs`), and then the visible sequence
//!    number (`write/publish.rs`). If a newer view was installed in between, it starts again; so the view holds every
//!    commit up to that number.
//! 2. In each run of the tree it finds the one file whose bounds contain the key (`version/tree.rs`).
//! 3. [`read::get`](crate::read::get) (`read/get.rs`) searches memtables and levels in its order. [`MemSource`] and
//!    [`FileSource`] adapt them to it: `memtable/memtable.rs`, `table/lookup.rs`.
//! 4. `GetState::finish` makes a value of the versions found: deletion, expiry, merge operands (`base/resolve.rs`).
//!
//! A merge operator may take long, so a lookup calls it only when it is not pinned any more. A pinned lookup that meets
//! many operands in a memtable is done again without a pin, and combines them then.
//!
//! Sampled lookups also feed the statistics. Two samplers run: one lookup in 16 is counted per file, one in 64 is
//! timed.

use crate::base::epoch::Pin;
use crate::base::error::{ErrorKind, Result};
use crate::base::merge_operator::MergeOperator;
use crate::base::resolve::ValueRead;
use crate::base::resolve::call_operator;
use crate::base::slice::Slice;
use crate::base::snapshots::ReadPoint;
use crate::keyspace::{KeyspaceState, View};
use crate::memtable::{LONG, Memtable};
use crate::ops::iter::Iter;
use crate::ops::range_cursor::RangeCursor;
use crate::ops::scan::{LiveScan, Scan, ScanSources};
use crate::read::{Flow, GetState, Source, VisibleOptions};
use crate::stats::{LookupCounts, OperationKind, Stopwatch};
use crate::store::Store;
use crate::table::{Lookup, OpenTable, TableCache};
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
    /// `Some` while the lookup is pinned: then operands are not combined, and the cell becomes true if they should be.
    pub(crate) postponed: Option<&'a Cell<bool>>,
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
        let is_wanted = || chain.len() >= LONG && self.memtable.wants_combined(key);
        let Some(operator) = self.operator.filter(|_| is_wanted()) else { return };
        if let Some(postponed) = self.postponed {
            postponed.set(true);
        } else {
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

/// Statistics that a lookup feeds, and its pin.
#[derive(Clone, Copy)]
pub(crate) struct LookupOptions<'a> {
    /// Whether the lookup is counted in the lookup statistics of files.
    pub(crate) counts_files: bool,
    /// `None` if the lookup is not timed.
    pub(crate) timed: Option<&'a TimedLookup<'a>>,
    /// Pin of the lookup, if it is pinned.
    pub(crate) pin: Option<&'a Pin<'a>>,
}

/// A lookup that is timed, and the runs that it meets.
pub(crate) struct TimedLookup<'a> {
    /// The store whose costs get the durations of probes.
    store: &'a Store,
    /// Number of runs with a file whose bounds contain the key.
    covered: Cell<u32>,
    /// Number of these that the lookup searched without finding a version.
    vain: Cell<u32>,
}

impl TimedLookup<'_> {
    fn new(store: &Store) -> TimedLookup<'_> {
        TimedLookup { store, covered: Cell::new(0), vain: Cell::new(0) }
    }
}

/// How far a lookup came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Reached {
    /// It searched no table.
    #[default]
    Memtables,
    /// It searched a table.
    Tables,
    /// It found a version in a table.
    Version,
}

/// File of a run as a source of a lookup.
pub(crate) struct FileSource<'a> {
    pub(crate) file: &'a Arc<FileMeta>,
    pub(crate) tables: &'a TableCache,
    pub(crate) counts: &'a LookupCounts,
    /// Cell in which the lookup notes how far it came.
    pub(crate) reached: &'a Cell<Reached>,
    pub(crate) options: LookupOptions<'a>,
}

impl Source for FileSource<'_> {
    fn max_seq(&self) -> Seq {
        self.file.max_seq
    }

    fn prefetch(&self, hash: u64) {
        if let Some(pin) = self.options.pin
            && !self.file.skips_filter()
            && let Some(table) = self.file.table.peek(pin)
        {
            table.prefetch_filter(hash, pin);
        }
    }

    fn lookup(&self, key: &[u8], hash: u64, snapshot: Seq, state: &mut GetState) -> Result<()> {
        let LookupOptions { counts_files, timed, pin } = self.options;
        if self.reached.get() == Reached::Memtables {
            self.reached.set(Reached::Tables);
        }
        let table = match pin {
            Some(pin) => self.file.table.open_pinned(self.tables, pin)?,
            None => OpenTable::Owned(self.file.table.open(self.tables)?),
        };
        if self.file.counts.range_tombstones > 0 {
            state.cover(table.range_tombstones().covering(key, snapshot));
        }
        let began = timed.map(|timed| timed.store.files.env.clock().monotonic_nanos());
        let mut hit = Hit::Nothing;
        let outcome = table.lookup(key, hash, snapshot, self.file.skips_filter(), |found| {
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
                self.reached.set(Reached::Version);
            }
        }
        if counts_files {
            self.file.count(hit);
        }
        if let (Some(timed), Some(began)) = (timed, began) {
            let store = timed.store;
            timed.vain.set(timed.vain.get() + u32::from(outcome != Lookup::Found));
            let nanos = store.files.env.clock().monotonic_nanos().saturating_sub(began);
            match outcome {
                Lookup::Denied => store.costs.probes.denied(nanos),
                Lookup::Absent => store.costs.probes.absent(nanos),
                Lookup::Found => store.costs.probes.reached(nanos),
            }
        }
        Ok(())
    }
}

impl Store {
    /// Loads the view of `keyspace` and then the visible sequence number, and starts again if a newer view was
    /// installed in between. So the view holds every commit up to that number.
    pub(crate) fn view_at(&self, keyspace: &KeyspaceState) -> (Arc<View>, Seq) {
        loop {
            let view = keyspace.view();
            let seq = self.publisher.visible();
            if keyspace.is_newest(&view) {
                return (view, seq);
            }
        }
    }

    /// As [`view_at`](Store::view_at), but borrows the view from `pin`, which is one of the store's epochs.
    fn peek_at<'p>(&self, keyspace: &'p KeyspaceState, pin: &'p Pin<'_>) -> (&'p View, Seq) {
        loop {
            let view = keyspace.peek(pin);
            let seq = self.publisher.visible();
            if keyspace.is_newest(view) {
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
        let counts_files = is_sampled(self.lookups.add_gets(1));
        if keyspace.meter.count_and_sample(OperationKind::Point, 1) {
            return self.get_timed(keyspace, key, snapshot, counts_files);
        }
        let state = self.search(keyspace, key, snapshot, counts_files, None, true)?;
        state.finish(key, &keyspace.resolver(), || self.time_of(snapshot))
    }

    /// Returns whether `key` has a value as of `snapshot`, or currently.
    pub(crate) fn contains_key_at(
        &self,
        keyspace: &Arc<KeyspaceState>,
        key: &[u8],
        snapshot: Option<ReadPoint>,
    ) -> Result<bool> {
        self.background.step_in_simulation();
        self.health.check_open()?;
        let counts_files = is_sampled(self.lookups.add_gets(1));
        let is_timed = keyspace.meter.count_and_sample(OperationKind::Point, 1);
        let began = is_timed.then(|| self.files.env.clock().monotonic_nanos());
        let timed = is_timed.then(|| TimedLookup::new(self));
        let state = self.search(keyspace, key, snapshot, counts_files, timed.as_ref(), false)?;
        let is_whole = state.pointer().is_none();
        let exists = state.exists(key, &keyspace.resolver(), || self.time_of(snapshot));
        if let (Some(began), Some(timed)) = (began, timed) {
            keyspace.meter.keep_sampled_key(OperationKind::Point, key);
            keyspace.meter.searched(timed.covered.get(), timed.vain.get());
            let nanos = self.files.env.clock().monotonic_nanos().saturating_sub(began);
            keyspace.activity.get_latency.record(nanos);
            // The cost of a get includes the read of its value.
            if is_whole {
                self.costs.got(nanos);
            }
        }
        exists
    }

    /// Collects the versions that decide the value of `key` as of `snapshot`, or its current value. If `reads_values`
    /// is false, the value file is not read, unless operands need the value.
    #[inline]
    fn search(
        &self,
        keyspace: &KeyspaceState,
        key: &[u8],
        snapshot: Option<ReadPoint>,
        counts_files: bool,
        timed: Option<&TimedLookup<'_>>,
        reads_values: bool,
    ) -> Result<GetState> {
        let postponed = Cell::new(false);
        let pin = self.files.cache.epochs().pin();
        let options = LookupOptions { counts_files, timed, pin: Some(&pin) };
        loop {
            let view = keyspace.peek(&pin);
            let seq = snapshot.map_or_else(|| self.publisher.visible(), |point| point.seq);
            // All commits up to a snapshot were visible before the view was loaded.
            if snapshot.is_some() || keyspace.is_newest(view) {
                // Checked after the view was loaded: a drop marks the keyspace before it empties the view.
                keyspace.check_alive()?;
                match self.search_view(keyspace, view, key, seq, options, Some(&postponed)) {
                    Err(error) if error.kind() == ErrorKind::TooManyFiles => break,
                    Ok(_) if postponed.get() => break,
                    Err(error) => return Err(error),
                    Ok(state) if !reads_values && state.operands() == 0 => return Ok(state),
                    Ok(mut state) => match state.follow(key, &keyspace.resolver(), ValueRead::Lookup) {
                        Err(error) if error.kind() == ErrorKind::TooManyFiles => break,
                        followed => return followed.map(|()| state),
                    },
                }
            }
        }
        drop(pin);
        let options = LookupOptions { counts_files, timed, pin: None };
        self.search_unpinned(keyspace, key, snapshot, options, reads_values)
    }

    /// Searches like `search`, but without a pin. So it can close tables to open others, and call the merge operator.
    #[cold]
    fn search_unpinned(
        &self,
        keyspace: &KeyspaceState,
        key: &[u8],
        snapshot: Option<ReadPoint>,
        options: LookupOptions<'_>,
        reads_values: bool,
    ) -> Result<GetState> {
        let (view, visible) = self.view_at(keyspace);
        keyspace.check_alive()?;
        let seq = snapshot.map_or(visible, |point| point.seq);
        let mut state = self.search_view(keyspace, &view, key, seq, options, None)?;
        if reads_values || state.operands() > 0 {
            state.follow(key, &keyspace.resolver(), ValueRead::Lookup)?;
        }
        Ok(state)
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
        keyspace.meter.keep_sampled_key(OperationKind::Point, key);
        let began = self.files.env.clock().monotonic_nanos();
        let timed = TimedLookup::new(self);
        let state = self.search(keyspace, key, snapshot, counts_files, Some(&timed), true)?;
        keyspace.meter.searched(timed.covered.get(), timed.vain.get());
        let value = state.finish(key, &keyspace.resolver(), || self.time_of(snapshot));
        let nanos = self.files.env.clock().monotonic_nanos().saturating_sub(began);
        self.costs.got(nanos);
        keyspace.activity.get_latency.record(nanos);
        value
    }

    /// Returns `file` as a source of one lookup. The source notes in `reached` how far the lookup came.
    pub(crate) fn file_source<'a>(
        &'a self,
        file: &'a Arc<FileMeta>,
        reached: &'a Cell<Reached>,
        options: LookupOptions<'a>,
    ) -> FileSource<'a> {
        FileSource { file, tables: &self.files.tables, counts: &self.lookups, reached, options }
    }

    fn search_view(
        &self,
        keyspace: &KeyspaceState,
        view: &View,
        key: &[u8],
        seq: Seq,
        options: LookupOptions<'_>,
        postponed: Option<&Cell<bool>>,
    ) -> Result<GetState> {
        let hash = key_hash(key, self.files.filter_seed);
        let reached = Cell::default();
        let operator = keyspace.operator.as_deref();
        let memtables = view.memtables().filter(|m| !m.is_empty());
        let memtables = memtables.map(|memtable| MemSource { memtable, operator, postponed });
        let levels = view.tree.levels.iter().map(|level| {
            let files = level.runs.iter().filter_map(|run| run.file_for(key));
            files.map(|file| self.file_source(file, &reached, options))
        });
        if let Some(timed) = options.timed {
            let runs = view.tree.levels.iter().flat_map(|level| &level.runs);
            timed.covered.set(runs.filter(|run| run.file_for(key).is_some()).count() as u32);
            timed.vain.set(0);
        }
        let state = crate::read::get(key, hash, seq, memtables, levels)?;
        if reached.get() == Reached::Version {
            self.lookups.returned(1);
        }
        if options.counts_files && keyspace.filters_differ() {
            count_density(keyspace, key, reached.get(), &state);
        }
        Ok(state)
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
        self.background.step_in_simulation();
        let early = drumlin_types::bug!("scan-checks-early").then(|| self.may_scan(keyspace));
        // Borrows the view, since many threads contend for its reference count. The cursor counts references to
        // memtables and tree.
        let pin = keyspace.pin();
        let (view, visible) = self.peek_at(keyspace, &pin);
        let live = LiveScan::new(self, &view.tree);
        early.unwrap_or_else(|| self.may_scan(keyspace))?;
        let mut options = self.scan_options(keyspace, range, snapshot, visible);
        let memtables = ScanSources::of_memtables(view, &mut options);
        // Opening a table may close others, and waits for pinned threads that still read those.
        drop(pin);
        let cursor = memtables.open(&live, options)?;
        Ok(RangeCursor::new(cursor, live, keyspace.clone()))
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
        keyspace.meter.count_and_sample(OperationKind::Seek, 1).then(|| {
            // A run that does not cover the seek key is still searched if it has later keys of the range.
            let key = tree.met_at(key, range);
            keyspace.meter.keep_sampled_key(OperationKind::Seek, key);
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
        let (view, visible) = self.view_at(keyspace);
        let live = LiveScan::new(self, &view.tree);
        let refused = self.may_scan(keyspace).err();
        let options = self.scan_options(keyspace, bounds, snapshot, visible);
        Scan { live, view, options, refused }
    }

    /// Returns an error if a scan of `keyspace` may not read. The caller has counted the scan, for close, and loaded
    /// the view: a drop marks the keyspace before it empties the view.
    fn may_scan(&self, keyspace: &KeyspaceState) -> Result<()> {
        self.health.check_open()?;
        self.check_own(keyspace)?;
        keyspace.check_alive()
    }

    fn scan_options(
        &self,
        keyspace: &KeyspaceState,
        bounds: KeyRange,
        snapshot: Option<ReadPoint>,
        visible: Seq,
    ) -> VisibleOptions {
        VisibleOptions {
            snapshot: snapshot.map_or(visible, |point| point.seq),
            now_micros: self.time_of(snapshot),
            bounds,
            keys_only: false,
            keyspace: keyspace.name.clone(),
            operator: keyspace.operator.clone(),
            operator_name: keyspace.operator_name.clone(),
            pointers: Some(keyspace.pointers.clone()),
            value_window: self.sizes.scan_readahead,
            tombstones: Vec::new(),
            dead: Some(keyspace.dead.clone()),
        }
    }
}

/// Counts a sampled lookup in the density of the keyspace's lookups, which equal filters do not need. A lookup that
/// found a value or a deletion without a search in tables was answered by a memtable.
pub(crate) fn count_density(keyspace: &KeyspaceState, key: &[u8], reached: Reached, state: &GetState) {
    let is_answered = reached == Reached::Memtables && state.has_base();
    keyspace.density.count(key, LOOKUP_SAMPLE, !is_answered);
}

/// Returns whether the lookup numbered `number` is counted in the lookup statistics. One in each block of
/// [`LOOKUP_SAMPLE`] lookups is, at a pseudo-random place in the block, so that a periodic access pattern causes no
/// bias.
pub(crate) fn is_sampled(number: u64) -> bool {
    let block = number / LOOKUP_SAMPLE;
    (block.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % LOOKUP_SAMPLE == number % LOOKUP_SAMPLE
}
