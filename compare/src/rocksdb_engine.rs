//! RocksDB behind the trait: with defaults, and tuned.
//!
//! `rocksdb` has RocksDB's defaults and what equal resources ask for: one cache that is charged with index, filters and
//! write buffers, the same filter bits, compression, memtable, file and block size, and two background jobs.
//! `rocksdb-tuned` adds what its documentation offers for speed at the same resources. Options without a setter in the
//! crate go in as text. Data is read back from RocksDB's own OPTIONS file.

use crate::rocksdb_log::{Log, stalls};
use drumlin_bench::engine::{
    Compression, Counters, Direction, Durability, Engine, EngineConfig, EngineKind, Result, Seeker, Visit,
};
use rocksdb::statistics::StatsLevel;
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, DBRawIterator, DataBlockIndexType, FlushOptions, InfoLogger,
    LogLevel, Options, ReadOptions, WaitForCompactOptions, WriteBatch, WriteBufferManager, WriteOptions,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// RocksDB as a kind of engine.
pub struct RocksDb {
    /// Its name.
    pub name: &'static str,
    /// Whether it is tuned.
    pub tuned: bool,
}

/// Levels that it has by default.
const LEVELS: usize = 7;

struct Open {
    db: DB,
    dir: PathBuf,
    log: Arc<Log>,
    /// The defaults of this store's writes that last for each durability.
    writes: [WriteOptions; 3],
}

fn text(error: rocksdb::Error) -> String {
    error.into_string()
}

impl RocksDb {
    fn table(&self, config: &EngineConfig, cache: &Cache) -> BlockBasedOptions {
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(cache);
        table.set_block_size(config.block_bytes as usize);
        table.set_cache_index_and_filter_blocks(true);
        if config.filter_bits > 0.0 {
            table.set_bloom_filter(config.filter_bits, false);
        }
        if self.tuned {
            table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
            table.set_optimize_filters_for_memory(true);
            table.set_pin_l0_filter_and_index_blocks_in_cache(true);
            table.set_pin_top_level_index_and_filter(true);
        }
        table
    }

    fn options(&self, config: &EngineConfig, log: &Arc<Log>) -> Result<Options> {
        let memory = config.memory_bytes as usize;
        let cache = match self.tuned {
            true => Cache::new_hyper_clock_cache(memory, 0),
            false => Cache::new_lru_cache(memory),
        };
        let mut options = Options::default();
        options.set_block_based_table_factory(&self.table(config, &cache));
        if self.tuned {
            // No setters: a search of the index that interpolates where keys are even, and keys apart from values.
            let more = "block_based_table_factory={index_block_search_type=kAuto;uniform_cv_threshold=0.2;\
                        separate_key_value_in_data_block=true}";
            options = options.get_options_from_string(more).map_err(text)?;
            options.set_memtable_whole_key_filtering(true);
            options.set_memtable_prefix_bloom_ratio(0.1);
            options.set_recycle_log_file_num(4);
            options.set_use_direct_io_for_flush_and_compaction(true);
        }
        options.create_if_missing(true);
        options.set_write_buffer_size(config.memtable_bytes as usize);
        options.set_target_file_size_base(config.file_bytes);
        options.set_max_background_jobs(1 + config.merges as i32);
        let compression = match config.compression {
            Compression::None => DBCompressionType::None,
            Compression::Lz4 => DBCompressionType::Lz4,
            Compression::Zstd => DBCompressionType::Zstd,
        };
        options.set_compression_type(compression);
        let buffers = WriteBufferManager::new_write_buffer_manager_with_cache(0, false, cache);
        options.set_write_buffer_manager(&buffers);
        options.set_statistics_level(StatsLevel::DisableAll);
        let heard = log.clone();
        options.set_info_logger(InfoLogger::new_callback_logger(LogLevel::Info, move |_, line| heard.line(line)));
        Ok(options)
    }

    fn open_store(&self, dir: &Path, config: &EngineConfig) -> Result<Open> {
        let log = Arc::new(Log::default());
        let db = DB::open(&self.options(config, &log)?, dir).map_err(text)?;
        let writes = [Durability::None, Durability::Buffered, Durability::Sync].map(|durability| {
            let mut options = WriteOptions::default();
            options.disable_wal(durability == Durability::None);
            options.set_sync(durability == Durability::Sync);
            options
        });
        Ok(Open { db, dir: dir.to_owned(), log, writes })
    }
}

impl EngineKind for RocksDb {
    fn name(&self) -> &'static str {
        self.name
    }

    fn open(&self, dir: &Path, config: &EngineConfig) -> Result<Box<dyn Engine>> {
        Ok(Box::new(self.open_store(dir, config)?))
    }

    fn check_build(&self, dir: &Path) -> Result<()> {
        std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let open = self.open_store(dir, &EngineConfig::default())?;
        match open.log.build() {
            (true, true) => Ok(()),
            (false, _) => Err("its log does not report fast CRC32; build with target-cpu=native".to_owned()),
            (_, false) => Err("its log does not report jemalloc".to_owned()),
        }
    }
}

impl Open {
    fn write_options(&self, durability: Durability) -> &WriteOptions {
        &self.writes[durability as usize]
    }

    fn property(&self, name: &str) -> String {
        self.db.property_value(name).ok().flatten().unwrap_or_default()
    }
}

/// Gives up to `limit` entries from where `entries` stands.
fn give(entries: &mut DBRawIterator<'_>, direction: Direction, limit: usize, visit: Visit<'_>) -> Result<usize> {
    let mut given = 0;
    while given < limit
        && let Some((key, value)) = entries.item()
    {
        visit(key, value);
        given += 1;
        if given < limit {
            match direction {
                Direction::Forward => entries.next(),
                Direction::Back => entries.prev(),
            }
        }
    }
    entries.status().map_err(text)?;
    Ok(given)
}

struct Kept<'a>(DBRawIterator<'a>);

impl Seeker for Kept<'_> {
    fn seek(&mut self, from: &[u8], limit: usize, visit: Visit<'_>) -> Result<usize> {
        self.0.seek(from);
        give(&mut self.0, Direction::Forward, limit, visit)
    }
}

impl Engine for Open {
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        self.db.put_opt(key, value, self.write_options(durability)).map_err(text)
    }

    fn batch(&self, entries: &[(&[u8], &[u8])], durability: Durability) -> Result<()> {
        let mut batch = WriteBatch::default();
        entries.iter().for_each(|(key, value)| batch.put(key, value));
        self.db.write_opt(&batch, self.write_options(durability)).map_err(text)
    }

    fn delete(&self, key: &[u8], durability: Durability) -> Result<()> {
        self.db.delete_opt(key, self.write_options(durability)).map_err(text)
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.db.get_pinned(key).map_err(text)?;
        if let Some(value) = &value {
            visit(value);
        }
        Ok(value.is_some())
    }

    fn multi_get(&self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let cf = self.db.cf_handle("default").ok_or("no default column family")?;
        let values = self.db.batched_multi_get_cf(cf, keys, false);
        for (position, value) in values.into_iter().enumerate() {
            visit(position, value.map_err(text)?.as_deref());
        }
        Ok(())
    }

    fn range(&self, from: Option<&[u8]>, direction: Direction, limit: usize, visit: Visit<'_>) -> Result<usize> {
        let mut entries = self.db.raw_iterator_opt(ReadOptions::default());
        match (direction, from) {
            (Direction::Forward, Some(from)) => entries.seek(from),
            (Direction::Forward, None) => entries.seek_to_first(),
            (Direction::Back, Some(from)) => entries.seek_for_prev(from),
            (Direction::Back, None) => entries.seek_to_last(),
        }
        give(&mut entries, direction, limit, visit)
    }

    fn seeker(&self) -> Option<Box<dyn Seeker + '_>> {
        Some(Box::new(Kept(self.db.raw_iterator_opt(ReadOptions::default()))))
    }

    fn flush(&self) -> Result<()> {
        self.db.flush_opt(&FlushOptions::default()).map_err(text)
    }

    fn wait_idle(&self) -> Result<()> {
        self.db.wait_for_compact(&WaitForCompactOptions::default()).map_err(text)
    }

    fn compact(&self) -> Result<()> {
        self.db.compact_range(None::<&[u8]>, None::<&[u8]>);
        Ok(())
    }

    fn counters(&self) -> Counters {
        let files = |level| self.property(&format!("rocksdb.num-files-at-level{level}")).parse::<u64>();
        let counts: Option<Vec<u64>> = (0..LEVELS).map(|level| files(level).ok()).collect();
        // Below level 0 the files of a level are one run.
        let runs = |(level, files): (usize, u64)| if level == 0 { files } else { files.min(1) };
        Counters {
            runs_per_level: counts.map(|counts| counts.into_iter().enumerate().map(runs).collect()),
            stalls: stalls(&self.property("rocksdb.dbstats"), &self.property("rocksdb.cfstats-no-file-histogram")),
            ..self.log.counters()
        }
    }

    fn options(&self) -> BTreeMap<String, String> {
        let files = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let names = files.map(|file| file.path()).filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("OPTIONS-"))
        });
        let text = names.max().and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
        let pairs = text.lines().filter_map(|line| line.trim().split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.db.cancel_all_background_work(true);
        Ok(())
    }
}
