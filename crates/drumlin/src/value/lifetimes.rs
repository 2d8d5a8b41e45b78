//! What an open store has learned about the lifetimes of values, and the class of each value that is written to a value
//! file.
//!
//! All keyspaces share one sketch of the keys written last, of a hundredth of the memory budget. Each keyspace has its
//! own lifetimes, classes, watched keys and trees. They are made when the first value is separated, and charged to the
//! block cache's memory then. All of it is lost when the store is closed: until enough lifetimes are known again,
//! classes are worse, and nothing else changes.
//!
//! Locks: the training before what is known. No other lock is taken under them.

use crate::options::ValuePolicy;
use drumlin_env::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use drumlin_env::sync::{Arc, Mutex};
use drumlin_format::checksum::hash64_seeded;
use drumlin_policy::lifetime::history::Version;
use drumlin_policy::lifetime::{CLASSES, Expected, KeyOf, Learned, Learner, Placer, Seen, Sketch, Training};
use drumlin_types::{KeyspaceId, Seq};
use std::collections::BTreeMap;

/// Fraction of the memory budget that the sketch takes, as a divisor.
const SKETCH_SHARE: usize = 100;
/// Bytes of memory for each watched key, and the most keys of a keyspace that are watched.
const BYTES_PER_WATCHED: usize = 256;
const MOST_WATCHED: usize = 8192;
/// Bytes of values that a flush or compaction writes for each class: this part of `file_bytes`, as a divisor, and at
/// most a MiB. With fewer, neighbouring classes share a file.
const CLASS_SHARE: u64 = 16;
const MOST_CLASS_BYTES: u64 = 1 << 20;

#[derive(Default)]
struct Known {
    sketch: Option<Sketch>,
    keyspaces: BTreeMap<KeyspaceId, OfKeyspace>,
}

struct OfKeyspace {
    placer: Placer,
    /// Share of the bytes of the last flush that went to value files.
    separated: f64,
}

/// The lifetimes of the values of an open store.
pub(crate) struct Lifetimes {
    known: Mutex<Known>,
    /// The training that is under way.
    training: Mutex<Option<(KeyspaceId, Training)>>,
    /// Bytes that the sketch may take.
    sketch_bytes: usize,
    /// Keys of each keyspace that are watched at most.
    most_watched: usize,
    /// Bytes that are in use at most.
    taken: AtomicUsize,
}

/// A step of a training.
pub(crate) enum Trained {
    /// There is nothing to train.
    Nothing,
    /// A tree more.
    Tree,
    /// The trees are complete.
    Trees { keyspace: KeyspaceId, rows: usize, learned: Learned },
}

impl Lifetimes {
    pub(crate) fn new(memory_budget: u64) -> Lifetimes {
        let part = usize::try_from(memory_budget).unwrap_or(usize::MAX) / SKETCH_SHARE;
        Lifetimes {
            known: Mutex::default(),
            training: Mutex::default(),
            sketch_bytes: part,
            most_watched: (part / BYTES_PER_WATCHED).min(MOST_WATCHED),
            taken: AtomicUsize::new(0),
        }
    }

    /// Grows one tree of a training, and begins one if it is due.
    pub(crate) fn train(&self) -> Trained {
        let mut slot = self.training.lock();
        if slot.is_none() {
            let mut known = self.known.lock();
            let begin =
                |(id, of): (&KeyspaceId, &mut OfKeyspace)| Some((*id, of.placer.learner.begin_training()?));
            *slot = known.keyspaces.iter_mut().find_map(begin);
        }
        let Some((keyspace, training)) = slot.as_mut() else { return Trained::Nothing };
        let Some(trees) = training.step() else { return Trained::Tree };
        let (keyspace, rows) = (*keyspace, training.rows());
        *slot = None;
        let mut known = self.known.lock();
        let Some(of) = known.keyspaces.get_mut(&keyspace) else { return Trained::Tree };
        of.placer.learner.trained(trees);
        Trained::Trees { keyspace, rows, learned: of.placer.learner.learned() }
    }

    /// Returns the bytes of memory that are in use.
    pub(crate) fn bytes(&self) -> usize {
        self.taken.load(Relaxed)
    }

    /// Forgets a keyspace that was dropped.
    pub(crate) fn forget(&self, keyspace: KeyspaceId) {
        if self.known.lock().keyspaces.remove(&keyspace).is_some() {
            self.taken.fetch_sub(Learner::most_bytes(self.most_watched), Relaxed);
        }
    }

    /// Returns the bytes that a flush of `bytes` bytes in memtables is likely to write to value files.
    pub(crate) fn likely_bytes(&self, keyspace: KeyspaceId, bytes: u64) -> u64 {
        let known = self.known.lock();
        known.keyspaces.get(&keyspace).map_or(bytes, |of| (bytes as f64 * of.separated) as u64)
    }

    /// Notes that a flush of `bytes` bytes in memtables, up to `now`, wrote `written` bytes to value files. Returns
    /// whether a training is due.
    pub(crate) fn flushed(&self, keyspace: KeyspaceId, now: Seq, bytes: u64, written: u64) -> bool {
        let mut known = self.known.lock();
        let Some(of) = known.keyspaces.get_mut(&keyspace) else { return false };
        of.separated = (written as f64 / bytes.max(1) as f64).min(1.0);
        of.placer.learner.expire(now);
        of.placer.learner.is_training_due()
    }

    /// Returns the lifetime of a typical value of a keyspace at `now`.
    pub(crate) fn typical(&self, keyspace: KeyspaceId, now: Seq) -> f64 {
        let known = self.known.lock();
        known.keyspaces.get(&keyspace).map_or(now as f64, |of| of.placer.typical(now)).max(1.0)
    }

    /// Returns what was learned about a keyspace.
    pub(crate) fn learned(&self, keyspace: KeyspaceId) -> Option<Learned> {
        self.known.lock().keyspaces.get(&keyspace).map(|of| of.placer.learner.learned())
    }
}

/// The class of a value, and what was expected of it.
pub(crate) struct Placed {
    hash: u64,
    pub(super) class: usize,
    expected: Expected,
}

/// How the values of one flush or compaction are divided into classes.
pub(crate) struct Placement {
    pub(crate) lifetimes: Arc<Lifetimes>,
    pub(crate) keyspace: KeyspaceId,
    /// Size of a table file.
    pub(crate) file_bytes: u64,
    /// Whether the job is a flush.
    pub(crate) is_flush: bool,
    pub(crate) policy: ValuePolicy,
    /// Whether nothing more is learned.
    pub(crate) is_frozen: bool,
    /// Sequence number that ages are counted from.
    pub(crate) now: Seq,
    /// Lifetime of a typical value when the job began.
    pub(crate) typical: f64,
    /// Number of classes: value files that are open at a time.
    pub(crate) classes: usize,
}

impl Placement {
    /// Sets the number of classes for a job that writes about `bytes` bytes to value files.
    pub(crate) fn expect(&mut self, bytes: u64) {
        if self.policy != ValuePolicy::GarbageRatio {
            let least = (self.file_bytes / CLASS_SHARE).clamp(1, MOST_CLASS_BYTES);
            self.classes = (bytes / least).clamp(1, CLASSES as u64) as usize;
        }
    }

    fn hash(&self, key: &[u8]) -> u64 {
        hash64_seeded(key, self.keyspace.0.into())
    }

    /// Returns the class of a value in the job that separates it. A flush notes the write.
    pub(super) fn of_new(&self, key: &[u8], seq: Seq, bytes: u64) -> Placed {
        if !self.is_flush {
            return self.of_copy(key, Version { seq, history: None }, bytes);
        }
        let of = KeyOf { hash: self.hash(key), bytes };
        let mut known = self.lifetimes.known.lock();
        let before = self.write(&mut known, of.hash, seq);
        self.place(&mut known, of, |placer, typical| placer.at_flush(of, seq, before, typical))
    }

    /// Returns the class of a value that is copied.
    pub(super) fn of_copy(&self, key: &[u8], version: Version<'_>, bytes: u64) -> Placed {
        let of = KeyOf { hash: self.hash(key), bytes };
        let mut known = self.lifetimes.known.lock();
        let placed =
            self.place(&mut known, of, |placer, typical| placer.at_copy(of, version, self.now, typical));
        self.sample(&mut known, &placed, self.now);
        placed
    }

    /// Notes that the version `older` of `key` was dropped in favour of `newer`.
    pub(super) fn superseded(&self, key: &[u8], newer: Seq, older: Seq) {
        let mut known = self.lifetimes.known.lock();
        if self.is_flush {
            self.write(&mut known, self.hash(key), older);
        }
        if !self.is_frozen {
            self.of(&mut known).placer.completed(newer.saturating_sub(older));
        }
    }

    /// Notes that a flush has met all versions of a key. It placed the version `newest`; `oldest` is the oldest one.
    pub(super) fn flushed(&self, placed: &Placed, newest: Seq, oldest: Seq) {
        if self.is_flush {
            let mut known = self.lifetimes.known.lock();
            self.of(&mut known).placer.learner.written(placed.hash, oldest);
            self.sample(&mut known, placed, newest);
        }
    }

    /// Notes that a flush met a tombstone of `key`.
    pub(super) fn deleted(&self, key: &[u8], seq: Seq) {
        if !self.is_flush {
            return;
        }
        let hash = self.hash(key);
        let mut known = self.lifetimes.known.lock();
        if let Some(sketch) = &mut known.sketch {
            sketch.forget(hash);
            self.of(&mut known).placer.learner.written(hash, seq);
        }
    }

    fn place(&self, known: &mut Known, of: KeyOf, expect: impl FnOnce(&Placer, f64) -> Expected) -> Placed {
        let placer = &mut self.of(known).placer;
        let mut expected = expect(placer, self.typical);
        if self.policy == ValuePolicy::MeanInterval {
            expected.by_trees = None;
        }
        if !self.is_frozen {
            placer.predicted(&expected, of.bytes);
        }
        Placed { hash: of.hash, class: placer.class(&expected, self.classes), expected }
    }

    /// Keeps a sample of a placement if the key is watched.
    fn sample(&self, known: &mut Known, placed: &Placed, now: Seq) {
        if !self.is_frozen && self.policy == ValuePolicy::Lifetimes {
            self.of(known).placer.learner.placed(placed.hash, now, &placed.expected, self.typical);
        }
    }

    /// Notes a write in the sketch. Returns what the sketch had of the key before.
    fn write(&self, known: &mut Known, hash: u64, seq: Seq) -> Option<Seen> {
        let sketch = known.sketch.get_or_insert_with(|| {
            let sketch = Sketch::new(self.lifetimes.sketch_bytes);
            self.lifetimes.taken.fetch_add(sketch.bytes(), Relaxed);
            sketch
        });
        sketch.write(hash, seq)
    }

    fn of<'a>(&self, known: &'a mut Known) -> &'a mut OfKeyspace {
        known.keyspaces.entry(self.keyspace).or_insert_with(|| {
            let most = self.lifetimes.most_watched;
            self.lifetimes.taken.fetch_add(Learner::most_bytes(most), Relaxed);
            OfKeyspace { placer: Placer::new(most), separated: 1.0 }
        })
    }
}
