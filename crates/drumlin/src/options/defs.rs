//! The list of all options. To add one, add its entry here, obey it, and run the tests with
//! `DRUMLIN_BLESS=1`, which rewrites `docs/options.md`.
//!
//! An entry: doc comment, `name: type = default => shape.flags();`. The doc comment is also the help text, so
//! its first sentence says what the option does. Public options come first; at most about twenty are
//! public, the rest is marked `expert`: what an experiment needs to match another engine.

use super::registry::{bytes, count, names, ratio, settings, text};
use super::{Adaptation, Compression, Durability, Pipeline, TableReads};
use drumlin_types::contract::Pin;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

settings! {
    /// Settings of a store.
    Options, Store;

    /// Memory of the store in all: memtables, block cache, filters and indexes.
    memory_budget: u64 = 512 * MIB => bytes(8 * MIB, 1024 * TIB);

    /// Disk space of tables and log: as on a full disk, merges wait and writes fail before they would take more.
    disk_budget: u64 = 0 => bytes(MIB, 1024 * TIB).zero("the whole disk").live().alters_answers();

    /// Bytes per second that merges write at most. Flushes are counted, but never wait.
    background_rate: u64 = 0 => bytes(MIB, TIB).zero("no limit").unit("bytes/s").live();

    /// What a write survives that does not say so itself.
    durability: Durability = Durability::Buffered => names(Durability::NAMES).live();

    /// Merges that may run at the same time.
    workers: u64 = 0 => count(1, 64).zero("found by measuring").expert();

    /// How merges follow each other; all but the first are for comparisons.
    pipeline: Pipeline = Pipeline::Pipelined => names(Pipeline::NAMES).expert();

    /// Size of a log segment. Segments are preallocated and recycled.
    log_segment_bytes: u64 = 16 * MIB => bytes(64 * KIB, GIB).expert();

    /// Whether reads of tables use the page cache of the operating system, or pass it where the file system lets them.
    table_reads: TableReads = TableReads::Buffered => names(TableReads::NAMES).expert();

    /// Longest time that a write waits for merges or memory before it fails with `Busy`.
    write_timeout_ms: u64 = 0
        => count(1, 86_400_000).zero("as long as it takes").unit("ms").live().expert().alters_answers();

}

settings! {
    /// Settings of a keyspace.
    KeyspaceOptions, Keyspace;

    /// The policy that decides what is merged when, with its arguments.
    compaction: String = "arce".to_owned() => text("name or name:arguments", policy_name, &["1-leveling"]).live();

    /// Whether the policy goes on tuning itself. Frozen, it merges by what it has found, learns nothing more of the load, and
    /// the number of merge slots stays too.
    adaptation: Adaptation = Adaptation::On => names(Adaptation::NAMES).live();

    /// Bytes that merges may rewrite per flushed byte, unless there are too many runs.
    max_write_amp: f64 = 20.0 => ratio(3.0, 1000.0).live();

    /// Age at which a value ends by itself. Acts on values put from then on.
    ttl_seconds: u64 = 0
        => count(1, 3_153_600_000).zero("values do not end").unit("s").live().alters_answers();

    /// Compression of table blocks. Acts on files written from then on.
    compression: Compression = Compression::Lz4 => names(COMPRESSIONS).live();

    /// Compression of files in the bottom level, which are the bulk of the store and rarely rewritten.
    compression_bottom: Option<Compression> = None => names(COMPRESSIONS).absent("same").live();

    /// Bits per key of the filters that spare lookups useless reads; 0 builds none.
    filter_bits: Option<f64> = None => ratio(0.0, 16.0).absent("auto").unit("bits/key").live().expert();

    /// Bytes of a memtable at which it is sealed and flushed.
    memtable_bytes: u64 = 0
        => bytes(4 * KIB, 4 * GIB).zero("an eighth of memory_budget, at most 64MiB").live().expert();

    /// Bytes of small sealed memtables that wait and are flushed together, as one run; a larger one is flushed alone. The size
    /// of a memtable makes each a run of its own.
    flush_bytes: u64 = 0
        => bytes(4 * KIB, 4 * GIB).zero("an eighth of memory_budget, at most 64MiB").live().expert();

    /// Size at which a merge starts its next output file.
    file_bytes: u64 = 64 * MIB => bytes(4 * KIB, 4 * GIB).live().expert();

    /// Runs that may cover a key before writers are slowed to what merges drain.
    max_runs: u64 = 64 => count(8, 512).unit("runs").live().expert();

    /// Fixed M/c/q/rho for the policy `arce`, in place of those that it finds: for experiments.
    arce_pin: Option<Pin> = None => text("M/c/q/rho", pin, &["8/24/2/1"]).absent("none").live().expert();

    /// Size of a data block before compression.
    block_bytes: u64 = 4 * KIB => bytes(512, MIB).live().expert();

}

const COMPRESSIONS: &[&str] = &[Compression::None.name(), Compression::Lz4.name(), Compression::Zstd.name()];

/// Whether `value` is a pin.
fn pin(value: &str) -> bool {
    value.parse::<Pin>().is_ok()
}

/// Whether `value` has the form of a policy's name with arguments. Which policies there are is known elsewhere.
fn policy_name(value: &str) -> bool {
    let (name, arguments) = value.split_once(':').unwrap_or((value, "-"));
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let printable = |byte: u8| byte.is_ascii_graphic();
    (1..=32).contains(&name.len())
        && (1..=256).contains(&arguments.len())
        && name.bytes().all(plain)
        && arguments.bytes().all(printable)
}
