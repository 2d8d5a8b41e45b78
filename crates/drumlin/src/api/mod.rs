//! Public handles: the store, keyspaces, batches and snapshots. They only delegate; the operations are in `ops`.
//!
//! ```text
//! Db, Keyspace, Batch, Snapshot  ──>  OpenStore (closes on drop)  ──>  operations on the open store (`ops`)
//! ```

pub(crate) mod batch;
pub(crate) mod db;
pub(crate) mod keyspace;
pub(crate) mod open_store;
pub(crate) mod snapshot;
