//! What an open store has learned about the lifetimes of values, and the class of each value that is written to a value
//! file.
//!
//! All keyspaces share one sketch of the keys written last, of a hundredth of the memory budget. It is made when the
//! first value is separated, and charged to the block cache's memory then. Each keyspace has its own lifetimes and
//! classes. All of it is lost when the store is closed: until enough lifetimes are known again, classes are worse, and
//! nothing else changes.

use drumlin_env::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use drumlin_env::sync::{Arc, Mutex};
use drumlin_format::checksum::hash64_seeded;
use drumlin_policy::lifetime::history::Version;
use drumlin_policy::lifetime::{CLASSES, Placer, Seen, Sketch};
use drumlin_types::{KeyspaceId, Seq};
use std::collections::BTreeMap;

/// Fraction of the memory budget that the sketch takes, as a divisor.
const SKETCH_SHARE: usize = 100;
/// Bytes of values that a flush or compaction writes for each class. With fewer, neighbouring classes share a file.
const CLASS_BYTES: u64 = 1 << 20;

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

impl Default for OfKeyspace {
    fn default() -> OfKeyspace {
        OfKeyspace { placer: Placer::default(), separated: 1.0 }
    }
}

/// The lifetimes of the values of an open store.
pub(crate) struct Lifetimes {
    known: Mutex<Known>,
    /// Bytes that the sketch may take.
    most: usize,
    /// Bytes that it takes.
    taken: AtomicUsize,
}

impl Lifetimes {
    pub(crate) fn new(memory_budget: u64) -> Lifetimes {
        let most = usize::try_from(memory_budget).unwrap_or(usize::MAX) / SKETCH_SHARE;
        Lifetimes { known: Mutex::default(), most, taken: AtomicUsize::new(0) }
    }

    /// Returns the bytes of memory that are in use.
    pub(crate) fn bytes(&self) -> usize {
        self.taken.load(Relaxed)
    }

    /// Forgets a keyspace that was dropped.
    pub(crate) fn forget(&self, keyspace: KeyspaceId) {
        self.known.lock().keyspaces.remove(&keyspace);
    }

    /// Returns the bytes that a flush of `bytes` bytes in memtables is likely to write to value files.
    pub(crate) fn likely_bytes(&self, keyspace: KeyspaceId, bytes: u64) -> u64 {
        let known = self.known.lock();
        known.keyspaces.get(&keyspace).map_or(bytes, |of| (bytes as f64 * of.separated) as u64)
    }

    /// Notes that a flush of `bytes` bytes in memtables wrote `written` bytes to value files.
    pub(crate) fn flushed(&self, keyspace: KeyspaceId, bytes: u64, written: u64) {
        let mut known = self.known.lock();
        known.of(keyspace).separated = (written as f64 / bytes.max(1) as f64).min(1.0);
    }
}

/// How the values of one flush or compaction are divided into classes.
pub(crate) struct Placement {
    pub(crate) lifetimes: Arc<Lifetimes>,
    pub(crate) keyspace: KeyspaceId,
    /// Whether the job is a flush.
    pub(crate) is_flush: bool,
    /// Whether nothing more is learned.
    pub(crate) is_frozen: bool,
    /// Sequence number that ages are counted from.
    pub(crate) now: Seq,
    /// Number of classes: value files that are open at a time.
    pub(crate) classes: usize,
}

impl Placement {
    /// Sets the number of classes for a job that writes about `bytes` bytes to value files.
    pub(crate) fn expect(&mut self, bytes: u64) {
        self.classes = (bytes / CLASS_BYTES).clamp(1, CLASSES as u64) as usize;
    }

    fn hash(&self, key: &[u8]) -> u64 {
        hash64_seeded(key, self.keyspace.0.into())
    }

    /// Returns the class of a value in the job that separates it. A flush notes the write.
    pub(super) fn of_new(&self, key: &[u8], seq: Seq, bytes: u64) -> usize {
        if !self.is_flush {
            return self.of_copy(Version { seq, history: None }, bytes);
        }
        let mut known = self.lifetimes.known.lock();
        let before = self.write(&mut known, key, seq);
        self.class(&mut known, bytes, |placer, typical| placer.at_flush(seq, before, typical))
    }

    /// Returns the class of a value that is copied.
    pub(super) fn of_copy(&self, version: Version<'_>, bytes: u64) -> usize {
        let mut known = self.lifetimes.known.lock();
        self.class(&mut known, bytes, |placer, typical| placer.at_copy(version, self.now, typical))
    }

    /// Notes that the version `older` of `key` was dropped in favour of `newer`.
    pub(super) fn superseded(&self, key: &[u8], newer: Seq, older: Seq) {
        let mut known = self.lifetimes.known.lock();
        if self.is_flush {
            self.write(&mut known, key, older);
        }
        if !self.is_frozen {
            known.of(self.keyspace).placer.completed(newer.saturating_sub(older));
        }
    }

    /// Notes that a flush met a tombstone of `key`.
    pub(super) fn deleted(&self, key: &[u8]) {
        if let Some(sketch) = self.lifetimes.known.lock().sketch.as_mut().filter(|_| self.is_flush) {
            sketch.forget(self.hash(key));
        }
    }

    fn class(&self, known: &mut Known, bytes: u64, expected: impl FnOnce(&Placer, f64) -> f64) -> usize {
        let placer = &mut known.of(self.keyspace).placer;
        let lifetime = expected(placer, placer.typical(self.now));
        if !self.is_frozen {
            placer.predicted(lifetime, bytes);
        }
        placer.class(lifetime, self.classes)
    }

    /// Notes a write in the sketch. Returns what the sketch had of the key before.
    fn write(&self, known: &mut Known, key: &[u8], seq: Seq) -> Option<Seen> {
        let sketch = known.sketch.get_or_insert_with(|| {
            let sketch = Sketch::new(self.lifetimes.most);
            self.lifetimes.taken.store(sketch.bytes(), Relaxed);
            sketch
        });
        sketch.write(self.hash(key), seq)
    }
}

impl Known {
    fn of(&mut self, keyspace: KeyspaceId) -> &mut OfKeyspace {
        self.keyspaces.entry(keyspace).or_default()
    }
}
