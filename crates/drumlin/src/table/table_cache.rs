//! The open tables of a store: opened when first asked for, a bounded number kept open.
//!
//! When one too many is open, the one asked for longest ago is let go; whoever still uses it keeps it alive. Two
//! threads that ask for the same closed table may both open it; one of the two results is kept.

use super::block_cache::BlockCache;
use super::reader::Table;
use super::table_file_name;
use crate::error::Result;
use drumlin_env::Env;
use drumlin_env::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use drumlin_env::sync::{Arc, RwLock};
use drumlin_types::TableId;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

struct OpenTable {
    table: Arc<Table>,
    /// The cache's tick when it was last asked for.
    used: AtomicU64,
}

/// Opens tables and keeps them open.
pub(crate) struct TableCache {
    env: Env,
    dir: PathBuf,
    blocks: Arc<BlockCache>,
    /// The store's seed for filter hashes.
    seed: u64,
    tables: RwLock<HashMap<TableId, OpenTable>>,
    limit: AtomicUsize,
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
            tick: AtomicU64::new(0),
        }
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

    /// Table `id`, whose file is `file_len` long.
    pub(crate) fn get(&self, id: TableId, file_len: u64) -> Result<Arc<Table>> {
        let tick = self.tick.fetch_add(1, Ordering::Relaxed);
        if let Some(open) = self.tables.read().get(&id) {
            open.used.store(tick, Ordering::Relaxed);
            return Ok(Arc::clone(&open.table));
        }
        // Opened outside the lock: readers of other tables should not wait for this file.
        let blocks = Arc::clone(&self.blocks);
        let table = Arc::new(Table::open(&self.env, &self.path(id), id, file_len, blocks, self.seed)?);
        let mut tables = self.tables.write();
        let open = tables.entry(id).or_insert_with(|| OpenTable { table, used: AtomicU64::new(tick) });
        let table = Arc::clone(&open.table);
        self.shrink(&mut tables);
        Ok(table)
    }

    /// Lets go of a table whose file is obsolete, and of its blocks.
    pub(crate) fn remove(&self, id: TableId) {
        self.tables.write().remove(&id);
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

    fn shrink(&self, tables: &mut HashMap<TableId, OpenTable>) {
        while tables.len() > self.limit.load(Ordering::Relaxed) {
            let oldest = tables.iter().min_by_key(|(_, open)| open.used.load(Ordering::Relaxed));
            let Some(oldest) = oldest.map(|(id, _)| *id) else { return };
            tables.remove(&oldest);
        }
    }
}
