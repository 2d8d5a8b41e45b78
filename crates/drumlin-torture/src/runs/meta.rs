//! The metamorphic run: one list of operations gives the same answers, byte for byte, under many option sets.
//!
//! A set is drawn from the options and the policies. Besides the policy switches in the list, each set switches
//! policies by itself at about one operation in fifty, even while plans are in progress.

use crate::failure::{Failure, Verdict};
use crate::ops::Op;
use crate::parallel;
use crate::runner::{Runner, Tally};
use crate::workload::{POLICIES, Taste, Workload, small_options};
use drumlin_env::{MemEnv, Random};

/// Parameters of the workloads. They contain no unlogged writes: a kill may lose those, which would be no fault.
pub const TASTE: Taste =
    Taste { operations: 4000, unlogged: false, kills: true, swaps: true, lifetimes: false, renames: true };

/// Number of option sets per list.
pub const SETS: u64 = 16;

/// Results of the run.
#[derive(Debug, Default)]
pub struct Figures {
    tally: Tally,
    runs: u64,
    /// Failures, each with the seed of its list and its set.
    pub failures: Vec<(u64, Failure)>,
}

impl Figures {
    /// Returns the figure line.
    pub fn line(&self) -> String {
        let diverged = self.failures.iter().filter(|(_, f)| f.verdict == Verdict::Diverged).count();
        format!(
            "meta: runs {}, ops {}, swaps {}, installs {}, wrong {}, diverged {diverged}",
            self.runs,
            self.tally.operations,
            self.tally.swaps,
            self.tally.installs,
            self.failures.len() - diverged,
        )
    }
}

/// Returns the list of `seed` with the options of set `set`.
pub fn workload(seed: u64, set: u64, operations: usize) -> Workload {
    let mut workload = Workload::generate("meta", seed, &Taste { operations, ..TASTE });
    let mut random = Random::new(seed ^ set.wrapping_mul(0x9E37_79B9_7F4A_7C15), "set");
    workload.seed = random.next_u64();
    for keyspace in &mut workload.keyspaces {
        keyspace.options = small_options(&mut random);
    }
    let mut ops = Vec::new();
    for op in std::mem::take(&mut workload.ops) {
        if random.chance(1, 50) {
            let keyspace = workload.keyspaces[random.index(workload.keyspaces.len())].name.clone();
            ops.push(Op::Policy { keyspace, name: POLICIES[random.index(POLICIES.len())].to_owned() });
        }
        ops.push(op);
    }
    workload.ops = ops;
    workload
}

/// Runs one list under one set; returns its answers.
fn one(seed: u64, set: u64, operations: usize) -> Result<(Tally, String), Failure> {
    let workload = workload(seed, set, operations);
    let mut runner = Runner::create(MemEnv::new(workload.seed), &workload)?;
    runner.history = Some(String::new());
    runner.run(&workload.ops, usize::MAX)?;
    let history = runner.history.take().unwrap_or_default();
    Ok((runner.finish()?, history))
}

/// Runs one list under all sets.
fn all(seed: u64, operations: usize) -> Result<(Tally, u64), Failure> {
    let mut tally = Tally::default();
    let mut first: Option<String> = None;
    for set in 0..SETS {
        let named = |failure: Failure| failure.within(&format!("set {set}"));
        let (more, history) = parallel::guarded(|| one(seed, set, operations)).map_err(named)?;
        tally += more;
        match &first {
            None => first = Some(history),
            Some(first) if *first == history => {}
            Some(first) => {
                let differs = first.lines().zip(history.lines()).find(|(a, b)| a != b);
                let what = differs.map_or("one ends early".into(), |(a, b)| format!("{a}, not {b}"));
                return Err(named(Verdict::Diverged.of(what)));
            }
        }
    }
    Ok((tally, SETS))
}

/// Runs `count` lists from seed `first` on.
pub fn run(first: u64, count: u64, operations: usize) -> Figures {
    let results = parallel::each(count, move |number| all(first.wrapping_add(number), operations));
    let mut figures = Figures::default();
    for (number, result) in results {
        match result {
            Ok((tally, runs)) => {
                figures.tally += tally;
                figures.runs += runs;
            }
            Err(failure) => figures.failures.push((first.wrapping_add(number), failure)),
        }
    }
    figures
}
