//! The report as text: a row per phase and engine, ratios if there are several engines, the best fixed policy of each
//! phase if several policies ran, and lines in the format of db_bench.

use super::model::{PhaseReport, Report};
use super::oracle;
use crate::compare::{self, Spread, compare, names};
use std::fmt::Write;

/// A column: its heading and the function that formats its cells.
type Column = (&'static str, fn(&Row<'_>) -> String);

/// All usable rounds of one engine in one phase; all rounds if none is usable.
struct Row<'a> {
    rounds: Vec<&'a PhaseReport>,
}

impl Row<'_> {
    fn median(&self, of: impl Fn(&PhaseReport) -> Option<f64>) -> Option<f64> {
        Spread::of(self.rounds.iter().filter_map(|phase| of(phase)).collect()).map(|spread| spread.median)
    }

    fn text(&self, digits: usize, of: impl Fn(&PhaseReport) -> Option<f64>) -> String {
        self.median(of).map_or("-".to_owned(), |value| format!("{value:.digits$}"))
    }
}

const COLUMNS: [Column; 15] = [
    ("phase", |row| row.rounds.first().map_or(String::new(), |phase| phase.name.clone())),
    ("engine", |row| row.rounds.first().map_or(String::new(), |phase| phase.engine.clone())),
    ("ops", |row| row.rounds.first().map_or(String::new(), |phase| phase.ops.to_string())),
    ("ops/s", |row| row.text(0, |phase| Some(phase.ops_per_s))),
    ("us/op", |row| row.text(3, |phase| (phase.ops > 0).then(|| phase.seconds * 1e6 / phase.ops as f64))),
    ("settle s", |row| row.text(1, |phase| (phase.settle_seconds > 0.05).then_some(phase.settle_seconds))),
    ("us/op settled", |row| row.text(3, |phase| (phase.ops > 0).then(|| 1e6 / phase.ops_per_s_settled()))),
    ("cpu us", |row| row.text(3, |phase| Some(phase.thread_cpu_us_per_op))),
    ("all cpu", |row| row.text(3, |phase| Some(phase.process_cpu_us_per_op))),
    ("p99 us", |row| row.text(1, |phase| phase.latency_us.p99)),
    ("p99.9 us", |row| row.text(1, |phase| phase.latency_us.p99_9)),
    ("write amp", |row| row.text(2, |phase| phase.write_amp)),
    ("space amp", |row| row.text(2, |phase| phase.space_amp.r#final)),
    ("runs", |row| row.text(1, |phase| phase.runs.avg)),
    ("stall s", |row| row.text(2, |phase| phase.stalls.seconds)),
];

/// Formats rows of cells with aligned columns. The first `left` columns are left-aligned, the others right-aligned.
pub fn aligned(rows: &[Vec<String>], left: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let _ = if column < left {
                write!(line, "{cell:<width$}  ")
            } else {
                write!(line, "{cell:>width$}  ")
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Groups the rounds by phase and engine.
fn rows(report: &Report) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for name in names(&report.phases, |phase| &phase.name) {
        for engine in names(&report.phases, |phase| &phase.engine) {
            let all: Vec<_> =
                report.phases.iter().filter(|phase| phase.name == name && phase.engine == engine).collect();
            let usable: Vec<_> = all.iter().copied().filter(|phase| phase.usable).collect();
            let rounds = if usable.is_empty() { all } else { usable };
            if !rounds.is_empty() {
                rows.push(Row { rounds });
            }
        }
    }
    rows
}

/// Returns headings and a row per phase and engine. A `!` after the name marks rows without a usable round.
pub fn result_cells(report: &Report) -> Vec<Vec<String>> {
    let mut cells = vec![COLUMNS.iter().map(|(heading, _)| (*heading).to_owned()).collect::<Vec<_>>()];
    for row in rows(report) {
        let mut line: Vec<String> = COLUMNS.iter().map(|(_, of)| of(&row)).collect();
        if row.rounds.iter().all(|phase| !phase.usable) {
            line[0].push_str(" !");
        }
        cells.push(line);
    }
    cells
}

/// Returns headings and a row per comparison of the first engine with another, worst ratio first; empty for one
/// engine.
pub fn comparison_cells(report: &Report) -> Vec<Vec<String>> {
    let engines = names(&report.phases, |phase| &phase.engine);
    let Some(first) = engines.first().filter(|_| engines.len() > 1) else { return Vec::new() };
    let headings = ["phase", "of", "to", "ratio", "min", "max", "rounds", "cpu ratio", "verdict"];
    let mut cells = vec![headings.map(str::to_owned).to_vec()];
    for c in compare(&report.phases, first) {
        let number = |value: f64| format!("{value:.2}");
        cells.push(vec![
            c.name,
            c.engine,
            c.base,
            number(c.throughput.median),
            number(c.throughput.min),
            number(c.throughput.max),
            c.throughput.rounds.to_string(),
            c.thread_cpu.map_or("-".to_owned(), |cpu| number(cpu.median)),
            c.verdict.text().to_owned(),
        ]);
    }
    for name in names(&report.phases, |phase| &phase.name) {
        if compare::streams_differ(&report.phases, &name) {
            cells.push(vec![name, "not compared: the operations differ".to_owned()]);
        }
    }
    cells
}

/// Returns the whole text.
pub fn text(report: &Report) -> String {
    let mut text = aligned(&result_cells(report), 2);
    let comparison = comparison_cells(report);
    if !comparison.is_empty() {
        text.push('\n');
        text += &aligned(&comparison, 3);
    }
    let oracle = oracle::cells(report);
    if !oracle.is_empty() {
        text.push('\n');
        text += &aligned(&oracle, 1);
        text += "ratio: above 1, the first policy is faster than the fixed one\n";
    }
    text.push('\n');
    for phase in &report.phases {
        text += &db_bench_line(phase);
    }
    text
}

/// Formats one phase as db_bench prints it.
fn db_bench_line(phase: &PhaseReport) -> String {
    let micros = phase.seconds * 1e6 / phase.ops.max(1) as f64;
    let name =
        phase.name.split_once(' ').filter(|(family, _)| *family == "micro").map_or(&*phase.name, |(_, n)| n);
    let mut line = format!(
        "{name:<12} : {micros:11.3} micros/op {:.0} ops/sec {:.3} seconds {} operations;",
        phase.ops_per_s, phase.seconds, phase.ops
    );
    if phase.bytes.ingested > 0 && phase.seconds > 0.0 {
        let _ = write!(line, " {:.1} MB/s;", phase.bytes.ingested as f64 / phase.seconds / 1048576.0);
    }
    let _ = writeln!(
        line,
        " {} round {}{}",
        phase.engine,
        phase.round,
        if phase.usable { "" } else { ", unusable" }
    );
    line
}
