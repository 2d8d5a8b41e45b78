//! Which value files a compaction collects, and what the tables of a tree point to, for `drumlin_policy::value`.

use crate::options::{KeyspaceOptions, ValuePolicy};
use crate::version::{Tree, ValueFileHandles};
use drumlin_policy::value::{ValueFileSizes, ValueSpace, to_collect};
use drumlin_types::ValueFileId;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the sizes of the value files that `tree` points to, by number.
pub(crate) fn value_file_sizes(tree: &Tree) -> Vec<(ValueFileId, ValueFileSizes)> {
    let mut loads: BTreeMap<ValueFileId, ValueFileSizes> = BTreeMap::new();
    let mut tables = BTreeSet::new();
    let now = tree.files().map(|(_, _, file)| file.max_seq).max().unwrap_or(0);
    for (_, _, file) in tree.files().filter(|(_, _, file)| !file.values.is_empty()) {
        // References to parts of a table share its list.
        if !tables.insert(file.id()) {
            continue;
        }
        for used in file.values.iter() {
            let load = loads.entry(used.file.id()).or_default();
            load.total = used.file.record().total_bytes;
            load.age = now.saturating_sub(used.file.record().created_seq);
            load.referenced += used.bytes;
        }
    }
    loads.into_iter().collect()
}

/// Returns the bytes of all records in the value files that `tree` points to.
pub(crate) fn all_value_bytes(tree: &Tree) -> u64 {
    value_file_sizes(tree).iter().map(|(_, sizes)| sizes.total).sum()
}

/// Returns what the tables of `tree` point to in `files`.
pub(crate) fn value_space(tree: &Tree, files: &[(ValueFileId, ValueFileSizes)]) -> ValueSpace {
    let mut space =
        ValueSpace { table_bytes: tree.bytes() as f64, runs: tree.runs(), ..ValueSpace::default() };
    for (_, file) in files {
        space.total += file.total as f64;
        space.referenced += file.referenced.min(file.total) as f64;
    }
    let ids: BTreeSet<ValueFileId> = files.iter().map(|(id, _)| *id).collect();
    for run in tree.levels.iter().flat_map(|level| &level.runs) {
        let mut tables = BTreeSet::new();
        let of_run = run.files.iter().filter(|file| tables.insert(file.id()));
        let uses = of_run.flat_map(|file| file.values.iter()).filter(|used| ids.contains(&used.file.id()));
        space.largest_run = space.largest_run.max(uses.map(|used| used.bytes).sum::<u64>() as f64);
    }
    space
}

/// Returns the files to collect of `files`, those of one tree, and their sizes, as `options` say. Their referenced
/// bytes are limited to `most_copied`.
pub(crate) fn chosen_files(
    files: &[(ValueFileId, ValueFileSizes)],
    options: &KeyspaceOptions,
    most_copied: u64,
) -> BTreeMap<ValueFileId, ValueFileSizes> {
    let mut sizes: Vec<ValueFileSizes> = files.iter().map(|(_, sizes)| *sizes).collect();
    if options.value_policy == ValuePolicy::GarbageRatio {
        // With equal ages the share of garbage alone decides.
        sizes.iter_mut().for_each(|sizes| sizes.age = 0);
    }
    to_collect(&sizes, options.value_space_target, most_copied)
        .into_iter()
        .map(|index| files[index])
        .collect()
}

/// Returns which of the value files `inputs` a compaction of `tree` collects.
pub(crate) fn files_to_collect(
    tree: &Tree,
    inputs: &ValueFileHandles,
    options: &KeyspaceOptions,
) -> BTreeSet<ValueFileId> {
    if inputs.is_empty() {
        return BTreeSet::new();
    }
    let collected = chosen_files(&value_file_sizes(tree), options, u64::MAX).into_keys();
    collected.filter(|id| inputs.contains_key(id)).collect()
}
