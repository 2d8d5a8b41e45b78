//! Manual flush: seals memtables and waits until the flush lane has written them.

use crate::base::error::{Error, ErrorKind, Result};
use crate::keyspace::KeyspaceState;
use crate::memtable::Memtable;
use crate::store::Store;
use drumlin_env::sync::{Arc, atomic};

impl Store {
    /// Flushes the memtables of one keyspace, or of all keyspaces, and waits until they are in tables.
    pub(crate) fn flush(&self, only: Option<&Arc<KeyspaceState>>) -> Result<()> {
        self.health.check_open()?;
        self.health.check_poison()?;
        self.look_for_room();
        let wanted: Vec<Arc<KeyspaceState>> = match only {
            Some(keyspace) => {
                keyspace.check_alive()?;
                vec![keyspace.clone()]
            }
            None => self.keyspaces().to_vec(),
        };
        let pending = self.seal(&wanted);
        self.wait_flushed(&pending)
    }

    /// Seals the memtables of `keyspaces` at the same commit and returns all memtables that wait to be flushed.
    pub(crate) fn seal(&self, keyspaces: &[Arc<KeyspaceState>]) -> Vec<(Arc<KeyspaceState>, Arc<Memtable>)> {
        let lane = self.lane.state.lock();
        let mut pending = Vec::new();
        for keyspace in keyspaces {
            keyspace.seal(lane.log.segment.number);
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

    pub(crate) fn wait_flushed(&self, pending: &[(Arc<KeyspaceState>, Arc<Memtable>)]) -> Result<()> {
        self.background.wake();
        let failed = self.health.failed_flushes();
        self.background.wait("flush waits for its memtables", || {
            self.health.check_poison()?;
            let waiting = |(k, m): &(Arc<KeyspaceState>, Arc<Memtable>)| {
                k.view().sealed.iter().any(|s| Arc::ptr_eq(s, m))
            };
            if !pending.iter().any(waiting) {
                return Ok(true);
            }
            self.health.check_flushes(failed)?;
            if self.health.disk_full.load(atomic::Ordering::Acquire) {
                return Err(Error::new(
                    ErrorKind::NoSpace,
                    "the disk has no space for a flush; flushes resume when there is space",
                ));
            }
            Ok(false)
        })
    }
}
