//! Checkpoints: copies of the store as of one commit, made of hard links to its tables.
//!
//! 1. Seal all memtables at the same commit. No memtable that is sealed later is flushed until step 4 is done.
//! 2. Wait for the flushes. The trees then hold exactly the commits up to that one.
//! 3. Pin the trees, link every table and value file of theirs into the new directory and sync it. Meanwhile the store
//!    goes on.
//! 4. Write a log segment without records, a manifest and its pointer there. Until the pointer is durable, the copy is
//!    not a store.
//!
//! A checkpoint holds the lock of the new directory until it is done, so no other store copies to it or opens it
//! meanwhile. One that fails removes the files and directories that it has made, and nothing else.

#[cfg(test)]
mod tests;

use crate::base::error::{Error, ErrorKind, Result};
use crate::compaction::control::{Control, KeyspaceControl};
use crate::disk::{check_empty, check_path, sync_dir, target_outside};
use crate::keyspace::KeyspaceState;
use crate::memtable::Memtable;
use crate::recovery::open::{claim, make_dir, missing_parents};
use crate::store::{Store, snapshot};
use crate::version::{HighWaterMarks, ManifestFile, Tree, value_files};
use crate::write::budget::DiskBudget;
use crate::write::log::LogTail;
use crate::write::segment::LogDirectory;
use drumlin_env::sync::{Arc, atomic};
use drumlin_env::{Env, FileKind, FileLock};
use drumlin_format::log::SegmentHeader;
use drumlin_format::manifest::{Edit, ManifestHeader};
use drumlin_format::names::FileName;
use drumlin_types::{LogNumber, Seq, TableId, ValueFileId};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Memtable that waits to be flushed, with its keyspace.
type Sealed = (Arc<KeyspaceState>, Arc<Memtable>);

impl Store {
    pub(crate) fn checkpoint(&self, path: &Path) -> Result<()> {
        self.health.check_open()?;
        self.health.check_poison()?;
        self.files.check_lock()?;
        check_path(path)?;
        let path = &*target_outside(&self.files.env, &self.files.dir, path)?;
        check_empty(&self.files.env, path)?;
        let _no_drop = (!drumlin_types::bug!("drop-during-checkpoint")).then(|| self.drops.read());
        let (pending, seq) = self.hold_flushes()?;
        let mut made = Made::default();
        let copied = self.make_target(path, &mut made).and_then(|()| self.wait_flushed(&pending));
        let copied = copied.and_then(|()| self.copy_to(path, seq, &mut made));
        // Before another checkpoint may begin, perhaps at the same place.
        let copied = copied.inspect_err(|_| made.remove(&self.files.env, path));
        self.control.lock().flush_ceiling = Seq::MAX;
        self.background.progressed();
        copied
    }

    /// Makes the directory of the copy and locks it. For the only checkpoint of this store that is under way: another
    /// one may just have filled it.
    fn make_target(&self, path: &Path, made: &mut Made) -> Result<()> {
        let env = &self.files.env;
        check_empty(env, path)?;
        made.dirs = missing_parents(env, path)?.into_iter().map(Path::to_owned).collect();
        if !env.fs().exists(path).map_err(|e| Error::io(path, "cannot check whether the target exists", e))? {
            made.dirs.push(path.to_owned());
        }
        make_dir(env, path)?;
        made.lock = Some(claim(env, path)?);
        Ok(())
    }

    /// Seals all memtables and holds back flushes of later ones. Returns the sealed memtables and the last sequence
    /// number in them. On success the caller must reset `flush_ceiling` when it is done.
    pub(crate) fn hold_flushes(&self) -> Result<(Vec<Sealed>, Seq)> {
        let mut control = self.control.lock();
        if control.flush_ceiling != Seq::MAX {
            return Err(Error::new(ErrorKind::Busy, "another checkpoint is being made"));
        }
        let locked = self.commit_lock.state.lock();
        let seq = locked.next_seq - 1;
        control.flush_ceiling = seq;
        let mut pending = Vec::new();
        for keyspace in self.keyspaces().iter() {
            keyspace.seal(locked.log.segment.number);
            pending.extend(keyspace.view().sealed.iter().map(|m| (keyspace.clone(), m.clone())));
        }
        Ok((pending, seq))
    }

    fn copy_to(&self, path: &Path, seq: Seq, made: &mut Made) -> Result<()> {
        // The trees keep their tables from being unlinked, so the lock is not needed while they are linked.
        let (trees, edit, log) = self.pin_trees(seq);
        let tables: BTreeSet<TableId> =
            trees.iter().flat_map(|tree| tree.files().map(|(_, _, file)| file.id())).collect();
        let values: BTreeSet<ValueFileId> = trees
            .iter()
            .flat_map(|tree| value_files(tree.files().map(|(_, _, file)| file)).into_keys())
            .collect();
        let tables = tables.into_iter().map(|table| (FileName::Table(table), FileKind::Table));
        let skipped = usize::from(drumlin_types::bug!("checkpoint-without-a-value-file"));
        let values = values.into_iter().skip(skipped).map(|file| (FileName::Value(file), FileKind::Value));
        for (name, kind) in tables.chain(values) {
            let (from, to) = (self.files.dir.join(name.to_string()), path.join(name.to_string()));
            self.files.env.fs().link(&from, &to).map_err(|e| Error::io(&to, link_failed(&e), e))?;
            made.files.push((name, kind));
        }
        sync_dir(&self.files.env, path)?;
        let (env, dir, budget) = (self.files.env.clone(), path.to_owned(), Arc::new(DiskBudget::default()));
        let directory = LogDirectory::new(env, dir, LOG_BYTES, budget, Arc::default());
        let header = SegmentHeader { number: log, base: 0, predecessor: None, file_len: 0 };
        made.files.push((FileName::Log(log), FileKind::Log));
        LogTail::begin(&directory, &header, LOG_BYTES, Vec::new())?;
        made.files.push((FileName::Manifest(log.0 + 1), FileKind::Manifest));
        // A directory that was removed or replaced meanwhile is no copy, and a replaced one may be another store.
        self.files.check_lock()?;
        made.check_lock(path)?;
        made.pointer = true;
        let header = ManifestHeader { number: log.0 + 1, store: self.files.filter_seed };
        ManifestFile::create(directory.entries, header, &edit)?;
        Ok(())
    }

    /// Returns the trees as of one moment, the edit that describes them, and the number of the copy's log segment.
    fn pin_trees(&self, seq: Seq) -> (Vec<Arc<Tree>>, Edit, LogNumber) {
        let control = self.control.lock();
        let trees = control.keyspaces.iter().map(|keyspace| keyspace.state.view().tree.clone()).collect();
        let next_file = self.files.next_number();
        let log = LogNumber(next_file);
        (trees, self.checkpoint_edit(&control, log, next_file + 2, seq), log)
    }

    fn checkpoint_edit(&self, control: &Control, floor: LogNumber, next_file: u64, seq: Seq) -> Edit {
        let marks = HighWaterMarks {
            floor,
            next_file,
            next_run: control.numbers.next_run,
            next_keyspace: self.next_keyspace.load(atomic::Ordering::Acquire),
            last_seq: seq,
            clock: self.files.unix_micros(),
            // The copy starts a new log.
            log_end: 0,
        };
        let keyspaces: &[KeyspaceControl] = &control.keyspaces;
        snapshot(keyspaces, &self.options.load(), &control.carried, &marks, &self.lifetimes)
    }
}

/// Returns what failed when a file could not be linked.
fn link_failed(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::CrossesDevices => {
            "cannot link a file: a checkpoint must be on the file system of its store"
        }
        _ => "cannot link a file",
    }
}

/// What a checkpoint has made so far.
#[derive(Default)]
struct Made {
    /// Directories, the topmost first.
    dirs: Vec<PathBuf>,
    /// The lock of the copy's directory.
    lock: Option<FileLock>,
    /// Files in the directory of the copy, besides the pointer and the lock file.
    files: Vec<(FileName, FileKind)>,
    /// Whether there may be a pointer.
    pointer: bool,
}

impl Made {
    /// Removes everything from `path`. Failures are ignored: the caller reports why the checkpoint failed.
    fn remove(&mut self, env: &Env, path: &Path) {
        let fs = env.fs();
        let is_held = self.check_lock(path).is_ok();
        if let Some(lock) = self.lock.take().filter(|_| is_held) {
            // The pointer is removed first, durably, so that a power loss leaves no pointer to missing files.
            let pointer = path.join(FileName::Pointer.to_string());
            let has_pointer = self.pointer && fs.exists(&pointer).unwrap_or(true);
            if has_pointer && fs.unlink(&pointer, FileKind::Pointer).and_then(|()| fs.sync_dir(path)).is_err()
            {
                return;
            }
            for (name, kind) in &self.files {
                let file = path.join(name.to_string());
                if fs.exists(&file).unwrap_or(true) {
                    let _ = fs.unlink(&file, *kind);
                }
            }
            // The lock file is removed last, while it is locked: a process that locks it later finds that it is not in
            // place.
            let _ = fs.unlink(lock.path(), FileKind::Lock);
        }
        // A directory that another program uses by now is not empty, and stays.
        self.dirs.iter().rev().for_each(|dir| drop(fs.remove_dir(dir)));
    }

    /// Returns an error unless the directory of the copy is still locked by this checkpoint.
    fn check_lock(&self, path: &Path) -> Result<()> {
        let is_in_place = self.lock.as_ref().is_some_and(|lock| lock.is_in_place().unwrap_or(false));
        match is_in_place {
            true => Ok(()),
            false => {
                let what = "the directory of the checkpoint was removed or replaced while it was being made";
                Err(Error::file(ErrorKind::Io, path, what))
            }
        }
    }
}

/// Bytes of the empty log segment of a checkpoint.
const LOG_BYTES: u64 = 4096;
