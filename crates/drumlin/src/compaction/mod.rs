//! Compaction: carrying out what a policy decides.
//!
//! ```text
//!     tree + in-flight work -----view--> policy --decide--> plans
//!                                                             | admit: close, check, cut
//!                                                           ticket
//!                                                             | pieces, one key sub-range each
//!                                                          executor --merge--> output --install--> next tree
//! ```
//!
//! A *ticket* is a scheduled compaction; a *piece* is a subcompaction of it. Both are types of the pure scheduler,
//! `drumlin_policy::schedule`. The inputs of unfinished pieces are claimed: no other plan may take them.
//!
//! - [`view`]: the tree with the states of its files, as a policy sees it.
//! - [`control`]: the state behind the control lock.
//! - [`scheduler`]: calls the policy, and passes its plans and free slots to the pure scheduler, which admits, cuts and
//!   chooses.
//! - [`policy_guard`]: the guard that catches a policy's panics. [`fallback`]: replaces a policy that panicked.
//! - [`collection`]: compactions that are started for value files.
//! - [`executor`]: runs one piece or one flush, step by step.
//! - [`merge`]: which entries survive. [`output`]: the tables that they are written to.
//! - [`slots`]: how many compactions run at once. [`audit`]: checks of each install in debug builds.
//! - [`explain`]: the text of the decision log.
//!
//! The lanes that run compactions, and the installation of their results, are in `jobs`.
//!
//! Architecture invariant: the executor never learns why a compaction runs; the scheduler never reads a table; a policy
//! never sees a file handle.

pub(crate) mod audit;
mod collection;
pub(crate) mod control;
pub(crate) mod executor;
pub(crate) mod explain;
mod fallback;
pub(crate) mod merge;
pub(crate) mod output;
mod policy_guard;
pub(crate) mod scheduler;
pub(crate) mod slots;
pub(crate) mod view;
