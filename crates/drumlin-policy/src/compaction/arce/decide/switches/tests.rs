//! The effect of each switch: a small state in which the decision differs without it.

use super::*;
use crate::by_name;
use crate::compaction::arce::decide::policy::Arce;
use crate::compaction::arce::decide::search::SearchResult;
use crate::compaction::arce::parse;
use crate::compaction::arguments::Arguments;
use alloc::boxed::Box;
use drumlin_sim::World;
use drumlin_types::contract::{
    CompactionPolicy, CostView, Decision, LimitView, LoadView, PolicyInput, TicketView, TreeView,
};
use std::vec::Vec;

const MIB: u64 = 1 << 20;
const KEYS: u32 = 1 << 20;
/// The runs of the paper's example, newest first.
const PAPER: [u64; 8] = [2, 2, 2, 2, 20, 24, 400, 4096];

/// Builds runs of these sizes in MiB, newest first, over all keys. The load is a third of each kind of operation; a
/// flush is 2 MiB.
pub(crate) fn world(mib: &[u64]) -> World {
    let mut world = World::new(LimitView::default());
    for size in mib.iter().rev() {
        world.limits.memtable_bytes = size * MIB;
        world.flush(&mut Arce::new(None, Switches::ALL), 0, KEYS);
    }
    world.limits.memtable_bytes = 2 * MIB;
    world.costs = CostView {
        compaction_bytes_per_s: 150e6,
        compaction_fixed_ns: 1.0,
        probe_ns: 1e-3,
        block_ns: 12_000.0,
        cursor_ns: 12_000.0,
        ..CostView::default()
    };
    counted(&mut world, [10_000; 3]);
    world
}

/// Sets the numbers of counted lookups, seeks and writes.
fn counted(world: &mut World, counted: [u64; 3]) {
    let [gets, seeks, writes] = counted.map(|count| count as f64);
    let entry_bytes = 1024.0;
    world.load = LoadView { gets, seeks, writes, entry_bytes, counted, clients: 1.0, ..LoadView::default() };
}

/// Returns the input of a policy call about `tree`, the view of `world`.
pub(crate) fn input<'a>(world: &'a World, tree: &'a TreeView, tickets: &'a [TicketView]) -> PolicyInput<'a> {
    PolicyInput {
        tree,
        tickets,
        load: &world.load,
        costs: &world.costs,
        limits: &world.limits,
        wanted: &[],
        wanted_seeks: &[],
        now: 1_000_000,
        seed: 0,
        frozen: false,
    }
}

/// Returns the policy `arce:<arguments>`, as with the feature `experiments`.
fn arce(arguments: &str) -> Box<dyn CompactionPolicy> {
    parse(&Arguments::new("arce", arguments), true).unwrap()
}

/// Returns the first decision of the policy `arce:<arguments>`.
fn decision(arguments: &str, world: &World) -> Decision {
    world.clone().decide(&mut *arce(arguments), 0)
}

/// Returns the number of inputs of each compaction that starts, without trivial moves.
fn begun(arguments: &str, world: &World) -> Vec<usize> {
    let plans = decision(arguments, world).plans;
    plans.iter().filter(|plan| !plan.reason.contains("0 bytes rewritten")).map(|p| p.take.len()).collect()
}

#[test]
fn names_are_checked() {
    let refused =
        |arguments: &str| parse(&Arguments::new("arce", arguments), true).expect_err("another argument").0;
    assert_eq!(
        refused("no-fun"),
        "arce = no-fun: no-fun: must be one of no-rho, no-park, no-between, no-first, no-horizon, no-even, \
         no-masks, no-prices, no-whole, no-paid"
    );
    assert_eq!(refused("no-park,8/24/2/1"), "arce = no-park,8/24/2/1: 8/24/2/1: a tuple comes first");
}

#[test]
fn without_rho_large_runs_are_merged_with_small_ones() {
    let world = world(&PAPER);
    assert_eq!(begun("50/none/2/1,no-first", &world), [6]);
    assert_eq!(begun("50/none/2/1,no-first,no-rho", &world), [8]);
}

#[test]
fn without_rho_no_search_tries_a_size_ratio() {
    let ratios = |arguments: &str| {
        let mut search = decision(arguments, &world(&[2; 20])).search.expect("the first search");
        let answer = core::iter::repeat_with(|| search.step()).find_map(|answer| answer).unwrap();
        let best = SearchResult::decode(&answer).unwrap().best;
        best.into_iter().map(|(tuple, _)| tuple.size_ratio.is_finite()).collect::<Vec<bool>>()
    };
    assert!(ratios("").contains(&true));
    assert!(!ratios("no-rho").contains(&true));
}

#[test]
fn a_short_merge_is_not_first_without_its_switch() {
    let world = world(&PAPER);
    assert_eq!(begun("50/none/2/none", &world), [6]);
    assert_eq!(begun("50/none/2/none,no-first", &world), [8]);
}

/// A compaction of all runs takes 33 flush intervals more than one of all runs but the largest, for one run more. So
/// it pays if M is above 33, or above half of that with `no-whole`.
#[test]
fn a_long_merge_costs_half_where_what_readers_lose_counts_by_half() {
    let world = world(&PAPER);
    for (horizon, expected) in [(10, [7, 7]), (25, [7, 8]), (50, [8, 8])] {
        let tuple = std::format!("{horizon}/none/2/none,no-first");
        assert_eq!([begun(&tuple, &world)[0], begun(&std::format!("{tuple},no-whole"), &world)[0]], expected);
    }
}

/// Returns the next decision while a compaction of all runs is running, an eighth of it done.
fn asked_beside_a_long_merge(arguments: &str, change: impl FnOnce(&mut World)) -> Decision {
    let mut world = world(&PAPER);
    let mut policy = arce(&std::format!("50/none/2/none,no-first{arguments}"));
    let whole = world.decide(&mut *policy, 0).plans.pop().expect("a merge of everything");
    world.admit(&whole, 8).unwrap();
    world.install(world.ready()[0], &mut *policy);
    change(&mut world);
    world.decide(&mut *policy, 0)
}

#[test]
fn what_no_longer_pays_goes_on_where_nothing_is_parked() {
    // From now on nearly all operations are writes, and the compaction would block others for many flushes.
    let writes = |world: &mut World| counted(world, [10_000, 10_000, 10_000_000]);
    assert_eq!(asked_beside_a_long_merge("", writes).withdraw.len(), 1);
    assert!(asked_beside_a_long_merge(",no-park", writes).withdraw.is_empty());
    assert!(asked_beside_a_long_merge("", |_| ()).withdraw.is_empty(), "it pays");
}

#[test]
fn nothing_comes_between_without_its_switch() {
    let flushes = |world: &mut World| {
        let other = &mut *by_name("tiering").unwrap();
        (0..4).for_each(|_| world.flush(other, 0, KEYS));
    };
    // The long one has spent what readers had paid.
    assert!(asked_beside_a_long_merge("", flushes).plans.is_empty());
    let plans = asked_beside_a_long_merge(",no-paid", flushes).plans;
    assert_eq!(plans.len(), 1);
    assert!(plans[0].reason.starts_with("elective, in between"), "{}", plans[0].reason);
    assert!(asked_beside_a_long_merge(",no-between,no-paid", flushes).plans.is_empty());
}

/// Readers do not pay twice for the removal of a run: none remains that the running compaction does not remove.
#[test]
fn what_a_running_compaction_removes_is_paid_for() {
    let explained = |tuple: &str, reason: Option<&str>| {
        let mut world = world(&PAPER);
        let mut policy = arce(&std::format!("{tuple},no-first,no-between"));
        let mut plan = world.decide(&mut *policy, 0).plans.pop().expect("a compaction");
        plan.reason = reason.map_or(plan.reason, Into::into);
        world.admit(&plan, 8).unwrap();
        counted(&mut world, [10_000, 10_000_000, 10_000]);
        world.decide(&mut *policy, 0);
        policy.explain()
    };
    let nothing = "; readers have paid for 0.00 us of compaction";
    for reason in [None, Some("manual compaction")] {
        let all = explained("50/none/2/none", reason);
        assert!(all.contains(nothing), "all runs: {all}");
        let newest = explained("50/none/2/1", reason);
        assert!(!newest.contains(nothing), "the newest runs: {newest}");
    }
}

#[test]
fn room_is_made_by_speed_where_evenness_does_not_count() {
    let mut world = world(&[2; 50]);
    world.costs.compaction_fixed_ns = 1e9;
    assert_eq!(begun("8/none/2/none", &world), [25]);
    assert_eq!(begun("8/none/2/none,no-even", &world), [50]);
}

#[test]
fn runs_without_common_keys_are_merged_only_where_nobody_looks_at_keys() {
    let mut other = by_name("tiering").unwrap();
    let mut world = world(&[]);
    (0..16).for_each(|part| world.flush(&mut *other, part * 100, part * 100 + 100));
    assert!(begun("50/none/2/none", &world).is_empty());
    assert_eq!(begun("50/none/2/none,no-masks", &world), [16]);
}

/// Small runs are cached: together they cost as much as a few uncached ones.
#[test]
fn every_run_is_as_dear_as_the_next_without_prices() {
    let mut sizes = Vec::from([1; 12]);
    sizes.extend([100, 1000]);
    let mut world = world(&sizes);
    world.costs.cursor_cached_ns = 1000.0;
    (world.costs.fetch_ns, world.costs.seek_blocks) = (11_000.0, 2.0);
    let worth = |arguments: &str| {
        let plan = decision(arguments, &world).plans.into_iter().next().expect("a merge");
        let (_, text) = plan.reason.split_once("; removes ").expect("runs that it removes");
        let (removed, text) = text.split_once(" covered runs (read cost ").expect("what they cost readers");
        [removed, text.split_once(')').unwrap().0].map(|number| number.parse::<f64>().unwrap())
    };
    let ([removed, priced], [all, even]) = (worth("50/none/2/none"), worth("50/none/2/none,no-prices"));
    assert!(priced < 0.5 * removed && even == all, "{removed} {priced}, {all} {even}");
}
