//! The runs: each drives many workloads and ends with one figure line.
pub mod admin;
pub mod bank;
pub mod bounds;
pub mod corrupt;
pub mod crash;
pub mod fault;
pub mod fsync;
pub mod full;
pub mod fuzz;
pub mod meta;
pub mod model;
pub mod repair;
pub mod repeat;
pub mod segment;
pub mod threads;
