//! Scans: the merged user view of the memtables and runs of one keyspace view, for iterators and cursors.
//!
//! The files of a run are opened one by one, when the scan reaches them. So a short scan in a run of many files costs
//! one search among the files. An enum dispatches to the cursors of memtables and runs, so a step to the next entry
//! needs no virtual call.

use crate::base::cursor::{Cursor, Hidden};
use crate::base::error::{Error, Result};
use crate::base::slice::Slice;
use crate::keyspace::View;
use crate::memtable::MemCursor;
use crate::read::{MergeCursor, OpenFile, RunCursor, TombstoneSource, VisibleIter, VisibleOptions};
use crate::store::Store;
use crate::table::{CursorOptions, TableCursor};
use crate::version::{FileMeta, Tree};
use drumlin_env::sync::Arc;
use drumlin_types::{KeyRange, Kind, Seq};
use std::ops::Range;

/// User view of a keyspace, as of one snapshot.
pub(crate) type StoreView = VisibleIter<MergeCursor<ScanSource>>;

/// Cursor over one memtable or one run.
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
    fn seek_over(&mut self, key: &[u8], seq: Seq, hidden: &Hidden<'_>) -> Result<()> {
        of_source!(self, cursor => cursor.seek_over(key, seq, hidden))
    }
    fn skip(&mut self, hidden: &Hidden<'_>) -> Result<usize> {
        of_source!(self, cursor => cursor.skip(hidden))
    }
    fn skip_back(&mut self, hidden: &Hidden<'_>) -> Result<usize> {
        of_source!(self, cursor => cursor.skip_back(hidden))
    }
}

/// Scan that has not started: the view that it reads, and its options.
pub(crate) struct Scan {
    pub(crate) live: Arc<LiveScan>,
    pub(crate) view: Arc<View>,
    pub(crate) options: VisibleOptions,
    /// Reason why the scan cannot start. If there is none, the view is pinned and stays readable, even after the store
    /// is closed or the keyspace is dropped.
    pub(crate) refused: Option<Error>,
}

impl Scan {
    /// Creates a user view of all sources that may hold keys of the bounds. Each call returns a view of the same
    /// snapshot.
    pub(crate) fn open(&self) -> Result<StoreView> {
        match &self.refused {
            Some(error) => Err(error.clone()),
            None => {
                let mut options = self.options.clone();
                let sources = ScanSources::of_memtables(&self.view, &mut options);
                sources.open(&self.live, options)
            }
        }
    }
}

/// A live iterator or cursor, and what it reads. It is counted, so that close can report the number of them.
///
/// All cursors of a scan share it: one reference to store and tree for a scan, instead of one for each run, since many
/// threads contend for these counts.
pub(crate) struct LiveScan {
    pub(crate) store: Arc<Store>,
    /// Tree that the scan reads.
    pub(crate) tree: Arc<Tree>,
}

impl LiveScan {
    /// Counts a scan of `tree` that begins. The caller then checks that the store is open.
    pub(crate) fn new(store: &Arc<Store>, tree: &Arc<Tree>) -> Arc<LiveScan> {
        store.counts.scan_begins();
        Arc::new(LiveScan { store: store.clone(), tree: tree.clone() })
    }
}

impl Drop for LiveScan {
    fn drop(&mut self) {
        self.store.counts.scan_ends();
    }
}

/// Sources of a scan.
pub(crate) struct ScanSources(Vec<ScanSource>);

impl ScanSources {
    /// Returns cursors over the memtables of `view`, and adds their range tombstones to `options`. Opens no table, so
    /// the caller may be pinned.
    pub(crate) fn of_memtables(view: &View, options: &mut VisibleOptions) -> ScanSources {
        let mut sources = Vec::with_capacity(1 + view.sealed.len() + view.tree.runs());
        for memtable in view.memtables().filter(|m| !m.is_empty()) {
            sources.push(ScanSource::Memtable(memtable.cursor()));
            if memtable.has_range_tombstones() {
                options.tombstones.push((KeyRange::all(), memtable.range_tombstones()));
            }
        }
        ScanSources(sources)
    }

    /// Creates a user view of these memtables and of the tree of `live`, which is the one of the same view.
    pub(crate) fn open(mut self, live: &Arc<LiveScan>, mut options: VisibleOptions) -> Result<StoreView> {
        for (level, runs) in live.tree.levels.iter().map(|level| &level.runs).enumerate() {
            for (index, run) in runs.iter().enumerate() {
                let files = RunFiles::new(live, (level, index), &options.bounds);
                if files.len() == 0 {
                    continue;
                }
                // Most runs have no range tombstones: their files are not searched for them.
                for file in files.files().iter().filter(|_| run.range_tombstones > 0) {
                    if file.counts.range_tombstones > 0 {
                        let table = file.table.open(&live.store.files.tables)?;
                        let source: TombstoneSource = (file.bounds.clone(), table.range_tombstones().clone());
                        options.tombstones.push(source);
                    }
                }
                self.0.push(ScanSource::Run(RunCursor::new(files)));
            }
        }
        Ok(VisibleIter::new(MergeCursor::new(self.0), options))
    }
}

/// Files of a run that overlap a range. Each is opened when a cursor reaches it.
pub(crate) struct RunFiles {
    live: Arc<LiveScan>,
    /// Level of the run in the tree of `live`, and its index there.
    run: (usize, usize),
    part: Range<usize>,
}

impl RunFiles {
    fn new(live: &Arc<LiveScan>, run: (usize, usize), bounds: &KeyRange) -> RunFiles {
        let files = &live.tree.levels[run.0].runs[run.1].files;
        let first = files.partition_point(|f| f.bounds.end.as_ref().is_some_and(|end| *end <= bounds.start));
        let end = first + files[first..].partition_point(|f| bounds.is_before_end(&f.bounds.start));
        RunFiles { live: live.clone(), run, part: first..end }
    }

    fn files(&self) -> &[Arc<FileMeta>] {
        &self.live.tree.levels[self.run.0].runs[self.run.1].files[self.part.clone()]
    }
}

impl OpenFile for RunFiles {
    type Cursor = TableCursor;

    fn open(&self, index: usize) -> Result<TableCursor> {
        let store = &self.live.store;
        let table = self.files()[index].table.open(&store.files.tables)?;
        Ok(table.cursor(CursorOptions::scan(store.sizes.scan_readahead)))
    }

    fn bounds(&self, index: usize) -> &KeyRange {
        &self.files()[index].bounds
    }

    fn len(&self) -> usize {
        self.part.len()
    }

    fn max_seq(&self, index: usize) -> Seq {
        self.files()[index].max_seq
    }

    fn is_narrowed(&self, index: usize) -> bool {
        self.files()[index].is_narrowed()
    }
}
