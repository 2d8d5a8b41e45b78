//! Legality: which plans keep the recency invariant R, which pieces wait for which, and what a merge
//! may drop. All of it is pure arithmetic on key ranges and sequence numbers.
//!
//! A plan with output level `o` is legal on a tree when, for every input `f` that lies above `o`:
//!
//! - **L1**: no file that stays behind overlaps `f` in a level strictly between `f`'s and `o`. Such a
//!   file holds older versions, and would then lie above newer ones.
//! - **L2**: every file of `f`'s own level that stays behind and overlaps `f` is newer: its smallest
//!   sequence number is above `f`'s largest. Levels have no order between runs, so age must be tested.
//!
//! Level `o` itself sets no condition. An input is clipped to the range that the plan takes of it, and
//! what a plan leaves of a file stays behind like any other file.
//!
//! Legality is judged on the *projected* tree: what will be there once all earlier plans are done.
//! What is legal there may be illegal while an earlier piece's inputs still lie in the way; [`waits`]
//! names exactly those pieces. Together the two keep R after every install, in every order that the
//! waits allow; `tests/legality.rs` and `tests/model.rs` compare them with brute force.
//!
//! - [`legal`], [`close_plan`]: the rules, and the smallest legal plan around a given one.
//! - [`spans`], [`waits`]: what a plan reads, and whom a piece must let go first.
//! - [`DropGuard`]: which tombstones a merge may drop, and which merge operands it may fold.
//! - [`check`]: the shape of a tree, which holds without looking at any key.

mod close;
mod drops;
mod illegal;
mod inputs;
mod rules;
mod shape;
mod waits;

pub use close::close_plan;
pub use drops::DropGuard;
pub use illegal::{Conflict, Illegal};
pub use inputs::{outside, spans};
pub use rules::legal;
pub use shape::check;
pub use waits::waits;
