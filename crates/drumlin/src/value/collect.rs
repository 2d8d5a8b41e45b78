//! Which value files a compaction collects, by `drumlin_policy::value`.

use crate::version::{Tree, ValueFileHandles};
use drumlin_policy::value::{ValueFileSizes, to_collect};
use drumlin_types::ValueFileId;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the sizes of the value files that `tree` points to, by number.
pub(crate) fn value_file_sizes(tree: &Tree) -> Vec<(ValueFileId, ValueFileSizes)> {
    let mut loads: BTreeMap<ValueFileId, ValueFileSizes> = BTreeMap::new();
    let mut tables = BTreeSet::new();
    for (_, _, file) in tree.files().filter(|(_, _, file)| !file.values.is_empty()) {
        // References to parts of a table share its list.
        if !tables.insert(file.id()) {
            continue;
        }
        for used in file.values.iter() {
            let load = loads.entry(used.file.id()).or_default();
            load.total = used.file.record().total_bytes;
            load.referenced += used.bytes;
        }
    }
    loads.into_iter().collect()
}

/// Returns which of the value files `inputs` a compaction of `tree` collects.
pub(crate) fn files_to_collect(tree: &Tree, inputs: &ValueFileHandles, target: f64) -> BTreeSet<ValueFileId> {
    if inputs.is_empty() {
        return BTreeSet::new();
    }
    let (ids, loads): (Vec<ValueFileId>, Vec<ValueFileSizes>) = value_file_sizes(tree).into_iter().unzip();
    let collected = to_collect(&loads, target).into_iter().map(|index| ids[index]);
    collected.filter(|id| inputs.contains_key(id)).collect()
}
