//! Adapter of fjall: its defaults, with the resources and guarantees of all engines.
//!
//! Its default durability passes writes to the operating system, which is `buffered`. `none` uses the same, because
//! fjall has no mode without a journal. It has no direct I/O and is skipped in runs that need it. It reports few
//! statistics, so most counters are `null`.

use drumlin_bench::engine::{
    Compression, Counters, Direction, Durability, Engine, EngineConfig, EngineKind, Io, Result, Visit,
};
use fjall::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// fjall as an engine kind.
pub struct Fjall;

struct Open {
    db: Database,
    keys: Keyspace,
    options: BTreeMap<String, String>,
    /// Time without background work at the end of the last wait.
    quiet: Mutex<Duration>,
}

fn text(error: fjall::Error) -> String {
    error.to_string()
}

/// Interval between two checks for background work.
const LOOK: Duration = Duration::from_millis(50);
/// Number of consecutive checks without work after which the store counts as idle: two seconds.
const QUIET_LOOKS: u32 = 40;

impl EngineKind for Fjall {
    fn name(&self) -> &'static str {
        "fjall"
    }

    fn lacks(&self, config: &EngineConfig) -> Option<String> {
        (config.io == Io::Direct).then(|| "fjall has no direct I/O".to_owned())
    }

    fn open(&self, dir: &Path, config: &EngineConfig) -> Result<Box<dyn Engine>> {
        // The memory is that of the block cache, as with RocksDB. Memtables and pinned filters come on top.
        let cache = config.memory_bytes;
        let builder = Database::builder(dir).cache_size(cache).worker_threads(1 + config.merges as usize);
        let db = builder.open().map_err(text)?;
        let compression = match config.compression {
            Compression::None => CompressionType::None,
            _ => CompressionType::Lz4,
        };
        let filter = match config.filter_bits > 0.0 {
            true => FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(config.filter_bits as f32)),
            false => FilterPolicyEntry::None,
        };
        let options = || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(config.memtable_bytes)
                .data_block_size_policy(BlockSizePolicy::all(config.block_bytes as u32))
                .data_block_compression_policy(CompressionPolicy::all(compression))
                .filter_policy(FilterPolicy::all(filter))
        };
        let keys = db.keyspace("bench", options).map_err(text)?;
        let options = BTreeMap::from([
            ("cache_size".to_owned(), db.cache_capacity().to_string()),
            ("max_memtable_size".to_owned(), config.memtable_bytes.to_string()),
            ("block_size".to_owned(), config.block_bytes.to_string()),
            ("filter_bits".to_owned(), config.filter_bits.to_string()),
            ("compression".to_owned(), compression.to_string()),
        ]);
        Ok(Box::new(Open { db, keys, options, quiet: Mutex::default() }))
    }
}

impl Open {
    fn persist(&self, durability: Durability) -> Result<()> {
        match durability {
            Durability::Sync => self.db.persist(PersistMode::SyncData).map_err(text),
            Durability::None | Durability::Buffered => Ok(()),
        }
    }
}

/// Passes up to `limit` of `entries` to `visit`.
fn give(entries: impl Iterator<Item = fjall::Guard>, limit: usize, visit: Visit<'_>) -> Result<usize> {
    let mut given = 0;
    for entry in entries.take(limit) {
        let (key, value) = entry.into_inner().map_err(text)?;
        visit(&key, &value);
        given += 1;
    }
    Ok(given)
}

impl Engine for Open {
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        self.keys.insert(key, value).map_err(text)?;
        self.persist(durability)
    }

    fn batch(&self, entries: &[(&[u8], &[u8])], durability: Durability) -> Result<()> {
        let mut batch = self.db.batch();
        entries.iter().for_each(|(key, value)| batch.insert(&self.keys, *key, *value));
        batch.commit().map_err(text)?;
        self.persist(durability)
    }

    fn delete(&self, key: &[u8], durability: Durability) -> Result<()> {
        self.keys.remove(key).map_err(text)?;
        self.persist(durability)
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.keys.get(key).map_err(text)?;
        if let Some(value) = &value {
            visit(value);
        }
        Ok(value.is_some())
    }

    fn multi_get(&self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        for (position, key) in keys.iter().enumerate() {
            let value = self.keys.get(key).map_err(text)?;
            visit(position, value.as_deref());
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
        match (direction, from) {
            (Direction::Forward, Some(from)) => give(self.keys.range(from..), limit, visit),
            (Direction::Forward, None) => give(self.keys.iter(), limit, visit),
            (Direction::Back, Some(from)) => give(self.keys.range(..=from).rev(), limit, visit),
            (Direction::Back, None) => give(self.keys.iter().rev(), limit, visit),
        }
    }

    fn flush(&self) -> Result<()> {
        self.keys.rotate_memtable_and_wait().map_err(text)
    }

    fn wait_idle(&self) -> Result<()> {
        let mut quiet = 0;
        let mut done = self.db.compactions_completed();
        let mut busy_until = Instant::now();
        while quiet < QUIET_LOOKS {
            std::thread::sleep(LOOK);
            let busy = self.db.outstanding_flushes() > 0 || self.db.active_compactions() > 0;
            let now = self.db.compactions_completed();
            quiet += 1;
            if busy || now != done {
                (quiet, busy_until) = (0, Instant::now());
            }
            done = now;
        }
        if let Ok(mut quiet) = self.quiet.lock() {
            *quiet = busy_until.elapsed();
        }
        Ok(())
    }

    fn wait_without_work(&self) -> Duration {
        self.quiet.lock().map_or(Duration::ZERO, |quiet| *quiet)
    }

    fn compact(&self) -> Result<()> {
        self.keys.major_compact().map_err(text)
    }

    fn counters(&self) -> Counters {
        Counters { merges: Some(self.db.compactions_completed() as u64), ..Counters::default() }
    }

    fn options(&self) -> BTreeMap<String, String> {
        self.options.clone()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
