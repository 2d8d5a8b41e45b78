//! The runs: each drives many workloads and ends with one figure line.
pub mod bank;
pub mod corrupt;
pub mod crash;
pub mod meta;
pub mod model;
pub mod repeat;
