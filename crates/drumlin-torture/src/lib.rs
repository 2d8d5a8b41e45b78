//! Torture for Drumlin: seeded workloads in a simulated world, held against an oracle.
//!
//! - [`ops`]: the operation language. [`workload`]: options and operations drawn from a seed, and tapes.
//! - [`oracle`]: all versions of all keys; finds the commit that explains a recovered store.
//! - [`runner`]: drives a store by a workload and compares every answer.
//! - [`runs`]: what the lanes are made of: model, crash, meta, corrupt, repeat, bank. Each ends with a figure line.
//! - [`shrink`]: makes a failing workload small.
//! - [`parallel`]: seeds over threads.
//!
//! Everything follows from one seed. No clock decides a verdict.

pub mod command;
pub mod failure;
pub mod lane;
pub mod ops;
pub mod oracle;
pub mod parallel;
pub mod runner;
pub mod runs;
pub mod shrink;
pub mod tapes;
pub mod workload;
