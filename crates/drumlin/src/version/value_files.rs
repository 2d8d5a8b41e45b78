//! Which value files a tree points to, and how an edit changes that.

use super::file::FileMeta;
use super::tree::{KeyspaceEdit, Tree};
use super::value_handle::ValueFileHandle;
use drumlin_env::sync::Arc;
use drumlin_format::manifest::{Change, ValueFileRecord, ValueFileState};
use drumlin_types::{TableId, ValueFileId};
use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};

/// Value files by number.
pub(crate) type ValueFileHandles = BTreeMap<ValueFileId, Arc<ValueFileHandle>>;

/// Returns the value files that `files` point to.
pub(crate) fn value_files<'a>(files: impl Iterator<Item = &'a Arc<FileMeta>>) -> ValueFileHandles {
    let uses = files.flat_map(|file| file.values.iter());
    uses.map(|used| (used.file.id(), used.file.clone())).collect()
}

/// Value files that an edit adds to a tree, and those that no table points to after it.
#[derive(Default)]
pub(crate) struct ValueChanges {
    pub(crate) added: ValueFileHandles,
    pub(crate) gone: ValueFileHandles,
}

impl ValueChanges {
    /// Returns what changes from `tree` to `next` by `edit`.
    pub(crate) fn between(tree: &Tree, edit: &KeyspaceEdit, next: &Tree) -> ValueChanges {
        // Most edits remove no table with value files.
        let removed: LazyCell<BTreeSet<TableId>, _> =
            LazyCell::new(|| edit.remove.iter().map(|(table, _)| *table).collect());
        let is_removed = |file: &FileMeta| !file.values.is_empty() && removed.contains(&file.id());
        let mut added = value_files(edit.add.iter().map(|(_, _, file)| file));
        let mut gone = value_files(tree.files().map(|(_, _, file)| file).filter(|file| is_removed(file)));
        // Most edits touch no value files.
        if !added.is_empty() {
            let before = value_files(tree.files().map(|(_, _, file)| file));
            added.retain(|id, _| !before.contains_key(id));
        }
        if !gone.is_empty() {
            let after = next.files().map(|(_, _, file)| file);
            let forgotten =
                |file: &FileMeta| drumlin_types::bug!("values-of-parts-forgotten") && file.is_narrowed();
            let after = value_files(after.filter(|file| !forgotten(file)));
            gone.retain(|id, _| !after.contains_key(id));
        }
        ValueChanges { added, gone }
    }

    /// Returns the changes that add value files. In an edit they precede the tables that point to them.
    pub(crate) fn additions(&self) -> impl Iterator<Item = Change> + '_ {
        self.added.values().map(|file| Change::ValueFile(file.record().clone()))
    }

    /// Returns the changes that remove value files. In an edit they follow the removal of the tables that point to
    /// them.
    pub(crate) fn removals(&self) -> impl Iterator<Item = Change> + '_ {
        self.gone.values().map(|file| {
            Change::ValueFile(ValueFileRecord { state: ValueFileState::Gone, ..file.record().clone() })
        })
    }
}
