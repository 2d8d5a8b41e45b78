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
use crate::store::Store;
use crate::table::{CursorOptions, TableCache};
use crate::version::{FileMeta, Hit, LOOKUP_SAMPLE, Run};
use drumlin_env::sync::{Arc, atomic};
use drumlin_format::filter::key_hash;
use drumlin_types::{KeyRange, Kind, Seq};

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
    /// Whether the lookup counts for the access statistics.
    sampled: bool,
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
        let mut hit = Hit::Nothing;
        table.lookup(key, hash, snapshot, |found| {
            if hit == Hit::Nothing {
                hit = if found.kind == Kind::Delete { Hit::Tombstone } else { Hit::Version };
            }
            state.offer(found.seq, found.kind, || found.value) == Flow::Continue
        })?;
        if self.sampled {
            self.file.access.count(hit);
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
        let sampled = is_sampled(self.metrics.gets.fetch_add(1, atomic::Ordering::Relaxed));
        loop {
            let view = keyspace.peek();
            let seq = snapshot.unwrap_or_else(|| self.publisher.visible());
            if Arc::ptr_eq(&view, &keyspace.peek()) {
                return self.get_in(keyspace, &view, key, seq, sampled);
            }
        }
    }

    fn get_in(
        &self,
        keyspace: &KeyspaceState,
        view: &View,
        key: &[u8],
        seq: Seq,
        sampled: bool,
    ) -> Result<Option<Slice>> {
        let hash = key_hash(key, self.filter_seed);
        let memtables = view.memtables().filter(|m| !m.is_empty()).map(MemSource);
        let levels = view.tree.levels.iter().map(|level| {
            let files = level.runs.iter().filter_map(|run| run.file_for(key));
            files.map(|file| FileSource { file, tables: &self.tables, sampled })
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
        let first = self.metrics.gets.fetch_add(keys.len() as u64, atomic::Ordering::Relaxed);
        let (view, visible) = self.view_at(keyspace);
        let seq = snapshot.unwrap_or(visible);
        // In key order: neighbours share a file, and find their blocks in the cache.
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_by_key(|&i| keys[i]);
        let wanted: Vec<Wanted<'_>> = (first..)
            .zip(&order)
            .map(|(number, &i)| Wanted {
                key: keys[i],
                hash: key_hash(keys[i], self.filter_seed),
                sampled: is_sampled(number),
            })
            .collect();
        let memtables: Vec<MemSource<'_>> =
            view.memtables().filter(|m| !m.is_empty()).map(MemSource).collect();
        let levels = view.tree.levels.iter().map(|level| {
            |open: &[usize]| level.runs.iter().flat_map(|run| shared_files(run, &wanted, open)).collect()
        });
        let lookup = |(file, i): (&Arc<FileMeta>, usize), state: &mut GetState| {
            let Wanted { key, hash, sampled } = wanted[i];
            FileSource { file, tables: &self.tables, sampled }.lookup(key, hash, seq, state)
        };
        let pairs: Vec<(&[u8], u64)> = wanted.iter().map(|w| (w.key, w.hash)).collect();
        let states = crate::read::get_many(&pairs, seq, &memtables, levels, lookup)?;
        let resolver =
            Resolver { keyspace: &keyspace.name, operator: keyspace.operator.as_deref(), pointers: None };
        let mut values = vec![None; keys.len()];
        for (state, i) in states.into_iter().zip(order) {
            values[i] = state.finish(keys[i], &resolver, || self.unix_micros())?;
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
        Iter::new(open, keys_only)
    }
}

/// A key that a lookup of several wants.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    key: &'a [u8],
    hash: u64,
    sampled: bool,
}

/// The files of `run` that hold some of the keys `open`, which are in key order, each with those of them.
fn shared_files<'a>(
    run: &'a Run,
    wanted: &[Wanted<'_>],
    open: &[usize],
) -> Vec<(Seq, &'a Arc<FileMeta>, Vec<usize>)> {
    let mut files: Vec<(Seq, &Arc<FileMeta>, Vec<usize>)> = Vec::new();
    for &i in open {
        let key = wanted[i].key;
        match files.last_mut() {
            // Keys rise: what is before the end of the last file is in it.
            Some((_, file, keys)) if file.bounds.is_before_end(key) => keys.push(i),
            _ => {
                if let Some(file) = run.file_for(key) {
                    files.push((file.max_seq, file, vec![i]));
                }
            }
        }
    }
    files
}

/// Whether the lookup numbered `number` counts for the access statistics: one in each [`LOOKUP_SAMPLE`], at a place
/// that looks drawn, so that no rhythm of a program meets it.
fn is_sampled(number: u64) -> bool {
    let block = number / LOOKUP_SAMPLE;
    (block.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % LOOKUP_SAMPLE == number % LOOKUP_SAMPLE
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
