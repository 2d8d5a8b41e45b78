//! The files of an open store: the directory, file numbers, and open tables.
//!
//! Invariants:
//! - A file number is used once (order rule O4).
//! - The number of every table is below the lease in the manifest. A table with a larger number proves that the
//!   manifest was truncated.
//! - The store's clock never goes back, not even across restarts.

use crate::base::dir_lock::DirLock;
use crate::base::error::{Error, ErrorKind, Result};
use crate::table::{BlockCache, TableCache};
use crate::value::ValueFiles;
use crate::version::{Obsolete, ObsoleteFile};
use drumlin_env::sync::{Arc, atomic};
use drumlin_env::{Env, FileKind};
use drumlin_format::manifest::{Change, Edit};
use drumlin_format::names::FileName;
use drumlin_types::{TableId, ValueFileId};
use std::borrow::Cow;
use std::path::{Component, Path, PathBuf};

/// Distance by which the lease in the manifest is ahead of the next file number. A table that is created and removed
/// between two edits leaves no trace on disk, and its number is still not used again (order rule O4).
pub(crate) const NUMBER_LEASE: u64 = 256;

/// The store's directory and everything that is open in it.
pub(crate) struct Files {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    /// The open tables.
    pub(crate) tables: TableCache,
    /// The value files.
    pub(crate) values: Arc<ValueFiles>,
    /// Cache of table blocks.
    pub(crate) cache: Arc<BlockCache>,
    /// Files to be unlinked.
    pub(crate) obsolete: Arc<Obsolete>,
    /// Seed of the filter hashes.
    pub(crate) filter_seed: u64,
    /// Largest time returned so far, or held by the manifest, in Unix microseconds.
    last_clock: atomic::AtomicU64,
    next_number: atomic::AtomicU64,
    /// Lease: the manifest allows table numbers below this one.
    leased: atomic::AtomicU64,
    lock: Arc<DirLock>,
}

/// Arguments of [`Files::new`], from recovery.
pub(crate) struct FilesParts {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    pub(crate) tables: TableCache,
    pub(crate) values: Arc<ValueFiles>,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) obsolete: Arc<Obsolete>,
    pub(crate) filter_seed: u64,
    pub(crate) last_clock: u64,
    pub(crate) next_number: u64,
    pub(crate) lock: Arc<DirLock>,
}

impl Files {
    pub(crate) fn new(parts: FilesParts) -> Files {
        let FilesParts {
            env,
            dir,
            tables,
            values,
            cache,
            obsolete,
            filter_seed,
            last_clock,
            next_number,
            lock,
        } = parts;
        Files {
            env,
            dir,
            tables,
            values,
            cache,
            obsolete,
            filter_seed,
            last_clock: atomic::AtomicU64::new(last_clock),
            next_number: atomic::AtomicU64::new(next_number),
            leased: atomic::AtomicU64::new(next_number + NUMBER_LEASE),
            lock,
        }
    }

    /// Returns the monotonic time in microseconds.
    pub(crate) fn now(&self) -> u64 {
        self.env.clock().monotonic_micros()
    }

    /// Returns the Unix time in microseconds. It never goes back, not even across restarts.
    pub(crate) fn unix_micros(&self) -> u64 {
        let now = self.env.clock().unix_micros();
        self.last_clock.fetch_max(now, atomic::Ordering::AcqRel).max(now)
    }

    /// Returns a file number that was never used.
    pub(crate) fn fresh_number(&self) -> u64 {
        self.next_number.fetch_add(1, atomic::Ordering::AcqRel)
    }

    /// Returns the number that the next file gets.
    pub(crate) fn next_number(&self) -> u64 {
        self.next_number.load(atomic::Ordering::Acquire)
    }

    /// Returns whether the lease in the manifest allows a table with this number.
    pub(crate) fn is_leased(&self, number: u64) -> bool {
        number < self.leased.load(atomic::Ordering::Acquire)
    }

    /// Returns the manifest change that extends the lease of table numbers.
    pub(crate) fn lease(&self) -> Change {
        Change::NextFile(self.next_number() + NUMBER_LEASE)
    }

    /// Records the lease in a durable `edit`.
    pub(crate) fn note_lease(&self, edit: &Edit) {
        for change in &edit.changes {
            if let Change::NextFile(next) = change {
                self.leased.fetch_max(*next, atomic::Ordering::AcqRel);
            }
        }
    }

    /// Returns the path of a table.
    pub(crate) fn table_path(&self, id: TableId) -> PathBuf {
        self.dir.join(FileName::Table(id).to_string())
    }

    /// Returns the path of a value file.
    pub(crate) fn value_path(&self, id: ValueFileId) -> PathBuf {
        self.values.path(id)
    }

    /// Removes a table that no tree refers to.
    pub(crate) fn remove_table(&self, id: TableId) -> Result<()> {
        self.tables.remove(id);
        if drumlin_types::bug!("table-unlinked-twice") {
            unlink(&self.env, &self.table_path(id), FileKind::Table)?;
        }
        unlink(&self.env, &self.table_path(id), FileKind::Table)
    }

    /// Removes an obsolete file.
    pub(crate) fn remove(&self, file: &ObsoleteFile) -> Result<()> {
        match file {
            ObsoleteFile::Table(id) => self.remove_table(*id),
            ObsoleteFile::Value(id) => {
                self.values.remove(*id);
                unlink(&self.env, &self.value_path(*id), FileKind::Value)
            }
            ObsoleteFile::Other(path) if path.extension().is_some() => unlink(&self.env, path, FileKind::Log),
            ObsoleteFile::Other(path) => unlink(&self.env, path, FileKind::Manifest),
        }
    }

    /// Returns an error if the lock file of the directory was removed or replaced.
    pub(crate) fn check_lock(&self) -> Result<()> {
        self.lock.check()
    }

    /// Releases the directory lock, so that the store may be opened again.
    pub(crate) fn unlock(&self) {
        self.lock.release();
    }
}

/// Drops the values retired since the last collection. Otherwise a retired view would keep itself alive: it holds the
/// block cache, which holds the epochs, which hold the view.
impl Drop for Files {
    fn drop(&mut self) {
        self.cache.epochs().collect();
    }
}

/// Refuses an empty path. Some system calls treat it as the current directory, others as a missing one.
pub(crate) fn check_path(path: &Path) -> Result<()> {
    match path.as_os_str().is_empty() {
        true => Err(Error::new(ErrorKind::InvalidArgument, "the path of the directory is empty")),
        false => Ok(()),
    }
}

/// Returns the path of the target `path` of a copy, or an error if it lies inside the store directory `dir`: there a
/// copy is lost together with the store. A path with `..` is replaced by where it leads, since directories on its way
/// may be missing and must not be created.
pub(crate) fn target_outside<'a>(env: &Env, dir: &Path, path: &'a Path) -> Result<Cow<'a, Path>> {
    // Fails for a relative path without a current directory.
    let real = |path: &Path| {
        env.fs().real_path(path).map_err(|e| Error::io(path, "cannot tell where this path leads", e))
    };
    let (real, dir) = (real(path)?, real(dir)?);
    match real.starts_with(&dir) {
        true => {
            let what = match real == dir {
                true => format!("{} is the directory of the store itself", path.display()),
                false => format!("{} lies inside the directory of the store", path.display()),
            };
            Err(Error::new(ErrorKind::InvalidArgument, what))
        }
        false if path.components().any(|part| part == Component::ParentDir) => Ok(real.into()),
        false => Ok(path.into()),
    }
}

/// Returns an error if the directory `path`, the target of a copy, exists and is not empty. A lock file alone does not
/// count: an attempt that lacked file descriptors may have left it.
pub(crate) fn check_empty(env: &Env, path: &Path) -> Result<()> {
    let fs = env.fs();
    let failed = |what: &str, error| match look_error(env, path, what, error) {
        file if file.kind() == ErrorKind::NotAStore => file.with_kind(ErrorKind::InvalidArgument),
        other => other,
    };
    let exists = fs.exists(path).map_err(|e| failed("cannot check whether the target exists", e))?;
    let lock = FileName::Lock.to_string();
    let listed = || fs.list(path).map_err(|e| failed("cannot list the target", e));
    match exists && listed()?.iter().any(|entry| entry.name != lock) {
        true => {
            let what =
                format!("{} exists and is not empty: name a new or an empty directory", path.display());
            Err(Error::new(ErrorKind::InvalidArgument, what))
        }
        false => Ok(()),
    }
}

/// Returns the error for a failed look at the directory `dir`. If a file stands there or above it, the error says so.
pub(crate) fn look_error(env: &Env, dir: &Path, what: &str, error: std::io::Error) -> Error {
    let is_file = |path: &&Path| {
        let listed = env.fs().list(path);
        listed.is_err_and(|error| error.kind() == std::io::ErrorKind::NotADirectory)
    };
    let paths: Vec<&Path> = dir.ancestors().filter(|path| !path.as_os_str().is_empty()).collect();
    let file = (error.kind() == std::io::ErrorKind::NotADirectory)
        .then(|| paths.into_iter().rev().find(is_file))
        .flatten();
    match file {
        Some(file) => {
            Error::new(ErrorKind::NotAStore, format!("{} is a file, not a directory", file.display()))
        }
        None => Error::io(dir, what, error),
    }
}

/// Makes the directory entries of the files in `dir` durable.
pub(crate) fn sync_dir(env: &Env, dir: &Path) -> Result<()> {
    env.fs().sync_dir(dir).map_err(|e| Error::io(dir, "cannot sync the directory", e))
}

/// Unlinks a file. A missing file is not an error.
pub(crate) fn unlink(env: &Env, path: &Path, kind: FileKind) -> Result<()> {
    match env.fs().unlink(path, kind) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io(path, "cannot remove a file", e)),
        _ => Ok(()),
    }
}
