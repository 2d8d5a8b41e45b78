//! Compaction: carrying out what a policy decides.
//!
//! ```text
//!     version + flight --view--> policy --decide--> plans
//!                                                     | admit: close, check, cut
//!                                                   ticket
//!                                                     | pieces, one key sub-range each
//!                                                  executor --merge--> output --install--> next version
//! ```
//!
//! - [`view`]: the tree with the states of its files, as a policy sees it.
//! - [`claims`]: tickets and pieces under way, as the scheduler of `drumlin-policy` keeps them.
//! - [`control`]: the state behind the control lock.
//! - [`scheduler`]: asking the policy, handing its plans and free slots to the pure scheduler, which admits, cuts and
//!   chooses. [`seat`]: through which a policy is asked. [`fallback`]: who decides when it panics.
//! - [`executor`]: one piece or one flush, step by step.
//! - [`merge`]: which entries survive. [`output`]: where they are written.
//! - [`lane`]: a merge slot. [`slots`]: how many of them. [`install`]: one edit a piece, in the order that the waits
//!   allow, and what it does to the tree.
//!
//! Architecture invariant: the executor never asks why; the scheduler never reads a table; a policy never
//! sees a file handle.

pub(crate) mod audit;
pub(crate) mod claims;
pub(crate) mod control;
pub(crate) mod executor;
mod explain;
mod fallback;
pub(crate) mod install;
pub(crate) mod lane;
pub(crate) mod merge;
pub(crate) mod output;
pub(crate) mod scheduler;
mod seat;
pub(crate) mod slots;
pub(crate) mod view;
