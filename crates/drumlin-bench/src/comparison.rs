//! The page `docs/results/comparison.md`: Drumlin beside other engines. A few of its figures are in README too.
//!
//! It is generated from the reports in `docs/results/comparison`, each the `--json --brief` file of one command. The
//! first table has one line for each phase of each report, with the report's name and the command that repeats it. Each
//! report follows with all its engines. A test compares the page with the reports, and `cargo xtask bless -p
//! drumlin-bench` rewrites it.
//!
//! The ratio is that against the RocksDB with the least favourable median, and the verdict is the least favourable one
//! over all RocksDBs of the report. A load counts with its settling.

use crate::compare::{self, SHORTEST, Spread, Verdict, control_noise, names, ratios};
use crate::goals::rows::{ROWS, judge};
use crate::report::model::{METHOD, PhaseReport, Report};
use std::fmt::Write;

/// Engine whose speed the page is about.
const OURS: &str = "drumlin";
/// Beginning of the names of the baselines.
const BASELINE: &str = "rocksdb";
/// Median ratio below which a row is listed as one in which RocksDB is ahead, whatever the verdict.
const BEHIND: f64 = 0.95;
/// Other engines that have a column.
const OTHERS: [&str; 3] = ["fjall", "redb", "lmdb"];

/// Returns processor and number of cores.
fn machine(report: &Report) -> String {
    let cpu = report.machine.cpu.as_deref().unwrap_or("unknown");
    let cpu = cpu.replace("(R)", "").replace(" Processor", "");
    format!("{cpu}, {} cores", report.machine.cores)
}

/// Returns the operations per second, of a load with its settling.
fn rate(phase: &PhaseReport) -> Option<f64> {
    (phase.ops > 0).then(|| phase.ops_per_s_settled())
}

/// Usable rounds of one engine in one phase.
struct Cell<'a>(Vec<&'a PhaseReport>);

impl<'a> Cell<'a> {
    fn of(report: &'a Report, name: &str, engine: &str) -> Cell<'a> {
        let is_it = |phase: &&PhaseReport| phase.name == name && phase.engine == engine && phase.usable;
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

/// Returns the command of a report without the program and without where its results went.
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

/// Returns the RocksDB with the least ratio in phase `name`, its ratio, and the least favourable verdict over all
/// RocksDBs: the one with the least median need not be the one with the worst rounds.
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

/// Text above the first table.
const HEAD: &str = "# Drumlin beside other engines

Generated from the reports in `comparison/`; do not edit.

- `us/op` is elapsed microseconds per operation: the time of the slowest thread from the common start of all threads to
  its last answer and, after phases that write and those of `ycsb`, the time of the settling that follows, divided by
  the operations of all threads. The CPU time that the thread spent on drawing keys does not count. Each value is the
  median of the usable rounds, and lower is better.
- Settling is a flush and a wait until no flush or compaction is pending. Before reads it is a compaction of the whole
  store into one sorted run instead, so loads compare only between commands with the same phases. Elsewhere a policy
  may leave runs that it does not want to merge: `sorted runs` and `space amp`, disk space over live keys and values,
  are those after settling.
- `report` links the report of the row: all rounds, versions and settings. `config` has the settings of an engine in its
  last phase, and `phase_config` those of each phase, if they differ.
- `vs ENGINE` is Drumlin's throughput over that of the other engine in the same round: median (least-most), or one
  number if there is one usable round. Above 1, Drumlin is faster. Each RocksDB configuration of the command has a
  median ratio; `vs RocksDB` is the lowest, `which` names its configuration, and `RocksDB us/op` is that of this
  configuration. A ratio takes the rounds in which both engines are usable, and `us/op` all usable rounds of its engine:
  with few usable rounds the two can disagree.
- `better`: against every RocksDB configuration the median is above 1.05 and every round above 1. `worse`: against one
  of them, the median is below 0.95 and every round below 1. There is no verdict with fewer than three usable rounds,
  and none for a phase of a thousand operations or more that took less than a tenth of a second. With `--aa` Drumlin
  ran twice in each round, the second time as `drumlin#2`: `within A/A noise` says that the rounds agree on more than 5
  %, and that the two Drumlins differ in some round by more still, say because a compaction fell into the phase of one.
- The verdict is about throughput alone. `p99.9`, in microseconds a call, and `peak MiB`, resident memory, stand beside
  it, Drumlin's first. Drumlin has the higher peak in most rows: its peaks include the mapped log and free memtables
  that it keeps for reuse. `p99.9` is that of all calls, from the end of the call before: if a call takes less than 2 us
  on average, one in 16 is timed by itself and counts as 16. With `--rate` it counts from the intended start. A call of
  `fillbatch` is a batch of 100 entries, and one of `multiget` asks for 32 keys.
- `CPU us/op` is CPU time of the process without the drawing of keys; background threads and settling are included.
  `write amp` is the bytes that flushes and compactions write to tables and value files over key and value bytes
  written, without the log. It is below 1 where memtables absorb overwrites. A phase with few writes shows a large
  one if any compaction falls into it.
- RocksDB is called through C, entry by entry, and has no coroutines, without which `async_io` does not help MultiGet.
  Its forms: [the benchmark's README](../../compare/README.md). Space amplification counts log files.
- The data fits into the memory, but for `dynamic` and the four phases with 16 MiB. `ops` is the number of operations,
  and `--num` that of the puts of a load. The keys of a load are random and repeat: 63 % of them are distinct.
  `overwrite` puts twice as many, among all keys. Unless the command or the row's name says otherwise: keys of 16 bytes,
  values of 100 bytes, no compression, 64 MiB memtables, an option of 10 filter bits per key, 3 GiB of memory, a log
  that is not synced, one flush and one compaction at a time (`max_background_jobs = 2`), and one client thread. `ycsb`
  has keys of about 23 bytes, each once, and updates that write a whole value; `values` has keys of 256 bytes and values
  of 4 KiB. Each engine has these settings as far as it knows them, RocksDB and fjall most, redb its cache and LMDB
  none; what memory they use differs. A put of redb or LMDB is a transaction of its own, so their loads commit once for
  each entry. `readuncached`, `readuncached16` and `multiget` have 16 MiB and read past the page cache, and
  `readpagecache` has 16 MiB and reads through it.
- `dynamic` has entries of about 1 KiB, memtables of 2 MiB and memory for a tenth of the data; its phases mix scans,
  updates and lookups differently ([benchmarks](../benchmarks.md)).
- Phases: `fillrandom` puts random keys, `fillbatch` in batches of 100; `fillsync` puts 20,000 keys of a loaded store
  again and syncs each put; `overwrite` puts keys again and ends with a compaction of the whole store. `readrandom`
  looks up keys of the store, `readmissing` absent ones, `readwhilewriting` keys for 20 seconds beside a thread that
  writes at a rate. `seekrandom` seeks and takes ten entries, `scan50` fifty, `readseq` scans all, up to 20 times and
  about 20 million entries. Lookups and seeks make two passes of `--reads` operations. `open` opens the store and looks
  up a key, five times. `values` writes each value once (`first`), writes keys again (`update`), looks up (`get`) and
  scans.
- To repeat a row, check out its commit, build (`cd compare && cargo build --release`), and run `drumlin-compare
  COMMAND --db FOLDER` on a machine with as many cores, with the folder on a disk. Rows of different machines do not
  compare, nor do times of different reports.
";
/// Head of the first table.
const FIRST_TABLE: &str = "\
| row | report | machine | vs RocksDB | which | verdict | Drumlin us/op | RocksDB us/op | p99.9 | peak MiB | vs fjall \
| vs redb | vs LMDB | commit | command |
|---|---|---|---|---|---|---:|---:|---|---|---:|---:|---:|---|---|
";

/// Text above the goals.
const GOALS: &str = "
## Goals

A goal is a least ratio of Drumlin to the RocksDB with the least favourable median (`>=`), or for quantities of which
less is better a greatest one (`<=`). `drumlin-compare goals` measures them with ten million entries, and YCSB with five
million operations a phase; this table judges the reports above. Client CPU time is that of the threads that call the
engine.

- `met`: the median reaches the target. If the target asks for a difference, every round against every RocksDB shows
  one in the quantity of the goal, and the median more than 5 %; otherwise it is `no difference`.
- `missed`: the median does not reach the target.
- `within A/A noise`: the median reaches the target, but two runs of Drumlin differ by as much in this quantity. A
  median that does not reach it is `missed, within A/A noise`.
- `too short` and `too few rounds`, as in the table above: the report says neither.

Reasons for the missed ones: [performance](../design/performance.md#beside-rocksdb).

| goal | quantity | target | report | ratio | which | verdict |
|---|---|---|---|---|---|---|
";

/// Text above the names of the reports that were measured in an older way.
const OLD: &str = "
## Older reports

These were measured by an older version of the program. In them a thread is not charged for the time in which it had
lost its core between two chunks of 256 calls, which favours phases with more threads than cores. A timed call counts
once: where calls take less than 2 us, the first 1024 of a thread weigh 16 times as much in `p99.9` as later ones, and
the first call after a drawing of keys is timed too often. `readseq` is one scan. The phases of `ycsb` that only read do
not settle. What the writer of `readwhilewriting` wrote does not count as written. `config` has the settings of the last
phase alone. They are: ";

/// Returns the page of `reports`, each with its name.
pub fn page(reports: &[(String, Report)]) -> String {
    let mut out = format!("{HEAD}\n{FIRST_TABLE}");
    for (title, report) in reports {
        let phases = names(&report.phases, |phase| &phase.name);
        phases.iter().for_each(|name| add_line(title, report, name, &mut out));
    }
    add_goals(reports, &mut out);
    let is_old = |(_, report): &&(String, Report)| report.method < METHOD;
    let old: Vec<String> = reports.iter().filter(is_old).map(|(title, _)| format!("`{title}`")).collect();
    if !old.is_empty() {
        let _ = writeln!(out, "{OLD}{}.", old.join(", "));
    }
    reports.iter().for_each(|(title, report)| add_report(title, report, &mut out));
    out
}

/// Adds the goals with what the reports say about them.
fn add_goals(reports: &[(String, Report)], out: &mut String) {
    out.push_str(GOALS);
    for row in &ROWS {
        let mut is_measured = false;
        for (title, report) in reports.iter().filter(|(title, _)| row.source.reports().contains(&&**title)) {
            let Some(judged) = judge(row, &report.phases) else { continue };
            let _ = writeln!(
                out,
                "| {} | {} | {} | [{title}](comparison/{title}.json) | {} | {} | {} |",
                row.what,
                row.quantity.text(),
                row.target(),
                judged.spread.text(),
                judged.base,
                judged.verdict
            );
            is_measured = true;
        }
        if !is_measured {
            let (what, quantity, target) = (row.what, row.quantity.text(), row.target());
            let _ = writeln!(out, "| {what} | {quantity} | {target} | - | - | - | not measured |");
        }
    }
}

/// Adds the line of phase `name` of the report called `title` to the first table.
fn add_line(title: &str, report: &Report, name: &str, out: &mut String) {
    let other = |engine: &str| {
        ratio(report, name, engine).map_or_else(|| "-".to_owned(), |spread| format!("{:.2}", spread.median))
    };
    let ours = Cell::of(report, name, OURS);
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
        "\n## {title}\n\n`{}`\n\nCommit {}, {}, {rounds} rounds, {noise}; {}, {} GiB of memory, {}, {}, {}.\n",
        report.command.join(" "),
        text(&report.build.commit),
        report.started_utc,
        machine(report),
        report.machine.ram_bytes.map_or_else(|| "unknown".to_owned(), |bytes| (bytes >> 30).to_string()),
        text(&report.machine.filesystem),
        text(&report.machine.kernel),
        text(&report.build.rustc),
    );
    out.push_str(
        "| row | engine | ops | us/op | settle s | CPU us/op | p99 | p99.9 | write amp | space amp | sorted runs | \
         peak MiB | rounds |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
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
    for warning in &report.warnings {
        let _ = writeln!(out, "\n- {warning}");
    }
}

/// A figure of README.
struct Figure {
    report: &'static str,
    phase: &'static str,
    /// An argument that the command of the report has, since `what` says so.
    argument: &'static str,
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

const FIGURES: [Figure; 14] = [
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

/// Returns the lines of README between its marks: `FIGURES`, and the phases in which a RocksDB is ahead. An error if a
/// report lacks what a figure stands for.
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
                    Verdict::Equal => ", equal",
                    Verdict::Undecided => ", undecided",
                    Verdict::WithinNoise => ", within the noise",
                    _ => "",
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
        "- rows (phase, report, median) in which RocksDB is faster in every round and by more than the noise: {}",
        list(behind)
    );
    let _ = writeln!(
        out,
        "- rows in which RocksDB's median is at least 5 % ahead, but the rounds disagree, the difference is within the \
         noise, or there are fewer than three usable rounds: {}",
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

#[cfg(test)]
mod tests;
