//! Adapter of Drumlin to [`Engine`].

use crate::engine::{
    Compression, Counters, Decision, Direction, Durability, Engine, EngineConfig, EngineKind, Io, Result,
    Seeker, Stall, Visit,
};
use drumlin::env::{Env, MemEnv};
use drumlin::{AddI64, Batch, Db, Keyspace, LevelShape, RangeCursor};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Drumlin as an engine kind.
pub struct Drumlin;

/// Name of the keyspace that holds all entries.
const KEYSPACE: &str = "bench";
/// Seed of the simulated disk for in-memory runs.
const MEMORY_SEED: u64 = 1;

impl EngineKind for Drumlin {
    fn name(&self) -> &'static str {
        "drumlin"
    }

    fn open(&self, dir: &Path, config: &EngineConfig) -> Result<Box<dyn Engine>> {
        let memory = config.in_memory.then(|| MemEnv::threaded(MEMORY_SEED));
        let machine = || if config.latency_us > 0 { Env::slowed(config.latency_us) } else { Env::os() };
        let env = memory.as_ref().map_or_else(machine, MemEnv::env);
        open_in(env, memory, dir, config).map(|open| Box::new(open) as Box<dyn Engine>)
    }
}

/// An open Drumlin store.
pub(crate) struct Open {
    pub(crate) db: Db,
    pub(crate) keys: Keyspace,
    memory: Option<MemEnv>,
    /// Unix time of the open in microseconds; the decision log has Unix times.
    opened: u64,
}

impl Open {
    /// Returns the levels of the tree.
    pub(crate) fn levels(&self) -> Vec<LevelShape> {
        let tree = self.db.tree().into_iter().find(|tree| tree.name == KEYSPACE);
        tree.map(|tree| tree.levels).unwrap_or_default()
    }
}

fn text(error: drumlin::Error) -> String {
    error.to_string()
}

/// Options of the store and of the keyspace that `config` translates to.
type Settings = (Vec<(String, String)>, Vec<(String, String)>);

fn settings(config: &EngineConfig) -> Settings {
    let compression = match config.compression {
        Compression::None => "none",
        Compression::Lz4 => "lz4",
        Compression::Zstd => "zstd",
    };
    let reads = match config.io {
        Io::Buffered => "buffered",
        Io::Direct => "direct",
    };
    let mut store = vec![
        ("memory_budget".to_owned(), config.memory_bytes.to_string()),
        ("durability".to_owned(), promise(config.durability).name().to_owned()),
        ("compaction_slots".to_owned(), config.merges.to_string()),
        ("table_reads".to_owned(), reads.to_owned()),
    ];
    let mut keyspace = vec![
        ("compression".to_owned(), compression.to_owned()),
        ("filter_bits".to_owned(), config.filter_bits.to_string()),
        ("memtable_bytes".to_owned(), config.memtable_bytes.to_string()),
        ("file_bytes".to_owned(), config.file_bytes.to_string()),
        ("block_bytes".to_owned(), config.block_bytes.to_string()),
    ];
    if let Some(policy) = &config.policy {
        keyspace.push(("compaction".to_owned(), policy.clone()));
    }
    for (name, value) in &config.set {
        let of_store = drumlin::Options::defs().iter().any(|def| def.name == name);
        if of_store { &mut store } else { &mut keyspace }.push((name.clone(), value.clone()));
    }
    (store, keyspace)
}

/// Opens a store in `env`. `memory` is that environment if it is simulated.
pub(crate) fn open_in(env: Env, memory: Option<MemEnv>, dir: &Path, config: &EngineConfig) -> Result<Open> {
    let (store, keyspace) = settings(config);
    let opened = env.clock().unix_micros();
    let builder = Db::builder(dir).env(env);
    let mut builder = builder.merge_operator(KEYSPACE, Arc::new(AddI64::LittleEndian));
    for (name, value) in &store {
        builder = builder.set(name, value).map_err(text)?;
    }
    let db = builder.open().map_err(text)?;
    let keyspace: Vec<(&str, &str)> = keyspace.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let keys = db.keyspace_with(KEYSPACE, &keyspace).map_err(text)?;
    Ok(Open { db, keys, memory, opened })
}

fn promise(durability: Durability) -> drumlin::Durability {
    match durability {
        Durability::None => drumlin::Durability::None,
        Durability::Buffered => drumlin::Durability::Buffered,
        Durability::Sync => drumlin::Durability::Sync,
    }
}

/// Passes up to `limit` entries to `visit`, starting at the position of `cursor`. `is_there` says whether the cursor
/// is at an entry.
fn give(
    cursor: &mut RangeCursor,
    is_there: drumlin::Result<bool>,
    direction: Direction,
    limit: usize,
    visit: Visit<'_>,
) -> Result<usize> {
    let mut given = 0;
    let mut is_there = is_there.map_err(text)?;
    while is_there && given < limit {
        if let Some((key, value)) = cursor.entry() {
            visit(key, value);
        }
        given += 1;
        if given < limit {
            let moved = match direction {
                Direction::Forward => cursor.next(),
                Direction::Back => cursor.prev(),
            };
            is_there = moved.map_err(text)?;
        }
    }
    Ok(given)
}

/// A reusable cursor.
struct Kept(RangeCursor);

impl Seeker for Kept {
    fn seek(&mut self, from: &[u8], limit: usize, visit: Visit<'_>) -> Result<usize> {
        let is_there = self.0.seek(from);
        give(&mut self.0, is_there, Direction::Forward, limit, visit)
    }
}

impl Engine for Open {
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        self.keys.put_with(key, value, promise(durability)).map(drop).map_err(text)
    }

    fn batch(&self, entries: &[(&[u8], &[u8])], durability: Durability) -> Result<()> {
        let mut batch = Batch::new();
        for (key, value) in entries {
            batch.put(&self.keys, key, value);
        }
        self.db.write_with(batch, promise(durability)).map(drop).map_err(text)
    }

    fn delete(&self, key: &[u8], durability: Durability) -> Result<()> {
        self.keys.delete_with(key, promise(durability)).map(drop).map_err(text)
    }

    fn delete_range(&self, from: &[u8], to: &[u8], durability: Durability) -> Result<()> {
        let mut batch = Batch::new();
        batch.delete_range(&self.keys, from..to);
        self.db.write_with(batch, promise(durability)).map(drop).map_err(text)
    }

    fn merge(&self, key: &[u8], operand: &[u8], durability: Durability) -> Result<()> {
        let mut batch = Batch::new();
        batch.merge(&self.keys, key, operand);
        self.db.write_with(batch, promise(durability)).map(drop).map_err(text)
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.keys.get(key).map_err(text)?;
        if let Some(value) = &value {
            visit(value);
        }
        Ok(value.is_some())
    }

    fn multi_get(&self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let values = self.keys.multi_get(keys).map_err(text)?;
        for (position, value) in values.iter().enumerate() {
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
        let mut cursor = match (direction, from) {
            (Direction::Back, Some(from)) => self.keys.cursor(..=from),
            _ => self.keys.cursor::<&[u8]>(..),
        }
        .map_err(text)?;
        let is_there = match (direction, from) {
            (Direction::Forward, Some(from)) => cursor.seek(from),
            (Direction::Forward, None) => cursor.seek_first(),
            (Direction::Back, _) => cursor.seek_last(),
        };
        give(&mut cursor, is_there, direction, limit, visit)
    }

    fn seeker(&self) -> Option<Box<dyn Seeker + '_>> {
        Some(Box::new(Kept(self.keys.cursor::<&[u8]>(..).ok()?)))
    }

    fn flush(&self) -> Result<()> {
        self.db.flush().map_err(text)
    }

    fn wait_idle(&self) -> Result<()> {
        self.db.wait_idle().map_err(text)
    }

    fn compact(&self) -> Result<()> {
        self.db.compact().map_err(text)
    }

    fn counters(&self) -> Counters {
        let metrics = self.db.metrics();
        let levels = self.levels();
        let runs = levels.iter().map(|level| level.runs.len() as u64).collect();
        let files = levels.iter().flat_map(|level| &level.runs).flat_map(|run| &run.files);
        let separated = metrics.value_bytes_written.saturating_sub(metrics.value_bytes_copied);
        let tables_searched = metrics.lookup_tables_absent + metrics.lookup_tables_found;
        let stall = |count, micros: u64| Stall { count, seconds: micros as f64 / 1e6 };
        let stalls = [
            ("runs".to_owned(), stall(metrics.stalls_runs, metrics.stall_micros_runs)),
            ("memory".to_owned(), stall(metrics.stalls_memory, metrics.stall_micros_memory)),
        ];
        Counters {
            // Compactions separate few values, so all values count as flushed.
            flush_bytes: Some(metrics.flush_bytes_written + separated),
            merge_bytes: Some(metrics.compaction_bytes_written),
            gc_bytes: Some(metrics.value_bytes_copied),
            log_bytes: Some(metrics.log_bytes_written),
            stalls: Some(BTreeMap::from(stalls)),
            table_entries: Some(files.map(|file| file.entries).sum()),
            fsyncs: Some(metrics.syncs),
            manifest_bytes: Some(metrics.manifest_bytes_written),
            stall_longest_ms: Some(metrics.stall_longest_micros as f64 / 1e3),
            merge_largest_bytes: Some(metrics.compaction_largest_bytes),
            filter_probes: Some(metrics.filter_negatives + tables_searched),
            filter_negatives: Some(metrics.filter_negatives),
            filter_false_positives: Some(metrics.lookup_tables_absent),
            filter_bytes: Some(metrics.filter_bytes),
            blocks_necessary: Some(metrics.lookups_from_tables),
            blocks_unnecessary: Some(metrics.lookup_tables_absent),
            lookup_files: Some(tables_searched),
            cache_hits: Some(metrics.cache_hits),
            cache_misses: Some(metrics.cache_misses),
            merges: Some(metrics.compactions),
            merges_most_parallel: Some(metrics.compactions_max_parallel),
            merges_cross_level_s: Some(metrics.compactions_cross_level_micros as f64 / 1e6),
            read_merge_bytes: Some(metrics.compaction_bytes_read),
            moves: Some(metrics.moves),
            merge_entries: Some(metrics.compaction_entries_read),
            decisions: Some(metrics.plans_admitted),
            decisions_rejected: Some(metrics.plans_refused),
            decide: Some((metrics.policy_nanos as f64 / 1e9, metrics.policy_longest_nanos as f64 / 1e3)),
            policy_calls: Some(metrics.policy_calls),
            search_s: Some(metrics.search_nanos as f64 / 1e9),
            runs_per_level: Some(runs),
            disk_bytes: self.memory.as_ref().map(MemEnv::used_space),
            ..Counters::default()
        }
    }

    fn decisions(&self) -> Vec<Decision> {
        let since = |micros: u64| micros.saturating_sub(self.opened) as f64 / 1e6;
        let records = self.db.explain().into_iter();
        records.map(|d| Decision { t: since(d.micros), what: d.what, reason: d.reason }).collect()
    }

    fn options(&self) -> BTreeMap<String, String> {
        let mut options: BTreeMap<String, String> =
            self.db.options().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        options.extend(self.keys.options().into_iter().map(|(name, value)| (name.to_owned(), value)));
        options.insert("compaction".to_owned(), self.keys.policy());
        options
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Open { db, keys, .. } = *self;
        drop(keys);
        db.close().map_err(text)
    }
}
