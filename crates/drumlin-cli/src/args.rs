//! The command line.

use crate::escape::{BadEscape, Bytes, unescape};
use crate::store::{Access, Bounds, OpenOptions};
use clap::builder::{OsStringValueParser, TypedValueParser, ValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// Look into and look after Drumlin stores
///
/// Keys and values are text with four escapes, both as arguments and as output: \t, \n, \\ and \xHH.
/// Data goes to stdout, words and progress to stderr. The exit status is 0 for success, 1 for a finding
/// (a key that is not there, damage) or a failure, 2 for bad usage.
#[derive(Parser, Debug)]
#[command(name = "drumlin", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// The keyspace to work on; tree and explain show all of them unless one is named [default: default]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) keyspace: Option<String>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The store to open.
#[derive(Args, Clone, Debug)]
pub(crate) struct StoreArgs {
    /// Directory of the store
    #[arg(value_name = "DB")]
    pub(crate) path: PathBuf,

    /// Set an option of the store or the keyspace for good (drumlin options lists them); may be given often
    #[arg(long = "set", value_name = "OPTION=VALUE", value_parser = parse_setting)]
    pub(crate) settings: Vec<(String, String)>,
}

impl StoreArgs {
    /// How to open it for `access`.
    pub(crate) fn options(&self, keyspace: Option<&str>, access: Access) -> OpenOptions {
        OpenOptions {
            path: self.path.clone(),
            keyspace: keyspace.unwrap_or("default").to_owned(),
            settings: self.settings.clone(),
            access,
        }
    }
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Write the entries of a file and flush them, making the store if need be
    Load(LoadArgs),
    /// Write one entry, making the store if need be
    Put(PutArgs),
    /// Print the value of a key; exit status 1 if it is not there
    Get(GetArgs),
    /// Delete a key, whether it is there or not
    Delete(DeleteArgs),
    /// Print entries in key order
    Scan(ScanArgs),
    /// Print the number of keys
    Count(CountArgs),
    /// Apply a request trace, making the store if need be
    Replay(ReplayArgs),
    /// Read every byte and check it; exit status 1 on damage
    Verify(ReportArgs),
    /// Save what can be saved into a new directory; exit status 1 if anything was lost
    Repair(RepairArgs),
    /// Draw the levels, runs and files
    Tree(TreeArgs),
    /// Print all metrics
    Stats(ReportArgs),
    /// Merge everything, and wait until background work has come to rest
    Compact(StoreArgs),
    /// Copy the store, as it is now, to a new directory
    Checkpoint(CheckpointArgs),
    /// Print the recent decisions of the policies, and their reasons
    Explain(ExplainArgs),
    /// Show or switch the compaction policy of a keyspace
    Policy(PolicyArgs),
    /// List the keyspaces
    Keyspaces(ReportArgs),
    /// Print the table of options
    Options(OptionsArgs),
    /// Measure: workloads, comparisons, reports, the regression gate
    Bench(Box<drumlin_bench::command::args::BenchArgs>),
    /// Simulate compaction policies under changing mixes of operations, in virtual time and without a store
    Sim(SimArgs),
}

/// What is simulated. The costs are those of the ArceKV paper.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    pub(crate) kind: Option<SimKind>,

    /// I, II or III of the paper, gradient, or the letters A to J of their mixes in a row
    #[arg(default_value = "I")]
    pub(crate) plan: String,

    /// Policies to compare, with their arguments; may be given often [default: arce and the presets]
    #[arg(long = "policy", value_name = "NAME")]
    pub(crate) policies: Vec<String>,

    /// Client threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) clients: u32,

    /// Merges at the same time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) slots: u32,

    /// Bytes of a flush
    #[arg(long, default_value_t = 128 << 10, value_parser = clap::value_parser!(u64).range(4096..=1 << 30))]
    pub(crate) flush_bytes: u64,

    /// Entries of 1 KiB in the store at first, and operations of a phase
    #[arg(long, default_value_t = 2_560_000, value_parser = clap::value_parser!(u64).range(1000..=100_000_000))]
    pub(crate) entries: u64,

    /// Share by which a running merge slows operations down
    #[arg(long, default_value_t = 0.1)]
    pub(crate) interference: f64,

    /// Install merges whole, not piece by piece
    #[arg(long)]
    pub(crate) whole: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What else is simulated.
#[derive(Subcommand, Debug)]
pub(crate) enum SimKind {
    /// A load that keeps merge slots busy, with and without the pipeline (Downforce)
    ///
    /// Counterparts of the paper's figures 3, 6, 7, 8, 9 and table 3. Sizes and rates are the paper's; a part of the load
    /// shows the same shape sooner.
    Pipeline(PipelineArgs),
}

#[derive(Args, Debug)]
pub(crate) struct PipelineArgs {
    /// Policies to compare, with their arguments; may be given often [default: 1-leveling:5, tiering:4,
    /// leveling:5 and universal]
    #[arg(long = "policy", value_name = "NAME")]
    pub(crate) policies: Vec<String>,

    /// Numbers of merge slots
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,32", value_name = "N,..",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) workers: Vec<u32>,

    /// The number of slots whose use is shown in detail; it is simulated if it is not among those named
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) detail: u32,

    /// MiB that are written; 51200 are the paper's and take minutes
    #[arg(long, default_value_t = 51200, value_name = "MIB",
          value_parser = clap::value_parser!(u64).range(256..=1_000_000))]
    pub(crate) load: u64,

    /// MiB per second that the program writes at most; above 800 flushes are as fast
    #[arg(long, default_value_t = 800, value_name = "MIB",
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) rate: u64,

    /// MiB of all keys, which are overwritten evenly [default: every key is new]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) universe: Option<u64>,

    /// KiB of a memtable and of a file [default: 64 MiB, as the paper has]
    #[arg(long, default_value_t = 65536, value_name = "KIB",
          value_parser = clap::value_parser!(u64).range(64..=4_194_304))]
    pub(crate) memtable: u64,

    /// Lookups per second that the scheduler is told of
    #[arg(long, default_value_t = 0.0)]
    pub(crate) gets: f64,

    /// Run each load on the engine too, in virtual time
    ///
    /// Sizes and rates of both are divided by N, files are a quarter of a memtable, pieces as long as one, and writers are
    /// slowed by the policy's pace. Both write N times less, in as much time; MiB/s are those of full size again. A second
    /// row has the engine's throughput, bytes written per byte that flushes wrote, depth, most runs of level 0, and how far
    /// the bytes are from what was simulated. What is in the store at the end is read and checked. The engine takes no part
    /// in what is set for the simulator alone.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(16..=1024),
          conflicts_with_all = ["universe", "gets", "cap", "fold_every", "back_pressure", "piece", "flush_alike"])]
    pub(crate) engine: Option<u64>,

    #[command(flatten)]
    pub(crate) scheduler: SchedulerArgs,

    /// Write a page with the figures
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What the scheduler goes by, for sweeps.
#[derive(Args, Debug)]
pub(crate) struct SchedulerArgs {
    /// Modes to simulate
    #[arg(long, value_delimiter = ',', default_value = "unsplit,split,pipelined", value_name = "MODE,..",
          value_parser = ["unsplit", "split", "pipelined"])]
    pub(crate) modes: Vec<String>,

    /// Extra runs that a level may have [default: half the slots, 8 to 16]
    #[arg(long, value_name = "X", value_parser = clap::value_parser!(u32).range(2..=64))]
    pub(crate) cap: Option<u32>,

    /// Fold a level with every so many batches [default: as costs suggest]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) fold_every: Option<u32>,

    /// Fill of its target from which on a level pair no longer goes first; a large one is plain top-down
    #[arg(long, default_value_t = 3.0, value_name = "FILL")]
    pub(crate) back_pressure: f64,

    /// Most MiB of a piece
    #[arg(long, default_value_t = 64, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub(crate) piece: u64,

    /// Flushes share the device with merges in place of going first
    #[arg(long)]
    pub(crate) flush_alike: bool,
}

#[derive(Args, Debug)]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The file to read, or - for stdin
    pub(crate) file: String,

    /// How entries are written in it
    #[arg(long, value_enum)]
    pub(crate) format: LoadFormat,

    /// What each write survives
    #[arg(long, value_enum, default_value_t = Durability::Buffered)]
    pub(crate) durability: Durability,

    /// Switch the keyspace to this compaction policy first
    #[arg(long, value_name = "NAME")]
    pub(crate) policy: Option<String>,

    /// Write entry by entry, and print each key once its write has reached the durability asked for
    #[arg(long)]
    pub(crate) ack: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PutArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The key
    #[arg(value_parser = bytes_parser())]
    pub(crate) key: Bytes,

    /// The value; without it, all of stdin, as it is
    #[arg(value_parser = bytes_parser(), allow_negative_numbers = true)]
    pub(crate) value: Option<Bytes>,

    /// What the write survives
    #[arg(long, value_enum, default_value_t = Durability::Sync)]
    pub(crate) durability: Durability,
}

#[derive(Args, Debug)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The key
    #[arg(value_parser = bytes_parser())]
    pub(crate) key: Bytes,

    /// Print the value's bytes alone, without escapes and line end
    #[arg(long)]
    pub(crate) raw: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The key
    #[arg(value_parser = bytes_parser())]
    pub(crate) key: Bytes,

    /// What the deletion survives
    #[arg(long, value_enum, default_value_t = Durability::Sync)]
    pub(crate) durability: Durability,
}

/// Which keys.
#[derive(Args, Debug, Default)]
pub(crate) struct RangeArgs {
    /// Only keys that start with this
    #[arg(long, value_name = "P", value_parser = bytes_parser())]
    pub(crate) prefix: Option<Bytes>,

    /// Only keys from this one on
    #[arg(long, value_name = "A", value_parser = bytes_parser())]
    pub(crate) from: Option<Bytes>,

    /// Only keys below this one
    #[arg(long, value_name = "B", value_parser = bytes_parser())]
    pub(crate) to: Option<Bytes>,
}

impl RangeArgs {
    /// The keys that all three allow.
    pub(crate) fn bounds(&self) -> Bounds {
        let bytes = |given: &'_ Option<Bytes>| given.as_ref().map(|b| b.0.clone());
        Bounds::new(bytes(&self.from).as_deref(), bytes(&self.to).as_deref(), bytes(&self.prefix).as_deref())
    }
}

#[derive(Args, Debug)]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    #[command(flatten)]
    pub(crate) range: RangeArgs,

    /// From the last key to the first
    #[arg(long)]
    pub(crate) reverse: bool,

    /// At most this many entries
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,

    /// How to print entries
    #[arg(long, value_enum, default_value_t = TextFormat::Tsv)]
    pub(crate) format: TextFormat,

    /// Print keys without values
    #[arg(long)]
    pub(crate) keys_only: bool,
}

#[derive(Args, Debug)]
pub(crate) struct CountArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    #[command(flatten)]
    pub(crate) range: RangeArgs,
}

/// A trace is a CSV file, plain or compressed with zstd, with the header ts,op,key,size or ts,op,lba,bytes;
/// op is G (get), P (put) or D (delete).
///
/// The key of a block trace is its lba as 16 hex digits. Without --values, a put writes bytes that are a
/// pure function of its key, of how many puts came before it, and of its size: with splitmix64 seeded by
/// FNV-1a-64(key) xor that number, the outputs as 8 bytes little-endian each, cut to the size.
#[derive(Args, Debug)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The trace, or - for stdin
    pub(crate) trace: String,

    /// The real values, in the order of the puts, as git cat-file --batch prints them; may be compressed
    #[arg(long, value_name = "FILE")]
    pub(crate) values: Option<String>,

    /// Make every 4 KiB block that a request touches one key: the block number as 16 hex digits
    #[arg(long)]
    pub(crate) expand_4k: bool,

    /// What each write survives
    #[arg(long, value_enum, default_value_t = Durability::Buffered)]
    pub(crate) durability: Durability,

    /// Switch the keyspace to this compaction policy first
    #[arg(long, value_name = "NAME")]
    pub(crate) policy: Option<String>,

    /// Switch to the next of leveling, 1-leveling, tiering, lazy-leveling and universal every N operations
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) switch_every: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct RepairArgs {
    /// Directory of the store; it is left as it is
    #[arg(value_name = "DB")]
    pub(crate) path: PathBuf,

    /// Directory to make
    #[arg(value_name = "NEWDIR")]
    pub(crate) new_path: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// One line for each run: where in the key space its bytes lie, files, bytes, sequence numbers, tag.
///
/// The key space runs from left to right, a stretch of keys as wide as what is stored there; the height of
/// a mark is the bytes that the run has in its column, against the fullest column of the tree. 2n says that
/// two files answer for fewer keys than their tables hold, 1b that an unfinished merge is busy with one.
#[derive(Args, Debug)]
pub(crate) struct TreeArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// List every file under its run
    #[arg(long)]
    pub(crate) files: bool,

    /// Draw with ASCII characters alone
    #[arg(long)]
    pub(crate) ascii: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct CheckpointArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// Directory to make
    #[arg(value_name = "NEWDIR")]
    pub(crate) new_path: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// Only the last N decisions
    #[arg(long, value_name = "N")]
    pub(crate) last: Option<usize>,

    /// Put every logged question to its policy again; exit status 1 if an answer differs
    #[arg(long, conflicts_with = "last")]
    pub(crate) replay: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PolicyArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The policy to switch to
    pub(crate) name: Option<String>,

    /// Keep what the policy has found, and merge by that
    #[arg(long, conflicts_with = "thaw")]
    pub(crate) freeze: bool,

    /// Let the policy tune itself again
    #[arg(long)]
    pub(crate) thaw: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct OptionsArgs {
    /// Print the page of the documentation
    #[arg(long)]
    pub(crate) markdown: bool,

    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    pub(crate) json: bool,
}

/// What a write survives.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Durability {
    /// Nothing until it is flushed
    None,
    /// The end of the process
    Buffered,
    /// Power loss
    Sync,
}

/// Formats of entries to load.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LoadFormat {
    /// Lines of key, tab, value, with escapes
    Tsv,
    /// RFC 4180 records of key and value; a first record key,value is a header
    Csv,
    /// Lines of {"key": ..., "value": ...}
    Jsonl,
    /// Debian package indexes: key Package/Version/Architecture, value the stanza
    Deb822,
}

/// Formats of entries to print.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TextFormat {
    /// Lines of key, tab, value, with escapes
    Tsv,
    /// Lines of {"key": ..., "value": ...}; key_hex and value_hex for bytes that are not UTF-8
    Jsonl,
}

fn bytes_parser() -> ValueParser {
    let parse = |text: OsString| -> Result<Bytes, BadEscape> { unescape(text.as_encoded_bytes()).map(Bytes) };
    ValueParser::new(OsStringValueParser::new().try_map(parse))
}

fn parse_setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("not OPTION=VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn keys_and_values_are_unescaped() {
        let cli = Cli::try_parse_from(["drumlin", "put", "db", "a\\tb", "-5"]).expect("good usage");
        let Command::Put(args) = cli.command else { panic!("not a put: {cli:?}") };
        assert_eq!((args.key.0, args.value), (b"a\tb".to_vec(), Some(Bytes(b"-5".to_vec()))));
    }

    #[test]
    fn the_keyspace_may_stand_anywhere() {
        for line in [
            ["drumlin", "--keyspace", "users", "count", "db"],
            ["drumlin", "count", "db", "--keyspace", "users"],
        ] {
            let cli = Cli::try_parse_from(line).expect("good usage");
            assert_eq!(cli.keyspace.as_deref(), Some("users"));
        }
    }

    #[test]
    fn bad_usage_is_refused_with_status_2() {
        for line in [
            &["drumlin"][..],
            &["drumlin", "get", "db"],
            &["drumlin", "get", "db", "\\q"],
            &["drumlin", "load", "db", "f", "--format", "xml"],
            &["drumlin", "load", "db", "f"],
            &["drumlin", "stats", "db", "--set", "x"],
            &["drumlin", "replay", "db", "t", "--switch-every", "0"],
        ] {
            let error = Cli::try_parse_from(line).expect_err("bad usage");
            assert_eq!(error.exit_code(), 2, "{line:?}");
        }
    }
}
