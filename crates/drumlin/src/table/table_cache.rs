//! The open tables of a store: opened when first asked for, a bounded number kept open.
//!
//! Each name of a table comes with a slot. While the table is open the slot leads to it, so that a lookup takes one load
//! and no lock. The slot is filled and emptied under the lock of the map.
//!
//! When one too many is open, one of those asked for longest ago is let go; whoever still uses it keeps it alive. Time
//! passes with every table that is opened, so that asking for an open one writes nothing that others write too. Two
//! threads that ask for the same closed table may both open it; one of the two results is kept.

use super::block::BlockFile;
use super::block_cache::BlockCache;
use super::reader::Table;
use super::table_file_name;
use crate::error::{Error, Result};
use arc_swap::{ArcSwapOption, Guard};
use drumlin_env::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use drumlin_env::sync::{Arc, RwLock};
use drumlin_env::{Env, FileKind};
use drumlin_types::TableId;
use std::collections::HashMap;
use std::ops::Deref;
use std::path::{Path, PathBuf};

struct Open {
    table: Arc<Table>,
    /// The cache's tick when it was last asked for.
    used: AtomicU64,
}

impl Open {
    fn used(&self, tick: u64) {
        // Seldom written: the line is shared by all that read the table.
        if self.used.load(Ordering::Relaxed) != tick {
            self.used.store(tick, Ordering::Relaxed);
        }
    }
}

/// Where a table is found while it is open. One for each table, kept beside its number.
#[derive(Clone, Default)]
pub(crate) struct TableSlot(Arc<ArcSwapOption<Open>>);

/// An open table, in use.
pub(crate) struct OpenTable(Guard<Option<Arc<Open>>>);

impl OpenTable {
    fn new(open: Arc<Open>) -> OpenTable {
        OpenTable(Guard::from_inner(Some(open)))
    }
}

impl Deref for OpenTable {
    type Target = Arc<Table>;
    fn deref(&self) -> &Arc<Table> {
        match &*self.0 {
            Some(open) => &open.table,
            None => unreachable!("made from full slots only"),
        }
    }
}

struct Kept {
    open: Arc<Open>,
    slot: TableSlot,
}

impl Kept {
    /// Makes `slot`, of which there should be one only, lead to the table.
    fn move_to(&mut self, slot: &TableSlot) -> Arc<Open> {
        if !Arc::ptr_eq(&self.slot.0, &slot.0) {
            self.slot.0.store(None);
            self.slot = slot.clone();
        }
        slot.0.store(Some(Arc::clone(&self.open)));
        Arc::clone(&self.open)
    }

    fn close(self) {
        self.slot.0.store(None);
    }
}

/// Opens tables and keeps them open.
pub(crate) struct TableCache {
    env: Env,
    dir: PathBuf,
    blocks: Arc<BlockCache>,
    /// The store's seed for filter hashes.
    seed: u64,
    tables: RwLock<HashMap<TableId, Kept>>,
    limit: AtomicUsize,
    /// Whether tables are read past the page cache.
    direct: bool,
    tick: AtomicU64,
}

impl TableCache {
    /// A cache for the tables in `dir` that keeps at most `limit` of them open, at least one.
    pub(crate) fn new(env: &Env, dir: &Path, blocks: Arc<BlockCache>, seed: u64, limit: usize) -> TableCache {
        TableCache {
            env: env.clone(),
            dir: dir.to_owned(),
            blocks,
            seed,
            tables: RwLock::new(HashMap::new()),
            limit: AtomicUsize::new(limit.max(1)),
            direct: false,
            tick: AtomicU64::new(0),
        }
    }

    /// The same cache, whose tables are read past the page cache if `direct` says so.
    pub(crate) fn reading(self, direct: bool) -> TableCache {
        TableCache { direct, ..self }
    }

    #[cfg(test)]
    /// The cache of blocks that its tables use.
    pub(crate) fn blocks(&self) -> &Arc<BlockCache> {
        &self.blocks
    }

    /// Where the file of table `id` is.
    pub(crate) fn path(&self, id: TableId) -> PathBuf {
        self.dir.join(table_file_name(id))
    }

    /// Table `id`, whose file is `file_len` long and whose slot is `slot`.
    #[inline]
    pub(crate) fn get(&self, id: TableId, file_len: u64, slot: &TableSlot) -> Result<OpenTable> {
        let guard = slot.0.load();
        if let Some(open) = &*guard {
            open.used(self.tick.load(Ordering::Relaxed));
            return Ok(OpenTable(guard));
        }
        self.open(id, file_len, slot).map(OpenTable::new)
    }

    #[cold]
    fn open(&self, id: TableId, file_len: u64, slot: &TableSlot) -> Result<Arc<Open>> {
        if let Some(kept) = self.tables.write().get_mut(&id) {
            return Ok(kept.move_to(slot));
        }
        // Opened outside the lock: readers of other tables should not wait for this file.
        let blocks = Arc::clone(&self.blocks);
        let path = self.path(id);
        let opened = match self.direct {
            true => self.env.fs().open_direct(&path, FileKind::Table),
            false => self.env.fs().open(&path, FileKind::Table),
        };
        let file = opened.map_err(|e| Error::io(&path, "cannot open table", e))?;
        let table = Arc::new(Table::over(BlockFile { id, file }, file_len, blocks, self.seed)?);
        let mut tables = self.tables.write();
        // Whoever is asked for from now on was asked for later than those before.
        let used = AtomicU64::new(self.tick.fetch_add(1, Ordering::Relaxed) + 1);
        let kept = tables
            .entry(id)
            .or_insert_with(|| Kept { open: Arc::new(Open { table, used }), slot: slot.clone() });
        let open = kept.move_to(slot);
        self.shrink(&mut tables);
        Ok(open)
    }

    /// Lets go of a table whose file is obsolete, and of its blocks.
    pub(crate) fn remove(&self, id: TableId) {
        if let Some(kept) = self.tables.write().remove(&id) {
            kept.close();
        }
        self.blocks.forget_table(id);
    }

    #[cfg(test)]
    /// Number of tables that are kept open.
    pub(crate) fn open_tables(&self) -> usize {
        self.tables.read().len()
    }

    #[cfg(test)]
    /// Changes how many tables are kept open.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.limit.store(limit.max(1), Ordering::Relaxed);
        self.shrink(&mut self.tables.write());
    }

    fn shrink(&self, tables: &mut HashMap<TableId, Kept>) {
        while tables.len() > self.limit.load(Ordering::Relaxed) {
            let oldest = tables.iter().min_by_key(|(_, kept)| kept.open.used.load(Ordering::Relaxed));
            let Some(oldest) = oldest.map(|(id, _)| *id) else { return };
            if let Some(kept) = tables.remove(&oldest) {
                kept.close();
            }
        }
    }
}
