//! The figures of the paper and of its check: words, costs, closed forms, and brute force over all merges.

use super::super::curve::FIXED_ONE;
use super::*;
use std::collections::BTreeMap;

fn schedule(n: u16, shape: Shape) -> Schedule {
    Schedule::new(n, shape, &SizeCurve::default())
}

/// W, M and R of a schedule.
fn costs(schedule: &Schedule) -> (u64, u64, u64) {
    let merged = |(width, _): (u16, usize)| if width > 1 { u64::from(width) } else { 0 };
    (
        schedule.steps().map(|(width, _)| u64::from(width)).sum(),
        schedule.steps().map(merged).sum(),
        schedule.steps().map(|(_, runs)| runs as u64).sum(),
    )
}

/// LAMBDA_l(N): the sum of h_l(t) for t = 1 .. N, where h_l(t) is the h with C(h + l - 1, l) <= t < C(h + l, l).
fn lambda(bound: u64, units: u64) -> u64 {
    let binomial = |n: u64, k: u64| (1..=k).fold(1, |product, i| product * (n - k + i) / i);
    let height = |t: u64| (1..).find(|h| binomial(h + bound, bound) > t).unwrap();
    (1..=units).map(height).sum()
}

#[test]
fn the_widths_are_those_that_were_computed_apart() {
    let widths = |n, shape| schedule(n, shape).widths().to_vec();
    use Shape::{Leveling, Tiering, Weighted};
    assert_eq!(widths(6, Tiering(2)), [1, 1, 3, 1, 2]);
    assert_eq!(widths(10, Tiering(2)), [1, 1, 1, 4, 1, 1, 3, 1, 2]);
    assert_eq!(widths(10, Leveling(2)), [1, 1, 3, 1, 2, 6, 1, 2, 3]);
    assert_eq!(widths(10, Tiering(3)), widths(10, Leveling(2)));
    let both = [1, 1, 1, 4, 1, 1, 3, 1, 2, 10, 1, 1, 3, 1, 2, 6, 1, 2, 3];
    assert_eq!(widths(20, Tiering(3)), both);
    assert_eq!(widths(20, Leveling(3)), both);
    assert_eq!(widths(12, Tiering(2)), [1, 1, 1, 4, 1, 1, 3, 1, 2, 1, 2]);
    assert_eq!(widths(12, Weighted(0)), [1, 1, 3, 1, 1, 6, 1, 1, 3, 1, 1]);
    assert_eq!(widths(12, Weighted(8)), [1, 2, 3, 4, 1, 6, 1, 8, 1, 2, 3]);
    assert_eq!(widths(12, Weighted(-8)), [1, 1, 1, 4, 1, 1, 1, 1, 1, 1, 1]);
}

#[test]
fn the_costs_are_those_of_the_paper() {
    use Shape::{Leveling, Tiering};
    for (n, bound, written, run_units) in [(36, 2, 168, 63), (64, 3, 258, 156), (100, 2, 845, 185)] {
        let (w, _, r) = costs(&schedule(n, Leveling(bound)));
        assert_eq!((w, r), (written, run_units), "leveling {n} {bound}");
        let (w, _, r) = costs(&schedule(n, Tiering(bound)));
        assert_eq!((r, w), (written, run_units), "tiering {n} {bound}");
    }
    for (n, bound, all) in [(6, 2, (8, 5, 8)), (10, 2, (15, 9, 20)), (20, 3, (45, 35, 45))] {
        assert_eq!(costs(&schedule(n, Tiering(bound))), all);
    }
    assert_eq!(costs(&schedule(12, Tiering(2))).2, 28);
    assert_eq!(costs(&schedule(11, Tiering(3))).2, 18);
}

#[test]
fn weighted_costs_are_exact() {
    let check = |n, k, curve: &SizeCurve, merged, run_units, total| {
        let cost = Schedule::new(n, Shape::Weighted(k), curve).cost(curve);
        assert_eq!((cost.merged, cost.run_units), (merged * FIXED_ONE, run_units), "n {n} k {k}");
        assert_eq!(cost.weighted(k), total, "n {n} k {k}");
        cost.runs
    };
    let plain = SizeCurve::default();
    check(12, 0, &plain, 12, 24, 36 * FIXED_ONE);
    check(12, 8, &plain, 28, 16, 92 * FIXED_ONE);
    check(12, -8, &plain, 4, 42, 29 * FIXED_ONE / 2);
    assert_eq!(check(20, 0, &plain, 25, 51, 76 * FIXED_ONE), 5);
    assert_eq!(check(36, 0, &plain, 60, 108, 168 * FIXED_ONE), 6);
    assert_eq!(check(64, 0, &plain, 128, 224, 352 * FIXED_ONE), 7);
}

#[test]
fn a_flatter_size_curve_gives_larger_merges() {
    // s(r) = (1 + r) / 2, exactly.
    let sizes: Vec<u64> = (0..=11).map(|r| (1 + r) * FIXED_ONE / 2).collect();
    let roots = weighted_roots(11, FIXED_ONE, &sizes);
    assert_eq!(in_order(&[roots], 11, |_| (0, 0)), [1, 2, 1, 4, 1, 1, 7, 1, 1, 3, 1]);
}

#[test]
fn closed_forms_agree_for_every_size() {
    for (bound, units, sum) in [
        (2, 5, 8),
        (2, 9, 20),
        (2, 15, 45),
        (2, 35, 168),
        (2, 99, 845),
        (3, 19, 45),
        (3, 34, 105),
        (3, 63, 258),
    ] {
        assert_eq!(lambda(bound, units), sum);
    }
    for bound in 1..=5 {
        for n in 4..=90 {
            let least = lambda(u64::from(bound), u64::from(n) - 1);
            assert_eq!(costs(&schedule(n, Shape::Leveling(bound))).0, least, "leveling {n} {bound}");
            assert_eq!(costs(&schedule(n, Shape::Tiering(bound))).2, least, "tiering {n} {bound}");
        }
    }
}

/// The bounds hold, and every flush adds one unit and at most one merge of the newest runs.
#[test]
fn targets_grow_by_one_merge_each() {
    let shapes = (1..=5).flat_map(|l| [Shape::Leveling(l), Shape::Tiering(l)]);
    for shape in shapes.chain((-32..=32).map(Shape::Weighted)) {
        for n in [4, 5, 11, 37, 90] {
            let schedule = schedule(n, shape);
            let mut before: Vec<PlannedRun> = Vec::new();
            let widths = schedule.widths();
            assert_eq!(widths.len(), usize::from(n) - 1);
            for t in 1..n {
                let target = schedule.target(t);
                assert_eq!(target.last().map(|planned_run| planned_run.hi), Some(t));
                assert!(target.windows(2).all(|pair| pair[0].hi + 1 == pair[1].lo), "{target:?}");
                let (newest, kept) = target.split_last().unwrap();
                assert_eq!(newest.hi - newest.lo + 1, widths[usize::from(t) - 1]);
                assert_eq!(kept, &before[..kept.len()], "{shape:?} {n} {t}");
                // A run that is merged dies at the unit that its planned_run names.
                assert!(
                    before[kept.len()..].iter().all(|planned_run| planned_run.dies == t),
                    "{before:?} {target:?}"
                );
                assert!(target.iter().all(|planned_run| planned_run.dies > t));
                if let Shape::Leveling(most) = shape {
                    assert!(target.len() <= usize::from(most));
                }
                before = target;
            }
            assert_eq!(schedule.target(n), before);
            let (_, merged, run_units) = costs(&schedule);
            let cost = schedule.cost(&SizeCurve::default());
            assert_eq!((cost.merged, cost.run_units), (merged * FIXED_ONE, run_units));
        }
    }
}

/// Least M + rho * R over all sequences of merges of neighbouring runs, also of those without the newest unit and of
/// several at once.
fn brute_force(units: u16, rho: u64) -> u64 {
    let mut best: BTreeMap<Vec<u16>, u64> = BTreeMap::from([(Vec::new(), 0)]);
    for _ in 0..units {
        let mut open: Vec<(Vec<u16>, u64)> = best
            .into_iter()
            .map(|(mut runs, cost)| {
                runs.push(1);
                (runs, cost)
            })
            .collect();
        let mut seen: BTreeMap<Vec<u16>, u64> = BTreeMap::new();
        while let Some((runs, cost)) = open.pop() {
            if seen.get(&runs).is_some_and(|known| *known <= cost) {
                continue;
            }
            for from in 0..runs.len() {
                for to in from + 2..=runs.len() {
                    let sum: u16 = runs[from..to].iter().sum();
                    let mut merged = runs.clone();
                    merged.splice(from..to, [sum]);
                    open.push((merged, cost + u64::from(sum) * FIXED_ONE));
                }
            }
            seen.insert(runs, cost);
        }
        best = seen.into_iter().map(|(runs, cost)| (runs.clone(), cost + rho * runs.len() as u64)).collect();
    }
    best.into_values().min().unwrap()
}

#[test]
fn no_sequence_of_merges_is_cheaper() {
    for n in 4..=9 {
        for k in [-8, -4, 0, 4, 8] {
            let cost = schedule(n, Shape::Weighted(k)).cost(&SizeCurve::default());
            assert_eq!(cost.weighted(k), brute_force(n - 1, weight(k)), "n {n} k {k}");
        }
    }
}
