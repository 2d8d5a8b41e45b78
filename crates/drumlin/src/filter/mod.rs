//! Filter bits: the lookups that tables are expected to serve, and the bits of their filters.
//!
//! ```text
//!   sampled lookups ──► version::file, stats::density ──► lineage: what merged tables take over
//!                                                            │
//!   trees, running jobs ──► budget: ledger and price ──► job: bits of each new table
//! ```
//!
//! - [`lineage`]: the lookups that the outputs of a piece take over from its inputs.
//! - [`budget`]: keys and bits of all tables, running jobs, the price of a bit.
//! - [`job`]: the filters of one flush or piece.
//!
//! The decisions are in `drumlin_policy::filter`, which is pure. Filters themselves are built and probed by the folder
//! `table`.

mod budget;
mod job;
mod lineage;

pub(crate) use budget::{FilterBudget, MergeScope};
pub(crate) use job::{JobFilters, MergedInputs, OutputTarget};
pub(crate) use lineage::{Lineage, MergedPart};
