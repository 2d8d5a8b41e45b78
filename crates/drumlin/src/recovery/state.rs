//! What the manifest says: edits applied one after the other to plain maps, then built into trees.

use crate::error::{Error, ErrorKind, Result};
use crate::version::{FileMeta, Obsolete, Run, TableHandle, Tree};
use drumlin_env::sync::Arc;
use drumlin_env::{Env, FileKind};
use drumlin_format::error::DecodeError;
use drumlin_format::manifest::{self, Change, Edit, FileRecord};
use drumlin_format::names::FileName;
use drumlin_format::pointer::Pointer;
use drumlin_types::contract::RunTag;
use drumlin_types::{Key, KeyRange, KeyspaceId, LogNumber, RunId, Seq, TableId};
use std::collections::BTreeMap;
use std::path::Path;

/// One keyspace as the manifest has it.
#[derive(Default)]
pub(crate) struct KeyspaceRecord {
    pub(crate) name: String,
    pub(crate) options: Vec<(String, String)>,
    pub(crate) flushed: Seq,
    pub(crate) policy: Option<(String, Vec<u8>)>,
    runs: BTreeMap<RunId, (u8, RunTag)>,
    files: BTreeMap<(TableId, Key), FileRecord>,
}

/// The whole manifest, applied.
#[derive(Default)]
pub(crate) struct ManifestState {
    pub(crate) store: u64,
    /// Number of the manifest that was read.
    pub(crate) number: u64,
    pub(crate) keyspaces: BTreeMap<KeyspaceId, KeyspaceRecord>,
    pub(crate) options: Vec<(String, String)>,
    pub(crate) floor: LogNumber,
    pub(crate) next_file: u64,
    pub(crate) next_run: u64,
    pub(crate) next_keyspace: u64,
    pub(crate) last_seq: Seq,
    pub(crate) clock: u64,
    /// Changes that this version only keeps.
    pub(crate) carried: Vec<Change>,
    pub(crate) bytes_read: u64,
}

/// An error about a file's content.
pub(crate) fn decode_error(path: &Path, error: DecodeError) -> Error {
    match error {
        DecodeError::Corruption(c) => Error::corruption(path, c.offset, c.what),
        newer @ DecodeError::NewerFormat { .. } => {
            Error::new(ErrorKind::NewerFormat, format!("{}: {newer}", path.display()))
        }
    }
}

/// Reads a whole file.
pub(crate) fn read_file(env: &Env, path: &Path, kind: FileKind) -> Result<Vec<u8>> {
    let fail = |what: &str, e| Error::io(path, what, e);
    let file = env.fs().open(path, kind).map_err(|e| fail("cannot open a file", e))?;
    let len = file.len().map_err(|e| fail("cannot measure a file", e))?;
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    file.read_exact_at(0, &mut bytes).map_err(|e| fail("cannot read a file", e))?;
    Ok(bytes)
}

/// Reads the manifest that the pointer in `dir` names.
pub(crate) fn read(env: &Env, dir: &Path) -> Result<ManifestState> {
    let pointer_path = dir.join(FileName::Pointer.to_string());
    let pointer_bytes = read_file(env, &pointer_path, FileKind::Pointer)?;
    let pointer = Pointer::decode(&pointer_bytes).map_err(|e| decode_error(&pointer_path, e))?;
    let path = dir.join(FileName::Manifest(pointer.manifest).to_string());
    if !env.fs().exists(&path).map_err(|e| Error::io(&path, "cannot look for the manifest", e))? {
        return Err(Error::corruption(&path, 0, "the manifest that CURRENT names is missing"));
    }
    let bytes = read_file(env, &path, FileKind::Manifest)?;
    let mut state =
        ManifestState { bytes_read: (bytes.len() + pointer_bytes.len()) as u64, ..ManifestState::default() };
    let end = manifest::replay::<Failure>(&bytes, pointer.manifest, pointer.synced, |edit| {
        state.apply(edit).map_err(Failure::Inconsistent)
    });
    match end {
        Ok(end) => {
            state.store = end.header.store;
            state.number = end.header.number;
            Ok(state)
        }
        Err(Failure::Decode(error)) => Err(decode_error(&path, error)),
        Err(Failure::Inconsistent(what)) => Err(Error::corruption(&path, 0, what)),
    }
}

enum Failure {
    Decode(DecodeError),
    Inconsistent(String),
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Failure {
        Failure::Decode(error)
    }
}

impl ManifestState {
    fn apply(&mut self, edit: Edit) -> Result<(), String> {
        for change in edit.changes {
            self.change(change)?;
        }
        Ok(())
    }

    fn keyspace(&mut self, id: KeyspaceId) -> Result<&mut KeyspaceRecord, String> {
        self.keyspaces
            .get_mut(&id)
            .ok_or_else(|| format!("an edit names keyspace {id}, which does not exist"))
    }

    fn change(&mut self, change: Change) -> Result<(), String> {
        match change {
            Change::CreateKeyspace { id, name } => {
                self.next_keyspace = self.next_keyspace.max(u64::from(id.0) + 1);
                if self.keyspaces.insert(id, KeyspaceRecord { name, ..KeyspaceRecord::default() }).is_some() {
                    return Err(format!("keyspace {id} is created twice"));
                }
            }
            Change::DropKeyspace { id } => {
                self.keyspaces
                    .remove(&id)
                    .ok_or_else(|| format!("keyspace {id} is dropped and does not exist"))?;
            }
            Change::KeyspaceOption { id, name, value } => set(&mut self.keyspace(id)?.options, name, value),
            Change::StoreOption { name, value } => set(&mut self.options, name, value),
            Change::AddRun { keyspace, run, level, tag } => {
                self.next_run = self.next_run.max(run.0 + 1);
                self.keyspace(keyspace)?.runs.insert(run, (level, tag));
            }
            Change::AddFile { keyspace, file } => {
                self.next_file = self.next_file.max(file.table.0 + 1);
                let record = self.keyspace(keyspace)?;
                if record.runs.get(&file.run).is_none_or(|(level, _)| *level != file.level) {
                    return Err(format!(
                        "{} is added to {}, which is not in level {}",
                        file.table, file.run, file.level
                    ));
                }
                if record.files.insert((file.table, file.start.clone()), file).is_some() {
                    return Err("a reference to a table is added twice".to_owned());
                }
            }
            Change::RemoveFile { keyspace, table, start } => {
                let removed = self.keyspace(keyspace)?.files.remove(&(table, start));
                removed.ok_or_else(|| format!("{table} is removed and was not there"))?;
            }
            Change::Flushed { keyspace, seq } => {
                let record = self.keyspace(keyspace)?;
                record.flushed = record.flushed.max(seq);
            }
            Change::LogFloor(floor) => self.floor = self.floor.max(floor),
            Change::NextFile(next) => self.next_file = self.next_file.max(next),
            Change::NextRun(next) => self.next_run = self.next_run.max(next),
            Change::LastSeq(seq) => self.last_seq = self.last_seq.max(seq),
            Change::ClockMark(clock) => self.clock = self.clock.max(clock),
            Change::Policy { keyspace, name, blob } => self.keyspace(keyspace)?.policy = Some((name, blob)),
            Change::Lookups { keyspace, table, start, lookups } => {
                if let Some(file) = self.keyspace(keyspace)?.files.get_mut(&(table, start)) {
                    file.lookups = lookups;
                }
            }
            kept @ (Change::ValueFile(_) | Change::ValueCounters { .. } | Change::Extension { .. }) => {
                self.carried.push(kept);
            }
        }
        Ok(())
    }

    /// Every table that is referred to, with the length it must have.
    pub(crate) fn tables(&self) -> BTreeMap<TableId, u64> {
        let records = self.keyspaces.values().flat_map(|k| k.files.values());
        records.map(|file| (file.table, file.file_len)).collect()
    }
}

impl KeyspaceRecord {
    /// Every reference: table, length of its file, bounds.
    pub(crate) fn references(&self) -> Vec<(TableId, u64, KeyRange)> {
        self.files.values().map(|file| (file.table, file.file_len, file.bounds())).collect()
    }

    /// The tree of this keyspace. References to one table share its handle.
    pub(crate) fn tree(&self, obsolete: &Arc<Obsolete>) -> Result<Tree, String> {
        let mut handles: BTreeMap<TableId, Arc<TableHandle>> = BTreeMap::new();
        let mut runs: BTreeMap<RunId, Run> = BTreeMap::new();
        for file in self.files.values() {
            let handle = handles
                .entry(file.table)
                .or_insert_with(|| TableHandle::new(file.table, file.file_len, obsolete.clone()))
                .clone();
            let tag = || self.runs.get(&file.run).map(|(_, tag)| tag.clone()).unwrap_or_default();
            let run = runs.entry(file.run).or_insert_with(|| Run::new(file.run, tag()));
            run.files.push(Arc::new(FileMeta::from_record(file, handle)));
        }
        let mut tree = Tree::empty();
        for (id, mut run) in runs {
            run.files.sort_by(|a, b| a.bounds.start.cmp(&b.bounds.start));
            let level = self.runs.get(&id).map_or(0, |(level, _)| *level);
            let level =
                tree.levels.get_mut(level as usize).ok_or_else(|| format!("{id} is in level {level}"))?;
            level.runs.push(run.share());
        }
        crate::version::check::check(&tree)?;
        Ok(tree)
    }
}

fn set(options: &mut Vec<(String, String)>, name: String, value: String) {
    match options.iter_mut().find(|(n, _)| *n == name) {
        Some((_, old)) => *old = value,
        None => options.push((name, value)),
    }
}
