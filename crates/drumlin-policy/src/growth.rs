//! The schedules of the growth policies, for simulators and figures.

use crate::compaction::growth::{Schedule, SizeCurve};
use alloc::vec::Vec;

pub use crate::compaction::growth::Shape;

/// Returns, after each of `units` flushes, the units in the newest run and the number of runs, under the best schedule
/// of this shape. `units` is at most [`u16::MAX`] - 1; a cycle of the engine has at most 4096.
pub fn merges(units: u32, shape: Shape) -> Vec<(u16, usize)> {
    let units = units.clamp(1, u32::from(u16::MAX) - 1) as u16;
    let schedule = Schedule::of_any_size(units + 1, shape, &SizeCurve::default());
    schedule.steps().take(usize::from(units)).collect()
}
