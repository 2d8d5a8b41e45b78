//! The worst that a load can do to ARCE, searched for and not thought up.
//!
//! Programs of random phases are varied one phase at a time, and what makes a figure worse is kept: the
//! covered runs, the bytes rewritten per byte flushed, the waits of writers. Whatever the search finds must
//! stay within what the guards promise.

use drumlin_policy::sim::{PhaseReport, Setup, Stage, stages};
use drumlin_policy::{SplitMix, by_name};

const FLUSH: u64 = 128 << 10;
const PRELOAD: u64 = 24 << 20;
const MAX_RUNS: f64 = 64.0;
const MAX_WRITE_AMP: f64 = 20.0;
/// Programs at first, and variations of the worst of them.
const PROGRAMS: usize = 6;
const VARIATIONS: usize = 18;

fn setup() -> Setup {
    Setup { flush_bytes: FLUSH, preload: PRELOAD, operations: 1.0, ..Setup::default() }
}

fn drawn(dice: &mut SplitMix) -> Stage {
    let parts = [0, 1, 2].map(|_| {
        let part = dice.below(100) as f64 + 0.1;
        // Half of the phases are nearly of one kind.
        if dice.one_in(2) { part * part * part } else { part }
    });
    let sum: f64 = parts.iter().sum();
    let name = char::from(b'a' + dice.below(26) as u8);
    Stage { name, mix: parts.map(|part| part / sum), operations: 1000.0 + dice.below(24_000) as f64 }
}

struct Figures {
    runs: f64,
    /// Bytes rewritten beyond what a full balance allows, per byte flushed.
    amplification: f64,
    wait: f64,
}

fn run(program: &[Stage]) -> Figures {
    let reports: Vec<PhaseReport> = stages(&mut *by_name("arce").unwrap(), setup(), program).unwrap();
    let merged: f64 = reports.iter().map(|r| r.merged as f64).sum();
    let written: f64 = program.iter().map(|stage| stage.operations * stage.mix[1] * 1024.0).sum();
    let tree = PRELOAD as f64 + written;
    Figures {
        runs: reports.iter().map(|r| r.runs.1).fold(0.0, f64::max),
        amplification: (merged - 3.0 * tree).max(0.0) / written.max(1.0),
        wait: reports.iter().map(|r| r.wait).fold(0.0, f64::max),
    }
}

/// Climbs to programs that are worse by `figure`; the worst.
fn climb(seed: u64, figure: fn(&Figures) -> f64) -> (f64, Vec<Stage>) {
    let mut dice = SplitMix::new(seed);
    let program = |dice: &mut SplitMix| (0..4).map(|_| drawn(dice)).collect::<Vec<Stage>>();
    let mut worst = (f64::NEG_INFINITY, Vec::new());
    for _ in 0..PROGRAMS {
        let next = program(&mut dice);
        let found = figure(&run(&next));
        worst = if found > worst.0 { (found, next) } else { worst };
    }
    for _ in 0..VARIATIONS {
        let mut next = worst.1.clone();
        let at = dice.below(next.len());
        next[at] = drawn(&mut dice);
        let found = figure(&run(&next));
        worst = if found > worst.0 { (found, next) } else { worst };
    }
    worst
}

#[test]
fn runs_stay_within_their_bound() {
    let (runs, program) = climb(1, |figures| figures.runs);
    assert!(runs > 20.0, "the search found nothing bad: {runs}");
    assert!(runs <= MAX_RUNS + 9.0, "{runs} runs by {program:?}");
}

#[test]
fn rewrites_stay_within_their_bound() {
    let (amplification, program) = climb(2, |figures| figures.amplification);
    assert!(amplification <= MAX_WRITE_AMP, "{amplification} by {program:?}");
}

#[test]
fn writers_wait_less_than_under_leveling() {
    let (wait, program) = climb(3, |figures| figures.wait);
    assert!(wait > 0.0, "the search found nobody who waits");
    let leveling = stages(&mut *by_name("1-leveling:static").unwrap(), setup(), &program).unwrap();
    let other = leveling.iter().map(|r| r.wait).fold(0.0, f64::max);
    // A stop of a merge's length is the worst there is.
    assert!(wait <= other.max(1e9), "{wait} ns, {other} under 1-leveling, by {program:?}");
}
