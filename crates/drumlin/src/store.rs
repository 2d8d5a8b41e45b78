//! The open store: what all parts share, and the few steps that tie them together.
//!
//! Locks, outermost first: `control` (versions, manifest, plans), the commit lane, a keyspace's `update`.
//! Readers take none of them.

use crate::background::{Background, Step};
use crate::compaction::audit::Audit;
use crate::compaction::control::{Asked, Control, KeyspaceControl};
use crate::compaction::install::Finished;
use crate::compaction::output::OutputSpec;
use crate::compaction::scheduler::{Moment, PieceStart};
use crate::compaction::slots::{SlotChange, Slots};
use crate::decisions::DecisionFiles;
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Event, EventListener};
use crate::keyspace::KeyspaceState;
use crate::memory::{self, Shares};
use crate::memtable::Memtable;
use crate::merge_operator::MergeOperator;
use crate::metrics::Counters;
use crate::options::{Durability, Options};
use crate::pacing::{self, Gate};
use crate::snapshot::SnapshotList;
use crate::stats::{Costs, LOOK, LookupCounts, Sample, SampledStore};
use crate::table::{BlockCache, TableCache, TableOptions};
use crate::version::{KeyspaceEdit, ManifestWriter, Obsolete, Tree, check};
use crate::write::{CommitLane, Log, Publisher};
use arc_swap::ArcSwap;
use drumlin_env::sync::{Arc, Mutex, atomic};
use drumlin_env::{Env, FileKind, FileLock, Note};
use drumlin_format::log::SEGMENT_HEADER_LEN;
use drumlin_format::manifest::{Change, Edit};
use drumlin_format::names::FileName;
use drumlin_policy::schedule::Mode;
use drumlin_types::contract::{LimitView, PieceId};
use drumlin_types::{LogNumber, Seq, TableId};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Input bytes of a merge piece, unless that is set for a test.
pub(crate) const PIECE_BYTES: u64 = 64 << 20;
/// Merge speed of a slot assumed before any was measured, bytes per second.
const SLOT_SPEED_GUESS: f64 = 150e6;
/// From this share of the most runs on, writers may be slowed at once.
const URGENT_SHARE: f64 = 0.95;

/// Everything that is not a number: given when the store is opened.
#[derive(Clone, Default)]
pub(crate) struct Components {
    pub(crate) listener: Option<Arc<dyn EventListener>>,
    /// Merge operators by keyspace name.
    pub(crate) operators: BTreeMap<String, Arc<dyn MergeOperator>>,
}

/// Sizes derived from the options when the store is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Bytes of all memtables at which writers wait.
    pub(crate) memtables: usize,
    /// Bytes that the block cache has whatever memtables hold.
    pub(crate) cache: usize,
    /// Bytes of live log at which the oldest memtables are sealed.
    pub(crate) log: u64,
    /// Merge slots, 0 where their number is found by measuring.
    pub(crate) slots: usize,
    /// How merges follow each other.
    pub(crate) mode: Mode,
}

/// An open store.
pub(crate) struct Store {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    pub(crate) options: ArcSwap<Options>,
    pub(crate) sizes: Sizes,
    pub(crate) components: Components,
    pub(crate) lane: CommitLane,
    pub(crate) publisher: Publisher,
    pub(crate) log: Log,
    pub(crate) snapshots: Arc<SnapshotList>,
    pub(crate) cache: Arc<BlockCache>,
    /// How that and the memtables share the memory.
    pub(crate) memory: Shares,
    pub(crate) tables: TableCache,
    pub(crate) obsolete: Arc<Obsolete>,
    pub(crate) control: Mutex<Control>,
    /// What finished pieces left that wait for others; taken after `control`.
    pub(crate) held: Mutex<BTreeMap<PieceId, Finished>>,
    pub(crate) background: Arc<Background>,
    pub(crate) slots: Slots,
    /// What writers pass.
    pub(crate) gate: Gate,
    /// What the writes of merges and flushes pass.
    pub(crate) write_gate: Gate,
    pub(crate) metrics: Counters,
    pub(crate) lookups: LookupCounts,
    pub(crate) decisions: DecisionFiles,
    pub(crate) costs: Arc<Costs>,
    /// Number of this open store for the samplers of its clients.
    pub(crate) sampling: Arc<SampledStore>,
    pub(crate) filter_seed: u64,
    pub(crate) recovered_seq: Seq,
    pub(crate) last_clock: atomic::AtomicU64,
    /// Point lookups when the present epoch of the access statistics began, and epochs so far.
    pub(crate) epoch_began: atomic::AtomicU64,
    pub(crate) epochs: atomic::AtomicU64,
    pub(crate) next_file: atomic::AtomicU64,
    pub(crate) next_keyspace: atomic::AtomicU64,
    keyspaces: ArcSwap<Vec<Arc<KeyspaceState>>>,
    poisoned: atomic::AtomicBool,
    first_cause: Mutex<Option<Error>>,
    /// Flushes that failed so far, and how the last of them did.
    pub(crate) flush_failures: Mutex<(u64, Option<Error>)>,
    /// Set while the last flush failed for want of space.
    pub(crate) disk_full: atomic::AtomicBool,
    /// The last merge failed for want of room: results that wait shall give their inputs' space back.
    pub(crate) merge_short: atomic::AtomicBool,
    pub(crate) closed: atomic::AtomicBool,
    /// Whether nothing may be written: no lane runs, no file is made, changed or removed.
    pub(crate) read_only: bool,
    lock: Mutex<Option<FileLock>>,
}

/// The parts that recovery makes.
pub(crate) struct Parts {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    pub(crate) sizes: Sizes,
    pub(crate) components: Components,
    pub(crate) lane: CommitLane,
    pub(crate) publisher: Publisher,
    pub(crate) log: Log,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) tables: TableCache,
    pub(crate) obsolete: Arc<Obsolete>,
    pub(crate) control: Control,
    pub(crate) filter_seed: u64,
    pub(crate) sampling: Arc<SampledStore>,
    pub(crate) recovered_seq: Seq,
    pub(crate) last_clock: u64,
    pub(crate) next_file: u64,
    pub(crate) next_keyspace: u64,
    pub(crate) keyspaces: Vec<Arc<KeyspaceState>>,
    pub(crate) decisions: DecisionFiles,
    pub(crate) read_only: bool,
    /// None when a store that is only read has no file to lock.
    pub(crate) lock: Option<FileLock>,
}

/// A step from one tree of a keyspace to the next.
#[derive(Clone, Copy)]
pub(crate) struct TreeStep<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) edit: &'a KeyspaceEdit,
    /// Memtables whose content the edit takes into the tree.
    pub(crate) flushed: &'a [Arc<Memtable>],
    /// What else becomes durable with it.
    pub(crate) more: &'a [Change],
}

impl Store {
    pub(crate) fn new(parts: Parts) -> Store {
        Store {
            background: Arc::new(Background::new(parts.env.clone())),
            slots: Slots::new(
                parts.sizes.slots,
                parts.env.available_cores(),
                parts.options.memory_budget,
                parts.env.clock().monotonic_micros(),
            ),
            env: parts.env,
            dir: parts.dir,
            write_gate: Gate::limited(parts.options.background_rate),
            options: ArcSwap::from_pointee(parts.options),
            sizes: parts.sizes,
            components: parts.components,
            lane: parts.lane,
            publisher: parts.publisher,
            log: parts.log,
            snapshots: Arc::default(),
            memory: Shares::new(parts.sizes.memtables, memory::usual(&parts.keyspaces), parts.cache.clone()),
            cache: parts.cache,
            tables: parts.tables,
            obsolete: parts.obsolete,
            control: Mutex::new(parts.control),
            held: Mutex::default(),
            gate: Gate::new(),
            metrics: Counters::default(),
            lookups: LookupCounts::default(),
            decisions: parts.decisions,
            costs: Arc::default(),
            sampling: parts.sampling,
            filter_seed: parts.filter_seed,
            recovered_seq: parts.recovered_seq,
            last_clock: atomic::AtomicU64::new(parts.last_clock),
            epoch_began: atomic::AtomicU64::new(0),
            epochs: atomic::AtomicU64::new(0),
            next_file: atomic::AtomicU64::new(parts.next_file),
            next_keyspace: atomic::AtomicU64::new(parts.next_keyspace),
            keyspaces: ArcSwap::from_pointee(parts.keyspaces),
            poisoned: atomic::AtomicBool::new(false),
            first_cause: Mutex::new(None),
            flush_failures: Mutex::new((0, None)),
            disk_full: atomic::AtomicBool::new(false),
            merge_short: atomic::AtomicBool::new(false),
            closed: atomic::AtomicBool::new(false),
            read_only: parts.read_only,
            lock: Mutex::new(parts.lock),
        }
    }

    // --- Time, names, numbers

    /// Monotonic time in microseconds.
    pub(crate) fn now(&self) -> u64 {
        self.env.clock().monotonic_micros()
    }

    /// Unix time in microseconds. It never goes back, not even over restarts.
    pub(crate) fn unix_micros(&self) -> u64 {
        let now = self.env.clock().unix_micros();
        self.last_clock.fetch_max(now, atomic::Ordering::AcqRel).max(now)
    }

    /// A file number that was never used.
    pub(crate) fn fresh_number(&self) -> u64 {
        self.next_file.fetch_add(1, atomic::Ordering::AcqRel)
    }

    pub(crate) fn next_table_id(&self) -> TableId {
        TableId(self.fresh_number())
    }

    pub(crate) fn table_path(&self, id: TableId) -> PathBuf {
        self.dir.join(FileName::Table(id).to_string())
    }

    pub(crate) fn durability(&self) -> Durability {
        self.options.load().durability
    }

    /// Largest encoded batch that is accepted: a quarter of the memory budget.
    pub(crate) fn max_batch_bytes(&self) -> u64 {
        self.options.load().memory_budget / 4
    }

    /// All keyspaces, dropped ones excepted.
    pub(crate) fn keyspaces(&self) -> arc_swap::Guard<Arc<Vec<Arc<KeyspaceState>>>> {
        self.keyspaces.load()
    }

    pub(crate) fn set_keyspaces(&self, keyspaces: Vec<Arc<KeyspaceState>>) {
        self.keyspaces.store(Arc::new(keyspaces));
    }

    /// Lets go of the directory: another open may have it.
    pub(crate) fn unlock(&self) {
        self.lock.lock().take();
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(atomic::Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "the store was closed"));
        }
        Ok(())
    }

    /// Fails for a keyspace of another store: numbers of keyspaces, commits and tables mean nothing there.
    pub(crate) fn check_own(&self, keyspace: &KeyspaceState) -> Result<()> {
        if keyspace.meter.is_of(&self.sampling) {
            return Ok(());
        }
        let what = format!("keyspace \"{}\" is one of another open store", keyspace.name);
        Err(Error::new(ErrorKind::InvalidArgument, what))
    }

    // --- Failure

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(atomic::Ordering::Acquire)
    }

    /// Fails when the store was opened read-only.
    pub(crate) fn check_read_only(&self) -> Result<()> {
        if self.read_only { Err(Error::read_only()) } else { Ok(()) }
    }

    /// Fails when nothing can be written: with the first cause once the log or the manifest has failed, and always
    /// in a store that was opened read-only.
    pub(crate) fn check_poison(&self) -> Result<()> {
        self.check_read_only()?;
        if !self.is_poisoned() {
            return Ok(());
        }
        match &*self.first_cause.lock() {
            Some(error) => Err(error.with_kind(ErrorKind::Poisoned)),
            None => Err(Error::new(ErrorKind::Poisoned, "an earlier failure")),
        }
    }

    /// The log or the manifest failed, or a background thread panicked: no write is accepted from now on.
    pub(crate) fn poison(&self, error: &Error) {
        let first = {
            let mut cause = self.first_cause.lock();
            let first = cause.is_none();
            cause.get_or_insert_with(|| error.clone());
            first
        };
        self.poisoned.store(true, atomic::Ordering::Release);
        self.log.give_up(error);
        self.publisher.fail(error.with_kind(ErrorKind::Poisoned));
        if first {
            self.tell(Event::Poisoned { error: error.clone() });
        }
        self.background.progressed();
    }

    /// A background thread panicked outside of what is given up by itself: what it left half done is not known, and whoever
    /// waits for it must hear of it. What it said is not shown, as it may hold user keys.
    pub(crate) fn lane_panicked(&self, lane: &str) {
        let what =
            format!("{lane} panicked; what was durable is, and will be there when the store is opened again");
        self.poison(&Error::new(ErrorKind::Bug, what));
    }

    pub(crate) fn tell(&self, event: Event) {
        if let Some(listener) = &self.components.listener {
            listener.on_event(&event);
        }
    }

    /// A background job failed; it is tried again later.
    pub(crate) fn background_failed(&self, job: &'static str, error: &Error) {
        Counters::add(&self.metrics.background_errors, 1);
        self.tell(Event::BackgroundError { job, error: error.clone() });
        self.background.progressed();
    }

    /// A flush failed; it is tried again later.
    pub(crate) fn flush_failed(&self, error: &Error) {
        let mut failures = self.flush_failures.lock();
        *failures = (failures.0 + 1, Some(error.clone()));
        drop(failures);
        if error.kind() == ErrorKind::NoSpace {
            self.disk_full.store(true, atomic::Ordering::Release);
        }
        self.background_failed("flush", error);
    }

    /// Flushes that failed so far.
    pub(crate) fn failed_flushes(&self) -> u64 {
        self.flush_failures.lock().0
    }

    /// Fails with the cause once [`PATIENCE`] flushes failed since there were `before`: who waits for one shall hear of
    /// it. The flush itself is tried on.
    pub(crate) fn check_flushes(&self, before: u64) -> Result<()> {
        let failures = self.flush_failures.lock();
        match &failures.1 {
            Some(error) if failures.0 >= before + PATIENCE => Err(error.clone()),
            _ => Ok(()),
        }
    }

    // --- Versions

    /// Makes `step` durable and gives the next tree. `durable` is called once it is, or may be, on disk: from then on
    /// its files must not be removed.
    pub(crate) fn commit_edit(
        &self,
        control: &mut Control,
        keyspace: &KeyspaceState,
        step: &TreeStep<'_>,
        durable: impl FnOnce(),
    ) -> Result<Tree> {
        let TreeStep { tree, edit, flushed, more } = *step;
        let next = tree.apply(edit)?;
        if cfg!(debug_assertions) {
            check::check(&next).map_err(|what| Error::new(ErrorKind::Bug, what))?;
            Audit { store: self, keyspace, before: tree, flushed, after: &next }.run()?;
        }
        let mut changes: Vec<Change> = edit
            .remove
            .iter()
            .map(|(table, start)| Change::RemoveFile {
                keyspace: keyspace.id,
                table: *table,
                start: start.clone(),
            })
            .collect();
        for (level, run, tag) in &edit.runs {
            let known = tree.levels[*level as usize].runs.iter().any(|r| r.id == *run);
            if !known && edit.add.iter().any(|(_, to, _)| to == run) {
                changes.push(Change::AddRun {
                    keyspace: keyspace.id,
                    run: *run,
                    level: *level,
                    tag: tag.clone(),
                });
            }
        }
        for (level, run, file) in &edit.add {
            changes.push(Change::AddFile { keyspace: keyspace.id, file: file.record(*level, *run) });
        }
        let live: BTreeSet<TableId> = next.files().map(|(_, _, f)| f.id()).collect();
        let gone: BTreeSet<TableId> =
            edit.remove.iter().map(|(t, _)| *t).filter(|t| !live.contains(t)).collect();
        let removed: Vec<PathBuf> = gone.iter().map(|table| self.table_path(*table)).collect();
        self.env.note(Note::EditRemoves { files: &removed });
        changes.extend_from_slice(more);
        let next_file = self.next_file.load(atomic::Ordering::Acquire);
        changes.push(Change::NextFile(next_file + crate::recovery::NUMBER_LEASE));
        changes.push(Change::NextRun(control.numbers.next_run));
        self.append_edit(control, Edit { changes }, durable)?;
        for (_, _, file) in tree.files().filter(|(_, _, f)| gone.contains(&f.id())) {
            file.table.retire();
        }
        Ok(next)
    }

    /// Appends to the manifest. A failure poisons the store, unless the disk had no room for the edit.
    pub(crate) fn append_edit(
        &self,
        control: &mut Control,
        edit: Edit,
        durable: impl FnOnce(),
    ) -> Result<()> {
        // Under the lock: behind an edit that failed, and may be there in part, nothing is written.
        self.check_poison()?;
        if control.closed {
            return Err(Error::new(ErrorKind::Closed, "the store was closed"));
        }
        let added: Vec<PathBuf> = edit.changes.iter().filter_map(|change| self.added_file(change)).collect();
        self.env.note(Note::EditAdds { files: &added });
        for change in &edit.changes {
            if let Change::LogFloor(floor) = change {
                let log = crate::write::segment::path_in(&self.dir, *floor);
                self.env.note(Note::LogBegins { log: &log, header: SEGMENT_HEADER_LEN as u64 });
                for number in self.lane.state.lock().log.below(*floor) {
                    let log = crate::write::segment::path_in(&self.dir, number);
                    self.env.note(Note::LogObsolete { log: &log });
                    if drumlin_types::bug!("B12") {
                        unlink(&self.env, &log, FileKind::Log)?;
                    }
                }
            }
        }
        if control.manifest.is_torn() {
            self.replace_manifest(control)?;
        }
        match control.manifest.append(&edit) {
            Ok(bytes) => Counters::add(&self.metrics.manifest_bytes_written, bytes),
            Err(error) => {
                // An edit that found no room is not there, and the store goes on. Else it may be there.
                if !control.manifest.is_torn() {
                    durable();
                    self.poison(&error);
                }
                return Err(error);
            }
        }
        durable();
        self.env.note(Note::EditDurable);
        Ok(())
    }

    fn added_file(&self, change: &Change) -> Option<PathBuf> {
        match change {
            Change::AddFile { file, .. } => Some(self.table_path(file.table)),
            _ => None,
        }
    }

    /// The first log segment that anything not in tables needs, once `flushed` is in tables.
    pub(crate) fn log_floor(&self, flushed: &[Arc<Memtable>]) -> LogNumber {
        let lane = self.lane.state.lock();
        let mut floor = lane.log.segment.number;
        for keyspace in self.keyspaces().iter() {
            let view = keyspace.view();
            for memtable in view.memtables() {
                let is_flushed = flushed.iter().any(|f| Arc::ptr_eq(f, memtable));
                if !is_flushed && (!memtable.is_empty() || memtable.writers() > 0) {
                    floor = floor.min(LogNumber(memtable.id()));
                }
            }
        }
        if drumlin_types::bug!("B37") { floor } else { lane.log.floor(floor) }
    }

    /// Recycles or unlinks the log segments below `floor`, which is durable.
    pub(crate) fn release_log(&self, floor: LogNumber) {
        let released = self.lane.state.lock().log.release_below(floor);
        for number in released.numbers() {
            self.obsolete.push_file(crate::write::segment::path_in(&self.dir, number));
        }
    }

    /// Seals the memtables that hold the log back when it has grown too long.
    pub(crate) fn relieve_log(&self) {
        let lane = self.lane.state.lock();
        if lane.log.live_bytes() <= self.sizes.log {
            return;
        }
        let number = lane.log.segment.number;
        let oldest = self.keyspaces().iter().filter_map(|k| k.first_log()).min();
        // What is sealed is to be flushed anyway: it is no reason to seal what came after it.
        let holds = |keyspace: &KeyspaceState| Some(LogNumber(keyspace.active().id())) == oldest;
        for keyspace in self.keyspaces().iter() {
            if oldest.is_some_and(|oldest| oldest < number) && holds(keyspace) {
                keyspace.seal(number);
            }
        }
    }

    // --- Plans

    /// How tables of `keyspace` are written at level `out`.
    pub(crate) fn output_spec(&self, keyspace: &KeyspaceState, out: u8, bottom: bool) -> OutputSpec {
        let options = keyspace.options.load();
        let is_bottom = bottom && out > 0;
        OutputSpec {
            table: TableOptions {
                block_bytes: options.block_bytes as usize,
                compression: if is_bottom { options.bottom_compression() } else { options.compression },
                seed: self.filter_seed,
                created_seq: self.publisher.visible(),
            },
            file_bytes: options.file_bytes,
            filter_bits: options.filter_bits.unwrap_or(DEFAULT_FILTER_BITS),
        }
    }

    /// The piece that a merge slot should start now, or what is left to do for a slot without one.
    pub(crate) fn next_piece(&self) -> std::result::Result<PieceStart, Step> {
        let moment = Moment {
            now: self.now(),
            seed: self.env.random_u64("policy"),
            limits: LimitView { slots: self.slots.count() as u32, ..self.disk_limits() },
            costs: self.costs.view(),
            piece_bytes: PIECE_BYTES,
            mode: self.sizes.mode,
            room: self.room_for_merges(),
            clock: self.env.clock().clone(),
        };
        let mut control = self.control.lock();
        let piece = control.next_piece(&moment, &|keyspace| self.sample(keyspace));
        self.refresh_pace(&control);
        let stirred = std::mem::take(&mut control.stirred);
        let Asked { times, nanos, longest_nanos } = std::mem::take(&mut control.asked);
        if times > 0 {
            self.metrics.asked(times, nanos, longest_nanos);
        }
        let fallen = |entry: &mut KeyspaceControl| {
            let policy = entry.fallen.take()?;
            Some(Event::PolicyFailed { keyspace: entry.state.name.to_string(), policy })
        };
        let fallen: Vec<Event> = control.keyspaces.iter_mut().filter_map(fallen).collect();
        // Whoever waits until nothing is to be done waits for questions that come to nothing, too.
        let is_awaited = control.idle_waiters > 0 && times > 0;
        drop(control);
        fallen.into_iter().for_each(|event| self.tell(event));
        if is_awaited {
            self.background.progressed();
        }
        if stirred {
            // Lanes that can go on with it may be asleep.
            self.background.wake();
        }
        piece.map_err(|timer| match timer {
            _ if stirred => Step::More,
            Some(when) => Step::Until(when),
            None => Step::Idle,
        })
    }

    /// Ends the interval in which the number of merge slots was measured, if it is over and the number is to be found.
    /// A change is told and logged.
    pub(crate) fn tune_slots(&self, now: u64) -> Option<SlotChange> {
        if !self.slots.is_due(now) {
            return None;
        }
        let mut control = self.control.lock();
        let is_frozen = control.keyspaces.iter().any(KeyspaceControl::is_frozen);
        let change = self.slots.interval(now, is_frozen)?;
        let SlotChange { before, slots, reason } = change.clone();
        control.decisions.note(now, "", format!("merge slots {before} -> {slots}"), reason.clone());
        drop(control);
        self.tell(Event::SlotsChanged { before, slots, reason });
        Some(change)
    }

    fn sample(&self, keyspace: &KeyspaceState) -> Sample {
        let view = keyspace.peek();
        let mut sample = keyspace.meter.sample();
        sample.load.sealed_memtables = view.sealed.len() as u32;
        sample.load.memtable_fill = view.active.bytes() as f64 / keyspace.memtable_bytes() as f64;
        sample.load.snapshots = self.snapshots.len() as u32;
        // Each keyspace is taken to have its share of what reads fetched.
        let fetched = self.costs.fetched_per_second() * keyspace.options.load().block_bytes as f64;
        sample.load.read_bytes = fetched / self.keyspaces().len().max(1) as f64;
        sample
    }

    /// Reads the counters of the load, once a second; keyspaces that were used, or whose mix of operations is another one
    /// all at once, are asked for merges. `false` when none was.
    pub(crate) fn tick(&self) -> bool {
        let now = self.now();
        let active: Vec<_> = self.keyspaces().iter().filter(|k| k.meter.roll(now)).cloned().collect();
        let turned: Vec<_> = self.keyspaces().iter().filter(|k| k.meter.turns(now)).cloned().collect();
        if active.is_empty() && turned.is_empty() {
            return false;
        }
        if !active.is_empty() {
            self.costs.fetched(now, self.cache.stats().misses);
        }
        let mut control = self.control.lock();
        for keyspace in &active {
            if let Some(entry) = control.keyspace(keyspace) {
                entry.due = true;
            }
        }
        for keyspace in &turned {
            if let Some(entry) = control.keyspace(keyspace) {
                entry.ask_soon();
            }
        }
        drop(control);
        self.background.wake();
        true
    }

    /// When the load is to be looked at again, if there is any. In simulation lanes need no timer: they are stepped.
    pub(crate) fn next_look(&self) -> Option<u64> {
        if self.env.stepping().is_some() {
            return None;
        }
        let is_busy = self.keyspaces().iter().any(|keyspace| keyspace.meter.is_busy());
        is_busy.then(|| self.now() + LOOK)
    }

    /// Sets the writers' gate from the paces of all keyspaces: the narrowest counts.
    pub(crate) fn refresh_pace(&self, control: &Control) {
        let speed = match self.costs.view().merge_bytes_per_s {
            measured if measured > 0.0 => measured,
            _ => SLOT_SPEED_GUESS,
        } * self.slots.count() as f64;
        let speed = speed.min(self.write_gate.rate() as f64);
        let (mut rate, mut urgent) = (pacing::OPEN, false);
        for keyspace in &control.keyspaces {
            let Some(pace) = &keyspace.pace else { continue };
            let runs = keyspace.paced_runs(pace);
            rate = rate.min(pacing::rate(pace, runs, speed));
            urgent |= runs >= URGENT_SHARE * pace.stop || pace.hard_stop;
        }
        self.gate.approach(rate, self.now(), urgent);
    }

    /// Brings the writers' gate up to date, unless someone else is at it.
    pub(crate) fn refresh_pace_if_free(&self) {
        if let Some(control) = self.control.try_lock() {
            self.refresh_pace(&control);
        }
    }

    /// Rewrites the manifest when that makes it much smaller.
    pub(crate) fn rewrite_manifest_if_grown(&self) -> Result<bool> {
        let mut control = self.control.lock();
        if !control.manifest.wants_rewrite() || self.is_poisoned() {
            return Ok(false);
        }
        match self.replace_manifest(&mut control) {
            Ok(()) => Ok(true),
            // It serves on as it is.
            Err(error) if error.kind() == ErrorKind::NoSpace => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Puts a new manifest, a snapshot of everything, in the place of the present one.
    fn replace_manifest(&self, control: &mut Control) -> Result<()> {
        let header = drumlin_format::manifest::ManifestHeader {
            number: self.fresh_number(),
            ..control.manifest.header()
        };
        let snapshot = crate::recovery::snapshot_edit(self, control);
        match ManifestWriter::create(&self.env, self.dir.clone(), header, &snapshot) {
            Ok(manifest) => {
                let old = std::mem::replace(&mut control.manifest, manifest);
                self.obsolete.push_file(old.path());
                Counters::add(&self.metrics.manifest_rewrites, 1);
                Ok(())
            }
            Err(error) => {
                if error.kind() != ErrorKind::NoSpace {
                    self.poison(&error);
                }
                Err(error)
            }
        }
    }
}

/// Failed flushes that a waiter sits out.
const PATIENCE: u64 = 3;

/// Filter bits per key when they are left to the store.
const DEFAULT_FILTER_BITS: f64 = 10.0;

pub(crate) fn sync_dir(env: &Env, dir: &Path) -> Result<()> {
    env.fs().sync_dir(dir).map_err(|e| Error::io(dir, "cannot sync the directory", e))
}

/// Unlinks a file, for callers to whom it does not matter whether it was there.
pub(crate) fn unlink(env: &Env, path: &Path, kind: FileKind) -> Result<()> {
    match env.fs().unlink(path, kind) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io(path, "cannot remove a file", e)),
        _ => Ok(()),
    }
}
