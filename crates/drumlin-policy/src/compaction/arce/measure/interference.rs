//! Measures the interference chi: how much a running compaction slows operations down.
//!
//! Each tick gives the mean cost of an operation minus the cost of its covered runs, and the share of operations
//! during which a compaction ran. A straight line through the ticks of the present mix gives the cost without
//! compactions and what a compaction adds. chi is at least 0.1, so a compaction is never free, and at most 1, which
//! doubles the cost.
//!
//! The mean of a tick covers the last few thousand operations. Compactions run while there are many runs. The cost of
//! the runs is therefore smoothed in the same way as the mean; otherwise the cost of past runs would count as
//! interference.

use crate::compaction::arce::measure::model::bounded;
use crate::real;

/// Bounds of chi. The lower bound also holds until there are enough ticks.
pub(crate) const BOUNDS: (f64, f64) = (0.1, 1.0);
/// Half-life of past ticks, in ticks.
const HALF_LIFE: f64 = 256.0;
/// Half-life of measured means, in operations: 128 samples, each of which stands for 64 operations.
const MEAN_HALF_LIFE: f64 = 128.0 * 64.0 * core::f64::consts::LN_2;
/// Least weight of ticks, and least variance of their busy shares, for a usable line.
const LEAST_TICKS: f64 = 16.0;
const LEAST_VARIANCE: f64 = 0.01;

/// Decayed sums over ticks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Interference {
    weight: f64,
    /// Sums of the busy shares, and of their squares.
    busy: f64,
    busy_squared: f64,
    /// Sums of the costs without runs, of these times the busy shares, and of the costs of the runs.
    rest: f64,
    rest_busy: f64,
    runs: f64,
    /// Cost of the runs, smoothed like the measured means.
    smooth: f64,
}

impl Interference {
    /// The state before the first tick.
    pub(crate) const NOTHING: Interference = Interference {
        weight: 0.0,
        busy: 0.0,
        busy_squared: 0.0,
        rest: 0.0,
        rest_busy: 0.0,
        runs: 0.0,
        smooth: 0.0,
    };

    /// Resets the sums, because the costs of another mix do not apply.
    pub(crate) fn forget(&mut self) {
        *self = Interference::NOTHING;
    }

    /// Takes in a tick. An operation took `whole`, of which the present covered runs explain `runs`; a compaction ran
    /// during the share `busy` of the `operations`.
    pub(crate) fn tick(&mut self, operations: f64, busy: f64, whole: f64, runs: f64) {
        if !(0.0..=1.0).contains(&busy) || !whole.is_finite() || !runs.is_finite() {
            return;
        }
        let old = if self.weight > 0.0 { real::decay(operations, MEAN_HALF_LIFE) } else { 0.0 };
        self.smooth = old * self.smooth + (1.0 - old) * runs;
        let (rest, runs) = (whole - self.smooth, self.smooth);
        if rest <= 0.0 {
            return;
        }
        let keep = real::decay(1.0, HALF_LIFE);
        let add = |sum: &mut f64, value: f64| *sum = *sum * keep + value;
        add(&mut self.weight, 1.0);
        add(&mut self.busy, busy);
        add(&mut self.busy_squared, busy * busy);
        add(&mut self.rest, rest);
        add(&mut self.rest_busy, rest * busy);
        add(&mut self.runs, runs);
    }

    /// Returns chi, the share by which a running compaction slows operations down.
    pub(crate) fn chi(&self) -> f64 {
        if self.weight < LEAST_TICKS {
            return BOUNDS.0;
        }
        let mean = |sum: f64| sum / self.weight;
        let variance = mean(self.busy_squared) - mean(self.busy) * mean(self.busy);
        if variance < LEAST_VARIANCE {
            return BOUNDS.0;
        }
        let slope = (mean(self.rest_busy) - mean(self.rest) * mean(self.busy)) / variance;
        let idle = mean(self.rest) - slope * mean(self.busy) + mean(self.runs);
        if idle <= 0.0 { BOUNDS.0 } else { bounded(slope / idle, BOUNDS.0, BOUNDS.1) }
    }

    /// Returns the sums as numbers, for the saved state.
    pub(crate) fn numbers(&self) -> [f64; 7] {
        [self.weight, self.busy, self.busy_squared, self.rest, self.rest_busy, self.runs, self.smooth]
    }

    /// Restores [`Interference::numbers`].
    pub(crate) fn restore(&mut self, numbers: [f64; 7]) {
        let [weight, busy, busy_squared, rest, rest_busy, runs, smooth] = numbers;
        *self = Interference { weight, busy, busy_squared, rest, rest_busy, runs, smooth };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SplitMix;

    #[test]
    fn the_excess_of_busy_ticks_is_found() {
        for chi in [0.0, 0.1, 0.35, 0.8, 3.0] {
            let mut dice = SplitMix::new(4);
            let mut found = Interference::NOTHING;
            let mut share = || dice.below(1001) as f64 / 1000.0;
            for _ in 0..200 {
                // A base of 10 us, 8 us for runs, and 10 % noise.
                let (busy, noise) = (share(), 0.95 + share() / 10.0);
                let whole = 18_000.0 * (1.0 + chi * busy) * noise;
                found.tick(1024.0, busy, whole, 8000.0);
            }
            let expected = f64::clamp(chi, BOUNDS.0, BOUNDS.1);
            assert!((found.chi() - expected).abs() < 0.06, "{} is not {expected}", found.chi());
        }
    }

    /// Compactions run while there are many runs, and the means of both are late. The true interference is still
    /// found: none.
    #[test]
    fn runs_are_not_laid_at_the_merges_door() {
        let mut found = Interference::NOTHING;
        let (mut runs, mut late_runs, mut late_busy) = (2000.0, 2000.0, 0.0);
        let mut busy = 0.0;
        let news = 1.0 - real::decay(1024.0, MEAN_HALF_LIFE);
        for tick in 0..400 {
            if tick % 40 == 0 {
                (runs, busy) = (60_000.0, 1.0);
            } else if tick % 40 == 20 {
                (runs, busy) = (2000.0, 0.0);
            }
            late_runs += news * (runs - late_runs);
            late_busy += news * (busy - late_busy);
            found.tick(1024.0, late_busy, 10_000.0 + late_runs, runs);
        }
        assert!(found.chi() < 0.15, "{}", found.chi());
    }

    #[test]
    fn nothing_is_made_of_too_little() {
        let mut found = Interference::NOTHING;
        assert_eq!(found.chi(), BOUNDS.0);
        // A compaction always runs, so there is nothing to compare with.
        (0..100).for_each(|_| found.tick(1024.0, 1.0, 50_000.0, 0.0));
        assert_eq!(found.chi(), BOUNDS.0);
        found.tick(1024.0, f64::NAN, 1.0, 1.0);
        found.tick(1024.0, 0.0, f64::INFINITY, 1.0);
        assert_eq!(found.chi(), BOUNDS.0);
    }
}
