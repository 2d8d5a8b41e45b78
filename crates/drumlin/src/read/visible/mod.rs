//! What a user sees: one value per user key, of the versions under a merge.
//!
//! For each user key the versions that count are those no newer than the snapshot and not older than the
//! newest range tombstone over the key. The newest of them decides: a put gives its value, a deletion or
//! an expired value none, and operands are collected down to the version that they build on.
//!
//! `forward` and `backward` hold the two searches. The first copies no values; neither walks long chains of
//! versions. A change of direction is one seek.
//!
//! Invariants, by position:
//! - `Shown`: the inner cursor is on the version that gives the value.
//! - `Held(Ahead)`: `key` and the value are held; the inner cursor is on an older version of `key`, on a
//!   later key, or past the end.
//! - `Held(Behind)`: held too; the inner cursor is on the last entry before `key`, or before the beginning.
//! - `Nowhere`: not valid.

mod backward;
mod forward;

use super::coverage::{Coverage, TombstoneSource};
use super::resolve::{Operands, PointerReader, Resolver};
use super::sticky::Sticky;
use crate::cursor::Cursor;
use crate::error::Result;
use crate::merge_operator::MergeOperator;
use crate::slice::Slice;
use drumlin_types::{Key, KeyRange, Seq};
use std::sync::Arc;

/// Versions of one key that are passed step by step before a seek takes over.
pub(super) const MAX_STEPS: usize = 8;

/// What a reader sees, apart from the entries.
#[derive(Clone)]
pub(crate) struct VisibleOptions {
    /// Versions newer than this are not seen.
    pub(crate) snapshot: Seq,
    /// The time of the read, microseconds since the Unix epoch: expiring values end at it.
    pub(crate) now_micros: u64,
    /// Only keys in here are seen.
    pub(crate) bounds: KeyRange,
    /// Values are not wanted: `value` is empty or arbitrary, and neither operators nor value files are used.
    pub(crate) keys_only: bool,
    /// Name of the keyspace, for errors.
    pub(crate) keyspace: Arc<str>,
    /// The keyspace's merge operator, if it has one.
    pub(crate) operator: Option<Arc<dyn MergeOperator>>,
    /// Reads values from value files.
    pub(crate) pointers: Option<Arc<PointerReader>>,
    /// Range tombstones of every source; those of one run in key order, one run after the other.
    pub(crate) tombstones: Vec<TombstoneSource>,
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

/// The user's view of the entries of `cursor`.
pub(crate) struct VisibleIter<C> {
    cursor: C,
    snapshot: Seq,
    now_micros: u64,
    bounds: KeyRange,
    keys_only: bool,
    keyspace: Arc<str>,
    operator: Option<Arc<dyn MergeOperator>>,
    pointers: Option<Arc<PointerReader>>,
    coverage: Coverage,
    position: Position,
    /// The key of a held position; while searching, the key whose versions are being passed.
    key: Vec<u8>,
    /// The value of a held position, unless `shared` has it.
    buffer: Vec<u8>,
    shared: Option<Slice>,
    operands: Operands,
    error: Sticky,
}

impl<C: Cursor> VisibleIter<C> {
    /// The view of `cursor`'s entries that `options` describe. Not valid until a seek.
    pub(crate) fn new(cursor: C, options: VisibleOptions) -> VisibleIter<C> {
        VisibleIter {
            cursor,
            snapshot: options.snapshot,
            now_micros: options.now_micros,
            coverage: Coverage::new(options.tombstones, &options.bounds, options.snapshot),
            bounds: options.bounds,
            keys_only: options.keys_only,
            keyspace: options.keyspace,
            operator: options.operator,
            pointers: options.pointers,
            position: Position::Nowhere,
            key: Vec::new(),
            buffer: Vec::new(),
            shared: None,
            operands: Operands::default(),
            error: Sticky::default(),
        }
    }

    /// Whether it is on a key.
    #[inline]
    pub(crate) fn valid(&self) -> bool {
        self.position != Position::Nowhere
    }

    /// The key. Only when valid.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        match self.position {
            Position::Shown { .. } => self.cursor.key(),
            _ => &self.key,
        }
    }

    /// The value. Only when valid, and only if values are wanted.
    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        match (self.position, &self.shared) {
            (Position::Shown { skip }, _) => &self.cursor.value()[skip..],
            (_, Some(shared)) => shared,
            (_, None) => &self.buffer,
        }
    }

    /// The value to keep: copied unless it lies in a block or is held as a slice already. Empty if values are not wanted.
    pub(crate) fn value_slice(&self) -> Slice {
        match (self.position, &self.shared) {
            _ if self.keys_only => Slice::default(),
            (Position::Held(_), Some(shared)) => shared.clone(),
            (Position::Shown { skip: 0 }, _) => self.cursor.value_slice(),
            (Position::Shown { skip }, _) => self.cursor.value_slice().skip(skip),
            _ => Slice::from(self.value()),
        }
    }

    /// To the first key.
    pub(crate) fn seek_first(&mut self) -> Result<()> {
        self.guarded(|view| {
            view.cursor.seek(&view.bounds.start, view.snapshot)?;
            view.search_forward(false)
        })
    }

    /// To the last key.
    pub(crate) fn seek_last(&mut self) -> Result<()> {
        self.guarded(|view| {
            match &view.bounds.end {
                Some(end) => view.cursor.seek_before(end)?,
                None => view.cursor.seek_last()?,
            }
            view.search_backward()
        })
    }

    /// To the first key at or after `key`.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.guarded(|view| {
            view.cursor.seek(key.max(&*view.bounds.start), view.snapshot)?;
            view.search_forward(false)
        })
    }

    /// To the last key before `key`.
    pub(crate) fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.guarded(|view| {
            let end = view.bounds.end.as_deref().map_or(key, |end| key.min(end));
            view.cursor.seek_before(end)?;
            view.search_backward()
        })
    }

    /// To the following key. Only when valid.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<()> {
        self.guarded(|view| {
            match view.position {
                Position::Nowhere => return Ok(()),
                Position::Shown { .. } => {
                    view.take_key();
                    view.cursor.next()?;
                }
                Position::Held(Side::Ahead) => {}
                Position::Held(Side::Behind) => view.cursor.seek(&view.key, 0)?,
            }
            view.search_forward(true)
        })
    }

    /// To the preceding key. Only when valid.
    #[inline]
    pub(crate) fn prev(&mut self) -> Result<()> {
        self.guarded(|view| {
            match view.position {
                Position::Nowhere => return Ok(()),
                Position::Shown { .. } => {
                    view.take_key();
                    view.cursor.seek_before(&view.key)?;
                }
                Position::Held(Side::Ahead) => view.cursor.seek_before(&view.key)?,
                Position::Held(Side::Behind) => {}
            }
            view.search_backward()
        })
    }

    /// From now on sees only keys before `end`, which is in the bounds. It must not stand on another.
    pub(crate) fn end_before(&mut self, end: &[u8]) {
        self.bounds.end = Some(Key::new(end));
    }

    /// The range that it sees.
    pub(crate) fn bounds(&self) -> &KeyRange {
        &self.bounds
    }

    /// From now on sees only keys after `start`, which is in the bounds. It must not stand on another.
    pub(crate) fn start_after(&mut self, start: &[u8]) {
        self.bounds.start = Key::successor(start);
    }

    /// Runs `body` unless there was an error before; after one the iterator is nowhere.
    #[inline]
    fn guarded(&mut self, body: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.error.check()?;
        let result = body(self);
        if result.is_err() {
            self.position = Position::Nowhere;
        }
        self.error.keep(result)
    }

    /// Remembers the key of the entry under the cursor.
    #[inline]
    fn take_key(&mut self) {
        self.key.clear();
        self.key.extend_from_slice(self.cursor.key());
    }

    fn resolver(&self) -> Resolver<'_> {
        Resolver {
            keyspace: &self.keyspace,
            operator: self.operator.as_deref(),
            pointers: self.pointers.as_deref(),
        }
    }
}
