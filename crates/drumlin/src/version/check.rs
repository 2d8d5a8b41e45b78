//! Invariants of a tree that can be checked without reading tables: shape, bounds, sequence ranges.

use super::file::FileMeta;
use super::tree::Tree;
use drumlin_env::sync::Arc;
use drumlin_types::LEVELS;
use std::collections::BTreeSet;

/// Returns the first broken invariant as a message.
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
    let mut references: Vec<&Arc<FileMeta>> = tree.files().map(|(_, _, file)| file).collect();
    references.sort_by(|a, b| (a.id(), &a.bounds.start).cmp(&(b.id(), &b.bounds.start)));
    // The references are sorted by start. If any two references to a table overlap, so do two neighbours between them.
    let shares =
        |pair: &&[&Arc<FileMeta>]| pair[0].id() == pair[1].id() && pair[0].bounds.overlaps(&pair[1].bounds);
    match references.windows(2).find(shares) {
        Some(pair) => Err(format!("two references to {} share keys", pair[0].id())),
        None => Ok(()),
    }
}
