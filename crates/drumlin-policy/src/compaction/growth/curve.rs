//! The size curve s(r): the bytes of a run that r units were merged into, in units.
//!
//! Merging units that hold the same keys drops versions, so s(r) is smaller than r. The curve is known at the powers
//! of two up to 4096 and linear between them. Beyond, its last segment continues. It is stored as twelve growth
//! factors from 1 to 2, one byte each, so that it fits into the tag of a run. The initial curve is s(r) = r, as if no
//! key were written twice.

use crate::real::round;
use alloc::vec::Vec;

/// Number of doublings: the curve ends at 4096 units.
pub(super) const DOUBLINGS: usize = 12;
/// One unit of output in the integers of the schedules.
pub(super) const FIXED_ONE: u64 = 256;

/// Weight of a newly measured growth factor.
const LEARNED: f64 = 1.0 / 8.0;

/// The size curve, as the growth of each doubling: byte b stands for the factor 1 + b / 255.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SizeCurve(pub(super) [u8; DOUBLINGS]);

impl Default for SizeCurve {
    fn default() -> SizeCurve {
        SizeCurve([u8::MAX; DOUBLINGS])
    }
}

impl SizeCurve {
    /// Returns s(1), s(2), s(4), .. in parts of [`FIXED_ONE`].
    fn points(&self) -> [u64; DOUBLINGS + 1] {
        let mut points = [FIXED_ONE; DOUBLINGS + 1];
        for (at, growth) in self.0.iter().enumerate() {
            points[at + 1] = points[at] + points[at] * u64::from(*growth) / 255;
        }
        points
    }

    /// Returns s(r) for r = 0, 1, .. `most` in parts of [`FIXED_ONE`]; s(0) is 0.
    pub(super) fn sizes(&self, most: u16) -> Vec<u64> {
        let points = self.points();
        (0..=u64::from(most)).map(|units| size(&points, units)).collect()
    }

    /// Returns the share of a unit that the next one overwrites (the paper's alpha).
    pub(super) fn hot_share(&self) -> f64 {
        1.0 - f64::from(self.0[0]) / 255.0
    }

    /// Learns from runs of known units and bytes (in units), in any order.
    ///
    /// The growth factor of the doubling that contains the units of a run moves by an eighth, at least by one byte
    /// step, towards the measured growth. The largest run also moves the factors of all later doublings, for which
    /// there is no other measurement.
    pub(super) fn learn(&mut self, runs: &[(u16, f64)]) {
        let is_known = |(units, size): &&(u16, f64)| {
            (2..=1 << DOUBLINGS).contains(units) && size.is_finite() && *size > 0.0
        };
        let mut runs: Vec<(u16, f64)> = runs.iter().filter(is_known).copied().collect();
        runs.sort_by_key(|(units, _)| *units);
        let most = runs.last().map(|(units, _)| *units);
        for (units, size) in runs {
            let doubling = (units - 1).ilog2() as usize;
            let start = f64::from(1u16 << doubling);
            let before = self.points()[doubling] as f64 / FIXED_ONE as f64;
            let growth = (size - before) / before * start / (f64::from(units) - start);
            let growth = round(growth.clamp(0.0, 1.0) * 255.0);
            let last = if Some(units) == most { DOUBLINGS } else { doubling + 1 };
            for byte in &mut self.0[doubling..last] {
                let missing = growth - f64::from(*byte);
                let size = if missing < 0.0 { -missing } else { missing };
                let step = size.min((size * LEARNED).max(1.0));
                let moved = if missing < 0.0 { f64::from(*byte) - step } else { f64::from(*byte) + step };
                *byte = round(moved) as u8;
            }
        }
    }
}

fn size(points: &[u64; DOUBLINGS + 1], units: u64) -> u64 {
    let Some(doubling) = units.checked_ilog2() else { return 0 };
    let (at, start) = (doubling as usize, 1 << doubling);
    match (points.get(at), points.get(at + 1)) {
        (Some(from), Some(to)) => from + (to - from) * (units - start) / start,
        _ => {
            let (from, to) = (points[DOUBLINGS - 1], points[DOUBLINGS]);
            to + (to - from) * (units - (1 << DOUBLINGS)) / (1 << (DOUBLINGS - 1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_begins_with_no_key_written_twice() {
        let sizes = SizeCurve::default().sizes(10_000);
        assert!(sizes.iter().enumerate().all(|(units, size)| *size == units as u64 * FIXED_ONE));
    }

    #[test]
    fn the_curve_learns_the_sizes_of_runs() {
        // Half of each unit overwrites keys that every other unit writes, too: s(r) = (1 + r) / 2.
        let mut curve = SizeCurve::default();
        for _ in 0..200 {
            curve.learn(
                &[2u16, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64].map(|units| (units, f64::from(1 + units) / 2.0)),
            );
        }
        let sizes = curve.sizes(128);
        for units in [2usize, 5, 16, 40, 64, 100, 128] {
            let expected = (1.0 + units as f64) / 2.0;
            let found = sizes[units] as f64 / FIXED_ONE as f64;
            assert!((found / expected - 1.0).abs() < 0.03, "{units}: {found}, not {expected}");
        }
        assert!(sizes.is_sorted());
    }

    #[test]
    fn measurements_without_meaning_change_nothing() {
        let mut curve = SizeCurve::default();
        for (units, size) in
            [(0, 1.0), (1, 1.0), (5000, 1.0), (4, f64::NAN), (4, 0.0), (4, -1.0), (4, f64::INFINITY)]
        {
            curve.learn(&[(units, size)]);
        }
        assert_eq!(curve, SizeCurve::default());
    }
}
