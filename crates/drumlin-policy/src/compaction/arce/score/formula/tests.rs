//! Scores against the paper's numbers, and the choice under each need.

use super::*;
use crate::compaction::arce::candidates::interval::Intervals;
use crate::compaction::arce::candidates::interval::tests::{full_scale, line};
use crate::compaction::arce::measure::model::paper::{MIB, close, met, thirds};
use std::vec::Vec;

const PAPER: [f64; 8] = [2.0, 2.0, 2.0, 2.0, 20.0, 24.0, 400.0, 4096.0];

fn scores(gain_intervals: f64, stall: Stall) -> Vec<Score> {
    let mut found = Vec::new();
    Intervals::default().list(&line(&PAPER), &full_scale(), f64::INFINITY, &mut found);
    found.into_iter().map(|c| score(&thirds(), gain_intervals, stall, met(8.0), c)).collect()
}

fn winner(gain_intervals: f64, stall: Stall) -> f64 {
    let better = |a: Score, b: Score| if b.value() > a.value() { b } else { a };
    scores(gain_intervals, stall).into_iter().reduce(better).unwrap().candidate.removed
}

#[test]
fn scores_of_the_paper() {
    let intervals = [0.1198, 0.1797, 0.2396, 0.8384, 1.5030, 9.3372, 42.2901];
    for (score, expected) in scores(5.0, Stall::NEVER).iter().zip(intervals) {
        close(score.intervals, expected, 4);
    }
    let values = [4.880, 9.820, 14.760, 19.162, 23.497, 20.663, -7.290];
    for (score, expected) in scores(5.0, Stall::NEVER).iter().zip(values) {
        close(score.value() / thirds().run_per_interval(), expected, 3);
    }
    let winners = [0.1, 1.0, 10.0, 50.0].map(|gain_intervals| winner(gain_intervals, Stall::NEVER));
    assert_eq!(winners, [3.0, 5.0, 6.0, 7.0]);
    for turn in [7.834, 32.953] {
        let [below, above] =
            [turn - 0.001, turn + 0.001].map(|gain_intervals| winner(gain_intervals, Stall::NEVER));
        assert!(above == below + 1.0, "{below} {above} at {turn}");
    }
}

/// The number of runs is a mean, hence seldom whole. Writers are delayed in flush intervals that begin above c.
#[test]
fn score_and_duration_agree_on_the_delayed_intervals() {
    let stall = Stall { above: 9.0, delay: 10_000.0 };
    for (runs, free) in [(7.0, 3.0), (8.0, 2.0), (8.5, 1.0), (9.0, 1.0), (9.1, 0.0)] {
        assert_eq!(thirds().intervals_before(stall, runs), free, "{runs}");
        let candidate = Candidate { from: 0, to: 2, bytes: 100.0 * MIB, removed: 1.0, relief: 1.0 };
        let score = score(&thirds(), 1.0, stall, met(runs), candidate);
        let delayed =
            (score.intervals - free).max(0.0) * thirds().interval_ops * thirds().shares[2] * stall.delay;
        close((score.cost - thirds().run_per_interval() * score.intervals - delayed) / 1e6, 0.0, 6);
    }
}

#[test]
fn a_short_merge_goes_before_the_long_one_that_it_is_part_of() {
    let first = |short_first, gain_intervals| {
        let model = thirds();
        let choice = Choice {
            model: &model,
            tuple: Tuple {
                gain_intervals,
                slow_above: f64::INFINITY,
                passes: 2.0,
                size_ratio: f64::INFINITY,
            },
            stall: Stall::NEVER,
            met: met(8.0),
            need: Need::Elective,
            budget: f64::INFINITY,
            last_slot: false,
            beside: None,
            short_first,
        };
        let (mut intervals, mut found) = (Intervals::default(), Vec::new());
        let best = choice.choose(&line(&PAPER), &full_scale(), &mut intervals, &mut found, |_| ());
        best.unwrap().candidate.removed
    };
    // Of 4548 MiB the part of 452 MiB goes first, and of that the part of 52 MiB: each takes at most an eighth of the
    // time and is four times as fast. The part of 8 MiB takes more than an eighth of the time of 52 MiB.
    assert_eq!((first(false, 50.0), first(true, 50.0)), (7.0, 5.0));
    assert_eq!((first(false, 0.1), first(true, 0.1)), (3.0, 3.0), "nothing of it is short enough");
}

#[test]
fn stalls_bend_the_frontier() {
    let stall = Stall { above: 9.0, delay: 24_000.0 };
    assert_eq!(winner(50.0, stall), 6.0);
    let scored = scores(50.0, stall);
    close(scored[5].value() / thirds().run_per_interval(), 278.327, 3);
    close(scored[6].value() / thirds().run_per_interval(), 232.472, 3);
    let turn = |delay: f64| {
        let stall = Stall { above: 9.0, delay };
        (10..5000).map(f64::from).find(|&m| winner(m, stall) == 7.0).unwrap()
    };
    assert_eq!(turn(24_000.0), 96.0);
    assert_eq!(turn(1e12), 1141.0);
}

#[test]
fn stalled_windows_are_exact() {
    // The number of stalled flush intervals follows from the cost: one unit of delay per write, no readers.
    let model = CostModel { shares: [0.0, 0.0, 1.0], ..thirds() };
    let model = CostModel::new(model);
    for (runs, intervals, above, stalled) in
        [(8.0, 5.0, 9.0, 3.0), (12.0, 5.0, 9.0, 5.0), (8.0, 2.0, 9.0, 0.0)]
    {
        let candidate = |bytes| Candidate { from: 0, to: 2, bytes, removed: 1.0, relief: 1.0 };
        let stall = Stall { above, delay: 1e-9 };
        let bytes = intervals * model.interval_ns(runs, 0.0, true) * model.speed;
        let found = score(&model, 1.0, stall, met(runs), candidate(bytes));
        close(found.intervals, intervals, 6);
        close(found.cost / (model.interval_ops * 1e-9), stalled, 5);
    }
}

#[test]
fn scores_are_monotone_and_dominate() {
    let mut dice = crate::SplitMix::new(3);
    for _ in 0..2000 {
        let mut draw = |most: usize| 1.0 + dice.below(most) as f64;
        let (bytes, removed, gain_intervals, runs) = (draw(1 << 33), draw(40), draw(200), draw(60));
        let stall = Stall { above: draw(64), delay: draw(30_000) };
        let at = |bytes, removed, gain_intervals| {
            let candidate = Candidate { from: 0, to: 2, bytes, removed, relief: removed };
            score(&thirds(), gain_intervals, stall, met(runs), candidate).value()
        };
        let base = at(bytes, removed, gain_intervals);
        assert!(at(bytes, removed + 1.0, gain_intervals) > base);
        assert!(at(bytes * 1.5, removed, gain_intervals) < base);
        assert!(at(bytes, removed, gain_intervals + 1.0) > base);
    }
}

fn choice(model: &CostModel, gain_intervals: f64, size_ratio: f64, need: Need) -> Choice<'_> {
    Choice {
        model,
        tuple: Tuple { gain_intervals, slow_above: f64::INFINITY, passes: 2.0, size_ratio },
        stall: Stall::NEVER,
        met: met(8.0),
        need,
        budget: f64::INFINITY,
        last_slot: false,
        beside: None,
        short_first: false,
    }
}

/// Returns the ends of the candidate chosen from runs of these sizes in MiB, newest first.
fn chosen(choice: Choice<'_>, mib: &[f64]) -> Option<(usize, usize)> {
    let (mut intervals, mut found) = (Intervals::default(), Vec::new());
    let best = choice.choose(&line(mib), &full_scale(), &mut intervals, &mut found, |_| ());
    best.map(|score| (score.candidate.from, score.candidate.to))
}

/// With several slots, the last idle one is left for short compactions: 42 flush intervals are too long for it, 9 are
/// not.
#[test]
fn a_long_merge_leaves_the_last_slot_alone() {
    let model = thirds();
    let free = choice(&model, 50.0, f64::INFINITY, Need::Elective);
    let last = Choice { last_slot: true, ..free };
    assert_eq!((chosen(free, &PAPER), chosen(last, &PAPER)), (Some((0, 8)), Some((0, 7))));
    let intervals = |mib: f64| model.compaction_intervals(mib * MIB, met(8.0), Stall::NEVER);
    let [below, above] = [[400.0, 560.0], [400.0, 570.0]];
    assert!(intervals(960.0) < LONG && intervals(970.0) > LONG);
    assert_eq!((chosen(last, &below), chosen(last, &above)), (Some((0, 2)), None));
    assert_eq!(chosen(free, &above), Some((0, 2)));
    let must = Choice { need: Need::Slowed, ..last };
    assert_eq!(chosen(must, &above), Some((0, 2)), "unless merging is a must");
}

#[test]
fn needs_begin_at_their_shares_of_the_most_runs() {
    for (runs, slow_above, even, need) in [
        (24.0, 24.0, true, Need::Elective),
        (24.1, 24.0, true, Need::Slowed),
        (47.9, 24.0, true, Need::Slowed),
        (47.9, f64::INFINITY, true, Need::Elective),
        (48.0, f64::INFINITY, true, Need::MakeRoom),
        (55.9, 24.0, true, Need::MakeRoom),
        (56.0, 24.0, true, Need::Urgent),
        (47.9, f64::INFINITY, false, Need::Elective),
        (48.0, f64::INFINITY, false, Need::Urgent),
    ] {
        assert_eq!(Need::at(runs, slow_above, 64.0, even), need, "{runs} {slow_above} {even}");
    }
}

/// Removing 3 runs for 8 MiB is the best rate. Candidates that pass the size ratio come first; if there are none,
/// all compete.
#[test]
fn what_must_be_is_what_removes_most_in_its_time() {
    let model = thirds();
    for need in [Need::Slowed, Need::Urgent] {
        let must = choice(&model, 50.0, f64::INFINITY, need);
        assert_eq!(chosen(must, &PAPER), Some((0, 4)), "{need:?}");
        let poor = Choice { budget: 0.0, ..must };
        assert_eq!(chosen(poor, &PAPER), Some((0, 4)), "{need:?} without a budget");
        // 1 run for 5 MiB is a better rate than 3 runs for 27 MiB, but only candidates with both runs of 11 MiB pass
        // the size ratio.
        let line = [1.0, 4.0, 11.0, 11.0];
        assert_eq!(chosen(choice(&model, 50.0, 1.0, need), &line), Some((0, 4)), "{need:?}");
        assert_eq!(chosen(must, &line), Some((0, 2)), "{need:?} of any size ratio");
        let uneven = [1.0, 4.0, 16.0];
        assert_eq!(chosen(choice(&model, 50.0, 1.0, need), &uneven), Some((0, 2)), "{need:?}");
        // With a fixed time per compaction, wide ones have the better rate.
        let slow = CostModel { setup: model.compaction_ns(100.0 * MIB), ..model };
        assert_eq!(chosen(choice(&slow, 1.0, f64::INFINITY, need), &uneven), Some((0, 3)), "{need:?}");
    }
    let elective = choice(&model, 50.0, 1.0, Need::Elective);
    assert_eq!(chosen(elective, &[1.0, 4.0, 16.0]), None, "by choice the size ratio is kept");
    assert_eq!(chosen(Choice { budget: 0.0, ..elective }, &PAPER), None, "nor overdrawn");
}

/// Near the run limit the smallest of the most even compactions is chosen, which rewrites least.
#[test]
fn room_is_made_by_even_merges() {
    let model = thirds();
    let candidate = |to| Candidate { from: 0, to, bytes: 0.0, removed: to as f64 - 1.0, relief: 0.0 };
    close(evenness(&line(&[2.0; 2]), &candidate(2)), core::f64::consts::LN_2, 4);
    close(evenness(&line(&[2.0; 40]), &candidate(40)), 3.6889, 4);
    close(evenness(&line(&[2.0, 4096.0]), &candidate(2)), 0.0042, 4);
    let full = choice(&model, 50.0, f64::INFINITY, Need::MakeRoom);
    // Of fifty equal runs, 23 are four fifths as even as all 50; 25 is the next width that is tried.
    assert_eq!(chosen(full, &[2.0; 50]), Some((25, 50)));
    // The evenness is 0.50 for two runs and 0.67 for three.
    assert_eq!(chosen(full, &[1.0, 4.0, 16.0]), Some((0, 3)));
    let balanced = choice(&model, 50.0, 1.0, Need::MakeRoom);
    assert_eq!(chosen(balanced, &[1.0, 4.0, 16.0]), Some((0, 3)), "nothing passes the size ratio");
    assert_eq!(chosen(balanced, &[2.0, 2.0, 2.0, 16.0]), Some((0, 3)));
    let beside = RunningCompaction { left: 1e18, rate: 0.0 };
    assert_eq!(chosen(Choice { beside: Some(beside), ..full }, &[2.0; 50]), None, "it is better to wait");
}
