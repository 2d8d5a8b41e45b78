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
//! - [`Durability`] sets what a write survives: by default the end of the process, with `Sync` also power loss.
//! - [`MergeOperator`] combines operands with a value without reading it first.
//! - [`Event`] reports background errors and other events to an [`EventListener`].
//! - Every fallible call returns an [`Error`] with an [`ErrorKind`] and, where there is one, the file and offset.
//!   Error texts never contain keys or values.
//! - [`repair`] copies what is readable in a damaged store into a new one.
//!
//! With the feature `serde`, reports such as [`Metrics`] and [`VerifyReport`] implement `serde::Serialize`. The feature
//! `testing` is for tests of programs that embed Drumlin: it adds the module `env`, with a simulated disk, clock and
//! faults, and calls that use it.
//! The feature `experiments` is for tests and measurements: it adds the policy `chaos`, arguments of `arce` that switch
//! parts of it off, and the option `arce_pin`.
//!
//! All calls block. [`Db`], [`Keyspace`] and [`Snapshot`] can be shared between threads. `docs/options.md` lists the
//! options with their units and bounds. `ARCHITECTURE.md` describes the modules and the imports allowed between them.

mod api;
mod background;
mod base;
mod compaction;
mod disk;
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
mod version;
mod write;

/// Environment in which a store works: the operating system, or a simulated one for tests. Needs the feature `testing`.
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
pub use base::slice::Slice as Value;
pub use ops::iter::Iter;
pub use ops::range_cursor::RangeCursor;
pub use ops::shape::{FileShape, KeyspaceShape, LevelShape, RunShape};
pub use ops::verify::{Finding, VerifyReport};
pub use options::{
    Adaptation, Compression, Durability, KeyspaceOptions, OptionDef, Options, Pipeline, Scope as OptionScope,
    Shape as OptionShape, TableReads, options_help, options_markdown,
};
#[cfg(feature = "testing")]
pub use repair::repair_in;
pub use repair::{RepairProgress, RepairReport, RepairedFile, RepairedKeyspace, repair, repair_with};
