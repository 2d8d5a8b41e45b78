//! What iterators and cursors walk: the memtables and runs of one view, merged, as users see them.
//!
//! A run is opened file by file, as the walk reaches them; a scan of few keys in a run of many files costs one
//! search among them. The cursors of sources are told apart by one match, so that a step from entry to entry needs no
//! call through a table of functions.

use crate::cursor::Cursor;
use crate::error::Result;
use crate::keyspace::{KeyspaceState, View};
use crate::memtable::MemCursor;
use crate::read::{MergeCursor, OpenFile, RunCursor, TombstoneSource, VisibleIter, VisibleOptions};
use crate::slice::Slice;
use crate::store::Store;
use crate::table::{CursorOptions, TableCursor};
use crate::version::{FileMeta, Run};
use drumlin_env::sync::Arc;
use drumlin_types::{KeyRange, Kind, Seq};
use std::ops::Range;

/// The entries of a keyspace as one moment shows them.
pub(crate) type StoreView = VisibleIter<MergeCursor<ScanSource>>;

/// A cursor over one memtable or one run.
#[expect(clippy::large_enum_variant, reason = "the large one is the usual one")]
pub(crate) enum ScanSource {
    Memtable(MemCursor),
    Run(RunCursor<RunFiles>),
    #[cfg(test)]
    Test(Box<dyn Cursor>),
}

macro_rules! of_source {
    ($source:expr, $cursor:ident => $call:expr) => {
        match $source {
            ScanSource::Memtable($cursor) => $call,
            ScanSource::Run($cursor) => $call,
            #[cfg(test)]
            ScanSource::Test($cursor) => $call,
        }
    };
}

impl Cursor for ScanSource {
    #[inline]
    fn valid(&self) -> bool {
        of_source!(self, cursor => cursor.valid())
    }
    #[inline]
    fn key(&self) -> &[u8] {
        of_source!(self, cursor => cursor.key())
    }
    #[inline]
    fn seq(&self) -> Seq {
        of_source!(self, cursor => cursor.seq())
    }
    #[inline]
    fn kind(&self) -> Kind {
        of_source!(self, cursor => cursor.kind())
    }
    #[inline]
    fn value(&self) -> &[u8] {
        of_source!(self, cursor => cursor.value())
    }
    fn value_slice(&self) -> Slice {
        of_source!(self, cursor => cursor.value_slice())
    }
    fn seek_first(&mut self) -> Result<()> {
        of_source!(self, cursor => cursor.seek_first())
    }
    fn seek_last(&mut self) -> Result<()> {
        of_source!(self, cursor => cursor.seek_last())
    }
    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        of_source!(self, cursor => cursor.seek(key, seq))
    }
    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        of_source!(self, cursor => cursor.seek_before(key))
    }
    #[inline]
    fn next(&mut self) -> Result<()> {
        of_source!(self, cursor => cursor.next())
    }
    #[inline]
    fn prev(&mut self) -> Result<()> {
        of_source!(self, cursor => cursor.prev())
    }
}

/// A scan that can be begun: what it reads and how.
pub(crate) struct Scan {
    pub(crate) store: Arc<Store>,
    pub(crate) keyspace: Arc<KeyspaceState>,
    pub(crate) view: Arc<View>,
    pub(crate) options: VisibleOptions,
}

impl Scan {
    /// A view of all sources that may hold keys of the bounds, each time of the same moment.
    pub(crate) fn open(&self) -> Result<StoreView> {
        self.store.check_open()?;
        self.store.check_own(&self.keyspace)?;
        self.keyspace.check_alive()?;
        open(&self.store, &self.view, self.options.clone())
    }
}

fn open(store: &Arc<Store>, view: &View, mut options: VisibleOptions) -> Result<StoreView> {
    let mut sources = Vec::with_capacity(1 + view.sealed.len() + view.tree.runs());
    for memtable in view.memtables().filter(|m| !m.is_empty()) {
        sources.push(ScanSource::Memtable(memtable.cursor()));
        if memtable.has_range_tombstones() {
            options.tombstones.push((KeyRange::all(), memtable.range_tombstones()));
        }
    }
    for run in view.tree.levels.iter().flat_map(|level| &level.runs) {
        let files = RunFiles::new(store, run, &options.bounds);
        if files.len() == 0 {
            continue;
        }
        // Most runs have none, and are not searched file by file.
        for file in files.files().iter().filter(|_| run.range_tombstones > 0) {
            if file.counts.range_tombstones > 0 {
                let source: TombstoneSource =
                    (file.bounds.clone(), file.table.open(&store.tables)?.range_tombstones().clone());
                options.tombstones.push(source);
            }
        }
        sources.push(ScanSource::Run(RunCursor::new(files)));
    }
    Ok(VisibleIter::new(MergeCursor::new(sources), options))
}

/// The files of a run that overlap a range, opened as a cursor reaches them.
pub(crate) struct RunFiles {
    store: Arc<Store>,
    run: Arc<Run>,
    part: Range<usize>,
}

impl RunFiles {
    fn new(store: &Arc<Store>, run: &Arc<Run>, bounds: &KeyRange) -> RunFiles {
        let first =
            run.files.partition_point(|f| f.bounds.end.as_ref().is_some_and(|end| *end <= bounds.start));
        let end = first + run.files[first..].partition_point(|f| bounds.is_before_end(&f.bounds.start));
        RunFiles { store: store.clone(), run: run.clone(), part: first..end }
    }

    fn files(&self) -> &[Arc<FileMeta>] {
        &self.run.files[self.part.clone()]
    }
}

impl OpenFile for RunFiles {
    type Cursor = TableCursor;

    fn open(&self, index: usize) -> Result<TableCursor> {
        let table = self.files()[index].table.open(&self.store.tables)?;
        Ok(table.cursor(CursorOptions::SCAN))
    }

    fn bounds(&self, index: usize) -> &KeyRange {
        &self.files()[index].bounds
    }

    fn len(&self) -> usize {
        self.part.len()
    }

    fn is_narrowed(&self, index: usize) -> bool {
        self.files()[index].is_narrowed()
    }
}
