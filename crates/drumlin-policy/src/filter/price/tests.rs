//! Tests of [`super`]: worked examples, the best of all choices of tables, and the dual bound.

use super::*;
use crate::SplitMix;
use crate::filter::rate::BLOOM;
use std::vec;

fn items(tables: &[(f64, f64)]) -> Vec<Item> {
    tables.iter().map(|&(keys, weight)| Item { keys, weight }).collect()
}

/// Returns the bits of each item, the bits in total, and the unneeded blocks.
fn divided(items: &[Item], budget: f64) -> (Vec<f64>, f64, f64) {
    let price = solve(items, budget, BLOOM);
    // In a solution, all tables at the cut are taken or there is one of them: ties are broken by the budget.
    let mut left = budget;
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by(|&a, &b| {
        items[b].log_density().unwrap_or(f64::MIN).total_cmp(&items[a].log_density().unwrap_or(f64::MIN))
    });
    let mut bits = vec![0.0; items.len()];
    for at in order {
        let wanted = price.map_or(0.0, |price| price.bits(&items[at], true));
        if wanted * items[at].keys <= left * (1.0 + 1e-9) + 1e-6 {
            bits[at] = wanted;
            left -= wanted * items[at].keys;
        }
    }
    let blocks = cost(items, &bits);
    (bits, budget - left, blocks)
}

fn cost(items: &[Item], bits: &[f64]) -> f64 {
    items.iter().zip(bits).map(|(item, bits)| item.weight * rate(BLOOM, *bits)).sum()
}

fn assert_close(found: &[f64], expected: &[f64]) {
    let is_close = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 6e-5);
    assert!(is_close && found.len() == expected.len(), "{found:?}, expected {expected:?}");
}

#[test]
fn three_runs_of_a_leveled_tree() {
    let runs = items(&[(1.0, 1.0), (4.0, 1.0), (16.0, 1.0)]);
    let (bits, used, blocks) = divided(&runs, 5.0 * 21.0);
    assert_close(&bits, &[9.9464, 7.0610, 4.1756]);
    assert!((used - 105.0).abs() < 1e-9 && (blocks - 0.176_533).abs() < 1e-6, "{used} {blocks}");
    assert!((cost(&runs, &[5.0; 3]) - 0.271_538).abs() < 1e-6);
    let price = solve(&runs, 105.0, BLOOM).unwrap();
    assert!((price.blocks_per_bit() - 0.004_039).abs() < 1e-6, "{price:?}");
    // What a run still costs is proportional to its size.
    for (run, bits) in runs.iter().zip(bits) {
        assert!((run.weight * rate(BLOOM, bits) - price.blocks_per_bit() * run.keys / BLOOM).abs() < 1e-12);
    }
}

#[test]
fn few_bits_one_bit_and_the_most_bits() {
    let runs = items(&[(1.0, 1.0), (4.0, 1.0), (16.0, 1.0)]);
    let (bits, _, blocks) = divided(&runs, 21.0);
    assert_close(&bits, &[6.5083, 3.6229, 0.0]);
    assert!((blocks - 1.219_259).abs() < 1e-6, "{blocks}");
    let (bits, _, blocks) = divided(&runs, 1.5 * 21.0);
    assert_close(&bits, &[5.4083, 2.5229, 1.0]);
    assert!((blocks - 0.990_451).abs() < 1e-6, "{blocks}");
    assert!((cost(&runs, &[8.6083, 5.7229, 0.0]) - 1.079_942).abs() < 1e-5, "the published rule");
    let (bits, used, _) = divided(&runs, 20.0 * 21.0);
    assert_eq!((bits, used), (vec![16.0; 3], 336.0));
}

#[test]
fn files_of_one_size_under_skew() {
    let files = items(&[(10.0, 1000.0), (10.0, 100.0), (10.0, 10.0), (10.0, 1.0)]);
    let (bits, _, blocks) = divided(&files, 160.0);
    assert_close(&bits, &[9.8963, 5.1037, 1.0, 0.0]);
    assert!((blocks - 24.407_456).abs() < 1e-5, "{blocks}");
    let (bits, _, blocks) = divided(&files, 80.0);
    assert_close(&bits, &[6.3963, 1.6037, 0.0, 0.0]);
    assert!((blocks - 103.554_518).abs() < 1e-5, "{blocks}");
}

#[test]
fn no_filter_where_none_helps() {
    assert_eq!(solve(&[], 100.0, BLOOM), None);
    let useless =
        [(10.0, 0.0), (0.0, 5.0), (f64::NAN, 1.0), (1.0, f64::INFINITY), (-1.0, 1.0), (1.0, f64::NAN)];
    assert_eq!(solve(&items(&useless), 100.0, BLOOM), None);
    let one = items(&[(10.0, 1.0)]);
    assert_eq!(solve(&one, 9.9, BLOOM), None, "not one bit per key");
    assert_eq!(solve(&one, f64::NAN, BLOOM), None);
    assert_eq!(solve(&one, -1.0, BLOOM), None);
    let price = solve(&one, 10.0, BLOOM).unwrap();
    assert!((price.bits(&one[0], true) - 1.0).abs() < 1e-9);
    let same = items(&[(10.0, 1.0), (10.0, 1.0)]);
    let price = solve(&same, 15.0, BLOOM).unwrap();
    assert!((price.bits(&same[0], true) - 1.5).abs() < 1e-9);
    assert_eq!(
        price.bits(&same[0], false),
        0.0,
        "of equal tables only some have a filter: the budget decides"
    );
    assert_eq!(price.bits(&Item { keys: 10.0, weight: 0.0 }, true), 0.0);
}

#[test]
fn a_new_table_that_is_a_little_less_dense_has_a_filter_too() {
    let tables = items(&[(100.0, 50.0), (100.0, 40.0)]);
    let price = solve(&tables, 400.0 + 400.0, BLOOM).unwrap();
    let bits = |weight| price.bits(&Item { keys: 100.0, weight }, true);
    assert!(bits(40.0) > 3.0 && bits(39.0) > 3.0 && bits(20.0) > 2.0);
    assert_eq!(bits(0.1), 0.0);
    // Between the last table with a filter and the first without, the first is not lifted over the cut.
    let tables = items(&[(10.0, 1000.0), (10.0, 100.0), (10.0, 10.0), (10.0, 1.0)]);
    let price = solve(&tables, 80.0, BLOOM).unwrap();
    assert_eq!(
        tables.iter().map(|item| price.bits(item, true) > 0.0).collect::<Vec<_>>(),
        [true, true, false, false]
    );
}

/// Draws tables as trees have them: few sizes or many, weights over several orders of magnitude.
fn drawn(random: &mut SplitMix, count: usize, is_even: bool) -> (Vec<Item>, f64) {
    let unit = |random: &mut SplitMix| (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    let mut tables = Vec::new();
    for _ in 0..count {
        let keys = if is_even { 100.0 } else { real::exp(7.0 * unit(random)) };
        tables.push(Item { keys, weight: real::exp(10.0 * unit(random) - 3.0) });
    }
    let keys: f64 = tables.iter().map(|item| item.keys).sum();
    let average = 0.3 + 9.0 * unit(random);
    (tables, average * keys)
}

/// Returns the least cost for filters on exactly the tables in `chosen`: bisection of the price, apart from the solver.
fn cost_of_choice(items: &[Item], chosen: u32, budget: f64) -> Option<f64> {
    let is_chosen = |at: usize| chosen >> at & 1 == 1;
    let bits = |log: f64, item: &Item| {
        ((item.weight.ln() - item.keys.ln() + BLOOM.ln() - log) / BLOOM).clamp(1.0, 16.0)
    };
    let used = |log: f64| -> f64 {
        let tables = items.iter().enumerate().filter(|(at, _)| is_chosen(*at));
        tables.map(|(_, item)| item.keys * bits(log, item)).sum()
    };
    let (mut low, mut high) = (-100.0, 100.0);
    if used(high) > budget {
        return None;
    }
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if used(middle) > budget { low = middle } else { high = middle }
    }
    let of = |(at, item): (usize, &Item)| match is_chosen(at) {
        true => item.weight * (-BLOOM * bits(high, item)).exp(),
        false => item.weight,
    };
    Some(items.iter().enumerate().map(of).sum())
}

/// Returns a lower bound on the cost: the best value of the dual, over all prices.
fn dual_bound(items: &[Item], budget: f64) -> f64 {
    let value = |log: f64| -> f64 {
        let price = log.exp();
        let least = |item: &Item| {
            let bits = ((item.weight.ln() - item.keys.ln() + BLOOM.ln() - log) / BLOOM).clamp(1.0, 16.0);
            item.weight.min(item.weight * (-BLOOM * bits).exp() + price * item.keys * bits)
        };
        items.iter().map(least).sum::<f64>() - price * budget
    };
    // The dual is concave in the price, so ternary search finds its maximum; in the logarithm it has one maximum too.
    let (mut low, mut high) = (-40.0f64, 20.0f64);
    for _ in 0..200 {
        let (a, b) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if value(a) < value(b) { low = a } else { high = b }
    }
    value(low).max(0.0)
}

#[test]
fn as_good_as_the_best_of_all_choices() {
    let mut random = SplitMix::new(11);
    let (mut equal, mut cases) = (0, 0);
    for case in 0..400 {
        let count = 2 + case % 8;
        let is_even = case % 4 == 0;
        let (tables, budget) = drawn(&mut random, count, is_even);
        let best = (0..1u32 << count).filter_map(|chosen| cost_of_choice(&tables, chosen, budget));
        let best = best.fold(f64::INFINITY, f64::min);
        let (bits, used, blocks) = divided(&tables, budget);
        assert!(used <= budget * (1.0 + 1e-9) + 1e-6, "{used} of {budget}");
        let is_best = blocks <= best * (1.0 + 1e-9);
        assert!(is_best || !is_even, "case {case}: {blocks} against {best}, {bits:?} of {tables:?}");
        (equal, cases) = (equal + usize::from(is_best), cases + 1);
        let first_out = tables.iter().zip(&bits).filter(|(_, bits)| **bits == 0.0);
        let first_out = first_out.map(|(item, _)| item.weight).fold(0.0, f64::max);
        assert!(blocks <= best + first_out + 1e-9, "case {case}: {blocks} against {best}");
    }
    assert!(equal * 100 >= cases * 95, "{equal} of {cases}");
}

#[test]
fn close_to_the_dual_bound_with_many_tables() {
    let mut random = SplitMix::new(12);
    for case in 0..60 {
        let (tables, budget) = drawn(&mut random, 100 + 5 * case, case % 2 == 0);
        let (_, used, blocks) = divided(&tables, budget);
        let bound = dual_bound(&tables, budget);
        assert!(used <= budget * (1.0 + 1e-9) + 1e-6);
        assert!(blocks >= bound * (1.0 - 1e-7), "case {case}: {blocks} below the bound {bound}");
        assert!(blocks <= bound * 1.001, "case {case}: {blocks} against {bound}");
    }
}

#[test]
fn more_weight_never_gets_fewer_bits_and_units_do_not_matter() {
    let mut random = SplitMix::new(13);
    // The second is the slope of a Ribbon filter with 5 percent more bits than the theoretical minimum.
    for slope in [BLOOM, core::f64::consts::LN_2 / 1.05] {
        let (tables, budget) = drawn(&mut random, 200, false);
        let price = solve(&tables, budget, slope).unwrap();
        let mut order: Vec<&Item> = tables.iter().collect();
        order.sort_by(|a, b| (a.weight / a.keys).total_cmp(&(b.weight / b.keys)));
        let bits: Vec<f64> = order.iter().map(|item| price.bits(item, true)).collect();
        assert!(bits.is_sorted(), "{bits:?}");
        assert!(bits.iter().all(|bits| *bits == 0.0 || (1.0..=16.0).contains(bits)));
        let scaled: Vec<Item> =
            tables.iter().map(|item| Item { weight: item.weight * 1024.0, ..*item }).collect();
        let again = solve(&scaled, budget, slope).unwrap();
        for (item, scaled) in tables.iter().zip(&scaled) {
            assert!((price.bits(item, true) - again.bits(scaled, true)).abs() < 1e-6);
        }
    }
}

/// Unneeded blocks a lookup on a leveled tree of 6, 24 and 96 equal files, by equation 1: with uniform bits, with those
/// of Monkey for each run, and with the optimum over files. `empty` is the share of lookups of absent keys. A present
/// key lies in a level by the level's share of the keys. With `skewed`, lookups are normal with a standard deviation of
/// a tenth of the key space.
fn headroom(bits: f64, empty: f64, skewed: bool) -> [f64; 3] {
    const LEVELS: [usize; 3] = [6, 24, 96];
    const STEPS: usize = 96_000;
    let density =
        |at: f64| if skewed { real::exp(-0.5 * ((at - 0.5) / 0.1) * ((at - 0.5) / 0.1)) } else { 1.0 };
    let points: Vec<f64> = (0..STEPS).map(|step| density((step as f64 + 0.5) / STEPS as f64)).collect();
    let all: f64 = points.iter().sum();
    let total = LEVELS.iter().sum::<usize>() as f64;
    let vain =
        |level: usize| empty + (1.0 - empty) * LEVELS[level + 1..].iter().sum::<usize>() as f64 / total;
    let runs: Vec<Item> =
        (0..3).map(|level| Item { keys: LEVELS[level] as f64, weight: vain(level) }).collect();
    let files: Vec<Item> = (0..3)
        .flat_map(|level| points.chunks(STEPS / LEVELS[level]).map(move |part| (level, part)))
        .map(|(level, part)| Item { keys: 1.0, weight: vain(level) * part.iter().sum::<f64>() / all })
        .collect();
    // Monkey takes all runs to be probed alike.
    let alike: Vec<Item> = runs.iter().map(|run| Item { weight: 1.0, ..*run }).collect();
    let monkey = cost(&runs, &divided(&alike, bits * total).0);
    let best = divided(&files, bits * total).2;
    [runs.iter().map(|run| run.weight * rate(BLOOM, bits)).sum(), monkey, best]
}

#[test]
fn headroom_of_the_optimum_over_uniform_bits() {
    let table: [(f64, [[f64; 3]; 3], [f64; 3]); 3] = [
        (
            2.0,
            [[1.148, 0.746, 0.7461], [0.902, 0.444, 0.4312], [0.656, 0.142, 0.0232]],
            [0.2393, 0.1412, 0.0024],
        ),
        (
            5.0,
            [[0.272, 0.177, 0.1765], [0.213, 0.105, 0.1015], [0.155, 0.034, 0.0008]],
            [0.0252, 0.0148, 0.0008],
        ),
        (
            8.0,
            [[0.064, 0.042, 0.0418], [0.050, 0.025, 0.0240], [0.037, 0.008, 0.0008]],
            [0.0042, 0.0026, 0.0008],
        ),
    ];
    for (bits, even, skewed) in table {
        for (at, empty) in [1.0, 0.5, 0.0].into_iter().enumerate() {
            // The first two have three digits after the point, the others four.
            let [uniform, monkey, best] = headroom(bits, empty, false);
            let is_close = |found: f64, expected: f64| (found - expected).abs() < 6e-4;
            assert!(is_close(uniform, even[at][0]) && is_close(monkey, even[at][1]), "{uniform} {monkey}");
            assert_close(&[best, headroom(bits, empty, true)[2]], &[even[at][2], skewed[at]]);
        }
    }
}
