//! The store that all handles share. Dropping the last handle closes it.

use crate::store::Store;
use drumlin_env::sync::Arc;
use std::ops::Deref;

/// Open store that is closed when it is dropped.
pub(crate) struct OpenStore {
    store: Arc<Store>,
}

impl OpenStore {
    pub(super) fn new(store: Arc<Store>) -> OpenStore {
        OpenStore { store }
    }
}

impl Deref for OpenStore {
    type Target = Arc<Store>;
    fn deref(&self) -> &Arc<Store> {
        &self.store
    }
}

impl Drop for OpenStore {
    fn drop(&mut self) {
        // A drop cannot return an error. Programs that need it call `Db::close`. No acknowledged write depends on it.
        let _ = self.store.close();
    }
}
