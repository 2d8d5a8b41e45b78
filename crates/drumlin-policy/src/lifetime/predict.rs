//! The predicted remaining lifetime of a value, and the class that it is written to.
//!
//! The prediction is the mean interval between the writes of the key, with one typical interval added:
//!
//! ```text
//! I = (age + span + l0) / (m + 1)
//! ```
//!
//! `age` is the time since the newest write, `span` the time between the newest m + 1 writes (m <= 8), and l0 the 60th
//! percentile of completed lifetimes. I is the posterior mean of the mean interval, if intervals are exponential and
//! the prior of their mean is inverse gamma with shape 2 and scale l0. A flushed key of which nothing is known is
//! expected to live longest.
//!
//! Where lifetimes have structure that the mean interval does not see, a model predicts better ([`super::learner`]).
//! Whichever has the smaller error places values.
//!
//! Classes are quantiles of the recent predictions by bytes, so they follow the load, and need no bounds. Keys of which
//! nothing is known go to the last class, however many they are.

use super::features;
use super::histogram::Histogram;
use super::history::Version;
use super::learner::{Expected, Learner};
use super::recent::Seen;
use super::trees::Row;
use drumlin_types::Seq;
use drumlin_types::history::KEPT_GAPS;

/// Number of classes. Class 0 has the values that are expected to live shortest.
pub const CLASSES: usize = 6;
/// Share of completed lifetimes that l0 covers.
const TYPICAL: f64 = 0.6;
/// Number of completed lifetimes from which l0 is their percentile.
const ENOUGH: u64 = 1000;
/// Bytes that count as a weight of one in the histogram of predictions.
const WEIGHT_BYTES: u64 = 1 << 10;

/// Returns the expected remaining lifetime of a value that was written `age` ago: `writes` past writes of its key lie
/// in the `span` before that.
#[must_use]
pub fn expected_lifetime(age: f64, span: f64, writes: u64, typical: f64) -> f64 {
    (age + span + typical) / (writes as f64 + 1.0)
}

/// The key that a value belongs to, and the size of the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyOf {
    /// Hash of the key.
    pub hash: u64,
    /// Bytes of the value before compression.
    pub bytes: u64,
}

/// Predicts lifetimes and chooses classes for the values of one keyspace.
#[derive(Clone, Debug)]
pub struct Placer {
    /// Lifetimes of the values that were overwritten or deleted.
    completed: Histogram,
    /// Recent predictions by bytes.
    predicted: Histogram,
    /// What a model learns from watched keys.
    pub learner: Learner,
}

impl Placer {
    /// Creates a placer that watches at most `most_watched` keys.
    #[must_use]
    pub fn new(most_watched: usize) -> Placer {
        let (completed, predicted) = (Histogram::default(), Histogram::default());
        Placer { completed, predicted, learner: Learner::new(most_watched) }
    }

    /// Returns the histograms of completed lifetimes and of predictions.
    pub(super) fn histograms(&self) -> (&Histogram, &Histogram) {
        (&self.completed, &self.predicted)
    }

    /// Restores a saved placer from `bytes`, which do not have the prefix of versions.
    pub(super) fn restored_body(most_watched: usize, mut bytes: &[u8]) -> Option<Placer> {
        let (completed, predicted) = (Histogram::restore(&mut bytes)?, Histogram::restore(&mut bytes)?);
        Some(Placer { completed, predicted, learner: Learner::restore(most_watched, bytes)? })
    }

    /// Notes that a value was overwritten or deleted `lifetime` after it was written.
    pub fn completed(&mut self, lifetime: Seq) {
        self.completed.add(lifetime as f64, 1);
    }

    /// Returns l0, the lifetime of a typical value. Until enough lifetimes are known it is `now`, the number of all
    /// writes.
    #[must_use]
    pub fn typical(&self, now: Seq) -> f64 {
        let known = (self.completed.sum() >= ENOUGH).then(|| self.completed.quantile(TYPICAL));
        known.flatten().unwrap_or(now as f64).max(1.0)
    }

    /// Returns what is expected of a value that is flushed, written at `seq`. `before` is the earlier entry of its
    /// key in the table of recent writes.
    #[must_use]
    pub fn at_flush(&self, key: KeyOf, seq: Seq, before: Option<Seen>, typical: f64) -> Expected {
        let by_rule = match before {
            None => f64::INFINITY,
            Some(Seen { first, last, writes }) => {
                // The writes before, and the interval to this one.
                let kept = writes.min(KEPT_GAPS as u64);
                let span = seq.max(last).saturating_sub(first) as f64 * kept as f64 / writes as f64;
                expected_lifetime(0.0, span, kept, typical)
            }
        };
        self.expected(key, by_rule, || features::at_flush(seq, before, key.bytes, by_rule))
    }

    /// Returns what is expected of a value that is copied at `now`, by the history of its key.
    #[must_use]
    pub fn at_copy(&self, key: KeyOf, version: Version<'_>, now: Seq, typical: f64) -> Expected {
        let (span, kept) = version.history.map_or((0, 0), |history| {
            let kept = history.kept();
            (history.gaps[..kept].iter().fold(0u64, |sum, gap| sum.saturating_add(*gap)), kept)
        });
        let age = now.saturating_sub(version.seq) as f64;
        let by_rule = expected_lifetime(age, span as f64, kept as u64, typical);
        self.expected(key, by_rule, || features::at_copy(version, now, key.bytes, by_rule))
    }

    fn expected(&self, key: KeyOf, by_rule: f64, row: impl FnOnce() -> Row) -> Expected {
        if !self.learner.needs_row(key.hash) {
            return Expected { row: Row::default(), by_rule, by_model: None };
        }
        let row = row();
        Expected { row, by_rule, by_model: self.learner.by_model(&row) }
    }

    /// Notes that a value of `bytes` bytes was written with this expectation.
    pub fn predicted(&mut self, expected: &Expected, bytes: u64) {
        self.predicted.add(self.learner.lifetime(expected), (bytes / WEIGHT_BYTES).max(1));
    }

    /// Returns the class of a value with this expectation, of `classes` ones.
    #[must_use]
    pub fn class(&self, expected: &Expected, classes: usize) -> usize {
        let lifetime = self.learner.lifetime(expected);
        let last = classes.saturating_sub(1);
        if lifetime.is_infinite() {
            return last;
        }
        ((self.predicted.rank(lifetime) * classes as f64) as usize).min(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifetime::trees::FEATURES;
    use drumlin_types::history::History;

    #[test]
    fn the_mean_interval() {
        let history = History { writes: 3, gaps: [600, 700, 200, 0, 0, 0, 0, 0], ..History::default() };
        let placer = Placer::new(0);
        let key = KeyOf { hash: 1, bytes: 4096 };
        let copied = |history, now| placer.at_copy(key, Version { seq: 1600, history }, now, 5000.0).by_rule;
        assert_eq!((copied(Some(&history), 2000), copied(None, 2000)), (1725.0, 5400.0));
        let flushed = |seq, before, typical| placer.at_flush(key, seq, before, typical).by_rule;
        let seen = Seen { first: 1000, last: 1300, writes: 4 };
        assert_eq!(flushed(1400, Some(seen), 600.0), (400.0 + 600.0) / 5.0);
        let many = Seen { first: 0, last: 3100, writes: 32 };
        assert_eq!(flushed(3200, Some(many), 100.0), 100.0, "eight intervals of 100");
        assert_eq!(flushed(3200, None, 100.0), f64::INFINITY);
    }

    #[test]
    fn l0_follows_completed_lifetimes() {
        let mut placer = Placer::new(0);
        assert_eq!((placer.typical(700), placer.typical(0)), (700.0, 1.0));
        for lifetime in 0..1000 {
            placer.completed(lifetime);
        }
        let typical = placer.typical(700);
        assert!((600.0..725.0).contains(&typical), "{typical}");
    }

    #[test]
    fn classes_get_equal_shares() {
        let mut placer = Placer::new(0);
        let expected = |lifetime| Expected { row: [0; FEATURES], by_rule: lifetime, by_model: None };
        let mut bytes = [0u64; CLASSES];
        for round in 0..4000u64 {
            let value = expected(1.5f64.powi((round % 24) as i32));
            placer.predicted(&value, 4096);
            if round >= 400 {
                bytes[placer.class(&value, CLASSES)] += 4096;
            }
        }
        let all: u64 = bytes.iter().sum();
        for part in bytes {
            assert!((0.1..0.25).contains(&(part as f64 / all as f64)), "{bytes:?}");
        }
        assert_eq!(placer.class(&expected(f64::INFINITY), CLASSES), 5);
        assert_eq!((placer.class(&expected(1.0), CLASSES), placer.class(&expected(1.0), 1)), (0, 0));
    }
}
