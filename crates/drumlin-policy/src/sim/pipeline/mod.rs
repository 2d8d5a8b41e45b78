//! A store without data, in virtual time: a writer, a flush thread, merge slots and a device, driving the same
//! scheduler and the same policies as the engine does (downforce.md 3.10).
//!
//! - [`device`]: who gets how much of the device. [`space`]: how much a merge leaves.
//! - [`setup`]: what is simulated. [`world`]: how it goes on. [`report`]: what it came to.
//!
//! Time is whole nanoseconds, and of two events at one time the flush goes before the merge, the older before the
//! younger: the same setup gives the same report.

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
