//! Manual flush: seals memtables and waits until the flush lane has written them.

use crate::base::error::Result;
use crate::keyspace::KeyspaceState;
use crate::store::Store;
use drumlin_env::sync::Arc;

impl Store {
    /// Flushes the memtables of one keyspace, or of all keyspaces, and waits until they are in tables.
    pub(crate) fn flush(&self, only: Option<&Arc<KeyspaceState>>) -> Result<()> {
        self.health.check_open()?;
        self.health.check_poison()?;
        self.clear_space_errors();
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
}
