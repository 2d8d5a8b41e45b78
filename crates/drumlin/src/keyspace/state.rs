//! State of a keyspace, and its view.
//!
//! Readers work on the *view*: the active memtable, the sealed memtables and the tree. The view is immutable and
//! replaced as a whole; readers load it without a lock. Every replacement happens under the keyspace's own `update`
//! lock, the innermost lock of the store.

use super::failures::Failures;
use crate::base::epoch::{EpochPtr, Epochs, Pin};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::keyspace_metrics::Activity;
use crate::base::merge_operator::{MergeOperator, Operator};
use crate::base::name::KeyspaceName;
use crate::base::resolve::{PointerReader, Resolver};
use crate::memtable::Memtable;
use crate::options::{KeyspaceOptions, Options};
use crate::read::DeadSpans;
use crate::stats::{LookupDensity, Meter, TableLives};
use crate::version::Tree;
use arc_swap::ArcSwap;
use drumlin_env::sync::{Arc, Mutex, atomic};
use drumlin_format::manifest::Change;
use drumlin_types::{KeyspaceId, LogNumber};

/// Immutable view of a keyspace that readers load.
pub(crate) struct View {
    pub(crate) active: Arc<Memtable>,
    /// Sealed memtables that are not flushed yet, newest first.
    pub(crate) sealed: Vec<Arc<Memtable>>,
    /// Bytes in the sealed memtables but the newest. Writes in progress when that one was sealed may still add to it.
    older_sealed_bytes: usize,
    pub(crate) tree: Arc<Tree>,
    /// Number of views of the keyspace before this one.
    number: u64,
}

impl View {
    fn new(number: u64, active: Arc<Memtable>, sealed: Vec<Arc<Memtable>>, tree: Arc<Tree>) -> View {
        let older_sealed_bytes = sealed.iter().skip(1).map(|m| m.bytes()).sum();
        View { active, sealed, older_sealed_bytes, tree, number }
    }

    /// Returns the number of views of the keyspace before this one.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns all memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(&self.sealed)
    }

    /// Returns the bytes of all memtables.
    pub(crate) fn memtable_bytes(&self) -> usize {
        let newest_sealed = self.sealed.first().map_or(0, |memtable| memtable.bytes());
        self.active.bytes() + newest_sealed + self.older_sealed_bytes
    }
}

/// Shared state of a keyspace.
pub(crate) struct KeyspaceState {
    pub(crate) id: KeyspaceId,
    pub(crate) name: Arc<KeyspaceName>,
    pub(crate) options: ArcSwap<KeyspaceOptions>,
    pub(crate) operator: Option<Arc<dyn MergeOperator>>,
    /// Name of `operator`, or of the operator that the keyspace used before.
    pub(crate) operator_name: Option<Arc<str>>,
    /// Reads values from value files.
    pub(crate) pointers: Arc<PointerReader>,
    /// Whether a panic of the operator was reported.
    pub(crate) operator_panicked: atomic::AtomicBool,
    /// Load counters of the keyspace.
    pub(crate) meter: Meter,
    /// Density of its point lookups over the keys.
    pub(crate) density: LookupDensity,
    /// How long its tables live.
    pub(crate) lives: TableLives,
    /// Counters behind the keyspace's metrics.
    pub(crate) activity: Arc<Activity>,
    /// Whether the policy's background searches have changed since the maintenance lane last checked. Set under the
    /// control lock.
    pub(crate) search_changed: atomic::AtomicBool,
    /// Dead spans: key ranges that scans found empty.
    pub(crate) dead: Arc<DeadSpans>,
    /// Consecutive failures of flushes.
    pub(crate) flush_failures: Failures,
    /// Consecutive failures of compactions for a temporary reason.
    pub(crate) compaction_failures: Failures,
    /// Epochs that readers of the view pin.
    epochs: Arc<Epochs>,
    /// The current view; never none.
    view: EpochPtr<View>,
    /// Number of the newest view, set just before the view is installed.
    newest: atomic::AtomicU64,
    update: Mutex<()>,
    dropped: atomic::AtomicBool,
    memtable_seed: u64,
    /// Size in bytes at which a memtable is sealed, from the options.
    memtable_limit: atomic::AtomicUsize,
    /// Maximum total bytes of the memtables in one flush, from the options.
    flush_bytes: atomic::AtomicUsize,
    /// Whether filters may differ between tables, from the options. If so, the density of lookups is counted.
    filters_differ: atomic::AtomicBool,
}

impl KeyspaceState {
    /// Returns the owner to record in this keyspace's tables.
    pub(crate) fn owner(&self) -> drumlin_format::table::Owner {
        drumlin_format::table::Owner { id: self.id, name: self.name.to_string() }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "each is a part of the state, and there is one caller for each way to get one"
    )]
    pub(crate) fn new(
        id: KeyspaceId,
        name: &str,
        store: &Options,
        options: KeyspaceOptions,
        operator: Operator,
        pointers: Arc<PointerReader>,
        tree: Tree,
        log: LogNumber,
        memtable_seed: u64,
        meter: Meter,
        epochs: Arc<Epochs>,
    ) -> KeyspaceState {
        let active = Arc::new(Memtable::new(log, memtable_seed));
        let memtable_limit = store.memtable_bytes(&options) as usize;
        let flush_bytes = store.flush_bytes(&options) as usize;
        let filters_differ = options.has_different_filters();
        let view = Arc::new(View::new(0, active, Vec::new(), Arc::new(tree)));
        KeyspaceState {
            id,
            name: Arc::new(KeyspaceName::new(name)),
            options: ArcSwap::from_pointee(options),
            operator: operator.code,
            operator_name: operator.name,
            pointers,
            operator_panicked: atomic::AtomicBool::new(false),
            meter,
            density: LookupDensity::default(),
            lives: TableLives::default(),
            activity: Arc::default(),
            search_changed: atomic::AtomicBool::new(false),
            dead: Arc::new(DeadSpans::new()),
            flush_failures: Failures::default(),
            compaction_failures: Failures::default(),
            view: EpochPtr::new(Some(view), &epochs),
            epochs,
            newest: atomic::AtomicU64::new(0),
            update: Mutex::new(()),
            dropped: atomic::AtomicBool::new(false),
            memtable_seed,
            memtable_limit: atomic::AtomicUsize::new(memtable_limit),
            flush_bytes: atomic::AtomicUsize::new(flush_bytes),
            filters_differ: atomic::AtomicBool::new(filters_differ),
        }
    }

    /// Returns the current name.
    pub(crate) fn name(&self) -> Arc<String> {
        self.name.text()
    }

    /// Returns the size in bytes at which a memtable is sealed.
    pub(crate) fn memtable_limit(&self) -> usize {
        self.memtable_limit.load(atomic::Ordering::Relaxed)
    }

    /// Returns whether filters may differ between tables.
    #[inline]
    pub(crate) fn filters_differ(&self) -> bool {
        self.filters_differ.load(atomic::Ordering::Relaxed)
    }

    fn flush_bytes(&self) -> usize {
        self.flush_bytes.load(atomic::Ordering::Relaxed)
    }

    /// Estimates the number of runs that flushes will make of the memtables of `view`: at most one by the current
    /// flush, and then one for each `flush_bytes`.
    pub(crate) fn runs_to_come(&self, view: &View) -> f64 {
        let fill = view.active.bytes() as f64 / self.memtable_limit().max(1) as f64;
        let flushes = view.memtable_bytes() as f64 / self.flush_bytes().max(1) as f64;
        (view.sealed.len() as f64 + fill.min(1.0)).min(1.0 + flushes.max(1.0))
    }

    /// Returns the sealed memtables of `view` that one flush takes, oldest first. It takes those that are `ready`, up
    /// to the first that is not, and no more bytes than one flush may take.
    pub(crate) fn to_flush(&self, view: &View, ready: impl Fn(&Memtable) -> bool) -> Vec<Arc<Memtable>> {
        let (most, mut bytes) = (self.flush_bytes(), 0);
        let fits = |m: &&Arc<Memtable>| {
            let is_first = bytes == 0;
            bytes += m.bytes();
            ready(m) && (is_first || bytes <= most)
        };
        view.sealed.iter().rev().take_while(fits).cloned().collect()
    }

    /// Applies new options.
    pub(crate) fn set_options(&self, store: &Options, options: KeyspaceOptions) {
        let (memtable, flush) = (store.memtable_bytes(&options), store.flush_bytes(&options));
        self.memtable_limit.store(memtable as usize, atomic::Ordering::Relaxed);
        self.flush_bytes.store(flush as usize, atomic::Ordering::Relaxed);
        let filters_differ = options.has_different_filters();
        self.filters_differ.store(filters_differ, atomic::Ordering::Relaxed);
        self.options.store(Arc::new(options));
    }

    /// Pins the store's epochs.
    pub(crate) fn pin(&self) -> Pin<'_> {
        self.epochs.pin()
    }

    /// Borrows the current view. `pin` is one of the store's epochs.
    #[inline]
    pub(crate) fn peek<'p>(&'p self, pin: &'p Pin<'_>) -> &'p View {
        match self.view.load(pin) {
            Some(view) => view,
            None => unreachable!("a keyspace has a view, and its readers pin the epochs of its store"),
        }
    }

    /// Returns whether no newer view than `view` was installed up to now. If so, each commit that was visible before
    /// this call is in `view`.
    ///
    /// The number of the newest view says so without a reference to that view. It may be ahead of the installed view
    /// for a moment; the view itself then decides, so that no reader waits for the thread that installs one.
    #[inline]
    pub(crate) fn is_newest(&self, view: &View) -> bool {
        self.newest.load(atomic::Ordering::Acquire) == view.number
            || std::ptr::eq(view, self.peek(&self.epochs.pin()))
    }

    /// Installs a view. The caller holds the lock `update`.
    fn replace(&self, active: Arc<Memtable>, sealed: Vec<Arc<Memtable>>, tree: Arc<Tree>) {
        let number = self.newest.load(atomic::Ordering::Relaxed) + 1;
        self.newest.store(number, atomic::Ordering::Release);
        self.view.store(Some(Arc::new(View::new(number, active, sealed, tree))), &self.epochs);
    }

    /// Returns the current view.
    pub(crate) fn view(&self) -> Arc<View> {
        match self.view.load_full(&self.epochs) {
            Some(view) => view,
            None => unreachable!("a keyspace has a view"),
        }
    }

    pub(crate) fn active(&self) -> Arc<Memtable> {
        self.peek(&self.epochs.pin()).active.clone()
    }

    pub(crate) fn active_bytes(&self) -> usize {
        self.peek(&self.epochs.pin()).active.bytes()
    }

    /// Returns whether the view has sealed memtables.
    pub(crate) fn has_sealed(&self) -> bool {
        !self.peek(&self.epochs.pin()).sealed.is_empty()
    }

    /// Returns the bytes of all memtables of the view.
    pub(crate) fn held_bytes(&self) -> usize {
        self.peek(&self.epochs.pin()).memtable_bytes()
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(atomic::Ordering::Acquire)
    }

    pub(crate) fn mark_dropped(&self, dropped: bool) {
        self.dropped.store(dropped, atomic::Ordering::Release);
    }

    /// Seals the active memtable unless it is empty. The new one starts at log segment `log`. The caller holds the
    /// commit lock, so that no commit can reserve a place in between. Returns whether it sealed one.
    pub(crate) fn seal(&self, log: LogNumber) -> bool {
        let _update = self.update.lock();
        let view = self.view();
        if !view.active.holds_writes() {
            return false;
        }
        view.active.seal();
        let mut sealed = Vec::with_capacity(view.sealed.len() + 1);
        sealed.push(view.active.clone());
        sealed.extend(view.sealed.iter().cloned());
        let active = Arc::new(Memtable::new(log, self.memtable_seed));
        self.replace(active, sealed, view.tree.clone());
        true
    }

    /// Returns the changes that save the statistics of lookups and of the lives of tables in the manifest.
    pub(crate) fn saved_lookups(&self) -> impl Iterator<Item = Change> {
        let keyspace = self.id;
        let lookups = self.density.saved().map(|lookups| Change::KeyspaceLookups { keyspace, lookups });
        let lives = Some(self.lives.saved()).filter(|lives| !lives.is_empty());
        lookups.into_iter().chain(lives.map(|lives| Change::TableLives { keyspace, lives }))
    }

    /// Replaces the tree and removes the sealed memtables that the tree now contains.
    pub(crate) fn install(&self, tree: Tree, flushed: &[Arc<Memtable>]) {
        let _update = self.update.lock();
        let view = self.view();
        let gone = |m: &Arc<Memtable>| flushed.iter().any(|f| Arc::ptr_eq(f, m));
        let sealed = view.sealed.iter().filter(|m| !gone(m)).cloned().collect();
        self.replace(view.active.clone(), sealed, Arc::new(tree));
    }

    /// Adds a memtable that recovery filled, as the newest sealed one. Must happen before any reader exists.
    pub(crate) fn adopt(&self, memtable: Arc<Memtable>) {
        let _update = self.update.lock();
        let view = self.view();
        let sealed = std::iter::once(memtable).chain(view.sealed.iter().cloned()).collect();
        self.replace(view.active.clone(), sealed, view.tree.clone());
    }

    /// Empties the view after the keyspace was dropped.
    pub(crate) fn clear(&self, log: LogNumber) {
        let _update = self.update.lock();
        let active = Arc::new(Memtable::new(log, self.memtable_seed));
        self.replace(active, Vec::new(), Arc::new(Tree::empty()));
    }

    /// Returns the first log segment that holds unflushed data of this keyspace; `None` if there is none. The caller
    /// holds the commit lock.
    pub(crate) fn first_log(&self) -> Option<LogNumber> {
        let view = self.view();
        view.memtables().filter(|m| m.holds_writes()).map(|m| m.first_log()).min()
    }

    /// Returns the resolver that combines merge operands of this keyspace into values.
    pub(crate) fn resolver(&self) -> Resolver<'_> {
        Resolver {
            keyspace: &self.name,
            operator: self.operator.as_deref(),
            operator_name: self.operator_name.as_deref(),
            pointers: Some(&*self.pointers),
        }
    }

    pub(crate) fn check_alive(&self) -> Result<()> {
        if self.is_dropped() {
            return Err(Error::new(
                ErrorKind::KeyspaceDropped,
                format!("keyspace {:?} was dropped", self.name),
            ));
        }
        Ok(())
    }
}
