//! Under a constant load, ARCE settles on one set of parameters and keeps it.

use drumlin_policy::by_name;
use drumlin_sim::{Setup, Stage, stages};
use drumlin_types::contract::{CompactionPolicy, Decision, Outcome, PolicyInput};

/// Wrapper of a policy that records its parameters after each decision.
#[derive(Debug)]
struct Watched {
    policy: Box<dyn CompactionPolicy>,
    tuples: Vec<String>,
}

impl CompactionPolicy for Watched {
    fn name(&self) -> String {
        self.policy.name()
    }

    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let decision = self.policy.decide(input);
        let told = self.policy.explain();
        self.tuples.push(told.lines().next().unwrap_or_default().to_owned());
        decision
    }

    fn observe(&mut self, outcome: &Outcome) {
        self.policy.observe(outcome);
    }

    fn explain(&self) -> String {
        self.policy.explain()
    }
}

/// Returns the decisions at which the parameters changed, as fractions of all decisions, and the growth factor of the
/// tree.
fn lives(mix: [f64; 3]) -> (Vec<f64>, f64) {
    const PRELOAD: u64 = 96 << 20;
    let setup = Setup { preload: PRELOAD, ..Setup::default() };
    let mut watched = Watched { policy: by_name("arce").unwrap(), tuples: Vec::new() };
    let load = Stage { name: 'S', mix, operations: 800_000.0 };
    let reports = stages(&mut watched, setup, &[load]).unwrap();
    let tuples = &watched.tuples;
    let changed = tuples.windows(2).enumerate().filter(|(_, pair)| pair[0] != pair[1]);
    let changes = changed.map(|(at, _)| at as f64 / tuples.len() as f64).collect();
    (changes, reports[0].bytes as f64 / PRELOAD as f64)
}

/// Mixes of seeks, writes and lookups with so few writes that the tree hardly grows.
#[test]
fn a_steady_load_comes_to_one_tuple() {
    for mix in [[0.98, 0.01, 0.01], [0.01, 0.01, 0.98], [0.495, 0.01, 0.495]] {
        let (changes, growth) = lives(mix);
        assert!(growth < 1.2 && !changes.is_empty(), "{mix:?}: {growth} times as large");
        assert!(changes.iter().all(|at| *at < 0.6), "{mix:?}: {changes:?}");
    }
}

/// When the tree grows, the best parameters change from time to time, but at most once per growth by a tenth.
#[test]
fn a_growing_tree_changes_its_tuple_now_and_then() {
    for mix in [[0.9, 0.1, 0.0], [0.1, 0.1, 0.8], [0.4, 0.2, 0.4], [0.34, 0.33, 0.33]] {
        let (changes, growth) = lives(mix);
        let tenths = growth.ln() / 1.1f64.ln();
        assert!(growth > 1.5 && changes.len() as f64 <= tenths, "{mix:?}: {changes:?}, {growth}");
    }
}
