//! Command-line arguments and their help texts.

mod sim;

pub(crate) use sim::{GrowthArgs, PipelineArgs, SimArgs, SimKind, ValuesArgs};

use crate::escape::{BadEscape, Bytes, unescape};
use crate::input::columns::Named;
use crate::store::{Access, Bounds, Durability, OpenOptions};
use clap::builder::{OsStringValueParser, TypedValueParser, ValueParser};
use clap::{Arg, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use drumlin_bench::command::args::parse_setting;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Inspect and maintain Drumlin key-value stores
///
/// Keys and values are text with four escapes, both as arguments and as output: \t, \n, \\ and \xHH.
///
/// Data goes to stdout. Messages and progress go to stderr.
///
/// Exit status: 0 for success; 1 for a failure or a finding (key not found, damage); 2 for bad usage.
#[derive(Parser, Debug)]
#[command(name = "drumlin", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// Keyspace to work on [default: default; `tree` and `explain`: all keyspaces]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) keyspace: Option<String>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Names of the commands that do not work on a single keyspace. They refuse `--keyspace`, and their help omits it.
const OF_NO_KEYSPACE: [&str; 9] =
    ["verify", "stats", "keyspaces", "compact", "checkpoint", "repair", "options", "bench", "sim"];

impl Cli {
    /// Parses the arguments of the program. Exits if they are bad usage or ask for help.
    pub(crate) fn read() -> Cli {
        Cli::from_arg_matches(&Cli::described().get_matches()).unwrap_or_else(|error| error.exit())
    }

    /// Returns the definition of the command line, in which `--keyspace` is hidden for commands that refuse it.
    fn described() -> clap::Command {
        let hidden = || Arg::new("keyspace").long("keyspace").value_name("NAME").global(true).hide(true);
        OF_NO_KEYSPACE
            .iter()
            .fold(Cli::command(), |cli, name| cli.mut_subcommand(name, |command| command.arg(hidden())))
    }
}

/// Arguments that name the store to open.
#[derive(Args, Clone, Debug)]
pub(crate) struct StoreArgs {
    /// Directory of the store
    #[arg(value_name = "DB")]
    pub(crate) path: PathBuf,

    /// Set an option of the store or the keyspace permanently; repeatable (`drumlin options` lists all options)
    #[arg(long = "set", value_name = "OPTION=VALUE", value_parser = parse_setting)]
    pub(crate) settings: Vec<(String, String)>,
}

impl StoreArgs {
    /// Returns the options that open the store for `access`.
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
    /// Load entries from a file and flush them; creates the store if it does not exist
    #[command(after_help = "Example: drumlin load db people.csv --key id")]
    Load(LoadArgs),
    /// Write one entry; creates the store if it does not exist
    #[command(after_help = "Example: drumlin put db user:1 ada")]
    Put(PutArgs),
    /// Print the value of a key; exit status 1 if the key does not exist
    #[command(after_help = "Example: drumlin get db user:1")]
    Get(GetArgs),
    /// Delete a key; succeeds even if the key does not exist
    #[command(after_help = "Example: drumlin delete db user:1")]
    Delete(DeleteArgs),
    /// Print entries in key order
    #[command(after_help = "Example: drumlin scan db --prefix user: --limit 10")]
    Scan(ScanArgs),
    /// Count the keys
    #[command(after_help = "Example: drumlin count db --from a --to b")]
    Count(CountArgs),
    /// Replay a request trace; creates the store if it does not exist
    ///
    /// A trace is a CSV file, plain or compressed with zstd. Its header is ts,op,key,size (key-value trace) or
    /// ts,op,lba,bytes (block trace); op is G (get), P (put) or D (delete).
    ///
    /// The key of a block trace is its lba as 16 hex digits. Without --values, the value of a put is a pure function
    /// of its key, the number n of puts before it, and its size: the outputs of splitmix64 seeded with FNV-1a-64(key)
    /// xor n, each as 8 little-endian bytes, truncated to the size.
    #[command(after_help = "Example: drumlin replay db trace.csv.zst --policy tiering")]
    Replay(ReplayArgs),
    /// Read all data and verify checksums and invariants; exit status 1 if damage is found
    #[command(after_help = "Example: drumlin verify db")]
    Verify(ReportArgs),
    /// Recover as much data as possible into a new directory; exit status 1 if damage was found
    #[command(after_help = "Example: drumlin repair damaged-db new-db")]
    Repair(RepairArgs),
    /// Draw the LSM tree: levels, runs and files
    ///
    /// Each run is one line: a bar that shows where its data lies in the key space, then files, bytes, sequence
    /// numbers and the policy's tag.
    ///
    /// The key space runs from left to right. The width of a key range is proportional to the bytes stored in it. The
    /// height of a mark shows the bytes of the run in that column, relative to the fullest column of the tree. The runs
    /// of a level are listed oldest first.
    ///
    /// bits: filter bits per key. tag: a text that the policy attached to the run. `2 narrowed`: two files refer to a
    /// part of their table's key range only, because a compaction has replaced the rest. `1 busy`: one file is an
    /// input or output of a running compaction.
    #[command(after_help = "Example: drumlin tree db --files")]
    Tree(TreeArgs),
    /// Print the metrics that are not 0 (--json prints all)
    #[command(after_help = "Example: drumlin stats db --json")]
    Stats(ReportArgs),
    /// Compact the whole store and wait until background work is idle
    #[command(after_help = "Example: drumlin compact db")]
    Compact(ReportArgs),
    /// Create a checkpoint: a consistent copy of the store in a new directory
    #[command(after_help = "Example: drumlin checkpoint db backup/monday")]
    Checkpoint(CheckpointArgs),
    /// Print recent compaction policy decisions and their reasons
    #[command(after_help = "Example: drumlin explain db --last 20")]
    Explain(ExplainArgs),
    /// Show or switch the compaction policy of a keyspace
    #[command(after_help = "Example: drumlin policy db lazy-leveling:4")]
    Policy(PolicyArgs),
    /// List the keyspaces
    #[command(after_help = "Example: drumlin keyspaces db")]
    Keyspaces(ReportArgs),
    /// List all options
    #[command(after_help = "Example: drumlin options")]
    Options(OptionsArgs),
    /// Run benchmarks: workloads, engine comparisons, reports and the regression gate
    ///
    /// Results go to stdout as a table; progress and warnings go to stderr. Every result of the store is verified,
    /// and a wrong one ends the run without numbers.
    ///
    /// Exit status: 0 success, 1 error or wrong result, 2 bad usage, 3 gate failed, 4 too few usable rounds.
    #[command(after_help = "Example: drumlin bench micro --html page.html")]
    Bench(Box<drumlin_bench::command::args::BenchArgs>),
    /// Simulate compaction policies under changing workloads, in virtual time and without a store
    #[command(after_help = "Example: drumlin sim II --policy arce --policy leveling:10")]
    Sim(SimArgs),
}

impl Command {
    /// Returns whether the command prints JSON.
    pub(crate) fn is_json(&self) -> bool {
        match self {
            Command::Load(a) => a.json,
            Command::Replay(a) => a.json,
            Command::Verify(a) | Command::Stats(a) | Command::Keyspaces(a) | Command::Compact(a) => a.json,
            Command::Repair(a) => a.json,
            Command::Checkpoint(a) => a.json,
            Command::Tree(a) => a.json,
            Command::Explain(a) => a.json,
            Command::Policy(a) => a.json,
            Command::Options(a) => a.json,
            Command::Sim(SimArgs { kind: Some(SimKind::Pipeline(a)), .. }) => a.json,
            Command::Sim(SimArgs { kind: Some(SimKind::Growth(a)), .. }) => a.json,
            Command::Sim(a) => a.json,
            Command::Put(_) | Command::Get(_) | Command::Delete(_) | Command::Scan(_) | Command::Count(_) => {
                false
            }
            Command::Bench(_) => false,
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// Input file, plain or compressed with zstd, or - for stdin
    pub(crate) file: String,

    /// Input format [default: by the name of the file: .tsv, .csv, .jsonl or Packages]
    #[arg(long, value_enum)]
    pub(crate) format: Option<LoadFormat>,

    /// Column of a csv or tsv header, or member of jsonl objects, that is the key
    ///
    /// The value is then the column of --value, or else the only other column, or else all other columns as a JSON
    /// object. For jsonl it is the member of --value, or else the whole line.
    #[arg(long, value_name = "COLUMN")]
    pub(crate) key: Option<String>,

    /// Column or member that is the value
    #[arg(long, value_name = "COLUMN", requires = "key")]
    pub(crate) value: Option<String>,

    /// Durability of each write
    #[arg(long, value_enum, default_value_t = Durability::Buffered)]
    pub(crate) durability: Durability,

    /// Switch the keyspace to this compaction policy first
    #[arg(long, value_name = "NAME")]
    pub(crate) policy: Option<String>,

    /// Write entries one by one, and print each key once its write has the requested durability
    #[arg(long, conflicts_with = "json")]
    pub(crate) ack: bool,

    /// Print the summary as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl LoadArgs {
    /// Returns the names of the columns, if they are given.
    pub(crate) fn named(&self) -> Option<Named> {
        Some(Named { key: self.key.clone()?, value: self.value.clone() })
    }
}

#[derive(Args, Debug)]
pub(crate) struct PutArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The key
    #[arg(value_parser = bytes_parser())]
    pub(crate) key: Bytes,

    /// The value [default: read it unescaped from stdin]
    #[arg(value_parser = bytes_parser(), allow_negative_numbers = true)]
    pub(crate) value: Option<Bytes>,

    /// Durability of the write
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

    /// Print the raw bytes of the value, without escapes and without a newline
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

    /// Durability of the deletion
    #[arg(long, value_enum, default_value_t = Durability::Sync)]
    pub(crate) durability: Durability,
}

/// Arguments that select a key range.
#[derive(Args, Debug, Default)]
pub(crate) struct RangeArgs {
    /// Only keys with this prefix
    #[arg(long, value_name = "P", value_parser = bytes_parser())]
    pub(crate) prefix: Option<Bytes>,

    /// Only keys greater than or equal to A
    #[arg(long, value_name = "A", value_parser = bytes_parser())]
    pub(crate) from: Option<Bytes>,

    /// Only keys less than B
    #[arg(long, value_name = "B", value_parser = bytes_parser())]
    pub(crate) to: Option<Bytes>,
}

impl RangeArgs {
    /// Returns the key range that satisfies `--from`, `--to` and `--prefix` together.
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

    /// Print entries in descending key order
    #[arg(long)]
    pub(crate) reverse: bool,

    /// Print at most N entries
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,

    /// Output format
    #[arg(long, value_enum, default_value_t = TextFormat::Tsv)]
    pub(crate) format: TextFormat,

    /// Print only keys, without values
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

/// Arguments of `replay`.
#[derive(Args, Debug)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// Trace file, or - for stdin
    pub(crate) trace: String,

    /// File with the real values in the order of the puts, in the output format of git cat-file --batch; may be
    /// compressed with zstd
    #[arg(long, value_name = "FILE")]
    pub(crate) values: Option<String>,

    /// Use one key per 4 KiB block that a request touches: the block number as 16 hex digits
    #[arg(long)]
    pub(crate) expand_4k: bool,

    /// Durability of each write
    #[arg(long, value_enum, default_value_t = Durability::Buffered)]
    pub(crate) durability: Durability,

    /// Switch the keyspace to this compaction policy first
    #[arg(long, value_name = "NAME")]
    pub(crate) policy: Option<String>,

    /// Switch to the next policy of leveling, 1-leveling, tiering, lazy-leveling and universal after every N
    /// operations
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) switch_every: Option<u64>,

    /// Print the summary as JSON
    #[arg(long)]
    pub(crate) json: bool,
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
    /// Directory of the damaged store; it is not modified
    #[arg(value_name = "DB")]
    pub(crate) path: PathBuf,

    /// Directory of the new store; it must not exist or be empty
    #[arg(value_name = "NEWDIR")]
    pub(crate) new_path: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `tree`.
#[derive(Args, Debug)]
pub(crate) struct TreeArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// List the files of each run
    #[arg(long)]
    pub(crate) files: bool,

    /// Use only ASCII characters
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

    /// Directory of the checkpoint, on the same file system; it must not exist or be empty
    #[arg(value_name = "NEWDIR")]
    pub(crate) new_path: PathBuf,

    /// Print the summary as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// Also print policy calls that did nothing but make plans; plans are always printed
    #[arg(long)]
    pub(crate) all: bool,

    /// Print only the last N decisions
    #[arg(long, value_name = "N")]
    pub(crate) last: Option<usize>,

    /// Re-run every logged policy call and compare its decision; exit status 1 if a decision differs
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

    /// Policy to switch to (`drumlin options compaction` lists the policies)
    pub(crate) name: Option<String>,

    /// Freeze the policy's current parameters; compactions continue with them
    #[arg(long, conflicts_with = "thaw")]
    pub(crate) freeze: bool,

    /// Let the policy tune its parameters again
    #[arg(long)]
    pub(crate) thaw: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct OptionsArgs {
    /// Print this option alone
    #[arg(conflicts_with = "markdown")]
    pub(crate) name: Option<String>,

    /// Print the options as Markdown, as in docs/options.md
    #[arg(long)]
    pub(crate) markdown: bool,

    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    pub(crate) json: bool,
}

/// Input formats of `load`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LoadFormat {
    /// Lines of key, tab and value, with escapes
    Tsv,
    /// RFC 4180 records of key and value; a first record `key,value` is skipped as a header
    Csv,
    /// One JSON object per line: {"key": ..., "value": ...}
    Jsonl,
    /// Debian package index: the key is Package/Version/Architecture, the value is the stanza
    Deb822,
}

impl LoadFormat {
    /// Returns the format that a file name implies. A suffix for compression is ignored.
    pub(crate) fn of_name(file: &str) -> Option<LoadFormat> {
        let name = Path::new(file).file_name()?.to_str()?.to_ascii_lowercase();
        let name = name.strip_suffix(".zst").unwrap_or(&name);
        match name.rsplit('.').next()? {
            "tsv" | "tab" => Some(LoadFormat::Tsv),
            "csv" => Some(LoadFormat::Csv),
            "jsonl" | "ndjson" => Some(LoadFormat::Jsonl),
            "deb822" => Some(LoadFormat::Deb822),
            _ => name.ends_with("packages").then_some(LoadFormat::Deb822),
        }
    }
}

/// Output formats of `scan`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TextFormat {
    /// Lines of key, tab and value, with escapes
    Tsv,
    /// One JSON object per line: {"key": ..., "value": ...}; key_hex and value_hex for bytes that are not UTF-8
    Jsonl,
}

fn bytes_parser() -> ValueParser {
    let parse = |text: OsString| -> Result<Bytes, BadEscape> { unescape(text.as_encoded_bytes()).map(Bytes) };
    ValueParser::new(OsStringValueParser::new().try_map(parse))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::described().debug_assert();
    }

    #[test]
    fn the_help_of_a_command_shows_the_keyspace_if_the_command_takes_one() {
        let mut cli = Cli::described();
        cli.build();
        for command in cli.get_subcommands().filter(|command| command.get_name() != "help") {
            let name = command.get_name().to_owned();
            let help = command.clone().render_help().to_string();
            let example = command.get_after_help().expect("an example").to_string();
            let words: Vec<&str> = example.trim_start_matches("Example: ").split(' ').collect();
            let matches = Cli::described().get_matches_from(words.iter().chain(&["--keyspace", "users"]));
            let parsed = Cli::from_arg_matches(&matches).expect("good usage");
            assert_eq!(parsed.keyspace.as_deref(), Some("users"), "{name}");
            let takes_one = crate::commands::of_no_keyspace(&parsed.command).is_none();
            assert_eq!(help.contains("--keyspace"), takes_one, "{name}: {help}");
        }
    }

    #[test]
    fn every_command_has_an_example_that_is_good_usage() {
        fn check(command: &clap::Command) {
            for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
            {
                let help = sub.get_after_help().map(ToString::to_string).unwrap_or_default();
                let line =
                    help.strip_prefix("Example: ").unwrap_or_else(|| panic!("{}: {help}", sub.get_name()));
                let line = line.trim_start_matches("drumlin ");
                // The example of `goals` is for `drumlin-compare`, where no `bench` precedes the family.
                let words =
                    if line.starts_with("goals") { vec!["drumlin", "bench"] } else { vec!["drumlin"] };
                let parsed = Cli::try_parse_from(words.into_iter().chain(line.split(' ')));
                assert!(parsed.is_ok(), "{line}: {:?}", parsed.err().map(|e| e.to_string()));
                check(sub);
            }
        }
        check(&Cli::command());
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
    fn the_name_of_a_file_tells_its_format() {
        for (name, format) in [
            ("a.tsv", Some(LoadFormat::Tsv)),
            ("/x.tsv/A.CSV", Some(LoadFormat::Csv)),
            ("a.b.jsonl.zst", Some(LoadFormat::Jsonl)),
            ("lists/Packages", Some(LoadFormat::Deb822)),
            ("main_binary-amd64_Packages", Some(LoadFormat::Deb822)),
            ("a.txt", None),
            ("-", None),
            ("", None),
        ] {
            assert_eq!(LoadFormat::of_name(name), format, "{name}");
        }
    }

    #[test]
    fn bad_usage_is_refused_with_status_2() {
        for line in [
            &["drumlin"][..],
            &["drumlin", "get", "db"],
            &["drumlin", "get", "db", "\\q"],
            &["drumlin", "load", "db", "f", "--format", "xml"],
            &["drumlin", "load", "db", "f", "--value", "v"],
            &["drumlin", "stats", "db", "--set", "x"],
            &["drumlin", "replay", "db", "t", "--switch-every", "0"],
        ] {
            let error = Cli::try_parse_from(line).expect_err("bad usage");
            assert_eq!(error.exit_code(), 2, "{line:?}");
        }
    }
}
