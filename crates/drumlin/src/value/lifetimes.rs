//! What an open store has learned about the lifetimes of values, and the class of each value that is written to a value
//! file.
//!
//! All keyspaces share one table of recent writes, which takes a hundredth of the memory budget. Each keyspace has its
//! own lifetimes, classes, watched keys and model. They are made when the first value is separated, and charged to the
//! block cache's memory. Watched keys and models of all keyspaces take at most twice as much as the table: each further
//! keyspace watches fewer keys. Once nothing is left, a keyspace watches none and has no model.
//!
//! The manifest keeps lifetimes, classes and model of a keyspace. They are saved when the store is closed, when a model
//! is complete, when a keyspace is frozen, and with the counts of lookups; a crash loses what was learned since. Recent
//! writes and watched keys are lost when the store is closed: after that, the first flush of a key treats it as new.
//!
//! Lock order: `training` before `known`. No other lock is taken under them.

use crate::options::ValuePolicy;
use drumlin_env::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use drumlin_env::sync::{Arc, Mutex};
use drumlin_format::checksum::hash64_seeded;
use drumlin_policy::lifetime::history::Version;
use drumlin_policy::lifetime::{
    CLASSES, Expected, KeyOf, Learned, Learner, Placer, RecentWrites, Seen, Training,
};
use drumlin_types::{KeyspaceId, Seq};
use std::collections::{BTreeMap, BTreeSet};

/// The table of recent writes takes one part in this many of the memory budget, but at most `MOST_RECENT_BYTES`.
const RECENT_SHARE: usize = 100;
const MOST_RECENT_BYTES: usize = 128 << 20;
/// Bytes of all watched keys and models for each byte of the table of recent writes.
const MODELS_SHARE: usize = 2;
/// Maximum number of watched keys of a keyspace.
const MOST_WATCHED: usize = 8192;
/// Minimum bytes of values per class in a flush or compaction: one part in this many of `file_bytes`, but at most
/// `MOST_CLASS_BYTES`. A job that writes fewer has fewer classes, so neighbouring ones share a file.
const CLASS_SHARE: u64 = 16;
const MOST_CLASS_BYTES: u64 = 1 << 20;
/// A class of a job also gets at least one part in this many of the bytes of all value files. So there are not many
/// more value files than this.
const MANY_FILES: u64 = 2048;
/// Maximum number of value files that one job is planned to write, but at least one for each table. All of them are
/// added by one edit.
const MOST_FILES: u64 = 4096;

struct Known {
    recent: Option<RecentWrites>,
    keyspaces: BTreeMap<KeyspaceId, OfKeyspace>,
    /// Saved states that their keyspaces have not used since the open.
    saved: BTreeMap<KeyspaceId, Vec<u8>>,
    /// The keyspace whose training began last.
    last_trained: KeyspaceId,
    /// Dropped keyspaces, whose jobs may still run. `of_dropped` takes what these jobs learn.
    dropped: BTreeSet<KeyspaceId>,
    of_dropped: OfKeyspace,
}

impl Known {
    /// Returns the state of a keyspace.
    fn of(&mut self, keyspace: KeyspaceId, lifetimes: &Lifetimes) -> &mut OfKeyspace {
        let saved = self.saved.remove(&keyspace);
        self.keyspaces.entry(keyspace).or_insert_with(|| lifetimes.begin(saved))
    }
}

struct OfKeyspace {
    placer: Placer,
    most_watched: usize,
    /// Whether the keyspace learns nothing, as of its last flush or call of [`freeze`](Lifetimes::freeze).
    is_frozen: bool,
    /// Share of the bytes of the last flush that went to value files.
    separated: f64,
    /// Saved state from before the open, kept unchanged if too little memory is left to watch keys.
    unused: Option<Vec<u8>>,
}

impl OfKeyspace {
    fn new(most_watched: usize) -> OfKeyspace {
        OfKeyspace {
            placer: Placer::new(most_watched),
            most_watched,
            is_frozen: false,
            separated: 1.0,
            unused: None,
        }
    }
}

/// The lifetimes of the values of an open store.
pub(crate) struct Lifetimes {
    known: Mutex<Known>,
    /// The training that is under way.
    training: Mutex<Option<(KeyspaceId, Training)>>,
    /// Whether a training may be due.
    is_due: AtomicBool,
    /// Bytes that the table of recent writes may take.
    recent_bytes: usize,
    /// Bytes that are charged for the table, and for watched keys and models.
    taken: [AtomicUsize; 2],
}

/// Facts about a finished flush.
pub(crate) struct FlushedValues {
    /// Largest sequence number in it.
    pub(crate) now: Seq,
    /// Bytes in memtables, and those that it wrote to value files.
    pub(crate) bytes: u64,
    pub(crate) written: u64,
    /// Whether values have classes, so that the flush has reported the writes of watched keys.
    pub(crate) predicts: bool,
}

/// A step of a training.
pub(crate) enum Trained {
    /// There is nothing to train.
    Nothing,
    /// One more tree was grown, and no new model is in use.
    Tree,
    /// The model is complete.
    Model { keyspace: KeyspaceId, rows: usize, learned: Learned },
}

impl Lifetimes {
    pub(crate) fn new(memory_budget: u64) -> Lifetimes {
        let share = usize::try_from(memory_budget).unwrap_or(usize::MAX) / RECENT_SHARE;
        Lifetimes {
            known: Mutex::new(Known {
                recent: None,
                keyspaces: BTreeMap::new(),
                saved: BTreeMap::new(),
                last_trained: KeyspaceId(0),
                dropped: BTreeSet::new(),
                of_dropped: OfKeyspace::new(0),
            }),
            training: Mutex::default(),
            is_due: AtomicBool::new(false),
            recent_bytes: share.min(MOST_RECENT_BYTES),
            taken: Default::default(),
        }
    }

    /// Returns what was learned about a keyspace, for the manifest; `None` if nothing was.
    pub(crate) fn saved(&self, keyspace: KeyspaceId) -> Option<Vec<u8>> {
        let known = self.known.lock();
        match known.keyspaces.get(&keyspace) {
            Some(of) => of.unused.clone().or_else(|| of.placer.save()),
            None => known.saved.get(&keyspace).cloned(),
        }
    }

    /// Keeps the saved state of a keyspace until it is used. Returns whether this version can read it.
    pub(crate) fn restore(&self, keyspace: KeyspaceId, saved: &[u8]) -> bool {
        let is_known = Placer::restored(1, saved).is_some();
        if is_known {
            self.known.lock().saved.insert(keyspace, saved.to_vec());
        }
        is_known
    }

    /// Sets whether a keyspace learns nothing more.
    pub(crate) fn freeze(&self, keyspace: KeyspaceId, is_frozen: bool) {
        if let Some(of) = self.known.lock().keyspaces.get_mut(&keyspace) {
            of.is_frozen = is_frozen;
        }
    }

    /// Returns the state of a keyspace at its first use, restored from `saved` if possible, and charges its memory. So
    /// idle keyspaces take none.
    fn begin(&self, saved: Option<Vec<u8>>) -> OfKeyspace {
        let taken = &self.taken[1];
        // At most half of what is left, so that further keyspaces get some.
        let left = (MODELS_SHARE * self.recent_bytes).saturating_sub(taken.load(Relaxed)) / 2;
        let mut most = MOST_WATCHED;
        while Learner::most_bytes(most) > left {
            most /= 2;
        }
        taken.fetch_add(Learner::most_bytes(most), Relaxed);
        let new = OfKeyspace::new(most);
        let placer = saved.as_ref().and_then(|saved| Placer::restored(most, saved));
        // A model without watched keys is not used. Its saved state is kept, because the next open may use it again.
        OfKeyspace { placer: placer.unwrap_or(new.placer), unused: saved.filter(|_| most == 0), ..new }
    }

    /// Grows one tree of a model, and begins a training if one is due.
    pub(crate) fn train(&self) -> Trained {
        let mut slot = self.training.lock();
        if slot.is_none() && self.is_due.swap(false, Relaxed) {
            let known = &mut *self.known.lock();
            let begin = |(id, of): (&KeyspaceId, &mut OfKeyspace)| {
                let training = if of.is_frozen { None } else { of.placer.learner.begin_training() };
                Some((*id, training?))
            };
            // The keyspaces after the one that was trained last come first.
            let last = known.last_trained;
            let (after, before): (Vec<_>, Vec<_>) =
                known.keyspaces.iter_mut().partition(|(id, _)| **id > last);
            *slot = after.into_iter().chain(before).find_map(begin);
            known.last_trained = slot.as_ref().map_or(last, |(keyspace, _)| *keyspace);
            // A training of another keyspace may be due too.
            self.is_due.store(slot.is_some(), Relaxed);
        }
        let Some((keyspace, training)) = slot.as_mut() else { return Trained::Nothing };
        let Some(model) = training.step() else { return Trained::Tree };
        let (keyspace, rows) = (*keyspace, training.rows());
        *slot = None;
        let mut known = self.known.lock();
        let Some(of) = known.keyspaces.get_mut(&keyspace).filter(|of| !of.is_frozen) else {
            return Trained::Tree;
        };
        of.placer.learner.trained(model);
        Trained::Model { keyspace, rows, learned: of.placer.learner.learned() }
    }

    /// Returns the bytes of memory that are in use at most.
    pub(crate) fn bytes(&self) -> usize {
        self.taken.iter().map(|taken| taken.load(Relaxed)).sum()
    }

    /// Forgets a keyspace that was dropped.
    pub(crate) fn forget(&self, keyspace: KeyspaceId) {
        let mut known = self.known.lock();
        known.dropped.insert(keyspace);
        known.saved.remove(&keyspace);
        if let Some(of) = known.keyspaces.remove(&keyspace) {
            self.taken[1].fetch_sub(Learner::most_bytes(of.most_watched), Relaxed);
        }
    }

    /// Returns the bytes that a flush of `bytes` bytes in memtables is likely to write to value files.
    pub(crate) fn likely_bytes(&self, keyspace: KeyspaceId, bytes: u64) -> u64 {
        let known = self.known.lock();
        known.keyspaces.get(&keyspace).map_or(bytes, |of| (bytes as f64 * of.separated) as u64)
    }

    /// Notes a flush. Returns whether a training is due. Calls `is_frozen` under the lock. Otherwise an outdated option
    /// could overwrite a later [`freeze`](Self::freeze).
    pub(crate) fn flushed(
        &self,
        keyspace: KeyspaceId,
        flush: FlushedValues,
        is_frozen: impl FnOnce() -> bool,
    ) -> bool {
        let mut known = self.known.lock();
        let Some(of) = known.keyspaces.get_mut(&keyspace) else { return false };
        of.separated = (flush.written as f64 / flush.bytes.max(1) as f64).min(1.0);
        of.is_frozen = is_frozen();
        if of.is_frozen {
            return false;
        }
        if !flush.predicts {
            of.placer.learner.discard_all();
            return false;
        }
        of.placer.learner.expire(flush.now);
        let is_due = of.placer.learner.is_training_due();
        if is_due {
            self.is_due.store(true, Relaxed);
        }
        is_due
    }

    /// Returns the lifetime of a typical value of a keyspace at `now`.
    pub(crate) fn typical(&self, keyspace: KeyspaceId, now: Seq) -> f64 {
        let mut known = self.known.lock();
        if known.saved.contains_key(&keyspace) {
            known.of(keyspace, self);
        }
        known.keyspaces.get(&keyspace).map_or(now as f64, |of| of.placer.typical(now)).max(1.0)
    }

    /// Returns what was learned about a keyspace.
    pub(crate) fn learned(&self, keyspace: KeyspaceId) -> Option<Learned> {
        let known = self.known.lock();
        match known.keyspaces.get(&keyspace) {
            Some(of) => Some(of.placer.learner.learned()),
            None => Some(Placer::restored(1, known.saved.get(&keyspace)?)?.learner.learned()),
        }
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
    /// Bytes of all value files of the keyspace.
    pub(crate) value_bytes: u64,
}

impl Placement {
    /// Sets the number of classes for a job that writes about `bytes` bytes to value files, and tables of about
    /// `table_bytes` bytes.
    pub(crate) fn set_classes(&mut self, bytes: u64, table_bytes: u64) {
        if !self.predicts() {
            return;
        }
        let least =
            (self.file_bytes / CLASS_SHARE).clamp(1, MOST_CLASS_BYTES).max(self.value_bytes / MANY_FILES);
        let tables = 1 + table_bytes / self.file_bytes.max(1);
        let most = (MOST_FILES / tables).clamp(1, CLASSES as u64);
        self.classes = (bytes / least).clamp(1, most) as usize;
    }

    /// Returns whether values have classes.
    pub(super) fn predicts(&self) -> bool {
        self.policy != ValuePolicy::GarbageRatio
    }

    fn hash(&self, key: &[u8]) -> u64 {
        hash64_seeded(key, self.keyspace.0.into())
    }

    /// Returns the class number recorded in value files of `class`. It has the same scale whatever the number of
    /// classes of this job.
    pub(super) fn number(&self, class: usize) -> u8 {
        (class * CLASSES / self.classes.max(1)) as u8
    }

    /// Returns the class of a new value that is the newest version of its key in the job. A flush also records the
    /// write.
    pub(super) fn of_new(&self, key: &[u8], seq: Seq, bytes: u64) -> Placed {
        if !self.is_flush {
            return self.of_copy(key, Version { seq, history: None }, bytes);
        }
        let of = KeyOf { hash: self.hash(key), bytes };
        let mut known = self.lifetimes.known.lock();
        let before = self.write(&mut known, of.hash, seq);
        self.place(&mut known, of, |placer, typical| placer.at_flush(of, seq, before, typical))
    }

    /// Returns the class of a copied value that is the newest version of its key in the job.
    pub(super) fn of_copy(&self, key: &[u8], version: Version<'_>, bytes: u64) -> Placed {
        let of = KeyOf { hash: self.hash(key), bytes };
        let mut known = self.lifetimes.known.lock();
        let placed =
            self.place(&mut known, of, |placer, typical| placer.at_copy(of, version, self.now, typical));
        self.sample(&mut known, &placed, version.seq, self.now);
        placed
    }

    /// Notes that the version `older` of `key` was dropped, and lived until `end`.
    pub(super) fn superseded(&self, key: &[u8], end: Seq, older: Seq) {
        if !self.predicts() {
            return;
        }
        let mut known = self.lifetimes.known.lock();
        if self.is_flush {
            self.write(&mut known, self.hash(key), older);
        }
        self.completed(&mut known, end.saturating_sub(older));
    }

    /// Notes that a value that was deleted had lived for `lifetime`.
    pub(super) fn ended(&self, lifetime: Seq) {
        if self.predicts() {
            self.completed(&mut self.lifetimes.known.lock(), lifetime);
        }
    }

    fn completed(&self, known: &mut Known, lifetime: Seq) {
        if self.learns(known) {
            self.of(known).placer.completed(lifetime);
        }
    }

    /// Notes that a flush has met all versions of a key. It placed the version `newest`; `oldest` is the oldest one.
    pub(super) fn flushed(&self, placed: &Placed, newest: Seq, oldest: Seq) {
        if self.is_flush {
            let mut known = self.lifetimes.known.lock();
            self.written(&mut known, placed.hash, oldest);
            self.sample(&mut known, placed, newest, newest);
        }
    }

    /// Notes that a flush met a tombstone that is the newest version of `key`.
    pub(super) fn deleted(&self, key: &[u8], seq: Seq) {
        if !self.is_flush || !self.predicts() {
            return;
        }
        let mut known = self.lifetimes.known.lock();
        if known.recent.is_none() {
            return;
        }
        let hash = self.hash(key);
        known.recent.iter_mut().for_each(|recent| recent.forget(hash));
        self.written(&mut known, hash, seq);
    }

    /// Labels the samples of a key that was written at `seq`, or discards them if nothing is learned.
    fn written(&self, known: &mut Known, hash: u64, seq: Seq) {
        let learns = self.learns(known);
        let learner = &mut self.of(known).placer.learner;
        match learns {
            true => learner.written(hash, seq),
            false => learner.discard(hash),
        }
    }

    fn place(&self, known: &mut Known, of: KeyOf, expect: impl FnOnce(&Placer, f64) -> Expected) -> Placed {
        let learns = self.learns(known);
        let placer = &mut self.of(known).placer;
        let mut expected = expect(placer, self.typical);
        if self.policy == ValuePolicy::MeanInterval {
            expected.by_model = None;
        }
        if learns {
            placer.predicted(&expected, of.bytes);
        }
        Placed { hash: of.hash, class: placer.class(&expected, self.classes), expected }
    }

    /// Keeps a sample of a placement if the key is watched.
    fn sample(&self, known: &mut Known, placed: &Placed, seq: Seq, now: Seq) {
        if self.policy == ValuePolicy::Lifetimes && self.learns(known) {
            self.of(known).placer.learner.placed(placed.hash, seq, now, &placed.expected, self.typical);
        }
    }

    /// Notes a write in the table of recent writes. Returns the table's previous record of the key.
    fn write(&self, known: &mut Known, hash: u64, seq: Seq) -> Option<Seen> {
        let recent = known.recent.get_or_insert_with(|| {
            let recent = RecentWrites::new(self.lifetimes.recent_bytes);
            self.lifetimes.taken[0].store(recent.bytes(), Relaxed);
            recent
        });
        recent.write(hash, seq)
    }

    /// Returns whether the job may learn: the keyspace was not frozen when the job began, and is not frozen now.
    fn learns(&self, known: &mut Known) -> bool {
        !self.is_frozen && !self.of(known).is_frozen
    }

    fn of<'a>(&self, known: &'a mut Known) -> &'a mut OfKeyspace {
        if known.dropped.contains(&self.keyspace) {
            return &mut known.of_dropped;
        }
        known.of(self.keyspace, &self.lifetimes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement(lifetimes: &Arc<Lifetimes>, keyspace: u32) -> Placement {
        Placement {
            lifetimes: lifetimes.clone(),
            keyspace: KeyspaceId(keyspace),
            file_bytes: 64 << 20,
            is_flush: true,
            policy: ValuePolicy::Lifetimes,
            is_frozen: false,
            now: 1000,
            typical: 1000.0,
            classes: 1,
            value_bytes: 0,
        }
    }

    #[test]
    fn the_number_of_classes_follows_bytes_tables_and_files() {
        let mut job = placement(&Arc::new(Lifetimes::new(512 << 20)), 1);
        let mut classes = |bytes, table_bytes, change: fn(&mut Placement)| {
            change(&mut job);
            job.set_classes(bytes, table_bytes);
            (job.classes, (0..job.classes).map(|class| job.number(class)).collect::<Vec<u8>>())
        };
        assert_eq!(classes(0, 0, |_| {}), (1, vec![0]));
        assert_eq!(classes(2 << 20, 0, |_| {}), (2, vec![0, 3]));
        assert_eq!(classes(4 << 20, 0, |_| {}), (4, vec![0, 1, 3, 4]));
        assert_eq!(classes(64 << 20, 64 << 20, |_| {}), (6, vec![0, 1, 2, 3, 4, 5]));
        assert_eq!(classes(64 << 20, 0, |job| job.value_bytes = 40 << 30).0, 3, "at least 20 MiB each");
        assert_eq!(classes(64 << 20, 64 << 20, |job| (job.value_bytes, job.file_bytes) = (0, 4096)).0, 1);
        assert_eq!(classes(64 << 20, 4 << 20, |_| {}).0, 3, "1025 tables");
        assert_eq!(classes(64 << 20, 0, |job| job.policy = ValuePolicy::GarbageRatio).0, 3, "left as it is");
        let few = Arc::new(Lifetimes::new(8 << 20));
        placement(&few, 1).of_new(b"key", 1, 5000);
        assert!(few.bytes() <= (8 << 20) * 3 / 100, "{} bytes", few.bytes());
    }

    #[test]
    fn memory_is_bounded_and_given_back() {
        let lifetimes = Arc::new(Lifetimes::new(512 << 20));
        for keyspace in 0..200 {
            placement(&lifetimes, keyspace).of_new(b"key", 1, 5000);
        }
        let bytes = lifetimes.bytes();
        assert!(bytes > 5 << 20 && bytes <= (512 << 20) * 3 / 100, "{bytes} bytes");
        (0..200).for_each(|keyspace| lifetimes.forget(KeyspaceId(keyspace)));
        let recent = lifetimes.bytes();
        assert!(recent <= (512 << 20) / 100, "{recent} bytes");
        // A job of a dropped keyspace goes on.
        placement(&lifetimes, 7).of_new(b"key", 2, 5000);
        assert_eq!((lifetimes.bytes(), lifetimes.learned(KeyspaceId(7))), (recent, None));
    }

    #[test]
    fn nothing_is_learned_while_frozen() {
        let lifetimes = Arc::new(Lifetimes::new(512 << 20));
        let job = placement(&lifetimes, 1);
        let frozen = Placement { is_frozen: true, ..placement(&lifetimes, 1) };
        let learned = || lifetimes.learned(KeyspaceId(1)).expect("the keyspace is known").labels;
        let write = |job: &Placement, seq| {
            let placed = job.of_new(b"key", seq, 5000);
            job.flushed(&placed, seq, seq);
        };
        write(&job, 10);
        write(&frozen, 20);
        write(&job, 30);
        assert_eq!(learned(), 0, "the first sample's lifetime is not known");
        let flushed = |is_frozen| {
            let flush = FlushedValues { now: 1 << 40, bytes: 1, written: 1, predicts: true };
            lifetimes.flushed(KeyspaceId(1), flush, || {
                assert!(lifetimes.known.try_lock().is_none(), "a freeze may come in between");
                is_frozen
            })
        };
        assert!(!flushed(true));
        assert_eq!(learned(), 0, "its deadline has passed, but nothing is learned");
        write(&job, 35);
        assert_eq!(learned(), 0, "the keyspace was frozen after the job began");
        lifetimes.freeze(KeyspaceId(1), false);
        write(&job, 38);
        assert_eq!(learned(), 0, "the sample from before is gone");
        write(&job, 40);
        assert_eq!(learned(), 1);
        job.deleted(b"key", 50);
        assert_eq!(learned(), 2);
        write(&job, 60);
        assert!(!flushed(false));
        assert_eq!(learned(), 3, "by its deadline");
    }
}
