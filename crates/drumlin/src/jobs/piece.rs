//! A compaction slot: runs one piece (subcompaction) at a time, step by step, and hands its output over to be
//! installed.
//!
//! The bytes that its steps write are paid into the token bucket of `background_rate`. While the bucket is in debt, no
//! slot takes a step.

use super::install::count_inputs;
use crate::background::{Lane, Step};
use crate::base::cursor::Cursor;
use crate::base::error::{Error, Result};
use crate::base::rangedel::{Fragmented, RangeTombstone};
use crate::compaction::executor::{Finished, InputCount, MergeJob, Progress};
use crate::compaction::merge::{BaseReader, MergeRules};
use crate::compaction::scheduler::PieceStart;
use crate::compaction::view::tree_view;
use crate::filter::{MergeScope, MergedInputs, MergedPart};
use crate::keyspace::KeyspaceState;
use crate::read::{OpenFile, RunCursor};
use crate::stats::OneRunning;
use crate::store::Store;
use crate::table::{CursorOptions, TableCursor};
use crate::value::{all_value_bytes, files_to_collect};
use crate::version::{FileMeta, Tree, value_files};
use drumlin_env::sync::{Arc, Mutex};
use drumlin_policy::schedule::Flight;
use drumlin_types::contract::legal::DropGuard;
use drumlin_types::contract::{FileSpan, PieceId};
use drumlin_types::{KeyRange, RunId, TableId, ValueFileId};
use std::collections::{BTreeMap, BTreeSet};

/// A running piece.
struct PieceJob {
    keyspace: Arc<KeyspaceState>,
    id: PieceId,
    tables: Vec<TableId>,
    merge: MergeJob,
    /// Bytes that it reads, estimated from the counted entries.
    bytes: u64,
    /// Bytes written so far, as charged to the rate limit.
    written: u64,
    /// Time spent in its steps so far, in nanoseconds.
    nanos: u64,
    /// Keeps the piece counted as running while this job exists.
    running: OneRunning,
}

/// A failed piece: its keyspace, id and tables, and the error.
type PieceFailure = (Arc<KeyspaceState>, PieceId, Vec<TableId>, Error);

/// One compaction slot.
pub(crate) struct CompactionLane {
    store: Arc<Store>,
    number: usize,
    /// Boxed, because it is taken out and put back at each step.
    job: Mutex<Option<Box<PieceJob>>>,
}

impl CompactionLane {
    pub(crate) fn new(store: Arc<Store>, number: usize) -> CompactionLane {
        CompactionLane { store, number, job: Mutex::new(None) }
    }

    fn begin(&self) -> std::result::Result<Step, PieceFailure> {
        self.store.install_all_ready();
        let start = match self.store.next_piece() {
            Ok(start) => start,
            Err(step) => return Ok(step),
        };
        let id = start.piece.id;
        let tables: Vec<TableId> = start.piece.inputs.iter().map(|s| s.table).collect();
        let keyspace = start.keyspace.clone();
        let began = if start.piece.is_move {
            self.store.install_move(&keyspace, &start.piece).map(|()| {
                self.store.install_ready(&keyspace);
                self.store.background.progressed();
                None
            })
        } else {
            merge_job(&self.store, start).map(|job| Some(Box::new(job)))
        };
        match began {
            Ok(job) => {
                *self.job.lock() = job;
                Ok(Step::More)
            }
            Err(error) => Err((keyspace, id, tables, error)),
        }
    }

    fn advance(&self, mut job: Box<PieceJob>) -> Result<Option<Box<PieceJob>>, PieceFailure> {
        let fail = |job: &PieceJob, error| (job.keyspace.clone(), job.id, job.tables.clone(), error);
        let clock = self.store.files.env.clock();
        let (began, core) = (clock.monotonic_nanos(), clock.core_nanos());
        let step = self.store.step_merge(&mut job.merge);
        let ended = clock.monotonic_nanos();
        let took = ended.saturating_sub(began);
        job.nanos += took;
        let written = job.merge.bytes_written();
        let core = clock.core_nanos().saturating_sub(core);
        self.store.slots.worked(written.saturating_sub(job.written), took, core);
        self.store.throttles.background.pay(written.saturating_sub(job.written), ended / 1000);
        job.written = written;
        match step {
            Ok(Progress::More | Progress::NeedsNumber) => Ok(Some(job)),
            Ok(Progress::Done) => {
                let PieceJob { keyspace, id, merge, bytes, nanos, running, .. } = *job;
                let mut result = merge.into_result();
                drop(running);
                let (lineage, parts) = result.outputs.end_merge();
                let counts = parts.into_iter().map(InputCount::of).collect();
                let (separated, _) = result.outputs.value_bytes();
                self.store.finish_piece(id, Finished { keyspace, counts, lineage, result });
                self.store.costs.merged(
                    bytes + separated,
                    nanos,
                    clock.monotonic_nanos().saturating_sub(ended),
                );
                self.store.background.progressed();
                Ok(None)
            }
            Err(error) => Err(fail(&job, error)),
        }
    }
}

impl Store {
    /// Steps a compaction or flush, and gives it file numbers. When it is done, the directory entries of its files are
    /// durable.
    pub(crate) fn step_merge(&self, merge: &mut MergeJob) -> Result<Progress> {
        loop {
            match merge.step()? {
                Progress::NeedsNumber => merge.give_number(self.next_file_number()?),
                Progress::Done if merge.has_files() => return self.sync_dir().map(|()| Progress::Done),
                progress => return Ok(progress),
            }
        }
    }
}

fn merge_job(store: &Arc<Store>, start: PieceStart) -> Result<PieceJob> {
    let PieceStart { keyspace, piece, out, bottom, merged, is_manual, collected } = start;
    let tree = keyspace.view().tree.clone();
    let parts = count_inputs(store, &tree, &piece.inputs)?;
    let (inputs, tombstones) = open_inputs(store, &tree, &piece.inputs)?;
    // A piece may take parts of a file. The rest of the file inside the piece's key range counts as outside the inputs.
    let mut files = tree_view(&tree, &Flight::default());
    if drumlin_types::bug!("drop-despite-unfinished-output")
        && let Some(entry) = store.control.lock().keyspace(&keyspace)
    {
        files = entry.view().projected().live();
    }
    let guard = DropGuard::for_piece(&files, &piece.inputs, &piece.range);
    let values = value_files(parts.iter().map(|part| &part.file));
    // Without value files nothing is read, and nothing has to be looked up.
    let room = if values.is_empty() { 0 } else { store.room_for_merged_values() };
    let rules = MergeRules {
        bases: Some(BaseReader { read: keyspace.pointers.clone(), left: room }),
        readers: store.snapshots.readers(|| store.files.unix_micros()),
        guard,
        operator: keyspace.operator.clone(),
        tombstones: Fragmented::new(tombstones),
        large: keyspace.options.load().least_separated(),
    };
    let expected = parts.iter().map(|part| part.entries).sum();
    let bytes = parts.iter().map(|part| part.file.counts.part(part.entries).bytes).sum();
    let reached = if values.is_empty() { BTreeMap::new() } else { value_bytes(&parts) };
    let mut spec = store.output_spec(
        &keyspace,
        out,
        bottom,
        0,
        MergedInputs::Parts(parts, MergeScope { share: merged, is_manual }),
    );
    // Copies need disk space before they free any.
    if !store.health.lacks_space() {
        let options = keyspace.options.load();
        // The files of a compaction for value files were chosen within a limit on the copied bytes, so its pieces need
        // none.
        let is_limited = collected.is_none();
        let chosen = |files: Arc<BTreeSet<ValueFileId>>| {
            files.iter().filter(|id| values.contains_key(id)).copied().collect()
        };
        spec.values.collected = collected.map_or_else(|| files_to_collect(&tree, &values, &options), chosen);
        // Most compactions copy no values. They do not look at all tables of the tree.
        if !spec.values.collected.is_empty() {
            let most_copied = if is_limited { store.room_for_copies() } else { u64::MAX };
            spec.values.most_copied = most_copied;
            let copied = spec.values.collected.iter().filter_map(|id| reached.get(id)).sum::<f64>() as u64;
            spec.values.placement.value_bytes = all_value_bytes(&tree);
            spec.values.placement.set_classes(copied.min(most_copied), bytes);
        }
    } else if collected.is_some()
        && let Some(entry) = store.control.lock().keyspace(&keyspace)
    {
        entry.collection_lacks_space(piece.id.ticket);
    }
    spec.values.inputs = values;
    let merge = MergeJob::new(store.files.clone(), inputs, rules, spec, Some(expected))?;
    let tables = piece.inputs.iter().map(|s| s.table).collect();
    Ok(PieceJob {
        keyspace,
        id: piece.id,
        tables,
        merge,
        bytes,
        written: 0,
        nanos: 0,
        running: store.costs.running.begin(&store.files.env, out),
    })
}

/// Returns the estimated bytes in each value file that `parts` point to.
fn value_bytes(parts: &[MergedPart]) -> BTreeMap<ValueFileId, f64> {
    let mut bytes = BTreeMap::new();
    for part in parts {
        let share = part.entries as f64 / part.file.table_entries.max(1) as f64;
        for used in part.file.values.iter() {
            *bytes.entry(used.file.id()).or_insert(0.0) += used.bytes as f64 * share;
        }
    }
    bytes
}

/// Cursors over the inputs of a piece, and their range tombstones.
type Inputs = (Vec<Box<dyn Cursor>>, Vec<RangeTombstone>);

/// Returns a cursor for each run of the inputs in `spans`, and the inputs' range tombstones. A piece may take thousands
/// of small files, so each cursor has one file open at a time.
fn open_inputs(store: &Arc<Store>, tree: &Tree, spans: &[FileSpan]) -> Result<Inputs> {
    let mut runs: BTreeMap<RunId, Vec<(Arc<FileMeta>, KeyRange)>> = BTreeMap::new();
    let mut tombstones: Vec<RangeTombstone> = Vec::new();
    for span in spans {
        for (_, run, file) in tree.refs(span.table) {
            let Some(range) = file.bounds.intersect(&span.range) else { continue };
            if file.counts.range_tombstones > 0 {
                let table = file.table.open(&store.files.tables)?;
                table.check_tombstones(file.min_seq, file.max_seq)?;
                tombstones.extend(table.range_tombstones().iter().filter_map(|t| t.clip(&range)));
            }
            runs.entry(run.id).or_default().push((file.clone(), range));
        }
    }
    let options = CursorOptions::merge(store.compaction_readahead(runs.len()));
    let inputs = runs.into_values().map(|mut files| {
        files.sort_by(|(_, a), (_, b)| a.start.cmp(&b.start));
        Box::new(RunCursor::new(RunPart { store: store.clone(), files, options })) as Box<dyn Cursor>
    });
    Ok((inputs.collect(), tombstones))
}

/// The part of one run that a piece takes, sorted by key.
struct RunPart {
    store: Arc<Store>,
    files: Vec<(Arc<FileMeta>, KeyRange)>,
    options: CursorOptions,
}

impl OpenFile for RunPart {
    type Cursor = TableCursor;

    fn open(&self, index: usize) -> Result<TableCursor> {
        let file = &self.files[index].0;
        let table = file.table.open(&self.store.files.tables)?;
        Ok(table.cursor(self.options).within(file.min_seq, file.max_seq))
    }

    fn bounds(&self, index: usize) -> &KeyRange {
        &self.files[index].1
    }

    fn len(&self) -> usize {
        self.files.len()
    }
}

impl Lane for CompactionLane {
    fn name(&self) -> String {
        format!("drumlin-compact-{}", self.number)
    }

    fn step(&self) -> Step {
        let mut slot = self.job.lock();
        // A lane without a job begins one whatever the debt: policies are called, files are moved and outputs that were
        // held are installed. Only the work of the job waits.
        if slot.is_some() {
            let now = self.store.files.now();
            let debt = self.store.throttles.background.pay(0, now);
            if debt > 0 {
                return Step::Until(now + debt);
            }
        }
        let job = slot.take();
        drop(slot);
        let result = match job {
            Some(job) => self.advance(job).map(|job| {
                *self.job.lock() = job;
                Step::More
            }),
            None if self.store.health.is_poisoned() || self.number >= self.store.slots.count() => {
                Ok(Step::Idle)
            }
            None => self.begin(),
        };
        match result {
            Ok(step) => step,
            Err((keyspace, id, tables, error)) => {
                self.store.piece_failed(&keyspace, id, &tables, &error);
                Step::More
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
    /// Commits every install of any keyspace that may be made now. So outputs that were held too long are installed in
    /// the level of their inputs, as soon as a lane is free, even if no other piece ends.
    fn install_all_ready(&self) {
        if self.held.lock().is_empty() {
            return;
        }
        for keyspace in self.keyspaces().iter() {
            self.install_ready(keyspace);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::api::db::Db;
    use drumlin_env::MemEnv;

    /// While compactions wait for `background_rate`, policies are called: a new keyspace gets its limit of runs.
    #[test]
    fn policies_are_called_while_compactions_wait() {
        let mem = MemEnv::new(64);
        let builder = Db::builder("/s").env(mem.env()).set("background_rate", "1MiB").expect("an option");
        let db = builder.open().expect("open");
        let keys = db.keyspace("k").expect("keyspace");
        let store = keys.store.clone();
        store.throttles.background.pay(1 << 40, store.files.now());
        keys.put("key", "value").expect("put");
        db.flush().expect("flush");
        db.step_background(100).expect("steps");
        let control = store.control.lock();
        let entry =
            control.keyspaces.iter().find(|entry| entry.state.id == keys.state.id).expect("its control");
        assert!(entry.pace.is_some(), "its policy was not called");
        drop(control);
        assert!(store.throttles.background.pay(0, store.files.now()) > 0, "there is still debt");
    }
}
