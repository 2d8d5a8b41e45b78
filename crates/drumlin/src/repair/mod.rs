//! Repair: copies everything that is readable in a damaged store into a new store.
//!
//! 1. [`source`] decides what to read. It uses the manifest as far as it can be trusted.
//! 2. [`log`] reads the log and skips damaged parts.
//! 3. [`merge`] combines tables and log, keyspace by keyspace, and gives the newest value of each key.
//! 4. The entries are written into a new store, which gets the options of the old one. Options that may fail or delay
//!    writes are set when it is complete.
//! 5. [`report`] lists what is certain, what is in doubt and what is lost.
//!
//! The old directory is only read, under a shared lock. The new directory holds a marker file, made before its first
//! file and removed when everything is durable. While the marker exists, the directory does not open as a store. So an
//! interrupted repair leaves no store that opens.
//!
//! Entries whose keyspace name is unknown go to `recovered-N`, where N is the keyspace id. Entries of a table whose
//! keyspace is unknown go to `recovered-table-N`, where N is the table number.

mod log;
mod merge;
mod report;
mod source;

pub use report::{RepairProgress, RepairReport, RepairedFile, RepairedKeyspace};

use crate::api::batch::Batch;
use crate::api::db::Db;
use crate::api::keyspace::Keyspace;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::resolve::ValueRead;
use crate::disk::{check_empty, check_path, look_error, sync_dir, target_outside};
use crate::options::{Durability, is_left_out};
use crate::recovery::open::{UNFINISHED, claim, lock_shared, make_dir};
use crate::table::Version;
use crate::value::ValueFiles;
use drumlin_env::{Env, FileKind};
use drumlin_types::Kind;
use log::{LogReader, Logged};
use merge::{Lost, Merge, Saved};
use report::FileReports;
use source::{Destination, RepairSources};
use std::collections::BTreeSet;
use std::path::Path;

/// Size of a batch in bytes at which it is written.
const BATCH_BYTES: usize = 256 << 10;
/// Options of the old store that may fail or delay writes. The repair runs without them, and sets them when the new
/// store is complete.
const LIMITS: [&str; 3] = ["disk_budget", "background_rate", "write_timeout_ms"];
/// Number of entries between two progress reports.
const ENTRIES_PER_LOOK: u64 = 1024;

/// Copies everything that is readable in the damaged store at `from` into a new store at `to`. Nothing in `from` is
/// changed.
///
/// Use it when [`Db::open`] or reads fail with `Corruption`. The old store must not be open for writing.
///
/// Damage in the old store is not an error: the report lists it. The report counts the keys whose values are certain or
/// in doubt, and the entries that are known to be lost. [`RepairReport::nothing_lost`] is `true` if the copy is
/// provably complete; it never is for a store that was not closed cleanly. Sequence numbers start anew, and times to
/// live are kept. The new store gets the options, keyspaces and merge operator names of the old one, as far as they are
/// readable. Entries whose keyspace name is unknown go to `recovered-N`, and those of a table of an unknown keyspace to
/// `recovered-table-N`.
///
/// It reads all data of the tables once, and the log several times. It holds the log's entries in memory, and needs
/// disk space for the new store.
///
/// ```
/// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
/// # let (damaged, repaired) = (dir.path().join("damaged"), dir.path().join("repaired"));
/// # let db = drumlin::Db::open(&damaged)?;
/// # db.keyspace("users")?.put("ada", "1815")?;
/// # db.close()?;
/// let report = drumlin::repair(&damaged, &repaired)?;
/// assert!(report.nothing_lost(), "{:?}", report.findings);
/// let db = drumlin::Db::open(&repaired)?;
/// # assert!(db.keyspace("users")?.contains_key("ada")?);
/// # Ok::<(), drumlin::Error>(())
/// ```
///
/// # Errors
/// - `InvalidArgument`: a path is empty, `to` lies inside `from`, or `to` exists and is not empty.
/// - `NotFound`: there is no directory `from`; `NotAStore`: it is a file.
/// - `Locked`: the old store is open for writing.
/// - `Io`: the directory `from` cannot be listed.
/// - Errors of writing the new store, such as `NoSpace`. Then `to` holds an unfinished copy that does not open: remove
///   it and repair again.
pub fn repair(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<RepairReport> {
    rescue(&Env::os(), from.as_ref(), to.as_ref(), |_| {})
}

/// Does the same as [`repair`], and calls `progress` from time to time: at the start, after every 1024 entries and
/// after each keyspace.
///
/// ```
/// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
/// # let (damaged, repaired) = (dir.path().join("damaged"), dir.path().join("repaired"));
/// # drumlin::Db::open(&damaged)?.close()?;
/// let report = drumlin::repair_with(&damaged, &repaired, |progress| {
///     println!("{} of {} bytes", progress.bytes, progress.total_bytes);
/// })?;
/// println!("{} keys saved, {} entries lost", report.entries(), report.lost());
/// # Ok::<(), drumlin::Error>(())
/// ```
///
/// # Errors
/// Those of [`repair`].
pub fn repair_with(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    progress: impl FnMut(&RepairProgress),
) -> Result<RepairReport> {
    rescue(&Env::os(), from.as_ref(), to.as_ref(), progress)
}

/// Does the same as [`repair_with`] in the environment `env`. Needs the feature `testing`.
///
/// # Errors
/// Those of [`repair`].
#[cfg(feature = "testing")]
pub fn repair_in(
    env: &Env,
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    progress: impl FnMut(&RepairProgress),
) -> Result<RepairReport> {
    rescue(env, from.as_ref(), to.as_ref(), progress)
}

fn rescue(env: &Env, from: &Path, to: &Path, progress: impl FnMut(&RepairProgress)) -> Result<RepairReport> {
    check_path(from)?;
    check_path(to)?;
    let to = &*target_outside(env, from, to)?;
    let fs = env.fs();
    if !fs.exists(from).map_err(|e| look_error(env, from, "cannot look for the store", e))? {
        let what = format!("there is no store at {}: no such directory", from.display());
        return Err(Error::new(ErrorKind::NotFound, what));
    }
    let lock = lock_shared(env, from);
    let entries = source::list(env, from)?;
    let mark_path = to.join(UNFINISHED);
    if fs
        .exists(&mark_path)
        .map_err(|e| Error::io(&mark_path, "cannot check whether the target exists", e))?
    {
        let what = format!("{} holds an unfinished repair: remove it first", to.display());
        return Err(Error::new(ErrorKind::InvalidArgument, what));
    }
    check_empty(env, to)?;
    // A store whose lock file cannot be opened for lack of permission can still be read.
    let _lock = match lock {
        Err(error) if error.kind() == ErrorKind::Locked => return Err(error),
        other => other.ok(),
    };
    // Marked before the long part: from here on no other process uses the target.
    mark(env, to)?;
    let mut files = FileReports::default();
    let sources = RepairSources::find(env, from, &entries);
    let logged = LogReader { env, dir: from, sources: &sources, files: &mut files }.read(&entries);
    let report = Rescue { env, dir: from, files, sources, logged, progress, come: RepairProgress::default() }
        .write(to)?;
    unmark(env, to)?;
    Ok(report)
}

/// Creates the directory `to` and its marker file, under the lock of the directory. Until [`unmark`], the directory
/// does not open as a store, and no checkpoint takes it.
fn mark(env: &Env, to: &Path) -> Result<()> {
    make_dir(env, to)?;
    let _lock = claim(env, to)?;
    let path = to.join(UNFINISHED);
    let made = env.fs().create(&path, FileKind::Temp).and_then(|file| file.sync_data());
    made.map_err(|e| Error::io(&path, "cannot create the file that marks an unfinished repair", e))?;
    sync_dir(env, to)
}

/// Makes the files of `to` durable by name, and removes the marker file.
fn unmark(env: &Env, to: &Path) -> Result<()> {
    let path = to.join(UNFINISHED);
    sync_dir(env, to)?;
    env.fs()
        .unlink(&path, FileKind::Temp)
        .map_err(|e| Error::io(&path, "cannot remove the file that marks an unfinished repair", e))?;
    sync_dir(env, to)
}

/// Running repair: everything found in the old store, and the progress of writing it.
struct Rescue<'a, P> {
    env: &'a Env,
    /// The damaged store.
    dir: &'a Path,
    files: FileReports,
    sources: RepairSources,
    logged: Logged,
    progress: P,
    come: RepairProgress,
}

impl<P: FnMut(&RepairProgress)> Rescue<'_, P> {
    fn write(mut self, to: &Path) -> Result<RepairReport> {
        let mut report = RepairReport {
            commits: self.logged.commits,
            was_closed: self.logged.was_closed,
            ..RepairReport::default()
        };
        report.notes.append(&mut self.sources.notes);
        report.findings.append(&mut self.sources.findings);
        report.findings.append(&mut self.logged.findings);
        let table_bytes: u64 = self.sources.tables.iter().map(|source| source.len).sum();
        self.come = RepairProgress {
            bytes: self.logged.bytes,
            total_bytes: self.logged.bytes + table_bytes,
            entries: 0,
        };
        (self.progress)(&self.come);
        let destinations = self.destinations();
        self.sources.give_names(&destinations);
        report.findings.append(&mut self.sources.findings);
        let db = self.open(to)?;
        for destination in destinations {
            let keyspace = self.keyspace(&db, destination, &mut report)?;
            let kept = self.fill(&db, &keyspace, destination, &mut report)?;
            report.keyspaces.push(kept);
        }
        db.flush()?;
        db.close()?;
        self.set_limits(to)?;
        report.files = self.files.list();
        Ok(report)
    }

    /// Creates the new store, with the options, clock and merge operator names of the old one where they are known.
    fn open(&self, to: &Path) -> Result<Db> {
        let mut builder = Db::builder(to).in_env(self.env.clone()).unfinished();
        if let Some(manifest) = &self.sources.manifest {
            builder = builder.clock(manifest.marks.clock);
            for (name, value) in manifest.options.iter().filter(|(name, _)| !is_limit(name)) {
                // An option that this version does not support keeps its default.
                builder = builder.clone().set(name, value).unwrap_or(builder);
            }
            for (id, record) in &manifest.keyspaces {
                if let Some(operator) = &record.operator {
                    builder = builder.operator_name(&self.sources.name(Destination::Keyspace(*id)), operator);
                }
            }
        }
        builder.open()
    }

    /// Gives the complete store the limits of the old one. It is opened anew, so that its log has space for what the
    /// close writes.
    fn set_limits(&self, to: &Path) -> Result<()> {
        let options = self.sources.manifest.iter().flat_map(|manifest| &manifest.options);
        let limits: Vec<_> = options.filter(|(name, _)| is_limit(name)).collect();
        if limits.is_empty() {
            return Ok(());
        }
        let db = Db::builder(to).in_env(self.env.clone()).unfinished().open()?;
        for (name, value) in limits {
            match db.set_option(name, value) {
                // A limit that this version does not support keeps its default.
                Err(error) if error.kind() == ErrorKind::InvalidOption => {}
                set => set?,
            }
        }
        db.close()
    }

    /// Returns all destinations that have entries, and all keyspaces of the manifest.
    fn destinations(&self) -> BTreeSet<Destination> {
        let named = self.sources.manifest.iter().flat_map(|manifest| manifest.keyspaces.keys());
        let mut destinations: BTreeSet<Destination> = named.map(|id| Destination::Keyspace(*id)).collect();
        destinations.extend(self.sources.tables.iter().map(|source| source.destination));
        destinations.extend(self.logged.versions.keys());
        destinations
    }

    /// Creates the keyspace for `destination` in the new store, with its old options as far as they are valid.
    fn keyspace(&self, db: &Db, destination: Destination, report: &mut RepairReport) -> Result<Keyspace> {
        let name = self.sources.name(destination);
        let Some(record) = self.sources.record(destination) else {
            report
                .findings
                .push(format!("no manifest names keyspace {name:?}: repair took the name from its tables"));
            return db.keyspace(&name);
        };
        let keyspace = db.keyspace(&name)?;
        let kept = record.options.iter().filter(|(option, value)| !is_left_out(option, value));
        for (option, value) in kept {
            match keyspace.set_option(option, value) {
                Err(error) if error.kind() == ErrorKind::InvalidOption => report
                    .findings
                    .push(format!("option {option} = {value} of keyspace {name:?} is not kept: {error}")),
                set => set?,
            }
        }
        Ok(keyspace)
    }

    /// Writes all entries of `destination` into `keyspace`.
    fn fill(
        &mut self,
        db: &Db,
        keyspace: &Keyspace,
        destination: Destination,
        report: &mut RepairReport,
    ) -> Result<RepairedKeyspace> {
        let (mine, others) =
            std::mem::take(&mut self.sources.tables).into_iter().partition(|s| s.destination == destination);
        self.sources.tables = others;
        let mut kept = RepairedKeyspace { name: keyspace.name(), ..RepairedKeyspace::default() };
        let mut merge = Merge::new(self.env, &mut self.files, destination, mine, &mut self.logged);
        let values = ValueFiles::damaged(self.env.clone(), self.dir.to_owned());
        let (mut batch, began) = (Batch::new(), self.come.bytes);
        while let Some(saved) = merge.next() {
            let Some(saved) = readable(&mut merge, saved, &values) else { continue };
            // Writes the oldest version first. A chain of operands may take several batches.
            for version in &saved.versions {
                if batch.size() + version.key.len() + version.value.len() > BATCH_BYTES && !batch.is_empty() {
                    db.write_with(std::mem::take(&mut batch), Durability::Buffered)?;
                }
                batch.restore(keyspace, version.kind, &version.key, &version.value);
            }
            match saved.is_certain && self.sources.is_sound && matches!(destination, Destination::Keyspace(_))
            {
                true => kept.certain += 1,
                false => kept.doubtful += 1,
            }
            self.come.entries += 1;
            if self.come.entries.is_multiple_of(ENTRIES_PER_LOOK) {
                self.come.bytes = began + merge.bytes;
                (self.progress)(&self.come);
            }
        }
        self.come.bytes = began + merge.bytes;
        let Lost { entries, more, mut findings } = std::mem::take(&mut merge.lost);
        db.write_with(batch, Durability::Buffered)?;
        (kept.lost, kept.lost_more) = (entries, more || !self.sources.is_sound);
        report.findings.append(&mut findings);
        (self.progress)(&self.come);
        Ok(kept)
    }
}

/// Replaces the value pointer of `saved` by its value. Goes back to the operands of a merged value that cannot be read.
/// Returns `None` if nothing can be read, and counts the entry as lost.
fn readable(merge: &mut Merge, mut saved: Saved, values: &ValueFiles) -> Option<Saved> {
    while let Some(what) = saved.read_values(values) {
        let unmerged = merge.unmerge(saved);
        let (lost, fate) = match &unmerged {
            Some(_) => (0, "unreadable, its operands are kept"),
            None => (1, "lost"),
        };
        merge.lost.entries += lost;
        merge.lost.findings.push(format!("{} is {fate}: {}", what.0, what.1));
        saved = unmerged?;
    }
    Some(saved)
}

fn is_limit(option: &str) -> bool {
    LIMITS.contains(&option)
}

impl Saved {
    /// Replaces value pointers by the values that they refer to. Returns which one cannot be read, and why.
    fn read_values(&mut self, files: &ValueFiles) -> Option<(String, Error)> {
        let Saved { versions, alternatives, .. } = self;
        for version in versions.iter_mut().filter(|version| version.kind == Kind::PutPointer) {
            let read = |pointer: &[u8]| files.read(&version.key, version.seq, pointer, ValueRead::Check);
            let is_copy = |other: &&Version| other.seq == version.seq && other.kind == Kind::PutPointer;
            let mut copies = alternatives.iter().filter(is_copy);
            let value = read(&version.value)
                .or_else(|error| copies.find_map(|copy| read(&copy.value).ok()).ok_or(error));
            match value {
                Ok(value) => (version.kind, version.value) = (Kind::Put, value),
                Err(error) => return Some((format!("a value at #{}", version.seq), error)),
            }
        }
        None
    }
}
