//! The engine behind the [`Store`] trait: the one file of the command that names `drumlin`.
//!
//! It turns calls into calls and reports into plain data, and decides three things: reading from a keyspace
//! that is not there is an error rather than a reason to make one; an option or a policy that the engine does
//! not know is bad usage rather than a failed call; an option goes to the store or to the keyspace by its name.

use super::{
    Access, Bounds, DecisionRecord, DecisionReplay, Entries, FileShape, Finding, KeyspaceShape, LevelShape,
    OpenOptions, OptionRow, RepairReport, RunShape, Store, Verification, Want,
};
use crate::args::Durability;
use crate::escape::to_hex;
use crate::failure::{Failure, Result};
use drumlin::{Batch, Builder, Db, Error, ErrorKind, Keyspace, KeyspaceOptions, OptionDef, Options};
use std::cell::OnceCell;
use std::io;
use std::path::Path;

#[cfg(test)]
mod tests;

/// Opens a store.
pub(crate) fn open(options: &OpenOptions) -> Result<Box<dyn Store>> {
    open_with(Db::builder(&options.path), options)
}

fn open_with(builder: Builder, options: &OpenOptions) -> Result<Box<dyn Store>> {
    let of_keyspace = |name: &str| KeyspaceOptions::defs().iter().any(|def| def.name == name);
    let create = options.access == Access::Create;
    let mut builder = builder.create_if_missing(create);
    let mut settings = Vec::new();
    for (name, value) in &options.settings {
        if of_keyspace(name) {
            // Refused before the store is made, if it must be.
            KeyspaceOptions::default().set(name, value).map_err(failure)?;
            settings.push((name.clone(), value.clone()));
        } else {
            builder = builder.set(name, value).map_err(failure)?;
        }
    }
    let only_reads = options.access == Access::Read && options.settings.is_empty();
    let db = match builder.clone().open() {
        Err(error) if only_reads && cannot_write(&error) => {
            eprintln!("drumlin: opened read-only: {error}");
            builder.read_only(true).open()
        }
        opened => opened,
    };
    let db = db.map_err(failure)?;
    let name = options.keyspace.clone();
    let engine = Engine { db, name, create, settings, keyspace: OnceCell::new() };
    if !engine.settings.is_empty() {
        engine.keyspace()?;
    }
    Ok(Box::new(engine))
}

/// Whether a store may be sound and is just in a place where nothing can be written.
fn cannot_write(error: &Error) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<io::Error>());
    error.kind() == ErrorKind::NoSpace
        || cause.is_some_and(|cause| matches!(cause.kind(), PermissionDenied | ReadOnlyFilesystem))
}

/// Saves what can be saved of the store in `from` into the new directory `to`.
pub(crate) fn repair(from: &Path, to: &Path) -> Result<RepairReport> {
    let report = drumlin::repair(from, to).map_err(failure)?;
    Ok(RepairReport {
        tables_kept: report.tables_kept,
        entries_kept: report.entries_kept,
        commits_kept: report.commits_kept,
        lost: report.lost,
    })
}

/// Every option, with its default, its bounds and what it does, as text for a terminal.
pub(crate) fn options_text() -> String {
    drumlin::options_help()
}

/// The same as the page of the documentation.
pub(crate) fn options_page() -> String {
    drumlin::options_markdown()
}

/// Every option as data.
pub(crate) fn options() -> Result<Vec<OptionRow>> {
    let (store, keyspace) = (Options::default(), KeyspaceOptions::default());
    let of_store = Options::defs().iter().map(|def| option_row(def, "store", store.get(def.name)));
    let of_keyspace =
        KeyspaceOptions::defs().iter().map(|def| option_row(def, "keyspace", keyspace.get(def.name)));
    of_store.chain(of_keyspace).collect()
}

fn option_row(def: &OptionDef, scope: &'static str, default: drumlin::Result<String>) -> Result<OptionRow> {
    Ok(OptionRow {
        name: def.name,
        scope,
        unit: def.unit,
        default: default.map_err(failure)?,
        bounds: def.bounds(),
        live: def.live,
        expert: def.expert,
        about: def.doc.trim(),
    })
}

struct Engine {
    db: Db,
    name: String,
    create: bool,
    /// Options of the keyspace, set when it is resolved.
    settings: Vec<(String, String)>,
    /// Resolved at its first use, so that commands on the whole store need no keyspace.
    keyspace: OnceCell<Keyspace>,
}

impl Engine {
    fn keyspace(&self) -> Result<&Keyspace> {
        if let Some(keyspace) = self.keyspace.get() {
            return Ok(keyspace);
        }
        if !self.create && !self.db.keyspaces().contains(&self.name) {
            return Err(Failure::Failed(format!("the store has no keyspace named {}", self.name)));
        }
        let settings: Vec<_> = self.settings.iter().map(|(name, value)| (&**name, &**value)).collect();
        let keyspace = self.db.keyspace_with(&self.name, &settings).map_err(failure)?;
        Ok(self.keyspace.get_or_init(|| keyspace))
    }
}

impl Store for Engine {
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        self.keyspace()?.put_with(key, value, durability.into()).map(drop).map_err(failure)
    }

    fn put_all(&self, entries: &[(Vec<u8>, Vec<u8>)], durability: Durability) -> Result<()> {
        let keyspace = self.keyspace()?;
        let mut batch = Batch::new();
        for (key, value) in entries {
            batch.put(keyspace, key, value);
        }
        self.db.write_with(batch, durability.into()).map(drop).map_err(failure)
    }

    fn delete(&self, key: &[u8], durability: Durability) -> Result<()> {
        self.keyspace()?.delete_with(key, durability.into()).map(drop).map_err(failure)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let value = self.keyspace()?.get(key).map_err(failure)?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn scan(&self, bounds: &Bounds, want: Want, reverse: bool) -> Result<Entries<'_>> {
        let iter = self.keyspace()?.range::<&[u8]>(bounds.as_range());
        let iter = match want {
            Want::Entries => iter,
            Want::Keys => iter.keys_only(),
        };
        let owned = |entry: drumlin::Result<(drumlin::Value, drumlin::Value)>| {
            entry.map(|(key, value)| (key.to_vec(), value.to_vec())).map_err(failure)
        };
        Ok(if reverse { Box::new(iter.rev().map(owned)) } else { Box::new(iter.map(owned)) })
    }

    fn policy(&self) -> Result<String> {
        Ok(self.keyspace()?.policy())
    }

    fn policy_state(&self) -> Result<String> {
        Ok(self.keyspace()?.policy_state())
    }

    fn set_policy(&self, name: &str) -> Result<()> {
        self.keyspace()?.set_policy(name).map_err(failure)
    }

    fn is_frozen(&self) -> Result<bool> {
        Ok(self.keyspace()?.options().iter().any(|(name, value)| *name == "adaptation" && value == "frozen"))
    }

    fn freeze(&self, frozen: bool) -> Result<()> {
        let value = if frozen { "frozen" } else { "on" };
        self.keyspace()?.set_option("adaptation", value).map_err(failure)
    }

    fn keyspaces(&self) -> Result<Vec<String>> {
        Ok(self.db.keyspaces())
    }

    fn flush(&self) -> Result<()> {
        self.db.flush().map_err(failure)
    }

    fn compact(&self) -> Result<()> {
        self.db.compact().map_err(failure)?;
        self.db.wait_idle().map_err(failure)
    }

    fn checkpoint(&self, path: &Path) -> Result<()> {
        self.db.checkpoint(path).map_err(failure)
    }

    fn verify(&self) -> Result<Verification> {
        let report = self.db.verify().map_err(failure)?;
        let finding = |f: drumlin::Finding| Finding { file: f.file, offset: f.offset, what: f.what };
        Ok(Verification {
            tables: report.tables,
            blocks: report.blocks,
            entries: report.entries,
            bytes: report.bytes,
            log_records: report.log_records,
            keys: report.keys,
            findings: report.findings.into_iter().map(finding).collect(),
        })
    }

    fn metrics(&self) -> Result<Vec<(String, u64)>> {
        let pairs = self.db.metrics().to_pairs();
        Ok(pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    fn tree(&self) -> Result<Vec<KeyspaceShape>> {
        Ok(self.db.tree().into_iter().map(keyspace_shape).collect())
    }

    fn explain(&self) -> Result<Vec<DecisionRecord>> {
        let record = |d: drumlin::DecisionRecord| DecisionRecord {
            micros: d.micros,
            keyspace: d.keyspace,
            what: d.what,
            reason: d.reason,
        };
        Ok(self.db.explain().into_iter().map(record).collect())
    }

    fn replay_decisions(&self) -> Result<DecisionReplay> {
        let report = self.db.replay_decisions();
        let drumlin::ReplayReport { decisions, differing, left_out } = report;
        Ok(DecisionReplay { decisions, differing, left_out })
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Engine { db, keyspace, .. } = *self;
        drop(keyspace);
        db.close().map_err(failure)
    }
}

impl From<Durability> for drumlin::Durability {
    fn from(durability: Durability) -> drumlin::Durability {
        match durability {
            Durability::None => drumlin::Durability::None,
            Durability::Buffered => drumlin::Durability::Buffered,
            Durability::Sync => drumlin::Durability::Sync,
        }
    }
}

fn keyspace_shape(shape: drumlin::KeyspaceShape) -> KeyspaceShape {
    let levels = shape.levels.into_iter().map(|level| LevelShape {
        level: level.level,
        runs: level.runs.into_iter().map(run_shape).collect(),
    });
    KeyspaceShape {
        name: shape.name,
        policy: shape.policy,
        active_bytes: shape.active_bytes,
        sealed_memtables: shape.sealed_memtables as u64,
        sealed_bytes: shape.sealed_bytes,
        levels: levels.collect(),
    }
}

fn run_shape(run: drumlin::RunShape) -> RunShape {
    let file = |file: drumlin::FileShape| FileShape {
        table: file.table,
        first: file.first,
        end: file.end,
        bytes: file.bytes,
        entries: file.entries,
        tombstones: file.tombstones,
        range_tombstones: file.range_tombstones,
        min_seq: file.min_seq,
        max_seq: file.max_seq,
        narrowed: file.narrowed,
        lookups_empty: file.lookups_empty,
        lookups_found: file.lookups_found,
        lookups_dead: file.lookups_dead,
        state: file.state,
    };
    RunShape { id: run.id, tag: tag_text(&run.tag), files: run.files.into_iter().map(file).collect() }
}

/// A tag that is plain text as it is, any other as hex digits.
fn tag_text(tag: &[u8]) -> String {
    match std::str::from_utf8(tag) {
        Ok(text) if text.bytes().all(|b| b.is_ascii_graphic()) => text.to_owned(),
        _ => to_hex(tag),
    }
}

fn failure(error: Error) -> Failure {
    match error.kind() {
        ErrorKind::InvalidOption => Failure::Usage(error.to_string()),
        _ => Failure::Failed(error.to_string()),
    }
}
