//! The shape of the trees, for people and tools.

use crate::compaction::view::tree_view;
use crate::metrics::Metrics;
use crate::store::Store;
use crate::version::FileMeta;
use drumlin_policy::schedule::fold::{depth_cap, design_runs};
use drumlin_policy::schedule::{Mode, Settings};
use drumlin_types::contract::{FileState, FileView, LevelDesign};

/// One keyspace.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyspaceShape {
    /// Its name.
    pub name: String,
    /// Its compaction policy.
    pub policy: String,
    /// Bytes in the active memtable.
    pub active_bytes: u64,
    /// Sealed memtables that wait for their flush.
    pub sealed_memtables: usize,
    /// Bytes in them.
    pub sealed_bytes: u64,
    /// Levels, 0 first.
    pub levels: Vec<LevelShape>,
}

/// One level.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelShape {
    /// Its number.
    pub level: u8,
    /// Runs that the policy means to cover a key; none where it sets no number.
    pub design_runs: Option<u64>,
    /// Runs that cover a key from which on merges into the level fold; what cannot fold waits, but for the oldest one under
    /// way. None without a limit.
    pub most_runs: Option<u64>,
    /// Its runs.
    pub runs: Vec<RunShape>,
}

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunShape {
    /// Its id.
    pub id: u64,
    /// The policy's tag.
    pub tag: Vec<u8>,
    /// Its files, in key order.
    pub files: Vec<FileShape>,
}

/// One file reference.
#[derive(Clone, Debug, PartialEq)]
pub struct FileShape {
    /// Number of the table.
    pub table: u64,
    /// First key of the bounds.
    pub first: Vec<u8>,
    /// First key after the bounds; none for no end.
    pub end: Option<Vec<u8>>,
    /// Stored bytes inside the bounds.
    pub bytes: u64,
    /// Entries inside the bounds.
    pub entries: u64,
    /// Tombstones inside the bounds.
    pub tombstones: u64,
    /// Range tombstones of the table.
    pub range_tombstones: u64,
    /// Smallest sequence number of the table.
    pub min_seq: u64,
    /// Largest sequence number of the table.
    pub max_seq: u64,
    /// Whether the bounds leave entries of the table out.
    pub narrowed: bool,
    /// Point lookups, decayed, that reached the file and found no version of their key.
    pub lookups_empty: f64,
    /// Those that found one.
    pub lookups_found: f64,
    /// The part of these that found a tombstone.
    pub lookups_dead: f64,
    /// `free`, `settling #t`, `leaving #t`.
    pub state: String,
}

fn state_name(state: FileState) -> String {
    match state {
        FileState::Free => "free".to_owned(),
        FileState::Settling(ticket) => format!("settling {ticket}"),
        FileState::Leaving(ticket) => format!("leaving {ticket}"),
        FileState::Coming(ticket) => format!("coming {ticket}"),
    }
}

impl Store {
    pub(crate) fn shape(&self) -> Vec<KeyspaceShape> {
        let control = self.control.lock();
        let mut shapes = Vec::new();
        for keyspace in &control.keyspaces {
            let view = keyspace.state.view();
            let picture = tree_view(&view.tree, &keyspace.flight).live();
            let narrowed = |shown: &FileView| {
                let mut references = view.tree.refs(shown.table);
                references.any(|(_, _, f)| f.bounds.contains(&shown.bounds.start) && f.is_narrowed())
            };
            let settings = Settings { slots: self.slots.count() as u32, ..Settings::default() };
            let design = |level: usize| keyspace.design.get(level).copied().unwrap_or(LevelDesign::FREE);
            let count = |runs: f64| runs.is_finite().then_some(runs as u64);
            let levels = picture.levels.iter().enumerate().map(|(level, l)| LevelShape {
                level: level as u8,
                design_runs: count(design_runs(&design(level))),
                // Flushes come whatever there is.
                most_runs: count(depth_cap(&design(level), &settings))
                    .filter(|_| level > 0 && self.sizes.mode == Mode::Pipelined),
                runs: l
                    .runs
                    .iter()
                    .map(|run| RunShape {
                        id: run.id.0,
                        tag: run.tag.0.clone(),
                        files: run
                            .files
                            .iter()
                            .map(|f| FileShape {
                                table: f.table.0,
                                first: f.bounds.start.to_vec(),
                                end: f.bounds.end.as_ref().map(|end| end.to_vec()),
                                bytes: f.bytes,
                                entries: f.entries,
                                tombstones: f.tombstones,
                                range_tombstones: f.range_tombstones,
                                min_seq: f.min_seq,
                                max_seq: f.max_seq,
                                narrowed: narrowed(f),
                                lookups_empty: f.lookups.empty,
                                lookups_found: f.lookups.found,
                                lookups_dead: f.lookups.dead,
                                state: state_name(f.state),
                            })
                            .collect(),
                    })
                    .collect(),
            });
            shapes.push(KeyspaceShape {
                name: keyspace.state.name.to_string(),
                policy: keyspace.policy.name(),
                active_bytes: view.active.bytes() as u64,
                sealed_memtables: view.sealed.len(),
                sealed_bytes: view.sealed.iter().map(|m| m.bytes() as u64).sum(),
                levels: levels.collect(),
            });
        }
        shapes
    }

    pub(crate) fn read_metrics(&self) -> Metrics {
        let mut metrics = self.metrics.read();
        let keyspaces = self.keyspaces();
        let views: Vec<_> = keyspaces.iter().map(|k| k.view()).collect();
        metrics.memtable_bytes = views.iter().map(|v| v.memtable_bytes() as u64).sum();
        metrics.table_bytes = views.iter().map(|v| v.tree.bytes()).sum();
        let filter_bits = |f: &FileMeta| f.counts.entries as f64 * f64::from(f.filter_bits);
        let bits: f64 = views.iter().flat_map(|v| v.tree.files()).map(|(_, _, f)| filter_bits(f)).sum();
        metrics.filter_bytes = (bits / 8.0) as u64;
        metrics.runs = views.iter().map(|v| v.tree.runs() as u64).sum();
        metrics.snapshots = self.snapshots.len() as u64;
        metrics.log_bytes_live = self.lane.state.lock().log.live_bytes();
        let cache = self.cache.stats();
        (metrics.cache_hits, metrics.cache_misses, metrics.cache_bytes) =
            (cache.hits, cache.misses, cache.bytes);
        metrics.syncs = self.env.fs().syncs();
        let beside = self.costs.running.seen(self.now());
        metrics.merge_slots = self.slots.count() as u64;
        metrics.merges_most_parallel = beside.most;
        metrics.merges_cross_level_micros = beside.cross_level_micros;
        let lookups = self.lookups.totals();
        metrics.gets = lookups.gets;
        metrics.filter_negatives = lookups.denied;
        metrics.lookup_tables_absent = lookups.absent;
        metrics.lookup_tables_found = lookups.found;
        metrics.lookups_from_tables = lookups.returned;
        let control = self.control.lock();
        metrics.tickets = control.keyspaces.iter().map(|k| k.flight.tickets.len() as u64).sum();
        metrics.plans_admitted = control.decisions.admitted;
        metrics.plans_refused = control.decisions.refused;
        metrics
    }
}
