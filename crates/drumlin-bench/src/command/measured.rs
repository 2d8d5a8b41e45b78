//! Execution of tasks: engines, directory, checks before the run, and the report.

use super::args::Common;
use super::program::Program;
use super::published::{is_special, note, unfinished, write_json};
use super::stores::{PREFIX, Stores};
use crate::engine::{Result, find};
use crate::measure::machine;
use crate::report::model::{CONTROL, METHOD, PhaseReport, Report, SCHEMA};
use crate::report::peaks;
use crate::rounds::{Done, Plan, Rounds, Task, told_apart};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// Runs `tasks` and returns a report of all of them.
pub(crate) fn measured(tasks: &[Task], common: &Common, program: &Program) -> Result<Report> {
    let plan = plan(common, program)?;
    let tasks = &told_apart(tasks);
    let mut report = Report {
        schema: SCHEMA.to_owned(),
        method: METHOD,
        command: machine::command_line(),
        started_utc: machine::now_utc(),
        seed: common.seed,
        warnings: Vec::new(),
        config: BTreeMap::new(),
        phase_config: BTreeMap::new(),
        machine: machine::machine(&plan.dir),
        build: machine::build(
            program.engines.iter().map(|kind| kind.name().to_owned()).collect(),
            program.allocator,
            program.profiles,
        ),
        phases: Vec::new(),
    };
    if report.build.profile == "debug" {
        report
            .warnings
            .push("this program was built without optimisation: its times are meaningless".to_owned());
    }
    if tasks.iter().any(|task| task.config.in_memory) {
        report.warnings.push("files were kept in memory: times are meaningless".to_owned());
    }
    let on_disk = tasks.iter().any(|task| !task.config.in_memory);
    if on_disk && report.machine.filesystem.as_deref() == Some("tmpfs") {
        let dir = plan.dir.display();
        report.warnings.push(format!("{dir} is in memory (tmpfs): give a folder on a disk with --db"));
    }
    check_disk(tasks, &plan)?;
    let _stores = Stores::begin(&plan.dir, plan.keep)?;
    for kind in program.engines.iter().filter(|kind| plan.engines.iter().any(|e| e.starts_with(kind.name())))
    {
        let dir = plan.dir.join("check");
        kind.check_build(&dir).map_err(|e| format!("{} is not a fair baseline: {e}", kind.name()))?;
        crate::measure::run::remove(&dir);
    }
    let mut rounds = Rounds::default();
    tasks.iter().try_for_each(|task| {
        rounds.run(&plan, task, &mut |so_far, done| {
            if done.of > 1 && !plan.quiet {
                note(&format!(
                    "{}: round {}, {} of {}",
                    task.workload.name, done.round, done.engines, done.of
                ));
            }
            // A failure does not end the run: the disk may have free space again when the report is written.
            if let Some(path) = common.json.as_ref().filter(|path| !is_special(path))
                && let Err(what) = keep_unfinished(&report, so_far, done, path)
            {
                note(&format!("warning: intermediate results cannot be saved: {what}"));
            }
            Ok(())
        })
    })?;
    let mut report = with_results(report, rounds);
    if common.brief {
        report.phases.iter_mut().for_each(PhaseReport::make_brief);
    }
    Ok(report)
}

fn with_results(mut report: Report, rounds: Rounds) -> Report {
    report.warnings.extend(peaks::unequal(&rounds.phases));
    report.warnings.extend(rounds.warnings);
    report.config = rounds.options;
    report.set_phase_config(rounds.phase_options);
    report.machine.calibration = rounds.calibration;
    report.phases = rounds.phases;
    report
}

/// Writes the results so far to the file [`unfinished`] beside that of `--json`, with a warning in the report. A
/// comparison may take hours and be interrupted, or its last engine may fail.
fn keep_unfinished(report: &Report, so_far: &Rounds, done: Done, path: &Path) -> Result<()> {
    let mut report = with_results(report.clone(), so_far.clone());
    let Done { round, engines, of } = done;
    report.warnings.push(format!("unfinished run: {engines} of {of} engines in round {round}"));
    write_json(&unfinished(path), &report)
}

/// Returns the requested engines, with policies after colons.
pub(super) fn engines(common: &Common, program: &Program) -> Result<Vec<String>> {
    let all = || program.engines.iter().map(|kind| kind.name().to_owned()).collect();
    let mut engines: Vec<String> = if common.engines.is_empty() { all() } else { common.engines.clone() };
    if !common.policy.is_empty() {
        let with = |engine: String| match engine == "drumlin" {
            true => common.policy.iter().map(|policy| format!("{engine}:{policy}")).collect(),
            false => vec![engine],
        };
        engines = engines.into_iter().flat_map(with).collect();
    }
    for (at, engine) in engines.iter().enumerate() {
        find(program.engines, engine)?;
        if engines[..at].contains(engine) {
            return Err(format!("{engine} is named twice; --aa runs the first engine a second time"));
        }
    }
    if let (true, Some(first)) = (common.aa, engines.first()) {
        engines.insert(1, format!("{first}{CONTROL}"));
    }
    Ok(engines)
}

/// Returns the directory for the stores: a new one below the requested directory.
pub(super) fn data_dir(common: &Common) -> PathBuf {
    let parent = common.db.clone().unwrap_or_else(std::env::temp_dir);
    parent.join(format!("{PREFIX}{}", machine::stamp()))
}

fn plan(common: &Common, program: &Program) -> Result<Plan> {
    let engines = engines(common, program)?;
    let compares = engines.len() > 1;
    Ok(Plan {
        rounds: common.rounds.or((!compares).then_some(1)),
        seed: common.seed,
        dir: data_dir(common),
        keep: common.keep,
        quiet: common.quiet || !std::io::stderr().is_terminal(),
        watchful: (compares || common.watch_noise) && !common.ignore_noise && !common.in_memory,
        prefix: program.prefix.iter().map(|word| (*word).to_owned()).collect(),
        engines,
    })
}

/// Returns an error if the disk has too little free space.
fn check_disk(tasks: &[Task], plan: &Plan) -> Result<()> {
    let on_disk = tasks.iter().filter(|task| !task.config.in_memory);
    let needed = on_disk.map(|task| task.workload.disk_bytes()).max().unwrap_or(0);
    let free = machine::free_bytes(&plan.dir).unwrap_or(u64::MAX);
    if !plan.quiet && needed > 0 {
        note(&format!("about {} MiB of disk space needed, {} MiB free", needed >> 20, free >> 20));
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

#[cfg(test)]
mod tests {
    use super::super::published::read_report;
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
        assert!(!path.exists(), "the run did not end");
        let kept = read_report(&unfinished(&path)).expect("a report");
        assert_eq!(kept.phases, so_far.phases);
        assert_eq!(kept.warnings, ["unfinished run: 1 of 2 engines in round 1"]);
    }
}
