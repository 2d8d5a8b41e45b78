//! The contract between the engine and its policies.
//!
//! ```text
//! observe                    decide (pure)                                     act
//! tree + statistics --view--> policy --> Decision { plans, withdraw, pace, search }
//! ```
//!
//! - [`tree`]: the view of the tree that a policy receives, as plain data.
//! - [`load`]: the view of the workload, of measured costs and of limits.
//! - [`plan`]: the decision that a policy returns.
//! - [`policy`]: the policy trait. [`search`]: the trait of the searches that a policy requests.
//! - [`flight`]: scheduled compactions ("tickets"), their subcompactions ("pieces"), and the waits between pieces.
//! - [`draw`]: trees and plans as text, for tests and explanations.
//! - [`legal`]: which plans preserve the recency invariant R, and which pieces must wait for which others.
//!
//! Recency invariant R: if one version of a user key is in level i and another is in level j > i, the version in
//! level i is newer. Runs of one level are in no particular age order.

pub mod draw;
pub mod flight;
pub mod legal;
pub mod load;
pub mod plan;
pub mod policy;
pub mod search;
pub mod tree;

pub use flight::{FileSpan, PieceId, PieceView, TicketView};
pub use load::{CostView, LimitView, LoadView, Pin, total_variation};
pub use plan::{Decision, Outcome, Pace, PaceScope, Place, Plan, PlanResult, RunForecast, Take};
pub use policy::{CompactionPolicy, LevelDesign, PolicyError, PolicyInput};
pub use search::SearchTask;
pub use tree::{
    FileState, FileView, LevelView, LookupStats, RunTag, RunView, TreeView, UNKNOWN_FALSE_POSITIVE_RATE,
};
