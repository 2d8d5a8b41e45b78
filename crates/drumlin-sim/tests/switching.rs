//! Every preset on every tree that the others leave behind, with plans in flight, late installs, and policy switches
//! at any moment. All plans are legal, nothing is lost, and every tree comes to rest.
//!
//! `DRUMLIN_SWITCH_TREES` sets the number of trees.

use drumlin_policy::{SplitMix, by_name};
use drumlin_sim::World;
use drumlin_types::contract::legal::check;
use drumlin_types::contract::{CompactionPolicy, FileState, LimitView, Pace, TreeView};

const POLICIES: &[&str] = &[
    "1-leveling",
    "1-leveling:static",
    "1-leveling:dynamic",
    "leveling:3",
    "leveling:10",
    "tiering:2",
    "tiering:4",
    "lazy-leveling:3",
    "lazy-leveling:4",
    "fluid:4,3/2,3",
    "fluid:40,40,41/6,6,6",
    "universal",
    "ucs:-4",
    "ucs:0",
    "ucs:3",
    "adaptive-ucs",
    "vertiorizon",
    "vertiorizon:1.5",
    "vertiorizon:paper",
    "horizontal-leveling:2",
    "horizontal-tiering:3",
    "horizontal-lazy:2/3",
    "chaos",
    "arce",
    "arce:2/8/1/none",
];
const MOST_DECISIONS: usize = 6000;

struct Run {
    world: World,
    policy: Box<dyn CompactionPolicy>,
    dice: SplitMix,
    sorted_from: u32,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut dice = SplitMix::new(seed);
        let limits = LimitView {
            memtable_bytes: 64 << 20,
            file_bytes: (16 << 20) << dice.below(5),
            slots: 1 + dice.below(3) as u32,
            ..LimitView::default()
        };
        let policy = by_name(POLICIES[dice.below(POLICIES.len())]).unwrap();
        Run { world: World::new(limits), policy, dice, sorted_from: 0 }
    }

    fn flush(&mut self) {
        let (from, to) = match self.dice.below(6) {
            0 => {
                self.sorted_from += 1000;
                (self.sorted_from, self.sorted_from + 1000)
            }
            1 => {
                let from = self.dice.below(60_000) as u32;
                (from, from + 1 + self.dice.below(5000) as u32)
            }
            _ => (0, 65_536),
        };
        self.world.flush(&mut *self.policy, from, to);
    }

    fn swap(&mut self) {
        self.policy = by_name(POLICIES[self.dice.below(POLICIES.len())]).unwrap();
    }

    /// Makes one decision, all of whose plans must be admitted. Returns the number of plans.
    fn decide(&mut self) -> usize {
        let before = self.world.in_flight();
        // One more plan is allowed for each level that no other plan takes from.
        let most = 2 * self.world.limits.slots as usize + 1 + self.world.tree().levels.len();
        let decision = self.world.decide(&mut *self.policy, self.dice.next_u64());
        assert!(decision.plans.is_empty() || before + decision.plans.len() <= most, "too many plans at once");
        for plan in &decision.plans {
            let is_numeric = plan.reason.contains(char::is_numeric);
            assert!(
                is_numeric,
                "{}: the reason must contain a number: {:?}",
                self.policy.name(),
                plan.reason
            );
            let pieces = 1 + self.dice.below(4) as u32;
            if let Err(e) = self.world.admit(plan, pieces) {
                panic!("{}: {}: {e}", self.policy.name(), plan.reason);
            }
        }
        check_pace(&decision.pace.expect("presets always pace"));
        decision.plans.len()
    }

    /// Installs a random ready piece, and returns whether there was one.
    fn install(&mut self) -> bool {
        let ready = self.world.ready();
        let Some(&id) = ready.get(self.dice.below(ready.len())) else { return false };
        self.world.install(id, &mut *self.policy);
        true
    }

    fn step(&mut self) {
        match self.dice.below(10) {
            0..4 => self.flush(),
            4 if self.dice.one_in(2) => self.swap(),
            5 | 6 => drop(self.decide()),
            _ => drop(self.install()),
        }
    }

    /// Lets the policy finish without further flushes. Returns the number of decisions, or `None` when the limit was
    /// reached.
    fn rest(&mut self) -> Option<usize> {
        // Chaos makes empty decisions between plans. The other policies return no plan only when they are done.
        let enough = if self.policy.name() == "chaos" { 60 } else { 1 };
        let mut quiet = 0;
        for decisions in 0..MOST_DECISIONS {
            while self.install() {}
            assert_eq!(self.world.in_flight(), 0, "pieces that no one can install");
            quiet = if self.decide() == 0 { quiet + 1 } else { 0 };
            if quiet == enough {
                return Some(decisions);
            }
        }
        None
    }
}

fn check_pace(pace: &Pace) {
    assert!(
        (pace.slow <= pace.stop || pace.slow.is_infinite())
            && pace.passes > 0.0
            && pace.drain >= 0.0
            && pace.drain.is_finite(),
        "{pace:?}"
    );
}

fn trees(default: u64) -> u64 {
    std::env::var("DRUMLIN_SWITCH_TREES").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

#[test]
fn presets_follow_each_other_on_any_tree() {
    let (mut plans, mut merged, mut longest, mut restless) = (0, 0, 0, 0);
    for seed in 0..trees(16) {
        let mut run = Run::new(seed);
        for _ in 0..120 {
            run.step();
            run.world.check().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        }
        for name in [
            POLICIES[seed as usize % POLICIES.len()],
            "chaos",
            POLICIES[(seed as usize + 5) % POLICIES.len()],
        ] {
            run.policy = by_name(name).unwrap();
            match run.rest() {
                Some(decisions) => longest = longest.max(decisions),
                // Chaos cuts large trees into very many files before they run out of levels.
                None if name == "chaos" => restless += 1,
                None => panic!("seed {seed}: {name} does not come to rest"),
            }
            run.world.check().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        }
        plans += run.world.totals.plans;
        merged += run.world.totals.merged / run.world.totals.flushed;
    }
    println!("plans={plans} merged_per_flushed={merged} longest={longest} restless={restless}");
    assert!(plans > 20 * trees(16), "too little happened");
    assert!(restless * 4 <= trees(16), "chaos came to rest too seldom");
}

/// Builds a messy tree: chaos at work on 60 flushes.
fn mess(seed: u64) -> Run {
    let mut run = Run::new(seed);
    run.policy = by_name("chaos").unwrap();
    for _ in 0..60 {
        run.flush();
        run.decide();
        if run.dice.one_in(2) {
            run.install();
        }
    }
    while run.install() {}
    run
}

/// Returns the largest number of files of a level that cover one key.
fn depth(tree: &TreeView, level: usize) -> usize {
    let files: Vec<_> = tree.levels[level].files().collect();
    let starts = files.iter().map(|f| &f.bounds.start);
    starts.map(|key| files.iter().filter(|f| f.bounds.contains(key)).count()).max().unwrap_or(0)
}

#[test]
fn every_preset_brings_a_messy_tree_into_its_shape() {
    for seed in 0..3 {
        for name in POLICIES {
            let mut run = mess(seed);
            run.policy = by_name(name).unwrap();
            if run.rest().is_none() {
                let tree = drumlin_types::contract::draw::Drawing(run.world.tree());
                panic!("seed {seed}, {name}: still compacts after {MOST_DECISIONS} decisions:\n{tree}");
            }
            let tree = run.world.tree();
            assert!(tree.files().all(|(_, _, f)| f.state == FileState::Free));
            check(tree).unwrap();
            let runs: Vec<usize> = tree.levels.iter().map(|level| level.runs.len()).collect();
            let depths: Vec<usize> = (0..tree.levels.len()).map(|level| depth(tree, level)).collect();
            let below = |most: usize, counts: &[usize]| counts.iter().all(|&count| count <= most);
            let (policy, arguments) = name.split_once(':').unwrap_or((name, ""));
            let ratio = || arguments.parse::<usize>().expect("a size ratio");
            let is_in_shape = match policy {
                "leveling" => runs[0] == 0 && below(1, &runs),
                "tiering" | "lazy-leveling" => below(ratio() - 1, &runs),
                "1-leveling" => runs[0] < 4 && below(1, &depths[1..]),
                "fluid" => runs[0] == 0 && below(6, &runs),
                "universal" => runs.iter().sum::<usize>() <= 4,
                // Runs of another policy are cleared into the two last levels.
                "horizontal-leveling" | "horizontal-tiering" | "horizontal-lazy" => {
                    below(0, &runs[..6]) && below(1, &depths)
                }
                "vertiorizon" => below(0, &runs[..5]) && below(1, &depths),
                // Their shapes depend on the load, or on chance.
                "ucs" | "adaptive-ucs" | "arce" | "chaos" => true,
                other => panic!("state the shape of {other} here"),
            };
            assert!(is_in_shape, "seed {seed}, {name}: runs {runs:?}, depths {depths:?}");
        }
    }
}

#[test]
fn the_same_calls_give_the_same_answers() {
    for name in POLICIES {
        let trace = || {
            let mut run = mess(7);
            run.policy = by_name(name).unwrap();
            (0..20).for_each(|_| run.step());
            run.world.tree().clone()
        };
        assert_eq!(trace(), trace(), "{name}");
    }
}
