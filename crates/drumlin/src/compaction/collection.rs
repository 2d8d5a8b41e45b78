//! State of the compactions that are started for the sake of value files.
//!
//! `drumlin_policy::value` says when one starts: to find garbage, or to copy values out of files with much garbage. The
//! scheduler makes the plan. One starts when nothing else is in flight in its keyspace. While value files take much
//! more than their target, the policy is not called until it has started, as for a manual compaction.
//!
//! Invariant: a compaction that did not help is not repeated before more bytes have become garbage. A value that cannot
//! be read, or a table that cannot be compacted, keeps its value file for ever.

use drumlin_env::sync::Arc;
use drumlin_policy::schedule::Flight;
use drumlin_policy::value::AboveTarget;
use drumlin_types::{Ticket, ValueFileId};
use std::collections::BTreeSet;

/// Collection of the value files of one keyspace.
#[derive(Default)]
pub(crate) struct Collection {
    /// The compaction that was started last, until its end is noticed.
    started: Option<Started>,
    /// What the last compaction could not remove.
    left: AboveTarget,
    /// Whether a compaction should start as soon as nothing is in flight, before the policy is called.
    is_waiting: bool,
}

/// A compaction for value files.
struct Started {
    ticket: Ticket,
    /// Bytes above the target before it.
    above: AboveTarget,
    /// The value files that all its pieces collect. While it runs, the tables that it has partly replaced count with
    /// all their pointers, so a new choice would be another one.
    files: Arc<BTreeSet<ValueFileId>>,
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

    /// Returns what the last compaction could not remove, if `above` is above the target now. At least `grain` bytes
    /// must have gone or have become known, or it did not help.
    pub(super) fn left(&mut self, above: AboveTarget, grain: f64) -> AboveTarget {
        if let Some(Started { above: before, .. }) = self.started.take() {
            let has_helped = above.sum() < before.sum() - grain || above.hidden < before.hidden - grain;
            self.left = if has_helped { AboveTarget::default() } else { above };
        }
        let AboveTarget { known, hidden } = self.left;
        self.left = AboveTarget { known: known.min(above.known), hidden: hidden.min(above.hidden) };
        self.left
    }

    /// Records that `ticket` was started to collect `files`, with `above` above the target.
    pub(super) fn started(&mut self, ticket: Ticket, above: AboveTarget, files: BTreeSet<ValueFileId>) {
        let started = Started { ticket, above, files: Arc::new(files) };
        (self.started, self.is_waiting) = (Some(started), false);
    }

    /// Records that no compaction could be started, with `above` above the target.
    pub(super) fn refused(&mut self, above: AboveTarget) {
        (self.left, self.is_waiting) = (above, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_help_waits_for_more_garbage() {
        let above = |known: f64, hidden: f64| AboveTarget { known, hidden };
        let mut collection = Collection::default();
        assert_eq!(collection.left(above(50.0, 0.0), 10.0), above(0.0, 0.0));
        collection.started(Ticket(1), above(50.0, 0.0), BTreeSet::new());
        assert!(collection.is_ticket(Ticket(1)) && !collection.is_ticket(Ticket(2)));
        assert!(!collection.is_running(&Flight::default()), "it has ended");
        assert_eq!(collection.left(above(45.0, 3.0), 10.0), above(45.0, 3.0), "it freed little");
        assert_eq!(collection.left(above(60.0, 30.0), 10.0), above(45.0, 3.0));
        assert_eq!(collection.left(above(20.0, 0.0), 10.0), above(20.0, 0.0));
        collection.started(Ticket(2), above(20.0, 50.0), BTreeSet::new());
        assert_eq!(collection.left(above(65.0, 5.0), 9.0), above(0.0, 0.0), "it found garbage");
        collection.started(Ticket(3), above(65.0, 5.0), BTreeSet::new());
        assert_eq!(collection.left(above(40.0, 10.0), 9.0), above(0.0, 0.0), "it freed enough");
        collection.refused(above(60.0, 0.0));
        assert_eq!(collection.left(above(61.0, 9.0), 10.0), above(60.0, 0.0));
    }
}
