//! The repeat run: the same seed gives the same I/O calls to the byte, and replaying a logged decision repeats it.

use crate::failure::{Failure, Verdict};
use crate::parallel;
use crate::runner::Runner;
use crate::runs::model;
use crate::workload::{Taste, Workload};
use drumlin_env::MemEnv;

/// Results of the run.
#[derive(Debug, Default)]
pub struct Figures {
    seeds: u64,
    decisions: u64,
    /// Failures, each with its seed.
    pub failures: Vec<(u64, Failure)>,
}

impl Figures {
    /// Returns the figure line.
    pub fn line(&self) -> String {
        let differing = self.failures.iter().filter(|(_, f)| f.verdict == Verdict::Diverged).count();
        format!(
            "repeat: seeds {}, decisions {}, traces differing {differing}, wrong {}",
            self.seeds,
            self.decisions,
            self.failures.len() - differing
        )
    }
}

/// Runs a workload; returns the hash over its I/O calls, its answers, and the number of logged decisions.
fn trace(workload: &Workload) -> Result<(u64, Option<String>, u64), Failure> {
    let mut runner = Runner::create(MemEnv::new(workload.seed), workload)?;
    runner.history = Some(String::new());
    runner.run(&workload.ops, usize::MAX)?;
    let mem = runner.mem.clone();
    let history = runner.history.take();
    let replay = runner.db().replay_decisions();
    if let Some(first) = replay.differing.first() {
        let what = format!("{} logged decisions differ on replay: {first}", replay.differing.len());
        return Err(Verdict::Diverged.of(what));
    }
    runner.finish()?;
    Ok((mem.trace_hash(), history, replay.decisions))
}

/// Runs `count` seeds from `first` on, each twice.
pub fn run(first: u64, count: u64, operations: usize) -> Figures {
    let results = parallel::each(count, move |number| {
        let seed = first.wrapping_add(number);
        let workload = Workload::generate("repeat", seed, &Taste { operations, ..model::TASTE });
        let first = trace(&workload)?;
        match first == trace(&workload)? {
            true => Ok(first.2),
            false => Err(Verdict::Diverged.of("the same seed gave different I/O calls or answers")),
        }
    });
    let mut figures = Figures::default();
    for (number, result) in results {
        figures.seeds += 1;
        match result {
            Ok(decisions) => figures.decisions += decisions,
            Err(failure) => figures.failures.push((first.wrapping_add(number), failure)),
        }
    }
    figures
}
