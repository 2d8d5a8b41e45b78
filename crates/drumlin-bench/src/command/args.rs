//! Command-line arguments of the benchmarks and their help texts.

use super::numbers;
use crate::engine::{Compression, Durability, Io};
use crate::workload::ycsb::{Distribution, Update};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Run benchmarks: workloads, engine comparisons, reports and the regression gate
///
/// Results go to stdout as a table; progress and warnings go to stderr. Every result of the store is verified, and a
/// wrong one ends the run without numbers. Exit status: 0 success, 1 error or wrong result, 2 bad usage, 3 gate
/// failed, 4 too few usable rounds.
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// Benchmark family to run
    #[command(subcommand)]
    pub family: Option<Family>,

    /// Settings of all families
    #[command(flatten)]
    pub common: Common,

    /// Micro benchmarks selected as in db_bench
    #[command(flatten)]
    pub as_db_bench: AsDbBench,
}

/// Arguments with the names of db_bench, for `--benchmarks=fillrandom,readrandom --num=1000000`.
#[derive(Args, Clone, Debug, Default)]
pub struct AsDbBench {
    /// Micro benchmarks to run, separated by commas, if no family is given
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    pub benchmarks: Vec<String>,

    /// Number of entries for --benchmarks [default: 10 million]
    #[arg(long = "num", value_name = "N", value_parser = numbers::count)]
    pub num: Option<u64>,

    /// Reads per pass for --benchmarks; lookups and seeks make two counted passes [default: by benchmark]
    #[arg(long = "reads", value_name = "N", value_parser = numbers::count)]
    pub reads: Option<u64>,
}

/// Settings of all families.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// Directory for the stores, which are deleted afterwards [default: a new directory in the temporary directory]
    #[arg(long, global = true, value_name = "DIR")]
    pub db: Option<PathBuf>,

    /// Keep the stores after the run
    #[arg(long, global = true)]
    pub keep: bool,

    /// Random seed of the first round; round r uses this plus r - 1
    #[arg(long, global = true, default_value_t = 1)]
    pub seed: u64,

    /// Number of rounds, and up to 2 more if noise leaves too few usable ones; a verdict needs 3 [default: 1; for
    /// several engines 5 or 3, by the length of the phases]
    #[arg(long, global = true, value_name = "N", value_parser = numbers::count)]
    pub rounds: Option<u64>,

    /// Scale of the run: quick, or a factor such as 1/64
    #[arg(long, global = true, value_name = "F", value_parser = parse_scale)]
    pub scale: Option<Scale>,

    /// Number of client threads
    #[arg(long, global = true, value_name = "N", default_value_t = 1, value_parser = numbers::threads)]
    pub threads: u32,

    /// Calls per second over all threads (open loop): a call is due even if earlier calls are unfinished, and its
    /// latency counts from its due time. Loads that only prepare other phases have no limit [default: unlimited]
    #[arg(long, global = true, value_name = "OPS", value_parser = numbers::rate)]
    pub rate: Option<f64>,

    /// Key size in bytes, if the family does not fix it [default: 16]
    #[arg(long, global = true, alias = "key_size", value_name = "B", value_parser = numbers::key_size)]
    pub key_size: Option<usize>,

    /// Value size in bytes, if the family does not fix it [default: 100, or by family]
    #[arg(long, global = true, alias = "value_size", value_name = "B", value_parser = numbers::value_size)]
    pub value_size: Option<usize>,

    /// Compressed size of the values as a fraction of their size
    #[arg(long, global = true, value_name = "R", default_value_t = 0.5, value_parser = numbers::share)]
    pub value_ratio: f64,

    /// Memory for block cache, memtables, filters and indexes together, such as 1GiB [default: by family; 3GiB for
    /// micro and ycsb]
    ///
    /// For RocksDB this is the size of the block cache; its memtables, indexes and filters come on top, except with
    /// rocksdb-pinned.
    #[arg(long, global = true, value_name = "BYTES", value_parser = numbers::memory)]
    pub memory: Option<u64>,

    /// Memtable size in bytes, such as 64MiB [default: by family; 64MiB for micro and ycsb]
    #[arg(long, global = true, value_name = "BYTES", value_parser = numbers::memory)]
    pub memtable: Option<u64>,

    /// Size in bytes of the table files that compactions write, such as 64MiB [default: by family; 64MiB for micro
    /// and ycsb]
    #[arg(long, global = true, value_name = "BYTES", value_parser = numbers::memory)]
    pub file_size: Option<u64>,

    /// Filter bits per key [default: 10, or by family]; the `filters` and `allotment` families compare several values
    #[arg(long, global = true, value_name = "N,..", value_delimiter = ',', value_parser = numbers::bits)]
    pub bits: Vec<f64>,

    /// Compaction policy, optionally with parameters after a colon; if repeated, each policy runs as a separate
    /// engine
    #[arg(long, global = true, value_name = "NAME")]
    pub policy: Vec<String>,

    /// Engines to run, each optionally with a policy after a colon [default: all engines of this program]
    #[arg(long, global = true, value_name = "NAME,..", value_delimiter = ',')]
    pub engines: Vec<String>,

    /// Block compression
    #[arg(long, global = true, value_enum, default_value_t = Compression::None)]
    pub compression: Compression,

    /// Durability of writes [default: buffered, like RocksDB with its WAL and sync = false]
    #[arg(long, global = true, value_enum)]
    pub durability: Option<Durability>,

    /// Read tables through the page cache (buffered) or past it (direct) [default: buffered]
    ///
    /// Phases that are specific to one mode, such as readuncached and readpagecache, always use that mode. With
    /// direct I/O, RocksDB's tuned options also write past the page cache, and Drumlin still writes through it. fjall
    /// has no direct I/O and is skipped.
    #[arg(long, global = true, value_enum)]
    pub io: Option<Io>,

    /// Compaction slots: maximum number of concurrent compactions, in addition to one flush
    #[arg(long = "compaction-slots", alias = "merges", global = true, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = numbers::slots)]
    pub merges: u32,

    /// Set a Drumlin option by name; repeatable
    #[arg(long = "set", global = true, value_name = "OPTION=VALUE", value_parser = parse_setting)]
    pub set: Vec<(String, String)>,

    /// Keep files in memory; this tests the harness only, and its times are meaningless
    #[arg(long, global = true)]
    pub in_memory: bool,

    /// Run the first engine a second time as a control, to measure the noise (A/A test)
    #[arg(long, global = true)]
    pub aa: bool,

    /// Calibrate before each run and repeat noisy runs; comparisons always do
    #[arg(long, global = true)]
    pub watch_noise: bool,

    /// Neither calibrate nor repeat runs, even in a comparison
    #[arg(long, global = true, conflicts_with = "watch_noise")]
    pub ignore_noise: bool,

    /// Write the report as JSON to FILE
    #[arg(long, global = true, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Omit samples and decisions from the reports, to keep the files small
    #[arg(long, global = true)]
    pub brief: bool,

    /// Write the report as an HTML page to FILE
    #[arg(long, global = true, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Write one row per phase to FILE, with the columns of RocksDB's benchmark.sh
    #[arg(long, global = true, value_name = "FILE")]
    pub tsv: Option<PathBuf>,

    /// Do not show progress; it is shown on a terminal only
    #[arg(long, global = true)]
    pub quiet: bool,
}

/// Benchmark family to run.
#[derive(Subcommand, Debug)]
pub enum Family {
    /// Micro benchmarks: single operations, named as in db_bench
    #[command(after_help = "Example: bench micro fillrandom,readrandom --num 1000000")]
    Micro(MicroArgs),
    /// The six YCSB workloads
    #[command(after_help = "Example: bench ycsb --workload a --scale quick")]
    Ycsb(YcsbArgs),
    /// Phases whose mix of range scans, updates and point reads changes without notice (ArceKV)
    #[command(after_help = "Example: bench dynamic --plan I --scale quick --html page.html")]
    Dynamic(DynamicArgs),
    /// Growth of the LSM tree under four workload mixes (Vertiorizon); the paper uses --io direct
    #[command(after_help = "Example: bench growth --mix balanced --scale quick")]
    Growth(GrowthArgs),
    /// Lookups as a function of filter memory and of its division over tables (Mnemosyne); the paper uses --io direct
    #[command(after_help = "Example: bench filters I --scale quick")]
    Filters(FiltersArgs),
    /// Write loads that keep compactions busy (Downforce), with and without pipelining
    #[command(after_help = "Example: bench pipeline fur --scale quick")]
    Pipeline(PipelineArgs),
    /// Updates of large values (DumpKV); value files with --set value_threshold=1KiB
    #[command(after_help = "Example: bench values --scale quick")]
    Values(ValuesArgs),
    /// Replay recorded requests
    #[command(after_help = "Example: bench trace block trace.csv.zst --expand-4k")]
    Trace(TraceArgs),
    /// Run the dynamic phases on the engine in the virtual time of a simulated disk; results are exactly reproducible
    #[command(after_help = "Example: bench paced I --policies arce,leveling:10")]
    Paced(PacedArgs),
    /// Compare the adaptive policy with the best fixed setting of each phase, in the virtual time of `bench paced`
    #[command(after_help = "Example: bench oracle I --entries 22000")]
    Oracle(OracleArgs),
    /// Read cost of queues by number of deleted entries, and of a hot counter by number of merge operands
    #[command(after_help = "Example: bench deleted queue-pop --depths 1000,10000")]
    Deleted(DeletedArgs),
    /// Count unneeded block reads per lookup for each filter mode, on a simulated disk, and compare them with the best
    /// allocation of the same bits; --bits defaults to 4
    #[command(
        after_help = "Example: bench allotment --modes uniform,mnemosyne+ --bits 4 --empty 1 --dist normal"
    )]
    Allotment(AllotmentArgs),
    /// Run several families
    #[command(after_help = "Example: bench suite smoke")]
    Suite(SuiteArgs),
    /// Measure the speed of this machine for about two seconds
    #[command(after_help = "Example: bench calibrate")]
    Calibrate,
    /// Regression gate: compare exactly reproducible counts with ci/gate.toml
    #[command(after_help = "Example: bench gate --counts")]
    Gate(GateArgs),
    /// Print reports from JSON files
    #[command(after_help = "Example: bench report result.json --html page.html")]
    Report(ReportArgs),
    /// Performance goals of Drumlin against RocksDB; needs a program that includes RocksDB
    #[command(after_help = "Example: goals --rows 1,5")]
    Goals(GoalsArgs),
    /// Print the options in effect, read back from an engine
    #[command(after_help = "Example: bench options drumlin --set memory_budget=1GiB")]
    Options {
        /// Engine name
        engine: String,
    },
    /// Run one job of a parent process
    #[command(hide = true)]
    Child {
        /// Job file
        input: PathBuf,
        /// Result file
        output: PathBuf,
    },
}

/// Arguments of the `deleted` family.
#[derive(Args, Debug)]
pub struct DeletedArgs {
    /// Rows to measure: queue-pop, queue-trim, counter, or all
    #[arg(value_delimiter = ',', default_value = "all")]
    pub rows: Vec<String>,
    /// Numbers of entries deleted or operands merged before the reads
    #[arg(long, value_delimiter = ',', value_name = "N,..", default_value = "1000,10000,100000,1000000")]
    #[arg(value_parser = numbers::count)]
    pub depths: Vec<u64>,
}

/// Arguments of the `micro` family.
#[derive(Args, Debug)]
pub struct MicroArgs {
    /// Benchmark names, separated by commas, or all [default: fillrandom, readrandom, readmissing, seekrandom and
    /// overwrite over 1 million entries]
    #[arg(value_delimiter = ',')]
    pub names: Vec<String>,
    /// Number of entries [default: 10 million; 1 million with --scale quick, or if no name is given]
    #[arg(long, value_name = "N", value_parser = numbers::count)]
    pub num: Option<u64>,
    /// Seconds of phases with a concurrent writer, unless --reads is given [default: 20, less for under a million
    /// entries]
    #[arg(long, value_name = "S", conflicts_with = "reads", value_parser = numbers::seconds)]
    pub duration: Option<f64>,
    /// Number of operations of one pass of a read phase; lookups and seeks have two counted passes [default: by
    /// benchmark]
    #[arg(long, value_name = "N", value_parser = numbers::count)]
    pub reads: Option<u64>,
    /// Number of entries read after a seek
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = numbers::items)]
    pub nexts: u32,
    /// Number of entries in a batch
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = numbers::items)]
    pub batch: u32,
    /// Key format
    #[arg(long, value_enum, default_value_t = Keys::Hashed)]
    pub keys: Keys,
    /// Write rate of the concurrent writer in bytes per second; 1e6 is a megabyte
    #[arg(long, value_name = "B/s", default_value_t = 2e6, value_parser = numbers::rate)]
    pub write_rate: f64,
    /// Zipf skew of the keys that reads and overwrites draw, such as 0.99 [default: uniform]
    #[arg(long, value_name = "T", value_parser = numbers::theta)]
    pub theta: Option<f64>,
}

/// Key formats of micro benchmarks.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keys {
    /// Spread over the whole key space
    Hashed,
    /// As in db_bench; favours interpolation search
    Dense,
}

/// Arguments of the `ycsb` family.
#[derive(Args, Debug)]
pub struct YcsbArgs {
    /// Workload letters a to f in the order to run, load, or all
    #[arg(long, default_value = "all")]
    pub workload: String,
    /// Number of rows loaded [default: 10 million; quick: 1 million]
    #[arg(long, value_name = "N", value_parser = numbers::count)]
    pub records: Option<u64>,
    /// Number of operations per workload [default: 5 million; quick: 1 million]
    #[arg(long, value_name = "N", value_parser = numbers::count)]
    pub ops: Option<u64>,
    /// Variant of the parameters: those of YCSB or of a paper
    #[arg(long, value_enum, default_value_t = Distribution::Ycsb)]
    pub dist: Distribution,
    /// Form of an update
    #[arg(long, value_enum, default_value_t = Update::Whole)]
    pub update: Update,
}

/// Arguments of the `dynamic` family.
#[derive(Args, Debug)]
pub struct DynamicArgs {
    /// Workload plan: I, II, III, letters A to J such as BCBC, gradient, versions, growth, growth-zipf, or a file with
    /// lines `preload N` and `phase J N`
    #[arg(long, default_value = "I")]
    pub plan: String,
    /// Where the data fits
    #[arg(long, value_enum, default_value_t = Fit::Cached)]
    pub fit: Fit,
}

/// Where the data of a dynamic workload fits.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// In the page cache; the block cache is small
    Cached,
    /// 60 % of it in memory; the rest is read from the device
    #[value(name = "60%")]
    SixtyPercent,
}

/// Arguments of the `growth` family.
#[derive(Args, Debug)]
pub struct GrowthArgs {
    /// Workload mix: read-heavy, balanced, write-heavy, range, or all
    #[arg(long, default_value = "all")]
    pub mix: String,
    /// Key distribution: uniform or zipf
    #[arg(long, default_value = "uniform")]
    pub dist: String,
}

/// Arguments of the `filters` family.
#[derive(Args, Debug)]
pub struct FiltersArgs {
    /// Workload type of the paper: I or II
    pub kind: String,
    /// Fraction of lookups that find nothing, for type II
    #[arg(long, default_value_t = 0.0)]
    pub empty: f64,
    /// Key distribution for type II: uniform or normal
    #[arg(long, default_value = "uniform")]
    pub dist: String,
    /// How the filter bits are divided over tables: values of the option `filter_mode`
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "uniform,mnemosyne,mnemosyne+",
        value_name = "MODE,.."
    )]
    pub modes: Vec<String>,
}

/// Arguments of the `pipeline` family.
#[derive(Args, Debug)]
pub struct PipelineArgs {
    /// Load: fur (fill unique random), rrwr (read random, write random), or workers (fur with and without pipelining,
    /// with several numbers of compaction slots)
    pub kind: String,
    /// Extra latency in microseconds of each 256 KiB request of flushes and compactions [default: 0; for workers 2000]
    #[arg(long, value_name = "US")]
    pub latency: Option<u64>,
    /// Numbers of compaction slots for the load workers
    #[arg(
        long = "slots",
        alias = "workers",
        value_delimiter = ',',
        default_value = "1,2,4,8",
        value_name = "N,..",
        value_parser = numbers::slots
    )]
    pub workers: Vec<u32>,
    /// Percentages of writes for rrwr
    #[arg(long, value_delimiter = ',', default_value = "90,70,50")]
    pub writes: Vec<u32>,
}

/// Arguments of the `values` family.
#[derive(Args, Debug)]
pub struct ValuesArgs {
    /// Skew of the updates (zipf theta)
    #[arg(long, default_value_t = 0.9, value_parser = numbers::theta)]
    pub theta: f64,
}

/// Arguments of the `trace` family.
#[derive(Args, Debug)]
pub struct TraceArgs {
    /// Trace format
    #[arg(value_enum)]
    pub kind: TraceKind,
    /// Trace file, plain or compressed with zstd
    pub file: PathBuf,
    /// Use one key per 4 KiB block that a request touches
    #[arg(long)]
    pub expand_4k: bool,
    /// File with the value sizes by object id, for twitter
    #[arg(long, value_name = "FILE")]
    pub sizes: Option<PathBuf>,
}

/// Formats of trace files.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceKind {
    /// Block requests: ts,op,lba,bytes
    Block,
    /// Requests with text keys: ts,op,key,size
    Git,
    /// Object ids as 32-bit words; the first access of an object is a put, later ones are gets
    Twitter,
}

/// Arguments of the `suite` family.
#[derive(Args, Debug)]
pub struct SuiteArgs {
    /// Suite to run
    #[arg(value_enum)]
    pub suite: SuiteName,
}

/// Suites of families.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum SuiteName {
    /// A short in-memory run of every family; tests the harness only
    Smoke,
    /// Every family at quick scale
    Quick,
    /// Every family of a paper at its default scale
    Papers,
    /// Workloads of the performance goals
    Goals,
    /// All workloads
    Release,
}

/// Arguments of the `paced` family.
#[derive(Args, Debug)]
pub struct PacedArgs {
    /// Workload plan: I, II, III, letters A to J such as BCBC, gradient, versions, growth, growth-zipf, or a
    /// file with phases
    #[arg(default_value = "I")]
    pub plan: String,
    /// Number of entries loaded, and of operations in a full phase
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = numbers::count)]
    pub entries: u64,
    /// Value size in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1000, value_parser = numbers::value_size)]
    pub value_bytes: usize,
    /// Memtable size in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 65_536, value_parser = numbers::count)]
    pub flush_bytes: u64,
    /// Policies to run; results are shown relative to the first
    #[arg(long, value_delimiter = ',', value_name = "POLICY,..", default_value = "arce,1-leveling:static")]
    pub policies: Vec<String>,
    /// Report reads by the number of extra runs they met, and the depth of the tree
    ///
    /// Extra runs of a get or range are the runs at its key beyond those that the policy intends. For each number of
    /// extra runs, prints the share of reads, mean us, blocks fetched and 99th percentile in us. For each level,
    /// prints the maximum number of runs at one key, the number the policy intends, and the limit at which extra runs
    /// are compacted within the level or compactions wait. JSON output contains both.
    #[arg(long)]
    pub depths: bool,
    /// Print the policy state at the end of each phase
    #[arg(long)]
    pub explain: bool,
}

/// Arguments of the `oracle` family.
#[derive(Args, Debug)]
pub struct OracleArgs {
    /// Workload plan: I, II, III, letters A to J such as BCBC, gradient, versions, growth, growth-zipf, or a
    /// file with phases
    #[arg(default_value = "I")]
    pub plan: String,
    /// Number of entries loaded, and of operations in a full phase
    #[arg(long, value_name = "N", default_value_t = 22_000, value_parser = numbers::count)]
    pub entries: u64,
    /// Value size in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1000, value_parser = numbers::value_size)]
    pub value_bytes: usize,
    /// Memtable size in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 65_536, value_parser = numbers::count)]
    pub flush_bytes: u64,
    /// The adaptive policy
    #[arg(long, value_name = "POLICY", default_value = "arce")]
    pub adaptive: String,
}

/// Arguments of the `allotment` family. It runs each combination of the lists.
#[derive(Args, Debug)]
pub struct AllotmentArgs {
    /// Values of the option `filter_mode`
    #[arg(
        long,
        value_name = "MODE,..",
        value_delimiter = ',',
        default_value = "uniform,monkey,monkey-dynamic,mnemosyne,mnemosyne+"
    )]
    pub modes: Vec<String>,
    /// Fractions of lookups that find nothing
    #[arg(long, value_name = "SHARE,..", value_delimiter = ',', default_value = "1,0.5,0")]
    pub empty: Vec<f64>,
    /// Distributions of the keys: uniform, normal (hot keys are adjacent), zipf (hot keys are scattered, theta 0.99)
    #[arg(long, value_name = "DIST,..", value_delimiter = ',', default_value = "uniform,normal,zipf")]
    pub dist: Vec<String>,
    /// Number of entries loaded; twelve times as many operations follow
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = numbers::count)]
    pub entries: u64,
    /// Numbers of reading threads
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1")]
    pub readers: Vec<u64>,
    /// Event during the run: nothing, shift (the looked-up keys move) or restart (a restart and a switch of the
    /// compaction policy)
    #[arg(long, value_name = "EVENT", default_value = "nothing", value_parser = ["nothing", "shift", "restart"])]
    pub event: String,
}

/// Arguments of the `gate` family.
#[derive(Args, Debug)]
pub struct GateArgs {
    /// Overwrite the file with the measured values; figures outside their tolerance need --reason
    #[arg(long)]
    pub update: bool,
    /// Reason to record for figures that --update changes; use --only to record different reasons
    #[arg(long, value_name = "TEXT", requires = "update")]
    pub reason: Option<String>,
    /// Run only cases whose name contains NAME; it is an error if there is none
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
    /// Measure counts only, without instructions
    #[arg(long)]
    pub counts: bool,
    /// Test the gate itself: each case does PERCENT more work than it reports, and the gate must notice it in every
    /// case
    #[arg(long, value_name = "PERCENT", conflicts_with = "update")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=100))]
    pub regress: Option<u64>,
    /// File with the expected values
    #[arg(long, value_name = "FILE", default_value = "ci/gate.toml")]
    pub file: PathBuf,
    /// Run one case without output, to be observed by another program
    #[arg(long, hide = true, value_name = "NAME")]
    pub case: Option<String>,
    /// Number of operations of that case
    #[arg(long, hide = true, value_name = "N", default_value_t = 0)]
    pub operations: u64,
}

impl Common {
    /// Returns whether the run writes a file of results.
    pub(crate) fn writes(&self) -> bool {
        [&self.json, &self.html, &self.tsv].iter().any(|path| path.is_some())
    }
}

/// Arguments of the `goals` family.
#[derive(Args, Debug)]
pub struct GoalsArgs {
    /// Numbers of the goals to measure [default: all]
    #[arg(long, value_delimiter = ',', value_name = "N,..")]
    pub rows: Vec<u32>,
    /// Measure nothing: judge the goals by the reports in this folder, named as in docs/results/comparison
    #[arg(long, value_name = "FOLDER", conflicts_with = "rows")]
    pub reports: Option<PathBuf>,
}

/// Arguments of the `report` family.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// Report files in JSON format
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Also show an older report; no ratios against it are computed
    #[arg(long, value_name = "FILE")]
    pub base: Option<PathBuf>,
}

/// Scale of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Scale {
    /// Reduced scale, about a minute.
    Quick,
    /// Fraction of the operation counts of the paper or of the suite.
    Factor(f64),
}

fn parse_scale(text: &str) -> Result<Scale, String> {
    if text == "quick" {
        return Ok(Scale::Quick);
    }
    let factor = match text.split_once('/') {
        Some((above, below)) => above.parse::<f64>().ok().zip(below.parse::<f64>().ok()).map(|(a, b)| a / b),
        None => text.parse().ok(),
    };
    let factor = factor.filter(|factor: &f64| factor.is_finite() && *factor > 0.0);
    factor
        .map(Scale::Factor)
        .ok_or_else(|| "a scale is quick, a number or a fraction such as 1/64".to_owned())
}

/// Parses `OPTION=VALUE`.
pub fn parse_setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected OPTION=VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales() {
        assert_eq!(parse_scale("1/64"), Ok(Scale::Factor(1.0 / 64.0)));
        assert_eq!(parse_scale("quick"), Ok(Scale::Quick));
        assert!(parse_scale("0").is_err() && parse_scale("1/0").is_err() && parse_scale("x").is_err());
    }
}
