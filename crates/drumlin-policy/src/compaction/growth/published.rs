//! The schedules and the tuning of the paper, as printed (Vertiorizon, Algorithms 1 and 2, Equations 3 to 6).
//!
//! They serve as the baseline. A cascade over several levels is one merge, as in the paper's footnote 6. The last unit
//! of a cycle is merged like every other, and then all of H goes into V1.

use super::shape::{Shape, UNITS};
use crate::real::{floor, square_root};
use alloc::vec;
use alloc::vec::Vec;

/// Most levels that the tuning tries.
pub(super) const MOST_LEVELS: u8 = 12;
/// Size ratio T.
pub(super) const RATIO: f64 = 6.0;
/// Units of the first cycle.
pub(super) const FIRST_UNITS: u16 = 8;
/// Largest delta that fits into a tag.
const MOST_DELTA: u8 = 15;

/// Returns the widths of Algorithm 1. Level 1 is merged into level 2 once C_1 > C_2 + delta (Section 5.3).
pub(super) fn leveling(units: u16, levels: u8, delta: u8) -> Vec<u16> {
    let levels = usize::from(levels.max(1));
    let (mut counters, mut held) = (vec![0u16; levels], vec![0u16; levels]);
    let mut widths = Vec::with_capacity(usize::from(units));
    for _ in 0..units {
        counters[0] += 1;
        held[0] += 1;
        let mut level = 0;
        while level < levels - 1 {
            let more = if level == 0 { u16::from(delta) } else { 0 };
            if counters[level] <= counters[level + 1] + more {
                break;
            }
            counters[level + 1] += 1;
            counters[level] = 0;
            held[level + 1] += core::mem::take(&mut held[level]);
            level += 1;
        }
        widths.push(held[level]);
    }
    widths
}

/// Returns the widths of Algorithm 2.
pub(super) fn tiering(units: u16, levels: u8) -> Vec<u16> {
    let levels = usize::from(levels.max(1));
    let most = (levels as u64..).find(|n| binomial(*n, levels as u64) >= u64::from(units)).unwrap_or(0);
    // The k of the paper: the smallest with C(k + l - 1, l) >= n.
    let mut counters = vec![(most + 1).saturating_sub(levels as u64); levels];
    let mut held = vec![0u16; levels];
    let mut widths = Vec::with_capacity(usize::from(units));
    for _ in 0..units {
        counters[0] = counters[0].saturating_sub(1);
        let (mut covered, mut level) = (1, 0);
        // All runs of the level and the one that came into it go on as one run.
        while level < levels - 1 && counters[level] == 0 {
            covered += core::mem::take(&mut held[level]);
            counters[level + 1] = counters[level + 1].saturating_sub(1);
            let left = counters[level + 1];
            counters[..=level].fill(left);
            level += 1;
        }
        held[level] += covered;
        widths.push(covered);
    }
    widths
}

/// Shares of writes, point lookups and seeks, and what they cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mix {
    pub(super) writes: f64,
    pub(super) gets: f64,
    pub(super) seeks: f64,
    /// False-positive rate of the filters (f).
    pub(super) false_positives: f64,
    /// Entries of a page (P).
    pub(super) page_entries: f64,
}

impl Mix {
    pub(super) fn encode(&self) -> [u8; 40] {
        let Mix { writes, gets, seeks, false_positives, page_entries } = *self;
        let mut bytes = [0; 40];
        for (at, number) in [writes, gets, seeks, false_positives, page_entries].into_iter().enumerate() {
            bytes[8 * at..8 * at + 8].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8; 40]) -> Mix {
        let mut numbers = bytes.chunks_exact(8).map(|chunk| {
            let mut number = [0; 8];
            number.copy_from_slice(chunk);
            f64::from_le_bytes(number)
        });
        let mut next = || numbers.next().unwrap_or(0.0);
        let (writes, gets, seeks) = (next(), next(), next());
        Mix { writes, gets, seeks, false_positives: next(), page_entries: next() }
    }

    /// Returns whether all numbers are shares, rates or counts.
    pub(super) fn is_valid(&self) -> bool {
        let Mix { writes, gets, seeks, false_positives, page_entries } = *self;
        let shares = [writes, gets, seeks, false_positives];
        shares.iter().all(|share| (0.0..=1.0).contains(share))
            && page_entries.is_finite()
            && page_entries >= 1.0
    }
}

/// Returns the m with C(m, l) <= n <= C(m + 1, l).
fn nearest_size(units: u64, levels: u64) -> u64 {
    (levels..).take_while(|m| binomial(*m, levels) <= units).last().unwrap_or(levels)
}

/// Returns n times the number of runs that a lookup meets on average, with tiering (Equation 3 without f).
fn tiered_runs(units: u64, levels: u64) -> f64 {
    let m = nearest_size(units, levels);
    let more = units.saturating_sub(binomial(m, levels));
    levels as f64 * binomial(m, levels + 1) as f64 + (m + 1 - levels) as f64 * more as f64
}

/// Returns n times P times the pages that an update writes, with leveling (Equation 4).
fn leveled_writes(units: u64, levels: u64) -> f64 {
    let m = nearest_size(units, levels);
    let more = units.saturating_sub(binomial(m, levels));
    levels as f64 * binomial(m + 1, levels + 1) as f64 + (m + 1) as f64 * more as f64
        - (levels - 1) as f64 * units as f64
}

/// Returns the cost of an operation (Equation 5).
fn cost(units: u16, levels: u8, is_leveling: bool, mix: &Mix) -> f64 {
    let (n, l) = (u64::from(units), u64::from(levels));
    let (runs, writes) = match is_leveling {
        true => (f64::from(levels), leveled_writes(n, l) / n as f64),
        false => (tiered_runs(n, l) / n as f64, f64::from(levels)),
    };
    mix.writes * writes / mix.page_entries + (mix.gets * mix.false_positives + mix.seeks) * runs
}

/// Returns the schedule with the least cost: for each merge policy the search begins at two levels and ends where the
/// cost rises.
pub(super) fn tuned(units: u16, mix: &Mix, delta: u8) -> Shape {
    let best = |is_leveling: bool| {
        let of = |levels: u8| cost(units, levels, is_leveling, mix);
        let mut levels = 2;
        while levels < MOST_LEVELS && u16::from(levels) < units && of(levels + 1) < of(levels) {
            levels += 1;
        }
        (of(levels), levels)
    };
    let (leveled, tiered) = (best(true), best(false));
    if leveled.0 <= tiered.0 {
        Shape::PublishedLeveling { levels: leveled.1, delta }
    } else {
        Shape::PublishedTiering(tiered.1)
    }
}

/// Returns delta for the share `alpha` of hot keys in a flush (Equation 6).
pub(super) fn delta(alpha: f64) -> u8 {
    let alpha = if alpha.is_nan() { 0.0 } else { alpha.clamp(0.0, 0.99) };
    let delta = floor((square_root(1.0 + 8.0 * alpha / (1.0 - alpha)) - 1.0) / 2.0 + 1e-9);
    (delta as u8).min(MOST_DELTA)
}

/// Returns n for the next cycle above a V2 of `bottom` units: once V2 has reached n T^2 units, n grows by 1 / T.
pub(super) fn units(before: Option<u16>, bottom: f64) -> u16 {
    let mut units = before.unwrap_or(FIRST_UNITS);
    while bottom >= f64::from(units) * RATIO * RATIO && units < *UNITS.end() {
        units = (units + (f64::from(units) / RATIO) as u16 + 1).min(*UNITS.end());
    }
    units
}

fn binomial(n: u64, k: u64) -> u64 {
    if k > n {
        return 0;
    }
    (1..=k).fold(1u64, |product, i| product.saturating_mul(n - k + i) / i)
}

#[cfg(test)]
mod tests {
    use super::super::widths::steps;
    use super::*;

    fn run_units(widths: &[u16]) -> usize {
        steps(widths).map(|(_, runs)| runs).sum()
    }

    #[test]
    fn the_algorithms_are_those_of_the_paper() {
        assert_eq!(leveling(10, 2, 0), [1, 1, 3, 1, 2, 6, 1, 2, 3, 10]);
        assert_eq!(tiering(6, 2)[..5], [1, 1, 3, 1, 2]);
        // Where n is not binomial they miss the optimum: 28 and 18 run units.
        assert_eq!(tiering(12, 2)[..11], [1, 1, 1, 1, 5, 1, 1, 1, 4, 1, 1]);
        assert_eq!((run_units(&tiering(12, 2)[..11]), run_units(&tiering(11, 3)[..10])), (29, 21));
        // The first level waits for one more flush.
        assert_eq!(leveling(8, 2, 1), [1, 2, 1, 2, 5, 1, 2, 3]);
        for units in [4, 9, 30, 77] {
            for levels in 1..=6 {
                run_units(&tiering(units, levels));
                for delta in [0, 1, 5] {
                    run_units(&leveling(units, levels, delta));
                }
            }
        }
    }

    #[test]
    fn the_equations_are_those_of_the_paper() {
        for (units, levels, writes) in [(6, 2, 14.0), (10, 2, 30.0), (20, 3, 65.0), (35, 3, 140.0)] {
            assert_eq!(leveled_writes(units, levels), writes);
        }
        for (alpha, expected) in [(0.0, 0), (0.5, 1), (0.6, 1), (0.75, 2), (0.8, 2), (0.86, 3), (0.95, 5)] {
            assert_eq!(delta(alpha), expected, "{alpha}");
        }
        assert_eq!((delta(1.0), delta(f64::NAN)), (13, 0));
        // R of a tiered schedule, once more by Equation 3.
        assert_eq!((tiered_runs(10, 2), tiered_runs(36, 2), tiered_runs(64, 3)), (20.0, 168.0, 258.0));
    }

    #[test]
    fn the_tuning_finds_the_cheapest_schedule() {
        for writes in [0.001f64, 0.1, 0.5, 0.9, 0.999] {
            for seeks in [0.0, 0.3] {
                let gets = (1.0 - writes - seeks).max(0.0);
                let mix = Mix { writes, gets, seeks, false_positives: 0.01, page_entries: 4.0 };
                let (found, levels, is_leveling) = match tuned(64, &mix, 0) {
                    Shape::PublishedLeveling { levels, .. } => (cost(64, levels, true, &mix), levels, true),
                    Shape::PublishedTiering(levels) => (cost(64, levels, false, &mix), levels, false),
                    other => panic!("{other:?}"),
                };
                for levels in 2..=MOST_LEVELS {
                    assert!(found <= cost(64, levels, true, &mix) && found <= cost(64, levels, false, &mix));
                }
                // Writes alone want the fewest compactions.
                assert!(writes < 0.99 || seeks > 0.0 || (levels, is_leveling) == (2, false));
            }
        }
        assert_eq!((units(None, 0.0), units(Some(8), 288.0), units(Some(8), 287.0)), (8, 10, 8));
        assert_eq!(units(None, f64::INFINITY), *UNITS.end());
    }
}
