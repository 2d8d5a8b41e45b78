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
use crate::stats::{Kind, Stopwatch};
use crate::store::Store;
use crate::table::{Lookup, TableCache};
use crate::version::FileMeta;
use drumlin_env::sync::{Arc, atomic};
use drumlin_format::filter::key_hash;
use drumlin_types::{KeyRange, Seq};

/// A memtable as a lookup sees it.
struct MemSource<'a>(&'a Arc<Memtable>);

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
struct FileSource<'a> {
    file: &'a Arc<FileMeta>,
    tables: &'a TableCache,
    /// A sampled lookup is timed.
    timed: Option<&'a Store>,
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
        let outcome = table.lookup(key, hash, snapshot, |found| {
            state.offer(found.seq, found.kind, || found.value) == Flow::Continue
        })?;
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
    fn view_at(&self, keyspace: &KeyspaceState) -> (Arc<View>, Seq) {
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
        Counters::add(&self.metrics.gets, 1);
        if keyspace.meter.samples() {
            return self.get_sampled(keyspace, key, snapshot);
        }
        loop {
            let view = keyspace.peek();
            let seq = snapshot.unwrap_or_else(|| self.publisher.visible());
            if Arc::ptr_eq(&view, &keyspace.peek()) {
                return self.get_in(keyspace, &view, key, seq, None);
            }
        }
    }

    /// A lookup that is timed, and stands for others.
    #[cold]
    fn get_sampled(
        &self,
        keyspace: &Arc<KeyspaceState>,
        key: &[u8],
        snapshot: Option<Seq>,
    ) -> Result<Option<Slice>> {
        keyspace.meter.sampled(Kind::Point, key, 1);
        let began = self.env.clock().monotonic_nanos();
        let (view, visible) = self.view_at(keyspace);
        let value = self.get_in(keyspace, &view, key, snapshot.unwrap_or(visible), Some(self));
        self.costs.got(self.env.clock().monotonic_nanos().saturating_sub(began));
        value
    }

    fn get_in(
        &self,
        keyspace: &KeyspaceState,
        view: &View,
        key: &[u8],
        seq: Seq,
        timed: Option<&Store>,
    ) -> Result<Option<Slice>> {
        let hash = key_hash(key, self.filter_seed);
        let memtables = view.memtables().filter(|m| !m.is_empty()).map(MemSource);
        let levels = view.tree.levels.iter().map(|level| {
            let files = level.runs.iter().filter_map(|run| run.file_for(key));
            files.map(|file| FileSource { file, tables: &self.tables, timed })
        });
        let state = crate::read::get(key, hash, seq, memtables, levels)?;
        let resolver =
            Resolver { keyspace: &keyspace.name, operator: keyspace.operator.as_deref(), pointers: None };
        state.finish(key, &resolver, || self.unix_micros())
    }

    /// The values of `keys`, all as of one moment.
    pub(crate) fn multi_get(
        &self,
        keyspace: &Arc<KeyspaceState>,
        keys: &[&[u8]],
        snapshot: Option<Seq>,
    ) -> Result<Vec<Option<Slice>>> {
        self.background.interleave();
        self.check_open()?;
        keyspace.check_alive()?;
        Counters::add(&self.metrics.gets, keys.len() as u64);
        if let Some(first) = keys.first().filter(|_| keyspace.meter.samples()) {
            keyspace.meter.sampled(Kind::Point, first, keys.len() as u64);
        }
        let (view, visible) = self.view_at(keyspace);
        let seq = snapshot.unwrap_or(visible);
        // In key order, so that neighbours find their blocks in the cache.
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_by_key(|&i| keys[i]);
        let mut values = vec![None; keys.len()];
        for i in order {
            values[i] = self.get_in(keyspace, &view, keys[i], seq, None)?;
        }
        Ok(values)
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
        let stopwatch = self.stopwatch(keyspace, &scan.options.bounds.start, scan.view.tree.runs());
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
        Ok(RangeCursor::new(scan.open()?, self.clone(), keyspace.clone(), scan.view.tree.runs()))
    }

    /// A watch for a seek to `key` over `runs` runs, if it is a sampled one.
    #[inline]
    pub(crate) fn stopwatch(&self, keyspace: &KeyspaceState, key: &[u8], runs: usize) -> Option<Stopwatch> {
        keyspace.meter.samples().then(|| {
            keyspace.meter.sampled(Kind::Seek, key, 1);
            Stopwatch::new(self.env.clone(), self.costs.clone(), runs)
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
