//! The flush lane: sealed memtables become runs of level 0, oldest first.
//!
//! 1. Take the oldest sealed memtables of a keyspace whose writers are done and whose commits are all
//!    visible. They are flushed in the order in which they were sealed.
//! 2. Merge them into tables, as any merge does; tombstones go only when the tree holds nothing older.
//! 3. Sync the log up to the newest commit in them if another keyspace has writes in memory: otherwise power
//!    loss could keep this keyspace's later writes and lose another's earlier ones, a hole in the commit order,
//!    or half of a batch over both. With nothing in memory elsewhere, all commits up to the newest one flushed
//!    are in tables once this flush is, and what the log has of them may go.
//! 4. Install: files, flushed sequence number and log floor in one edit. Log segments below the floor
//!    are recycled once it is durable.

use crate::background::{Lane, Step};
use crate::compaction::claims::Flight;
use crate::compaction::executor::{MergeJob, MergeResult, Progress};
use crate::compaction::merge::MergeRules;
use crate::compaction::view::tree_view;
use crate::cursor::Cursor;
use crate::error::{ErrorKind, Result};
use crate::keyspace::KeyspaceState;
use crate::memory;
use crate::memtable::Memtable;
use crate::rangedel::Fragmented;
use crate::store::{Store, TreeStep};
use crate::version::{KeyspaceEdit, Tree};
use drumlin_env::sync::{Arc, Mutex};
use drumlin_types::contract::Outcome;
use drumlin_types::contract::legal::DropGuard;
use drumlin_types::{KeyRange, Seq};

/// A flush under way.
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
    rest_until: Mutex<u64>,
}

/// Pause after a failed flush, microseconds.
const RETRY: u64 = 1_000_000;

impl FlushLane {
    pub(crate) fn new(store: Arc<Store>) -> FlushLane {
        FlushLane { store, job: Mutex::new(None), rest_until: Mutex::new(0) }
    }

    fn try_step(&self) -> Result<Step> {
        let mut slot = self.job.lock();
        let Some(mut job) = slot.take() else {
            self.store.check_poison()?;
            *slot = self.begin()?;
            return Ok(if slot.is_some() { Step::More } else { Step::Idle });
        };
        let merge = job.merge.as_mut().expect("a job has its merge until it is done");
        let before = merge.bytes_written();
        let progress = merge.step()?;
        // A flush never waits for the rate limit: what it writes is taken from the merges.
        self.store.write_gate.pay(merge.bytes_written().saturating_sub(before), self.store.now());
        if progress == Progress::More {
            *slot = Some(job);
            return Ok(Step::More);
        }
        let result = job.merge.take().expect("just stepped").into_result();
        self.store.install_flush(&job.keyspace, &job.memtables, job.max_seq, result)?;
        self.store.background.progressed();
        Ok(Step::More)
    }

    /// The next flush: of the keyspace whose oldest sealed memtable reaches furthest back in the log. Small memtables that
    /// were sealed during the flush before go together: one run of them costs as many syncs as one of each.
    fn begin(&self) -> Result<Option<FlushJob>> {
        let store = &self.store;
        store.relieve_log();
        let ceiling = store.control.lock().flush_ceiling;
        let visible = store.publisher.visible();
        let ready = |m: &Memtable| m.writers() == 0 && m.max_seq() <= visible && m.max_seq() <= ceiling;
        let mut chosen: Option<(u64, Arc<KeyspaceState>)> = None;
        for keyspace in store.keyspaces().iter() {
            let view = keyspace.view();
            let next = if drumlin_types::bug!("E11") { view.sealed.first() } else { view.sealed.last() };
            let Some(oldest) = next.filter(|m| ready(m)) else { continue };
            if chosen.as_ref().is_none_or(|(log, _)| oldest.id() < *log) {
                chosen = Some((oldest.id(), keyspace.clone()));
            }
        }
        let Some((_, keyspace)) = chosen else { return Ok(None) };
        let view = keyspace.view();
        let mut memtables = match view.sealed.first() {
            Some(newest) if drumlin_types::bug!("E11") && ready(newest) => vec![newest.clone()],
            _ => keyspace.to_flush(&view, ready),
        };
        if memtables.len() > 1 && store.check_room_to_flush(&memtables).is_err() {
            memtables.truncate(1);
        }
        store.check_room_to_flush(&memtables)?;
        let job = flush_job(store, keyspace, memtables, &view.tree)?;
        Ok(Some(job))
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

/// The merge that turns `memtables` into tables above `tree`.
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
        snapshots: store.snapshots.list(),
        now_micros: store.unix_micros(),
        guard: DropGuard::for_piece(&tree_view(tree, &Flight::default()), &[], &KeyRange::all()),
        operator: keyspace.operator.clone(),
        tombstones: Fragmented::new(tombstones),
    };
    let expected = memtables.iter().map(|m| m.entries() as u64).sum();
    let spec = store.output_spec(keyspace, 0, false);
    MergeJob::new(store.clone(), inputs, rules, spec, Some(expected))
}

impl Lane for FlushLane {
    fn name(&self) -> String {
        "drumlin-flush".into()
    }

    fn step(&self) -> Step {
        let until = *self.rest_until.lock();
        let now = self.store.now();
        if until > now {
            return Step::Until(until);
        }
        match self.try_step() {
            Ok(step) => step,
            Err(error) if error.kind() == ErrorKind::Poisoned => Step::Idle,
            Err(error) => {
                self.job.lock().take();
                self.store.flush_failed(&error);
                *self.rest_until.lock() = now + RETRY;
                Step::Until(now + RETRY)
            }
        }
    }

    fn panicked(&self) {
        self.store.lane_panicked(&self.name());
    }

    fn abandon(&self) {
        self.job.lock().take();
    }
}

impl Store {
    /// Whether a keyspace other than `flushed` has writes in memory. The commits that a flush takes are visible, so their
    /// parts in other keyspaces are in memtables, or were flushed before.
    fn others_hold_writes(&self, flushed: &Arc<KeyspaceState>) -> bool {
        let holds = |m: &Arc<Memtable>| !m.is_empty() || m.writers() > 0;
        let keyspaces = self.keyspaces();
        keyspaces.iter().any(|other| other.id != flushed.id && other.view().memtables().any(holds))
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
        self.know_log()?;
        let mut control = self.control.lock();
        self.check_poison()?;
        if keyspace.is_dropped() {
            return Ok(());
        }
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
        let flushed = FlushMark { keyspace: keyspace.id, seq: max_seq, floor: self.log_floor(memtables) };
        let more = flushed.changes(self);
        let step = TreeStep { tree: &tree, edit: &edit, flushed: memtables, more: &more };
        let next = self.commit_edit(&mut control, keyspace, &step, || result.outputs.installed())?;
        keyspace.install(next, memtables);
        if alone {
            self.log.in_tables(max_seq);
        }
        let what = format!("flush of {} entries, {bytes} bytes -> L0 {run}", result.counts.written);
        let why = match memtables {
            [_] => format!("a sealed memtable up to #{max_seq}"),
            _ => format!("{} sealed memtables up to #{max_seq}", memtables.len()),
        };
        control.decisions.note(self.now(), &keyspace.name, what, why);
        if let Some(entry) = control.keyspace(keyspace) {
            entry.flushed_seq = entry.flushed_seq.max(max_seq);
            (entry.due, entry.flushed) = (true, true);
            entry.policy.observe(&Outcome::Flushed { bytes, entries: result.counts.written });
        }
        self.disk_full.store(false, drumlin_env::sync::atomic::Ordering::Release);
        self.share_memory();
        self.metrics.flushed(&result.counts, bytes);
        self.refresh_pace(&control);
        drop(control);
        self.release_log(flushed.floor);
        Ok(())
    }

    /// What memtables have left goes to the block cache.
    fn share_memory(&self) {
        let keyspaces = self.keyspaces();
        let bytes = keyspaces.iter().map(|keyspace| keyspace.peek().memtable_bytes()).sum();
        self.memory.flushed(bytes, memory::usual(&keyspaces));
    }
}

/// What a flush adds to its edit besides files.
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
            Change::LastSeq(store.publisher.visible().max(self.seq)),
            Change::ClockMark(store.unix_micros()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use crate::db::Db;
    use drumlin_env::MemEnv;
    use drumlin_types::Seq;

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
        assert!(std::sync::Arc::ptr_eq(&first[0], &view.sealed[sealed - 1]), "the oldest first");
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
        assert!(keys.state.to_flush(&view, |m| m.bytes() < 1000).is_empty(), "none is ready");
        keys.set_option("flush_bytes", "64KiB").expect("a live option");
        assert_eq!(keys.state.to_flush(&view, |_| true).len(), 1, "each by itself");
        assert!(keys.state.runs_to_come(&view) > sealed as f64);
    }
}
