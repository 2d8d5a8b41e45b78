//! What a commit asks for under the commit lock, and what it gets there.

use super::apply::Upcoming;
use super::log::Reservation;
use crate::base::error::{Error, ErrorKind, Result};
use crate::keyspace::KeyspaceState;
use crate::memtable::Memtable;
use drumlin_env::sync::Arc;
use drumlin_format::batch::Operation;
use drumlin_format::error::Corruption;
use drumlin_types::{KeyspaceId, Seq};

/// What a commit asks for.
pub(crate) struct Request<'a> {
    pub(crate) keyspaces: &'a [Arc<KeyspaceState>],
    pub(crate) operations: u64,
    /// Length of the log record in bytes, framing included; `None` for an unlogged commit.
    pub(crate) record_len: Option<u64>,
    /// Whether all operations are deletes. Such a commit may use disk space that is kept for flushes and compactions.
    pub(crate) only_deletes: bool,
}

/// What a commit has reserved: sequence numbers, log space, memtables and a place in the publishing queue.
pub(crate) struct Reserved {
    pub(crate) first_seq: Seq,
    pub(crate) log: Option<Reservation>,
    /// Memtables to insert into, one for each keyspace. Each counts this commit as a writer in flight.
    pub(crate) memtables: Targets,
    /// Number of the commit, for the [publisher](super::Publisher).
    pub(crate) number: u64,
    /// Whether the reservation sealed a memtable.
    pub(crate) sealed: bool,
    /// Microseconds from the request to its answer, if it waited for the lock or for room among the commits under way,
    /// or needed a new log segment.
    pub(crate) waited: u64,
}

impl Reserved {
    /// Prepares to apply `operation` of the commit, which has the number `seq`.
    pub(crate) fn upcoming<'a>(
        &'a self,
        seq: Seq,
        operation: std::result::Result<Operation<'a>, Corruption>,
    ) -> Result<Upcoming<'a>> {
        let operation = operation.map_err(|e| Error::new(ErrorKind::Bug, e.what))?;
        let memtable = self.memtables.iter().find(|(id, _)| *id == operation.keyspace);
        let (_, memtable) = memtable.ok_or_else(|| Error::new(ErrorKind::Bug, "a batch lost a keyspace"))?;
        Ok(Upcoming::new(memtable, operation, seq))
    }
}

/// Memtables of a commit. The first is stored inline, since most commits have only one.
#[derive(Default)]
pub(crate) struct Targets {
    first: Option<(KeyspaceId, Arc<Memtable>)>,
    others: Vec<(KeyspaceId, Arc<Memtable>)>,
}

impl Targets {
    pub(super) fn push(&mut self, target: (KeyspaceId, Arc<Memtable>)) {
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
