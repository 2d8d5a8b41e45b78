//! Compaction scheduler (Downforce): when plans run, in what order they are installed, and how much may be under way.
//!
//! A policy proposes plans, and this module schedules them. In other engines a compaction blocks its neighbours:
//! while level 1 is compacted into level 2, level 0 must wait. Here any legal plan may run at any time, whatever else
//! is running. A plan is judged on the *projected* tree, which is the tree after all earlier plans are done. If it is
//! legal there but not yet on the installed tree, a piece of it *waits* for a piece of an earlier plan. So a later
//! plan follows an earlier one through the key space, piece by piece.
//!
//! A *ticket* is a scheduled compaction, that is, an admitted plan. A *piece* is a subcompaction: one key sub-range
//! of a ticket that runs and is installed on its own.
//!
//! ```text
//!   plan --admit--> ticket, cut into pieces --start--> running --finish--> held --installs--> installed
//!          close, legal, waits             pick, fold                      waits, landing
//! ```
//!
//! - [`tickets`]: tickets under way. [`project`]: the tree with their effects. [`weights`]: sizes of the levels then.
//! - [`admit`]: turns plans into tickets. [`mod@cut`]: cuts tickets into pieces; `divide` cuts pieces again.
//! - [`start`]: the next piece for a free slot. [`pick`]: the order of level pairs. [`fold`]: which files a piece
//!   folds.
//! - [`finish`]: install, landing and sinking of outputs; failure and withdrawal.
//! - [`room`]: disk space for whole tickets, and the way out when it is used up.
//! - [`limits`]: limits on work under way, and the number of slots.
//!
//! The module is pure: no lock, no clock, no I/O. The tree, the time and all numbers are arguments, and equal calls
//! give equal results. The engine and the simulators are thin layers around it.

pub mod admit;
pub mod cut;
mod divide;
pub mod finish;
pub mod fold;
pub mod limits;
mod numbers;
mod overlaps;
pub mod pick;
pub mod project;
pub mod room;
mod scene;
pub mod start;
pub mod tickets;
pub mod tidy;
pub mod weights;

#[cfg(test)]
mod tests;

pub use admit::Refusal;
pub use cut::PieceBytes;
pub use divide::Divided;
pub use finish::{Install, Withdrawn};
pub use fold::{FoldCosts, RunFit, choose_run};
pub use limits::{Concurrency, Settings};
pub use numbers::Numbers;
pub use room::GaveWay;
pub use scene::Scene;
pub use start::{Idle, StartedPiece};
pub use tickets::{Flight, Piece, PieceState, TicketState};
pub use weights::Weights;
