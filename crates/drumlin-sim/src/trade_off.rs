//! What growth schemes write and how many runs they keep, in units of full flushes (Vertiorizon, Figure 10a).
//!
//! A *vertical* scheme has levels that grow by T. A flush that fills levels 1 to i is one merge of all of them into
//! level i + 1. A *horizontal* scheme follows a schedule for all units.
//!
//! Writes are those of this engine: a flush writes its unit, and a merge writes all units of its output. The paper lets
//! a flush join its merge, so that the unit is not written twice; its figure is there as well.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use drumlin_policy::growth::{Shape, merges};

/// One scheme.
#[derive(Clone, PartialEq, Debug)]
pub struct Scheme {
    /// Family of schemes that differ in one number.
    pub family: &'static str,
    /// That number, such as "T = 4".
    pub setting: String,
    /// Units written per flushed unit.
    pub writes: f64,
    /// The same where a flush joins its merge, as in the paper.
    pub writes_joined: f64,
    /// Mean number of runs.
    pub runs: f64,
    /// Most runs.
    pub most_runs: u64,
}

/// Runs of a vertical scheme, level by level.
struct Levels {
    ratio: u64,
    is_leveled: bool,
    levels: Vec<Vec<u64>>,
}

impl Levels {
    /// Flushes one unit and returns the size of the run that holds it.
    fn flush(&mut self) -> u64 {
        let (mut size, mut limit) = (1, self.ratio);
        let mut at = 0;
        loop {
            if self.levels.len() == at {
                self.levels.push(Vec::new());
            }
            let level = &mut self.levels[at];
            let stays = match self.is_leveled {
                true => size + level.iter().sum::<u64>() < limit,
                false => level.len() as u64 + 1 < self.ratio,
            };
            // A level merges whole, unless a tier only gains a run.
            if !stays || self.is_leveled {
                size += level.drain(..).sum::<u64>();
            }
            if stays {
                level.push(size);
                return size;
            }
            (at, limit) = (at + 1, limit.saturating_mul(self.ratio));
        }
    }

    fn runs(&self) -> u64 {
        self.levels.iter().map(|level| level.len() as u64).sum()
    }
}

/// Sums up a scheme. Each item gives, after one flush, the units of the newest run and the number of runs.
fn scheme(family: &'static str, setting: String, flushes: impl Iterator<Item = (u64, u64)>) -> Scheme {
    let (mut count, mut merges, mut joined, mut run_units, mut most_runs) = (0u64, 0u64, 0, 0, 0);
    for (covered, runs) in flushes {
        (count, merges) = (count + 1, merges + u64::from(covered > 1));
        (joined, run_units, most_runs) = (joined + covered, run_units + runs, most_runs.max(runs));
    }
    let mean = |sum: u64| sum as f64 / count.max(1) as f64;
    Scheme {
        family,
        setting,
        writes: mean(joined + merges),
        writes_joined: mean(joined),
        runs: mean(run_units),
        most_runs,
    }
}

/// Returns the vertical scheme with size ratio `ratio` after `units` flushes.
fn vertical(units: u32, ratio: u64, is_leveled: bool) -> Scheme {
    let family = if is_leveled { "vertical leveling" } else { "vertical tiering" };
    let mut levels = Levels { ratio, is_leveled, levels: Vec::new() };
    let flushes = (0..units).map(|_| {
        let covered = levels.flush();
        (covered, levels.runs())
    });
    scheme(family, format!("T = {ratio}"), flushes)
}

/// Returns the scheme that a schedule of `units` units gives.
fn horizontal(units: u32, shape: Shape) -> Scheme {
    let (family, setting) = match shape {
        Shape::Leveling(bound) => ("horizontal leveling", format!("l = {bound}")),
        Shape::Tiering(bound) => ("horizontal tiering", format!("l = {bound}")),
        Shape::Weighted(k) => (BEST, format!("rho = 2^({k}/4)")),
        Shape::PublishedLeveling { levels, .. } => ("Algorithm 1", format!("l = {levels}")),
        Shape::PublishedTiering(levels) => ("Algorithm 2", format!("l = {levels}")),
    };
    let flushes = merges(units, shape).into_iter().map(|(covered, runs)| (u64::from(covered), runs as u64));
    scheme(family, setting, flushes)
}

/// Family whose schemes write the least at any number of runs.
pub const BEST: &str = "weighted";

/// Returns the writes of the weighted schedules at `runs` runs, on the line between two of them. `None` outside their
/// range.
pub fn least_writes(schemes: &[Scheme], runs: f64) -> Option<f64> {
    let best: Vec<&Scheme> = schemes.iter().filter(|scheme| scheme.family == BEST).collect();
    let between = |pair: &[&Scheme]| {
        let (a, b) = (pair[0], pair[1]);
        let share = (runs - a.runs) / (b.runs - a.runs);
        (0.0..=1.0).contains(&share).then_some(a.writes + share * (b.writes - a.writes))
    };
    best.windows(2).find_map(between)
}

/// Returns all schemes over `units` flushes, at most [`u16::MAX`] - 1.
pub fn trade_off(units: u32) -> Vec<Scheme> {
    let units = units.clamp(3, u32::from(u16::MAX) - 1);
    let mut schemes: Vec<Scheme> = Vec::new();
    for is_leveled in [true, false] {
        schemes.extend((2..=10).map(|ratio| vertical(units, ratio, is_leveled)));
    }
    schemes.extend((2..=5).map(|levels| horizontal(units, Shape::PublishedLeveling { levels, delta: 0 })));
    schemes.extend((2..=5).map(|levels| horizontal(units, Shape::PublishedTiering(levels))));
    schemes.extend((1..=5).map(|bound| horizontal(units, Shape::Leveling(bound))));
    schemes.extend((1..=5).map(|bound| horizontal(units, Shape::Tiering(bound))));
    schemes.extend((-28..=28).map(|k| horizontal(units, Shape::Weighted(k))));
    schemes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vertical_schemes_cost_what_was_computed_apart() {
        for (units, ratio, is_leveled, writes, runs) in [
            (1000, 4, true, 7.56, 3.73),
            (1000, 10, true, 14.50, 2.70),
            (1000, 4, false, 3.79, 7.40),
            (16_384, 4, true, 11.50, 5.25),
            (16_384, 4, false, 6.25, 10.50),
        ] {
            let found = vertical(units, ratio, is_leveled);
            assert!(
                (found.writes_joined - writes).abs() < 0.006 && (found.runs - runs).abs() < 0.006,
                "{found:?}"
            );
        }
    }

    /// No scheme writes less than a mix of two weighted schedules with the same number of runs, within what the grid of
    /// weights leaves out.
    #[test]
    fn weighted_schedules_write_the_least() {
        let schemes = trade_off(1000);
        let mut compared = 0;
        for scheme in &schemes {
            if let Some(least) = least_writes(&schemes, scheme.runs) {
                compared += 1;
                assert!(least <= scheme.writes * 1.005, "{scheme:?}: {least}");
            }
        }
        assert!(compared > 40, "{compared}");
    }

    /// Lazy leveling with a schedule in place of its tiers: fewer runs, and no unit is written more often.
    #[test]
    fn schedules_improve_lazy_leveling() {
        for (ratio, levels, share) in [
            (4, 3, 0.9375),
            (6, 3, 0.9333),
            (8, 3, 0.9375),
            (10, 3, 0.9389),
            (4, 4, 0.8958),
            (6, 4, 0.8944),
            (8, 4, 0.8996),
            (10, 4, 0.9004),
        ] {
            let units = u32::pow(ratio, levels - 1) - 1;
            let plain = vertical(units, u64::from(ratio), false);
            let planned = horizontal(units, Shape::Tiering(levels as u8 - 1));
            let found = planned.runs / plain.runs;
            assert!((found - share).abs() < 1e-4, "T = {ratio}, L = {levels}: {found}");
            // Both write a unit once for each level above the last, or less.
            assert!(planned.writes_joined <= f64::from(levels - 1), "{planned:?}");
        }
    }
}
