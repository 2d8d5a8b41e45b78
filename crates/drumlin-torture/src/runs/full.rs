//! The full run: a program on disks of every size, in steps of a page, that become large again during the program.
//!
//! A run without a limit measures the disk space used after opening and the maximum. The program then runs with each
//! size between the two. At some operation the disk becomes large again; from then on nothing may fail, without
//! reopening the store. No write may be lost at any time.

use crate::failure::{Failure, Verdict};
use crate::parallel;
use crate::trial::{Trial, program, world};
use crate::workload::Workload;
use drumlin_env::{ImageMode, Random};

/// Number of operations of a program.
pub const OPERATIONS: usize = 90;
/// Bytes between two sizes.
const STEP: usize = 4096;
/// Virtual time within which a store must detect that the disk has free space again.
const SEEN_MICROS: u64 = 5_000_000;

/// Results of the run.
#[derive(Debug, Default)]
pub struct Figures {
    capacities: u64,
    refused: u64,
    /// Failures, each with its seed.
    pub failures: Vec<(u64, Failure)>,
}

impl Figures {
    /// Returns the figure line.
    pub fn line(&self) -> String {
        let count = |verdict: Verdict| self.failures.iter().filter(|(_, f)| f.verdict == verdict).count();
        let (lost, stuck) = (count(Verdict::Lost), count(Verdict::Stuck));
        format!(
            "full: capacities {}, filled {}, lost {lost}, stuck {stuck}, wrong {}",
            self.capacities,
            self.refused,
            self.failures.len() - lost - stuck,
        )
    }
}

/// Returns the disk space in use after opening the store, and the program's maximum.
fn measure(workload: &Workload) -> Result<(u64, u64), Failure> {
    let mem = world(workload.seed);
    let mut trial = Trial::new(mem.clone(), workload);
    trial.open()?;
    let least = mem.used_space();
    let mut most = least;
    for number in 0..workload.ops.len() {
        trial.step(number)?;
        most = most.max(mem.used_space());
    }
    trial.close()?;
    Ok((least, most))
}

/// Runs the program on a disk of `capacity` bytes until operation `until`. Returns whether anything failed before.
fn case(workload: &Workload, capacity: u64, until: usize) -> Result<bool, Failure> {
    let mem = world(workload.seed);
    mem.set_capacity(capacity);
    let mut trial = Trial::new(mem.clone(), workload);
    let mut filled = false;
    for number in 0..workload.ops.len() {
        if number == until {
            filled = trial.told.failures > 0;
            trial.look()?;
            let (disk, promised) = (mem.snapshot(), trial.told.commits());
            trial.told.judge_image(workload, &disk, ImageMode::All, promised, capacity)?;
            mem.set_capacity(None);
            mem.advance(SEEN_MICROS);
            trial.resumes()?;
            trial.told.failures = 0;
        }
        trial.step(number)?;
        if number >= until && trial.told.failures > 0 {
            let op = &workload.ops[number];
            let error = trial.told.error.map_or(String::new(), |error| error.to_string());
            return Err(Verdict::Stuck.of(format!("{op} fails with free disk space: {error}")).at(number));
        }
    }
    trial.look()?;
    trial.broken_order()?;
    let (disk, told) = trial.end();
    for (mode, promised) in [(ImageMode::All, told.commits()), (ImageMode::None, told.lasting)] {
        told.judge_image(workload, &disk, mode, promised, capacity)?;
    }
    Ok(filled)
}

/// Runs all capacities of one seed.
fn one(seed: u64) -> Result<Figures, Failure> {
    let workload = program("full", seed, OPERATIONS);
    let (least, most) = parallel::guarded(|| measure(&workload))?;
    let mut random = Random::new(seed, "space given back");
    let mut figures = Figures::default();
    for capacity in (least..most).step_by(STEP) {
        let until = OPERATIONS / 2 + random.index(OPERATIONS / 2);
        let filled = parallel::guarded(|| case(&workload, capacity, until))
            .map_err(|failure| failure.within(&format!("{capacity} bytes until operation {until}")))?;
        figures.capacities += 1;
        figures.refused += u64::from(filled);
    }
    Ok(figures)
}

/// Runs `count` seeds from `first` on.
pub fn run(first: u64, count: u64) -> Figures {
    let mut figures = Figures::default();
    for (number, result) in parallel::each(count, move |number| one(first.wrapping_add(number))) {
        match result {
            Ok(other) => {
                figures.capacities += other.capacities;
                figures.refused += other.refused;
            }
            Err(failure) => figures.failures.push((first.wrapping_add(number), failure)),
        }
    }
    figures
}
