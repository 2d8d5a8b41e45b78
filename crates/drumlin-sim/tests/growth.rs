//! The growth policies on whole trees: exact costs, positions that survive a lost state, and foreign trees.

use drumlin_policy::pace::{WriteRate, write_rate};
use drumlin_policy::{SplitMix, by_name};
use drumlin_sim::World;
use drumlin_types::contract::{CompactionPolicy, LimitView, TreeView};

const UNIT: u64 = 1 << 20;

fn world() -> World {
    World::new(LimitView { memtable_bytes: UNIT, file_bytes: u64::MAX, ..LimitView::default() })
}

/// Number of runs above the two last levels.
fn horizontal_runs(tree: &TreeView) -> usize {
    tree.levels[..5].iter().map(|level| level.runs.len()).sum()
}

/// Where a policy says that it is.
#[derive(PartialEq, Eq, Debug)]
struct Place {
    cycle: u32,
    /// Whole units of the cycle that are there.
    unit: u16,
    /// Units of the cycle.
    units: u16,
}

/// Parses the first words of an explanation: "cycle 4: unit 7 of 36, ".
fn place(policy: &dyn CompactionPolicy) -> Place {
    fn after<T: core::str::FromStr>(text: &str, word: &str) -> Option<T> {
        let rest = &text[text.find(word)? + word.len()..];
        rest.split([':', ',', ' ']).next()?.parse().ok()
    }
    let text = policy.explain();
    let parsed = || Some((after(&text, "cycle ")?, after(&text, ": unit ")?, after(&text, " of ")?));
    let (cycle, unit, units) = parsed().expect("a cycle");
    Place { cycle, unit, units }
}

/// Flushes a unit and lets the policy finish.
fn flush(world: &mut World, policy: &mut dyn CompactionPolicy) {
    world.flush(policy, 0, 1 << 20);
    world.settle(policy, 1000).unwrap();
    world.check().unwrap();
}

/// Flushes a unit, and returns where the policy is then.
fn place_after_flush(world: &mut World, policy: &mut dyn CompactionPolicy) -> Place {
    flush(world, policy);
    place(policy)
}

/// Sum of the runs after each flush of a cycle, and the units merged in it above the last level: R and M.
///
/// `lambda` is the sum of h_l(t), the least R of a tiered schedule (Vertiorizon, Eq. 3).
#[test]
fn lazy_cycles_cost_what_the_schedule_says() {
    for (name, units, lambda, merged) in
        [("horizontal-lazy:4/3", 16, 45, 14), ("horizontal-lazy:6/3", 36, 168, 35)]
    {
        let mut world = world();
        let mut policy = by_name(name).unwrap();
        for cycle in 1..=4 {
            let before = world.totals.merged;
            let (mut runs, mut above) = (0, 0);
            for unit in 1..=units {
                flush(&mut world, &mut *policy);
                if unit < units {
                    runs += horizontal_runs(world.tree());
                    above = (world.totals.merged - before) / UNIT;
                }
            }
            assert_eq!((runs, above), (lambda, merged), "{name} cycle {cycle}");
            // The clear reads and writes the whole cycle and the last level, once.
            assert_eq!(horizontal_runs(world.tree()), 0);
            let cleared = (world.totals.merged - before) / UNIT - above;
            assert_eq!(cleared, cycle * units, "{name} cycle {cycle}");
            assert_eq!(world.tree().levels[6].runs.len(), 1);
        }
    }
}

/// A policy that is built anew after every flush, without a saved state, goes on as if nothing had happened. Only after
/// a clear, when the tree has no run of the cycle, does it need its state.
#[test]
fn between_clears_the_tree_alone_gives_the_position() {
    for name in [
        "horizontal-lazy:3/4",
        "horizontal-leveling:2",
        "horizontal-tiering:3",
        "vertiorizon",
        "vertiorizon:1.5",
    ] {
        let (mut kept, mut lost) = (world(), world());
        let mut policy = by_name(name).unwrap();
        let mut state = Vec::new();
        for flushes in 0..700 {
            flush(&mut kept, &mut *policy);
            let mut fresh = by_name(name).unwrap();
            if horizontal_runs(lost.tree()) == 0 && flushes > 0 {
                fresh.restore(&state).unwrap();
            }
            flush(&mut lost, &mut *fresh);
            state = fresh.save();
            let shape = |world: &World| -> Vec<Vec<u64>> {
                let level = |level: &drumlin_types::contract::LevelView| {
                    level.runs.iter().map(|run| run.bytes()).collect()
                };
                world.tree().levels.iter().map(level).collect()
            };
            assert_eq!(shape(&kept), shape(&lost), "{name} after {flushes} flushes");
        }
        assert_eq!(kept.totals.merged, lost.totals.merged);
    }
}

/// Returns a tree after one cycle of 16 units, so that the size of a unit is known.
fn after_one_cycle() -> (World, Box<dyn CompactionPolicy>) {
    let (mut world, mut policy) = (world(), by_name("horizontal-lazy:4/3").unwrap());
    (0..16).for_each(|_| flush(&mut world, &mut *policy));
    (world, policy)
}

/// Flushes far below a unit count by their bytes, not by their number.
#[test]
fn short_flushes_are_no_units() {
    let (mut world, mut policy) = after_one_cycle();
    let cleared = world.totals.merged;
    world.limits.memtable_bytes = UNIT / 16;
    for _ in 0..16 * 15 {
        flush(&mut world, &mut *policy);
        assert!(horizontal_runs(world.tree()) <= 14, "{}", horizontal_runs(world.tree()));
    }
    assert_eq!(world.tree().levels[6].bytes(), 16 * UNIT, "no clear within 15 units of bytes");
    let merged = (world.totals.merged - cleared) / UNIT;
    assert!(merged < 60, "{merged} units merged");
}

/// Merges wait, flushes do not: however late compactions are, they never write more than the schedule.
#[test]
fn lag_adds_no_bytes() {
    for seed in 0..40 {
        let mut dice = SplitMix::new(seed);
        let (mut lagging, mut prompt) = (world(), world());
        let mut policies = [by_name("horizontal-lazy:6/3").unwrap(), by_name("horizontal-lazy:6/3").unwrap()];
        for _ in 0..35 {
            flush(&mut prompt, &mut *policies[1]);
            lagging.flush(&mut *policies[0], 0, 1 << 20);
            if dice.one_in(3) {
                for plan in lagging.decide(&mut *policies[0], 0).plans {
                    lagging.admit(&plan, 1).unwrap();
                }
            }
            while dice.one_in(2)
                && let Some(&id) = lagging.ready().first()
            {
                lagging.install(id, &mut *policies[0]);
            }
        }
        while let Some(&id) = lagging.ready().first() {
            lagging.install(id, &mut *policies[0]);
        }
        lagging.settle(&mut *policies[0], 1000).unwrap();
        assert!(lagging.totals.merged <= prompt.totals.merged, "seed {seed}");
        // At rest the tree is the one that the schedule wants.
        assert_eq!(horizontal_runs(lagging.tree()), horizontal_runs(prompt.tree()), "seed {seed}");
    }
}

/// A tree of another policy goes into the last levels without being rewritten more than once.
#[test]
fn foreign_trees_are_cleared_once() {
    for name in ["vertiorizon", "horizontal-tiering", "horizontal-lazy"] {
        let mut world = world();
        let mut other = by_name("tiering:4").unwrap();
        for _ in 0..100 {
            flush(&mut world, &mut *other);
        }
        let before = world.totals.merged;
        let mut policy = by_name(name).unwrap();
        world.settle(&mut *policy, 1000).unwrap();
        world.check().unwrap();
        assert_eq!(horizontal_runs(world.tree()), 0, "{name}");
        let merged = (world.totals.merged - before) / UNIT;
        assert!(merged <= 100, "{name}: {merged} units merged");
    }
}

/// The lazy policy has cycles of T^(L-1) units, also if the policy before had nearly as many.
#[test]
fn lazy_cycles_have_their_length_after_another_policy() {
    for frozen in [false, true] {
        let (mut world, mut policy) = (world(), by_name("horizontal-tiering:2").unwrap());
        // Its n is within a sixth of 36.
        while !(37..=43).contains(&place_after_flush(&mut world, &mut *policy).units) {
            assert!(world.totals.flushed < 400 * UNIT, "{:?}", place(&*policy));
        }
        flush(&mut world, &mut *policy);
        let mut policy = by_name("horizontal-lazy:6/3").unwrap();
        world.frozen = frozen;
        policy.freeze(frozen);
        (0..80).for_each(|_| flush(&mut world, &mut *policy));
        assert_eq!(place(&*policy).units, 36, "frozen: {frozen}");
    }
}

/// The published scheme begins with eight units a cycle, however many the policy before had.
#[test]
fn published_cycles_begin_short_after_another_policy() {
    let (mut world, mut policy) = (world(), by_name("horizontal-leveling:1").unwrap());
    while world.tree().levels[6].bytes() < 100 * UNIT {
        flush(&mut world, &mut *policy);
    }
    let mut policy = by_name("horizontal-lazy:28/3").unwrap();
    assert_eq!(place_after_flush(&mut world, &mut *policy).units, 784);
    let mut policy = by_name("vertiorizon:paper").unwrap();
    assert_eq!(place_after_flush(&mut world, &mut *policy).units, 8);
}

/// The last run of a leveled tree that ends one level above the last is moved there, so that the first clear is divided
/// by its files.
#[test]
fn the_last_level_of_a_foreign_tree_is_moved() {
    let mut world = world();
    let mut other = by_name("leveling:2").unwrap();
    let mut flushes = 0;
    while world.tree().levels[5].runs.is_empty() {
        flush(&mut world, &mut *other);
        flushes += 1;
        assert!(flushes < 2000 && world.tree().levels[6].runs.is_empty(), "{flushes} flushes");
    }
    let mut policy = by_name("horizontal-leveling:2").unwrap();
    let plans = world.decide(&mut *policy, 0).plans;
    assert!(plans[0].out == 6 && plans[0].reason.contains("moves to level 6"), "{}", plans[0].reason);
    world.settle(&mut *policy, 1000).unwrap();
    world.check().unwrap();
    assert_eq!(world.tree().levels[6].runs.len(), 1);
}

/// The first cycle above a foreign tree is as long as one above a last level with all of it: writers need not wait for
/// the clear of the whole tree after a few flushes.
#[test]
fn the_first_cycle_above_a_large_foreign_tree_is_long() {
    let mut world = world();
    let mut other = by_name("tiering:4").unwrap();
    (0..1500).for_each(|_| flush(&mut world, &mut *other));
    let mut policy = by_name("horizontal-leveling:2").unwrap();
    world.flush(&mut *policy, 0, 1 << 20);
    world.decide(&mut *policy, 0);
    // The space target is 1.15.
    let text = policy.explain();
    assert!((200..250).contains(&place(&*policy).units), "{text}");
}

/// The reason of a clear names the bytes that its plan takes, and no others.
#[test]
fn reasons_of_clears_name_the_bytes_of_the_plan() {
    // With the second one V1 gets a new run with each clear.
    for name in ["vertiorizon", "vertiorizon:1.15/0.5"] {
        let (mut world, mut policy) = (world(), by_name(name).unwrap());
        let (mut pushed, mut kept) = (0, 0);
        for _ in 0..700 {
            world.flush(&mut *policy, 0, 1 << 20);
            for plan in world.decide(&mut *policy, 0).plans {
                if !plan.reason.contains(" clear: ") {
                    continue;
                }
                let files =
                    world.tree().files().filter(|(_, _, f)| plan.take.iter().any(|t| t.table == f.table));
                let taken: u64 = files.map(|(_, _, f)| f.bytes).sum();
                let words = plan.reason.split(['(', ')']).nth(1).unwrap();
                let size = |part: &str| -> f64 {
                    let (number, unit) = part.split_once(' ').unwrap();
                    let unit = if unit.starts_with("MiB of ") { 1.0 } else { 1024.0 };
                    number.parse::<f64>().unwrap() * unit
                };
                let named: f64 = words.split(", ").map(size).sum();
                // One decimal of a GiB.
                assert!(
                    (named - (taken / UNIT) as f64).abs() <= 52.0 * f64::from(words.contains("GiB")),
                    "{taken} bytes: {}",
                    plan.reason
                );
                pushed += usize::from(plan.reason.contains("push"));
                kept += usize::from(plan.reason.contains("keep in V1"));
            }
            world.settle(&mut *policy, 1000).unwrap();
        }
        assert!(pushed > 2 && kept > 2, "{name}: {pushed} pushed, {kept} kept");
    }
}

/// A read weight that is an argument is not explained as measured.
#[test]
fn a_fixed_read_weight_is_explained_as_fixed() {
    let (mut world, mut policy) = (world(), by_name("vertiorizon:1.15/2").unwrap());
    flush(&mut world, &mut *policy);
    let text = policy.explain();
    assert!(text.contains("read weight fixed at 2.000") && !text.contains("measured"), "{text}");
}

/// One damaged run among short flushes: newer ones are merged without it.
#[test]
fn a_damaged_short_flush_does_not_stop_the_merges_of_later_ones() {
    let (mut world, mut policy) = after_one_cycle();
    world.limits.memtable_bytes = UNIT / 64;
    flush(&mut world, &mut *policy);
    damage(&mut *policy, &mut world, 0);
    for flushes in 0..64 {
        flush(&mut world, &mut *policy);
        let runs = horizontal_runs(world.tree());
        assert!(runs <= 12, "{runs} runs after {flushes} flushes");
    }
}

/// When writes stop and reads go on, at most three steps bring the tree to its last levels: they cost no more than what
/// readers have spent on the runs before.
#[test]
fn readers_of_a_quiet_tree_pay_for_a_collapse() {
    let mut world = world();
    let mut policy = by_name("vertiorizon:2").unwrap();
    for _ in 0..200 {
        flush(&mut world, &mut *policy);
    }
    while horizontal_runs(world.tree()) < 3 {
        flush(&mut world, &mut *policy);
    }
    let (before, plans) = (world.totals.merged, world.totals.plans);
    // Each run costs readers 1000 seconds a second, and the clock of this world advances by a microsecond a decision: a
    // millisecond for each run and decision.
    world.load.gets = 1e9;
    world.costs.probe_ns = 1000.0;
    let (mut decisions, mut spent) = (0, 0.0);
    while horizontal_runs(world.tree()) > 0 {
        spent += horizontal_runs(world.tree()) as f64 * 1e-3;
        world.settle(&mut *policy, 1000).unwrap();
        decisions += 1;
        assert!(decisions < 10_000_000, "{} runs are left", horizontal_runs(world.tree()));
    }
    assert!(world.totals.plans - plans <= 3, "{} plans", world.totals.plans - plans);
    // At 150 MB/s. Readers paid for at least the half of what was merged, and for no more than twice as much.
    let paid = spent * 150e6;
    let merged = (world.totals.merged - before) as f64;
    assert!((0.5..=2.0).contains(&(merged / paid)), "{merged} bytes for {paid}");
}

/// A part of a unit that a collapse merges with whole units is no unit.
#[test]
fn a_collapse_does_not_count_a_short_flush_as_a_unit() {
    let (mut world, mut policy) = (world(), by_name("vertiorizon:2").unwrap());
    (0..200).for_each(|_| flush(&mut world, &mut *policy));
    while horizontal_runs(world.tree()) < 3 {
        flush(&mut world, &mut *policy);
    }
    let before = place(&*policy);
    world.limits.memtable_bytes = UNIT / 64;
    flush(&mut world, &mut *policy);
    assert_eq!(place(&*policy), before);
    world.load.gets = 1e9;
    world.costs.probe_ns = 1000.0;
    let mut decisions = 0;
    while horizontal_runs(world.tree()) > 1 {
        world.settle(&mut *policy, 1000).unwrap();
        decisions += 1;
        assert!(decisions < 10_000_000, "{} runs are left", horizontal_runs(world.tree()));
    }
    world.decide(&mut *policy, 0);
    assert_eq!(place(&*policy), before);
}

/// A frozen policy keeps its schedule. Its cycles still grow with the store, or the bytes written would.
#[test]
fn frozen_cycles_grow_with_the_store() {
    let units = |frozen: bool| {
        let mut world = world();
        world.frozen = frozen;
        let mut policy = by_name("horizontal-tiering:2").unwrap();
        policy.freeze(frozen);
        for _ in 0..1500 {
            flush(&mut world, &mut *policy);
        }
        world.totals.merged / UNIT
    };
    let (free, frozen) = (units(false), units(true));
    assert!(frozen as f64 <= 1.3 * free as f64, "{frozen} units merged, {free} unfrozen");
}

/// Very short flushes are merged about as often as their number can be halved.
#[test]
fn very_short_flushes_are_merged_seldom() {
    let (mut world, mut policy) = after_one_cycle();
    let before = world.totals.merged;
    world.limits.memtable_bytes = UNIT / 256;
    for _ in 0..256 * 4 {
        flush(&mut world, &mut *policy);
    }
    let merged = (world.totals.merged - before) / UNIT;
    assert!(merged <= 4 * 8, "{merged} units merged for four units");
}

/// Marks the files of one run as damaged.
fn damage(policy: &mut dyn CompactionPolicy, world: &mut World, level: usize) {
    let table = world.tree().levels[level].runs.last().expect("a run").files[0].table;
    world.damage(table);
    world.settle(policy, 1000).unwrap();
}

/// A damaged table in any part of the tree slows no writer at rest: the runs of later cycles still become few, except
/// where the damaged table keeps them from going down.
#[test]
fn a_damaged_table_does_not_stop_writers() {
    /// Most runs in the end, with those above a damaged table.
    const MOST_RUNS: usize = 100;
    let mut tried = 0;
    for name in ["vertiorizon", "horizontal-leveling:1", "horizontal-leveling:2"] {
        for level in [0, 4, 5, 6] {
            let mut world = world();
            let mut policy = by_name(name).unwrap();
            for _ in 0..400 {
                flush(&mut world, &mut *policy);
            }
            let mut waited = 0;
            while world.tree().levels[level].runs.is_empty() && waited < 100 {
                flush(&mut world, &mut *policy);
                waited += 1;
            }
            if world.tree().levels[level].runs.is_empty() {
                continue;
            }
            damage(&mut *policy, &mut world, level);
            tried += 1;
            for flushes in 0..400 {
                world.flush(&mut *policy, 0, 1 << 20);
                world.settle(&mut *policy, 1000).unwrap();
                let pace = world.decide(&mut *policy, 0).pace.unwrap();
                let (found, counted) = (world.tree().runs(), pace.covered.unwrap());
                let rate = write_rate(&pace, counted, 150e6);
                assert_eq!(
                    rate,
                    WriteRate::Open,
                    "{name} level {level}: {counted} runs after {flushes} flushes"
                );
                assert!(found <= MOST_RUNS, "{name} level {level}: {found} runs after {flushes} flushes");
            }
        }
    }
    // A policy without V1 has no run there.
    assert!(tried >= 8, "{tried} damaged tables");
}

/// A damaged old run stays in level 0. A merged run that does not overlap it went deeper, and units that overlap both
/// are merged without it: neither do writers wait, nor is the cycle cleared early.
#[test]
fn merges_above_a_damaged_run_do_not_wait_for_deeper_runs() {
    const MIDDLE: u32 = 1 << 19;
    let (mut world, mut policy) = (world(), by_name("horizontal-leveling:1").unwrap());
    world.limits.file_bytes = 8 * UNIT;
    (0..400).for_each(|_| flush(&mut world, &mut *policy));
    world.flush(&mut *policy, 0, MIDDLE);
    damage(&mut *policy, &mut world, 0);
    let cycle = place(&*policy);
    assert!(cycle.unit == 0 && cycle.units >= 30, "{cycle:?}");
    let (old, below) = (horizontal_runs(world.tree()), world.tree().levels[4].runs.len());
    assert_eq!(old - below, 1, "the damaged run, and what it keeps from going down");
    for _ in 0..2 {
        world.flush(&mut *policy, MIDDLE, 1 << 20);
        world.settle(&mut *policy, 1000).unwrap();
    }
    assert_eq!(world.tree().levels[4].runs.len(), below + 1, "the two units overlap nothing");
    for flushes in 1..=25 {
        flush(&mut world, &mut *policy);
        let pace = world.decide(&mut *policy, 0).pace.unwrap();
        let counted = pace.covered.unwrap();
        assert_eq!(write_rate(&pace, counted, 150e6), WriteRate::Open, "{counted} runs, {flushes} flushes");
        assert_eq!(place(&*policy), Place { unit: 2 + flushes, ..place(&*policy) });
        assert_eq!(place(&*policy).cycle, cycle.cycle, "cleared early");
        let runs = horizontal_runs(world.tree());
        assert!(runs <= old + 2, "{runs} runs after {flushes} flushes, {old} old");
    }
}
