//! Drumlin is an embedded, ordered, durable key-value store: an LSM tree whose compaction adapts to the workload.
//!
//! ```
//! # fn main() -> drumlin::Result<()> {
//! # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
//! let db = drumlin::Db::open(dir.path())?;
//! let users = db.keyspace("users")?;
//! users.put("ada", "1815")?;
//! assert_eq!(users.get("ada")?.as_deref(), Some(&b"1815"[..]));
//!
//! let mut batch = drumlin::Batch::new();
//! batch.put(&users, "grace", "1906");
//! batch.delete(&users, "ada");
//! db.write_with(batch, drumlin::Durability::Sync)?;
//!
//! for entry in users.range("a".."n") {
//!     let (key, value) = entry?;
//!     assert_eq!((&*key, &*value), (&b"grace"[..], &b"1906"[..]));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! - [`Db`] is an open store in a directory. [`Keyspace`] is an ordered map in it, like a column family.
//! - [`Batch`] writes to several keyspaces atomically. [`Snapshot`] and [`Iter`] read one state of the store.
//! - [`Durability`] sets what a write survives: by default a crash of the process, with `Sync` also power loss.
//! - [`MergeOperator`] combines operands with a value without reading it first.
//! - [`Options`] and [`KeyspaceOptions`] list the options with their defaults and bounds.
//! - [`Metrics`] and [`KeyspaceMetrics`] count the work. [`Event`] reports background errors and other events to an
//!   [`EventListener`].
//! - Every fallible call returns an [`Error`] with an [`ErrorKind`] and, where there is one, the file and offset.
//!   Error texts never contain keys or values.
//! - [`repair`] copies what is readable in a damaged store into a new one.
//!
//! # What to know first
//!
//! - **Status.** Version 0.1: the file format may change without an upgrade path. Do not keep the only copy of your
//!   data in a store. Drumlin needs Rust 1.95 and a C compiler.
//! - **Durability.** A write survives a crash of the process, but by default not power loss. Write with
//!   [`Durability::Sync`], or call [`Db::sync`], for that.
//! - **Limits.** A key has 0 bytes to 1 MiB, and keys are ordered bytewise. A value has less than 4 GiB. A value or
//!   batch takes at most a quarter of the option `memory_budget`: 128 MiB by default.
//! - **Close.** [`Db::close`] closes a store and returns errors. Dropping its last handle closes it too, and ignores
//!   them. After a crash, the next open recovers the log.
//! - **Blocking.** All calls block. Writes wait when flushes or compactions cannot keep up; the option
//!   `write_timeout_ms` bounds that. Reads do not wait for writes.
//! - **Threads.** [`Db`], [`Keyspace`] and [`Snapshot`] can be shared between threads. A store starts threads of its
//!   own: three, and one for each compaction slot. [`Db`] tells how many slots there are.
//! - **Processes.** One process at a time can open a store for writing. Without a writer, several can open it
//!   [read-only](Builder::read_only).
//! - **Memory.** The option `memory_budget`, 512 MiB by default, bounds memtables, the block cache, and the buffers of
//!   flushes and compactions. [`Options::memory_budget`] says what it does not include.
//! - **Disk.** A store takes its tables, value files, a log, and a few MiB besides. The log consists of preallocated
//!   segments (RocksDB: WAL files) of max(16 MiB, 3/256 of `memory_budget`), at most a sixteenth of `disk_budget`. An
//!   empty store has one segment. The log usually stays below max(3/4 of `memory_budget`, 4 segments). A compaction
//!   needs space for its output before its input is removed. The option `disk_budget` bounds tables, value files and
//!   log together.
//! - **Files.** A store keeps at most 4096 tables open, and at most half of the files that the process may have open
//!   (`ulimit -n`). It keeps at most 256 value files open, and at most an eighth of that limit.
//! - **Full disk.** Writes fail with [`ErrorKind::NoSpace`], and nothing of them is written. Reads work, and writes
//!   work again once there is space.
//! - **File systems.** Drumlin is developed and tested on Linux. On ext4, XFS and tmpfs it writes the log through a
//!   memory mapping: if another program truncates a log segment of an open store, the process gets `SIGBUS`. On other
//!   file systems a full disk may stop all writes until the store is reopened.
//! - **Failed sync.** If the log or the manifest cannot be written or synced, or a background thread panics, all writes
//!   fail with [`ErrorKind::Poisoned`] until the store is reopened. Reads work.
//! - **Backup.** [`Db::checkpoint`] makes a consistent copy of an open store, which shares tables with it: copy it to
//!   another disk. [`Db::verify`] checks a store.
//! - **Not supported:** transactions with conflict detection, other key orders than bytewise, compaction filters, reads
//!   by one process while another one writes, prefix filters, options of a single read (such as `fill_cache`), tailing
//!   of the log, replication, several disks for one store, a cache or memory budget that several stores share, user
//!   timestamps, encryption, and a C interface.
//!
//! # Coming from RocksDB
//!
//! | RocksDB | Drumlin |
//! |---|---|
//! | column family | [`Keyspace`] |
//! | `WriteBatch`, `WriteOptions::sync`, `disableWAL` | [`Batch`], [`Durability::Sync`], [`Durability::None`] |
//! | `flush_wal(true)` | [`Db::sync`] |
//! | raw iterator, `Seek` | [`RangeCursor`], [`seek`](RangeCursor::seek) |
//! | `SeekForPrev` | [`seek_before`](RangeCursor::seek_before), which is strictly before |
//! | `write_buffer_size`, block cache | options `memtable_bytes` and `memory_budget`, which covers both |
//! | `max_background_jobs`, `max_subcompactions` | option `compaction_slots`, a limit on running subcompactions |
//! | compaction style | option `compaction`: `arce`, `1-leveling` (level), `universal` and others |
//! | `level0_slowdown_writes_trigger` | 3/4 of the option `max_runs`, or fewer (policy `arce`) |
//! | `level0_stop_writes_trigger` | option `max_runs` + 8 (policy `arce`) |
//! | `use_direct_reads` | option `table_reads` |
//! | `CompactRange`, `Checkpoint`, `RepairDB` | [`Keyspace::compact`], [`Db::checkpoint`], [`repair`] |
//! | `DBWithTTL` | option `ttl_seconds`, [`Keyspace::put_with_ttl`] |
//! | BlobDB: `enable_blob_files`, `min_blob_size` | option `value_threshold`; value files end in `.val` |
//! | `blob_compression_type` | option `compression` |
//! | `blob_garbage_collection_age_cutoff` | option `value_space_target`, which goes by garbage instead of age |
//! | `blob_garbage_collection_force_threshold` | option `value_space_target`: compactions start for it |
//! | `blob_cache` | the block cache, for values of up to 64 KiB that lookups read; metric `value_cache_hits` |
//! | TransactionDB, SST ingestion, backup engine | not supported yet |
//!
//! # Compaction policies
//!
//! | option `compaction` | shape of the tree |
//! |---|---|
//! | `arce` | none; the default |
//! | `1-leveling:dynamic` | RocksDB's leveled compaction, with `level_compaction_dynamic_level_bytes` |
//! | `1-leveling` | the same without that option: level 1 holds 256 MiB; with `:static`, ten flushes |
//! | `universal` | RocksDB's universal compaction |
//! | `leveling:T` | one run in each level; a level is T times larger than the one above |
//! | `tiering:T` | up to T runs in each level; a level is T times larger than the one above |
//! | `lazy-leveling:T` | up to T runs in each level, one run in the last |
//! | `fluid:r/K` | size ratio r and at most K runs for each level (Moose) |
//! | `ucs:w` | Cassandra's unified compaction: leveled for w < 0, tiered otherwise; 0 is the default |
//! | `adaptive-ucs` | the same, and the load chooses w |
//! | `vertiorizon`, `horizontal-..` | growth by schedules (Vertiorizon) |
//!
//! # Features
//!
//! With the feature `serde`, reports such as [`Metrics`] and [`VerifyReport`] implement `serde::Serialize`. The feature
//! `experiments` is for tests and measurements: it adds the policy `chaos`, arguments of `arce` that switch parts of it
//! off, and the option `arce_pin`. The feature `testing` is for tests of programs that embed Drumlin: it adds the
//! module `env`, with a simulated disk, clock and faults, and calls that use it. None is on by default.
//!
//! The folder `examples` of the crate has a counter, a secondary index, a queue, a time series and a backup.
//! `ARCHITECTURE.md` in the repository describes the modules and the imports allowed between them.

mod api;
mod background;
mod base;
mod compaction;
mod disk;
mod filter;
mod jobs;
mod keyspace;
mod memtable;
#[cfg(all(test, shuttle))]
mod models;
mod ops;
mod options;
mod read;
mod recovery;
mod repair;
mod stats;
mod store;
mod table;
mod value;
mod version;
mod write;

/// Environment in which a store works: the operating system, or a simulated one for tests. Needs the feature `testing`.
///
/// Programs need little of it: [`MemEnv`](env::MemEnv) for tests that simulate a full disk or power loss, and
/// [`TempDir`](env::TempDir). The rest is what the engine itself uses.
#[cfg(feature = "testing")]
pub mod env {
    pub use drumlin_env::*;
}

pub use api::batch::Batch;
pub use api::db::{Builder, Db};
pub use api::keyspace::Keyspace;
pub use api::snapshot::Snapshot;
pub use base::decisions::{DecisionRecord, ReplayReport};
pub use base::error::{Error, ErrorKind, Result};
pub use base::event::{Event, EventListener, StallCause};
pub use base::keyspace_metrics::KeyspaceMetrics;
pub use base::latency::LatencyHistogram;
pub use base::merge_operator::{AddI64, Append, MergeOperator};
pub use base::metrics::Metrics;
pub use base::slice::Slice;
pub use drumlin_types::Seq;
pub use ops::iter::Iter;
#[cfg(feature = "testing")]
pub use ops::probed::ProbedTable;
pub use ops::range_cursor::RangeCursor;
pub use ops::shape::{FileRole, FileShape, KeyspaceShape, LevelShape, RunShape, ValueFileShape};
pub use ops::verify::{Finding, VerifyReport};
pub use options::{
    Adaptation, Compression, Durability, FilterMode, KeyspaceOptions, KeyspaceSettings, OptionDef, Options,
    Pipeline, Scope as OptionScope, Shape as OptionShape, TableReads, ValuePolicy, options_help,
    options_markdown,
};
#[cfg(feature = "testing")]
pub use repair::repair_in;
pub use repair::{RepairProgress, RepairReport, RepairedFile, RepairedKeyspace, repair, repair_with};
