//! Ranks the pieces (subcompactions) of a compaction by how much they help readers.
//!
//! A compaction runs piece by piece, and readers gain with each installed piece. If requested keys concentrate in a
//! few ranges, compacting these first gives most of the gain early. When a fifth of the bytes takes four fifths of
//! the reads, the mean read waits a fifth of the compaction's time instead of half of it.
//!
//! The sampled keys are taken in groups of eight. For each group, the covers of the inputs minus their union is what
//! compacting that range removes. The scheduler gives each piece its share of these values, and divides by its bytes.

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
    let mut value = 0.0;
    for (at, removed) in (0..keys.len()).step_by(KEYS).zip(removed) {
        let Some(start) = keys.get(at) else { break };
        value += f64::from(*removed) * weight;
        // The last range is open: no read was sampled beyond it.
        let end = keys.get(at + KEYS);
        // A key that was sampled often fills whole groups. Their value goes to the range that begins with it.
        if end != Some(start) {
            values.push((KeyRange::new(start.clone(), end.cloned()), core::mem::take(&mut value)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::Cow;
    use drumlin_types::Key;

    /// Returns the values for samples of these key numbers, each group of eight of which removes `removed` keys.
    fn values(numbers: &[u8], removed: u32) -> Vec<(KeyRange, f64)> {
        let keys: Vec<Key> = numbers.iter().map(|number| Key::new(&[*number])).collect();
        let mut values = Vec::new();
        ranges(&SortedKeys::new(Cow::Borrowed(&keys)), &[removed; BITS / KEYS], 1.0, &mut values);
        values
    }

    #[test]
    fn a_hot_key_keeps_its_value() {
        let hot: Vec<u8> = (0..16).chain([16; 24]).chain(17..25).collect();
        let found = values(&hot, 8);
        assert!(found.iter().all(|(range, _)| !range.is_empty()), "{found:?}");
        let of_hot: f64 =
            found.iter().filter(|(range, _)| range.contains(&[16])).map(|(_, value)| value).sum();
        assert_eq!((found.len(), of_hot), (4, 24.0));
        assert_eq!(found.iter().map(|(_, value)| value).sum::<f64>(), 48.0);
    }

    #[test]
    fn the_last_keys_count_once() {
        let found = values(&[1, 2, 3, 4, 5, 6, 7, 8, 9], 1);
        assert_eq!(found.iter().map(|(_, value)| *value).collect::<Vec<_>>(), [1.0, 1.0]);
        assert_eq!(found[1].0, KeyRange::new(Key::new(&[9]), None));
    }
}
