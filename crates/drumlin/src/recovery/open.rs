//! Recovery of a directory, step by step: from files to a store without background work. The module doc of `recovery`
//! lists the steps: this file does steps 1 and 8, and calls the others. Before step 5, only the directory and the lock
//! file are created.

use super::assemble::{Opening, assemble, operator_of};
use super::replay::{renew, sync};
use super::{evidence, orphans, state};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::event::Event;
use crate::base::merge_operator::MergeOperator;
use crate::disk::{check_path, look_error, sync_dir};
use crate::options::Options;
use crate::store::{Components, Store};
use crate::version::ManifestState;
use crate::write::segment::path_in;
use drumlin_env::sync::Arc;
use drumlin_env::{DirEntry, Env, FileKind, FileLock};
use drumlin_format::log::{
    Record, RecordKind, Recovered, SEGMENT_HEADER_LEN, SegmentHeader, SegmentScanner, Tail, record_len,
};
use drumlin_format::names::FileName;
use drumlin_types::LogNumber;
use std::path::{Path, PathBuf};

/// What to open, and how.
pub(crate) struct OpenRequest {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    pub(crate) create: bool,
    /// Writes nothing: replayed commits stay in memtables.
    pub(crate) read_only: bool,
    /// Whether a repair opens its unfinished target. Anyone else is refused.
    pub(crate) unfinished: bool,
    /// Options set by the caller. They override those in the manifest.
    pub(crate) options: Vec<(String, String)>,
    pub(crate) components: Components,
    /// Lower bound on the store's clock, in Unix microseconds. A repair passes the clock of the damaged store.
    pub(crate) clock: u64,
}

/// Recovers the store, or creates it. Its lanes do not run yet. Also returns what the log held.
pub(crate) fn recover(request: OpenRequest) -> Result<(Arc<Store>, Recovered)> {
    let OpenRequest { env, dir, create, read_only, unfinished, options: wanted, components, clock } = request;
    Options::from_pairs(&wanted)?;
    check_directory(&env, &dir, create, unfinished).map_err(|error| locked_or(&env, &dir, error))?;
    let lock = if read_only { lock_shared(&env, &dir)? } else { Some(lock(&env, &dir)?) };
    // Listed again under the lock: another process may have had the store open until now, or may have filled it.
    let entries = list(&env, &dir)?;
    check_entries(&env, &dir, &entries, create, unfinished)?;
    let is_new = !entries.iter().any(|e| e.name == FileName::Pointer.to_string());
    let mut manifest = if is_new { ManifestState::default() } else { state::read(&env, &dir)? };
    manifest.marks.clock = manifest.marks.clock.max(clock);
    if is_new {
        manifest.store = env.random_u64("store id");
    }
    override_options(&mut manifest, wanted);
    let options = Options::from_pairs(&manifest.options)?;
    evidence::check_ends(&env, &dir, &manifest, &entries)?;
    evidence::check_tables(&dir, &manifest, &entries)?;
    manifest.keyspaces.values().try_for_each(|record| operator_of(record, &components).map(drop))?;
    let unused = if is_new { Vec::new() } else { unused_operators(&manifest, &components) };
    let found =
        Opening { env, dir, options, components, manifest, entries: &entries, lock, read_only, unfinished };
    let (store, recovered) = assemble(found)?;
    unused.into_iter().for_each(|event| store.tell(event));
    if read_only {
        return Ok((store, recovered));
    }
    orphans::remove(&store, &entries, &recovered)?;
    let log = store.commit_lock.state.lock().log.bytes_on_disk();
    store.disk_budget.opened(log);
    keep_order(&store, &recovered)?;
    Ok((store, recovered))
}

/// Refuses a directory that cannot be opened. Creates it if `create` allows that.
fn check_directory(env: &Env, dir: &Path, create: bool, unfinished: bool) -> Result<()> {
    check_path(dir)?;
    if create {
        make_dir(env, dir)?;
    } else if !env.fs().exists(dir).map_err(|e| look_error(env, dir, "cannot look for the store", e))? {
        let what = format!("there is no store at {}: no such directory", dir.display());
        return Err(Error::new(ErrorKind::NotFound, what));
    }
    check_entries(env, dir, &list(env, dir)?, create, unfinished)
}

/// Refuses a directory whose files are not those of a store that can be opened.
fn check_entries(env: &Env, dir: &Path, entries: &[DirEntry], create: bool, unfinished: bool) -> Result<()> {
    check_finished(dir, entries, unfinished)?;
    check_kind_of_directory(env, dir, entries, create)
}

/// Returns `error`. If it is about the files in `dir` and another process holds the lock of `dir`, returns a `Locked`
/// error instead: that process may still be creating a store there.
fn locked_or(env: &Env, dir: &Path, error: Error) -> Error {
    let is_about_files =
        matches!(error.kind(), ErrorKind::Corruption | ErrorKind::NotAStore | ErrorKind::NotFound);
    if !is_about_files {
        return error;
    }
    match lock_shared(env, dir) {
        Err(locked) if locked.kind() == ErrorKind::Locked => locked,
        _ => error,
    }
}

/// Replaces options of the manifest by those that the caller has set.
fn override_options(manifest: &mut ManifestState, wanted: Vec<(String, String)>) {
    for (name, value) in wanted {
        match manifest.options.iter_mut().find(|(n, _)| *n == name) {
            Some((_, old)) => *old = value,
            None => manifest.options.push((name, value)),
        }
    }
}

/// Returns an event for each merge operator that was given for a keyspace that does not exist.
fn unused_operators(manifest: &ManifestState, components: &Components) -> Vec<Event> {
    let has = |name: &str| manifest.keyspaces.values().any(|record| record.name == name);
    let unused = |(name, operator): (&String, &Arc<dyn MergeOperator>)| {
        (!has(name))
            .then(|| Event::OperatorUnused { keyspace: name.clone(), operator: operator.name().to_owned() })
    };
    components.operators.iter().filter_map(unused).collect()
}

/// Makes the replayed log durable if a power loss could otherwise keep later commits and lose earlier ones.
///
/// The flushes that follow bring one keyspace after the other into tables. Until then the other keyspaces depend on
/// the log, which a process that died may not have synced.
fn keep_order(store: &Store, recovered: &Recovered) -> Result<()> {
    let holders = store.keyspaces().iter().filter(|k| k.has_sealed()).count();
    match recovered.replayed.last() {
        // The manifest says that the close record is durable. This sync is cheap, and makes sure of it.
        Some(last) if recovered.closed && *last >= store.log_floor(&[]) => {
            sync(&store.files.env, &path_in(&store.files.dir, *last))?;
            store.sync_dir()
        }
        Some(_) if !recovered.closed && holders > 1 => {
            renew_replayed(store, recovered.replayed.iter().copied())
        }
        _ => Ok(()),
    }
}

/// Creates `dir` and its missing parents, and syncs their directory entries: a file is only as durable as the entries
/// of the directories above it. The entry of a directory that holds a store is durable already.
pub(crate) fn make_dir(env: &Env, dir: &Path) -> Result<()> {
    if exists(env, dir, &dir.join(FileName::Pointer.to_string()))? {
        return Ok(());
    }
    let mut made = missing_parents(env, dir)?;
    made.push(dir);
    env.fs().create_dir_all(dir).map_err(|e| look_error(env, dir, "cannot create the directory", e))?;
    made.into_iter().filter_map(Path::parent).try_for_each(|parent| sync_dir(env, parent))
}

/// Returns the missing directories above `dir`, the topmost first.
pub(crate) fn missing_parents<'a>(env: &Env, dir: &'a Path) -> Result<Vec<&'a Path>> {
    let mut missing = Vec::new();
    for above in dir.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
        if exists(env, dir, above)? {
            break;
        }
        missing.insert(0, above);
    }
    Ok(missing)
}

/// Returns whether `path`, which is `dir` or next to it, exists.
fn exists(env: &Env, dir: &Path, path: &Path) -> Result<bool> {
    env.fs().exists(path).map_err(|e| look_error(env, dir, "cannot look for the directory", e))
}

/// Makes replayed log segments and their directory entries durable.
pub(crate) fn renew_replayed(store: &Store, mut numbers: impl Iterator<Item = LogNumber>) -> Result<()> {
    numbers.try_for_each(|number| renew(&store.files.env, &store.files.dir, number))?;
    store.sync_dir()
}

fn list(env: &Env, dir: &Path) -> Result<Vec<DirEntry>> {
    env.fs().list(dir).map_err(|e| look_error(env, dir, "cannot list the directory", e))
}

/// Number of attempts to lock a file that others remove.
const LOCK_ATTEMPTS: u32 = 100;

/// Takes the exclusive lock of a store.
pub(crate) fn lock(env: &Env, dir: &Path) -> Result<FileLock> {
    let lock = lock_in_place(dir, |path| env.fs().lock(path))?;
    lock.ok_or_else(|| {
        let what = format!("the store at {} is open already, in this or in another process", dir.display());
        Error::new(ErrorKind::Locked, what)
    })
}

/// Locks the directory `dir`, the target of a copy. Refuses it if another store uses it or it holds more than a lock
/// file. A failure removes the lock file that it has made.
pub(crate) fn claim(env: &Env, dir: &Path) -> Result<FileLock> {
    let taken = || {
        let what = format!("another process uses the directory {}: choose another one", dir.display());
        Error::new(ErrorKind::InvalidArgument, what)
    };
    let path = dir.join(FileName::Lock.to_string());
    let is_new = match env.fs().create(&path, FileKind::Lock) {
        Ok(_) => true,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => false,
        Err(error) => return Err(Error::io(&path, "cannot lock the target", error)),
    };
    let undo = || {
        if is_new {
            let _ = env.fs().unlink(&path, FileKind::Lock);
        }
    };
    let lock = match lock(env, dir) {
        Ok(lock) => lock,
        Err(error) if error.kind() == ErrorKind::Locked => return Err(taken()),
        Err(error) => {
            undo();
            return Err(error);
        }
    };
    // Another store may have had the lock before, and have filled the directory.
    let entries = list(env, dir).inspect_err(|_| undo())?;
    let is_empty = entries.iter().all(|entry| entry.name == FileName::Lock.to_string());
    if !is_empty {
        undo();
        return Err(taken());
    }
    Ok(lock)
}

/// Takes the shared lock, which keeps writers out. A copy of a store may lack the lock file. Then no lock is taken,
/// because creating the file would be a write.
pub(crate) fn lock_shared(env: &Env, dir: &Path) -> Result<Option<FileLock>> {
    let is_missing = std::cell::Cell::new(false);
    let shared = |path: &Path| match env.fs().lock_shared(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            is_missing.set(true);
            Ok(None)
        }
        other => other,
    };
    match lock_in_place(dir, shared)? {
        Some(lock) => Ok(Some(lock)),
        None if is_missing.get() => Ok(None),
        None => {
            let what = format!("the store at {} is open for writing", dir.display());
            Err(Error::new(ErrorKind::Locked, what))
        }
    }
}

/// Locks the lock file of `dir` by `lock`. Returns `None` if another process holds it. A checkpoint that fails removes
/// the lock file of its target, perhaps between the open of the file and its lock. Such a lock would keep nobody out,
/// so it is taken again.
fn lock_in_place(
    dir: &Path,
    lock: impl Fn(&Path) -> std::io::Result<Option<FileLock>>,
) -> Result<Option<FileLock>> {
    let path = dir.join(FileName::Lock.to_string());
    let failed = |error| Error::io(&path, "cannot lock the store", error);
    for _ in 0..LOCK_ATTEMPTS {
        let Some(lock) = lock(&path).map_err(failed)? else { return Ok(None) };
        if lock.is_in_place().map_err(failed)? {
            return Ok(Some(lock));
        }
    }
    Err(Error::file(
        ErrorKind::Io,
        &path,
        "another program removes the lock file each time it is locked: stop it and try again",
    ))
}

/// Name of the file that marks the target of a repair until the repair is complete.
pub(crate) const UNFINISHED: &str = "UNFINISHED";

/// Refuses the target of an unfinished repair.
fn check_finished(dir: &Path, entries: &[DirEntry], unfinished: bool) -> Result<()> {
    if unfinished || entries.iter().all(|entry| entry.name != UNFINISHED) {
        return Ok(());
    }
    let what = "a repair into this directory was not completed: remove the directory and repair again";
    Err(Error::corruption(&dir.join(UNFINISHED), 0, what))
}

/// Refuses a directory that holds other files, or a store that lost its `CURRENT` file.
fn check_kind_of_directory(env: &Env, dir: &Path, entries: &[DirEntry], create: bool) -> Result<()> {
    let named = |wanted: FileName| entries.iter().any(|e| FileName::parse(&e.name) == Some(wanted));
    if named(FileName::Pointer) {
        return Ok(());
    }
    let lost_pointer = |what: &str| {
        let what = format!("CURRENT is missing, but the directory holds {what}; run `drumlin repair`");
        Error::corruption(&dir.join(FileName::Pointer.to_string()), 0, what)
    };
    for entry in entries {
        let path = dir.join(&entry.name);
        match FileName::parse(&entry.name) {
            Some(FileName::Table(_) | FileName::Value(_) | FileName::Map(_)) => {
                return Err(lost_pointer("tables"));
            }
            Some(FileName::Log(number)) if holds_records(env, &path, number)? => {
                return Err(lost_pointer("a log"));
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
        // A store that may be created finds these manifests later.
        let used = entries.iter().find(|entry| match FileName::parse(&entry.name) {
            Some(FileName::Manifest(number)) => evidence::was_used(env, &dir.join(&entry.name), number),
            _ => false,
        });
        if let Some(entry) = used {
            return Err(lost_pointer(&format!("{}, which was in use", entry.name)));
        }
        let what = format!("there is no store at {}: the directory has no CURRENT file", dir.display());
        return Err(Error::new(ErrorKind::NotFound, what));
    }
    Ok(())
}

/// Bytes that usually tell whether a log segment holds writes: those after the header, which are records or zeros.
const LOG_START: u64 = 2 * SEGMENT_HEADER_LEN as u64;

/// Returns whether a log segment holds writes.
fn holds_records(env: &Env, path: &Path, number: LogNumber) -> Result<bool> {
    let start = state::read_start(env, path, FileKind::Log, LOG_START)?;
    let Ok(header) = SegmentHeader::decode(&start, number) else { return Ok(false) };
    let is_batch = |record: Record<'_>| record.header.kind == RecordKind::Batch;
    let mut scanner = SegmentScanner::new(&start, header);
    if scanner.any(is_batch) {
        return Ok(true);
    }
    match scanner.tail() {
        Some(Tail::Ended { .. }) => Ok(false),
        // Zeros follow, or what follows is not read yet.
        Some(Tail::Clean { end }) if end + record_len(0) <= start.len() as u64 => Ok(false),
        _ => {
            let bytes = state::read_file(env, path, FileKind::Log)?;
            Ok(SegmentScanner::new(&bytes, header).any(is_batch))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_env::MemEnv;
    use std::cell::Cell;

    #[test]
    fn a_lock_of_a_removed_file_is_taken_again() {
        let env = MemEnv::new(1).env();
        let dir = Path::new("/d");
        env.fs().create_dir_all(dir).expect("a directory");
        let attempts = Cell::new(0);
        let lock = lock_in_place(dir, |path| {
            let lock = env.fs().lock(path)?;
            attempts.set(attempts.get() + 1);
            if attempts.get() == 1 {
                env.fs().unlink(path, FileKind::Lock)?;
            }
            Ok(lock)
        });
        let lock = lock.expect("no error").expect("nobody holds it");
        assert!(attempts.get() == 2 && lock.is_in_place().expect("a look"));
        assert_eq!(super::lock(&env, dir).expect_err("it is held").kind(), ErrorKind::Locked);
    }

    #[test]
    fn a_directory_is_claimed_once_and_only_if_it_is_empty() {
        let env = MemEnv::new(2).env();
        let dir = Path::new("/d");
        env.fs().create_dir_all(dir).expect("a directory");
        let claimed = claim(&env, dir).expect("it is empty");
        assert_eq!(claim(&env, dir).expect_err("it is claimed").kind(), ErrorKind::InvalidArgument);
        drop(claimed);
        let claimed = claim(&env, dir).expect("a lock file alone does not count");
        env.fs().create(&dir.join("other"), FileKind::Temp).expect("a file");
        drop(claimed);
        assert_eq!(claim(&env, dir).expect_err("it holds a file").kind(), ErrorKind::InvalidArgument);
    }
}
