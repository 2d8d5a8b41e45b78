//! The oracle of a run with several policies: for each phase the fastest of the fixed ones.
//!
//! The first policy of the command is the one that adapts, such as `arce`. The oracle knows each phase beforehand and
//! takes the fastest other policy for it. Each policy runs through all phases on a store of its own, so the oracle does
//! not pay for changes from one policy to the next.

use super::model::Report;
use crate::compare::{Spread, names};

/// Median time per operation of a policy in a phase, including settling, and the number of operations.
#[derive(Clone, Copy)]
struct Cost {
    micros: f64,
    ops: f64,
}

/// A policy with its cost in each phase.
struct Course<'a> {
    engine: &'a str,
    phases: Vec<Cost>,
}

impl Course<'_> {
    /// Returns the time per operation over all phases.
    fn mean(&self) -> f64 {
        mean(&self.phases)
    }
}

fn mean(phases: &[Cost]) -> f64 {
    let ops: f64 = phases.iter().map(|cost| cost.ops).sum();
    phases.iter().map(|cost| cost.micros * cost.ops).sum::<f64>() / ops
}

/// Returns the costs of `engine` in the phases called `phases`; `None` if it has no policy, or lacks a usable round of
/// a phase.
fn course<'a>(report: &Report, engine: &'a str, phases: &[String]) -> Option<Course<'a>> {
    let of_phase = |name: &String| {
        let rounds = || report.phases.iter().filter(|p| p.engine == engine && p.name == *name && p.usable);
        let timed = rounds().filter(|phase| phase.policy.is_some() && phase.ops > 0);
        let micros = timed.map(|phase| 1e6 / phase.ops_per_s_settled()).collect();
        Some(Cost { micros: Spread::of(micros)?.median, ops: rounds().next()?.ops as f64 })
    };
    let phases = phases.iter().map(of_phase).collect::<Option<Vec<Cost>>>()?;
    Some(Course { engine, phases })
}

/// Returns headings and rows: one for each phase, one with the fastest fixed policy of each phase (the oracle), and one
/// with the single policy that is the fastest over all phases. Empty unless three policies ran through two phases.
pub(super) fn cells(report: &Report) -> Vec<Vec<String>> {
    let engines = names(&report.phases, |phase| &phase.engine);
    let phases = names(&report.phases, |phase| &phase.name);
    // The second run of an engine is a control.
    let single = engines.iter().filter(|engine| !engine.contains('#'));
    let mut courses = single.filter_map(|engine| course(report, engine, &phases));
    let Some(first) = courses.next().filter(|first| engines.first().is_some_and(|e| e == first.engine))
    else {
        return Vec::new();
    };
    let fixed: Vec<Course<'_>> = courses.collect();
    if fixed.len() < 2 || phases.len() < 2 {
        return Vec::new();
    }
    let row = |name: &str, own: f64, best: &str, micros: f64| {
        vec![
            name.to_owned(),
            format!("{own:.2}"),
            best.to_owned(),
            format!("{micros:.2}"),
            format!("{:.2}", micros / own),
        ]
    };
    let headings = ["phase", "us/op", "fastest fixed policy", "us/op", "ratio"];
    let mut cells = vec![headings.map(str::to_owned).to_vec()];
    let mut chosen = Vec::new();
    for (at, (name, own)) in phases.iter().zip(&first.phases).enumerate() {
        let by_time = |a: &&Course<'_>, b: &&Course<'_>| a.phases[at].micros.total_cmp(&b.phases[at].micros);
        let Some(best) = fixed.iter().min_by(by_time) else { continue };
        cells.push(row(name, own.micros, best.engine, best.phases[at].micros));
        chosen.push(best.phases[at]);
    }
    cells.push(row("oracle", first.mean(), "the fastest of each phase", mean(&chosen)));
    if let Some(best) = fixed.iter().min_by(|a, b| a.mean().total_cmp(&b.mean())) {
        cells.push(row("all phases", first.mean(), best.engine, best.mean()));
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::super::tests::made_up;
    use super::*;

    fn report(engines: &[(&str, &str, [f64; 2])]) -> Report {
        let made_up = made_up();
        let base = made_up.phases[0].clone();
        let mut phases = Vec::new();
        for (engine, policy, micros) in engines {
            for (name, micros) in ["dynamic I A", "dynamic I B"].into_iter().zip(micros) {
                let mut phase = base.clone();
                (phase.name, phase.engine) = (name.to_owned(), (*engine).to_owned());
                phase.policy = (!policy.is_empty()).then(|| (*policy).to_owned());
                (phase.ops, phase.seconds, phase.settle_seconds) = (1000, micros / 1000.0, 0.0);
                phase.ops_per_s = 1e6 / micros;
                phases.push(phase);
            }
        }
        Report { phases, ..made_up }
    }

    #[test]
    fn the_oracle_takes_the_fastest_fixed_policy_of_each_phase() {
        let engines = [
            ("drumlin arce", "arce", [4.0, 6.0]),
            ("drumlin arce#2", "arce", [1.0, 1.0]),
            ("drumlin tiering", "tiering", [8.0, 5.0]),
            ("drumlin leveling", "leveling", [3.0, 11.0]),
            ("rocksdb", "", [0.5, 0.5]),
        ];
        let cells = cells(&report(&engines));
        let lines: Vec<String> = cells.iter().map(|line| line.join(" | ")).collect();
        assert_eq!(
            lines,
            [
                "phase | us/op | fastest fixed policy | us/op | ratio",
                "dynamic I A | 4.00 | drumlin leveling | 3.00 | 0.75",
                "dynamic I B | 6.00 | drumlin tiering | 5.00 | 0.83",
                "oracle | 5.00 | the fastest of each phase | 4.00 | 0.80",
                "all phases | 5.00 | drumlin tiering | 6.50 | 1.30",
            ]
        );
    }

    #[test]
    fn two_policies_have_no_oracle() {
        let engines = [("drumlin arce", "arce", [4.0, 6.0]), ("drumlin tiering", "tiering", [8.0, 5.0])];
        assert!(cells(&report(&engines)).is_empty());
        let engines = [("rocksdb", "", [4.0, 6.0]), ("a", "arce", [1.0; 2]), ("b", "tiering", [1.0; 2])];
        assert!(cells(&report(&engines)).is_empty(), "the first engine has no policy");
    }
}
