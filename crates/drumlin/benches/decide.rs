//! Prints what a decision of ARCE costs, with its plan: `cargo bench -p drumlin --bench decide -- [runs]`.
//!
//! Runs of level 0 cover all keys, or random parts of them. Readers alone give an elective merge, writers
//! alone one that is a must.

use drumlin_env::Env;
use drumlin_policy::sim::World;
use drumlin_policy::sim::world::key;
use drumlin_policy::{SplitMix, by_name};
use drumlin_types::contract::{LimitView, LoadView, PolicyInput};
use std::hint::black_box;

const KEYS: u32 = 1 << 20;
const TIMES: u64 = 500;

fn world(runs: usize, partial: bool, max_runs: u32) -> World {
    let limits =
        LimitView { memtable_bytes: 2 << 20, file_bytes: 64 << 20, max_runs, ..LimitView::default() };
    let mut world = World::new(limits);
    let mut policy = by_name("arce").expect("arce");
    let mut dice = SplitMix::new(7);
    for _ in 0..runs {
        let from = if partial { dice.below(KEYS as usize / 2) as u32 } else { 0 };
        let to = if partial { from + 1 + dice.below(KEYS as usize / 2) as u32 } else { KEYS };
        world.flush(&mut *policy, from, to);
    }
    world.wanted = (0..256).map(|n| key(n * (KEYS / 256))).collect();
    world
}

fn measure(label: &str, world: &World) {
    let view = world.view();
    let clock = Env::os();
    let (mut nanos, mut takes) = (u64::MAX, 0);
    for _ in 0..TIMES {
        let mut policy = by_name("arce").expect("arce");
        let input = PolicyInput {
            tree: &view,
            tickets: &[],
            load: &world.load,
            costs: &world.costs,
            limits: &world.limits,
            wanted: &world.wanted,
            wanted_seeks: &world.wanted,
            now: 1_000_000,
            seed: 1,
            frozen: false,
        };
        let start = clock.clock().monotonic_nanos();
        let decision = black_box(policy.decide(black_box(&input)));
        nanos = nanos.min(clock.clock().monotonic_nanos() - start);
        takes = decision.plans.iter().map(|plan| plan.take.len()).sum();
    }
    println!("  {label:<32} {:7.1} us, {takes} files taken", nanos as f64 / 1e3);
}

fn main() {
    let runs = std::env::args().filter_map(|text| text.parse().ok()).next().unwrap_or(200);
    println!("one decision over {runs} runs, the quickest of {TIMES}");
    let readers = LoadView { gets: 5000.0, seeks: 5000.0, writes: 100.0, ..LoadView::default() };
    let writers = LoadView { writes: 50_000.0, ..LoadView::default() };
    for (covers, partial) in [("full", false), ("partial", true)] {
        for (needs, load, max_runs) in [("elective", readers, 512), ("must", writers, 64)] {
            let mut world = world(runs, partial, max_runs);
            world.load = LoadView { entry_bytes: 1024.0, clients: 1.0, ..load };
            measure(&format!("{covers} covers, {needs}"), &world);
        }
    }
}
