//! Write batches: operations on any keyspaces of one store that become visible, and durable, together.

use super::keyspace::Keyspace;
use crate::base::key_range::key_range;
use crate::write::operations::{Operations, Ttl};
use drumlin_types::Kind;
use std::ops::RangeBounds;
use std::time::Duration;

/// Write batch: operations that [`Db::write`](crate::Db::write) commits atomically.
///
/// A batch may span several keyspaces of one store, and holds any number of puts, deletions, range deletions and merges
/// in order. Of several operations on one key the last one wins. Reads do not see them before the write. A batch that
/// is dropped unwritten has no effect. One that is written by reference (`db.write(&batch)`) can be changed or cleared,
/// and be written again.
///
/// The encoded operations ([`Batch::size`]) may take at most a quarter of the option `memory_budget` (128 MiB by
/// default), and at most 4 GiB. A batch has at most 2^24 - 1 operations. Its own memory does not count towards
/// `memory_budget`.
///
/// # Errors
/// The methods that add an operation cannot fail. They remember the first invalid argument, such as a key over 1 MiB,
/// and add nothing from then on; `write` returns its error, mostly `InvalidArgument`, and writes nothing.
/// [`Batch::clear`] forgets it.
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
#[must_use = "nothing is written before `Db::write`"]
#[doc(alias = "WriteBatch")]
pub struct Batch {
    pub(crate) operations: Operations,
}

impl Batch {
    /// Creates an empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Removes all operations. The memory is kept for the next ones.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// let mut batch = drumlin::Batch::new();
    /// for chunk in [["ada", "bob"], ["eve", "zoe"]] {
    ///     batch.clear();
    ///     chunk.iter().for_each(|name| batch.put(&users, name, ""));
    ///     db.write(&batch)?;
    /// }
    /// assert_eq!(users.iter().count(), 4);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
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

    /// Returns the length of the encoded operations in bytes: keys and values, and a few bytes for each operation.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// let mut batch = drumlin::Batch::new();
    /// for number in 0..100_000_u32 {
    ///     batch.put(&users, number.to_be_bytes(), "value");
    ///     if batch.size() > 256 << 10 {
    ///         db.write(std::mem::take(&mut batch))?;
    ///     }
    /// }
    /// db.write(batch)?;
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    pub fn size(&self) -> usize {
        self.operations.size()
    }

    /// Adds a put of `value` under `key`. See [`Batch`] for an example.
    ///
    /// A key has at most 1 MiB. The batch takes at most a quarter of `memory_budget`, and a value has less than 4
    /// GiB. If the keyspace has a time to live (`ttl_seconds`), it counts from this call, not from the write.
    pub fn put(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.operations.put(&keyspace.bounds(), &keyspace.state, key, value, Ttl::Keyspace);
    }

    /// Adds a put of `value` under `key` with a time to live of its own, in place of the keyspace's. `None` lets it
    /// live for ever. The time counts from this call, not from the write, and is at most 100 years.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// let mut batch = drumlin::Batch::new();
    /// batch.put_with_ttl(&users, "ada", "token", std::time::Duration::from_secs(3600));
    /// batch.put_with_ttl(&users, "root", "token", None);
    /// db.write(batch)?;
    /// assert!(users.contains_key("ada")?);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
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
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// let mut batch = drumlin::Batch::new();
    /// batch.delete(&users, "ada");
    /// db.write(batch)?;
    /// assert!(!users.contains_key("ada")?);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) {
        self.operations.delete(&keyspace.bounds(), &keyspace.state, key.as_ref());
    }

    /// Adds a merge of `operand` into the value under `key`, by the keyspace's [merge operator](crate::MergeOperator).
    ///
    /// If the keyspace has a time to live (`ttl_seconds`), the operand expires after that time, or up to 1/64 of it
    /// later. The value that it is merged into keeps its own expiry. Without a merge operator the write fails with
    /// `MergeOperatorMissing`.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let sum = std::sync::Arc::new(drumlin::AddI64::Text);
    /// # let db = drumlin::Db::builder(dir.path()).merge_operator("hits", sum).open()?;
    /// # let hits = db.keyspace("hits")?;
    /// let mut batch = drumlin::Batch::new();
    /// batch.merge(&hits, "home", "1");
    /// batch.merge(&hits, "about", "1");
    /// db.write(batch)?;
    /// assert_eq!(hits.get("home")?.as_deref(), Some(&b"1"[..]));
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    pub fn merge(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        self.operations.merge(&keyspace.bounds(), &keyspace.state, key, operand, Ttl::Keyspace);
    }

    /// Adds a merge of `operand` with a time to live of its own, in place of the keyspace's. `None` lets it live for
    /// ever. The operand expires after that time, or up to 1/64 of it later. The time is at most 100 years.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let sum = std::sync::Arc::new(drumlin::AddI64::Text);
    /// # let db = drumlin::Db::builder(dir.path()).merge_operator("hits", sum).open()?;
    /// # let hits = db.keyspace("hits")?;
    /// let mut batch = drumlin::Batch::new();
    /// batch.merge_with_ttl(&hits, "home", "1", std::time::Duration::from_secs(3600));
    /// db.write(batch)?;
    /// assert_eq!(hits.get("home")?.as_deref(), Some(&b"1"[..]));
    /// # Ok::<(), drumlin::Error>(())
    /// ```
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

    /// Adds a deletion of every key in `range`. A range that is empty, or whose start is after its end, adds nothing.
    ///
    /// It is one operation, whatever the number of keys. It also deletes keys that the same batch has written earlier,
    /// but not those that it writes later. So a batch can replace a range.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// let mut batch = drumlin::Batch::new();
    /// batch.delete_range(&users, "a".."b");
    /// batch.put(&users, "adam", "1973");
    /// db.write(batch)?;
    /// let (key, _) = users.first_key_value()?.expect("one entry");
    /// assert_eq!(&*key, b"adam");
    /// # Ok::<(), drumlin::Error>(())
    /// ```
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
