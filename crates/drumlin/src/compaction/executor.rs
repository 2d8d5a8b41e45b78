//! Runs one merge piece, or the merge inside a flush, in bounded steps.
//!
//! 1. Open a cursor over every input, clipped to the piece, and merge them.
//! 2. Each step takes entries from the merge stream into the outputs until its byte or entry bound.
//! 3. At the end the surviving range tombstones and the last table are written and synced.
//! 4. Entries read = entries written + entries dropped, and entries read = entries that the inputs claim:
//!    otherwise the job fails and its inputs stay.
//!
//! A read error ends the job (order rule O11): it never shortens the input.

use super::merge::{MergeRules, MergeStream};
use super::output::{OutputSpec, Outputs};
use crate::cursor::Cursor;
use crate::error::{Error, ErrorKind, Result};
use crate::metrics::MergeCounts;
use crate::rangedel::RangeTombstone;
use crate::read::MergeCursor;
use crate::store::Store;
use crate::version::FileMeta;
use drumlin_env::sync::Arc;

/// Entries handled in one step.
const STEP_ENTRIES: usize = 4096;
/// Bytes handled in one step.
const STEP_BYTES: usize = 1 << 20;

/// Whether a step finished its job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    More,
    Done,
}

/// A merge under way.
pub(crate) struct MergeJob {
    stream: MergeStream<MergeCursor<Box<dyn Cursor>>>,
    outputs: Outputs,
    expected: Option<u64>,
}

impl MergeJob {
    /// A job over `inputs`, each clipped to the job's keys already. `expected` is the number of entries
    /// that the inputs claim to hold, where it is known.
    pub(crate) fn new(
        store: Arc<Store>,
        inputs: Vec<Box<dyn Cursor>>,
        rules: MergeRules,
        spec: OutputSpec,
        expected: Option<u64>,
    ) -> Result<MergeJob> {
        let mut cursor = MergeCursor::new(inputs);
        cursor.seek_first()?;
        let tombstones: Vec<RangeTombstone> = rules.surviving_tombstones();
        let outputs = Outputs::new(store, spec, tombstones);
        Ok(MergeJob { stream: MergeStream::new(cursor, rules), outputs, expected })
    }

    /// Does a bounded part of the work.
    pub(crate) fn step(&mut self) -> Result<Progress> {
        let mut bytes = 0;
        for _ in 0..STEP_ENTRIES {
            if !self.stream.advance()? {
                self.finish()?;
                return Ok(Progress::Done);
            }
            let (key, value) = (self.stream.key(), self.stream.value());
            bytes += key.len() + value.len();
            self.outputs.add(key, self.stream.seq(), self.stream.kind(), value)?;
            if bytes >= STEP_BYTES {
                break;
            }
        }
        Ok(Progress::More)
    }

    /// Bytes written so far, about.
    pub(crate) fn bytes_written(&self) -> u64 {
        self.outputs.bytes()
    }

    fn finish(&mut self) -> Result<()> {
        let counts = self.stream.counts();
        let expected = self.expected.unwrap_or(counts.read);
        if counts.read != expected || counts.read != counts.written + counts.dropped() {
            return Err(Error::new(
                ErrorKind::Bug,
                format!(
                    "a merge expected {expected} entries, read {}, wrote {}, dropped {}",
                    counts.read,
                    counts.written,
                    counts.dropped()
                ),
            ));
        }
        self.outputs.finish()?;
        Ok(())
    }

    /// The outputs of a finished job, to be installed.
    pub(crate) fn into_result(self) -> MergeResult {
        let counts = self.stream.counts();
        MergeResult { outputs: self.outputs, counts }
    }
}

/// What a finished job leaves. Dropping it removes the outputs unless they were installed.
pub(crate) struct MergeResult {
    pub(crate) outputs: Outputs,
    pub(crate) counts: MergeCounts,
}

impl MergeResult {
    /// The new files, in key order.
    pub(crate) fn files(&self) -> &[Arc<FileMeta>] {
        self.outputs.files()
    }
}
