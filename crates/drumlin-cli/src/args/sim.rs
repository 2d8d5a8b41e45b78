//! Arguments of `drumlin sim`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Arguments of the workload simulation. The cost model is that of the ArceKV paper.
///
/// The last two tables show by how many flush intervals compactions ended earlier or later than the policy had
/// predicted: those with a steady load, and those during which the load changed.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    pub(crate) kind: Option<SimKind>,

    /// Workload plan: I, II or III of the ArceKV paper, `gradient`, or a sequence of its mixes A to J (such as ABC)
    #[arg(default_value = "I")]
    pub(crate) plan: String,

    /// Policy to simulate, with its parameters; repeatable [default: arce and the presets]
    #[arg(long = "policy", value_name = "NAME")]
    pub(crate) policies: Vec<String>,

    /// Number of client threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) clients: u32,

    /// Number of concurrent compactions
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) slots: u32,

    /// Bytes per flush
    #[arg(long, default_value_t = 128 << 10, value_parser = clap::value_parser!(u64).range(4096..=1 << 30))]
    pub(crate) flush_bytes: u64,

    /// Number of 1 KiB entries preloaded, and number of operations per phase; the paper has 2560000
    #[arg(long, default_value_t = 160_000, value_parser = clap::value_parser!(u64).range(1000..=100_000_000))]
    pub(crate) entries: u64,

    /// Fraction by which a running compaction slows operations down
    #[arg(long, default_value_t = 0.1)]
    pub(crate) interference: f64,

    /// Install each compaction as a whole instead of piece by piece (subcompaction by subcompaction)
    #[arg(long)]
    pub(crate) whole: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Other simulations.
#[derive(Subcommand, Debug)]
pub(crate) enum SimKind {
    /// Simulate a write load that keeps all compaction slots busy, with and without pipelining (Downforce)
    ///
    /// Columns of the table: write amp = bytes written by flushes and compactions per byte written by the program;
    /// busy = mean number of busy slots; >=3/4 % = share of the time in which three quarters of the slots or more are
    /// busy; depth = mean number of files that a lookup probes; L0 = most runs in level 0; moved and folded = bytes
    /// moved without I/O, and bytes of the output level added to compactions, per byte written by the program; held =
    /// subcompactions that finished before they could be installed.
    ///
    /// Reproduces figures 3, 6, 7, 8 and 9 and table 3 of the Downforce paper. Default sizes and rates are those of
    /// the paper. A smaller --load shows the same shape in less time.
    #[command(after_help = "Example: drumlin sim pipeline --load 2048 --slots 1,4 --html page.html")]
    Pipeline(PipelineArgs),
    /// Compute write amplification and mean runs of leveling, tiering and the schedules of `vertiorizon` (Vertiorizon)
    ///
    /// A unit is one full flush. Columns of the table: writes = units written per flushed unit, flush included; joined
    /// = the same if a flush is part of the merge that follows it, as in the paper; runs = mean number of runs; most
    /// = most runs; excess = writes beyond those of the weighted schedules at the same mean number of runs, in percent,
    /// or `-` outside their range. `weighted` are the schedules of `vertiorizon`, `Algorithm 1` and `2` those of the
    /// paper as printed, and `horizontal` the optimal ones for the same bounds. A cycle of the engine has at most 4096
    /// units.
    ///
    /// Reproduces figure 10a of the Vertiorizon paper.
    #[command(after_help = "Example: drumlin sim growth --units 1000 --html page.html")]
    Growth(GrowthArgs),
    /// Simulate value files: what garbage collection copies, by collector and load (DumpKV)
    ///
    /// Columns of the table: copies = bytes copied per flushed byte, and space = mean bytes of value files per live
    /// byte, both of the last three quarters of the load; peak = the largest of the whole load; rule and model = mean
    /// error of the two predictors of lifetimes over the newest 8192 labels, in doublings.
    ///
    /// Collectors: `garbage-ratio` takes the files with the largest share of garbage until the space target is met;
    /// `age-score` prefers old files; `mean-interval` does so too, and writes values with similar lifetimes to the same
    /// files, as predicted from the write history of their key; `lifetimes`, the default of a store, also trains a
    /// model. Versions become garbage when a flush supersedes them; a store finds garbage later.
    ///
    /// `--published` adds collectors of other stores. `oldest-first`: the oldest file, until the space target is met
    /// (BlobDB's order, without its age cutoff). `ratio`: every file with at least this share of garbage (TerarkDB and
    /// Titan; 0.2 in DumpKV's paper). `dumpkv-h` and `dumpkv`: DumpKV's times to live, where collection divides values
    /// by write count or by a model (that of this store). The last three have no space target: they are run with eight
    /// settings each, and what they copy at the mean space of `lifetimes` is interpolated.
    ///
    /// Columns: `setting` is the space target, the collector's own setting as published (`garbage` share, or `factor`
    /// on the times to live), or the mean `space` to which a line is interpolated. `copies`: bytes copied for each
    /// flushed byte. `space` and `peak`: mean and largest bytes of value files per live byte. `rule` and `model`: mean
    /// errors of the predictors in doublings. `-`: not known; no setting came near this space, or nothing was
    /// predicted. `--json` prints all runs.
    #[command(after_help = "Example: drumlin sim values --load zipf:0.9 --target 1.25,1.5")]
    Values(ValuesArgs),
}

/// Arguments of the value files.
#[derive(Args, Debug)]
pub(crate) struct ValuesArgs {
    /// Loads: zipf:THETA with THETA from 0 to below 1, or mixed (queues, counters, sessions and archives)
    #[arg(
        long = "load",
        value_delimiter = ',',
        value_name = "LOAD,..",
        default_value = "zipf:0.2,zipf:0.9,mixed"
    )]
    pub(crate) loads: Vec<String>,

    /// Also the writes of this trace; repeatable. CSV with the columns op (P or D; others are skipped), key (or lba)
    /// and size (or bytes); - is stdin
    #[arg(long = "trace", value_name = "FILE")]
    pub(crate) traces: Vec<PathBuf>,

    /// Space targets: bytes of value files per live byte, from 1.05 to 10
    #[arg(long = "target", value_delimiter = ',', value_name = "RATIO,..", default_value = "1.25,1.5")]
    pub(crate) targets: Vec<f64>,

    /// Number of keys of the zipf loads; the mixed load makes 20 operations for each
    #[arg(long, default_value_t = 200_000, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1000..=10_000_000))]
    pub(crate) keys: u64,

    /// Updates per key of the zipf loads
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100))]
    pub(crate) updates: u64,

    /// Size of a memtable and of a value file in KiB
    #[arg(long, default_value_t = 16_384, value_name = "KIB",
          value_parser = clap::value_parser!(u64).range(64..=1_048_576))]
    pub(crate) memtable: u64,

    /// Also the collectors of BlobDB, TerarkDB, Titan and DumpKV
    #[arg(long)]
    pub(crate) published: bool,

    /// Seed of the loads
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of the growth schemes.
#[derive(Args, Debug)]
pub(crate) struct GrowthArgs {
    /// Number of flushes; 16384 are 1 TiB of flushes of 64 MiB
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u32).range(3..=20_000))]
    pub(crate) units: u32,

    /// Write an HTML page with the curves to FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PipelineArgs {
    /// Policy to simulate, with its parameters; repeatable [default: 1-leveling:5, tiering:4, leveling:5 and
    /// universal]
    #[arg(long = "policy", value_name = "NAME")]
    pub(crate) policies: Vec<String>,

    /// Numbers of compaction slots to simulate
    #[arg(long, alias = "workers", value_delimiter = ',', default_value = "1,2,4,8,16,32", value_name = "N,..",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) slots: Vec<u32>,

    /// Number of slots to report in detail; simulated even if --slots does not include it
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) detail: u32,

    /// MiB to write; the default is the paper's and takes minutes
    #[arg(long, default_value_t = 51200, value_name = "MIB",
          value_parser = clap::value_parser!(u64).range(256..=1_000_000))]
    pub(crate) load: u64,

    /// Maximum write rate of the program in MiB/s; above 800, the flush rate rises to match it
    #[arg(long, default_value_t = 800, value_name = "MIB",
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) rate: u64,

    /// MiB of distinct keys, overwritten uniformly [default: every key is new]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) universe: Option<u64>,

    /// Size of a memtable and of a table file in KiB; the default (64 MiB) is the paper's
    #[arg(long, default_value_t = 65536, value_name = "KIB",
          value_parser = clap::value_parser!(u64).range(64..=4_194_304))]
    pub(crate) memtable: u64,

    /// Lookups per second that are reported to the scheduler
    #[arg(long, default_value_t = 0.0)]
    pub(crate) gets: f64,

    /// Also run each load on the engine, in virtual time
    ///
    /// Divides the sizes and rates of both the simulation and the engine run by N, so both write N times less data in
    /// the same time. Files are a quarter of a memtable, pieces (subcompactions) are at most one memtable, and the
    /// policy's write rate limit slows writers. MiB/s are scaled back to full size.
    ///
    /// A second row shows the engine's throughput, bytes written per flushed byte, mean depth, maximum runs in level
    /// 0, and the relative difference in bytes written from the simulation. At the end the content of the store is
    /// read and verified. Options that exist only in the simulator cannot be combined with --engine.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(16..=1024),
          conflicts_with_all = ["universe", "gets", "cap", "fold_every", "back_pressure", "piece", "flush_alike"])]
    pub(crate) engine: Option<u64>,

    #[command(flatten)]
    pub(crate) scheduler: SchedulerArgs,

    /// Write an HTML page with the figures to FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Scheduler settings, for parameter sweeps.
#[derive(Args, Debug)]
pub(crate) struct SchedulerArgs {
    /// Scheduling modes to simulate
    #[arg(long, value_delimiter = ',', default_value = "unsplit,split,pipelined", value_name = "MODE,..",
          value_parser = ["unsplit", "split", "pipelined"])]
    pub(crate) modes: Vec<String>,

    /// Maximum number of extra runs in a level [default: half the slots, 8 to 16]
    #[arg(long, value_name = "X", value_parser = clap::value_parser!(u32).range(2..=64))]
    pub(crate) cap: Option<u32>,

    /// Run an intra-level compaction with every K-th batch [default: chosen by the cost model]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) fold_every: Option<u32>,

    /// Fill of the target level, relative to its size, above which a level pair loses its priority; a large value
    /// gives plain top-down order
    #[arg(long, default_value_t = 3.0, value_name = "FILL")]
    pub(crate) back_pressure: f64,

    /// Maximum size of a piece (subcompaction) in MiB
    #[arg(long, default_value_t = 64, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub(crate) piece: u64,

    /// Share the device bandwidth equally between flushes and compactions, instead of serving flushes first
    #[arg(long)]
    pub(crate) flush_alike: bool,
}
