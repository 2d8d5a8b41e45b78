//! The shape of the trees and the metrics, for people and tools.

use crate::base::keyspace_metrics::KeyspaceMetrics;
use crate::base::metrics::Metrics;
use crate::compaction::view::tree_view;
use crate::keyspace::{KeyspaceState, View};
use crate::options::ValuePolicy;
use crate::store::Store;
use crate::value::value_file_sizes;
use crate::version::{FileMeta, Tree};
use drumlin_policy::schedule::fold::{depth_cap, design_runs};
use drumlin_policy::schedule::{Concurrency, Settings};
use drumlin_policy::value::ValueFileSizes;
use drumlin_types::ValueFileId;
use drumlin_types::contract::{FileState, FileView, LevelDesign};
use std::fmt;

/// Shape of one keyspace: its memtables, its tree and its value files. [`Db::tree`](crate::Db::tree) returns it.
///
/// A tree consists of levels, a level of sorted runs, and a run of files with disjoint key bounds. Newer data is in
/// upper levels.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct KeyspaceShape {
    /// Name of the keyspace.
    pub name: String,
    /// Name of its compaction policy.
    pub policy: String,
    /// Bytes in the active memtable.
    pub active_bytes: u64,
    /// Number of sealed memtables that wait for their flush.
    pub sealed_memtables: usize,
    /// Bytes in the sealed memtables.
    pub sealed_bytes: u64,
    /// Levels of the tree, level 0 first.
    pub levels: Vec<LevelShape>,
    /// Value files that the tree points to, by number.
    pub value_files: Vec<ValueFileShape>,
    /// What was learned since the open about the lifetimes of values, as a line of text for people; its form may
    /// change. `None` before the first value was separated, and with `value_policy = garbage-ratio`.
    pub value_lifetimes: Option<String>,
}

/// A value file.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct ValueFileShape {
    /// Number of the file.
    pub file: u64,
    /// Lifetime class of its values, from 0 for those that were expected to live shortest to 5. A job with fewer
    /// classes leaves numbers out.
    pub class: u8,
    /// Number of all records.
    pub entries: u64,
    /// Stored bytes of all records.
    pub bytes: u64,
    /// Bytes of the records that tables point to; the rest is garbage. An overwritten value counts until a compaction
    /// drops it.
    pub referenced_bytes: u64,
    /// Newest sequence number of the store when the file was created.
    pub created_seq: u64,
}

/// Shape of one level.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct LevelShape {
    /// Number of the level.
    pub level: u8,
    /// Number of runs over a key that the policy aims at; `None` when it sets no number.
    pub design_runs: Option<u64>,
    /// Number of runs over a key at which compactions into the level must also compact the level's own runs. A
    /// compaction that cannot do so waits, except for the oldest unfinished one. `None` without a limit.
    pub most_runs: Option<u64>,
    /// Runs of the level.
    pub runs: Vec<RunShape>,
}

/// Shape of one sorted run: files whose key bounds do not overlap. A lookup searches at most one of them.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct RunShape {
    /// Id of the run.
    pub id: u64,
    /// Tag that the policy gave the run. Its content has a meaning for the policy only.
    #[cfg_attr(feature = "serde", serde(serialize_with = "escaped"))]
    pub tag: Vec<u8>,
    /// Files of the run, in key order.
    pub files: Vec<FileShape>,
}

/// Shape of one file: a table and the key bounds in force.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct FileShape {
    /// Number of the table.
    pub table: u64,
    /// First key of the bounds.
    #[cfg_attr(feature = "serde", serde(serialize_with = "escaped"))]
    pub first: Vec<u8>,
    /// First key after the bounds; `None` when the bounds have no end.
    #[cfg_attr(feature = "serde", serde(serialize_with = "escaped_option"))]
    pub end: Option<Vec<u8>>,
    /// Stored bytes inside the bounds.
    pub bytes: u64,
    /// Entries inside the bounds.
    pub entries: u64,
    /// Tombstones inside the bounds.
    pub tombstones: u64,
    /// Number of range tombstones of the table.
    pub range_tombstones: u64,
    /// Smallest sequence number of the table.
    pub min_seq: u64,
    /// Largest sequence number of the table.
    pub max_seq: u64,
    /// Whether the bounds exclude entries of the table.
    pub narrowed: bool,
    /// Filter bits per distinct key, as built; 0 without a filter.
    pub filter_bits: f64,
    /// Share of lookups of absent keys that the filter lets pass, as built; 1 without a filter.
    pub filter_false_positive_rate: f64,
    /// Whether lookups skip the filter, because its probes are estimated to cost twice what it saves or more.
    pub filter_skipped: bool,
    /// Decayed number of point lookups that reached the file and found no version of their key.
    pub lookups_empty: f64,
    /// Decayed number of point lookups that found a version of their key in the file.
    pub lookups_found: f64,
    /// Decayed number of point lookups that found a tombstone; part of `lookups_found`.
    pub lookups_dead: f64,
    /// Its part in unfinished compactions. JSON has its text form, such as `input of #3`.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_text"))]
    pub state: FileRole,
}

/// Part of a file in unfinished compactions, which are known by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileRole {
    /// No unfinished compaction involves the file.
    #[default]
    Free,
    /// The file is an input of the compaction, and serves reads until the output replaces it.
    Input(u64),
    /// The file is an installed part of the compaction's output.
    Output(u64),
    /// No compaction may take the file: its table is damaged, or, without the pipeline, a compaction blocks it.
    Unavailable,
}

/// Serializes a value by its text form.
#[cfg(feature = "serde")]
fn as_text<T: fmt::Display, S: serde::Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Serializes bytes as text, with escapes such as `\xff` for bytes that are no printable ASCII.
#[cfg(feature = "serde")]
fn escaped<S: serde::Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&bytes.escape_ascii())
}

#[cfg(feature = "serde")]
fn escaped_option<S: serde::Serializer>(bytes: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&bytes.as_ref().map(|bytes| bytes.escape_ascii().to_string()), serializer)
}

impl FileRole {
    fn of(state: FileState) -> FileRole {
        match state {
            FileState::Free => FileRole::Free,
            FileState::Leaving(ticket) => FileRole::Input(ticket.0),
            FileState::Settling(ticket) | FileState::Coming(ticket) => FileRole::Output(ticket.0),
            FileState::Unavailable => FileRole::Unavailable,
        }
    }
}

impl fmt::Display for FileRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileRole::Free => f.write_str("free"),
            FileRole::Input(ticket) => write!(f, "input of #{ticket}"),
            FileRole::Output(ticket) => write!(f, "output of #{ticket}"),
            FileRole::Unavailable => f.write_str("unavailable"),
        }
    }
}

/// Returns the bytes of the filters of all tables of `view`.
fn filter_bytes(view: &View) -> u64 {
    let bits = |f: &FileMeta| f.counts.entries as f64 * f64::from(f.filter_bits);
    (view.tree.files().map(|(_, _, file)| bits(file)).sum::<f64>() / 8.0) as u64
}

/// Returns the value files that `tree` points to.
fn value_files(tree: &Tree) -> Vec<ValueFileShape> {
    let handles = crate::version::value_files(tree.files().map(|(_, _, file)| file));
    let shape = |(id, load): (ValueFileId, ValueFileSizes)| {
        let record = handles.get(&id).map(|handle| handle.record());
        ValueFileShape {
            file: id.0,
            class: record.map_or(0, |record| record.class),
            entries: record.map_or(0, |record| record.entries),
            bytes: load.total,
            referenced_bytes: load.referenced.min(load.total),
            created_seq: record.map_or(0, |record| record.created_seq),
        }
    };
    value_file_sizes(tree).into_iter().map(shape).collect()
}

impl Store {
    fn learned_lifetimes(&self, keyspace: &KeyspaceState) -> Option<String> {
        let learned = self.lifetimes.learned(keyspace.id)?;
        match keyspace.options.load().value_policy {
            ValuePolicy::Lifetimes => Some(learned.to_string()),
            ValuePolicy::MeanInterval => Some("values are placed by the mean interval of a key".to_owned()),
            ValuePolicy::GarbageRatio => None,
        }
    }

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
            let skips = |shown: &FileView| {
                let mut references = view.tree.refs(shown.table);
                references.any(|(_, _, f)| f.bounds.contains(&shown.bounds.start) && f.skips_filter())
            };
            let settings = Settings { slots: self.slots.count() as u32, ..Settings::default() };
            let design = |level: usize| keyspace.design.get(level).copied().unwrap_or(LevelDesign::FREE);
            let count = |runs: f64| runs.is_finite().then_some(runs as u64);
            let levels = picture.levels.iter().enumerate().map(|(level, l)| LevelShape {
                level: level as u8,
                design_runs: count(design_runs(&design(level))),
                // Level 0 has no limit, because flushes never wait for its runs.
                most_runs: count(depth_cap(&design(level), &settings))
                    .filter(|_| level > 0 && self.sizes.mode == Concurrency::Pipelined),
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
                                filter_bits: f.filter_bits,
                                filter_false_positive_rate: f.fp_rate,
                                filter_skipped: skips(f),
                                lookups_empty: f.lookups.empty,
                                lookups_found: f.lookups.found,
                                lookups_dead: f.lookups.dead,
                                state: FileRole::of(f.state),
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
                value_files: value_files(&view.tree),
                value_lifetimes: self.learned_lifetimes(&keyspace.state),
            });
        }
        shapes
    }

    pub(crate) fn read_keyspace_metrics(&self, keyspace: &KeyspaceState) -> KeyspaceMetrics {
        let mut metrics = keyspace.activity.read();
        ([metrics.gets, metrics.scans, metrics.writes], metrics.stall_micros) = keyspace.meter.totals();
        let view = keyspace.view();
        metrics.memtable_bytes = view.memtable_bytes() as u64;
        metrics.sealed_memtables = view.sealed.len() as u64;
        metrics.table_bytes = view.tree.bytes();
        metrics.files = view.tree.files().count() as u64;
        metrics.runs = view.tree.runs() as u64;
        metrics.filter_bytes = filter_bytes(&view);
        metrics
    }

    pub(crate) fn read_metrics(&self) -> Metrics {
        let mut metrics = self.metrics.read();
        self.counts.fill(&mut metrics);
        let keyspaces = self.keyspaces();
        let views: Vec<_> = keyspaces.iter().map(|k| k.view()).collect();
        metrics.memtable_bytes = views.iter().map(|v| v.memtable_bytes() as u64).sum();
        metrics.table_bytes = views.iter().map(|v| v.tree.bytes()).sum();
        for (_, load) in views.iter().flat_map(|view| value_file_sizes(&view.tree)) {
            metrics.value_files += 1;
            metrics.value_record_bytes += load.total;
            metrics.value_bytes_referenced += load.referenced.min(load.total);
        }
        metrics.filter_bytes = views.iter().map(|v| filter_bytes(v)).sum();
        metrics.runs = views.iter().map(|v| v.tree.runs() as u64).sum();
        metrics.snapshots = self.snapshots.len() as u64;
        metrics.log_bytes_live = self.commit_lock.state.lock().log.live_bytes();
        let cache = self.files.cache.stats();
        (metrics.cache_hits, metrics.cache_misses, metrics.cache_bytes) =
            (cache.hits, cache.misses, cache.bytes);
        (metrics.cache_evictions, metrics.cache_carried) = (cache.evictions, cache.carried);
        (metrics.value_cache_hits, metrics.value_cache_misses) = (cache.value_hits, cache.value_misses);
        metrics.syncs = self.files.env.fs().syncs();
        let beside = self.costs.running.seen(self.files.now());
        metrics.compaction_slots = self.slots.count() as u64;
        metrics.compactions_max_parallel = beside.most;
        metrics.compactions_cross_level_micros = beside.cross_level_micros;
        let lookups = self.lookups.totals();
        metrics.gets = lookups.gets;
        metrics.filter_negatives = lookups.denied;
        metrics.lookup_tables_absent = lookups.absent;
        metrics.lookup_tables_found = lookups.found;
        metrics.lookups_from_tables = lookups.returned;
        for (passed, skipped) in keyspaces.iter().map(|k| k.dead.counts()) {
            metrics.scan_entries_passed += passed;
            metrics.scan_spans_skipped += skipped;
        }
        metrics
    }
}

#[cfg(test)]
mod tests {
    use crate::api::db::Db;
    use drumlin_env::MemEnv;

    #[test]
    fn metrics_do_not_wait_for_the_control_lock() {
        let db = Db::builder("/s").env(MemEnv::new(71).env()).open().expect("open");
        let keys = db.keyspace_with("k", &[("compaction", "tiering:2")]).expect("keyspace");
        for n in 0..6_u8 {
            keys.put([n], [n]).expect("put");
            db.flush().expect("flush");
        }
        db.wait_idle().expect("idle");
        // Edits of the manifest are written and synced under this lock.
        let control = keys.store.control.lock();
        let metrics = db.metrics();
        assert_eq!(
            (metrics.plans_admitted, metrics.plans_refused),
            (control.decisions.admitted, control.decisions.refused)
        );
        assert!(metrics.plans_admitted > 0 && metrics.compactions_unfinished == 0, "{metrics:?}");
    }
}
