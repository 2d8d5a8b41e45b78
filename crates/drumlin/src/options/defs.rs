//! The list of all options. To add an option, add its entry here and implement it. `cargo xtask bless -p drumlin --lib
//! the_documentation_is_up_to_date` then rewrites `docs/options.md`.
//!
//! An entry is a doc comment and `name: type = default => shape.flags();`. The doc comment is also the help text, so
//! its first sentence says what the option does. There are at most about twenty public options. All others are marked
//! `expert`: few programs need them, and experiments set them to match other engines. An option that no program needs
//! is marked `experiment` and has a `cfg`: only builds with the feature `experiments` have it. It gets a row in
//! `derived::EXPERIMENTS`.

use super::macros::settings;
use super::registry::{OptionSet, bytes, count, names, ratio, text};
use super::values::{Adaptation, Durability, FilterMode, Pipeline, TableReads, ValuePolicy};
use drumlin_format::compression::Compression;
#[cfg(feature = "experiments")]
use drumlin_types::contract::Pin;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

settings! {
    /// Options of a store. [`Builder::options`](crate::Builder::options) and [`Builder::set`](crate::Builder::set) set
    /// them at open, and [`Db::set_option`](crate::Db::set_option) sets some of them later.
    ///
    /// ```
    /// let mut options = drumlin::Options::default();
    /// options.memory_budget = 64 << 20;
    /// options.set("disk_budget", "10GiB")?;
    /// assert_eq!(options.get("memory_budget")?, "64MiB");
    /// options.validate()?;
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    Options, Store, others <KeyspaceOptions as OptionSet>::DEFS;

    /// Memory budget of the store: memtables, block cache (with filters, indexes, and values of value files), open
    /// tables, metadata of each file, and buffers of flushes and compactions. With many files, less memory is left for
    /// cached blocks, and fewer tables stay open. Writes wait when memtables use three eighths of it, and batches that
    /// only delete when they use 27/64. A value or batch larger than a quarter of it is refused. Not part of it:
    /// the read-ahead of iterators, up to 256 KiB for each iterator and run and 1 MiB for values in value files,
    /// memtables that iterators and cursors still read, batches that are not written yet, values that the program
    /// holds, and the page cache of the operating system. Log segments that are written through memory maps are in the
    /// page cache, but count in the resident memory of the process.
    memory_budget: u64 = 512 * MIB => bytes(8 * MIB, 1024 * TIB);

    /// Upper bound on the disk space of tables, value files and log segments. The store treats a used-up budget like a
    /// full disk: compactions wait and writes fail before they exceed it. Then deletions are still accepted, and
    /// compactions free what was overwritten or deleted. A log segment takes at most a sixteenth of it.
    disk_budget: u64 = 0 => bytes(MIB, 1024 * TIB).zero("no limit").live().alters_answers();

    /// Upper bound on the bytes that compactions write per second. Flushes count towards it but never wait for it.
    /// When runs pile up, write throttling assumes that compactions reach no more than this rate.
    background_rate: u64 = 0 => bytes(MIB, TIB).zero("no limit").unit("bytes/s").live();

    /// Default durability of writes that name none. With `none` no log is written, only flushed data survives a close
    /// or the end of the process, and a batch may not span keyspaces. `buffered` writes survive the end of the process
    /// but not power loss, and `sync` writes survive power loss.
    durability: Durability = Durability::Buffered => names(Durability::NAMES).live();

    /// Number of compaction slots, the limit on subcompactions that run at the same time.
    compaction_slots: u64 = 0 => count(1, 64).zero("tuned by measurement").expert();

    /// Concurrency mode of compactions. `pipelined` runs any legal compaction at any time. `split` and `unsplit` are
    /// for comparisons: compactions of overlapping files exclude each other, and each is installed as a whole.
    /// `unsplit` also runs each compaction on one thread.
    pipeline: Pipeline = Pipeline::Pipelined => names(Pipeline::NAMES).expert();

    /// Size of a log segment. With a large `memory_budget` segments are larger, so that there are at most about 64. A
    /// segment takes at most a sixteenth of `disk_budget`. Segments are preallocated and recycled. The live log may
    /// take three quarters of `memory_budget`, at most 64 GiB, or four segments if that is more.
    log_segment_bytes: u64 = 16 * MIB => bytes(64 * KIB, GIB).expert();

    /// How tables are read. `buffered` reads use the page cache of the operating system. `direct` reads bypass it where
    /// the file system allows that. Reads of value files are always buffered.
    table_reads: TableReads = TableReads::Buffered => names(TableReads::NAMES).expert();

    /// Longest time that a write waits for compactions or memory before it fails with `Busy`.
    write_timeout_ms: u64 = 0
        => count(1, 86_400_000).zero("no limit").unit("ms").live().expert().alters_answers();

}

settings! {
    /// Options of a keyspace. [`Db::keyspace_with`](crate::Db::keyspace_with) and
    /// [`Keyspace::set_option`](crate::Keyspace::set_option) set them by name. To apply a value of this type, pass its
    /// `pairs()` to `keyspace_with`.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// let mut options = drumlin::KeyspaceOptions::default();
    /// options.set("compression", "zstd")?;
    /// let pairs = options.pairs();
    /// let pairs: Vec<(&str, &str)> = pairs.iter().map(|(name, value)| (&**name, &**value)).collect();
    /// let users = db.keyspace_with("users", &pairs)?;
    /// assert!(users.options().contains(&("compression", "zstd".to_owned())));
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    KeyspaceOptions, Keyspace, others <Options as OptionSet>::DEFS;

    /// Compaction policy with its arguments, such as `leveling:10`. `arce` follows the load. `leveling`, `1-leveling`,
    /// `tiering`, `lazy-leveling`, `fluid`, `universal`, `ucs` and `adaptive-ucs` follow published designs. A change
    /// replaces the policy at once. No policy changes the results of reads. `leveling`, `tiering` and `lazy-leveling`
    /// take a size ratio T of 2 to 100 (default 10), `1-leveling` takes `static`, `dynamic` or T, `ucs` takes w
    /// (default 0), `fluid` takes r/K, and `arce` takes fixed parameters M/c/q/rho. All of these but `arce` also take a
    /// last argument `hard-stop`: writes stop at the limit of runs instead of 8 runs above it. With `1-leveling`, level
    /// 1 holds 256 MiB; with `static`, ten flushes; with `dynamic`, sizes follow the last level, as with RocksDB's
    /// `level_compaction_dynamic_level_bytes`. `vertiorizon:S/w`, `horizontal-leveling:l/S`, `horizontal-tiering:l/S`
    /// and `horizontal-lazy:T/L` schedule the compactions of many flushes (a cycle) in advance. S is a target for space
    /// amplification (1.05 to 2, default 1.15), and w a fixed weight of reads (default: measured). With
    /// `horizontal-leveling` a cycle has at most l runs (1 to 5, default 2); with
    /// `horizontal-tiering` a cycle writes each flushed byte at most l times (2 to 5, default 2). T is the size ratio
    /// (2 to 32, default 6) and L the number of levels (2 to 6, default 3). `vertiorizon:paper` is the published
    /// scheme, for comparison.
    compaction: String = "arce".to_owned() => text("name or name:arguments", policy_name, &["1-leveling"]).live();

    /// Whether the policy tunes itself to the load. `frozen` keeps the tuning that it has found and stops learning. It
    /// also keeps the price of filter bits, and no further filters are bypassed. While any keyspace is frozen,
    /// the number of compaction slots of the store stays fixed too.
    adaptation: Adaptation = Adaptation::On => names(Adaptation::NAMES).live();

    /// Rate of the rewrite budget of the policy `arce`. `arce` runs two kinds of compactions: required ones, which
    /// limit the sorted runs, and optional ones, which only make reads cheaper. The budget limits the bytes that
    /// optional ones rewrite. It grows by this many bytes for each flushed byte, by the size of the tree per day, and
    /// by a quarter byte for each byte that reads fetch from the device. It holds at most twice the size of the tree.
    /// It is not a limit on the total write amplification: required compactions ignore it, and so do other policies.
    max_write_amp: f64 = 20.0 => ratio(3.0, 1000.0).live();

    /// Time to live of values and merge operands. Each value expires at this age, and each operand at this age or up to
    /// 1/64 later. Applies to entries that are written after the change. Time is the system clock, which the store
    /// never lets go back: if the clock was once far ahead, values that are written later expire late, until real time
    /// catches up.
    ttl_seconds: u64 = 0
        => count(1, 3_153_600_000).zero("nothing expires").unit("s").live().alters_answers();

    /// Compression of table blocks, and of each value in a value file. Applies to files that are written after the
    /// change; values that are copied between value files stay as they are.
    compression: Compression = Compression::Lz4 => names(COMPRESSIONS).live();

    /// Compression of table blocks in the bottom level, which holds most of the data and is rarely rewritten. `same`
    /// uses the option `compression`. Applies to tables that are written after the change, not to value files.
    compression_bottom: Option<Compression> = None => names(COMPRESSIONS).absent("same").live();

    /// Bits per key of the table filters on average, with which lookups skip tables that lack the key. `auto` uses 10
    /// bits, or fewer so that all filters together take about a quarter of `memory_budget`; all keyspaces with `auto`
    /// share one budget. 0 builds no filters. Applies to files that are written after the change.
    filter_bits: Option<f64> = None => ratio(0.0, 16.0).absent("auto").unit("bits/key").live().expert();

    /// How the filter bits are divided over tables. `uniform` gives each table the average. `mnemosyne+` gives more to
    /// tables that many lookups probe without finding their key, and to small ones, and builds Ribbon filters where
    /// lookups repay them. `mnemosyne` goes by the actual sizes of tables, `monkey` by the target sizes of the policy's
    /// levels; `monkey-dynamic` is an alias of `mnemosyne` for now. A new table may raise the average of all tables to
    /// at most `filter_bits` + 1 (if `auto` chose fewer than 5 bits, to 1.2 times its choice); small filters are
    /// rounded up to 64 bytes. Applies to files that are written after the change.
    filter_mode: FilterMode = FilterMode::MnemosynePlus => names(FilterMode::NAMES).live().expert();

    /// Size at which a memtable becomes immutable and is flushed. At most three sixteenths of `memory_budget`; a larger
    /// value has the effect of that.
    memtable_bytes: u64 = 0
        => bytes(4 * KIB, 4 * GIB).zero("an eighth of memory_budget, at most 64MiB").live().expert();

    /// Upper bound on the total size of immutable memtables that one flush writes as one run. A larger memtable is
    /// flushed alone. Set this to `memtable_bytes` to flush each memtable as its own run.
    flush_bytes: u64 = 0
        => bytes(4 * KIB, 4 * GIB).zero("an eighth of memory_budget, at most 64MiB").live().expert();

    /// Size at which a compaction starts its next output file. A flush may write larger files. With a small
    /// `disk_budget`, files are smaller.
    file_bytes: u64 = 64 * MIB => bytes(4 * KIB, 4 * GIB).live().expert();

    /// Maximum number of sorted runs that overlap one key (read amplification) under the policy `arce`. The policy may
    /// slow writes earlier, from a number of runs that it tunes. From three quarters of this limit on, writes are
    /// slowed to the rate at which compactions reduce the runs. At the limit plus 8 they stop. Other policies have
    /// limits of their own. This applies to the whole store: one keyspace near its limit slows writes to all.
    max_runs: u64 = 64 => count(8, 512).unit("runs").live().expert();

    /// Fixed parameters M/c/q/rho for the policy `arce`, in place of the values that it tunes. For experiments.
    #[cfg(feature = "experiments")]
    arce_pin: Option<Pin> = None
        => text("M/c/q/rho", pin, &["8/24/2/1"]).absent("none").live().expert().experiment();

    /// Smallest value, in bytes before compression, that flushes and compactions store in a value file (a blob file in
    /// RocksDB), apart from its key. Compactions then move a pointer of a few dozen bytes; a lookup reads the value
    /// with one more read, unless the block cache has it. Values that are in value files stay there, whatever the
    /// option becomes. Values with a time to live and merge operands stay with their keys; a value that operands were
    /// merged into is written anew.
    value_threshold: u64 = 0 => bytes(1, u32::MAX as u64).zero("no more value files").live().expert();

    /// Target for the space factor of the keyspace's value files: stored bytes of their values for each such byte that
    /// tables point to. If values take more, compactions start: one merges all tables of the keyspace to find
    /// overwritten values, one rewrites the tables that point to files with much garbage and copies their values to new
    /// files. Each starts only if the bytes above the target are at least 1/64 of all value bytes, and at least a
    /// quarter of the table bytes that it rewrites (for overwrites that are only suspected, all of them). At most
    /// 1/(target - 1) bytes are copied for each byte that flushes write to value files: 2 at the default. Failed
    /// compactions are not counted. Values take more than the target while a compaction runs, while a snapshot sees old
    /// versions, without free disk space, and in files with damaged values.
    value_space_target: f64 = 1.5 => ratio(1.05, 10.0).live().expert();

    /// How values are grouped into value files, and which value files are collected first. `lifetimes` predicts when
    /// each value will be overwritten and writes values with similar predictions to the same file, so that collection
    /// copies less. A flush or compaction then writes up to six value files at a time. The predictions come from the
    /// mean interval between the writes of a key, or from a model that the store trains while it is open, whichever was
    /// more accurate lately; both take at most 3 % of `memory_budget`. Old files with much garbage are collected first.
    /// `mean-interval`: the same without the model. `garbage-ratio`: one file at a time, and the file with the largest
    /// share of garbage first; flushes take less CPU time. The grouping applies to values that are written after the
    /// change, the order of collection at once.
    value_policy: ValuePolicy = ValuePolicy::Lifetimes => names(ValuePolicy::NAMES).live().expert();

    /// Size of a data block before compression. Applies to files that are written after the change.
    block_bytes: u64 = 4 * KIB => bytes(512, MIB).live().expert();

}

const COMPRESSIONS: &[&str] = &[Compression::None.name(), Compression::Lz4.name(), Compression::Zstd.name()];

/// Returns whether `value` is a valid value of `arce_pin`.
#[cfg(feature = "experiments")]
fn pin(value: &str) -> bool {
    value.parse::<Pin>().is_ok()
}

/// Returns whether `value` has the form of a policy's name with arguments. It does not check that the policy exists.
fn policy_name(value: &str) -> bool {
    let (name, arguments) = value.split_once(':').unwrap_or((value, "-"));
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let printable = |byte: u8| byte.is_ascii_graphic();
    (1..=32).contains(&name.len())
        && (1..=256).contains(&arguments.len())
        && name.bytes().all(plain)
        && arguments.bytes().all(printable)
}
