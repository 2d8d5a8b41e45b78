//! The page `docs/results/growth.md`: growth policies on the clock of a disk model.
//!
//! It is generated from `docs/results/growth.json`, the `--json` files of `bench paced growth` and `growth-zipf` in one
//! list. A test compares the page with the results, and `cargo xtask bless -p drumlin-bench` rewrites it.

use super::Counted;
use crate::results::Origin;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// JSON output of `bench paced`.
#[derive(Serialize, Debug)]
pub struct Report {
    /// Command, start time, machine and build.
    #[serde(flatten)]
    pub origin: Origin,
    /// Workload plan.
    pub plan: String,
    /// Results by policy.
    pub courses: Vec<Counted>,
}

/// The part of a [`Report`] that the page shows.
#[derive(Deserialize, Debug)]
struct Run {
    #[serde(flatten)]
    origin: Origin,
    plan: String,
    courses: Vec<Course>,
}

#[derive(Deserialize, Debug)]
struct Course {
    policy: String,
    nanos: f64,
    phases: Vec<Phase>,
}

#[derive(Deserialize, Debug)]
struct Phase {
    name: String,
    nanos: f64,
    fetched: f64,
    flushed: f64,
    merged: f64,
    put_p999: f64,
    mean_runs: f64,
    space: f64,
}

/// Title of a table, its decimals, and the figure of a phase.
type Table = (&'static str, usize, fn(&Phase) -> f64);

const TABLES: [Table; 6] = [
    ("Microseconds per operation", 2, |phase| phase.nanos / 1e3),
    ("Compaction write amplification: blocks written by compactions per flushed block", 2, |phase| {
        phase.merged / phase.flushed
    }),
    ("Blocks that reads fetched per operation", 3, |phase| phase.fetched),
    ("Most entries in tables per key", 2, |phase| phase.space),
    ("Mean number of runs", 1, |phase| phase.mean_runs),
    ("99.9th percentile of puts, milliseconds", 2, |phase| phase.put_p999 / 1e6),
];

/// Returns the page of the runs in `json`.
pub fn page(json: &str) -> Result<String, serde_json::Error> {
    let runs: Vec<Run> = serde_json::from_str(json)?;
    let mut out = String::from(
        "# Growth policies\n\nGenerated from `growth.json`; do not edit.\n\n\
         The four mixes of the paper on Vertiorizon, one after the other, on the engine in virtual time\n\
         (`drumlin bench paced`): a block read takes 12 us, a block write 15 us, and an operation 1 us more. So the\n\
         figures are the same on every machine. 60,000 keys, values of 1000 bytes, memtables of 64 KiB, 8 MiB of\n\
         memory, one compaction slot. Updates overwrite existing keys. In percent of updates, point lookups and\n\
         ranges: read-heavy 10, 90, 0; balanced 50, 50, 0; write-heavy 90, 10, 0; range 75, 0, 25. The mean is over\n\
         all operations.\n",
    );
    for run in &runs {
        let Origin { command, started_utc, build, .. } = &run.origin;
        let commit = build.commit.as_deref().unwrap_or("unknown");
        let dirty = if build.dirty == Some(true) { ", changed" } else { "" };
        // Omits `--json` and its file: where the results went does not matter.
        let end = command.iter().position(|word| word == "--json").unwrap_or(command.len());
        let _ = writeln!(
            out,
            "\n## Plan {}, {}\n\n    {}\n\nCommit {commit}{dirty}, {started_utc}.",
            run.plan,
            command.iter().find(|word| word.starts_with("pipeline=")).map_or("", String::as_str),
            command[..end].join(" ")
        );
        for (number, (title, digits, figure)) in TABLES.iter().enumerate() {
            table(run, title, *digits, *figure, number == 0, &mut out);
        }
    }
    Ok(out)
}

fn table(run: &Run, title: &str, digits: usize, figure: fn(&Phase) -> f64, has_mean: bool, out: &mut String) {
    let names = run.courses.first().map_or(&[][..], |course| &course.phases);
    let heads: String = names.iter().map(|phase| format!(" {} |", phase.name)).collect();
    let mean = if has_mean { " mean |" } else { "" };
    let _ = writeln!(out, "\n{title}:\n\n| policy |{heads}{mean}");
    let _ = writeln!(out, "|---|{}{}", "---:|".repeat(names.len()), if has_mean { "---:|" } else { "" });
    for course in &run.courses {
        let cells: String = course
            .phases
            .iter()
            .map(|phase| match figure(phase) {
                value if value.is_finite() => format!(" {value:.digits$} |"),
                _ => " - |".to_owned(),
            })
            .collect();
        let mean = if has_mean { format!(" {:.digits$} |", course.nanos / 1e3) } else { String::new() };
        let _ = writeln!(out, "| `{}` |{cells}{mean}", course.policy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the page in `docs/results` with the results. With `DRUMLIN_BLESS=1` it rewrites it.
    #[test]
    fn published_results_are_up_to_date() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results");
        let path = format!("{folder}/growth.md");
        let Ok(json) = std::fs::read_to_string(format!("{folder}/growth.json")) else {
            assert!(!std::path::Path::new(&path).exists(), "the page has no results");
            return;
        };
        let runs: Vec<Run> = serde_json::from_str(&json).expect("results");
        for run in &runs {
            assert_ne!(run.origin.build.dirty, Some(true), "results of sources that are in no commit");
        }
        let text = page(&json).expect("a page");
        if std::env::var_os("DRUMLIN_BLESS").is_some() {
            std::fs::write(&path, text).expect("written");
        } else {
            let found = std::fs::read_to_string(&path).expect("the page");
            assert_eq!(found, text, "growth.md: run `cargo xtask bless -p drumlin-bench`");
        }
    }
}
