//! Checkpoints: a copy of the store as of one commit, made of links to its tables.
//!
//! 1. Seal all memtables at one moment; nothing sealed later is flushed until step 3.
//! 2. Wait for the flushes: the trees then hold exactly the commits up to that moment.
//! 3. Link every table of the trees into the new directory and sync it.
//! 4. Write a log segment without records, a manifest and its pointer there. Until the pointer is
//!    durable the copy is no store.

use crate::compaction::control::{Control, KeyspaceControl};
use crate::error::{Error, ErrorKind, Result};
use crate::recovery::{Numbers, snapshot};
use crate::store::{Store, sync_dir};
use crate::version::ManifestWriter;
use crate::write::log::LogTail;
use crate::write::segment::{DiskBudget, LogHome};
use drumlin_env::sync::atomic;
use drumlin_format::log::SegmentHeader;
use drumlin_format::manifest::{Edit, ManifestHeader};
use drumlin_types::{LogNumber, Seq};
use std::path::Path;

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
        fs.create_dir_all(path).map_err(|e| Error::io(path, "cannot create the checkpoint", e))?;
        if let Some(parent) = path.parent() {
            sync_dir(&self.env, parent)?;
        }
        let made = self.hold_flushes().and_then(|seq| self.copy_to(path, seq));
        self.control.lock().flush_ceiling = Seq::MAX;
        self.background.progressed();
        made
    }

    /// Seals everything, lets no later memtable be flushed, and waits for those sealed.
    fn hold_flushes(&self) -> Result<Seq> {
        let (pending, seq) = {
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
            (pending, seq)
        };
        self.wait_flushed(&pending)?;
        Ok(seq)
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
        let home = LogHome { env, dir, segment_bytes: LOG_BYTES, budget };
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
