//! Cursor over a range of keys. It can seek repeatedly, and it returns keys and values without copying them.
//!
//! It is cheaper than [`Iter`](crate::Iter), whose items can be kept: it copies nothing, and a second seek reopens
//! nothing. It reads one snapshot for its whole life.
//!
//! Invariant: after an error the cursor is on no entry, and every further call returns the error again. An error for a
//! single key, whose operands cannot be merged or whose value is damaged, is returned once. The cursor can then move on
//! from that key.

use crate::base::error::Result;
use crate::keyspace::KeyspaceState;
use crate::ops::scan::{LiveScan, StoreView};
use crate::stats::Stopwatch;
use drumlin_env::sync::Arc;
use std::fmt;

/// Cursor over the keys of a range, as of one snapshot. [`Keyspace::cursor`](crate::Keyspace::cursor) creates it. It is
/// on no entry until its first seek.
///
/// Unlike an [`Iter`](crate::Iter) it can seek repeatedly, and it lends keys and values without copying them. Seeks and
/// steps may block for reads from disk. A cursor can be moved to another thread, but not be shared.
///
/// ```
/// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
/// # let db = drumlin::Db::open(dir.path())?;
/// # let users = db.keyspace("users")?;
/// users.put("ada", "1815")?;
/// users.put("bob", "1950")?;
/// let mut cursor = users.cursor("a".."z")?;
/// let mut is_on_entry = cursor.seek_first()?;
/// while is_on_entry {
///     let (key, value) = cursor.entry().expect("the cursor is on an entry");
///     println!("{}: {}", key.escape_ascii(), value.escape_ascii());
///     is_on_entry = cursor.next()?;
/// }
/// # Ok::<(), drumlin::Error>(())
/// ```
///
/// # Errors
/// Those of [`Keyspace::get`](crate::Keyspace::get), except that a closed store and a dropped keyspace do not matter.
/// An error that has a [`key`](crate::Error::key) affects only that key: [`next`](RangeCursor::next) and
/// [`prev`](RangeCursor::prev) continue from there. After any other error every call returns that error.
///
/// # Resources
/// A cursor pins the state of the store that it reads, and so keeps the same as an [`Iter`](crate::Iter). It stays
/// usable until it is dropped, even if the store is closed or the keyspace is dropped, with the exception that
/// [`Iter`](crate::Iter) describes. Drop it when it is no longer needed.
#[must_use = "a cursor is on no entry until it seeks"]
pub struct RangeCursor {
    view: StoreView,
    live: Arc<LiveScan>,
    keyspace: Arc<KeyspaceState>,
}

/// Target of a seek.
enum To<'a> {
    First,
    Key(&'a [u8]),
    Last,
}

impl RangeCursor {
    pub(crate) fn new(view: StoreView, live: Arc<LiveScan>, keyspace: Arc<KeyspaceState>) -> RangeCursor {
        RangeCursor { view, live, keyspace }
    }

    fn moved(&mut self, to: To<'_>, how: impl FnOnce(&mut StoreView) -> Result<()>) -> Result<bool> {
        let range = self.view.bounds();
        let key = match to {
            To::First => Some(&*range.start),
            To::Key(key) => Some(key),
            To::Last => None,
        };
        let mut stopwatch = self.live.store.stopwatch(&self.keyspace, key, range, &self.live.tree);
        stopwatch.iter_mut().for_each(Stopwatch::begin);
        how(&mut self.view)?;
        if let Some(stopwatch) = stopwatch {
            stopwatch.stop();
        }
        Ok(self.view.valid())
    }

    /// Moves to the first key of the range. Returns `false` when there is none.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// # for name in ["ada", "bob", "eve"] {
    /// #     users.put(name, "")?;
    /// # }
    /// let mut cursor = users.cursor::<&str>(..)?; // over ada, bob and eve
    /// assert!(cursor.seek_first()?);
    /// assert_eq!(cursor.key(), Some(&b"ada"[..]));
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    pub fn seek_first(&mut self) -> Result<bool> {
        self.moved(To::First, StoreView::seek_first)
    }

    /// Moves to the last key of the range. Returns `false` when there is none.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// # for name in ["ada", "bob", "eve"] {
    /// #     users.put(name, "")?;
    /// # }
    /// let mut cursor = users.cursor::<&str>(..)?; // over ada, bob and eve
    /// assert!(cursor.seek_last()?);
    /// assert_eq!(cursor.key(), Some(&b"eve"[..]));
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    pub fn seek_last(&mut self) -> Result<bool> {
        self.moved(To::Last, StoreView::seek_last)
    }

    /// Moves to the first key of the range at or after `key`. Returns `false` when there is none; the cursor is then on
    /// no entry.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// # for name in ["ada", "bob", "eve"] {
    /// #     users.put(name, "")?;
    /// # }
    /// let mut cursor = users.cursor::<&str>(..)?; // over ada, bob and eve
    /// assert!(cursor.seek("b")?);
    /// assert_eq!(cursor.key(), Some(&b"bob"[..]));
    /// assert!(!cursor.seek("z")?);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.moved(To::Key(key), |view| view.seek(key))
    }

    /// Moves to the last key of the range before `key`, not to `key` itself, as `SeekLT` of Pebble does. (`SeekForPrev`
    /// of RocksDB also stops at `key`.) Returns `false` when there is none.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// # for name in ["ada", "bob", "eve"] {
    /// #     users.put(name, "")?;
    /// # }
    /// let mut cursor = users.cursor::<&str>(..)?; // over ada, bob and eve
    /// assert!(cursor.seek_before("bob")?);
    /// assert_eq!(cursor.key(), Some(&b"ada"[..]));
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    pub fn seek_before(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.moved(To::Key(key), |view| view.seek_before(key))
    }

    /// Moves to the next key. Returns `false` when there is none, or when the cursor was on no entry.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// # for name in ["ada", "bob", "eve"] {
    /// #     users.put(name, "")?;
    /// # }
    /// let mut cursor = users.cursor::<&str>(..)?; // over ada, bob and eve
    /// cursor.seek("ada")?;
    /// assert!(cursor.next()?);
    /// assert_eq!(cursor.key(), Some(&b"bob"[..]));
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    #[expect(
        clippy::should_implement_trait,
        reason = "the entry is borrowed from the cursor: no iterator can do so"
    )]
    #[inline]
    pub fn next(&mut self) -> Result<bool> {
        self.view.next()?;
        Ok(self.view.valid())
    }

    /// Moves to the previous key. Returns `false` when there is none, or when the cursor was on no entry.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// # for name in ["ada", "bob", "eve"] {
    /// #     users.put(name, "")?;
    /// # }
    /// let mut cursor = users.cursor::<&str>(..)?; // over ada, bob and eve
    /// cursor.seek("bob")?;
    /// assert!(cursor.prev()?);
    /// assert_eq!(cursor.key(), Some(&b"ada"[..]));
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    #[inline]
    pub fn prev(&mut self) -> Result<bool> {
        self.view.prev()?;
        Ok(self.view.valid())
    }

    /// Returns the current key and value; `None` when the cursor is on no entry. They are valid until the next call
    /// that moves the cursor.
    pub fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.view.valid().then(|| (self.view.key(), self.view.value()))
    }

    /// Returns the current value; `None` when the cursor is on no entry. See [`entry`](RangeCursor::entry).
    pub fn value(&self) -> Option<&[u8]> {
        self.view.valid().then(|| self.view.value())
    }

    /// Returns the current key; `None` when the cursor is on no entry.
    pub fn key(&self) -> Option<&[u8]> {
        self.view.valid().then(|| self.view.key())
    }
}

impl fmt::Debug for RangeCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeCursor").field("on_entry", &self.view.valid()).finish_non_exhaustive()
    }
}
