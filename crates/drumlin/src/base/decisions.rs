//! The decision log: each decision with its reason, and for policy decisions the recorded policy input.
//!
//! It has two parts, so that no thread does I/O under the control lock:
//! 1. [`DecisionLog`] is protected by that lock. It keeps the latest records for `explain`, and a bounded queue of
//!    entries that wait to be written.
//! 2. [`DecisionFiles`] owns the files. A maintenance step takes the queued entries and appends them in one write.
//!
//! The files are advisory (`drumlin_format::decisions`). They are not synced, and a failed write is reported but not
//! repeated. A store never appends to a file from before its last open. A file is closed at [`FILE_BYTES`], and the
//! oldest file is deleted when there are more than [`FILES_KEPT`]. That bounds the log on disk. Files of fewer than
//! [`SMALL_BYTES`] are deleted first, so that many short opens with few decisions do not displace a long history.

use crate::base::error::{Error, Result};
use drumlin_env::sync::Mutex;
use drumlin_env::{Env, File, FileKind};
use drumlin_format::decisions::{self, DecisionEntry, DecisionWriter, Log, MAX_ENTRY_LEN};
use drumlin_format::error::DecodeError;
use drumlin_format::names::FileName;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// Record of one decision or its outcome. [`Db::explain`](crate::Db::explain) returns it.
///
/// Its texts are for people: they may change with any version. They contain no keys or values.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct DecisionRecord {
    /// Unix time of the decision in microseconds.
    pub micros: u64,
    /// Name of the keyspace; empty for decisions about the whole store, such as the number of compaction slots.
    pub keyspace: String,
    /// The decision, or its outcome.
    pub what: String,
    /// Reason for the decision, with the numbers behind it.
    pub reason: String,
}

/// Result of [`Db::replay_decisions`](crate::Db::replay_decisions), which makes each logged policy decision again from
/// its logged input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct ReplayReport {
    /// Number of decisions made again.
    pub decisions: u64,
    /// Decisions that came out differently. Each line names the keyspace, the logged reason, and the time in
    /// microseconds.
    pub differing: Vec<String>,
    /// Decisions that could not be made again, one line for each reason. The decision log or the saved policy state has
    /// another version than this build.
    pub left_out: Vec<String>,
}

/// Number of records kept for `explain`.
pub(crate) const RECORDS_KEPT: usize = 4096;
/// Upper bound on the bytes of queued entries; entries beyond it lose their policy input.
const QUEUE_BYTES: usize = 1 << 20;
/// Size at which a file is closed.
const FILE_BYTES: u64 = 1 << 20;
/// Number of files kept.
const FILES_KEPT: usize = 8;
/// Size below which a file of the log is deleted before older ones.
const SMALL_BYTES: u64 = 4 << 10;
/// Back-off after a failed write, in microseconds. Decisions made in the meantime are not written.
const RETRY: u64 = 60_000_000;

/// The latest decisions, oldest first, and the queue of entries to write.
#[derive(Default)]
pub(crate) struct DecisionLog {
    records: VecDeque<DecisionRecord>,
    queue: Vec<DecisionEntry>,
    queued_bytes: usize,
    /// Unix time at monotonic time 0, microseconds.
    epoch: u64,
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
}

impl DecisionLog {
    /// Creates an empty log at monotonic time `now` and Unix time `unix`, both in microseconds.
    pub(crate) fn new(now: u64, unix: u64) -> DecisionLog {
        DecisionLog { epoch: unix.saturating_sub(now), ..DecisionLog::default() }
    }

    pub(crate) fn records(&self) -> Vec<DecisionRecord> {
        self.records.iter().cloned().collect()
    }

    /// Records a decision made at monotonic time `now`.
    pub(crate) fn note(&mut self, now: u64, keyspace: &str, what: String, reason: String) {
        self.note_policy_call(now, keyspace, what, reason, Vec::new());
    }

    /// Like [`DecisionLog::note`], with the encoded policy input; empty when there is none.
    pub(crate) fn note_policy_call(
        &mut self,
        now: u64,
        keyspace: &str,
        what: String,
        reason: String,
        policy_call: Vec<u8>,
    ) {
        let micros = self.epoch.saturating_add(now);
        let keyspace = keyspace.to_owned();
        if self.records.len() == RECORDS_KEPT {
            self.records.pop_front();
        }
        let mut entry = DecisionEntry {
            micros,
            keyspace: keyspace.clone(),
            what: what.clone(),
            reason: reason.clone(),
            policy_call,
        };
        self.records.push_back(DecisionRecord { micros, keyspace, what, reason });
        if weight(&entry) > MAX_ENTRY_LEN || self.queued_bytes + weight(&entry) > QUEUE_BYTES {
            entry.policy_call = Vec::new();
        }
        if self.queue.len() < RECORDS_KEPT {
            self.queued_bytes += weight(&entry);
            self.queue.push(entry);
        }
    }

    /// Takes the entries that wait to be written.
    pub(crate) fn take_queue(&mut self) -> Vec<DecisionEntry> {
        self.queued_bytes = 0;
        std::mem::take(&mut self.queue)
    }
}

/// Bytes of an entry, with an allowance for its frame.
fn weight(entry: &DecisionEntry) -> usize {
    64 + entry.keyspace.len() + entry.what.len() + entry.reason.len() + entry.policy_call.len()
}

/// The files of the decision log.
pub(crate) struct DecisionFiles {
    dir: PathBuf,
    /// First file number of this open. Smaller numbers belong to earlier opens of the store.
    begin: u64,
    state: Mutex<WriterState>,
}

#[derive(Default)]
struct WriterState {
    /// Numbers of all files, in ascending order.
    numbers: Vec<u64>,
    open: Option<(File, DecisionWriter)>,
    failure_back_off_until: u64,
}

impl DecisionFiles {
    /// The log in `dir`, which holds the files `numbers`. Files of this open are numbered from `begin`.
    pub(crate) fn new(dir: &Path, mut numbers: Vec<u64>, begin: u64) -> DecisionFiles {
        numbers.sort_unstable();
        let state = Mutex::new(WriterState { numbers, ..WriterState::default() });
        DecisionFiles { dir: dir.to_owned(), begin, state }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.dir.join(FileName::Decisions(number).to_string())
    }

    /// Appends `entries`. After a failure the log stops using the current file and backs off.
    pub(crate) fn append(
        &self,
        env: &Env,
        fresh: impl FnOnce() -> u64,
        entries: &[DecisionEntry],
    ) -> Result<()> {
        let now = env.clock().monotonic_micros();
        let mut state = self.state.lock();
        if entries.is_empty() || now < state.failure_back_off_until {
            return Ok(());
        }
        let written = self.append_in(env, &mut state, fresh, entries);
        if written.is_err() {
            state.open = None;
            state.failure_back_off_until = now + RETRY;
        }
        written
    }

    fn append_in(
        &self,
        env: &Env,
        state: &mut WriterState,
        fresh: impl FnOnce() -> u64,
        entries: &[DecisionEntry],
    ) -> Result<()> {
        if state.open.as_ref().is_none_or(|(_, writer)| writer.offset() >= FILE_BYTES) {
            state.open = None;
            self.begin_file(env, state, fresh())?;
        }
        let Some((file, writer)) = &mut state.open else { return Ok(()) };
        let offset = writer.offset();
        let mut bytes = Vec::new();
        for entry in entries {
            // An entry over the size limit is left out: the log is advisory.
            if let Ok(entry) = writer.append(entry) {
                bytes.extend(entry);
            }
        }
        file.write_at(offset, &bytes).map_err(|e| Error::io(file.path(), "cannot write decisions", e))
    }

    fn begin_file(&self, env: &Env, state: &mut WriterState, number: u64) -> Result<()> {
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
            let earlier = &state.numbers[..state.numbers.len() - 1];
            let is_small =
                |number: &u64| env.fs().file_len(&self.path(*number)).is_ok_and(|len| len < SMALL_BYTES);
            let leaves = earlier.iter().position(is_small).unwrap_or(0);
            let oldest = self.path(state.numbers.remove(leaves));
            match env.fs().unlink(&oldest, FileKind::Decisions) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io(&oldest, "cannot remove a decision log", e));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Entries of the files of earlier opens, oldest first.
    pub(crate) fn earlier(&self, env: &Env) -> Vec<DecisionEntry> {
        let numbers = self.state.lock().numbers.clone();
        let earlier = numbers.into_iter().filter(|number| *number < self.begin);
        let logs = earlier.filter_map(|number| self.read(env, number)?.ok());
        logs.flat_map(|log| log.entries).collect()
    }

    /// Contents of all files, oldest first. Files that cannot be read are left out.
    pub(crate) fn all(&self, env: &Env) -> Vec<std::result::Result<Log, DecodeError>> {
        let numbers = self.state.lock().numbers.clone();
        numbers.into_iter().filter_map(|number| self.read(env, number)).collect()
    }

    /// Contents of one file: as many entries as can be read.
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

impl From<DecisionEntry> for DecisionRecord {
    fn from(entry: DecisionEntry) -> DecisionRecord {
        let DecisionEntry { micros, keyspace, what, reason, .. } = entry;
        DecisionRecord { micros, keyspace, what, reason }
    }
}
