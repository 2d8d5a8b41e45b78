//! A write throttle: a rate, and a token bucket that writes pay their bytes into.
//!
//! A write passes at once unless the rate is limited. Otherwise it pays, and sleeps until its bytes are covered. A
//! write rate limit (`Pace`) of a policy gives the rate for a number of runs: from which run count on writers are
//! slowed, and at which they stop. `ops/admission.rs` has the waits of writers.
//!
//! What the payers owe is a time, found from the rate when they paid. A lower rate later does not extend it: the bytes
//! passed at the rate of then. A higher rate shortens it, as it shortens the sleeps of the payers ([`owed`]). Without a
//! rate nothing is owed.

use drumlin_env::sync::Mutex;
use drumlin_env::sync::atomic::{AtomicU64, Ordering::Relaxed};
use drumlin_policy::pace::{WriteRate, write_rate};
use drumlin_types::contract::Pace;

/// Rate that means "no limit".
pub(crate) const UNLIMITED: u64 = u64::MAX;
/// Rate that means "stopped until a compaction finishes".
pub(crate) const STOPPED: u64 = 0;
/// Capacity of the bucket in microseconds: it holds the bytes that the rate admits in that time.
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
    /// Microseconds until the bytes that were paid for are covered. If negative, as much time was saved.
    debt: f64,
    /// Bytes that are not covered. Divided by the debt, they give the highest rate since they were paid for, or a mean
    /// of such rates.
    bytes: f64,
    /// Time of the last change, in monotonic microseconds.
    at: u64,
}

impl Bucket {
    /// Credits the time up to `now`.
    fn earn(&mut self, now: u64) {
        let debt = (self.debt - now.saturating_sub(self.at) as f64).max(-BUCKET_MICROS);
        self.bytes *= if debt > 0.0 { debt / self.debt } else { 0.0 };
        self.debt = debt;
        // Writers may get here in another order than they read the clock.
        self.at = self.at.max(now);
    }

    /// Takes the bytes of a write that lasts `micros`, or puts them back if they are negative.
    fn take(&mut self, bytes: f64, micros: f64) {
        self.bytes = (self.bytes + bytes).max(0.0);
        self.debt += micros;
    }

    /// Bounds the debt by the time that its bytes take at `rate`.
    fn bound(&mut self, rate: u64) {
        self.debt = self.debt.min(micros_of(self.bytes, rate).unwrap_or(0.0));
    }
}

/// Returns the microseconds that `bytes` take at `rate`; `None` if that is unlimited or a stop.
fn micros_of(bytes: f64, rate: u64) -> Option<f64> {
    (rate != UNLIMITED && rate != STOPPED).then(|| bytes * 1e6 / rate as f64)
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
        if rate == self.rate() {
            return;
        }
        let mut bucket = self.bucket.lock();
        bucket.bound(rate);
        self.rate.store(rate, Relaxed);
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

    /// Puts back the bytes that were paid at `rate` for a write that was not made.
    pub(crate) fn refund(&self, bytes: u64, rate: u64) {
        let mut bucket = self.bucket.lock();
        // Nothing is owed any more once there was no limit. A higher limit has shortened what is owed.
        let highest = if bucket.debt > 0.0 { rate.max(self.rate()) } else { UNLIMITED };
        if let Some(micros) = micros_of(bytes as f64, highest) {
            bucket.take(-(bytes as f64), -micros);
        }
    }

    /// Takes `bytes` from the bucket. Returns the microseconds to sleep before going on.
    pub(crate) fn pay(&self, bytes: u64, now: u64) -> u64 {
        let micros = || micros_of(bytes as f64, self.rate());
        // Writers without a limit share no lock.
        if micros().is_none() {
            return 0;
        }
        let mut bucket = self.bucket.lock();
        // The rate changes under this lock.
        let Some(micros) = micros() else { return 0 };
        bucket.earn(now);
        let debt = bucket.debt.max(0.0);
        bucket.take(bytes as f64, micros);
        debt as u64
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
        gate.refund(10_000, 1_000_000);
        assert_eq!(pay(1_005_000), 24_750);
    }

    #[test]
    fn debt_is_a_time_at_a_lower_rate() {
        let gate = Gate::new();
        let pay = |bytes: u64| gate.pay(bytes, 1_000_000);
        gate.set_rate(100_000_000);
        assert_eq!(pay(64_000_000), 0);
        let owed = pay(0);
        assert_eq!(owed, 639_750, "0.64 seconds, and a full bucket");
        gate.set_rate(1_000_000);
        assert_eq!(pay(100), owed, "the bytes passed at the rate of then");
        assert_eq!(pay(0), owed + 100, "but those of now at the rate of now");
        gate.refund(64_000_000, 100_000_000);
        assert_eq!(pay(0), 0, "a full bucket covers the other 100");
    }

    #[test]
    fn debt_shrinks_at_a_higher_rate_and_never_twice() {
        let gate = Gate::new();
        let pay = |bytes: u64| gate.pay(bytes, 1_000_000);
        gate.set_rate(1_000_000);
        assert_eq!([pay(64_000_000), pay(0)], [0, 63_999_750]);
        gate.set_rate(100_000_000);
        assert_eq!(pay(0), 640_000);
        for _ in 0..10 {
            [50_000_000, 1_000_000, 100_000_000].into_iter().for_each(|rate| gate.set_rate(rate));
        }
        assert_eq!(pay(0), 640_000, "a rate that comes and goes forgives nothing");
        assert_eq!(gate.pay(0, 1_320_000), 320_000);
        gate.set_rate(200_000_000);
        assert_eq!(gate.pay(0, 1_320_000), 160_000, "a half is paid off");
    }

    #[test]
    fn nothing_is_owed_where_no_rate_is() {
        for none in [UNLIMITED, STOPPED] {
            let gate = Gate::new();
            let pay = |bytes: u64, now: u64| gate.pay(bytes, now);
            gate.set_rate(100_000_000);
            assert_eq!([pay(64_000_000, 1_000_000), pay(0, 1_000_000)], [0, 639_750]);
            gate.set_rate(none);
            assert_eq!(pay(1000, 1_000_000), 0);
            gate.set_rate(1_000_000);
            assert_eq!([pay(0, 1_000_000), pay(1000, 1_001_000), pay(0, 1_001_000)], [0, 0, 750]);
        }
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
