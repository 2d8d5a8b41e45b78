//! Search for the worst loads for ARCE.
//!
//! Programs of random phases are varied, and variations that make a figure worse are kept. The figures are: covered
//! runs; elective compaction bytes as a share of what the rewrite guard allows; table space per byte of the tree; and
//! the waits of writers. All results must stay within the guarantees of the guards:
//!
//! - in any sequence of phases, elective bytes <= 2N + 20 * flushed + N * days (the simulator has no device that
//!   reads fetch from, so the guard's fourth term is zero);
//! - covered runs <= `max_runs` + 8;
//! - tables exceed the tree at most by what the pieces of one compaction leave half replaced.
//!
//! `ADVERSE_ROUNDS` multiplies the effort and `ADVERSE_SEED` draws other programs; the nightly lane sets both. The
//! test prints each result with its program, so that it can be reproduced.

use drumlin_policy::{SplitMix, by_name};
use drumlin_sim::{PhaseReport, Setup, Stage, stages};
use std::env;
use std::fmt::Write;

const FLUSH: u64 = 128 << 10;
const PRELOAD: u64 = 24 << 20;
const MAX_RUNS: f64 = 64.0;
/// Number of runs above the maximum at which writers are stopped.
const BEYOND: f64 = 8.0;
const MAX_WRITE_AMP: f64 = 20.0;
const DAY_NS: f64 = 86_400e9;
/// Upper bound on table space per byte of the tree. A compaction of the whole tree in pieces keeps its input tables
/// until their last part is replaced.
const MOST_SPACE: f64 = 2.0;
/// Number of initial programs, and of variations of the worst of them.
const PROGRAMS: usize = 6;
const VARIATIONS: usize = 18;
/// Smallest and largest number of operations of a phase.
const OPERATIONS: (f64, f64) = (1000.0, 25_000.0);
const MOST_PHASES: usize = 8;

fn setup() -> Setup {
    Setup { flush_bytes: FLUSH, preload: PRELOAD, operations: 1.0, audit: true, ..Setup::default() }
}

fn number(name: &str, or: u64) -> u64 {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(or)
}

fn drawn(dice: &mut SplitMix) -> Stage {
    let parts = [0, 1, 2].map(|_| {
        let part = dice.below(100) as f64 + 0.1;
        // Half of the phases consist almost entirely of one kind of operation.
        if dice.one_in(2) { part * part * part } else { part }
    });
    let sum: f64 = parts.iter().sum();
    let name = char::from(b'a' + dice.below(26) as u8);
    let operations = OPERATIONS.0 + dice.below((OPERATIONS.1 - OPERATIONS.0) as usize) as f64;
    Stage { name, mix: parts.map(|part| part / sum), operations }
}

/// Returns `program` with one phase replaced, mixed with another, made longer or shorter, duplicated, or removed.
fn varied(program: &[Stage], dice: &mut SplitMix) -> Vec<Stage> {
    let mut next = program.to_vec();
    let at = dice.below(next.len());
    match dice.below(6) {
        0 if next.len() < MOST_PHASES => next.insert(at, next[dice.below(next.len())]),
        1 if next.len() > 1 => drop(next.remove(at)),
        2 => {
            let longer = next[at].operations * [0.5, 0.8, 1.25, 2.0][dice.below(4)];
            next[at].operations = longer.clamp(OPERATIONS.0, OPERATIONS.1);
        }
        3 => {
            let other = drawn(dice).mix;
            let mix = next[at].mix;
            next[at].mix = [0, 1, 2].map(|kind| 0.75 * mix[kind] + 0.25 * other[kind]);
        }
        _ => next[at] = drawn(dice),
    }
    next
}

struct Figures {
    runs: f64,
    /// Elective bytes divided by what the guard allows, in the worst sequence of phases.
    guard: f64,
    space: f64,
    wait: f64,
}

fn guarded(reports: &[PhaseReport]) -> f64 {
    let mut worst: f64 = 0.0;
    for from in 0..reports.len() {
        let (mut elective, mut flushed, mut days) = (0.0, 0.0, 0.0);
        for report in &reports[from..] {
            elective += report.elective as f64;
            flushed += report.flushed as f64;
            days += report.time / DAY_NS;
            let tree = report.bytes as f64;
            worst = worst.max(elective / (2.0 * tree + MAX_WRITE_AMP * flushed + tree * days));
        }
    }
    worst
}

fn run(program: &[Stage]) -> Figures {
    let reports: Vec<PhaseReport> = stages(&mut *by_name("arce").unwrap(), setup(), program).unwrap();
    let most = |of: fn(&PhaseReport) -> f64| reports.iter().map(of).fold(0.0, f64::max);
    Figures {
        runs: most(|r| r.runs.1),
        guard: guarded(&reports),
        space: most(|r| r.space),
        wait: most(|r| r.wait),
    }
}

/// Climbs to programs with larger `figure`. Prints and returns the worst program.
fn climb(name: &str, figure: fn(&Figures) -> f64) -> (f64, Vec<Stage>) {
    let seed = number("ADVERSE_SEED", 1);
    let rounds = number("ADVERSE_ROUNDS", 1).max(1) as usize;
    let mut dice = SplitMix::new(name.bytes().fold(seed, |seed, byte| seed * 31 + u64::from(byte)));
    let mut worst = (f64::NEG_INFINITY, Vec::new());
    // Each round starts from new programs, because a climb ends at a local maximum.
    for _ in 0..rounds {
        let mut best = (f64::NEG_INFINITY, Vec::new());
        for _ in 0..PROGRAMS {
            let phases = 1 + dice.below(5);
            let next: Vec<Stage> = (0..phases).map(|_| drawn(&mut dice)).collect();
            let found = figure(&run(&next));
            best = if found > best.0 { (found, next) } else { best };
        }
        for _ in 0..VARIATIONS {
            let next = varied(&best.1, &mut dice);
            let found = figure(&run(&next));
            best = if found > best.0 { (found, next) } else { best };
        }
        worst = if best.0 > worst.0 { best } else { worst };
    }
    let mut program = String::new();
    for Stage { mix: [seeks, writes, gets], operations, .. } in &worst.1 {
        let _ =
            write!(program, " {operations:.0} of {:.2}/{:.2}/{:.2}", seeks * 1e2, writes * 1e2, gets * 1e2);
    }
    println!("adverse: {name} {:.4}, seed {seed}, rounds {rounds}, seeks/writes/lookups:{program}", worst.0);
    worst
}

#[test]
fn runs_stay_within_their_bound() {
    let (runs, program) = climb("runs", |figures| figures.runs);
    assert!(runs > 20.0, "the search found nothing bad: {runs}");
    assert!(runs <= MAX_RUNS + BEYOND, "{runs} runs by {program:?}");
}

#[test]
fn rewrites_stay_within_their_bound() {
    let (guard, program) = climb("guard", |figures| figures.guard);
    assert!(guard > 0.0, "the search found no elective compaction");
    assert!(guard <= 1.0, "{guard} of what the guard allows by {program:?}");
}

#[test]
fn tables_stay_within_their_space() {
    let (space, program) = climb("space", |figures| figures.space);
    assert!(space > 1.0, "the search found no compaction that takes extra space");
    assert!(space <= MOST_SPACE, "{space} of the tree's bytes by {program:?}");
}

#[test]
fn writers_wait_less_than_under_leveling() {
    let (wait, program) = climb("wait", |figures| figures.wait);
    assert!(wait > 0.0, "the search found no write that waits");
    let leveling = stages(&mut *by_name("1-leveling:static").unwrap(), setup(), &program).unwrap();
    let other = leveling.iter().map(|r| r.wait).fold(0.0, f64::max);
    // A stop of one compaction's length is the worst case.
    assert!(wait <= other.max(1e9), "{wait} ns, {other} under 1-leveling, by {program:?}");
}
