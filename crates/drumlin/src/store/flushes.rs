//! Memtables that wait for their flush: sealing them, and waiting until the flush lane has written them.

use super::Store;
use crate::base::error::Result;
use crate::keyspace::KeyspaceState;
use crate::memtable::Memtable;
use drumlin_env::sync::Arc;

impl Store {
    /// Seals the memtables of `keyspaces` at the same commit and returns all memtables that wait to be flushed.
    pub(crate) fn seal(&self, keyspaces: &[Arc<KeyspaceState>]) -> Vec<(Arc<KeyspaceState>, Arc<Memtable>)> {
        let locked = self.commit_lock.state.lock();
        let mut pending = Vec::new();
        for keyspace in keyspaces {
            keyspace.seal(locked.log.segment.number);
            pending.extend(keyspace.view().sealed.iter().map(|m| (keyspace.clone(), m.clone())));
        }
        pending
    }

    /// Returns every sealed memtable that waits to be flushed.
    pub(crate) fn pending_flushes(&self) -> Vec<(Arc<KeyspaceState>, Arc<Memtable>)> {
        let keyspaces = self.keyspaces();
        let of = |k: &Arc<KeyspaceState>| {
            k.view().sealed.iter().map(|m| (k.clone(), m.clone())).collect::<Vec<_>>()
        };
        keyspaces.iter().flat_map(of).collect()
    }

    /// Waits until `pending` are in tables. Fails only if flushes of their keyspaces fail.
    pub(crate) fn wait_flushed(&self, pending: &[(Arc<KeyspaceState>, Arc<Memtable>)]) -> Result<()> {
        self.background.wake();
        let since = self.health.last_failure();
        self.background.wait("flush waits for its memtables", || {
            self.health.check_poison()?;
            let waiting = |(k, m): &(Arc<KeyspaceState>, Arc<Memtable>)| {
                k.view().sealed.iter().any(|s| Arc::ptr_eq(s, m))
            };
            let mut is_over = true;
            for (keyspace, _) in pending.iter().filter(|sealed| waiting(sealed)) {
                keyspace.flush_failures.check(since)?;
                keyspace.flush_failures.check_space(since)?;
                is_over = false;
            }
            Ok(is_over)
        })
    }

    /// Returns an error if flushes can free no memory: in every keyspace with a memtable that waits, they have failed
    /// in a row since failure number `since`.
    pub(crate) fn check_flushes(&self, since: u64) -> Result<()> {
        let mut checked = Ok(());
        for keyspace in self.keyspaces().iter().filter(|k| k.has_sealed()) {
            checked = keyspace.flush_failures.check(since);
            if checked.is_ok() {
                break;
            }
        }
        checked
    }
}
