//! Reading of a model's tree by the level rule, and invariant R.

use crate::content::{Act, Content, Version, value};
use drumlin_types::contract::TreeView;
use drumlin_types::{KeyRange, Seq, TableId};
use std::collections::BTreeMap;

/// Contents by table.
pub(crate) type Tables = BTreeMap<TableId, Content>;

/// Returns the versions of a table whose keys lie in `range`.
pub(crate) fn within<'a>(
    tables: &'a Tables,
    table: TableId,
    range: &'a KeyRange,
) -> impl Iterator<Item = &'a Version> {
    tables[&table].iter().filter(|v| range.contains(&[v.key]))
}

/// Reads `key` by the level rule: level by level, within a level by descending largest sequence number, and stops at
/// the first value or tombstone that no later file can supersede.
pub(crate) fn read(tree: &TreeView, tables: &Tables, key: u8, snapshot: Seq) -> Option<Vec<Seq>> {
    let mut found: Vec<&Version> = Vec::new();
    for level in &tree.levels {
        let mut files: Vec<_> = level.runs.iter().filter_map(|run| run.file_for(&[key])).collect();
        files.sort_by_key(|file| std::cmp::Reverse(file.max_seq));
        let mut here: Vec<&Version> = Vec::new();
        let mut base: Option<Seq> = None;
        for file in files {
            if base.is_some_and(|seq| seq > file.max_seq) {
                break;
            }
            for version in within(tables, file.table, &file.bounds) {
                if version.key == key && version.seq <= snapshot {
                    here.push(version);
                    if !matches!(version.act, Act::Operand(_)) {
                        base = base.max(Some(version.seq));
                    }
                }
            }
        }
        here.sort_by_key(|version| std::cmp::Reverse(version.seq));
        found.extend(here);
        if base.is_some() {
            break;
        }
    }
    value(found)
}

/// Checks invariant R: every version in a level is newer than every version in deeper levels.
pub(crate) fn verify_recency(tree: &TreeView, tables: &Tables, key: u8) -> Result<(), String> {
    let mut above = Seq::MAX;
    for (level, view) in tree.levels.iter().enumerate() {
        let versions = view.files().flat_map(|f| within(tables, f.table, &f.bounds)).filter(|v| v.key == key);
        let seqs: Vec<Seq> = versions.map(|v| v.seq).collect();
        if let Some(&newest) = seqs.iter().max().filter(|&&newest| newest >= above) {
            return Err(format!("R: key {key}: #{newest} in level {level} lies below #{above}"));
        }
        above = seqs.into_iter().min().unwrap_or(above).min(above);
    }
    Ok(())
}
