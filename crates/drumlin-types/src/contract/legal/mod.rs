//! Legality of plans: which plans preserve the recency invariant R, which pieces (subcompactions) wait for which
//! others, and what a compaction may drop. All of it is arithmetic on key ranges and sequence numbers.
//!
//! A plan with output level `o` is legal on a tree if both rules hold for every input `f` above level `o`:
//!
//! - **L1**: No file that stays behind overlaps `f` in a level strictly between the level of `f` and `o`. Such a file
//!   holds older versions. After the move it would lie above newer ones.
//! - **L2**: Every file that stays behind in the level of `f` and overlaps `f` is newer than `f`: its smallest sequence
//!   number is greater than the largest of `f`. Runs of a level have no order, so the rule compares sequence numbers.
//!
//! Files of level `o` itself impose no condition. An input is clipped to the range that the plan takes. The rest of the
//! file stays behind like any other file.
//!
//! Legality is judged on the *projected* tree: the tree after all earlier unfinished plans. A plan that is legal there
//! may still be illegal while the inputs of an earlier piece are in place. [`waits()`] returns exactly those earlier
//! pieces. Together the two checks preserve R after every install, in every order that the waits allow.
//! `tests/exact.rs` and `tests/model` compare them with brute force.
//!
//! - [`legal`], [`close_plan`]: the rules, and the smallest legal plan around a given one.
//! - [`spans`], [`waits()`]: the inputs of a plan, and the earlier pieces that a piece waits for.
//! - [`DropGuard`]: which tombstones a compaction may drop, and which merge operands it may combine.
//! - [`check`]: the well-formedness of a tree, judged without reading keys inside files.

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
