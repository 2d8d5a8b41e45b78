//! The interface between the harness and a key-value engine.
//!
//! [`Engine`] is an open store, and [`EngineKind`] opens one. An adapter is one file that translates these calls into
//! the engine's own and adds nothing: no caching, no batching, no retries. Reads pass borrowed bytes, so that no
//! engine pays for a copy that another does not make.
//!
//! [`Counters`] holds the engine's own statistics since the open. A statistic that the engine does not provide is
//! `None` and becomes `null` in the report, never 0.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Result of harness calls; the error is a message for people. The first failure ends the run.
pub type Result<T> = std::result::Result<T, String>;

/// Durability of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Lost if the process ends before a flush: no log is written.
    None,
    /// Survives the end of the process.
    #[default]
    Buffered,
    /// Survives power loss.
    Sync,
}

/// Compression of table blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// LZ4.
    Lz4,
    /// Zstandard.
    Zstd,
}

/// I/O mode of table reads; applies to writes as far as the engine offers a choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Io {
    /// Buffered I/O through the page cache of the operating system.
    #[default]
    Buffered,
    /// Direct I/O: a block that is not in the engine's cache is read from the device.
    Direct,
}

/// Direction of an iterator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Towards larger keys.
    Forward,
    /// Towards smaller keys.
    Back,
}

/// Resources and guarantees, equal for all compared engines.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct EngineConfig {
    /// Memory in bytes for block cache, memtables, filters and indexes together.
    pub memory_bytes: u64,
    /// Memtable size in bytes at which it is sealed.
    pub memtable_bytes: u64,
    /// Size in bytes of the files that compactions write.
    pub file_bytes: u64,
    /// Size in bytes of a data block before compression.
    pub block_bytes: u64,
    /// Filter bits per key.
    pub filter_bits: f64,
    /// Compression of table blocks.
    pub compression: Compression,
    /// Durability of writes, unless a phase sets its own.
    pub durability: Durability,
    /// I/O mode of table reads.
    pub io: Io,
    /// Maximum number of concurrent compactions, in addition to one flush.
    pub merges: u32,
    /// Extra latency in microseconds of each I/O request of flushes and compactions, if the engine supports this.
    pub latency_us: u64,
    /// Compaction policy, if the engine offers a choice.
    pub policy: Option<String>,
    /// Engine options by name; they override all settings above.
    pub set: Vec<(String, String)>,
    /// Keep files in memory; for runs that only test the harness.
    pub in_memory: bool,
}

impl EngineConfig {
    /// Returns the bytes of memtables that Drumlin flushes together: its option `flush_bytes`, by default an eighth of
    /// the memory, at most 64 MiB. Other engines get write buffers of this size.
    pub fn flush_bytes(&self) -> u64 {
        let own = self.set.iter().find(|(name, _)| name == "flush_bytes");
        let own = own.and_then(|(_, value)| crate::sizes::parse_bytes(value).ok()).filter(|n| *n > 0);
        own.unwrap_or((self.memory_bytes / 8).min(64 << 20)).max(self.memtable_bytes)
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        EngineConfig {
            memory_bytes: 1 << 30,
            memtable_bytes: 64 << 20,
            file_bytes: 64 << 20,
            block_bytes: 4 << 10,
            filter_bits: 10.0,
            compression: Compression::None,
            durability: Durability::Buffered,
            io: Io::Buffered,
            merges: 1,
            latency_us: 0,
            policy: None,
            set: Vec::new(),
            in_memory: false,
        }
    }
}

/// Write stalls for one reason.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Stall {
    /// Number of stalls.
    pub count: u64,
    /// Total time of the stalls in seconds.
    pub seconds: f64,
}

/// Statistics of an engine: totals since the open, and gauges where marked.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Counters {
    /// Table bytes written by flushes.
    pub flush_bytes: Option<u64>,
    /// Table bytes written by compactions.
    pub merge_bytes: Option<u64>,
    /// Bytes rewritten by garbage collection of separated values.
    pub gc_bytes: Option<u64>,
    /// Bytes of log records.
    pub log_bytes: Option<u64>,
    /// Bytes written to the manifest.
    pub manifest_bytes: Option<u64>,
    /// Bytes read from files by the program's reads.
    pub read_user_bytes: Option<u64>,
    /// Bytes read from files by compactions.
    pub read_merge_bytes: Option<u64>,
    /// Number of sync calls on files.
    pub fsyncs: Option<u64>,
    /// Write stalls by reason; `None` if unknown.
    pub stalls: Option<BTreeMap<String, Stall>>,
    /// Gauge: longest write stall so far, in milliseconds.
    pub stall_longest_ms: Option<f64>,
    /// Gauge: bytes of the largest compaction output so far.
    pub merge_largest_bytes: Option<u64>,
    /// Number of filter probes.
    pub filter_probes: Option<u64>,
    /// Number of negative filter probes.
    pub filter_negatives: Option<u64>,
    /// Number of positive filter probes for tables without the key.
    pub filter_false_positives: Option<u64>,
    /// Gauge: bytes of filters.
    pub filter_bytes: Option<u64>,
    /// Gauge: entries in tables, from which the actual filter bits per key are computed.
    pub table_entries: Option<u64>,
    /// Blocks with the returned version that lookups read.
    pub blocks_necessary: Option<u64>,
    /// Blocks that lookups read in tables without the key.
    pub blocks_unnecessary: Option<u64>,
    /// Tables searched by lookups.
    pub lookup_files: Option<u64>,
    /// Block cache hits.
    pub cache_hits: Option<u64>,
    /// Block cache misses.
    pub cache_misses: Option<u64>,
    /// Number of compactions.
    pub merges: Option<u64>,
    /// Gauge: maximum number of concurrent compactions so far.
    pub merges_most_parallel: Option<u64>,
    /// Seconds during which compactions into two or more levels ran concurrently.
    pub merges_cross_level_s: Option<f64>,
    /// Number of trivial moves (files that changed level without being read).
    pub moves: Option<u64>,
    /// Entries read by compactions.
    pub merge_entries: Option<u64>,
    /// Number of policy decisions that were executed.
    pub decisions: Option<u64>,
    /// Number of policy decisions that were rejected.
    pub decisions_rejected: Option<u64>,
    /// Total time of policy decisions in seconds, and the longest one since the open in microseconds.
    pub decide: Option<(f64, f64)>,
    /// Number of policy calls.
    pub policy_calls: Option<u64>,
    /// Total time of the policy's searches in seconds.
    pub search_s: Option<f64>,
    /// Gauge: runs per level, newest level first.
    pub runs_per_level: Option<Vec<u64>>,
    /// Gauge: bytes of all files, for stores whose files the harness cannot see.
    pub disk_bytes: Option<u64>,
}

/// A decision of a compaction policy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Decision {
    /// Seconds since the open, by the engine's clock.
    pub t: f64,
    /// Description of the decision.
    pub what: String,
    /// Reason for the decision.
    pub reason: String,
}

/// Callback that receives the entries that a read finds.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]);

/// An iterator that is positioned repeatedly.
pub trait Seeker {
    /// Seeks to the first key not below `from` and passes at most `limit` entries from there to `visit`.
    fn seek(&mut self, from: &[u8], limit: usize, visit: Visit<'_>) -> Result<usize>;
}

/// An open store.
pub trait Engine: Send + Sync {
    /// Writes `value` under `key`.
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()>;
    /// Writes all entries atomically.
    fn batch(&self, entries: &[(&[u8], &[u8])], durability: Durability) -> Result<()>;
    /// Deletes `key`.
    fn delete(&self, key: &[u8], durability: Durability) -> Result<()>;
    /// Deletes all keys in `[_from, _to)`.
    fn delete_range(&self, _from: &[u8], _to: &[u8], _durability: Durability) -> Result<()> {
        Err("the engine has no range deletes".to_owned())
    }
    /// Adds the operand to the number under `key` without reading it. Both are eight bytes in little-endian order.
    fn merge(&self, _key: &[u8], _operand: &[u8], _durability: Durability) -> Result<()> {
        Err("it has no merge operators".to_owned())
    }
    /// Passes the value of `key` to `visit`. Returns whether the key exists.
    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool>;
    /// Passes the value of each of `keys`, or `None`, to `visit` with the key's position.
    fn multi_get(&self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()>;
    /// Creates an iterator and passes at most `limit` entries to `visit`. The iterator starts at `from`, or at the
    /// end of the key space where `direction` starts. `from` is the smallest key of a forward range and the largest
    /// of a backward range.
    fn range(
        &self,
        from: Option<&[u8]>,
        direction: Direction,
        limit: usize,
        visit: Visit<'_>,
    ) -> Result<usize>;
    /// Returns a reusable iterator over the current state, if the engine has one.
    fn seeker(&self) -> Option<Box<dyn Seeker + '_>> {
        None
    }
    /// Flushes the memtables and waits for the flushes to finish.
    fn flush(&self) -> Result<()>;
    /// Waits until no flush or compaction is pending.
    fn wait_idle(&self) -> Result<()>;
    /// Returns the idle time at the end of the last `wait_idle`, which does not count as settling. An engine that
    /// does not report pending work is polled until it has been idle for a while.
    fn wait_without_work(&self) -> Duration {
        Duration::ZERO
    }
    /// Compacts the whole store and waits for it to finish.
    fn compact(&self) -> Result<()>;
    /// Returns the engine's statistics.
    fn counters(&self) -> Counters;
    /// Returns the latest policy decisions, oldest first; empty if the engine does not report them.
    fn decisions(&self) -> Vec<Decision> {
        Vec::new()
    }
    /// Returns all options in effect, read back from the engine.
    fn options(&self) -> BTreeMap<String, String>;
    /// Closes the store.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Requirements of a phase that do not depend on the engine's settings.
#[derive(Clone, Copy, Debug)]
pub struct Demands {
    /// Bytes of the longest key.
    pub key_bytes: usize,
    /// Number of client threads.
    pub threads: u32,
    /// Durability of its writes, if it writes.
    pub writes: Option<Durability>,
}

/// A kind of engine, which opens stores.
pub trait EngineKind: Sync {
    /// Returns the name used on the command line and in reports.
    fn name(&self) -> &'static str;
    /// Returns why the engine does not support `config`, if so. Workloads and phases that need it are skipped with
    /// this reason.
    fn lacks(&self, _config: &EngineConfig) -> Option<String> {
        None
    }
    /// Returns why the engine cannot run a phase with these demands, if so. It is skipped with this reason.
    fn lacks_for(&self, _demands: Demands) -> Option<String> {
        None
    }
    /// Returns why the figures of a phase with these demands are not comparable with those of other engines, if so.
    /// The phase still runs, because later phases read what it writes. The report omits it and states this reason.
    fn uncompared(&self, _demands: Demands) -> Option<String> {
        None
    }
    /// Opens the store in `dir`; creates it if it does not exist.
    fn open(&self, dir: &Path, config: &EngineConfig) -> Result<Box<dyn Engine>>;
    /// Checks that the build of the engine is a fair baseline. Runs once, in an empty directory.
    fn check_build(&self, _dir: &Path) -> Result<()> {
        Ok(())
    }
}

/// Engine kinds of a program.
pub type Engines = [&'static dyn EngineKind];

/// Returns the engine and the policy that `name` means: an engine name, optionally followed by a colon and a policy.
pub fn find(engines: &Engines, name: &str) -> Result<(&'static dyn EngineKind, Option<String>)> {
    let (kind, policy) = match name.split_once(':') {
        Some((kind, policy)) => (kind, Some(policy.to_owned())),
        None => (name, None),
    };
    let known = || engines.iter().map(|engine| engine.name()).collect::<Vec<_>>().join(", ");
    let found = engines.iter().find(|engine| engine.name() == kind);
    let found = found.ok_or_else(|| format!("unknown engine {kind}; available: {}", known()))?;
    Ok((*found, policy))
}

/// Returns the disk space that the files under `dir` occupy, from their allocated blocks.
pub fn allocated_bytes(dir: &Path) -> u64 {
    let mut pending = vec![PathBuf::from(dir)];
    let mut bytes = 0;
    while let Some(dir) = pending.pop() {
        // Files are created and deleted during this walk; a deleted file occupies no space.
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            let Ok(stat) = rustix::fs::lstat(&path) else { continue };
            match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
                rustix::fs::FileType::Directory => pending.push(path),
                _ => bytes += stat.st_blocks as u64 * 512,
            }
        }
    }
    bytes
}
