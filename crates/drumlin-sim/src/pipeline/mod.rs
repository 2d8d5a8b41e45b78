//! Simulated store without data, in virtual time. A writer, a flush thread, compaction slots and a device drive the
//! engine's scheduler and policies (docs/design/pipeline.md, "In virtual time").
//!
//! - [`device`]: division of the device's bandwidth. [`space`]: output size of a compaction.
//! - [`setup`]: parameters. [`world`]: the simulation. [`report`]: results.
//!
//! Time is in whole nanoseconds. Of two simultaneous events, the flush goes before the compaction and the older job
//! before the younger, so the same setup gives the same report.

pub mod device;
pub mod report;
pub mod setup;
pub mod space;
pub mod world;

#[cfg(test)]
mod tests;

pub use report::Report;
pub use setup::{Setup, Writer};
pub use world::load;
