//! The report as data: `drumlin-bench/1`.
//!
//! Units are in the names. What an engine cannot give is `null`, never 0. `schema/report.json` says the same for other
//! programs, and a test applies it to what this code writes.
//!
//! `ingested` is key and value bytes of accepted writes; `write_amp` is (flush + merge + gc) / ingested, the log kept
//! apart; `space_amp` is bytes of the directory / live key and value bytes, which the generator knows.

use crate::engine::{Decision, Stall};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name and version of the format.
pub const SCHEMA: &str = "drumlin-bench/1";

/// All that one invocation measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// The command line.
    pub command: Vec<String>,
    /// When it began.
    pub started_utc: String,
    /// Seed of the first round.
    pub seed: u64,
    /// What a reader must know before believing a figure.
    pub warnings: Vec<String>,
    /// Every option in effect, by engine.
    pub config: BTreeMap<String, BTreeMap<String, String>>,
    /// The machine.
    pub machine: Machine,
    /// The program.
    pub build: Build,
    /// One for each engine, phase and round.
    pub phases: Vec<PhaseReport>,
}

/// The machine that measured.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub cpu: Option<String>,
    /// Threads that run at once.
    pub cores: u64,
    /// Memory.
    pub ram_bytes: Option<u64>,
    /// Second-level cache of a core.
    pub l2_bytes: Option<u64>,
    /// Third-level cache.
    pub l3_bytes: Option<u64>,
    /// Kernel and its version.
    pub kernel: Option<String>,
    /// File system of the data directory.
    pub filesystem: Option<String>,
    /// Whether it is a virtual machine.
    pub virtual_machine: Option<bool>,
    /// How fast it was, before each child in order.
    pub calibration: Vec<Calibration>,
}

/// How fast the machine is just now.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Calibration {
    /// A load that waits for the one before, in 64 MiB.
    pub load_ns: f64,
    /// Hashing with XXH3.
    pub hash_gb_per_s: f64,
    /// Synced writes of 1 MiB.
    pub write_mb_per_s: Option<f64>,
    /// Reads of 4 KiB from the page cache.
    pub read_us: Option<f64>,
}

/// The program that measured.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Build {
    /// Of the package.
    pub version: String,
    /// Of the sources.
    pub commit: Option<String>,
    /// Whether the sources differ from the commit.
    pub dirty: Option<bool>,
    /// The compiler.
    pub rustc: Option<String>,
    /// Instructions that the compiler may use.
    pub target_cpu: Option<String>,
    /// `release` or `debug`.
    pub profile: String,
    /// Optimised across crates.
    pub lto: Option<String>,
    /// Who allocates memory.
    pub allocator: String,
    /// Engines that were compiled in.
    pub features: Vec<String>,
}

/// Latencies, microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    /// Arithmetic mean.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 99 of 100 are not above.
    pub p99: Option<f64>,
    /// 999 of 1000.
    pub p99_9: Option<f64>,
    /// 9999 of 10000.
    pub p99_99: Option<f64>,
    /// The longest.
    pub max: Option<f64>,
    /// Calls that were timed.
    pub samples: u64,
    /// Counted from when the call should have begun.
    pub from_intended_start: bool,
}

/// One kind of call.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct OfKind {
    /// Operations.
    pub ops: u64,
    /// Latencies of its calls.
    pub latency_us: Latency,
}

/// Bytes by purpose.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Bytes {
    /// Key and value bytes of accepted writes.
    pub ingested: u64,
    /// Tables written by flushes.
    pub flush: Option<u64>,
    /// Tables written by merges.
    pub merge: Option<u64>,
    /// Rewritten to reclaim values.
    pub gc: Option<u64>,
    /// Log records.
    pub log: Option<u64>,
    /// Manifest.
    pub manifest: Option<u64>,
    /// Read from files for the program.
    pub read_user: Option<u64>,
    /// Read from files for merges.
    pub read_merge: Option<u64>,
    /// Read from files to reclaim values.
    pub read_gc: Option<u64>,
}

/// Disk against live bytes.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SpaceAmp {
    /// The largest in the phase.
    pub peak: Option<f64>,
    /// After the phase and what follows it.
    pub r#final: Option<f64>,
    /// Key and value bytes of all entries then.
    pub live_bytes_final: u64,
}

/// Runs of the tree.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Runs {
    /// Mean, weighted by operations.
    pub avg: Option<f64>,
    /// Most.
    pub max: Option<u64>,
    /// At the end.
    pub r#final: Option<u64>,
    /// At the end, by level.
    pub per_level_final: Option<Vec<u64>>,
}

/// Waits of writers.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Stalls {
    /// In all.
    pub seconds: Option<f64>,
    /// How many.
    pub count: Option<u64>,
    /// The longest.
    pub longest_ms: Option<f64>,
    /// By reason.
    pub by_reason: Option<BTreeMap<String, Stall>>,
}

/// Filters.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Filters {
    /// Bits that they take for a key.
    pub bits_per_key_actual: Option<f64>,
    /// Bytes that they take.
    pub bytes: Option<u64>,
    /// Questions.
    pub probes: Option<u64>,
    /// Answers "not here".
    pub negatives: Option<u64>,
    /// Answers "perhaps" of tables without the key.
    pub false_positives: Option<u64>,
}

/// What lookups met.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Lookups {
    /// Found a value.
    pub hits: u64,
    /// Found none.
    pub misses: u64,
    /// Tables gone into.
    pub files_per_lookup: Option<f64>,
    /// Blocks that held the version returned.
    pub blocks_per_lookup_necessary: Option<f64>,
    /// Blocks of tables without the key.
    pub blocks_per_lookup_unnecessary: Option<f64>,
    /// Blocks not found in the cache.
    pub device_reads_per_lookup: Option<f64>,
    /// Share found in the cache.
    pub cache_hit_ratio: Option<f64>,
}

/// Merges.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Merges {
    /// How many.
    pub count: Option<u64>,
    /// Files that changed level unread.
    pub moves: Option<u64>,
    /// Entries read.
    pub input_entries: Option<u64>,
    /// CPU time of background threads for an entry read by merges.
    pub cpu_us_per_entry: Option<f64>,
    /// The largest output.
    pub largest_bytes: Option<u64>,
    /// Most at a time.
    pub max_parallel: Option<u64>,
    /// Time with merges into two or more levels.
    pub cross_level_s: Option<f64>,
}

/// Separated values.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ValueFiles {
    /// Files.
    pub files: Option<u64>,
    /// Bytes in use.
    pub live_bytes: Option<u64>,
    /// Bytes not in use.
    pub garbage_bytes: Option<u64>,
    /// Rewrites.
    pub gc_jobs: Option<u64>,
    /// Share in use of what was rewritten.
    pub gc_valid_ratio: Option<f64>,
    /// Times the model was trained.
    pub trainings: Option<u64>,
    /// Values foretold to be short-lived.
    pub predicted_short: Option<u64>,
    /// Values foretold to last.
    pub predicted_long: Option<u64>,
}

/// Decisions of policies.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Decisions {
    /// How many.
    pub count: Option<u64>,
    /// By kind.
    pub by_kind: Option<BTreeMap<String, u64>>,
    /// Refused.
    pub rejected: Option<u64>,
    /// Times that the policy was asked.
    pub asked: Option<u64>,
    /// Mean time for one answer, microseconds, admission of its plans included.
    pub decide_us_mean: Option<f64>,
    /// Longest time for one since the engine was opened, microseconds.
    pub decide_us_max: Option<f64>,
    /// Seconds that all answers of the phase took.
    pub decide_s: Option<f64>,
    /// Seconds that searches took in the background.
    pub search_s: Option<f64>,
    /// The latest of the phase, `t` in seconds from its start.
    pub latest: Vec<Decision>,
}

/// One second of a phase.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the phase began.
    pub t: f64,
    /// Operations since it began.
    pub ops: u64,
    /// 99th percentile of this second.
    pub p99_us: Option<f64>,
    /// Runs by level.
    pub runs: Option<Vec<u64>>,
    /// Bytes of the directory.
    pub disk_bytes: Option<u64>,
    /// Key and value bytes of all entries.
    pub live_bytes: u64,
    /// Bytes of tables written since the phase began.
    pub written_bytes: Option<u64>,
    /// Milliseconds of stalls since the phase began.
    pub stall_ms: Option<f64>,
    /// Resident memory.
    pub rss_bytes: Option<u64>,
}

/// One phase of one engine in one round.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PhaseReport {
    /// Family, variant and phase.
    pub name: String,
    /// The engine, with its policy when one was asked for.
    pub engine: String,
    /// The policy in force, where the engine has several.
    pub policy: Option<String>,
    /// From 1.
    pub round: u64,
    /// Digest of the operations, hexadecimal.
    pub stream: String,
    /// Threads that worked.
    pub threads: u64,
    /// Not measured but computed.
    pub simulated: bool,
    /// False when the machine was too noisy.
    pub usable: bool,
    /// Operations.
    pub ops: u64,
    /// Time in calls of the engine, of the slowest thread.
    pub seconds: f64,
    /// Time that what follows the phase took: flush, merges.
    pub settle_seconds: f64,
    /// Operations per second of `seconds`.
    pub ops_per_s: f64,
    /// Lowest rate over any window of operations.
    pub worst_window_ops_per_s: Option<f64>,
    /// CPU time of the calling threads.
    pub thread_cpu_us_per_op: f64,
    /// CPU time of the process, background and settling included.
    pub process_cpu_us_per_op: f64,
    /// All calls.
    pub latency_us: Latency,
    /// Calls by kind.
    pub by_op: BTreeMap<String, OfKind>,
    /// Bytes by purpose, settling included.
    pub bytes: Bytes,
    /// (flush + merge + gc) / ingested.
    pub write_amp: Option<f64>,
    /// (flush + merge + gc + log) / ingested.
    pub write_amp_with_log: Option<f64>,
    /// Disk against live bytes.
    pub space_amp: SpaceAmp,
    /// Runs of the tree.
    pub runs: Runs,
    /// Largest resident memory.
    pub rss_peak_bytes: Option<u64>,
    /// Allocations of the process.
    pub allocations_per_op: Option<f64>,
    /// Calls that made files durable.
    pub fsyncs: Option<u64>,
    /// CPU time that the host took.
    pub steal_percent: Option<f64>,
    /// CPU time that other programs used.
    pub foreign_percent: Option<f64>,
    /// Waits of writers.
    pub stalls: Stalls,
    /// Filters.
    pub filter: Filters,
    /// What lookups met.
    pub lookups: Lookups,
    /// Merges.
    pub merges: Merges,
    /// Separated values.
    pub values: ValueFiles,
    /// Decisions of policies.
    pub decisions: Decisions,
    /// A sample a second.
    pub timeline: Vec<Sample>,
}
