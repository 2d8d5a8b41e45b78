//! What a user sees: one value per user key, of the versions under a merge.
//!
//! For each user key the versions that count are those no newer than the snapshot and not older than the
//! newest range tombstone over the key. The newest of them decides: a put gives its value, a deletion or
//! an expired value none, and operands are collected down to the version that they build on.
//!
//! Forward, the inner cursor meets the newest version of a key first. It stays on the entry that it shows,
//! so keys and values are not copied; the step after copies the key once and passes over its older versions.
//!
//! Backward, it meets the oldest version first. Every version may be the one that counts, so the latest
//! candidate is copied, and the key is known only when the cursor has left it to the one before.
//!
//! Neither way walks long chains: after [`MAX_STEPS`] versions of one key that do not matter a seek takes the
//! cursor past the rest (forward), or to the newest version that counts (backward).
//!
//! Invariants, by position:
//! - `Shown`: the inner cursor is on the version that gives the value.
//! - `Held(Ahead)`: `key` and the value are held; the inner cursor is on an older version of `key`, on a
//!   later key, or past the end.
//! - `Held(Behind)`: held too; the inner cursor is on the last entry before `key`, or before the beginning.
//! - `Nowhere`: not valid.

use super::coverage::{Coverage, TombstoneSource};
use super::resolve::{Meaning, Operands, PointerReader, Resolver};
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

    /// The value to keep: copied unless it is held as a slice already. Empty if values are not wanted.
    pub(crate) fn value_slice(&self) -> Slice {
        match (self.position, &self.shared) {
            _ if self.keys_only => Slice::default(),
            (Position::Held(_), Some(shared)) => shared.clone(),
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

    /// Finds the first visible key at or after the entry under the cursor. `passing`: the versions of `key`
    /// are done with.
    fn search_forward(&mut self, mut passing: bool) -> Result<()> {
        self.position = Position::Nowhere;
        self.shared = None;
        let mut steps = 0;
        while self.cursor.valid() {
            let same = self.cursor.key() == self.key;
            if passing && same {
                steps += 1;
                match steps > MAX_STEPS {
                    true => self.cursor.seek(&self.key, 0)?,
                    false => self.cursor.next()?,
                }
                continue;
            }
            if !self.bounds.is_before_end(self.cursor.key()) {
                break;
            }
            if self.cursor.seq() > self.snapshot {
                if passing || !same {
                    self.take_key();
                    (passing, steps) = (false, 0);
                }
                steps += 1;
                match steps > MAX_STEPS {
                    true => self.cursor.seek(&self.key, self.snapshot)?,
                    false => self.cursor.next()?,
                }
                continue;
            }
            if self.decide_newest_first()? {
                break;
            }
            self.take_key();
            (passing, steps) = (true, 0);
        }
        Ok(())
    }

    /// Whether the key under the cursor is visible; the cursor is on the newest version that the snapshot
    /// sees. Sets the position if so, and leaves the cursor where it is if not.
    fn decide_newest_first(&mut self) -> Result<bool> {
        let cover = self.coverage.at(self.cursor.key());
        if self.cursor.seq() < cover {
            return Ok(false);
        }
        match Meaning::of(self.cursor.kind(), self.cursor.value(), || self.now_micros)? {
            Meaning::Absent => return Ok(false),
            Meaning::Value { skip } => self.position = Position::Shown { skip },
            Meaning::Pointer | Meaning::Operand if self.keys_only => {
                self.position = Position::Shown { skip: 0 }
            }
            Meaning::Pointer => {
                self.take_key();
                self.shared = Some(self.resolver().follow(&self.key, self.cursor.value())?);
                self.position = Position::Held(Side::Ahead);
            }
            Meaning::Operand => {
                self.merge_newest_first(cover)?;
                self.position = Position::Held(Side::Ahead);
            }
        }
        Ok(true)
    }

    /// Collects the operands from the cursor on, down to what they build on, and merges them.
    fn merge_newest_first(&mut self, cover: Seq) -> Result<()> {
        self.take_key();
        self.operands.clear();
        let mut pointed = None;
        let mut base = None;
        while self.cursor.valid() && self.cursor.seq() >= cover && self.cursor.key() == self.key {
            match Meaning::of(self.cursor.kind(), self.cursor.value(), || self.now_micros)? {
                Meaning::Operand => {
                    self.operands.push(self.cursor.value());
                    self.cursor.next()?;
                    continue;
                }
                Meaning::Absent => {}
                Meaning::Value { skip } => base = Some(&self.cursor.value()[skip..]),
                Meaning::Pointer => pointed = Some(self.resolver().follow(&self.key, self.cursor.value())?),
            }
            break;
        }
        let mut operands = self.operands.list();
        operands.reverse();
        let merged = self.resolver().merge(&self.key, base.or(pointed.as_deref()), &operands)?;
        self.shared = Some(merged);
        Ok(())
    }

    /// Finds the last visible key at or before the entry under the cursor, which is the last of its key.
    fn search_backward(&mut self) -> Result<()> {
        self.position = Position::Nowhere;
        while self.cursor.valid() && *self.cursor.key() >= *self.bounds.start {
            self.take_key();
            if self.decide_oldest_first()? {
                self.position = Position::Held(Side::Behind);
                break;
            }
        }
        Ok(())
    }

    /// Whether `key` is visible; the cursor is on its oldest version. Holds the value if so, and leaves
    /// the cursor on the last entry before the key in either case.
    fn decide_oldest_first(&mut self) -> Result<bool> {
        let cover = self.coverage.at(&self.key);
        let mut base = Meaning::Absent;
        self.operands.clear();
        self.shared = None;
        let mut steps = 0;
        while self.cursor.valid() && self.cursor.key() == self.key {
            let seq = self.cursor.seq();
            let too_new = seq > self.snapshot;
            steps += 1;
            if steps > MAX_STEPS {
                if !too_new {
                    return self.decide_by_seek();
                }
                self.cursor.seek_before(&self.key)?;
                break;
            }
            if seq >= cover && !too_new {
                match Meaning::of(self.cursor.kind(), self.cursor.value(), || self.now_micros)? {
                    Meaning::Operand => self.operands.push(self.cursor.value()),
                    meaning => {
                        base = meaning;
                        self.operands.clear();
                        self.hold_value(meaning);
                    }
                }
            }
            self.cursor.prev()?;
        }
        self.settle(base)
    }

    /// Copies the value under the cursor, unless it is not needed.
    fn hold_value(&mut self, meaning: Meaning) {
        self.buffer.clear();
        match meaning {
            Meaning::Value { skip } if !self.keys_only => {
                self.buffer.extend_from_slice(&self.cursor.value()[skip..]);
            }
            Meaning::Pointer if !self.keys_only => self.buffer.extend_from_slice(self.cursor.value()),
            _ => {}
        }
    }

    /// Whether `base`, held in the buffer, and the operands, oldest first, make a value; holds it.
    fn settle(&mut self, base: Meaning) -> Result<bool> {
        if self.operands.is_empty() && base == Meaning::Absent {
            return Ok(false);
        }
        if self.keys_only {
            return Ok(true);
        }
        if base == Meaning::Pointer {
            self.shared = Some(self.resolver().follow(&self.key, &self.buffer)?);
        }
        if !self.operands.is_empty() {
            let below = match (base, &self.shared) {
                (Meaning::Absent, _) => None,
                (_, Some(pointed)) => Some(&**pointed),
                (_, None) => Some(&*self.buffer),
            };
            let merged = self.resolver().merge(&self.key, below, &self.operands.list())?;
            self.shared = Some(merged);
        }
        Ok(true)
    }

    /// Decides a key of many versions from its newest one; leaves the cursor before the key.
    fn decide_by_seek(&mut self) -> Result<bool> {
        self.cursor.seek(&self.key, self.snapshot)?;
        let seen = self.cursor.valid() && self.cursor.key() == self.key;
        let visible = seen && self.decide_newest_first()?;
        if visible && let Position::Shown { skip } = self.position {
            self.hold_value(Meaning::Value { skip });
        }
        self.cursor.seek_before(&self.key)?;
        Ok(visible)
    }
}
