//! How many units a cycle has and how large V1 may be, from the space target.
//!
//! At most as many bytes are obsolete as H and V1 hold, so space amplification is at most 1 + (H + V1) / V2. With
//! sigma = target - 1, V2 of V units and n units in a cycle, x = V / n, and v = V1 / (n units) after a clear, the
//! bound is 1 + (1 + v) / x. A clear pushes a share p = 1 / (2 v + 1) of the key space from V1 into V2, the densest
//! part of it, and writes v + x p units for each flushed one. The cheapest x and v that meet the target are
//!
//! ```text
//! g = (sqrt(1 + 4 sigma) - 1) / 2,   x = 1 / (2 g^2),   v = (1/g - 1) / 2,   p = g
//! ```
//!
//! so that n = 2 g^2 V and each unit is written 1/g - 1/2 times in V1 and V2 together. n is rounded and bounded. For
//! the x that results, v = (sqrt(2 x) - 1) / 2 writes the least, and v <= sigma x - 1 meets the target.

use super::shape::UNITS;
use crate::real::{round, square_root};

/// Units of space that a store may waste whatever its target. Otherwise a small one would be compacted all the time.
const SMALL: f64 = 8.0;

/// Sizes that a space target allows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Sizes {
    /// Most obsolete bytes in relation to V2 (sigma).
    pub(super) obsolete: f64,
    /// Units of a cycle (n).
    pub(super) units: u16,
    /// Bytes of V1 after a clear, in units of the whole cycle (v).
    pub(super) kept: f64,
    /// Units written in V1 and V2 for each flushed one, with updates of all keys alike.
    pub(super) writes: f64,
}

/// Returns the sizes for a V2 of `v2` units and the space target `target`. Without V1 (`has_v1` false) a
/// clear pushes everything, and H alone takes the space.
pub(super) fn sizes(v2: f64, target: f64, has_v1: bool) -> Sizes {
    let obsolete = (target - 1.0).max((SMALL / v2.max(1.0)).min(1.0));
    let g = (square_root(1.0 + 4.0 * obsolete) - 1.0) / 2.0;
    let wanted = if has_v1 { 2.0 * g * g * v2 } else { obsolete * v2 };
    let units = round(wanted).clamp(f64::from(*UNITS.start()), f64::from(*UNITS.end()));
    let x = v2 / units;
    let cheapest = (square_root(2.0 * x) - 1.0) / 2.0;
    let kept = if has_v1 { cheapest.min(obsolete * x - 1.0).clamp(0.0, 1e6) } else { 0.0 };
    let units = units as u16;
    Sizes { obsolete, units, kept, writes: writes(v2, units, kept) }
}

/// Returns the units written in V1 and V2 for each flushed one: v + x p with x = V2 / n and p = 1 / (2 v + 1).
pub(super) fn writes(v2: f64, units: u16, kept: f64) -> f64 {
    kept + v2 / f64::from(units) / (2.0 * kept + 1.0)
}

/// Returns n for the next cycle: `wanted`, or `before` if they differ by a sixth at most.
pub(super) fn steady(before: u16, wanted: u16) -> u16 {
    let (before, wanted) = (u32::from(before), u32::from(wanted));
    if before.abs_diff(wanted) * 6 <= before { before as u16 } else { wanted as u16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// x, v and the writes in V1 and V2 of the targets 1.05 to 1.5.
    #[test]
    fn sizes_are_those_of_the_closed_form() {
        for (obsolete, x, v, writes) in [
            (0.05, 219.5, 9.98, 20.5),
            (0.10, 59.6, 4.96, 10.4),
            (0.15, 28.5, 3.27, 7.05),
            (0.20, 17.1, 2.43, 5.35),
            (0.25, 11.7, 1.91, 4.33),
            (0.30, 8.56, 1.57, 3.64),
            (0.50, 3.73, 0.87, 2.23),
        ] {
            // Enough units that n is not bounded, and rounding it changes little.
            let v2 = if obsolete < 0.2 { 100_000.0 } else { 10_000.0 };
            let sizes = sizes(v2, 1.0 + obsolete, true);
            let near = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.006;
            let units = v2 / x;
            assert!((f64::from(sizes.units) - units).abs() < 0.5 + 0.006 * units, "{sizes:?}");
            assert!(near(sizes.kept, v), "{obsolete}: {sizes:?}");
            assert!(near(sizes.kept + x / (2.0 * sizes.kept + 1.0), writes), "{obsolete}: {sizes:?}");
            assert!((sizes.writes / writes - 1.0).abs() < 0.05, "{obsolete}: {sizes:?}");
            // The bound holds with equality.
            assert!(near((1.0 + sizes.kept) / x, obsolete), "{obsolete}: {sizes:?}");
        }
    }

    #[test]
    fn small_stores_and_all_numbers_are_bounded() {
        for v2 in [0.0, 1.0, 7.0, 50.0, 1e9, f64::INFINITY] {
            for target in [1.05, 1.15, 2.0] {
                for has_v1 in [false, true] {
                    let sizes = sizes(v2, target, has_v1);
                    assert!(UNITS.contains(&sizes.units) && sizes.kept >= 0.0, "{v2} {target} {sizes:?}");
                }
            }
        }
        assert_eq!(sizes(2000.0, 1.15, false).units, 300);
        assert_eq!((steady(60, 70), steady(60, 71), steady(60, 49), steady(60, 50)), (60, 71, 49, 60));
    }

    /// Where n is bounded or rounded, V1 has the size that writes the least, as far as the space target allows.
    #[test]
    fn v1_fits_a_bounded_cycle() {
        // sqrt(2 x) = 23.9; the target alone would allow v = 41.8.
        let huge = sizes(1_170_000.0, 1.15, true);
        assert!(huge.units == 4096 && (huge.kept - 11.45).abs() < 0.01, "{huge:?}");
        assert!((huge.writes - 23.40).abs() < 0.01, "{huge:?}");
        let wide = sizes(50_000.0, 2.0, true);
        assert!(wide.units == 4096 && wide.writes < 4.5, "{wide:?}");
        for v2 in (17..=400).map(f64::from) {
            for percent in 5..=100 {
                let sigma = f64::from(percent) / 100.0;
                let sizes = sizes(v2, 1.0 + sigma, true);
                let above = (1.0 + sizes.kept) * f64::from(sizes.units);
                assert!(above <= (sigma * v2).max(SMALL) + 1.0, "{v2} {sigma}: {above} units, {sizes:?}");
            }
        }
    }
}
