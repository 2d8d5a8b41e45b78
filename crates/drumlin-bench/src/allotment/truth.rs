//! The true number of vain lookups of each table, and the comparison of the engine with it.
//!
//! The truth comes from repeating past lookups on the current tree: those of the last three half-lives, each with the
//! weight that the engine's decay has left of it. At most `REPEATED` of them are repeated, evenly spaced.

use crate::engine::Result;
use drumlin::{Db, Keyspace};
use drumlin_policy::filter::price::{Item, solve};
use drumlin_policy::filter::rate::{BLOOM, rate};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Number of lookups in a decay epoch, after which the engine multiplies its counts by `FADES`. Sixteen epochs are
/// the smallest half-life, 65,536 lookups, which applies to trees of up to `MOST_TABLES` tables.
const EPOCH: u64 = 4096;
const MOST_TABLES: usize = 256;
/// Decay factor per epoch: the sixteenth root of one half.
const FADES: f64 = 0.957_603_280_698_573_6;
/// Number of epochs after which a lookup is ignored, because only an eighth of its weight is left.
const REMEMBERED: u64 = 48;
/// Maximum number of lookups that are repeated at a point.
const REPEATED: usize = 30_000;
/// Sampling interval of the simple rule: it counts one lookup in this many.
const SIMPLE_SAMPLE: usize = 8;
/// Share of the lookups that is spread over all tables by their keys, as a prior for the division by estimates. The
/// engine's own prior has this share in each run.
const PRIOR: f64 = 0.1;

/// Returns the key of entry `id`, or an absent key after it. Neighbours in id are neighbours in key order.
pub(super) fn key(id: u64, is_absent: bool) -> [u8; 16] {
    let mut key = [b'k'; 16];
    key[8..].copy_from_slice(&(2 * id + u64::from(is_absent)).to_be_bytes());
    key
}

pub(super) fn failed(what: drumlin::Error) -> String {
    what.to_string()
}

/// A past lookup.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lookup {
    pub(super) id: u64,
    pub(super) is_absent: bool,
}

/// A reference to a table: its number and the first key of its bounds.
type Reference = (u64, Vec<u8>);

/// A table of the current tree.
struct Table {
    end: Option<Vec<u8>>,
    keys: f64,
    bits: f64,
    rate: f64,
    /// The engine's estimate of its vain lookups.
    estimate: f64,
}

/// Comparison of the engine with the truth at one point.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Compared {
    /// Unneeded blocks per lookup with the filters as built.
    pub built: f64,
    /// Unneeded blocks per lookup with the best division of the same bits over Bloom filters.
    pub best: f64,
    /// Unneeded blocks per lookup with the division that follows from the engine's estimates.
    pub by_estimates: f64,
    /// Unneeded blocks per lookup with the same bits per key in each table.
    pub uniform: f64,
    /// Cosine similarity of the engine's estimates and the truth, over tables.
    pub cosine: f64,
    /// Distance of the estimates from the truth, relative to the length of the truth.
    pub distance: f64,
    /// Cosine of the simple rule's estimates; absent if it was not followed.
    pub simple_cosine: Option<f64>,
    /// Distance of the simple rule's estimates.
    pub simple_distance: Option<f64>,
}

/// Past lookups, the simple rule's estimates, and the tables of the last tree.
pub(super) struct Truth {
    lookups: Vec<Lookup>,
    simple: BTreeMap<Reference, f64>,
    tables: BTreeMap<Reference, Table>,
}

fn tables_of(keys: &Keyspace, db: &Db) -> Result<BTreeMap<Reference, Table>> {
    let shapes = db.tree();
    let shape = shapes.iter().find(|shape| shape.name == keys.name()).ok_or("the keyspace is gone")?;
    let files = shape.levels.iter().flat_map(|level| &level.runs).flat_map(|run| &run.files);
    let table = |file: &drumlin::FileShape| Table {
        end: file.end.clone(),
        // A table has one version per key here, except for a few keys that were overwritten within one memtable.
        keys: file.entries as f64,
        bits: file.filter_bits,
        rate: file.filter_false_positive_rate,
        estimate: file.lookups_empty,
    };
    Ok(files.map(|file| ((file.table, file.first.clone()), table(file))).collect())
}

/// Returns whether the key bounds of two table references overlap.
fn overlap(a: (&Reference, &Table), b: (&Reference, &Table)) -> bool {
    let before = |end: &Option<Vec<u8>>, first: &Vec<u8>| end.as_ref().is_some_and(|end| end <= first);
    !before(&a.1.end, &b.0.1) && !before(&b.1.end, &a.0.1)
}

impl Truth {
    pub(super) fn of(keys: &Keyspace, db: &Db) -> Result<Truth> {
        Ok(Truth { lookups: Vec::new(), simple: BTreeMap::new(), tables: tables_of(keys, db)? })
    }

    /// Records lookups that were just executed, and feeds a sample of them to the simple rule.
    pub(super) fn note(&mut self, lookups: &[Lookup], keys: &Keyspace, db: &Db) -> Result<()> {
        let epochs = |lookups: usize| lookups as u64 / EPOCH;
        let before = epochs(self.lookups.len());
        self.lookups.extend_from_slice(lookups);
        let fades = FADES.powi((epochs(self.lookups.len()) - before) as i32);
        self.simple.values_mut().for_each(|count| *count *= fades);
        self.inherit_simply(tables_of(keys, db)?);
        for lookup in lookups.iter().step_by(SIMPLE_SAMPLE) {
            for probed in keys.probed_tables(key(lookup.id, lookup.is_absent)).map_err(failed)? {
                if !probed.is_found {
                    *self.simple.entry((probed.table, probed.first)).or_default() += SIMPLE_SAMPLE as f64;
                }
            }
        }
        Ok(())
    }

    /// Replaces the tables. By the simple rule, a new table inherits the mean count of the removed tables in its
    /// bounds.
    fn inherit_simply(&mut self, tables: BTreeMap<Reference, Table>) {
        let gone: Vec<_> = self.tables.iter().filter(|(of, _)| !tables.contains_key(of)).collect();
        for new in tables.iter().filter(|(of, _)| !self.tables.contains_key(of)) {
            let inputs = gone.iter().filter(|old| overlap(**old, new));
            let counts: Vec<f64> =
                inputs.map(|(of, _)| self.simple.get(of).copied().unwrap_or(0.0)).collect();
            let mean = counts.iter().sum::<f64>() / counts.len().max(1) as f64;
            self.simple.insert(new.0.clone(), mean);
        }
        self.simple.retain(|of, _| tables.contains_key(of));
        self.tables = tables;
    }

    /// Compares the engine with the truth. Returns the number of tables, their bits per key, and the comparison.
    pub(super) fn compared(&mut self, keys: &Keyspace, db: &Db) -> Result<(u64, f64, Compared)> {
        self.inherit_simply(tables_of(keys, db)?);
        if self.tables.len() > MOST_TABLES {
            return Err(format!(
                "{} tables are too many: above {MOST_TABLES} the engine's counts fade more slowly; take fewer entries",
                self.tables.len()
            ));
        }
        let now = self.lookups.len() as u64 / EPOCH;
        let oldest = (now.saturating_sub(REMEMBERED) * EPOCH) as usize;
        let stride = (self.lookups.len() - oldest).div_ceil(REPEATED).max(1);
        let (mut vain, mut all) = (BTreeMap::<Reference, f64>::new(), 0.0);
        for at in (oldest..self.lookups.len()).step_by(stride) {
            let weight = stride as f64 * FADES.powi((now - at as u64 / EPOCH) as i32);
            all += weight;
            let lookup = self.lookups[at];
            for probed in keys.probed_tables(key(lookup.id, lookup.is_absent)).map_err(failed)? {
                if !probed.is_found {
                    *vain.entry((probed.table, probed.first)).or_default() += weight;
                }
            }
        }
        let vain_of = |of: &Reference| vain.get(of).copied().unwrap_or(0.0);
        let truth: Vec<f64> = self.tables.keys().map(vain_of).collect();
        let estimates: Vec<f64> = self.tables.values().map(|table| table.estimate).collect();
        let simple: Vec<f64> =
            self.tables.keys().map(|of| self.simple.get(of).copied().unwrap_or(0.0)).collect();
        let held: f64 = self.tables.values().map(|table| table.keys).sum();
        let bits: f64 = self.tables.values().map(|table| table.keys * table.bits).sum();
        // Adds the prior to each weight. A table gets a share of it by its number of keys.
        let weighted = |weights: &[f64]| -> Vec<Item> {
            let prior = |table: &Table| PRIOR * all * table.keys / held;
            let of =
                |(table, weight): (&Table, &f64)| Item { keys: table.keys, weight: weight + prior(table) };
            self.tables.values().zip(weights).map(of).collect()
        };
        let plain: Vec<Item> = self
            .tables
            .values()
            .zip(&truth)
            .map(|(table, &weight)| Item { keys: table.keys, weight })
            .collect();
        let unneeded = |rates: Vec<f64>| {
            truth.iter().zip(rates).map(|(vain, rate)| vain * rate).sum::<f64>() / f64::max(all, 1.0)
        };
        let divided = |items: &[Item]| {
            let price = solve(items, bits, BLOOM);
            let of = |item| price.map_or(1.0, |price| rate(BLOOM, price.bits(item, true)));
            unneeded(items.iter().map(of).collect())
        };
        let average = bits / held.max(1.0);
        let compared = Compared {
            built: unneeded(self.tables.values().map(|table| table.rate).collect()),
            best: divided(&plain),
            by_estimates: divided(&weighted(&estimates)),
            uniform: unneeded(truth.iter().map(|_| rate(BLOOM, average)).collect()),
            cosine: cosine(&estimates, &truth),
            distance: distance(&estimates, &truth),
            simple_cosine: Some(cosine(&simple, &truth)),
            simple_distance: Some(distance(&simple, &truth)),
        };
        Ok((self.tables.len() as u64, average, compared))
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Returns the cosine similarity of two vectors; 1 if either is zero.
fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    if lengths > 0.0 { dot(a, b) / lengths } else { 1.0 }
}

/// Returns the distance of `a` from `b`, relative to the length of `b`.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    let squares: f64 = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum();
    (squares / dot(b, b).max(f64::MIN_POSITIVE)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_estimates() {
        assert_eq!((cosine(&[1.0, 0.0], &[0.0, 2.0]), cosine(&[2.0, 2.0], &[1.0, 1.0])), (0.0, 1.0));
        assert_eq!((distance(&[3.0, 4.0], &[3.0, 4.0]), distance(&[0.0, 0.0], &[3.0, 4.0])), (0.0, 1.0));
    }
}
