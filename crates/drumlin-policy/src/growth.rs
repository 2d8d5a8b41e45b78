//! The schedules of the growth policies, for simulators and figures.

use crate::compaction::growth::{Schedule, SizeCurve};
use alloc::vec::Vec;

pub use crate::compaction::growth::Shape;

/// Returns the number of units that the newest run covers after each of `units` units, under the best schedule of this
/// shape for them. `units` is at most [`u16::MAX`] - 1; a cycle of the engine has at most 4096.
pub fn word(units: u32, shape: Shape) -> Vec<u16> {
    let units = units.clamp(1, u32::from(u16::MAX) - 1) as u16;
    let mut word = Schedule::of_any_size(units + 1, shape, &SizeCurve::default()).word().to_vec();
    word.truncate(usize::from(units));
    word
}
