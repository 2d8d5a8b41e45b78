//! Syncs that a caller waits for: `Db::sync`, and writes with `Durability::Sync`.

use crate::base::error::Result;
use crate::base::metrics::Counters;
use crate::store::Store;
use drumlin_env::sync::plain::atomic;
use drumlin_types::Seq;

impl Store {
    /// Makes all commits so far durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.health.check_poison()?;
        self.sync_for_caller(self.publisher.last_published().log_end)
    }

    /// Makes the log durable up to global position `end` for a caller that waits for it.
    pub(crate) fn sync_for_caller(&self, end: u64) -> Result<()> {
        let began = self.files.now();
        let synced = self.sync_log(end);
        let micros = self.files.now().saturating_sub(began);
        Counters::add(&self.metrics.sync_waits, 1);
        Counters::add(&self.metrics.sync_wait_micros, micros);
        self.metrics.sync_wait_longest_micros.fetch_max(micros, atomic::Ordering::Relaxed);
        synced
    }

    /// Returns the last sequence number that would survive power loss: all logged commits up to it are in the durable
    /// part of the log or in durable tables.
    pub(crate) fn durable_seq(&self) -> Seq {
        self.log.durable_seq()
    }
}
