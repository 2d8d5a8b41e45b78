//! What a keyspace has learned about lifetimes, as bytes that a manifest keeps.
//!
//! ```text
//! saved        version u8 (1) | features u8 | bins u8 | histogram of completed lifetimes | histogram of predictions |
//!              watched hashes up to u64 | trainings u64 | labels u64 | by model u8 | trees
//! histogram    count u16 | bucket u8, weight u32 | ...       buckets increasing, weights not 0
//! trees        0 | 1, base f64, count u8 of root u16 ..., count u16 of node ...
//! node         feature u8, bin u8, left u16, value f32
//! ```
//!
//! All numbers are little-endian. Samples that wait for their labels, labelled rows and the table of recent writes are
//! not saved: after a restart a model is trained once enough new labels are there, and until then the saved one
//! predicts. Errors are not saved either, so the predictor stays until new labels judge it.
//!
//! Bytes of another version or with other features are refused, and so are bytes that no [`Placer`] has saved: a
//! prediction by any trees that were accepted ends and is a finite number.

use super::Placer;
use super::trees::{BINS, FEATURES};
use alloc::vec::Vec;

/// First byte of the encoding.
const VERSION: u8 = 1;

impl Placer {
    /// Returns what was learned, as bytes; `None` if nothing was. They take at most 20 KiB.
    #[must_use]
    pub fn save(&self) -> Option<Vec<u8>> {
        let (completed, predicted) = self.histograms();
        if completed.sum() == 0 && predicted.sum() == 0 {
            return None;
        }
        let mut out = Vec::from([VERSION, FEATURES as u8, BINS as u8]);
        completed.save(&mut out);
        predicted.save(&mut out);
        self.learner.save(&mut out);
        Some(out)
    }

    /// Returns a placer that watches at most `most_watched` keys and has learned what [`Placer::save`] returned; `None`
    /// if the bytes are of another version or damaged. Without watched keys nothing would judge a saved model, so it is
    /// left out.
    #[must_use]
    pub fn restored(most_watched: usize, saved: &[u8]) -> Option<Placer> {
        Placer::restored_body(most_watched, saved.strip_prefix(&[VERSION, FEATURES as u8, BINS as u8])?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::Version;
    use super::super::trees::Row;
    use super::super::{KeyOf, Predictor, Trees};
    use super::*;

    /// Returns a placer with a model. Small values live for 100 writes, large ones for 10,000.
    fn taught() -> Placer {
        let mut placer = Placer::new(1000);
        for key in 1..=40_000u64 {
            let is_small = key % 3 == 0;
            let bytes = if is_small { 100 } else { 100_000 };
            let of = KeyOf { hash: key.wrapping_mul(0x9e37_79b9_7f4a_7c15), bytes };
            let expected = placer.at_copy(of, Version { seq: key, history: None }, key, 1000.0);
            placer.predicted(&expected, bytes);
            placer.learner.placed(of.hash, key, key, &expected, 1000.0);
            let lifetime = if is_small { 100 } else { 10_000 };
            placer.learner.written(of.hash, key + lifetime);
            placer.completed(lifetime);
            if let Some(mut training) = placer.learner.begin_training() {
                let trees = (0..).find_map(|_| training.step()).expect("it ends");
                placer.learner.trained(trees);
            }
        }
        placer
    }

    #[test]
    fn what_was_learned_survives_its_save() {
        let taught = taught();
        assert_eq!(taught.learner.learned().predictor, Predictor::Model);
        let saved = taught.save().expect("something was learned");
        assert!(saved.len() <= 20 << 10, "{} bytes", saved.len());
        let restored = Placer::restored(1000, &saved).expect("it was saved");
        assert_eq!(restored.save().as_ref(), Some(&saved));
        let (was, is) = (taught.learner.learned(), restored.learner.learned());
        assert_eq!((was.labels, was.trainings, was.predictor), (is.labels, is.trainings, is.predictor));
        assert_eq!(restored.typical(1), taught.typical(1));
        for bytes in [100, 100_000] {
            let of = KeyOf { hash: 7, bytes };
            let class = |placer: &Placer| {
                let expected = placer.at_copy(of, Version { seq: 50_000, history: None }, 50_000, 1000.0);
                (placer.learner.lifetime(&expected), placer.class(&expected, 6))
            };
            assert_eq!(class(&restored), class(&taught), "{bytes} bytes");
        }
        assert_eq!(Placer::new(1000).save(), None);
        let unwatched = Placer::restored(0, &saved).expect("it was saved");
        assert_eq!(unwatched.learner.learned().predictor, Predictor::Rule);
        assert_eq!(unwatched.typical(1), taught.typical(1));
    }

    /// Whatever the bytes are, they are refused or give a placer that predicts: no panic, no endless walk of a tree.
    #[test]
    fn damaged_bytes_are_refused_or_harmless() {
        let saved = taught().save().expect("something was learned");
        for len in 0..saved.len() {
            assert!(Placer::restored(10, &saved[..len]).is_none(), "cut at {len}");
        }
        assert!(Placer::restored(10, &[&saved[..], &[0]].concat()).is_none(), "a byte too many");
        let trees = Placer::restored(10, &saved).expect("it was saved").learner.by_model(&Row::default());
        let mut accepted = 0;
        for at in 0..saved.len() {
            for flip in [1, 0x80, 0xff] {
                let mut damaged = saved.clone();
                damaged[at] ^= flip;
                let Some(mut placer) = Placer::restored(10, &damaged) else { continue };
                accepted += 1;
                let of = KeyOf { hash: 7, bytes: 5000 };
                let expected = placer.at_copy(of, Version { seq: 1, history: None }, 9, 10.0);
                let lifetime = placer.learner.lifetime(&expected);
                assert!(lifetime >= 0.0 && placer.class(&expected, 6) < 6, "byte {at}: {lifetime}");
                // It goes on to learn.
                placer.learner.placed(0, 9, 9, &expected, 10.0);
                placer.learner.written(0, 12);
                placer.learner.trained(Trees::default());
            }
        }
        assert!(trees.is_some());
        // Numbers at their limit do not overflow.
        let numbers =
            Placer::restored(0, &saved).expect("it was saved").save().expect("histograms").len() - 2 - 16;
        let mut largest = Placer::restored(0, &saved).expect("it was saved").save().expect("histograms");
        largest[numbers..numbers + 16].fill(0xff);
        let mut placer = Placer::restored(10, &largest).expect("any number is one");
        let expected =
            placer.at_copy(KeyOf { hash: 0, bytes: 1 }, Version { seq: 1, history: None }, 9, 10.0);
        placer.learner.placed(0, 9, 9, &expected, 10.0);
        placer.learner.written(0, 12);
        placer.learner.trained(Trees::default());
        assert_eq!(placer.learner.learned().labels, u64::MAX);
        assert!(accepted > saved.len() / 8, "values of leaves may be anything finite: {accepted}");
    }
}
