//! Files that nothing refers to once a store is open.
//!
//! Open removes files that it has made useless itself, and files that are provably useless:
//!
//! - temporary files;
//! - manifests older than the current one, and manifests that `CURRENT` never pointed to;
//! - log segments below the floor, or dropped by recovery;
//! - unfinished tables, and value files that no table of a tree points to;
//! - tables whose entries are all at or below the last commit of the store: outputs of unfinished jobs, and inputs of
//!   finished ones. The store has these entries elsewhere, or has dropped them.
//!
//! [`evidence`](super::evidence) has already checked that the manifest is complete.
//!
//! A finished table that holds newer commits than the store is set aside: it gets the suffix `.lost`, under which only
//! repair reads it, and an event reports it. A crash leaves such a table only in the middle of a flush. Unreferenced
//! value files are then set aside too, since such a table may point to them.

use crate::base::SET_ASIDE;
use crate::base::error::{Error, Result};
use crate::base::event::Event;
use crate::disk::unlink;
use crate::store::Store;
use crate::table::{BlockCache, Table};
use crate::version::value_files;
use drumlin_env::sync::Arc;
use drumlin_env::{DirEntry, FileKind, Note};
use drumlin_format::log::Recovered;
use drumlin_format::names::FileName;
use drumlin_types::TableId;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Removes the files that nothing refers to, or sets them aside. `recovered` is what recovery found in the log.
pub(super) fn remove(store: &Arc<Store>, entries: &[DirEntry], recovered: &Recovered) -> Result<()> {
    let control = store.control.lock();
    let live: BTreeSet<_> = control
        .keyspaces
        .iter()
        .flat_map(|k| k.state.view().tree.files().map(|(_, _, f)| f.id()).collect::<Vec<_>>())
        .collect();
    let live_values: BTreeMap<_, _> = control
        .keyspaces
        .iter()
        .flat_map(|k| value_files(k.state.view().tree.files().map(|(_, _, file)| file)))
        .collect();
    let current = control.manifest.header().number;
    drop(control);
    let floor = store.log_floor(&[]);
    let live_tables = live.iter().map(|id| store.files.table_path(*id));
    let live_paths = live_values.keys().map(|id| store.files.value_path(*id));
    let files: Vec<PathBuf> = live_tables.chain(live_paths).collect();
    store.files.env.note(Note::Recovered { files: &files });
    // A segment that recovery dropped may also be below the floor. Each file must be unlinked only once (O9).
    let dropped: BTreeSet<PathBuf> = store.files.obsolete.take_files().into_iter().collect();
    // An earlier open may have been interrupted after it set a table aside.
    let is_aside = |entry: &DirEntry| {
        let name = entry.name.strip_suffix(SET_ASIDE).and_then(FileName::parse);
        matches!(name, Some(FileName::Table(_)))
    };
    let mut has_set_aside = entries.iter().any(is_aside);
    let (mut tables, mut values) = (Vec::new(), Vec::new());
    for entry in entries {
        let path = store.files.dir.join(&entry.name);
        if dropped.contains(&path) {
            continue;
        }
        let kind = match FileName::parse(&entry.name) {
            Some(FileName::Table(id)) if !live.contains(&id) => {
                if holds_more(store, id, entry.len) {
                    tables.push(path);
                    has_set_aside = true;
                    continue;
                }
                FileKind::Table
            }
            Some(FileName::Value(id)) if !live_values.contains_key(&id) => {
                values.push(path);
                continue;
            }
            Some(FileName::Manifest(number)) if number != current => FileKind::Manifest,
            Some(FileName::Temp(_)) => FileKind::Temp,
            Some(FileName::Log(number)) if number < floor && !store.keeps_log(number) => FileKind::Log,
            _ => continue,
        };
        unlink(&store.files.env, &path, kind)?;
    }
    // Value files first: a table that is set aside must not lose its values.
    for path in values {
        match has_set_aside {
            true => set_aside(store, path, FileKind::Value)?,
            false => unlink(&store.files.env, &path, FileKind::Value)?,
        }
    }
    for path in tables {
        set_aside(store, path, FileKind::Table)?;
    }
    for path in &dropped {
        unlink(&store.files.env, path, FileKind::Log)?;
    }
    // A removed file that comes back after a power loss is removed again. But a dropped segment must not come back: a
    // repair without a manifest could confuse its records with later ones that got the same sequence numbers.
    match has_set_aside || !recovered.dropped.is_empty() {
        true => store.sync_dir(),
        false => Ok(()),
    }
}

/// Returns whether an unreferenced table is finished and holds commits that the store does not have.
fn holds_more(store: &Store, id: TableId, len: u64) -> bool {
    let cache = Arc::new(BlockCache::new(0));
    let table =
        Table::open(&store.files.env, &store.files.table_path(id), id, len, cache, store.files.filter_seed);
    match table {
        Ok(table) => table.properties().max_seq > store.recovered_seq,
        // A table that cannot be read may be a finished one.
        Err(error) => !error.is_corruption(),
    }
}

/// Renames a file. If a power loss tore an earlier rename, the file has both names. Then `rename` does nothing, as
/// POSIX demands, and the old name is removed here.
fn set_aside(store: &Store, path: PathBuf, kind: FileKind) -> Result<()> {
    let mut aside = path.clone().into_os_string();
    aside.push(SET_ASIDE);
    let fs = store.files.env.fs();
    let failed = |e| Error::io(&path, "cannot set a file aside", e);
    fs.rename(&path, &PathBuf::from(&aside)).map_err(failed)?;
    if fs.exists(&path).map_err(failed)? {
        unlink(&store.files.env, &path, kind)?;
    }
    store.tell(Event::SetAside { file: aside.into() });
    Ok(())
}
