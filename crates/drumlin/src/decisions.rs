//! The log of decisions: what was decided, why, and, for a policy's decisions, the question that led to it.
//!
//! Two parts, so that nobody does I/O under the control lock:
//! 1. [`DecisionLog`] lives under that lock. It keeps the latest records for `explain`, and a bounded queue of entries
//!    on their way to disk.
//! 2. [`DecisionFiles`] has the files. A maintenance step takes what is queued and appends it in one write.
//!
//! The files are advice (`drumlin_format::decisions`): they are not synced, a failed write is told and not repeated,
//! and a file that was open in another life of the store is never appended to. A file is closed at [`FILE_BYTES`] and
//! the oldest goes when there are more than [`FILES_KEPT`], which bounds the log on disk.

use crate::error::{Error, Result};
use drumlin_env::sync::Mutex;
use drumlin_env::{Env, File, FileKind};
use drumlin_format::decisions::{self, DecisionWriter, Entry, Log, MAX_ENTRY_LEN};
use drumlin_format::error::DecodeError;
use drumlin_format::names::FileName;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// A decision or its outcome, as `explain` shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct DecisionRecord {
    /// Unix time in microseconds.
    pub micros: u64,
    /// The keyspace.
    pub keyspace: String,
    /// What was decided, or how it ended.
    pub what: String,
    /// Why, with the numbers that led to it.
    pub reason: String,
}

/// What came of making the logged decisions again, each from what was logged of its question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Decisions made again.
    pub decisions: u64,
    /// Those that came out otherwise: the keyspace, the policy, and the time in microseconds.
    pub differing: Vec<String>,
    /// What could not be made again, one line for each reason: decisions that another version of the decision log, or
    /// of a policy's saved state, holds.
    pub left_out: Vec<String>,
}

/// Records kept for `explain`.
pub(crate) const RECORDS_KEPT: usize = 4096;
/// Bytes of entries that may wait to be written; entries beyond that lose their questions.
const QUEUE_BYTES: usize = 1 << 20;
/// Size at which a file is closed.
const FILE_BYTES: u64 = 1 << 20;
/// Files kept.
const FILES_KEPT: usize = 8;
/// Pause after a failed write, microseconds. What is decided in the meantime is not written.
const RETRY: u64 = 60_000_000;

/// The latest decisions, oldest first.
#[derive(Default)]
pub(crate) struct DecisionLog {
    records: VecDeque<DecisionRecord>,
    queue: Vec<Entry>,
    queued_bytes: usize,
    /// Unix time at monotonic time 0, microseconds.
    epoch: u64,
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
}

impl DecisionLog {
    /// An empty log, at monotonic time `now` and Unix time `unix`, both in microseconds.
    pub(crate) fn new(now: u64, unix: u64) -> DecisionLog {
        DecisionLog { epoch: unix.saturating_sub(now), ..DecisionLog::default() }
    }

    pub(crate) fn records(&self) -> Vec<DecisionRecord> {
        self.records.iter().cloned().collect()
    }

    /// Records a decision made at monotonic time `now`.
    pub(crate) fn note(&mut self, now: u64, keyspace: &str, what: String, reason: String) {
        self.note_question(now, keyspace, what, reason, Vec::new());
    }

    /// [`DecisionLog::note`] with the encoded question; empty when there is none.
    pub(crate) fn note_question(
        &mut self,
        now: u64,
        keyspace: &str,
        what: String,
        reason: String,
        question: Vec<u8>,
    ) {
        let micros = self.epoch.saturating_add(now);
        let keyspace = keyspace.to_owned();
        if self.records.len() == RECORDS_KEPT {
            self.records.pop_front();
        }
        let mut entry = Entry {
            micros,
            keyspace: keyspace.clone(),
            what: what.clone(),
            reason: reason.clone(),
            question,
        };
        self.records.push_back(DecisionRecord { micros, keyspace, what, reason });
        if weight(&entry) > MAX_ENTRY_LEN || self.queued_bytes + weight(&entry) > QUEUE_BYTES {
            entry.question = Vec::new();
        }
        if self.queue.len() < RECORDS_KEPT {
            self.queued_bytes += weight(&entry);
            self.queue.push(entry);
        }
    }

    /// Takes what waits to be written.
    pub(crate) fn take_queue(&mut self) -> Vec<Entry> {
        self.queued_bytes = 0;
        std::mem::take(&mut self.queue)
    }
}

/// Bytes of an entry, and some for its frame.
fn weight(entry: &Entry) -> usize {
    64 + entry.keyspace.len() + entry.what.len() + entry.reason.len() + entry.question.len()
}

/// The files of the log.
pub(crate) struct DecisionFiles {
    dir: PathBuf,
    /// Where a life of the store before this one ended: numbers below belong to those.
    begin: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Numbers of all files, ascending.
    numbers: Vec<u64>,
    open: Option<(File, DecisionWriter)>,
    rest_until: u64,
}

impl DecisionFiles {
    /// The log in `dir`, where the files `numbers` are; those of this life are numbered from `begin`.
    pub(crate) fn new(dir: &Path, mut numbers: Vec<u64>, begin: u64) -> DecisionFiles {
        numbers.sort_unstable();
        let state = Mutex::new(State { numbers, ..State::default() });
        DecisionFiles { dir: dir.to_owned(), begin, state }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.dir.join(FileName::Decisions(number).to_string())
    }

    /// Appends `entries`. After a failure the file is left as it is, and the log pauses.
    pub(crate) fn append(&self, env: &Env, fresh: impl FnOnce() -> u64, entries: &[Entry]) -> Result<()> {
        let now = env.clock().monotonic_micros();
        let mut state = self.state.lock();
        if entries.is_empty() || now < state.rest_until {
            return Ok(());
        }
        let written = self.append_in(env, &mut state, fresh, entries);
        if written.is_err() {
            state.open = None;
            state.rest_until = now + RETRY;
        }
        written
    }

    fn append_in(
        &self,
        env: &Env,
        state: &mut State,
        fresh: impl FnOnce() -> u64,
        entries: &[Entry],
    ) -> Result<()> {
        if state.open.as_ref().is_none_or(|(_, writer)| writer.offset() >= FILE_BYTES) {
            state.open = None;
            self.begin_file(env, state, fresh())?;
        }
        let Some((file, writer)) = &mut state.open else { return Ok(()) };
        let offset = writer.offset();
        let mut bytes = Vec::new();
        for entry in entries {
            // One over the limit is left out: the log is advice.
            if let Ok(entry) = writer.append(entry) {
                bytes.extend(entry);
            }
        }
        file.write_at(offset, &bytes).map_err(|e| Error::io(file.path(), "cannot write decisions", e))
    }

    fn begin_file(&self, env: &Env, state: &mut State, number: u64) -> Result<()> {
        let path = self.path(number);
        let fail = |what: &str, e| Error::io(&path, what, e);
        let file = env
            .fs()
            .create(&path, FileKind::Decisions)
            .map_err(|e| fail("cannot create a decision log", e))?;
        state.numbers.push(number);
        let (writer, header) = DecisionWriter::create(number);
        file.write_at(0, &header).map_err(|e| fail("cannot write a decision log", e))?;
        state.open = Some((file, writer));
        while state.numbers.len() > FILES_KEPT {
            let oldest = self.path(state.numbers.remove(0));
            match env.fs().unlink(&oldest, FileKind::Decisions) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io(&oldest, "cannot remove a decision log", e));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// What the files of earlier lives say, oldest first.
    pub(crate) fn earlier(&self, env: &Env) -> Vec<Entry> {
        let numbers = self.state.lock().numbers.clone();
        let earlier = numbers.into_iter().filter(|number| *number < self.begin);
        let logs = earlier.filter_map(|number| self.read(env, number)?.ok());
        logs.flat_map(|log| log.entries).collect()
    }

    /// What all files hold, oldest first. Those that cannot be read are left out.
    pub(crate) fn all(&self, env: &Env) -> Vec<std::result::Result<Log, DecodeError>> {
        let numbers = self.state.lock().numbers.clone();
        numbers.into_iter().filter_map(|number| self.read(env, number)).collect()
    }

    /// What one file holds: as many entries as can be read.
    fn read(&self, env: &Env, number: u64) -> Option<std::result::Result<Log, DecodeError>> {
        let read = || {
            let file = env.fs().open(&self.path(number), FileKind::Decisions)?;
            let len = file.len()?.min(FILE_BYTES + (QUEUE_BYTES + RECORDS_KEPT * 64) as u64 * 2);
            let mut bytes = vec![0; len as usize];
            file.read_exact_at(0, &mut bytes)?;
            Ok::<_, std::io::Error>(bytes)
        };
        read().ok().map(|bytes| decisions::read(&bytes, number))
    }
}

impl From<Entry> for DecisionRecord {
    fn from(entry: Entry) -> DecisionRecord {
        let Entry { micros, keyspace, what, reason, .. } = entry;
        DecisionRecord { micros, keyspace, what, reason }
    }
}
