//! Consequences of ARCE's rules on whole trees: it rewrites nothing needlessly, every tree comes to rest, the bounds
//! hold, and decisions are legal and quickly repeatable.

use drumlin_policy::{SplitMix, by_name};
use drumlin_sim::World;
use drumlin_types::Ticket;
use drumlin_types::contract::{
    CompactionPolicy, CostView, FileView, LimitView, LoadView, Outcome, Plan, PlanResult, TreeView,
};

const FLUSH: u64 = 2 << 20;
const KEYS: u32 = 1 << 20;

fn world(slots: u32) -> World {
    World::new(LimitView { memtable_bytes: FLUSH, file_bytes: 16 * FLUSH, slots, ..LimitView::default() })
}

/// Returns a load with these rates of lookups, seeks and writes per second, and the counts of `seconds` seconds.
fn load(gets: f64, seeks: f64, writes: f64, seconds: f64) -> LoadView {
    let counted = [gets, seeks, writes].map(|rate| (rate * seconds) as u64);
    LoadView { gets, seeks, writes, entry_bytes: 1024.0, counted, clients: 1.0, ..LoadView::default() }
}

/// Completes all searches of a decision at once, and executes its plans. Returns the number of compactions.
fn settle(world: &mut World, policy: &mut dyn CompactionPolicy, most: usize) -> usize {
    let mut merges = 0;
    for round in 0..most {
        let decision = world.decide(policy, round as u64);
        if let Some(mut search) = decision.search {
            let answer = loop {
                if let Some(answer) = search.step() {
                    break answer;
                }
            };
            policy.observe(&Outcome::SearchEnded(answer));
        } else if decision.plans.is_empty() {
            return merges;
        }
        for plan in &decision.plans {
            world.admit(plan, 3).unwrap_or_else(|e| panic!("{}: {e}", plan.reason));
            merges += 1;
        }
        while let Some(&id) = world.ready().first() {
            world.install(id, policy);
        }
    }
    panic!("no end after {most} decisions");
}

#[test]
fn a_sorted_load_is_never_rewritten() {
    let (mut world, mut policy) = (world(1), by_name("arce").unwrap());
    for part in 0..600 {
        world.flush(&mut *policy, part * 100, part * 100 + 100);
        settle(&mut world, &mut *policy, 100);
    }
    world.check().unwrap();
    assert_eq!(world.totals.merged, 0);
    assert!(world.tree().runs() <= 3, "{} runs", world.tree().runs());
}

#[test]
fn writes_alone_wait_for_too_many_runs() {
    let (mut world, mut policy) = (world(1), by_name("arce").unwrap());
    let mut most = 0;
    for flush in 0..400 {
        world.load = load(0.0, 0.0, 50_000.0, f64::from(flush));
        world.flush(&mut *policy, 0, KEYS);
        if flush == 20 {
            assert_eq!(world.totals.merged, 0, "without reads, nothing is compacted");
        }
        settle(&mut world, &mut *policy, 100);
        most = most.max(world.tree().runs());
    }
    assert!((25..=64).contains(&most), "{most} runs");
    let amplification = world.totals.merged as f64 / world.totals.flushed as f64;
    assert!(amplification < 4.0, "a write-only load has write amplification {amplification}");
}

/// Near the end of the disk budget, compactions free what they can although there are no reads. They stop when they
/// free nothing.
#[test]
fn a_short_disk_is_freed_while_merges_free_anything() {
    let runs_left = |used: u64, ratio: u64| {
        let (mut world, mut policy) = (world(1), by_name("arce").unwrap());
        (world.limits.disk_budget, world.limits.disk_used) = (1000, used);
        let merge = |bytes_out| Outcome::Plan {
            ticket: Ticket(1 << 40),
            reason: String::new(),
            result: PlanResult::Done,
            why: String::new(),
            bytes_in: 100,
            bytes_out,
            dropped: 0,
        };
        for _ in 0..8 {
            world.flush(&mut *policy, 0, KEYS);
        }
        world.load = load(0.0, 0.0, 50_000.0, 1.0);
        // Compactions in this world free nothing, so each is reported with the given output ratio.
        for round in 0..20 {
            policy.observe(&merge(ratio));
            let decision = world.decide(&mut *policy, round);
            for plan in &decision.plans {
                assert!(plan.reason.contains("disk space is short, 950 B of 1000 B"), "{}", plan.reason);
                world.admit(plan, 1).unwrap();
            }
            while let Some(&id) = world.ready().first() {
                world.install(id, &mut *policy);
                (0..8).for_each(|_| policy.observe(&merge(ratio)));
            }
        }
        world.tree().runs()
    };
    assert_eq!(runs_left(890, 50), 8, "there is free space and there are no reads");
    assert_eq!(runs_left(950, 50), 1, "compactions free half of their input");
    assert_eq!(runs_left(950, 100), 8, "compactions would free nothing");
}

#[test]
fn reads_merge_deep_and_then_stop() {
    for (gets, seeks) in [(0.0, 10_000.0), (100_000.0, 0.0), (5000.0, 5000.0)] {
        let (mut world, mut policy) = (world(2), by_name("arce").unwrap());
        for _ in 0..20 {
            world.flush(&mut *policy, 0, KEYS);
        }
        let mut quiet = 0;
        for second in 1..200 {
            world.load = load(gets, seeks, 0.0, f64::from(second));
            world.now += 1_000_000;
            quiet = if settle(&mut world, &mut *policy, 100) == 0 { quiet + 1 } else { 0 };
        }
        assert!(quiet > 100, "reads alone cause endless compaction");
        assert!(world.tree().runs() <= 2, "{} runs", world.tree().runs());
        assert!(world.totals.merged <= 4 * world.totals.flushed, "{:?}", world.totals);
    }
}

#[test]
fn a_hot_range_is_merged_without_the_rest() {
    let (mut world, mut policy) = (world(1), by_name("arce").unwrap());
    for part in 0..200 {
        world.flush(&mut *policy, part * 5000, part * 5000 + 5000);
        settle(&mut world, &mut *policy, 100);
    }
    let filled = world.tree().bytes();
    for second in 0..200 {
        world.load = load(1000.0, 1000.0, 2000.0, f64::from(second));
        world.flush(&mut *policy, 20_000, 22_000);
        settle(&mut world, &mut *policy, 100);
    }
    let hot = world.totals.flushed - filled;
    assert!(world.totals.merged < 30 * hot, "{} compacted for {hot} written", world.totals.merged);
    world.check().unwrap();
}

/// Returns whether the inputs of a plan are neighbours in age for every key, with no remaining run between them.
fn is_age_contiguous(tree: &TreeView, plan: &Plan) -> bool {
    let age = |level: u8, max_seq: u64| (level, u64::MAX - max_seq);
    let files: Vec<_> = tree.files().collect();
    let is_taken = |f: &FileView| plan.take.iter().any(|t| t.table == f.table && t.range.overlaps(&f.bounds));
    files.iter().filter(|(.., f)| !is_taken(f)).all(|(level, _, stays)| {
        let inputs = || files.iter().filter(|(.., f)| is_taken(f) && f.bounds.overlaps(&stays.bounds));
        let newer = inputs().any(|(l, _, f)| age(*l, f.max_seq) < age(*level, stays.max_seq));
        let older = inputs().any(|(l, _, f)| age(*l, f.max_seq) > age(*level, stays.max_seq));
        !(newer && older)
    })
}

#[test]
fn random_trees_keep_every_rule() {
    let (mut plans, mut pieces, mut beside) = (0, 0, 0);
    for seed in 0..30 {
        let mut dice = SplitMix::new(seed);
        let mut world = world(1 + seed as u32 % 3);
        let mut policy = by_name("arce").unwrap();
        let mut counted = [0.0f64; 3];
        for _ in 0..150 {
            let rates = [0, 1, 2].map(|_| dice.below(20_000) as f64);
            counted = [0, 1, 2].map(|kind| counted[kind] + rates[kind]);
            world.load = load(rates[0], rates[1], rates[2], 1.0);
            world.load.counted = counted.map(|count| count as u64);
            world.now += 1_000_000;
            match dice.below(4) {
                0 => {
                    let from = dice.below(KEYS as usize / 2) as u32;
                    let to = from + 1 + dice.below(KEYS as usize / 2) as u32;
                    world.flush(&mut *policy, from, to);
                }
                1 | 2 => world.flush(&mut *policy, 0, KEYS),
                _ => {}
            }
            let decision = world.decide(&mut *policy, 0);
            for ticket in decision.withdraw {
                world.withdraw(ticket, &[], &mut *policy);
                world.check().unwrap();
            }
            for plan in &decision.plans {
                // The tree after everything under way, including the earlier plans of this decision.
                let tree = world.view().projected();
                assert!(is_age_contiguous(&tree, plan), "seed {seed}: {}", plan.reason);
                beside += u32::from(world.in_flight() > 0);
                world
                    .admit(plan, 1 + dice.below(5) as u32)
                    .unwrap_or_else(|e| panic!("{}: {e}", plan.reason));
                plans += 1;
            }
            for _ in 0..dice.below(4) {
                let ready = world.ready();
                let Some(&id) = ready.get(dice.below(ready.len())) else { break };
                world.install(id, &mut *policy);
                world.check().unwrap();
                pieces += 1;
            }
        }
        while let Some(&id) = world.ready().first() {
            world.install(id, &mut *policy);
        }
        world.load = load(0.0, 0.0, 0.0, 0.0);
        settle(&mut world, &mut *policy, 1000);
        assert!(world.tree().runs() <= 64 + 8);
    }
    assert!(
        plans > 300 && pieces > 600 && beside > 100,
        "too little happened: {plans} plans, {pieces} pieces, {beside} beside others"
    );
}

#[test]
fn damaged_state_is_refused_or_comes_into_bounds() {
    let (mut first, mut policy) = (world(1), by_name("arce").unwrap());
    for second in 0..60 {
        first.load = load(3000.0, 500.0, 2000.0, f64::from(second));
        first.now += 1_000_000;
        first.flush(&mut *policy, 0, KEYS);
        settle(&mut first, &mut *policy, 100);
    }
    let blob = policy.save();
    let mut policy = by_name("arce").unwrap();
    for wrong in [&[][..], &[200, 1, 3], &[3, 9]] {
        assert!(policy.restore(wrong).is_err());
    }
    for at in 0..blob.len() {
        let mut bytes = blob.clone();
        bytes[at] ^= 0xff;
        if policy.restore(&bytes).is_ok() {
            let mut world = world(1);
            world.flush(&mut *policy, 0, KEYS);
            let pace = world.decide(&mut *policy, 0).pace.unwrap();
            assert!(pace.slow >= 0.0 && pace.passes >= 0.25);
        }
    }
}

/// Returns the parameters, the mix, the learned figures of flushes and compactions, and the cost of runs, from the
/// policy's explanation.
fn told(policy: &dyn CompactionPolicy) -> Vec<String> {
    let state = policy.explain();
    let line = |start: &str| state.lines().find(|line| line.starts_with(start)).expect("a line").to_owned();
    let load = line("load: ");
    let flush = line("one more run costs ");
    let flush = flush.split_once("a flush ").expect("its bytes").1.to_owned();
    let load = load.split_once(';').expect("shares").0.to_owned();
    [line("tuple"), load, flush].into()
}

/// While frozen, changes of load, flushes or compactions do not change what was learned, also across a restart. The
/// policy still compacts. Operations counted while frozen do not look like a change after thawing.
#[test]
fn what_is_frozen_holds_what_it_has_learned() {
    let (mut world, mut policy) = (world(1), by_name("arce").unwrap());
    let mut second = 0.0;
    let mut counted = [0.0; 3];
    let mut lives = |world: &mut World, policy: &mut dyn CompactionPolicy, rates: [f64; 3], seconds: u32| {
        for _ in 0..seconds {
            second += 1.0;
            counted.iter_mut().zip(rates).for_each(|(sum, rate)| *sum += rate);
            let [gets, seeks, writes] = rates;
            world.load =
                LoadView { counted: counted.map(|sum| sum as u64), ..load(gets, seeks, writes, second) };
            world.now += 1_000_000;
            world.flush(policy, 0, KEYS);
            settle(world, policy, 100);
        }
    };
    lives(&mut world, &mut *policy, [3000.0, 500.0, 2000.0], 30);
    let before = told(&*policy);
    let merged = world.totals.merged;
    world.frozen = true;
    // Only seeks, and flushes of half the size.
    world.decide(&mut *policy, 0);
    world.limits.memtable_bytes /= 2;
    lives(&mut world, &mut *policy, [0.0, 4000.0, 0.0], 20);
    assert_eq!(told(&*policy), before);
    assert!(world.totals.merged > merged, "it still compacts");
    let blob = policy.save();
    policy = by_name("arce").unwrap();
    policy.restore(&blob).unwrap();
    // Flushes before the first decision are not learned from either.
    world.flush(&mut *policy, 0, KEYS);
    lives(&mut world, &mut *policy, [0.0, 4000.0, 0.0], 20);
    assert_eq!(told(&*policy), before, "after a restart");
    world.frozen = false;
    lives(&mut world, &mut *policy, [3000.0, 500.0, 2000.0], 1);
    assert_eq!(told(&*policy)[1], before[1], "the mix counted while frozen is not a change");
    lives(&mut world, &mut *policy, [0.0, 4000.0, 0.0], 20);
    assert_ne!(told(&*policy)[1], before[1], "it learns again");
}

#[test]
fn no_figure_whatever_breaks_it() {
    let figures = [0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e-300, 1e300, 1.0, 150e6];
    let mut dice = SplitMix::new(9);
    for seed in 0..60 {
        let (mut world, mut policy) = (world(1 + seed % 4), by_name("arce").unwrap());
        for _ in 0..12 {
            let mut figure = || figures[dice.below(figures.len())];
            world.costs = CostView {
                compaction_bytes_per_s: figure(),
                compaction_fixed_ns: figure(),
                flush_bytes_per_s: figure(),
                probe_ns: figure(),
                block_ns: figure(),
                cursor_ns: figure(),
                cursor_cached_ns: figure(),
                seek_blocks: figure(),
                fetch_ns: figure(),
                get_ns: figure(),
                scan_ns: figure(),
                write_ns: figure(),
                busy_share: figure(),
            };
            world.load = LoadView {
                gets: figure(),
                seeks: figure(),
                writes: figure(),
                write_bytes: figure(),
                entry_bytes: figure(),
                read_bytes: figure(),
                clients: figure(),
                waited: figure(),
                memtable_fill: figure(),
                ..LoadView::default()
            };
            // Counters that advance, stand still or go back.
            world.load.counted = [0, 1, 2].map(|_| dice.next_u64() >> dice.below(60));
            world.now = dice.next_u64() >> dice.below(60);
            world.limits.max_runs = dice.below(600) as u32;
            world.limits.max_write_amp = figures[dice.below(figures.len())];
            world.flush(&mut *policy, 0, KEYS);
            let decision = world.decide(&mut *policy, 0);
            let pace = decision.pace.unwrap();
            assert!(!pace.slow.is_nan() && pace.drain.is_finite() && pace.drain >= 0.0, "{pace:?}");
            assert!(pace.covered.is_some_and(|runs| runs.is_finite()), "{pace:?}");
            for plan in &decision.plans {
                world.admit(plan, 2).unwrap();
            }
            if let Some(mut search) = decision.search {
                // Some searches finish, others do not.
                let answer = (0..8).find_map(|_| search.step());
                answer.into_iter().for_each(|answer| policy.observe(&Outcome::SearchEnded(answer)));
            }
            while let Some(&id) = world.ready().first() {
                world.install(id, &mut *policy);
            }
            assert!(policy.explain().len() > 100);
        }
        world.check().unwrap();
    }
}

#[test]
fn pieces_that_are_read_most_go_first() {
    let (mut world, mut policy) = (world(1), by_name("arce").unwrap());
    // Four fifths of the wanted keys lie in one fifth of the key space.
    let step = |n: u32| if n < 205 { n * (KEYS / 5 / 205) } else { KEYS / 5 + (n - 205) * (KEYS / 64) };
    world.wanted = (0..256).map(|n| drumlin_sim::world::key(step(n))).collect();
    (0..20).for_each(|_| world.flush(&mut *policy, 0, KEYS));
    world.load = load(5000.0, 5000.0, 0.0, 1.0);
    let plans = world.decide(&mut *policy, 0).plans;
    let edge = drumlin_sim::world::key(KEYS / 5);
    let values = &plans[0].piece_priority;
    let sum =
        |hot: bool| values.iter().filter(|(r, _)| (r.start < edge) == hot).map(|(_, v)| *v).sum::<f64>();
    let share = sum(true) / (sum(true) + sum(false));
    assert!((share - 0.8).abs() < 0.03, "{share} of the value in the hot fifth: {values:?}");
    let removed = sum(true) + sum(false);
    assert!((removed - plans[0].priority).abs() < 1e-6, "{removed} runs removed in all");
}

#[test]
fn elective_bytes_stay_below_their_bound_in_every_interval() {
    for seed in 0..8 {
        let mut dice = SplitMix::new(100 + seed);
        let (mut world, mut policy) = (world(1 + seed as u32 % 2), by_name("arce").unwrap());
        world.limits.max_write_amp = 3.0;
        let mut counted = [0.0f64; 3];
        // After each second: elective bytes, bytes flushed, bytes read, bytes of the tree.
        let mut log: Vec<[f64; 4]> = Vec::new();
        let (mut elective, mut read) = (0.0, 0.0);
        for _ in 0..200 {
            let rates = [dice.below(20_000) as f64, dice.below(20_000) as f64, dice.below(2000) as f64];
            counted = [0, 1, 2].map(|kind| counted[kind] + rates[kind]);
            world.load = load(rates[0], rates[1], rates[2], 1.0);
            world.load.counted = counted.map(|count| count as u64);
            world.load.read_bytes = dice.below(1 << 20) as f64;
            read += world.load.read_bytes;
            world.now += 1_000_000;
            if dice.one_in(3) {
                world.flush(&mut *policy, 0, KEYS);
            }
            let decision = world.decide(&mut *policy, 0);
            for plan in &decision.plans {
                let taken = |table| plan.take.iter().any(|take| take.table == table);
                let bytes: u64 =
                    world.tree().files().filter(|(.., f)| taken(f.table)).map(|(.., f)| f.bytes).sum();
                elective += if plan.reason.starts_with("elective") { bytes as f64 } else { 0.0 };
                world.admit(plan, 2).unwrap();
            }
            while let Some(&id) = world.ready().first() {
                world.install(id, &mut *policy);
            }
            log.push([elective, world.totals.flushed as f64, read, world.tree().bytes() as f64]);
        }
        assert!(elective > 0.0);
        for _ in 0..500 {
            let from = dice.below(log.len() - 1);
            let to = from + 1 + dice.below(log.len() - from - 1);
            let [spent, flushed, reads] = [0, 1, 2].map(|figure| log[to][figure] - log[from][figure]);
            let (tree, days) = (log[to][3], (to - from) as f64 / 86_400.0);
            // Allowance from before the first decision of the interval is covered by the term of two trees.
            let bound =
                2.0 * tree + 3.0 * (flushed + FLUSH as f64) + reads / 4.0 + (1 << 18) as f64 + tree * days;
            assert!(spent <= bound, "seed {seed}, {from} to {to}: {spent} of {bound}");
        }
    }
}

/// One client runs in a closed loop. Its seeks fetch a block of each run or find it in the cache: the same operations
/// on the same tree. The gain of a compaction is what a run costs readers, and cached runs cost next to nothing.
#[test]
fn runs_that_are_cached_are_merged_less_than_those_on_a_device() {
    const OPERATIONS: u64 = 2048;
    let elective = |fetch_ns: f64| {
        let (mut world, mut policy) = (world(1), by_name("arce:8/none/2/none").unwrap());
        let mut bytes = 0;
        for flush in 1..200 {
            let runs = world.tree().runs() as f64;
            let (place, write) = (1000.0, 1000.0);
            let seek = place + runs * (place + fetch_ns);
            let seconds = OPERATIONS as f64 * (seek + write) / 1e9;
            let rate = OPERATIONS as f64 / seconds;
            let counted = [0, flush * OPERATIONS, flush * OPERATIONS];
            world.load = LoadView { counted, ..load(0.0, rate, rate, 0.0) };
            world.costs = CostView {
                compaction_bytes_per_s: 150e6,
                compaction_fixed_ns: 1e6,
                cursor_ns: place + fetch_ns,
                cursor_cached_ns: place,
                fetch_ns,
                seek_blocks: if fetch_ns > 0.0 { 0.9 * runs } else { 0.0 },
                scan_ns: seek,
                write_ns: write,
                get_ns: place,
                ..CostView::default()
            };
            world.now += (seconds * 1e6) as u64;
            world.flush(&mut *policy, 0, KEYS);
            for plan in world.decide(&mut *policy, 0).plans {
                let taken = |table| plan.take.iter().any(|take| take.table == table);
                let inputs = world.tree().files().filter(|(.., f)| taken(f.table));
                let inputs: u64 = inputs.map(|(.., f)| f.bytes).sum();
                bytes += if plan.reason.starts_with("elective") { inputs } else { 0 };
                world.admit(&plan, 1).unwrap();
            }
            while let Some(&id) = world.ready().first() {
                world.install(id, &mut *policy);
            }
        }
        bytes
    };
    let (cached, device) = (elective(0.0), elective(100_000.0));
    assert!(cached > 0 && cached < device / 2, "{cached} bytes for cached runs, {device} on a device");
}

#[test]
fn an_idle_store_comes_to_rest() {
    let (mut world, mut policy) = (world(1), by_name("arce").unwrap());
    for second in 0..30 {
        world.load = load(2000.0, 2000.0, 2000.0, f64::from(second));
        world.now += 1_000_000;
        world.flush(&mut *policy, 0, KEYS);
        settle(&mut world, &mut *policy, 100);
    }
    let (merged, counted) = (world.totals.merged, world.load.counted);
    let mut merges = 0;
    for _ in 0..3600 {
        // The rates decay as in the engine, and no further operations are counted.
        world.load = load(2000.0, 2000.0, 2000.0, 0.0);
        world.load.counted = counted;
        world.now += 1_000_000;
        merges += settle(&mut world, &mut *policy, 100);
    }
    assert!(merges <= 3, "{merges} compactions of an idle store");
    assert!(world.totals.merged - merged <= 3 * world.tree().bytes());
}

#[test]
fn a_bulk_load_waits_for_its_end() {
    let (mut world, mut policy) = (world(1), by_name("arce").unwrap());
    for flush in 1..=40 {
        world.load = load(0.0, 0.0, 100_000.0, f64::from(flush) / 50.0);
        world.flush(&mut *policy, 0, KEYS);
        settle(&mut world, &mut *policy, 100);
        if flush == 24 {
            // Before any operation is counted, the policy assumes some reads.
            assert!(world.totals.merged <= 2 * FLUSH, "nothing reads a store that is being loaded");
        }
    }
    let loaded = world.totals.merged;
    for second in 1..30 {
        world.load = load(10_000.0, 1000.0, 0.0, f64::from(second));
        world.load.counted[2] = 80_000;
        world.now += 1_000_000;
        settle(&mut world, &mut *policy, 100);
    }
    assert!(world.tree().runs() <= 2 && world.totals.merged > loaded, "{} runs", world.tree().runs());
}

/// A long compaction may be late because flushes come more often than predicted. Compactions in between still go
/// first, otherwise runs would pile up until the long one ends.
#[test]
fn what_comes_in_between_goes_before_a_merge_that_is_late() {
    let (mut world, mut policy) = (world(1), by_name("arce:200/none/1/none").unwrap());
    let mut seconds = 0.0;
    let mut next = |world: &mut World| {
        seconds += 1.0;
        world.now += 1_000_000;
        world.load = load(100.0, 10_000.0, 10_000.0, seconds);
    };
    for _ in 0..300 {
        world.flush(&mut *policy, 0, KEYS);
    }
    next(&mut world);
    settle(&mut world, &mut *policy, 100);
    assert_eq!(world.tree().runs(), 1);
    world.flush(&mut *policy, 0, KEYS);
    let mut waited = 0;
    let whole = loop {
        next(&mut world);
        if let Some(plan) = world.decide(&mut *policy, 0).plans.pop() {
            break plan;
        }
        waited += 1;
        assert!(waited < 1000, "removing a run pays for the readers");
    };
    assert!(waited > 0, "readers pay first");
    let long = world.admit(&whole, 32).unwrap();
    let due = whole.deadline.expect("a deadline");
    let mut between = 0;
    for flush in 302..due + 40 {
        next(&mut world);
        world.flush(&mut *policy, 0, KEYS);
        for plan in world.decide(&mut *policy, flush).plans {
            assert!(plan.reason.contains("in between"), "{}", plan.reason);
            let ticket = world.admit(&plan, 1).unwrap();
            let first = world.next_ready(|_| false).expect("a piece");
            assert_eq!(first.ticket, ticket, "after {flush} flushes, due at {due}");
            world.install(first, &mut *policy);
            between += u32::from(flush > due);
        }
    }
    assert!(between > 0 && world.is_under_way(long), "nothing ran in between once it was late");
}

/// A search may wait a long time for CPU budget. A changed operation mix starts another, urgent search, and a few
/// operations suffice to detect it. Other triggers wait.
#[test]
fn another_mix_is_searched_for_while_a_search_waits() {
    let (mut world, mut policy) = (world(1), by_name("arce").unwrap());
    let mut counted = [0u64; 3];
    let mut decide = |world: &mut World, [gets, seeks, writes]: [u64; 3]| {
        counted.iter_mut().zip([gets, seeks, writes]).for_each(|(sum, news)| *sum += news);
        let rates = [gets, seeks, writes].map(|news| news as f64);
        world.load = LoadView { counted, ..load(rates[0], rates[1], rates[2], 0.0) };
        world.now += 1_000_000;
        world.decide(&mut *policy, world.now).search
    };
    for _ in 0..8 {
        world.flush(&mut *by_name("tiering").unwrap(), 0, KEYS);
    }
    let first = decide(&mut world, [0, 64, 8000]).expect("none before");
    assert!(!first.is_urgent());
    for _ in 0..20 {
        world.flush(&mut *by_name("tiering").unwrap(), 0, KEYS);
        assert!(decide(&mut world, [0, 64, 8000]).is_none(), "the tree grows during a search");
    }
    let seen: Vec<bool> =
        (0..4).map(|_| decide(&mut world, [0, 256, 0])).map(|s| s.is_some_and(|s| s.is_urgent())).collect();
    assert_eq!(seen.iter().filter(|seen| **seen).count(), 1, "{seen:?}");
    assert!(seen[..3].contains(&true), "768 operations of another mix are not enough: {seen:?}");
}

/// Options take effect at once: the policy searches again under the new options.
#[test]
fn other_options_are_searched_for() {
    let (mut world, mut policy) = (world(1), by_name("arce").unwrap());
    (0..8).for_each(|_| world.flush(&mut *policy, 0, KEYS));
    let mut counted = [0u64; 3];
    // Counts how many of two further ticks of the same load begin a search, and completes each search.
    let mut searches = |world: &mut World| {
        let begun = (0..2).filter(|_| {
            counted.iter_mut().zip([500, 500, 1000]).for_each(|(sum, news)| *sum += news);
            world.load = LoadView { counted, ..load(500.0, 500.0, 1000.0, 0.0) };
            world.now += 1_000_000;
            let Some(mut search) = world.decide(&mut *policy, 0).search else { return false };
            let answer = std::iter::repeat_with(|| search.step()).find_map(|answer| answer);
            policy.observe(&Outcome::SearchEnded(answer.expect("the search ends with a result")));
            true
        });
        begun.count()
    };
    assert_eq!([searches(&mut world), searches(&mut world)], [1, 0], "the first one");
    world.limits.max_runs = 32;
    assert_eq!([searches(&mut world), searches(&mut world)], [1, 0], "another number of runs");
    world.limits.pin = Some("8/24/2/1".parse().unwrap());
    assert_eq!(searches(&mut world), 0, "there is nothing to search for");
    world.limits.pin = None;
    assert_eq!([searches(&mut world), searches(&mut world)], [1, 0], "it is chosen again");
}

/// Lookups that find their keys in the newest runs lose little to older ones, so they buy fewer compactions.
#[test]
fn runs_that_lookups_do_not_reach_are_no_loss() {
    let compacted = |vain_share: f64| {
        let (mut world, mut policy) = (world(1), by_name("arce").unwrap());
        for second in 0..400 {
            world.load = LoadView { vain_share, ..load(20_000.0, 0.0, 500.0, f64::from(second)) };
            (world.costs.probe_ns, world.costs.block_ns, world.costs.get_ns) = (150.0, 500.0, 1300.0);
            world.now += 1_000_000;
            if second % 4 == 0 {
                world.flush(&mut *policy, 0, KEYS);
            }
            settle(&mut world, &mut *policy, 100);
        }
        world.totals.merged
    };
    let (all, few) = (compacted(1.0), compacted(0.05));
    assert_eq!(compacted(0.0), all, "what is not known counts as in vain");
    assert!(few * 2 < all, "{few} of {all} bytes");
}
