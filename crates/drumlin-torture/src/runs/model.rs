//! The model run: compares every answer with the oracle's, and scans all in both directions from each snapshot every
//! 500 operations.

use crate::failure::{Failure, Verdict};
use crate::parallel;
use crate::runner::{Runner, Tally};
use crate::workload::{Taste, Workload};
use drumlin_env::MemEnv;

/// Number of operations between two full comparisons.
pub const EVERY: usize = 500;

/// Parameters of the workloads.
pub const TASTE: Taste =
    Taste { operations: 2000, unlogged: true, kills: true, swaps: true, lifetimes: true, renames: true };

/// Results of the run.
#[derive(Debug, Default)]
pub struct Figures {
    /// Counts.
    pub tally: Tally,
    /// Number of seeds run.
    pub seeds: u64,
    /// Failures, each with its seed.
    pub failures: Vec<(u64, Failure)>,
}

impl Figures {
    /// Returns the figure line.
    pub fn line(&self) -> String {
        let leaked = self.failures.iter().filter(|(_, f)| f.verdict == Verdict::Leaked).count();
        let Tally { operations, swaps, installs, reopened, renames, checkpoints, .. } = self.tally;
        format!(
            "model: ops {operations}, seeds {}, swaps {swaps}, installs {installs}, reopened {reopened}, \
             renames {renames}, checkpoints {checkpoints}, wrong {}, leaked {leaked}; order: operations {}, broken {}",
            self.seeds,
            self.failures.len() - leaked,
            self.tally.calls,
            self.failures.iter().filter(|(_, f)| f.verdict == Verdict::Order).count(),
        )
    }
}

/// Runs one workload.
pub fn one(workload: &Workload) -> Result<Tally, Failure> {
    closely(workload, EVERY)
}

/// Runs one workload, with a full comparison every `every` operations.
pub fn closely(workload: &Workload, every: usize) -> Result<Tally, Failure> {
    parallel::guarded(|| {
        let mut runner = Runner::create(MemEnv::new(workload.seed), workload)?;
        runner.run(&workload.ops, every)?;
        runner.finish()
    })
}

/// Runs `count` seeds from `first` on.
pub fn run(first: u64, count: u64, operations: usize) -> Figures {
    let results = parallel::each(count, move |number| {
        let seed = first.wrapping_add(number);
        one(&Workload::generate("model", seed, &Taste { operations, ..TASTE }))
    });
    let mut figures = Figures::default();
    for (number, result) in results {
        figures.seeds += 1;
        match result {
            Ok(tally) => figures.tally += tally,
            Err(failure) => figures.failures.push((first.wrapping_add(number), failure)),
        }
    }
    figures
}
