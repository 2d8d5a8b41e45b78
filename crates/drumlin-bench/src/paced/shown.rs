//! A course as a table and as JSON.

use super::{PhaseCount, Setup, course, mean};
use crate::engine::Result;
use serde::Serialize;
use std::fmt::Write;

/// What a plan came to under a policy.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Counted {
    /// The policy.
    pub policy: String,
    /// Mean virtual nanoseconds of an operation.
    pub nanos: f64,
    /// Mean blocks that merges wrote for an operation.
    pub merged: f64,
    /// The phases, the load left out.
    pub phases: Vec<PhaseCount>,
}

impl Counted {
    /// Runs `plan` under `policy`.
    pub fn of(policy: &str, plan: &str, setup: &Setup) -> Result<Counted> {
        let phases = course(policy, plan, setup)?;
        let operations: f64 = phases.iter().map(|phase| phase.operations as f64).sum();
        let merged: f64 = phases.iter().map(|phase| phase.merged * phase.operations as f64).sum();
        let merged = merged / operations.max(1.0);
        Ok(Counted { policy: policy.to_owned(), nanos: mean(&phases), merged, phases })
    }

    /// As a table, with what the policy went by in each phase if that is wanted; `first` is the mean of the policy
    /// called `name`.
    pub fn text(&self, first: f64, name: &str, explain: bool) -> String {
        let mut text = format!(
            "{}: {:.2} us per operation, {:.2} of {name}; {:.3} blocks merged\n\
             {:<10}{:>9}{:>9}{:>9}{:>9}{:>9}{:>11}{:>12}{:>7}{:>11}  runs of levels\n",
            self.policy,
            self.nanos / 1e3,
            self.nanos / first,
            self.merged,
            "phase",
            "us",
            "fetched",
            "flushed",
            "merged",
            "waits",
            "waited ms",
            "put p99.9",
            "runs",
            "predicted",
        );
        for phase in &self.phases {
            let predicted = phase.predicted.map_or("-".to_owned(), |nanos| format!("{:.2}", nanos / 1e3));
            let levels: Vec<String> = phase.levels.iter().map(u64::to_string).collect();
            let _ = writeln!(
                text,
                "{:<10}{:>9.2}{:>9.3}{:>9.4}{:>9.4}{:>9}{:>11.1}{:>12.1}{:>7.1}{predicted:>11}  {}",
                phase.name,
                phase.nanos / 1e3,
                phase.fetched,
                phase.flushed,
                phase.merged,
                phase.waits.0,
                phase.waits.1,
                phase.put_p999 / 1e3,
                phase.mean_runs,
                levels.join(" "),
            );
        }
        for phase in self.phases.iter().filter(|_| explain) {
            let _ = write!(text, "\nat the end of {}:\n{}\n", phase.name, phase.state);
        }
        text
    }
}
