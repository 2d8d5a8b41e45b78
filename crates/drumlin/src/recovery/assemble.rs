//! Assembles the open store from the manifest and the log of a directory: steps 4 to 6 of recovery. It replays the log
//! into one memtable per keyspace, begins a new log segment, builds each keyspace (tree, options, policy, merge
//! operator), writes a new manifest with a snapshot of this state, and builds the store from these parts.
//!
//! A store that is opened read-only gets no new segment and no new manifest.

use super::evidence;
use super::replay::{ReplayTarget, replay};
use crate::base::decisions::{DecisionFiles, DecisionLog};
use crate::base::dir_lock::DirLock;
use crate::base::error::{Error, Result};
use crate::base::event::Event;
use crate::base::merge_operator::Operator;
use crate::base::metrics::Counters;
use crate::compaction::control::{Control, KeyspaceControl, PolicyCalls};
use crate::disk::{Files, FilesParts};
use crate::keyspace::KeyspaceState;
use crate::options::{KeyspaceOptions, Options, Pipeline, TableReads};
use crate::stats::{Meter, SampledStore, fresh_store};
use crate::store::{Components, Parts, Sizes, Store, snapshot};
use crate::table::{BlockCache, TableCache};
use crate::value::{Lifetimes, ValueFiles};
use crate::version::{HighWaterMarks, KeyspaceRecord, ManifestFile, ManifestState, Obsolete};
use crate::write::budget::DiskBudget;
use crate::write::commit_lock::CommitState;
use crate::write::log::LogTail;
use crate::write::segment::{LogDirectory, log_numbers, path_in};
use crate::write::{CommitLock, CommitPoint, DurableLog, Publisher};
use drumlin_env::sync::Arc;
use drumlin_env::{DirEntry, Env, FileLock};
use drumlin_format::log::Recovered;
use drumlin_format::manifest::ManifestHeader;
use drumlin_format::names::FileName;
use drumlin_policy::schedule::{self, Concurrency};
use drumlin_types::contract::CompactionPolicy;
use drumlin_types::{KeyspaceId, LogNumber, Seq};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Maximum number of open tables. At most half of the files that the process may open are tables: log segments, outputs
/// of compactions and other files of the process take the rest. When descriptors run out, tables are closed.
const OPEN_TABLES: usize = 4096;
/// Policy that replaces a policy that this version does not know.
const DEFAULT_POLICY: &str = "arce";

/// Contents of a directory, with the options to open it.
pub(super) struct Opening<'a> {
    pub(super) env: Env,
    pub(super) dir: PathBuf,
    pub(super) options: Options,
    pub(super) components: Components,
    pub(super) manifest: ManifestState,
    pub(super) entries: &'a [DirEntry],
    pub(super) lock: Option<FileLock>,
    pub(super) read_only: bool,
    /// Whether the store is the unfinished target of a repair.
    pub(super) unfinished: bool,
}

/// Source of unused file numbers.
struct FileNumbers(u64);

impl FileNumbers {
    fn fresh(&mut self) -> u64 {
        self.0 += 1;
        self.0 - 1
    }
}

/// The replayed log.
struct Replayed {
    recovered: Recovered,
    bytes: u64,
    targets: BTreeMap<KeyspaceId, ReplayTarget>,
    /// Largest sequence number in the store.
    last_seq: Seq,
}

/// The new log.
struct NewLog {
    directory: LogDirectory,
    tail: LogTail,
    number: LogNumber,
}

/// The keyspaces of the manifest.
#[derive(Default)]
struct Keyspaces {
    states: Vec<Arc<KeyspaceState>>,
    controls: Vec<KeyspaceControl>,
    /// Policy states that could not be restored.
    problems: Vec<String>,
}

/// Assembles the open store. Also returns what was replayed.
pub(super) fn assemble(mut found: Opening<'_>) -> Result<(Arc<Store>, Recovered)> {
    let sizes = sizes(&found.options, found.unfinished);
    let mut numbers = FileNumbers(first_free_number(&found));
    let mut replayed = replay_log(&found)?;
    let obsolete = Arc::new(Obsolete::default());
    let lock = Arc::new(DirLock::new(found.lock.take()));
    let log_number = LogNumber(numbers.fresh());
    let sampling = fresh_store();
    let cache = Arc::new(BlockCache::with_epochs(sizes.cache, obsolete.epochs.clone()));
    let values = ValueFiles::new(found.env.clone(), found.dir.clone(), cache.clone());
    let mut keyspaces = keyspaces(&found, &mut replayed.targets, &obsolete, &values, log_number, &sampling)?;
    let lifetimes = Arc::new(lifetimes(&found, &mut keyspaces));
    // Options that this build refuses have failed by now, so that such opens leave no segment.
    let mut log = begin_log(&found, &replayed.recovered, &obsolete, &lock, log_number)?;
    let (writer, marks) =
        begin_manifest(&found, &keyspaces, &lifetimes, &log, replayed.last_seq, &mut numbers)?;
    // The sync of the directory before `CURRENT` points to the new manifest covers the log segment too.
    log.tail.mark_entry_durable();
    log.tail.set_recorded_floor(marks.floor);
    let decisions = DecisionFiles::new(&found.dir, decision_logs(found.entries), numbers.0);
    let files = files(&found, cache, values, obsolete, lock, marks.clock, numbers.0);
    let Replayed { recovered, bytes, last_seq, .. } = replayed;
    let published = CommitPoint { seq: last_seq, logged: last_seq, log_end: recovered.end };
    // A read-only open makes nothing durable. Unless the store was closed, only flushed commits are known to be so.
    let flushed = largest_flushed(&found.manifest);
    let durable_seq = if found.read_only && !recovered.closed { flushed } else { last_seq };
    let store = Arc::new(Store::new(Parts {
        commit_lock: CommitLock::new(
            log.directory,
            CommitState { next_seq: last_seq + 1, log: log.tail, closed: false },
        ),
        publisher: Publisher::new(published, files.env.available_cores()),
        log: DurableLog::new(CommitPoint { logged: durable_seq, ..published }),
        control: Control {
            manifest: writer,
            keyspaces: keyspaces.controls,
            numbers: schedule::Numbers { next_run: marks.next_run, next_ticket: 1 },
            decisions: DecisionLog::new(files.env.clock().monotonic_micros(), marks.clock),
            flush_ceiling: Seq::MAX,
            carried: found.manifest.carried,
            next_manual: 1,
            shortage: None,
            short_piece: None,
            needs_wake_up: false,
            manual_ended: false,
            idle_waiters: 0,
            policy_calls: PolicyCalls::default(),
            closed: false,
        },
        files,
        decisions,
        lifetimes,
        sampling,
        recovered_seq: last_seq,
        next_keyspace: marks.next_keyspace,
        options: found.options,
        sizes,
        components: found.components,
        keyspaces: keyspaces.states,
        read_only: found.read_only,
    }));
    report(&store, &recovered, found.manifest.bytes_read + bytes, bytes, keyspaces.problems);
    Ok((store, recovered))
}

fn first_free_number(found: &Opening<'_>) -> u64 {
    let on_disk = found.entries.iter().filter_map(|e| FileName::parse(&e.name)?.number()).max().unwrap_or(0);
    let above_disk = if drumlin_types::bug!("file-number-reused") { 0 } else { on_disk + 1 };
    found.manifest.marks.next_file.max(above_disk).max(1)
}

fn decision_logs(entries: &[DirEntry]) -> Vec<u64> {
    let number = |entry: &DirEntry| match FileName::parse(&entry.name) {
        Some(FileName::Decisions(number)) => Some(number),
        _ => None,
    };
    entries.iter().filter_map(number).collect()
}

fn replay_log(found: &Opening<'_>) -> Result<Replayed> {
    let Opening { env, dir, manifest, entries, .. } = found;
    let records = manifest.keyspaces.iter();
    let mut targets: BTreeMap<KeyspaceId, ReplayTarget> =
        records.map(|(id, k)| (*id, ReplayTarget { flushed: k.flushed, memtable: None })).collect();
    let numbers = log_numbers(entries);
    let (mut recovered, bytes) = replay(env, dir, &numbers, &manifest.marks, &mut targets, manifest.store)?;
    evidence::check_log(dir, manifest, &recovered)?;
    // The close record may be in the page cache only, unless the manifest says that it is durable.
    recovered.closed &= manifest.marks.log_end == recovered.end;
    let replayed = targets.values().filter_map(|t| t.memtable.as_ref()).map(|m| m.max_seq()).max();
    let in_tables = largest_flushed(manifest).max(replayed.unwrap_or(0));
    let last_seq = match drumlin_types::bug!("last-seq-from-manifest") {
        false => recovered.last_seq.max(manifest.marks.last_seq).max(in_tables),
        true => manifest.marks.last_seq,
    };
    Ok(Replayed { recovered, bytes, targets, last_seq })
}

fn largest_flushed(manifest: &ManifestState) -> Seq {
    manifest.keyspaces.values().map(|keyspace| keyspace.flushed).max().unwrap_or(0)
}

fn begin_log(
    found: &Opening<'_>,
    recovered: &Recovered,
    obsolete: &Arc<Obsolete>,
    lock: &Arc<DirLock>,
    number: LogNumber,
) -> Result<NewLog> {
    let Opening { env, dir, options, entries, .. } = found;
    let budget = Arc::new(DiskBudget::new(options.disk_budget, obsolete.clone()));
    let segment_bytes = options.segment_bytes();
    let directory = LogDirectory::new(env.clone(), dir.clone(), segment_bytes, budget, lock.clone());
    let header = recovered.next_header(number);
    let len =
        |n: LogNumber| entries.iter().find(|e| e.name == FileName::Log(n).to_string()).map_or(0, |e| e.len);
    let older: Vec<(LogNumber, u64)> = recovered.replayed.iter().map(|n| (*n, len(*n))).collect();
    let tail = match found.read_only {
        true => LogTail::ended(&header, older),
        false => {
            // The budget does not count the tables yet.
            let counts =
                |name| matches!(name, Some(FileName::Log(_) | FileName::Table(_) | FileName::Value(_)));
            let held =
                entries.iter().filter(|entry| counts(FileName::parse(&entry.name))).map(|entry| entry.len);
            LogTail::begin(&directory, &header, directory.first_capacity(held.sum()), older)?
        }
    };
    Ok(NewLog { directory, tail, number })
}

fn keyspaces(
    found: &Opening<'_>,
    targets: &mut BTreeMap<KeyspaceId, ReplayTarget>,
    obsolete: &Arc<Obsolete>,
    values: &Arc<ValueFiles>,
    log: LogNumber,
    sampling: &Arc<SampledStore>,
) -> Result<Keyspaces> {
    let mut all = Keyspaces::default();
    for (id, record) in &found.manifest.keyspaces {
        let path = found.dir.join(FileName::Pointer.to_string());
        let tree = record.tree(obsolete).map_err(|what| Error::corruption(&path, 0, what))?;
        let options = KeyspaceOptions::from_manifest(&record.name, &record.options)?;
        let (policy, problem) = policy(record.policy.clone(), &options.compaction);
        all.problems.extend(problem.map(|what| format!("keyspace {:?}: {what}", record.name)));
        let state = Arc::new(KeyspaceState::new(
            *id,
            &record.name,
            &found.options,
            options,
            operator_of(record, &found.components)?,
            values.reader(),
            tree,
            log,
            found.manifest.store,
            Meter::new(sampling),
            obsolete.epochs.clone(),
        ));
        if let Some(lookups) = &record.lookups {
            state.density.restore(lookups);
        }
        state.lives.restore(&record.lives);
        if let Some(memtable) = targets.remove(id).and_then(|target| target.memtable) {
            state.adopt(memtable);
        }
        all.controls.push(KeyspaceControl::new(state.clone(), policy, record.flushed));
        all.states.push(state);
    }
    Ok(all)
}

/// Restores what was learned about the values of keyspaces that still separate values.
fn lifetimes(found: &Opening<'_>, keyspaces: &mut Keyspaces) -> Lifetimes {
    let lifetimes = Lifetimes::new(found.options.memory_budget);
    for state in &keyspaces.states {
        let Some(record) = found.manifest.keyspaces.get(&state.id) else { continue };
        let separates = state.options.load().least_separated() < u64::MAX;
        if separates && !record.lifetimes.is_empty() && !lifetimes.restore(state.id, &record.lifetimes) {
            let what = "saved lifetimes of values have an unknown format; lifetimes are learned anew";
            keyspaces.problems.push(format!("keyspace {:?}: {what}", record.name));
        }
    }
    lifetimes
}

fn begin_manifest(
    found: &Opening<'_>,
    keyspaces: &Keyspaces,
    lifetimes: &Lifetimes,
    log: &NewLog,
    last_seq: Seq,
    numbers: &mut FileNumbers,
) -> Result<(ManifestFile, HighWaterMarks)> {
    let Opening { env, options, manifest, .. } = found;
    let entries = log.directory.entries.clone();
    let number = numbers.fresh();
    let oldest = keyspaces.states.iter().filter_map(|keyspace| keyspace.first_log()).min();
    let oldest = oldest.filter(|_| !drumlin_types::bug!("log-floor-too-high"));
    let marks = HighWaterMarks {
        floor: log.tail.floor(oldest.unwrap_or(log.number)),
        next_file: numbers.0,
        next_run: manifest.marks.next_run.max(1),
        // Replayed commits may be in the page cache only, so the manifest counts them once they are in tables.
        last_seq: match drumlin_types::bug!("replayed-seq-counted") {
            true => last_seq,
            false => manifest.marks.last_seq.max(largest_flushed(manifest)),
        },
        clock: manifest.marks.clock.max(env.clock().unix_micros()),
        ..manifest.marks
    };
    let header = |number| ManifestHeader { number, store: manifest.store };
    let writer = match found.read_only {
        true => ManifestFile::read_only(entries, header(manifest.number)),
        false => {
            let edit = snapshot(&keyspaces.controls, options, &manifest.carried, &marks, lifetimes);
            ManifestFile::create(entries, header(number), &edit)?
        }
    };
    Ok((writer, marks))
}

fn files(
    found: &Opening<'_>,
    cache: Arc<BlockCache>,
    values: Arc<ValueFiles>,
    obsolete: Arc<Obsolete>,
    lock: Arc<DirLock>,
    last_clock: u64,
    next_number: u64,
) -> Files {
    let Opening { env, dir, options, manifest, .. } = found;
    let tables = TableCache::new(env, dir, cache.clone(), manifest.store, open_tables(env));
    let (env, dir) = (env.clone(), dir.clone());
    Files::new(FilesParts {
        env,
        dir,
        tables: tables.reading(options.table_reads == TableReads::Direct),
        values,
        cache,
        obsolete,
        filter_seed: manifest.store,
        last_clock,
        next_number,
        lock,
    })
}

/// Memory for compactions, flushes and open tables, however small the memory budget: what one compaction needs.
const JOBS_LEAST: u64 = 5 << 20;

fn sizes(options: &Options, unfinished: bool) -> Sizes {
    let budget = options.memory_budget;
    let memtables = options.memtables_most();
    let rest = (budget / 8).max(JOBS_LEAST).min(budget * 5 / 16);
    Sizes {
        memtables: memtables as usize,
        cache: (budget - memtables - rest) as usize,
        jobs: (budget / 8) as usize,
        scan_readahead: (budget / 512) as usize,
        log: options.log_most(),
        slots: options.compaction_slots as usize,
        // A repair writes whatever the damaged store held.
        max_batch: if unfinished { u64::MAX } else { budget / 4 },
        mode: match options.pipeline {
            Pipeline::Pipelined => Concurrency::Pipelined,
            Pipeline::Split => Concurrency::Split,
            Pipeline::Unsplit => Concurrency::Unsplit,
        },
    }
}

/// Returns the merge operator of a keyspace.
pub(super) fn operator_of(record: &KeyspaceRecord, components: &Components) -> Result<Operator> {
    let code = components.operators.get(&record.name).cloned();
    Operator::new(&record.name, record.operator.as_deref(), code)
}

/// Returns the policy of a keyspace, and why its saved state could not be restored, if so.
fn policy(
    record_policy: Option<(String, Vec<u8>)>,
    configured: &str,
) -> (Box<dyn CompactionPolicy>, Option<String>) {
    let (name, blob) = record_policy.unwrap_or_else(|| (configured.to_owned(), Vec::new()));
    let mut problem = None;
    let mut policy = drumlin_policy::by_name(&name).unwrap_or_else(|error| {
        problem = Some(format!("policy {name:?}: {error}"));
        drumlin_policy::by_name(DEFAULT_POLICY).expect("the default policy exists")
    });
    if !blob.is_empty()
        && let Err(error) = policy.restore(&blob)
    {
        problem = Some(format!("state of policy {name:?}: {error}"));
    }
    (policy, problem)
}

/// Returns the number of tables that may be open in `env`.
fn open_tables(env: &Env) -> usize {
    let limit =
        env.open_file_limit().map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    (limit / 2).clamp(1, OPEN_TABLES)
}

fn report(store: &Store, recovered: &Recovered, bytes: u64, log_bytes: u64, problems: Vec<String>) {
    Counters::add(&store.metrics.open_bytes_read, bytes);
    Counters::add(&store.metrics.recovered_commits, recovered.commits);
    if !store.health.read_only {
        store.release_log(store.log_floor(&[]));
        for number in &recovered.dropped {
            store.files.obsolete.push_file(path_in(&store.files.dir, *number), 0);
        }
    }
    for what in problems {
        store.tell(Event::StateIgnored { what });
    }
    store.tell(Event::Recovered { commits: recovered.commits, log_bytes, torn: recovered.torn });
}
