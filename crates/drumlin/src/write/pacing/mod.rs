//! A write throttle: a rate, and a token bucket that writes pay their bytes into.
//!
//! A write passes at once unless the rate is limited. Otherwise it pays, and sleeps until its bytes are covered. The
//! rate follows from the number of runs and a policy's write rate limit (`Pace`): the run counts at which writers are
//! slowed and stopped. Writers wait in `ops/admission.rs`.

use drumlin_env::sync::Mutex;
use drumlin_env::sync::atomic::{AtomicU64, Ordering::Relaxed};
use drumlin_policy::pace::{WriteRate, write_rate};
use drumlin_types::contract::Pace;

/// Rate that means "no limit".
pub(crate) const UNLIMITED: u64 = u64::MAX;
/// Rate that means "stopped until a compaction finishes".
pub(crate) const STOPPED: u64 = 0;
/// Capacity of the bucket: the bytes that the rate admits in this many microseconds.
const BUCKET_MICROS: f64 = 250.0;
/// Shortest time in which the rate may halve, in microseconds, unless the change is urgent.
const HALVING: u64 = 100_000;

/// Returns the bytes per second that `pace` admits at `runs` runs, when all compaction slots together process `speed`
/// bytes per second.
pub(crate) fn rate(pace: &Pace, runs: f64, speed: f64) -> u64 {
    match write_rate(pace, runs, speed) {
        WriteRate::Open => UNLIMITED,
        WriteRate::Limited(rate) => (rate as u64).max(1),
        WriteRate::Shut => STOPPED,
    }
}

/// Returns the microseconds that remain of a sleep of `micros` computed at `rate`, when the rate is `now`. A higher
/// rate shortens the sleep; a lower one does not extend it.
pub(crate) fn owed(micros: u64, rate: u64, now: u64) -> u64 {
    if now <= rate { micros } else { (u128::from(micros) * u128::from(rate) / u128::from(now)) as u64 }
}

#[derive(Default)]
struct Bucket {
    /// Bytes that may pass; a negative balance is debt.
    balance: f64,
    /// Time of the last change, in monotonic microseconds.
    at: u64,
}

/// A write throttle. Writers share one, and background writes share another.
pub(crate) struct Gate {
    rate: AtomicU64,
    /// When the rate last fell, in monotonic microseconds.
    fell: AtomicU64,
    bucket: Mutex<Bucket>,
}

impl Gate {
    pub(crate) fn new() -> Gate {
        Gate {
            rate: AtomicU64::new(UNLIMITED),
            fell: AtomicU64::new(0),
            bucket: Mutex::new(Bucket::default()),
        }
    }

    /// Creates a throttle of `bytes_per_second`; 0 for no limit.
    pub(crate) fn limited(bytes_per_second: u64) -> Gate {
        let gate = Gate::new();
        gate.limit(bytes_per_second);
        gate
    }

    /// Sets the limit to `bytes_per_second`; 0 for no limit.
    pub(crate) fn limit(&self, bytes_per_second: u64) {
        self.set_rate(if bytes_per_second == 0 { UNLIMITED } else { bytes_per_second });
    }

    pub(crate) fn set_rate(&self, rate: u64) {
        let before = self.rate.swap(rate, Relaxed);
        if rate == UNLIMITED && before != UNLIMITED {
            // Sleeping writers go on, so their debt is void: at a later, lower rate it could take minutes. The rate
            // changes first, or a writer could add debt at the old one afterwards.
            let mut bucket = self.bucket.lock();
            bucket.balance = bucket.balance.max(0.0);
        }
    }

    /// Moves the rate towards `rate`. Unless the change is urgent, the rate at most halves in a tenth of a second.
    pub(crate) fn approach(&self, rate: u64, now: u64, urgent: bool) {
        let old = self.rate();
        if rate >= old || urgent || old == UNLIMITED {
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

    /// Puts back the bytes that were paid for a write that was not made.
    pub(crate) fn refund(&self, bytes: u64) {
        self.bucket.lock().balance += bytes as f64;
    }

    /// Takes `bytes` from the bucket. Returns the microseconds to sleep before going on.
    pub(crate) fn pay(&self, bytes: u64, now: u64) -> u64 {
        let rate = self.rate();
        if rate == UNLIMITED || rate == STOPPED {
            return 0;
        }
        let per_micro = rate as f64 / 1e6;
        let mut bucket = self.bucket.lock();
        let earned = now.saturating_sub(bucket.at) as f64 * per_micro;
        bucket.balance = (bucket.balance + earned).min(BUCKET_MICROS * per_micro);
        // Writers may get here in another order than they read the clock.
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
        assert_eq!([8.0, 9.0, 64.0, 72.0].map(at), [UNLIMITED, 75_000_000, 1_562_500, STOPPED]);
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
        gate.approach(STOPPED, 1_100_001, true);
        assert_eq!(gate.rate(), STOPPED);
        gate.approach(UNLIMITED, 1_100_002, false);
        assert_eq!(gate.rate(), UNLIMITED);
    }

    #[test]
    fn nothing_is_owed_after_a_time_without_a_limit() {
        let gate = Gate::new();
        gate.set_rate(100_000_000);
        assert_eq!(gate.pay(64_000_000, 1_000_000), 0);
        assert_eq!(gate.pay(0, 1_000_000), 639_750);
        gate.set_rate(UNLIMITED);
        gate.set_rate(1_000_000);
        assert_eq!(gate.pay(100, 1_050_000), 0);
        assert_eq!(gate.pay(1000, 1_050_000), 0, "250 bytes were saved");
        assert_eq!(gate.pay(0, 1_050_000), 850);
    }

    #[test]
    fn what_is_owed_takes_less_at_a_higher_rate() {
        let half_an_hour = 1_800_000_000;
        assert_eq!(owed(half_an_hour, 10_000, 10_000_000), 1_800_000);
        assert_eq!([10_000, 9_000, STOPPED].map(|now| owed(half_an_hour, 10_000, now)), [half_an_hour; 3]);
        assert_eq!(owed(u64::MAX, UNLIMITED - 1, UNLIMITED), u64::MAX - 1);
    }

    #[test]
    fn time_is_earned_once_whoever_comes_first() {
        let gate = Gate::new();
        gate.set_rate(1_000_000);
        let pay = |now: u64| gate.pay(10_000, now);
        assert_eq!(pay(1_000_000), 0);
        assert_eq!(pay(1_005_000), 4_750, "10,000 in debt, 250 saved, 5,000 credited");
        assert_eq!(pay(1_004_000), 14_750);
        assert_eq!(pay(1_005_000), 24_750, "elapsed time is credited only once");
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
