//! Invariants of a tree that can be seen without reading tables: shape, bounds, sequence ranges.

use super::tree::Tree;
use drumlin_types::LEVELS;
use std::collections::BTreeSet;

/// The first broken invariant, in words.
pub(crate) fn check(tree: &Tree) -> Result<(), String> {
    if tree.levels.len() != LEVELS {
        return Err(format!("{} levels instead of {LEVELS}", tree.levels.len()));
    }
    let mut ids = BTreeSet::new();
    for run in tree.levels.iter().flat_map(|l| &l.runs) {
        if !ids.insert(run.id) {
            return Err(format!("{} appears twice", run.id));
        }
        if run.files.is_empty() {
            return Err(format!("{} has no files", run.id));
        }
        for pair in run.files.windows(2) {
            if pair[0].bounds.overlaps(&pair[1].bounds) || pair[0].bounds.start >= pair[1].bounds.start {
                return Err(format!("{:?} and {:?} overlap in {}", pair[0], pair[1], run.id));
            }
        }
    }
    for (_, run, file) in tree.files() {
        if file.bounds.is_empty() {
            return Err(format!("{file:?} in {} has empty bounds", run.id));
        }
        if file.min_seq > file.max_seq {
            return Err(format!("{file:?} in {} has an empty sequence range", run.id));
        }
        if file.counts.entries > file.table_entries {
            return Err(format!("{file:?} in {} claims more entries than its table", run.id));
        }
    }
    for (level, _, file) in tree.files() {
        for (other_level, _, other) in tree.refs(file.id()) {
            let same = level == other_level && file.bounds == other.bounds;
            if !same && file.bounds.overlaps(&other.bounds) {
                return Err(format!("two references to {} share keys", file.id()));
            }
        }
    }
    Ok(())
}
