//! The bank run: seeded bugs that the other runs must find, each in a process of its own, within a budget of cases.
//!
//! A bug that is not found is a defect of the tests. With none switched on, the same runs raise no alarm. The switches
//! only exist in builds with `--cfg sim`.

use crate::failure::Failure;
use crate::runs::{corrupt, crash, model};
use crate::workload::{Taste, Workload};
use std::process::Command;

/// The bugs, and the run that is to find each.
pub const BUGS: &[(&str, Hunt)] = &[
    ("B1", Hunt::Crash),
    ("B2", Hunt::Crash),
    ("B3", Hunt::Crash),
    ("B5", Hunt::Corrupt),
    ("B7", Hunt::Crash),
    ("B8", Hunt::Crash),
    ("B10", Hunt::Crash),
    ("B11", Hunt::Crash),
    ("B12", Hunt::Crash),
    ("B13", Hunt::Model),
    ("B14", Hunt::Crash),
    ("B16", Hunt::Model),
    ("B18", Hunt::Model),
    ("B20", Hunt::Model),
    ("B21", Hunt::Model),
    ("B22", Hunt::Model),
    ("B23", Hunt::Model),
    ("B25", Hunt::Model),
    ("B27", Hunt::Model),
    ("B37", Hunt::Model),
    ("E2", Hunt::Model),
    ("E3", Hunt::Model),
    ("E4", Hunt::Model),
    ("E5", Hunt::Model),
    ("E6", Hunt::Model),
    ("E7", Hunt::Model),
    ("E11", Hunt::Model),
];

/// Which run looks for a bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hunt {
    /// Answers against the oracle.
    Model,
    /// Power loss.
    Crash,
    /// Damaged files.
    Corrupt,
}

/// Cases that a hunt may take.
const BUDGET: u64 = 120;
/// Cases without a bug, to see that the hunt raises no alarm.
const CALM: u64 = 40;

/// Hunts in this process, with the bug `name` switched on, or none: the first failure and the number of cases.
pub fn hunt(name: &str, hunt: Hunt, first: u64) -> (u64, Option<Failure>) {
    #[cfg(sim)]
    drumlin_types::bug::activate(name);
    #[cfg(not(sim))]
    let _ = name;
    let budget = if name == "none" { CALM } else { BUDGET };
    for case in 0..budget {
        let seed = first.wrapping_add(case);
        let failure = match hunt {
            Hunt::Model => {
                let taste = Taste { operations: 1500, ..model::TASTE };
                model::one(&Workload::generate("model", seed, &taste)).err()
            }
            Hunt::Crash => crash::one(&crash::workload(seed, 250), &crash::Cuts::default()).err(),
            Hunt::Corrupt => corrupt::run(seed, 500).failures.into_iter().next().map(|(_, failure)| failure),
        };
        if failure.is_some() {
            return (case + 1, failure);
        }
    }
    (budget, None)
}

/// What came out.
#[derive(Debug, Default)]
pub struct Figures {
    /// Bugs not found.
    pub missed: Vec<&'static str>,
    found: usize,
    alarms: usize,
    /// What each hunt said.
    pub notes: Vec<String>,
}

impl Figures {
    /// The figure line.
    pub fn line(&self) -> String {
        let bugs = self.found + self.missed.len();
        format!(
            "bank: bugs {bugs}, found {}, missed {}, false alarms {}",
            self.found,
            self.missed.len(),
            self.alarms
        )
    }

    /// Whether every bug was found, and nothing else.
    pub fn is_good(&self) -> bool {
        self.missed.is_empty() && self.alarms == 0
    }
}

/// Starts a process for each bug, and one for each hunt without any.
pub fn run(first: u64) -> Result<Figures, String> {
    if !cfg!(sim) {
        return Err("the bank needs a build with --cfg sim: cargo xtask sim bank".into());
    }
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut figures = Figures::default();
    let hunt = |name: &str, hunt: Hunt| {
        let hunt = format!("{hunt:?}");
        let seed = first.to_string();
        let arguments = ["bank", "--bug", name, "--hunt", &hunt, "--seed", &seed];
        Command::new(&program).args(arguments).output().map_err(|e| e.to_string())
    };
    for (name, kind) in BUGS {
        let output = hunt(name, *kind)?;
        figures.notes.push(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        match output.status.code() {
            Some(0) => figures.missed.push(name),
            Some(3) => figures.found += 1,
            // A bug may even end the process: that is found too.
            _ => figures.found += 1,
        }
    }
    for kind in [Hunt::Model, Hunt::Crash, Hunt::Corrupt] {
        let output = hunt("none", kind)?;
        if output.status.code() != Some(0) {
            figures.alarms += 1;
            figures.notes.push(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        }
    }
    Ok(figures)
}
