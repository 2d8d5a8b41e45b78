//! The regression gate: compares exactly repeatable figures with a checked-in file.
//!
//! Time is noisy, counts are not. Every case runs on one thread over a simulated disk, with virtual time, stepped
//! background work and seed 1. This process takes the counts: bytes, environment calls, syncs, blocks, runs,
//! decisions, allocations. Callgrind counts instructions. It runs the case with n and with 2n operations; the
//! difference divided by n is the cost of one operation, because one-time work cancels out.
//!
//! A figure outside its tolerance in either direction fails the gate, so improvements are recorded too. Instructions
//! are judged only with the compiler and processor that the file names; otherwise they are only shown.
//!
//! `--regress PERCENT` tests the gate itself: each case runs unchanged, and then with that much more work than it
//! reports. The gate must notice the difference. If instructions are measured, only they decide, because the other
//! counts per operation are merely multiplied.

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
    if cases.is_empty() {
        return Err(format!("no case has {:?} in its name", args.only.as_deref().unwrap_or_default()));
    }
    let watched = !args.counts;
    let measured = measured(&cases, watched, prefix, Work { more_percent: 0 })?;
    if let Some(more_percent) = args.regress {
        let known = File { figures: measured, ..File::default() };
        let more = self::measured(&cases, watched, prefix, Work { more_percent })?;
        return Ok(told_unnoticed(&known, &more, &cases, watched) == 0);
    }
    let known = known(args)?;
    let origin = Origin { rustc: rustc_version(), processor: crate::measure::machine::processor() };
    let judged = args.update || known.origin == origin;
    if watched && !judged {
        say!(
            "the file was measured on {:?}, this is {origin:?}: instructions are shown and not judged",
            known.origin
        );
    }
    // The file names one machine, so instructions of several cannot be mixed.
    let is_whole = cases.len() == CASES.len() || known.figures.is_empty();
    if args.update && watched && !is_whole && known.origin != origin {
        return Err(format!(
            "the file is of {:?} and this is {origin:?}: update all cases, or --counts alone",
            known.origin
        ));
    }
    let (moved, largest) = told_moved(&known, &measured, judged);
    if args.update {
        let reason = match &args.reason {
            Some(reason) => reason,
            None if moved > 0 => {
                return Err(format!(
                    "{moved} figures are outside their tolerance: give the reason with --reason TEXT"
                ));
            }
            None => "",
        };
        let keeps = |figure: &Figure| {
            let of_others = !cases.iter().any(|case| case.name == figure.case);
            of_others && CASES.iter().any(|case| case.name == figure.case)
                || (!watched && figure.metric == "instructions")
        };
        // The origin concerns instructions alone, so it stays as it is if they were not measured.
        let origin = if watched { origin } else { known.origin.clone() };
        known.updated(&measured, keeps, origin, reason).write(&args.file)?;
    }
    let removed = if args.update || args.only.is_some() { 0 } else { told_removed(&known) };
    let moved = moved + removed + told_missing(&known, &measured, &cases, watched);
    let note = match (watched, judged) {
        (true, true) => "",
        (true, false) => ", instructions not judged",
        (false, _) => ", instructions not measured",
    };
    say!(
        "gate: {} cases, {moved} figures outside their tolerance; {largest}; {:.0} s{note}",
        cases.len(),
        started.elapsed().as_secs_f64()
    );
    Ok(moved == 0 || args.update)
}

/// Additional work that cases do without reporting it (`--regress`).
#[derive(Clone, Copy)]
struct Work {
    more_percent: u64,
}

impl Work {
    /// Returns the number of operations to run in a case that reports `operations`.
    fn of(self, operations: u64) -> u64 {
        operations + operations * self.more_percent / 100
    }

    /// Returns the figure per reported operation, given the figure per executed operation.
    fn reported(self, metric: &str, value: f64) -> f64 {
        if metric.ends_with("_per_op") { value * (1.0 + self.more_percent as f64 / 100.0) } else { value }
    }
}

/// Returns the figures of `cases`; with `watched`, instructions too.
fn measured(cases: &[&Case], watched: bool, prefix: &[&str], work: Work) -> Result<Vec<Figure>> {
    let mut measured: Vec<Figure> = Vec::new();
    for case in cases {
        let counts = case.run(work.of(case.operations)).map_err(|e| format!("{}: {e}", case.name))?;
        let figure = |(metric, value): (String, f64)| {
            Figure::new(case.name, &metric, work.reported(&metric, value), tolerance(&metric))
        };
        measured.extend(counts.into_iter().map(figure));
    }
    if watched {
        for (case, value) in callgrind::instructions(cases, prefix, |operations| work.of(operations))? {
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

/// Prints the figures that are new or outside their tolerance. Returns their number and the largest change of any
/// figure in words, both without instructions that are not `judged`.
fn told_moved(known: &File, measured: &[Figure], judged: bool) -> (usize, String) {
    let mut moved = 0;
    let mut largest: f64 = 0.0;
    let mut words = "no figure changed".to_owned();
    for figure in measured {
        let Some(old) = known.figure(&figure.case, &figure.metric) else {
            say!("{} {}: new, {}", figure.case, figure.metric, figure.value);
            moved += 1;
            continue;
        };
        let (change, counts) = (old.change(figure.value), judged || figure.metric != "instructions");
        if counts && change.abs() > largest {
            largest = change.abs();
            words = format!("largest change {} ({}, {})", old.told(figure.value), figure.case, figure.metric);
        }
        if old.is_moved(figure.value) {
            let (new, was, told) = (figure.value, old.value, old.told(figure.value));
            say!("{} {}: {new} was {was}, {told}", figure.case, figure.metric);
            moved += usize::from(counts);
        }
    }
    (moved, words)
}

/// Prints the cases whose additional work went unnoticed: no figure moved or, with `watched`, their instructions did
/// not. Returns their number.
fn told_unnoticed(known: &File, measured: &[Figure], cases: &[&Case], watched: bool) -> usize {
    let is_noticed = |figure: &Figure| {
        let old = known.figure(&figure.case, &figure.metric);
        old.is_some_and(|old| old.is_moved(figure.value) && figure.value > old.value)
    };
    let counts = |figure: &Figure| !watched || figure.metric == "instructions";
    let unnoticed = cases.iter().filter(|case| {
        let mut figures = measured.iter().filter(|figure| figure.case == case.name && counts(figure));
        let is_noticed = figures.any(is_noticed);
        if !is_noticed {
            say!("{}: additional work is not noticed", case.name);
        }
        !is_noticed
    });
    let unnoticed = unnoticed.count();
    say!("gate: {} cases, {unnoticed} of them did not notice the additional work", cases.len());
    unnoticed
}

/// Prints the figures in the file whose cases no longer exist. Returns their number.
fn told_removed(known: &File) -> usize {
    let is_removed = |figure: &&Figure| CASES.iter().all(|case| case.name != figure.case);
    let removed: Vec<&Figure> = known.figures.iter().filter(is_removed).collect();
    removed.iter().for_each(|figure| say!("{} {}: there is no such case", figure.case, figure.metric));
    removed.len()
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

fn rustc_version() -> String {
    let output = std::process::Command::new("rustc").arg("--version").output();
    output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(name: &str) -> &'static Case {
        CASES.iter().find(|case| case.name == name).expect("a known case")
    }

    #[test]
    fn three_percent_more_instructions_are_noticed_and_one_percent_is_not() {
        let figure = |value| {
            let of = |case: &Case| Figure::new(case.name, "instructions", value, INSTRUCTIONS_TOLERANCE);
            CASES.iter().map(of).collect::<Vec<_>>()
        };
        let known = File { figures: figure(1000.0), ..File::default() };
        let cases: Vec<&Case> = CASES.iter().collect();
        for (value, unnoticed) in [(1030.0, 0), (1010.0, CASES.len()), (970.0, CASES.len())] {
            assert_eq!(told_unnoticed(&known, &figure(value), &cases, true), unnoticed, "{value}");
        }
    }

    #[test]
    fn more_work_than_reported_moves_counts() {
        let cases = [case("put-random"), case("get-device"), case("search")];
        let figures =
            |more_percent| measured(&cases, false, &[], Work { more_percent }).expect("the cases run");
        let known = File { figures: figures(0), ..File::default() };
        assert_eq!(told_unnoticed(&known, &figures(25), &cases, false), 0);
        assert_eq!(told_unnoticed(&known, &figures(0), &cases, false), 3);
    }

    #[test]
    fn what_measures_nothing_does_not_pass() {
        let args = GateArgs {
            update: false,
            reason: None,
            only: Some("gett".to_owned()),
            counts: true,
            regress: None,
            file: "no/file".into(),
            case: None,
            operations: 0,
        };
        assert!(compare(&args, &[]).is_err_and(|what| what.contains("no case has \"gett\"")));
        let known =
            |case: &str| File { figures: vec![Figure::new(case, "runs", 1.0, 0.0)], ..File::default() };
        assert_eq!((told_removed(&known("gone")), told_removed(&known("search"))), (1, 0));
    }

    #[test]
    fn the_largest_change_is_that_of_a_judged_figure() {
        let known = File {
            figures: vec![
                Figure::new("get", "instructions", 100.0, 0.02),
                Figure::new("put", "blocks", 50.0, 0.1),
                Figure::new("scan", "syncs", 0.0, 0.0),
            ],
            ..File::default()
        };
        let told = |instructions, blocks, syncs, judged| {
            let values = [instructions, blocks, syncs];
            let new = known.figures.iter().zip(values).map(|(old, value)| Figure { value, ..old.clone() });
            told_moved(&known, &new.collect::<Vec<_>>(), judged)
        };
        assert_eq!(told(100.0, 50.0, 0.0, true), (0, "no figure changed".to_owned()));
        assert_eq!(
            told(90.0, 51.0, 0.0, true),
            (1, "largest change -10.00 % (get, instructions)".to_owned())
        );
        assert_eq!(told(90.0, 51.0, 0.0, false), (0, "largest change +2.00 % (put, blocks)".to_owned()));
        assert_eq!(told(90.0, 51.0, 3.0, true), (2, "largest change from 0 to 3 (scan, syncs)".to_owned()));
    }

    #[test]
    fn counts_repeat_exactly() {
        for name in ["put-random", "get-table", "dynamic"] {
            let case = case(name);
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
