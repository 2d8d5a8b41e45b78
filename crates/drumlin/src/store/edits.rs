//! Edits of the manifest: the only way in which a tree, an option or a number becomes durable.
//!
//! 1. [`Store::commit_edit`] applies an edit of one tree, checks the result, and turns it into manifest changes.
//! 2. [`Store::append_edit`] refuses an edit that recovery would refuse, before a byte is written, and appends any
//!    other.
//! 3. A failed append may be on disk in part. It poisons the store, unless the disk had no space for it.
//!
//! The manifest is replaced by a [`snapshot`] of the whole state when that makes it much smaller, or when the last edit
//! found no disk space.
//!
//! Functions that take `&mut Control` run under the control lock; `next_file_number` and `rewrite_manifest_if_grown`
//! take it.

use super::Store;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::metrics::Counters;
use crate::compaction::audit::Audit;
use crate::compaction::control::{Control, KeyspaceControl};
use crate::disk::{NUMBER_LEASE, unlink};
use crate::keyspace::KeyspaceState;
use crate::memtable::Memtable;
use crate::options::Options;
use crate::value::Lifetimes;
use crate::version::{HighWaterMarks, KeyspaceEdit, ManifestFile, Tree, ValueChanges, check, value_files};
use drumlin_env::sync::{Arc, atomic};
use drumlin_env::{FileKind, Note};
use drumlin_format::log::SEGMENT_HEADER_LEN;
use drumlin_format::manifest::{Change, Edit, MAX_CHANGES, ManifestHeader, ValueFileState};
use drumlin_types::{Key, KeyspaceId, TableId};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Changes of an edit besides those of its tree: numbers and marks.
const SPARE_CHANGES: usize = 16;

/// A step from one tree of a keyspace to the next.
#[derive(Clone, Copy)]
pub(crate) struct TreeStep<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) edit: &'a KeyspaceEdit,
    /// Memtables whose content the edit moves into the tree.
    pub(crate) flushed: &'a [Arc<Memtable>],
    /// Further changes that become durable in the same edit.
    pub(crate) more: &'a [Change],
}

impl Store {
    /// Makes `step` durable and returns the next tree. Calls `may_be_on_disk` as soon as the edit is, or may be, on
    /// disk: from then on its files must not be removed.
    pub(crate) fn commit_edit(
        &self,
        control: &mut Control,
        keyspace: &KeyspaceState,
        step: &TreeStep<'_>,
        may_be_on_disk: impl FnOnce(),
    ) -> Result<Tree> {
        let TreeStep { tree, edit, flushed, more } = *step;
        let next = tree.apply(edit)?;
        // Recovery refuses a tree that breaks an invariant, so such an edit must not reach the manifest.
        check::check(&next).map_err(|what| Error::new(ErrorKind::Bug, what))?;
        if cfg!(debug_assertions) {
            Audit {
                files: &self.files,
                snapshots: &self.snapshots,
                keyspace,
                before: tree,
                flushed,
                after: &next,
            }
            .run()?;
        }
        let mut changes = removals_and_runs(keyspace.id, tree, edit);
        let values = ValueChanges::between(tree, edit, &next);
        changes.extend(values.additions());
        for (level, run, file) in &edit.add {
            changes.push(Change::AddFile { keyspace: keyspace.id, file: file.record(*level, *run) });
        }
        let live: BTreeSet<TableId> = next.files().map(|(_, _, f)| f.id()).collect();
        let gone: BTreeSet<TableId> =
            edit.remove.iter().map(|(t, _)| *t).filter(|t| !live.contains(t)).collect();
        // An edit has a limited number of changes. It removes as many value files as fit.
        let room = MAX_CHANGES.saturating_sub(changes.len() + more.len() + SPARE_CHANGES);
        changes.extend(values.removals().take(room));
        let tables = gone.iter().map(|table| self.files.table_path(*table));
        let removed: Vec<PathBuf> =
            tables.chain(values.gone.keys().take(room).map(|id| self.files.value_path(*id))).collect();
        self.files.env.note(Note::EditRemoves { files: &removed });
        changes.extend_from_slice(more);
        changes.push(self.files.lease());
        changes.push(Change::NextRun(control.numbers.next_run));
        // A compaction dropped entries that had expired by now. They must stay expired if the machine's clock goes
        // back.
        changes.push(Change::ClockMark(self.files.unix_micros()));
        changes.extend(self.log.promised_end().map(Change::LogEnd));
        if drumlin_types::bug!("value-file-unlinked-before-edit") {
            let mut paths = values.gone.keys().map(|id| self.files.value_path(*id));
            paths.try_for_each(|path| unlink(&self.files.env, &path, FileKind::Value))?;
        }
        self.append_edit(control, Edit { changes }, may_be_on_disk)?;
        for (_, _, file) in tree.files().filter(|(_, _, f)| gone.contains(&f.id())) {
            file.table.retire();
        }
        values.gone.values().take(room).for_each(|file| file.retire());
        self.remove_value_files(control, &values, room);
        Ok(next)
    }

    /// Removes the value files of `values` after the first `done`. The tree without them is durable. What cannot be
    /// removed now stays on disk, and the next open removes it, since no table points to it.
    fn remove_value_files(&self, control: &mut Control, values: &ValueChanges, done: usize) {
        let changes: Vec<Change> = values.removals().skip(done).collect();
        let mut files = values.gone.values().skip(done);
        for changes in changes.chunks(MAX_CHANGES) {
            let files: Vec<_> = files.by_ref().take(changes.len()).collect();
            let removed: Vec<PathBuf> = files.iter().map(|file| self.files.value_path(file.id())).collect();
            self.files.env.note(Note::EditRemoves { files: &removed });
            if self.append_edit(control, Edit { changes: changes.to_vec() }, || {}).is_err() {
                return;
            }
            files.into_iter().for_each(|file| file.retire());
        }
    }

    /// Appends an edit to the manifest. An edit that recovery would refuse is an error, and nothing is written. Any
    /// other failure poisons the store, unless the disk had no space for the edit.
    pub(crate) fn append_edit(
        &self,
        control: &mut Control,
        edit: Edit,
        may_be_on_disk: impl FnOnce(),
    ) -> Result<()> {
        // Checked under the lock: nothing may be written after a failed edit, which may be there in part.
        if !drumlin_types::bug!("edit-after-poison") {
            self.health.check_poison()?;
        }
        if control.closed {
            return Err(Error::new(ErrorKind::Closed, "the store was closed"));
        }
        if control.manifest.is_torn() {
            self.replace_manifest(control).inspect_err(|_| self.files.env.note(Note::EditRefused))?;
        }
        // An edit that recovery would refuse fails here, before anything is on disk.
        let checked = control.manifest.check(&edit)?;
        self.note_to_monitor(&edit)?;
        match control.manifest.append(checked) {
            Ok(bytes) => Counters::add(&self.metrics.manifest_bytes_written, bytes),
            Err(error) => {
                // After any failure but a lack of disk space the edit may be in the manifest. A lack of disk space
                // leaves the manifest torn, and the store goes on.
                if !control.manifest.is_torn() {
                    may_be_on_disk();
                    self.poison(&error);
                }
                return Err(error);
            }
        }
        may_be_on_disk();
        self.files.env.note(Note::EditDurable { dir: &self.files.dir });
        self.files.note_lease(&edit);
        self.note_floor(&edit);
        Ok(())
    }

    /// Reports to the monitor of the simulated disk which files `edit` depends on, and which ones it makes obsolete.
    fn note_to_monitor(&self, edit: &Edit) -> Result<()> {
        let added: Vec<PathBuf> = edit.changes.iter().filter_map(|change| self.added_file(change)).collect();
        self.files.env.note(Note::EditAdds { files: &added });
        for change in &edit.changes {
            let Change::LogFloor(floor) = change else { continue };
            let log = crate::write::segment::path_in(&self.files.dir, *floor);
            self.files.env.note(Note::LogBegins { log: &log, header: SEGMENT_HEADER_LEN as u64 });
            for number in self.commit_lock.state.lock().log.below(*floor) {
                let log = crate::write::segment::path_in(&self.files.dir, number);
                self.files.env.note(Note::LogObsolete { log: &log });
                if drumlin_types::bug!("log-unlinked-before-edit") {
                    unlink(&self.files.env, &log, FileKind::Log)?;
                }
            }
        }
        Ok(())
    }

    /// Reports to the log which floor a durable edit has recorded.
    fn note_floor(&self, edit: &Edit) {
        for change in &edit.changes {
            if let Change::LogFloor(floor) = change {
                self.commit_lock.state.lock().log.set_recorded_floor(*floor);
            }
        }
    }

    fn added_file(&self, change: &Change) -> Option<PathBuf> {
        match change {
            Change::AddFile { file, .. } => Some(self.files.table_path(file.table)),
            Change::ValueFile(file) if file.state == ValueFileState::Live => {
                Some(self.files.value_path(file.file))
            }
            _ => None,
        }
    }

    /// Returns a number for a new table or value file, and extends the lease in the manifest if necessary.
    pub(crate) fn next_file_number(&self) -> Result<u64> {
        let number = self.files.fresh_number();
        if !self.files.is_leased(number) {
            let mut control = self.control.lock();
            let edit = Edit { changes: vec![self.files.lease()] };
            self.append_edit(&mut control, edit, || {})?;
        }
        Ok(number)
    }

    /// Rewrites the manifest if that makes it much smaller. Returns whether it did.
    pub(crate) fn rewrite_manifest_if_grown(&self) -> Result<bool> {
        let mut control = self.control.lock();
        if !control.manifest.wants_rewrite() || self.health.is_poisoned() {
            return Ok(false);
        }
        match self.replace_manifest(&mut control) {
            Ok(()) => Ok(true),
            // The old manifest stays in use. Each attempt encodes the whole state under the control lock.
            Err(error) if error.is_shortage() => {
                control.manifest.postpone_rewrite();
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Replaces the manifest by a new one that starts with a snapshot of the whole state.
    pub(crate) fn replace_manifest(&self, control: &mut Control) -> Result<()> {
        let header = ManifestHeader { number: self.files.fresh_number(), ..control.manifest.header() };
        let snapshot = self.snapshot_edit(control);
        match ManifestFile::create(self.commit_lock.directory.entries.clone(), header, &snapshot) {
            Ok(manifest) => {
                let old = std::mem::replace(&mut control.manifest, manifest);
                self.note_floor(&snapshot);
                self.files.obsolete.push_file(old.path(), 0);
                Counters::add(&self.metrics.manifest_rewrites, 1);
                Ok(())
            }
            Err(error) => {
                if !error.is_shortage() {
                    self.poison(&error);
                }
                Err(error)
            }
        }
    }

    /// Returns the snapshot of the open store.
    fn snapshot_edit(&self, control: &Control) -> Edit {
        let marks = HighWaterMarks {
            floor: self.log_floor(&[]),
            next_file: self.files.next_number(),
            next_run: control.numbers.next_run,
            next_keyspace: self.next_keyspace.load(atomic::Ordering::Acquire),
            last_seq: self.log.durable_seq(),
            clock: self.files.unix_micros(),
            log_end: self.log.promised_end().unwrap_or(0),
        };
        snapshot(&control.keyspaces, &self.options.load(), &control.carried, &marks, &self.lifetimes)
    }
}

/// Returns the changes that remove the files that `edit` removes from `tree`, and that create the runs that it adds to.
fn removals_and_runs(keyspace: KeyspaceId, tree: &Tree, edit: &KeyspaceEdit) -> Vec<Change> {
    let removal = |(table, start): &(TableId, Key)| Change::RemoveFile {
        keyspace,
        table: *table,
        start: start.clone(),
    };
    let mut changes: Vec<Change> = edit.remove.iter().map(removal).collect();
    for (level, run, tag) in &edit.runs {
        let known = tree.levels[*level as usize].runs.iter().any(|r| r.id == *run);
        if !known && edit.add.iter().any(|(_, to, _)| to == run) {
            changes.push(Change::AddRun { keyspace, run: *run, level: *level, tag: tag.clone() });
        }
    }
    changes
}

/// Returns the changes that save what was learned about lookups, tables and values of a keyspace.
pub(crate) fn saved_statistics(
    keyspace: &KeyspaceState,
    lifetimes: &Lifetimes,
) -> impl Iterator<Item = Change> {
    let id = keyspace.id;
    let values = lifetimes.saved(id).map(|blob| Change::ValueLifetimes { keyspace: id, blob });
    keyspace.saved_lookups().chain(values)
}

/// Returns everything that the manifest must hold, as one edit.
pub(crate) fn snapshot(
    keyspaces: &[KeyspaceControl],
    options: &Options,
    carried: &[Change],
    marks: &HighWaterMarks,
    lifetimes: &Lifetimes,
) -> Edit {
    let mut changes = vec![
        Change::LogFloor(marks.floor),
        Change::NextFile(marks.next_file + NUMBER_LEASE),
        Change::NextRun(marks.next_run),
        Change::LastSeq(marks.last_seq),
        Change::ClockMark(marks.clock),
        Change::LogEnd(marks.log_end),
    ];
    for (name, value) in options.pairs() {
        changes.push(Change::StoreOption { name: name.to_owned(), value });
    }
    for keyspace in keyspaces {
        let id = keyspace.state.id;
        changes.push(Change::CreateKeyspace { id, name: keyspace.state.name.to_string() });
        for (name, value) in keyspace.state.options.load().pairs() {
            changes.push(Change::KeyspaceOption { id, name: name.to_owned(), value });
        }
        if !drumlin_types::bug!("flushed-mark-not-rewritten") {
            changes.push(Change::Flushed { keyspace: id, seq: keyspace.flushed_seq });
        }
        if let Some(operator) = &keyspace.state.operator_name {
            changes.push(Change::MergeOperator { keyspace: id, name: operator.to_string() });
        }
        let (name, blob) = keyspace.durable_policy();
        changes.push(Change::Policy { keyspace: id, name, blob });
        changes.extend(saved_statistics(&keyspace.state, lifetimes));
        let tree = keyspace.state.view().tree.clone();
        for file in value_files(tree.files().map(|(_, _, file)| file)).into_values() {
            changes.push(Change::ValueFile(file.record().clone()));
        }
        for (level, runs) in tree.levels.iter().enumerate() {
            let level = level as u8;
            for run in &runs.runs {
                changes.push(Change::AddRun { keyspace: id, run: run.id, level, tag: run.tag.clone() });
                for file in &run.files {
                    changes.push(Change::AddFile { keyspace: id, file: file.record(level, run.id) });
                }
            }
        }
    }
    // After the keyspaces: creating a keyspace fails if its number is below this mark.
    if !drumlin_types::bug!("keyspace-id-reused") {
        changes.push(Change::NextKeyspace(marks.next_keyspace));
    }
    changes.extend_from_slice(carried);
    Edit { changes }
}

#[cfg(test)]
mod tests {
    use crate::api::db::Db;
    use drumlin_env::MemEnv;
    use drumlin_format::manifest::{Change, Edit};

    /// A rewrite of the manifest that found no disk space is tried again only when the manifest has grown.
    #[test]
    fn a_rewrite_without_disk_space_is_postponed() {
        let mem = MemEnv::new(3);
        let db = Db::builder("/s").env(mem.env()).open().expect("open");
        let keys = db.keyspace("k").expect("a keyspace");
        let store = &keys.store;
        let grow = || {
            while !store.control.lock().manifest.wants_rewrite() {
                let saved = Change::ValueLifetimes { keyspace: keys.state.id, blob: vec![99; 40_000] };
                let edit = Edit { changes: vec![saved] };
                store.append_edit(&mut store.control.lock(), edit, || {}).expect("an edit");
            }
        };
        grow();
        mem.set_capacity(mem.used_space());
        let before = store.files.next_number();
        assert!(!store.rewrite_manifest_if_grown().expect("a full disk is no failure"));
        let after = store.files.next_number();
        assert!(after > before, "it was tried");
        assert!(!store.rewrite_manifest_if_grown().expect("a full disk is no failure"));
        assert_eq!(store.files.next_number(), after, "it was tried again");
        mem.set_capacity(None);
        grow();
        assert!(store.rewrite_manifest_if_grown().expect("there is space"));
    }
}
