//! Options of RocksDB, in eight forms. A comparison counts against the best of them.
//!
//! - `rocksdb`: as shipped, with index and filter blocks on the heap and an LRU cache.
//! - `rocksdb-tuned`: what its guides recommend for speed, with metadata on the heap.
//! - `rocksdb-pinned`: the same, with metadata pinned in the block cache and write buffers charged to it, so that all
//!   of it fits into the given memory.
//! - `rocksdb-universal`: `rocksdb-tuned` with universal compaction.
//! - `rocksdb-deferred`: `rocksdb-tuned` that compacts level 0 from 16 files or the bytes of 16 write buffers on, and
//!   slows writers from 32: for loads that may leave many runs behind.
//! - `rocksdb-warm`: `rocksdb-tuned` that puts the blocks of flushes and compactions into the block cache
//!   (`prepopulate_block_cache=kFlushAndCompaction`): for stores that fit into the cache, where RocksDB's header
//!   recommends it.
//! - `rocksdb-blob`: `rocksdb-tuned` with values of a KiB and more in blob files, and their garbage collection as
//!   shipped: compactions move values out of the oldest quarter of the blob files, and read 2 MiB of them at a time.
//!   Blobs share the block cache.
//! - `rocksdb-blob-forced`: the same, and compactions are forced from half garbage in those files on.
//!
//! Equal for all engines: memory, filter bits, compression, memtable, file and block size, number of background jobs.
//! All forms but `rocksdb-pinned` may take more than the given memory, by index and filter blocks and by write buffers;
//! reports show the resident memory. Where Drumlin flushes several small memtables together, the write buffers are as
//! large as such a flush. The tuned forms may have as many bytes of write buffers as Drumlin has of memtables before
//! either stops writers.
//!
//! Left at their defaults: triggers of slowdowns and stops by level 0 but in `rocksdb-deferred`,
//! `enable_pipelined_write`, `async_wal_precreate`, which RocksDB turns off beside recycled logs, and
//! `optimize_filters_for_hits`, since one store serves hits and absent keys.
//!
//! With direct I/O, all forms read past the page cache, and all but the first also flush and compact past it;
//! otherwise all I/O goes through the page cache. Options without a setter in the crate are set as text.

use crate::rocksdb_log::Log;
use drumlin_bench::engine::{Compression, Durability, EngineConfig, Io, Result};
use rocksdb::statistics::StatsLevel;
use rocksdb::{
    BlockBasedOptions, Cache, DBCompactionStyle, DBCompressionType, DataBlockIndexType, InfoLogger, LogLevel,
    MergeOperands, Options, WriteBufferManager,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// RocksDB as an engine kind.
#[derive(Clone, Copy)]
pub struct RocksDb {
    /// Name of the engine.
    pub name: &'static str,
    /// Form of its options.
    pub form: Form,
}

/// Form of the options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// As shipped.
    Default,
    /// Tuned, with metadata on the heap.
    Tuned,
    /// Tuned, with metadata pinned in the block cache.
    Pinned,
    /// Tuned, with universal compaction.
    Universal,
    /// Tuned, with compactions of level 0 deferred: by the number of its files, and by their bytes, since dynamic level
    /// bytes also compact a level 0 as large as `max_bytes_for_level_base`.
    Deferred,
    /// Tuned, with the blocks of flushes and compactions put into the block cache.
    Warm,
    /// Tuned, with large values in blob files, and read-ahead in them for compactions.
    Blob,
    /// The same, with forced garbage collection.
    BlobForced,
}

/// Smallest value in a blob file.
const BLOB_BYTES: u64 = 1 << 10;
/// Size of a blob file: that of Drumlin's value files, which are collected as a whole.
const BLOB_FILE_BYTES: u64 = 64 << 20;
/// Bytes that a compaction reads of a blob file at a time: as much as of a table. By default it reads blob by blob.
const BLOB_READAHEAD: u64 = 2 << 20;
/// Share of garbage in the oldest blob files that forces a compaction, where it is not off.
const BLOB_FORCE: f64 = 0.5;
/// Number of level 0 files that start a compaction, by default.
const LEVEL0_TRIGGER: u64 = 4;
/// Numbers of level 0 files that start a compaction, slow writers and stop them, where compactions are deferred.
const DEFERRED: [u64; 3] = [16, 32, 48];
/// Fraction of the memory that Drumlin's memtables may take.
const MEMTABLES: (u64, u64) = (3, 8);
/// Most write buffers of a tuned store.
const MOST_BUFFERS: u64 = 64;
/// Bytes after which a tuned store starts the write-back of a file.
const BYTES_PER_SYNC: u64 = 1 << 20;

impl RocksDb {
    fn is_tuned(&self) -> bool {
        self.form != Form::Default
    }

    pub(crate) fn has_blobs(&self) -> bool {
        matches!(self.form, Form::Blob | Form::BlobForced)
    }

    /// Returns the number of level 0 files that starts a compaction.
    fn level0_trigger(&self) -> u64 {
        if self.form == Form::Deferred { DEFERRED[0] } else { LEVEL0_TRIGGER }
    }

    fn table(&self, config: &EngineConfig, cache: &Cache) -> BlockBasedOptions {
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(cache);
        table.set_block_size(config.block_bytes as usize);
        table.set_cache_index_and_filter_blocks(self.form == Form::Pinned);
        if config.filter_bits > 0.0 {
            table.set_bloom_filter(config.filter_bits, false);
        }
        if self.is_tuned() {
            table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
            table.set_optimize_filters_for_memory(true);
        }
        table
    }

    /// Returns the table options of a tuned store that have no setters. All of them use interpolation search in the
    /// index where keys are evenly spaced. `Pinned` pins all metadata, and `Warm` puts written blocks into the cache.
    /// Keys and values stay together in data blocks, as by default: `separate_key_value_in_data_block` slows seeks
    /// and scans of values of 100 bytes by 5 to 12 %. It may suit larger values, but the settings do not contain
    /// their size.
    fn table_text(&self) -> String {
        let more = match self.form {
            Form::Pinned => {
                "metadata_cache_options={top_level_index_pinning=kAll;partition_pinning=kAll;\
                 unpartitioned_pinning=kAll;};"
            }
            Form::Warm => "prepopulate_block_cache=kFlushAndCompaction;",
            _ => "",
        };
        format!(
            "block_based_table_factory={{index_block_search_type=kAuto;uniform_cv_threshold=0.2;\
             separate_key_value_in_data_block=false;{more}}}"
        )
    }

    /// Returns the options of a store that sends its log lines to `log`.
    pub fn options(&self, config: &EngineConfig, log: &Arc<Log>) -> Result<Options> {
        let memory = config.memory_bytes as usize;
        let cache = match self.is_tuned() {
            true => Cache::new_hyper_clock_cache(memory, 0),
            false => Cache::new_lru_cache(memory),
        };
        let mut options = Options::default();
        options.set_block_based_table_factory(&self.table(config, &cache));
        if self.is_tuned() {
            options =
                options.get_options_from_string(&self.table_text()).map_err(rocksdb::Error::into_string)?;
            options.set_memtable_whole_key_filtering(true);
            options.set_memtable_prefix_bloom_ratio(0.1);
            options.set_max_write_buffer_number(write_buffers(config) as i32);
            options.set_recycle_log_file_num(recycled_logs(config));
            options.set_bytes_per_sync(BYTES_PER_SYNC);
            options.set_skip_stats_update_on_db_open(true);
            options.set_max_bytes_for_level_base(self.level0_trigger() * config.flush_bytes());
        }
        if self.form == Form::Universal {
            options.set_compaction_style(DBCompactionStyle::Universal);
        }
        if self.form == Form::Deferred {
            let [compact, slow, stop] = DEFERRED.map(|files| files as i32);
            options.set_level_zero_file_num_compaction_trigger(compact);
            options.set_level_zero_slowdown_writes_trigger(slow);
            options.set_level_zero_stop_writes_trigger(stop);
        }
        if self.has_blobs() {
            options.set_enable_blob_files(true);
            options.set_min_blob_size(BLOB_BYTES);
            options.set_blob_file_size(BLOB_FILE_BYTES);
            options.set_enable_blob_gc(true);
            options.set_blob_compaction_readahead_size(BLOB_READAHEAD);
            options.set_blob_cache(&cache);
        }
        if self.form == Form::BlobForced {
            options.set_blob_gc_force_threshold(BLOB_FORCE);
        }
        options.create_if_missing(true);
        options.set_merge_operator_associative("add-i64-le", add);
        options.set_write_buffer_size(config.flush_bytes() as usize);
        options.set_target_file_size_base(config.file_bytes);
        let direct = config.io == Io::Direct;
        options.set_use_direct_reads(direct);
        options.set_use_direct_io_for_flush_and_compaction(direct && self.is_tuned());
        options.set_max_background_jobs(1 + config.merges as i32);
        let compression = match config.compression {
            Compression::None => DBCompressionType::None,
            Compression::Lz4 => DBCompressionType::Lz4,
            Compression::Zstd => DBCompressionType::Zstd,
        };
        options.set_compression_type(compression);
        options.set_blob_compression_type(compression);
        if self.form == Form::Pinned {
            let buffers = WriteBufferManager::new_write_buffer_manager_with_cache(0, false, cache);
            options.set_write_buffer_manager(&buffers);
        }
        options.set_statistics_level(StatsLevel::DisableAll);
        let heard = log.clone();
        options.set_info_logger(InfoLogger::new_callback_logger(LogLevel::Info, move |_, line| {
            heard.line(line)
        }));
        Ok(options)
    }

    /// Returns the lines that the OPTIONS file of a store opened with `config` must have, besides others.
    pub fn expected(&self, config: &EngineConfig) -> Vec<(&'static str, String)> {
        let yes = |is: bool| is.to_string();
        let direct = config.io == Io::Direct;
        let mut lines = vec![
            ("block_size", config.block_bytes.to_string()),
            ("cache_index_and_filter_blocks", yes(self.form == Form::Pinned)),
            ("write_buffer_size", config.flush_bytes().to_string()),
            ("target_file_size_base", config.file_bytes.to_string()),
            ("max_background_jobs", (1 + config.merges).to_string()),
            ("use_direct_reads", yes(direct)),
            ("use_direct_io_for_flush_and_compaction", yes(direct && self.is_tuned())),
            ("level0_file_num_compaction_trigger", self.level0_trigger().to_string()),
        ];
        if self.form == Form::Deferred {
            lines.push(("level0_slowdown_writes_trigger", DEFERRED[1].to_string()));
            lines.push(("level0_stop_writes_trigger", DEFERRED[2].to_string()));
        }
        if self.has_blobs() {
            let force = if self.form == Form::BlobForced { BLOB_FORCE } else { 1.0 };
            lines.extend([
                ("enable_blob_files", yes(true)),
                ("min_blob_size", BLOB_BYTES.to_string()),
                ("blob_file_size", BLOB_FILE_BYTES.to_string()),
                ("enable_blob_garbage_collection", yes(true)),
                ("blob_compaction_readahead_size", BLOB_READAHEAD.to_string()),
                ("blob_garbage_collection_force_threshold", format!("{force:.6}")),
            ]);
        }
        if config.filter_bits > 0.0 {
            // The file does not contain the bits per key; a test measures them.
            lines.push(("filter_policy", "bloomfilter".to_owned()));
        }
        if self.is_tuned() {
            let style = if self.form == Form::Universal { "Universal" } else { "Level" };
            let prepopulated = if self.form == Form::Warm { "kFlushAndCompaction" } else { "kDisable" };
            lines.extend([
                ("data_block_index_type", "kDataBlockBinaryAndHash".to_owned()),
                ("prepopulate_block_cache", prepopulated.to_owned()),
                ("index_block_search_type", "kAuto".to_owned()),
                ("separate_key_value_in_data_block", yes(false)),
                ("optimize_filters_for_memory", yes(true)),
                ("memtable_whole_key_filtering", yes(true)),
                ("max_write_buffer_number", write_buffers(config).to_string()),
                ("recycle_log_file_num", recycled_logs(config).to_string()),
                ("skip_stats_update_on_db_open", yes(true)),
                ("bytes_per_sync", BYTES_PER_SYNC.to_string()),
                ("max_bytes_for_level_base", (self.level0_trigger() * config.flush_bytes()).to_string()),
                ("compaction_style", format!("kCompactionStyle{style}")),
            ]);
        }
        lines
    }

    /// Compares the OPTIONS file of the store in `dir` with what `config` asks for. The error names the first option
    /// that differs.
    pub fn check_options(&self, dir: &Path, config: &EngineConfig) -> Result<()> {
        let found = in_effect(dir);
        let differs = |(name, wanted): &(&str, String)| found.get(*name) != Some(wanted);
        self.expected(config).into_iter().find(differs).map_or(Ok(()), |(name, wanted)| {
            let found = found.get(name).map_or("nothing", String::as_str);
            Err(format!("its OPTIONS file says {found} for {name}, not {wanted}"))
        })
    }
}

/// Returns the number of write buffers that a tuned store may have before it stops writers: at least two, the default.
fn write_buffers(config: &EngineConfig) -> u64 {
    let bytes = config.memory_bytes / MEMTABLES.1 * MEMTABLES.0;
    (bytes / config.flush_bytes()).clamp(2, MOST_BUFFERS)
}

/// Returns the number of log files that a tuned store recycles. It is 0 for writes that bypass the log, because
/// RocksDB refuses those with recycled logs.
fn recycled_logs(config: &EngineConfig) -> usize {
    if config.durability == Durability::None { 0 } else { 4 }
}

/// Adds numbers of eight bytes, as Drumlin's merge operator does.
fn add(_key: &[u8], base: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let mut numbers = base.into_iter().chain(operands);
    let sum = numbers
        .try_fold(0i64, |sum, number| Some(sum.wrapping_add(i64::from_le_bytes(number.try_into().ok()?))))?;
    Some(sum.to_le_bytes().to_vec())
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
