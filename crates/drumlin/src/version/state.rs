//! The state that a manifest describes: plain maps that edits change.
//!
//! Recovery applies the edits of a manifest in order and builds the trees from the result. The writer of the manifest
//! keeps the same state and applies each edit to it *before* the edit is written. So an edit that recovery would refuse
//! is refused before anything reaches the disk, and recovery accepts every edit that was written.
//!
//! An edit is applied in full or not at all: a refused edit is undone. Applying an edit costs one map operation for
//! each change, independent of the size of the tree. The state takes memory in proportion to the manifest's snapshot.

use super::{
    FileMeta, Obsolete, Run, TableHandle, Tree, ValueFileHandle, ValueFileHandles, ValueFileUse, check,
};
use crate::base::error::{Error, ErrorKind};
use crate::options::{KeyspaceOptions, Options};
use drumlin_env::sync::Arc;
use drumlin_format::manifest::{
    Change, Edit, FileRecord, KeyspaceLookups, TableLife, ValueFileRecord, ValueFileState,
};
use drumlin_types::contract::RunTag;
use drumlin_types::{Key, KeyspaceId, LogNumber, RunId, Seq, TableId, ValueFileId};
use std::collections::{BTreeMap, BTreeSet};

/// A run of a keyspace: its level and its tag.
type RunRecord = (u8, RunTag);
/// Identity of a reference to a table: the table and the start of the bounds.
type FileKey = (TableId, Key);

/// One keyspace as the manifest describes it.
#[derive(Default, Debug)]
pub(crate) struct KeyspaceRecord {
    pub(crate) name: String,
    pub(crate) options: Vec<(String, String)>,
    pub(crate) flushed: Seq,
    pub(crate) policy: Option<(String, Vec<u8>)>,
    /// Name of the merge operator, if the keyspace ever had one.
    pub(crate) operator: Option<String>,
    pub(crate) lookups: Option<KeyspaceLookups>,
    pub(crate) lives: Vec<TableLife>,
    /// What was learned about the lifetimes of values, as saved; empty if nothing was.
    pub(crate) lifetimes: Vec<u8>,
    runs: BTreeMap<RunId, RunRecord>,
    files: BTreeMap<FileKey, FileRecord>,
    values: BTreeMap<ValueFileId, ValueFile>,
}

/// A value file, and the number of references to tables, parts included, whose list names it.
#[derive(Clone, Debug)]
struct ValueFile {
    record: ValueFileRecord,
    references: u64,
}

/// Numbers that only grow.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct HighWaterMarks {
    /// Log floor: segments below it are not needed.
    pub(crate) floor: LogNumber,
    pub(crate) next_file: u64,
    pub(crate) next_run: u64,
    /// Next keyspace id. All smaller ids are taken, including those of dropped keyspaces.
    pub(crate) next_keyspace: u64,
    pub(crate) last_seq: Seq,
    pub(crate) clock: u64,
    /// Position that the log reaches at least; 0 if unknown.
    pub(crate) log_end: u64,
}

/// State after all edits of a manifest.
#[derive(Default, Debug)]
pub(crate) struct ManifestState {
    pub(crate) store: u64,
    /// Number of the manifest that was read.
    pub(crate) number: u64,
    pub(crate) keyspaces: BTreeMap<KeyspaceId, KeyspaceRecord>,
    /// Names of all keyspaces.
    names: BTreeSet<String>,
    pub(crate) options: Vec<(String, String)>,
    pub(crate) marks: HighWaterMarks,
    /// Offset in the file at which the edits end.
    pub(crate) end: u64,
    /// Changes that this version does not use but keeps.
    pub(crate) carried: Vec<Change>,
    pub(crate) bytes_read: u64,
}

/// Why an edit was refused.
#[derive(Debug)]
pub(crate) enum RefusedEdit {
    /// It sets an option to a value that no open accepts.
    Option(Error),
    /// It does not fit the state.
    Inconsistent(String),
}

impl RefusedEdit {
    /// Returns the error for a caller whose edit was refused. Nothing was written.
    pub(crate) fn into_error(self) -> Error {
        match self {
            RefusedEdit::Option(error) => error,
            RefusedEdit::Inconsistent(what) => {
                Error::new(ErrorKind::Bug, format!("a manifest edit was refused: {what}"))
            }
        }
    }
}

/// How to undo one change. Marks are restored separately, all together.
enum Undo {
    Nothing,
    Create(KeyspaceId),
    Rename(KeyspaceId, String),
    Drop(KeyspaceId, Box<KeyspaceRecord>),
    KeyspaceOption(KeyspaceId, String, Option<String>),
    StoreOption(String, Option<String>),
    Run(KeyspaceId, RunId, Option<RunRecord>),
    File(KeyspaceId, FileKey, Option<Box<FileRecord>>),
    Value(KeyspaceId, ValueFileId, Option<Box<ValueFile>>),
    Flushed(KeyspaceId, Seq),
    Lookups(KeyspaceId, Option<KeyspaceLookups>),
    Lives(KeyspaceId, Vec<TableLife>),
    Lifetimes(KeyspaceId, Vec<u8>),
    Policy(KeyspaceId, Option<(String, Vec<u8>)>),
    Operator(KeyspaceId, Option<String>),
    Carry,
}

impl ManifestState {
    /// Returns whether the state is empty: no snapshot was applied yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.marks.next_file == 0
    }

    /// Returns the state that `snapshot`, the first edits of a manifest, describes.
    pub(crate) fn of_snapshot(snapshot: &Edit) -> Result<ManifestState, RefusedEdit> {
        let mut state = ManifestState::default();
        state.apply(snapshot)?;
        Ok(state)
    }

    /// Applies `edit` in full or not at all.
    pub(crate) fn apply(&mut self, edit: &Edit) -> Result<(), RefusedEdit> {
        let marks = self.marks;
        let mut undo = Vec::with_capacity(edit.changes.len());
        for change in &edit.changes {
            match self.change(change) {
                Ok(inverse) => undo.push(inverse),
                Err(refusal) => {
                    undo.into_iter().rev().for_each(|inverse| self.undo(inverse));
                    self.marks = marks;
                    return Err(refusal);
                }
            }
        }
        Ok(())
    }

    fn keyspace(&mut self, id: KeyspaceId) -> Result<&mut KeyspaceRecord, RefusedEdit> {
        let missing = || inconsistent(format!("an edit names keyspace {id}, which does not exist"));
        self.keyspaces.get_mut(&id).ok_or_else(missing)
    }

    fn change(&mut self, change: &Change) -> Result<Undo, RefusedEdit> {
        match change {
            Change::CreateKeyspace { id, name } => self.create_keyspace(*id, name),
            Change::RenameKeyspace { id, name } => self.rename_keyspace(*id, name),
            Change::DropKeyspace { id } => {
                let missing = || inconsistent(format!("an edit drops keyspace {id}, which does not exist"));
                let record = self.keyspaces.remove(id).ok_or_else(missing)?;
                self.names.remove(&record.name);
                Ok(Undo::Drop(*id, Box::new(record)))
            }
            Change::KeyspaceOption { id, name, value } => {
                let record = self.keyspace(*id)?;
                KeyspaceOptions::check_stored(name, value).map_err(RefusedEdit::Option)?;
                let before = set(&mut record.options, name, value);
                Ok(Undo::KeyspaceOption(*id, name.clone(), before))
            }
            Change::StoreOption { name, value } => {
                Options::default().set(name, value).map_err(RefusedEdit::Option)?;
                let before = set(&mut self.options, name, value);
                Ok(Undo::StoreOption(name.clone(), before))
            }
            Change::AddRun { .. }
            | Change::AddFile { .. }
            | Change::RemoveFile { .. }
            | Change::Lookups { .. } => self.change_tree(change),
            Change::Flushed { keyspace, seq } => {
                let record = self.keyspace(*keyspace)?;
                let before = record.flushed;
                record.flushed = before.max(*seq);
                Ok(Undo::Flushed(*keyspace, before))
            }
            Change::Policy { keyspace, name, blob } => {
                let policy = Some((name.clone(), blob.clone()));
                let before = std::mem::replace(&mut self.keyspace(*keyspace)?.policy, policy);
                Ok(Undo::Policy(*keyspace, before))
            }
            Change::KeyspaceLookups { keyspace, .. }
            | Change::TableLives { keyspace, .. }
            | Change::ValueLifetimes { keyspace, .. } => Ok(self.change_statistics(*keyspace, change)),
            Change::MergeOperator { keyspace, name } => {
                let before = self.keyspace(*keyspace)?.operator.replace(name.clone());
                Ok(Undo::Operator(*keyspace, before))
            }
            Change::LogFloor(_)
            | Change::NextFile(_)
            | Change::NextRun(_)
            | Change::NextKeyspace(_)
            | Change::LastSeq(_)
            | Change::ClockMark(_)
            | Change::LogEnd(_) => {
                self.marks.raise(change);
                Ok(Undo::Nothing)
            }
            Change::ValueFile(record) => self.change_value_file(record),
            Change::ValueCounters { file, dead_bytes, dead_entries } => {
                Ok(self.count_dead(*file, *dead_bytes, *dead_entries))
            }
            Change::Extension { .. } => {
                self.carried.push(change.clone());
                Ok(Undo::Carry)
            }
        }
    }

    fn create_keyspace(&mut self, id: KeyspaceId, name: &str) -> Result<Undo, RefusedEdit> {
        if u64::from(id.0) < self.marks.next_keyspace {
            return Err(inconsistent(format!("keyspace id {id} was used before")));
        }
        if !self.names.insert(name.to_owned()) {
            return Err(inconsistent(format!("two keyspaces have the name {name:?}")));
        }
        self.marks.next_keyspace = u64::from(id.0) + 1;
        let record = KeyspaceRecord { name: name.to_owned(), ..KeyspaceRecord::default() };
        self.keyspaces.insert(id, record);
        Ok(Undo::Create(id))
    }

    fn rename_keyspace(&mut self, id: KeyspaceId, name: &str) -> Result<Undo, RefusedEdit> {
        self.keyspace(id)?;
        if !self.names.insert(name.to_owned()) {
            return Err(inconsistent(format!("two keyspaces have the name {name:?}")));
        }
        let before = std::mem::replace(&mut self.keyspace(id)?.name, name.to_owned());
        self.names.remove(&before);
        Ok(Undo::Rename(id, before))
    }

    /// Applies a change of the statistics of `id`. They may be written after the keyspace was dropped.
    fn change_statistics(&mut self, id: KeyspaceId, change: &Change) -> Undo {
        let Some(record) = self.keyspaces.get_mut(&id) else { return Undo::Nothing };
        match change {
            Change::KeyspaceLookups { lookups, .. } => {
                Undo::Lookups(id, record.lookups.replace(lookups.clone()))
            }
            Change::TableLives { lives, .. } => {
                Undo::Lives(id, std::mem::replace(&mut record.lives, lives.clone()))
            }
            Change::ValueLifetimes { blob, .. } => {
                Undo::Lifetimes(id, std::mem::replace(&mut record.lifetimes, blob.clone()))
            }
            _ => Undo::Nothing,
        }
    }

    /// Applies a change of the runs and files of one keyspace.
    fn change_tree(&mut self, change: &Change) -> Result<Undo, RefusedEdit> {
        match change {
            Change::AddRun { keyspace, run, level, tag } => {
                let before = self.keyspace(*keyspace)?.runs.insert(*run, (*level, tag.clone()));
                self.marks.next_run = self.marks.next_run.max(run.0.saturating_add(1));
                Ok(Undo::Run(*keyspace, *run, before))
            }
            Change::AddFile { keyspace, file } => {
                let record = self.keyspace(*keyspace)?;
                if record.runs.get(&file.run).is_none_or(|(level, _)| *level != file.level) {
                    return Err(inconsistent(format!(
                        "{} is added to {}, which is not in level {}",
                        file.table, file.run, file.level
                    )));
                }
                let key = (file.table, file.start.clone());
                if record.files.contains_key(&key) {
                    return Err(inconsistent("a reference to a table is added twice"));
                }
                record.set_file(&key, Some(file.clone())).map_err(inconsistent)?;
                self.marks.next_file = self.marks.next_file.max(file.table.0.saturating_add(1));
                Ok(Undo::File(*keyspace, key, None))
            }
            Change::RemoveFile { keyspace, table, start } => {
                let key = (*table, start.clone());
                let missing = || inconsistent(format!("an edit removes {table}, which is not in the tree"));
                let record = self.keyspace(*keyspace)?;
                let before = record.set_file(&key, None).map_err(inconsistent)?.ok_or_else(missing)?;
                Ok(Undo::File(*keyspace, key, Some(Box::new(before))))
            }
            Change::Lookups { keyspace, table, start, lookups } => {
                let key = (*table, start.clone());
                let Some(file) = self.keyspace(*keyspace)?.files.get_mut(&key) else {
                    return Ok(Undo::Nothing);
                };
                let before = Box::new(file.clone());
                file.lookups = *lookups;
                Ok(Undo::File(*keyspace, key, Some(before)))
            }
            _ => Ok(Undo::Nothing),
        }
    }

    fn undo(&mut self, inverse: Undo) {
        match inverse {
            Undo::Nothing => {}
            Undo::Create(id) => {
                if let Some(record) = self.keyspaces.remove(&id) {
                    self.names.remove(&record.name);
                }
            }
            Undo::Rename(id, before) => {
                if let Some(record) = self.keyspaces.get_mut(&id) {
                    self.names.remove(&record.name);
                    self.names.insert(before.clone());
                    record.name = before;
                }
            }
            Undo::Drop(id, record) => {
                self.names.insert(record.name.clone());
                self.keyspaces.insert(id, *record);
            }
            Undo::StoreOption(name, before) => unset(&mut self.options, name, before),
            Undo::Carry => drop(self.carried.pop()),
            Undo::KeyspaceOption(id, name, before) => {
                self.with(id, |record| unset(&mut record.options, name, before));
            }
            Undo::Flushed(id, before) => self.with(id, |record| record.flushed = before),
            Undo::Policy(id, before) => self.with(id, |record| record.policy = before),
            Undo::Lookups(id, before) => self.with(id, |record| record.lookups = before),
            Undo::Lives(id, before) => self.with(id, |record| record.lives = before),
            Undo::Lifetimes(id, before) => self.with(id, |record| record.lifetimes = before),
            Undo::Operator(id, before) => self.with(id, |record| record.operator = before),
            Undo::Value(id, file, before) => {
                self.with(id, |record| put_back(&mut record.values, file, before.map(|file| *file)));
            }
            Undo::Run(id, run, before) => self.with(id, |record| put_back(&mut record.runs, run, before)),
            Undo::File(id, key, before) => {
                self.with(id, |record| drop(record.set_file(&key, before.map(|file| *file))));
            }
        }
    }

    /// Adds a value file, or removes one that no table points to any more.
    fn change_value_file(&mut self, file: &ValueFileRecord) -> Result<Undo, RefusedEdit> {
        let (id, keyspace) = (file.file, file.keyspace);
        let record = self.keyspace(keyspace)?;
        let known = record.values.get(&id);
        let before = match (file.state, known) {
            (ValueFileState::Live, None) => {
                let added = ValueFile { record: file.clone(), references: 0 };
                record.values.insert(id, added);
                self.marks.next_file = self.marks.next_file.max(id.0.saturating_add(1));
                None
            }
            (ValueFileState::Live, Some(_)) => {
                return Err(inconsistent(format!("value file {id} is added twice")));
            }
            (ValueFileState::Gone, Some(known)) if known.references == 0 => record.values.remove(&id),
            (ValueFileState::Gone, Some(_)) => {
                return Err(inconsistent(format!("value file {id} is removed although tables point to it")));
            }
            (ValueFileState::Gone, None) => {
                return Err(inconsistent(format!(
                    "an edit removes value file {id}, which is not in the store"
                )));
            }
            (ValueFileState::Moved(_), _) => {
                return Err(inconsistent(format!(
                    "value file {id} was replaced by a map, which this version does not support"
                )));
            }
        };
        Ok(Undo::Value(keyspace, id, before.map(Box::new)))
    }

    /// Updates the counts of dead data of a value file. They are advice, and may come after the file is gone.
    fn count_dead(&mut self, id: ValueFileId, bytes: u64, entries: u64) -> Undo {
        for (keyspace, record) in &mut self.keyspaces {
            if let Some(file) = record.values.get_mut(&id) {
                let before = Box::new(file.clone());
                file.record.dead_bytes = bytes.min(file.record.total_bytes);
                file.record.dead_entries = entries.min(file.record.entries);
                return Undo::Value(*keyspace, id, Some(before));
            }
        }
        Undo::Nothing
    }

    fn with(&mut self, id: KeyspaceId, change: impl FnOnce(&mut KeyspaceRecord)) {
        if let Some(record) = self.keyspaces.get_mut(&id) {
            change(record);
        }
    }

    /// Returns every value file, with its expected length.
    pub(crate) fn value_files(&self) -> BTreeMap<ValueFileId, u64> {
        let files = self.keyspaces.values().flat_map(|keyspace| keyspace.values.values());
        files.map(|file| (file.record.file, file.record.file_len)).collect()
    }

    /// Returns every table that is referred to, with its expected length.
    pub(crate) fn tables(&self) -> BTreeMap<TableId, u64> {
        let records = self.keyspaces.values().flat_map(|k| k.files.values());
        records.map(|file| (file.table, file.file_len)).collect()
    }
}

impl HighWaterMarks {
    fn raise(&mut self, change: &Change) {
        match change {
            Change::LogFloor(floor) => self.floor = self.floor.max(*floor),
            Change::NextFile(next) => self.next_file = self.next_file.max(*next),
            Change::NextRun(next) => self.next_run = self.next_run.max(*next),
            Change::NextKeyspace(next) => self.next_keyspace = self.next_keyspace.max(*next),
            Change::LastSeq(seq) => self.last_seq = self.last_seq.max(*seq),
            Change::ClockMark(clock) => self.clock = self.clock.max(*clock),
            Change::LogEnd(position) => self.log_end = self.log_end.max(*position),
            _ => {}
        }
    }
}

impl KeyspaceRecord {
    /// Returns every reference to a table.
    pub(crate) fn references(&self) -> impl Iterator<Item = &FileRecord> {
        self.files.values()
    }

    /// Sets or removes a reference to a table, and counts the references to its value files. Returns the previous one.
    /// It changes nothing if the table points to an unknown value file.
    fn set_file(&mut self, key: &FileKey, file: Option<FileRecord>) -> Result<Option<FileRecord>, String> {
        for used in file.iter().flat_map(|file| &file.value_refs) {
            if !self.values.contains_key(&used.file) {
                return Err(format!(
                    "{} points to value file {}, which is not in the store",
                    key.0, used.file
                ));
            }
        }
        let mut count = |file: &FileRecord, add: bool| {
            for used in &file.value_refs {
                if let Some(value) = self.values.get_mut(&used.file) {
                    let references = value.references;
                    value.references = if add { references + 1 } else { references.saturating_sub(1) };
                }
            }
        };
        if let Some(file) = &file {
            count(file, true);
        }
        let before = match file {
            Some(file) => self.files.insert(key.clone(), file),
            None => self.files.remove(key),
        };
        if let Some(before) = &before {
            count(before, false);
        }
        Ok(before)
    }

    /// Builds the tree of this keyspace. References to one table share its handle.
    pub(crate) fn tree(&self, obsolete: &Arc<Obsolete>) -> Result<Tree, String> {
        let mut handles: BTreeMap<TableId, Arc<TableHandle>> = BTreeMap::new();
        let mut runs: BTreeMap<RunId, Run> = BTreeMap::new();
        let values: ValueFileHandles = self
            .values
            .iter()
            .map(|(id, file)| (*id, ValueFileHandle::new(file.record.clone(), obsolete.clone())))
            .collect();
        let used = |file: &FileRecord| -> Result<Arc<[ValueFileUse]>, String> {
            let uses = file.value_refs.iter().map(|used| {
                let missing = || format!("{} points to a missing value file {}", file.table, used.file);
                let file = values.get(&used.file).cloned().ok_or_else(missing)?;
                Ok(ValueFileUse { file, entries: used.entries, bytes: used.bytes })
            });
            uses.collect()
        };
        for file in self.files.values() {
            let handle = handles
                .entry(file.table)
                .or_insert_with(|| TableHandle::new(file.table, file.file_len, obsolete.clone()))
                .clone();
            let tag = || self.runs.get(&file.run).map(|(_, tag)| tag.clone()).unwrap_or_default();
            let run = runs.entry(file.run).or_insert_with(|| Run::new(file.run, tag()));
            run.files.push(Arc::new(FileMeta::from_record(file, handle, used(file)?)));
        }
        let mut tree = Tree::empty();
        for (id, mut run) in runs {
            run.files.sort_by(|a, b| a.bounds.start.cmp(&b.bounds.start));
            let level = self.runs.get(&id).map_or(0, |(level, _)| *level);
            let level =
                tree.levels.get_mut(level as usize).ok_or_else(|| format!("{id} is in level {level}"))?;
            level.runs.push(run.share());
        }
        check::check(&tree)?;
        Ok(tree)
    }
}

fn inconsistent(what: impl Into<String>) -> RefusedEdit {
    RefusedEdit::Inconsistent(what.into())
}

/// Sets an option and returns its previous value.
fn set(options: &mut Vec<(String, String)>, name: &str, value: &str) -> Option<String> {
    match options.iter_mut().find(|(n, _)| *n == name) {
        Some((_, old)) => Some(std::mem::replace(old, value.to_owned())),
        None => {
            options.push((name.to_owned(), value.to_owned()));
            None
        }
    }
}

/// Undoes the latest change of an option.
fn unset(options: &mut Vec<(String, String)>, name: String, before: Option<String>) {
    match before {
        Some(value) => drop(set(options, &name, &value)),
        None => options.retain(|(n, _)| *n != name),
    }
}

fn put_back<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, before: Option<V>) {
    match before {
        Some(value) => drop(map.insert(key, value)),
        None => drop(map.remove(&key)),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Draws a change from few ids and names, so that many changes fit the state and many do not.
    fn change(kind: u8, id: u8, number: u8, word: u8) -> Change {
        let (keyspace, start) = (KeyspaceId(u32::from(id % 6)), Key::new(&[word % 3]));
        let (table, run, level) = (TableId(u64::from(number % 5)), RunId(u64::from(word % 4)), number % 2);
        let names = ["file_bytes", "compaction", "block_bytes", "durability", "no_such_option"];
        let values = ["8KiB", "tiering:4", "leveling:", "", "sync", "17"];
        let pick = |all: &[&str], at: u8| all[usize::from(at) % all.len()].to_owned();
        let (name, value) = (pick(&names, number), pick(&values, word));
        match kind % 15 {
            0 | 1 => Change::CreateKeyspace { id: keyspace, name: format!("k{}", word % 5) },
            2 => Change::DropKeyspace { id: keyspace },
            3 | 4 => Change::KeyspaceOption { id: keyspace, name, value },
            5 => Change::StoreOption { name, value },
            6 => Change::AddRun { keyspace, run, level, tag: RunTag::default() },
            7 | 8 => Change::AddFile { keyspace, file: file(table, run, level, start) },
            9 => Change::RemoveFile { keyspace, table, start },
            10 => Change::Lookups { keyspace, table, start, lookups: [1.0, 2.0, f32::from(word)] },
            11 => Change::Policy { keyspace, name: value, blob: vec![word] },
            12 => Change::Flushed { keyspace, seq: u64::from(word) },
            13 => Change::RenameKeyspace { id: keyspace, name: format!("k{}", word % 5) },
            _ => match word % 8 {
                7 => Change::ValueLifetimes { keyspace, blob: vec![number] },
                6 => Change::TableLives {
                    keyspace,
                    lives: vec![TableLife { level, tables: u32::from(number), lookups: 1.0 }],
                },
                5 => Change::KeyspaceLookups {
                    keyspace,
                    lookups: KeyspaceLookups { keys: u64::from(number), ..KeyspaceLookups::default() },
                },
                4 => Change::MergeOperator { keyspace, name: value },
                0 => Change::NextKeyspace(u64::from(number % 8)),
                1 => Change::LastSeq(u64::from(number)),
                2 => Change::LogFloor(LogNumber(u64::from(number))),
                _ => Change::Extension { tag: 99, critical: false, bytes: vec![number] },
            },
        }
    }

    pub(in crate::version) fn file(table: TableId, run: RunId, level: u8, start: Key) -> FileRecord {
        FileRecord {
            table,
            start,
            end: None,
            level,
            run,
            file_len: 100,
            bytes: 50,
            entries: 5,
            keys: 5,
            tombstones: 0,
            range_tombstones: 0,
            table_entries: 5,
            min_seq: 1,
            max_seq: 9,
            filter_bits: 10.0,
            fp_rate: 0.01,
            checksum: 7,
            accounted: false,
            value_refs: Vec::new(),
            lookups: [0.0; 3],
        }
    }

    /// Errors are logged and shown, so they must not contain user keys.
    #[test]
    fn errors_contain_no_keys() {
        let (id, run) = (KeyspaceId(1), RunId(1));
        let add = |table, start: &str| {
            let file = file(TableId(table), run, 1, Key::new(start.as_bytes()));
            Change::AddFile { keyspace: id, file }
        };
        let changes = vec![
            Change::CreateKeyspace { id, name: "k".into() },
            Change::AddRun { keyspace: id, run, level: 1, tag: RunTag::default() },
            add(1, "secret-a"),
            add(2, "secret-b"),
        ];
        let mut state = ManifestState::default();
        state.apply(&Edit { changes }).expect("overlaps are found later");
        let error = state.keyspaces[&id].tree(&Arc::default()).expect_err("unbounded files overlap");
        assert!(!error.contains("secret") && error.contains("overlap"), "{error}");
    }

    /// The end of a file in the middle is shorter than what the outer bounds of the run have in common.
    #[test]
    fn overlapping_files_are_refused_whatever_their_bounds() {
        let (id, run) = (KeyspaceId(1), RunId(1));
        let add = |table, start: &str, end: &str| {
            let mut file = file(TableId(table), run, 1, Key::new(start.as_bytes()));
            file.end = Some(Key::new(end.as_bytes()));
            Change::AddFile { keyspace: id, file }
        };
        let changes = vec![
            Change::CreateKeyspace { id, name: "k".into() },
            Change::AddRun { keyspace: id, run, level: 1, tag: RunTag::default() },
            add(1, "ab1", "ab2"),
            add(2, "ab2", "z"),
            add(3, "ab3", "ab4"),
        ];
        let mut state = ManifestState::default();
        state.apply(&Edit { changes }).expect("overlaps are found later");
        let error = state.keyspaces[&id].tree(&Arc::default()).expect_err("the files overlap");
        assert!(error.contains("overlap"), "{error}");
    }

    fn edits() -> impl Strategy<Value = Vec<Edit>> {
        let one = (any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>());
        let edit = prop::collection::vec(one, 1..6).prop_map(|drawn| Edit {
            changes: drawn
                .into_iter()
                .map(|(kind, id, number, word)| change(kind, id, number, word))
                .collect(),
        });
        prop::collection::vec(edit, 1..60)
    }

    proptest! {
        #[test]
        fn a_refused_edit_changes_nothing(edits in edits()) {
            let (mut state, mut accepted) = (ManifestState::default(), Vec::new());
            for edit in edits {
                let before = format!("{state:?}");
                match state.apply(&edit) {
                    Ok(()) => accepted.push(edit),
                    Err(_) => prop_assert_eq!(&before, &format!("{state:?}"), "{:?}", edit),
                }
            }
            // Recovery accepts every accepted edit and reaches the same state.
            let mut recovered = ManifestState::default();
            for edit in &accepted {
                prop_assert!(recovered.apply(edit).is_ok(), "{:?}", edit);
            }
            prop_assert_eq!(format!("{state:?}"), format!("{recovered:?}"));
        }
    }
}
