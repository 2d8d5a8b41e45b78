//! The contract between the engine and its policies.
//!
//! ```text
//! observe                       decide (pure)                  act
//! version + statistics --view--> policy --> Decision { plans, pace, reason }
//! ```
//!
//! - [`tree`]: what a policy sees of the tree, as plain data.
//! - [`load`]: what it sees of the workload, of costs and of limits.
//! - [`plan`]: what it may answer.
//! - [`policy`]: the trait.
//! - [`flight`]: plans under way: tickets, pieces, waits.
//! - [`draw`]: trees and plans as text, for tests and explanations.
//! - [`legal`]: which plans keep the recency invariant R, and which pieces must wait for which.
//!
//! Recency invariant R. For every user key k: if one version of k is in level i and another in level
//! j > i, the one in level i is newer. Within a level there is no order between runs.

pub mod draw;
pub mod flight;
pub mod legal;
pub mod load;
pub mod plan;
pub mod policy;
pub mod tree;

pub use flight::{FileSpan, PieceId, PieceView, TicketView};
pub use load::{CostView, LimitView, LoadView, Pin, total_variation};
pub use plan::{Decision, Outcome, Pace, PaceScope, Place, Plan, PlanResult, RunForecast, Take};
pub use policy::{CompactionPolicy, LevelDesign, PolicyError, PolicyInput, Think};
pub use tree::{FileState, FileView, LevelView, LookupStats, RunTag, RunView, TreeView};
