//! Running a workload on an engine, and measuring it.
//!
//! [`run`] executes the phases. [`thread`] executes the operations of one thread, which [`start`]s with the
//! others, and checks each result against the [`oracle`]. [`latency`], [`process`], [`sampler`] and [`machine`] take the readings. [`calibrate`] measures the
//! current speed of the machine.

pub mod calibrate;
pub mod latency;
pub mod machine;
pub mod oracle;
pub mod process;
pub mod run;
pub mod sampler;
pub mod start;
pub mod thread;
