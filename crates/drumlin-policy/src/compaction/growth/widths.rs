//! Replays the widths of a schedule.

use alloc::vec::Vec;

/// Returns, after each unit, the units in the newest run and the number of runs.
pub(super) fn steps(widths: &[u16]) -> impl Iterator<Item = (u16, usize)> {
    let mut runs: Vec<u16> = Vec::new();
    widths.iter().map(move |&width| {
        let mut gathered = 1;
        while gathered < width {
            gathered += runs.pop().unwrap_or(width);
        }
        debug_assert_eq!(gathered, width, "a merge ends at the bound of a run");
        runs.push(width);
        (width, runs.len())
    })
}
