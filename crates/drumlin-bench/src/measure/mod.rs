//! Carrying a workload out on an engine, and measuring it.
//!
//! [`run`] goes through the phases, [`thread`] through one thread's operations, checking each answer against the
//! [`oracle`]. [`latency`], [`process`], [`sampler`] and [`machine`] take the readings; [`calibrate`] says how fast the
//! machine is just now.

pub mod calibrate;
pub mod latency;
pub mod machine;
pub mod oracle;
pub mod process;
pub mod run;
pub mod sampler;
pub mod thread;
