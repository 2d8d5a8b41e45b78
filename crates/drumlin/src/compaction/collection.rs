//! State of the compactions that are started for the sake of value files.
//!
//! `drumlin_policy::value` says when one starts: to find garbage, or to copy values out of files with much garbage. The
//! scheduler makes the plan. One starts when nothing else is in flight in its keyspace. While value files take much
//! more than their target, the policy is not called until it has started, as for a manual compaction.
//!
//! Invariant: no compaction is repeated for ever without cause. A merge needs a flush since the last one that ended. A
//! file is *stuck* if three compactions in a row tried to collect it and removed no pointer to it, as with damaged
//! values. A compaction that lacked disk space is no try; it starts a back-off. Stuck files do not count until a
//! pointer to them is removed. They are tried again when the target changes, after a lack of disk space, and in a
//! reopened store.

use drumlin_env::sync::Arc;
use drumlin_policy::schedule::Flight;
use drumlin_types::{Seq, Ticket, ValueFileId};
use std::collections::{BTreeMap, BTreeSet};

/// Referenced bytes of value files.
pub(super) type Referenced = BTreeMap<ValueFileId, u64>;

/// Number of compactions without effect after which a file is stuck.
const MOST_TRIES: u32 = 3;
/// First back-off after a refused or failed compaction, in microseconds. It doubles up to `LONGEST_PAUSE`.
const FIRST_PAUSE: u64 = 1_000_000;
const LONGEST_PAUSE: u64 = 60_000_000;

/// Collection of the value files of one keyspace.
#[derive(Default)]
pub(crate) struct Collection {
    /// The compaction that was started last, until its end is noticed.
    started: Option<Started>,
    /// Files that compactions have tried to collect in vain: their referenced bytes, and the number of tries.
    tries: BTreeMap<ValueFileId, (u64, u32)>,
    /// Largest sequence number in tables when the last merge was planned.
    merged_at: Option<Seq>,
    /// Inputs of the last look. While they are unchanged, another look would find the same.
    seen: Option<Seen>,
    /// Whether a compaction should start as soon as nothing is in flight, before the policy is called.
    is_waiting: bool,
    /// Largest sequence number in tables when a compaction was due, nothing was in flight and none could start.
    futile_at: Option<Seq>,
    /// Whether a compaction lacks disk space.
    pub(super) lacks_room: bool,
    /// Monotonic time in microseconds before which none starts, and the back-off that ends then.
    pause: (u64, u64),
    /// Whether the scheduler looks for a collection when the back-off ends.
    resumes: bool,
}

/// A compaction for value files.
struct Started {
    ticket: Ticket,
    /// The value files that all its pieces collect. They are chosen once: while the compaction runs, tables that it has
    /// partly replaced still count with all their pointers, so a later choice would differ.
    files: Arc<BTreeSet<ValueFileId>>,
    /// Their referenced bytes before it.
    referenced: Referenced,
    /// Whether it has ended without being withdrawn.
    is_done: bool,
    /// Whether a piece of it copied nothing because disk space was short.
    lacked_space: bool,
}

/// Inputs that decide about the next compaction for value files.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Seen {
    /// Number of the keyspace's view.
    pub(super) view: u64,
    /// Space target.
    pub(super) target: f64,
    /// Whether nothing is in flight.
    pub(super) is_idle: bool,
    /// Whether flushes or the log find no disk space.
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
            self.tries.clear();
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
        self.started = Some(Started { ticket, files, referenced, is_done: false, lacked_space: false });
        self.merged_at = merges.or(self.merged_at);
        (self.seen, self.is_waiting) = (None, false);
    }

    /// Records at `now` the end of `ticket`, which was not withdrawn if `is_done`.
    pub(super) fn ended(&mut self, ticket: Ticket, is_done: bool, now: u64) {
        let Some(started) = self.started.as_mut().filter(|started| started.ticket == ticket) else { return };
        started.is_done = is_done;
        if is_done && !started.lacked_space {
            (self.pause, self.resumes) = ((0, 0), false);
        } else {
            self.merged_at = None;
            self.back_off(now);
        }
    }

    /// Records that a piece of `ticket` copies nothing because disk space is short.
    pub(super) fn lacks_space(&mut self, ticket: Ticket) {
        if let Some(started) = self.started.as_mut().filter(|started| started.ticket == ticket) {
            started.lacked_space = true;
        }
    }

    /// Starts or doubles the back-off after a refused or failed compaction.
    pub(super) fn back_off(&mut self, now: u64) {
        let pause = (self.pause.1 * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.pause = (now.saturating_add(pause), pause);
        self.resumes = true;
        self.forget_look();
    }

    /// Returns when the back-off ends, if a collection may start then.
    pub(super) fn resumes_at(&self) -> Option<u64> {
        self.resumes.then_some(self.pause.0)
    }

    /// Returns whether a back-off has ended by `now`, once for each.
    pub(super) fn has_resumed(&mut self, now: u64) -> bool {
        let has_resumed = self.resumes && now >= self.pause.0;
        self.resumes &= !has_resumed;
        has_resumed
    }

    /// Returns whether no compaction may start yet at `now`.
    pub(super) fn is_backing_off(&self, now: u64) -> bool {
        now < self.pause.0
    }

    /// Returns whether a merge may find more than the last one did. `flushed` is the largest sequence number in tables.
    pub(super) fn may_merge(&self, flushed: Seq) -> bool {
        self.merged_at != Some(flushed)
    }

    /// Records that a compaction was due with nothing in flight, and could not start.
    pub(super) fn was_futile(&mut self, flushed: Seq) {
        self.futile_at = Some(flushed);
    }

    /// Returns whether a compaction that is due can probably start once nothing is in flight.
    pub(super) fn has_prospects(&self, flushed: Seq) -> bool {
        self.futile_at != Some(flushed)
    }

    /// Removes stuck files from `files`. `bytes` returns the referenced bytes of a file. If the last compaction has
    /// ended without being withdrawn, and had the space to copy, it first counts as one try for each file that it
    /// collected.
    pub(super) fn without_stuck<F>(&mut self, files: &mut Vec<(ValueFileId, F)>, bytes: impl Fn(&F) -> u64) {
        let tried = self.started.take().filter(|started| started.is_done && !started.lacked_space);
        for (id, referenced) in tried.into_iter().flat_map(|started| started.referenced) {
            let (least, tries) = self.tries.entry(id).or_insert((referenced, 0));
            (*least, *tries) = (referenced.min(*least), *tries + 1);
        }
        let now: Referenced = files.iter().map(|(id, file)| (*id, bytes(file))).collect();
        self.tries.retain(|id, (referenced, _)| now.get(id).is_some_and(|now| now >= referenced));
        files.retain(|(id, _)| self.tries.get(id).is_none_or(|(_, tries)| *tries < MOST_TRIES));
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

    /// Tries to collect `files`, which takes until nothing more is known of the ticket.
    fn try_to_collect(collection: &mut Collection, files: &[(u64, u64)], is_done: bool) {
        let files = files.iter().map(|(id, bytes)| (file(*id), *bytes)).collect();
        collection.started(Ticket(1), files, None);
        collection.ended(Ticket(1), is_done, 0);
    }

    /// Nothing else may happen in the keyspace when a back-off ends.
    #[test]
    fn the_end_of_a_back_off_is_told_once() {
        let mut collection = Collection::default();
        assert_eq!((collection.resumes_at(), collection.has_resumed(0)), (None, false));
        collection.back_off(10);
        let end = collection.resumes_at().expect("a back-off");
        assert!(collection.is_backing_off(end - 1) && !collection.has_resumed(end - 1));
        assert!(!collection.is_backing_off(end) && collection.has_resumed(end));
        assert_eq!((collection.resumes_at(), collection.has_resumed(end)), (None, false));
        collection.back_off(end);
        try_to_collect(&mut collection, &[(1, 50)], true);
        assert_eq!(collection.resumes_at(), None, "a collection has ended well");
    }

    #[test]
    fn a_collection_without_space_is_no_try() {
        let mut collection = Collection::default();
        for _ in 0..5 {
            collection.started(Ticket(1), [(file(1), 50)].into(), None);
            collection.lacks_space(Ticket(1));
            collection.ended(Ticket(1), true, 0);
            assert_eq!(left(&mut collection, &[(1, 50)]), [1]);
        }
        for tries in 1..=3 {
            assert_eq!(left(&mut collection, &[(1, 50)]), [1], "{tries}");
            try_to_collect(&mut collection, &[(1, 50)], true);
        }
        assert_eq!(left(&mut collection, &[(1, 50)]), [0; 0]);
    }

    #[test]
    fn files_that_keep_their_pointers_are_stuck_until_one_goes() {
        let mut collection = Collection::default();
        let both = [(1, 50), (2, 60)];
        assert_eq!(left(&mut collection, &both), [1, 2]);
        for _ in 1..MOST_TRIES {
            try_to_collect(&mut collection, &both, true);
            assert_eq!(left(&mut collection, &both), [1, 2]);
        }
        try_to_collect(&mut collection, &both, true);
        assert_eq!(left(&mut collection, &[(1, 50), (2, 5), (3, 70)]), [2, 3]);
        assert_eq!(left(&mut collection, &[(1, 50), (2, 5), (3, 70)]), [2, 3]);
        assert_eq!(left(&mut collection, &[(1, 49), (3, 70)]), [1, 3], "a pointer has gone");
        // Those that were withdrawn say nothing.
        (0..9).for_each(|_| try_to_collect(&mut collection, &[(3, 70)], false));
        assert_eq!(left(&mut collection, &[(1, 49), (3, 70)]), [1, 3]);
    }

    #[test]
    fn another_target_or_new_space_is_another_try() {
        let seen = Seen { view: 1, target: 1.5, is_idle: true, lacks_space: false };
        for change in [Seen { target: 1.2, ..seen }, Seen { lacks_space: true, ..seen }] {
            let mut collection = Collection::default();
            let is_new = collection.look(seen);
            assert!(is_new && !collection.look(seen) && collection.look(Seen { view: 2, ..seen }));
            for _ in 0..MOST_TRIES {
                try_to_collect(&mut collection, &[(1, 50)], true);
                left(&mut collection, &[(1, 50)]);
            }
            assert!(collection.look(seen));
            assert_eq!(left(&mut collection, &[(1, 50)]), []);
            assert!(collection.look(change) && collection.look(seen));
            assert_eq!(left(&mut collection, &[(1, 50)]), [1]);
        }
    }

    #[test]
    fn failures_back_off_and_let_a_merge_try_again() {
        let mut collection = Collection::default();
        collection.started(Ticket(7), Referenced::new(), Some(9));
        assert!(collection.is_ticket(Ticket(7)) && !collection.is_ticket(Ticket(8)));
        assert!(!collection.is_running(&Flight::default()));
        assert!(!collection.may_merge(9) && collection.may_merge(10));
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            collection.ended(Ticket(7), false, 5);
            assert!(collection.may_merge(9));
            let end = 5 + pause * 1_000_000;
            assert!(collection.is_backing_off(end - 1) && !collection.is_backing_off(end));
        }
        collection.ended(Ticket(7), true, 5);
        assert!(!collection.is_backing_off(5));
        assert!(collection.has_prospects(9));
        collection.was_futile(9);
        assert!(!collection.has_prospects(9) && collection.has_prospects(10));
    }
}
