//! Translates the command line to tasks: workloads with the settings for every engine.

use super::args::{
    Common, DynamicArgs, Family, FiltersArgs, Fit, GrowthArgs, Keys, MicroArgs, PipelineArgs, Scale,
    SuiteName, TraceArgs, TraceKind, ValuesArgs, YcsbArgs,
};
use crate::engine::{Durability, EngineConfig, Io, Result};
use crate::rounds::Task;
use crate::workload::trace::{self, Form};
use crate::workload::{Workload, dynamic, micro, papers, scaled, suites, ycsb};

const MIB: u64 = 1 << 20;
/// Minimum memtable size that scaling produces.
const MEMTABLE_LEAST: u64 = 64 << 10;

/// Settings of a family that apply if the command line does not set them.
struct Defaults {
    memory: u64,
    memtable: u64,
    file: u64,
    bits: f64,
    durability: Durability,
    io: Io,
}

impl Default for Defaults {
    fn default() -> Self {
        Defaults {
            memory: 1 << 30,
            memtable: 64 * MIB,
            file: 64 * MIB,
            bits: 10.0,
            durability: Durability::Buffered,
            io: Io::Buffered,
        }
    }
}

fn config(common: &Common, defaults: &Defaults, bits: f64) -> EngineConfig {
    EngineConfig {
        memory_bytes: common.memory.unwrap_or(defaults.memory),
        memtable_bytes: common.memtable.unwrap_or(defaults.memtable),
        file_bytes: common.file_size.unwrap_or(defaults.file),
        filter_bits: bits,
        compression: common.compression,
        durability: common.durability.unwrap_or(defaults.durability),
        io: common.io.unwrap_or(defaults.io),
        merges: common.merges,
        set: common.set.clone(),
        in_memory: common.in_memory,
        ..EngineConfig::default()
    }
}

/// Returns the engine settings that `common` and the defaults give.
pub(super) fn plain(common: &Common) -> EngineConfig {
    let defaults = Defaults::default();
    config(common, &defaults, defaults.bits)
}

/// Returns the tasks of one workload, one for each requested number of filter bits.
fn tasks(common: &Common, defaults: &Defaults, workload: &Workload, own_bits: &[f64]) -> Vec<Task> {
    let bits = match (common.bits.as_slice(), own_bits) {
        ([], []) => &[defaults.bits],
        ([], own) => own,
        (given, _) => given,
    };
    let several = bits.len() > 1;
    let task = |bits: &f64| {
        let mut workload = workload.clone();
        if several {
            workload.name += &format!(" {bits} bits");
        }
        if let Some(rate) = common.rate {
            workload.pace(rate);
        }
        Task { workload, config: config(common, defaults, *bits) }
    };
    bits.iter().map(task).collect()
}

/// Returns the factor of `--scale`; `default` and `quick` are the family's own factors.
fn factor(common: &Common, default: f64, quick: f64) -> f64 {
    match common.scale {
        None => default,
        Some(Scale::Quick) => quick,
        Some(Scale::Factor(factor)) => factor,
    }
}

/// Returns the tasks of `family`; empty for families that are not workloads.
pub(super) fn of_family(family: &Family, common: &Common) -> Result<Vec<Task>> {
    let takes_threads = matches!(family, Family::Micro(_) | Family::Ycsb(_) | Family::Dynamic(_));
    if common.threads != 1 && !takes_threads {
        return Err(format!(
            "--threads {}: only micro, ycsb and dynamic take a number of threads; the phases of other families \
                have their own",
            common.threads
        ));
    }
    match family {
        Family::Micro(args) => of_micro(args, common),
        Family::Ycsb(args) => of_ycsb(args, common),
        Family::Dynamic(args) => of_dynamic(args, common),
        Family::Growth(args) => of_growth(args, common),
        Family::Filters(args) => of_filters(args, common),
        Family::Pipeline(args) => of_pipeline(args, common),
        Family::Values(args) => of_values(args, common),
        Family::Trace(args) => of_trace(args, common),
        Family::Suite(args) => of_suite(args.suite, common),
        _ => Ok(Vec::new()),
    }
}

fn of_micro(args: &MicroArgs, common: &Common) -> Result<Vec<Task>> {
    let usual_names = micro::USUAL.map(str::to_owned);
    let (names, full) = match args.names.is_empty() {
        true => (&usual_names[..], 0.1),
        false => (&args.names[..], 1.0),
    };
    let default = scaled(10_000_000, factor(common, full, 0.1));
    let usual = micro::Sizes::default();
    let sizes = micro::Sizes {
        num: args.num.unwrap_or(default),
        reads: args.reads,
        duration: args.duration,
        nexts: args.nexts,
        batch: args.batch,
        key_bytes: common.key_size.unwrap_or(usual.key_bytes),
        value_bytes: common.value_size.unwrap_or(usual.value_bytes),
        value_ratio: common.value_ratio,
        dense: args.keys == Keys::Dense,
        threads: common.threads,
        write_rate: args.write_rate,
        theta: args.theta.filter(|theta| *theta > 0.0),
    };
    let defaults = Defaults { memory: 3 << 30, ..Defaults::default() };
    let workloads = micro::workloads(names, &sizes)?;
    Ok(workloads.iter().flat_map(|workload| tasks(common, &defaults, workload, &[])).collect())
}

fn of_ycsb(args: &YcsbArgs, common: &Common) -> Result<Vec<Task>> {
    let scale = |default: u64, quick: u64| match common.scale {
        None => default,
        Some(Scale::Quick) => quick,
        Some(Scale::Factor(factor)) => scaled(default, factor),
    };
    let sizes = ycsb::Sizes {
        records: args.records.unwrap_or_else(|| scale(10_000_000, 1_000_000)),
        ops: args.ops.unwrap_or_else(|| scale(5_000_000, 1_000_000)),
        value_bytes: common.value_size.unwrap_or(100),
        value_ratio: common.value_ratio,
        threads: common.threads,
        distribution: args.dist,
        update: args.update,
    };
    let defaults = Defaults { memory: 3 << 30, ..Defaults::default() };
    Ok(tasks(common, &defaults, &ycsb::workload(&args.workload, &sizes)?, &[]))
}

/// Defaults for `--fit cached`: 64 MiB of memory, more with large memtables.
fn dynamic_defaults(common: &Common) -> Defaults {
    let memtable = common.memtable.unwrap_or(2 * MIB);
    Defaults { memory: (64 * MIB).max(8 * memtable), memtable, file: 64 * MIB, ..Defaults::default() }
}

fn of_dynamic(args: &DynamicArgs, common: &Common) -> Result<Vec<Task>> {
    let mut workload = dynamic::workload(&args.plan, factor(common, 1.0 / 16.0, 1.0 / 64.0))?;
    workload.value_bytes = common.value_size.unwrap_or(workload.value_bytes);
    workload.value_ratio = common.value_ratio;
    workload.phases.iter_mut().for_each(|phase| phase.threads = common.threads);
    let mut defaults = dynamic_defaults(common);
    if args.fit == Fit::SixtyPercent {
        let share = scaled(workload.live_bytes(), 0.6);
        defaults = Defaults { memory: share.max(8 * defaults.memtable), io: Io::Direct, ..defaults };
    }
    Ok(tasks(common, &defaults, &workload, &[]))
}

fn of_growth(args: &GrowthArgs, common: &Common) -> Result<Vec<Task>> {
    let scale = factor(common, 0.25, 1.0 / 64.0);
    let memory = scaled(64 * MIB, scale).max(16 * MIB);
    let defaults = Defaults { memory, memtable: 2 * MIB, file: 2 * MIB, bits: 5.0, ..Defaults::default() };
    Ok(tasks(common, &defaults, &papers::growth(&args.mix, &args.dist, scale)?, &[]))
}

fn of_filters(args: &FiltersArgs, common: &Common) -> Result<Vec<Task>> {
    let scale = factor(common, 1.0 / 16.0, 1.0 / 64.0);
    let memtable = scaled(16 * MIB, scale).max(MEMTABLE_LEAST);
    let defaults = Defaults { memory: 64 * MIB, memtable, file: memtable, ..Defaults::default() };
    let bits: &[f64] = if args.kind == "I" { &[2.0, 4.0, 6.0] } else { &[2.0, 3.0, 5.0, 7.0] };
    let workload = papers::filters(&args.kind, args.empty, &args.dist, scale)?;
    let mut all = Vec::new();
    for mode in &args.modes {
        for mut task in tasks(common, &defaults, &workload, bits) {
            task.workload.name += &format!(" {mode}");
            task.config.set.push(("filter_mode".to_owned(), mode.clone()));
            all.push(task);
        }
    }
    Ok(all)
}

fn of_pipeline(args: &PipelineArgs, common: &Common) -> Result<Vec<Task>> {
    let scale = factor(common, 1.0 / 16.0, 1.0 / 64.0);
    let memtable = scaled(64 * MIB, scale).max(MEMTABLE_LEAST);
    let defaults =
        Defaults { memory: 64 * MIB, memtable, durability: Durability::None, ..Defaults::default() };
    if args.kind == "workers" {
        return of_workers(args, common);
    }
    let workload = papers::pipeline(&args.kind, &args.writes, scale)?;
    let mut tasks = tasks(common, &defaults, &workload, &[]);
    tasks.iter_mut().for_each(|task| task.config.latency_us = args.latency.unwrap_or(0));
    Ok(tasks)
}

/// Returns the same load for several numbers of compaction slots, with and without pipelining. The simulated device
/// latency makes compactions wait, so that more slots than cores are useful.
fn of_workers(args: &PipelineArgs, common: &Common) -> Result<Vec<Task>> {
    // At scale 1: 8 GiB of 24 + 1000 bytes with memtables of 16 MiB. The default of 1/64 runs twelve loads in some
    // minutes.
    let scale = factor(common, 1.0 / 64.0, 1.0 / 256.0);
    let workload = papers::workers(scale);
    let memtable = scaled(16 * MIB, scale).max(MEMTABLE_LEAST);
    let defaults = Defaults {
        memory: 512 * MIB,
        memtable,
        file: memtable,
        durability: Durability::None,
        ..Defaults::default()
    };
    let mut all = Vec::new();
    for mode in ["unsplit", "split", "pipelined"] {
        for &workers in &args.workers {
            for mut task in tasks(common, &defaults, &workload, &[]) {
                task.workload.name += &format!(" {mode} {workers}");
                task.config.merges = workers;
                task.config.latency_us = args.latency.unwrap_or(2000);
                task.config.set.push(("pipeline".to_owned(), mode.to_owned()));
                all.push(task);
            }
        }
    }
    Ok(all)
}

fn of_values(args: &ValuesArgs, common: &Common) -> Result<Vec<Task>> {
    let scale = factor(common, 1.0 / 64.0, 1.0 / 256.0);
    let memtable = scaled(100 * MIB, scale).max(MEMTABLE_LEAST);
    let defaults = Defaults { memory: 256 * MIB, memtable, ..Defaults::default() };
    let workload = papers::values(args.theta, common.value_size.unwrap_or(4096), scale)?;
    Ok(tasks(common, &defaults, &workload, &[]))
}

fn of_trace(args: &TraceArgs, common: &Common) -> Result<Vec<Task>> {
    let form = match (args.kind, args.expand_4k) {
        (TraceKind::Block, false) => Form::Block,
        (TraceKind::Block, true) => Form::Blocks4k,
        (TraceKind::Git, _) => Form::Keys,
        (TraceKind::Twitter, _) => Form::Ids,
    };
    if form == Form::Ids && args.sizes.is_none() {
        return Err("a twitter trace needs --sizes".to_owned());
    }
    let workload = trace::workload(&args.file, form, args.sizes.as_deref(), factor(common, 1.0, 1.0 / 16.0))?;
    let defaults = Defaults { memory: 64 * MIB, memtable: MIB, ..Defaults::default() };
    Ok(tasks(common, &defaults, &workload, &[]))
}

fn of_suite(suite: SuiteName, common: &Common) -> Result<Vec<Task>> {
    let workloads = match suite {
        SuiteName::Smoke => suites::smoke()?,
        SuiteName::Quick => suites::quick()?,
        SuiteName::Papers => suites::papers_suite()?,
        SuiteName::Goals => suites::goals()?,
        SuiteName::Release => suites::release()?,
    };
    let mut common = common.clone();
    if suite == SuiteName::Smoke {
        common.in_memory = true;
        common.memory = common.memory.or(Some(64 * MIB));
        common.memtable = common.memtable.or(Some(MEMTABLE_LEAST));
    }
    let of = |workload: &Workload| {
        let defaults = match workload.name.split(' ').next() {
            Some("dynamic") => dynamic_defaults(&common),
            Some("micro" | "ycsb") => Defaults { memory: 3 << 30, ..Defaults::default() },
            Some("pipeline") => Defaults {
                memory: 64 * MIB,
                memtable: 4 * MIB,
                durability: Durability::None,
                ..Defaults::default()
            },
            _ => Defaults { memory: 64 * MIB, memtable: 2 * MIB, file: 2 * MIB, ..Defaults::default() },
        };
        tasks(&common, &defaults, workload, &[])
    };
    Ok(workloads.iter().flat_map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::args::BenchArgs;
    use clap::{Args, FromArgMatches};

    fn parsed(line: &str) -> core::result::Result<clap::ArgMatches, clap::Error> {
        let command = BenchArgs::augment_args(clap::Command::new("bench")).no_binary_name(true);
        command.try_get_matches_from(line.split(' '))
    }

    /// Returns the tasks of the command line `line`.
    fn asked(line: &str) -> Result<Vec<Task>> {
        let matches = parsed(line).expect("a command line");
        let args = BenchArgs::from_arg_matches(&matches).expect("a command line");
        of_family(&args.family.expect("a family"), &args.common)
    }

    /// Returns the settings of the only task of the command line `line`.
    fn settings(line: &str) -> EngineConfig {
        let tasks = asked(line).expect("a workload");
        let [task] = &tasks[..] else { panic!("{line}: {} tasks", tasks.len()) };
        task.config.clone()
    }

    #[test]
    fn a_number_of_threads_is_taken_or_refused() {
        for line in ["micro readrandom", "ycsb", "dynamic --plan III"] {
            let tasks = asked(&format!("{line} --threads 4")).expect("a workload");
            let phases = || tasks.iter().flat_map(|task| &task.workload.phases);
            assert!(phases().any(|phase| phase.threads == 4), "{line}");
        }
        let dynamic = asked("dynamic --plan III --threads 4").expect("a workload");
        assert!(dynamic[0].workload.phases.iter().all(|phase| phase.threads == 4));
        for line in ["growth", "filters I", "pipeline workers"] {
            let error = asked(&format!("{line} --threads 4")).err().unwrap_or_default();
            assert!(error.starts_with("--threads 4: only micro, ycsb and dynamic"), "{line}: {error}");
        }
        assert!(parsed("ycsb --threads 0").is_err());
    }

    #[test]
    fn a_rate_is_that_of_the_phases_asked_for() {
        let paced = |line: &str| {
            let task = asked(line).expect("a workload").remove(0);
            let names = task.workload.phases.into_iter().filter(|phase| phase.rate == Some(5.0));
            names.map(|phase| phase.name).collect::<Vec<_>>().join(",")
        };
        assert_eq!(paced("micro readrandom --rate 5"), "readrandom", "neither its load nor its warm-up");
        assert_eq!(paced("micro fillrandom,readrandom --rate 5"), "fillrandom,readrandom");
        assert_eq!(paced("ycsb --workload c --rate 5"), "C");
        assert_eq!(paced("ycsb --workload load --rate 5"), "load");
        assert_eq!(paced("ycsb --rate 5"), "A,B,C,F,D,E");
        assert_eq!(paced("dynamic --plan III --rate 5"), "G,H,I");
    }

    #[test]
    fn sizes_and_counts_that_nothing_can_run_with_are_refused() {
        for flag in [
            "--memory 0",
            "--memory 1023",
            "--memtable 0",
            "--file-size 1B",
            "--compaction-slots 0",
            "--compaction-slots 65",
            "--rate 0.0009",
            "--rate nan",
        ] {
            assert!(parsed(&format!("ycsb {flag}")).is_err(), "{flag}");
        }
        assert!(parsed("micro readwhilewriting --write-rate 1e-9").is_err());
        assert!(parsed("pipeline workers --slots 0").is_err());
        for flag in ["--memory 1KiB", "--memtable 1KiB", "--compaction-slots 64", "--rate 0.001"] {
            assert!(parsed(&format!("ycsb {flag}")).is_ok(), "{flag}");
        }
    }

    #[test]
    fn direct_reads_and_memory_that_holds_three_fifths() {
        assert_eq!(settings("micro readrandom").io, Io::Buffered);
        assert_eq!(settings("micro readrandom --io direct").io, Io::Direct);
        let cached = settings("dynamic --plan versions");
        assert_eq!((cached.io, cached.memory_bytes), (Io::Buffered, 64 * MIB));
        let sixty = settings("dynamic --plan versions --fit 60%");
        assert_eq!((sixty.io, sixty.memory_bytes), (Io::Direct, 62_500 * 1024 / 5 * 3));
        let given = settings("dynamic --plan versions --fit 60% --io buffered --memory 32MiB");
        assert_eq!((given.io, given.memory_bytes), (Io::Buffered, 32 * MIB));
        let tiny = settings("dynamic --plan versions --fit 60% --scale 1/4096");
        assert_eq!(tiny.memory_bytes, 16 * MIB, "room for memtables");
    }
}
