//! The policies that grow by a schedule, and their arguments.

use super::published;
use super::read_weight::nearest;
use super::shape::{Shape, UNITS};
use super::space::{Sizes, sizes, writes};
use super::tag::BOUNDS;
use crate::compaction::arguments::Arguments;
use alloc::format;
use alloc::string::String;
use drumlin_types::contract::PolicyError;

/// Default and bounds of the space target.
const TARGET: f64 = 1.15;
const TARGETS: core::ops::RangeInclusive<f64> = 1.05..=2.0;
/// Default l of the horizontal policies.
const BOUND: u8 = 2;
/// Bounds of the size ratio of the lazy policy.
const RATIOS: core::ops::RangeInclusive<u32> = 2..=32;
/// Bounds of a fixed read weight: those of the grid of schedules.
const WEIGHTS: core::ops::RangeInclusive<f64> = 0.00390625..=256.0;

/// A policy that grows by a schedule.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Family {
    /// At most `bound` runs; everything is pushed at a clear.
    Leveling { bound: u8, target: f64 },
    /// Each unit written at most `bound` times; everything is pushed at a clear.
    Tiering { bound: u8, target: f64 },
    /// The lazy leveling of `levels` levels with size ratio `ratio`: T^(L-1) units, tiered.
    Lazy { ratio: u32, levels: u8 },
    /// Weighted schedule, and V1 between H and V2. A fixed read weight is not measured.
    Vertiorizon { target: f64, read_weight: Option<f64> },
    /// The scheme of the paper as published, with T = 6.
    Published,
}

impl Family {
    /// Parses `l[/S]`, for the horizontal policies.
    pub(super) fn horizontal(arguments: &Arguments<'_>, is_leveling: bool) -> Result<Family, PolicyError> {
        let (bound, target) = arguments.text.split_once('/').unwrap_or((arguments.text, ""));
        let bound = match bound {
            "" => BOUND,
            text if is_leveling => arguments.bounded(text, "l", &BOUNDS)?,
            // With one write of each unit, every unit of a cycle would be a run.
            text => arguments.bounded(text, "l", &(2..=*BOUNDS.end()))?,
        };
        let target = parse_target(arguments, target)?;
        Ok(if is_leveling { Family::Leveling { bound, target } } else { Family::Tiering { bound, target } })
    }

    /// Parses `T[/L]`, for the lazy policy.
    pub(super) fn lazy(arguments: &Arguments<'_>) -> Result<Family, PolicyError> {
        let (ratio, levels) = arguments.text.split_once('/').unwrap_or((arguments.text, ""));
        let ratio = if ratio.is_empty() { 6 } else { arguments.bounded(ratio, "T", &RATIOS)? };
        let levels =
            if levels.is_empty() { 3 } else { arguments.bounded(levels, "L", &(2..=BOUNDS.end() + 1))? };
        let units = ratio.checked_pow(u32::from(levels) - 1);
        let is_valid = |units: u32| u16::try_from(units).is_ok_and(|units| UNITS.contains(&units));
        if !units.is_some_and(is_valid) {
            let (least, most) = (UNITS.start(), UNITS.end());
            return Err(arguments.error(format_args!("T^(L-1) must be {least} to {most}")));
        }
        Ok(Family::Lazy { ratio, levels })
    }

    /// Parses `[S[/w]]` or `paper`.
    pub(super) fn vertiorizon(arguments: &Arguments<'_>) -> Result<Family, PolicyError> {
        if arguments.text == "paper" {
            return Ok(Family::Published);
        }
        let (target, weight) = arguments.text.split_once('/').unwrap_or((arguments.text, ""));
        let read_weight =
            if weight.is_empty() { None } else { Some(arguments.bounded(weight, "w", &WEIGHTS)?) };
        Ok(Family::Vertiorizon { target: parse_target(arguments, target)?, read_weight })
    }

    pub(super) fn name(&self) -> String {
        let of = |name: &str, bound: u8, target: f64| match target == TARGET {
            true => format!("{name}:{bound}"),
            false => format!("{name}:{bound}/{target}"),
        };
        match *self {
            Family::Leveling { bound, target } => of("horizontal-leveling", bound, target),
            Family::Tiering { bound, target } => of("horizontal-tiering", bound, target),
            Family::Lazy { ratio, levels } => format!("horizontal-lazy:{ratio}/{levels}"),
            Family::Vertiorizon { target, read_weight: None } => format!("vertiorizon:{target}"),
            Family::Vertiorizon { target, read_weight: Some(weight) } => {
                format!("vertiorizon:{target}/{weight}")
            }
            Family::Published => "vertiorizon:paper".into(),
        }
    }

    /// Returns whether this policy makes schedules of this shape.
    pub(super) fn allows(&self, shape: Shape) -> bool {
        match self {
            Family::Vertiorizon { .. } => matches!(shape, Shape::Weighted(_)),
            Family::Published => shape.is_published(),
            _ => shape == self.shape(),
        }
    }

    /// Returns the shape of the first schedule.
    pub(super) fn shape(&self) -> Shape {
        match *self {
            Family::Leveling { bound, .. } => Shape::Leveling(bound),
            Family::Tiering { bound, .. } => Shape::Tiering(bound),
            Family::Lazy { levels, .. } => Shape::Tiering(levels - 1),
            Family::Vertiorizon { read_weight, .. } => Shape::Weighted(read_weight.map_or(0, nearest)),
            Family::Published => Shape::PublishedLeveling { levels: 2, delta: 0 },
        }
    }

    /// Returns the sizes of a cycle above a V2 of `v2` units. The cycle before had `before` units.
    pub(super) fn sizes(&self, v2: f64, before: Option<u16>) -> Sizes {
        match *self {
            Family::Leveling { target, .. } | Family::Tiering { target, .. } => sizes(v2, target, false),
            Family::Vertiorizon { target, .. } => sizes(v2, target, true),
            Family::Lazy { ratio, levels } => {
                let units = ratio.pow(u32::from(levels) - 1) as u16;
                Sizes { obsolete: f64::INFINITY, units, kept: 0.0, writes: writes(v2, units, 0.0) }
            }
            Family::Published => {
                let units = published::units(before, v2);
                // The flush, the clear, which merges with all of V1, and the pushes into V2 (Equation 2).
                let kept = published::RATIO / core::f64::consts::SQRT_2;
                Sizes { obsolete: f64::INFINITY, units, kept, writes: 1.0 + writes(v2, units, kept) }
            }
        }
    }

    /// Returns the read weight if it is fixed.
    pub(super) fn fixed_read_weight(&self) -> Option<f64> {
        match *self {
            Family::Vertiorizon { read_weight, .. } => read_weight,
            _ => None,
        }
    }

    /// Returns whether clears keep cells in V1, by the space target.
    pub(super) fn keeps_v1(&self) -> bool {
        matches!(self, Family::Vertiorizon { .. })
    }

    /// Returns whether the schedule follows the load.
    pub(super) fn is_tuned(&self) -> bool {
        matches!(self, Family::Vertiorizon { .. } | Family::Published)
    }
}

fn parse_target(arguments: &Arguments<'_>, text: &str) -> Result<f64, PolicyError> {
    if text.is_empty() { Ok(TARGET) } else { arguments.bounded(text, "S", &TARGETS) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Equation 2 of the paper: T' + (x / T' + 1) / 2 writes of each byte, for a V2 of x clears.
    #[test]
    fn the_published_scheme_writes_what_its_equation_says() {
        let sizes = Family::Published.sizes(287.0, Some(8));
        let x = 287.0 / f64::from(sizes.units);
        let expected = sizes.kept + (x / sizes.kept + 1.0) / 2.0;
        assert!((sizes.writes / expected - 1.0).abs() < 0.02, "{} {expected}", sizes.writes);
    }
}
