//! The steps of opening a directory.

use super::replay::{Target, renew, replay, sync};
use super::state::{self, ManifestState};
use super::{Numbers, snapshot};
use crate::compaction::control::{Asked, Control, KeyspaceControl};
use crate::decisions::{DecisionFiles, DecisionLog};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Event;
use crate::keyspace::KeyspaceState;
use crate::metrics::Counters;
use crate::options::{KeyspaceOptions, Options, Pipeline, TableReads};
use crate::stats::{Meter, fresh_store};
use crate::store::{Components, Parts, Sizes, Store, sync_dir, unlink};
use crate::table::{BlockCache, TableCache};
use crate::version::{ManifestWriter, Obsolete};
use crate::write::lane::LaneState;
use crate::write::log::LogTail;
use crate::write::segment::{DiskBudget, LogHome, path_in};
use crate::write::{CommitLane, Log, Published, Publisher};
use drumlin_env::sync::Arc;
use drumlin_env::{DirEntry, Env, FileKind, FileLock, Note};
use drumlin_format::log::{RecordKind, Recovered, SegmentScanner};
use drumlin_format::manifest::ManifestHeader;
use drumlin_format::names::FileName;
use drumlin_policy::schedule::{self, Mode};
use drumlin_types::contract::CompactionPolicy;
use drumlin_types::{KeyspaceId, LogNumber, Seq};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What to open, and how.
pub(crate) struct OpenRequest {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    pub(crate) create: bool,
    /// Nothing is written, and what the log holds stays in memtables.
    pub(crate) read_only: bool,
    /// Options set by the caller; they win over those in the manifest.
    pub(crate) options: Vec<(String, String)>,
    pub(crate) components: Components,
}

/// Opens the store, or makes it.
pub(crate) fn open(request: OpenRequest) -> Result<Arc<Store>> {
    let OpenRequest { env, dir, create, read_only, options: wanted, components } = request;
    store_options(&wanted)?;
    let fs = env.fs();
    if create {
        make_dir(&env, &dir)?;
    } else if !fs.exists(&dir).map_err(|e| Error::io(&dir, "cannot look for the store", e))? {
        return Err(Error::new(ErrorKind::NotFound, format!("there is no store at {}", dir.display())));
    }
    let entries = list(&env, &dir)?;
    check_kind_of_directory(&env, &dir, &entries, create)?;
    let lock = if read_only { lock_shared(&env, &dir)? } else { Some(lock(&env, &dir)?) };
    // Once more under the lock: another process may have worked here until now.
    let entries = list(&env, &dir)?;
    let is_new = !entries.iter().any(|e| e.name == FileName::Pointer.to_string());
    let mut manifest = if is_new { ManifestState::default() } else { state::read(&env, &dir)? };
    if is_new {
        manifest.store = env.random_u64("store id");
    }
    for (name, value) in wanted {
        match manifest.options.iter_mut().find(|(n, _)| *n == name) {
            Some((_, old)) => *old = value,
            None => manifest.options.push((name, value)),
        }
    }
    let options = store_options(&manifest.options)?;
    check_tables(&dir, &manifest, &entries)?;
    let found = Found { env, dir, options, components, manifest, entries: &entries, lock, read_only };
    let (store, recovered) = assemble(found)?;
    if read_only {
        return Ok(store);
    }
    remove_orphans(&store, &entries)?;
    // Flushes bring one keyspace after the other into tables. Until all are there, those that are not have the log alone, of
    // which a process that died may have synced nothing: power loss would leave later commits and not the earlier ones.
    let holders = store.keyspaces().iter().filter(|k| !k.peek().sealed.is_empty()).count();
    match recovered.replayed.last() {
        // All before the record of a clean end was synced; it may not have been, when the process ended there.
        Some(last) if recovered.closed && *last >= store.log_floor(&[]) => {
            sync(&store.env, &path_in(&store.dir, *last))?;
            store.sync_dir()?;
        }
        Some(_) if !recovered.closed && holders > 1 => renew_replayed(&store, &recovered)?,
        _ => {}
    }
    store.start_lanes()?;
    if let Err(error) = settle(&store, &recovered) {
        // What was replayed may be in memory alone: nothing that builds on it, as a record of the end, is written.
        store.poison(&error);
        let _ = store.close();
        return Err(error);
    }
    Ok(store)
}

/// Makes `dir`, and the directories above it that are missing, and their names last: a file is only as durable as the
/// entries of the directories above it. One that holds a store already had its name made last.
pub(crate) fn make_dir(env: &Env, dir: &Path) -> Result<()> {
    let fs = env.fs();
    let exists =
        |path: &Path| fs.exists(path).map_err(|e| Error::io(path, "cannot look for the directory", e));
    if exists(&dir.join(FileName::Pointer.to_string()))? {
        return Ok(());
    }
    let mut made = vec![dir];
    for above in dir.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
        if exists(above)? {
            break;
        }
        made.push(above);
    }
    fs.create_dir_all(dir).map_err(|e| Error::io(dir, "cannot create the directory", e))?;
    made.into_iter().rev().filter_map(Path::parent).try_for_each(|parent| sync_dir(env, parent))
}

/// Brings what was recovered into tables, unless it is known to be durable in the log.
fn settle(store: &Arc<Store>, recovered: &Recovered) -> Result<()> {
    if recovered.closed {
        return Ok(());
    }
    match store.wait_flushed(&store.pending_flushes()) {
        Err(error) if error.kind() == ErrorKind::NoSpace => renew_replayed(store, recovered),
        settled => settled,
    }
}

/// Makes the log that was replayed last, names included.
fn renew_replayed(store: &Store, recovered: &Recovered) -> Result<()> {
    recovered.replayed.iter().try_for_each(|n| renew(&store.env, &store.dir, *n))?;
    store.sync_dir()
}

fn list(env: &Env, dir: &Path) -> Result<Vec<DirEntry>> {
    env.fs().list(dir).map_err(|e| Error::io(dir, "cannot list the directory", e))
}

fn lock(env: &Env, dir: &Path) -> Result<FileLock> {
    let path = dir.join(FileName::Lock.to_string());
    match env.fs().lock(&path).map_err(|e| Error::io(&path, "cannot lock the store", e))? {
        Some(lock) => Ok(lock),
        None => Err(Error::new(ErrorKind::Locked, format!("the store at {} is open already", dir.display()))),
    }
}

/// Keeps writers out, beside other readers. A store without a lock file, such as a copy of the other files, is read
/// without: making the file would be a write.
fn lock_shared(env: &Env, dir: &Path) -> Result<Option<FileLock>> {
    let path = dir.join(FileName::Lock.to_string());
    match env.fs().lock_shared(&path) {
        Ok(Some(lock)) => Ok(Some(lock)),
        Ok(None) => {
            let what = format!("the store at {} is open for writing", dir.display());
            Err(Error::new(ErrorKind::Locked, what))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(&path, "cannot lock the store", error)),
    }
}

/// Refuses a directory that holds something else, or the remains of a store without its pointer.
fn check_kind_of_directory(env: &Env, dir: &Path, entries: &[DirEntry], create: bool) -> Result<()> {
    let named = |wanted: FileName| entries.iter().any(|e| FileName::parse(&e.name) == Some(wanted));
    if named(FileName::Pointer) {
        return Ok(());
    }
    for entry in entries {
        let path = dir.join(&entry.name);
        match FileName::parse(&entry.name) {
            Some(FileName::Table(_) | FileName::Value(_) | FileName::Map(_)) => {
                return Err(Error::corruption(
                    &path,
                    0,
                    "the directory holds tables but no CURRENT file; see repair",
                ));
            }
            Some(FileName::Log(number)) if holds_records(env, &path, number)? => {
                return Err(Error::corruption(
                    &path,
                    0,
                    "the directory holds a log but no CURRENT file; see repair",
                ));
            }
            Some(_) => {}
            None => {
                let what = format!("{} is not empty and holds no Drumlin store", dir.display());
                return Err(Error::new(ErrorKind::NotAStore, what));
            }
        }
    }
    if !create {
        return Err(Error::new(ErrorKind::NotFound, format!("there is no store at {}", dir.display())));
    }
    Ok(())
}

fn holds_records(env: &Env, path: &Path, number: LogNumber) -> Result<bool> {
    let bytes = state::read_file(env, path, FileKind::Log)?;
    let Ok(header) = drumlin_format::log::SegmentHeader::decode(&bytes, number) else { return Ok(false) };
    Ok(SegmentScanner::new(&bytes, header).any(|record| record.header.kind == RecordKind::Batch))
}

/// Every table of the manifest must be there with its length; its content is checked when it is read.
fn check_tables(dir: &Path, manifest: &ManifestState, entries: &[DirEntry]) -> Result<()> {
    let lens: BTreeMap<&str, u64> = entries.iter().map(|e| (e.name.as_str(), e.len)).collect();
    for (table, len) in manifest.tables() {
        let name = FileName::Table(table).to_string();
        match lens.get(name.as_str()) {
            None => return Err(Error::corruption(&dir.join(name), 0, "a table is missing")),
            Some(found) if *found != len => {
                let what = format!("a table is {found} bytes long and should be {len}");
                return Err(Error::corruption(&dir.join(name), (*found).min(len), what));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

fn sizes(options: &Options) -> Sizes {
    let budget = options.memory_budget;
    let memtables = budget * 3 / 8;
    Sizes {
        memtables: memtables as usize,
        cache: (budget / 2) as usize,
        log: (memtables * 2).max(options.log_segment_bytes * 4),
        slots: options.workers as usize,
        mode: match options.pipeline {
            Pipeline::Pipelined => Mode::Pipelined,
            Pipeline::Split => Mode::Split,
            Pipeline::Unsplit => Mode::Unsplit,
        },
    }
}

/// A keyspace of the manifest with its policy, and what the policy's saved state was good for.
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

/// Tables kept open.
const OPEN_TABLES: usize = 4096;
/// The options that `pairs` set, the others by default.
fn store_options(pairs: &[(String, String)]) -> Result<Options> {
    let mut options = Options::default();
    pairs.iter().try_for_each(|(name, value)| options.set(name, value))?;
    Ok(options)
}

/// The options of a keyspace that `pairs` set, the others by default.
pub(crate) fn keyspace_options(pairs: &[(String, String)]) -> Result<KeyspaceOptions> {
    let mut options = KeyspaceOptions::default();
    pairs.iter().try_for_each(|(name, value)| options.set(name, value))?;
    Ok(options)
}

/// The policy that serves when a keyspace's own is not known.
const DEFAULT_POLICY: &str = "arce";

/// What a store is made of.
struct Found<'a> {
    env: Env,
    dir: PathBuf,
    options: Options,
    components: Components,
    manifest: ManifestState,
    entries: &'a [DirEntry],
    lock: Option<FileLock>,
    read_only: bool,
}

fn assemble(found: Found<'_>) -> Result<(Arc<Store>, Recovered)> {
    let Found { env, dir, options, components, manifest, entries, lock, read_only } = found;
    let sizes = sizes(&options);
    let on_disk = entries.iter().filter_map(|e| FileName::parse(&e.name)?.number()).max().unwrap_or(0);
    let mut next_file =
        manifest.next_file.max(if drumlin_types::bug!("B14") { 0 } else { on_disk + 1 }).max(1);
    let mut fresh = || {
        next_file += 1;
        next_file - 1
    };
    let mut targets: BTreeMap<KeyspaceId, Target> = manifest
        .keyspaces
        .iter()
        .map(|(id, k)| (*id, Target { flushed: k.flushed, memtable: None }))
        .collect();
    let numbers: Vec<LogNumber> = entries
        .iter()
        .filter_map(|e| match FileName::parse(&e.name) {
            Some(FileName::Log(number)) => Some(number),
            _ => None,
        })
        .collect();
    let decision_logs = entries.iter().filter_map(|e| match FileName::parse(&e.name) {
        Some(FileName::Decisions(number)) => Some(number),
        _ => None,
    });
    let decision_logs = decision_logs.collect();
    let (recovered, log_bytes) = replay(&env, &dir, &numbers, manifest.floor, &mut targets, manifest.store)?;
    let last_seq: Seq = match drumlin_types::bug!("B8") {
        false => recovered.last_seq.max(manifest.last_seq).max(largest_table_seq(&manifest, &targets)),
        true => manifest.last_seq,
    };
    let obsolete = Arc::new(Obsolete::default());
    let budget = DiskBudget::new(options.disk_budget, obsolete.clone());
    let home = LogHome::new(env.clone(), dir.clone(), options.log_segment_bytes, budget);
    let log_number = LogNumber(fresh());
    let header = recovered.next_header(log_number);
    let lens =
        |n: LogNumber| entries.iter().find(|e| e.name == FileName::Log(n).to_string()).map_or(0, |e| e.len);
    let older: Vec<(LogNumber, u64)> = recovered.replayed.iter().map(|n| (*n, lens(*n))).collect();
    let tail = match read_only {
        true => LogTail::ended(&header, older),
        false => LogTail::begin(&home, &header, older)?,
    };
    let published = Published { seq: last_seq, log_end: recovered.end };
    // What is only read is not made durable: without an orderly close no more is known to be than what was flushed.
    let flushed = manifest.keyspaces.values().map(|k| k.flushed).max().unwrap_or(0);
    let durable_seq = if read_only && !recovered.closed { flushed } else { last_seq };

    let sampling = fresh_store();
    let mut keyspaces = Vec::new();
    let mut controls = Vec::new();
    let mut problems = Vec::new();
    for (id, record) in &manifest.keyspaces {
        let path = dir.join(FileName::Pointer.to_string());
        let tree = record.tree(&obsolete).map_err(|what| Error::corruption(&path, 0, what))?;
        let keyspace_options = keyspace_options(&record.options)?;
        let (policy, problem) = policy(record.policy.clone(), &keyspace_options.compaction);
        problems.extend(problem);
        let operator = components.operators.get(&record.name).cloned();
        let state = Arc::new(KeyspaceState::new(
            *id,
            record.name.as_str().into(),
            &options,
            keyspace_options,
            operator,
            tree,
            log_number,
            manifest.store,
            Meter::new(&sampling),
        ));
        if let Some(memtable) = targets.remove(id).and_then(|t| t.memtable) {
            state.adopt(memtable);
        }
        controls.push(KeyspaceControl::new(state.clone(), policy, record.flushed));
        keyspaces.push(state);
    }
    let floor = tail.floor(older_floor(&keyspaces, log_number));
    let clock = manifest.clock.max(env.clock().unix_micros());
    let header_of = |number| ManifestHeader { number, store: manifest.store };
    let manifest_number = fresh();
    let numbers = Numbers { floor, next_file, next_run: manifest.next_run.max(1), last_seq, clock };
    let writer = match read_only {
        true => ManifestWriter::read_only(&env, dir.clone(), header_of(manifest.number)),
        false => {
            let edit = snapshot(&controls, &options, &manifest.carried, &numbers);
            ManifestWriter::create(&env, dir.clone(), header_of(manifest_number), &edit)?
        }
    };
    let cache = Arc::new(BlockCache::new(sizes.cache));
    let tables = TableCache::new(&env, &dir, cache.clone(), manifest.store, OPEN_TABLES)
        .reading(options.table_reads == TableReads::Direct);
    let store = Arc::new(Store::new(Parts {
        lane: CommitLane::new(home, LaneState { next_seq: last_seq + 1, log: tail, closed: false }),
        publisher: Publisher::new(published),
        log: Log::new(Published { seq: durable_seq, ..published }),
        control: Control {
            manifest: writer,
            keyspaces: controls,
            numbers: schedule::Numbers { next_run: numbers.next_run, next_ticket: 1 },
            decisions: DecisionLog::new(env.clock().monotonic_micros(), clock),
            flush_ceiling: Seq::MAX,
            carried: manifest.carried,
            next_manual: 1,
            shortage: None,
            short_piece: None,
            stirred: false,
            idle_waiters: 0,
            asked: Asked::default(),
            closed: false,
        },
        decisions: DecisionFiles::new(&dir, decision_logs, next_file),
        filter_seed: manifest.store,
        sampling,
        recovered_seq: last_seq,
        last_clock: clock,
        next_keyspace: manifest.next_keyspace,
        next_file,
        env,
        dir,
        options,
        sizes,
        components,
        cache,
        tables,
        obsolete,
        keyspaces,
        read_only,
        lock,
    }));
    report(&store, &recovered, manifest.bytes_read + log_bytes, log_bytes, problems);
    Ok((store, recovered))
}

fn report(store: &Store, recovered: &Recovered, bytes: u64, log_bytes: u64, problems: Vec<String>) {
    Counters::add(&store.metrics.open_bytes_read, bytes);
    Counters::add(&store.metrics.recovered_commits, recovered.records);
    if !store.read_only {
        store.release_log(store.log_floor(&[]));
        for number in &recovered.dropped {
            store.obsolete.push_file(crate::write::segment::path_in(&store.dir, *number));
        }
    }
    for what in problems {
        store.tell(Event::StateIgnored { what });
    }
    store.tell(Event::Recovered { commits: recovered.records, log_bytes, torn: recovered.torn });
}

fn largest_table_seq(manifest: &ManifestState, targets: &BTreeMap<KeyspaceId, Target>) -> Seq {
    let flushed = manifest.keyspaces.values().map(|k| k.flushed).max().unwrap_or(0);
    targets.values().filter_map(|t| t.memtable.as_ref()).map(|m| m.max_seq()).max().unwrap_or(0).max(flushed)
}

fn older_floor(keyspaces: &[Arc<KeyspaceState>], newest: LogNumber) -> LogNumber {
    keyspaces.iter().filter_map(|k| k.first_log()).min().unwrap_or(newest)
}

/// Removes files that nothing refers to: outputs of unfinished jobs, old manifests, temporary files.
fn remove_orphans(store: &Arc<Store>, entries: &[DirEntry]) -> Result<()> {
    let control = store.control.lock();
    let live: std::collections::BTreeSet<_> = control
        .keyspaces
        .iter()
        .flat_map(|k| k.state.view().tree.files().map(|(_, _, f)| f.id()).collect::<Vec<_>>())
        .collect();
    let current = control.manifest.header().number;
    drop(control);
    let floor = store.log_floor(&[]);
    let files: Vec<PathBuf> = live.iter().map(|id| store.table_path(*id)).collect();
    store.env.note(Note::Recovered { files: &files });
    // A log that recovery dropped may also be below the floor: each file is unlinked once (O9).
    let dropped: std::collections::BTreeSet<PathBuf> = store.obsolete.take_files().into_iter().collect();
    for entry in entries {
        let path = store.dir.join(&entry.name);
        if dropped.contains(&path) {
            continue;
        }
        let kind = match FileName::parse(&entry.name) {
            Some(FileName::Table(id)) if !live.contains(&id) => FileKind::Table,
            Some(FileName::Manifest(number)) if number != current => FileKind::Manifest,
            Some(FileName::Temp(_)) => FileKind::Temp,
            Some(FileName::Log(number)) if number < floor && !store.keeps_log(number) => FileKind::Log,
            _ => continue,
        };
        unlink(&store.env, &path, kind)?;
    }
    for path in &dropped {
        unlink(&store.env, path, FileKind::Log)?;
    }
    sync_dir(&store.env, &store.dir)
}
