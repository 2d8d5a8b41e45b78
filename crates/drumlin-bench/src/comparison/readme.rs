//! Figures of README.

use super::{BASELINE, best, is_short};
use crate::compare::{SHORTEST, Verdict, names};
use crate::report::model::Report;
use std::fmt::Write;

/// Median ratio below which a row is listed as one in which RocksDB is ahead, whatever the verdict.
const BEHIND: f64 = 0.95;

/// A figure of README.
pub(super) struct Figure {
    pub(super) report: &'static str,
    pub(super) phase: &'static str,
    /// An argument that the command of the report must have, because `what` states its value.
    pub(super) argument: &'static str,
    what: &'static str,
}

const fn figure(
    report: &'static str,
    phase: &'static str,
    argument: &'static str,
    what: &'static str,
) -> Figure {
    Figure { report, phase, argument, what }
}

pub(super) const FIGURES: [Figure; 15] = [
    figure("load", "micro fillrandom", "10000000", "10 million puts of random keys into an empty store"),
    figure("overwrite", "micro fillrandom", "4000000", "4 million puts of random keys into an empty store"),
    figure("overwrite", "micro overwrite", "4000000", "8 million puts of random keys after them"),
    figure("large", "micro readrandom", "10000000", "lookups after 10 million puts of random keys"),
    figure("large", "micro readmissing", "10000000", "lookups of absent keys in the same store"),
    figure("large", "micro seekrandom", "10000000", "seeks, each with ten steps"),
    figure("large", "micro readseq", "10000000", "scan of all entries"),
    figure("beside-writer", "micro readwhilewriting", "1000000", "lookups beside a writer of 10 MB/s"),
    figure("sync", "micro fillsync", "1000000", "synced writes"),
    figure("ycsb-large", "ycsb A", "10000000", "YCSB A with 10 million records: half reads, half updates"),
    figure("ycsb-large", "ycsb B", "10000000", "YCSB B: 95 % reads, 5 % updates"),
    figure("ycsb-large", "ycsb C", "10000000", "YCSB C: reads"),
    figure("ycsb-large", "ycsb D", "10000000", "YCSB D: mostly reads of the newest records"),
    figure("ycsb-large", "ycsb E", "10000000", "YCSB E: short scans"),
    figure(
        "ycsb-large",
        "ycsb F",
        "10000000",
        "YCSB F: reads, half of them followed by a write of the same key",
    ),
];

/// Returns the lines of README between its marks: `FIGURES`, and the phases in which a RocksDB is ahead. Fails if the
/// report of a figure is missing, or lacks the phase, the argument, a second RocksDB or enough usable rounds.
pub fn figures(reports: &[(String, Report)]) -> Result<String, String> {
    let mut out = String::new();
    for Figure { report: name, phase, argument, what } in FIGURES {
        let report = reports.iter().find(|(found, _)| found == name).map(|(_, report)| report);
        let report = report.ok_or_else(|| format!("there is no report {name}"))?;
        let baselines = names(&report.phases, |phase| &phase.engine);
        let baselines = baselines.iter().filter(|engine| engine.starts_with(BASELINE)).count();
        let has_argument = report.command.iter().any(|word| word == argument);
        match best(report, phase) {
            Some((_, spread, verdict))
                if verdict != Verdict::TooFewRounds
                    && baselines > 1
                    && has_argument
                    && !is_short(report, phase) =>
            {
                let verdict = match verdict {
                    Verdict::Better | Verdict::Worse => String::new(),
                    Verdict::WithinNoise => ", within the noise".to_owned(),
                    other => format!(", {}", other.text()),
                };
                let _ = writeln!(out, "- {what}: {}{verdict}", spread.text());
            }
            _ => {
                return Err(format!(
                    "{name}, {phase}: needs three usable rounds of {SHORTEST} s, two RocksDBs and {argument}"
                ));
            }
        }
    }
    let (mut behind, mut unsure, mut unknown, mut all) = (Vec::new(), Vec::new(), 0, 0);
    for (name, report) in reports {
        for phase in names(&report.phases, |phase| &phase.name) {
            let Some((_, spread, verdict)) = best(report, &phase) else { continue };
            let verdict = if is_short(report, &phase) { Verdict::TooFewRounds } else { verdict };
            all += 1;
            unknown += u32::from(verdict == Verdict::TooFewRounds);
            let list = if verdict == Verdict::Worse { &mut behind } else { &mut unsure };
            if verdict == Verdict::Worse || spread.median < BEHIND {
                list.push(format!("`{phase}` of `{name}` ({:.2})", spread.median));
            }
        }
    }
    let list = |rows: Vec<String>| if rows.is_empty() { "none".to_owned() } else { rows.join(", ") };
    let _ = writeln!(
        out,
        "- RocksDB is faster, in every round and by more than the noise, in these rows (phase, report, median): {}",
        list(behind)
    );
    let _ = writeln!(
        out,
        "- RocksDB's median is at least 5 % ahead, but not conclusively, in these rows (the rounds disagree, the lead \
         is within the noise, or fewer than three rounds are usable): {}",
        list(unsure)
    );
    let _ = writeln!(
        out,
        "- {unknown} of {all} rows have no verdict: they have fewer than three usable rounds, or a phase below a tenth \
         of a second"
    );
    Ok(out)
}

/// Returns `readme` with `figures` between the lines that mark their place.
pub fn with_figures(readme: &str, figures: &str) -> Option<String> {
    let (before, rest) = readme.split_once("<!-- figures -->\n")?;
    let (_, after) = rest.split_once("<!-- end of figures -->")?;
    Some(format!("{before}<!-- figures -->\n{figures}<!-- end of figures -->{after}"))
}
