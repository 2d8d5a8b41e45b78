//! Table cache: a bounded number of open tables, which hold a bounded number of bytes, opened on first use.
//!
//! Each table handle (`version/pins.rs`) holds a cached pointer. While the table is open, the pointer leads to it, so a
//! pinned lookup (`base/epoch.rs`) takes one load and no lock. Pointers are set and cleared under the lock of the map.
//!
//! Above the limit on their number, the cache closes the least recently used table. When open tables hold more than
//! half of the memory for blocks and tables, it closes the least recently used until they hold a sixteenth less than
//! that. It checks both limits when it opens a table. A pinned reader keeps a closed table, and its file handle.
//!
//! When the process has run out of file handles, closing tables helps only a reader that is not pinned. A pinned lookup
//! then fails and is done again without a pin. The clock for least recent use ticks only when a table is opened, so
//! that uses of open tables rarely write to shared memory. Two threads that request the same closed table may both open
//! it; the cache keeps one of the two.

use super::block::BlockFile;
use super::block_cache::BlockCache;
use super::reader::Table;
use super::table_file_name;
use crate::base::epoch::{EpochPtr, Epochs, Pin};
use crate::base::error::{Error, ErrorKind, Result};
use drumlin_env::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use drumlin_env::sync::{Arc, RwLock};
use drumlin_env::{Env, FileKind};
use drumlin_types::TableId;
use std::collections::HashMap;
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// Minimum number of tables kept open after the process ran out of file handles, or whatever memory they hold. Without
/// it, each lookup could open the table that the previous one closed.
const LEAST: usize = 16;
/// Open tables hold at most one part in this many of the memory for blocks and tables, unless that is fewer than
/// `LEAST` tables or readers keep closed ones.
const BYTES_SHARE: usize = 2;
/// Above that limit, tables are closed until they hold one part in this many less than it. Finding the least recently
/// used takes time in proportion to all that are open, so it must be rare.
const CLOSED_SHARE: usize = 16;
/// Number of attempts to open a table while no file handle is left.
const ATTEMPTS: usize = 64;
/// Number of times that a thread yields to readers that hold back file handles.
const YIELDS: usize = 1000;
/// The limit grows by one table after this many openings, because a shortage of file handles may be temporary.
const REGROWTH: u64 = 64;

struct CachedTable {
    table: Arc<Table>,
    /// Tick of the cache's clock at the last use.
    used: AtomicU64,
}

impl CachedTable {
    fn used(&self, tick: u64) {
        // Avoids most stores: all readers of the table share this cache line.
        if self.used.load(Ordering::Relaxed) != tick {
            self.used.store(tick, Ordering::Relaxed);
        }
    }
}

/// Cached pointer that leads to a table while it is open. Each table has one, kept beside its number.
#[derive(Clone)]
pub(crate) struct TablePointer(Arc<EpochPtr<CachedTable>>);

impl TablePointer {
    /// Creates a pointer for readers that pin `epochs`.
    pub(crate) fn new(epochs: &Epochs) -> TablePointer {
        TablePointer(Arc::new(EpochPtr::new(None, epochs)))
    }

    /// Returns the table if it is open. This does not count as a use of it.
    #[inline]
    pub(crate) fn peek<'p>(&'p self, pin: &'p Pin<'_>) -> Option<&'p Table> {
        self.0.load(pin).map(|open| &*open.table)
    }
}

/// Open table in use.
pub(crate) enum OpenTable<'p> {
    /// Borrowed through its cached pointer.
    Borrowed(&'p Arc<Table>),
    Owned(Arc<Table>),
}

impl Deref for OpenTable<'_> {
    type Target = Arc<Table>;
    #[inline]
    fn deref(&self) -> &Arc<Table> {
        match self {
            OpenTable::Borrowed(table) => table,
            OpenTable::Owned(table) => table,
        }
    }
}

struct KeptTable {
    open: Arc<CachedTable>,
    pointer: TablePointer,
}

impl KeptTable {
    /// Makes `pointer` lead to the table. If another pointer led to it, clears that one: a table has one pointer.
    fn move_to(&mut self, pointer: &TablePointer, epochs: &Epochs) -> Arc<Table> {
        if !Arc::ptr_eq(&self.pointer.0, &pointer.0) {
            self.pointer.0.store(None, epochs);
            self.pointer = pointer.clone();
        }
        pointer.0.store(Some(Arc::clone(&self.open)), epochs);
        Arc::clone(&self.open.table)
    }

    fn close(self, epochs: &Epochs) {
        self.pointer.0.store(None, epochs);
    }
}

/// The open tables.
#[derive(Default)]
struct Open {
    tables: HashMap<TableId, KeptTable>,
    /// Bytes that they hold.
    bytes: usize,
}

impl Open {
    fn close(&mut self, id: TableId, epochs: &Epochs) {
        if let Some(kept) = self.tables.remove(&id) {
            self.bytes -= kept.open.table.held_bytes();
            kept.close(epochs);
        }
    }

    /// Returns the tables, those that were used longest ago first.
    fn by_use(&self) -> Vec<TableId> {
        let used = |kept: &KeptTable| kept.open.used.load(Ordering::Relaxed);
        let mut ids: Vec<(u64, TableId)> = self.tables.iter().map(|(id, kept)| (used(kept), *id)).collect();
        ids.sort_unstable();
        ids.into_iter().map(|(_, id)| id).collect()
    }
}

/// Cache of open tables.
pub(crate) struct TableCache {
    env: Env,
    dir: PathBuf,
    blocks: Arc<BlockCache>,
    /// The store's seed for filter hashes.
    seed: u64,
    open: RwLock<Open>,
    /// Current limit on open tables; below `most` after the process ran out of file handles.
    limit: AtomicUsize,
    most: usize,
    /// Whether tables are read with direct I/O, bypassing the page cache.
    direct: bool,
    /// Whether the cache no longer closes tables.
    keeps_all: AtomicBool,
    tick: AtomicU64,
}

impl TableCache {
    /// Creates a cache for the tables in `dir` that keeps at most `limit` of them open, but at least one.
    pub(crate) fn new(env: &Env, dir: &Path, blocks: Arc<BlockCache>, seed: u64, limit: usize) -> TableCache {
        TableCache {
            env: env.clone(),
            dir: dir.to_owned(),
            blocks,
            seed,
            open: RwLock::default(),
            limit: AtomicUsize::new(limit.max(1)),
            most: limit.max(1),
            direct: false,
            keeps_all: AtomicBool::new(false),
            tick: AtomicU64::new(0),
        }
    }

    /// Returns the cache with direct I/O for tables enabled or disabled.
    pub(crate) fn reading(self, direct: bool) -> TableCache {
        TableCache { direct, ..self }
    }

    #[cfg(test)]
    /// Returns the block cache of the tables.
    pub(crate) fn blocks(&self) -> &Arc<BlockCache> {
        &self.blocks
    }

    fn epochs(&self) -> &Epochs {
        self.blocks.epochs()
    }

    /// Returns the path of the file of table `id`.
    pub(crate) fn path(&self, id: TableId) -> PathBuf {
        self.dir.join(table_file_name(id))
    }

    /// Returns table `id`, whose file is `file_len` bytes long and whose cached pointer is `pointer`. Opens it if
    /// needed. Fails with [`ErrorKind::TooManyFiles`] if no file handle is left: the caller then tries again without a
    /// pin, by [`open`](TableCache::open).
    #[inline]
    pub(crate) fn get<'p>(
        &self,
        id: TableId,
        file_len: u64,
        pointer: &'p TablePointer,
        pin: &'p Pin<'_>,
    ) -> Result<OpenTable<'p>> {
        if let Some(open) = pointer.0.load(pin) {
            open.used(self.tick.load(Ordering::Relaxed));
            return Ok(OpenTable::Borrowed(&open.table));
        }
        self.try_open(id, file_len, pointer).map(OpenTable::Owned)
    }

    /// Returns table `id` like `get`, for a caller that is not pinned. Closes tables if no file handle is left.
    pub(crate) fn open(&self, id: TableId, file_len: u64, pointer: &TablePointer) -> Result<Arc<Table>> {
        let pin = self.epochs().pin();
        if let Some(open) = pointer.0.load(&pin) {
            open.used(self.tick.load(Ordering::Relaxed));
            return Ok(Arc::clone(&open.table));
        }
        drop(pin);
        let mut opened = self.try_open(id, file_len, pointer);
        for _ in 0..ATTEMPTS {
            match &opened {
                Err(error) if error.kind() == ErrorKind::TooManyFiles => {
                    // If there is no table to close, other lookups may be about to release theirs.
                    if !self.relieve(error) {
                        drumlin_env::yield_now();
                    }
                    opened = self.try_open(id, file_len, pointer);
                }
                _ => break,
            }
        }
        opened
    }

    /// Closes half of the tables and lowers the limit if `error` reports too many open files. Then waits a while for
    /// readers that are pinned, since they hold back the handles of closed tables. Returns `false` for any other error,
    /// or if no handle can have become free. The caller must not be pinned.
    #[cold]
    pub(crate) fn relieve(&self, error: &Error) -> bool {
        if error.kind() != ErrorKind::TooManyFiles || self.keeps_all.load(Ordering::Acquire) {
            return false;
        }
        let was_held_back = self.epochs().holds_back();
        let mut open = self.open.write();
        let had_tables = !open.tables.is_empty();
        if had_tables && !was_held_back {
            let keep = open.tables.len() / 2;
            self.limit.store(keep.clamp(LEAST.min(self.most), self.most), Ordering::Relaxed);
            self.shrink_to(&mut open, keep);
        }
        drop(open);
        for _ in 0..YIELDS {
            self.epochs().collect();
            if !self.epochs().holds_back() {
                break;
            }
            drumlin_env::yield_now();
        }
        had_tables || was_held_back
    }

    #[cold]
    fn try_open(&self, id: TableId, file_len: u64, pointer: &TablePointer) -> Result<Arc<Table>> {
        if let Some(kept) = self.open.write().tables.get_mut(&id) {
            return Ok(kept.move_to(pointer, self.epochs()));
        }
        // Opened outside the lock, so that readers of other tables do not wait for this file.
        let blocks = Arc::clone(&self.blocks);
        let path = self.path(id);
        let opened = match self.direct {
            true => self.env.fs().open_direct(&path, FileKind::Table),
            false => self.env.fs().open(&path, FileKind::Table),
        };
        let file = opened.map_err(|e| Error::io(&path, "cannot open table", e))?;
        let table = Arc::new(Table::over(BlockFile { id, file }, file_len, blocks, self.seed)?);
        let mut open = self.open.write();
        // Tables used from now on count as used later than all before.
        let tick = self.tick.fetch_add(1, Ordering::Relaxed) + 1;
        if tick.is_multiple_of(REGROWTH) && self.limit.load(Ordering::Relaxed) < self.most {
            self.limit.fetch_add(1, Ordering::Relaxed);
        }
        let used = AtomicU64::new(tick);
        let Open { tables, bytes } = &mut *open;
        let kept = tables.entry(id).or_insert_with(|| {
            *bytes += table.held_bytes();
            KeptTable { open: Arc::new(CachedTable { table, used }), pointer: pointer.clone() }
        });
        let table = kept.move_to(pointer, self.epochs());
        self.shrink(&mut open);
        self.shrink_bytes(&mut open);
        Ok(table)
    }

    /// Closes a table whose file is obsolete, and drops its blocks.
    pub(crate) fn remove(&self, id: TableId) {
        self.open.write().close(id, self.epochs());
        self.blocks.forget_table(id);
        self.blocks.fit();
    }

    #[cfg(test)]
    /// Number of open tables.
    pub(crate) fn open_tables(&self) -> usize {
        self.open.read().tables.len()
    }

    #[cfg(test)]
    /// Changes the limit on open tables.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.limit.store(limit.max(1), Ordering::Relaxed);
        self.shrink(&mut self.open.write());
    }

    #[cfg(test)]
    /// Bytes that open tables hold.
    pub(crate) fn open_bytes(&self) -> usize {
        self.open.read().bytes
    }

    fn shrink(&self, open: &mut Open) {
        self.shrink_to(open, self.limit.load(Ordering::Relaxed));
    }

    /// Closes tables if they hold too many bytes.
    fn shrink_bytes(&self, open: &mut Open) {
        let most = self.blocks.memory() / BYTES_SHARE;
        if open.bytes <= most || self.keeps_all.load(Ordering::Acquire) {
            return;
        }
        for id in open.by_use() {
            if open.bytes <= most - most / CLOSED_SHARE || open.tables.len() <= LEAST {
                return;
            }
            open.close(id, self.epochs());
        }
    }

    /// Stops closing tables. Their files may be deleted, so a closed table could not be opened again.
    pub(crate) fn keep_all(&self) {
        self.keeps_all.store(true, Ordering::Release);
    }

    fn shrink_to(&self, open: &mut Open, keep: usize) {
        if self.keeps_all.load(Ordering::Acquire) {
            return;
        }
        match open.tables.len().saturating_sub(keep) {
            0 => {}
            1 => {
                let used = |kept: &KeptTable| kept.open.used.load(Ordering::Relaxed);
                let oldest = open.tables.iter().min_by_key(|(_, kept)| used(kept)).map(|(id, _)| *id);
                oldest.into_iter().for_each(|id| open.close(id, self.epochs()));
            }
            surplus => {
                open.by_use().into_iter().take(surplus).for_each(|id| open.close(id, self.epochs()));
            }
        }
    }
}
