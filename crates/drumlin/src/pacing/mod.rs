//! Admission of writers: never by surprise, never by a spin loop.
//!
//! A writer passes at once unless the gate is narrowed. Memory is a hard limit: when the memtables are
//! full, writers wait for a flush. Runs are the policy's: its pace says from which run count writers
//! slow down, and at which they wait (arce.md 3.5). A slowed writer pays its bytes into a token bucket
//! and sleeps once, in turn. Every wait is counted by reason.

use drumlin_env::sync::Mutex;
use drumlin_env::sync::atomic::{AtomicU64, Ordering::Relaxed};
use drumlin_types::contract::Pace;

/// Why a writer waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StallReason {
    /// Too many runs await merging.
    Runs,
    /// The memtables are full.
    Memory,
}

/// Rate that means "no limit".
pub(crate) const OPEN: u64 = u64::MAX;
/// Rate that means "wait for a merge".
pub(crate) const SHUT: u64 = 0;
/// Bucket capacity in microseconds of rate.
const BUCKET_MICROS: f64 = 250.0;
/// Drain assumed before any merge was measured, bytes per second.
const DRAIN_GUESS: f64 = 100e6;
/// Writers slow to no less than this share of the drain before they wait.
const LEAST_SHARE: f64 = 1.0 / 64.0;
/// Runs above the safety mark at which writers wait.
const STOP_SLACK: f64 = 8.0;

/// The bytes per second that `pace` admits at `runs` runs, for a merge slot speed in bytes per second.
pub(crate) fn rate(pace: &Pace, runs: f64, slot_speed: f64) -> u64 {
    if pace.hard_stop && runs >= pace.stop {
        return SHUT;
    }
    if runs >= pace.stop + STOP_SLACK {
        return SHUT;
    }
    let drain = if pace.drain > 0.0 { pace.drain } else { DRAIN_GUESS };
    let mut rate = f64::INFINITY;
    if runs > pace.slow {
        let passes = pace.passes.max(0.1);
        rate = slot_speed.max(1e6) / (passes * (runs - pace.slow).min(1.0));
    }
    if runs > 0.75 * pace.stop {
        let safe = (drain * 4.0 * (pace.stop - runs) / pace.stop).max(drain * LEAST_SHARE);
        rate = rate.min(safe);
    }
    if rate.is_finite() { (rate as u64).max(1) } else { OPEN }
}

#[derive(Default)]
struct Bucket {
    /// Bytes that may pass; negative is debt.
    balance: f64,
    /// Monotonic microseconds at the last change.
    at: u64,
}

/// The gate that writers pass.
pub(crate) struct Gate {
    rate: AtomicU64,
    bucket: Mutex<Bucket>,
}

impl Gate {
    pub(crate) fn new() -> Gate {
        Gate { rate: AtomicU64::new(OPEN), bucket: Mutex::new(Bucket::default()) }
    }

    pub(crate) fn set_rate(&self, rate: u64) {
        self.rate.store(rate, Relaxed);
    }

    pub(crate) fn rate(&self) -> u64 {
        self.rate.load(Relaxed)
    }

    /// Takes `bytes` from the bucket and gives the microseconds to sleep before going on.
    pub(crate) fn pay(&self, bytes: u64, now: u64) -> u64 {
        let rate = self.rate();
        if rate == OPEN || rate == SHUT {
            return 0;
        }
        let per_micro = rate as f64 / 1e6;
        let mut bucket = self.bucket.lock();
        let earned = now.saturating_sub(bucket.at) as f64 * per_micro;
        bucket.balance = (bucket.balance + earned).min(BUCKET_MICROS * per_micro);
        bucket.at = now;
        let debt = -bucket.balance.min(0.0);
        bucket.balance -= bytes as f64;
        (debt / per_micro) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_types::contract::PaceScope;

    fn pace(slow: f64, stop: f64, drain: f64) -> Pace {
        Pace { scope: PaceScope::All, slow, stop, passes: 2.0, drain, hard_stop: false }
    }

    #[test]
    fn the_safety_mark_narrows_evenly() {
        let pace = pace(f64::INFINITY, 64.0, 100e6);
        let at = |runs| rate(&pace, runs, 150e6);
        assert_eq!(at(48.0), OPEN);
        assert_eq!([at(52.0), at(56.0), at(60.0), at(63.0)], [75_000_000, 50_000_000, 25_000_000, 6_250_000]);
        assert_eq!(at(64.0), 1_562_500);
        assert_eq!(at(72.0), SHUT);
    }

    #[test]
    fn slowing_has_no_step_above_its_first_run() {
        let pace = pace(8.0, 64.0, 100e6);
        assert_eq!(rate(&pace, 8.0, 150e6), OPEN);
        assert_eq!(rate(&pace, 8.5, 150e6), 150_000_000);
        assert_eq!(rate(&pace, 9.0, 150e6), 75_000_000);
        assert_eq!(rate(&pace, 20.0, 150e6), 75_000_000);
    }

    #[test]
    fn a_thousand_writes_take_the_time_their_bytes_take() {
        let gate = Gate::new();
        gate.set_rate(1_000_000);
        let mut now = 1_000_000;
        let start = now;
        for _ in 0..1000 {
            now += gate.pay(1000, now);
        }
        let entered_last = now - start;
        assert!((998_000..=999_500).contains(&entered_last), "{entered_last}");
    }
}
