//! A keyspace: its view, and the public handle.
//!
//! The *view* is what a reader works on: the active memtable, the sealed ones and the tree. It is
//! immutable and swapped as a whole; readers load it without a lock. Every change of it happens under
//! the keyspace's own `update` lock, which is the innermost lock of the store.

use crate::batch::Batch;
use crate::db::OpenStore;
use crate::error::{Error, ErrorKind, Result};
use crate::iter::Iter;
use crate::memtable::Memtable;
use crate::merge_operator::MergeOperator;
use crate::options::{Durability, KeyspaceOptions, Options};
use crate::range_cursor::RangeCursor;
use crate::slice::Slice;
use crate::snapshot::SnapshotGuard;
use crate::stats::Meter;
use crate::version::Tree;
use arc_swap::ArcSwap;
use drumlin_env::sync::{Arc, Mutex, atomic};
use drumlin_types::{KeyRange, KeyspaceId, LogNumber, Seq};
use std::cell::RefCell;
use std::ops::RangeBounds;

/// Bytes that a thread keeps of its batch for single operations.
const SINGLE_KEPT: usize = 64 << 10;

thread_local! {
    /// The batch of single operations of this thread.
    static SINGLE: RefCell<Batch> = RefCell::default();
}

/// What readers of a keyspace see.
pub(crate) struct View {
    pub(crate) active: Arc<Memtable>,
    /// Sealed memtables that are not in tables yet, newest first.
    pub(crate) sealed: Vec<Arc<Memtable>>,
    /// What these held when the view was made. Writes under way when the newest was sealed may have added to it.
    pub(crate) sealed_bytes: usize,
    pub(crate) tree: Arc<Tree>,
}

impl View {
    fn new(active: Arc<Memtable>, sealed: Vec<Arc<Memtable>>, tree: Arc<Tree>) -> View {
        let sealed_bytes = sealed.iter().map(|m| m.bytes()).sum();
        View { active, sealed, sealed_bytes, tree }
    }

    /// All memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(&self.sealed)
    }

    pub(crate) fn memtable_bytes(&self) -> usize {
        self.active.bytes() + self.sealed_bytes
    }
}

/// The inner state of a keyspace.
pub(crate) struct KeyspaceState {
    pub(crate) id: KeyspaceId,
    pub(crate) name: Arc<str>,
    pub(crate) options: ArcSwap<KeyspaceOptions>,
    pub(crate) operator: Option<Arc<dyn MergeOperator>>,
    /// Counts its load.
    pub(crate) meter: Meter,
    /// What the policy wants searched is another thing than when the searches looked last. Set under the control lock.
    pub(crate) search_changed: atomic::AtomicBool,
    view: ArcSwap<View>,
    update: Mutex<()>,
    dropped: atomic::AtomicBool,
    memtable_seed: u64,
    /// Size at which a memtable is sealed, from the options.
    memtable_bytes: atomic::AtomicUsize,
    /// What memtables that are flushed together hold at most, from the options.
    flush_bytes: atomic::AtomicUsize,
}

impl KeyspaceState {
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a part of the state, and there is one caller for each way to get one"
    )]
    pub(crate) fn new(
        id: KeyspaceId,
        name: Arc<str>,
        store: &Options,
        options: KeyspaceOptions,
        operator: Option<Arc<dyn MergeOperator>>,
        tree: Tree,
        log: LogNumber,
        memtable_seed: u64,
        meter: Meter,
    ) -> KeyspaceState {
        let active = Arc::new(Memtable::new(log.0, memtable_seed));
        let memtable_bytes = store.memtable_bytes(&options) as usize;
        let flush_bytes = store.flush_bytes(&options) as usize;
        KeyspaceState {
            id,
            name,
            options: ArcSwap::from_pointee(options),
            operator,
            meter,
            search_changed: atomic::AtomicBool::new(false),
            view: ArcSwap::from_pointee(View::new(active, Vec::new(), Arc::new(tree))),
            update: Mutex::new(()),
            dropped: atomic::AtomicBool::new(false),
            memtable_seed,
            memtable_bytes: atomic::AtomicUsize::new(memtable_bytes),
            flush_bytes: atomic::AtomicUsize::new(flush_bytes),
        }
    }

    /// Size at which a memtable is sealed.
    pub(crate) fn memtable_bytes(&self) -> usize {
        self.memtable_bytes.load(atomic::Ordering::Relaxed)
    }

    fn flush_bytes(&self) -> usize {
        self.flush_bytes.load(atomic::Ordering::Relaxed)
    }

    /// The runs that flushes will make of the memtables of `view`: one of what is being flushed, others of the rest.
    pub(crate) fn runs_to_come(&self, view: &View) -> f64 {
        let fill = view.active.bytes() as f64 / self.memtable_bytes().max(1) as f64;
        let flushes = view.memtable_bytes() as f64 / self.flush_bytes().max(1) as f64;
        (view.sealed.len() as f64 + fill.min(1.0)).min(1.0 + flushes.max(1.0))
    }

    /// The oldest sealed memtables of `view`, oldest first, that one flush takes: those that are `ready`, up to the first
    /// that is not, and no more than a flush may take at once.
    pub(crate) fn to_flush(&self, view: &View, ready: impl Fn(&Memtable) -> bool) -> Vec<Arc<Memtable>> {
        let (most, mut bytes) = (self.flush_bytes(), 0);
        let fits = |m: &&Arc<Memtable>| {
            let is_first = bytes == 0;
            bytes += m.bytes();
            ready(m) && (is_first || bytes <= most)
        };
        view.sealed.iter().rev().take_while(fits).cloned().collect()
    }

    /// Takes new settings.
    pub(crate) fn set_options(&self, store: &Options, options: KeyspaceOptions) {
        let (memtable, flush) = (store.memtable_bytes(&options), store.flush_bytes(&options));
        self.memtable_bytes.store(memtable as usize, atomic::Ordering::Relaxed);
        self.flush_bytes.store(flush as usize, atomic::Ordering::Relaxed);
        self.options.store(Arc::new(options));
    }

    /// The present view, without taking a reference to it.
    pub(crate) fn peek(&self) -> arc_swap::Guard<Arc<View>> {
        self.view.load()
    }

    /// The present view.
    pub(crate) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    pub(crate) fn active(&self) -> Arc<Memtable> {
        self.view.load().active.clone()
    }

    pub(crate) fn active_bytes(&self) -> usize {
        self.view.load().active.bytes()
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(atomic::Ordering::Acquire)
    }

    pub(crate) fn mark_dropped(&self, dropped: bool) {
        self.dropped.store(dropped, atomic::Ordering::Release);
    }

    /// Seals the active memtable unless it is empty; the new one starts at log segment `log`. Called
    /// under the commit lane's lock, so that no commit can reserve a place in between.
    pub(crate) fn seal(&self, log: LogNumber) -> bool {
        let _update = self.update.lock();
        let view = self.view.load();
        if view.active.is_empty() && view.active.writers() == 0 {
            return false;
        }
        let mut sealed = Vec::with_capacity(view.sealed.len() + 1);
        sealed.push(view.active.clone());
        sealed.extend(view.sealed.iter().cloned());
        let active = Arc::new(Memtable::new(log.0, self.memtable_seed));
        self.view.store(Arc::new(View::new(active, sealed, view.tree.clone())));
        true
    }

    /// Replaces the tree, and takes out the sealed memtables that it now holds.
    pub(crate) fn install(&self, tree: Tree, flushed: &[Arc<Memtable>]) {
        let _update = self.update.lock();
        let view = self.view.load();
        let gone = |m: &Arc<Memtable>| flushed.iter().any(|f| Arc::ptr_eq(f, m));
        let sealed = view.sealed.iter().filter(|m| !gone(m)).cloned().collect();
        self.view.store(Arc::new(View::new(view.active.clone(), sealed, Arc::new(tree))));
    }

    /// Takes a memtable that recovery filled, as the newest sealed one. Before anybody reads.
    pub(crate) fn adopt(&self, memtable: Arc<Memtable>) {
        let view = self.view.load();
        let sealed = std::iter::once(memtable).chain(view.sealed.iter().cloned()).collect();
        self.view.store(Arc::new(View::new(view.active.clone(), sealed, view.tree.clone())));
    }

    /// Empties the keyspace's view after it was dropped.
    pub(crate) fn clear(&self, log: LogNumber) {
        let _update = self.update.lock();
        let active = Arc::new(Memtable::new(log.0, self.memtable_seed));
        self.view.store(Arc::new(View::new(active, Vec::new(), Arc::new(Tree::empty()))));
    }

    /// The first log segment that holds something of this keyspace that is not in tables; `None` when
    /// everything is. Called under the commit lane's lock.
    pub(crate) fn first_log(&self) -> Option<LogNumber> {
        let view = self.view.load();
        let pending = |m: &&Arc<Memtable>| !m.is_empty() || m.writers() > 0;
        view.memtables().filter(pending).map(|m| LogNumber(m.id())).min()
    }

    pub(crate) fn check_alive(&self) -> Result<()> {
        if self.is_dropped() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("keyspace {:?} was dropped", self.name),
            ));
        }
        Ok(())
    }
}

/// A keyspace (column family) of an open store: an ordered map of its own. Cheap to clone.
#[derive(Clone)]
pub struct Keyspace {
    pub(crate) store: Arc<OpenStore>,
    pub(crate) state: Arc<KeyspaceState>,
}

impl Keyspace {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Writes `value` under `key` with the store's default durability. Returns the commit sequence.
    ///
    /// # Errors
    /// `InvalidArgument` for a key over 1 MiB or a value over the store's limit; `Busy`, `NoSpace`,
    /// `Poisoned`, `Io`.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Seq> {
        self.put_with(key, value, self.store.durability())
    }

    /// Writes what `add` adds to a batch of this thread's, whose memory is used again and again.
    fn write_one(&self, durability: Durability, add: impl FnOnce(&mut Batch)) -> Result<Seq> {
        // Taken out meanwhile: the write may run code of the program, which may write.
        let mut batch = SINGLE.try_with(RefCell::take).unwrap_or_default();
        add(&mut batch);
        let written = self.store.write(&batch, durability);
        batch.clear(SINGLE_KEPT);
        let _ = SINGLE.try_with(|single| *single.borrow_mut() = batch);
        written
    }

    /// [`Keyspace::put`] with the given durability.
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<Seq> {
        self.write_one(durability, |batch| batch.put(self, key, value))
    }

    /// Removes `key`, whether it is there or not. Returns the commit sequence.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<Seq> {
        self.delete_with(key, self.store.durability())
    }

    /// [`Keyspace::delete`] with the given durability.
    pub fn delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<Seq> {
        self.write_one(durability, |batch| batch.delete(self, key))
    }

    /// Removes every key of `range`, at the cost of one write.
    pub fn delete_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Seq> {
        self.write_one(self.store.durability(), |batch| batch.delete_range(self, range))
    }

    /// Adds `operand` to what is under `key`, by the keyspace's merge operator, without reading it.
    ///
    /// # Errors
    /// `InvalidArgument` when the keyspace was opened without a merge operator.
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<Seq> {
        self.write_one(self.store.durability(), |batch| batch.merge(self, key, operand))
    }

    /// The value under `key`.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.store.get(&self.state, key.as_ref(), None)
    }

    /// Whether there is a value under `key`.
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// The values under `keys`, in their order, all as of one moment.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Result<Vec<Option<Slice>>> {
        let keys: Vec<K> = keys.into_iter().collect();
        let keys: Vec<&[u8]> = keys.iter().map(|k| k.as_ref()).collect();
        self.store.multi_get(&self.state, &keys, None)
    }

    /// The entries of `range` in key order, as of now; the iterator goes both ways.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Iter {
        self.store.iter(&self.state, crate::batch::key_range(range), None)
    }

    /// The entries whose keys start with `prefix`.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        self.store.iter(&self.state, KeyRange::prefix(prefix.as_ref()), None)
    }

    /// All entries.
    pub fn iter(&self) -> Iter {
        self.store.iter(&self.state, KeyRange::all(), None)
    }

    /// A cursor over `range`, as of now.
    pub fn cursor<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<RangeCursor> {
        self.store.cursor(&self.state, crate::batch::key_range(range), None)
    }

    /// Name and arguments of the compaction policy.
    pub fn policy(&self) -> String {
        self.store.policy_name(&self.state)
    }

    /// What the compaction policy goes by at present and what led to it, in lines for people. Empty for
    /// policies whose name says it all.
    pub fn policy_state(&self) -> String {
        self.store.policy_state(&self.state)
    }

    /// Switches the compaction policy, at once and for good. Answers never depend on it.
    ///
    /// # Errors
    /// `InvalidOption` for an unknown name or an argument out of bounds; nothing changes then.
    pub fn set_policy(&self, name: &str) -> Result<()> {
        self.store.set_policy(&self.state, name)
    }

    /// Every option in force, by name.
    pub fn options(&self) -> Vec<(&'static str, String)> {
        self.state.options.load().pairs()
    }

    /// Changes one option of the keyspace, at once and for good.
    pub fn set_option(&self, name: &str, value: &str) -> Result<()> {
        self.store.set_keyspace_option(&self.state, name, value)
    }

    /// Writes what is in memory to tables and waits until it is there.
    pub fn flush(&self) -> Result<()> {
        self.store.flush(Some(&self.state))
    }

    /// Merges everything in `range` into one run and waits for it. Fails where a part of it could not be merged: with
    /// what kept that part, as damage of a table, that is left where it was.
    pub fn compact<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        self.store.compact(&self.state, crate::batch::key_range(range))
    }
}

impl std::fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keyspace({:?})", self.state.name)
    }
}

/// A consistent picture of the whole store at one sequence number. Reads through it see exactly the
/// commits up to there; merges keep what it needs until it is dropped.
pub struct Snapshot {
    pub(crate) store: Arc<OpenStore>,
    pub(crate) guard: SnapshotGuard,
}

impl Snapshot {
    /// Its sequence number.
    pub fn seq(&self) -> Seq {
        self.guard.seq
    }

    /// The value under `key` in `keyspace`.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.store.check_own(&keyspace.state)?;
        self.store.get(&keyspace.state, key.as_ref(), Some(self.guard.seq))
    }

    /// The values under `keys`, in their order.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        self.store.check_own(&keyspace.state)?;
        let keys: Vec<&[u8]> = keys.iter().map(|k| k.as_ref()).collect();
        self.store.multi_get(&keyspace.state, &keys, Some(self.guard.seq))
    }

    /// The entries of `range` in `keyspace`, in key order.
    pub fn range<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, range: impl RangeBounds<K>) -> Iter {
        self.store.iter(&keyspace.state, crate::batch::key_range(range), Some(self.guard.seq))
    }

    /// A cursor over `range` in `keyspace`.
    pub fn cursor<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        range: impl RangeBounds<K>,
    ) -> Result<RangeCursor> {
        self.store.cursor(&keyspace.state, crate::batch::key_range(range), Some(self.guard.seq))
    }

    /// The entries of `keyspace` whose keys start with `prefix`.
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Iter {
        self.store.iter(&keyspace.state, KeyRange::prefix(prefix.as_ref()), Some(self.guard.seq))
    }
}
