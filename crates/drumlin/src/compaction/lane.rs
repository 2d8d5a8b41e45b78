//! A merge slot: runs one piece at a time, step by step, and hands it over to be installed.
//!
//! What its steps write is paid into the bucket of `background_rate`; while that is in debt, no slot takes a step.

use super::claims::Flight;
use super::executor::{MergeJob, Progress};
use super::install::{Finished, InputCount, count_inputs};
use super::merge::MergeRules;
use super::scheduler::PieceStart;
use super::view::tree_view;
use crate::background::{Lane, Step};
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::keyspace::KeyspaceState;
use crate::rangedel::{Fragmented, RangeTombstone};
use crate::stats::OneRunning;
use crate::store::Store;
use crate::table::CursorOptions;
use crate::version::{FileMeta, Tree};
use drumlin_env::sync::{Arc, Mutex};
use drumlin_types::contract::legal::DropGuard;
use drumlin_types::contract::{FileSpan, PieceId};
use drumlin_types::{KeyRange, TableId};

/// A piece under way.
struct PieceJob {
    keyspace: Arc<KeyspaceState>,
    id: PieceId,
    tables: Vec<TableId>,
    counts: Vec<InputCount>,
    merge: MergeJob,
    /// Bytes that it reads, by the entries counted.
    bytes: u64,
    /// Bytes written so far, as the rate limit knows them.
    written: u64,
    /// Time spent in its steps so far, nanoseconds.
    nanos: u64,
    /// Counted as running for as long as this job lives.
    _running: OneRunning,
}

/// A piece that failed: its tables, and why.
type Failed = (Arc<KeyspaceState>, PieceId, Vec<TableId>, Error);

/// One merge slot.
pub(crate) struct MergeLane {
    store: Arc<Store>,
    number: usize,
    /// Boxed: it is taken out and put back at each step.
    job: Mutex<Option<Box<PieceJob>>>,
}

impl MergeLane {
    pub(crate) fn new(store: Arc<Store>, number: usize) -> MergeLane {
        MergeLane { store, number, job: Mutex::new(None) }
    }

    fn begin(&self) -> std::result::Result<Step, Failed> {
        self.store.land_late();
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

    fn advance(&self, mut job: Box<PieceJob>) -> Result<Option<Box<PieceJob>>, Failed> {
        let fail = |job: &PieceJob, error| (job.keyspace.clone(), job.id, job.tables.clone(), error);
        let clock = self.store.env.clock();
        let (began, core) = (clock.monotonic_nanos(), clock.core_nanos());
        let step = job.merge.step();
        let ended = clock.monotonic_nanos();
        let took = ended.saturating_sub(began);
        job.nanos += took;
        let written = job.merge.bytes_written();
        let core = clock.core_nanos().saturating_sub(core);
        self.store.slots.worked(written.saturating_sub(job.written), took, core);
        self.store.write_gate.pay(written.saturating_sub(job.written), ended / 1000);
        job.written = written;
        match step {
            Ok(Progress::More) => Ok(Some(job)),
            Ok(Progress::Done) => {
                let PieceJob { keyspace, id, counts, merge, bytes, nanos, .. } = *job;
                let result = merge.into_result();
                self.store.finish_piece(id, Finished { keyspace, counts, result });
                self.store.costs.merged(bytes, nanos, clock.monotonic_nanos().saturating_sub(ended));
                self.store.background.progressed();
                Ok(None)
            }
            Err(error) => Err(fail(&job, error)),
        }
    }
}

fn merge_job(store: &Arc<Store>, start: PieceStart) -> Result<PieceJob> {
    let PieceStart { keyspace, piece, out, bottom, .. } = start;
    let tree = keyspace.view().tree.clone();
    let counts = count_inputs(store, &tree, &piece.inputs)?;
    let mut inputs: Vec<Box<dyn Cursor>> = Vec::new();
    let mut tombstones: Vec<RangeTombstone> = Vec::new();
    for (file, range) in input_files(&tree, &piece.inputs) {
        let table = file.table.open(&store.tables)?;
        inputs.push(Box::new(crate::read::ClippedCursor::new(
            table.cursor(CursorOptions::MERGE),
            range.clone(),
        )));
        tombstones.extend(table.range_tombstones().iter().filter_map(|t| t.clip(&range)));
    }
    // A piece may take parts of a file: what it leaves of the file inside its range is outside.
    let mut files = tree_view(&tree, &Flight::default());
    if drumlin_types::bug!("E7")
        && let Some(entry) = store.control.lock().keyspace(&keyspace)
    {
        files = entry.view().projected().live();
    }
    let guard = DropGuard::for_piece(&files, &piece.inputs, &piece.range);
    let rules = MergeRules {
        snapshots: store.snapshots.list(),
        now_micros: store.unix_micros(),
        guard,
        operator: keyspace.operator.clone(),
        tombstones: Fragmented::new(tombstones),
    };
    let expected = counts.iter().map(|c| c.entries).sum();
    let bytes = counts.iter().map(|c| c.bytes).sum();
    let spec = store.output_spec(&keyspace, out, bottom);
    let merge = MergeJob::new(store.clone(), inputs, rules, spec, Some(expected))?;
    let tables = piece.inputs.iter().map(|s| s.table).collect();
    Ok(PieceJob {
        keyspace,
        id: piece.id,
        tables,
        counts,
        merge,
        bytes,
        written: 0,
        nanos: 0,
        _running: store.costs.running.begin(&store.env, out),
    })
}

/// The references that `spans` name, each with the part that is meant.
fn input_files(tree: &Tree, spans: &[FileSpan]) -> Vec<(Arc<FileMeta>, KeyRange)> {
    let mut files = Vec::new();
    for span in spans {
        for (_, _, file) in tree.refs(span.table) {
            if let Some(range) = file.bounds.intersect(&span.range) {
                files.push((file.clone(), range));
            }
        }
    }
    files
}

impl Lane for MergeLane {
    fn name(&self) -> String {
        format!("drumlin-merge-{}", self.number)
    }

    fn step(&self) -> Step {
        let now = self.store.now();
        let debt = self.store.write_gate.pay(0, now);
        if debt > 0 {
            return Step::Until(now + debt);
        }
        let job = self.job.lock().take();
        let result = match job {
            Some(job) => self.advance(job).map(|job| {
                *self.job.lock() = job;
                Step::More
            }),
            None if self.store.is_poisoned() || self.number >= self.store.slots.count() => Ok(Step::Idle),
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
    /// Lets results that were held too long take the place of their inputs.
    fn land_late(&self) {
        if self.held.lock().is_empty() {
            return;
        }
        for keyspace in self.keyspaces().iter() {
            self.install_ready(keyspace);
        }
    }
}
