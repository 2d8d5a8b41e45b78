//! State of the compactions that are started for the sake of value files.
//!
//! `drumlin_policy::value` says when one starts: to find garbage, or to copy values out of files with much garbage. The
//! scheduler makes the plan. One starts when nothing else is in flight in its keyspace. While value files take much
//! more than their target, the policy is not called until it has started, as for a manual compaction.
//!
//! Invariant: a compaction that did not help starts again only when the excess has grown as if it were new. It helps if
//! the possible or the hidden excess falls by more than 1/64 of all record bytes. A damaged value keeps its value file
//! until it is overwritten, and so does a table that cannot be compacted. A reopened store tries once more.

use drumlin_env::sync::Arc;
use drumlin_policy::schedule::Flight;
use drumlin_policy::value::SpaceExcess;
use drumlin_types::{Ticket, ValueFileId};
use std::collections::BTreeSet;

/// Collection of the value files of one keyspace.
#[derive(Default)]
pub(crate) struct Collection {
    /// The compaction that was started last, until its end is noticed.
    started: Option<Started>,
    /// Excess that the last compaction could not remove.
    stuck: SpaceExcess,
    /// Whether a compaction should start as soon as nothing is in flight, before the policy is called.
    is_waiting: bool,
}

/// A compaction for value files.
struct Started {
    ticket: Ticket,
    /// Excess before it.
    excess: SpaceExcess,
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

    /// Notes the end of the last compaction if it has ended. Returns the excess that it could not remove. `excess` is
    /// the present one; the last compaction helped if more than `least` bytes of it have gone or become known.
    pub(super) fn note_end(&mut self, excess: SpaceExcess, least: f64) -> SpaceExcess {
        if let Some(Started { excess: before, .. }) = self.started.take() {
            let has_helped =
                excess.possible() < before.possible() - least || excess.hidden < before.hidden - least;
            self.stuck = if has_helped { SpaceExcess::default() } else { excess };
        }
        let SpaceExcess { known, hidden } = self.stuck;
        self.stuck = SpaceExcess { known: known.min(excess.known), hidden: hidden.min(excess.hidden) };
        self.stuck
    }

    /// Records that `ticket` was started to collect `files`, with this `excess` before it.
    pub(super) fn started(&mut self, ticket: Ticket, excess: SpaceExcess, files: BTreeSet<ValueFileId>) {
        let started = Started { ticket, excess, files: Arc::new(files) };
        (self.started, self.is_waiting) = (Some(started), false);
    }

    /// Records that no compaction could be started for this `excess`.
    pub(super) fn refused(&mut self, excess: SpaceExcess) {
        (self.stuck, self.is_waiting) = (excess, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_help_waits_for_more_garbage() {
        let excess = |known: f64, hidden: f64| SpaceExcess { known, hidden };
        let mut collection = Collection::default();
        assert_eq!(collection.note_end(excess(50.0, 0.0), 10.0), excess(0.0, 0.0));
        collection.started(Ticket(1), excess(50.0, 0.0), BTreeSet::new());
        assert!(collection.is_ticket(Ticket(1)) && !collection.is_ticket(Ticket(2)));
        assert!(!collection.is_running(&Flight::default()), "it has ended");
        assert_eq!(collection.note_end(excess(45.0, 3.0), 10.0), excess(45.0, 3.0), "it freed little");
        assert_eq!(collection.note_end(excess(60.0, 30.0), 10.0), excess(45.0, 3.0));
        assert_eq!(collection.note_end(excess(20.0, 0.0), 10.0), excess(20.0, 0.0));
        collection.started(Ticket(2), excess(20.0, 50.0), BTreeSet::new());
        assert_eq!(collection.note_end(excess(65.0, 5.0), 9.0), excess(0.0, 0.0), "it found garbage");
        collection.started(Ticket(3), excess(65.0, 5.0), BTreeSet::new());
        assert_eq!(collection.note_end(excess(40.0, 10.0), 9.0), excess(0.0, 0.0), "it freed enough");
        collection.refused(excess(60.0, 0.0));
        assert_eq!(collection.note_end(excess(61.0, 9.0), 10.0), excess(60.0, 0.0));
    }
}
