//! The command line: what was asked for, done.

pub mod args;
mod tasks;

use crate::engine::{EngineConfig, Engines, find};
use crate::measure::{calibrate, machine};
use crate::report::model::{Report, SCHEMA};
use crate::report::{html, table, tsv};
use crate::rounds::{CONTROL, Done, Plan, Rounds, Task, child};
use crate::{gate, goals, paced};
use args::{BenchArgs, Common, Family, Keys, MicroArgs, PacedArgs, ReportArgs};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    /// As asked.
    Done,
    /// An error, or a wrong answer.
    Failed(String),
    /// The command line makes no sense.
    Usage(String),
    /// A figure of the gate moved.
    GateFailed,
    /// No round was quiet enough.
    TooNoisy,
}

impl Ended {
    /// Says what is to be said, and gives the status for the shell.
    pub fn exit_code(self) -> ExitCode {
        let (status, words) = match self {
            Ended::Done => (0, None),
            Ended::Failed(what) => (1, Some(what)),
            Ended::Usage(what) => (2, Some(what)),
            Ended::GateFailed => (3, None),
            Ended::TooNoisy => (4, Some("every round met noise: no phase has a usable result".to_owned())),
        };
        if let Some(words) = words {
            note(&words);
        }
        ExitCode::from(status)
    }
}

/// A line of words on stderr; there is nobody left to tell when that fails.
fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// The program that offers the benchmarks.
pub struct Program {
    /// The engines that it has; the first is the one that the others are compared to.
    pub engines: &'static Engines,
    /// The arguments that come before those of the benchmarks.
    pub prefix: &'static [&'static str],
    /// Who allocates memory.
    pub allocator: &'static str,
}

/// Does what `args` ask for.
pub fn run(args: &BenchArgs, program: &Program) -> Ended {
    let from_db_bench;
    let family = match &args.family {
        Some(family) => family,
        None if args.as_db_bench.benchmarks.is_empty() => {
            return Ended::Usage(
                "name a family, as in `bench micro fillrandom`; --help lists them".to_owned(),
            );
        }
        None => {
            from_db_bench = Family::Micro(MicroArgs {
                names: args.as_db_bench.benchmarks.clone(),
                num: args.as_db_bench.num,
                reads: args.as_db_bench.reads,
                nexts: 10,
                batch: 100,
                keys: Keys::Dense,
                write_rate: 2e6,
            });
            &from_db_bench
        }
    };
    match family {
        Family::Child { input, output } => or_failed(child(input, output, program.engines)),
        Family::Calibrate => calibrate_now(&args.common),
        Family::Gate(gate_args) => gate::run(gate_args, program.prefix),
        Family::Paced(paced_args) => or_failed(show_paced(paced_args, &args.common)),
        Family::Report(report_args) => show_reports(report_args, &args.common),
        Family::Options { engine } => or_failed(show_options(engine, &args.common, program)),
        Family::Goals(goal_args) => goals::run(goal_args, &args.common, program),
        workload => match tasks::of_family(workload, &args.common) {
            Ok(tasks) => measure(&tasks, family, &args.common, program),
            Err(what) => Ended::Usage(what),
        },
    }
}

/// Runs the dynamic phases on the clock of a disk model, and shows what each policy came to.
fn show_paced(args: &PacedArgs, common: &Common) -> crate::engine::Result<()> {
    let PacedArgs { entries, value_bytes, flush_bytes, .. } = *args;
    let least = paced::Setup::default();
    let setup = paced::Setup {
        entries,
        value_bytes,
        flush_bytes,
        memory_bytes: common.memory.unwrap_or(least.memory_bytes),
        merges: common.merges,
        depths: args.depths,
        set: common.set.clone(),
    };
    let mut courses = Vec::new();
    for policy in &args.policies {
        let course = paced::Counted::of(policy, &args.plan, &setup)?;
        let first = courses.first().map_or(course.nanos, |first: &paced::Counted| first.nanos);
        writeln!(io::stdout(), "{}", course.text(first, &args.policies[0], args.explain))
            .map_err(|e| e.to_string())?;
        courses.push(course);
    }
    let Some(path) = &common.json else { return Ok(()) };
    let text = serde_json::to_string_pretty(&courses).map_err(|e| e.to_string())?;
    std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

fn or_failed(result: crate::engine::Result<()>) -> Ended {
    result.map_or_else(Ended::Failed, |()| Ended::Done)
}

/// The engines that were asked for, with policies after colons.
fn engines(common: &Common, program: &Program) -> crate::engine::Result<Vec<String>> {
    let all = || program.engines.iter().map(|kind| kind.name().to_owned()).collect();
    let mut engines: Vec<String> = if common.engines.is_empty() { all() } else { common.engines.clone() };
    if !common.policy.is_empty() {
        let with = |engine: String| match engine == "drumlin" {
            true => common.policy.iter().map(|policy| format!("{engine}:{policy}")).collect(),
            false => vec![engine],
        };
        engines = engines.into_iter().flat_map(with).collect();
    }
    for engine in &engines {
        find(program.engines, engine)?;
    }
    if let (true, Some(first)) = (common.aa, engines.first()) {
        engines.insert(1, format!("{first}{CONTROL}"));
    }
    Ok(engines)
}

/// Where stores are made: a directory of its own below what was asked for.
fn data_dir(common: &Common) -> PathBuf {
    let parent = common.db.clone().unwrap_or_else(std::env::temp_dir);
    parent.join(format!("drumlin-bench-{}", machine::stamp()))
}

fn plan(common: &Common, program: &Program) -> crate::engine::Result<Plan> {
    let engines = engines(common, program)?;
    let compares = engines.len() > 1;
    Ok(Plan {
        rounds: common.rounds.or((!compares).then_some(1)),
        seed: common.seed,
        dir: data_dir(common),
        keep: common.keep,
        quiet: common.quiet,
        watchful: (compares || common.watch_noise) && !common.ignore_noise && !common.in_memory,
        prefix: program.prefix.iter().map(|word| (*word).to_owned()).collect(),
        engines,
    })
}

/// Runs `tasks` and gives the report of all of them.
pub(crate) fn measured(tasks: &[Task], common: &Common, program: &Program) -> crate::engine::Result<Report> {
    let plan = plan(common, program)?;
    let mut report = Report {
        schema: SCHEMA.to_owned(),
        command: std::env::args().collect(),
        started_utc: machine::now_utc(),
        seed: common.seed,
        warnings: Vec::new(),
        config: BTreeMap::new(),
        machine: machine::machine(&plan.dir),
        build: machine::build(
            program.engines.iter().map(|kind| kind.name().to_owned()).collect(),
            program.allocator,
        ),
        phases: Vec::new(),
    };
    if report.build.profile == "debug" {
        report
            .warnings
            .push("this program was built without optimisation: its times mean nothing".to_owned());
    }
    if tasks.iter().any(|task| task.config.in_memory) {
        report.warnings.push("files were kept in memory: times mean nothing".to_owned());
    }
    check_disk(tasks, &plan)?;
    for kind in program.engines.iter().filter(|kind| plan.engines.iter().any(|e| e.starts_with(kind.name())))
    {
        let dir = plan.dir.join("check");
        kind.check_build(&dir).map_err(|e| format!("{} is no fair baseline: {e}", kind.name()))?;
        crate::measure::run::remove(&dir);
    }
    let mut rounds = Rounds::default();
    let outcome = tasks.iter().try_for_each(|task| {
        rounds.run(&plan, task, &mut |so_far, done| {
            if done.of > 1 && !plan.quiet {
                note(&format!(
                    "{}: round {}, {} of {}",
                    task.workload.name, done.round, done.engines, done.of
                ));
            }
            common.json.iter().try_for_each(|path| keep_unfinished(&report, so_far, done, path))
        })
    });
    if !plan.keep {
        crate::measure::run::remove(&plan.dir);
    }
    outcome?;
    Ok(with_results(report, rounds))
}

fn with_results(mut report: Report, rounds: Rounds) -> Report {
    warn_of_memory(&rounds, &mut report.warnings);
    report.warnings.extend(rounds.warnings);
    report.config = rounds.options;
    report.machine.calibration = rounds.calibration;
    report.phases = rounds.phases;
    report
}

/// Leaves in the file of `--json` what is known so far, with a warning: a comparison may take hours and be ended, or
/// its last engine may fail.
fn keep_unfinished(report: &Report, so_far: &Rounds, done: Done, path: &Path) -> crate::engine::Result<()> {
    let mut report = with_results(report.clone(), so_far.clone());
    let Done { round, engines, of } = done;
    report.warnings.push(format!("this run had not ended: {engines} of {of} engines in round {round}"));
    write_json(path, &report)
}

fn write_json(path: &Path, report: &Report) -> crate::engine::Result<()> {
    let mut text = serde_json::to_string_pretty(report).map_err(|e| e.to_string())?;
    text.push('\n');
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Refuses to fill the disk.
fn check_disk(tasks: &[Task], plan: &Plan) -> crate::engine::Result<()> {
    let on_disk = tasks.iter().filter(|task| !task.config.in_memory);
    let needed = on_disk.map(|task| task.workload.disk_bytes()).max().unwrap_or(0);
    let free = machine::free_bytes(&plan.dir).unwrap_or(u64::MAX);
    if !plan.quiet && needed > 0 {
        note(&format!("about {} MiB of disk are needed, {} MiB are free", needed >> 20, free >> 20));
    }
    if needed > free {
        return Err(format!(
            "{} has {} MiB free, about {} are needed",
            plan.dir.display(),
            free >> 20,
            needed >> 20
        ));
    }
    Ok(())
}

/// Marks phases in which engines took much more memory than others.
fn warn_of_memory(rounds: &Rounds, warnings: &mut Vec<String>) {
    const APART: f64 = 1.10;
    for name in crate::compare::names(&rounds.phases, |phase| &phase.name) {
        let peaks = rounds.phases.iter().filter(|phase| phase.name == name).filter_map(|p| p.rss_peak_bytes);
        let (least, most) = peaks.fold((u64::MAX, 0), |(least, most), rss| (least.min(rss), most.max(rss)));
        let engines = crate::compare::names(&rounds.phases, |phase| &phase.engine);
        if engines.len() > 1 && most as f64 > least as f64 * APART {
            warnings.push(format!(
                "{name}: memory_unequal, peaks from {} to {} MiB",
                least >> 20,
                most >> 20
            ));
        }
    }
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
    let usable = report.phases.iter().any(|phase| phase.usable);
    if usable || report.phases.is_empty() { Ended::Done } else { Ended::TooNoisy }
}

/// Prints the table and writes the files that were asked for.
pub(crate) fn publish(report: &Report, common: &Common) -> crate::engine::Result<()> {
    for warning in &report.warnings {
        note(&format!("warning: {warning}"));
    }
    print(&table::text(report))?;
    if let Some(path) = &common.json {
        write_json(path, report)?;
        note(&format!("wrote {}", path.display()));
    }
    if let Some(path) = &common.html {
        save(path, &html::page(report))?;
    }
    if let Some(path) = &common.tsv {
        save(path, &tsv::text(report))?;
    }
    Ok(())
}

fn print(text: &str) -> crate::engine::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        // Who closed the pipe wants no more.
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(format!("stdout: {e}")),
        _ => Ok(()),
    }
}

fn save(path: &Path, text: &str) -> crate::engine::Result<()> {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    note(&format!("wrote {}", path.display()));
    Ok(())
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

/// Reads a report, and refuses one of another format.
pub fn read_report(path: &Path) -> crate::engine::Result<Report> {
    let text = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let report: Report = serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    match report.schema == SCHEMA {
        true => Ok(report),
        false => Err(format!("{}: {} and not {SCHEMA}", path.display(), report.schema)),
    }
}

fn show_reports(args: &ReportArgs, common: &Common) -> Ended {
    let shown = args.files.iter().try_for_each(|path| publish(&read_report(path)?, common));
    let base = args.base.iter().try_for_each(|path| {
        print(&format!("\nbefore, {}; no ratio is made of it:\n", path.display()))?;
        print(&table::aligned(&table::result_cells(&read_report(path)?), 2))
    });
    or_failed(shown.and(base))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::made_up;
    use drumlin::env::TempDir;

    #[test]
    fn a_run_that_ends_early_leaves_what_it_knew() {
        let dir = TempDir::new("drumlin-bench").expect("a temporary directory");
        let path = dir.path().join("report.json");
        let whole = made_up();
        let empty = Report { phases: Vec::new(), warnings: Vec::new(), ..whole.clone() };
        let so_far = Rounds { phases: whole.phases[..1].to_vec(), ..Rounds::default() };
        keep_unfinished(&empty, &so_far, Done { round: 1, engines: 1, of: 2 }, &path).expect("a file");
        let kept = read_report(&path).expect("a report");
        assert_eq!(kept.phases, so_far.phases);
        assert_eq!(kept.warnings, ["this run had not ended: 1 of 2 engines in round 1"]);
    }
}
