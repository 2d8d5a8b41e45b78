//! The open store: the state that all parts share, and the few steps that connect them.
//!
//! ```text
//! Store ── files    directory, numbers, open tables        health  poisoned, closed, failing, disk full
//!   ├── commit_lock, publisher, log: the write path       keyspaces, snapshots: what readers see
//!   ├── control: manifest, edits of trees, policies, plans slots, held: compactions that run or wait
//!   └── throttles, memory, costs, lookups, metrics: measurements, and the limits that follow from them
//! ```
//!
//! Locks, outermost first: `drops`, `control` (versions, manifest, plans), the commit lock, a keyspace's `update`.
//! `held` and the lock of the filter budget are taken alone or under `control`, and no other lock is taken under them.
//! Readers take none of them.

mod edits;
mod flushes;
mod health;
mod load;
mod log;
pub(crate) mod memory;
mod next_piece;
pub(crate) mod space;
mod sync;
mod throttles;

use crate::background::Background;
use crate::base::decisions::DecisionFiles;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::event::{Event, EventListener};
use crate::base::merge_operator::MergeOperator;
use crate::base::metrics::{Counters, MergeCounts};
use crate::base::snapshots::SnapshotList;
use crate::compaction::control::Control;
use crate::compaction::executor::Finished;
use crate::compaction::slots::Slots;
use crate::disk::Files;
use crate::filter::FilterBudget;
use crate::keyspace::KeyspaceState;
use crate::options::{Durability, Options};
use crate::stats::{Costs, DecayEpochs, LookupCounts, OperationCounts, SampledStore};
use crate::value::Lifetimes;
use crate::write::budget::DiskBudget;
pub(crate) use crate::write::budget::left_to_compactions;
use crate::write::{CommitLock, DurableLog, Publisher};
use arc_swap::ArcSwap;
use drumlin_env::sync::{Arc, Mutex, RwLock, atomic};
use drumlin_policy::schedule::Concurrency;
use drumlin_types::Seq;
use drumlin_types::contract::PieceId;
pub(crate) use edits::{TreeStep, saved_statistics, snapshot};
use health::Health;

use memory::Shares;
use std::collections::BTreeMap;
use throttles::Throttles;

/// Event listener and merge operators, given when the store is opened.
#[derive(Clone, Default)]
pub(crate) struct Components {
    pub(crate) listener: Option<Arc<dyn EventListener>>,
    /// Merge operators by keyspace name.
    pub(crate) operators: BTreeMap<String, Arc<dyn MergeOperator>>,
    /// Names of merge operators that new keyspaces are bound to, without their code. Used by repair.
    pub(crate) operator_names: BTreeMap<String, String>,
}

/// Sizes derived from the options when the store is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Bytes of all memtables at which writers wait.
    pub(crate) memtables: usize,
    /// Smallest size of the block cache in bytes, whatever memtables hold.
    pub(crate) cache: usize,
    /// Bytes for the buffers of all compactions together.
    pub(crate) jobs: usize,
    /// Limit on the read-ahead of a user scan, per run, in bytes.
    pub(crate) scan_readahead: usize,
    /// Bytes of live log at which the oldest memtables are sealed.
    pub(crate) log: u64,
    /// Number of compaction slots; 0 if the number is found by measuring.
    pub(crate) slots: usize,
    /// Largest encoded batch that is accepted, in bytes.
    pub(crate) max_batch: u64,
    /// How compactions follow each other.
    pub(crate) mode: Concurrency,
}

/// An open store.
pub(crate) struct Store {
    pub(crate) files: Arc<Files>,
    pub(crate) health: Health,
    pub(crate) options: ArcSwap<Options>,
    pub(crate) sizes: Sizes,
    pub(crate) components: Components,
    pub(crate) commit_lock: CommitLock,
    /// Disk space of tables and log, also seen by the log.
    pub(crate) disk_budget: Arc<DiskBudget>,
    pub(crate) publisher: Publisher,
    pub(crate) log: DurableLog,
    pub(crate) snapshots: Arc<SnapshotList>,
    /// How memtables and block cache share the memory.
    pub(crate) memory: Shares,
    pub(crate) control: Mutex<Control>,
    /// Outputs of finished pieces (subcompactions) that wait for an earlier install. This lock is taken after
    /// `control`.
    pub(crate) held: Mutex<BTreeMap<PieceId, Finished>>,
    pub(crate) background: Arc<Background>,
    pub(crate) slots: Slots,
    pub(crate) throttles: Throttles,
    pub(crate) metrics: Counters,
    pub(crate) counts: OperationCounts,
    pub(crate) lookups: LookupCounts,
    pub(crate) lookup_epochs: DecayEpochs,
    /// Filter bits of all tables.
    pub(crate) filters: Arc<FilterBudget>,
    /// Lifetimes of values in value files.
    pub(crate) lifetimes: Arc<Lifetimes>,
    pub(crate) decisions: DecisionFiles,
    pub(crate) costs: Arc<Costs>,
    /// Identity of this open store, for the samplers of its clients.
    pub(crate) sampling: Arc<SampledStore>,
    pub(crate) recovered_seq: Seq,
    pub(crate) next_keyspace: atomic::AtomicU64,
    /// Held for writing by a drop or rename of a keyspace, and for reading by a checkpoint: the copy holds each
    /// keyspace under the name that it had, or the record of its drop. Taken before `control`.
    pub(crate) drops: RwLock<()>,
    keyspaces: Arc<ArcSwap<Vec<Arc<KeyspaceState>>>>,
}

/// The parts of a store, from recovery.
pub(crate) struct Parts {
    pub(crate) files: Files,
    pub(crate) options: Options,
    pub(crate) sizes: Sizes,
    pub(crate) components: Components,
    pub(crate) commit_lock: CommitLock,
    pub(crate) publisher: Publisher,
    pub(crate) log: DurableLog,
    pub(crate) control: Control,
    pub(crate) lifetimes: Arc<Lifetimes>,
    pub(crate) sampling: Arc<SampledStore>,
    pub(crate) recovered_seq: Seq,
    pub(crate) next_keyspace: u64,
    pub(crate) keyspaces: Vec<Arc<KeyspaceState>>,
    pub(crate) decisions: DecisionFiles,
    pub(crate) read_only: bool,
}

/// Returns the bytes of memory that the trees of `keyspaces` take.
fn tree_bytes(keyspaces: &[Arc<KeyspaceState>]) -> usize {
    keyspaces.iter().map(|keyspace| keyspace.view().tree.held_bytes()).sum()
}

impl Store {
    pub(crate) fn new(parts: Parts) -> Store {
        let env = &parts.files.env;
        let slots = Slots::new(
            parts.sizes.slots,
            env.available_cores(),
            parts.options.memory_budget,
            env.clock().monotonic_micros(),
        );
        let expected = memory::expected_memtable_bytes(&parts.keyspaces);
        let keyspaces = Arc::new(ArcSwap::from_pointee(parts.keyspaces));
        let memory = Shares::new(parts.sizes.memtables, expected, parts.files.cache.clone());
        memory.hold_trees(|| tree_bytes(&keyspaces.load()));
        let filters = FilterBudget::new(keyspaces.clone(), parts.options.memory_budget);
        Store {
            background: Arc::new(Background::new(env.clone())),
            slots,
            memory,
            files: Arc::new(parts.files),
            health: Health::new(parts.read_only),
            throttles: Throttles::new(parts.options.background_rate),
            options: ArcSwap::from_pointee(parts.options),
            sizes: parts.sizes,
            components: parts.components,
            disk_budget: parts.commit_lock.directory.budget.clone(),
            commit_lock: parts.commit_lock,
            publisher: parts.publisher,
            log: parts.log,
            snapshots: Arc::default(),
            control: Mutex::new(parts.control),
            held: Mutex::default(),
            metrics: Counters::default(),
            counts: OperationCounts::default(),
            lookups: LookupCounts::default(),
            lookup_epochs: DecayEpochs::default(),
            filters: Arc::new(filters),
            lifetimes: parts.lifetimes,
            decisions: parts.decisions,
            costs: Arc::default(),
            sampling: parts.sampling,
            recovered_seq: parts.recovered_seq,
            next_keyspace: atomic::AtomicU64::new(parts.next_keyspace),
            drops: RwLock::new(()),
            keyspaces,
        }
    }

    pub(crate) fn durability(&self) -> Durability {
        self.options.load().durability
    }

    /// Returns the largest encoded batch that is accepted: a quarter of the memory budget, or any size while a repair
    /// writes the store.
    pub(crate) fn max_batch_bytes(&self) -> u64 {
        self.sizes.max_batch
    }

    /// Returns all keyspaces except dropped ones.
    pub(crate) fn keyspaces(&self) -> arc_swap::Guard<Arc<Vec<Arc<KeyspaceState>>>> {
        self.keyspaces.load()
    }

    /// Charges for the memory that trees and lifetimes of values take. Must be called after trees were replaced.
    pub(crate) fn charge_trees(&self) {
        self.memory.hold_trees(|| tree_bytes(&self.keyspaces()) + self.lifetimes.bytes());
    }

    pub(crate) fn set_keyspaces(&self, keyspaces: Vec<Arc<KeyspaceState>>) {
        self.keyspaces.store(Arc::new(keyspaces));
    }

    /// Returns an error for a keyspace of another store. Its numbers of keyspaces, commits and tables have no meaning
    /// here.
    pub(crate) fn check_own(&self, keyspace: &KeyspaceState) -> Result<()> {
        if keyspace.meter.is_of(&self.sampling) {
            return Ok(());
        }
        let what = format!("keyspace \"{}\" belongs to another open store", keyspace.name);
        Err(Error::new(ErrorKind::InvalidArgument, what))
    }

    /// Poisons the store after a failure of the log or the manifest, or a panic of a background thread: it accepts no
    /// more writes.
    pub(crate) fn poison(&self, error: &Error) {
        let first = self.health.poison(error);
        self.log.fail(error);
        self.publisher.fail(error.with_kind(ErrorKind::Poisoned));
        if first {
            self.tell(Event::Poisoned { error: error.clone() });
        }
        self.background.progressed();
    }

    /// Poisons the store after a panic of a background thread that nothing else handles. The state of its work is
    /// unknown, and threads that wait for it must get an error. The panic message is not shown, because it may hold
    /// user keys.
    pub(crate) fn lane_panicked(&self, lane: &str) {
        let what = format!("{lane} panicked; durable data is safe and will be there after reopening");
        self.poison(&Error::new(ErrorKind::Bug, what));
    }

    /// Returns whether there is an event listener. Without one, events need not be created.
    pub(crate) fn has_listener(&self) -> bool {
        self.components.listener.is_some()
    }

    pub(crate) fn tell(&self, event: Event) {
        if let Some(listener) = &self.components.listener {
            listener.on_event(&event);
        }
    }

    /// Reports the first panic of the keyspace's merge operator among the installed `counts`.
    pub(crate) fn tell_operator_panics(&self, keyspace: &KeyspaceState, counts: &MergeCounts) {
        if counts.operator_panics == 0 || keyspace.operator_panicked.swap(true, atomic::Ordering::Relaxed) {
            return;
        }
        let operator = keyspace.operator_name.as_deref().unwrap_or_default().to_owned();
        self.tell(Event::OperatorPanicked { keyspace: keyspace.name.to_string(), operator });
    }

    /// Reports the failure of a background job, which is retried later.
    pub(crate) fn background_failed(&self, job: &'static str, error: &Error) {
        Counters::add(&self.metrics.background_errors, 1);
        self.relieve_descriptors(error);
        self.tell(Event::BackgroundError { job, error: error.clone() });
        self.background.progressed();
    }
}
