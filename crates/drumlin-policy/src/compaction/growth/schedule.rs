//! Schedules: which units are merged after which flush, known ahead for a whole cycle.
//!
//! A cycle is the n units between two clears, and the last unit goes straight into the clear. A schedule for the other
//! N = n - 1 units is a list of widths a(1) .. a(N): after flush t the newest run covers a(t) units, and a(t) = 1 means
//! that nothing is merged. Only merges that include the newest unit are needed, since any other merge could as well be
//! made earlier. Two costs follow:
//!
//! - M, the merge output: the sum of s(a(t)) over all a(t) > 1, with the size curve s.
//! - R, the run units: the sum of the number of runs after each flush. R / n is the mean number of runs.
//!
//! A schedule is a binary tree with the units as in-order labels. The root is the last t whose merge covers units
//! 1 .. t. Its left subtree schedules the units before it, and its right subtree those after it. So the cheapest
//! schedule for m units is one root r and the cheapest schedules for r - 1 and m - r units, and a table of roots by m
//! holds all of it:
//!
//! ```text
//! E[0] = 0;  E[m] = min over r in 1..m of  E[r - 1] + (s(r) if r > 1) + E[m - r] + weight * (m - r + 1)
//! ```
//!
//! This is the weighted schedule, the optimum of M + w * R with the read weight w. The published schedules are the
//! optima under a bound: leveling keeps at most l runs and writes least (the right subtree may keep l - 1), tiering
//! writes a unit at most l times and keeps fewest runs (the units of the left subtree may be written l - 1 times). Both
//! are exact for each n. The paper's Algorithms 1 and 2 are so only where n is a binomial coefficient; they are in
//! `published.rs`, as printed.
//!
//! Invariant: costs are integers, and of equal roots the smallest wins. So every machine finds the same schedule.

use super::curve::SizeCurve;
use super::published;
use super::shape::{MAX_EXPONENT, Shape, UNITS};
use super::widths::steps;
use alloc::vec;
use alloc::vec::Vec;

/// Returns 2^(k/4) in parts of [`FIXED_ONE`].
fn weight(k: i8) -> u64 {
    /// 2^(k/4) for k = 0 to 3, in parts of 2^16.
    const ROOTS: [u64; 4] = [65_536, 77_936, 92_682, 110_218];
    let k = i32::from(k.clamp(-MAX_EXPONENT, MAX_EXPONENT));
    let shift = k.div_euclid(4) - 8;
    let root = ROOTS[k.rem_euclid(4) as usize];
    let scaled = if shift >= 0 { root << shift } else { (root + (1 << (-shift - 1))) >> -shift };
    scaled.max(1)
}

/// A run that a schedule prescribes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PlannedRun {
    /// First unit, from 1.
    pub(super) lo: u16,
    /// Last unit.
    pub(super) hi: u16,
    /// Number of older runs.
    pub(super) depth: u8,
    /// Unit after which a merge consumes the run; the last unit of the cycle if only the clear does.
    pub(super) dies: u16,
}

/// Exact costs of a schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Cost {
    /// M in parts of [`FIXED_ONE`].
    pub(super) merged: u64,
    /// R.
    pub(super) run_units: u64,
    /// Most runs at once.
    pub(super) runs: u16,
}

impl Cost {
    /// Returns M + w * R in parts of [`FIXED_ONE`], for w = 2^(k/4).
    pub(super) fn weighted(&self, k: i8) -> u64 {
        self.merged + weight(k) * self.run_units
    }
}

/// Schedule of a cycle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Schedule {
    units: u16,
    /// a(1), a(2), ..: up to n - 1, or up to n where the last unit is merged as well.
    widths: Vec<u16>,
    /// Costs with the size curve that it was made with.
    pub(super) planned_cost: Cost,
}

impl Schedule {
    /// Returns the schedule of a cycle of `units` units (n), which must lie in [`UNITS`].
    pub(super) fn new(units: u16, shape: Shape, curve: &SizeCurve) -> Schedule {
        Schedule::of_any_size(units.clamp(*UNITS.start(), *UNITS.end()), shape, curve)
    }

    /// Like [`Schedule::new`], for simulations: `units` is at least 2.
    pub(crate) fn of_any_size(units: u16, shape: Shape, curve: &SizeCurve) -> Schedule {
        let units = units.max(2);
        let most = units - 1;
        let widths = match shape {
            Shape::Weighted(k) => {
                let roots = weighted_roots(most, weight(k), &curve.sizes(most));
                in_order(&[roots], most, |_| (0, 0))
            }
            Shape::Leveling(bound) => {
                in_order(&bounded_roots(most, bound, true), most, |table| (table, table.saturating_sub(1)))
            }
            Shape::Tiering(bound) => {
                in_order(&bounded_roots(most, bound, false), most, |table| (table.saturating_sub(1), table))
            }
            Shape::PublishedLeveling { levels, delta } => published::leveling(units, levels, delta),
            Shape::PublishedTiering(levels) => published::tiering(units, levels),
        };
        let planned_cost = cost(&widths, curve);
        Schedule { units, widths, planned_cost }
    }

    /// Returns n.
    pub(super) fn units(&self) -> u16 {
        self.units
    }

    /// Returns a(1), a(2), ..
    #[cfg(test)]
    pub(super) fn widths(&self) -> &[u16] {
        &self.widths
    }

    /// Returns the runs that the tree should have after `t` units of a cycle, oldest first. Beyond the last unit of
    /// the schedule, they no longer change.
    pub(super) fn target(&self, t: u16) -> Vec<PlannedRun> {
        let (past, coming) = self.widths.split_at(usize::from(t).min(self.widths.len()));
        let mut planned: Vec<PlannedRun> = Vec::new();
        for (hi, covered) in (1u16..).zip(past) {
            let lo = hi + 1 - covered;
            while planned.last().is_some_and(|planned_run| planned_run.lo >= lo) {
                planned.pop();
            }
            planned.push(PlannedRun { lo, hi, depth: planned.len().min(255) as u8, dies: self.units });
        }
        // The newest runs die first.
        let mut living = planned.len();
        for (unit, covered) in (past.len() as u16 + 1..).zip(coming) {
            while living > 0 && planned[living - 1].lo > unit - covered {
                living -= 1;
                planned[living].dies = unit;
            }
        }
        planned
    }

    /// Returns, after each unit, the units in the newest run and the number of runs.
    pub(crate) fn steps(&self) -> impl Iterator<Item = (u16, usize)> {
        steps(&self.widths)
    }

    /// Returns the costs with the size curve `curve`.
    pub(super) fn cost(&self, curve: &SizeCurve) -> Cost {
        cost(&self.widths, curve)
    }
}

/// Returns the costs of a schedule with the size curve `curve`.
fn cost(widths: &[u16], curve: &SizeCurve) -> Cost {
    let sizes = curve.sizes(widths.len() as u16);
    let mut cost = Cost::default();
    for (width, runs) in steps(widths) {
        if width > 1 {
            cost.merged += sizes[usize::from(width)];
        }
        cost.run_units += runs as u64;
        cost.runs = cost.runs.max(runs as u16);
    }
    cost
}

/// Returns the roots of the tree of `most` units, left part first. `subtrees` gives the tables of the left and the
/// right subtree of a root.
fn in_order(tables: &[Vec<u16>], most: u16, subtrees: impl Fn(usize) -> (usize, usize)) -> Vec<u16> {
    let mut widths = Vec::with_capacity(usize::from(most));
    // Stack of an in-order walk: the table and the units of a subtree, and a root to output next (0 for none).
    let mut open = vec![(tables.len().saturating_sub(1), most, 0)];
    while let Some((table, m, due)) = open.pop() {
        if due > 0 {
            widths.push(due);
        } else if m > 0 {
            let root =
                tables.get(table).and_then(|roots| roots.get(usize::from(m))).copied().unwrap_or(1).max(1);
            let (left, right) = subtrees(table);
            open.push((right, m - root, 0));
            open.push((0, 0, root));
            open.push((left, root - 1, 0));
        }
    }
    widths
}

fn weighted_roots(most: u16, weight: u64, sizes: &[u64]) -> Vec<u16> {
    let most = usize::from(most);
    let mut cost = vec![0u64; most + 1];
    let mut roots = vec![0u16; most + 1];
    for m in 1..=most {
        let of = |r: usize| {
            let merge = if r > 1 { sizes[r] } else { 0 };
            cost[r - 1] + merge + cost[m - r] + weight * (m - r + 1) as u64
        };
        let best = (1..=m).map(|r| (of(r), r)).min().unwrap_or((0, 1));
        (cost[m], roots[m]) = (best.0, best.1 as u16);
    }
    roots
}

/// Returns the tables for the bounds 1 to `bound`: of leveling, or else of tiering.
fn bounded_roots(most: u16, bound: u8, is_leveling: bool) -> Vec<Vec<u16>> {
    /// Cost of what the bound forbids.
    const NEVER: (u64, u64) = (1 << 40, 1 << 40);
    let most = usize::from(most);
    let mut tables = Vec::new();
    let mut below = vec![NEVER; most + 1];
    below[0] = (0, 0);
    for _ in 0..bound.max(1) {
        let mut costs = vec![(0, 0); most + 1];
        let mut roots = vec![0u16; most + 1];
        for m in 1..=most {
            let of = |r: usize| {
                let (written, lives) = (r as u64, (m - r + 1) as u64);
                // First the number that is minimized, then the other.
                let (left, right, first, second) = match is_leveling {
                    true => (costs[r - 1], below[m - r], written, lives),
                    false => (below[r - 1], costs[m - r], lives, written),
                };
                (left.0 + right.0 + first, left.1 + right.1 + second)
            };
            let best = (1..=m).map(|r| (of(r), r)).min().unwrap_or((NEVER, 1));
            (costs[m], roots[m]) = (best.0, best.1 as u16);
        }
        below = costs;
        tables.push(roots);
    }
    tables
}

#[cfg(test)]
mod tests;
