//! Published results of `bench deleted`: `docs/results/deleted.json`, and the page and plots generated from it.
//!
//! A result file names the command, the commit, the machine and the number of rounds. The table and the plots are
//! generated from the file, never typed. A test compares them with it, and `cargo xtask bless -p drumlin-bench`
//! rewrites them.

use crate::deleted::{Cost, ROWS, series};
use crate::report::model::{Build, Machine};
use crate::report::svg;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Command, start time, machine and build of a run: what is needed to repeat it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Origin {
    /// Command line.
    pub command: Vec<String>,
    /// Start time.
    pub started_utc: String,
    /// Machine that ran the benchmark.
    pub machine: Machine,
    /// Build of the benchmark.
    pub build: Build,
}

/// Results of `bench deleted` with what is needed to repeat it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Results {
    /// Command, start time, machine and build.
    #[serde(flatten)]
    pub origin: Origin,
    /// Number of rounds. Each figure is the median over the rounds.
    pub rounds: u64,
    /// Costs of all engines, rows and depths.
    pub costs: Vec<Cost>,
}

/// Returns the medians over the rounds. The first element of each group gives the row, engine and depth.
pub fn medians(rounds: &[Cost]) -> Vec<Cost> {
    let mut groups: Vec<Vec<&Cost>> = Vec::new();
    for cost in rounds {
        let is_same = |group: &Vec<&Cost>| {
            let first = group[0];
            (&first.row, &first.engine, first.depth) == (&cost.row, &cost.engine, cost.depth)
        };
        match groups.iter_mut().find(|group| is_same(group)) {
            Some(group) => group.push(cost),
            None => groups.push(vec![cost]),
        }
    }
    let of = |group: &[&Cost], figure: fn(&Cost) -> f64| {
        let mut values: Vec<f64> = group.iter().map(|cost| figure(cost)).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let median = |group: &Vec<&Cost>| Cost {
        first_us: of(group, |cost| cost.first_us),
        median_us: of(group, |cost| cost.median_us),
        p99_us: of(group, |cost| cost.p99_us),
        mean_us: of(group, |cost| cost.mean_us),
        ..group[0].clone()
    };
    groups.iter().map(median).collect()
}

fn engines(costs: &[Cost]) -> Vec<&str> {
    let mut seen = BTreeSet::new();
    costs.iter().map(|cost| cost.engine.as_str()).filter(|engine| seen.insert(*engine)).collect()
}

/// Returns the page `deleted.md` of several runs.
pub fn page(runs: &[Results]) -> String {
    let mut out =
        String::from("# Reads after deletions and merges\n\nGenerated from `deleted.json`; do not edit.\n\n");
    let _ = writeln!(
        out,
        "Queues and a hot counter: the time of a read, in microseconds, after 1,000 to 1,000,000 entries were deleted \
         or operands merged.\n`queue-pop` deletes entries one by one, `queue-trim` by range. The mean and the 99th \
         percentile are over 2,000 reads of the first key, each\nfollowed by a deletion and an insertion. The first \
         read may pay for all deletions before it.\n\n![Mean time of a read](deleted.svg)"
    );
    runs.iter().for_each(|run| add_run(run, &mut out));
    out
}

/// Adds the table of one run, with what is needed to repeat it.
fn add_run(run: &Results, out: &mut String) {
    let Results { origin, rounds, costs } = run;
    let Origin { command, started_utc, machine, build } = origin;
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let dirty = if build.dirty == Some(true) { ", changed" } else { "" };
    let _ = writeln!(
        out,
        "\n## `{}`\n\nCommit {}{dirty}, {started_utc}, medians of {rounds} rounds; {}, {} cores, {}, {}.\n",
        command.join(" "),
        text(&build.commit),
        text(&machine.processor_name()),
        machine.cores,
        text(&machine.filesystem),
        text(&build.rustc),
    );
    out.push_str(
        "| row | engine | deleted or merged | mean | p99 | first |\n|---|---|---:|---:|---:|---:|\n",
    );
    for row in ROWS {
        for cost in costs.iter().filter(|cost| cost.row == row) {
            let Cost { engine, depth, mean_us, p99_us, first_us, .. } = cost;
            let _ =
                writeln!(out, "| {row} | {engine} | {depth} | {mean_us:.2} | {p99_us:.2} | {first_us:.1} |");
        }
    }
}

/// Colours of the lines of plots.
pub(crate) const COLOURS: [&str; 5] = ["#1f6feb", "#d9480f", "#b08800", "#2b8a3e", "#862e9c"];
/// Size of a plot area, and its offsets in the drawing.
const WIDE: f64 = 740.0;
const HIGH: f64 = 170.0;
const LEFT: f64 = 80.0;
const TOP: f64 = 60.0;
/// Distance between the tops of two plots.
const STEP: f64 = 240.0;
/// Largest powers of ten of the axes: entries from 1,000, and microseconds from 1.
const DEPTHS: (f64, f64) = (3.0, 6.0);
const MICROS: (f64, f64) = (0.0, 5.0);

/// Returns the costs of all runs. If several have the same row, engine and depth, only the first is kept.
fn first_of_each(runs: &[Results]) -> Vec<Cost> {
    let mut seen = BTreeSet::new();
    let all = runs.iter().flat_map(|run| &run.costs);
    let mut costs: Vec<Cost> = all
        .filter(|cost| seen.insert((cost.row.clone(), cost.engine.clone(), cost.depth)))
        .cloned()
        .collect();
    costs.sort_by_key(|cost| cost.depth);
    costs
}

/// Returns the plots of several runs as one SVG document; both axes are logarithmic.
pub fn drawing(runs: &[Results]) -> String {
    let costs = first_of_each(runs);
    let names = engines(&costs);
    let height = TOP + STEP * ROWS.len() as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 880 {height}\" width=\"880\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\" fill=\"#1b1f24\">\n<rect width=\"880\" height=\"{height}\" \
         fill=\"#fff\"/>\n"
    );
    for (number, name) in names.iter().enumerate() {
        let (x, colour) = (LEFT + 150.0 * number as f64, COLOURS[number % COLOURS.len()]);
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"12\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"22\">{}</text>",
            x + 18.0,
            svg::escape(name),
        );
    }
    for (number, row) in ROWS.iter().enumerate() {
        let _ = writeln!(out, "<g transform=\"translate({LEFT} {})\">", TOP + STEP * number as f64);
        draw_axes(row, &mut out);
        for (number, engine) in names.iter().enumerate() {
            draw_line(&costs, row, engine, COLOURS[number % COLOURS.len()], &mut out);
        }
        out += "</g>\n";
    }
    out += "</svg>\n";
    out
}

/// Returns the distance from the left of a plot for the logarithm of a number of entries.
fn across(depth: f64) -> f64 {
    (depth - DEPTHS.0) / (DEPTHS.1 - DEPTHS.0) * WIDE
}

/// Returns the distance from the top of a plot for the logarithm of a time in microseconds.
fn down(micros: f64) -> f64 {
    HIGH - (micros - MICROS.0) / (MICROS.1 - MICROS.0) * HIGH
}

fn draw_axes(row: &str, out: &mut String) {
    let _ = writeln!(
        out,
        "<text x=\"0\" y=\"-10\" font-weight=\"bold\">{row}: mean time of a read, by entries deleted or merged before\
         </text>"
    );
    for (power, label) in ["1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms"].iter().enumerate() {
        let y = down(power as f64);
        let _ = writeln!(
            out,
            "<line x1=\"0\" x2=\"{WIDE}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#d8dee4\"/>\
             <text x=\"-8\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            y + 4.0
        );
    }
    for (at, label) in ["1,000", "10,000", "100,000", "1,000,000"].iter().enumerate() {
        let x = across(DEPTHS.0 + at as f64);
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            HIGH + 18.0
        );
    }
}

fn draw_line(costs: &[Cost], row: &str, engine: &str, colour: &str, out: &mut String) {
    let points = series(costs, row, engine).points;
    let place = |(depth, micros): &(f64, f64)| (across(*depth), down(*micros));
    let path: Vec<String> = points.iter().map(place).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(
        out,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"/>",
        path.join(" ")
    );
    for (x, y) in points.iter().map(place) {
        let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(engine: &str, depth: u64, mean_us: f64) -> Cost {
        let (first_us, median_us, p99_us) = (mean_us * 10.0, mean_us, mean_us * 2.0);
        Cost {
            row: ROWS[0].to_owned(),
            engine: engine.to_owned(),
            depth,
            first_us,
            median_us,
            p99_us,
            mean_us,
        }
    }

    #[test]
    fn the_median_of_the_rounds_counts() {
        let rounds = [cost("a", 10, 3.0), cost("b", 10, 1.0), cost("a", 10, 9.0), cost("a", 10, 2.0)];
        let medians = medians(&rounds);
        assert_eq!(medians, [cost("a", 10, 3.0), cost("b", 10, 1.0)]);
    }

    /// Compares the page and the plots in `docs/results` with the results. With `DRUMLIN_BLESS=1` it rewrites them.
    #[test]
    fn published_results_are_up_to_date() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results");
        let read = |name: &str| std::fs::read_to_string(format!("{folder}/{name}")).expect(name);
        let runs: Vec<Results> = serde_json::from_str(&read("deleted.json")).expect("results");
        for run in &runs {
            assert!(run.rounds >= 3, "{} rounds are too few to publish", run.rounds);
            assert_ne!(run.origin.build.dirty, Some(true), "results of sources that are in no commit");
        }
        for (name, text) in [("deleted.md", page(&runs)), ("deleted.svg", drawing(&runs))] {
            if std::env::var_os("DRUMLIN_BLESS").is_some() {
                std::fs::write(format!("{folder}/{name}"), text).expect(name);
            } else {
                assert_eq!(read(name), text, "{name}: run `cargo xtask bless -p drumlin-bench`");
            }
        }
    }
}
