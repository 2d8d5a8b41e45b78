//! How much a running merge slows operations down: chi, measured (arce.md 2.2).
//!
//! Each tick tells the mean cost of an operation, less what its covered runs explain, and the share of the
//! operations during which a merge ran. A straight line through the ticks of the present mix gives the cost
//! without merges and what merges add. Merging is never taken for free, nor for more than doubling.

use super::model::bounded;
use super::real;

/// Bounds of chi; the lower one also holds until enough is known.
pub(crate) const BOUNDS: (f64, f64) = (0.1, 1.0);
/// Ticks in which the weight of the past halves.
const HALF_LIFE: f64 = 256.0;
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
}

impl Interference {
    /// Before the first tick.
    pub(crate) const NOTHING: Interference =
        Interference { weight: 0.0, busy: 0.0, busy_squared: 0.0, rest: 0.0, rest_busy: 0.0, runs: 0.0 };

    /// Another mix: costs of the last one say nothing.
    pub(crate) fn forget(&mut self) {
        *self = Interference::NOTHING;
    }

    /// A tick, `busy` of it beside a merge: an operation took `rest`, and `runs` more for its covered runs.
    pub(crate) fn tick(&mut self, busy: f64, rest: f64, runs: f64) {
        if !(0.0..=1.0).contains(&busy) || !rest.is_finite() || !runs.is_finite() {
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
    pub(crate) fn numbers(&self) -> [f64; 6] {
        [self.weight, self.busy, self.busy_squared, self.rest, self.rest_busy, self.runs]
    }

    /// Takes back [`Interference::numbers`].
    pub(crate) fn restore(&mut self, numbers: [f64; 6]) {
        let [weight, busy, busy_squared, rest, rest_busy, runs] = numbers;
        *self = Interference { weight, busy, busy_squared, rest, rest_busy, runs };
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
                found.tick(busy, whole - 8000.0, 8000.0);
            }
            let expected = f64::clamp(chi, BOUNDS.0, BOUNDS.1);
            assert!((found.chi() - expected).abs() < 0.06, "{} is not {expected}", found.chi());
        }
    }

    #[test]
    fn nothing_is_made_of_too_little() {
        let mut found = Interference::NOTHING;
        assert_eq!(found.chi(), BOUNDS.0);
        // A merge always runs: nothing to compare with.
        (0..100).for_each(|_| found.tick(1.0, 50_000.0, 0.0));
        assert_eq!(found.chi(), BOUNDS.0);
        found.tick(f64::NAN, 1.0, 1.0);
        found.tick(0.0, f64::INFINITY, 1.0);
        assert_eq!(found.chi(), BOUNDS.0);
    }
}
