//! User view of a merge: one value per user key.
//!
//! For each user key, the relevant versions are those no newer than the snapshot and not older than the newest range
//! tombstone over the key. The newest of them decides. A put gives its value; a deletion or an expired value gives
//! none. For a merge operand, the view collects the unexpired operands down to the version that they build on.
//!
//! `forward` and `backward` hold the two searches. The forward search copies no values, and neither search walks long
//! chains of versions. A change of direction is one seek. A search that meets an entry hidden by a range tombstone
//! skips to the end of the tombstone. Sources that hold nothing newer than the tombstone get there in one seek.
//!
//! Invariants, by position:
//! - `Shown`: the inner cursor is on the version that gives the value.
//! - `Held(Ahead)`: `key` and the value are held. The inner cursor is on an older version of `key`, on a later key,
//!   or past the end.
//! - `Held(Behind)`: `key` and the value are held. The inner cursor is on the last entry before `key`, or before the
//!   beginning.
//! - `Nowhere`: not valid. If `failed` is set, otherwise as `Held` of that side.

mod backward;
mod forward;
mod reseeks;

use super::coverage::{Coverage, TombstoneSource};
use super::dead::{DeadSpanCursor, DeadSpans};
use super::sticky::Sticky;
use crate::base::cursor::Cursor;
use crate::base::error::{Error, Result};
use crate::base::merge_operator::MergeOperator;
use crate::base::name::KeyspaceName;
use crate::base::resolve::{Operands, PointerReader, Resolver, ValueRead};
use crate::base::slice::Slice;
use crate::base::value_read_ahead::ValueReadAhead;
use drumlin_types::{Key, KeyRange, Seq};
use reseeks::Reseeks;
use std::sync::Arc;

/// Number of versions of one key that a search passes singly before it seeks.
pub(super) const MAX_STEPS: usize = 8;

/// Parameters of a user view, apart from its entries.
#[derive(Clone)]
pub(crate) struct VisibleOptions {
    /// Snapshot of the view. Newer versions are invisible.
    pub(crate) snapshot: Seq,
    /// Time of the view, in microseconds since the Unix epoch. Values that have expired by then are invisible.
    pub(crate) now_micros: u64,
    /// Range of visible keys.
    pub(crate) bounds: KeyRange,
    /// Whether only keys are wanted. `value` is then empty or arbitrary, and the view uses neither operators nor
    /// value files.
    pub(crate) keys_only: bool,
    /// Name of the keyspace, for errors.
    pub(crate) keyspace: Arc<KeyspaceName>,
    /// Merge operator of the keyspace, if it has one.
    pub(crate) operator: Option<Arc<dyn MergeOperator>>,
    /// Name of the operator that the keyspace requires, for errors.
    pub(crate) operator_name: Option<Arc<str>>,
    /// Reader of values in value files.
    pub(crate) pointers: Option<Arc<PointerReader>>,
    /// Largest number of bytes that the view reads at a time from a value file, besides single values.
    pub(crate) value_window: usize,
    /// Range tombstones of every source, one run after another, in key order within a run.
    pub(crate) tombstones: Vec<TombstoneSource>,
    /// Dead spans that scans of the keyspace have found.
    pub(crate) dead: Option<Arc<DeadSpans>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Ahead,
    Behind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Position {
    Nowhere,
    /// The value follows the first `skip` bytes of the entry's value.
    Shown {
        skip: usize,
    },
    Held(Side),
}

/// Side of the cursor after an error that concerns the view's `key` only.
type FailedSide = Option<Side>;

/// User view of the entries of `cursor`.
pub(crate) struct VisibleIter<C> {
    cursor: C,
    snapshot: Seq,
    now_micros: u64,
    bounds: KeyRange,
    keys_only: bool,
    keyspace: Arc<KeyspaceName>,
    operator: Option<Arc<dyn MergeOperator>>,
    operator_name: Option<Arc<str>>,
    pointers: Option<Arc<PointerReader>>,
    /// Read-ahead in value files. Calls of `read_value` borrow it apart from the view.
    ahead: ValueReadAhead,
    coverage: Coverage,
    walk: DeadSpanCursor,
    reseeks: Reseeks,
    position: Position,
    /// Key of a held position. During a search, the key whose versions are being passed.
    key: Vec<u8>,
    /// Value of a held position, unless `shared` has it.
    buffer: Vec<u8>,
    shared: Option<Slice>,
    operands: Operands,
    /// Set while the position is `Nowhere` because of an error that concerns `key` only.
    failed: FailedSide,
    error: Sticky,
}

impl<C: Cursor> VisibleIter<C> {
    /// Creates the view of `cursor`'s entries with `options`. It is invalid until a seek.
    pub(crate) fn new(cursor: C, options: VisibleOptions) -> VisibleIter<C> {
        VisibleIter {
            cursor,
            snapshot: options.snapshot,
            now_micros: options.now_micros,
            coverage: Coverage::new(options.tombstones, &options.bounds, options.snapshot),
            bounds: options.bounds,
            walk: DeadSpanCursor::new(options.dead, options.now_micros),
            reseeks: Reseeks::default(),
            keys_only: options.keys_only,
            keyspace: options.keyspace,
            operator: options.operator,
            operator_name: options.operator_name,
            pointers: options.pointers,
            ahead: ValueReadAhead::new(options.value_window),
            position: Position::Nowhere,
            key: Vec::new(),
            buffer: Vec::new(),
            shared: None,
            operands: Operands::default(),
            failed: None,
            error: Sticky::default(),
        }
    }

    /// Returns whether the view is on a key.
    #[inline]
    pub(crate) fn valid(&self) -> bool {
        self.position != Position::Nowhere
    }

    /// Returns the key. The view must be valid.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        match self.position {
            Position::Shown { .. } => self.cursor.key(),
            _ => &self.key,
        }
    }

    /// Returns the value. The view must be valid and must not be keys-only.
    // Always: each step of a scan calls it, and left to itself the compiler inlines it in some builds only.
    #[inline(always)]
    pub(crate) fn value(&self) -> &[u8] {
        match (self.position, &self.shared) {
            (Position::Shown { skip }, _) => &self.cursor.value()[skip..],
            (_, Some(shared)) => shared,
            (_, None) => &self.buffer,
        }
    }

    /// Returns the value as an owned slice. Copies it unless it lies in a block or is already held as a slice. Empty
    /// if the view is keys-only.
    pub(crate) fn value_slice(&self) -> Slice {
        match (self.position, &self.shared) {
            _ if self.keys_only => Slice::default(),
            (Position::Held(_), Some(shared)) => shared.clone(),
            (Position::Shown { skip: 0 }, _) => self.cursor.value_slice(),
            (Position::Shown { skip }, _) => self.cursor.value_slice().skip(skip),
            _ => Slice::from(self.value()),
        }
    }

    /// Moves to the first key.
    pub(crate) fn seek_first(&mut self) -> Result<()> {
        self.guarded(|view| {
            view.failed = None;
            let start = view.bounds.start.clone();
            view.search_from(&start)
        })
    }

    /// Moves to the last key.
    pub(crate) fn seek_last(&mut self) -> Result<()> {
        self.guarded(|view| {
            view.failed = None;
            match &view.bounds.end {
                Some(end) => view.cursor.seek_before(end)?,
                None => view.cursor.seek_last()?,
            }
            let end = view.bounds.end.clone();
            view.search_before(end)
        })
    }

    /// Moves to the first key at or after `key`.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.guarded(|view| {
            view.failed = None;
            let start = view.bounds.start.clone();
            view.search_from(key.max(&start))
        })
    }

    /// Moves to the last key before `key`.
    pub(crate) fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.guarded(|view| {
            view.failed = None;
            let end = view.bounds.end.as_deref().map_or(key, |end| key.min(end));
            view.cursor.seek_before(end)?;
            let end = Key::new(end);
            view.search_before(Some(end))
        })
    }

    /// Moves to the next key. The view must be valid.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<()> {
        self.guarded(|view| {
            match view.position {
                Position::Nowhere => match view.failed.take() {
                    None => return Ok(()),
                    Some(Side::Ahead) => {}
                    Some(Side::Behind) => view.cursor.seek(&view.key, 0)?,
                },
                Position::Shown { .. } => {
                    view.take_key();
                    view.cursor.next()?;
                }
                Position::Held(Side::Ahead) => {}
                Position::Held(Side::Behind) => view.cursor.seek(&view.key, 0)?,
            }
            view.search_behind()
        })
    }

    /// Moves to the previous key. The view must be valid.
    #[inline]
    pub(crate) fn prev(&mut self) -> Result<()> {
        self.guarded(|view| {
            match view.position {
                Position::Nowhere => match view.failed.take() {
                    None => return Ok(()),
                    Some(Side::Ahead) => view.cursor.seek_before(&view.key)?,
                    Some(Side::Behind) => {}
                },
                Position::Shown { .. } => {
                    view.take_key();
                    view.cursor.seek_before(&view.key)?;
                }
                Position::Held(Side::Ahead) => view.cursor.seek_before(&view.key)?,
                Position::Held(Side::Behind) => {}
            }
            view.search_back()
        })
    }

    /// Restricts the view to keys before `end`, which is in the bounds. The view must not be on a key outside.
    pub(crate) fn end_before(&mut self, end: &[u8]) {
        self.bounds.end = Some(Key::new(end));
    }

    /// Returns the range of visible keys.
    pub(crate) fn bounds(&self) -> &KeyRange {
        &self.bounds
    }

    /// Restricts the view to keys after `start`, which is in the bounds. The view must not be on a key outside.
    pub(crate) fn start_after(&mut self, start: &[u8]) {
        self.bounds.start = Key::successor(start);
    }

    /// Runs `body` unless an earlier call failed. After an error the view is on no key. An error that concerns one
    /// key is returned once: the view can then move past that key, or before it.
    #[inline]
    fn guarded(&mut self, body: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.error.check()?;
        match body(self) {
            Ok(()) => Ok(()),
            Err(error) => self.fail(error),
        }
    }

    #[cold]
    fn fail(&mut self, error: Error) -> Result<()> {
        self.position = Position::Nowhere;
        match error.key() {
            Some(_) => Err(error),
            None => self.error.keep(Err(error)),
        }
    }

    /// Copies the key of the entry under the cursor.
    #[inline]
    fn take_key(&mut self) {
        self.key.clear();
        self.key.extend_from_slice(self.cursor.key());
    }

    /// Reads the value that `pointer`, the version `seq` of `key`, refers to.
    fn read_value(&self, seq: Seq, pointer: &[u8], ahead: &mut ValueReadAhead) -> Result<Slice> {
        self.resolver().follow(&self.key, seq, pointer, ValueRead::Scan(ahead))
    }

    fn resolver(&self) -> Resolver<'_> {
        Resolver {
            keyspace: &self.keyspace,
            operator: self.operator.as_deref(),
            operator_name: self.operator_name.as_deref(),
            pointers: self.pointers.as_deref(),
        }
    }
}
