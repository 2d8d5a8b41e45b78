//! A small model whose optimal schedule is computable, to compare scored decisions with the optimum.
//!
//! One run of one unit arrives in each flush interval. Compaction processes a fixed number of units per flush
//! interval and takes whole flush intervals. A flush interval costs its number of runs. Dynamic programming over all
//! schedules of compactions of neighbours gives the optimum.

use alloc::collections::BTreeMap;
use std::vec::Vec;

/// Sizes of the runs, newest first.
type Runs = Vec<u32>;

struct World {
    horizon: u32,
    /// Units compacted per flush interval.
    speed: u32,
}

impl World {
    fn intervals(&self, units: u32) -> u32 {
        units.div_ceil(self.speed)
    }

    /// Returns the cost of `busy` flush intervals without a finished compaction, with the runs and the time after
    /// them.
    fn wait(&self, runs: &Runs, at: u32, busy: u32) -> (u32, Runs, u32) {
        let (mut runs, mut cost) = (runs.clone(), 0);
        let end = (at + busy).min(self.horizon);
        for _ in at..end {
            cost += runs.len() as u32;
            runs.insert(0, 1);
        }
        (cost, runs, end)
    }

    /// Compacts `from..to`, beginning at flush interval `at`. Returns the same as `wait`.
    fn merge(&self, runs: &Runs, at: u32, from: usize, to: usize) -> (u32, Runs, u32) {
        let units: u32 = runs[from..to].iter().sum();
        let busy = self.intervals(units);
        let (cost, mut after, end) = self.wait(runs, at, busy);
        if at + busy <= self.horizon {
            let shift = after.len() - runs.len();
            after.splice(from + shift..to + shift, [units]);
        }
        (cost, after, end)
    }

    fn optimum(&self, runs: &Runs, at: u32, known: &mut BTreeMap<(u32, Runs), u32>) -> u32 {
        if at >= self.horizon {
            return 0;
        }
        if let Some(&cost) = known.get(&(at, runs.clone())) {
            return cost;
        }
        let (cost, after, next) = self.wait(runs, at, 1);
        let mut best = cost + self.optimum(&after, next, known);
        for from in 0..runs.len() {
            for to in from + 2..=runs.len() {
                let (cost, after, next) = self.merge(runs, at, from, to);
                best = best.min(cost + self.optimum(&after, next, known));
            }
        }
        known.insert((at, runs.clone()), best);
        best
    }

    /// Returns the cost of always starting the compaction with the highest positive score M*y - t.
    fn scored(&self, mut runs: Runs, horizon: f64) -> u32 {
        let (mut at, mut cost) = (0, 0);
        while at < self.horizon {
            let mut best: Option<(f64, usize, usize)> = None;
            for width in 2..=runs.len() {
                // For each width the lightest interval; among equal ones, the oldest.
                let weights =
                    (0..=runs.len() - width).map(|from| runs[from..from + width].iter().sum::<u32>());
                let (from, units) =
                    weights.enumerate().reduce(|a, b| if b.1 <= a.1 { b } else { a }).unwrap();
                let score = horizon * (width - 1) as f64 - f64::from(self.intervals(units));
                if score > 0.0 && best.is_none_or(|(value, ..)| score > value) {
                    best = Some((score, from, from + width));
                }
            }
            let (more, after, next) = match best {
                Some((_, from, to)) => self.merge(&runs, at, from, to),
                None => self.wait(&runs, at, 1),
            };
            (cost, runs, at) = (cost + more, after, next);
        }
        cost
    }
}

#[test]
fn scores_come_near_the_best_schedule() {
    for (start, horizon, speed, optimum, idle, scored) in [
        (&[8][..], 12, 2, 47, 78, [47, 47, 60]),
        (&[8], 14, 4, 47, 105, [49, 49, 65]),
        (&[1, 1, 1, 1, 8], 12, 2, 64, 126, [65, 65, 87]),
        (&[1, 2, 4, 8, 16], 12, 4, 66, 126, [69, 66, 96]),
    ] {
        let world = World { horizon, speed };
        let runs = start.to_vec();
        assert_eq!(world.optimum(&runs, 0, &mut BTreeMap::new()), optimum, "{start:?}");
        assert_eq!(world.wait(&runs, 0, horizon).0, idle, "{start:?}");
        assert_eq!([1.01, 2.0, 5.0].map(|m| world.scored(runs.clone(), m)), scored, "{start:?}");
    }
}
