//! What is made durable of a store's log and names.
//!
//! After a sync that failed nobody knows what is on disk, and a later one that succeeds tells nothing of it: so a failure
//! poisons the store, and nothing more is synced.

use crate::error::{ErrorKind, Result};
use crate::metrics::Counters;
use crate::store::{Store, sync_dir};
use drumlin_types::Seq;

impl Store {
    /// Makes every commit so far durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.check_poison()?;
        self.sync_log(self.publisher.published().log_end)
    }

    /// Last sequence number that would survive power loss, counting logged writes.
    pub(crate) fn durable_seq(&self) -> Seq {
        self.log.durable_seq()
    }

    /// Lets the log floor go as far as what is in tables allows.
    pub(crate) fn know_log(&self) -> Result<()> {
        if drumlin_types::bug!("B37") {
            return Ok(());
        }
        self.log.know_segments(&self.lane).map_err(|error| {
            // After a failed sync nobody knows what of the segment is on disk.
            self.poison(&error);
            error.with_kind(ErrorKind::Poisoned)
        })
    }

    /// Makes the log durable up to sequence number `seq`, which is visible.
    pub(crate) fn make_log_durable(&self, seq: Seq) -> Result<()> {
        if self.log.durable_seq() >= seq {
            return Ok(());
        }
        self.sync_log(self.publisher.published().log_end)
    }

    pub(crate) fn sync_log(&self, end: u64) -> Result<()> {
        match self.log.sync_to(end, &self.publisher, &self.lane) {
            Ok(calls) => {
                Counters::add(&self.metrics.log_syncs, calls);
                Ok(())
            }
            Err(error) => {
                self.poison(&error);
                Err(error.with_kind(ErrorKind::Poisoned))
            }
        }
    }

    /// Makes the names of all files of the store last. Names that could not be stay in doubt whatever a later sync says, so a
    /// failure poisons the store, unless the disk had no room.
    pub(crate) fn sync_dir(&self) -> Result<()> {
        let synced = sync_dir(&self.env, &self.dir);
        if let Err(error) = &synced
            && error.kind() != ErrorKind::NoSpace
        {
            self.poison(error);
        }
        synced
    }
}
