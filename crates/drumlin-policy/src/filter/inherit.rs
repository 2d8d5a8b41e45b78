//! Which lookup counts the outputs of a compaction inherit from its inputs.
//!
//! Z counts lookups that probe a table in vain, X lookups that find a version, and *dead* those that find a
//! tombstone. For a key, let *last* be the input that covers it and that lookups reach last. A lookup that passes
//! *last* in vain will pass the output in vain. What any input answered, the output will answer. So output g inherits
//!
//! ```text
//! X_g = sum over inputs f of  share of f's lookups that go to g, times X_f
//! Z_g = sum over inputs f of  share of f's lookups that go to g and for which f is last, times Z_f
//!     + X of the runs between, on the keys of g   +   dropped dead
//! ```
//! A run *between* is a run of the output level that is no input and that lookups reach between the first and the
//! last input. The output is newer, so lookups that the run answers now pass the output first. Where the compaction
//! drops tombstones, lookups that found them become vain.
//!
//! All shares are of lookups, by the density over the keys and by where the entries of a table lie. Keys between two
//! outputs count to the one before. So outputs and the remaining parts of inputs together keep all found lookups, and
//! those vain lookups for which the input was last.
//!
//! The shares are computed when a piece ends, and applied to the counts of the moment when it is installed. So
//! lookups that were counted during a long compaction are not lost. A file that another piece has narrowed meanwhile
//! has only the counts of its rest.
//!
//! It differs from the published rule (Mnemosyne, Eqs. 10 and 11), which adds and subtracts estimates of both kinds and
//! clamps the result. Here no estimates of different tables are subtracted. Only lookups that found tombstones move
//! from found to vain when the tombstones are dropped.

use super::density::Density;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use drumlin_types::contract::LookupStats;
use drumlin_types::{Key, KeyRange, Seq};

/// Part of a table that a compaction takes.
pub struct InputPart<'a> {
    /// Keys of the part.
    pub range: KeyRange,
    /// Level of its run.
    pub level: u8,
    /// Largest sequence number of the table.
    pub max_seq: Seq,
    /// Returns the number of entries of the table with keys below this one, or, for `None`, of all entries. It never
    /// decreases as the key increases.
    pub rank: &'a dyn Fn(Option<&[u8]>) -> f64,
}

impl InputPart<'_> {
    /// Returns the place in the order in which lookups reach tables.
    fn order(&self) -> (u8, Reverse<Seq>) {
        (self.level, Reverse(self.max_seq))
    }

    /// Returns the weight of the entries between two keys.
    fn weight(&self, from: &Key, to: Option<&Key>, density: &Density) -> f64 {
        let (first, last) = density.buckets.overlapping(&KeyRange::new(from.clone(), to.cloned()));
        let (mut at, mut sum) = ((self.rank)(Some(from)), 0.0);
        for bucket in first..=last {
            let split = density.buckets.splits().get(bucket).filter(|_| bucket < last);
            let end = (self.rank)(split.or(to).map(|key| &**key)).max(at);
            sum += (end - at) * density.weight(bucket);
            at = end;
        }
        sum
    }
}

/// Share of an input part's lookup counts that an output inherits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Inherited {
    /// Index of the part.
    pub part: usize,
    /// Share of the part's lookups that found a version.
    pub found: f64,
    /// Share of the part's vain lookups.
    pub empty: f64,
}

/// Returns what each output inherits from the parts. `outputs` are the bounds of the outputs, in key order.
pub fn taken(parts: &[InputPart<'_>], outputs: &[KeyRange], density: &Density) -> Vec<Vec<Inherited>> {
    let mut taken: Vec<Vec<Inherited>> = vec![Vec::new(); outputs.len()];
    if outputs.is_empty() {
        return taken;
    }
    let cuts: Vec<&Key> = outputs[1..].iter().map(|bounds| &bounds.start).collect();
    // Weight of each part: the sum of its segments.
    let mut whole = vec![0.0; parts.len()];
    // Index of each part in the list of the output under way.
    let (mut places, mut under_way) = (vec![None; parts.len()], 0);
    for_each_segment(parts, &cuts, |segment, covering| {
        let number = cuts.partition_point(|cut| **cut <= segment.start);
        if number != under_way {
            places.fill(None);
            under_way = number;
        }
        let last = covering.iter().copied().max_by_key(|&part| parts[part].order());
        for &part in covering {
            let Some(keys) = parts[part].range.intersect(segment) else { continue };
            let share = parts[part].weight(&keys.start, keys.end.as_ref(), density);
            whole[part] += share;
            let empty = if last == Some(part) { share } else { 0.0 };
            let output = &mut taken[number];
            let place = *places[part].get_or_insert(output.len());
            match output.get_mut(place) {
                Some(taken) => {
                    taken.found += share;
                    taken.empty += empty;
                }
                None => output.push(Inherited { part, found: share, empty }),
            }
        }
    });
    for Inherited { part, found, empty } in taken.iter_mut().flatten() {
        let whole = if whole[*part] > 0.0 { whole[*part] } else { f64::INFINITY };
        (*found, *empty) = (*found / whole, *empty / whole);
    }
    taken
}

/// Largest number of parts at whose bounds the keys are divided. With more parts, keys are divided at output bounds
/// alone. A part may then cover only a piece of a segment, and *last* is chosen once for the whole segment.
const MOST_DIVIDED: usize = 256;

/// Divides the keys of all parts at `cuts` and at the bounds of parts. Calls `visit` with each segment and the parts
/// that cover it, in key order.
fn for_each_segment(parts: &[InputPart<'_>], cuts: &[&Key], mut visit: impl FnMut(&KeyRange, &[usize])) {
    let starts = parts.iter().map(|part| &part.range.start);
    let ends = parts.iter().filter_map(|part| part.range.end.as_ref());
    let first = starts.clone().min();
    let is_divided = parts.len() <= MOST_DIVIDED;
    let own = starts.chain(ends).filter(|_| is_divided);
    let mut bounds: Vec<&Key> = own.chain(first).chain(cuts.iter().copied()).collect();
    bounds.sort();
    bounds.dedup();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|&part| &parts[part].range.start);
    let (mut coming, mut covering) = (order.into_iter().peekable(), Vec::<usize>::new());
    for (at, start) in bounds.iter().enumerate() {
        let segment = KeyRange::new((*start).clone(), bounds.get(at + 1).copied().cloned());
        covering.retain(|&part| parts[part].range.is_before_end(start));
        while let Some(part) = coming.next_if(|&part| segment.is_before_end(&parts[part].range.start)) {
            covering.push(part);
        }
        if !covering.is_empty() {
            visit(&segment, &covering);
        }
    }
}

/// Returns the lookups that an output inherits. `parts` are the lookups of each part now, `between` those that runs
/// between answer on the keys of the output, and `dropped` is the share of the tombstones that the compaction has
/// dropped.
pub fn total(taken: &[Inherited], parts: &[LookupStats], between: f64, dropped: f64) -> LookupStats {
    let mut total = LookupStats { empty: between.max(0.0), ..LookupStats::default() };
    for Inherited { part, found, empty } in taken {
        let Some(lookups) = parts.get(*part) else { continue };
        total.found += found * lookups.found;
        total.dead += found * lookups.dead;
        total.empty += empty * lookups.empty;
    }
    let gone = dropped.clamp(0.0, 1.0) * total.dead.min(total.found);
    total.found -= gone;
    total.dead -= gone;
    total.empty += gone;
    total
}

/// Returns the share of a table's lookups that each of its `parts` has: by its number of entries and the density of
/// lookups over its keys. The shares add up to 1, or to 0 if there are no entries.
pub fn shares<'a>(parts: impl IntoIterator<Item = (&'a KeyRange, u64)>, density: &Density) -> Vec<f64> {
    let mut shares: Vec<f64> =
        parts.into_iter().map(|(range, entries)| entries as f64 * density.mean_weight(range)).collect();
    let total: f64 = shares.iter().sum();
    shares.iter_mut().for_each(|share| *share = if total > 0.0 { *share / total } else { 0.0 });
    shares
}

/// Returns the lookups that each table of a flush starts with. `passed` is the number of the keyspace's lookups that no
/// memtable answered.
pub fn flushed(passed: f64, outputs: &[KeyRange], density: &Density) -> Vec<LookupStats> {
    let passed = if passed.is_finite() { passed.max(0.0) } else { 0.0 };
    let shares = density.shares(outputs);
    shares.into_iter().map(|share| LookupStats { empty: passed * share, ..LookupStats::default() }).collect()
}

#[cfg(test)]
mod tests;
