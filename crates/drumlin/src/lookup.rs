//! Reading from an open store: the sources that a view offers to lookups and iterators.

use crate::cursor::Cursor;
use crate::error::Result;
use crate::iter::{Iter, StoreView};
use crate::keyspace::{KeyspaceState, View};
use crate::memtable::Memtable;
use crate::metrics::Counters;
use crate::read::{
    Flow, GetState, MergeCursor, OpenFile, Resolver, RunCursor, Source, TombstoneSource, VisibleIter,
    VisibleOptions,
};
use crate::slice::Slice;
use crate::stats::{Kind, Stopwatch};
use crate::store::Store;
use crate::table::{CursorOptions, Lookup, TableCache};
use crate::version::{FileMeta, Run};
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
        let table = self.tables.get(self.file.id(), self.file.table.len)?;
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
        self.background.interleave();
        Counters::add(&self.metrics.scans, 1);
        let (view, visible) = self.view_at(keyspace);
        let seq = snapshot.unwrap_or(visible);
        let stopwatch = keyspace.meter.samples().then(|| {
            keyspace.meter.sampled(Kind::Seek, &range.start, 1);
            Stopwatch::new(self.env.clone(), self.costs.clone(), view.tree.runs())
        });
        let (store, keyspace) = (self.clone(), keyspace.clone());
        let now_micros = self.unix_micros();
        let keys_only = Arc::new(atomic::AtomicBool::new(false));
        let flag = keys_only.clone();
        let open = Box::new(move || {
            store.check_open()?;
            keyspace.check_alive()?;
            let options = VisibleOptions {
                snapshot: seq,
                now_micros,
                bounds: range.clone(),
                keys_only: flag.load(atomic::Ordering::Relaxed),
                keyspace: keyspace.name.clone(),
                operator: keyspace.operator.clone(),
                pointers: None,
                tombstones: Vec::new(),
            };
            scan(&store, &view, options)
        });
        Iter::new(open, keys_only, stopwatch)
    }
}

/// The cursors of every source of `view` that may hold keys of the bounds, as one.
fn scan(store: &Arc<Store>, view: &View, mut options: VisibleOptions) -> Result<StoreView> {
    let mut sources: Vec<Box<dyn Cursor>> = Vec::new();
    for memtable in view.memtables().filter(|m| !m.is_empty()) {
        sources.push(Box::new(memtable.cursor()));
        if memtable.has_range_tombstones() {
            options.tombstones.push((KeyRange::all(), memtable.range_tombstones()));
        }
    }
    for run in view.tree.levels.iter().flat_map(|level| &level.runs) {
        let files = RunFiles::new(store, run, &options.bounds);
        if files.files.is_empty() {
            continue;
        }
        for file in &files.files {
            if file.counts.range_tombstones > 0 {
                let source: TombstoneSource = (
                    file.bounds.clone(),
                    store.tables.get(file.id(), file.table.len)?.range_tombstones().clone().into(),
                );
                options.tombstones.push(source);
            }
        }
        sources.push(Box::new(RunCursor::new(files)));
    }
    Ok(VisibleIter::new(MergeCursor::new(sources), options))
}

/// The files of a run that overlap a range, opened as a cursor reaches them.
struct RunFiles {
    store: Arc<Store>,
    files: Vec<Arc<FileMeta>>,
}

impl RunFiles {
    fn new(store: &Arc<Store>, run: &Run, bounds: &KeyRange) -> RunFiles {
        let first =
            run.files.partition_point(|f| f.bounds.end.as_ref().is_some_and(|end| *end <= bounds.start));
        let files = run.files[first..].iter().take_while(|f| bounds.is_before_end(&f.bounds.start));
        RunFiles { store: store.clone(), files: files.cloned().collect() }
    }
}

impl OpenFile for RunFiles {
    fn open(&self, index: usize) -> Result<Box<dyn Cursor>> {
        let table = self.store.tables.get(self.files[index].id(), self.files[index].table.len)?;
        Ok(Box::new(table.cursor(CursorOptions::SCAN)))
    }

    fn bounds(&self, index: usize) -> &KeyRange {
        &self.files[index].bounds
    }

    fn len(&self) -> usize {
        self.files.len()
    }

    fn is_narrowed(&self, index: usize) -> bool {
        self.files[index].is_narrowed()
    }
}
