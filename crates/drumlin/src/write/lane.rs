//! The commit lane: the lock under which commits get their order. Only work that must happen in order is done under it.

use super::budget::LogShare;
use super::log::{LogTail, Reservation};
use super::publish::{Published, Publisher};
use super::segment::LogDirectory;
use crate::base::error::{Error, ErrorKind, Result};
use crate::keyspace::KeyspaceState;
use crate::memtable::Memtable;
use drumlin_env::sync::{Arc, Mutex};
use drumlin_types::{KeyspaceId, LogNumber, Seq};

/// State under the lock.
pub(crate) struct LaneState {
    /// Sequence number of the next operation.
    pub(crate) next_seq: Seq,
    pub(crate) log: LogTail,
    /// Whether the store is being closed. No record may follow the close record.
    pub(crate) closed: bool,
}

/// The commit lane.
pub(crate) struct CommitLane {
    pub(crate) directory: LogDirectory,
    pub(crate) state: Mutex<LaneState>,
}

/// What a commit has reserved: sequence numbers, log space, memtables and a place in the publishing queue.
pub(crate) struct Reserved {
    pub(crate) first_seq: Seq,
    pub(crate) log: Option<Reservation>,
    /// Memtables to insert into, one for each keyspace. Each counts this commit as a writer in flight.
    pub(crate) memtables: Targets,
    /// Place in the publishing queue.
    pub(crate) place: u64,
    /// Whether the reservation sealed a memtable.
    pub(crate) sealed: bool,
    /// Microseconds that the reservation waited for the lock, and for a new log segment.
    pub(crate) waited: u64,
}

/// Memtables of a commit. The first is stored inline, since most commits have only one.
#[derive(Default)]
pub(crate) struct Targets {
    first: Option<(KeyspaceId, Arc<Memtable>)>,
    others: Vec<(KeyspaceId, Arc<Memtable>)>,
}

impl Targets {
    fn push(&mut self, target: (KeyspaceId, Arc<Memtable>)) {
        match self.first {
            None => self.first = Some(target),
            Some(_) => self.others.push(target),
        }
    }

    /// Returns all memtables.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(KeyspaceId, Arc<Memtable>)> {
        self.first.iter().chain(&self.others)
    }
}

/// What a commit asks for.
pub(crate) struct Request<'a> {
    pub(crate) keyspaces: &'a [Arc<KeyspaceState>],
    pub(crate) operations: u64,
    /// Length of the log record in bytes, framing included; `None` for an unlogged commit.
    pub(crate) record_len: Option<u64>,
    /// Whether the commit only deletes, which may use the disk space that is kept for flushes and compactions.
    pub(crate) only_deletes: bool,
}

impl CommitLane {
    pub(crate) fn new(directory: LogDirectory, state: LaneState) -> CommitLane {
        CommitLane { directory, state: Mutex::new(state) }
    }

    /// Preallocates the file of the next segment if one is wanted. Returns `false` if none is wanted. A failure here
    /// loses nothing: the commit that needs the segment tries again and reports its error.
    pub(crate) fn make_ready(&self, fresh_number: impl FnOnce() -> u64) -> Result<bool> {
        let Some(recycled) = self.state.lock().log.next_to_make(&self.directory) else { return Ok(false) };
        let made = self.directory.make_ready(LogNumber(fresh_number()), recycled);
        let log = &mut self.state.lock().log;
        match made {
            Ok(made) => log.made_ready(made),
            Err(error) => {
                log.not_made_ready();
                return Err(error);
            }
        }
        Ok(true)
    }

    /// Makes the header and the directory entry of every open segment durable. Called by
    /// [`DurableLog::sync_segment_starts`](super::DurableLog::sync_segment_starts) while it holds the sync turn.
    pub(super) fn sync_segment_starts(&self) -> Result<()> {
        let segments = self.state.lock().log.starts_not_durable();
        let Some(last) = segments.last() else { return Ok(()) };
        segments.iter().try_for_each(|segment| segment.sync_header())?;
        self.directory.sync_entries(&segments)?;
        self.state.lock().log.starts_durable(last.number);
        Ok(())
    }

    /// Reserves everything that `request` needs. On an error nothing is reserved.
    pub(crate) fn reserve(
        &self,
        request: &Request<'_>,
        publisher: &Publisher,
        fresh_number: impl Fn() -> u64,
    ) -> Result<Reserved> {
        let clock = self.directory.env.clock();
        let (mut lane, mut waited) = match self.state.try_lock() {
            Some(lane) => (lane, 0),
            None => {
                let began = clock.monotonic_micros();
                (self.state.lock(), clock.monotonic_micros().saturating_sub(began))
            }
        };
        if lane.closed {
            return Err(Error::new(ErrorKind::Closed, "the store was closed"));
        }
        // A keyspace is dropped under this lock, so a commit that comes too late fails here.
        request.keyspaces.iter().try_for_each(|keyspace| keyspace.check_alive())?;
        let last_seq = lane.next_seq + request.operations - 1;
        let log = match request.record_len {
            Some(len) => {
                let share = if request.only_deletes { LogShare::Deletes } else { LogShare::Writes };
                let begins = lane.log.begins_segment(len).then(|| clock.monotonic_micros());
                let log = lane.log.reserve(&self.directory, share, len, last_seq, &fresh_number)?;
                waited += begins.map_or(0, |began| clock.monotonic_micros().saturating_sub(began));
                Some(log)
            }
            None => None,
        };
        let mut sealed = false;
        let mut memtables = Targets::default();
        for keyspace in request.keyspaces {
            if keyspace.active_bytes() >= keyspace.memtable_bytes() {
                sealed |= keyspace.seal(lane.log.segment.number);
            }
            let memtable = keyspace.active();
            memtable.begin_write();
            memtables.push((keyspace.id, memtable));
        }
        let first_seq = lane.next_seq;
        lane.next_seq += request.operations;
        let (logged, log_end) = (lane.log.last_seq(), lane.log.position());
        let after = Published { seq: lane.next_seq - 1, logged, log_end };
        let place = publisher.enter(after);
        Ok(Reserved { first_seq, log, memtables, place, sealed, waited })
    }
}
