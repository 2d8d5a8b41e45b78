//! Checkpoints: a copy of the store as of one commit, made of links to its tables.
//!
//! 1. Seal all memtables at one moment; nothing sealed later is flushed until step 3.
//! 2. Wait for the flushes: the trees then hold exactly the commits up to that moment.
//! 3. Link every table of the trees into the new directory and sync it.
//! 4. Write a log segment without records, a manifest and its pointer there. Until the pointer is
//!    durable the copy is no store.

use crate::compaction::control::{Control, KeyspaceControl};
use crate::error::{Error, ErrorKind, Result};
use crate::keyspace::KeyspaceState;
use crate::memtable::Memtable;
use crate::recovery::{Numbers, snapshot};
use crate::store::{Store, sync_dir};
use crate::version::ManifestWriter;
use crate::write::log::LogTail;
use crate::write::segment::{DiskBudget, LogHome};
use drumlin_env::sync::{Arc, atomic};
use drumlin_format::log::SegmentHeader;
use drumlin_format::manifest::{Edit, ManifestHeader};
use drumlin_types::{LogNumber, Seq};
use std::path::Path;

/// A memtable that waits to be flushed, and whose it is.
type Sealed = (Arc<KeyspaceState>, Arc<Memtable>);

impl Store {
    pub(crate) fn checkpoint(&self, path: &Path) -> Result<()> {
        self.check_poison()?;
        let fs = self.env.fs();
        if fs.exists(path).map_err(|e| Error::io(path, "cannot look at the target", e))? {
            let entries = fs.list(path).map_err(|e| Error::io(path, "cannot list the target", e))?;
            if !entries.is_empty() {
                let what = format!("the checkpoint directory {} is not empty", path.display());
                return Err(Error::new(ErrorKind::InvalidArgument, what));
            }
        }
        crate::recovery::open::make_dir(&self.env, path)?;
        let (pending, seq) = self.hold_flushes()?;
        let made = self.wait_flushed(&pending).and_then(|()| self.copy_to(path, seq));
        self.control.lock().flush_ceiling = Seq::MAX;
        self.background.progressed();
        made
    }

    /// Seals everything and lets no later memtable be flushed, until whoever got no error here lifts that again. Gives what
    /// is sealed, and the last commit in it.
    fn hold_flushes(&self) -> Result<(Vec<Sealed>, Seq)> {
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

    fn copy_to(&self, path: &Path, seq: Seq) -> Result<()> {
        let control = self.control.lock();
        let mut tables = std::collections::BTreeSet::new();
        for keyspace in &control.keyspaces {
            tables.extend(keyspace.state.view().tree.files().map(|(_, _, f)| f.id()));
        }
        for table in tables {
            let from = self.table_path(table);
            let to = path.join(from.file_name().unwrap_or_default());
            self.env.fs().link(&from, &to).map_err(|e| Error::io(&to, "cannot link a table", e))?;
        }
        sync_dir(&self.env, path)?;
        let next_file = self.next_file.load(atomic::Ordering::Acquire);
        let (log, manifest) = (LogNumber(next_file), next_file + 1);
        let (env, dir, budget) = (self.env.clone(), path.to_owned(), DiskBudget::default());
        let home = LogHome::new(env, dir, LOG_BYTES, budget);
        LogTail::begin(&home, &SegmentHeader { number: log, base: 0, predecessor: None }, Vec::new())?;
        let edit = self.checkpoint_edit(&control, log, next_file + 2, seq);
        let header = ManifestHeader { number: manifest, store: self.filter_seed };
        ManifestWriter::create(&self.env, path.to_owned(), header, &edit)?;
        Ok(())
    }

    fn checkpoint_edit(&self, control: &Control, floor: LogNumber, next_file: u64, seq: Seq) -> Edit {
        let numbers = Numbers {
            floor,
            next_file,
            next_run: control.numbers.next_run,
            last_seq: seq,
            clock: self.unix_micros(),
        };
        let keyspaces: &[KeyspaceControl] = &control.keyspaces;
        snapshot(keyspaces, &self.options.load(), &control.carried, &numbers)
    }
}

/// Bytes of the empty log segment of a checkpoint.
const LOG_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use crate::db::Db;
    use crate::error::ErrorKind;
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
        assert_eq!(keys.store.control.lock().flush_ceiling, seq, "later commits are still held back");
        keys.store.control.lock().flush_ceiling = drumlin_types::Seq::MAX;
        db.flush().expect("flush");
        // That a flush once failed is nothing to a checkpoint that waits for none.
        keys.store.disk_full.store(true, drumlin_env::sync::atomic::Ordering::Release);
        db.checkpoint("/c").expect("nothing is under way any more");
    }
}
