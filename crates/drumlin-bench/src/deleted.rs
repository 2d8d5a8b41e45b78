//! Read cost as a function of the number of entries deleted, or merge operands written, before the reads: queues and
//! a hot counter.
//!
//! There are three rows, each measured at several depths:
//! - `queue-pop`: `depth` entries are pushed and then popped one by one. At intervals the consumer reads the first
//!   key. After that, the benchmark repeatedly reads the first key, deletes it and pushes a new entry. The reads are
//!   timed.
//! - `queue-trim`: the same, but range deletions remove the head of the queue.
//! - `counter`: `depth` operands are merged (with the merge operator) into one key that holds a number. After that,
//!   the benchmark repeatedly reads the key and merges into it. The reads are timed.
//!
//! Every engine starts each row with an empty store and reads nothing from files unnecessarily. The first read after
//! the `depth` operations is reported separately, because it may pay for all of them. All results are verified.

use crate::engine::{Direction, Durability, Engine, EngineConfig, EngineKind, Result};
use crate::report::html;
use crate::report::svg::{self, Series};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::Path;
use std::time::Instant;

/// Names of the rows, in the order of the report.
pub const ROWS: [&str; 3] = ["queue-pop", "queue-trim", "counter"];

/// Number of timed reads at each depth.
const READS: u64 = 2000;
/// Number of entries that remain in a queue.
const LEFT: u64 = 1000;
/// Number of pops between two reads of the consumer, and of entries that one range deletion covers.
const STRIDE: u64 = 1000;
const VALUE: [u8; 100] = [7; 100];
const COUNTER: &[u8] = b"counter";

/// Read cost of one engine in one row at one depth.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Cost {
    /// Name of the row.
    pub row: String,
    /// Name of the engine.
    pub engine: String,
    /// Number of entries deleted, or operands merged, before the reads.
    pub depth: u64,
    /// Time of the first read in microseconds.
    pub first_us: f64,
    /// Median time of the later reads in microseconds.
    pub median_us: f64,
    /// 99th percentile of the later reads in microseconds.
    pub p99_us: f64,
    /// Mean time of the later reads in microseconds.
    pub mean_us: f64,
}

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"queue...00000000";
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// An engine under test.
struct Bench<'a> {
    engine: &'a dyn Engine,
    durability: Durability,
}

impl Bench<'_> {
    fn push(&self, number: u64) -> Result<()> {
        self.engine.put(&key(number), &VALUE, self.durability)
    }

    /// Reads the first key, checks that it is entry `number`, and returns the time in microseconds.
    fn head(&self, number: u64) -> Result<f64> {
        let mut found = Vec::new();
        let began = Instant::now();
        self.engine.range(None, Direction::Forward, 1, &mut |key, _| found.extend_from_slice(key))?;
        let micros = began.elapsed().as_nanos() as f64 / 1e3;
        match found == key(number) {
            true => Ok(micros),
            false => Err(format!(
                "wrong answer: the first key is {:?}, not entry {number}",
                found.escape_ascii().to_string()
            )),
        }
    }

    fn pop(&self, number: u64, by_range: bool) -> Result<()> {
        match by_range {
            true => self.engine.delete_range(&key(0), &key(number + 1), self.durability),
            false => self.engine.delete(&key(number), self.durability),
        }
    }

    fn queue(&self, depth: u64, by_range: bool) -> Result<Vec<f64>> {
        (0..depth + LEFT).try_for_each(|number| self.push(number))?;
        for number in 0..depth {
            let is_last = (number + 1).is_multiple_of(STRIDE) || number + 1 == depth;
            if is_last || !by_range {
                self.pop(number, by_range)?;
            }
            if is_last && number + 1 < depth {
                self.head(number + 1)?;
            }
        }
        let mut times = Vec::new();
        for read in 0..=READS {
            times.push(self.head(depth + read)?);
            self.pop(depth + read, by_range)?;
            self.push(depth + LEFT + read)?;
        }
        Ok(times)
    }

    fn counter(&self, depth: u64) -> Result<Vec<f64>> {
        let one = 1i64.to_le_bytes();
        self.engine.put(COUNTER, &0i64.to_le_bytes(), self.durability)?;
        (0..depth).try_for_each(|_| self.engine.merge(COUNTER, &one, self.durability))?;
        let mut times = Vec::new();
        for read in 0..=READS {
            let mut found = Vec::new();
            let began = Instant::now();
            self.engine.get(COUNTER, &mut |value| found.extend_from_slice(value))?;
            times.push(began.elapsed().as_nanos() as f64 / 1e3);
            if found != (depth + read).to_le_bytes() {
                return Err(format!("wrong answer: the counter holds {found:?}, not {}", depth + read));
            }
            self.engine.merge(COUNTER, &one, self.durability)?;
        }
        Ok(times)
    }
}

/// Measures `row` at `depth` with a new store in `dir`.
pub fn measure(
    kind: &dyn EngineKind,
    config: &EngineConfig,
    dir: &Path,
    row: &'static str,
    depth: u64,
) -> Result<Cost> {
    std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let engine = kind.open(dir, config)?;
    let bench = Bench { engine: &*engine, durability: config.durability };
    let mut times = match row {
        "counter" => bench.counter(depth)?,
        _ => bench.queue(depth, row == "queue-trim")?,
    };
    engine.close()?;
    let first_us = times.remove(0);
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let mean_us = times.iter().sum::<f64>() / times.len() as f64;
    let engine = kind.name().to_owned();
    Ok(Cost { row: row.to_owned(), engine, depth, first_us, median_us: at(0.5), p99_us: at(0.99), mean_us })
}

/// Formats the costs as a text table.
pub fn table(costs: &[Cost]) -> String {
    let mut out = format!(
        "{:<12} {:<14} {:>9} {:>12} {:>10} {:>10} {:>10}\n",
        "row", "engine", "depth", "first us", "median us", "p99 us", "mean us"
    );
    for c in costs {
        let _ = writeln!(
            out,
            "{:<12} {:<14} {:>9} {:>12.1} {:>10.2} {:>10.2} {:>10.2}",
            c.row, c.engine, c.depth, c.first_us, c.median_us, c.p99_us, c.mean_us
        );
    }
    out
}

/// Returns the means of `engine` in `row` over the depths.
pub(crate) fn series(costs: &[Cost], row: &str, engine: &str) -> Series {
    let points = costs.iter().filter(|cost| cost.row == row && cost.engine == engine);
    Series {
        name: engine.to_owned(),
        points: points.map(|cost| ((cost.depth as f64).log10(), cost.mean_us.log10())).collect(),
    }
}

/// Formats the costs as an HTML page with a plot per row; both axes are logarithmic (base 10).
pub fn page(costs: &[Cost]) -> String {
    let mut out = html::begin("Cost of reads against deleted and merged entries");
    let mut engines: Vec<&str> = costs.iter().map(|c| c.engine.as_str()).collect();
    engines.sort_unstable();
    engines.dedup();
    for row in ROWS {
        let series: Vec<Series> = engines.iter().map(|engine| series(costs, row, engine)).collect();
        if series.iter().all(|series| series.points.is_empty()) {
            continue;
        }
        let _ = writeln!(out, "<h2>{row}</h2>");
        let title = format!("{row}: mean of a read by entries deleted or merged before");
        out += &svg::lines(&title, "log10 us by log10 entries", &series, &[], &[]);
        let names: Vec<String> = engines
            .iter()
            .enumerate()
            .map(|(i, name)| format!("<span class=\"c{i}\">{name}</span>"))
            .collect();
        let _ = writeln!(out, "<p class=\"legend\">{}</p>", names.join(" "));
    }
    let _ = writeln!(out, "<pre>{}</pre>", svg::escape(&table(costs)));
    html::end(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drumlin_engine::Drumlin;

    #[test]
    fn every_row_runs_and_is_drawn() {
        let dir = drumlin::env::TempDir::new("drumlin-deleted").expect("a directory");
        let config = EngineConfig { in_memory: true, memory_bytes: 64 << 20, ..EngineConfig::default() };
        let mut costs = Vec::new();
        for row in ROWS {
            for depth in [500, 3000] {
                let dir = dir.path().join(format!("{row}-{depth}"));
                costs.push(measure(&Drumlin, &config, &dir, row, depth).expect(row));
            }
        }
        assert_eq!(table(&costs).lines().count(), 7);
        let page = page(&costs);
        assert!(ROWS.iter().all(|row| page.contains(&format!("<h2>{row}</h2>"))));
    }
}
