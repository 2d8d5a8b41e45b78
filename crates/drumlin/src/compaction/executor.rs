//! Runs one piece (subcompaction), or the compaction inside a flush, in bounded steps.
//!
//! 1. Merge the cursors that the caller has opened over the inputs, each clipped to the piece's key range.
//! 2. Each step takes entries from the merge stream into the outputs until it reaches its byte or entry limit, or until
//!    the stream has dropped many entries one after another.
//! 3. At the end check that entries read = entries written + entries dropped, and entries read = entries that the
//!    inputs claim. Otherwise the job fails and its inputs stay.
//! 4. Then write and sync the surviving range tombstones and the last table.
//!
//! A read error ends the job (order rule O11). It is never treated as the end of the input.

use super::merge::{Advanced, MergeRules, MergeStream};
use super::output::{OutputSpec, Outputs};
use crate::base::cursor::Cursor;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::metrics::MergeCounts;
use crate::base::rangedel::RangeTombstone;
use crate::disk::Files;
use crate::filter::{Lineage, MergedPart};
use crate::keyspace::KeyspaceState;
use crate::read::MergeCursor;
use crate::version::FileMeta;
use drumlin_env::sync::Arc;
use drumlin_types::{KeyRange, TableId};

/// Largest number of entries processed in one step.
const STEP_ENTRIES: usize = 4096;
/// Bytes after which a step ends.
const STEP_BYTES: usize = 1 << 20;

/// Work left in a step.
#[derive(Clone, Copy)]
struct InputLeft {
    entries: usize,
    bytes: usize,
}

impl InputLeft {
    const WHOLE: InputLeft = InputLeft { entries: STEP_ENTRIES, bytes: STEP_BYTES };
}

/// Result of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    More,
    /// The job needs the number of its next file, by [`MergeJob::give_number`].
    NeedsNumber,
    Done,
}

/// A flush or piece that is running.
pub(crate) struct MergeJob {
    stream: MergeStream<MergeCursor<Box<dyn Cursor>>>,
    outputs: Outputs,
    expected: Option<u64>,
    /// Work left in the current step. A step that stops for a file number continues with it.
    left: InputLeft,
}

impl MergeJob {
    /// Creates a job over `inputs`, each already clipped to the job's key range. `expected` is the number of entries
    /// that the inputs claim to hold, if it is known.
    pub(crate) fn new(
        files: Arc<Files>,
        inputs: Vec<Box<dyn Cursor>>,
        rules: MergeRules,
        spec: OutputSpec,
        expected: Option<u64>,
    ) -> Result<MergeJob> {
        let mut cursor = MergeCursor::new(inputs);
        cursor.seek_first()?;
        let tombstones: Vec<RangeTombstone> = rules.surviving_tombstones();
        let outputs = Outputs::new(files, spec, tombstones);
        Ok(MergeJob { stream: MergeStream::new(cursor, rules), outputs, expected, left: InputLeft::WHOLE })
    }

    /// Does a bounded part of the work.
    pub(crate) fn step(&mut self) -> Result<Progress> {
        while self.left.entries > 0 && self.left.bytes > 0 {
            if !self.outputs.has_numbers() {
                return Ok(Progress::NeedsNumber);
            }
            let advanced = self.stream.advance()?;
            if self.stream.has_dropped() {
                self.outputs.supersede(self.stream.superseded());
                self.outputs.ended(self.stream.ended());
            }
            match advanced {
                Advanced::Entry => {}
                // Entries that are dropped take time too.
                Advanced::Skipped => {
                    self.outputs.note_read(self.stream.read());
                    break;
                }
                Advanced::End => {
                    self.finish()?;
                    return Ok(Progress::Done);
                }
            }
            let (key, value) = (self.stream.key(), self.stream.value());
            self.left.entries -= 1;
            self.left.bytes = self.left.bytes.saturating_sub(key.len() + value.len());
            self.outputs.note_read(self.stream.read());
            let (_, copied) = self.outputs.value_bytes();
            self.outputs.add(key, self.stream.seq(), self.stream.kind(), value, self.stream.is_warm())?;
            let copied = self.outputs.value_bytes().1 - copied;
            self.left.bytes = self.left.bytes.saturating_sub(copied as usize);
        }
        self.left = InputLeft::WHOLE;
        Ok(Progress::More)
    }

    /// Returns whether the job wrote tables.
    pub(crate) fn has_files(&self) -> bool {
        !self.outputs.files().is_empty()
    }

    /// Gives the job the number of its next file.
    pub(crate) fn give_number(&mut self, number: u64) {
        self.outputs.give_number(number);
    }

    /// Returns the bytes of finished tables and value files.
    pub(crate) fn bytes_finished(&self) -> u64 {
        self.outputs.bytes_finished()
    }

    /// Returns the approximate number of bytes written so far.
    pub(crate) fn bytes_written(&self) -> u64 {
        self.outputs.bytes()
    }

    fn finish(&mut self) -> Result<()> {
        let counts = self.stream.counts();
        self.outputs.note_read(counts.read);
        let expected = self.expected.unwrap_or(counts.read);
        if counts.read != expected || counts.read != counts.written + counts.dropped() {
            return Err(Error::new(
                ErrorKind::Bug,
                format!(
                    "a compaction expected {expected} entries, read {}, wrote {}, dropped {}",
                    counts.read,
                    counts.written,
                    counts.dropped()
                ),
            ));
        }
        self.outputs.finish()?;
        Ok(())
    }

    /// Returns the outputs of a finished job, to be installed.
    pub(crate) fn into_result(self) -> MergeResult {
        let counts = self.stream.counts();
        MergeResult { outputs: self.outputs, counts }
    }
}

/// Result of a finished job. Dropping it removes the outputs unless they were installed.
pub(crate) struct MergeResult {
    pub(crate) outputs: Outputs,
    pub(crate) counts: MergeCounts,
}

impl MergeResult {
    /// Returns the new files, in key order.
    pub(crate) fn files(&self) -> &[Arc<FileMeta>] {
        self.outputs.files()
    }
}

/// Entries of one input reference inside a piece's key range, counted exactly when the piece began, and their bytes.
#[derive(Clone, Debug)]
pub(crate) struct InputCount {
    pub(crate) table: TableId,
    pub(crate) range: KeyRange,
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

impl InputCount {
    /// Returns the count of a part, without a reference to its file.
    pub(crate) fn of(part: MergedPart) -> InputCount {
        let MergedPart { file, range, entries, .. } = part;
        InputCount { table: file.id(), range, entries, bytes: file.counts.part(entries).bytes }
    }
}

/// Result of a finished piece, until its edit is made.
pub(crate) struct Finished {
    pub(crate) keyspace: Arc<KeyspaceState>,
    pub(crate) counts: Vec<InputCount>,
    /// What the outputs take over from the parts in `counts`, in this order.
    pub(crate) lineage: Lineage,
    pub(crate) result: MergeResult,
}
