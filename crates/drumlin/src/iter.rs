//! The iterator over a range of keys that users hold.
//!
//! It is double-ended: [`next`](Iterator::next) takes the smallest key left,
//! [`next_back`](DoubleEndedIterator::next_back) the largest. The two ends are two cursors over the same
//! snapshot, each made when it is first asked. Each step of one end narrows the bounds of the other, so that
//! every key comes once and neither end searches ground that the other has covered.
//!
//! Invariants: the front gives ascending, the back descending keys, and every key of the front is smaller
//! than every key of the back. Once one end has found no key left, both are done for good.

use crate::error::{Error, Result};
use crate::scan::StoreView;
use crate::slice::Slice;
use crate::stats::Stopwatch;
use drumlin_env::sync::{Arc, atomic};
use std::fmt;
use std::iter::FusedIterator;

/// Makes a view for one end of an iterator; both of its views must be of one snapshot.
pub(crate) type OpenView = Box<dyn FnMut() -> Result<StoreView> + Send>;

/// A key and its value.
type Pair = (Slice, Slice);

/// The keys of a range with their values, as of one moment.
///
/// Items are `Result<(key, value)>`. When reading fails, the iterator gives the error, and **keeps giving
/// it**: it never ends as if all keys had been seen. Stop at the first error; a loop that ignores errors
/// would not end.
///
/// An iterator pins the state of the store that it reads. Drop it when it is no longer needed.
pub struct Iter {
    open: OpenView,
    /// Read by `open`: values are not wanted.
    keys_only: Arc<atomic::AtomicBool>,
    front: Option<StoreView>,
    back: Option<StoreView>,
    /// The latest key of the front, until the back has been told to stop before it.
    given_by_front: Option<Slice>,
    /// The latest key of the back, until the front has been told to stop before it.
    given_by_back: Option<Slice>,
    done: bool,
    error: Option<Error>,
    /// Times the first step of a sampled scan.
    stopwatch: Option<Stopwatch>,
}

impl Iter {
    /// An iterator over the views that `open` makes.
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
            error: None,
            stopwatch,
        }
    }

    /// The same iterator without values: they come empty, and are never read. Before the first step.
    #[must_use]
    pub fn keys_only(self) -> Iter {
        self.keys_only.store(true, atomic::Ordering::Relaxed);
        self
    }

    /// The next key of the front.
    fn step_front(&mut self) -> Result<Option<Pair>> {
        let is_new = self.front.is_none();
        let view = match &mut self.front {
            Some(view) => view,
            None => self.front.insert((self.open)()?),
        };
        if let Some(given) = self.given_by_back.take() {
            view.end_before(&given);
        }
        if is_new {
            view.seek_first()?
        } else {
            view.next()?
        }
        let item = current(view);
        self.given_by_front = item.as_ref().map(|(key, _)| key.clone());
        Ok(item)
    }

    /// The next key of the back.
    fn step_back(&mut self) -> Result<Option<Pair>> {
        let is_new = self.back.is_none();
        let view = match &mut self.back {
            Some(view) => view,
            None => self.back.insert((self.open)()?),
        };
        if let Some(given) = self.given_by_front.take() {
            view.start_after(&given);
        }
        if is_new {
            view.seek_last()?
        } else {
            view.prev()?
        }
        let item = current(view);
        self.given_by_back = item.as_ref().map(|(key, _)| key.clone());
        Ok(item)
    }

    /// Gives what `step` found, or the error that ended the iteration.
    fn give(&mut self, step: fn(&mut Iter) -> Result<Option<Pair>>) -> Option<Result<Pair>> {
        if let Some(error) = &self.error {
            return Some(Err(error.clone()));
        }
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
        match item {
            Ok(item) => {
                self.done = item.is_none();
                if self.done {
                    (self.front, self.back) = (None, None);
                }
                item.map(Ok)
            }
            Err(error) => {
                self.error = Some(error.clone());
                Some(Err(error))
            }
        }
    }
}

/// Copies of the key and value that `view` is on, if it is on any.
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
        f.debug_struct("Iter").field("done", &self.done).field("error", &self.error).finish_non_exhaustive()
    }
}
