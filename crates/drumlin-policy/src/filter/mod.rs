//! How many filter bits each table gets, from what lookups do to it.
//!
//! A point lookup probes one table of each run. A filter lets it skip a table without reading a block; a block read in
//! a table that lacks the key is *unneeded*. One budget of filter bits is spread over all tables so that unneeded
//! blocks are fewest (Zhu et al., *Mnemosyne*, SIGMOD 2025, whose Merlin observes the lookups).
//!
//! ```text
//!      lookups ──► counts per table ──► weight z ┐
//!                  density of lookups over keys  ├─► price: one for all tables ──► bits of the next table
//!      tables  ──► distinct keys n, bits as built┘                                   under a ceiling
//! ```
//!
//! - [`rate`]: the false-positive rate of a filter by its bits per key.
//! - [`price`]: the optimal division of a budget, solved exactly.
//! - [`mean`]: the mean price of the recent past, for tables that live long.
//! - [`weight`]: what a table weighs: observed lookups and a prior; the allocation modes.
//! - [`allot`]: the bits of one new table, under a ceiling that keeps the budget.
//! - [`skip`]: when lookups skip a filter.
//! - [`method`]: whether a filter is built as a Ribbon filter.
//! - [`density`]: how lookups are spread over the keys.
//! - [`inherit`]: which lookup counts the outputs of a compaction inherit from its inputs.
//!
//! All is pure: the same counts give the same bits on every machine.

pub mod allot;
pub mod density;
pub mod inherit;
pub mod mean;
pub mod method;
pub mod price;
pub mod rate;
pub mod skip;
pub mod weight;

/// Fewest and most bits per key of a filter. Below the least there is no filter; above the most, more bits save
/// nothing worth their memory.
pub const LEAST_BITS: f64 = 1.0;
/// See [`LEAST_BITS`].
pub const MOST_BITS: f64 = 16.0;
