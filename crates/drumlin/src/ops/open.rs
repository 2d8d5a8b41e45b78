//! Opening a store: recovers the directory, starts the lanes, and flushes what was replayed.

use crate::base::error::{ErrorKind, Result};
use crate::recovery::open::{OpenRequest, recover, renew_replayed};
use crate::store::Store;
use drumlin_env::sync::Arc;
use drumlin_format::log::Recovered;

/// Opens the store, or creates it. A store that is opened read-only gets no lanes, and nothing is flushed.
pub(crate) fn open(request: OpenRequest) -> Result<Arc<Store>> {
    let (store, recovered) = recover(request)?;
    if store.health.read_only {
        return Ok(store);
    }
    // Running lanes hold the store, and with it the lock, until it is closed.
    if let Err(error) = store.start_lanes().and_then(|()| flush_replayed(&store, &recovered)) {
        // Replayed commits may be in the page cache only. A close record would promise that they are durable, so the
        // store is poisoned: it then writes none.
        store.poison(&error);
        let _ = store.close();
        return Err(error);
    }
    Ok(store)
}

/// Flushes the replayed commits, unless they are known to be durable in the log.
fn flush_replayed(store: &Arc<Store>, recovered: &Recovered) -> Result<()> {
    if recovered.closed {
        return Ok(());
    }
    match store.wait_flushed(&store.pending_flushes()) {
        // A flush may have released segments. Only live ones are copied, and none is released meanwhile.
        Err(error) if error.kind() == ErrorKind::NoSpace => store.read_log(|live, _| {
            let left = recovered.replayed.iter().filter(|number| live.contains(number));
            renew_replayed(store, left.copied())
        }),
        settled => settled,
    }
}
