//! The regression gate: compares exactly repeatable figures with a checked-in file.
//!
//! Time is noisy, counts are not. Every case runs on one thread over a simulated disk, with virtual time, stepped
//! background work and seed 1. This process takes the counts: bytes, environment calls, syncs, blocks, runs,
//! decisions, allocations. Callgrind counts instructions. It runs the case with n and with 2n operations; the
//! difference divided by n is the cost of one operation, because one-time work cancels out.
//!
//! A figure outside its tolerance in either direction fails the gate, so improvements are recorded too. Instructions
//! are judged only with the compiler and processor that the file names; otherwise they are only shown.

mod callgrind;
mod case;
mod file;

use crate::command::args::GateArgs;
use crate::command::ended::Ended;
use crate::engine::Result;
use case::{CASES, Case};
use file::{Figure, File, Origin};
use std::path::Path;
use std::time::Instant;

/// Relative tolerance of instructions; other counts except allocations are exact.
const INSTRUCTIONS_TOLERANCE: f64 = 0.02;
/// Relative tolerance of allocations: the random seed of a standard library map affects when the map grows.
const ALLOCATIONS_TOLERANCE: f64 = 0.001;

fn tolerance(metric: &str) -> f64 {
    if metric == "allocations_per_op" { ALLOCATIONS_TOLERANCE } else { 0.0 }
}

/// Runs the gate, or with `--case` a single case that another program observes.
pub fn run(args: &GateArgs, prefix: &[&str]) -> Ended {
    if let Some(name) = &args.case {
        let Some(case) = CASES.iter().find(|case| case.name == *name) else {
            return Ended::Usage(format!("unknown case {name}"));
        };
        return case.run(args.operations).map_or_else(Ended::Failed, |_| Ended::Done);
    }
    match compare(args, prefix) {
        Ok(true) => Ended::Done,
        Ok(false) => Ended::GateFailed,
        Err(what) => Ended::Failed(what),
    }
}

/// Prints a line. A reader that has closed the pipe needs no more lines.
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($words)*);
    }};
}

/// Measures the selected cases and compares them with the file. Returns whether all are within tolerance.
fn compare(args: &GateArgs, prefix: &[&str]) -> Result<bool> {
    let started = Instant::now();
    let wanted = |case: &&Case| args.only.as_ref().is_none_or(|only| case.name.contains(only.as_str()));
    let cases: Vec<&Case> = CASES.iter().filter(wanted).collect();
    let watched = !args.counts;
    let measured = measured(&cases, watched, prefix)?;
    let known = known(args)?;
    let origin = Origin { rustc: rustc_version(), processor: processor() };
    let judged = args.update || known.origin == origin;
    if watched && !judged {
        say!("the file is of {:?}, this is {origin:?}: instructions are not judged", known.origin);
    }
    let (moved, worst) = told_moved(&known, &measured, judged);
    if args.update {
        let reason = match &args.reason {
            Some(reason) => reason,
            None if moved > 0 => {
                return Err(format!("{moved} lines move: give the reason with --reason TEXT"));
            }
            None => "",
        };
        let keeps = |figure: &Figure| {
            !cases.iter().any(|case| case.name == figure.case)
                || (!watched && figure.metric == "instructions")
        };
        // Counts are the same everywhere; instructions that were not measured keep their origin.
        let origin = if watched { origin } else { known.origin.clone() };
        known.updated(&measured, keeps, origin, reason).write(&args.file)?;
    }
    let moved = moved + told_missing(&known, &measured, &cases, watched);
    let note = match (watched, judged) {
        (true, true) => "",
        (true, false) => ", instructions not judged",
        (false, _) => ", instructions not measured",
    };
    say!(
        "gate: cases {}, moved {moved}, worst {:+.2} %, {:.0} s{note}",
        cases.len(),
        worst * 100.0,
        started.elapsed().as_secs_f64()
    );
    Ok(moved == 0 || args.update)
}

/// Returns the figures of `cases`; with `watched`, instructions too.
fn measured(cases: &[&Case], watched: bool, prefix: &[&str]) -> Result<Vec<Figure>> {
    let mut measured: Vec<Figure> = Vec::new();
    for case in cases {
        let counts = case.run(case.operations).map_err(|e| format!("{}: {e}", case.name))?;
        let figure =
            |(metric, value): (String, f64)| Figure::new(case.name, &metric, value, tolerance(&metric));
        measured.extend(counts.into_iter().map(figure));
    }
    if watched {
        for (case, value) in callgrind::instructions(cases, prefix)? {
            measured.push(Figure::new(case, "instructions", value, INSTRUCTIONS_TOLERANCE));
        }
    }
    Ok(measured)
}

/// Reads the file. With `--update` it need not exist.
fn known(args: &GateArgs) -> Result<File> {
    match Path::new(&args.file).exists() {
        true => File::read(&args.file),
        false if args.update => Ok(File::default()),
        false => Err(format!("{}: no such file; --update creates it", args.file.display())),
    }
}

/// Prints the figures that are new or outside their tolerance. Returns their number, without instructions that are not
/// `judged`, and the largest relative change of any figure.
fn told_moved(known: &File, measured: &[Figure], judged: bool) -> (usize, f64) {
    let mut moved = 0;
    let mut worst: f64 = 0.0;
    for figure in measured {
        let Some(old) = known.figure(&figure.case, &figure.metric) else {
            say!("{} {}: new, {}", figure.case, figure.metric, figure.value);
            moved += 1;
            continue;
        };
        let change = old.change(figure.value);
        if change.abs() > worst.abs() {
            worst = change;
        }
        if old.is_moved(figure.value) {
            let percent = change * 100.0;
            say!("{} {}: {} was {}, {percent:+.2} %", figure.case, figure.metric, figure.value, old.value);
            moved += usize::from(judged || figure.metric != "instructions");
        }
    }
    (moved, worst)
}

/// Prints the figures of `cases` that are in the file but were not measured. Returns their number.
fn told_missing(known: &File, measured: &[Figure], cases: &[&Case], watched: bool) -> usize {
    let mut missing = 0;
    for old in known.figures.iter().filter(|old| cases.iter().any(|case| case.name == old.case)) {
        let is_measured = measured.iter().any(|new| new.case == old.case && new.metric == old.metric);
        if !is_measured && (watched || old.metric != "instructions") {
            say!("{} {}: in the file, but not measured", old.case, old.metric);
            missing += 1;
        }
    }
    missing
}

/// Returns the processor model.
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
