//! Learns lifetimes: samples the values of some keys, labels the samples with true lifetimes, and decides whether the
//! model or the rule places values.
//!
//! A *watched* key is one whose hash is at most a threshold. The threshold falls when too many keys are watched and
//! rises when there are few. When the newest value of a watched key is placed, its features and both predictions
//! become a sample. The next large value or tombstone of the key that a flush meets gives the label
//!
//! ```text
//! y = log2(1 + min(remaining lifetime, H))        H = 16 l0, within 2^10 and 2^26
//! ```
//!
//! If none comes, the sample gets the label of lifetime H at its deadline, H after it was placed. So values that live
//! for very long give labels too, and no label is a guess. Small values, merge operands, values that expire and range
//! tombstones are not seen.
//!
//! After 8,192 new labels the model is trained anew on the newest rows, up to 32,768. Model and rule are judged by
//! their mean error |y - prediction| over recent labels; the better one places values. They are compared after every
//! 4,096 labels that both predicted. The other one takes over if its error is at least 5 % smaller.

use super::bytes::take;
use super::trees::{Labelled, Row, Training, Trees};
use crate::real::{exp, ln};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::fmt;
use drumlin_types::Seq;

/// Labels after which the trees are trained anew.
const LABELS_PER_TRAINING: usize = 8192;
/// Rows that a training uses: four for each key that may be watched, within these bounds.
const LEAST_ROWS: usize = 1024;
const MOST_ROWS: usize = 32_768;
/// Labels that the mean errors cover.
const JUDGED: usize = 8192;
/// Labels that both predicted after which model and rule are compared.
const LABELS_PER_SWITCH: usize = 4096;
/// A predictor takes over if its error is at most this share of the other's.
const ADVANTAGE: f64 = 0.95;
/// Largest number of samples of one key that wait for a label.
const MOST_SAMPLES: usize = 4;
/// The threshold rises while fewer keys are watched than the allowed number divided by this.
const FEW_WATCHED: usize = 4;
/// H in units of l0, and its bounds.
const HORIZON: f64 = 16.0;
const LEAST_HORIZON: f64 = 1024.0;
const MOST_HORIZON: f64 = 67_108_864.0;

fn log2_1(x: f64) -> f64 {
    ln(1.0 + x) / core::f64::consts::LN_2
}

/// Which predictor places values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Predictor {
    /// The mean interval.
    #[default]
    Rule,
    /// The trained model.
    Model,
}

/// A prediction for one value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Expected {
    /// Features of the value.
    pub row: Row,
    /// Remaining lifetime by the rule; may be infinite.
    pub by_rule: f64,
    /// Remaining lifetime by the model, if there is one.
    pub by_model: Option<f64>,
}

/// A sample that waits for its label.
#[derive(Clone, Copy, Debug)]
struct Sample {
    row: Row,
    /// Sequence number of the value.
    seq: Seq,
    placed: Seq,
    horizon: f64,
    /// Predicted labels of rule and model.
    predicted: [Option<f32>; 2],
}

impl Sample {
    fn deadline(&self) -> Seq {
        self.placed.saturating_add(self.horizon as u64)
    }
}

/// The state of a learner, for explanations.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Learned {
    /// Number of completed trainings.
    pub trainings: u64,
    /// Number of labels so far.
    pub labels: u64,
    /// Mean errors of rule and model, in doublings, over the newest 8,192 labels that both predicted.
    pub errors: [Option<f64>; 2],
    /// Which predictor places values.
    pub predictor: Predictor,
}

impl fmt::Display for Learned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = match self.predictor {
            Predictor::Rule => "the mean interval of a key",
            Predictor::Model => "the model",
        };
        write!(f, "{} labels, {} trainings; values are placed by {by}", self.labels, self.trainings)?;
        if let [Some(rule), Some(model)] = self.errors {
            write!(f, "; mean error in doublings: mean interval {rule:.2}, model {model:.2}")?;
        }
        Ok(())
    }
}

/// Samples, labels and trees of one keyspace.
#[derive(Clone, Debug)]
pub struct Learner {
    watched: BTreeMap<u64, Vec<Sample>>,
    /// Deadline and hash of each sample that waits.
    deadlines: BTreeSet<(Seq, u64)>,
    /// Keys whose hash is at most this are watched.
    threshold: u64,
    most_watched: usize,
    most_rows: usize,
    rows: VecDeque<Labelled>,
    /// Labels since the last training.
    fresh: usize,
    /// Errors of rule and model for the newest labels that both predicted, and their sums.
    errors: VecDeque<[f32; 2]>,
    error_sums: [f64; 2],
    since_switch: usize,
    trees: Option<Trees>,
    learned: Learned,
}

impl Learner {
    /// Creates a learner that watches at most `most_watched` keys.
    #[must_use]
    pub fn new(most_watched: usize) -> Learner {
        Learner {
            watched: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            threshold: u64::MAX,
            most_watched,
            most_rows: (4 * most_watched).clamp(LEAST_ROWS, MOST_ROWS),
            rows: VecDeque::new(),
            fresh: 0,
            errors: VecDeque::new(),
            error_sums: [0.0; 2],
            since_switch: 0,
            trees: None,
            learned: Learned::default(),
        }
    }

    /// Returns the bytes of memory that a learner takes at most, its trainings included.
    #[must_use]
    pub fn most_bytes(most_watched: usize) -> usize {
        if most_watched == 0 {
            return 0;
        }
        // Lists have room for four samples, and maps and sets are half full at worst.
        let key = MOST_SAMPLES * size_of::<Sample>() + 2 * size_of::<(u64, Vec<Sample>)>();
        let watched = most_watched * (key + 2 * MOST_SAMPLES * size_of::<(Seq, u64)>());
        // The rows, those of a training with their residuals and order, and a deque's spare capacity.
        let row = 3 * size_of::<Labelled>() + size_of::<f64>() + 2 * size_of::<u32>();
        let rows = (4 * most_watched).clamp(LEAST_ROWS, MOST_ROWS) * row;
        watched + rows + 2 * JUDGED * size_of::<[f32; 2]>()
    }

    /// Returns whether samples of the key with this hash are kept.
    #[must_use]
    pub fn watches(&self, hash: u64) -> bool {
        self.most_watched > 0 && hash <= self.threshold
    }

    /// Returns whether the features of a value of the key with this hash are used: to place it, or as a sample.
    #[must_use]
    pub(super) fn needs_row(&self, hash: u64) -> bool {
        self.learned.predictor == Predictor::Model || self.watches(hash)
    }

    /// Returns the remaining lifetime by the trees, if there are any.
    #[must_use]
    pub fn by_model(&self, row: &Row) -> Option<f64> {
        let trees = self.trees.as_ref()?;
        Some((exp(trees.predict(row) * core::f64::consts::LN_2) - 1.0).max(0.0))
    }

    /// Returns the lifetime by which a value is placed.
    #[must_use]
    pub fn lifetime(&self, expected: &Expected) -> f64 {
        match (self.learned.predictor, expected.by_model) {
            (Predictor::Model, Some(lifetime)) => lifetime,
            _ => expected.by_rule,
        }
    }

    /// Returns the state of learning.
    #[must_use]
    pub fn learned(&self) -> Learned {
        let mean = |sum: f64| (!self.errors.is_empty()).then(|| sum / self.errors.len() as f64);
        Learned { errors: self.error_sums.map(mean), ..self.learned }
    }

    /// Notes that the value `seq` of a watched key, its newest one, was placed at `now`. `typical` is l0.
    pub fn placed(&mut self, hash: u64, seq: Seq, now: Seq, expected: &Expected, typical: f64) {
        if !self.watches(hash) {
            return;
        }
        let horizon = (HORIZON * typical).clamp(LEAST_HORIZON, MOST_HORIZON);
        let label = |lifetime: f64| log2_1(lifetime.min(horizon)) as f32;
        let predicted = [Some(label(expected.by_rule)), expected.by_model.map(label)];
        let samples = self.watched.entry(hash).or_default();
        if samples.len() >= MOST_SAMPLES {
            return;
        }
        samples.push(Sample { row: expected.row, seq, placed: now, horizon, predicted });
        self.deadlines.insert((now.saturating_add(horizon as u64), hash));
        while self.watched.len() > self.most_watched {
            self.watch_fewer();
        }
    }

    fn watch_fewer(&mut self) {
        self.threshold /= 2;
        let threshold = self.threshold;
        self.watched.retain(|hash, _| *hash <= threshold);
        self.deadlines.retain(|(_, hash)| *hash <= threshold);
    }

    /// Labels the samples of the key with this hash that are older than `seq`, at which it was written or deleted. A
    /// repeated flush reports writes again, so samples of this value and of newer ones keep waiting.
    pub fn written(&mut self, hash: u64, seq: Seq) {
        if !self.watches(hash) {
            return;
        }
        for sample in self.end(hash, |sample| sample.seq < seq) {
            let lifetime = (seq.saturating_sub(sample.placed) as f64).min(sample.horizon);
            self.label(&sample, log2_1(lifetime));
        }
    }

    /// Forgets the samples of the key with this hash. Called for writes while nothing is learned.
    pub fn discard(&mut self, hash: u64) {
        if self.watches(hash) {
            self.end(hash, |_| true);
        }
    }

    /// Forgets all samples. Called when a flush does not report its writes.
    pub fn discard_all(&mut self) {
        self.watched.clear();
        self.deadlines.clear();
    }

    /// Removes and returns the samples of the key with this hash that have `ended`.
    fn end(&mut self, hash: u64, ended: impl Fn(&Sample) -> bool) -> Vec<Sample> {
        let Some(samples) = self.watched.get_mut(&hash) else { return Vec::new() };
        let removed: Vec<Sample> = samples.extract_if(.., |sample| ended(sample)).collect();
        for sample in &removed {
            self.deadlines.remove(&(sample.deadline(), hash));
        }
        if samples.is_empty() {
            self.watched.remove(&hash);
        }
        // Two samples of a key may share a deadline, whose entry is removed by now: insert it again.
        let left = self.watched.get(&hash).into_iter().flatten();
        self.deadlines.extend(left.map(|sample| (sample.deadline(), hash)));
        removed
    }

    /// Labels the samples whose deadline has passed.
    pub fn expire(&mut self, now: Seq) {
        while let Some((_, hash)) = self.deadlines.first().copied().filter(|(deadline, _)| *deadline <= now) {
            self.deadlines.pop_first();
            for sample in self.end(hash, |sample| sample.deadline() <= now) {
                self.label(&sample, log2_1(sample.horizon));
            }
        }
        if self.watched.len() < self.most_watched / FEW_WATCHED {
            self.threshold = self.threshold.saturating_mul(2).saturating_add(1);
        }
    }

    fn label(&mut self, sample: &Sample, label: f64) {
        if self.rows.len() >= self.most_rows {
            self.rows.pop_front();
        }
        self.rows.push_back(Labelled { row: sample.row, label: label as f32 });
        self.fresh += 1;
        self.learned.labels = self.learned.labels.saturating_add(1);
        let [Some(rule), Some(model)] = sample.predicted else { return };
        let error = |predicted: f32| (predicted - label as f32).abs();
        let errors = [error(rule), error(model)];
        let oldest = if self.errors.len() >= JUDGED { self.errors.pop_front() } else { None };
        self.errors.push_back(errors);
        for (index, sum) in self.error_sums.iter_mut().enumerate() {
            *sum += f64::from(errors[index]) - oldest.map_or(0.0, |oldest| f64::from(oldest[index]));
        }
        self.since_switch += 1;
        if self.since_switch >= LABELS_PER_SWITCH {
            self.judge();
        }
    }

    /// Changes the predictor if the other one is clearly better.
    fn judge(&mut self) {
        self.since_switch = 0;
        let [Some(rule), Some(model)] = self.learned().errors else { return };
        self.learned.predictor = match self.learned.predictor {
            Predictor::Rule if model <= ADVANTAGE * rule => Predictor::Model,
            Predictor::Model if rule <= ADVANTAGE * model => Predictor::Rule,
            same => same,
        };
    }

    /// Returns whether a training is due.
    #[must_use]
    pub fn is_training_due(&self) -> bool {
        self.fresh >= LABELS_PER_TRAINING
    }

    /// Begins a training if it is due.
    #[must_use]
    pub fn begin_training(&mut self) -> Option<Training> {
        self.is_training_due().then(|| {
            self.fresh = 0;
            Training::new(self.rows.iter().copied().collect())
        })
    }

    /// Appends what outlives a restart to `out`: see [`super::saved`].
    pub(super) fn save(&self, out: &mut Vec<u8>) {
        for number in [self.threshold, self.learned.trainings, self.learned.labels] {
            out.extend(number.to_le_bytes());
        }
        out.push(u8::from(self.learned.predictor == Predictor::Model));
        out.push(u8::from(self.trees.is_some()));
        self.trees.iter().for_each(|trees| trees.save(out));
    }

    /// Returns a learner that watches at most `most_watched` keys and has learned what was saved, all of `bytes`.
    pub(super) fn restore(most_watched: usize, mut bytes: &[u8]) -> Option<Learner> {
        let mut number = || Some(u64::from_le_bytes(take(&mut bytes)?));
        let [threshold, trainings, labels] = [number()?, number()?, number()?];
        let [by_model, has_trees] = take(&mut bytes)?;
        let trees = match has_trees {
            0 => None,
            1 => Some(Trees::restore(&mut bytes)?),
            _ => return None,
        };
        let predictor = match by_model {
            0 => Predictor::Rule,
            1 if trees.is_some() => Predictor::Model,
            _ => return None,
        };
        // Without watched keys nothing would judge the model.
        let (trees, predictor) = if most_watched == 0 { (None, Predictor::Rule) } else { (trees, predictor) };
        let learned = Learned { trainings, labels, errors: [None; 2], predictor };
        bytes.is_empty().then_some(Learner { threshold, trees, learned, ..Learner::new(most_watched) })
    }

    /// Takes over newly trained trees.
    pub fn trained(&mut self, trees: Trees) {
        self.trees = Some(trees);
        self.learned.trainings = self.learned.trainings.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(row: Row, by_rule: f64, learner: &Learner) -> Expected {
        Expected { row, by_rule, by_model: learner.by_model(&row) }
    }

    #[test]
    fn labels_are_exact_lifetimes_up_to_the_horizon() {
        let mut learner = Learner::new(10);
        let known = expected(Row::default(), 50.0, &learner);
        learner.placed(1, 100, 100, &known, 100.0);
        learner.placed(2, 100, 100, &known, 100.0);
        learner.placed(3, 120, 120, &known, 100.0);
        learner.written(1, 100);
        learner.written(1, 50);
        assert_eq!(learner.learned().labels, 0, "the value itself, met again, and an older one");
        learner.written(1, 163);
        learner.expire(1699);
        assert_eq!(learner.learned().labels, 1);
        learner.expire(1700);
        learner.expire(1720);
        let labels: Vec<f32> = learner.rows.iter().map(|row| row.label).collect();
        assert_eq!(labels[0], 6.0, "63 writes");
        assert!(labels[1..].iter().all(|label| (label - 10.644_757).abs() < 1e-5), "1600 writes: {labels:?}");
        learner.written(2, 5000);
        assert_eq!(learner.learned().labels, 3, "each sample has one label");
    }

    #[test]
    fn the_number_of_watched_keys_is_bounded() {
        let mut learner = Learner::new(100);
        let known = expected(Row::default(), 50.0, &learner);
        for key in 0..10_000u64 {
            learner.placed(key.wrapping_mul(0x9e37_79b9_7f4a_7c15), key, key, &known, 100.0);
            assert!(learner.watched.len() <= 100 && learner.deadlines.len() == learner.watched.len());
        }
        assert!(learner.watched.len() > 20, "{}", learner.watched.len());
        let mut nothing = Learner::new(0);
        nothing.placed(0, 1, 1, &known, 100.0);
        assert!(!nothing.watches(0) && nothing.watched.is_empty());
    }

    /// Keys that are written again leave no deadlines behind, and few watched keys raise the threshold again.
    #[test]
    fn deadlines_and_threshold_follow_the_load() {
        let mut learner = Learner::new(100);
        let known = expected(Row::default(), 50.0, &learner);
        let hash = |key: u64| key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for key in 0..10_000u64 {
            learner.placed(hash(key), 10 * key, 10 * key, &known, 1e6);
            learner.written(hash(key), 10 * key + 5);
            assert!(learner.deadlines.is_empty(), "{}", learner.deadlines.len());
        }
        assert_eq!((learner.watched.len(), learner.learned().labels), (0, 10_000));
        (0..10_000u64).for_each(|key| learner.placed(hash(key), 100_000, 100_000, &known, 100.0));
        assert!(learner.threshold < u64::MAX / 64);
        (0..64).for_each(|round| learner.expire(200_000 + round));
        assert_eq!(learner.threshold, u64::MAX);
    }

    /// Small values live for 100 writes, large ones for 10,000; the rule does not see it.
    #[test]
    fn the_model_takes_over_where_they_see_more() {
        let mut learner = Learner::new(1000);
        let mut now = 0;
        for key in 0..60_000u64 {
            now += 1;
            let is_small = key % 3 == 0;
            let row: Row = core::array::from_fn(|feature| if feature == 11 && is_small { 10 } else { 20 });
            let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            learner.placed(hash, now, now, &expected(row, 1000.0, &learner), 1000.0);
            learner.written(hash, now + if is_small { 100 } else { 10_000 });
            if let Some(mut training) = learner.begin_training() {
                let trees = (0..).find_map(|_| training.step()).expect("it ends");
                learner.trained(trees);
            }
        }
        let Learned { trainings, labels, errors, predictor } = learner.learned();
        assert_eq!((trainings, labels, predictor), (7, 60_000, Predictor::Model));
        let [rule, model] = errors.map(|error| error.expect("labels"));
        assert!(rule > 3.0 && model < 0.3, "{errors:?}");
        let small: Row = core::array::from_fn(|feature| if feature == 11 { 10 } else { 20 });
        let lifetime = learner.lifetime(&expected(small, 1000.0, &learner));
        assert!((80.0..120.0).contains(&lifetime), "{lifetime}");
    }
}
