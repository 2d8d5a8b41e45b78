//! Results that the documentation shows: `docs/results/deleted.json`, and what is generated from it.
//!
//! A file of results names the command, the commit, the machine and the number of rounds. The table and the plots
//! beside it are generated from it, never typed.

use crate::deleted::{Cost, ROWS, series};
use crate::report::html;
use crate::report::model::{Build, Machine};
use crate::report::svg::{self, Series};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Results of `bench deleted` with what is needed to repeat it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Results {
    /// Command line.
    pub command: Vec<String>,
    /// Start time.
    pub started_utc: String,
    /// Machine that ran the benchmark.
    pub machine: Machine,
    /// Build of the benchmark.
    pub build: Build,
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

/// Returns the page `deleted.md`.
pub fn page(results: &Results) -> String {
    let Results { command, started_utc, machine, build, rounds, costs } = results;
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let mut out =
        String::from("# Reads after deletions and merges\n\nGenerated from `deleted.json`; do not edit.\n\n");
    let _ = writeln!(
        out,
        "Queues and a hot counter: the time of a read, in microseconds, after 1,000 to 1,000,000 entries were deleted \
         or operands merged.\n`queue-pop` deletes entries one by one, `queue-trim` by range. The mean and the 99th \
         percentile are over 2,000 reads of the first key, each\nfollowed by a deletion and an insertion. The first \
         read may pay for all deletions before it.\n\n![Mean time of a read](deleted.svg)\n"
    );
    let _ = writeln!(
        out,
        "| row | engine | deleted or merged | mean | p99 | first |\n|---|---|---:|---:|---:|---:|"
    );
    for row in ROWS {
        for cost in costs.iter().filter(|cost| cost.row == row) {
            let Cost { engine, depth, mean_us, p99_us, first_us, .. } = cost;
            let _ =
                writeln!(out, "| {row} | {engine} | {depth} | {mean_us:.2} | {p99_us:.2} | {first_us:.1} |");
        }
    }
    let dirty = if build.dirty == Some(true) { ", changed" } else { "" };
    let _ = writeln!(
        out,
        "\n- Command: `{}`\n- Commit {}{dirty}, {started_utc}, medians of {rounds} rounds\n- {}, {} cores, {}, {}",
        command.join(" "),
        text(&build.commit),
        text(&machine.cpu),
        machine.cores,
        text(&machine.filesystem),
        text(&build.rustc),
    );
    out
}

/// Height of one plot, with its title.
const PLOT: usize = 250;

/// Returns the plots as one SVG document; both axes are logarithmic (base 10).
pub fn drawing(results: &Results) -> String {
    let names = engines(&results.costs);
    let height = ROWS.len() * PLOT + 30;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 880 {height}\" width=\"880\" height=\"{height}\" \
         font-family=\"sans-serif\">\n<style>{}</style>\n<rect width=\"880\" height=\"{height}\" \
         style=\"fill:var(--back)\"/>\n",
        html::style(),
    );
    for (number, name) in names.iter().enumerate() {
        let x = 70 + number * 150;
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"8\" width=\"12\" height=\"12\" style=\"fill:var(--c{number})\"/>\
             <text x=\"{}\" y=\"19\" font-size=\"13\" style=\"fill:var(--ink)\">{}</text>",
            x + 18,
            svg::escape(name),
        );
    }
    for (number, row) in ROWS.iter().enumerate() {
        let series: Vec<Series> = names.iter().map(|engine| series(&results.costs, row, engine)).collect();
        let title =
            format!("{row}: mean time of a read, log10 us, by log10 of entries deleted or merged before");
        let plot = svg::lines(&title, &title, &series, &[], &[]);
        let plot = &plot[..plot.find("</svg>").map_or(plot.len(), |end| end + "</svg>".len())];
        let place =
            format!("<svg x=\"10\" y=\"{}\" width=\"860\" height=\"220\" viewBox", 30 + number * PLOT);
        let _ = writeln!(out, "{}", plot.replacen("<svg viewBox", &place, 1));
    }
    out += "</svg>\n";
    out
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
}
