//! The flush lane: sealed memtables become runs of level 0, oldest first.
//!
//! 1. Take the oldest sealed memtables of a keyspace whose writers are done and whose commits are all visible. They are
//!    flushed in the order in which they were sealed.
//! 2. Compact them into tables with the usual rules. Tombstones are dropped only if the tree holds nothing older.
//! 3. Sync the log up to the newest commit in them if another keyspace has writes in memory. Otherwise power loss could
//!    keep this keyspace's later writes and lose another's earlier ones: a hole in the commit order, or half of a batch
//!    over both. If no other keyspace has writes in memory, all commits up to the newest flushed one are in tables once
//!    this flush is installed, and the log may lose them.
//! 4. Install files, flushed sequence number and log floor in one edit. Log segments below the floor are recycled once
//!    the edit is durable.
//!
//! After a failure the keyspace backs off for a second. Meanwhile the lane flushes other keyspaces.
//!
//! A memtable is sealed, so that it can be flushed:
//! - by the commit that finds it full (`write/commit_lock.rs`),
//! - by a writer that finds all memtables together full and none sealed (`ops/admission.rs`),
//! - when the log is too long (`store/log.rs`) or finds no disk space (`store/space.rs`),
//! - by a manual flush, a checkpoint and a manual compaction (`ops`).

use super::inherit::inherit_flush;
use crate::background::{Lane, Step};
use crate::base::cursor::Cursor;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::event::Event;
use crate::base::rangedel::Fragmented;
use crate::base::snapshots::Readers;
use crate::compaction::control::Control;
use crate::compaction::executor::{MergeJob, MergeResult, Progress};
use crate::compaction::merge::MergeRules;
use crate::compaction::view::tree_view;
use crate::filter::MergedInputs;
use crate::keyspace::KeyspaceState;
use crate::memtable::Memtable;
use crate::options::{Adaptation, ValuePolicy};
use crate::store::memory;
use crate::store::space::bytes_of;
use crate::store::{Store, TreeStep};
use crate::value::{FlushedValues, all_value_bytes};
use crate::version::{FileMeta, KeyspaceEdit, Tree};
use drumlin_env::sync::{Arc, Mutex, atomic};
use drumlin_format::manifest::MAX_CHANGES;
use drumlin_policy::schedule::Flight;
use drumlin_types::contract::legal::DropGuard;
use drumlin_types::contract::{FileState, Outcome};
use drumlin_types::{Key, KeyRange, KeyspaceId, LogNumber, Seq, TableId};
use std::collections::{BTreeMap, BTreeSet};

/// A running flush.
struct FlushJob {
    keyspace: Arc<KeyspaceState>,
    memtables: Vec<Arc<Memtable>>,
    merge: Option<Box<MergeJob>>,
    max_seq: Seq,
}

/// The lane that flushes.
pub(crate) struct FlushLane {
    store: Arc<Store>,
    job: Mutex<Option<FlushJob>>,
    /// Keyspaces whose last flush failed, with the monotonic time of the next attempt.
    resting: Mutex<BTreeMap<KeyspaceId, u64>>,
}

/// Why a flush of a keyspace failed.
struct FlushFailure {
    keyspace: Arc<KeyspaceState>,
    error: Error,
}

/// Pause after a failed flush, in microseconds. Flushes of other keyspaces go on meanwhile.
const RETRY: u64 = 1_000_000;

impl FlushLane {
    pub(crate) fn new(store: Arc<Store>) -> FlushLane {
        FlushLane { store, job: Mutex::default(), resting: Mutex::default() }
    }

    fn try_step(&self) -> Result<Step, FlushFailure> {
        // The slot is not locked while the job runs: a listener may close the store, which looks at the slot.
        let job = self.job.lock().take();
        let Some(job) = job else {
            if self.store.health.is_poisoned() {
                return Ok(Step::Idle);
            }
            let Some(begun) = self.begin()? else { return Ok(self.rest()) };
            *self.job.lock() = Some(begun);
            return Ok(Step::More);
        };
        let keyspace = job.keyspace.clone();
        match self.go_on(job).map_err(|error| FlushFailure { keyspace, error })? {
            Some(job) => *self.job.lock() = Some(job),
            None => self.store.disk_budget.reserve_for_flush(0),
        }
        Ok(Step::More)
    }

    /// Runs one step of `job`. Returns the job unless it is done.
    fn go_on(&self, mut job: FlushJob) -> Result<Option<FlushJob>> {
        let merge = job.merge.as_mut().expect("a running job has its merge");
        let before = merge.bytes_written();
        let progress = self.store.step_merge(merge)?;
        // A flush never waits for `background_rate`. Its bytes count towards the limit, so compactions wait for them.
        self.store
            .throttles
            .background
            .pay(merge.bytes_written().saturating_sub(before), self.store.files.now());
        // The reservation covers unfinished files only: `obsolete` counts the bytes of finished tables.
        let bytes = bytes_of(&job.memtables).saturating_sub(merge.bytes_finished());
        self.store.disk_budget.lower_for_flush(bytes);
        if progress != Progress::Done {
            return Ok(Some(job));
        }
        let mut result = job.merge.take().expect("just stepped").into_result();
        result.outputs.end_merge();
        let options = job.keyspace.options.load();
        let flushed = FlushedValues {
            now: job.max_seq,
            bytes: bytes_of(&job.memtables),
            written: result.outputs.value_bytes().0,
            predicts: options.least_separated() < u64::MAX
                && options.value_policy != ValuePolicy::GarbageRatio,
        };
        let is_frozen = || job.keyspace.options.load().adaptation == Adaptation::Frozen;
        if self.store.lifetimes.flushed(job.keyspace.id, flushed, is_frozen) {
            self.store.background.wake();
        }
        self.store.install_flush(&job.keyspace, &job.memtables, job.max_seq, result)?;
        self.store.background.progressed();
        Ok(None)
    }

    /// Returns the step of a lane without a job: it waits until the first back-off ends.
    fn rest(&self) -> Step {
        self.resting.lock().values().min().map_or(Step::Idle, |until| Step::Until(*until))
    }

    /// Returns whether a keyspace that is not backing off has a memtable to flush.
    fn others_wait(&self) -> bool {
        let resting = self.still_resting();
        let waits = |k: &Arc<KeyspaceState>| !resting.contains(&k.id) && k.has_sealed();
        self.store.keyspaces().iter().any(waits)
    }

    /// Returns the keyspaces that are backing off after a failed flush.
    fn still_resting(&self) -> BTreeSet<KeyspaceId> {
        let mut resting = self.resting.lock();
        if resting.is_empty() {
            return BTreeSet::new();
        }
        let now = self.store.files.now();
        resting.retain(|_, until| *until > now);
        resting.keys().copied().collect()
    }

    /// Starts the next flush, for the keyspace whose oldest sealed memtable reaches furthest back in the log, among
    /// those that are not backing off. Small memtables that were sealed during the previous flush are flushed together:
    /// flushing all of them as one run costs no more syncs than flushing one.
    fn begin(&self) -> Result<Option<FlushJob>, FlushFailure> {
        let store = &self.store;
        store.relieve_log();
        let visible = store.publisher.visible();
        // A checkpoint seals all memtables and sets the ceiling under this lock. A memtable that is chosen under the
        // lock was either sealed before that, or is below the ceiling.
        let control = store.control.lock();
        let ceiling = control.flush_ceiling;
        let control = (!drumlin_types::bug!("flush-above-ceiling")).then_some(control);
        let visible = if control.is_some() { visible } else { store.publisher.visible() };
        let ready = |m: &Memtable| m.is_complete() && m.max_seq() <= visible && m.max_seq() <= ceiling;
        let mut chosen: Option<(LogNumber, Arc<KeyspaceState>)> = None;
        let resting = self.still_resting();
        for keyspace in store.keyspaces().iter().filter(|keyspace| !resting.contains(&keyspace.id)) {
            let view = keyspace.view();
            let next = if drumlin_types::bug!("newest-memtable-first") {
                view.sealed.first()
            } else {
                view.sealed.last()
            };
            let Some(oldest) = next.filter(|m| ready(m)) else { continue };
            if chosen.as_ref().is_none_or(|(log, _)| oldest.first_log() < *log) {
                chosen = Some((oldest.first_log(), keyspace.clone()));
            }
        }
        let Some((_, keyspace)) = chosen else { return Ok(None) };
        let view = keyspace.view();
        let mut memtables = match view.sealed.first() {
            Some(newest) if drumlin_types::bug!("newest-memtable-first") && ready(newest) => {
                vec![newest.clone()]
            }
            _ => keyspace.to_flush(&view, ready),
        };
        drop(control);
        let room = match store.may_flush_all(&memtables) {
            true => Ok(()),
            false => {
                memtables.truncate(1);
                store.reserve_for_flush(&memtables)
            }
        };
        let job = room.and_then(|()| flush_job(store, keyspace.clone(), memtables, &view.tree));
        job.map(Some).map_err(|error| FlushFailure { keyspace, error })
    }
}

fn flush_job(
    store: &Arc<Store>,
    keyspace: Arc<KeyspaceState>,
    memtables: Vec<Arc<Memtable>>,
    tree: &Tree,
) -> Result<FlushJob> {
    let max_seq = memtables.iter().map(|m| m.max_seq()).max().unwrap_or(0);
    let merge = merge_memtables(store, &keyspace, &memtables, tree)?;
    Ok(FlushJob { keyspace, memtables, merge: Some(Box::new(merge)), max_seq })
}

/// Creates the job that turns `memtables` into tables above `tree`.
pub(crate) fn merge_memtables(
    store: &Arc<Store>,
    keyspace: &Arc<KeyspaceState>,
    memtables: &[Arc<Memtable>],
    tree: &Tree,
) -> Result<MergeJob> {
    let inputs = memtables.iter().map(|m| Box::new(m.cursor()) as Box<dyn Cursor>).collect();
    let mut tombstones = Vec::new();
    for memtable in memtables {
        tombstones.extend(memtable.range_tombstones().iter().cloned());
    }
    let rules = MergeRules {
        bases: None,
        readers: store.snapshots.readers(|| store.files.unix_micros()),
        guard: DropGuard::for_piece(&tree_view(tree, &Flight::default()), &[], &KeyRange::all()),
        operator: keyspace.operator.clone(),
        tombstones: Fragmented::new(tombstones),
        large: keyspace.options.load().least_separated(),
    };
    let expected = memtables.iter().map(|m| m.entries() as u64).sum();
    let bytes = memtables.iter().map(|m| m.bytes() as u64).sum();
    let least = least_file_bytes(bytes);
    let mut spec = store.output_spec(keyspace, 0, false, least, MergedInputs::Memtables(expected));
    spec.values.placement.is_flush = true;
    if spec.values.threshold.is_some() {
        spec.values.placement.value_bytes = all_value_bytes(tree);
        spec.values.placement.set_classes(store.lifetimes.likely_bytes(keyspace.id, bytes), bytes);
    }
    MergeJob::new(store.files.clone(), inputs, rules, spec, Some(expected))
}

/// Intended upper bound on the number of files of a flush. All of them are added in one edit of the manifest, which
/// holds [`MAX_CHANGES`] changes. Tables may take more bytes than memtables, but never four times as many.
const FLUSH_FILES: u64 = MAX_CHANGES as u64 / 4;

/// Returns the smallest size at which a flush of `bytes` in memtables starts its next file.
fn least_file_bytes(bytes: u64) -> u64 {
    bytes.div_ceil(FLUSH_FILES)
}

impl Lane for FlushLane {
    fn name(&self) -> String {
        "drumlin-flush".into()
    }

    fn step(&self) -> Step {
        let now = self.store.files.now();
        match self.try_step() {
            Ok(step) => step,
            Err(FlushFailure { error, .. }) if error.kind() == ErrorKind::Poisoned => Step::Idle,
            Err(FlushFailure { keyspace, error }) => {
                self.store.disk_budget.reserve_for_flush(0);
                self.resting.lock().insert(keyspace.id, now + RETRY);
                self.store.health.flush_failed(&keyspace, &error);
                if error.kind() == ErrorKind::NoSpace {
                    self.store.call_policies_for_space();
                }
                self.store.background_failed("flush", &error);
                if self.others_wait() { Step::More } else { self.rest() }
            }
        }
    }

    fn panicked(&self) {
        self.store.lane_panicked(&self.name());
    }

    fn abandon(&self) {
        self.job.lock().take();
        self.store.disk_budget.reserve_for_flush(0);
    }
}

impl Store {
    /// Returns whether a keyspace other than `flushed` has writes in memory. The commits in a flush are visible, so
    /// their parts in other keyspaces are in memtables or already flushed.
    fn others_hold_writes(&self, flushed: &Arc<KeyspaceState>) -> bool {
        let keyspaces = self.keyspaces();
        let holds = |other: &KeyspaceState| other.view().memtables().any(|m| m.holds_writes());
        keyspaces.iter().any(|other| other.id != flushed.id && holds(other))
    }

    /// Installs a finished flush.
    fn install_flush(
        &self,
        keyspace: &Arc<KeyspaceState>,
        memtables: &[Arc<Memtable>],
        max_seq: Seq,
        mut result: MergeResult,
    ) -> Result<()> {
        let alone = !self.others_hold_writes(keyspace);
        if !alone {
            self.make_log_durable(max_seq)?;
        }
        self.sync_log_starts()?;
        let mut control = self.control.lock();
        self.health.check_poison()?;
        // A drop that is under way may still fail, so the flush is discarded only if the keyspace is gone.
        if control.keyspace(keyspace).is_none() {
            return Ok(());
        }
        inherit_flush(keyspace, result.files());
        let tree = keyspace.view().tree.clone();
        let run = control.fresh_run();
        let bytes: u64 = result.files().iter().map(|f| f.table.len).sum();
        let mut edit = KeyspaceEdit::default();
        if let Some(entry) = control.keyspace(keyspace).filter(|_| !result.files().is_empty()) {
            let tag = entry.policy.flush_tag(bytes, &entry.view());
            edit.runs.push((0, run, tag));
        }
        for file in result.files() {
            edit.add.push((0, run, file.clone()));
        }
        let covered = self.covered_files(&mut control, keyspace, &tree, memtables);
        let dropped = covered.len();
        edit.remove.extend(covered);
        let flushed = FlushMark { keyspace: keyspace.id, seq: max_seq, floor: self.log_floor(memtables) };
        let more = flushed.changes(self);
        let step = TreeStep { tree: &tree, edit: &edit, flushed: memtables, more: &more };
        let next = self.commit_edit(&mut control, keyspace, &step, || result.outputs.installed())?;
        keyspace.install(next, memtables);
        if alone {
            // If no memtable holds writes, everything that other keyspaces flushed is durable too.
            let is_last = !keyspace.view().memtables().any(|m| m.holds_writes());
            let others = control.keyspaces.iter().map(|entry| entry.flushed_seq).max().filter(|_| is_last);
            self.log.in_tables(max_seq.max(others.unwrap_or(0)));
        }
        let mut what = format!("flush of {} entries, {bytes} bytes -> L0 {run}", result.counts.written);
        if dropped > 0 {
            what.push_str(&format!("; {dropped} files dropped that a range tombstone covers"));
        }
        let why = sealed_text(memtables, max_seq);
        control.decisions.note(self.files.now(), &keyspace.name(), what, why);
        self.explain_filters(&mut control, keyspace, &result);
        if let Some(entry) = control.keyspace(keyspace) {
            entry.flushed_seq = entry.flushed_seq.max(max_seq);
            (entry.due, entry.flushed_since_call) = (true, true);
            entry.policy.observe(&Outcome::Flushed { bytes, entries: result.counts.written });
        }
        keyspace.flush_failures.succeeded();
        self.health.disk_full.store(false, atomic::Ordering::Release);
        self.share_memory();
        self.metrics.flushed(&result.counts, bytes);
        self.metrics.separated(result.outputs.value_bytes());
        self.tell_operator_panics(keyspace, &result.counts);
        keyspace.activity.flushed(&result.counts, bytes);
        self.refresh_pace(&control);
        drop(control);
        self.release_log(flushed.floor);
        self.trim_spare_log();
        if self.has_listener() {
            self.tell(Event::Flushed { keyspace: keyspace.name.to_string(), bytes });
        }
        Ok(())
    }

    /// Returns the files of `tree` that no reader needs once `memtables` are flushed, because a range tombstone in them
    /// covers the whole file. They are dropped without being read, so deleting a range can free a full disk. Files of
    /// which a compaction has claimed a part stay: its output would bring back what the tombstone has deleted.
    fn covered_files(
        &self,
        control: &mut Control,
        keyspace: &Arc<KeyspaceState>,
        tree: &Tree,
        memtables: &[Arc<Memtable>],
    ) -> Vec<(TableId, Key)> {
        let mut tombstones = Vec::new();
        for memtable in memtables.iter().filter(|memtable| memtable.has_range_tombstones()) {
            tombstones.extend(memtable.range_tombstones().iter().cloned());
        }
        let Some(entry) = control.keyspace(keyspace).filter(|_| !tombstones.is_empty()) else {
            return Vec::new();
        };
        let view = entry.view();
        // The view divides a file at the bounds of claims. So only a file of which nothing is claimed has its bounds.
        let free: BTreeSet<(TableId, &Key, Option<&Key>)> = view
            .files()
            .filter(|(_, _, file)| file.state == FileState::Free)
            .map(|(_, _, file)| (file.table, &file.bounds.start, file.bounds.end.as_ref()))
            .collect();
        // A snapshot taken between the file's entries and the tombstone still sees them.
        let Readers { snapshots, .. } = self.snapshots.readers(|| self.files.unix_micros());
        let is_seen =
            |min_seq: Seq, by: Seq| snapshots.iter().any(|point| (min_seq..by).contains(&point.seq));
        let is_covered = |file: &FileMeta| {
            tombstones.iter().any(|tombstone| {
                tombstone.seq > file.max_seq
                    && tombstone.range.covers(&file.bounds)
                    && !is_seen(file.min_seq, tombstone.seq)
            })
        };
        let is_free =
            |file: &FileMeta| free.contains(&(file.id(), &file.bounds.start, file.bounds.end.as_ref()));
        let files = tree.files().filter(|(_, _, file)| is_free(file));
        // One edit removes them, with their value files. Compactions drop the others.
        let mut left = MAX_CHANGES / 4;
        let covered = files.filter(|(_, _, file)| is_covered(file)).take_while(|(_, _, file)| {
            left = left.saturating_sub(1 + file.values.len());
            left > 0
        });
        covered.map(|(_, _, file)| (file.id(), file.bounds.start.clone())).collect()
    }

    /// Gives the memory that memtables have freed to the block cache.
    fn share_memory(&self) {
        let keyspaces = self.keyspaces();
        let bytes = keyspaces.iter().map(|keyspace| keyspace.held_bytes()).sum();
        self.memory.flushed(bytes, memory::expected_memtable_bytes(&keyspaces));
        self.charge_trees();
    }
}

impl Store {
    /// Logs the filter bits of the outputs of `result`, if tables may differ in them.
    pub(super) fn explain_filters(
        &self,
        control: &mut Control,
        keyspace: &KeyspaceState,
        result: &MergeResult,
    ) {
        if let Some((what, why)) = result.outputs.explain_filters() {
            control.decisions.note(self.files.now(), &keyspace.name(), what, why);
        }
    }
}

/// Returns the reason of a flush.
fn sealed_text(memtables: &[Arc<Memtable>], max_seq: Seq) -> String {
    match memtables {
        [_] => format!("a sealed memtable up to sequence number {max_seq}"),
        _ => format!("{} sealed memtables up to sequence number {max_seq}", memtables.len()),
    }
}

/// Sequence number and log floor that a flush adds to its edit besides files.
pub(crate) struct FlushMark {
    pub(crate) keyspace: drumlin_types::KeyspaceId,
    pub(crate) seq: Seq,
    pub(crate) floor: drumlin_types::LogNumber,
}

impl FlushMark {
    pub(crate) fn changes(&self, store: &Store) -> Vec<drumlin_format::manifest::Change> {
        use drumlin_format::manifest::Change;
        vec![
            Change::Flushed { keyspace: self.keyspace, seq: self.seq },
            Change::LogFloor(self.floor),
            // Only commits that survive power loss: the next open reports this number as recovered.
            Change::LastSeq(store.log.durable_seq().max(self.seq)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use crate::api::db::Db;
    use drumlin_env::MemEnv;
    use drumlin_types::contract::{CompactionPolicy, Decision, Plan, PolicyInput, Take};
    use drumlin_types::{Key, KeyRange, Seq};

    #[test]
    fn a_large_flush_into_small_files_fits_into_one_edit() {
        for bytes in [1, 1 << 26, 1 << 28, 4 << 30, u64::MAX] {
            let file_bytes = super::least_file_bytes(bytes);
            assert!(bytes / file_bytes * 4 <= super::MAX_CHANGES as u64, "{bytes}");
        }
        assert!(super::least_file_bytes(64 << 20) < 64 << 10);
    }

    #[test]
    fn small_memtables_that_wait_are_flushed_together() {
        let mem = MemEnv::new(4);
        let builder = Db::builder("/s").env(mem.env()).set("memory_budget", "8MiB").expect("an option");
        let db = builder.open().expect("open");
        let small = [("memtable_bytes", "64KiB"), ("compaction", "tiering:10")];
        let keys = db.keyspace_with("k", &small).expect("a keyspace");
        let ceiling = |seq| keys.store.control.lock().flush_ceiling = seq;
        ceiling(0);
        for key in 0..1600_u32 {
            keys.put(key.to_be_bytes(), [7; 1000]).expect("a put");
        }
        let view = keys.state.view();
        let (sealed, bytes) = (view.sealed.len(), view.memtable_bytes());
        assert!((20..30).contains(&sealed), "{sealed} memtables wait");
        assert_eq!(bytes, view.memtables().map(|m| m.bytes()).sum::<usize>());
        let first = keys.state.to_flush(&view, |_| true);
        let held = first.iter().map(|m| m.bytes()).sum::<usize>();
        assert!(held <= 1 << 20 && held + (64 << 10) + 2048 > 1 << 20, "{held} of 1 MiB");
        assert!(
            std::sync::Arc::ptr_eq(&first[0], &view.sealed[sealed - 1]),
            "the oldest memtable is not first"
        );
        let to_come = keys.state.runs_to_come(&view);
        assert!(
            (2.4..3.0).contains(&to_come),
            "{to_come} runs: that of the next flush, and {bytes} bytes by 1 MiB"
        );
        ceiling(Seq::MAX);
        db.flush().expect("flush");
        assert_eq!(db.metrics().flushes, 2, "of {sealed} memtables and the active one");
        for key in (0..1600_u32).step_by(50) {
            assert!(keys.get(key.to_be_bytes()).expect("a get").is_some());
        }
        assert!(keys.state.to_flush(&view, |m| m.bytes() < 1000).is_empty(), "no memtable is ready");
        keys.set_option("flush_bytes", "64KiB").expect("a live option");
        assert_eq!(keys.state.to_flush(&view, |_| true).len(), 1, "each memtable is flushed alone");
        assert!(keys.state.runs_to_come(&view) > sealed as f64);
    }

    /// A policy that plans to compact the middle of each table of level 0 into level 1.
    #[derive(Debug)]
    struct TakesTheMiddle;

    impl CompactionPolicy for TakesTheMiddle {
        fn name(&self) -> String {
            "tiering:10".to_owned()
        }

        fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
            let range =
                KeyRange::new(Key::new(&1000_u32.to_be_bytes()), Some(Key::new(&2000_u32.to_be_bytes())));
            let files = input.tree.files().filter(|(level, _, file)| *level == 0 && file.is_takeable());
            let middle =
                |table| Plan::new(vec![Take { table, range: range.clone() }], 1, "middle".to_owned());
            Decision { plans: files.map(|(_, _, file)| middle(file.table)).collect(), ..Decision::default() }
        }
    }

    /// A running compaction has claimed a part of a file. If the file were dropped, the output would bring back what
    /// the range tombstone has deleted, once no older version protects the tombstone.
    #[test]
    fn a_file_stays_while_a_compaction_has_a_part_of_it() {
        let db = Db::builder("/s").env(MemEnv::new(5).env()).open().expect("open");
        let keys = db.keyspace_with("k", &[("compaction", "tiering:10")]).expect("a keyspace");
        for n in 0..3000_u32 {
            keys.put(n.to_be_bytes(), [7; 100]).expect("a put");
        }
        db.flush().expect("flush");
        db.wait_idle().expect("idle");
        keys.delete_range::<&[u8]>(..).expect("a range delete");
        let covered = || {
            let view = keys.state.view();
            let memtables: Vec<_> = view.memtables().cloned().collect();
            let mut control = keys.store.control.lock();
            let claims = control.keyspaces[0].flight.tickets.len();
            (claims, keys.store.covered_files(&mut control, &keys.state, &view.tree, &memtables).len())
        };
        assert_eq!(covered(), (0, 1), "nothing is claimed");
        {
            let mut control = keys.store.control.lock();
            control.keyspaces[0].set_policy(Box::new(TakesTheMiddle));
            control.keyspaces[0].call_policy_soon();
        }
        // Background steps are taken around operations.
        let claimed = (0..1000_u32).map(|n| (keys.get(n.to_be_bytes()).expect("a get"), covered()).1);
        assert_eq!(
            claimed.into_iter().find(|(claims, _)| *claims > 0),
            Some((1, 0)),
            "its middle is claimed"
        );
    }
}
