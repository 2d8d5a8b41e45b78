//! The regression gate: figures that repeat, against a checked-in file.
//!
//! Time is noisy, counts are not. Every case runs on one thread over a simulated disk, with virtual time, background work
//! in steps, and seed 1. Its counts are taken in this process: bytes, calls of the environment, syncs, blocks, runs,
//! decisions, allocations. Instructions come from callgrind, which runs the case at n and at 2n operations: the
//! difference over n is what one operation costs, for what is done once cancels.
//!
//! A figure outside its tolerance, in either direction, fails the gate: an improvement is written down too. Instructions
//! are judged only by the compiler and on the processor that the file names; elsewhere they are shown.

mod callgrind;
mod case;
mod file;

use crate::command::Ended;
use crate::command::args::GateArgs;
use case::{CASES, Case};
use file::{Figure, File, Origin};
use std::path::Path;
use std::time::Instant;

/// Relative tolerance of instructions; counts are exact.
const INSTRUCTIONS_TOLERANCE: f64 = 0.02;
/// Relative tolerance of allocations: when a map of the standard library grows depends on its random seed.
const ALLOCATIONS_TOLERANCE: f64 = 0.001;

fn tolerance(metric: &str) -> f64 {
    if metric == "allocations_per_op" { ALLOCATIONS_TOLERANCE } else { 0.0 }
}

/// Runs the gate, or with `--case` one case for somebody who watches from outside.
pub fn run(args: &GateArgs, prefix: &[&str]) -> Ended {
    if let Some(name) = &args.case {
        let Some(case) = CASES.iter().find(|case| case.name == *name) else {
            return Ended::Usage(format!("no case is called {name}"));
        };
        return case.run(args.operations).map_or_else(Ended::Failed, |_| Ended::Done);
    }
    match compare(args, prefix) {
        Ok(true) => Ended::Done,
        Ok(false) => Ended::GateFailed,
        Err(what) => Ended::Failed(what),
    }
}

/// Measures what was asked for and holds it against the file; whether all is within tolerance.
fn compare(args: &GateArgs, prefix: &[&str]) -> crate::engine::Result<bool> {
    let started = Instant::now();
    let wanted = |case: &&Case| args.only.as_ref().is_none_or(|only| case.name.contains(only.as_str()));
    let cases: Vec<&Case> = CASES.iter().filter(wanted).collect();
    let mut measured: Vec<Figure> = Vec::new();
    for case in &cases {
        let counts = case.run(case.operations).map_err(|e| format!("{}: {e}", case.name))?;
        measured.extend(
            counts
                .into_iter()
                .map(|(metric, value)| Figure::new(case.name, &metric, value, tolerance(&metric))),
        );
    }
    let watched = !args.counts;
    if watched {
        for (case, value) in callgrind::instructions(&cases, prefix)? {
            measured.push(Figure::new(case, "instructions", value, INSTRUCTIONS_TOLERANCE));
        }
    }
    let known = match Path::new(&args.file).exists() {
        true => File::read(&args.file)?,
        false if args.update => File::default(),
        false => return Err(format!("{}: no such file; --update makes it", args.file.display())),
    };
    let origin = Origin { rustc: rustc_version(), processor: processor() };
    let judged = args.update || known.origin == origin;
    if watched && !judged {
        println!("the file is of {:?}, this is {origin:?}: instructions are not judged", known.origin);
    }
    if args.update {
        let keeps = |figure: &Figure| {
            !cases.iter().any(|case| case.name == figure.case)
                || (!watched && figure.metric == "instructions")
        };
        known.updated(&measured, keeps, origin).write(&args.file)?;
    }
    let mut moved = 0;
    let mut worst: f64 = 0.0;
    for figure in &measured {
        let Some(old) = known.figure(&figure.case, &figure.metric) else {
            println!("{} {}: new, {}", figure.case, figure.metric, figure.value);
            moved += 1;
            continue;
        };
        let change = relative(old.value, figure.value);
        if change.abs() > worst.abs() {
            worst = change;
        }
        if change.abs() > old.tolerance + f64::EPSILON {
            let percent = change * 100.0;
            println!(
                "{} {}: {} was {}, {percent:+.2} %",
                figure.case, figure.metric, figure.value, old.value
            );
            moved += usize::from(judged || figure.metric != "instructions");
        }
    }
    for old in known.figures.iter().filter(|old| cases.iter().any(|case| case.name == old.case)) {
        let is_measured = measured.iter().any(|new| new.case == old.case && new.metric == old.metric);
        if !is_measured && (watched || old.metric != "instructions") {
            println!("{} {}: in the file, but not measured", old.case, old.metric);
            moved += 1;
        }
    }
    let note = match (watched, judged) {
        (true, true) => "",
        (true, false) => ", instructions not judged",
        (false, _) => ", instructions not measured",
    };
    println!(
        "gate: cases {}, moved {moved}, worst {:+.2} %, {:.0} s{note}",
        cases.len(),
        worst * 100.0,
        started.elapsed().as_secs_f64()
    );
    Ok(moved == 0 || args.update)
}

/// How far `new` is from `old`, as a share of it.
fn relative(old: f64, new: f64) -> f64 {
    if old == new {
        return 0.0;
    }
    if old == 0.0 { f64::INFINITY.copysign(new) } else { new / old - 1.0 }
}

/// The processor's model.
fn processor() -> String {
    crate::measure::machine::machine(Path::new(".")).cpu.unwrap_or_default()
}

fn rustc_version() -> String {
    let output = std::process::Command::new("rustc").arg("--version").output();
    output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_relative_to_what_was() {
        assert_eq!(relative(4.0, 5.0), 0.25);
        assert_eq!(relative(0.0, 0.0), 0.0);
        assert_eq!(relative(0.0, 1.0), f64::INFINITY);
    }

    #[test]
    fn counts_repeat_exactly() {
        for name in ["put-random", "get-table", "dynamic"] {
            let case = CASES.iter().find(|case| case.name == name).expect("a known case");
            let operations = case.operations / 10;
            let [first, second] = [case.run(operations), case.run(operations)];
            let first = first.expect("the case runs");
            assert!(
                first.iter().any(|(metric, value)| metric == "env_calls_per_op" && *value > 0.0)
                    || name == "get-table"
            );
            assert_eq!(Ok(first), second, "{name}");
        }
    }
}
