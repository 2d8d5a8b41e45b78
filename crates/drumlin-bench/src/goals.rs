//! Performance goals of Drumlin against RocksDB.
//!
//! A goal is a phase of a workload and a minimum ratio of throughput, drumlin over the best of the RocksDBs in the run.
//! For quantities where less is better, it is a maximum ratio. Loads count with the work that they leave behind. A
//! verdict needs three usable rounds. Goals that need a feature that the engine does not have yet are listed as not
//! measured.

use crate::command::args::{Common, GoalsArgs, Scale};
use crate::command::ended::Ended;
use crate::command::measured::measured;
use crate::command::program::Program;
use crate::command::published::{publish, unfinished, write_files};
use crate::compare::{LEAST_ROUNDS, NO_DIFFERENCE, Spread, ratios};
use crate::engine::{Compression, EngineConfig, Result};
use crate::report::model::{PhaseReport, Report};
use crate::report::table::aligned;
use crate::rounds::Task;
use crate::workload::{Workload, dynamic, micro, ycsb};

/// Quantity that a goal compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Quantity {
    /// Operations per second; more is better.
    Throughput,
    /// Operations per second of a phase that writes and its settling, which is flushes and compactions until none is
    /// pending; more is better.
    Settled,
    /// Operations per second of the calling thread's CPU time; more is better.
    PerCpu,
    /// Table bytes written over bytes ingested (write amplification); less is better.
    WriteAmp,
    /// Peak disk space over live bytes; less is better.
    PeakSpace,
    /// CPU time per operation outside the calling threads, without the drawing of keys; less is better.
    BackgroundCpu,
    /// 99.9th percentile of call latency; less is better.
    Tail,
}

impl Quantity {
    fn less_is_better(self) -> bool {
        matches!(self, Quantity::WriteAmp | Quantity::PeakSpace | Quantity::BackgroundCpu | Quantity::Tail)
    }

    fn of(self, phase: &PhaseReport) -> Option<f64> {
        match self {
            Quantity::Throughput => Some(phase.ops_per_s),
            Quantity::Settled => Some(phase.ops_per_s_settled()),
            Quantity::PerCpu => (phase.thread_cpu_us_per_op > 0.0).then(|| 1e6 / phase.thread_cpu_us_per_op),
            Quantity::WriteAmp => phase.write_amp,
            Quantity::PeakSpace => phase.space_amp.peak,
            Quantity::Tail => phase.latency_us.p99_9,
            Quantity::BackgroundCpu => {
                Some((phase.process_cpu_us_per_op - phase.thread_cpu_us_per_op).max(f64::MIN_POSITIVE))
            }
        }
    }
}

/// A goal: one row of the table.
struct Row {
    number: u32,
    what: &'static str,
    /// Name of the phase in reports.
    phase: &'static str,
    source: Source,
    quantity: Quantity,
    target: f64,
}

/// Workload that contains the phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    /// Micro benchmark with 16-byte keys and 100-byte values.
    Small(&'static str),
    /// Micro benchmark with 24-byte keys and 1000-byte values.
    Large(&'static str),
    /// The load of 16 + 100 bytes at 60 % of the rate of the slowest engine; latency is measured from the intended
    /// start of each call.
    AtRate,
    /// YCSB workload.
    Ycsb(&'static str),
    /// All phases of a dynamic plan together.
    Dynamic(&'static str),
}

const fn row(
    number: u32,
    what: &'static str,
    phase: &'static str,
    source: Source,
    quantity: Quantity,
    target: f64,
) -> Row {
    Row { number, what, phase, source, quantity, target }
}

use Quantity::{BackgroundCpu, PeakSpace, PerCpu, Settled, Tail, Throughput, WriteAmp};
use Source::{AtRate, Dynamic, Large, Small, Ycsb};

const ROWS: [Row; 28] = [
    row(1, "fillrandom 16+100", "micro fillrandom", Small("fillrandom"), Settled, 4.0),
    row(2, "fillrandom 24+1000", "micro fillrandom", Large("fillrandom"), Settled, 1.8),
    row(3, "fillbatch", "micro fillbatch", Small("fillbatch"), Settled, 2.5),
    row(4, "fillsync", "micro fillsync", Small("fillsync"), Throughput, 1.0),
    row(5, "readrandom cached", "micro readrandom", Small("readrandom"), PerCpu, 2.3),
    row(6, "readmissing cached", "micro readmissing", Small("readmissing"), PerCpu, 1.6),
    row(7, "readuncached", "micro readuncached", Small("readuncached"), Throughput, 1.0),
    row(8, "multiget of 32, uncached", "micro multiget", Small("multiget"), Throughput, 3.0),
    row(8, "16 threads, uncached", "micro readuncached16", Small("readuncached16"), Throughput, 1.2),
    row(9, "readpagecache", "micro readpagecache", Small("readpagecache"), Throughput, 1.6),
    row(10, "seekrandom", "micro seekrandom", Small("seekrandom"), PerCpu, 2.2),
    row(11, "readseq", "micro readseq", Small("readseq"), PerCpu, 2.2),
    row(12, "YCSB A", "ycsb A", Ycsb("a"), Settled, 2.3),
    row(13, "YCSB B", "ycsb B", Ycsb("b"), Settled, 2.0),
    row(14, "YCSB C", "ycsb C", Ycsb("c"), Settled, 2.0),
    row(15, "YCSB D", "ycsb D", Ycsb("d"), Settled, 2.5),
    row(16, "YCSB E", "ycsb E", Ycsb("e"), Settled, 2.0),
    row(16, "scan50", "micro scan50", Small("scan50"), PerCpu, 2.2),
    row(17, "YCSB F", "ycsb F", Ycsb("f"), Settled, 2.2),
    row(18, "dynamic I", "dynamic I", Dynamic("I"), Throughput, 2.0),
    row(19, "dynamic II", "dynamic II", Dynamic("II"), Throughput, 1.6),
    row(21, "write amp of overwrite", "micro overwrite", Small("overwrite"), WriteAmp, 0.7),
    row(22, "peak space of overwrite", "micro overwrite", Small("overwrite"), PeakSpace, 1.1),
    row(26, "put p99.9 under load", "micro fillrandom", AtRate, Tail, 0.5),
    row(27, "background CPU, 100 B", "micro fillrandom", Small("fillrandom"), BackgroundCpu, 0.5),
    row(27, "background CPU, 1 KB", "micro fillrandom", Large("fillrandom"), BackgroundCpu, 0.5),
    row(28, "gets beside a writer", "micro readwhilewriting", Small("readwhilewriting"), Throughput, 1.2),
    row(28, "their p99.9", "micro readwhilewriting", Small("readwhilewriting"), Tail, 1.0),
];

/// Goals without a measurement, and what they need.
const NOT_MEASURED: [(u32, &str); 3] = [
    (20, "YCSB --dist arce: run `ycsb --dist arce`"),
    (23, "filter memory: filters of one size everywhere; also row 24"),
    (25, "gc bytes: run `values --set value_threshold=1KiB`"),
];

/// Beginning of the names of the engines that goals compare with.
const BASELINE: &str = "rocksdb";

/// Measures the goals selected by `args`.
pub fn run(args: &GoalsArgs, common: &Common, program: &Program) -> Ended {
    let bases: Vec<&str> = program.engines.iter().map(|kind| kind.name()).collect();
    let bases: Vec<&str> = bases.into_iter().filter(|name| name.starts_with(BASELINE)).collect();
    if bases.is_empty() {
        return Ended::Usage(
            "the goals compare with RocksDB, which this program does not include; use drumlin-compare".into(),
        );
    }
    if let Some(flag) = without_effect(common) {
        return Ended::Usage(format!("{flag}: the goals have settings of their own"));
    }
    let wanted = |row: &&Row| args.rows.is_empty() || args.rows.contains(&row.number);
    let rows: Vec<&Row> = ROWS.iter().filter(wanted).collect();
    let mut common = common.clone();
    if common.engines.is_empty() {
        common.engines = std::iter::once("drumlin").chain(bases.iter().copied()).map(str::to_owned).collect();
    }
    let mut slowest = f64::INFINITY;
    let mut whole: Option<Report> = None;
    let mut lines =
        vec![["row", "what", "ratio", "min", "max", "target", "against", "verdict"].map(str::to_owned)];
    for source in sources(&rows) {
        let mut common = common.clone();
        if source == AT_RATE {
            common.rate = Some(RATE_SHARE * slowest);
        }
        let outcome = task(source, &common).and_then(|task| measured(&[task], &common, program));
        let report = match outcome {
            Ok(report) => report,
            Err(what) => return Ended::Failed(what),
        };
        // Files hold the phases of all sources. They are written at the end.
        let shown = Common { json: None, html: None, tsv: None, ..common };
        if let Err(what) = publish(&report, &shown) {
            return Ended::Failed(what);
        }
        for row in rows.iter().filter(|row| group(row.source) == source) {
            lines.push(judge(row, &report.phases, &bases));
        }
        if source == FILL {
            slowest = report.phases.iter().map(|phase| phase.ops_per_s).fold(f64::INFINITY, f64::min);
        }
        match &mut whole {
            None => whole = Some(report),
            Some(whole) => {
                whole.phases.extend(report.phases);
                whole.warnings.extend(report.warnings);
                whole.machine.calibration.extend(report.machine.calibration);
            }
        }
    }
    if let Err(what) = whole.map_or(Ok(()), |whole| write_files(&whole, &common)) {
        return Ended::Failed(what);
    }
    if let Some(path) = &common.json {
        let _ = std::fs::remove_file(unfinished(path));
    }
    let lines: Vec<Vec<String>> = lines.into_iter().map(|line| line.to_vec()).collect();
    let mut text = aligned(&lines, 2);
    for (number, why) in NOT_MEASURED.iter().filter(|(n, _)| args.rows.is_empty() || args.rows.contains(n)) {
        text += &format!("{number}: not measured: {why}\n");
    }
    print!("\n{text}");
    Ended::Done
}

/// Names of the group of [`AtRate`] and of the group that determines its rate.
const AT_RATE: &str = "small fillrandom at a rate";
const FILL: &str = "small fillrandom";
/// Fraction of the slowest engine's rate at which [`AtRate`] runs.
const RATE_SHARE: f64 = 0.6;

/// Name of the group of reads beside a writer, which changes the store.
const BESIDE: &str = "small reads beside a writer";

/// Phases with little memory. They are a group of their own, because they are slow where blocks come from the device.
const UNCACHED: [&str; 4] = ["readuncached", "readuncached16", "multiget", "readpagecache"];

/// Returns the group that is measured in one run; goals of one source share their store.
fn group(source: Source) -> &'static str {
    match source {
        AtRate => AT_RATE,
        Small(name) | Large(name) if name.starts_with("fill") => match source {
            Small("fillrandom") => FILL,
            Small("fillbatch") => "small fillbatch",
            Small(_) => "small fillsync",
            _ => "large fillrandom",
        },
        Small(name) if UNCACHED.contains(&name) => "small uncached",
        Small("readwhilewriting") => BESIDE,
        Small(_) => "small reads",
        Large(_) => "large fillrandom",
        Ycsb(_) => "ycsb",
        Dynamic("I") => "dynamic I",
        Dynamic(_) => "dynamic II",
    }
}

/// Returns a flag of `common` that would change nothing here, if there is one.
fn without_effect(common: &Common) -> Option<&'static str> {
    let flags = [
        (!common.set.is_empty(), "--set"),
        (!common.bits.is_empty(), "--bits"),
        (!common.policy.is_empty(), "--policy"),
        (common.compression != Compression::None, "--compression"),
        (common.durability.is_some(), "--durability"),
        (common.key_size.is_some(), "--key-size"),
        (common.value_size.is_some(), "--value-size"),
        (common.file_size.is_some(), "--file-size"),
        (common.merges != 1, "--compaction-slots"),
        (common.rate.is_some(), "--rate"),
    ];
    flags.into_iter().find(|(is_set, _)| *is_set).map(|(_, flag)| flag)
}

fn sources(rows: &[&Row]) -> Vec<&'static str> {
    let mut sources: Vec<&'static str> = Vec::new();
    for row in rows {
        let tells = (row.source == AtRate && !sources.contains(&FILL)).then_some(FILL);
        sources.extend(tells);
        if !sources.contains(&group(row.source)) {
            sources.push(group(row.source));
        }
    }
    sources
}

fn task(group: &str, common: &Common) -> Result<Task> {
    let factor = match common.scale {
        None => 1.0,
        Some(Scale::Quick) => 0.1,
        Some(Scale::Factor(factor)) => factor,
    };
    let mut config =
        EngineConfig { memory_bytes: common.memory.unwrap_or(3 << 30), ..EngineConfig::default() };
    config.in_memory = common.in_memory;
    config.io = common.io.unwrap_or_default();
    let scaled = |n: u64| crate::workload::scaled(n, factor);
    let micro = |names: &[&str], num: u64, key_bytes: usize, value_bytes: usize| -> Result<Workload> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let sizes = micro::Sizes { num, key_bytes, value_bytes, ..micro::Sizes::default() };
        micro::workloads(&names, &sizes)?.pop().ok_or_else(|| "no workload".to_owned())
    };
    const READS: [&str; 6] = ["readrandom", "readmissing", "seekrandom", "scan50", "readseq", "overwrite"];
    let workload = match group {
        FILL => micro(&["fillrandom"], scaled(10_000_000), 16, 100)?,
        AT_RATE => {
            let mut workload = micro(&["fillrandom"], scaled(10_000_000), 16, 100)?;
            workload.phases.iter_mut().for_each(|phase| phase.rate = common.rate);
            workload
        }
        "small fillbatch" => micro(&["fillbatch"], scaled(10_000_000), 16, 100)?,
        "small fillsync" => micro(&["fillsync"], scaled(10_000_000), 16, 100)?,
        "small reads" => micro(&READS, scaled(10_000_000), 16, 100)?,
        BESIDE => micro(&["readwhilewriting"], scaled(10_000_000), 16, 100)?,
        "small uncached" => micro(&UNCACHED, scaled(10_000_000), 16, 100)?,
        "large fillrandom" => micro(&["fillrandom"], scaled(2_000_000), 24, 1000)?,
        "ycsb" => {
            let sizes = ycsb::Sizes {
                records: scaled(10_000_000),
                ops: scaled(5_000_000),
                value_bytes: 100,
                value_ratio: common.value_ratio,
                threads: common.threads,
                distribution: ycsb::Distribution::Ycsb,
                update: ycsb::Update::Whole,
            };
            ycsb::workload("all", &sizes)?
        }
        plan => {
            let memtable_bytes = common.memtable.unwrap_or(2 << 20);
            config = EngineConfig { memory_bytes: 64 << 20, memtable_bytes, ..config };
            dynamic::workload(plan.trim_start_matches("dynamic "), factor / 16.0)?
        }
    };
    Ok(Task { workload, config })
}

/// Combines all phases of a plan except the load: total operations over total time.
fn combined(phases: &[PhaseReport], plan: &str) -> Vec<PhaseReport> {
    let mut combined: Vec<PhaseReport> = Vec::new();
    let of_plan =
        phases.iter().filter(|phase| phase.name.starts_with(plan) && !phase.name.ends_with("preload"));
    for phase in of_plan {
        let found = combined.iter_mut().find(|c| c.engine == phase.engine && c.round == phase.round);
        match found {
            Some(whole) => {
                whole.ops += phase.ops;
                whole.seconds += phase.seconds;
                whole.usable &= phase.usable;
                whole.stream += &phase.stream;
            }
            None => combined.push(PhaseReport { name: plan.to_owned(), ..phase.clone() }),
        }
    }
    combined.iter_mut().for_each(|whole| whole.ops_per_s = whole.ops as f64 / whole.seconds.max(1e-9));
    combined
}

/// Returns one line of the table: the ratio against the better baseline, and its verdict.
fn judge(row: &Row, phases: &[PhaseReport], bases: &[&str]) -> [String; 8] {
    let whole;
    let phases = match row.source {
        Dynamic(_) => {
            whole = combined(phases, row.phase);
            &whole[..]
        }
        _ => phases,
    };
    let less = row.quantity.less_is_better();
    let against = bases.iter().filter_map(|base| {
        let values = ratios(phases, row.phase, "drumlin", base, |phase| row.quantity.of(phase));
        Some((*base, Spread::of(values)?))
    });
    // The better baseline is the one with the less favourable ratio.
    let worst = against.reduce(|a, b| {
        let b_is_worse = if less { b.1.median > a.1.median } else { b.1.median < a.1.median };
        if b_is_worse { b } else { a }
    });
    let head = [row.number.to_string(), row.what.to_owned()];
    let sign = if less { "<=" } else { ">=" };
    let target = format!("{sign} {}", row.target);
    let [number, what] = head;
    match worst {
        None => [number, what, "-".into(), "-".into(), "-".into(), target, "-".into(), "not measured".into()],
        Some((base, spread)) => {
            let text = |value: f64| format!("{value:.2}");
            let verdict = verdict(&spread, row.target, less).to_owned();
            let Spread { median, min, max, .. } = spread;
            [number, what, text(median), text(min), text(max), target, base.to_owned(), verdict]
        }
    }
}

fn verdict(spread: &Spread, target: f64, less: bool) -> &'static str {
    if spread.rounds < LEAST_ROUNDS {
        return "too few rounds";
    }
    let met = if less { spread.median <= target } else { spread.median >= target };
    let near_one = (spread.median - 1.0).abs() < NO_DIFFERENCE;
    match (met, near_one) {
        (true, _) => "met",
        (false, true) => "no difference",
        (false, false) => "missed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(engine: &str, ops: u64, seconds: f64) -> PhaseReport {
        PhaseReport {
            name: "dynamic I A".to_owned(),
            engine: engine.to_owned(),
            round: 1,
            usable: true,
            ops,
            seconds,
            ops_per_s: ops as f64 / seconds,
            ..PhaseReport::default()
        }
    }

    #[test]
    fn a_plan_counts_as_all_operations_over_all_time() {
        let mut slow = phase("drumlin", 10, 10.0);
        slow.name = "dynamic I B".to_owned();
        let [whole] = &combined(&[phase("drumlin", 10, 1.0), slow], "dynamic I")[..] else { panic!("one") };
        assert!((whole.ops_per_s - 20.0 / 11.0).abs() < 1e-9);
    }

    #[test]
    fn the_better_baseline_counts() {
        let row = row(18, "dynamic I", "dynamic I A", Small("x"), Throughput, 2.0);
        let of_round = |round: u64| {
            let engines = [("drumlin", 30), ("rocksdb", 10), ("rocksdb-tuned", 20)];
            engines.map(|(engine, ops)| PhaseReport { round, ..phase(engine, ops, 1.0) })
        };
        let phases = [of_round(1), of_round(2), of_round(3)].concat();
        let line = judge(&row, &phases, &["rocksdb", "rocksdb-tuned"]);
        assert_eq!(line[2..].join(" "), "1.50 1.50 1.50 >= 2 rocksdb-tuned missed");
        let line = judge(&row, &phases[..6], &["rocksdb", "rocksdb-tuned"]);
        assert_eq!(line[7], "too few rounds");
        let spread = |median: f64| Spread { median, min: median, max: median, rounds: 3 };
        assert_eq!(verdict(&spread(0.6), 0.7, true), "met");
        assert_eq!(verdict(&spread(1.01), 2.0, false), "no difference");
    }

    #[test]
    fn a_load_counts_with_the_work_it_leaves_behind() {
        let load = PhaseReport { settle_seconds: 3.0, ..phase("drumlin", 8, 1.0) };
        assert_eq!((Throughput.of(&load), Settled.of(&load)), (Some(8.0), Some(2.0)));
    }

    #[test]
    fn every_row_has_a_workload() {
        let rows: Vec<&Row> = ROWS.iter().collect();
        assert_eq!(sources(&rows).len(), 11);
        assert!(rows.iter().all(|row| row.target > 0.0));
    }
}
