//! Which pieces of a merge help readers most: runs removed, range by range (arce.md 3.3).
//!
//! A merge runs piece by piece, and readers gain with each piece that is installed. Where wanted keys crowd
//! into a few ranges, doing these first gives most of the gain early: when a fifth of the bytes takes four
//! fifths of the reads, the mean read waits a fifth of the merge's time and no longer half of it. The
//! sampled keys are taken eight by eight; what the inputs cover of eight, less their union, is what merging
//! there removes. The scheduler sets that against the bytes of each piece.

use super::cover::{BITS, ByEight, Cover, Mask, Scale};
use super::interval::Candidate;
use super::line::{AgeLine, Samples};
use super::sorted::SortedKeys;
use alloc::vec::Vec;
use drumlin_types::KeyRange;

/// Sampled keys of a range.
const KEYS: usize = 8;
/// Counts for each range.
type Counts = [u32; BITS / KEYS];

/// The ranges of `candidate` with the runs that merging there removes.
pub(super) fn of(
    line: &AgeLine<'_>,
    candidate: &Candidate,
    samples: &Samples<'_>,
    scale: &Scale,
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
        // Beyond the last sampled key nobody was seen to read.
        let end = keys.get(at + KEYS).cloned();
        let share = KEYS as f64 / (keys.len() - at).min(KEYS) as f64;
        values.push((KeyRange::new(start.clone(), end), f64::from(*removed) * weight * share));
    }
}
