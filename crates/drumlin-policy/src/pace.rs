//! Write rate limit as a function of the run count s.
//!
//! ```text
//! s <= c             no limit
//! c < s <= c+1       speed / (q * (s-c))
//! above              speed / q
//! s > 0.75*S_max     at most drain * 4*(S_max-s)/S_max, at least drain / 64
//! s >= S_max+8       stopped until a compaction finishes
//! ```
//!
//! `speed` is the throughput of all compaction slots together. q is the number of compaction passes that the rate
//! leaves room for per written byte. Below the last line the rate has no jumps, so writers never see it drop
//! abruptly.

use drumlin_types::contract::Pace;

/// Rate at which writers are admitted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Admission {
    /// Unlimited.
    Open,
    /// Limit in bytes per second.
    Limited(f64),
    /// Stopped until a compaction reduces the run count.
    Shut,
}

/// Drain rate assumed before any is measured, in bytes per second.
const DRAIN_GUESS: f64 = 100e6;
/// Lowest share of the drain rate to which writers are slowed before they are stopped.
const LEAST_SHARE: f64 = 1.0 / 64.0;
/// Fraction of the safety mark S_max above which the drain rate also bounds writers.
pub(crate) const NARROW: f64 = 0.75;
/// Number of runs above the safety mark at which writers are stopped.
const STOP_SLACK: f64 = 8.0;

/// Returns the rate that `pace` admits at `runs` runs, when all compaction slots together process `speed` bytes per
/// second.
pub fn admission(pace: &Pace, runs: f64, speed: f64) -> Admission {
    if runs >= pace.stop + STOP_SLACK || (pace.hard_stop && runs >= pace.stop) {
        return Admission::Shut;
    }
    let mut rate = f64::INFINITY;
    if runs > pace.slow {
        rate = speed.max(1e6) / (pace.passes.max(0.1) * (runs - pace.slow).min(1.0));
    }
    if runs > NARROW * pace.stop {
        let drain = if pace.drain > 0.0 { pace.drain } else { DRAIN_GUESS };
        rate = rate.min((drain * 4.0 * (pace.stop - runs) / pace.stop).max(drain * LEAST_SHARE));
    }
    if rate.is_finite() { Admission::Limited(rate.max(1.0)) } else { Admission::Open }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_types::contract::PaceScope;

    fn pace(slow: f64, stop: f64, drain: f64) -> Pace {
        Pace { slow, drain, ..Pace::free(PaceScope::All, stop) }
    }

    #[test]
    fn the_safety_mark_narrows_evenly() {
        let pace = pace(f64::INFINITY, 64.0, 100e6);
        let at = |runs| admission(&pace, runs, 150e6);
        assert_eq!(at(48.0), Admission::Open);
        let rates = [52.0, 56.0, 60.0, 63.0].map(at);
        assert_eq!(rates, [75e6, 50e6, 25e6, 6.25e6].map(Admission::Limited));
        assert_eq!(at(64.0), Admission::Limited(1_562_500.0));
        assert_eq!(at(72.0), Admission::Shut);
        assert_eq!(admission(&Pace { hard_stop: true, ..pace }, 64.0, 150e6), Admission::Shut);
    }

    #[test]
    fn slowing_has_no_step_above_its_first_run() {
        let pace = pace(8.0, 64.0, 100e6);
        let at = |runs| admission(&pace, runs, 150e6);
        assert_eq!(at(8.0), Admission::Open);
        assert_eq!([8.5, 9.0, 20.0].map(at), [150e6, 75e6, 75e6].map(Admission::Limited));
        // One compaction pass over an entry of the paper's size takes 6.75 us at its speed; the paper uses 6 us.
        let one_pass = 1024.0 / (4096.0 / 27e-6);
        assert!((one_pass - 6.75e-6f64).abs() < 1e-12);
    }
}
