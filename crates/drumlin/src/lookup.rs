//! Reading from an open store: the sources that a view offers to lookups and iterators.

use crate::error::Result;
use crate::iter::Iter;
use crate::keyspace::{KeyspaceState, View};
use crate::memtable::Memtable;
use crate::metrics::Counters;
use crate::range_cursor::RangeCursor;
use crate::read::{Flow, GetState, Resolver, Source, VisibleOptions};
use crate::scan::Scan;
use crate::slice::Slice;
use crate::stats::{Kind, LookupCounts, Stopwatch};
use crate::store::Store;
use crate::table::{Lookup, TableCache};
use crate::version::{FileMeta, Hit, LOOKUP_SAMPLE, Tree};
use drumlin_env::sync::{Arc, atomic};
use drumlin_format::filter::key_hash;
use drumlin_types::{KeyRange, Kind as EntryKind, Seq};
use std::cell::Cell;

/// A memtable as a lookup sees it.
pub(crate) struct MemSource<'a>(pub(crate) &'a Arc<Memtable>);

impl Source for MemSource<'_> {
    fn max_seq(&self) -> Seq {
        self.0.max_seq()
    }

    fn lookup(&self, key: &[u8], hash: u64, snapshot: Seq, state: &mut GetState) -> Result<()> {
        if self.0.has_range_tombstones() {
            state.cover(self.0.range_tombstones().covering(key, snapshot));
        }
        if !self.0.may_contain(hash) {
            return Ok(());
        }
        for entry in self.0.versions(key, snapshot) {
            if state.offer(entry.seq, entry.kind, || Slice::from(entry.value)) == Flow::Done {
                break;
            }
        }
        Ok(())
    }
}

/// A file as a lookup sees it.
pub(crate) struct FileSource<'a> {
    pub(crate) file: &'a Arc<FileMeta>,
    pub(crate) tables: &'a TableCache,
    pub(crate) counts: &'a LookupCounts,
    /// Set when a version was found.
    pub(crate) reached: &'a Cell<bool>,
    /// Whether the lookup counts for the access statistics.
    pub(crate) sampled: bool,
    /// Some lookups are timed.
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
        let began = self.timed.map(|store| store.env.clock().monotonic_nanos());
        let mut hit = Hit::Nothing;
        let outcome = table.lookup(key, hash, snapshot, |found| {
            if hit == Hit::Nothing {
                hit = if found.kind == EntryKind::Delete { Hit::Tombstone } else { Hit::Version };
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
        if self.sampled {
            self.file.access.count(hit);
        }
        if let (Some(store), Some(began)) = (self.timed, began) {
            let nanos = store.env.clock().monotonic_nanos().saturating_sub(began);
            match outcome {
                Lookup::Denied => store.costs.probes.denied(nanos),
                Lookup::Absent | Lookup::Found => store.costs.probes.reached(nanos),
            }
        }
        Ok(())
    }
}

impl Store {
    /// The view of `keyspace` and the newest sequence number that it holds whole. The view is loaded
    /// again after the number was read: if it is the same, no memtable that the number needs is missing.
    pub(crate) fn view_at(&self, keyspace: &KeyspaceState) -> (Arc<View>, Seq) {
        loop {
            let view = keyspace.view();
            let seq = self.publisher.visible();
            if Arc::ptr_eq(&view, &keyspace.peek()) {
                return (view, seq);
            }
        }
    }

    /// The value of `key` as of `snapshot`, or as of now.
    pub(crate) fn get(
        &self,
        keyspace: &Arc<KeyspaceState>,
        key: &[u8],
        snapshot: Option<Seq>,
    ) -> Result<Option<Slice>> {
        self.background.interleave();
        self.check_open()?;
        keyspace.check_alive()?;
        let sampled = is_sampled(self.lookups.gets(1));
        if keyspace.meter.counts(Kind::Point, 1) {
            return self.get_timed(keyspace, key, snapshot, sampled);
        }
        loop {
            let view = keyspace.peek();
            let seq = snapshot.unwrap_or_else(|| self.publisher.visible());
            if Arc::ptr_eq(&view, &keyspace.peek()) {
                return self.get_in(keyspace, &view, key, seq, (sampled, None));
            }
        }
    }

    /// A lookup that is timed, and stands for others.
    #[cold]
    fn get_timed(
        &self,
        keyspace: &Arc<KeyspaceState>,
        key: &[u8],
        snapshot: Option<Seq>,
        sampled: bool,
    ) -> Result<Option<Slice>> {
        keyspace.meter.wants(Kind::Point, key);
        let began = self.env.clock().monotonic_nanos();
        let (view, visible) = self.view_at(keyspace);
        let seq = snapshot.unwrap_or(visible);
        let value = self.get_in(keyspace, &view, key, seq, (sampled, Some(self)));
        self.costs.got(self.env.clock().monotonic_nanos().saturating_sub(began));
        value
    }

    /// `file` as a source of one lookup, which sets `reached` when it finds a version there.
    pub(crate) fn file_source<'a>(
        &'a self,
        file: &'a Arc<FileMeta>,
        reached: &'a Cell<bool>,
        (sampled, timed): (bool, Option<&'a Store>),
    ) -> FileSource<'a> {
        FileSource { file, tables: &self.tables, counts: &self.lookups, reached, sampled, timed }
    }

    fn get_in(
        &self,
        keyspace: &KeyspaceState,
        view: &View,
        key: &[u8],
        seq: Seq,
        (sampled, timed): (bool, Option<&Store>),
    ) -> Result<Option<Slice>> {
        let hash = key_hash(key, self.filter_seed);
        let reached = Cell::new(false);
        let memtables = view.memtables().filter(|m| !m.is_empty()).map(MemSource);
        let levels = view.tree.levels.iter().map(|level| {
            let files = level.runs.iter().filter_map(|run| run.file_for(key));
            files.map(|file| self.file_source(file, &reached, (sampled, timed)))
        });
        let state = crate::read::get(key, hash, seq, memtables, levels)?;
        if reached.get() {
            self.lookups.returned(1);
        }
        let resolver =
            Resolver { keyspace: &keyspace.name, operator: keyspace.operator.as_deref(), pointers: None };
        state.finish(key, &resolver, || self.unix_micros())
    }

    /// An iterator over `range` as of `snapshot`, or as of now.
    pub(crate) fn iter(
        self: &Arc<Self>,
        keyspace: &Arc<KeyspaceState>,
        range: KeyRange,
        snapshot: Option<Seq>,
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

    /// A cursor over `range` as of `snapshot`, or as of now.
    pub(crate) fn cursor(
        self: &Arc<Self>,
        keyspace: &Arc<KeyspaceState>,
        range: KeyRange,
        snapshot: Option<Seq>,
    ) -> Result<RangeCursor> {
        let scan = self.scan_of(keyspace, range, snapshot);
        Ok(RangeCursor::new(scan.open()?, self.clone(), keyspace.clone(), scan.view.tree.clone()))
    }

    /// A watch for a seek to `key`, or to the end, of `range` in `tree`, if it is a sampled one.
    #[inline]
    pub(crate) fn stopwatch(
        &self,
        keyspace: &KeyspaceState,
        key: Option<&[u8]>,
        range: &KeyRange,
        tree: &Tree,
    ) -> Option<Stopwatch> {
        keyspace.meter.counts(Kind::Seek, 1).then(|| {
            // No run covers the first key of all, though each has to be looked at from there.
            let key = tree.met_at(key, range);
            keyspace.meter.wants(Kind::Seek, key);
            Stopwatch::new(self.env.clone(), self.costs.clone(), tree.covering(key))
        })
    }

    fn scan_of(
        self: &Arc<Self>,
        keyspace: &Arc<KeyspaceState>,
        bounds: KeyRange,
        snapshot: Option<Seq>,
    ) -> Scan {
        self.background.interleave();
        Counters::add(&self.metrics.scans, 1);
        let (view, visible) = self.view_at(keyspace);
        let options = VisibleOptions {
            snapshot: snapshot.unwrap_or(visible),
            now_micros: self.unix_micros(),
            bounds,
            keys_only: false,
            keyspace: keyspace.name.clone(),
            operator: keyspace.operator.clone(),
            pointers: None,
            tombstones: Vec::new(),
        };
        Scan { store: self.clone(), keyspace: keyspace.clone(), view, options }
    }
}

/// Whether the lookup numbered `number` counts for the access statistics: one in each [`LOOKUP_SAMPLE`], at a place
/// that looks drawn, so that no rhythm of a program meets it.
pub(crate) fn is_sampled(number: u64) -> bool {
    let block = number / LOOKUP_SAMPLE;
    (block.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % LOOKUP_SAMPLE == number % LOOKUP_SAMPLE
}
