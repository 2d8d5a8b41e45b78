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
use drumlin_policy::growth::{Shape, word};

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

/// Returns the scheme whose newest run has `covered` units and which has `runs` runs after each flush.
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
        Shape::Weighted(k) => ("weighted", format!("rho = 2^({k}/4)")),
        Shape::PublishedLeveling { levels, .. } => ("Algorithm 1", format!("l = {levels}")),
        Shape::PublishedTiering(levels) => ("Algorithm 2", format!("l = {levels}")),
    };
    let mut runs: Vec<u16> = Vec::new();
    let flushes = word(units, shape).into_iter().map(|covered| {
        let mut gathered = 1;
        while gathered < covered {
            gathered += runs.pop().unwrap_or(covered);
        }
        runs.push(covered);
        (u64::from(covered), runs.len() as u64)
    });
    scheme(family, setting, flushes)
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

    /// For each vertical scheme there is a schedule that neither writes nor reads more.
    #[test]
    fn schedules_dominate_levels() {
        let schemes = trade_off(1000);
        let is_vertical = |scheme: &&Scheme| scheme.family.starts_with("vertical");
        for scheme in schemes.iter().filter(is_vertical) {
            // The weighted schedules are the lower hull: a mix of two neighbours costs what lies on the line between.
            let hull: Vec<&Scheme> = schemes.iter().filter(|other| other.family == "weighted").collect();
            let lines = hull.windows(2).filter_map(|pair| {
                let (a, b) = (pair[0], pair[1]);
                let share = (scheme.runs - a.runs) / (b.runs - a.runs);
                (0.0..=1.0).contains(&share).then_some(a.writes + share * (b.writes - a.writes))
            });
            let least = lines.fold(f64::INFINITY, f64::min);
            assert!(least <= scheme.writes * 1.005, "{scheme:?}: {least}");
        }
    }
}
