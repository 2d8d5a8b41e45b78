//! The load of a store, and the write rate limit that follows from it.
//!
//! Once a second the counters of each keyspace become a sample. A keyspace that was used is then due for a policy call.

use super::Store;
use crate::compaction::control::Control;
use crate::keyspace::KeyspaceState;
use crate::stats::{LOOK, Sample};

impl Store {
    pub(super) fn sample(&self, keyspace: &KeyspaceState) -> Sample {
        let view = keyspace.view();
        let mut sample = keyspace.meter.sample();
        sample.load.sealed_memtables = view.sealed.len() as u32;
        sample.load.memtable_fill = view.active.bytes() as f64 / keyspace.memtable_limit() as f64;
        sample.load.snapshots = self.snapshots.len() as u32;
        // The bytes that reads fetched are counted for the whole store, so each keyspace gets an equal share.
        let fetched = self.costs.fetched_per_second() * keyspace.options.load().block_bytes as f64;
        sample.load.read_bytes = fetched / self.keyspaces().len().max(1) as f64;
        sample
    }

    /// Samples the load, once a second. Schedules a policy call for each keyspace that was used, and an immediate one
    /// for each whose mix of operations changed abruptly. Returns `false` if there was neither.
    pub(crate) fn tick(&self) -> bool {
        let now = self.files.now();
        let active: Vec<_> = self.keyspaces().iter().filter(|k| k.meter.roll(now)).cloned().collect();
        let turned: Vec<_> = self.keyspaces().iter().filter(|k| k.meter.turns(now)).cloned().collect();
        if active.is_empty() && turned.is_empty() {
            return false;
        }
        if !active.is_empty() {
            self.costs.fetched(now, self.files.cache.stats().misses);
        }
        let mut control = self.control.lock();
        for keyspace in &active {
            if let Some(entry) = control.keyspace(keyspace) {
                entry.due = true;
            }
        }
        for keyspace in &turned {
            if let Some(entry) = control.keyspace(keyspace) {
                entry.call_policy_soon();
            }
        }
        drop(control);
        self.background.wake();
        true
    }

    /// Returns the time of the next sample if the store is in use. In simulation lanes are stepped and need no timer.
    pub(crate) fn next_look(&self) -> Option<u64> {
        if self.files.env.stepping().is_some() {
            return None;
        }
        let is_busy = self.keyspaces().iter().any(|keyspace| keyspace.meter.is_busy());
        is_busy.then(|| self.files.now() + LOOK)
    }

    /// Sets the writers' rate limit from the limits that the policies of all keyspaces asked for, and the metrics of
    /// the plans. Called whenever plans or tickets may have changed.
    pub(crate) fn refresh_pace(&self, control: &Control) {
        self.throttles.refresh(control, &self.costs, &self.slots, self.files.now());
        let tickets = control.keyspaces.iter().map(|keyspace| keyspace.flight.tickets.len() as u64).sum();
        self.metrics.planned(tickets, control.decisions.admitted, control.decisions.refused);
    }

    /// Updates the writers' rate limit, unless the control lock is taken.
    pub(crate) fn refresh_pace_if_free(&self) {
        if let Some(control) = self.control.try_lock() {
            self.refresh_pace(&control);
        }
    }
}
