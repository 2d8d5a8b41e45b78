//! The fault run: each call of a program fails in each way that calls fail, and each background step panics.
//!
//! A program first runs without a fault. Then each of its operations, on each kind of file, fails with each code,
//! once and from some call on. Each I/O index fails in some way. Each background step panics at one of its calls. The
//! program continues as a user would. While the store is open, no acknowledged write may be missing, and no iterator
//! may continue after an error. Then the process dies or the power fails, and the rest must hold what was promised.

use crate::failure::{Failure, Verdict};
use crate::parallel;
use crate::trial::{Told, Trial, program, world};
use crate::workload::Workload;
use drumlin_env::{Effect, Fault, FileKind, ImageMode, MemEnv, Op, Random, SyncFailure, When};
use std::collections::{BTreeMap, BTreeSet};

/// Number of operations of a program.
pub const OPERATIONS: usize = 70;

const EIO: i32 = 5;
const EINTR: i32 = 4;
/// Error codes of failing calls: EIO, ENOSPC, EMFILE, EROFS.
const CODES: [i32; 4] = [EIO, 28, 24, 30];

/// An operation, a kind of file, the way it fails, and whether it fails repeatedly.
type Cell = (Op, Option<FileKind>, String, bool);

/// Fault of one run of a program.
#[derive(Clone, Copy, Debug)]
pub enum Trouble {
    /// Some calls fail.
    Fault(Fault),
    /// A background step panics before one of its calls.
    Panic {
        /// Number of the step.
        step: u64,
        /// Number of its calls that succeed first.
        calls: u64,
    },
}

/// Results of the run.
#[derive(Debug, Default)]
pub struct Figures {
    injections: u64,
    panics: u64,
    poisoned: u64,
    failed: u64,
    cells: BTreeSet<Cell>,
    covered: BTreeSet<Cell>,
    /// Failures, each with its seed.
    pub failures: Vec<(u64, Failure)>,
}

impl Figures {
    /// Returns the figure line.
    pub fn line(&self) -> String {
        let count = |verdict: Verdict| self.failures.iter().filter(|(_, f)| f.verdict == verdict).count();
        let named = [Verdict::Lost, Verdict::Hole, Verdict::Panic];
        let other = self.failures.iter().filter(|(_, f)| !named.contains(&f.verdict)).count();
        format!(
            "fault: injections {}, cells {} %, steps panicked {}, runs with errors {}, poisoned {}, lost {}, holes {}, \
             panics {}, wrong {other}",
            self.injections,
            self.covered.len() * 100 / self.cells.len().max(1),
            self.panics,
            self.failed,
            self.poisoned,
            count(Verdict::Lost),
            count(Verdict::Hole),
            count(Verdict::Panic),
        )
    }

    fn add(&mut self, other: Figures) {
        self.injections += other.injections;
        self.panics += other.panics;
        self.poisoned += other.poisoned;
        self.failed += other.failed;
        self.cells.extend(other.cells);
        self.covered.extend(other.covered);
    }
}

/// Returns the effects to inject into an operation, and whether each may also happen repeatedly.
fn effects(op: Op) -> Vec<(Effect, bool)> {
    // An interrupted call is repeated, so EINTR must not be permanent.
    let codes = CODES.into_iter().map(|code| (Effect::Fail(code), true));
    codes
        .chain([(Effect::Fail(EINTR), false), (Effect::Short, true)])
        .filter(|(e, _)| e.applies_to(op))
        .collect()
}

/// Effects to inject at one I/O index, including those that a rule for all calls cannot express.
const AT_INDEX: [Effect; 8] = [
    Effect::Fail(EIO),
    Effect::Fail(28),
    Effect::Fail(24),
    Effect::Fail(30),
    Effect::Partial(EIO),
    Effect::Partial(28),
    Effect::FailSync(EIO, SyncFailure::Lost),
    Effect::FailSync(EIO, SyncFailure::Sticky),
];

/// Counts of the program without a fault: calls per operation and kind, I/O calls, and background steps.
type Calm = (BTreeMap<(Op, Option<FileKind>), u64>, u64, u64);

fn calm(workload: &Workload) -> Result<Calm, Failure> {
    let mem = world(workload.seed);
    let before = mem.sites();
    let mut trial = Trial::new(mem.clone(), workload);
    trial.run()?;
    trial.close()?;
    if trial.told.failures > 0 {
        return Err(Verdict::Failed.of("a call failed without an injected fault"));
    }
    let mut done: BTreeMap<_, u64> = BTreeMap::new();
    for (site, count) in mem.sites() {
        // The calls that create the world do not fail.
        let made = before.iter().find(|(other, _)| *other == site).map_or(0, |(_, made)| *made);
        *done.entry((site.op, site.kind)).or_default() += count - made;
    }
    done.retain(|_, count| *count > 0);
    Ok((done, mem.io_index(), mem.steps()))
}

/// Runs the program with a fault and judges what is left.
pub fn trouble(workload: &Workload, trouble: &Trouble) -> Result<(Told, bool), Failure> {
    let mem = world(workload.seed);
    match *trouble {
        Trouble::Fault(fault) => mem.inject(fault),
        Trouble::Panic { step, calls } => mem.panic_at_step(step, calls),
    }
    let mut trial = Trial::new(mem.clone(), workload);
    trial.run()?;
    trial.look()?;
    trial.broken_order()?;
    let (disk, told) = trial.end();
    // The process death comes first, since a loss there is the worse failure.
    for (mode, promised) in [(ImageMode::All, told.commits()), (ImageMode::None, told.lasting)] {
        told.judge_image(workload, &disk, mode, promised, workload.seed)?;
    }
    let happened = match trouble {
        Trouble::Fault(_) => !mem.fired().is_empty(),
        Trouble::Panic { step, .. } => mem.steps() > *step,
    };
    Ok((told, happened))
}

/// Runs all faults of one seed, or only fault number `alone`.
pub fn one(seed: u64, alone: Option<u64>) -> Result<Figures, Failure> {
    let workload = program("fault", seed, OPERATIONS);
    let (done, calls, steps) = parallel::guarded(|| calm(&workload))?;
    let mut random = Random::new(seed, "troubles");
    let mut figures = Figures::default();
    let mut troubles: Vec<(Trouble, Option<Cell>)> = Vec::new();
    for (&(op, kind), &count) in &done {
        for (effect, lasts) in effects(op) {
            for sticky in [false, true].into_iter().take(1 + usize::from(lasts)) {
                let cell = (op, kind, format!("{effect:?}"), sticky);
                figures.cells.insert(cell.clone());
                let nth = random.below(count);
                let when = if sticky { When::From(nth) } else { When::Nth(nth) };
                troubles.push((Trouble::Fault(Fault { op: Some(op), kind, when, effect }), Some(cell)));
            }
        }
    }
    let first = random.index(AT_INDEX.len()) as u64;
    for index in first_call()..calls {
        let effect = AT_INDEX[((first + index) % AT_INDEX.len() as u64) as usize];
        let fault = Fault { op: None, kind: None, when: When::Index(index), effect };
        troubles.push((Trouble::Fault(fault), None));
    }
    for step in 0..steps {
        troubles.push((Trouble::Panic { step, calls: random.below(6) }, None));
    }
    for (number, (each, cell)) in troubles.iter().enumerate() {
        if alone.is_some_and(|alone| alone != number as u64) {
            continue;
        }
        let (told, happened) = parallel::guarded(|| trouble(&workload, each))
            .map_err(|failure| failure.within(&format!("fault {number}, {each:?}")).in_part(number as u64))?;
        if !happened {
            continue;
        }
        match each {
            Trouble::Fault(_) => figures.injections += 1,
            Trouble::Panic { .. } => figures.panics += 1,
        }
        figures.failed += u64::from(told.failures > 0);
        figures.poisoned += u64::from(told.poisoned > 0);
        figures.covered.extend(cell.clone());
    }
    Ok(figures)
}

/// Returns the index of the first call after those that create the world.
fn first_call() -> u64 {
    MemEnv::io_index(&world(0))
}

/// Runs `count` seeds from `first` on.
pub fn run(first: u64, count: u64) -> Figures {
    let mut figures = Figures::default();
    for (number, result) in parallel::each(count, move |number| one(first.wrapping_add(number), None)) {
        match result {
            Ok(other) => figures.add(other),
            Err(failure) => figures.failures.push((first.wrapping_add(number), failure)),
        }
    }
    figures
}
