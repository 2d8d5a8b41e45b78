//! Adapter of LMDB: a memory-mapped B-tree, as a reference for reads from memory.
//!
//! It is opened with `MDB_NOSYNC`: a commit survives the end of the process (`buffered`), since its pages are in the
//! page cache. A `sync` write commits and then syncs the file. That is one sync where LMDB's own durable commit makes
//! two, which favours LMDB. Its memory is the page cache and has no limit, so phases with little memory or direct I/O
//! are skipped. All counters are `null`, because LMDB reports none.

use drumlin_bench::engine::{
    Counters, Demands, Direction, Durability, Engine, EngineConfig, EngineKind, Io, Result, Seeker, Visit,
};
use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, RoRange, RoTxn, RwTxn, WithTls};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;

/// LMDB as an engine kind.
pub struct Lmdb;

/// Address space of the map, which bounds the size of a store.
const MAP_BYTES: usize = 1 << 38;
/// Maximum number of concurrent read transactions.
const READERS: u32 = 256;
/// Maximum key size of LMDB in bytes, as compiled by default.
const LONGEST_KEY: usize = 511;
/// A phase with less memory than this compares block caches, which LMDB does not have.
const LEAST_MEMORY: u64 = 64 << 20;

type Map = Database<Bytes, Bytes>;

struct Open {
    env: Env<WithTls>,
    map: Map,
    options: BTreeMap<String, String>,
}

fn text(error: heed::Error) -> String {
    error.to_string()
}

impl EngineKind for Lmdb {
    fn name(&self) -> &'static str {
        "lmdb"
    }

    fn lacks(&self, config: &EngineConfig) -> Option<String> {
        let has_limit = config.memory_bytes < LEAST_MEMORY;
        let io = (config.io == Io::Direct).then(|| "LMDB has no direct I/O".to_owned());
        io.or_else(|| has_limit.then(|| "LMDB cannot limit its memory".to_owned()))
    }

    fn lacks_for(&self, demands: Demands) -> Option<String> {
        let Demands { key_bytes, threads, .. } = demands;
        let key = (key_bytes > LONGEST_KEY)
            .then(|| format!("LMDB has keys of at most {LONGEST_KEY} bytes, not {key_bytes}"));
        key.or_else(|| {
            (threads > READERS).then(|| format!("LMDB is opened for {READERS} readers, not {threads}"))
        })
    }

    fn open(&self, dir: &Path, _config: &EngineConfig) -> Result<Box<dyn Engine>> {
        std::fs::create_dir_all(dir).map_err(|error| error.to_string())?;
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES).max_readers(READERS);
        // SAFETY: with `MDB_NOSYNC`, power loss may damage the file. A run never opens a file from before a power loss.
        unsafe { options.flags(EnvFlags::NO_SYNC) };
        // SAFETY: the directory is this run's own, so no other program changes the mapped file.
        let env = unsafe { options.open(dir) }.map_err(text)?;
        let mut transaction = env.write_txn().map_err(text)?;
        let map = env.create_database(&mut transaction, None).map_err(text)?;
        transaction.commit().map_err(text)?;
        let flags = env.flags().map_err(text)?.map_or_else(String::new, |flags| format!("{flags:?}"));
        let options = BTreeMap::from([
            ("flags".to_owned(), flags),
            ("map_size".to_owned(), env.info().map_size.to_string()),
            ("max_readers".to_owned(), env.info().maximum_number_of_readers.to_string()),
        ]);
        Ok(Box::new(Open { env, map, options }))
    }
}

impl Open {
    /// Applies `change` in one commit.
    fn write(
        &self,
        durability: Durability,
        change: impl FnOnce(&Map, &mut RwTxn<'_>) -> heed::Result<()>,
    ) -> Result<()> {
        let mut transaction = self.env.write_txn().map_err(text)?;
        change(&self.map, &mut transaction).map_err(text)?;
        transaction.commit().map_err(text)?;
        match durability {
            Durability::Sync => self.env.force_sync().map_err(text),
            Durability::None | Durability::Buffered => Ok(()),
        }
    }
}

/// Returns the keys from `from` on.
fn after(from: &[u8]) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Bound::Included(from), Bound::Unbounded)
}

fn give<'a>(
    entries: impl Iterator<Item = heed::Result<(&'a [u8], &'a [u8])>>,
    limit: usize,
    visit: Visit<'_>,
) -> Result<usize> {
    let mut given = 0;
    for entry in entries.take(limit) {
        let (key, value) = entry.map_err(text)?;
        visit(key, value);
        given += 1;
    }
    Ok(given)
}

/// A read transaction, which sees the state at its start.
struct Kept<'a> {
    map: Map,
    transaction: RoTxn<'a, WithTls>,
}

impl Seeker for Kept<'_> {
    fn seek(&mut self, from: &[u8], limit: usize, visit: Visit<'_>) -> Result<usize> {
        let bounds = after(from);
        let range: RoRange<'_, Bytes, Bytes> = self.map.range(&self.transaction, &bounds).map_err(text)?;
        give(range, limit, visit)
    }
}

impl Engine for Open {
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        self.write(durability, |map, transaction| map.put(transaction, key, value))
    }

    fn batch(&self, entries: &[(&[u8], &[u8])], durability: Durability) -> Result<()> {
        self.write(durability, |map, transaction| {
            entries.iter().try_for_each(|(key, value)| map.put(transaction, key, value))
        })
    }

    fn delete(&self, key: &[u8], durability: Durability) -> Result<()> {
        self.write(durability, |map, transaction| map.delete(transaction, key).map(drop))
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let transaction = self.env.read_txn().map_err(text)?;
        let value = self.map.get(&transaction, key).map_err(text)?;
        if let Some(value) = value {
            visit(value);
        }
        Ok(value.is_some())
    }

    fn multi_get(&self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let transaction = self.env.read_txn().map_err(text)?;
        for (position, key) in keys.iter().enumerate() {
            visit(position, self.map.get(&transaction, key).map_err(text)?);
        }
        Ok(())
    }

    fn range(
        &self,
        from: Option<&[u8]>,
        direction: Direction,
        limit: usize,
        visit: Visit<'_>,
    ) -> Result<usize> {
        let transaction = self.env.read_txn().map_err(text)?;
        match (direction, from) {
            (Direction::Forward, None) => give(self.map.iter(&transaction).map_err(text)?, limit, visit),
            (Direction::Back, None) => give(self.map.rev_iter(&transaction).map_err(text)?, limit, visit),
            (Direction::Forward, Some(from)) => {
                give(self.map.range(&transaction, &after(from)).map_err(text)?, limit, visit)
            }
            (Direction::Back, Some(from)) => {
                let bounds = (Bound::Unbounded, Bound::Included(from));
                give(self.map.rev_range(&transaction, &bounds).map_err(text)?, limit, visit)
            }
        }
    }

    fn seeker(&self) -> Option<Box<dyn Seeker + '_>> {
        let transaction = self.env.read_txn().ok()?;
        Some(Box::new(Kept { map: self.map, transaction }))
    }

    fn flush(&self) -> Result<()> {
        self.env.force_sync().map_err(text)
    }

    fn wait_idle(&self) -> Result<()> {
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        // LMDB compacts only into a copy.
        Ok(())
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn options(&self) -> BTreeMap<String, String> {
        self.options.clone()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
