//! The list of live snapshots, which tells compactions the versions that must stay readable.

use drumlin_env::sync::{Arc, Mutex};
use drumlin_types::Seq;
use std::collections::BTreeMap;

/// Read point of a reader. The reader sees the versions up to a sequence number that have not expired by a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ReadPoint {
    /// Largest sequence number that the reader sees.
    pub(crate) seq: Seq,
    /// Time of the read in microseconds since the Unix epoch.
    pub(crate) micros: u64,
}

/// The read points of live snapshots, with the number of snapshots at each.
///
/// Invariant: of two read points, the one with the larger sequence number has no earlier time. Both values are read
/// under the lock, and neither ever decreases.
#[derive(Default)]
pub(crate) struct SnapshotList {
    live: Mutex<BTreeMap<ReadPoint, u32>>,
}

impl SnapshotList {
    /// Registers the read point that `now` returns. It calls `now` under the list's lock. So a compaction that lists
    /// the snapshots later sees this one. A compaction that listed them earlier only dropped versions that had expired,
    /// or that versions visible by then hide.
    pub(crate) fn register(self: &Arc<Self>, now: impl FnOnce() -> ReadPoint) -> SnapshotGuard {
        let mut live = self.live.lock();
        let point = now();
        *live.entry(point).or_insert(0) += 1;
        SnapshotGuard { list: self.clone(), point }
    }

    /// Returns the readers that a compaction starting now must serve. It calls `now` under the lock, so snapshots that
    /// are not in the list have a later time.
    pub(crate) fn readers(&self, now: impl FnOnce() -> u64) -> Readers {
        let live = self.live.lock();
        let now_micros = now();
        let mut snapshots: Vec<ReadPoint> = live.keys().copied().collect();
        snapshots.dedup_by_key(|point| point.seq);
        Readers { snapshots, now_micros }
    }

    pub(crate) fn len(&self) -> usize {
        self.live.lock().len()
    }
}

/// The readers that a compaction must serve: the live snapshots and all later readers.
///
/// Snapshots cut the sequence numbers into stripes. The same snapshots see all versions of a stripe.
#[derive(Clone, Default, Debug)]
pub(crate) struct Readers {
    /// Read points of live snapshots in ascending order. For each sequence number only the earliest is listed.
    pub(crate) snapshots: Vec<ReadPoint>,
    /// Time when the list was made. No other reader reads as of an earlier time.
    pub(crate) now_micros: u64,
}

impl Readers {
    /// Returns the stripe of `seq`, which is the number of listed snapshots older than `seq`.
    pub(crate) fn stripe(&self, seq: Seq) -> usize {
        self.snapshots.partition_point(|point| point.seq < seq)
    }

    /// Returns the largest sequence number that `stripe` can contain.
    pub(crate) fn newest_in(&self, stripe: usize) -> Seq {
        self.snapshots.get(stripe).map_or(Seq::MAX, |point| point.seq)
    }

    /// Returns the earliest time at which a reader can read the versions of `stripe`. No reader sees a version that has
    /// expired by then.
    pub(crate) fn horizon(&self, stripe: usize) -> u64 {
        // Newer snapshots have later times.
        self.snapshots.get(stripe).map_or(self.now_micros, |point| point.micros)
    }
}

/// Keeps one read point readable until it is dropped.
pub(crate) struct SnapshotGuard {
    list: Arc<SnapshotList>,
    pub(crate) point: ReadPoint,
}

impl Drop for SnapshotGuard {
    fn drop(&mut self) {
        let mut live = self.list.live.lock();
        if let Some(count) = live.get_mut(&self.point) {
            *count -= 1;
            if *count == 0 {
                live.remove(&self.point);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_sequence_number_the_earliest_moment_counts() {
        let list: Arc<SnapshotList> = Arc::default();
        let take = |seq, micros| list.register(|| ReadPoint { seq, micros });
        let readers = || list.readers(|| 30);
        let shown = || readers().snapshots.iter().map(|m| (m.seq, m.micros)).collect::<Vec<_>>();
        let (first, second, third, fourth) = (take(3, 10), take(3, 20), take(3, 20), take(5, 20));
        assert_eq!((shown(), list.len()), (vec![(3, 10), (5, 20)], 3));
        let stripes = [3, 4, 5, 6].map(|seq| readers().stripe(seq));
        assert_eq!(stripes, [0, 1, 1, 2]);
        assert_eq!([0, 1, 2].map(|stripe| readers().horizon(stripe)), [10, 20, 30]);
        assert_eq!([0, 1, 2].map(|stripe| readers().newest_in(stripe)), [3, 5, Seq::MAX]);
        drop((first, third));
        assert_eq!(shown(), [(3, 20), (5, 20)]);
        drop(second);
        assert_eq!(shown(), [(5, 20)]);
        drop(fourth);
        assert_eq!(shown(), []);
    }
}
