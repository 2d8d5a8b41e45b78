//! The engine behind the [`Store`] trait. All other commands use the trait; only `commands::pipeline_engine` calls the
//! engine too, for its simulated loads.
//!
//! It translates calls and errors. It also decides three things. Reading from a missing keyspace is an error and does
//! not create the keyspace. An option or policy unknown to the engine is bad usage, not a failed call. The name of an
//! option determines whether it applies to the store or to the keyspace.

use super::{
    Access, Bounds, DecisionRecord, Durability, Entries, KeyspaceShape, OpenOptions, OptionRow, RepairReport,
    ReplayReport, Store, VerifyReport, Want, no_keyspace,
};
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
            // Reject a bad setting before the store is created.
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

/// Returns whether an open failed because it could not write (no permission, a read-only file system or no free
/// space), so that a read-only open may succeed.
fn cannot_write(error: &Error) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    let is_refused = |cause: &io::Error| matches!(cause.kind(), PermissionDenied | ReadOnlyFilesystem);
    error.kind() == ErrorKind::NoSpace || error.io_error().is_some_and(is_refused)
}

/// Recovers as much as possible of the store in `from` into the new directory `to`. Calls `progress` periodically
/// with the entries written and the bytes read.
pub(crate) fn repair(from: &Path, to: &Path, mut progress: impl FnMut(u64, u64)) -> Result<RepairReport> {
    let tell = |come: &drumlin::RepairProgress| progress(come.entries, come.bytes);
    drumlin::repair_with(from, to, tell).map_err(failure)
}

/// Returns all options with their defaults, bounds and descriptions, as text for a terminal.
pub(crate) fn options_text() -> String {
    drumlin::options_help()
}

/// Returns all options as the page of the documentation.
pub(crate) fn options_page() -> String {
    drumlin::options_markdown()
}

/// Returns all options as data.
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
    /// Options of the keyspace, applied when the keyspace is first opened.
    settings: Vec<(String, String)>,
    /// The keyspace, opened at its first use, so that commands on the whole store need no keyspace.
    keyspace: OnceCell<Keyspace>,
}

impl Engine {
    fn keyspace(&self) -> Result<&Keyspace> {
        if let Some(keyspace) = self.keyspace.get() {
            return Ok(keyspace);
        }
        if !self.create && !self.db.keyspaces().contains(&self.name) {
            return Err(no_keyspace(&self.name, self.db.keyspaces().iter().map(String::as_str)));
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
        let owned = |entry: drumlin::Result<(drumlin::Slice, drumlin::Slice)>| {
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

    fn verify(&self) -> Result<VerifyReport> {
        self.db.verify().map_err(failure)
    }

    fn metrics(&self) -> Result<Vec<(String, u64)>> {
        let pairs = self.db.metrics().to_pairs();
        Ok(pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    fn tree(&self) -> Result<Vec<KeyspaceShape>> {
        Ok(self.db.tree())
    }

    fn explain(&self) -> Result<Vec<DecisionRecord>> {
        Ok(self.db.explain())
    }

    fn replay_decisions(&self) -> Result<ReplayReport> {
        Ok(self.db.replay_decisions())
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

fn failure(error: Error) -> Failure {
    match error.kind() {
        ErrorKind::InvalidOption => Failure::Usage(error.to_string()),
        _ => Failure::Failed(error.to_string()),
    }
}
