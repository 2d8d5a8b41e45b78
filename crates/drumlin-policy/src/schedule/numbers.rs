//! Numbers of new runs and tickets.

use drumlin_types::{RunId, Ticket};

/// Generator of numbers that are never reused in the lifetime of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbers {
    /// Number of the next run.
    pub next_run: u64,
    /// Number of the next ticket.
    pub next_ticket: u64,
}

impl Numbers {
    /// Returns the id of a new run.
    pub fn run(&mut self) -> RunId {
        self.next_run += 1;
        RunId(self.next_run - 1)
    }

    /// Returns the next ticket.
    pub fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket - 1)
    }
}
