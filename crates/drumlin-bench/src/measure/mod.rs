//! Running a workload on an engine, and measuring it.
//!
//! [`run`] executes the phases. [`start`] lets the threads of a phase begin together, and [`thread`] executes the
//! operations of one and checks each result against the [`oracle`]; [`ended`] is what they did. [`latency`],
//! [`process`], [`sampler`] and [`machine`] take the readings. [`calibrate`] measures the current speed of the machine.

pub mod calibrate;
pub mod ended;
pub mod latency;
pub mod machine;
pub mod oracle;
pub mod process;
pub mod run;
pub mod sampler;
pub mod start;
pub mod thread;
