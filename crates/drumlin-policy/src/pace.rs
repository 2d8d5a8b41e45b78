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
//! leaves room for per written byte. From c on, the rate falls without jumps to speed / q. Above 0.75*S_max it may
//! drop to the drain rate at once. The engine's throttle smooths decreases: the rate at most halves in a tenth of a
//! second, except near S_max.

use drumlin_types::contract::Pace;

/// Rate at which writers are admitted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum WriteRate {
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
/// Share of S_max (`Pace::stop`) above which the drain rate also bounds writers.
pub(crate) const THROTTLE_FROM: f64 = 0.75;

/// Returns the rate that `pace` admits at `runs` runs, when all compaction slots together process `speed` bytes per
/// second.
pub fn write_rate(pace: &Pace, runs: f64, speed: f64) -> WriteRate {
    if runs >= pace.stops_at() {
        return WriteRate::Shut;
    }
    let mut rate = f64::INFINITY;
    if runs > pace.slow {
        rate = speed.max(1e6) / (pace.passes.max(0.1) * (runs - pace.slow).min(1.0));
    }
    if runs > THROTTLE_FROM * pace.stop {
        let drain = if pace.drain > 0.0 { pace.drain } else { DRAIN_GUESS };
        rate = rate.min((drain * 4.0 * (pace.stop - runs) / pace.stop).max(drain * LEAST_SHARE));
    }
    if rate.is_finite() { WriteRate::Limited(rate.max(1.0)) } else { WriteRate::Open }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_types::contract::PaceScope;

    fn pace(slow: f64, stop: f64, drain: f64) -> Pace {
        Pace { slow, drain, ..Pace::free(PaceScope::All, stop) }
    }

    #[test]
    fn the_rate_narrows_evenly_towards_the_run_limit() {
        let pace = pace(f64::INFINITY, 64.0, 100e6);
        let at = |runs| write_rate(&pace, runs, 150e6);
        assert_eq!(at(48.0), WriteRate::Open);
        let rates = [52.0, 56.0, 60.0, 63.0].map(at);
        assert_eq!(rates, [75e6, 50e6, 25e6, 6.25e6].map(WriteRate::Limited));
        assert_eq!(at(64.0), WriteRate::Limited(1_562_500.0));
        assert_eq!(at(72.0), WriteRate::Shut);
        assert_eq!(write_rate(&Pace { hard_stop: true, ..pace }, 64.0, 150e6), WriteRate::Shut);
    }

    #[test]
    fn slowing_has_no_step_above_its_first_run() {
        let pace = pace(8.0, 64.0, 100e6);
        let at = |runs| write_rate(&pace, runs, 150e6);
        assert_eq!(at(8.0), WriteRate::Open);
        assert_eq!([8.5, 9.0, 20.0].map(at), [150e6, 75e6, 75e6].map(WriteRate::Limited));
        // One compaction pass over an entry of the paper's size takes 6.75 us at its speed; the paper uses 6 us.
        let one_pass = 1024.0 / (4096.0 / 27e-6);
        assert!((one_pass - 6.75e-6f64).abs() < 1e-12);
    }
}
