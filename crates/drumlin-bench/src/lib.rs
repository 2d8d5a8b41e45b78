//! Drumlin's measuring instrument: workloads, measurement, comparison and reports.
//!
//! Layers, each knowing only those before it:
//!
//! - [`engine`]: what an engine must do to be measured; [`drumlin_engine`] is Drumlin behind it;
//! - [`generate`]: operations, keys and values from a seed, with golden digests;
//! - [`workload`]: families of phases as plain data;
//! - [`report`]: the model that becomes JSON, and the table, page and progress line made from it;
//! - [`measure`]: carries a workload out on an engine, checks every answer and takes the readings;
//! - [`rounds`]: fresh child processes, engines in turn, noise and repeats; [`compare`]: ratios and verdicts;
//!   [`goals`]: the rows that Drumlin is to meet;
//! - [`gate`]: figures that repeat exactly, held against a checked-in file;
//! - [`paced`]: the dynamic workloads through the engine on the clock of a disk model;
//! - [`command`]: the command line, for `drumlin bench` and for programs that offer more engines.
//!
//! Rules that everything keeps: all engines get the same stream of operations; a wrong answer ends the run without
//! numbers; what an engine cannot give is `null`; ratios are of rounds of one invocation; no test asserts seconds.

pub mod allocations;
pub mod command;
pub mod compare;
pub mod drumlin_engine;
pub mod engine;
pub mod gate;
pub mod generate;
pub mod goals;
pub mod measure;
pub mod paced;
pub mod report;
pub mod rounds;
pub mod workload;

#[cfg(test)]
mod tests;
