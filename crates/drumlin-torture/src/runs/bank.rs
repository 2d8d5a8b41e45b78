//! The bank run: seeded bugs that the other runs must find, each in its own process, within a budget of cases.
//!
//! A bug that is not found is a defect of the tests. The case that found a bug runs again without it and must pass:
//! otherwise something else failed, which is a false alarm. The bug switches exist only in builds with `--cfg sim`.

use crate::failure::{Failure, Verdict};
use crate::parallel;
use crate::runs::{admin, corrupt, crash, fault, fsync, full, model, segment, threads, unlink};
use crate::workload::{Taste, Workload};
use std::collections::BTreeSet;
use std::process::Command;

/// The bugs, each with the run that must find it.
pub const BUGS: &[(&str, Hunt)] = &[
    ("no-log-sync", Hunt::Crash),
    ("no-log-dir-sync", Hunt::Crash),
    ("closed-segments-not-synced", Hunt::Crash),
    ("header-without-kind", Hunt::Segment),
    ("no-synced-mark", Hunt::Corrupt),
    ("batch-replayed-in-part", Hunt::Crash),
    ("last-seq-from-manifest", Hunt::Crash),
    ("sync-retried", Hunt::Fsync),
    ("no-table-sync", Hunt::Crash),
    ("no-manifest-dir-sync", Hunt::Crash),
    ("log-unlinked-before-edit", Hunt::Crash),
    ("flushed-mark-not-rewritten", Hunt::Model),
    ("file-number-reused", Hunt::Crash),
    ("log-floor-too-high", Hunt::Crash),
    ("drop-tombstone-above-bottom", Hunt::Model),
    ("backward-skips-a-version", Hunt::Model),
    ("filter-misses-first-key", Hunt::Model),
    ("cache-key-without-table", Hunt::Model),
    ("range-tombstone-end-inclusive", Hunt::Model),
    ("claims-not-projected", Hunt::Model),
    ("cursor-error-swallowed", Hunt::Fault),
    ("intra-level-order-unchecked", Hunt::Model),
    ("key-split-over-tables", Hunt::Model),
    ("table-unlinked-twice", Hunt::Model),
    ("write-error-ignored", Hunt::Full),
    ("log-floor-not-durable", Hunt::Model),
    ("project-without-outputs", Hunt::Model),
    ("install-out-of-order", Hunt::Model),
    ("drop-not-logged", Hunt::Model),
    ("remainder-loses-a-key", Hunt::Model),
    ("get-stops-at-first-hit", Hunt::Model),
    ("drop-by-newest-seq", Hunt::Model),
    ("drop-despite-unfinished-output", Hunt::Model),
    ("newest-memtable-first", Hunt::Model),
    ("record-without-epoch", Hunt::Segment),
    ("snapshot-expires-now", Hunt::Model),
    ("expire-before-snapshot", Hunt::Model),
    ("merge-keeps-expiry-bytes", Hunt::Model),
    ("merge-mixed-expiries", Hunt::Model),
    ("skip-newer-than-snapshot", Hunt::Model),
    ("run-hidden-by-old-tombstone", Hunt::Model),
    ("insert-into-skipped-span", Hunt::Model),
    ("combined-newer-than-snapshot", Hunt::Model),
    ("combined-across-range-delete", Hunt::Model),
    ("replayed-seq-counted", Hunt::Crash),
    ("edits-not-validated", Hunt::Admin),
    ("keyspace-id-reused", Hunt::Admin),
    ("options-read-early", Hunt::Admin),
    ("operator-name-unchecked", Hunt::Admin),
    ("failed-unlink-not-counted", Hunt::Unlink),
    ("snapshot-of-unpublished", Hunt::Threads),
    ("edit-after-poison", Hunt::Fault),
    ("own-ttl-ignored", Hunt::Model),
    ("rename-not-logged", Hunt::Model),
    ("rename-not-synced", Hunt::Model),
    ("value-file-unlinked-before-edit", Hunt::Crash),
    ("kept-pointer-not-counted", Hunt::Model),
    ("checkpoint-without-a-value-file", Hunt::Model),
    ("value-record-unverified", Hunt::Corrupt),
    ("values-of-parts-forgotten", Hunt::Model),
];

/// Run that searches for a bug.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Hunt {
    /// Administration under threads.
    Admin,
    /// Compares answers with the oracle.
    Model,
    /// Power loss.
    Crash,
    /// Damaged files.
    Corrupt,
    /// Failing calls, and panics in background steps.
    Fault,
    /// Failing syncs.
    Fsync,
    /// A full disk.
    Full,
    /// The codec of log segments.
    Segment,
    /// Several threads, whose reads must fit into the order of the commits.
    Threads,
    /// Tables that cannot be removed for a while, under a disk budget.
    Unlink,
}

impl Hunt {
    /// All hunts.
    pub const ALL: [Hunt; 10] = [
        Hunt::Admin,
        Hunt::Model,
        Hunt::Crash,
        Hunt::Corrupt,
        Hunt::Fault,
        Hunt::Fsync,
        Hunt::Full,
        Hunt::Segment,
        Hunt::Threads,
        Hunt::Unlink,
    ];
}

/// Maximum number of cases of a hunt: ten times the mean that most bugs need.
pub const BUDGET: u64 = 500;
/// The bug that is found most seldom, in one case of about 300, and its maximum number of cases.
const RAREST: (&str, u64) = ("log-floor-not-durable", 3000);

fn budget(name: &str) -> u64 {
    if name == RAREST.0 { RAREST.1 } else { BUDGET }
}
/// Number of cases of [`Hunt::Unlink`] without a bug. Each other hunt is a run that some lane makes without a bug
/// anyway, with more cases.
const CALM_UNLINK: u64 = 40;

/// Hunts in this process, in `cases` cases from seed `first` on, with bug `name` switched on or with none. With `part`,
/// only that part of each case runs, if the run can do a part alone. Returns the number of cases and the first failure.
///
/// Parts are numbered by the calls of a run without a fault. A bug that changes their number shifts the parts, so
/// part `n` with the bug and part `n` without it may be different faults of the same workload.
pub fn hunt(name: &str, hunt: Hunt, first: u64, cases: u64, part: Option<u64>) -> (u64, Option<Failure>) {
    #[cfg(sim)]
    drumlin_types::bug::activate(name);
    #[cfg(not(sim))]
    let _ = name;
    let first_of = |failures: Vec<(u64, Failure)>| failures.into_iter().next().map(|(_, failure)| failure);
    for case in 0..cases {
        let seed = first.wrapping_add(case);
        let failure = match hunt {
            Hunt::Model => {
                let taste = Taste { operations: 1500, ..model::TASTE };
                model::one(&Workload::generate("model", seed, &taste)).err()
            }
            Hunt::Admin => admin::one(seed, admin::OPERATIONS).err(),
            Hunt::Crash => crash::one(&crash::workload(seed, 250), &crash::Cuts::default()).err(),
            Hunt::Corrupt => first_of(corrupt::run(seed, 500).failures),
            Hunt::Fault => fault::one(seed, part).err(),
            Hunt::Fsync => fsync::one(seed, part).err(),
            Hunt::Segment => segment::one(seed).err(),
            Hunt::Threads => first_of(threads::run(seed, 1, threads::OPERATIONS / 5).failures),
            Hunt::Unlink => unlink::one(seed).err(),
            Hunt::Full => first_of(full::run(seed, 1).failures),
        };
        if failure.is_some() {
            return (case + 1, failure);
        }
    }
    (cases, None)
}

/// Exit code of a process that found a failure.
pub const FOUND: i32 = 3;
/// Exit code of a process that refused its arguments.
const REFUSED: i32 = 1;

/// Seeds that one process runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Cases {
    hunt: Hunt,
    first: u64,
    count: u64,
    part: Option<u64>,
}

/// Returns the case, counted from 1, and the part that the output of a hunt names as the one that found the bug.
fn place(output: &str) -> Option<(u64, Option<u64>)> {
    let place = output.split_once(" in case ")?.1.split_once(':')?.0;
    Some(match place.split_once(", part ") {
        Some((case, part)) => (case.parse().ok()?, Some(part.parse().ok()?)),
        None => (place.parse().ok()?, None),
    })
}

/// Results of the run.
#[derive(Debug, Default)]
pub struct Figures {
    /// Bugs not found.
    pub missed: Vec<&'static str>,
    found: usize,
    alarms: usize,
    /// Output of each hunt.
    pub notes: Vec<String>,
}

impl Figures {
    /// Returns the figure line.
    pub fn line(&self) -> String {
        let bugs = self.found + self.missed.len();
        format!(
            "bank: bugs {bugs}, found {}, missed {}, false alarms {}",
            self.found,
            self.missed.len(),
            self.alarms
        )
    }

    /// Returns whether every bug was found and no alarm was false.
    pub fn is_good(&self) -> bool {
        self.missed.is_empty() && self.alarms == 0
    }
}

/// Runs each bug in a process of its own, and then without a bug each case that found one.
pub fn run(first: u64) -> Result<Figures, String> {
    if !cfg!(sim) {
        return Err("the bank needs a build with --cfg sim: cargo xtask sim bank".into());
    }
    let mut figures = Figures::default();
    let cases = |name: &str, hunt: Hunt| Cases { hunt, first, count: budget(name), part: None };
    let hunts = BUGS.iter().map(|(name, hunt)| (*name, cases(name, *hunt)));
    // A bug may end the process without output: that counts as found, but leaves no case to run again.
    let mut controls = BTreeSet::from([Cases { hunt: Hunt::Unlink, first, count: CALM_UNLINK, part: None }]);
    for (name, cases, is_calm, note) in processes(hunts.collect())? {
        if let Some((case, part)) = place(&note).filter(|_| !is_calm) {
            controls.insert(Cases { first: first.wrapping_add(case - 1), count: 1, part, ..cases });
        }
        match is_calm {
            true => figures.missed.push(name),
            false => figures.found += 1,
        }
        figures.notes.push(note);
    }
    for (_, _, is_calm, note) in processes(controls.into_iter().map(|cases| ("none", cases)).collect())? {
        if !is_calm {
            figures.alarms += 1;
            figures.notes.push(note);
        }
    }
    Ok(figures)
}

/// Hunts for each bug in a process of its own, as many at a time as there are cores. Returns the bug, its cases,
/// whether all passed, and the output.
fn processes(hunts: Vec<(&'static str, Cases)>) -> Result<Vec<(&'static str, Cases, bool, String)>, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let started = hunts.clone();
    let outputs = parallel::each(hunts.len() as u64, move |number| {
        let (name, cases) = &started[number as usize];
        let mut command = Command::new(&program);
        command.args(["bank", "--bug", name, "--hunt", &format!("{:?}", cases.hunt)]);
        command.args(["--seed", &cases.first.to_string(), "--cases", &cases.count.to_string()]);
        if let Some(part) = cases.part {
            command.args(["--alone", &part.to_string()]);
        }
        command.output().map_err(|e| Verdict::Failed.of(e.to_string()))
    });
    let result = |(number, output): (u64, Result<std::process::Output, Failure>)| {
        let (name, cases) = hunts[number as usize];
        let output = output.map_err(|e| e.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        // Nothing was hunted, so nothing was found.
        if output.status.code() == Some(REFUSED) {
            return Err(format!(
                "the hunt for {name} with {cases:?} did not begin: {}",
                text(&output.stderr)
            ));
        }
        Ok((name, cases, output.status.success(), text(&output.stdout)))
    };
    outputs.into_iter().map(result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_a_hunt_names_the_case_and_its_part() {
        assert_eq!(place("a: found by Model in case 12: wrong: in case 3: x"), Some((12, None)));
        assert_eq!(place("a: found by Fault in case 1, part 177: order: x"), Some((1, Some(177))));
        assert_eq!(place("a: not found by Model in 500 cases"), None);
    }
}
