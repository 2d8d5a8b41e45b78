//! Simulation of the future: flush intervals to come, and the compactions that a parameter tuple would make in them.

pub(crate) mod foreseen;
pub(crate) mod rollout;
