//! A cursor over a range of keys: it can be moved anywhere again and again, and shows keys and values where they lie.
//!
//! Beside [`Iter`](crate::Iter), whose items can be kept, this is the cheaper way to read: nothing is copied, and a
//! second seek opens nothing anew. It sees one moment for all its life.
//!
//! Invariant: after an error every further call gives it again, and the cursor is on no entry.

use crate::error::Result;
use crate::keyspace::KeyspaceState;
use crate::scan::StoreView;
use crate::stats::Stopwatch;
use crate::store::Store;
use crate::version::Tree;
use drumlin_env::sync::Arc;
use std::fmt;

/// Moves over the keys of a range, as of one moment. Not on an entry until it is moved for the first time.
///
/// A cursor pins the state of the store that it reads. Drop it when it is no longer needed.
pub struct RangeCursor {
    view: StoreView,
    store: Arc<Store>,
    keyspace: Arc<KeyspaceState>,
    /// The tree that it walks.
    tree: Arc<Tree>,
}

/// Where a seek goes.
enum To<'a> {
    First,
    Key(&'a [u8]),
    Last,
}

impl RangeCursor {
    pub(crate) fn new(
        view: StoreView,
        store: Arc<Store>,
        keyspace: Arc<KeyspaceState>,
        tree: Arc<Tree>,
    ) -> RangeCursor {
        RangeCursor { view, store, keyspace, tree }
    }

    fn moved(&mut self, to: To<'_>, how: impl FnOnce(&mut StoreView) -> Result<()>) -> Result<bool> {
        self.store.check_open()?;
        self.keyspace.check_alive()?;
        let range = self.view.bounds();
        let key = match to {
            To::First => Some(&*range.start),
            To::Key(key) => Some(key),
            To::Last => None,
        };
        let mut stopwatch = self.store.stopwatch(&self.keyspace, key, range, &self.tree);
        stopwatch.iter_mut().for_each(Stopwatch::begin);
        how(&mut self.view)?;
        if let Some(stopwatch) = stopwatch {
            stopwatch.stop();
        }
        Ok(self.view.valid())
    }

    /// To the first key of the range; `false` when there is none.
    pub fn seek_first(&mut self) -> Result<bool> {
        self.moved(To::First, StoreView::seek_first)
    }

    /// To the last key of the range; `false` when there is none.
    pub fn seek_last(&mut self) -> Result<bool> {
        self.moved(To::Last, StoreView::seek_last)
    }

    /// To the first key of the range at or after `key`; `false` when there is none.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.moved(To::Key(key), |view| view.seek(key))
    }

    /// To the last key of the range before `key`; `false` when there is none.
    pub fn seek_before(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.moved(To::Key(key), |view| view.seek_before(key))
    }

    /// To the following key; `false` when there is none, or the cursor was on no entry.
    #[expect(
        clippy::should_implement_trait,
        reason = "the entry is borrowed from the cursor: no iterator can do so"
    )]
    #[inline]
    pub fn next(&mut self) -> Result<bool> {
        self.view.next()?;
        Ok(self.view.valid())
    }

    /// To the preceding key; `false` when there is none, or the cursor was on no entry.
    #[inline]
    pub fn prev(&mut self) -> Result<bool> {
        self.view.prev()?;
        Ok(self.view.valid())
    }

    /// The key and the value that it is on.
    pub fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.view.valid().then(|| (self.view.key(), self.view.value()))
    }

    /// The key that it is on.
    pub fn key(&self) -> Option<&[u8]> {
        self.view.valid().then(|| self.view.key())
    }
}

impl fmt::Debug for RangeCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeCursor").field("on_entry", &self.view.valid()).finish_non_exhaustive()
    }
}
