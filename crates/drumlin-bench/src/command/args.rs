//! The command line of benchmarks.

use crate::engine::{Compression, Durability, Io};
use crate::workload::ycsb::{Distribution, Update};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Measure: workloads, comparisons, reports, the regression gate
///
/// Results go to stdout as a table, progress and warnings to stderr. Every answer of the store is checked; a wrong one
/// ends the run without numbers. Exit status: 0 done, 1 wrong answer or error, 2 usage, 3 gate failed, 4 too noisy.
///
/// Not offered, because the engine has nothing to measure there yet: the choice of filter allocation, separated values
/// and their collection, the counts of necessary and unnecessary blocks.
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// What to run
    #[command(subcommand)]
    pub family: Option<Family>,

    /// Settings of every family
    #[command(flatten)]
    pub common: Common,

    /// db_bench's way of naming micro benchmarks
    #[command(flatten)]
    pub as_db_bench: AsDbBench,
}

/// Names of db_bench, for `--benchmarks=fillrandom,readrandom --num=1000000`.
#[derive(Args, Clone, Debug, Default)]
pub struct AsDbBench {
    /// Micro benchmarks, separated by commas, when no family is named
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    pub benchmarks: Vec<String>,

    /// Their entries
    #[arg(long = "num", value_name = "N")]
    pub num: Option<u64>,

    /// Their reads
    #[arg(long = "reads", value_name = "N")]
    pub reads: Option<u64>,
}

/// Settings of every family.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// Directory in which stores are made, and removed again [default: one in the directory for temporary files]
    #[arg(long, global = true, value_name = "DIR")]
    pub db: Option<PathBuf>,

    /// Leave the stores behind
    #[arg(long, global = true)]
    pub keep: bool,

    /// Seed of the first round; round r has this plus r - 1
    #[arg(long, global = true, default_value_t = 1)]
    pub seed: u64,

    /// Rounds; comparisons make 5, 3 or 2 by the length of the phases [default: 1, or by length]
    #[arg(long, global = true, value_name = "N")]
    pub rounds: Option<u64>,

    /// Size of the run: quick, or a factor such as 1/64
    #[arg(long, global = true, value_name = "F", value_parser = parse_scale)]
    pub scale: Option<Scale>,

    /// Threads that call the engine
    #[arg(long, global = true, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub threads: u32,

    /// Calls started per second, ready or not; latency counts from the intended start
    #[arg(long, global = true, value_name = "OPS")]
    pub rate: Option<f64>,

    /// Bytes of a key, where the family leaves it open
    #[arg(long, global = true, alias = "key_size", value_name = "B")]
    pub key_size: Option<usize>,

    /// Bytes of a value, where the family leaves it open
    #[arg(long, global = true, alias = "value_size", value_name = "B")]
    pub value_size: Option<usize>,

    /// Share to which values can be compressed
    #[arg(long, global = true, value_name = "R", default_value_t = 0.5)]
    pub value_ratio: f64,

    /// Block cache, memtables, filters and indexes together, as 1GiB
    #[arg(long, global = true, value_name = "BYTES", value_parser = parse_bytes)]
    pub memory: Option<u64>,

    /// Size of a memtable
    #[arg(long, global = true, value_name = "BYTES", value_parser = parse_bytes)]
    pub memtable: Option<u64>,

    /// Size of the files that merges write
    #[arg(long, global = true, value_name = "BYTES", value_parser = parse_bytes)]
    pub file_size: Option<u64>,

    /// Bits per key of filters; filters compares several, separated by commas
    #[arg(long, global = true, value_name = "N,..", value_delimiter = ',')]
    pub bits: Vec<f64>,

    /// Compaction policies, each run as an engine of its own; a name may have arguments after a colon
    #[arg(long, global = true, value_name = "NAME")]
    pub policy: Vec<String>,

    /// Engines, each perhaps with a policy after a colon [default: all that this program has]
    #[arg(long, global = true, value_name = "NAME,..", value_delimiter = ',')]
    pub engines: Vec<String>,

    /// Compression of blocks
    #[arg(long, global = true, value_enum, default_value_t = Compression::None)]
    pub compression: Compression,

    /// What writes survive
    #[arg(long, global = true, value_enum)]
    pub durability: Option<Durability>,

    /// Whether tables are read through the page cache or past it [default: buffered]
    ///
    /// Phases that are about one of the two, as readuncached and readpagecache, keep to theirs. RocksDB's tuned options
    /// write past the page cache too; Drumlin writes through it; fjall has no direct I/O and is left out.
    #[arg(long, global = true, value_enum)]
    pub io: Option<Io>,

    /// Merges at the same time, besides one flush
    #[arg(long, global = true, value_name = "N", default_value_t = 1)]
    pub merges: u32,

    /// Set an option of drumlin by its name; may be given often
    #[arg(long = "set", global = true, value_name = "OPTION=VALUE", value_parser = parse_setting)]
    pub set: Vec<(String, String)>,

    /// Keep the files in memory: proves that the harness works, measures nothing
    #[arg(long, global = true)]
    pub in_memory: bool,

    /// Run the first engine a second time, as a control of the noise
    #[arg(long, global = true)]
    pub aa: bool,

    /// Calibrate before each run and repeat runs that met noise; comparisons always do
    #[arg(long, global = true)]
    pub watch_noise: bool,

    /// Neither calibrate nor repeat, even in a comparison
    #[arg(long, global = true, conflicts_with = "watch_noise")]
    pub ignore_noise: bool,

    /// Write the report as JSON
    #[arg(long, global = true, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write the report as a page
    #[arg(long, global = true, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Write a row per phase, with the columns of RocksDB's benchmark.sh
    #[arg(long, global = true, value_name = "FILE")]
    pub tsv: Option<PathBuf>,

    /// No progress line
    #[arg(long, global = true)]
    pub quiet: bool,
}

/// What to run.
#[derive(Subcommand, Debug)]
pub enum Family {
    /// Single operations by the names of db_bench
    Micro(MicroArgs),
    /// The six workloads of YCSB
    Ycsb(YcsbArgs),
    /// Phases whose mix of ranges, updates and point reads changes without a hint (ArceKV)
    Dynamic(DynamicArgs),
    /// A store that grows under four mixes (Vertiorizon), with the policies that there are; the paper has --io direct
    Growth(GrowthArgs),
    /// Lookups against filter memory (Mnemosyne), with filters of one size everywhere; the paper has --io direct
    Filters(FiltersArgs),
    /// Loads that keep merges busy (Downforce), with and without the pipeline
    Pipeline(PipelineArgs),
    /// Large values under updates (DumpKV); values stay in tables
    Values(ValuesArgs),
    /// Replay recorded requests
    Trace(TraceArgs),
    /// The dynamic phases through the engine on the clock of a disk model; figures repeat exactly
    Paced(PacedArgs),
    /// Several families at once
    Suite(SuiteArgs),
    /// Measure the machine for two seconds
    Calibrate,
    /// Figures that repeat exactly, against ci/gate.toml
    Gate(GateArgs),
    /// Show reports that were written before
    Report(ReportArgs),
    /// The rows that drumlin is to meet against RocksDB; only where RocksDB is compiled in
    Goals(GoalsArgs),
    /// The options of an engine in effect, read back from it
    Options {
        /// The engine
        engine: String,
    },
    /// Run one job of a parent process
    #[command(hide = true)]
    Child {
        /// The job
        input: PathBuf,
        /// Where its result goes
        output: PathBuf,
    },
}

/// Single operations.
#[derive(Args, Debug)]
pub struct MicroArgs {
    /// Their names, or all
    #[arg(value_delimiter = ',', required = true)]
    pub names: Vec<String>,
    /// Entries [default: 10 million; quick: 1 million]
    #[arg(long, value_name = "N")]
    pub num: Option<u64>,
    /// Operations of a read phase
    #[arg(long, value_name = "N")]
    pub reads: Option<u64>,
    /// Entries after a seek
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub nexts: u32,
    /// Entries of a batch
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub batch: u32,
    /// The form of keys
    #[arg(long, value_enum, default_value_t = Keys::Hashed)]
    pub keys: Keys,
    /// Bytes per second of the writer beside reads
    #[arg(long, value_name = "B/s", default_value_t = 2e6)]
    pub write_rate: f64,
}

/// The form of keys of micro benchmarks.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keys {
    /// Spread over the whole key space
    Hashed,
    /// As db_bench; flatters interpolation
    Dense,
}

/// YCSB.
#[derive(Args, Debug)]
pub struct YcsbArgs {
    /// Letters a to f in the order to run, load, or all
    #[arg(long, default_value = "all")]
    pub workload: String,
    /// Rows loaded [default: 10 million; quick: 1 million]
    #[arg(long, value_name = "N")]
    pub records: Option<u64>,
    /// Operations of a workload [default: 5 million; quick: 1 million]
    #[arg(long, value_name = "N")]
    pub ops: Option<u64>,
    /// Whose parameters
    #[arg(long, value_enum, default_value_t = Distribution::Ycsb)]
    pub dist: Distribution,
    /// How an update is made
    #[arg(long, value_enum, default_value_t = Update::Whole)]
    pub update: Update,
}

/// Dynamic workloads.
#[derive(Args, Debug)]
pub struct DynamicArgs {
    /// I, II, III, gradient, versions, or a file of lines `preload N` and `phase J N`
    #[arg(long, default_value = "I")]
    pub plan: String,
    /// What the data fits into
    #[arg(long, value_enum, default_value_t = Fit::Cached)]
    pub fit: Fit,
}

/// What the data of a dynamic workload fits into.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// The page cache; the block cache is small
    Cached,
    /// Three fifths of it into memory; the rest is read from the device
    #[value(name = "60%")]
    SixtyPercent,
}

/// Growth.
#[derive(Args, Debug)]
pub struct GrowthArgs {
    /// read-heavy, balanced, write-heavy, range, or all
    #[arg(long, default_value = "all")]
    pub mix: String,
    /// uniform or zipf
    #[arg(long, default_value = "uniform")]
    pub dist: String,
}

/// Filters.
#[derive(Args, Debug)]
pub struct FiltersArgs {
    /// I or II
    pub kind: String,
    /// Share of gets of II that find nothing
    #[arg(long, default_value_t = 0.0)]
    pub empty: f64,
    /// uniform or normal, for II
    #[arg(long, default_value = "uniform")]
    pub dist: String,
}

/// Pipeline.
#[derive(Args, Debug)]
pub struct PipelineArgs {
    /// fur (fill unique random), rrwr (read random, write random), or workers: fur with and without the pipeline on
    /// several numbers of workers
    pub kind: String,
    /// Microseconds that each request of 256 KiB of flushes and merges takes more [default of workers: 2000]
    #[arg(long, value_name = "US")]
    pub latency: Option<u64>,
    /// Numbers of workers of that comparison
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8", value_name = "N,..")]
    pub workers: Vec<u32>,
    /// Percent of writes of rrwr
    #[arg(long, value_delimiter = ',', default_value = "90,70,50")]
    pub writes: Vec<u32>,
}

/// Values.
#[derive(Args, Debug)]
pub struct ValuesArgs {
    /// Skew of updates
    #[arg(long, default_value_t = 0.9)]
    pub theta: f64,
}

/// Traces.
#[derive(Args, Debug)]
pub struct TraceArgs {
    /// What the file holds
    #[arg(value_enum)]
    pub kind: TraceKind,
    /// The file, plain or compressed with zstd
    pub file: PathBuf,
    /// Make every block of 4 KiB that a request touches one key
    #[arg(long)]
    pub expand_4k: bool,
    /// Sizes of values by id, for twitter
    #[arg(long, value_name = "FILE")]
    pub sizes: Option<PathBuf>,
}

/// What a trace file holds.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceKind {
    /// Block requests: ts,op,lba,bytes
    Block,
    /// Requests with text keys: ts,op,key,size
    Git,
    /// Object ids as 32-bit words; the first touch is a put
    Twitter,
}

/// Suites.
#[derive(Args, Debug)]
pub struct SuiteArgs {
    /// Which
    #[arg(value_enum)]
    pub suite: SuiteName,
}

/// A suite.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum SuiteName {
    /// Every family for a moment, in memory: proves that the harness works
    Smoke,
    /// Every family at quick scale
    Quick,
    /// Every family of a paper at default scale
    Papers,
    /// What the goals need
    Goals,
    /// All of it
    Release,
}

/// The dynamic phases on the clock of a disk model.
#[derive(Args, Debug)]
pub struct PacedArgs {
    /// I, II, III, gradient, versions, or a file with phases
    #[arg(default_value = "I")]
    pub plan: String,
    /// Entries loaded, and operations of a whole phase
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub entries: u64,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value_t = 1000)]
    pub value_bytes: usize,
    /// Bytes of a memtable
    #[arg(long, value_name = "BYTES", default_value_t = 65_536)]
    pub flush_bytes: u64,
    /// Policies; the first is what the others are compared with
    #[arg(long, value_delimiter = ',', value_name = "POLICY,..", default_value = "arce,1-leveling:static")]
    pub policies: Vec<String>,
    /// Show the reads by the extra runs that they met, and how deep the tree was
    ///
    /// For gets and ranges by the runs at their key beyond those that the policy means to be there: their share, mean us,
    /// blocks fetched, and us of all but one in a hundred. For each level the most runs at one key, those meant to be there,
    /// and those from which on merges fold or wait. JSON has both then.
    #[arg(long)]
    pub depths: bool,
    /// Show what each policy goes by at the end of each phase
    #[arg(long)]
    pub explain: bool,
}

/// The gate.
#[derive(Args, Debug)]
pub struct GateArgs {
    /// Rewrite the file
    #[arg(long)]
    pub update: bool,
    /// Only cases whose name contains this
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
    /// Counts alone, without instructions
    #[arg(long)]
    pub counts: bool,
    /// The file
    #[arg(long, value_name = "FILE", default_value = "ci/gate.toml")]
    pub file: PathBuf,
    /// Run one case and print nothing, to be watched from outside
    #[arg(long, hide = true, value_name = "NAME")]
    pub case: Option<String>,
    /// Its operations
    #[arg(long, hide = true, value_name = "N", default_value_t = 0)]
    pub operations: u64,
}

/// Goals.
#[derive(Args, Debug)]
pub struct GoalsArgs {
    /// Only these rows
    #[arg(long, value_delimiter = ',', value_name = "N,..")]
    pub rows: Vec<u32>,
}

/// Reports.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// Reports as JSON
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Show beside it what an older report says; no ratio is made of it
    #[arg(long, value_name = "FILE")]
    pub base: Option<PathBuf>,
}

/// Size of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Scale {
    /// About a minute.
    Quick,
    /// So much of the paper's, or of the suite's, counts.
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

/// A number of bytes with a unit of powers of 1024.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().trim_end_matches('b').trim_end_matches('i') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err("a size is a number with KiB, MiB, GiB, TiB or nothing".to_owned()),
    };
    let number: f64 = digits.parse().map_err(|_| "the size is not a number".to_owned())?;
    if !(number >= 0.0 && number.is_finite()) {
        return Err("the size is not a number".to_owned());
    }
    Ok((number * (1u64 << shift) as f64) as u64)
}

fn parse_setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("not OPTION=VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_and_sizes() {
        assert_eq!(parse_scale("1/64"), Ok(Scale::Factor(1.0 / 64.0)));
        assert_eq!(parse_scale("quick"), Ok(Scale::Quick));
        assert!(parse_scale("0").is_err() && parse_scale("1/0").is_err() && parse_scale("x").is_err());
        assert_eq!(parse_bytes("64MiB"), Ok(64 << 20));
        assert_eq!(parse_bytes("1.5g"), Ok(3 << 29));
        assert_eq!(parse_bytes("12"), Ok(12));
        assert!(parse_bytes("12q").is_err() && parse_bytes("MiB").is_err() && parse_bytes("").is_err());
    }
}
