//! The live snapshots: a list of sequence numbers that merges must keep readable, and the public handle.

use drumlin_env::sync::{Arc, Mutex};
use drumlin_types::Seq;
use std::collections::BTreeMap;

/// Sequence numbers of live snapshots, with how many hold each.
#[derive(Default)]
pub(crate) struct SnapshotList {
    live: Mutex<BTreeMap<Seq, u32>>,
}

impl SnapshotList {
    /// Registers the sequence number that `visible` gives. It is read under the list's lock, so that a
    /// merge that lists the snapshots later sees it, and one that listed them earlier only dropped
    /// versions hidden by others that are visible already.
    pub(crate) fn register(self: &Arc<Self>, visible: impl FnOnce() -> Seq) -> SnapshotGuard {
        let mut live = self.live.lock();
        let seq = visible();
        *live.entry(seq).or_insert(0) += 1;
        SnapshotGuard { list: self.clone(), seq }
    }

    /// All live snapshots, ascending.
    pub(crate) fn list(&self) -> Vec<Seq> {
        self.live.lock().keys().copied().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.live.lock().len()
    }
}

/// Keeps one sequence number readable.
pub(crate) struct SnapshotGuard {
    list: Arc<SnapshotList>,
    pub(crate) seq: Seq,
}

impl Drop for SnapshotGuard {
    fn drop(&mut self) {
        let mut live = self.list.live.lock();
        if let Some(count) = live.get_mut(&self.seq) {
            *count -= 1;
            if *count == 0 {
                live.remove(&self.seq);
            }
        }
    }
}
