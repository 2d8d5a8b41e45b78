//! Execution of the benchmark commands.

pub mod args;
pub(crate) mod ended;
pub(crate) mod measured;
mod numbers;
pub(crate) mod program;
pub(crate) mod published;
mod stores;
mod tasks;

pub use ended::Ended;
pub use program::Program;
pub use published::{read_report, read_reports};

use crate::compare::LEAST_ROUNDS;
use crate::engine::{EngineConfig, find};
use crate::measure::calibrate;
use crate::measure::machine::{self, build, now_utc};
use crate::paced::oracle;
use crate::report::progress::spinner;
use crate::report::table;
use crate::results::{self, Origin, Results};
use crate::rounds::{self, Task, child};
use crate::{allotment, comparison, deleted, gate, goals, paced};
use args::{
    AllotmentArgs, BenchArgs, Common, DeletedArgs, Family, GoalsArgs, Keys, MicroArgs, OracleArgs, PacedArgs,
    ReportArgs,
};
use drumlin::FilterMode;
use measured::{data_dir, engines, measured};
use published::{claim_targets, note, print, publish, unfinished, write_json};
use std::fs;
use std::path::{Path, PathBuf};

/// Message for a command line without a benchmark family.
const NO_FAMILY: &str = "\
name a benchmark family. To begin with:

  bench micro                       the usual db_bench phases over a million entries
  bench ycsb --scale quick          the six YCSB workloads
  bench dynamic --scale quick       a load that changes without notice, with an HTML page of plots
  bench suite smoke                 every family briefly, in memory

bench --help lists all families and settings; bench FAMILY --help explains one.";

/// Runs the command that `args` names.
pub fn run(args: &BenchArgs, program: &Program) -> Ended {
    let from_db_bench;
    let family = match &args.family {
        Some(family) => family,
        None if args.as_db_bench.benchmarks.is_empty() => {
            return Ended::Usage(NO_FAMILY.to_owned());
        }
        None => {
            from_db_bench = Family::Micro(MicroArgs {
                names: args.as_db_bench.benchmarks.clone(),
                num: args.as_db_bench.num,
                reads: args.as_db_bench.reads,
                duration: None,
                nexts: 10,
                batch: 100,
                keys: Keys::Dense,
                write_rate: 2e6,
                theta: None,
            });
            &from_db_bench
        }
    };
    let _targets = match claim_targets(&args.common) {
        Ok(targets) => targets,
        Err(what) => return Ended::Failed(what),
    };
    match family {
        Family::Child { input, output } => or_failed(child(input, output, program.engines)),
        Family::Calibrate => calibrate_now(&args.common),
        Family::Gate(gate_args) => gate::run(gate_args, program.prefix),
        Family::Paced(paced_args) => {
            let PacedArgs { entries, value_bytes, flush_bytes, .. } = *paced_args;
            match paced_setup(&args.common, [entries, flush_bytes], value_bytes, &["compaction"]) {
                Err(what) => Ended::Usage(what),
                Ok(setup) => or_failed(show_paced(paced_args, &args.common, setup, program)),
            }
        }
        Family::Oracle(oracle_args) => {
            let OracleArgs { entries, value_bytes, flush_bytes, .. } = *oracle_args;
            match paced_setup(&args.common, [entries, flush_bytes], value_bytes, &["compaction", "pipeline"])
            {
                Err(what) => Ended::Usage(what),
                Ok(setup) => or_failed(show_oracle(oracle_args, &args.common, &setup)),
            }
        }
        Family::Deleted(deleted_args) => or_failed(show_deleted(deleted_args, &args.common, program)),
        Family::Allotment(allotment_args) => match courses_of(allotment_args, &args.common) {
            Err(what) => Ended::Usage(what),
            Ok(setups) => or_failed(show_allotment(&setups, &args.common, program)),
        },
        Family::Report(report_args) => show_reports(report_args, &args.common),
        Family::Options { engine } => or_failed(show_options(engine, &args.common, program)),
        Family::Goals(GoalsArgs { reports: Some(_), .. }) if args.common.writes() => Ended::Usage(
            "--json, --html and --tsv write what was measured; --reports measures nothing".to_owned(),
        ),
        Family::Goals(GoalsArgs { reports: Some(folder), .. }) => or_failed(judge_reports(folder)),
        Family::Goals(goal_args) => goals::run(goal_args, &args.common, program),
        workload => match tasks::of_family(workload, &args.common) {
            Ok(tasks) => measure(&tasks, family, &args.common, program),
            Err(what) => Ended::Usage(what),
        },
    }
}

/// Returns the setup of a run on the clock of a disk model. Rejects arguments that have no meaning in such a run, and
/// `--set` of `options`, which the run varies itself.
fn paced_setup(
    common: &Common,
    [entries, flush_bytes]: [u64; 2],
    value_bytes: usize,
    options: &[&str],
) -> crate::engine::Result<paced::Setup> {
    let has = [
        ("--policy", !common.policy.is_empty()),
        ("--engines", !common.engines.is_empty()),
        ("--rounds", common.rounds.is_some()),
        ("--scale", common.scale.is_some()),
        ("--memtable", common.memtable.is_some()),
        ("--rate", common.rate.is_some()),
    ];
    if let Some((name, _)) = has.iter().find(|(_, has)| *has) {
        return Err(format!("{name} has no meaning here: one client runs on a simulated disk; see --help"));
    }
    if let Some((name, _)) = common.set.iter().find(|(name, _)| options.contains(&name.as_str())) {
        return Err(format!("--set {name}: not allowed, because the run itself varies this option"));
    }
    let least = paced::Setup::default();
    Ok(paced::Setup {
        entries,
        value_bytes,
        flush_bytes,
        memory_bytes: common.memory.unwrap_or(least.memory_bytes),
        merges: common.merges,
        set: common.set.clone(),
        ..least
    })
}

/// Runs the dynamic phases with the clock of a disk model, and prints the results of each policy.
fn show_paced(
    args: &PacedArgs,
    common: &Common,
    setup: paced::Setup,
    program: &Program,
) -> crate::engine::Result<()> {
    let started_utc = now_utc();
    let setup = paced::Setup { depths: args.depths, ..setup };
    let mut courses = Vec::new();
    for policy in &args.policies {
        let shown = spinner(&format!("bench paced {}: {policy}", args.plan), common.quiet);
        let course = paced::Counted::of(policy, &args.plan, &setup)?;
        drop(shown);
        let first = courses.first().map_or(course.nanos, |first: &paced::Counted| first.nanos);
        print(&(course.text(first, &args.policies[0], args.explain) + "\n"))?;
        courses.push(course);
    }
    let report =
        paced::growth_page::Report { origin: origin(started_utc, program), plan: args.plan.clone(), courses };
    common.json.iter().try_for_each(|path| write_json(path, &report))
}

/// Returns command, start time, machine and build of this run.
fn origin(started_utc: String, program: &Program) -> Origin {
    Origin {
        command: machine::command_line(),
        started_utc,
        machine: machine::machine(Path::new(".")),
        build: build(Vec::new(), program.allocator, program.profiles),
    }
}

/// Runs the adaptive policy and the fixed settings, and prints the best of these for each phase.
fn show_oracle(args: &OracleArgs, common: &Common, setup: &paced::Setup) -> crate::engine::Result<()> {
    let contenders = oracle::contenders(&args.adaptive);
    let mut courses = Vec::new();
    for (at, contender) in contenders.iter().enumerate() {
        let doing =
            format!("bench oracle {}: {} of {}, {}", args.plan, at + 1, contenders.len(), contender.name);
        let shown = spinner(&doing, common.quiet);
        courses.push(oracle::run(contender, &args.plan, setup)?);
        drop(shown);
    }
    let rows = oracle::rows(&courses);
    print(&oracle::table(&rows, &args.adaptive))?;
    let results = serde_json::json!({ "command": machine::command_line(), "rows": rows, "courses": courses });
    common.json.iter().try_for_each(|path| write_json(path, &results))
}

/// Returns a course for each combination of the argument lists.
fn courses_of(args: &AllotmentArgs, common: &Common) -> crate::engine::Result<Vec<allotment::Setup>> {
    if let Some(share) = args.empty.iter().find(|share| !(0.0..=1.0).contains(*share)) {
        return Err(format!("--empty {share}: a share from 0 to 1"));
    }
    let known = |names: &[String], all: &[&str]| match names.iter().find(|name| !all.contains(&name.as_str()))
    {
        Some(name) => Err(format!("unknown {name}; available: {}", all.join(", "))),
        None => Ok(()),
    };
    known(&args.modes, FilterMode::NAMES)?;
    known(&args.dist, &["uniform", "normal", "zipf"])?;
    if args.readers.contains(&0) {
        return Err("--readers 0: at least 1".to_owned());
    }
    let bits: &[f64] = if common.bits.is_empty() { &[4.0] } else { &common.bits };
    let mut setups = Vec::new();
    for dist in &args.dist {
        for &empty in &args.empty {
            for &bits in bits {
                for mode in &args.modes {
                    for &threads in &args.readers {
                        let (mode, dist, event) = (mode.clone(), dist.clone(), args.event.clone());
                        let (entries, seed) = (args.entries, common.seed);
                        setups.push(allotment::Setup {
                            mode,
                            bits,
                            empty,
                            dist,
                            entries,
                            threads,
                            event,
                            seed,
                        });
                    }
                }
            }
        }
    }
    Ok(setups)
}

/// Runs courses in parallel, one per core, and prints their figures.
fn show_allotment(
    setups: &[allotment::Setup],
    common: &Common,
    program: &Program,
) -> crate::engine::Result<()> {
    let started_utc = now_utc();
    let shown = spinner(&format!("bench allotment: {} courses", setups.len()), common.quiet);
    let courses = allotment::run_all(setups)?;
    drop(shown);
    print(&allotment::shown::text(&courses))?;
    let results = allotment::shown::Results {
        origin: origin(started_utc, program),
        courses: allotment::shown::rounded(&courses),
    };
    common.json.iter().try_for_each(|path| write_json(path, &results))
}

/// Measures read cost against the number of deleted or merged entries, engine by engine.
fn show_deleted(args: &DeletedArgs, common: &Common, program: &Program) -> crate::engine::Result<()> {
    if let Some(row) = args.rows.iter().find(|row| *row != "all" && !deleted::ROWS.contains(&row.as_str())) {
        return Err(format!("unknown row {row}; available: {}", deleted::ROWS.join(", ")));
    }
    let is_wanted = |row: &&str| args.rows.iter().any(|name| name == "all" || name == *row);
    let rows: Vec<&str> = deleted::ROWS.into_iter().filter(is_wanted).collect();
    let (started_utc, rounds) = (now_utc(), common.rounds.unwrap_or(1).max(1));
    let mut costs = Vec::new();
    for row in rows {
        for &depth in &args.depths {
            for _ in 0..rounds {
                costs.extend(deleted_round(common, program, row, depth)?);
            }
        }
    }
    let costs = results::medians(&costs);
    print(&deleted::table(&costs))?;
    let keep =
        |path: &Path, text: String| fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()));
    if let Some(path) = &common.json {
        let features = program.engines.iter().map(|kind| kind.name().to_owned()).collect();
        let results = Results {
            origin: Origin {
                command: machine::command_line(),
                started_utc,
                machine: machine::machine(&data_dir(common)),
                build: build(features, program.allocator, program.profiles),
            },
            rounds,
            costs: costs.clone(),
        };
        keep(path, serde_json::to_string_pretty(&results).map_err(|e| e.to_string())? + "\n")?;
    }
    common.html.iter().try_for_each(|path| keep(path, deleted::page(&costs)))
}

/// Measures one row at one depth, engine by engine, each with a new store.
fn deleted_round(
    common: &Common,
    program: &Program,
    row: &'static str,
    depth: u64,
) -> crate::engine::Result<Vec<deleted::Cost>> {
    let mut costs = Vec::new();
    for engine in engines(common, program)? {
        let (kind, policy) = find(program.engines, &engine)?;
        let config = EngineConfig { policy, ..tasks::plain(common) };
        let dir = data_dir(common);
        let _shown = spinner(&format!("bench deleted: {engine} {row} {depth}"), common.quiet);
        let measured = deleted::measure(kind, &config, &dir, row, depth);
        crate::measure::run::remove(&dir);
        match measured {
            Ok(cost) => costs.push(deleted::Cost { engine, ..cost }),
            Err(why) if why.starts_with("it ") => note(&format!("{engine} {row}: {why}")),
            Err(why) => return Err(format!("{engine} {row} {depth}: {why}")),
        }
    }
    Ok(costs)
}

fn or_failed(result: crate::engine::Result<()>) -> Ended {
    result.map_or_else(Ended::Failed, |()| Ended::Done)
}

fn measure(tasks: &[Task], family: &Family, common: &Common, program: &Program) -> Ended {
    let report = match measured(tasks, common, program) {
        Ok(report) => report,
        Err(what) => return Ended::Failed(what),
    };
    let mut common = common.clone();
    if common.html.is_none() && matches!(family, Family::Dynamic(_)) && !common.in_memory {
        common.html = Some(PathBuf::from("drumlin-bench.html"));
    }
    if let Err(what) = publish(&report, &common) {
        return Ended::Failed(what);
    }
    if let Some(path) = &common.json {
        let _ = fs::remove_file(unfinished(path));
    }
    let compares = report.phases.iter().any(|phase| phase.engine != report.phases[0].engine);
    let asked = common.rounds.unwrap_or(if compares { LEAST_ROUNDS as u64 } else { 1 });
    let short: Vec<String> = rounds::short(&report.phases, asked).iter().map(rounds::Short::text).collect();
    if short.is_empty() { Ended::Done } else { Ended::TooFewRounds(short) }
}

fn calibrate_now(common: &Common) -> Ended {
    let dir = data_dir(common);
    let calibration = calibrate::calibrate(Some(&dir));
    crate::measure::run::remove(&dir);
    let text = calibration.and_then(|c| serde_json::to_string_pretty(&c).map_err(|e| e.to_string()));
    match text.and_then(|text| print(&(text + "\n"))) {
        Ok(()) => Ended::Done,
        Err(what) => Ended::Failed(what),
    }
}

fn show_options(engine: &str, common: &Common, program: &Program) -> crate::engine::Result<()> {
    let (kind, policy) = find(program.engines, engine)?;
    let dir = data_dir(common);
    fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let io = common.io.unwrap_or_default();
    let config = EngineConfig { policy, io, set: common.set.clone(), ..EngineConfig::default() };
    if let Some(reason) = kind.lacks(&config) {
        return Err(reason);
    }
    let options = kind.open(&dir.join("store"), &config).and_then(|open| {
        let options = open.options();
        open.close().map(|()| options)
    });
    crate::measure::run::remove(&dir);
    let lines = options?.into_iter().map(|(name, value)| format!("{name} = {value}\n"));
    print(&lines.collect::<String>())
}

/// Prints the verdict of each goal by the reports in `folder`.
fn judge_reports(folder: &Path) -> crate::engine::Result<()> {
    let reports = read_reports(folder)?;
    let head = ["goal", "quantity", "target", "report", "ratio", "against", "verdict"].map(str::to_owned);
    let lines = std::iter::once(head).chain(comparison::goals(&reports));
    print(&table::aligned(&lines.map(Vec::from).collect::<Vec<_>>(), 2))
}

fn show_reports(args: &ReportArgs, common: &Common) -> Ended {
    if common.writes() && args.files.len() > 1 {
        return Ended::Usage(
            "--json, --html and --tsv take one report: each would replace the one before".into(),
        );
    }
    let shown = args.files.iter().try_for_each(|path| publish(&read_report(path)?, common));
    let base = args.base.iter().try_for_each(|path| {
        print(&format!("\nolder report {}, for reference only:\n", path.display()))?;
        print(&table::aligned(&table::result_cells(&read_report(path)?), 2))
    });
    or_failed(shown.and(base))
}
