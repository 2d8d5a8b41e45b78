//! Drumlin: an embedded, ordered, durable key-value store whose tree reshapes itself to its workload.
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
//! - [`Db`] opens a directory; [`Keyspace`] is an ordered map in it; [`Batch`] writes to several at once;
//!   [`Snapshot`] and [`Iter`] read one moment.
//! - [`Durability`] says what a write survives; the default is a crash of the process.
//! - [`MergeOperator`] gives blind read-modify-write.
//! - Every fallible call returns [`Error`], with an [`ErrorKind`], the file and the offset.
//!
//! The modules and what they may know of each other are in `ARCHITECTURE.md`.

mod access;
mod admin;
mod background;
mod batch;
mod checkpoint;
mod commit;
mod compaction;
mod cursor;
mod db;
mod decisions;
mod durable;
mod error;
mod event;
mod explain;
mod flush;
mod iter;
mod keyspace;
mod lookup;
mod memory;
mod memtable;
mod merge_operator;
mod metrics;
mod multi_get;
mod options;
mod pacing;
mod range_cursor;
mod rangedel;
mod read;
mod ready;
mod recovery;
mod repair;
mod room;
mod scan;
mod search;
mod shape;
mod slice;
mod snapshot;
mod stats;
mod store;
mod table;
mod verify;
mod version;
mod write;

/// The environment that a store works in: the operating system, or a simulated one for tests.
pub mod env {
    pub use drumlin_env::*;
}

pub use batch::Batch;
pub use db::{Builder, Db};
pub use decisions::{DecisionRecord, ReplayReport};
pub use error::{Error, ErrorKind, Result};
pub use event::{Event, EventListener};
pub use iter::Iter;
pub use keyspace::{Keyspace, Snapshot};
pub use merge_operator::{AddI64, Append, MergeOperator};
pub use metrics::Metrics;
pub use options::{
    Adaptation, Compression, Durability, KeyspaceOptions, OptionDef, Options, Pipeline, Scope as OptionScope,
    Shape as OptionShape, TableReads, options_help, options_markdown,
};
pub use range_cursor::RangeCursor;
pub use repair::{RepairReport, repair};
pub use shape::{FileShape, KeyspaceShape, LevelShape, RunShape};
pub use slice::Slice;
pub use slice::Slice as Value;
pub use verify::{Finding, VerifyReport};
