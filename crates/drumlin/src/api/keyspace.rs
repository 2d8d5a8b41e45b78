//! Handle of a keyspace: single writes, reads, options and maintenance of one ordered map.
//!
//! Each method delegates to a method of `Store`, which `OpenStore` dereferences to. Its file in `ops` begins with the
//! steps and their files: `ops/write.rs` for `put`, `delete` and `merge`, `ops/get.rs` for `get`.

use super::open_store::OpenStore;
use crate::base::error::Result;
use crate::base::key_range::key_range;
use crate::base::keyspace_metrics::KeyspaceMetrics;
use crate::base::slice::Slice;
use crate::keyspace::KeyspaceState;
use crate::ops::iter::Iter;
use crate::ops::range_cursor::RangeCursor;
use crate::options::Durability;
use crate::write::operations::{Operations, Ttl, WriteLimits};
use drumlin_env::sync::Arc;
use drumlin_types::{KeyRange, Seq};
use std::cell::RefCell;
use std::ops::RangeBounds;
use std::time::Duration;

/// Size in bytes up to which a thread keeps the buffer of its batch for single operations.
const SINGLE_KEPT: usize = 64 << 10;

thread_local! {
    /// Batch that this thread reuses for single operations.
    static SINGLE: RefCell<Operations> = RefCell::default();
}

/// Handle of a keyspace: an ordered map in an open store, with its own memtable, tree, options and compaction policy.
/// RocksDB calls it a column family. [`Db::keyspace`](crate::Db::keyspace) returns it.
///
/// Keys and values are bytes. Keys are ordered bytewise; other orders are not supported, so encode numbers in big
/// endian. A key has 0 bytes to 1 MiB. A value has less than 4 GiB, and a write at most a quarter of the option
/// `memory_budget`.
///
/// A handle is cheap to clone, and many threads can use it at once. It keeps the store open. After
/// [`Db::drop_keyspace`](crate::Db::drop_keyspace) its fallible calls return `KeyspaceDropped`, and after
/// [`Db::close`](crate::Db::close) they return `Closed`.
///
/// There are no transactions: [`get`](Keyspace::get) and then [`put`](Keyspace::put) are two steps, between which other
/// threads may write. A program can order such steps with a lock of its own, or use [`merge`](Keyspace::merge).
#[derive(Clone)]
#[doc(alias = "ColumnFamily")]
#[doc(alias = "PartitionHandle")]
pub struct Keyspace {
    pub(crate) store: Arc<OpenStore>,
    pub(crate) state: Arc<KeyspaceState>,
}

impl Keyspace {
    /// Returns the limits and the clock against which new operations are checked.
    pub(crate) fn bounds(&self) -> WriteLimits<'_> {
        WriteLimits { files: &self.store.files, max_value: self.store.max_batch_bytes() }
    }

    /// Returns the name of the keyspace. [`Db::rename_keyspace`](crate::Db::rename_keyspace) changes it.
    pub fn name(&self) -> String {
        self.state.name().to_string()
    }

    /// Returns the counters, latencies and gauges of the keyspace. It does no I/O.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// let users = db.keyspace("users")?;
    /// for number in 0..1000_u32 {
    ///     users.put(number.to_be_bytes(), "value")?;
    /// }
    /// let before = users.metrics();
    /// users.flush()?;
    /// let now = users.metrics();
    /// assert_eq!((before.flushes, now.flushes, now.files), (0, 1, 1));
    /// let latency = now.write_latency.since(&before.write_latency);
    /// println!("99 % of the writes took at most {} ns", latency.quantile_nanos(0.99));
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    pub fn metrics(&self) -> KeyspaceMetrics {
        self.store.read_keyspace_metrics(&self.state)
    }

    /// Writes `value` under `key` with the store's default durability, and returns the commit's sequence number. It
    /// replaces an older value.
    ///
    /// The default durability is the option `durability`, at first [`Durability::Buffered`]: the put survives the end
    /// of the process, but not power loss. [`Keyspace::put_with`] takes another one.
    ///
    /// A key has 0 bytes to 1 MiB. The encoded batch of one put takes at most a quarter of the option `memory_budget`
    /// (128 MiB by default); see [`Batch::size`](crate::Batch::size). A value has less than 4 GiB. If the keyspace has
    /// a time to live (`ttl_seconds`), the value expires after that time.
    ///
    /// A put appends one record to the log and one entry to the memtable. It waits while writes are throttled (a write
    /// stall), and with `Durability::Sync` for one fsync, which concurrent writers share.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// assert_eq!(users.get("ada")?.as_deref(), Some(&b"1815"[..]));
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::write`](crate::Db::write).
    #[doc(alias = "insert")]
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Seq> {
        self.put_with(key, value, self.store.durability())
    }

    /// Writes the operations that `add` adds to an empty batch. The thread reuses the batch's memory.
    fn write_one(
        &self,
        durability: Durability,
        add: impl FnOnce(&mut Operations, &WriteLimits<'_>),
    ) -> Result<Seq> {
        // Takes the batch out of its cell, so that a listener of the program that writes to another store does not find
        // it borrowed.
        let mut batch = SINGLE.try_with(RefCell::take).unwrap_or_default();
        add(&mut batch, &self.bounds());
        let written = self.store.write(&batch, durability);
        batch.clear(SINGLE_KEPT);
        let _ = SINGLE.try_with(|single| *single.borrow_mut() = batch);
        written
    }

    /// Does the same as [`Keyspace::put`], with the given durability.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// let seq = users.put_with("ada", "1815", drumlin::Durability::Sync)?;
    /// assert!(db.durable_seq() >= seq);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::write`](crate::Db::write).
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<Seq> {
        self.write_one(durability, |batch, bounds| {
            batch.put(bounds, &self.state, key.as_ref(), value.as_ref(), Ttl::Keyspace);
        })
    }

    /// Writes `value` under `key` with a time to live of its own, in place of the keyspace's (`ttl_seconds`). `None`
    /// keeps it from expiring. The longest time is 100 years. A time of 0 expires at once. The write has the default
    /// durability; for another one use a [`Batch`](crate::Batch) and [`Db::write_with`](crate::Db::write_with).
    ///
    /// An expired value is like a deleted one: reads do not return it, and compactions remove it. Otherwise the call
    /// does the same as [`Keyspace::put`].
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// let sessions = db.keyspace("sessions")?;
    /// sessions.put_with_ttl("ada", "token", std::time::Duration::from_secs(3600))?;
    /// sessions.put_with_ttl("root", "token", None)?;
    /// assert!(sessions.contains_key("ada")?);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::write`](crate::Db::write), and `InvalidArgument` for a longer time.
    pub fn put_with_ttl(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Option<Duration>>,
    ) -> Result<Seq> {
        let ttl = ttl.into().into();
        self.write_one(self.store.durability(), |batch, bounds| {
            batch.put(bounds, &self.state, key.as_ref(), value.as_ref(), ttl);
        })
    }

    /// Deletes all keys of the keyspace, and returns the commit's sequence number. Its options stay.
    ///
    /// It is a [`Keyspace::delete_range`] of everything, whatever the number of keys. The flush that follows drops the
    /// tables without reading them, except for tables that a snapshot sees or a compaction is rewriting. Tables that an
    /// iterator or cursor reads stay on disk until it is dropped.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// users.clear()?;
    /// assert!(users.is_empty()?);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::write`](crate::Db::write).
    pub fn clear(&self) -> Result<Seq> {
        self.delete_range::<&[u8]>(..)
    }

    /// Deletes `key`, and returns the commit's sequence number. It is no error if the key does not exist.
    ///
    /// It does not read the key: it writes a tombstone and costs as much as a put. Compactions remove the tombstone.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// users.delete("ada")?;
    /// assert!(users.get("ada")?.is_none());
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::write`](crate::Db::write).
    #[doc(alias = "remove")]
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<Seq> {
        self.delete_with(key, self.store.durability())
    }

    /// Does the same as [`Keyspace::delete`], with the given durability.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// users.delete_with("ada", drumlin::Durability::Sync)?;
    /// assert!(!users.contains_key("ada")?);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::write`](crate::Db::write).
    pub fn delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<Seq> {
        self.write_one(durability, |batch, bounds| batch.delete(bounds, &self.state, key.as_ref()))
    }

    /// Deletes every key in `range`, and returns the commit's sequence number. An empty range, also one whose start is
    /// after its end, writes nothing and returns the visible sequence number.
    ///
    /// It costs one write, whatever the number of keys: it writes one range tombstone and reads nothing. Until
    /// compactions have applied the tombstone, reads of keys that it covers check it.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// for year in 1900..1910 {
    ///     users.put(format!("{year}"), "")?;
    /// }
    /// users.delete_range("1902".."1909")?;
    /// assert_eq!(users.iter().count(), 3);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::write`](crate::Db::write). Each bound has at most 1 MiB.
    pub fn delete_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Seq> {
        self.write_one(self.store.durability(), |batch, bounds| {
            batch.delete_range(bounds, &self.state, &key_range(range));
        })
    }

    /// Does the same as [`Keyspace::delete_range`], with the given durability.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// users.delete_range_with("a".."b", drumlin::Durability::Sync)?;
    /// assert!(users.is_empty()?);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Keyspace::delete_range`].
    pub fn delete_range_with<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
        durability: Durability,
    ) -> Result<Seq> {
        self.write_one(durability, |batch, bounds| {
            batch.delete_range(bounds, &self.state, &key_range(range));
        })
    }

    /// Merges `operand` into the value under `key` by the keyspace's [merge operator](crate::MergeOperator), and
    /// returns the commit's sequence number.
    ///
    /// It does not read the value: it writes the operand and costs as much as a put. Reads, flushes and compactions
    /// combine the operands, so reading a key with many operands costs more. If the keyspace has a time to live
    /// (`ttl_seconds`), the operand expires after that time, or up to 1/64 of it later.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// let sum = std::sync::Arc::new(drumlin::AddI64::Text);
    /// let db = drumlin::Db::builder(dir.path()).merge_operator("hits", sum).open()?;
    /// let hits = db.keyspace("hits")?;
    /// hits.merge("home", "2")?;
    /// hits.merge("home", "3")?;
    /// assert_eq!(hits.get("home")?.as_deref(), Some(&b"5"[..]));
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::write`](crate::Db::write), and `MergeOperatorMissing` if the keyspace has no merge operator or
    /// the store was opened without it.
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<Seq> {
        self.write_one(self.store.durability(), |batch, bounds| {
            batch.merge(bounds, &self.state, key.as_ref(), operand.as_ref(), Ttl::Keyspace);
        })
    }

    /// Does the same as [`Keyspace::merge`], with the given durability.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let sum = std::sync::Arc::new(drumlin::AddI64::Text);
    /// # let db = drumlin::Db::builder(dir.path()).merge_operator("hits", sum).open()?;
    /// # let hits = db.keyspace("hits")?;
    /// hits.merge_with("home", "2", drumlin::Durability::Sync)?;
    /// assert_eq!(hits.get("home")?.as_deref(), Some(&b"2"[..]));
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Keyspace::merge`].
    pub fn merge_with(
        &self,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<Seq> {
        self.write_one(durability, |batch, bounds| {
            batch.merge(bounds, &self.state, key.as_ref(), operand.as_ref(), Ttl::Keyspace);
        })
    }

    /// Does the same as [`Keyspace::merge`], with a time to live of its own for `operand`, in place of the keyspace's.
    /// `None` lets it live for ever. The operand expires after that time, or up to 1/64 of it later. The longest time
    /// is 100 years.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let sum = std::sync::Arc::new(drumlin::AddI64::Text);
    /// # let db = drumlin::Db::builder(dir.path()).merge_operator("hits", sum).open()?;
    /// # let hits = db.keyspace("hits")?;
    /// let hour = std::time::Duration::from_secs(3600);
    /// hits.merge_with_ttl("home", "2", hour)?; // counts for an hour
    /// hits.merge_with_ttl("home", "3", None)?; // counts for ever
    /// assert_eq!(hits.get("home")?.as_deref(), Some(&b"5"[..]));
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Keyspace::merge`], and `InvalidArgument` for a time over 100 years.
    pub fn merge_with_ttl(
        &self,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        ttl: impl Into<Option<Duration>>,
    ) -> Result<Seq> {
        let ttl = ttl.into().into();
        self.write_one(self.store.durability(), |batch, bounds| {
            batch.merge(bounds, &self.state, key.as_ref(), operand.as_ref(), ttl);
        })
    }

    /// Returns the current value under `key`, or `None` if there is none or it has expired.
    ///
    /// It sees every write that has returned, on any thread. It does not wait for writes, flushes or compactions.
    ///
    /// A lookup searches the memtables and then at most one table of each run, newest level first. Filters skip most
    /// tables that lack the key, so a lookup usually reads one block, from the block cache or from the file. A value in
    /// a value file takes one more read. The value keeps its block in memory as long as it is alive: copy the bytes to
    /// keep them for long.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// let born = users.get("ada")?.expect("a value");
    /// assert_eq!(&*born, b"1815");
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// - `Corruption`: a table or a value file is damaged.
    /// - `MergeOperatorMissing`: the key has operands, but the store was opened without the merge operator.
    /// - `MergeFailed`: the merge operator refused the operands of the key, or panicked.
    /// - `KeyspaceDropped`. `Closed`: the store was closed.
    /// - `Io`, `TooManyFiles`: a system call failed.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.store.get(&self.state, key.as_ref(), None)
    }

    /// Returns the tables that a lookup of `key` probes, in the order of the lookup, for tests of the lookup
    /// statistics. It reads blocks like [`Keyspace::get`], but no statistic counts it. Needs the feature `testing`.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    #[cfg(feature = "testing")]
    pub fn probed_tables(&self, key: impl AsRef<[u8]>) -> Result<Vec<crate::ops::probed::ProbedTable>> {
        self.store.probed_tables(&self.state, key.as_ref())
    }

    /// Returns whether `key` has a value. It is like [`Keyspace::get`], but does not read the value
    /// from a value file, unless merge operands apply to it. So it does not find a damaged value.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// assert!(users.contains_key("ada")?);
    /// assert!(!users.contains_key("bob")?);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Keyspace::get`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.store.contains_key_at(&self.state, key.as_ref(), None)
    }

    /// Returns the values under `keys`, in the order of `keys`, all of the same state of the store.
    ///
    /// It is usually faster than one [`Keyspace::get`] for each key. Blocks that are not in memory are read in
    /// parallel, level by level, and keys that are close to each other share blocks. The keys need no order and may
    /// repeat. All values of the result are in memory at the same time.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// let found = users.multi_get(["ada", "bob"])?;
    /// assert_eq!(found[0].as_deref(), Some(&b"1815"[..]));
    /// assert!(found[1].is_none());
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Keyspace::get`]. One failed key fails the call.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Result<Vec<Option<Slice>>> {
        let keys: Vec<K> = keys.into_iter().collect();
        let keys: Vec<&[u8]> = keys.iter().map(|k| k.as_ref()).collect();
        self.store.multi_get(&self.state, &keys, None)
    }

    /// Returns an iterator over the entries of `range` in key order. It is double-ended.
    ///
    /// It reads the state of the store at this call; later writes do not change what it returns, and values that expire
    /// later are returned. A range whose start is after its end is empty.
    ///
    /// The call does no I/O. The first step searches every run that overlaps the range. Each later step merges the runs
    /// and copies the key. [`Keyspace::cursor`] is cheaper for repeated seeks. [`Iter`] says what an iterator keeps
    /// while it is alive.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// users.put("grace", "1906")?;
    /// let (key, _) = users.range("b"..).next().expect("an entry")?;
    /// assert_eq!(&*key, b"grace");
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// The items carry the errors, those of [`Keyspace::get`]; see [`Iter`].
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Iter {
        self.store.iter(&self.state, key_range(range), None)
    }

    /// Returns an iterator over the entries whose keys start with `prefix`. Otherwise like [`Keyspace::range`]. Filters
    /// hold whole keys, so they do not help here: there is no prefix extractor.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// users.put("adam", "1973")?;
    /// users.put("bob", "1950")?;
    /// assert_eq!(users.prefix("ad").count(), 2);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// As with [`Keyspace::range`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        self.store.iter(&self.state, KeyRange::prefix(prefix.as_ref()), None)
    }

    /// Returns an iterator over all entries. Otherwise like [`Keyspace::range`].
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// for entry in users.iter().rev() {
    ///     let (key, value) = entry?;
    ///     assert_eq!((&*key, &*value), (&b"ada"[..], &b"1815"[..]));
    /// }
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// As with [`Keyspace::range`].
    pub fn iter(&self) -> Iter {
        self.store.iter(&self.state, KeyRange::all(), None)
    }

    /// Returns the entry with the smallest key, or `None` if there is no entry. It costs as much as the first step of
    /// an iterator.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// users.put("grace", "1906")?;
    /// let (key, _) = users.first_key_value()?.expect("two entries");
    /// assert_eq!(&*key, b"ada");
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of a step of [`Iter`].
    pub fn first_key_value(&self) -> Result<Option<(Slice, Slice)>> {
        self.iter().next().transpose()
    }

    /// Returns the entry with the largest key, or `None` if there is no entry. It costs as much as the first step of an
    /// iterator.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let users = drumlin::Db::open(dir.path())?.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// users.put("grace", "1906")?;
    /// let (key, _) = users.last_key_value()?.expect("two entries");
    /// assert_eq!(&*key, b"grace");
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of a step of [`Iter`].
    pub fn last_key_value(&self) -> Result<Option<(Slice, Slice)>> {
        self.iter().next_back().transpose()
    }

    /// Returns whether there is no entry. It costs as much as the first step of an iterator.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// assert!(users.is_empty()?);
    /// users.put("ada", "1815")?;
    /// assert!(!users.is_empty()?);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of a step of [`Iter`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.iter().keys_only().next().transpose()?.is_none())
    }

    /// Returns the number of keys. It reads all of them, without values: the time grows with the keyspace.
    /// [`Keyspace::approximate_len`] is an estimate; it reads no keys, and its time grows with the number of files.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// users.put("ada", "1816")?;
    /// assert_eq!(users.len()?, 1);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of a step of [`Iter`].
    pub fn len(&self) -> Result<u64> {
        self.iter().keys_only().try_fold(0, |count, entry| entry.map(|_| count + 1))
    }

    /// Estimates the number of keys, without reading any: the keys of all tables, less two for each tombstone in a
    /// table (itself, and the key that it probably hides), plus the entries of memtables. The estimate is too large
    /// after overwrites, range deletions, expiry, deletions that are still in memtables, and merges, and may be too
    /// small after deletions of keys that did not exist. [`Keyspace::len`] is exact.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// users.put("bob", "1950")?;
    /// assert_eq!(users.approximate_len()?, 2);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Closed`, `KeyspaceDropped`.
    pub fn approximate_len(&self) -> Result<u64> {
        self.store.approximate_len(&self.state)
    }

    /// Estimates the bytes on disk of the tables' parts that hold keys of `range`. It reads indexes only; memtables and
    /// values in value files do not count.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// users.flush()?;
    /// assert!(users.approximate_size("a".."b")? > 0);
    /// assert_eq!(users.approximate_size("b".."c")?, 0);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Closed`, `Corruption`, `Io`, `TooManyFiles`, `KeyspaceDropped`.
    pub fn approximate_size<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<u64> {
        self.store.approximate_size(&self.state, &key_range(range))
    }

    /// Returns a cursor over `range`, for repeated seeks. It reads the state of the store at this call, and returns
    /// values that expire later.
    ///
    /// It copies no keys or values, and a later seek opens nothing again. The call itself opens only tables that hold
    /// range tombstones. [`RangeCursor`] says what a cursor keeps while it is alive.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// let mut cursor = users.cursor("a"..)?;
    /// assert!(cursor.seek("ac")?);
    /// assert_eq!(cursor.entry(), Some((&b"ada"[..], &b"1815"[..])));
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Keyspace::get`].
    #[doc(alias = "raw_iterator")]
    pub fn cursor<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<RangeCursor> {
        self.store.cursor(&self.state, key_range(range), None)
    }

    /// Returns the name and arguments of the compaction policy, such as `leveling:10`. It is empty once the keyspace
    /// was dropped. The call may wait while another thread writes a manifest edit. See [`Keyspace::set_policy`] for an
    /// example.
    pub fn policy(&self) -> String {
        self.store.policy_name(&self.state)
    }

    /// Returns the tuning that the compaction policy uses at present, and the reasons for it, as readable text lines.
    /// It is empty for a policy that has no state besides its name and arguments. The text is for people: it may change
    /// with any version.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// for line in users.policy_state().lines() {
    ///     println!("{line}");
    /// }
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    pub fn policy_state(&self) -> String {
        self.store.policy_state(&self.state)
    }

    /// Replaces the compaction policy. The change takes effect at once and is durable when the call returns.
    ///
    /// `name` is a policy with optional arguments, such as `arce` (the default) or `leveling:10`. The call is the same
    /// as setting the option `compaction`. The policy changes the shape and the cost of the tree, never the results of
    /// reads. The new policy reshapes the tree in the background.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.set_policy("leveling:10")?;
    /// assert_eq!(users.policy(), "leveling:10");
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidOption` for an unknown name or an argument out of bounds; nothing changes then. Otherwise those of
    /// [`Keyspace::set_option`].
    pub fn set_policy(&self, name: &str) -> Result<()> {
        self.store.set_policy(&self.state, name)
    }

    /// Returns the names and values of all options of the keyspace, as text that [`Keyspace::set_option`] accepts.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// assert!(users.options().contains(&("compression", "lz4".to_owned())));
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    pub fn options(&self) -> Vec<(&'static str, String)> {
        self.state.options.load().pairs()
    }

    /// Sets the option `name` of the keyspace. The change takes effect at once and is durable when the call returns.
    ///
    /// [`KeyspaceOptions`](crate::KeyspaceOptions) lists names, defaults and bounds; all of them can be set on an open
    /// store. An option of the file format, such as `compression`, applies to files written later. A call costs one
    /// fsync of the manifest.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.set_option("ttl_seconds", "3600")?;
    /// users.put("session", "42")?; // expires after an hour
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// - `InvalidOption`: names the option, the value and the bounds. Nothing changes.
    /// - `NoSpace`, `TooManyFiles`: the change cannot be written now. Nothing changes.
    /// - `KeyspaceDropped`.
    /// - `ReadOnly`, `Poisoned`, `Closed`. `Io`: writing the manifest failed; writes fail from now on.
    pub fn set_option(&self, name: &str, value: &str) -> Result<()> {
        self.store.set_keyspace_options(&self.state, &[(name.to_owned(), value.to_owned())])
    }

    /// Writes the memtables of the keyspace to tables, and waits until the tables are durable.
    ///
    /// Afterwards all earlier writes survive power loss, including writes with `Durability::None`. Frequent flushes
    /// make small tables and more compaction work: to make logged writes durable, [`Db::sync`](crate::Db::sync) is
    /// cheaper.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put_with("ada", "1815", drumlin::Durability::None)?;
    /// users.flush()?;
    /// assert_eq!(users.metrics().files, 1);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::flush`](crate::Db::flush), and `KeyspaceDropped`.
    pub fn flush(&self) -> Result<()> {
        self.store.flush(Some(&self.state))
    }

    /// Flushes the keyspace, compacts all tables that overlap `range` into one run of the bottommost non-empty level,
    /// and waits for it.
    ///
    /// Programs seldom need it: the compaction policy works in the background. The compaction removes deleted and
    /// overwritten entries that no snapshot needs, and expired ones. It needs disk space for the new tables before the
    /// old ones are removed, about as much as the tables in `range` take. A table above that level that overlaps no
    /// other table and holds no tombstones is not rewritten but moved (RocksDB: trivial move), so it keeps its
    /// compression and its expired entries. The compaction runs as subcompactions on at most `compaction_slots`
    /// threads. Reads and writes go on meanwhile. The call waits for running compactions of the keyspace. While it
    /// waits, no automatic compaction of the keyspace starts. The call has no timeout and cannot be cancelled: only a
    /// close, a drop of the keyspace or an error ends it early.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// users.compact("a".."n")?;
    /// users.compact::<&str>(..)?;
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// - `Corruption` of a damaged table, or the error of whatever else stopped a part of the range. That part stays as
    ///   it was.
    /// - `NoSpace`: compactions wait for disk space.
    /// - Those of [`Keyspace::flush`], and the error of a compaction that has failed three times in a row.
    #[doc(alias = "compact_range")]
    pub fn compact<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        self.store.compact(&self.state, key_range(range))
    }
}

impl std::fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keyspace({:?})", self.state.name)
    }
}
