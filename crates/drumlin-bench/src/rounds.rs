//! Rounds: every engine runs in turn, each run in a fresh child process.
//!
//! In a round every engine runs once. The order changes from round to round, so that an engine gets other positions
//! and other predecessors: a run may depend on what the previous one left in the page cache and the device. Before
//! each run, the writes of earlier runs are synced to the device. Each round adds 1 to the seed of the round before.
//! Each run is a child process of the same executable with an empty directory, so no run inherits memory, threads or
//! page tables from another.
//!
//! With noise detection, the machine is calibrated several times before the first run, and once before each run. A
//! run is repeated at most twice if the host or other programs took much CPU time, or if its calibration is far from
//! the median of all so far. The noisy run stays in the report, marked as unusable. If an engine then has some usable
//! rounds, but too few for a verdict, at most two rounds of all engines follow.
//!
//! The parent passes a job to the child as a JSON file, and the child returns its result in another.

use crate::compare::LEAST_ROUNDS;
use crate::engine::{EngineConfig, Engines, Result, find};
use crate::measure::calibrate::calibrate;
use crate::measure::run::{Run, remove};
use crate::report::merge;
use crate::report::model::{CONTROL, Calibration, PhaseConfig, PhaseReport};
use crate::report::progress::Progress;
use crate::workload::Workload;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Stolen CPU time in percent above which a run is repeated.
const STEAL_MOST: f64 = 2.0;
/// CPU time of other programs in percent above which a run is repeated.
const FOREIGN_MOST: f64 = 5.0;
/// Relative distance of a calibration from the median above which a run is repeated.
const CALIBRATION_MOST: f64 = 0.10;
/// Number of calibrations before the first run. Without them, a first run on a slow machine would set the median.
const FIRST_CALIBRATIONS: u32 = 4;
/// Maximum number of repeats of a run.
const REPEATS: u32 = 2;

/// Maximum number of rounds after those that were asked for.
const MORE_ROUNDS: u64 = 2;

/// A workload with the settings for every engine.
#[derive(Clone, Debug)]
pub struct Task {
    /// Workload to run.
    pub workload: Workload,
    /// Settings of the engines.
    pub config: EngineConfig,
}

/// Returns `tasks` with distinct names for the reported phases: the second phase of a name gets the suffix `#2`, and
/// so on. Ratios identify phases by name, and the random numbers of a phase depend on its name.
pub fn told_apart(tasks: &[Task]) -> Vec<Task> {
    let mut tasks = tasks.to_vec();
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for Workload { name, phases, .. } in tasks.iter_mut().map(|task| &mut task.workload) {
        for phase in phases.iter_mut().filter(|phase| !phase.warm) {
            let times = seen.entry(format!("{name} {}", phase.name)).or_default();
            *times += 1;
            if *times > 1 {
                phase.name = format!("{}#{times}", phase.name);
            }
        }
    }
    tasks
}

/// One run, as passed to a child process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Engine name, with its policy if one was requested.
    pub engine: String,
    /// Settings of the engine.
    pub config: EngineConfig,
    /// Workload to run.
    pub workload: Workload,
    /// Directory of the store.
    pub dir: PathBuf,
    /// Seed of all random draws.
    pub seed: u64,
    /// Round number, from 1.
    pub round: u64,
    /// Keep the store after the run.
    pub keep: bool,
    /// Suppress the progress line.
    pub quiet: bool,
}

/// Result of a child process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobResult {
    /// Phases that are reported.
    pub phases: Vec<PhaseReport>,
    /// All options in effect, those of the last phase last.
    pub options: Vec<PhaseConfig>,
    /// Warnings: skipped phases with reasons, and figures that do not count.
    pub warnings: Vec<String>,
}

/// Settings of a measurement: engines, rounds, directory and noise detection.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Engine names, each with its policy if one was requested.
    pub engines: Vec<String>,
    /// Number of rounds; by default chosen by the length of the phases.
    pub rounds: Option<u64>,
    /// Seed of the first round.
    pub seed: u64,
    /// Directory in which stores are created.
    pub dir: PathBuf,
    /// Keep the stores after the run.
    pub keep: bool,
    /// Suppress the progress line.
    pub quiet: bool,
    /// Detect noise: calibrate before each run, and repeat noisy runs.
    pub watchful: bool,
    /// Arguments of this executable that precede those of the benchmark.
    pub prefix: Vec<String>,
}

/// Progress within a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// Round number, from 1.
    pub round: u64,
    /// Number of engines that have run in the round.
    pub engines: usize,
    /// Number of engines per round.
    pub of: usize,
}

/// Callback after each engine of a round. It gets the results so far, to save them: a measurement may take hours and
/// be interrupted at any time.
pub type After<'a> = dyn FnMut(&Rounds, Done) -> Result<()> + 'a;

/// All results of the rounds.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    /// One report for each engine, phase and round.
    pub phases: Vec<PhaseReport>,
    /// All options in effect in the last phase, by engine.
    pub options: BTreeMap<String, BTreeMap<String, String>>,
    /// All options in effect by engine, with the names of the phases.
    pub phase_options: BTreeMap<String, Vec<PhaseConfig>>,
    /// Warnings: skipped phases and noisy runs with reasons, and figures that do not count.
    pub warnings: Vec<String>,
    /// Calibrations, several before the first run and one before each run, in order.
    pub calibration: Vec<Calibration>,
}

impl Rounds {
    /// Runs `task` according to `plan`, and calls `after` after each engine.
    pub fn run(&mut self, plan: &Plan, task: &Task, after: &mut After<'_>) -> Result<()> {
        for _ in 0..FIRST_CALIBRATIONS {
            self.calibrate(plan, task)?;
        }
        let first = self.round(plan, task, 1, after)?;
        let rounds = plan.rounds.unwrap_or_else(|| enough_rounds(first));
        for round in 2..=rounds + MORE_ROUNDS {
            if round > rounds && !self.lacks_rounds(task, rounds) {
                break;
            }
            self.round(plan, task, round, after)?;
        }
        Ok(())
    }

    /// Returns whether noise has left an engine with too few usable rounds of `task`. An engine without any has another
    /// fault, or the machine is too noisy for more rounds to help.
    fn lacks_rounds(&self, task: &Task, asked: u64) -> bool {
        let Workload { name, phases, .. } = &task.workload;
        let is_of_task = |phase: &str| phases.iter().any(|of| phase == format!("{name} {}", of.name));
        short(&self.phases, asked).iter().any(|short| short.usable > 0 && is_of_task(&short.phase))
    }

    /// Runs one round. Returns the seconds of its longest phase.
    fn round(&mut self, plan: &Plan, task: &Task, round: u64, after: &mut After<'_>) -> Result<f64> {
        let mut longest: f64 = 0.0;
        let count = plan.engines.len();
        for (turn, engine) in order(count, round as usize - 1).into_iter().enumerate() {
            let engine = &plan.engines[engine];
            for attempt in 0..=REPEATS {
                #[cfg(unix)]
                rustix::fs::sync();
                let calibration = self.calibrate(plan, task)?;
                let job = job(plan, task, engine, round);
                let mut result = spawn(plan, &job)?;
                longest = result.phases.iter().map(|phase| phase.seconds).fold(longest, f64::max);
                let noise = plan.watchful.then(|| self.noise(&result.phases, calibration.as_ref())).flatten();
                if let Some(noise) = &noise {
                    result.phases.iter_mut().for_each(|phase| phase.usable = false);
                    self.warnings.push(format!("round {round}, {engine}, attempt {}: {noise}", attempt + 1));
                }
                if let Some(last) = result.options.last() {
                    self.options.insert(engine.clone(), last.options.clone());
                }
                merge::add(self.phase_options.entry(engine.clone()).or_default(), result.options);
                self.phases.extend(result.phases);
                for warning in result.warnings {
                    if !self.warnings.contains(&warning) {
                        self.warnings.push(warning);
                    }
                }
                if noise.is_none() {
                    break;
                }
            }
            after(self, Done { round, engines: turn + 1, of: count })?;
        }
        Ok(longest)
    }

    fn calibrate(&mut self, plan: &Plan, task: &Task) -> Result<Option<Calibration>> {
        if !plan.watchful {
            return Ok(None);
        }
        let dir = (!task.config.in_memory).then_some(plan.dir.as_path());
        let calibration = calibrate(dir)?;
        self.calibration.push(calibration);
        Ok(Some(calibration))
    }

    /// Returns why the run that just ended is too noisy to use, if it is.
    fn noise(&self, phases: &[PhaseReport], calibration: Option<&Calibration>) -> Option<String> {
        let most = |of: fn(&PhaseReport) -> Option<f64>| phases.iter().filter_map(of).fold(0.0, f64::max);
        let steal = most(|phase| phase.steal_percent);
        if steal > STEAL_MOST {
            return Some(format!("the host took {steal:.1} % of the CPU"));
        }
        let foreign = most(|phase| phase.foreign_percent);
        if foreign > FOREIGN_MOST {
            return Some(format!("other programs used {foreign:.1} % of the CPU"));
        }
        let mut loads: Vec<f64> = self.calibration.iter().map(|c| c.load_ns).collect();
        loads.sort_by(f64::total_cmp);
        let median = loads.get(loads.len() / 2)?;
        let off = (calibration?.load_ns / median - 1.0).abs();
        (off > CALIBRATION_MOST).then(|| format!("memory latency was {:.0} % off its median", off * 100.0))
    }
}

/// A phase of an engine with fewer usable rounds than a verdict needs, or than were asked for.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Short {
    phase: String,
    engine: String,
    usable: usize,
}

impl Short {
    pub(crate) fn text(&self) -> String {
        format!("{} of {}: {}", self.phase, self.engine, self.usable)
    }
}

/// Returns the phases and engines that are short of usable rounds, if `asked` rounds were asked for. A round counts if
/// the phase is usable of the engine and of the first one, with which it is compared.
pub(crate) fn short(phases: &[PhaseReport], asked: u64) -> Vec<Short> {
    let mut found: BTreeMap<(&str, &str), BTreeSet<u64>> = BTreeMap::new();
    for phase in phases {
        let rounds = found.entry((&phase.name, &phase.engine)).or_default();
        if phase.usable {
            rounds.insert(phase.round);
        }
    }
    let first = phases.first().map_or("", |phase| &phase.engine);
    let least = LEAST_ROUNDS.min(asked as usize);
    let usable = |phase: &str, rounds: &BTreeSet<u64>| match found.get(&(phase, first)) {
        Some(of_first) => rounds.intersection(of_first).count(),
        None => rounds.len(),
    };
    let counted = found.iter().map(|((phase, engine), rounds)| Short {
        phase: (*phase).to_owned(),
        engine: (*engine).to_owned(),
        usable: usable(phase, rounds),
    });
    counted.filter(|short| short.usable < least).collect()
}

/// Returns the order in which `count` engines run in round `round`, from 0.
///
/// An even number of engines follows a Williams square: in `count` rounds every engine has every other one as its
/// predecessor once. An odd number of engines is arranged in a circle, which each round traverses with another step
/// that is coprime to the number.
fn order(count: usize, round: usize) -> Vec<usize> {
    if count.is_multiple_of(2) {
        let zigzag = |turn: usize| if turn.is_multiple_of(2) { turn / 2 } else { count - turn.div_ceil(2) };
        return (0..count).map(|turn| (zigzag(turn) + round) % count).collect();
    }
    let alternating = (1..=count / 2).flat_map(|step| [step, count - step]);
    let steps: Vec<usize> = alternating.filter(|step| has_no_common_factor(*step, count)).collect();
    // One engine has no step.
    let step = steps.get(round % steps.len().max(1)).copied().unwrap_or(0);
    (0..count).map(|turn| (round + turn * step) % count).collect()
}

fn has_no_common_factor(a: usize, b: usize) -> bool {
    if b == 0 { a == 1 } else { has_no_common_factor(b, a % b) }
}

/// Returns the number of rounds for a task whose longest phase takes `seconds`: at least as many as a verdict needs.
fn enough_rounds(seconds: f64) -> u64 {
    if seconds < 60.0 { 5 } else { 3 }
}

fn job(plan: &Plan, task: &Task, engine: &str, round: u64) -> Job {
    let mut config = task.config.clone();
    if let Some((_, policy)) = engine.trim_end_matches(CONTROL).split_once(':') {
        config.policy = Some(policy.to_owned());
    }
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = format!("{engine} {} {round}", task.workload.name).chars().map(plain).collect();
    Job {
        engine: engine.to_owned(),
        config,
        workload: task.workload.clone(),
        dir: plan.dir.join(name),
        seed: plan.seed.wrapping_add(round - 1),
        round,
        keep: plan.keep,
        quiet: plan.quiet,
    }
}

/// Runs `job` in a child process.
fn spawn(plan: &Plan, job: &Job) -> Result<JobResult> {
    fs::create_dir_all(&plan.dir).map_err(|e| format!("{}: {e}", plan.dir.display()))?;
    let stem = format!("job-{}", crate::measure::machine::stamp());
    let (input, output) = (plan.dir.join(format!("{stem}.json")), plan.dir.join(format!("{stem}.out")));
    let text = serde_json::to_vec(job).map_err(|e| e.to_string())?;
    fs::write(&input, text).map_err(|e| format!("{}: {e}", input.display()))?;
    let program = std::env::current_exe().map_err(|e| format!("this executable: {e}"))?;
    let status = Command::new(&program)
        .args(&plan.prefix)
        .arg("child")
        .arg(&input)
        .arg(&output)
        .status()
        .map_err(|e| format!("{}: {e}", program.display()))?;
    let result = fs::read(&output);
    let _ = (fs::remove_file(&input), fs::remove_file(&output));
    if !status.success() {
        return Err(format!("the run of {} ended with {status}", job.engine));
    }
    let result = result.map_err(|e| format!("{}: {e}", output.display()))?;
    serde_json::from_slice(&result).map_err(|e| format!("result of {}: {e}", job.engine))
}

/// Runs `job` in this process.
pub fn carry_out(job: &Job, engines: &Engines) -> Result<JobResult> {
    let (kind, _) = find(engines, job.engine.trim_end_matches(CONTROL))?;
    let progress = Progress::new(job.quiet);
    let run = Run {
        kind,
        name: job.engine.clone(),
        config: job.config.clone(),
        workload: &job.workload,
        dir: job.dir.clone(),
        seed: job.seed,
        round: job.round,
        progress: &progress,
    };
    let outcome = run.run();
    progress.finish();
    if !job.keep && !job.config.in_memory {
        remove(&job.dir);
    }
    outcome.map(|o| JobResult { phases: o.phases, options: o.options, warnings: o.warnings })
}

/// Entry point of a child process: reads a job from `input` and writes its result to `output`.
pub fn child(input: &Path, output: &Path, engines: &Engines) -> Result<()> {
    // A run whose parent was killed must not go on writing gigabytes.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let text = fs::read(input).map_err(|e| format!("{}: {e}", input.display()))?;
    let job: Job = serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", input.display()))?;
    let result = carry_out(&job, engines)?;
    let text = serde_json::to_vec(&result).map_err(|e| e.to_string())?;
    fs::write(output, text).map_err(|e| format!("{}: {e}", output.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::made_up;
    use crate::workload::micro;

    /// A phase without three rounds in which both engines are usable has no verdict.
    #[test]
    fn a_phase_is_short_of_rounds_until_it_has_three() {
        let phase = |engine: &str, round: u64, usable: bool| PhaseReport {
            name: "micro fillseq".to_owned(),
            engine: engine.to_owned(),
            round,
            usable,
            ..made_up().phases[0].clone()
        };
        let texts = |phases: &[PhaseReport], asked| short(phases, asked).iter().map(Short::text).collect();
        let none: [String; 0] = [];
        let found: &dyn Fn(&[PhaseReport], u64) -> Vec<String> = &texts;
        let mut rounds = Rounds::default();
        for round in 1..=3 {
            rounds.phases.extend([phase("a", round, round != 1), phase("b", round, round != 2)]);
        }
        assert_eq!(found(&rounds.phases, 3), ["micro fillseq of a: 2", "micro fillseq of b: 1"]);
        assert_eq!(found(&rounds.phases, 1), none);
        let sizes = micro::Sizes { num: 500, ..micro::Sizes::default() };
        let workload =
            |name: &str| micro::workloads(&[name.to_owned()], &sizes).expect("a known name").remove(0);
        let task = |name: &str| Task { workload: workload(name), config: EngineConfig::default() };
        assert!(rounds.lacks_rounds(&task("fillseq"), 3) && !rounds.lacks_rounds(&task("fillrandom"), 3));
        rounds.phases.extend([phase("a", 4, true), phase("b", 4, true)]);
        assert_eq!(found(&rounds.phases, 3), ["micro fillseq of b: 2"], "rounds 3 and 4 count for both");
        rounds.phases.extend([phase("a", 5, true), phase("b", 5, true)]);
        assert_eq!(found(&rounds.phases, 3), none);
        assert!(!rounds.lacks_rounds(&task("fillseq"), 3));
        rounds.phases.iter_mut().for_each(|phase| phase.usable &= phase.engine != "b");
        assert_eq!(found(&rounds.phases, 3), ["micro fillseq of b: 0"]);
        assert!(!rounds.lacks_rounds(&task("fillseq"), 3), "more rounds would not help");
    }

    #[test]
    fn engines_have_other_predecessors_in_each_round() {
        for count in 1..=10 {
            let orders: Vec<Vec<usize>> = (0..3).map(|round| order(count, round)).collect();
            for order in &orders {
                let mut sorted = order.clone();
                sorted.sort();
                assert_eq!(sorted, (0..count).collect::<Vec<_>>(), "every engine runs once");
            }
            let pairs =
                |order: &Vec<usize>| order.windows(2).map(|pair| (pair[0], pair[1])).collect::<Vec<_>>();
            let mut pairs: Vec<_> = orders.iter().flat_map(pairs).collect();
            let all = pairs.len();
            pairs.sort();
            pairs.dedup();
            // Two or three engines have fewer different orders than there are rounds.
            assert!(count < 4 || pairs.len() == all, "{count}: {orders:?}");
            let firsts: BTreeMap<usize, ()> = orders.iter().map(|order| (order[0], ())).collect();
            assert_eq!(firsts.len(), count.min(3), "{orders:?}");
        }
    }

    #[test]
    fn phases_of_one_report_have_different_names() {
        let names = ["fillrandom", "readrandom", "fillseq", "fillrandom", "readrandom", "readrandom"];
        let sizes = micro::Sizes { num: 500, ..micro::Sizes::default() };
        let workloads = micro::workloads(&names.map(str::to_owned), &sizes).expect("known names");
        let task = |workload: &Workload| Task { workload: workload.clone(), config: EngineConfig::default() };
        let tasks: Vec<Task> = workloads.iter().map(task).collect();
        let told = told_apart(&tasks);
        let phases = told.iter().flat_map(|task| &task.workload.phases).filter(|phase| !phase.warm);
        let found: Vec<&str> = phases.map(|phase| phase.name.as_str()).collect();
        let wanted = ["fillrandom", "readrandom", "fillseq", "fillrandom#2", "readrandom#2", "readrandom#3"];
        assert_eq!(found, wanted);
    }
}
