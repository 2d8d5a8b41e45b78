//! The page `docs/results/comparison.md`: Drumlin beside other engines. A few of its figures are in README too.
//!
//! It is generated from the reports in `docs/results/comparison`, each the `--json --brief` file of one command. The
//! first table has one line for each phase of each report, with the report's name and the command that repeats it. Each
//! report follows with all its engines. A test compares the page with the reports, and `cargo xtask bless -p
//! drumlin-bench` rewrites it.
//!
//! A line shows the ratio against the RocksDB form with the lowest median ratio, and the least favourable verdict
//! over all RocksDB forms of the report. Rates include the settling after a phase.

mod readme;
mod texts;

use crate::compare::{self, Spread, Verdict, control_noise, names, ratios};
use crate::goals::rows::{ROWS, Row, judge};
use crate::report::model::{CONTROL, PhaseReport, Report};
use crate::report::peaks;
pub use readme::{figures, with_figures};
use std::fmt::Write;
use texts::{FIRST_TABLE, GOALS, HEAD, OLD, OLDER};

/// Engine whose speed the page is about.
const OURS: &str = "drumlin";
/// Beginning of the names of the baselines.
const BASELINE: &str = "rocksdb";
/// Other engines that have a column.
const OTHERS: [&str; 3] = ["fjall", "redb", "lmdb"];

/// Returns processor and number of cores.
fn machine(report: &Report) -> String {
    let cpu = report.machine.processor_name().unwrap_or_else(|| "unknown".to_owned());
    let cpu = cpu.replace("(R)", "").replace(" Processor", "");
    format!("{cpu}, {} cores", report.machine.cores)
}

/// Returns the operations per second, with the settling after the phase.
fn rate(phase: &PhaseReport) -> Option<f64> {
    (phase.ops > 0).then(|| phase.ops_per_s_settled())
}

/// Usable rounds of one engine, or of both runs of Drumlin, in one phase.
struct Cell<'a>(Vec<&'a PhaseReport>);

impl<'a> Cell<'a> {
    fn of(report: &'a Report, name: &str, engine: &str) -> Cell<'a> {
        Cell::where_engine(report, name, |found| found == engine)
    }

    /// Returns the rounds of Drumlin and its control.
    fn ours(report: &'a Report, name: &str) -> Cell<'a> {
        Cell::where_engine(report, name, |found| found.trim_end_matches(CONTROL) == OURS)
    }

    fn where_engine(report: &'a Report, name: &str, is_it: impl Fn(&str) -> bool) -> Cell<'a> {
        let is_it = |phase: &&PhaseReport| phase.name == name && is_it(&phase.engine) && phase.usable;
        Cell(report.phases.iter().filter(is_it).collect())
    }

    /// Returns the median over the rounds with `digits` decimals, or `-`.
    fn text(&self, digits: usize, of: impl Fn(&PhaseReport) -> Option<f64>) -> String {
        let values: Vec<f64> = self.0.iter().filter_map(|phase| of(phase)).collect();
        Spread::of(values).map_or_else(|| "-".to_owned(), |spread| format!("{:.digits$}", spread.median))
    }

    /// Returns the peak of resident memory.
    fn peak_mib(&self) -> String {
        self.text(0, |phase| phase.rss_peak_bytes.map(|bytes| bytes as f64 / 1048576.0))
    }

    /// Returns elapsed time per operation, with settling.
    fn micros(&self) -> String {
        self.text(2, |phase| rate(phase).map(|rate| 1e6 / rate))
    }
}

/// Returns the command of a report without the program, and without the arguments for output and the store's
/// directory.
fn short_command(report: &Report) -> String {
    let mut words = report.command.iter().skip(1);
    let mut kept: Vec<&str> = Vec::new();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--json" | "--db" | "--html" | "--tsv" => drop(words.next()),
            "--brief" | "--quiet" => {}
            word => kept.push(word),
        }
    }
    kept.join(" ")
}

/// Returns the ratio of the rates of our engine and `base` in phase `name`.
fn ratio(report: &Report, name: &str, base: &str) -> Option<Spread> {
    Spread::of(ratios(&report.phases, name, OURS, base, rate))
}

/// Returns whether phase `name` was too short for a verdict.
fn is_short(report: &Report, name: &str) -> bool {
    compare::is_short(&report.phases, name, OURS, BASELINE)
}

/// Returns the RocksDB form with the lowest median ratio in phase `name`, with that ratio, and the least favourable
/// verdict over all forms. The verdict may come from another form, whose rounds are worse.
fn best(report: &Report, name: &str) -> Option<(String, Spread, Verdict)> {
    let noise = control_noise(&report.phases, name, OURS, rate);
    let ran = |engine: &str| report.phases.iter().any(|phase| phase.name == name && phase.engine == engine);
    let engines = names(&report.phases, |phase| &phase.engine);
    let mut verdict = Verdict::Better;
    let mut least: Option<(String, Spread)> = None;
    for engine in engines.into_iter().filter(|engine| engine.starts_with(BASELINE) && ran(engine)) {
        let Some(spread) = ratio(report, name, &engine) else {
            // It ran, but in no usable round.
            verdict = verdict.min(Verdict::TooFewRounds);
            continue;
        };
        verdict = verdict.min(Verdict::of(&spread, noise));
        if least.as_ref().is_none_or(|(_, least)| spread.median < least.median) {
            least = Some((engine, spread));
        }
    }
    least.map(|(engine, spread)| (engine, spread, verdict))
}

/// Returns the 99.9th percentile in microseconds. Scans of the whole store have none: they are few calls.
fn tail(phase: &PhaseReport) -> Option<f64> {
    phase.latency_us.p99_9.filter(|_| !is_scan(phase))
}

fn is_scan(phase: &PhaseReport) -> bool {
    phase.by_op.keys().any(|kind| kind.starts_with("scan"))
}

/// Returns the page of `reports`, each with its name.
pub fn page(reports: &[(String, Report)]) -> String {
    let mut out = format!("{HEAD}\n{FIRST_TABLE}");
    for (title, report) in reports {
        let phases = names(&report.phases, |phase| &phase.name);
        phases.iter().for_each(|name| add_line(title, report, name, &mut out));
    }
    add_goals(reports, &mut out);
    add_older(reports, &mut out);
    reports.iter().for_each(|(title, report)| add_report(title, report, &mut out));
    out
}

/// Adds a note for each older measuring method: what differs, and the reports to which it applies.
fn add_older(reports: &[(String, Report)], out: &mut String) {
    let mut has_head = false;
    for (method, what) in OLD {
        let is_old = |(_, report): &&(String, Report)| report.method <= method;
        let old: Vec<String> = reports.iter().filter(is_old).map(|(title, _)| format!("`{title}`")).collect();
        if !old.is_empty() {
            out.push_str(if has_head { "" } else { OLDER });
            has_head = true;
            let _ = writeln!(out, "\n{what}{}.", old.join(", "));
        }
    }
}

/// Adds the goals, as [`goals`] judges them.
fn add_goals(reports: &[(String, Report)], out: &mut String) {
    out.push_str(GOALS);
    for [what, quantity, target, report, ratio, form, verdict] in goals(reports) {
        let report = if report == "-" { report } else { format!("[{report}](comparison/{report}.json)") };
        let _ = writeln!(out, "| {what} | {quantity} | {target} | {report} | {ratio} | {form} | {verdict} |");
    }
}

/// Judges the goals by `reports`: a line with the verdict of the deciding report, and a line for each further report
/// that measures it. A line has what is measured, the quantity, the target, the report, the ratio, the RocksDB form
/// that does best, and the verdict.
pub fn goals(reports: &[(String, Report)]) -> Vec<[String; 7]> {
    let mut lines = Vec::new();
    for row in &ROWS {
        let found = |name: &str| reports.iter().find(|(title, _)| title == name).map(|(_, report)| report);
        let deciding = row.source.deciding();
        let line = found(deciding).and_then(|report| goal(row, deciding, report, None));
        lines.push(line.unwrap_or_else(|| {
            let none = || "-".to_owned();
            let (quantity, verdict) = (row.quantity.text().to_owned(), "not measured".to_owned());
            [row.what.to_owned(), quantity, row.target(), none(), none(), none(), verdict]
        }));
        for title in row.source.informing() {
            lines.extend(found(title).and_then(|report| goal(row, title, report, Some("for information"))));
        }
    }
    lines
}

/// Returns the line of the goal `row` in the report called `title`, with `note` in place of the verdict if there is
/// one. Returns `None` if the report lacks the phase.
fn goal(row: &Row, title: &str, report: &Report, note: Option<&str>) -> Option<[String; 7]> {
    let judged = judge(row, &report.phases)?;
    Some([
        row.what.to_owned(),
        row.quantity.text().to_owned(),
        row.target(),
        title.to_owned(),
        judged.spread.text(),
        judged.base,
        note.unwrap_or(judged.verdict).to_owned(),
    ])
}

/// Adds the line of phase `name` of the report called `title` to the first table.
fn add_line(title: &str, report: &Report, name: &str, out: &mut String) {
    let other = |engine: &str| {
        ratio(report, name, engine).map_or_else(|| "-".to_owned(), |spread| format!("{:.2}", spread.median))
    };
    let ours = Cell::ours(report, name);
    let tail = |cell: &Cell<'_>| cell.text(1, tail);
    let peak = Cell::peak_mib;
    let (to, which, verdict, theirs, tails, peaks) = match best(report, name) {
        None => ["-", "-", "-", "-", "-", "-"].map(str::to_owned).into(),
        Some((engine, spread, verdict)) => {
            let cell = Cell::of(report, name, &engine);
            (
                spread.text(),
                engine,
                if is_short(report, name) { "too short".to_owned() } else { verdict.text().to_owned() },
                cell.micros(),
                format!("{}, {}", tail(&ours), tail(&cell)),
                format!("{}, {}", peak(&ours), peak(&cell)),
            )
        }
    };
    let others = OTHERS.map(other).join(" | ");
    let _ = writeln!(
        out,
        "| {name} | [{title}](comparison/{title}.json) | {} | {to} | {which} | {verdict} | {} | {theirs} | {tails} | \
         {peaks} | {others} | {} | `{}` |",
        machine(report),
        ours.micros(),
        report.build.commit.as_deref().map_or("-", |commit| commit.get(..7).unwrap_or(commit)),
        short_command(report)
    );
}

/// Adds all engines of the report called `title`, with what is needed to repeat it.
fn add_report(title: &str, report: &Report, out: &mut String) {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let rounds = report.phases.iter().map(|phase| phase.round).max().unwrap_or(0);
    let noisy = report.phases.iter().filter(|phase| !phase.usable).count();
    let noise = match report.machine.calibration.is_empty() {
        true => "noise not checked".to_owned(),
        false => format!("noise checked, {noisy} of {} phases left out", report.phases.len()),
    };
    let _ = writeln!(
        out,
        "\n## {title}\n\n`{}`\n\nCommit {}, {}, {rounds} rounds, {noise}; {}, {} GiB of memory, {} on \
         block device {}, {}, {}.\n",
        report.command.join(" "),
        text(&report.build.commit),
        report.started_utc,
        machine(report),
        report.machine.ram_bytes.map_or_else(|| "unknown".to_owned(), |bytes| (bytes >> 30).to_string()),
        text(&report.machine.filesystem),
        text(&report.machine.device),
        text(&report.machine.kernel),
        text(&report.build.rustc),
    );
    out.push_str(
        "| phase | engine | ops | us/op | settle s | CPU us/op | p99 us | p99.9 us | write amp | space amp | \
         sorted runs | peak MiB | rounds |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for name in names(&report.phases, |phase| &phase.name) {
        for engine in names(&report.phases, |phase| &phase.engine) {
            let cell = Cell::of(report, &name, &engine);
            let columns = [
                cell.text(0, |phase| Some(phase.ops as f64)),
                cell.micros(),
                cell.text(1, |phase| Some(phase.settle_seconds)),
                cell.text(2, |phase| Some(phase.process_cpu_us_per_op)),
                cell.text(1, |phase| phase.latency_us.p99.filter(|_| !is_scan(phase))),
                cell.text(1, tail),
                cell.text(2, |phase| phase.write_amp),
                cell.text(2, |phase| phase.space_amp.r#final),
                cell.text(0, |phase| phase.runs.r#final.map(|runs| runs as f64)),
                cell.peak_mib(),
                cell.0.len().to_string(),
            ];
            if !cell.0.is_empty() {
                let _ = writeln!(out, "| {name} | {engine} | {} |", columns.join(" | "));
            }
        }
    }
    // Warnings about unequal peaks are computed again, because older reports lack the engines' names in them.
    let others = report.warnings.iter().filter(|warning| !peaks::is_about(warning)).cloned();
    for warning in peaks::unequal(&report.phases).into_iter().chain(others) {
        let _ = writeln!(out, "\n- {warning}");
    }
}

#[cfg(test)]
mod tests;
