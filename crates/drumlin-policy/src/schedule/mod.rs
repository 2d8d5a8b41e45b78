//! The scheduler: when plans run, in what order they install, and how much may be under way (Downforce).
//!
//! A policy names plans; everything here decides what becomes of them. In other engines a merge blocks its neighbours:
//! while level 1 is merged into level 2, level 0 must wait. Here any legal plan may run at any time, whatever else is
//! running. A plan is judged on the *projected* tree, as it will be once all earlier plans are done; what is legal
//! there but not yet on the tree as it lies becomes a *wait* of one piece for another. So a later plan follows an
//! earlier one through the key space, piece by piece.
//!
//! ```text
//!   plan --admit--> ticket, cut into pieces --start--> running --finish--> held --installs--> installed
//!          close, legal, waits             pick, fold                      waits, landing
//! ```
//!
//! - [`tickets`]: what is under way. [`project`]: the tree with it. [`weights`]: what levels weigh then.
//! - [`admit`]: plans become tickets. [`mod@cut`]: tickets become pieces, and `divide` pieces again.
//! - [`start`]: the next piece for a free slot. [`pick`]: the order of level pairs. [`fold`]: what it merges along.
//! - [`finish`]: what may be installed, landed, sunk; failure and withdrawal.
//! - [`limits`]: bounds, and the number of slots.
//!
//! Pure: no lock, no clock, no I/O. The tree, the time and all numbers are arguments; equal calls give equal answers.
//! The engine and the simulators are shells around this.

pub mod admit;
pub mod cut;
mod divide;
pub mod finish;
pub mod fold;
pub mod limits;
mod overlaps;
pub mod pick;
pub mod project;
pub mod start;
pub mod tickets;
pub mod tidy;
pub mod weights;

#[cfg(test)]
mod tests;

pub use admit::Refusal;
pub use divide::Divided;
pub use finish::{Install, Withdrawn};
pub use fold::{FoldCosts, Room, home};
pub use limits::{Mode, Settings};
pub use start::{Idle, Start};
pub use tickets::{Flight, Piece, PieceState, TicketState};
pub use weights::Weights;

use drumlin_types::contract::{CostView, LevelDesign, LoadView, TreeView};
use drumlin_types::{RunId, Ticket};

/// What every question is asked against.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    /// The tree as it is installed, all files free; those that nobody may take are marked as coming.
    pub tree: &'a TreeView,
    /// What the policy means each level to hold.
    pub design: &'a [LevelDesign],
    /// Limits.
    pub settings: &'a Settings,
    /// Costs of folding.
    pub costs: FoldCosts,
    /// Bytes that merges may still write on the disk.
    pub room: u64,
    /// Monotonic microseconds.
    pub now: u64,
}

/// Written bytes per second below which, in the long run, a keyspace counts as idle.
const IDLE: f64 = 1024.0;
/// What a second of a slot is worth in seconds of reads: it passes beside them, and costs them the device alone.
const SLOT: f64 = 0.1;

impl FoldCosts {
    /// The costs that follow from what was measured: in the long run, and `lately`.
    pub fn measured(load: &LoadView, lately: &LoadView, costs: &CostView) -> FoldCosts {
        let rewrite = if costs.merge_bytes_per_s > 0.0 { 1.0 / costs.merge_bytes_per_s } else { 0.0 };
        // One lookup in a hundred reads a block of a run that does not hold its key.
        let probe = costs.probe_ns + costs.block_ns * 0.01;
        // The mean cursor is in a small run, of which all is in the cache; a run that is worth merging is as large as those
        // that lookups read.
        let cursor = costs.cursor_ns.max(costs.block_ns);
        let extra_run = (lately.gets * probe + lately.seeks * cursor) / 1e9;
        // In the first second no rate is known; what was written so far counts as that second's.
        let counted = load.counted[2] as f64 * load.entry_bytes;
        let is_known = load.write_bytes > 0.0;
        let (inflow, long) =
            if is_known { (lately.write_bytes, load.write_bytes) } else { (counted, counted) };
        let (rewrite, fixed) = (SLOT * rewrite, SLOT * costs.merge_fixed_ns / 1e9);
        FoldCosts { inflow, rests: long < IDLE, rewrite, fixed, extra_run }
    }
}

/// Numbers that are given once in the life of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbers {
    /// The next run.
    pub next_run: u64,
    /// The next ticket.
    pub next_ticket: u64,
}

impl Numbers {
    /// A run that was never there.
    pub fn run(&mut self) -> RunId {
        self.next_run += 1;
        RunId(self.next_run - 1)
    }

    /// The next ticket.
    pub fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket - 1)
    }
}
