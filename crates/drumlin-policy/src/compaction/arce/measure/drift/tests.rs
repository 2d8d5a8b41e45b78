//! Each trigger of a search on both sides of its bound, and mixes that differ by chance alone.

use super::*;

/// The paper's mixes A to J, as percent of lookups, seeks and writes.
const MIXES: [(char, [f64; 3]); 10] = [
    ('A', [1.0, 98.0, 1.0]),
    ('B', [1.0, 1.0, 98.0]),
    ('C', [98.0, 1.0, 1.0]),
    ('D', [49.0, 49.0, 2.0]),
    ('E', [49.0, 2.0, 49.0]),
    ('F', [2.0, 49.0, 49.0]),
    ('G', [20.0, 40.0, 40.0]),
    ('H', [40.0, 40.0, 20.0]),
    ('I', [40.0, 20.0, 40.0]),
    ('J', [34.0, 33.0, 33.0]),
];

fn mix(name: char) -> [f64; 3] {
    MIXES.iter().find(|(n, _)| *n == name).unwrap().1.map(|percent| percent / 100.0)
}

#[test]
fn the_changes_of_the_paper_are_all_seen() {
    let (mut least, mut most) = (1.0f64, 0.0f64);
    for plan in ["ABDJCE", "JEBFDC", "GHI"] {
        let names: std::vec::Vec<char> = plan.chars().collect();
        for pair in names.windows(2) {
            let change = total_variation(&mix(pair[0]), &mix(pair[1]));
            least = least.min(change);
            most = most.max(change);
        }
    }
    assert!((least - 0.20).abs() < 0.005 && (most - 0.97).abs() < 0.005, "{least} {most}");
}

fn inputs(operations: f64, name: char) -> TriggerInputs {
    TriggerInputs {
        operations,
        mix: mix(name),
        bytes: 1e9,
        flushes: 100.0,
        interval_ops: 6000.0,
        ..TriggerInputs::default()
    }
}

#[test]
fn a_drift_lasts_two_ticks_and_ends_a_phase() {
    let mut drift = Drift::default();
    assert_eq!(drift.tick(&inputs(0.0, 'A'), mix('A'), 4096.0), Some(Trigger::Fresh));
    drift.searched(inputs(0.0, 'A'));
    for (at, name, expected) in [
        (1.0, 'A', None),
        (2.0, 'B', None),
        (3.0, 'A', None),
        (4.0, 'B', None),
        (5.0, 'B', Some(Trigger::Mix)),
    ] {
        assert_eq!(drift.tick(&inputs(at * 5000.0, name), mix(name), 5000.0), expected, "{at}");
    }
    assert_eq!(drift.phases, [25_000.0]);
    assert_eq!(drift.drifted(), (mix('B'), 5000.0));
    assert_eq!(Drift::default().expected(1e9), None);
    drift.phases = std::vec::Vec::from([100.0, 1000.0, 10_000.0]);
    assert!((drift.expected(25_500.0).unwrap() - 1000.0).abs() < 1e-6);
    assert_eq!(drift.expected(45_000.0), Some(20_000.0), "what lasted long lasts as long again");
}

/// Returns the number of ticks of `operations` after which a mix that is off by `share` is detected.
fn ticks_to_see(share: f64, operations: f64) -> Option<usize> {
    let mut drift = Drift::default();
    drift.searched(inputs(0.0, 'J'));
    let [points, seeks, writes] = mix('J');
    let off = [points - share, seeks + share, writes];
    (1..100).find(|_| drift.tick(&inputs(0.0, 'J'), off, operations) == Some(Trigger::Mix))
}

#[test]
fn a_drift_is_seen_as_soon_as_it_stands_out_of_the_noise() {
    assert_eq!(ticks_to_see(0.33, 64.0), Some(3), "0.23 above the bound: 118 operations");
    assert_eq!(ticks_to_see(0.2, 64.0), Some(11), "0.1 above it: 625");
    assert!(stands_out(&mix('B'), &mix('F'), 256.0, 1.0) && stands_out(&mix('B'), &mix('F'), 1024.0, 4.0));
    assert!(
        !stands_out(&mix('B'), &mix('F'), 256.0, 4.0),
        "three threads that write told of it, and no other"
    );
    assert_eq!(ticks_to_see(0.2, 100_000.0), Some(2), "a single tick never does");
    assert_eq!(ticks_to_see(0.1, 1e6), None);
}

/// At 20 policy calls a second, 7200 ticks are six minutes of each mix.
#[test]
fn no_drift_is_seen_where_there_is_none() {
    const TICK: usize = 64;
    let mut dice = crate::SplitMix::new(11);
    let mut draw = |name: char, operations: usize| {
        let ([points, seeks, _], mut counts) = (mix(name), [0.0; 3]);
        for _ in 0..operations {
            let at = dice.below(1 << 20) as f64 / (1 << 20) as f64;
            counts[if at < points { 0 } else { 1 + usize::from(at >= points + seeks) }] += 1.0;
        }
        counts.map(|count| count / operations as f64)
    };
    for (name, _) in MIXES {
        let mut drift = Drift::default();
        // A search uses the mix of the two ticks that showed the drift.
        let mut mean = draw(name, TICK);
        drift.searched(TriggerInputs { mix: mean, ..inputs(0.0, name) });
        for ticks in 1..7200 {
            let fast = draw(name, TICK);
            let weight = 1.0 / f64::from(ticks + 1);
            mean.iter_mut().zip(fast).for_each(|(mean, fast)| *mean += weight * (fast - *mean));
            let seen = TriggerInputs { mix: mean, ..inputs(f64::from(ticks) * TICK as f64, name) };
            assert_ne!(drift.tick(&seen, fast, TICK as f64), Some(Trigger::Mix), "{name} {ticks}");
        }
    }
}

/// Another search begins while the mix changes, and its basis contains some of the new mix. The drift is still
/// detected.
#[test]
fn a_search_in_between_hides_no_drift() {
    let mut drift = Drift::default();
    drift.searched(inputs(0.0, 'A'));
    assert_eq!(drift.tick(&inputs(1000.0, 'A'), mix('B'), 1024.0), None);
    drift.searched(inputs(1000.0, 'A'));
    assert_eq!(drift.tick(&inputs(2000.0, 'A'), mix('B'), 1024.0), Some(Trigger::Mix));
    assert_eq!(drift.drifted(), (mix('B'), 1024.0));
}

#[test]
fn other_triggers() {
    let basis = TriggerInputs {
        costs: [1.0, 1.0, 1.0, 4.0],
        runs: 5.0,
        cost: 100.0,
        horizon: 100.0,
        ..inputs(0.0, 'J')
    };
    let after = |operations: f64, next: TriggerInputs| {
        let mut drift = Drift::default();
        drift.searched(basis);
        drift.predicted(5.0, 100.0);
        drift.tick(&next, mix('J'), operations)
    };
    let tick = |change: fn(&mut TriggerInputs)| {
        let mut next = basis;
        change(&mut next);
        after(1e6, next)
    };
    assert_eq!(tick(|_| ()), None);
    assert_eq!(tick(|p| p.bytes *= 1.09), None);
    assert_eq!(tick(|p| p.bytes *= 1.11), Some(Trigger::Size));
    // Compaction speed, cost of a run per lookup and per seek, clients.
    for (at, then) in basis.costs.into_iter().enumerate() {
        for (factor, expected) in
            [(0.74, Some(Trigger::Costs)), (0.76, None), (1.24, None), (1.26, Some(Trigger::Costs))]
        {
            let mut next = basis;
            next.costs[at] = factor * then;
            assert_eq!(after(1e6, next), expected, "{at} times {factor}");
        }
    }
    assert_eq!(tick(|p| p.interval_ops *= 1.9), None);
    assert_eq!(tick(|p| p.interval_ops *= 2.1), Some(Trigger::IntervalOps));
    assert_eq!(tick(|p| p.interval_ops /= 2.1), Some(Trigger::IntervalOps));
    assert_eq!(tick(|p| p.horizon = 201.0), Some(Trigger::Outlasts));
    for (runs, cost, expected) in [
        (6.3, 100.0, Some(Trigger::Surprise)),
        (6.2, 124.0, None),
        (3.8, 76.0, None),
        (3.7, 100.0, Some(Trigger::Surprise)),
        (5.0, 126.0, Some(Trigger::Surprise)),
        (5.0, 74.0, Some(Trigger::Surprise)),
    ] {
        assert_eq!(after(1e6, TriggerInputs { runs, cost, ..basis }), expected, "{runs} {cost}");
        assert_eq!(after(95_999.0, TriggerInputs { runs, cost, ..basis }), None, "less than 16 intervals");
    }
    assert_eq!(tick(|p| (p.now, p.operations) = (LONG_MICROS, 1e5)), Some(Trigger::Age));
    assert_eq!(tick(|p| (p.now, p.operations) = (LONG_MICROS, 9e4)), None);
    assert_eq!(tick(|p| (p.now, p.operations) = (LONG_MICROS - 1, 1e9)), None);
}
