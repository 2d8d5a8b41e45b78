//! Well-formedness of a tree: the conditions that do not depend on the keys inside files.
//!
//! - Bounds are not empty, and sequence ranges are not reversed.
//! - The files of a run are sorted and disjoint, both now and after the unfinished plans.
//! - References to one table have disjoint bounds and the same sequence range.
//!
//! Invariant R cannot be checked from bounds alone.

use crate::contract::draw::Extent;
use crate::contract::tree::{FileState, FileView, TreeView};
use crate::{RunId, TableId};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Checks that `tree` is well-formed. The error names the run, the file and the fault.
pub fn check(tree: &TreeView) -> Result<(), String> {
    let mut tables: BTreeMap<TableId, Vec<&FileView>> = BTreeMap::new();
    let mut homes: BTreeMap<RunId, usize> = BTreeMap::new();
    for (level, runs) in tree.levels.iter().enumerate() {
        for run in &runs.runs {
            if let Some(other) = homes.insert(run.id, level) {
                return Err(format!("run {} of L{level} is in L{other} too", run.id));
            }
            for file in &run.files {
                check_file(file).map_err(|e| format!("L{level} {}: {e}", run.id))?;
                tables.entry(file.table).or_default().push(file);
            }
            let now = run.files.iter().filter(|f| f.state.serves_reads());
            let later = run.files.iter().filter(|f| !matches!(f.state, FileState::Leaving(_)));
            check_order(now)
                .and_then(|()| check_order(later))
                .map_err(|e| format!("L{level} {}: {e}", run.id))?;
        }
    }
    for (table, mut files) in tables {
        files.sort_by(|a, b| a.bounds.start.cmp(&b.bounds.start));
        for pair in files.windows(2) {
            if pair[0].bounds.overlaps(&pair[1].bounds) {
                return Err(format!("two references to {table} share [{}]", Extent(&pair[1].bounds)));
            }
            if (pair[0].min_seq, pair[0].max_seq) != (pair[1].min_seq, pair[1].max_seq) {
                return Err(format!("two references to {table} differ in sequence range"));
            }
        }
    }
    Ok(())
}

fn check_file(file: &FileView) -> Result<(), String> {
    if file.bounds.is_empty() {
        return Err(format!("{} has empty bounds [{}]", file.table, Extent(&file.bounds)));
    }
    if file.min_seq > file.max_seq {
        return Err(format!("{} has sequence range #{}-{}", file.table, file.min_seq, file.max_seq));
    }
    Ok(())
}

fn check_order<'a>(files: impl Iterator<Item = &'a FileView>) -> Result<(), String> {
    let mut before: Option<&FileView> = None;
    for file in files {
        if let Some(last) = before.filter(|last| last.bounds.is_before_end(&file.bounds.start)) {
            return Err(format!(
                "[{}] and [{}] overlap or are out of order",
                Extent(&last.bounds),
                Extent(&file.bounds)
            ));
        }
        before = Some(file);
    }
    Ok(())
}
