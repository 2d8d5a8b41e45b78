//! Runs a workload on an engine, from the first phase to the last.
//!
//! For each phase, it prepares the store (empty, or reopened with other settings), runs the threads beside the
//! sampler, and then settles: flushes and compactions run as the phase requests. Bytes, CPU time and stalls include
//! the settling, because the work that a phase leaves behind belongs to it; `seconds` does not include it. A warm-up
//! phase is executed and verified like the others, but not reported. So is a phase whose figures do not compare, with a
//! warning. A phase that the engine does not support is skipped, with a warning.

mod clients;
mod open;

use super::ended::Clients;
use super::latency::SAMPLED_FROM;
use super::oracle::Oracle;
use super::process::{self, Machine};
use super::sampler::{Shared, Watched};
use super::thread::Context;
use crate::engine::{
    Counters, Decision, Demands, Durability, Engine, EngineConfig, EngineKind, Result, Stall,
};
use crate::generate::choose::Target;
use crate::generate::values::Values;
use crate::report::merge::note;
use crate::report::model::{
    Bytes, Decisions, Filters, Lookups, Merges, OfKind, PhaseConfig, PhaseReport, Runs, SpaceAmp, Stalls,
    ValueFiles,
};
use crate::report::progress::Progress;
use crate::workload::{Action, After, Conditions, Phase, Workload};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

/// Maximum number of decisions of a phase in a report.
const DECISIONS_KEPT: usize = 500;
/// Longest value for which the value pool offers different slices.
const LONGEST_VALUE: usize = 1 << 20;

/// Results of a run.
pub struct Outcome {
    /// Phases that are reported.
    pub phases: Vec<PhaseReport>,
    /// All options in effect, those of the last phase last.
    pub options: Vec<PhaseConfig>,
    /// Warnings: skipped phases with reasons, and figures that do not count.
    pub warnings: Vec<String>,
}

/// A run of one workload on one engine.
pub struct Run<'a> {
    /// Engine kind.
    pub kind: &'a dyn EngineKind,
    /// Name of the engine in the report.
    pub name: String,
    /// Settings of the engine.
    pub config: EngineConfig,
    /// Workload to run.
    pub workload: &'a Workload,
    /// Directory of the store.
    pub dir: PathBuf,
    /// Seed of all random draws.
    pub seed: u64,
    /// Round number, from 1.
    pub round: u64,
    /// Progress line.
    pub progress: &'a Progress,
}

/// State that persists between phases.
struct Session {
    engine: Option<Box<dyn Engine>>,
    /// Settings with which the store was opened.
    config: EngineConfig,
    /// Time of the open.
    opened: u64,
    oracle: Oracle,
    values: Values,
    /// Ids below this have been used.
    base: u64,
    /// Why the figures of the last phase do not count.
    faults: Vec<String>,
}

impl Run<'_> {
    /// Runs all phases.
    pub fn run(&self) -> Result<Outcome> {
        let varied = self.workload.trace.is_some();
        let longest = self.workload.value_bytes.max(if varied { LONGEST_VALUE } else { 0 });
        let mut session = Session {
            engine: None,
            config: self.config.clone(),
            opened: 0,
            oracle: Oracle::new(self.workload.ids(), varied),
            values: Values::new(self.seed, self.workload.value_ratio, longest),
            base: 0,
            faults: Vec::new(),
        };
        let mut outcome = Outcome { phases: Vec::new(), options: Vec::new(), warnings: Vec::new() };
        if let Some(reason) = self.kind.lacks(&self.config) {
            outcome.warnings.push(format!("{}: {} left out: {reason}", self.name, self.workload.name));
            return Ok(outcome);
        }
        let mut load_lack = None;
        for (position, phase) in self.workload.phases.iter().enumerate() {
            let config = self.config_of(phase);
            let demands = self.demands(phase);
            let mut lack = self.kind.lacks(&config).or_else(|| self.kind.lacks_for(demands));
            if phase.fresh {
                load_lack = lack.clone();
            }
            // If a load is skipped, so are the phases that read its entries.
            lack = lack.or_else(|| load_lack.clone());
            if lack.is_none() {
                self.prepare(phase, config, &mut session)?;
                lack = missing(phase, &session);
            }
            if let Some(reason) = lack {
                // A phase and its warm-up share one warning.
                if !phase.warm {
                    outcome.warnings.push(format!("{}: {} left out: {reason}", self.name, phase.name));
                }
                continue;
            }
            self.progress.begin(&self.name, phase, position, self.workload.phases.len());
            let report =
                self.phase(phase, &mut session).map_err(|e| format!("{}, {}: {e}", self.name, phase.name))?;
            if phase.warm {
                continue;
            }
            if let Some(reason) = self.kind.uncompared(demands) {
                outcome.warnings.push(format!("{}: {} left out: {reason}", self.name, phase.name));
            } else {
                self.progress.end(&report);
                let of_phase =
                    |fault| format!("{}: {}, round {}: {fault}", self.name, phase.name, self.round);
                outcome.warnings.extend(session.faults.drain(..).map(of_phase));
                if let Some(engine) = &session.engine {
                    note(&mut outcome.options, &report.name, engine.options());
                }
                outcome.phases.push(report);
            }
        }
        close(&mut session)?;
        Ok(outcome)
    }

    /// Returns the requirements of `phase` on the engine.
    fn demands(&self, phase: &Phase) -> Demands {
        // Lookups of absent keys use keys that are one byte longer.
        let is_longer = phase.mix.iter().any(|(_, action)| matches!(action, Action::GetAbsent(_)));
        let key_bytes = self.workload.keys.longest() + usize::from(is_longer);
        let writes = phase.writer.is_some() || phase.mix.iter().any(|(_, action)| action.writes());
        let writes = writes.then(|| self.durability(phase));
        Demands { key_bytes, threads: phase.threads, writes }
    }

    /// Returns the durability of the writes of `phase`.
    fn durability(&self, phase: &Phase) -> Durability {
        phase.durability.unwrap_or(self.config.durability)
    }

    /// Returns the settings with which the store is opened for `phase`.
    fn config_of(&self, phase: &Phase) -> EngineConfig {
        match phase.under {
            Some(Conditions { memory_bytes, io }) if !self.config.in_memory => {
                EngineConfig { memory_bytes, io, ..self.config.clone() }
            }
            _ => self.config.clone(),
        }
    }

    fn prepare(&self, phase: &Phase, config: EngineConfig, session: &mut Session) -> Result<()> {
        if phase.fresh || session.engine.is_none() {
            close(session)?;
            self.empty_dir()?;
            session.oracle.clear();
            session.base = 0;
        } else if session.config != config {
            close(session)?;
        } else {
            return Ok(());
        }
        session.opened = process::wall();
        session.engine = Some(self.open(&config)?);
        session.config = config;
        Ok(())
    }

    /// Deletes the store of an earlier phase.
    fn empty_dir(&self) -> Result<()> {
        if self.config.in_memory {
            return Ok(());
        }
        match std::fs::remove_dir_all(&self.dir) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {e}", self.dir.display())),
            _ => Ok(()),
        }
    }

    fn open(&self, config: &EngineConfig) -> Result<Box<dyn Engine>> {
        if !config.in_memory {
            std::fs::create_dir_all(&self.dir).map_err(|e| format!("{}: {e}", self.dir.display()))?;
        }
        self.kind.open(&self.dir, config)
    }

    fn phase(&self, phase: &Phase, session: &mut Session) -> Result<PhaseReport> {
        if let Some(puts) = phase.opens_after {
            return self.opens(phase, puts, session);
        }
        let engine = session.engine.as_deref().ok_or("the store is not open")?;
        let shared = Shared::default();
        let watched = Watched {
            engine,
            dir: &self.dir,
            oracle: &session.oracle,
            shared: &shared,
            progress: self.progress,
        };
        let context = Context {
            engine,
            oracle: &session.oracle,
            values: &session.values,
            durability: self.durability(phase),
            alone: phase.threads == 1 && phase.writer.is_none(),
            value_bytes: self.workload.value_bytes,
            shared: &shared,
            rate: phase.rate.map(|rate| rate / f64::from(phase.threads)),
            window: (phase.threads == 1).then_some(phase.window).flatten(),
            seconds: phase.seconds,
            is_sampled: phase.seconds.is_some() || phase.ops >= SAMPLED_FROM,
        };
        process::reset_rss_peak();
        let before = Readings::take(engine);
        let clients = self.threads(phase, session.base, &context, &watched)?;
        let settle_from = process::wall();
        let peak_before = watched.space_amp();
        let (ended, peak_settling) = match phase.after {
            After::Nothing => (Ok(()), None),
            after => watched.during(|| settle(engine, after)),
        };
        ended?;
        let mut settled = (process::wall() - settle_from) as f64 / 1e9;
        if phase.after != After::Nothing {
            settled = (settled - engine.wait_without_work().as_secs_f64()).max(0.0);
        }
        let after = Readings::take(engine);
        let inserted = clients.ended.iter().map(|(.., inserted)| *inserted).max().unwrap_or(0);
        let faults = clients.faults();
        let summary = Summary { phase, clients, before: &before, after: &after };
        let mut report = summary.report();
        report.name = format!("{} {}", self.workload.name, phase.name);
        report.engine = self.name.clone();
        report.policy = engine.options().get("compaction").cloned();
        report.round = self.round;
        report.settle_seconds = settled;
        report.space_amp.r#final = watched.space_amp();
        report.space_amp.live_bytes_final = session.oracle.live_bytes();
        report.space_amp.peak = [report.space_amp.peak, peak_before, peak_settling, report.space_amp.r#final]
            .into_iter()
            .flatten()
            .reduce(f64::max);
        report.decisions.latest = latest(engine.decisions(), (before.wall - session.opened) as f64 / 1e9);
        report.usable = faults.is_empty();
        session.faults = faults;
        session.base += inserted * u64::from(phase.threads);
        session.base = session.base.max(reached(phase, self.workload));
        Ok(report)
    }
}

/// Lets the store settle, as the phase demands.
fn settle(engine: &dyn Engine, after: After) -> Result<()> {
    match after {
        After::Nothing => Ok(()),
        After::Wait => engine.wait_idle(),
        After::Idle => engine.flush().and_then(|()| engine.wait_idle()),
        After::Compact => engine.flush().and_then(|()| engine.compact()).and_then(|()| engine.wait_idle()),
    }
}

fn close(session: &mut Session) -> Result<()> {
    session.engine.take().map_or(Ok(()), Engine::close)
}

/// Returns the bound below which a phase may have used any id without inserting it as a new one; 0 if there is none.
fn reached(phase: &Phase, workload: &Workload) -> u64 {
    let of = |action: &Action| match action {
        Action::Put(Target::Below(n)) | Action::Batch(Target::Below(n), _) => *n,
        Action::Replay => workload.ids(),
        _ => 0,
    };
    phase.mix.iter().map(|(_, action)| of(action)).max().unwrap_or(0)
}

/// Returns why this engine cannot run `phase`, if it cannot.
fn missing(phase: &Phase, session: &Session) -> Option<String> {
    let engine = session.engine.as_deref()?;
    if phase.opens_after.is_some() && session.config.in_memory {
        return Some("files in memory do not survive a close".to_owned());
    }
    let reuses = phase.mix.iter().any(|(_, action)| matches!(action, Action::Reseek(..)));
    (reuses && engine.seeker().is_none()).then(|| "the engine has no reusable iterator".to_owned())
}

/// Returns the latest decisions of a phase that began `start` seconds after the engine was opened. Their `t` is
/// relative to the start of the phase.
fn latest(decisions: Vec<Decision>, start: f64) -> Vec<Decision> {
    let kept = decisions.into_iter().filter(|decision| decision.t >= start).rev().take(DECISIONS_KEPT);
    let mut kept: Vec<Decision> = kept.map(|d| Decision { t: d.t - start, ..d }).collect();
    kept.reverse();
    kept
}

/// Readings before or after a phase.
struct Readings {
    wall: u64,
    process_cpu: u64,
    machine: Option<Machine>,
    counters: Counters,
}

impl Readings {
    fn take(engine: &dyn Engine) -> Readings {
        Readings {
            wall: process::wall(),
            process_cpu: process::process_cpu(),
            machine: Machine::read(),
            counters: engine.counters(),
        }
    }
}

/// Readings of a phase, from which its report is made.
struct Summary<'a> {
    phase: &'a Phase,
    clients: Clients,
    before: &'a Readings,
    after: &'a Readings,
}

impl Summary<'_> {
    /// Returns the growth of a counter during the phase.
    fn grown(&self, of: impl Fn(&Counters) -> Option<u64>) -> Option<u64> {
        Some(of(&self.after.counters)?.saturating_sub(of(&self.before.counters)?))
    }

    fn decide_us(&self) -> Option<f64> {
        let calls = self.grown(|c| c.policy_calls).filter(|calls| *calls > 0)?;
        Some(self.seconds_grown(|c| c.decide.map(|(seconds, _)| seconds))? * 1e6 / calls as f64)
    }

    fn seconds_grown(&self, of: impl Fn(&Counters) -> Option<f64>) -> Option<f64> {
        Some((of(&self.after.counters)? - of(&self.before.counters)?).max(0.0))
    }

    fn report(self) -> PhaseReport {
        let done = || self.clients.ended.iter().map(|(done, ..)| done);
        let written = &self.clients.written;
        let sum = |of| self.clients.sum(of);
        let ops = sum(|d| d.ops);
        let seconds = self.clients.seconds();
        let per_op = |nanos: u64| if ops == 0 { 0.0 } else { nanos as f64 / 1e3 / ops as f64 };
        let mut latencies = super::latency::Recorder::default();
        done().for_each(|d| latencies.add(&d.latencies));
        let intended = self.phase.rate.is_some();
        let by_op = latencies.by_kind(intended).into_iter();
        let bytes = self.bytes(sum(|d| d.ingested) + written.ingested);
        let tables = bytes.flush.zip(bytes.merge).map(|(f, m)| (f + m + bytes.gc.unwrap_or(0)) as f64);
        let amp =
            |written: Option<f64>| written.filter(|_| bytes.ingested > 0).map(|w| w / bytes.ingested as f64);
        let own_cpu = self.after.process_cpu - self.before.process_cpu;
        let process_cpu = own_cpu.saturating_sub(sum(|d| d.drawing) + written.drawing);
        let machine = self.after.machine.as_ref().zip(self.before.machine.as_ref());
        PhaseReport {
            stream: format!("{:016x}", self.digest()),
            threads: u64::from(self.phase.threads),
            usable: true,
            ops,
            seconds,
            ops_per_s: if seconds > 0.0 { ops as f64 / seconds } else { 0.0 },
            worst_window_ops_per_s: done().filter_map(|d| d.worst_window).reduce(f64::min),
            thread_cpu_us_per_op: per_op(sum(|d| d.cpu)),
            process_cpu_us_per_op: per_op(process_cpu),
            latency_us: latencies.all(intended),
            by_op: by_op.map(|(kind, (ops, latency_us))| (kind, OfKind { ops, latency_us })).collect(),
            bytes,
            write_amp: amp(tables),
            write_amp_with_log: amp(tables.zip(bytes.log).map(|(tables, log)| tables + log as f64)),
            space_amp: SpaceAmp { peak: self.clients.samples.peak_space_amp, ..SpaceAmp::default() },
            runs: self.runs(),
            rss_peak_bytes: process::rss_peak_bytes(),
            fsyncs: self.grown(|c| c.fsyncs),
            steal_percent: machine.and_then(|(after, before)| after.steal_percent(before)),
            foreign_percent: machine
                .and_then(|(after, before)| after.foreign_percent(before, own_cpu as f64 / 1e9)),
            stalls: self.stalls(),
            filter: self.filter(),
            lookups: self.lookups(sum(|d| d.found.0), sum(|d| d.found.1)),
            merges: self.merges(process_cpu.saturating_sub(sum(|d| d.cpu))),
            values: ValueFiles::default(),
            decisions: Decisions {
                policy_calls: self.grown(|c| c.policy_calls),
                decide_us_mean: self.decide_us(),
                decide_us_max: self.after.counters.decide.map(|(_, longest)| longest),
                decide_s: self.seconds_grown(|c| c.decide.map(|(seconds, _)| seconds)),
                search_s: self.seconds_grown(|c| c.search_s),
                count: self.grown(|c| c.decisions),
                rejected: self.grown(|c| c.decisions_rejected),
                ..Decisions::default()
            },
            timeline: self.clients.samples.timeline,
            ..PhaseReport::default()
        }
    }

    fn digest(&self) -> u64 {
        let mut digest = Xxh3::new();
        self.clients.ended.iter().for_each(|(_, of_thread, _)| digest.update(&of_thread.to_le_bytes()));
        digest.digest()
    }

    fn bytes(&self, ingested: u64) -> Bytes {
        Bytes {
            ingested,
            flush: self.grown(|c| c.flush_bytes),
            merge: self.grown(|c| c.merge_bytes),
            gc: self.grown(|c| c.gc_bytes),
            log: self.grown(|c| c.log_bytes),
            manifest: self.grown(|c| c.manifest_bytes),
            read_user: self.grown(|c| c.read_user_bytes),
            read_merge: self.grown(|c| c.read_merge_bytes),
            read_gc: None,
        }
    }

    fn runs(&self) -> Runs {
        let levels = self.after.counters.runs_per_level.clone();
        let (weighted, ops) = self.clients.samples.runs_weighted;
        Runs {
            avg: (ops > 0.0).then(|| weighted / ops),
            max: self.clients.samples.runs_max,
            r#final: levels.as_ref().map(|levels| levels.iter().sum()),
            per_level_final: levels,
        }
    }

    fn stalls(&self) -> Stalls {
        let Some((after, before)) =
            self.after.counters.stalls.as_ref().zip(self.before.counters.stalls.as_ref())
        else {
            return Stalls::default();
        };
        let since = |(reason, stall): (&String, &Stall)| {
            let earlier = before.get(reason).copied().unwrap_or_default();
            let grown =
                Stall { count: stall.count - earlier.count, seconds: stall.seconds - earlier.seconds };
            (reason.clone(), grown)
        };
        let by_reason: BTreeMap<String, Stall> = after.iter().map(since).collect();
        Stalls {
            seconds: Some(by_reason.values().map(|stall| stall.seconds).sum()),
            count: Some(by_reason.values().map(|stall| stall.count).sum()),
            longest_ms: self.record(|c| c.stall_longest_ms, 0.0),
            by_reason: Some(by_reason),
        }
    }

    fn filter(&self) -> Filters {
        let counters = &self.after.counters;
        let entries = counters.table_entries.filter(|entries| *entries > 0);
        Filters {
            bits_per_key_actual: counters.filter_bytes.zip(entries).map(|(b, n)| b as f64 * 8.0 / n as f64),
            bytes: counters.filter_bytes,
            probes: self.grown(|c| c.filter_probes),
            negatives: self.grown(|c| c.filter_negatives),
            false_positives: self.grown(|c| c.filter_false_positives),
        }
    }

    fn lookups(&self, hits: u64, misses: u64) -> Lookups {
        let per = |count: Option<u64>| {
            count.filter(|_| hits + misses > 0).map(|count| count as f64 / (hits + misses) as f64)
        };
        let cache = self.grown(|c| c.cache_hits).zip(self.grown(|c| c.cache_misses));
        Lookups {
            hits,
            misses,
            files_per_lookup: per(self.grown(|c| c.lookup_files)),
            blocks_per_lookup_necessary: per(self.grown(|c| c.blocks_necessary)),
            blocks_per_lookup_unnecessary: per(self.grown(|c| c.blocks_unnecessary)),
            device_reads_per_lookup: per(self.grown(|c| c.cache_misses)),
            cache_hit_ratio: cache.filter(|(h, m)| h + m > 0).map(|(h, m)| h as f64 / (h + m) as f64),
        }
    }

    fn merges(&self, background_cpu: u64) -> Merges {
        let entries = self.grown(|c| c.merge_entries);
        Merges {
            count: self.grown(|c| c.merges),
            moves: self.grown(|c| c.moves),
            input_entries: entries,
            cpu_us_per_entry: entries.filter(|n| *n > 0).map(|n| background_cpu as f64 / 1e3 / n as f64),
            largest_bytes: self.record(|c| c.merge_largest_bytes, 0),
            max_parallel: self.record(|c| c.merges_most_parallel, 0),
            cross_level_s: self.seconds_grown(|c| c.merges_cross_level_s),
        }
    }

    /// Returns a running maximum of the engine if this phase raised it, or if nothing was recorded yet (the value
    /// `least`). Otherwise the maximum within the phase is unknown, and the result is `None`.
    fn record<T: PartialEq>(&self, of: impl Fn(&Counters) -> Option<T>, least: T) -> Option<T> {
        let after = of(&self.after.counters)?;
        (of(&self.before.counters).as_ref() != Some(&after) || after == least).then_some(after)
    }
}

/// Deletes the store of a finished run.
pub fn remove(dir: &Path) {
    // Files that cannot be deleted are left for the user.
    let _ = std::fs::remove_dir_all(dir);
}
