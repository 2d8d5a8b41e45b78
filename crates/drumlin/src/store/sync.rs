//! Syncs of an open store: the log and the directory entries.
//!
//! After a failed sync the state on disk is unknown, and a later successful sync does not make it known. So a failed
//! sync poisons the store, and nothing more is synced.

use super::Store;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::metrics::Counters;
use drumlin_types::Seq;

impl Store {
    /// Makes headers and directory entries of open segments durable, so that the log floor can advance as far as the
    /// flushed commits allow.
    pub(crate) fn sync_log_starts(&self) -> Result<()> {
        if drumlin_types::bug!("log-floor-not-durable") {
            return Ok(());
        }
        self.log.sync_segment_starts(&self.commit_lock).map_err(|error| self.log_sync_failed(error))
    }

    /// Makes the log durable up to the visible sequence number `seq`.
    pub(crate) fn make_log_durable(&self, seq: Seq) -> Result<()> {
        if self.log.durable_seq() >= seq {
            return Ok(());
        }
        self.sync_log(self.publisher.last_published().log_end)
    }

    pub(crate) fn sync_log(&self, end: u64) -> Result<()> {
        match self.log.sync_to(end, &self.publisher, &self.commit_lock) {
            Ok(calls) => {
                Counters::add(&self.metrics.log_syncs, calls);
                Ok(())
            }
            Err(error) => Err(self.log_sync_failed(error)),
        }
    }

    /// Poisons the store after a failed sync of the log, since the state on disk is then unknown. A sync that failed
    /// for lack of a file descriptor did nothing, so it only fails this call.
    fn log_sync_failed(&self, error: Error) -> Error {
        if error.kind() == ErrorKind::TooManyFiles {
            return error;
        }
        self.poison(&error);
        error.with_kind(ErrorKind::Poisoned)
    }

    /// Makes the directory entries of all files of the store durable. After a failure the entries stay in doubt, even
    /// if a later sync succeeds, so a failure poisons the store. A sync that got no file descriptor did nothing, and
    /// only fails this call.
    pub(crate) fn sync_dir(&self) -> Result<()> {
        let synced = self.commit_lock.directory.entries.sync();
        if let Err(error) = &synced
            && error.kind() != ErrorKind::TooManyFiles
        {
            self.poison(error);
        }
        synced
    }
}
