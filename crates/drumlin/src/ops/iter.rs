//! The public iterator over a range of keys.
//!
//! It is double-ended: [`next`](Iterator::next) returns the smallest remaining key and
//! [`next_back`](DoubleEndedIterator::next_back) the largest. The two ends are two cursors over the same snapshot. Each
//! is created at its first use. Each step of one end narrows the bounds of the other. So every key is returned once,
//! and neither end searches keys that the other has returned.
//!
//! Invariants: the front returns ascending keys and the back descending keys. Every key of the front is smaller than
//! every key of the back. Once one end finds no more keys, both ends are done permanently.

use crate::base::error::Result;
use crate::base::slice::Slice;
use crate::ops::scan::StoreView;
use crate::stats::Stopwatch;
use drumlin_env::sync::{Arc, atomic};
use std::fmt;
use std::iter::FusedIterator;

/// Function that creates a view for one end of an iterator. Both views must be of the same snapshot.
pub(crate) type OpenView = Box<dyn FnMut() -> Result<StoreView> + Send>;

/// Key and value.
type Pair = (Slice, Slice);

/// Iterator over the keys of a range with their values, as of one snapshot. [`Keyspace::range`](crate::Keyspace::range)
/// and similar calls create it.
///
/// Items are `Result<(key, value)>`. [`next`](Iterator::next) returns the smallest remaining key, and
/// [`next_back`](DoubleEndedIterator::next_back) the largest. Both may block for reads from disk. An iterator can be
/// moved to another thread, but not be shared.
///
/// ```
/// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
/// # let db = drumlin::Db::open(dir.path())?;
/// # let users = db.keyspace("users")?;
/// users.put("ada", "1815")?;
/// users.put("bob", "1950")?;
/// users.put("eve", "1978")?;
/// let mut entries = users.iter();
/// let (first, last) = (entries.next().expect("three")?, entries.next_back().expect("two left")?);
/// assert_eq!((&*first.0, &*last.0), (&b"ada"[..], &b"eve"[..]));
/// assert_eq!(entries.count(), 1);
/// # Ok::<(), drumlin::Error>(())
/// ```
///
/// # Errors
/// When the operands of one key cannot be merged, or its value in a value file is damaged, the iterator returns an
/// error that has a [`key`](crate::Error::key) once, and continues after that key. Any other error ends the iteration:
/// the iterator returns the error once, and then `None`. So stop at an error without a key: what follows is not the end
/// of the range. A loop that ignores errors takes a part of the range for all of it.
///
/// # Resources
/// An iterator pins the state of the store that it reads, until it is dropped: its tables stay on disk, and its
/// memtables stay in memory, beyond `memory_budget`. It also has read-ahead buffers of up to 256 KiB for each
/// run, and up to 1 MiB for values in value files, for each of its two ends. Drop
/// it when it is no longer needed, and use a [`Snapshot`](crate::Snapshot) to return to one state for a long time.
///
/// An iterator stays usable even if the store is closed or the keyspace is dropped. There is one exception. Once
/// another process or a later open of the same store has removed files, an iterator of the closed store may fail with
/// `Io` or `TooManyFiles`. That happens if the process had too few file descriptors to keep the files of the iterator
/// open; see [`Db::close`](crate::Db::close).
#[must_use = "an iterator reads nothing until it is stepped"]
pub struct Iter {
    open: OpenView,
    /// Whether values are left out. `open` reads this flag.
    keys_only: Arc<atomic::AtomicBool>,
    front: Option<StoreView>,
    back: Option<StoreView>,
    /// Latest key of the front, until the back's bounds exclude it.
    given_by_front: Option<Slice>,
    /// Latest key of the back, until the front's bounds exclude it.
    given_by_back: Option<Slice>,
    done: bool,
    /// Measures the first step of a sampled scan.
    stopwatch: Option<Stopwatch>,
}

impl Iter {
    /// Creates an iterator over the views that `open` creates.
    pub(crate) fn new(
        open: OpenView,
        keys_only: Arc<atomic::AtomicBool>,
        stopwatch: Option<Stopwatch>,
    ) -> Iter {
        Iter {
            open,
            keys_only,
            front: None,
            back: None,
            given_by_front: None,
            given_by_back: None,
            done: false,
            stopwatch,
        }
    }

    /// Makes the iterator skip values: it returns empty values and never reads them. Call this before the first step:
    /// an end that has been used already keeps returning values.
    ///
    /// It does not call the merge operator. So it also returns keys whose operands cannot be merged.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// let (key, value) = users.iter().keys_only().next().expect("an entry")?;
    /// assert_eq!((&*key, value.len()), (&b"ada"[..], 0));
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    pub fn keys_only(self) -> Iter {
        self.keys_only.store(true, atomic::Ordering::Relaxed);
        self
    }

    /// Moves the front to its next key and returns it.
    fn step_front(&mut self) -> Result<Option<Pair>> {
        let is_new = self.front.is_none();
        let view = match &mut self.front {
            Some(view) => view,
            None => self.front.insert((self.open)()?),
        };
        if let Some(given) = self.given_by_back.take() {
            view.end_before(&given);
        }
        let moved = if is_new { view.seek_first() } else { view.next() };
        if let Err(error) = moved {
            self.given_by_front = error.key().map(Slice::from);
            return Err(error);
        }
        let item = current(view);
        self.given_by_front = item.as_ref().map(|(key, _)| key.clone());
        Ok(item)
    }

    /// Moves the back to its next key and returns it.
    fn step_back(&mut self) -> Result<Option<Pair>> {
        let is_new = self.back.is_none();
        let view = match &mut self.back {
            Some(view) => view,
            None => self.back.insert((self.open)()?),
        };
        if let Some(given) = self.given_by_front.take() {
            view.start_after(&given);
        }
        let moved = if is_new { view.seek_last() } else { view.prev() };
        if let Err(error) = moved {
            self.given_by_back = error.key().map(Slice::from);
            return Err(error);
        }
        let item = current(view);
        self.given_by_back = item.as_ref().map(|(key, _)| key.clone());
        Ok(item)
    }

    /// Returns the result of `step`. The iteration ends with the last key, or with an error that affects more than one
    /// key.
    fn give(&mut self, step: fn(&mut Iter) -> Result<Option<Pair>>) -> Option<Result<Pair>> {
        if self.done {
            return None;
        }
        let stopwatch = self.stopwatch.take().map(|mut stopwatch| {
            stopwatch.begin();
            stopwatch
        });
        let item = step(self);
        if let Some(stopwatch) = stopwatch {
            stopwatch.stop();
        }
        self.done = match &item {
            Ok(item) => item.is_none(),
            Err(error) => error.key().is_none(),
        };
        if self.done {
            (self.front, self.back) = (None, None);
        }
        item.transpose()
    }
}

/// Returns the key and value at the position of `view`, if it is on an entry.
fn current(view: &StoreView) -> Option<Pair> {
    view.valid().then(|| (Slice::from(view.key()), view.value_slice()))
}

impl Iterator for Iter {
    type Item = Result<(Slice, Slice)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.give(Iter::step_front)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.give(Iter::step_back)
    }
}

impl FusedIterator for Iter {}

impl fmt::Debug for Iter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").field("done", &self.done).finish_non_exhaustive()
    }
}
