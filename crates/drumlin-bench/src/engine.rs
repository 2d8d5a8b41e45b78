//! What the harness asks of a key-value engine, and what it is told.
//!
//! [`Engine`] is an open store and [`EngineKind`] makes one. An adapter is one file that turns these calls into the
//! engine's own and adds nothing: no caching, no batching, no retries. Reads hand out borrowed bytes, so that no side
//! pays for a copy that the other does not make.
//!
//! [`Counters`] holds what an engine says about itself since it was opened. What it cannot give is `None` and becomes
//! `null` in the report, never 0.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What went wrong, in words for a person. The first failure ends the run.
pub type Result<T> = std::result::Result<T, String>;

/// What a write survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Nothing until it is flushed: no log.
    None,
    /// The end of the process.
    #[default]
    Buffered,
    /// Power loss.
    Sync,
}

/// Compression of table blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// As they are.
    #[default]
    None,
    /// LZ4.
    Lz4,
    /// Zstandard.
    Zstd,
}

/// How tables are read, and how far the engine lets it be chosen, written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Io {
    /// Through the page cache of the operating system.
    #[default]
    Buffered,
    /// Past it: a block that the engine does not keep is read from the device.
    Direct,
}

/// Which way an iterator goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// To larger keys.
    Forward,
    /// To smaller keys.
    Back,
}

/// Resources and promises, equal for all engines that are compared.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct EngineConfig {
    /// Block cache, memtables, filters and indexes together.
    pub memory_bytes: u64,
    /// Size at which a memtable is sealed.
    pub memtable_bytes: u64,
    /// Size of the files that merges write.
    pub file_bytes: u64,
    /// Size of a data block before compression.
    pub block_bytes: u64,
    /// Bits per key of filters.
    pub filter_bits: f64,
    /// Compression of blocks.
    pub compression: Compression,
    /// What a write survives unless the phase says otherwise.
    pub durability: Durability,
    /// How tables are read.
    pub io: Io,
    /// Merges at the same time, besides one flush.
    pub merges: u32,
    /// Microseconds that each request of flushes and merges takes more, where the engine can be slowed down.
    pub latency_us: u64,
    /// The policy, where the engine offers a choice.
    pub policy: Option<String>,
    /// Options of the engine by its own names, over all of the above.
    pub set: Vec<(String, String)>,
    /// Keep the files in memory, for runs that only prove that the harness works.
    pub in_memory: bool,
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

/// Waits of writers for one reason.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Stall {
    /// How many.
    pub count: u64,
    /// How long in all.
    pub seconds: f64,
}

/// What an engine says about itself: sums since it was opened, and gauges where marked.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Counters {
    /// Bytes of tables that flushes wrote.
    pub flush_bytes: Option<u64>,
    /// Bytes of tables that merges wrote.
    pub merge_bytes: Option<u64>,
    /// Bytes rewritten to reclaim space from separated values.
    pub gc_bytes: Option<u64>,
    /// Bytes of log records.
    pub log_bytes: Option<u64>,
    /// Bytes of the manifest.
    pub manifest_bytes: Option<u64>,
    /// Bytes that reads of the program took from files.
    pub read_user_bytes: Option<u64>,
    /// Bytes that merges took from files.
    pub read_merge_bytes: Option<u64>,
    /// Calls that made files durable.
    pub fsyncs: Option<u64>,
    /// Waits of writers by reason; `None` when unknown.
    pub stalls: Option<BTreeMap<String, Stall>>,
    /// Gauge: the longest wait of a writer so far, milliseconds.
    pub stall_longest_ms: Option<f64>,
    /// Gauge: bytes of the largest merge output so far.
    pub merge_largest_bytes: Option<u64>,
    /// Lookups of filters.
    pub filter_probes: Option<u64>,
    /// Those that said no.
    pub filter_negatives: Option<u64>,
    /// Those that said yes of a table without the key.
    pub filter_false_positives: Option<u64>,
    /// Gauge: bytes of filters.
    pub filter_bytes: Option<u64>,
    /// Gauge: entries in tables, for the bits per key that filters really have.
    pub table_entries: Option<u64>,
    /// Block reads by lookups that gave the version that was returned.
    pub blocks_necessary: Option<u64>,
    /// Block reads by lookups of tables without the key.
    pub blocks_unnecessary: Option<u64>,
    /// Tables that lookups went into.
    pub lookup_files: Option<u64>,
    /// Blocks found in the block cache.
    pub cache_hits: Option<u64>,
    /// Blocks that were not.
    pub cache_misses: Option<u64>,
    /// Merges.
    pub merges: Option<u64>,
    /// Gauge: most merges at a time so far.
    pub merges_most_parallel: Option<u64>,
    /// Seconds with merges into two or more levels at once.
    pub merges_cross_level_s: Option<f64>,
    /// Files that changed level without being read.
    pub moves: Option<u64>,
    /// Entries that merges read.
    pub merge_entries: Option<u64>,
    /// Decisions carried out.
    pub decisions: Option<u64>,
    /// Decisions that were refused.
    pub decisions_rejected: Option<u64>,
    /// Seconds that decisions took, and the longest in microseconds since the engine was opened.
    pub decide: Option<(f64, f64)>,
    /// Times that the policy was asked.
    pub asked: Option<u64>,
    /// Seconds that searches of the policy took.
    pub search_s: Option<f64>,
    /// Gauge: runs by level, the newest first.
    pub runs_per_level: Option<Vec<u64>>,
    /// Gauge: bytes of all files, where the harness cannot see them.
    pub disk_bytes: Option<u64>,
}

/// One decision of a policy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Decision {
    /// Seconds since the engine was opened, by its own clock.
    pub t: f64,
    /// What was decided.
    pub what: String,
    /// Why.
    pub reason: String,
}

/// Receives an entry that a read found.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]);

/// An iterator that is kept and positioned again and again.
pub trait Seeker {
    /// Goes to the first key not below `from` and gives it and what follows, at most `limit` entries.
    fn seek(&mut self, from: &[u8], limit: usize, visit: Visit<'_>) -> Result<usize>;
}

/// An open store.
pub trait Engine: Send + Sync {
    /// Writes `value` under `key`.
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()>;
    /// Writes all entries at once, or none.
    fn batch(&self, entries: &[(&[u8], &[u8])], durability: Durability) -> Result<()>;
    /// Removes `key`.
    fn delete(&self, key: &[u8], durability: Durability) -> Result<()>;
    /// Gives the value under `key` to `visit`; says whether there is one.
    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool>;
    /// Gives the value under each of `keys`, or `None`, with its position.
    fn multi_get(&self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()>;
    /// Makes an iterator at `from`, or at the end that `direction` starts from, and gives at most `limit` entries
    /// with their values. Forward, `from` is the smallest key; back, it is the largest.
    fn range(
        &self,
        from: Option<&[u8]>,
        direction: Direction,
        limit: usize,
        visit: Visit<'_>,
    ) -> Result<usize>;
    /// An iterator to be reused over the present state, if the engine has such.
    fn seeker(&self) -> Option<Box<dyn Seeker + '_>> {
        None
    }
    /// Writes what is in memory to tables and waits for it.
    fn flush(&self) -> Result<()>;
    /// Waits until nothing is left to flush or merge.
    fn wait_idle(&self) -> Result<()>;
    /// Merges everything and waits for it.
    fn compact(&self) -> Result<()>;
    /// What it says about itself.
    fn counters(&self) -> Counters;
    /// The latest decisions, oldest first; empty when the engine tells none.
    fn decisions(&self) -> Vec<Decision> {
        Vec::new()
    }
    /// Every option in effect, read back from the engine.
    fn options(&self) -> BTreeMap<String, String>;
    /// Closes it.
    fn close(self: Box<Self>) -> Result<()>;
}

/// An engine that can be opened.
pub trait EngineKind: Sync {
    /// Its name on the command line and in reports.
    fn name(&self) -> &'static str;
    /// Why it cannot do what `config` asks for, if it cannot. What needs that is left out with this reason.
    fn lacks(&self, _config: &EngineConfig) -> Option<String> {
        None
    }
    /// Opens the store in `dir`, making it if need be.
    fn open(&self, dir: &Path, config: &EngineConfig) -> Result<Box<dyn Engine>>;
    /// Refuses to measure when the build is no fair one. Runs once, in an empty directory.
    fn check_build(&self, _dir: &Path) -> Result<()> {
        Ok(())
    }
}

/// The engines that a program offers.
pub type Engines = [&'static dyn EngineKind];

/// The engine that `name` means: a name, or a name and a policy with a colon between.
pub fn find(engines: &Engines, name: &str) -> Result<(&'static dyn EngineKind, Option<String>)> {
    let (kind, policy) = match name.split_once(':') {
        Some((kind, policy)) => (kind, Some(policy.to_owned())),
        None => (name, None),
    };
    let known = || engines.iter().map(|engine| engine.name()).collect::<Vec<_>>().join(", ");
    let found = engines.iter().find(|engine| engine.name() == kind);
    let found = found.ok_or_else(|| format!("no engine is called {kind}; there are {}", known()))?;
    Ok((*found, policy))
}

/// Bytes that the files under `dir` take on the disk, by allocated blocks.
pub fn allocated_bytes(dir: &Path) -> u64 {
    let mut pending = vec![PathBuf::from(dir)];
    let mut bytes = 0;
    while let Some(dir) = pending.pop() {
        // Files come and go while this runs; what has gone takes no space.
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
