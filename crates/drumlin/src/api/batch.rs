//! Write batches: operations on any keyspaces of one store that become visible, and durable, together.

use super::keyspace::Keyspace;
use crate::base::key_range::key_range;
use crate::write::operations::{Operations, Ttl};
use drumlin_types::Kind;
use std::ops::RangeBounds;
use std::time::Duration;

/// Write batch: operations that [`Db::write`](crate::Db::write) commits atomically.
///
/// The keyspaces of a batch must belong to the store that writes it. Of several operations on one key the last one
/// wins. The encoded operations ([`Batch::size`]) may take at most a quarter of the option `memory_budget`.
///
/// The methods that add an operation cannot fail. They remember an invalid argument, such as a key over 1 MiB;
/// `write` then returns `InvalidArgument` and writes nothing.
///
/// ```
/// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
/// # let db = drumlin::Db::open(dir.path())?;
/// let (users, years) = (db.keyspace("users")?, db.keyspace("years")?);
/// let mut batch = drumlin::Batch::new();
/// batch.put(&users, "ada", "1815");
/// batch.put(&years, "1815", "ada");
/// db.write(batch)?;
/// # assert!(years.contains_key("1815")?);
/// # Ok::<(), drumlin::Error>(())
/// ```
#[derive(Default)]
pub struct Batch {
    pub(crate) operations: Operations,
}

impl Batch {
    /// Creates an empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Removes all operations. The memory is kept for the next ones.
    pub fn clear(&mut self) {
        self.operations.clear(usize::MAX);
    }

    /// Returns the number of operations.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Returns whether the batch has no operations.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Returns the length of the encoded operations in bytes.
    pub fn size(&self) -> usize {
        self.operations.size()
    }

    /// Adds a put of `value` under `key`.
    ///
    /// A key has at most 1 MiB. The batch takes at most a quarter of `memory_budget`, and a value has less than 4
    /// GiB. If the keyspace has a time to live (`ttl_seconds`), it counts from this call, not from the write.
    pub fn put(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.operations.put(&keyspace.bounds(), &keyspace.state, key, value, Ttl::Keyspace);
    }

    /// Adds a put of `value` under `key` with a time to live of its own, in place of the keyspace's. `None` lets it
    /// live for ever. It counts from this call, not from the write, and is at most 100 years.
    pub fn put_with_ttl(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Option<Duration>>,
    ) {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.operations.put(&keyspace.bounds(), &keyspace.state, key, value, ttl.into().into());
    }

    /// Adds a deletion of `key`. The key need not exist.
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) {
        self.operations.delete(&keyspace.bounds(), &keyspace.state, key.as_ref());
    }

    /// Adds a merge of `operand` into the value under `key`, by the keyspace's [merge operator](crate::MergeOperator).
    ///
    /// If the keyspace has a time to live (`ttl_seconds`), the operand expires after that time, or up to 1/64 of it
    /// later. The value that it is merged into keeps its own expiry. Without a merge operator the write fails with
    /// `InvalidArgument`.
    pub fn merge(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        self.operations.merge(&keyspace.bounds(), &keyspace.state, key, operand, Ttl::Keyspace);
    }

    /// Adds a merge of `operand` with a time to live of its own, in place of the keyspace's. `None` lets it live for
    /// ever. It expires after that time, or up to 1/64 of it later.
    pub fn merge_with_ttl(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        ttl: impl Into<Option<Duration>>,
    ) {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        self.operations.merge(&keyspace.bounds(), &keyspace.state, key, operand, ttl.into().into());
    }

    /// Adds a deletion of every key in `range`. An empty range deletes nothing.
    ///
    /// It is one operation, whatever the number of keys. It deletes keys written earlier in the same batch, too.
    pub fn delete_range<K: AsRef<[u8]>>(&mut self, keyspace: &Keyspace, range: impl RangeBounds<K>) {
        self.operations.delete_range(&keyspace.bounds(), &keyspace.state, &key_range(range));
    }

    /// Adds an entry in its stored form, including its expiry. Repair uses it.
    pub(crate) fn restore(&mut self, keyspace: &Keyspace, kind: Kind, key: &[u8], value: &[u8]) {
        self.operations.add(&keyspace.bounds(), &keyspace.state, kind, key, value);
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batch({} operations, {} bytes)", self.len(), self.size())
    }
}
