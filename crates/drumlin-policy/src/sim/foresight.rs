//! How long merges take, beside how long their policy said that they would.
//!
//! A plan names the flush by which it should be done. Merges that nothing came in between of are compared:
//! those that begin while nothing runs, and end before anything else begins.

use drumlin_types::Ticket;
use drumlin_types::contract::Plan;

/// Merges compared so far, and the one that is watched.
#[derive(Clone, Debug, Default)]
pub(super) struct Foresight {
    watched: Option<(Ticket, f64, f64)>,
    /// Merges, the sum of their errors and the greatest one, in windows of a flush.
    pub(super) seen: (u64, f64, f64),
}

impl Foresight {
    /// `plan` was admitted as `ticket` after so many flushes; `alone` says whether anything else is under way.
    pub(super) fn began(&mut self, ticket: Ticket, plan: &Plan, whole: u64, flushes: f64, alone: bool) {
        let expected = plan.deadline.map(|deadline| deadline.saturating_sub(whole) as f64);
        self.watched = expected.filter(|_| alone).map(|expected| (ticket, flushes, expected));
    }

    /// `ticket` ended after so many flushes.
    pub(super) fn ended(&mut self, ticket: Ticket, flushes: f64) {
        let Some((_, began, expected)) = self.watched.take_if(|(own, ..)| *own == ticket) else { return };
        // What was expected is rounded up to whole flushes.
        let passed = flushes - began;
        let error = (passed - expected).max(expected - 1.0 - passed).max(0.0);
        self.seen = (self.seen.0 + 1, self.seen.1 + error, self.seen.2.max(error));
    }
}
