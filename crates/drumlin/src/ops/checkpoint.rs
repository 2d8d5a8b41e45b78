//! Checkpoints: copies of the store as of one commit, made of hard links to its tables.
//!
//! 1. Seal all memtables at the same commit. No memtable that is sealed later is flushed until step 4 is done.
//! 2. Wait for the flushes. The trees then hold exactly the commits up to that one.
//! 3. Pin the trees, link every table of theirs into the new directory and sync it. Meanwhile the store goes on.
//! 4. Write a log segment without records, a manifest and its pointer there. Until the pointer is durable, the copy is
//!    not a store.
//!
//! A checkpoint holds the lock of the new directory until it is done, so no other store copies to it or opens it
//! meanwhile. One that fails removes the files and directories that it has made, and nothing else.

use crate::base::error::{Error, ErrorKind, Result};
use crate::compaction::control::{Control, KeyspaceControl};
use crate::disk::{check_empty, check_outside, check_path, sync_dir};
use crate::keyspace::KeyspaceState;
use crate::memtable::Memtable;
use crate::recovery::open::{lock, make_dir, missing_parents};
use crate::store::{Store, snapshot};
use crate::version::{ManifestFile, Marks, Tree};
use crate::write::budget::DiskBudget;
use crate::write::log::LogTail;
use crate::write::segment::LogDirectory;
use drumlin_env::sync::{Arc, atomic};
use drumlin_env::{Env, FileKind, FileLock};
use drumlin_format::log::SegmentHeader;
use drumlin_format::manifest::{Edit, ManifestHeader};
use drumlin_format::names::FileName;
use drumlin_types::{LogNumber, Seq, TableId};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Memtable that waits to be flushed, with its keyspace.
type Sealed = (Arc<KeyspaceState>, Arc<Memtable>);

impl Store {
    pub(crate) fn checkpoint(&self, path: &Path) -> Result<()> {
        self.health.check_open()?;
        self.health.check_poison()?;
        check_path(path)?;
        check_outside(&self.files.dir, path)?;
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
        if !env.fs().exists(path).map_err(|e| Error::io(path, "cannot look at the target", e))? {
            made.dirs.push(path.to_owned());
        }
        make_dir(env, path)?;
        let lock = lock(env, path).map_err(|error| match error.kind() {
            ErrorKind::Locked => taken(path),
            _ => error,
        })?;
        let lock = made.lock.insert(lock);
        // Another checkpoint may have failed and removed the locked file, or have succeeded.
        let failed = |error| Error::io(path, "cannot look at the target", error);
        let is_ours = lock.is_in_place().map_err(failed)? && env.fs().list(path).map_err(failed)?.len() == 1;
        if is_ours { Ok(()) } else { Err(taken(path)) }
    }

    /// Seals all memtables and holds back flushes of later ones. Returns the sealed memtables and the last sequence
    /// number in them. On success the caller must reset `flush_ceiling` when it is done.
    pub(crate) fn hold_flushes(&self) -> Result<(Vec<Sealed>, Seq)> {
        let mut control = self.control.lock();
        if control.flush_ceiling != Seq::MAX {
            return Err(Error::new(ErrorKind::Busy, "another checkpoint is being made"));
        }
        let lane = self.lane.state.lock();
        let seq = lane.next_seq - 1;
        control.flush_ceiling = seq;
        let mut pending = Vec::new();
        for keyspace in self.keyspaces().iter() {
            keyspace.seal(lane.log.segment.number);
            pending.extend(keyspace.view().sealed.iter().map(|m| (keyspace.clone(), m.clone())));
        }
        Ok((pending, seq))
    }

    fn copy_to(&self, path: &Path, seq: Seq, made: &mut Made) -> Result<()> {
        // The trees keep their tables from being unlinked, so the lock is not needed while they are linked.
        let (trees, edit, log) = self.pin_trees(seq);
        let tables: BTreeSet<TableId> =
            trees.iter().flat_map(|tree| tree.files().map(|(_, _, file)| file.id())).collect();
        for table in tables {
            let from = self.files.table_path(table);
            let to = path.join(from.file_name().unwrap_or_default());
            self.files.env.fs().link(&from, &to).map_err(|e| Error::io(&to, link_failed(&e), e))?;
            made.files.push((FileName::Table(table), FileKind::Table));
        }
        sync_dir(&self.files.env, path)?;
        let (env, dir, budget) = (self.files.env.clone(), path.to_owned(), Arc::new(DiskBudget::default()));
        let directory = LogDirectory::new(env, dir, LOG_BYTES, budget, Arc::default());
        let header = SegmentHeader { number: log, base: 0, predecessor: None, file_len: 0 };
        made.files.push((FileName::Log(log), FileKind::Log));
        LogTail::begin(&directory, &header, LOG_BYTES, Vec::new())?;
        made.files.push((FileName::Manifest(log.0 + 1), FileKind::Manifest));
        made.pointer = true;
        let header = ManifestHeader { number: log.0 + 1, store: self.files.filter_seed };
        ManifestFile::create(&self.files.env, path.to_owned(), header, &edit)?;
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
        let marks = Marks {
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
        snapshot(keyspaces, &self.options.load(), &control.carried, &marks)
    }
}

/// Returns what failed when a table could not be linked.
fn link_failed(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::CrossesDevices => {
            "cannot link a table: a checkpoint must be on the file system of its store"
        }
        _ => "cannot link a table",
    }
}

/// Returns the error for a target that another store has begun to use.
fn taken(path: &Path) -> Error {
    let what = format!("another store uses {} meanwhile: name a new directory", path.display());
    Error::new(ErrorKind::InvalidArgument, what)
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
        let listed = fs.list(path);
        let is_listed = listed.is_ok();
        let found = listed.unwrap_or_default();
        let found: BTreeSet<&str> = found.iter().map(|entry| entry.name.as_str()).collect();
        let pointer = FileName::Pointer.to_string();
        // Its absence is made durable first, so that a power loss leaves no pointer to missing files.
        if self.pointer && found.contains(pointer.as_str()) {
            let gone = fs.unlink(&path.join(&pointer), FileKind::Pointer).and_then(|()| fs.sync_dir(path));
            if gone.is_err() {
                return;
            }
        }
        for (name, kind) in &self.files {
            let name = name.to_string();
            if found.contains(name.as_str()) {
                let _ = fs.unlink(&path.join(&name), *kind);
            }
        }
        // Removed last and while it is locked: who locks it after all finds that it is not in place.
        let lock_file = FileName::Lock.to_string();
        let is_made = |name: &&str| {
            let is_file = self.files.iter().any(|(file, _)| file.to_string() == **name);
            is_file || **name == lock_file || self.pointer && **name == pointer
        };
        let lock = self.lock.take().filter(|lock| lock.is_in_place().unwrap_or(false));
        if let Some(lock) = lock.filter(|_| is_listed && found.iter().all(is_made)) {
            let _ = fs.unlink(lock.path(), FileKind::Lock);
        }
        // A directory that another program uses by now is not empty, and stays.
        self.dirs.iter().rev().for_each(|dir| drop(fs.remove_dir(dir)));
    }
}

/// Bytes of the empty log segment of a checkpoint.
const LOG_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use crate::api::db::Db;
    use crate::base::error::ErrorKind;
    use drumlin_env::MemEnv;

    #[test]
    fn a_checkpoint_that_is_refused_leaves_the_one_under_way_alone() {
        let mem = MemEnv::new(31);
        let db = Db::builder("/s").env(mem.env()).open().expect("open");
        let keys = db.keyspace("k").expect("keyspace");
        keys.put(b"a", b"1").expect("put");
        let (pending, seq) = keys.store.hold_flushes().expect("nothing else is under way");
        assert_eq!(pending.len(), 1);
        assert_eq!(db.checkpoint("/b").expect_err("one is under way").kind(), ErrorKind::Busy);
        assert_eq!(keys.store.control.lock().flush_ceiling, seq, "later commits are no longer held back");
        keys.store.control.lock().flush_ceiling = drumlin_types::Seq::MAX;
        db.flush().expect("flush");
        // An earlier failed flush does not affect a checkpoint that waits for no flush.
        keys.store.health.disk_full.store(true, drumlin_env::sync::atomic::Ordering::Release);
        db.checkpoint("/c").expect("nothing is under way any more");
    }

    #[test]
    fn a_target_inside_the_store_is_refused() {
        let db = Db::builder("/s").env(MemEnv::new(33).env()).open().expect("open");
        for path in ["/s", "/s/copy", "/s/a/copy"] {
            let refused = db.checkpoint(path).expect_err("inside the store");
            assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{path}: {refused}");
        }
        db.checkpoint("/s-copy").expect("beside the store");
    }

    #[test]
    fn a_checkpoint_that_finds_its_target_filled_by_another_is_refused() {
        let db = Db::builder("/s").env(MemEnv::new(34).env()).open().expect("open");
        let keys = db.keyspace("k").expect("keyspace");
        keys.put("key", "value").expect("put");
        db.checkpoint("/copy").expect("the first one");
        // It saw the directory empty, and then waited until the first one was done.
        let late = keys
            .store
            .make_target("/copy".as_ref(), &mut super::Made::default())
            .expect_err("it is filled by now");
        assert_eq!(late.kind(), ErrorKind::InvalidArgument, "{late}");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "two stores checkpoint on threads of their own")]
    fn of_two_stores_that_copy_to_one_directory_one_succeeds() {
        let mem = MemEnv::threaded(35);
        let stores: Vec<Db> =
            ["/a", "/b"].iter().map(|path| Db::builder(path).env(mem.env()).open().expect("open")).collect();
        for (flushes, db) in [1, 9].into_iter().zip(&stores) {
            let keys = db.keyspace("k").expect("keyspace");
            for n in 0..flushes {
                keys.put([n], [flushes]).expect("put");
                db.flush().expect("flush");
            }
        }
        for round in 0..100 {
            let path = format!("/copy{round}");
            let start = std::sync::Barrier::new(2);
            let copy = |db: &Db| {
                start.wait();
                db.checkpoint(&path)
            };
            let done: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = stores.iter().map(|db| scope.spawn(|| copy(db))).collect();
                threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
            });
            let winner = done.iter().position(Result::is_ok).expect("one succeeds");
            let refused = done[1 - winner].as_ref().expect_err("the other does not");
            assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
            let keys = Db::builder(&path)
                .env(mem.env())
                .open()
                .expect("open the copy")
                .keyspace("k")
                .expect("keyspace");
            assert_eq!(keys.iter().count(), [1, 9][winner]);
        }
    }

    #[test]
    fn pinned_tables_stay_while_the_store_goes_on() {
        let mem = MemEnv::new(32);
        let db = Db::builder("/s").env(mem.env()).open().expect("open");
        let keys = db.keyspace("k").expect("keyspace");
        for value in ["1", "2"] {
            keys.put("key", value).expect("put");
            db.flush().expect("flush");
        }
        let store = &keys.store;
        let (trees, ..) = store.pin_trees(store.publisher.visible());
        keys.compact::<&[u8]>(..).expect("compact");
        let paths: Vec<_> = trees
            .iter()
            .flat_map(|tree| tree.files().map(|(_, _, file)| store.files.table_path(file.id())))
            .collect();
        let left = || paths.iter().filter(|path| mem.env().fs().exists(path).expect("a look")).count();
        assert!(!paths.is_empty() && left() == paths.len(), "{} of {} tables", left(), paths.len());
        drop(trees);
        db.wait_idle().expect("idle");
        assert_eq!(left(), 0, "the compaction replaced all of them");
    }

    /// A rename promises that the data are there under the new name. A copy of an earlier moment cannot keep that.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a rename waits on another thread")]
    fn a_rename_waits_for_the_checkpoint_under_way() {
        let db = Db::builder("/s").env(MemEnv::new(7).env()).open().expect("open");
        let keys = db.keyspace("new").expect("keyspace");
        keys.put("early", "1").expect("put");
        let store = &keys.store;
        let under_way = store.drops.read();
        let (pending, seq) = store.hold_flushes().expect("the only checkpoint");
        keys.put("late", "2").expect("put");
        std::thread::scope(|scope| {
            let renames = scope.spawn(|| db.rename_keyspace("new", "live"));
            (0..1000).for_each(|_| std::thread::yield_now());
            store.wait_flushed(&pending).expect("flushed");
            store.copy_to("/copy".as_ref(), seq, &mut super::Made::default()).expect_err("no directory");
            store.make_target("/copy".as_ref(), &mut super::Made::default()).expect("a directory");
            store.copy_to("/copy".as_ref(), seq, &mut super::Made::default()).expect("a copy");
            store.control.lock().flush_ceiling = drumlin_types::Seq::MAX;
            drop(under_way);
            renames.join().expect("no panic").expect("renamed");
        });
        assert_eq!(db.keyspaces(), ["live"]);
        let copy = Db::builder("/copy").env(store.files.env.clone()).open().expect("open the copy");
        assert_eq!(copy.keyspaces(), ["new"], "the copy has the name of its moment");
        assert_eq!(copy.keyspace("new").expect("keyspace").iter().count(), 1);
    }
}
