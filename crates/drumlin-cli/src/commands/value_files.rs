//! `drumlin sim values`: bytes that garbage collection of value files copies, by collector, load and space target.
//! Only value files are simulated; see `drumlin_sim::values`.

use crate::args::ValuesArgs;
use crate::failure::{Failure, Outcome, Result, Verdict};
use crate::input::csv::Records;
use crate::output::Output;
use crate::progress::Progress;
use drumlin_bench::generate::random::Random;
use drumlin_bench::generate::zipf::Zipf;
use drumlin_policy::lifetime::Learned;
use drumlin_sim::values::{Collector, ValueReport, ValueSetup, ValueWorld, copies_at};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, stdin};
use std::path::Path;

/// Bytes of a value where the load does not say.
const VALUE_BYTES: u64 = 4096;
/// Operations of the mixed load for each key of the others.
const MIXED_PER_KEY: u64 = 20;

/// Maximum number of writes of a load; they are held in memory.
const MOST_WRITES: u64 = 100_000_000;
/// Maximum size of a value in a trace, in bytes.
const MOST_BYTES: u64 = 4 << 30;

/// A write: the key, and the bytes of the value unless it is a delete.
type Write = (u32, Option<u64>);

/// Keys that are watched to train a model.
const WATCHED: usize = 8192;
/// Settings of the collectors without a space target; the first is the published one.
const RATIOS: [f64; 8] = [0.2, 0.08, 0.12, 0.16, 0.3, 0.4, 0.55, 0.7];
const FACTORS: [f64; 8] = [1.0, 0.06, 0.12, 0.25, 0.5, 1.5, 2.0, 4.0];

/// Setting of a collector.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Setting {
    /// Space target.
    Target(f64),
    /// The collector's own parameter (share of garbage, or factor on the times to live), and whether it is the
    /// published one.
    Parameter(f64, bool),
    /// No run: interpolated between runs, at this mean space.
    Space(f64),
}

/// One line of the result.
struct Line {
    load: String,
    collector: &'static str,
    setting: Setting,
    /// Bytes copied for each flushed byte.
    copies: Option<f64>,
    mean_space: f64,
    /// None for an interpolated line.
    run: Option<(ValueReport, Learned)>,
}

impl Line {
    fn of_run(load: &str, collector: &'static str, setting: Setting, run: (ValueReport, Learned)) -> Line {
        let (copies, mean_space) = (Some(run.0.copies()), run.0.mean_space());
        Line { load: load.to_owned(), collector, setting, copies, mean_space, run: Some(run) }
    }
}

pub(super) fn values(args: &ValuesArgs, out: &mut Output<'_>) -> Outcome {
    if let Some(target) = args.targets.iter().find(|target| !(1.05..=10.0).contains(*target)) {
        return Err(Failure::Usage(format!("--target {target}: must be 1.05 to 10")));
    }
    if args.keys.saturating_mul(args.updates.max(MIXED_PER_KEY)) > MOST_WRITES {
        return Err(Failure::Usage(format!("more than {MOST_WRITES} writes: lower --keys or --updates")));
    }
    let loads = args.loads.iter().map(|load| Ok((load.clone(), known_load(load, args)?)));
    let traces = args.traces.iter().map(|path| Ok((path.display().to_string(), trace(path)?)));
    let loads: Vec<(String, Vec<Write>)> = loads.chain(traces).collect::<Result<_>>()?;
    let remembered = (args.keys as usize / 4).max(8);
    let mut collectors = vec![
        ("garbage-ratio", Collector::GarbageRatio),
        ("age-score", Collector::AgeScore),
        ("mean-interval", Collector::Lifetimes { remembered, watched: 0 }),
        ("lifetimes", Collector::Lifetimes { remembered, watched: WATCHED }),
    ];
    let mut swept = Vec::new();
    if args.published {
        collectors.insert(0, ("oldest-first", Collector::OldestFirst));
        swept = vec![
            ("ratio", RATIOS.map(|least| (least, Collector::Ratio(least)))),
            ("dumpkv-h", FACTORS.map(|factor| (factor, Collector::DumpKv { factor, watched: 0 }))),
            ("dumpkv", FACTORS.map(|factor| (factor, Collector::DumpKv { factor, watched: WATCHED }))),
        ];
    }
    let runs = collectors.len() * args.targets.len() + swept.len() * RATIOS.len();
    let shown = Progress::steps("sim values", (loads.len() * runs) as u64);
    let mut done = 0;
    let mut lines: Vec<Line> = Vec::new();
    for (load, writes) in &loads {
        for (name, collector) in &collectors {
            for target in &args.targets {
                shown.step(done, load);
                done += 1;
                let found = run(writes, *target, *collector, args);
                lines.push(Line::of_run(load, name, Setting::Target(*target), found));
            }
        }
        let ours = lines.iter().filter(|line| line.load == *load && line.collector == "lifetimes");
        let spaces: Vec<f64> = ours.map(|line| line.mean_space).collect();
        for (name, settings) in &swept {
            let published = settings[0].0;
            let of_runs = settings.map(|(parameter, collector)| {
                shown.step(done, load);
                done += 1;
                let setting = Setting::Parameter(parameter, parameter == published);
                // These collectors ignore the target.
                Line::of_run(load, name, setting, run(writes, args.targets[0], collector, args))
            });
            let points: Vec<(f64, f64)> =
                of_runs.iter().filter_map(|line| Some((line.mean_space, line.copies?))).collect();
            lines.extend(of_runs);
            lines.extend(spaces.iter().map(|space| Line {
                load: load.clone(),
                collector: name,
                setting: Setting::Space(*space),
                copies: copies_at(*space, &points),
                mean_space: *space,
                run: None,
            }));
        }
    }
    drop(shown);
    match args.json {
        true => print_json(&lines, out)?,
        false => print_table(&lines, out)?,
    }
    Ok(Verdict::Fine)
}

/// Simulates `writes`. Returns the report of those after the first quarter, and what the predictors learned.
fn run(writes: &[Write], target: f64, collector: Collector, args: &ValuesArgs) -> (ValueReport, Learned) {
    let bytes = args.memtable << 10;
    let setup = ValueSetup {
        collector,
        target,
        memtable_bytes: bytes,
        file_bytes: bytes,
        class_bytes: (1 << 20).min(bytes / 8),
    };
    let mut world = ValueWorld::new(setup);
    let mut before = world.report();
    for (number, (key, bytes)) in writes.iter().enumerate() {
        if number == writes.len() / 4 {
            before = world.report();
        }
        world.write(*key, *bytes);
    }
    (world.report().since(&before), world.learned())
}

/// Returns the writes of a load that is known by name.
fn known_load(load: &str, args: &ValuesArgs) -> Result<Vec<Write>> {
    if load == "mixed" {
        return Ok(mixed(args.keys * MIXED_PER_KEY, args.seed));
    }
    let theta = load.strip_prefix("zipf:").and_then(|theta| theta.parse::<f64>().ok());
    let Some(theta) = theta.filter(|theta| (0.0..1.0).contains(theta)) else {
        return Err(Failure::Usage(format!(
            "there is no load {load}; loads are mixed, and zipf:0 to zipf:0.99"
        )));
    };
    let zipf = Zipf::exact(args.keys, theta);
    let mut random = Random::new(args.seed, "sim values", 0);
    let keys = args.keys;
    // Ranks are scattered over the keys, one to one.
    let divisor =
        |a: u64, b: u64| (0..).try_fold((a, b), |(a, b), _| if b == 0 { Err(a) } else { Ok((b, a % b)) });
    let step = (keys * 5 / 8..).find(|step| divisor(*step, keys) == Err(1)).unwrap_or(1);
    let updates = (0..keys * args.updates).map(|_| (zipf.draw(&mut random) * step % keys) as u32);
    Ok((0..keys as u32).chain(updates).map(|key| (key, Some(VALUE_BYTES))).collect())
}

/// Returns queues, counters, sessions and archives: 30 % queue items of 2 KiB that are deleted after about 60,000
/// operations, 25 % updates of 2000 counters, 20 % keys that are written three times in a short time and deleted after
/// 640,000 or more, and 25 % archived values of 6 KiB that are deleted after 1.2 million or more.
fn mixed(operations: u64, seed: u64) -> Vec<Write> {
    let mut random = Random::new(seed, "mixed", 0);
    let mut due: BTreeMap<u64, Vec<Write>> = BTreeMap::new();
    let mut next = 10_000u32;
    let mut writes = Vec::with_capacity(operations as usize);
    for time in 0..operations {
        if let Some(mut first) = due.first_entry().filter(|first| *first.key() <= time) {
            writes.extend(first.get_mut().pop());
            if first.get().is_empty() {
                first.remove();
            }
            continue;
        }
        let kind = random.below(100);
        if (30..55).contains(&kind) {
            writes.push(((2000.0 * random.fraction().powi(3)) as u32, Some(VALUE_BYTES)));
            continue;
        }
        next += 1;
        let mut later = |after: u64, bytes| due.entry(time + after).or_default().push((next, bytes));
        let bytes = match kind {
            0..30 => {
                later(54_000 + random.below(12_000), None);
                2048
            }
            55..75 => {
                let second = 1000 + random.below(2000);
                later(second, Some(VALUE_BYTES));
                later(second + 1000 + random.below(2000), Some(VALUE_BYTES));
                later(640_000 + random.below(320_000), None);
                VALUE_BYTES
            }
            _ => {
                later(1_200_000 + random.below(600_000), None);
                6144
            }
        };
        writes.push((next, Some(bytes)));
    }
    writes
}

/// Reads the writes of a trace: CSV with the columns `op` (P or D; others are skipped), `key` or `lba`, and `size` or
/// `bytes`.
fn trace(path: &Path) -> Result<Vec<Write>> {
    let failed = |what: String| Failure::Failed(format!("{}: {what}", path.display()));
    let input: Box<dyn BufRead> = match path.as_os_str() == "-" {
        true => Box::new(BufReader::new(stdin())),
        false => Box::new(BufReader::new(File::open(path).map_err(|e| failed(e.to_string()))?)),
    };
    let mut records = Records::new(input);
    let head = records.next_record().map_err(|e| failed(e.to_string()))?.unwrap_or_default();
    let column =
        |names: [&str; 2]| head.iter().position(|name| names.iter().any(|known| name == known.as_bytes()));
    let (Some(op), Some(key), Some(size)) =
        (column(["op", "op"]), column(["key", "lba"]), column(["size", "bytes"]))
    else {
        return Err(failed("line 1: needs the columns op, key or lba, and size or bytes".to_owned()));
    };
    let mut keys: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    let mut writes = Vec::new();
    while let Some(mut record) = records.next_record().map_err(|e| failed(e.to_string()))? {
        let bad = |what: &str| failed(format!("line {}: {what}", records.line()));
        if record.len() != head.len() {
            return Err(bad("a record of another number of fields"));
        }
        let is_delete = match record[op].as_slice() {
            b"P" => false,
            b"D" => true,
            _ => continue,
        };
        let text = std::str::from_utf8(&record[size]).ok();
        let bytes = text.and_then(|text| text.trim().parse::<u64>().ok());
        let bytes = bytes.filter(|bytes| *bytes <= MOST_BYTES);
        let bytes = match is_delete {
            true => None,
            false => Some(bytes.ok_or_else(|| bad("the size is no number of bytes up to 4 GiB"))?),
        };
        let count = keys.len() as u32;
        let id = *keys.entry(std::mem::take(&mut record[key])).or_insert(count);
        writes.push((id, bytes));
    }
    Ok(writes)
}

fn print_json(lines: &[Line], out: &mut Output<'_>) -> Result<()> {
    let row = |line: &Line| {
        let (name, setting) = match line.setting {
            Setting::Target(target) => ("target", target),
            Setting::Parameter(parameter, _) => ("parameter", parameter),
            Setting::Space(space) => ("interpolated_to_space", space),
        };
        let mut row = json!({
            "load": line.load,
            "collector": line.collector,
            name: setting,
            "copies": line.copies,
            "mean_space": line.mean_space,
        });
        if let Some((report, learned)) = line.run {
            let more = [
                ("flushed_bytes", json!(report.flushed)),
                ("copied_bytes", json!(report.copied)),
                ("peak_space", json!(report.peak_space)),
                ("collected_files", json!(report.collected)),
                ("trainings", json!(learned.trainings)),
                ("labels", json!(learned.labels)),
                ("rule_error", json!(learned.errors[0])),
                ("model_error", json!(learned.errors[1])),
                ("placed_by", json!(format!("{:?}", learned.predictor).to_lowercase())),
            ];
            more.into_iter().for_each(|(name, value)| row[name] = value);
        }
        row
    };
    out.json(&json!(lines.iter().map(row).collect::<Vec<_>>()))
}

/// Prints the runs with a space target. Collectors without a target have a line for their published setting, and
/// lines interpolated at the mean space of `lifetimes`.
fn print_table(lines: &[Line], out: &mut Output<'_>) -> Result<()> {
    let wide = lines.iter().map(|line| line.load.len()).max().unwrap_or(0).max(4);
    out.line(&format!(
        "{:<wide$}  {:<16}{:>14}{:>8}{:>8}{:>8}{:>8}{:>8}",
        "load", "collector", "setting", "copies", "space", "peak", "rule", "model"
    ))?;
    let number = |number: Option<f64>, digits: usize| {
        number.map_or("-".to_owned(), |number| format!("{number:.digits$}"))
    };
    for line in lines.iter().filter(|line| !matches!(line.setting, Setting::Parameter(_, false))) {
        let setting = match (line.setting, line.collector) {
            (Setting::Target(target), _) => format!("target {target}"),
            (Setting::Space(space), _) => format!("space {space:.3}"),
            (Setting::Parameter(least, _), "ratio") => format!("garbage {least}"),
            (Setting::Parameter(factor, _), _) => format!("factor {factor}"),
        };
        let errors = line.run.map_or([None; 2], |(_, learned)| learned.errors);
        let [rule, model] = errors.map(|error| number(error, 2));
        out.line(&format!(
            "{:<wide$}  {:<16}{setting:>14}{:>8}{:>8.3}{:>8}{rule:>8}{model:>8}",
            line.load,
            line.collector,
            number(line.copies, 3),
            line.mean_space,
            number(line.run.map(|(report, _)| report.peak_space), 3),
        ))?;
    }
    Ok(())
}
