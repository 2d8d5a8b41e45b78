//! Data model of a report, format `drumlin-bench/1`.
//!
//! Field names contain the units. A value that an engine does not provide is `null`, never 0. `schema/report.json`
//! describes the same format for other programs, and a test checks the output of this code against it.
//!
//! `ingested` is the key and value bytes of accepted writes. `write_amp` is (flush + merge + gc) / ingested; the log
//! is reported separately. `space_amp` is bytes of the directory / live key and value bytes, which the oracle
//! counts.

use crate::engine::{Decision, Stall};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name and version of the format.
pub const SCHEMA: &str = "drumlin-bench/1";

/// Version of the measuring method.
///
/// Only in version 0:
///
/// - A thread's time was that of its chunks of calls, without the time between them.
/// - All timed calls had the same weight.
/// - A phase of scans made a single scan.
/// - The bytes of a writer beside readers did not count as written.
/// - Read-only phases of YCSB had no settling.
///
/// In versions 0 and 1:
///
/// - The order of the engines rotated, so an engine always ran after the same one.
/// - Each phase of YCSB ended with a flush.
/// - A ratio used only Drumlin's first run, without its control.
/// - The number of timed calls depended on the engine's speed.
/// - `rocksdb-deferred` did not defer compactions.
///
/// The peak of disk space counts the settling only in reports that list `build.tools`.
pub const METHOD: u64 = 2;

/// Suffix of the name of an engine that runs a second time as a control.
pub const CONTROL: &str = "#2";

/// Options that were in effect in some phases of an engine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PhaseConfig {
    /// Names of the phases.
    pub phases: Vec<String>,
    /// All options in effect.
    pub options: BTreeMap<String, String>,
}

/// All measurements of one invocation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Format of the report: [`SCHEMA`].
    pub schema: String,
    /// Version of the measuring method: [`METHOD`], or less in older reports.
    #[serde(default)]
    pub method: u64,
    /// Command line.
    pub command: Vec<String>,
    /// Start time.
    pub started_utc: String,
    /// Seed of the first round.
    pub seed: u64,
    /// Warnings that a reader must consider before trusting the numbers.
    pub warnings: Vec<String>,
    /// All options in effect, by engine. If the phases of an engine had different options, those of the last phase.
    pub config: BTreeMap<String, BTreeMap<String, String>>,
    /// All sets of options, by engine, of the engines whose phases had different options.
    #[serde(default)]
    pub phase_config: BTreeMap<String, Vec<PhaseConfig>>,
    /// Machine that ran the benchmark.
    pub machine: Machine,
    /// Build of the benchmark.
    pub build: Build,
    /// One report for each engine, phase and round.
    pub phases: Vec<PhaseReport>,
}

/// Description of the machine.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Name of the processor.
    pub cpu: Option<String>,
    /// Name, family and model of the processor: one name stands for several models. Older reports do not have it.
    #[serde(default)]
    pub processor: Option<String>,
    /// Number of hardware threads.
    pub cores: u64,
    /// Size of the memory in bytes.
    pub ram_bytes: Option<u64>,
    /// Size of a core's level 2 cache in bytes.
    pub l2_bytes: Option<u64>,
    /// Size of the level 3 cache in bytes.
    pub l3_bytes: Option<u64>,
    /// Kernel and its version.
    pub kernel: Option<String>,
    /// File system of the data directory.
    pub filesystem: Option<String>,
    /// Model or driver, name and size of the block device that holds the data directory. Older reports do not have it.
    #[serde(default)]
    pub device: Option<String>,
    /// Whether it is a virtual machine.
    pub virtual_machine: Option<bool>,
    /// Calibrations of its speed, in order: several before the first child process, then one before each. Empty
    /// without noise detection.
    pub calibration: Vec<Calibration>,
}

impl Machine {
    /// Returns the processor, as exactly as the report has it.
    pub fn processor_name(&self) -> Option<String> {
        self.processor.clone().or_else(|| self.cpu.clone())
    }
}

/// Current speed of the machine.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Calibration {
    /// Latency of dependent loads in 64 MiB.
    pub load_ns: f64,
    /// Throughput of XXH3 hashing.
    pub hash_gb_per_s: f64,
    /// Throughput of synced writes of 1 MiB.
    pub write_mb_per_s: Option<f64>,
    /// Latency of 4 KiB reads from the page cache.
    pub read_us: Option<f64>,
}

/// Description of the build.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Build {
    /// Version of the package.
    pub version: String,
    /// Commit of the sources.
    pub commit: Option<String>,
    /// Whether the sources differ from the commit.
    pub dirty: Option<bool>,
    /// Version of the compiler.
    pub rustc: Option<String>,
    /// Instruction set that the compiler may use.
    pub target_cpu: Option<String>,
    /// Build profile: `release` or `debug`.
    pub profile: String,
    /// Link-time optimization of Rust code, as the release profile has it.
    pub lto: Option<String>,
    /// Name of the memory allocator.
    pub allocator: String,
    /// Compilers and linkers, as they signed the program. Empty in older reports, and if the program is no ELF file.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Engines that are compiled in.
    pub features: Vec<String>,
}

/// Latencies in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    /// Arithmetic mean.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p99_9: Option<f64>,
    /// 99.99th percentile.
    pub p99_99: Option<f64>,
    /// Maximum.
    pub max: Option<f64>,
    /// Number of calls that the latencies stand for. Older reports have the number of timed calls.
    pub samples: u64,
    /// Whether latencies are measured from the intended start of each call.
    pub from_intended_start: bool,
}

/// Results of one kind of call.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct OfKind {
    /// Number of operations.
    pub ops: u64,
    /// Latencies of the calls.
    pub latency_us: Latency,
}

/// Bytes by purpose.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Bytes {
    /// Key and value bytes of accepted writes.
    pub ingested: u64,
    /// Table bytes written by flushes.
    pub flush: Option<u64>,
    /// Table bytes written by compactions.
    pub merge: Option<u64>,
    /// Bytes rewritten by garbage collection of separated values.
    pub gc: Option<u64>,
    /// Bytes of log records.
    pub log: Option<u64>,
    /// Bytes written to the manifest.
    pub manifest: Option<u64>,
    /// Bytes read from files by the program's reads.
    pub read_user: Option<u64>,
    /// Bytes read from files by compactions.
    pub read_merge: Option<u64>,
    /// Bytes read from files by garbage collection of separated values.
    pub read_gc: Option<u64>,
}

/// Disk space over live bytes.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SpaceAmp {
    /// Maximum during the phase.
    pub peak: Option<f64>,
    /// Value after the phase and its settling.
    pub r#final: Option<f64>,
    /// Key and value bytes of all entries at that time.
    pub live_bytes_final: u64,
}

/// Numbers of runs in the tree.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Runs {
    /// Mean, weighted by operations.
    pub avg: Option<f64>,
    /// Maximum.
    pub max: Option<u64>,
    /// Number at the end.
    pub r#final: Option<u64>,
    /// Numbers at the end, by level.
    pub per_level_final: Option<Vec<u64>>,
}

/// Write stalls.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Stalls {
    /// Total time.
    pub seconds: Option<f64>,
    /// Number of stalls.
    pub count: Option<u64>,
    /// Longest stall.
    pub longest_ms: Option<f64>,
    /// Stalls by reason.
    pub by_reason: Option<BTreeMap<String, Stall>>,
}

/// Filter statistics.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Filters {
    /// Filter bits per key.
    pub bits_per_key_actual: Option<f64>,
    /// Bytes of filters.
    pub bytes: Option<u64>,
    /// Number of filter probes.
    pub probes: Option<u64>,
    /// Number of negative probes.
    pub negatives: Option<u64>,
    /// Number of positive probes for tables without the key.
    pub false_positives: Option<u64>,
}

/// Lookup statistics.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Lookups {
    /// Number of lookups that found a value.
    pub hits: u64,
    /// Number of lookups that found none.
    pub misses: u64,
    /// Tables searched per lookup.
    pub files_per_lookup: Option<f64>,
    /// Blocks with the returned version that were read, per lookup.
    pub blocks_per_lookup_necessary: Option<f64>,
    /// Blocks that were read in tables without the key, per lookup.
    pub blocks_per_lookup_unnecessary: Option<f64>,
    /// Block cache misses per lookup.
    pub device_reads_per_lookup: Option<f64>,
    /// Fraction of blocks found in the cache.
    pub cache_hit_ratio: Option<f64>,
}

/// Compaction statistics.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Merges {
    /// Number of compactions.
    pub count: Option<u64>,
    /// Number of trivial moves (files that changed level without being read).
    pub moves: Option<u64>,
    /// Number of entries read.
    pub input_entries: Option<u64>,
    /// CPU time of background threads per entry read by compactions.
    pub cpu_us_per_entry: Option<f64>,
    /// Bytes of the largest output.
    pub largest_bytes: Option<u64>,
    /// Maximum number of concurrent compactions.
    pub max_parallel: Option<u64>,
    /// Time during which compactions into two or more levels ran concurrently.
    pub cross_level_s: Option<f64>,
}

/// Statistics of value separation.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ValueFiles {
    /// Number of value files.
    pub files: Option<u64>,
    /// Bytes in use.
    pub live_bytes: Option<u64>,
    /// Bytes of garbage.
    pub garbage_bytes: Option<u64>,
    /// Number of garbage collections.
    pub gc_jobs: Option<u64>,
    /// Fraction of collected bytes that were still in use.
    pub gc_valid_ratio: Option<f64>,
    /// Number of trainings of the lifetime model.
    pub trainings: Option<u64>,
    /// Number of values predicted to be short-lived.
    pub predicted_short: Option<u64>,
    /// Number of values predicted to be long-lived.
    pub predicted_long: Option<u64>,
}

/// Policy decisions.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Decisions {
    /// Number of decisions.
    pub count: Option<u64>,
    /// Number of decisions by kind.
    pub by_kind: Option<BTreeMap<String, u64>>,
    /// Number of rejected decisions.
    pub rejected: Option<u64>,
    /// Number of policy calls.
    pub policy_calls: Option<u64>,
    /// Mean time of a policy call in microseconds, including admission of its plans.
    pub decide_us_mean: Option<f64>,
    /// Longest policy call since the open of the engine, in microseconds.
    pub decide_us_max: Option<f64>,
    /// Total time of the phase's policy calls in seconds.
    pub decide_s: Option<f64>,
    /// Time of background searches in seconds.
    pub search_s: Option<f64>,
    /// Latest decisions of the phase; `t` is in seconds from its start.
    pub latest: Vec<Decision>,
}

/// Sample of one second of a phase.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the start of the phase.
    pub t: f64,
    /// Operations since the start of the phase.
    pub ops: u64,
    /// 99th percentile of this second in microseconds.
    pub p99_us: Option<f64>,
    /// Runs by level.
    pub runs: Option<Vec<u64>>,
    /// Bytes of the directory on disk.
    pub disk_bytes: Option<u64>,
    /// Key and value bytes of all entries.
    pub live_bytes: u64,
    /// Table bytes written since the start of the phase.
    pub written_bytes: Option<u64>,
    /// Milliseconds of write stalls since the start of the phase.
    pub stall_ms: Option<f64>,
    /// Resident memory in bytes.
    pub rss_bytes: Option<u64>,
}

/// Results of one phase of one engine in one round.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PhaseReport {
    /// Name: family, variant and phase.
    pub name: String,
    /// Engine name, with its policy if one was requested.
    pub engine: String,
    /// Policy in force, if the engine has several.
    pub policy: Option<String>,
    /// Round number, from 1.
    pub round: u64,
    /// Digest of the operations in hexadecimal.
    pub stream: String,
    /// Number of client threads.
    pub threads: u64,
    /// True if the results are computed, not measured.
    pub simulated: bool,
    /// False if the machine was too noisy, or if the figures do not count for another reason that a warning tells.
    pub usable: bool,
    /// Number of operations.
    pub ops: u64,
    /// Time of the slowest thread from the common start, without the CPU time of drawing keys.
    pub seconds: f64,
    /// Time of the settling after the phase: flush and compactions.
    pub settle_seconds: f64,
    /// Operations per second, based on `seconds`.
    pub ops_per_s: f64,
    /// Lowest rate over any window of operations.
    pub worst_window_ops_per_s: Option<f64>,
    /// CPU time of the calling threads per operation.
    pub thread_cpu_us_per_op: f64,
    /// CPU time of the process per operation, including background work and settling, without the drawing of keys.
    pub process_cpu_us_per_op: f64,
    /// Latencies of all calls.
    pub latency_us: Latency,
    /// Results by kind of call.
    pub by_op: BTreeMap<String, OfKind>,
    /// Bytes by purpose, including settling.
    pub bytes: Bytes,
    /// Write amplification: (flush + merge + gc) / ingested.
    pub write_amp: Option<f64>,
    /// Write amplification with the log: (flush + merge + gc + log) / ingested.
    pub write_amp_with_log: Option<f64>,
    /// Disk space over live bytes.
    pub space_amp: SpaceAmp,
    /// Numbers of runs in the tree.
    pub runs: Runs,
    /// Peak resident memory.
    pub rss_peak_bytes: Option<u64>,
    /// Allocations of the process per operation. Not measured yet: always `None`.
    pub allocations_per_op: Option<f64>,
    /// Number of sync calls on files.
    pub fsyncs: Option<u64>,
    /// Percentage of CPU time that the host took.
    pub steal_percent: Option<f64>,
    /// Percentage of CPU time that other programs used.
    pub foreign_percent: Option<f64>,
    /// Write stalls.
    pub stalls: Stalls,
    /// Filter statistics.
    pub filter: Filters,
    /// Lookup statistics.
    pub lookups: Lookups,
    /// Compaction statistics.
    pub merges: Merges,
    /// Statistics of value separation.
    pub values: ValueFiles,
    /// Policy decisions.
    pub decisions: Decisions,
    /// Samples, one per second.
    pub timeline: Vec<Sample>,
}

impl PhaseReport {
    /// Returns the operations per second of the phase and its settling together: what a load achieves if the work that
    /// it leaves behind counts.
    pub fn ops_per_s_settled(&self) -> f64 {
        self.ops as f64 / (self.seconds + self.settle_seconds).max(1e-9)
    }

    /// Removes samples and decisions, which take most of a report's space.
    pub fn make_brief(&mut self) {
        self.timeline.clear();
        self.decisions.latest.clear();
    }
}

/// Returns the names of phases or engines in the order of their first appearance.
pub fn names(phases: &[PhaseReport], of: fn(&PhaseReport) -> &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for phase in phases {
        if !names.iter().any(|name| name == of(phase)) {
            names.push(of(phase).to_owned());
        }
    }
    names
}
