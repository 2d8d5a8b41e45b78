//! The list of all options. To add one, add its entry here, obey it, and run the tests with
//! `DRUMLIN_BLESS=1`, which rewrites `docs/options.md`.
//!
//! An entry: doc comment, `name: type = default => shape.flags();`. The doc comment is also the help text, so
//! its first sentence says what the option does. Public options come first; at most about twenty are
//! public, the rest is marked `expert`: what an experiment needs to match another engine.

use super::registry::{bytes, count, flag, names, ratio, settings, text};
use super::{Compression, Durability};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
/// "No bound of ours".
const ANY: u64 = u64::MAX;

settings! {
    /// Settings of a store.
    Options, Store;

    /// Memory of the store in all: memtables, block cache, filters and indexes.
    memory_budget: u64 = 512 * MIB => bytes(8 * MIB, 1024 * TIB).live();

    /// Disk space of the store in all. Merges that would exceed it wait, then writes fail with `NoSpace`.
    disk_budget: Option<u64> = None => bytes(64 * MIB, ANY).absent("none").live().alters_answers();

    /// What a write survives that does not say so itself.
    durability: Durability = Durability::Buffered => names(Durability::NAMES).live();

    /// Limit on the bytes per second that flushes, merges and collections read and write together.
    background_io_rate: u64 = 0 => bytes(MIB, TIB).zero("no limit").unit("bytes/s").live();

    /// Longest time that buffered writes stay unsynced.
    sync_interval_ms: u64 = 0 => count(1, 86_400_000).zero("until `sync` is called").unit("ms").live();

    /// Merges and collections that may run at the same time.
    workers: u64 = 0 => count(1, 64).zero("from the number of cores").live().expert();

    /// Size of a log segment. Segments are preallocated and recycled.
    log_segment_bytes: u64 = 16 * MIB => bytes(64 * KIB, GIB).expert();

    /// Longest time that a write waits for merges or memory before it fails with `Busy`.
    write_timeout_ms: u64 = 0
        => count(1, 86_400_000).zero("as long as it takes").unit("ms").live().expert().alters_answers();

    /// Check shape, recency and equal answers of the tree each time a plan is installed. Slow: for tests.
    paranoid_checks: bool = false => flag().live().expert();
}

settings! {
    /// Settings of a keyspace.
    KeyspaceOptions, Keyspace;

    /// The policy that decides what is merged when, with its arguments.
    compaction: String = "1-leveling".to_owned() => text("name or name:arguments", policy_name, &["1-leveling"]).live();

    /// Bytes that merges may write per byte that users write, in the long run.
    max_write_amp: f64 = 20.0 => ratio(3.0, 1000.0).unit("bytes/byte").live();

    /// Age at which a value ends by itself. Acts on values put from then on.
    ttl_seconds: u64 = 0
        => count(1, 3_153_600_000).zero("values do not end").unit("s").live().alters_answers();

    /// Compression of table blocks and separated values. Acts on files written from then on.
    compression: Compression = Compression::Lz4 => names(COMPRESSIONS).live();

    /// Compression of files in the bottom level, which are the bulk of the store and rarely rewritten.
    compression_bottom: Option<Compression> = None => names(COMPRESSIONS).absent("same").live();

    /// Values of at least this length are kept in value files, apart from the tree.
    value_threshold: Option<u64> = None => bytes(0, u32::MAX as u64).absent("off").live();

    /// Bits per key of the filters that spare lookups useless reads; 0 builds none.
    filter_bits: Option<f64> = None => ratio(0.0, 16.0).absent("auto").unit("bits/key").live().expert();

    /// Bytes of a memtable at which it is sealed and flushed.
    memtable_bytes: u64 = 0
        => bytes(4 * KIB, 4 * GIB).zero("an eighth of memory_budget, at most 64MiB").live().expert();

    /// Size at which a merge starts its next output file.
    file_bytes: u64 = 64 * MIB => bytes(4 * KIB, 4 * GIB).live().expert();

    /// Size of a data block before compression.
    block_bytes: u64 = 4 * KIB => bytes(512, MIB).live().expert();

    /// Runs at which writers wait for merges.
    max_runs: u64 = 64 => count(8, 512).live().expert();
}

const COMPRESSIONS: &[&str] = &[Compression::None.name(), Compression::Lz4.name(), Compression::Zstd.name()];

/// Whether `value` has the form of a policy's name with arguments. Which policies there are is known
/// elsewhere.
fn policy_name(value: &str) -> bool {
    let (name, arguments) = value.split_once(':').unwrap_or((value, "-"));
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let printable = |byte: u8| byte.is_ascii_graphic();
    (1..=32).contains(&name.len())
        && (1..=256).contains(&arguments.len())
        && name.bytes().all(plain)
        && arguments.bytes().all(printable)
}
