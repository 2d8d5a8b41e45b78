//! Repair: saving what can be read of a damaged store into a new directory.
//!
//! The old directory is only read. Every table that can be read, and every commit of the log that is
//! whole, is written into a new store, block by block as far as they go. When the manifest can be read,
//! only the tables that it names are used, within their bounds; otherwise every table in the directory
//! is, in order of sequence numbers, so that newer versions win. Without the manifest a deleted key may
//! come back when its tombstone was already merged away: the report says so.

use crate::batch::Batch;
use crate::cursor::Cursor;
use crate::db::Db;
use crate::error::{Error, ErrorKind, Result};
use crate::options::Durability;
use crate::recovery::state::{self, ManifestState};
use crate::table::{BlockCache, CursorOptions, Table};
use drumlin_env::Env;
use drumlin_env::sync::Arc;
use drumlin_format::names::FileName;
use drumlin_types::{KeyRange, KeyspaceId, Kind, Seq, TableId};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a repair saved and what it could not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// Tables read to the end.
    pub tables_kept: u64,
    /// Entries written into the new store.
    pub entries_kept: u64,
    /// Commits saved from the log.
    pub commits_kept: u64,
    /// What was lost or is in doubt, a line each.
    pub lost: Vec<String>,
}

/// One version of a key, with where it belongs.
struct Saved {
    keyspace: KeyspaceId,
    key: Vec<u8>,
    seq: Seq,
    kind: Kind,
    value: Vec<u8>,
}

/// Saves what can be read of the store at `from` into a new store at `to`.
///
/// # Errors
/// `InvalidArgument` when `to` exists and is not empty; errors of writing the new store. Damage in the
/// old store is reported, not an error.
pub fn repair(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<RepairReport> {
    repair_in(&Env::os(), from.as_ref(), to.as_ref())
}

pub(crate) fn repair_in(env: &Env, from: &Path, to: &Path) -> Result<RepairReport> {
    let entries = env.fs().list(from).map_err(|e| Error::io(from, "cannot list the directory", e))?;
    if env.fs().exists(to).map_err(|e| Error::io(to, "cannot look at the target", e))?
        && !env.fs().list(to).map_err(|e| Error::io(to, "cannot list the target", e))?.is_empty()
    {
        return Err(Error::new(ErrorKind::InvalidArgument, format!("{} is not empty", to.display())));
    }
    let lock_path = from.join(FileName::Lock.to_string());
    let lock = env.fs().lock(&lock_path).map_err(|e| Error::io(&lock_path, "cannot lock the store", e))?;
    if lock.is_none() {
        return Err(Error::new(ErrorKind::Locked, format!("the store at {} is open", from.display())));
    }
    let mut report = RepairReport::default();
    let manifest = match state::read(env, from) {
        Ok(manifest) => Some(manifest),
        Err(error) => {
            report.lost.push(format!("the manifest: {error}; deleted keys may come back"));
            None
        }
    };
    let mut rescue = Rescue { env, from, report, saved: BTreeMap::new(), range_deletes: Vec::new() };
    match &manifest {
        Some(manifest) => rescue.tables_of(manifest),
        None => rescue.all_tables(entries.iter().filter_map(|e| FileName::parse(&e.name))),
    }
    rescue.log(entries.iter().filter_map(|e| FileName::parse(&e.name)), manifest.as_ref());
    let names =
        manifest.map(|m| m.keyspaces.into_iter().map(|(id, k)| (id, k.name)).collect()).unwrap_or_default();
    rescue.write(to, &names)
}

struct Rescue<'a> {
    env: &'a Env,
    from: &'a Path,
    report: RepairReport,
    /// The newest version of each key.
    saved: BTreeMap<(KeyspaceId, Vec<u8>), Saved>,
    range_deletes: Vec<(KeyspaceId, KeyRange, Seq)>,
}

impl Rescue<'_> {
    fn tables_of(&mut self, manifest: &ManifestState) {
        for (id, record) in &manifest.keyspaces {
            for (table, len, bounds) in record.references() {
                self.table(*id, table, len, &bounds);
            }
        }
    }

    fn all_tables(&mut self, names: impl Iterator<Item = FileName>) {
        for name in names {
            if let FileName::Table(table) = name {
                let path = self.path(name);
                match self.env.fs().file_len(&path) {
                    // Without the manifest nothing says which keyspace a table belongs to.
                    Ok(len) => self.table(KeyspaceId(0), table, len, &KeyRange::all()),
                    Err(error) => self.report.lost.push(format!("{}: {error}", path.display())),
                }
            }
        }
    }

    fn path(&self, name: FileName) -> PathBuf {
        self.from.join(name.to_string())
    }

    fn table(&mut self, keyspace: KeyspaceId, table: TableId, len: u64, bounds: &KeyRange) {
        let path = self.path(FileName::Table(table));
        if let Err(error) = self.read_table(keyspace, &path, table, len, bounds) {
            self.report.lost.push(format!("{table}: {error}"));
        } else {
            self.report.tables_kept += 1;
        }
    }

    fn read_table(
        &mut self,
        keyspace: KeyspaceId,
        path: &Path,
        id: TableId,
        len: u64,
        bounds: &KeyRange,
    ) -> Result<()> {
        let cache = Arc::new(BlockCache::new(0));
        let table = Arc::new(Table::open(self.env, path, id, len, cache, 0)?);
        let tombstones = table.range_tombstones().iter().filter_map(|t| t.clip(bounds));
        self.range_deletes.extend(tombstones.map(|t| (keyspace, t.range, t.seq)));
        let mut cursor = table.cursor(CursorOptions::MERGE);
        cursor.seek(&bounds.start, Seq::MAX)?;
        while cursor.valid() && bounds.is_before_end(cursor.key()) {
            self.keep(keyspace, cursor.key(), cursor.seq(), cursor.kind(), cursor.value());
            cursor.next()?;
        }
        Ok(())
    }

    fn keep(&mut self, keyspace: KeyspaceId, key: &[u8], seq: Seq, kind: Kind, value: &[u8]) {
        if matches!(kind, Kind::Merge | Kind::PutPointer) {
            self.report
                .lost
                .push(format!("a merge operand or pointer at #{seq}: only whole values are saved"));
            return;
        }
        let place = (keyspace, key.to_vec());
        if self.saved.get(&place).is_none_or(|old| old.seq < seq) {
            self.saved.insert(place, Saved { keyspace, key: key.to_vec(), seq, kind, value: value.to_vec() });
        }
    }

    /// Saves the commits of every log segment, up to its first damage.
    fn log(&mut self, names: impl Iterator<Item = FileName>, manifest: Option<&ManifestState>) {
        use drumlin_format::batch::{BatchReader, range_end};
        use drumlin_format::log::{SegmentHeader, SegmentScanner};
        let mut numbers: Vec<_> = names
            .filter_map(|name| match name {
                FileName::Log(number) if manifest.is_none_or(|m| number >= m.floor) => Some(number),
                _ => None,
            })
            .collect();
        numbers.sort_unstable();
        for number in numbers {
            let path = self.path(FileName::Log(number));
            let Ok(bytes) = state::read_file(self.env, &path, drumlin_env::FileKind::Log) else {
                self.report.lost.push(format!("{}: cannot be read", path.display()));
                continue;
            };
            let Ok(header) = SegmentHeader::decode(&bytes, number) else { continue };
            for record in SegmentScanner::new(&bytes, header) {
                let operations = BatchReader::new(record.payload, record.header.count).flatten();
                for (seq, operation) in (record.header.first_seq..).zip(operations) {
                    if operation.kind == Kind::DeleteRange {
                        if let Ok(end) = range_end(operation.value) {
                            let range = KeyRange::new(operation.key.into(), end.map(Into::into));
                            self.range_deletes.push((operation.keyspace, range, seq));
                        }
                    } else {
                        self.keep(operation.keyspace, operation.key, seq, operation.kind, operation.value);
                    }
                }
                self.report.commits_kept += u64::from(record.header.count > 0);
            }
        }
    }

    fn write(mut self, to: &Path, names: &BTreeMap<KeyspaceId, String>) -> Result<RepairReport> {
        let db = Db::builder(to).env(self.env.clone()).open()?;
        let mut handles = BTreeMap::new();
        for (id, name) in names {
            handles.insert(*id, db.keyspace(name)?);
        }
        let saved = std::mem::take(&mut self.saved);
        for saved in saved.into_values() {
            let hidden = self.range_deletes.iter().any(|(keyspace, range, seq)| {
                *keyspace == saved.keyspace && *seq > saved.seq && range.contains(&saved.key)
            });
            if hidden || saved.kind == Kind::Delete {
                continue;
            }
            let handle = match handles.get(&saved.keyspace) {
                Some(handle) => handle.clone(),
                None => {
                    let name = if names.is_empty() {
                        "default".to_owned()
                    } else {
                        format!("recovered-{}", saved.keyspace.0)
                    };
                    let handle = db.keyspace(&name)?;
                    handles.insert(saved.keyspace, handle.clone());
                    handle
                }
            };
            let mut batch = Batch::new();
            batch.restore(&handle, saved.kind, &saved.key, &saved.value);
            db.write_with(batch, Durability::Buffered)?;
            self.report.entries_kept += 1;
        }
        db.flush()?;
        db.close()?;
        Ok(self.report)
    }
}
