//! What the tickets (scheduled compactions) of this policy say about themselves.
//!
//! A ticket carries its plan. The first word of the plan's reason tells whether the compaction was a must or elective.
//! The plan's priority is the number of covered runs that it removes.

use drumlin_types::contract::TicketView;

/// First word of the reason of a plan that was a must.
pub(crate) const MUST: &str = "must";
/// First word of the reason of an elective plan.
pub(crate) const ELECTIVE: &str = "elective";

/// Returns the covered runs that the compaction of `ticket` removes; `None` for a plan of another policy.
pub(crate) fn removed_by(ticket: &TicketView) -> Option<f64> {
    let is_own = is_must(ticket) || ticket.plan.reason.starts_with(ELECTIVE);
    is_own.then_some(ticket.plan.priority)
}

/// Returns whether a compaction may be withdrawn: it was elective, and pieces are left besides the running one.
pub(crate) fn may_withdraw(ticket: &TicketView) -> bool {
    ticket.plan.reason.starts_with(ELECTIVE) && ticket.pieces > ticket.pieces_done + 1
}

fn is_must(ticket: &TicketView) -> bool {
    ticket.plan.reason.starts_with(MUST)
}

/// Returns the earliest deadline of the running compactions.
pub(crate) fn first_due(tickets: &[TicketView]) -> u64 {
    tickets.iter().filter_map(|ticket| ticket.plan.deadline).min().unwrap_or(u64::MAX)
}
