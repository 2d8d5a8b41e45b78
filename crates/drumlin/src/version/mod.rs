//! The state of the keyspaces: immutable trees, the manifest that makes changes durable, and the pins that keep tables
//! alive while they are read.
//!
//! - [`file`]: a reference to a table with its current bounds.
//! - [`tree`]: levels of runs of files, and how an edit turns one tree into the next.
//! - `run_index`: finds the file of a run that may hold a key.
//! - [`pins`]: table handles, and the one owner of the decision that a file is obsolete.
//! - [`state`]: the content of a manifest: edits applied to plain maps, by recovery and before each edit is written.
//! - [`manifest`]: writes edits, and replaces the manifest by a snapshot.
//! - [`check`]: the invariants of a tree.
//!
//! Architecture invariant: this module sees metadata only. It never opens a table and never learns why a tree changes.

pub(crate) mod check;
pub(crate) mod file;
pub(crate) mod manifest;
pub(crate) mod pins;
mod run_index;
pub(crate) mod state;
pub(crate) mod tree;
mod value_files;
mod value_handle;

pub(crate) use file::{Counts, FileMeta, Hit, LOOKUP_SAMPLE};
pub(crate) use manifest::ManifestFile;
pub(crate) use pins::{Obsolete, ObsoleteFile, TableHandle};
pub(crate) use state::{HighWaterMarks, KeyspaceRecord, ManifestState, RefusedEdit};
pub(crate) use tree::{KeyspaceEdit, Level, Run, Tree};
pub(crate) use value_files::{ValueChanges, ValueFileHandles, value_files};
pub(crate) use value_handle::{ValueFileHandle, ValueFileUse};
