//! Performance goals of Drumlin against RocksDB.
//!
//! A goal is a phase of a workload and a minimum ratio of throughput, Drumlin over the best RocksDB form of the run.
//! For quantities where less is better, it is a maximum ratio. The rates of loads include the flushes and compactions
//! that they leave behind. A verdict needs three usable rounds of phases that are long enough, and a difference
//! larger than that between Drumlin and its control. Goals without a measurement are listed with what they need.

pub(crate) mod rows;

use crate::command::args::{Common, GoalsArgs, Scale};
use crate::command::ended::Ended;
use crate::command::measured::measured;
use crate::command::program::Program;
use crate::command::published::{publish, unfinished, write_files};
use crate::engine::{Compression, EngineConfig, Result};
use crate::report::model::{PhaseReport, Report};
use crate::report::table::aligned;
use crate::rounds::Task;
use crate::workload::{Workload, dynamic, micro, ycsb};
use rows::Source::{self, AtRate, Dynamic, Large, Small, Ycsb};
use rows::{BASELINE, Judged, ROWS, Row, judge};

/// Goals without a measurement, and what they need.
const NOT_MEASURED: [(u32, &str); 3] = [
    (20, "YCSB --dist arce: run `ycsb --dist arce`"),
    (23, "filter memory: filters of one size everywhere; also row 24"),
    (25, "gc bytes: run `values --set value_threshold=1KiB`"),
];

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
        return Ended::Usage(format!("{flag} cannot be used here: the goals have fixed settings"));
    }
    let wanted = |row: &&Row| args.rows.is_empty() || args.rows.contains(&row.number);
    let rows: Vec<&Row> = ROWS.iter().filter(wanted).collect();
    let (common, missing) = match compared(common, &bases) {
        Ok(compared) => compared,
        Err(what) => return Ended::Usage(what),
    };
    let mut slowest = f64::INFINITY;
    let mut whole: Option<Report> = None;
    let mut lines =
        vec![["row", "what", "ratio", "min", "max", "target", "against", "verdict"].map(str::to_owned)];
    for source in sources(&rows) {
        let mut common = common.clone();
        if source == AT_RATE {
            if !slowest.is_finite() {
                return Ended::TooFewRounds(vec![FILL.to_owned()]);
            }
            common.rate = Some(RATE_SHARE * slowest);
        }
        let outcome = task(source, &common).and_then(|task| measured(&[task], &common, program));
        let report = match outcome {
            Ok(report) => report,
            Err(what) => return Ended::Failed(what),
        };
        // Output files hold the phases of all sources, so they are written at the end.
        let shown = Common { json: None, html: None, tsv: None, ..common };
        if let Err(what) = publish(&report, &shown) {
            return Ended::Failed(what);
        }
        for row in rows.iter().filter(|row| group(row.source) == source) {
            lines.push(line(row, &report.phases));
        }
        if source == FILL {
            let usable = report.phases.iter().filter(|phase| phase.usable);
            slowest = usable.map(|phase| phase.ops_per_s).fold(f64::INFINITY, f64::min);
        }
        match &mut whole {
            None => whole = Some(report),
            Some(whole) => whole.absorb(report, source),
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
    if common.scale.is_some() {
        text += "with --scale the verdicts do not hold: the targets are for full sizes\n";
    }
    if !missing.is_empty() {
        text += &format!("not compared with {}, which may be faster\n", missing.join(", "));
    }
    print!("\n{text}");
    Ended::Done
}

/// Returns the flags with the engines to run, and those of `bases` that are left out.
fn compared<'a>(common: &Common, bases: &[&'a str]) -> Result<(Common, Vec<&'a str>)> {
    let mut common = common.clone();
    if common.engines.is_empty() {
        common.engines =
            std::iter::once(rows::OURS).chain(bases.iter().copied()).map(str::to_owned).collect();
    }
    if common.engines[0] != rows::OURS {
        return Err("--engines must begin with drumlin, whose goals these are".to_owned());
    }
    // A verdict needs the noise, which a second run of Drumlin in the same round tells.
    common.aa = true;
    let is_left_out = |base: &&&str| !common.engines.iter().any(|engine| engine == **base);
    let missing = bases.iter().filter(is_left_out).copied().collect();
    Ok((common, missing))
}

/// Returns the table line of one goal.
fn line(row: &Row, phases: &[PhaseReport]) -> [String; 8] {
    let text = |value: f64| format!("{value:.2}");
    let (ratio, base, verdict) = match judge(row, phases) {
        None => (["-"; 3].map(str::to_owned), "-".to_owned(), "not measured"),
        Some(Judged { spread, base, verdict }) => {
            // One round has no spread.
            let bound = |value| if spread.rounds > 1 { text(value) } else { "-".to_owned() };
            ([text(spread.median), bound(spread.min), bound(spread.max)], base, verdict)
        }
    };
    let [median, min, max] = ratio;
    [row.number.to_string(), row.what.to_owned(), median, min, max, row.target(), base, verdict.to_owned()]
}

/// Names of the group of [`AtRate`] and of the group that determines its rate.
const AT_RATE: &str = "small fillrandom at a rate";
const FILL: &str = "small fillrandom";
/// Fraction of the slowest engine's rate at which [`AtRate`] runs.
const RATE_SHARE: f64 = 0.6;

/// Name of the group of reads beside a writer, which changes the store.
const BESIDE: &str = "small reads beside a writer";
/// Rate of that writer in bytes per second, as in the report that decides.
const BESIDE_RATE: f64 = 1e7;

/// Phases with little memory. They are a group of their own, because they are slow where blocks come from the device.
const UNCACHED: [&str; 4] = ["readuncached", "readuncached16", "multiget", "readpagecache"];

/// Returns the name of the group that `source` belongs to. A group is measured in one run, with one store.
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
        Small("overwrite") => "small overwrite",
        Small(_) => "small reads",
        Large(_) => "large fillrandom",
        Ycsb(_) => "ycsb",
        Dynamic("I") => "dynamic I",
        Dynamic(_) => "dynamic II",
    }
}

/// Returns a flag in `common` that the goals do not allow, if there is one.
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
        (common.in_memory, "--in-memory"),
        (common.ignore_noise, "--ignore-noise"),
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
    config.io = common.io.unwrap_or_default();
    let scaled = |n: u64| crate::workload::scaled(n, factor);
    let micro = |names: &[&str], num: u64, key_bytes: usize, value_bytes: usize| -> Result<Workload> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let sizes = micro::Sizes { num, key_bytes, value_bytes, ..micro::Sizes::default() };
        micro::workloads(&names, &sizes)?.pop().ok_or_else(|| "no workload".to_owned())
    };
    const READS: [&str; 5] = ["readrandom", "readmissing", "seekrandom", "scan50", "readseq"];
    // As in the report that decides: what follows a load decides what its settling is.
    const KIB: [&str; 4] = ["fillrandom", "readrandom", "readmissing", "seekrandom"];
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
        BESIDE => {
            let mut workload = micro(&["readwhilewriting"], scaled(10_000_000), 16, 100)?;
            let written = workload.phases.iter_mut().filter_map(|phase| phase.writer.as_mut());
            written.for_each(|rate| *rate = BESIDE_RATE);
            workload
        }
        "small uncached" => micro(&UNCACHED, scaled(10_000_000), 16, 100)?,
        "small overwrite" => micro(&["fillrandom", "overwrite"], scaled(4_000_000), 16, 100)?,
        "large fillrandom" => micro(&KIB, scaled(2_000_000), 24, 1000)?,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_workload() {
        let rows: Vec<&Row> = ROWS.iter().collect();
        assert_eq!(sources(&rows).len(), 12);
        assert!(rows.iter().all(|row| row.target > 0.0));
    }
}
