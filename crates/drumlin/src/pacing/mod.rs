//! Admission of writers: never by surprise, never by a spin loop.
//!
//! A writer passes at once unless the gate is narrowed. Memory is a hard limit: when the memtables are
//! full, writers wait for a flush. Runs are the policy's: its pace says from which run count writers
//! slow down, and at which they wait (arce.md 3.5). A slowed writer pays its bytes into a token bucket
//! and sleeps, in turn; a long sleep it breaks off now and then to see whether it may go, or has waited too long.
//! Every wait is counted by reason.

use drumlin_env::sync::Mutex;
use drumlin_env::sync::atomic::{AtomicU64, Ordering::Relaxed};
use drumlin_policy::pace::{Admission, admission};
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
/// Shortest time in which the rate may halve, microseconds, unless that is urgent.
const HALVING: u64 = 100_000;

/// The bytes per second that `pace` admits at `runs` runs, when all merge slots handle `speed`.
pub(crate) fn rate(pace: &Pace, runs: f64, speed: f64) -> u64 {
    match admission(pace, runs, speed) {
        Admission::Open => OPEN,
        Admission::Limited(rate) => (rate as u64).max(1),
        Admission::Shut => SHUT,
    }
}

/// The microseconds that are left of `micros` at `now`, of what was to be slept at `rate`: a higher one takes less.
pub(crate) fn owed(micros: u64, rate: u64, now: u64) -> u64 {
    if now <= rate { micros } else { (u128::from(micros) * u128::from(rate) / u128::from(now)) as u64 }
}

#[derive(Default)]
struct Bucket {
    /// Bytes that may pass; negative is debt.
    balance: f64,
    /// Monotonic microseconds at the last change.
    at: u64,
}

/// A gate for bytes: writers pass one, the writes of background work another.
pub(crate) struct Gate {
    rate: AtomicU64,
    /// When the rate fell last, monotonic microseconds.
    fell: AtomicU64,
    bucket: Mutex<Bucket>,
}

impl Gate {
    pub(crate) fn new() -> Gate {
        Gate { rate: AtomicU64::new(OPEN), fell: AtomicU64::new(0), bucket: Mutex::new(Bucket::default()) }
    }

    /// A gate for so many bytes per second; 0 for no limit.
    pub(crate) fn limited(bytes_per_second: u64) -> Gate {
        let gate = Gate::new();
        gate.limit(bytes_per_second);
        gate
    }

    /// Lets so many bytes pass per second; 0 for no limit.
    pub(crate) fn limit(&self, bytes_per_second: u64) {
        self.set_rate(if bytes_per_second == 0 { OPEN } else { bytes_per_second });
    }

    pub(crate) fn set_rate(&self, rate: u64) {
        self.rate.store(rate, Relaxed);
    }

    /// Moves to `rate`. Unless that is urgent it no more than halves in a tenth of a second.
    pub(crate) fn approach(&self, rate: u64, now: u64, urgent: bool) {
        let old = self.rate();
        if rate >= old || urgent || old == OPEN {
            self.set_rate(rate);
        } else if rate < old / 2 {
            if now.saturating_sub(self.fell.load(Relaxed)) >= HALVING {
                self.fell.store(now, Relaxed);
                self.set_rate((old / 2).max(1));
            }
        } else {
            self.set_rate(rate);
        }
    }

    pub(crate) fn rate(&self) -> u64 {
        self.rate.load(Relaxed)
    }

    /// Gives back what was paid for a write that was not made.
    pub(crate) fn refund(&self, bytes: u64) {
        self.bucket.lock().balance += bytes as f64;
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
        // Who came first may be here last.
        bucket.at = bucket.at.max(now);
        let debt = -bucket.balance.min(0.0);
        bucket.balance -= bytes as f64;
        (debt / per_micro) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_types::contract::PaceScope;

    #[test]
    fn rates_are_whole_bytes() {
        let pace = Pace { slow: 8.0, drain: 100e6, ..Pace::free(PaceScope::All, 64.0) };
        let at = |runs| rate(&pace, runs, 150e6);
        assert_eq!([8.0, 9.0, 64.0, 72.0].map(at), [OPEN, 75_000_000, 1_562_500, SHUT]);
    }

    #[test]
    fn rates_fall_by_halves_unless_it_is_urgent() {
        let gate = Gate::new();
        gate.approach(1000, 1_000_000, false);
        assert_eq!(gate.rate(), 1000);
        gate.approach(100, 1_000_000, false);
        assert_eq!(gate.rate(), 500);
        gate.approach(100, 1_050_000, false);
        assert_eq!(gate.rate(), 500);
        gate.approach(100, 1_100_000, false);
        assert_eq!(gate.rate(), 250);
        gate.approach(SHUT, 1_100_001, true);
        assert_eq!(gate.rate(), SHUT);
        gate.approach(OPEN, 1_100_002, false);
        assert_eq!(gate.rate(), OPEN);
    }

    #[test]
    fn what_is_owed_takes_less_at_a_higher_rate() {
        let half_an_hour = 1_800_000_000;
        assert_eq!(owed(half_an_hour, 10_000, 10_000_000), 1_800_000);
        assert_eq!([10_000, 9_000, SHUT].map(|now| owed(half_an_hour, 10_000, now)), [half_an_hour; 3]);
        assert_eq!(owed(u64::MAX, OPEN - 1, OPEN), u64::MAX - 1);
    }

    #[test]
    fn time_is_earned_once_whoever_comes_first() {
        let gate = Gate::new();
        gate.set_rate(1_000_000);
        let pay = |now: u64| gate.pay(10_000, now);
        assert_eq!(pay(1_000_000), 0);
        assert_eq!(pay(1_005_000), 4_750, "10,000 owed, 250 were saved, 5,000 earned");
        assert_eq!(pay(1_004_000), 14_750);
        assert_eq!(pay(1_005_000), 24_750, "what has passed is not earned again");
        gate.refund(10_000);
        assert_eq!(pay(1_005_000), 24_750);
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
