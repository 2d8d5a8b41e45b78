//! Manual compaction, and waiting until the store is idle.

use crate::base::error::Result;
use crate::compaction::control::{KeyspaceControl, ManualCompaction};
use crate::keyspace::KeyspaceState;
use crate::store::Store;
use drumlin_env::sync::Arc;
use drumlin_types::KeyRange;

impl Store {
    /// Compacts all data in `range` into one run.
    pub(crate) fn compact(&self, keyspace: &Arc<KeyspaceState>, range: KeyRange) -> Result<()> {
        self.health.check_open()?;
        keyspace.check_alive()?;
        self.flush(Some(keyspace))?;
        let id = {
            let mut control = self.control.lock();
            let id = control.next_manual;
            control.next_manual += 1;
            match control.keyspace(keyspace) {
                Some(entry) => {
                    entry.manual.push(ManualCompaction::new(id, range));
                    entry.retry_now();
                }
                None => return keyspace.check_alive(),
            }
            id
        };
        self.background.wake();
        let since = self.health.last_failure();
        let ended = self.background.wait("a manual compaction waits for its pieces", || {
            self.health.check_poison()?;
            let mut control = self.control.lock();
            let Some(entry) = control.keyspace(keyspace) else {
                return keyspace.check_alive().map(|()| true);
            };
            if let Some(ended) = entry.take_manual(id) {
                return ended.map(|()| true);
            }
            drop(control);
            keyspace.compaction_failures.check(since)?;
            self.check_space_to_compact().map(|()| false)
        });
        if ended.is_err()
            && let Some(entry) = self.control.lock().keyspace(keyspace)
        {
            entry.forget_manual(id);
        }
        ended
    }

    /// Waits until no flush, compaction or file deletion is left to do.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        self.health.check_open()?;
        if self.health.read_only {
            return Ok(());
        }
        self.clear_space_errors();
        {
            let mut control = self.control.lock();
            control.idle_waiters += 1;
            control.keyspaces.iter_mut().for_each(KeyspaceControl::retry_now);
            let due = control.keyspaces.iter_mut().filter(|entry| entry.due);
            due.for_each(KeyspaceControl::call_policy_soon);
        }
        self.background.wake();
        let since = self.health.last_failure();
        let ended = self.background.wait("the store is not idle", || {
            self.health.check_poison()?;
            self.check_space_to_compact()?;
            let mut is_flushed = true;
            for keyspace in self.keyspaces().iter().filter(|k| k.has_sealed()) {
                keyspace.flush_failures.check(since)?;
                is_flushed = false;
            }
            if !is_flushed {
                return Ok(false);
            }
            // A compaction of a keyspace that was dropped meanwhile is not in `control`, but still holds tables.
            let control = self.control.lock();
            let mut is_quiet = !self.costs.running.is_any();
            for entry in control.keyspaces.iter().filter(|entry| !entry.is_quiet()) {
                entry.state.compaction_failures.check(since)?;
                is_quiet = false;
            }
            drop(control);
            Ok(is_quiet && self.files.obsolete.all_tried())
        });
        self.control.lock().idle_waiters -= 1;
        ended
    }
}
