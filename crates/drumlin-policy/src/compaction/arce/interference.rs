//! How much a running merge slows operations down: chi, measured (arce.md 2.2).
//!
//! Each tick tells the mean cost of an operation, less what its covered runs explain, and the share of the
//! operations during which a merge ran. A straight line through the ticks of the present mix gives the cost
//! without merges and what merges add. Merging is never taken for free, nor for more than doubling.
//!
//! The means that a tick tells are of the last few thousand operations. Merges run while there are many runs, so what
//! the runs cost is smoothed in the same way: else what they cost a while ago would be laid at the merges' door.

use super::model::bounded;
use super::real;

/// Bounds of chi; the lower one also holds until enough is known.
pub(crate) const BOUNDS: (f64, f64) = (0.1, 1.0);
/// Ticks in which the weight of the past halves.
const HALF_LIFE: f64 = 256.0;
/// Operations in which the weight of the past halves in measured means: of 128 samples, each one of 64 operations.
const MEAN_HALF_LIFE: f64 = 128.0 * 64.0 * core::f64::consts::LN_2;
/// Weight of ticks, and variance of their busy shares, that a line needs.
const LEAST_TICKS: f64 = 16.0;
const LEAST_VARIANCE: f64 = 0.01;

/// Decayed sums over ticks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Interference {
    weight: f64,
    /// Of the busy shares, and of their squares.
    busy: f64,
    busy_squared: f64,
    /// Of the costs without their runs, of these times the busy shares, and of the costs of the runs.
    rest: f64,
    rest_busy: f64,
    runs: f64,
    /// What runs cost, as smooth as what is measured.
    smooth: f64,
}

impl Interference {
    /// Before the first tick.
    pub(crate) const NOTHING: Interference = Interference {
        weight: 0.0,
        busy: 0.0,
        busy_squared: 0.0,
        rest: 0.0,
        rest_busy: 0.0,
        runs: 0.0,
        smooth: 0.0,
    };

    /// Another mix: costs of the last one say nothing.
    pub(crate) fn forget(&mut self) {
        *self = Interference::NOTHING;
    }

    /// A tick of so many operations, `busy` of them beside a merge: one took `whole`, of which the covered runs now
    /// explain `runs`.
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

    /// The share by which a running merge makes operations slower.
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

    /// As numbers.
    pub(crate) fn numbers(&self) -> [f64; 7] {
        [self.weight, self.busy, self.busy_squared, self.rest, self.rest_busy, self.runs, self.smooth]
    }

    /// Takes back [`Interference::numbers`].
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
                // A base of 10 us, 8 us for runs, and noise of a tenth.
                let (busy, noise) = (share(), 0.95 + share() / 10.0);
                let whole = 18_000.0 * (1.0 + chi * busy) * noise;
                found.tick(1024.0, busy, whole, 8000.0);
            }
            let expected = f64::clamp(chi, BOUNDS.0, BOUNDS.1);
            assert!((found.chi() - expected).abs() < 0.06, "{} is not {expected}", found.chi());
        }
    }

    /// Merges run while there are many runs, and means follow both late: merges cost nothing all the same.
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
        // A merge always runs: nothing to compare with.
        (0..100).for_each(|_| found.tick(1024.0, 1.0, 50_000.0, 0.0));
        assert_eq!(found.chi(), BOUNDS.0);
        found.tick(1024.0, f64::NAN, 1.0, 1.0);
        found.tick(1024.0, 0.0, f64::INFINITY, 1.0);
        assert_eq!(found.chi(), BOUNDS.0);
    }
}
