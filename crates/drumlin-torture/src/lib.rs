//! Torture tests for Drumlin: seeded workloads in a simulated world, checked against an oracle.
//!
//! - [`ops`]: the operation language. [`workload`]: options and operations drawn from a seed, and tapes.
//! - [`oracle`]: all versions of all keys; finds the commit that explains a recovered store.
//! - `complaints`: collects the background errors of a store.
//! - [`runner`]: runs a workload on a store and compares every answer. [`trial`]: the same where calls may fail.
//! - [`runs`]: the test runs that make up the lanes: model, meta, crash, fault, fsync, full, bounds, corrupt, repair,
//!   repeat, segment, threads, admin, fuzz, bank. Each ends with a figure line.
//! - [`ledger`]: what the threads of the admin run know of a store.
//! - [`certificate`]: decides whether one order of all operations explains what real threads observed.
//! - [`fuzz`]: one fuzz target per decoder, with its rules for arbitrary bytes.
//! - [`shrink`]: reduces a failing workload.
//! - [`parallel`]: spreads seeds over threads.
//!
//! Everything follows from one seed. No verdict depends on a clock.

pub mod certificate;
pub mod command;
pub(crate) mod complaints;
pub mod failure;
pub mod fuzz;
pub mod ledger;
pub mod ops;
pub mod oracle;
pub mod parallel;
pub mod runner;
pub mod runs;
pub mod shrink;
pub mod tapes;
pub mod trial;
pub mod workload;
