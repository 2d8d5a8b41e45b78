//! Snapshots: one state of the whole store, readable until the snapshot is dropped.

use super::keyspace::Keyspace;
use super::open_store::OpenStore;
use crate::base::error::Result;
use crate::base::key_range::key_range;
use crate::base::slice::Slice;
use crate::base::snapshots::SnapshotGuard;
use crate::ops::iter::Iter;
use crate::ops::range_cursor::RangeCursor;
use drumlin_env::sync::Arc;
use drumlin_types::{KeyRange, Seq};
use std::ops::RangeBounds;

/// Consistent view of the whole store, as of one commit. [`Db::snapshot`](crate::Db::snapshot) takes it.
///
/// A read sees the commits up to the snapshot's sequence number. Whether a value has expired is judged at the time when
/// the snapshot was taken, not at the time of the read.
///
/// Taking and dropping a snapshot costs little, and does no I/O. It pins no memory and no files. But while it is alive,
/// flushes and compactions keep every version that it can see, so a long-lived snapshot makes the store grow.
///
/// A snapshot keeps the store open. After [`Db::close`](crate::Db::close) its reads fail with `Closed`. It does not
/// keep a keyspace from being dropped: reads of that keyspace then fail with `KeyspaceDropped`. It is not durable: it
/// ends with the process.
///
/// Many threads can read through one snapshot.
///
/// ```
/// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
/// # let db = drumlin::Db::open(dir.path())?;
/// # let users = db.keyspace("users")?;
/// users.put("ada", "1815")?;
/// let snapshot = db.snapshot();
/// users.delete_range("a".."z")?;
/// assert_eq!(snapshot.range(&users, "a".."z").count(), 1);
/// # Ok::<(), drumlin::Error>(())
/// ```
pub struct Snapshot {
    pub(crate) store: Arc<OpenStore>,
    pub(crate) guard: SnapshotGuard,
}

impl Snapshot {
    /// Returns the sequence number of the last commit that the snapshot sees.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// let seq = users.put("ada", "1815")?;
    /// assert_eq!(db.snapshot().seq(), seq);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    pub fn seq(&self) -> Seq {
        self.guard.point.seq
    }

    /// Returns the value under `key` in `keyspace`, as of the snapshot. Costs as much as
    /// [`Keyspace::get`](crate::Keyspace::get).
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// let snapshot = db.snapshot();
    /// users.put("ada", "1852")?;
    /// assert_eq!(snapshot.get(&users, "ada")?.as_deref(), Some(&b"1815"[..]));
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Keyspace::get`](crate::Keyspace::get), and `InvalidArgument` for a keyspace of another store.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.store.check_own(&keyspace.state)?;
        self.store.get(&keyspace.state, key.as_ref(), Some(self.guard.point))
    }

    /// Returns the values under `keys` in `keyspace`, in the order of `keys`, as of the snapshot. Otherwise like
    /// [`Keyspace::multi_get`](crate::Keyspace::multi_get).
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// let snapshot = db.snapshot();
    /// users.put("bob", "1950")?;
    /// let found = snapshot.multi_get(&users, ["ada", "bob"])?;
    /// assert!(found[0].is_some() && found[1].is_none());
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Snapshot::get`].
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Slice>>> {
        self.store.check_own(&keyspace.state)?;
        let keys: Vec<K> = keys.into_iter().collect();
        let keys: Vec<&[u8]> = keys.iter().map(|k| k.as_ref()).collect();
        self.store.multi_get(&keyspace.state, &keys, Some(self.guard.point))
    }

    /// Returns whether `key` has a value in `keyspace`, as of the snapshot. See
    /// [`Keyspace::contains_key`](crate::Keyspace::contains_key).
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// let snapshot = db.snapshot();
    /// users.delete("ada")?;
    /// assert!(snapshot.contains_key(&users, "ada")?);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Snapshot::get`].
    pub fn contains_key(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        self.store.check_own(&keyspace.state)?;
        self.store.contains_key_at(&keyspace.state, key.as_ref(), Some(self.guard.point))
    }

    /// Returns an iterator over all entries of `keyspace`, as of the snapshot. See [`Snapshot::range`].
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// let snapshot = db.snapshot();
    /// users.clear()?;
    /// assert_eq!(snapshot.iter(&users).count(), 1);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    pub fn iter(&self, keyspace: &Keyspace) -> Iter {
        self.store.iter(&keyspace.state, KeyRange::all(), Some(self.guard.point))
    }

    /// Returns an iterator over the entries of `range` in `keyspace` in key order, as of the snapshot. The iterator
    /// stays usable after the snapshot is dropped. Otherwise like [`Keyspace::range`](crate::Keyspace::range).
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// let snapshot = db.snapshot();
    /// users.put("bob", "1950")?;
    /// assert_eq!(snapshot.range(&users, "a".."z").count(), 1);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// The items carry the errors, those of [`Snapshot::get`]; see [`Iter`].
    pub fn range<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, range: impl RangeBounds<K>) -> Iter {
        self.store.iter(&keyspace.state, key_range(range), Some(self.guard.point))
    }

    /// Returns a cursor over `range` in `keyspace`, as of the snapshot. The cursor stays usable after the snapshot is
    /// dropped. Otherwise like [`Keyspace::cursor`](crate::Keyspace::cursor).
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// let snapshot = db.snapshot();
    /// users.clear()?;
    /// let mut cursor = snapshot.cursor(&users, "a".."z")?;
    /// assert!(cursor.seek_first()?);
    /// assert_eq!(cursor.key(), Some(&b"ada"[..]));
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Snapshot::get`].
    pub fn cursor<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        range: impl RangeBounds<K>,
    ) -> Result<RangeCursor> {
        self.store.cursor(&keyspace.state, key_range(range), Some(self.guard.point))
    }

    /// Returns an iterator over the entries of `keyspace` whose keys start with `prefix`, as of the snapshot. See
    /// [`Snapshot::range`].
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// users.put("bob", "1950")?;
    /// assert_eq!(db.snapshot().prefix(&users, "ad").count(), 1);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Iter {
        self.store.iter(&keyspace.state, KeyRange::prefix(prefix.as_ref()), Some(self.guard.point))
    }

    /// Returns the entry of `keyspace` with the smallest key as of the snapshot, or `None` if there was no entry. It
    /// costs as much as the first step of an iterator.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let jobs = db.keyspace("jobs")?;
    /// jobs.put("1", "first")?;
    /// let snapshot = db.snapshot();
    /// jobs.delete("1")?;
    /// let (key, _) = snapshot.first_key_value(&jobs)?.expect("one entry");
    /// assert_eq!(&*key, b"1");
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of a step of [`Iter`].
    pub fn first_key_value(&self, keyspace: &Keyspace) -> Result<Option<(Slice, Slice)>> {
        self.iter(keyspace).next().transpose()
    }

    /// Returns the entry of `keyspace` with the largest key as of the snapshot, or `None` if there was no entry. It
    /// costs as much as the first step of an iterator.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let jobs = db.keyspace("jobs")?;
    /// jobs.put("1", "first")?;
    /// let snapshot = db.snapshot();
    /// jobs.put("2", "second")?;
    /// let (key, _) = snapshot.last_key_value(&jobs)?.expect("one entry");
    /// assert_eq!(&*key, b"1");
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of a step of [`Iter`].
    pub fn last_key_value(&self, keyspace: &Keyspace) -> Result<Option<(Slice, Slice)>> {
        self.iter(keyspace).next_back().transpose()
    }

    /// Returns whether `keyspace` had no entry as of the snapshot. It costs as much as the first step of an iterator.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let jobs = db.keyspace("jobs")?;
    /// let snapshot = db.snapshot();
    /// jobs.put("1", "first")?;
    /// assert!(snapshot.is_empty(&jobs)? && !db.snapshot().is_empty(&jobs)?);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of a step of [`Iter`].
    pub fn is_empty(&self, keyspace: &Keyspace) -> Result<bool> {
        Ok(self.iter(keyspace).keys_only().next().transpose()?.is_none())
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot(#{})", self.seq())
    }
}
