//! Opening a store after any crash.
//!
//! 1. [`state`]: the manifest, edit by edit, gives trees, options and numbers.
//! 2. [`replay`]: the log gives the commits that are not in tables yet, up to the first gap.
//! 3. A new log segment continues the chain where recovery stopped: from then on a torn tail is sealed
//!    (order rule O6). A new manifest says where everything stands.
//! 4. Files that no version refers to are removed; numbers are never used again (O4).
//!
//! 5. Unless the store was closed in order, what was recovered is flushed before open returns. Bytes that
//!    a failed sync left in the page cache can be read and synced again without being on disk (order rule
//!    O10), so nothing builds on them until they are in tables.
//!
//! A store that is opened read-only gets steps 1 and 2 alone: what was recovered stays in memtables, and nothing on
//! disk changes.
//!
//! Crashing anywhere in here and recovering again gives the same store.

pub(crate) mod open;
pub(crate) mod replay;
pub(crate) mod state;

use crate::compaction::control::{Control, KeyspaceControl};
use crate::options::Options;
use crate::store::Store;
use drumlin_env::sync::atomic;
use drumlin_format::manifest::{Change, Edit};
use drumlin_types::{LogNumber, Seq};

/// How far ahead of the next file number the manifest is kept. A table that was begun and removed again between
/// two edits leaves no trace on disk; its number is not used again all the same (order rule O4).
pub(crate) const NUMBER_LEASE: u64 = 256;

/// The numbers of a manifest snapshot.
pub(crate) struct Numbers {
    pub(crate) floor: LogNumber,
    pub(crate) next_file: u64,
    pub(crate) next_run: u64,
    pub(crate) last_seq: Seq,
    pub(crate) clock: u64,
}

/// Everything that the manifest must say, as one edit.
pub(crate) fn snapshot(
    keyspaces: &[KeyspaceControl],
    options: &Options,
    carried: &[Change],
    numbers: &Numbers,
) -> Edit {
    let mut changes = vec![
        Change::LogFloor(numbers.floor),
        Change::NextFile(numbers.next_file + NUMBER_LEASE),
        Change::NextRun(numbers.next_run),
        Change::LastSeq(numbers.last_seq),
        Change::ClockMark(numbers.clock),
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
        if !drumlin_types::bug!("B13") {
            changes.push(Change::Flushed { keyspace: id, seq: keyspace.flushed_seq });
        }
        let (name, blob) = keyspace.durable_policy();
        changes.push(Change::Policy { keyspace: id, name, blob });
        let tree = keyspace.state.view().tree.clone();
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
    changes.extend_from_slice(carried);
    Edit { changes }
}

/// The snapshot of an open store.
pub(crate) fn snapshot_edit(store: &Store, control: &Control) -> Edit {
    let numbers = Numbers {
        floor: store.log_floor(&[]),
        next_file: store.next_file.load(atomic::Ordering::Acquire),
        next_run: control.numbers.next_run,
        last_seq: store.publisher.visible(),
        clock: store.unix_micros(),
    };
    snapshot(&control.keyspaces, &store.options.load(), &control.carried, &numbers)
}
