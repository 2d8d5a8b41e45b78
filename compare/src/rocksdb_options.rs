//! Options of RocksDB: defaults, or tuned.
//!
//! `rocksdb` uses RocksDB's defaults with equal resources. One cache is charged with index, filters and write
//! buffers. Filter bits, compression, memtable, file and block size, and the number of background jobs equal those of
//! the other engines. `rocksdb-tuned` adds options that its documentation recommends for speed at the same resources.
//! With direct I/O, both read past the page cache, and the tuned one also flushes and compacts past it; otherwise all
//! I/O goes through the page cache. Options without a setter in the crate are set as text.

use crate::rocksdb_log::Log;
use drumlin_bench::engine::{Compression, EngineConfig, Io, Result};
use rocksdb::statistics::StatsLevel;
use rocksdb::{
    BlockBasedOptions, Cache, DBCompressionType, DataBlockIndexType, InfoLogger, LogLevel, LruCacheOptions,
    MergeOperands, Options, WriteBufferManager,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// RocksDB as an engine kind.
pub struct RocksDb {
    /// Name of the engine.
    pub name: &'static str,
    /// Whether the options are tuned.
    pub tuned: bool,
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

    /// Returns the options of a store that sends its log lines to `log`.
    pub fn options(&self, config: &EngineConfig, log: &Arc<Log>) -> Result<Options> {
        let memory = config.memory_bytes as usize;
        let cache = match self.tuned {
            true => Cache::new_hyper_clock_cache(memory, 0),
            false => Cache::new_lru_cache_opts(&lru(memory)),
        };
        let mut options = Options::default();
        options.set_block_based_table_factory(&self.table(config, &cache));
        if self.tuned {
            // Options without setters: interpolation search in the index where keys are evenly spaced, and separate
            // storage of keys and values in data blocks.
            let more = "block_based_table_factory={index_block_search_type=kAuto;uniform_cv_threshold=0.2;\
                        separate_key_value_in_data_block=true}";
            options = options.get_options_from_string(more).map_err(rocksdb::Error::into_string)?;
            options.set_memtable_whole_key_filtering(true);
            options.set_memtable_prefix_bloom_ratio(0.1);
            options.set_recycle_log_file_num(4);
        }
        options.create_if_missing(true);
        options.set_merge_operator_associative("add-i64-le", add);
        options.set_write_buffer_size(config.memtable_bytes as usize);
        options.set_target_file_size_base(config.file_bytes);
        let direct = config.io == Io::Direct;
        options.set_use_direct_reads(direct);
        options.set_use_direct_io_for_flush_and_compaction(direct && self.tuned);
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
        options.set_info_logger(InfoLogger::new_callback_logger(LogLevel::Info, move |_, line| {
            heard.line(line)
        }));
        Ok(options)
    }
}

/// Adds numbers of eight bytes, as Drumlin's merge operator does.
fn add(_key: &[u8], base: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let mut numbers = base.into_iter().chain(operands);
    let sum = numbers
        .try_fold(0i64, |sum, number| Some(sum.wrapping_add(i64::from_le_bytes(number.try_into().ok()?))))?;
    Some(sum.to_le_bytes().to_vec())
}

/// Returns the default cache, with shards large enough for a filter.
///
/// RocksDB divides small caches into shards of half a megabyte. None of these can hold the filter of a 64 MiB file,
/// so every read would fetch the filter again. Drumlin's shards have at least 4 MiB, so these do too.
fn lru(memory: usize) -> LruCacheOptions {
    const LEAST_SHARD_BYTES: usize = 4 << 20;
    const MOST_SHARD_BITS: u32 = 6;
    let mut options = LruCacheOptions::default();
    options.set_capacity(memory);
    options.set_num_shard_bits((memory / LEAST_SHARD_BYTES).max(1).ilog2().min(MOST_SHARD_BITS) as i32);
    options
}

/// Returns the options in effect, from the newest OPTIONS file of the store in `dir`.
pub fn in_effect(dir: &Path) -> BTreeMap<String, String> {
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let names = files
        .map(|file| file.path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("OPTIONS-")));
    let text = names.max().and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
    let pairs = text.lines().filter_map(|line| line.trim().split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
