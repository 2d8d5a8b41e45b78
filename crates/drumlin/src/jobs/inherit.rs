//! Lookup statistics of new files: the counts that they inherit from the files that they replace.
//!
//! The tables of a flush start with the lookups that no memtable answered. The outputs of a piece (subcompaction) and
//! the remaining parts of its inputs share the counts that the inputs have at the moment of the install. Together they
//! keep all lookups that found a version. Of the vain lookups they keep those of the last input that a lookup reaches.
//! The rules are in `drumlin_policy::filter::inherit`.

use crate::compaction::executor::{Finished, InputCount};
use crate::keyspace::KeyspaceState;
use crate::version::{FileMeta, KeyspaceEdit, Tree};
use drumlin_env::sync::Arc;
use drumlin_policy::filter::density::Density;
use drumlin_policy::filter::inherit::{flushed, shares};
use drumlin_policy::share::share;
use drumlin_types::contract::LookupStats;
use drumlin_types::{KeyRange, Seq, TableId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Gives the tables of a flush the lookups that no memtable answered.
pub(crate) fn inherit_flush(keyspace: &KeyspaceState, files: &[Arc<FileMeta>]) {
    let bounds: Vec<KeyRange> = files.iter().map(|file| file.bounds.clone()).collect();
    let lookups = flushed(keyspace.density.passed() as f64, &bounds, &keyspace.density.density());
    files.iter().zip(&lookups).for_each(|(file, lookups)| file.access.inherit(lookups));
}

/// Gives the outputs of a piece, and the parts of its inputs that stay, the lookups of the inputs. `edit` removes the
/// inputs and adds the parts that stay. The outputs go to `level`.
pub(crate) fn inherit_piece(
    keyspace: &KeyspaceState,
    tree: &Tree,
    edit: &KeyspaceEdit,
    finished: &Finished,
    level: u8,
) {
    let density = keyspace.density.density();
    let parts = divide(tree, edit, &finished.counts, &density);
    let outputs = finished.result.files();
    let obsolete = finished.result.counts.obsolete_tombstones as f64;
    let kept: u64 = outputs.iter().map(|file| file.counts.tombstones).sum();
    let dropped = if obsolete > 0.0 { obsolete / (obsolete + kept as f64) } else { 0.0 };
    let between = between(tree, edit, &finished.counts, level);
    for (number, output) in outputs.iter().enumerate() {
        let answered = between.iter().map(|file| answered_by(file, &output.bounds, &density)).sum();
        output.access.inherit(&finished.lineage.total(number, &parts, answered, dropped));
    }
}

/// Divides the lookups of each input between the merged and the remaining parts, and gives the remaining parts theirs.
/// Returns the lookups of each merged part.
fn divide(tree: &Tree, edit: &KeyspaceEdit, counts: &[InputCount], density: &Density) -> Vec<LookupStats> {
    let mut parts = vec![LookupStats::default(); counts.len()];
    let mut of_table: BTreeMap<TableId, Vec<usize>> = BTreeMap::new();
    for (number, count) in counts.iter().enumerate() {
        of_table.entry(count.table).or_default().push(number);
    }
    let mut remaining: BTreeMap<TableId, Vec<&FileMeta>> = BTreeMap::new();
    for (_, _, file) in &edit.add {
        remaining.entry(file.id()).or_default().push(file);
    }
    for (_, _, file) in tree.files() {
        let Some(numbers) = of_table.get(&file.id()) else { continue };
        let is_inside = |number: &&usize| file.bounds.covers(&counts[**number].range);
        let merged: Vec<usize> = numbers.iter().filter(is_inside).copied().collect();
        if merged.is_empty() {
            continue;
        }
        let remaining = remaining.get(&file.id()).map_or(&[][..], |remaining| remaining);
        let remaining: Vec<&&FileMeta> =
            remaining.iter().filter(|rest| file.bounds.covers(&rest.bounds)).collect();
        let sizes = merged.iter().map(|&number| (&counts[number].range, counts[number].entries));
        let sizes = sizes.chain(remaining.iter().map(|rest| (&rest.bounds, rest.counts.entries)));
        let (shares, lookups) = (shares(sizes, density), file.lookups());
        let (of_merged, of_remaining) = shares.split_at(merged.len());
        for (&number, share) in merged.iter().zip(of_merged) {
            parts[number] = lookups.part(*share);
        }
        remaining
            .iter()
            .zip(of_remaining)
            .for_each(|(rest, share)| rest.access.inherit(&lookups.part(*share)));
    }
    parts
}

/// Returns the files of `level` that are no inputs, and that lookups reach after the first input of all levels and
/// before the last input in `level`.
fn between<'a>(
    tree: &'a Tree,
    edit: &KeyspaceEdit,
    counts: &[InputCount],
    level: u8,
) -> Vec<&'a Arc<FileMeta>> {
    let tables: BTreeSet<TableId> = counts.iter().map(|count| count.table).collect();
    let inputs: Vec<(u8, Reverse<Seq>)> = tree
        .files()
        .filter(|(_, _, file)| tables.contains(&file.id()))
        .map(|(at, _, file)| (at, Reverse(file.max_seq)))
        .collect();
    let (Some(first), Some(last)) = (inputs.iter().min(), inputs.iter().filter(|(at, _)| *at == level).max())
    else {
        return Vec::new();
    };
    let stays = |file: &FileMeta| {
        !edit.remove.iter().any(|(t, start)| *t == file.id() && *start == file.bounds.start)
    };
    let files = tree.files().filter(|(at, _, file)| {
        let place = (*at, Reverse(file.max_seq));
        *at == level && *first < place && place < *last && stays(file)
    });
    files.map(|(_, _, file)| file).collect()
}

/// Returns the number of lookups that `file` answers on the keys of `range`.
fn answered_by(file: &FileMeta, range: &KeyRange, density: &Density) -> f64 {
    let Some(part) = file.bounds.intersect(range) else { return 0.0 };
    let skew = density.mean_weight(&part) / density.mean_weight(&file.bounds);
    (share(&file.bounds, &part) * skew).min(1.0) * file.lookups().found
}
