//! DumpKV's own scheme (Zhuang, Zeng and Chen, PVLDB 18(4), 2024), to compare the scheme of this store with.
//!
//! A value file gets a time to live when it is created, and is collected when that has passed. Flushed values go to
//! files of one class; collection divides what it copies into values with short and with long lifetimes. The time to
//! live of a class is a percentile of the lifetimes seen so far. It depends on the live share v of the files of the
//! class that were collected: v = 1 - R, where R is the decayed share of garbage. With s(x) = 1 / (1 + e^-x):
//!
//! ```text
//! class     lifetimes                 percentile
//! flushed   completed                 50 + 20 s(10 (v - 0.75))
//! short     completed                 60 s(10 (v - 0.25)) + 40 s(10 (v - 0.75))
//! long      completed and censored    80 s(10 (v - 0.25)) + 20 s(10 (v - 0.75)), at least as long as short
//! ```
//!
//! The constants of the first line are not in the paper but in its code. A lifetime is *censored* if its value still
//! lives: only its age is known. Such lifetimes count by the estimator of Kaplan and Meier (1958).

use super::histogram::{BUCKETS, Histogram, upper_edge};
use crate::real::exp;

/// Share of the sums of garbage and input that is left when another collection is added.
const GARBAGE_DECAY: f64 = 0.75;
/// A value whose key has more past writes than this goes to the short class.
const FEW_WRITES: u64 = 2;

/// Ages of living values: their number per bucket of a [`Histogram`].
pub type Ages = [u64; BUCKETS];

/// Class of a value file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FileClass {
    /// Flushed values.
    #[default]
    Flushed,
    /// Copied values that are expected to live for a short time.
    Short,
    /// All other copied values.
    Long,
}

/// Decayed share of garbage in collected files.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Garbage {
    dead: f64,
    all: f64,
}

impl Garbage {
    fn add(&mut self, dead: u64, all: u64) {
        self.dead = GARBAGE_DECAY * self.dead + dead as f64;
        self.all = GARBAGE_DECAY * self.all + all as f64;
    }

    fn share(&self) -> f64 {
        if self.all > 0.0 { self.dead / self.all } else { 0.0 }
    }
}

/// Times to live of value files, by class.
#[derive(Clone, Debug)]
pub struct TimesToLive {
    factor: f64,
    completed: Histogram,
    garbage: [Garbage; 3],
}

impl TimesToLive {
    /// Creates a scheme that has seen nothing. All times to live are multiplied by `factor`; DumpKV has 1.
    #[must_use]
    pub fn new(factor: f64) -> TimesToLive {
        TimesToLive { factor, completed: Histogram::default(), garbage: Default::default() }
    }

    /// Notes that a value was overwritten or deleted `lifetime` after it was written.
    pub fn completed(&mut self, lifetime: u64) {
        self.completed.add(lifetime as f64, 1);
    }

    /// Notes that files of `class` with `all` bytes were collected, `dead` of them garbage.
    pub fn collected(&mut self, class: FileClass, dead: u64, all: u64) {
        self.garbage[class as usize].add(dead, all);
    }

    /// Returns the time to live of a file of `class`, in writes. `ages` are those of all living values. Until a
    /// lifetime is known, the number of all writes, `now`, takes the place of the percentile.
    #[must_use]
    pub fn time_to_live(&self, class: FileClass, ages: &Ages, now: u64) -> f64 {
        let at = percentile(class, self.garbage[class as usize].share()) / 100.0;
        let known = match class {
            FileClass::Flushed | FileClass::Short => self.completed.quantile(at),
            FileClass::Long => {
                let short = self.time_to_live(FileClass::Short, ages, now);
                quantile(&self.completed, ages, at).map(|long| long.max(short / self.factor))
            }
        };
        self.factor * known.unwrap_or(now as f64)
    }

    /// Returns the class of a value that is copied, by its write count: the number of past writes, the `last` interval
    /// between two of them and the `mean` one, if there are any.
    #[must_use]
    pub fn by_write_count(&self, writes: u64, last: Option<f64>, mean: Option<f64>, now: u64) -> FileClass {
        let short = self.time_to_live(FileClass::Short, &[0; BUCKETS], now);
        let is_short = |interval: Option<f64>| interval.is_some_and(|interval| interval < short);
        match writes > FEW_WRITES || is_short(last) || is_short(mean) {
            true => FileClass::Short,
            false => FileClass::Long,
        }
    }

    /// Returns the class of a value that is copied, by its predicted lifetime.
    #[must_use]
    pub fn by_lifetime(&self, lifetime: f64, now: u64) -> FileClass {
        let short = self.time_to_live(FileClass::Short, &[0; BUCKETS], now);
        if lifetime > short { FileClass::Long } else { FileClass::Short }
    }
}

/// Returns the percentile of lifetimes that is the time to live of a class whose files had this share of garbage.
#[must_use]
pub fn percentile(class: FileClass, garbage: f64) -> f64 {
    let rise = |from: f64| 1.0 / (1.0 + exp(-10.0 * (1.0 - garbage - from)));
    match class {
        FileClass::Flushed => 50.0 + 20.0 * rise(0.75),
        FileClass::Short => 60.0 * rise(0.25) + 40.0 * rise(0.75),
        FileClass::Long => 80.0 * rise(0.25) + 20.0 * rise(0.75),
    }
}

/// Returns the share of values that outlive each bucket, given the completed and the censored lifetimes per bucket.
pub fn survival(completed: &[u32], censored: &[u64]) -> impl Iterator<Item = f64> {
    let ended: u64 = completed.iter().map(|weight| u64::from(*weight)).sum();
    let mut at_risk = ended + censored.iter().sum::<u64>();
    let mut left = 1.0;
    completed.iter().zip(censored).map(move |(ended, censored)| {
        if at_risk > 0 {
            left *= 1.0 - f64::from(*ended) / at_risk as f64;
        }
        at_risk -= u64::from(*ended) + censored;
        left
    })
}

/// Returns the upper edge of the bucket by which `share` of all lifetimes has ended; the last one if fewer ever do.
fn quantile(completed: &Histogram, ages: &Ages, share: f64) -> Option<f64> {
    if completed.sum() == 0 {
        return None;
    }
    let bucket = survival(completed.weights(), ages).position(|left| 1.0 - left >= share);
    let is_used = |bucket: &usize| completed.weights()[*bucket] > 0 || ages[*bucket] > 0;
    let longest = || (0..BUCKETS).rev().find(is_used);
    Some(upper_edge(bucket.or_else(longest).unwrap_or(BUCKETS - 1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifetime::histogram::bucket;
    use alloc::vec::Vec;

    #[test]
    fn percentiles_by_garbage() {
        let of = |garbage| {
            [FileClass::Short, FileClass::Long, FileClass::Flushed].map(|class| percentile(class, garbage))
        };
        for (garbage, expected) in [
            (0.0, [96.933, 98.439, 68.483]),
            (0.25, [79.598, 89.465, 60.0]),
            (0.5, [58.483, 75.449, 51.517]),
            (0.75, [30.268, 40.134, 50.134]),
            (1.0, [4.574, 6.080, 50.011]),
        ] {
            for (found, expected) in of(garbage).into_iter().zip(expected) {
                assert!((found - expected).abs() < 6e-4, "{garbage}: {found} is not {expected}");
            }
        }
    }

    #[test]
    fn garbage_fades() {
        let mut garbage = Garbage::default();
        for (dead, share) in [(60, 0.9375), (10, 0.491_071), (32, 0.494_932)] {
            garbage.add(dead, 64);
            assert!((garbage.share() - share).abs() < 1e-6, "{} is not {share}", garbage.share());
        }
    }

    #[test]
    fn censored_lifetimes_count_up_to_their_age() {
        let left: Vec<f64> = survival(&[4, 6, 5, 0], &[0, 2, 3, 10]).collect();
        for (found, expected) in left.iter().zip([0.866_667, 0.666_667, 0.481_481, 0.481_481]) {
            assert!((found - expected).abs() < 1e-6, "{found} is not {expected}");
        }
    }

    #[test]
    fn times_to_live() {
        let mut times = TimesToLive::new(1.0);
        let none = [0; BUCKETS];
        assert_eq!(times.time_to_live(FileClass::Long, &none, 70), 70.0);
        (1..=1000).for_each(|lifetime| times.completed(lifetime));
        let short = times.time_to_live(FileClass::Short, &none, 0);
        assert!((900.0..1100.0).contains(&short), "without garbage, nearly all lifetimes: {short}");
        times.collected(FileClass::Short, 100, 100);
        let short = times.time_to_live(FileClass::Short, &none, 0);
        assert!((40.0..60.0).contains(&short), "with garbage alone, 5 %: {short}");
        let mut living = none;
        living[bucket(100_000.0)] = 5000;
        let long = |ages| times.time_to_live(FileClass::Long, ages, 0);
        assert!(long(&none) < 1100.0 && long(&living) > 90_000.0, "{} {}", long(&none), long(&living));
        assert_eq!(times.by_write_count(3, None, None, 0), FileClass::Short);
        assert_eq!(times.by_write_count(1, Some(500.0), Some(500.0), 0), FileClass::Long);
        assert_eq!(times.by_write_count(1, Some(20.0), Some(500.0), 0), FileClass::Short);
        assert_eq!(
            [times.by_lifetime(20.0, 0), times.by_lifetime(2000.0, 0)],
            [FileClass::Short, FileClass::Long]
        );
    }
}
