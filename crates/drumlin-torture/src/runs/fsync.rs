//! The fsync run: each sync of a program fails in the three ways of real systems, and the program reacts in three
//! ways.
//!
//! The failures: the error is reported once, the pages count as clean, and a power loss reverts them; or their
//! content reverts at once; or every later sync of the file fails. The reactions: the program continues; or the power
//! fails at once; or the program reopens the store after the system has evicted the pages that it failed to write. No
//! promised write may be lost. A store that has stopped writes must not acknowledge a synced write.

use crate::failure::{Failure, Verdict};
use crate::parallel;
use crate::trial::{Trial, program, world};
use crate::workload::Workload;
use drumlin_env::sync::{Arc, Mutex};
use drumlin_env::{Effect, Fault, ImageMode, SyncFailure, When};

/// Number of operations of a program.
pub const OPERATIONS: usize = 70;

const EIO: i32 = 5;
/// Ways in which a sync fails.
const WAYS: [SyncFailure; 3] = [SyncFailure::Lost, SyncFailure::Reverts, SyncFailure::Sticky];

/// Reaction of the program to a failed sync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    GoOn,
    Cut,
    Reopen,
}

/// Results of the run.
#[derive(Debug, Default)]
pub struct Figures {
    cases: u64,
    syncs: u64,
    poisoned: u64,
    /// Number of synced writes acknowledged by a store that had stopped writes.
    acknowledged_after: u64,
    /// Failures, each with its seed.
    pub failures: Vec<(u64, Failure)>,
}

impl Figures {
    /// Returns the figure line.
    pub fn line(&self) -> String {
        let count = |verdict: Verdict| self.failures.iter().filter(|(_, f)| f.verdict == verdict).count();
        format!(
            "fsync: cases {}, syncs {}, poisoned {}, lost {}, acknowledged after {}, wrong {}",
            self.cases,
            self.syncs,
            self.poisoned,
            count(Verdict::Lost),
            self.acknowledged_after,
            self.failures.len() - count(Verdict::Lost),
        )
    }

    /// Returns whether the run passed.
    pub fn is_good(&self) -> bool {
        self.failures.is_empty() && self.acknowledged_after == 0
    }
}

/// Returns the I/O indices of the syncs of a program.
fn syncs(workload: &Workload) -> Result<Vec<u64>, Failure> {
    let mem = world(workload.seed);
    let indices: Arc<Mutex<Vec<u64>>> = Arc::default();
    let seen = indices.clone();
    mem.record(move |call| {
        if call.site.op.is_sync() {
            seen.lock().push(call.index);
        }
        false
    });
    let mut trial = Trial::new(mem, workload);
    trial.run()?;
    trial.close()?;
    let indices = std::mem::take(&mut *indices.lock());
    Ok(indices)
}

/// Fails the sync at `index`. Returns whether writes were stopped, and the number of synced writes acknowledged after
/// that.
fn case(workload: &Workload, index: u64, way: SyncFailure, then: Then) -> Result<(bool, u64), Failure> {
    let mem = world(workload.seed);
    mem.inject(Fault { op: None, kind: None, when: When::Index(index), effect: Effect::FailSync(EIO, way) });
    let mut trial = Trial::new(mem.clone(), workload);
    // Buffered writes are lost with pages that revert or are evicted.
    trial.reverts = way == SyncFailure::Reverts || then == Then::Reopen;
    let mut has_failed = false;
    for number in 0..workload.ops.len() {
        trial.step(number)?;
        if has_failed || mem.fired().is_empty() {
            continue;
        }
        has_failed = true;
        match then {
            Then::GoOn => {}
            Then::Cut => break,
            Then::Reopen => {
                trial.close()?;
                mem.evict();
            }
        }
    }
    if !trial.reverts {
        trial.look()?;
    }
    trial.broken_order()?;
    let reverts = trial.reverts;
    let (disk, told) = trial.end();
    let alive = if reverts { told.lasting } else { told.commits() };
    for (mode, promised) in [(ImageMode::All, alive), (ImageMode::None, told.lasting)] {
        told.judge_image(workload, &disk, mode, promised, index)?;
    }
    Ok((told.poisoned > 0, told.acknowledged_after))
}

/// Runs all cases of one seed, or only case number `alone`.
pub fn one(seed: u64, alone: Option<u64>) -> Result<Figures, Failure> {
    let workload = program("fsync", seed, OPERATIONS);
    let indices = parallel::guarded(|| syncs(&workload))?;
    let mut figures = Figures { syncs: indices.len() as u64, ..Figures::default() };
    let mut number = 0;
    for index in indices {
        for way in WAYS {
            for then in [Then::GoOn, Then::Cut, Then::Reopen] {
                let this = number;
                number += 1;
                if alone.is_some_and(|alone| alone != this) {
                    continue;
                }
                let (poisoned, after) =
                    parallel::guarded(|| case(&workload, index, way, then)).map_err(|failure| {
                        failure.within(&format!("sync at {index}, {way:?}, {then:?}")).in_part(this)
                    })?;
                figures.cases += 1;
                figures.poisoned += u64::from(poisoned);
                figures.acknowledged_after += after;
            }
        }
    }
    Ok(figures)
}

/// Runs `count` seeds from `first` on.
pub fn run(first: u64, count: u64) -> Figures {
    let mut figures = Figures::default();
    for (number, result) in parallel::each(count, move |number| one(first.wrapping_add(number), None)) {
        match result {
            Ok(other) => {
                figures.cases += other.cases;
                figures.syncs += other.syncs;
                figures.poisoned += other.poisoned;
                figures.acknowledged_after += other.acknowledged_after;
            }
            Err(failure) => figures.failures.push((first.wrapping_add(number), failure)),
        }
    }
    figures
}
