//! Drumlin's benchmarks: workloads, measurement, comparison and reports.
//!
//! Layers, each of which depends only on those before it:
//!
//! - [`engine`]: the interface of a measured engine; [`drumlin_engine`] is the adapter of Drumlin;
//! - [`generate`]: operations, keys and values from a seed, checked by golden digests;
//! - [`workload`]: families of phases as plain data;
//! - [`report`]: the report model that becomes JSON, and the table, HTML page and progress line made from it;
//! - [`measure`]: runs a workload on an engine, verifies every result and takes the readings;
//! - [`rounds`]: fresh child processes, engines in turn, noise detection and repeats; [`compare`]: ratios and
//!   verdicts; [`goals`]: performance goals against RocksDB;
//! - [`gate`]: exactly repeatable counts, compared with a checked-in file;
//! - [`deleted`]: read cost against the number of deleted or merged entries;
//! - [`results`]: results in `docs/results`, and the pages and plots generated from them;
//! - [`allotment`]: unneeded blocks of the filter modes, counted, against the best division of the same bits;
//! - [`paced`]: the dynamic workloads on the engine, with the clock of a disk model;
//! - [`command`]: the command line, for `drumlin bench` and for programs with more engines.
//!
//! Rules for all parts: All engines get the same stream of operations. A wrong result ends the run without numbers. A
//! value that an engine cannot provide is `null`. Ratios combine only rounds of one invocation. No test asserts
//! seconds.

pub mod allocations;
pub mod allotment;
pub mod command;
pub mod compare;
pub mod comparison;
pub mod deleted;
pub mod drumlin_engine;
pub mod engine;
pub mod gate;
pub mod generate;
pub mod goals;
pub mod measure;
pub mod paced;
pub mod report;
pub mod results;
pub mod rounds;
pub mod sizes;
pub mod workload;

#[cfg(test)]
mod tests;
