//! The repeat run: the same seed twice gives the same I/O calls, to the byte.

use crate::failure::{Failure, Verdict};
use crate::parallel;
use crate::runner::Runner;
use crate::runs::model;
use crate::workload::{Taste, Workload};
use drumlin_env::MemEnv;

/// What came out.
#[derive(Debug, Default)]
pub struct Figures {
    seeds: u64,
    /// Failures, each with its seed.
    pub failures: Vec<(u64, Failure)>,
}

impl Figures {
    /// The figure line.
    pub fn line(&self) -> String {
        let differing = self.failures.iter().filter(|(_, f)| f.verdict == Verdict::Diverged).count();
        format!(
            "repeat: seeds {}, traces differing {differing}, wrong {}",
            self.seeds,
            self.failures.len() - differing
        )
    }
}

/// What a run leaves: the hash over its I/O calls, and its answers.
fn trace(workload: &Workload) -> Result<(u64, Option<String>), Failure> {
    let mut runner = Runner::create(MemEnv::new(workload.seed), workload)?;
    runner.history = Some(String::new());
    runner.run(&workload.ops, usize::MAX)?;
    let mem = runner.mem.clone();
    let history = runner.history.take();
    runner.finish()?;
    Ok((mem.trace_hash(), history))
}

/// Runs `count` seeds from `first` on, each twice.
pub fn run(first: u64, count: u64, operations: usize) -> Figures {
    let results = parallel::each(count, move |number| {
        let seed = first.wrapping_add(number);
        let workload = Workload::generate("repeat", seed, &Taste { operations, ..model::TASTE });
        match trace(&workload)? == trace(&workload)? {
            true => Ok(()),
            false => Err(Verdict::Diverged.of("the same seed gave other I/O calls, or other answers")),
        }
    });
    let mut figures = Figures::default();
    for (number, result) in results {
        figures.seeds += 1;
        figures.failures.extend(result.err().map(|failure| (first.wrapping_add(number), failure)));
    }
    figures
}
