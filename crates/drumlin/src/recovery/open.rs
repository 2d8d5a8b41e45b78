//! The steps of opening a directory.

use super::assemble::{Found, assemble, operator_of};
use super::replay::{renew, sync};
use super::{evidence, orphans, state};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::event::Event;
use crate::base::merge_operator::MergeOperator;
use crate::disk::{check_path, sync_dir};
use crate::options::Options;
use crate::store::{Components, Store};
use crate::version::ManifestState;
use crate::write::segment::path_in;
use drumlin_env::sync::Arc;
use drumlin_env::{DirEntry, Env, FileKind, FileLock};
use drumlin_format::log::{RecordKind, Recovered, SegmentScanner};
use drumlin_format::names::FileName;
use drumlin_types::LogNumber;
use std::path::{Path, PathBuf};

/// What to open, and how.
pub(crate) struct OpenRequest {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    pub(crate) create: bool,
    /// Nothing is written, and what the log holds stays in memtables.
    pub(crate) read_only: bool,
    /// A repair writes it: its mark is no reason to refuse it.
    pub(crate) unfinished: bool,
    /// Options set by the caller; they win over those in the manifest.
    pub(crate) options: Vec<(String, String)>,
    pub(crate) components: Components,
    /// The store's clock starts here at least, in Unix microseconds: a repair gives the clock of the old store.
    pub(crate) clock: u64,
}

/// Opens the store, or makes it.
pub(crate) fn open(request: OpenRequest) -> Result<Arc<Store>> {
    let OpenRequest { env, dir, create, read_only, unfinished, options: wanted, components, clock } = request;
    Options::from_pairs(&wanted)?;
    check_path(&dir)?;
    let fs = env.fs();
    if create {
        make_dir(&env, &dir)?;
    } else if !fs.exists(&dir).map_err(|e| Error::io(&dir, "cannot look for the store", e))? {
        return Err(Error::new(ErrorKind::NotFound, format!("there is no store at {}", dir.display())));
    }
    let entries = list(&env, &dir)?;
    check_finished(&dir, &entries, unfinished)?;
    check_kind_of_directory(&env, &dir, &entries, create)?;
    let lock = if read_only { lock_shared(&env, &dir)? } else { Some(lock(&env, &dir)?) };
    // Once more under the lock: another process may have worked here until now.
    let entries = list(&env, &dir)?;
    let is_new = !entries.iter().any(|e| e.name == FileName::Pointer.to_string());
    let mut manifest = if is_new { ManifestState::default() } else { state::read(&env, &dir)? };
    manifest.marks.clock = manifest.marks.clock.max(clock);
    if is_new {
        manifest.store = env.random_u64("store id");
    }
    for (name, value) in wanted {
        match manifest.options.iter_mut().find(|(n, _)| *n == name) {
            Some((_, old)) => *old = value,
            None => manifest.options.push((name, value)),
        }
    }
    let options = Options::from_pairs(&manifest.options)?;
    options.check_together()?;
    evidence::check_ends(&env, &dir, &manifest, &entries)?;
    evidence::check_tables(&dir, &manifest, &entries)?;
    // Before anything is written.
    manifest.keyspaces.values().try_for_each(|record| operator_of(record, &components).map(drop))?;
    let has = |name: &str| is_new || manifest.keyspaces.values().any(|record| record.name == name);
    let unused = |(name, operator): (&String, &Arc<dyn MergeOperator>)| {
        (!has(name))
            .then(|| Event::OperatorUnused { keyspace: name.clone(), operator: operator.name().to_owned() })
    };
    let unused: Vec<Event> = components.operators.iter().filter_map(unused).collect();
    let found =
        Found { env, dir, options, components, manifest, entries: &entries, lock, read_only, unfinished };
    let (store, recovered) = assemble(found)?;
    unused.into_iter().for_each(|event| store.tell(event));
    if read_only {
        return Ok(store);
    }
    orphans::remove(&store, &entries)?;
    // Flushes bring one keyspace after the other into tables. Until all are there, those that are not have the log
    // alone, of which a process that died may have synced nothing: power loss would leave later commits and not the
    // earlier ones.
    let holders = store.keyspaces().iter().filter(|k| !k.peek().sealed.is_empty()).count();
    match recovered.replayed.last() {
        // All before the record of a clean end was synced; it may not have been, when the process ended there.
        Some(last) if recovered.closed && *last >= store.log_floor(&[]) => {
            sync(&store.files.env, &path_in(&store.files.dir, *last))?;
            store.sync_dir()?;
        }
        Some(_) if !recovered.closed && holders > 1 => renew_replayed(&store, &recovered)?,
        _ => {}
    }
    // Lanes that run hold the store, and with it the lock, until it is closed.
    if let Err(error) = store.start_lanes().and_then(|()| settle(&store, &recovered)) {
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
    recovered.replayed.iter().try_for_each(|n| renew(&store.files.env, &store.files.dir, *n))?;
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
pub(crate) fn lock_shared(env: &Env, dir: &Path) -> Result<Option<FileLock>> {
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

/// The file that is in a directory as long as a repair writes it.
pub(crate) const UNFINISHED: &str = "UNFINISHED";

/// Refuses what a repair that did not end has left.
fn check_finished(dir: &Path, entries: &[DirEntry], unfinished: bool) -> Result<()> {
    if unfinished || entries.iter().all(|entry| entry.name != UNFINISHED) {
        return Ok(());
    }
    let what = "a repair into this directory did not end: remove the directory, and repair again";
    Err(Error::corruption(&dir.join(UNFINISHED), 0, what))
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
            None if entry.name == UNFINISHED => {}
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
