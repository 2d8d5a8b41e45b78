//! State of the compactions that are started for the sake of value files.
//!
//! `drumlin_policy::value` says when one starts: to find garbage, or to copy values out of files with much garbage. The
//! scheduler makes the plan. One starts when nothing else is in flight in its keyspace. While value files take much
//! more than their target, the policy is not called until it has started, as for a manual compaction.
//!
//! Invariant: no compaction is repeated without cause. A merge needs a flush since the last one. A file is *stuck* if a
//! compaction was to collect it and no pointer to it has gone: damaged values, or tables that cannot be compacted, hold
//! it. Stuck files do not count until a pointer goes. They get another try when the target changes, after a lack of
//! disk space, and in a reopened store.

use drumlin_env::sync::Arc;
use drumlin_policy::schedule::Flight;
use drumlin_types::{Seq, Ticket, ValueFileId};
use std::collections::{BTreeMap, BTreeSet};

/// Referenced bytes of value files.
pub(super) type Referenced = BTreeMap<ValueFileId, u64>;

/// Collection of the value files of one keyspace.
#[derive(Default)]
pub(crate) struct Collection {
    /// The compaction that was started last, until its end is noticed.
    started: Option<Started>,
    /// Stuck files.
    stuck: Referenced,
    /// Largest sequence number in tables when the last merge was planned.
    merged_at: Option<Seq>,
    /// What the last look went by. Without a change, another look finds the same.
    seen: Option<Seen>,
    /// Whether a compaction should start as soon as nothing is in flight, before the policy is called.
    is_waiting: bool,
}

/// A compaction for value files.
struct Started {
    ticket: Ticket,
    /// The value files that all its pieces collect. While it runs, the tables that it has partly replaced count with
    /// all their pointers, so a new choice would be another one.
    files: Arc<BTreeSet<ValueFileId>>,
    /// Their referenced bytes before it.
    referenced: Referenced,
    /// Whether it has ended without being withdrawn.
    is_done: bool,
}

/// What decides about the next compaction for value files.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Seen {
    /// Number of the keyspace's view.
    pub(super) view: u64,
    /// Space target.
    pub(super) target: f64,
    /// Whether nothing is in flight.
    pub(super) is_idle: bool,
    /// Whether disk space lacks.
    pub(super) lacks_space: bool,
}

impl Collection {
    /// Returns whether the policy must wait until a compaction for value files has started.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Sets whether the policy must wait.
    pub(super) fn wait(&mut self, is_waiting: bool) {
        self.is_waiting = is_waiting;
    }

    /// Returns whether `ticket` is a compaction for value files.
    pub(super) fn is_ticket(&self, ticket: Ticket) -> bool {
        self.files_of(ticket).is_some()
    }

    /// Returns the value files that `ticket` collects, if it is a compaction for value files.
    pub(super) fn files_of(&self, ticket: Ticket) -> Option<&Arc<BTreeSet<ValueFileId>>> {
        self.started.as_ref().filter(|started| started.ticket == ticket).map(|started| &started.files)
    }

    /// Returns whether a compaction for value files is in flight.
    pub(super) fn is_running(&self, flight: &Flight) -> bool {
        self.started.as_ref().is_some_and(|started| flight.ticket(started.ticket).is_some())
    }

    /// Records a look, and returns whether anything has changed since the last one.
    pub(super) fn look(&mut self, seen: Seen) -> bool {
        let before = self.seen.replace(seen);
        if before.is_some_and(|before| before.target != seen.target || before.lacks_space) {
            self.stuck.clear();
        }
        before != Some(seen)
    }

    /// Makes sure that the next look finds a change.
    pub(super) fn forget_look(&mut self) {
        if let Some(seen) = &mut self.seen {
            seen.view = u64::MAX;
        }
    }

    /// Records that `ticket` was started to collect the files of `referenced`, and their referenced bytes. `merges` is
    /// the largest sequence number in tables if it merges all of them.
    pub(super) fn started(&mut self, ticket: Ticket, referenced: Referenced, merges: Option<Seq>) {
        let files = Arc::new(referenced.keys().copied().collect());
        self.started = Some(Started { ticket, files, referenced, is_done: false });
        self.merged_at = merges.or(self.merged_at);
        (self.seen, self.is_waiting) = (None, false);
    }

    /// Records the end of `ticket`, which was not withdrawn if `is_done`. Returns whether it was for value files.
    pub(super) fn ended(&mut self, ticket: Ticket, is_done: bool) -> bool {
        let own = self.started.as_mut().filter(|started| started.ticket == ticket);
        own.map(|started| started.is_done = is_done).is_some()
    }

    /// Returns whether a merge may find more than the last one did. `flushed` is the largest sequence number in tables.
    pub(super) fn may_merge(&self, flushed: Seq) -> bool {
        self.merged_at != Some(flushed)
    }

    /// Removes stuck files from `files`, whose referenced bytes `bytes` returns. If the last compaction has ended,
    /// finds out which of its files are stuck.
    pub(super) fn without_stuck<F>(&mut self, files: &mut Vec<(ValueFileId, F)>, bytes: impl Fn(&F) -> u64) {
        let now: Referenced = files.iter().map(|(id, file)| (*id, bytes(file))).collect();
        let tried = self.started.take().filter(|started| started.is_done);
        self.stuck.extend(tried.into_iter().flat_map(|started| started.referenced));
        self.stuck.retain(|id, bytes| now.get(id).is_some_and(|now| now >= bytes));
        files.retain(|(id, _)| !self.stuck.contains_key(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(id: u64) -> ValueFileId {
        ValueFileId(id)
    }

    fn left(collection: &mut Collection, files: &[(u64, u64)]) -> Vec<u64> {
        let mut files: Vec<(ValueFileId, u64)> =
            files.iter().map(|(id, bytes)| (file(*id), *bytes)).collect();
        collection.without_stuck(&mut files, |bytes| *bytes);
        files.into_iter().map(|(id, _)| id.0).collect()
    }

    #[test]
    fn files_that_keep_their_pointers_are_stuck_until_one_goes() {
        let mut collection = Collection::default();
        assert_eq!(left(&mut collection, &[(1, 50), (2, 60)]), [1, 2]);
        collection.started(Ticket(1), [(file(1), 50), (file(2), 60)].into(), None);
        assert!(collection.is_ticket(Ticket(1)) && !collection.is_ticket(Ticket(2)));
        assert!(!collection.is_running(&Flight::default()));
        assert!(!collection.ended(Ticket(9), true) && collection.ended(Ticket(1), true));
        assert_eq!(left(&mut collection, &[(1, 50), (2, 5), (3, 70)]), [2, 3]);
        assert_eq!(left(&mut collection, &[(1, 50), (2, 5), (3, 70)]), [2, 3]);
        assert_eq!(left(&mut collection, &[(1, 49), (3, 70)]), [1, 3], "a pointer has gone");
        // One that was withdrawn says nothing.
        collection.started(Ticket(2), [(file(3), 70)].into(), None);
        assert!(collection.ended(Ticket(2), false));
        assert_eq!(left(&mut collection, &[(1, 49), (3, 70)]), [1, 3]);
    }

    #[test]
    fn another_target_or_new_space_is_another_try() {
        let seen = Seen { view: 1, target: 1.5, is_idle: true, lacks_space: false };
        for change in [Seen { target: 1.2, ..seen }, Seen { lacks_space: true, ..seen }] {
            let mut collection = Collection::default();
            assert!(
                collection.look(seen) && !collection.look(seen) && collection.look(Seen { view: 2, ..seen })
            );
            collection.started(Ticket(1), [(file(1), 50)].into(), Some(7));
            assert!(!collection.may_merge(7) && collection.may_merge(8));
            collection.ended(Ticket(1), true);
            assert!(collection.look(seen));
            assert_eq!(left(&mut collection, &[(1, 50)]), []);
            assert!(collection.look(change) && collection.look(seen));
            assert_eq!(left(&mut collection, &[(1, 50)]), [1]);
        }
    }
}
