//! Ranks the pieces (subcompactions) of a compaction by how much they help readers.
//!
//! A compaction runs piece by piece, and readers gain with each installed piece. If requested keys concentrate in a
//! few ranges, compacting these first gives most of the gain early. When a fifth of the bytes takes four fifths of
//! the reads, the mean read waits a fifth of the compaction's time instead of half of it.
//!
//! The sampled keys are taken in groups of eight. For each group, the covers of the inputs minus their union is what
//! compacting that range removes. The scheduler weighs this against the bytes of each piece.

use crate::compaction::arce::candidates::cover::{BITS, ByEight, Cover, CoverScale, Mask};
use crate::compaction::arce::candidates::interval::Candidate;
use crate::compaction::arce::candidates::line::{AgeLine, Samples};
use crate::compaction::arce::candidates::sorted::SortedKeys;
use alloc::vec::Vec;
use drumlin_types::KeyRange;

/// Sampled keys per range.
const KEYS: usize = 8;
/// Counts of all ranges.
type Counts = [u32; BITS / KEYS];

/// Returns the ranges of `candidate`, each with the covered runs that compacting it removes.
pub(crate) fn of(
    line: &AgeLine<'_>,
    candidate: &Candidate,
    samples: &Samples<'_>,
    scale: &CoverScale,
) -> Vec<(KeyRange, f64)> {
    let parts = &line.parts[candidate.from..candidate.to];
    let mut union = Cover::default();
    parts.iter().for_each(|part| union.union(&part.cover));
    let removed = |of: fn(&Cover) -> &Mask| {
        let (mut all, mut left) = (ByEight::default(), ByEight::default());
        parts.iter().for_each(|part| all.add(of(&part.cover)));
        left.add(of(&union));
        let mut counts: Counts = all.sums();
        counts.iter_mut().zip(left.sums()).for_each(|(sum, left)| *sum -= left);
        counts
    };
    let [per_point, per_seek] = scale.weights();
    let mut values = Vec::new();
    ranges(&samples.points, &removed(|cover| &cover.points), per_point, &mut values);
    ranges(&samples.seeks, &removed(|cover| &cover.seeks), per_seek, &mut values);
    values
}

fn ranges(keys: &SortedKeys<'_>, removed: &Counts, weight: f64, values: &mut Vec<(KeyRange, f64)>) {
    if weight <= 0.0 {
        return;
    }
    for (at, removed) in (0..keys.len()).step_by(KEYS).zip(removed) {
        let Some(start) = keys.get(at) else { break };
        // The last range is open: no read was sampled beyond it.
        let end = keys.get(at + KEYS).cloned();
        let share = KEYS as f64 / (keys.len() - at).min(KEYS) as f64;
        values.push((KeyRange::new(start.clone(), end), f64::from(*removed) * weight * share));
    }
}
