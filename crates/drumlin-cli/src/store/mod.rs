//! The store interface of the commands. It returns the reports of the engine, which are plain data.
//!
//! [`engine`] implements the trait with the engine. Commands use `&dyn Store` and the types of this folder. Unit tests
//! implement the trait with an ordered map.

mod bounds;
mod durability;
pub(crate) mod engine;
#[cfg(test)]
pub(crate) mod fake;
mod reports;

pub(crate) use bounds::Bounds;
pub(crate) use drumlin::{
    DecisionRecord, FileRole, FileShape, KeyspaceShape, LevelShape, RepairReport, RepairedFile,
    RepairedKeyspace, ReplayReport, RunShape, ValueFileShape, VerifyReport,
};
pub(crate) use durability::Durability;
pub(crate) use reports::OptionRow;

use crate::escape::escape;
use crate::failure::{Failure, Result};
use std::path::{Path, PathBuf};

/// Options for opening a store.
#[derive(Clone, Debug)]
pub(crate) struct OpenOptions {
    /// Directory of the store.
    pub(crate) path: PathBuf,
    /// Keyspace that keys are read from and written to.
    pub(crate) keyspace: String,
    /// Options by name, as given on the command line.
    pub(crate) settings: Vec<(String, String)>,
    /// Access that the command needs.
    pub(crate) access: Access,
}

/// Access of a command to a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// Reads and writes; creates the store and the keyspace if they do not exist.
    Create,
    /// Reads and writes an existing store.
    Existing,
    /// Reads an existing store; falls back to a read-only open if the store is not writable.
    Read,
}

/// Selects whether a scan reads values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Want {
    /// Keys and values.
    Entries,
    /// Only keys; the returned values are empty.
    Keys,
}

/// Entries of a scan: key and value.
pub(crate) type Entries<'a> = Box<dyn Iterator<Item = Result<(Vec<u8>, Vec<u8>)>> + 'a>;

/// An open store and one of its keyspaces.
pub(crate) trait Store {
    /// Writes one entry and returns when it has reached `durability`.
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()>;
    /// Writes several entries as one batch.
    fn put_all(&self, entries: &[(Vec<u8>, Vec<u8>)], durability: Durability) -> Result<()>;
    /// Deletes a key, whether it exists or not.
    fn delete(&self, key: &[u8], durability: Durability) -> Result<()>;
    /// Returns the value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;
    /// Returns the entries within `bounds` in ascending key order, or in descending order if `reverse` is set.
    fn scan(&self, bounds: &Bounds, want: Want, reverse: bool) -> Result<Entries<'_>>;

    /// Returns the name of the keyspace's compaction policy.
    fn policy(&self) -> Result<String>;

    /// Returns the state of the compaction policy as lines of text; empty if its name describes it completely.
    fn policy_state(&self) -> Result<String>;
    /// Switches the keyspace to another policy.
    fn set_policy(&self, name: &str) -> Result<()>;
    /// Returns whether the policy's parameters are frozen.
    fn is_frozen(&self) -> Result<bool>;
    /// Freezes the policy's parameters, or lets the policy tune them again.
    fn freeze(&self, frozen: bool) -> Result<()>;
    /// Returns the names of all keyspaces.
    fn keyspaces(&self) -> Result<Vec<String>>;

    /// Flushes all memtables.
    fn flush(&self) -> Result<()>;
    /// Compacts the whole store and returns when background work is idle.
    fn compact(&self) -> Result<()>;
    /// Creates a checkpoint of the store in a new directory.
    fn checkpoint(&self, path: &Path) -> Result<()>;

    /// Reads all data and verifies it.
    fn verify(&self) -> Result<VerifyReport>;
    /// Returns all metrics by name.
    fn metrics(&self) -> Result<Vec<(String, u64)>>;
    /// Returns the trees of all keyspaces.
    fn tree(&self) -> Result<Vec<KeyspaceShape>>;
    /// Returns the recent policy decisions, oldest first.
    fn explain(&self) -> Result<Vec<DecisionRecord>>;
    /// Re-runs the logged policy calls and compares their decisions.
    fn replay_decisions(&self) -> Result<ReplayReport>;

    /// Stops background work and closes the store.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Returns the failure for a keyspace `name` that the store lacks; `known` are those that it has.
pub(crate) fn no_keyspace<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> Failure {
    let hint = match drumlin_types::nearest(known.clone(), name) {
        Some(nearest) => format!("; the nearest is {nearest}"),
        None if known.clone().next().is_some() => {
            format!("; it has {}", known.collect::<Vec<_>>().join(", "))
        }
        None => "; it has none".to_owned(),
    };
    // Names are arbitrary text: shown with escapes, as in all output.
    let shown = escape(format!("the store has no keyspace named {name}{hint}").as_bytes());
    Failure::Failed(shown.to_string())
}
