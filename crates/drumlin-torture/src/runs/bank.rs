//! The bank run: seeded bugs that the other runs must find, each in its own process, within a budget of cases.
//!
//! A bug that is not found is a defect of the tests. The same runs without a bug must raise no alarm. The bug
//! switches exist only in builds with `--cfg sim`.

use crate::failure::{Failure, Verdict};
use crate::parallel;
use crate::runs::{admin, corrupt, crash, fault, fsync, full, model, segment, threads, unlink};
use crate::workload::{Taste, Workload};
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
];

/// Run that searches for a bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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

    /// Returns the number of cases without a bug, which check that the hunt raises no alarm. A run with many checks
    /// per case needs fewer: a case of the crash run has about 400 images.
    fn calm(self) -> u64 {
        match self {
            Hunt::Admin | Hunt::Model | Hunt::Corrupt | Hunt::Segment | Hunt::Unlink => CALM,
            Hunt::Crash => 4,
            Hunt::Fault | Hunt::Fsync | Hunt::Full | Hunt::Threads => 1,
        }
    }
}

/// Maximum number of cases of a hunt: ten times the mean that the rarest bugs need.
const BUDGET: u64 = 500;
/// Number of cases without a bug, which check that a hunt raises no alarm.
const CALM: u64 = 40;

/// Hunts in this process, with bug `name` switched on, or with none. Returns the number of cases and the first
/// failure.
pub fn hunt(name: &str, hunt: Hunt, first: u64) -> (u64, Option<Failure>) {
    #[cfg(sim)]
    drumlin_types::bug::activate(name);
    #[cfg(not(sim))]
    let _ = name;
    let budget = if name == "none" { hunt.calm() } else { BUDGET };
    let first_of = |failures: Vec<(u64, Failure)>| failures.into_iter().next().map(|(_, failure)| failure);
    for case in 0..budget {
        let seed = first.wrapping_add(case);
        let failure = match hunt {
            Hunt::Model => {
                let taste = Taste { operations: 1500, ..model::TASTE };
                model::one(&Workload::generate("model", seed, &taste)).err()
            }
            Hunt::Admin => admin::one(seed, admin::OPERATIONS).err(),
            Hunt::Crash => crash::one(&crash::workload(seed, 250), &crash::Cuts::default()).err(),
            Hunt::Corrupt => first_of(corrupt::run(seed, 500).failures),
            Hunt::Fault => fault::one(seed, None).err(),
            Hunt::Fsync => first_of(fsync::run(seed, 1).failures),
            Hunt::Segment => segment::one(seed).err(),
            Hunt::Threads => first_of(threads::run(seed, 1, threads::OPERATIONS / 5).failures),
            Hunt::Unlink => unlink::one(seed).err(),
            Hunt::Full => first_of(full::run(seed, 1).failures),
        };
        if failure.is_some() {
            return (case + 1, failure);
        }
    }
    (budget, None)
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

/// Starts a process for each bug, and one without a bug for each hunt.
pub fn run(first: u64) -> Result<Figures, String> {
    if !cfg!(sim) {
        return Err("the bank needs a build with --cfg sim: cargo xtask sim bank".into());
    }
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut figures = Figures::default();
    let hunt = move |name: &str, hunt: Hunt| {
        let hunt = format!("{hunt:?}");
        let seed = first.to_string();
        let arguments = ["bank", "--bug", name, "--hunt", &hunt, "--seed", &seed];
        Command::new(&program).args(arguments).output().map_err(|e| Verdict::Failed.of(e.to_string()))
    };
    // Hunts that no bug uses are not run without a bug either, so they raise no alarm.
    let used = Hunt::ALL.into_iter().filter(|kind| BUGS.iter().any(|(_, hunt)| hunt == kind));
    // Hunts without a bug take longest, so they come first.
    let hunts: Vec<(&'static str, Hunt)> =
        used.map(|kind| ("none", kind)).chain(BUGS.iter().copied()).collect();
    let outputs = {
        let hunts = hunts.clone();
        parallel::each(hunts.len() as u64, move |number| {
            let (name, kind) = hunts[number as usize];
            hunt(name, kind)
        })
    };
    for (number, output) in outputs {
        let (name, _) = hunts[number as usize];
        let output = output.map_err(|e| e.to_string())?;
        let is_calm = output.status.code() == Some(0);
        let note = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        match (name, is_calm) {
            ("none", true) => {}
            ("none", false) => {
                figures.alarms += 1;
                figures.notes.push(note);
            }
            (_, true) => {
                figures.missed.push(name);
                figures.notes.push(note);
            }
            // A bug may end the process; that counts as found.
            (_, false) => {
                figures.found += 1;
                figures.notes.push(note);
            }
        }
    }
    Ok(figures)
}
