//! Forward search: the newest version of a key comes first.
//!
//! The cursor stays on the entry that it shows, so keys and values are not copied. The next step copies the key once
//! and passes its older versions. After [`MAX_STEPS`] irrelevant versions of one key, too old or too new, a seek
//! moves the cursor past the rest.
//!
//! At a deleted or hidden entry the search skips to the end of the dead span (a key range that an earlier scan found
//! empty) or of the range tombstone. A search that passed many entries adds a dead span.

use super::{MAX_STEPS, Position, Side, VisibleIter};
use crate::base::cursor::{Cursor, Direction};
use crate::base::error::Result;
use crate::base::resolve::Meaning;
use crate::base::slice::Slice;
use drumlin_types::{Key, KeyRange, Kind, Seq};

/// Result of evaluating the versions of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Visible,
    /// The key does not exist, independent of the time.
    Deleted,
    /// The key, or a part of its value, existed at an earlier time and has expired.
    Expired,
}

/// Returns whether two keys are equal. Compares their ends first: neighbours in key order differ there.
#[inline]
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.last_chunk::<8>() == b.last_chunk::<8>() && a == b
}

impl<C: Cursor> VisibleIter<C> {
    /// Finds the first visible key at or after `key`, which is not before the bounds.
    pub(super) fn search_from(&mut self, key: &[u8]) -> Result<()> {
        self.reseeks.begin(Direction::Forward);
        self.walk.begin();
        let inside = self.bounds.is_before_end(key);
        let span = self.walk.span(key, 0, self.snapshot).filter(|_| inside);
        let hidden = match &span {
            Some(span) => Some(span.hidden(&self.bounds)),
            None if inside => self.coverage.hidden(key, &self.bounds),
            None => None,
        };
        match hidden {
            Some(hidden) => self.cursor.seek_over(key, self.snapshot, &hidden)?,
            None => self.cursor.seek(key, self.snapshot)?,
        }
        self.search_on(Some(key))
    }

    /// Finds the first visible key after `key`. The cursor is on a version of `key` or after it.
    pub(super) fn search_behind(&mut self) -> Result<()> {
        self.reseeks.go_on(Direction::Forward);
        self.walk.begin();
        self.search_on(None)
    }

    /// Finds the first visible key at or after the entry under the cursor. The search starts at `from`, or else after
    /// the versions of `key`.
    fn search_on(&mut self, mut from: Option<&[u8]>) -> Result<()> {
        let mut passing = from.is_none();
        self.position = Position::Nowhere;
        self.shared = None;
        let mut steps = 0;
        while self.cursor.valid() {
            let same = is_same(self.cursor.key(), &self.key);
            if passing && same {
                steps += 1;
                self.walk.pass(1);
                match steps == MAX_STEPS + 1 {
                    true => self.reseek(0)?,
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
                match steps == MAX_STEPS + 1 {
                    true => self.reseek(self.snapshot)?,
                    false => self.cursor.next()?,
                }
                continue;
            }
            let cover = self.cover();
            let verdict = match self.cursor.seq() < cover {
                true => Verdict::Deleted,
                false => self.decide_newest_first(cover)?,
            };
            match verdict {
                Verdict::Visible => break,
                Verdict::Deleted if self.skip(from.take(), cover)? => continue,
                Verdict::Deleted => self.take_key(),
                Verdict::Expired => {
                    from = None;
                    self.walk.forget();
                }
            }
            (passing, steps) = (true, 0);
        }
        if self.walk.is_worth() {
            self.remember_before();
        }
        Ok(())
    }

    /// Moves the cursor past the versions of `key` that are newer than `seq`.
    #[cold]
    fn reseek(&mut self, seq: Seq) -> Result<()> {
        self.reseeks.check(&self.key)?;
        self.cursor.seek(&self.key, seq)
    }

    /// Returns the sequence number below which entries of the key under the cursor are hidden.
    #[inline]
    pub(super) fn cover(&mut self) -> Seq {
        let key = self.cursor.key();
        let cover = self.coverage.at(key);
        self.walk.cover(key, cover)
    }

    /// Moves the cursor from a deleted or hidden entry past others, if a dead span or a range tombstone allows it. At
    /// the first such entry, `from` is the start of the search, unless the search started after `key`.
    #[cold]
    fn skip(&mut self, from: Option<&[u8]>, cover: Seq) -> Result<bool> {
        // The dead entries start after the key that the search left.
        match from {
            Some(from) => self.walk.set_edge(from),
            None => self.walk.set_edge_behind(&self.key),
        }
        let (key, seq) = (self.cursor.key(), self.cursor.seq());
        let span = self.walk.span(key, seq, self.snapshot);
        let hidden = match &span {
            Some(span) => span.hidden(&self.bounds),
            None if seq >= cover => return Ok(false),
            None => match self.coverage.hidden(key, &self.bounds) {
                Some(hidden) => hidden,
                None => return Ok(false),
            },
        };
        self.reseeks.check(key)?;
        let passed = self.cursor.skip(&hidden)?;
        self.walk.pass(passed);
        Ok(true)
    }

    /// Remembers that no key exists between the start of the search and its current position.
    #[cold]
    fn remember_before(&mut self) {
        let end = match self.position {
            Position::Nowhere => self.bounds.end.clone(),
            _ => Some(Key::new(self.key())),
        };
        if let Some(start) = self.walk.edge() {
            self.walk.remember(KeyRange::new(start, end), self.snapshot);
        }
    }

    /// Evaluates the key under the cursor, and sets the position if it is visible. The cursor is on the newest
    /// version that the snapshot sees and that `cover`, the newest range tombstone, does not hide. After a deletion
    /// the cursor stays in place. After an expired value `key` is set, and the cursor is on a version of it or after
    /// it.
    pub(super) fn decide_newest_first(&mut self, cover: Seq) -> Result<Verdict> {
        match Meaning::of(self.cursor.kind(), self.cursor.value(), || self.now_micros)? {
            Meaning::Deleted if self.cursor.kind() == Kind::PutExpiring => {
                self.take_key();
                return Ok(Verdict::Expired);
            }
            Meaning::Deleted => return Ok(Verdict::Deleted),
            Meaning::Value { skip } => self.position = Position::Shown { skip },
            Meaning::Pointer | Meaning::Operand { .. } if self.keys_only => {
                self.position = Position::Shown { skip: 0 }
            }
            Meaning::Pointer => {
                self.take_key();
                self.shared = Some(self.follow()?);
                self.position = Position::Held(Side::Ahead);
            }
            Meaning::Operand { .. } | Meaning::ExpiredOperand => return self.merge_newest_first(cover),
        }
        Ok(Verdict::Visible)
    }

    /// Reads the value that the pointer under the cursor refers to, a version of `key`. After an error that concerns
    /// this key only, the view can move past it.
    fn follow(&mut self) -> Result<Slice> {
        self.failed = Some(Side::Ahead);
        let mut ahead = std::mem::take(&mut self.ahead);
        let value = self.read_value(self.cursor.seq(), self.cursor.value(), &mut ahead);
        self.ahead = ahead;
        let value = value?;
        self.failed = None;
        Ok(value)
    }

    /// Collects the unexpired operands from the cursor on, down to the version that they build on, and merges them.
    /// If no operand is left, the result is that of this version. Sets `key`, and the position if the key is visible.
    fn merge_newest_first(&mut self, cover: Seq) -> Result<Verdict> {
        self.take_key();
        self.operands.clear();
        let mut pointed = None;
        let mut base = None;
        while self.cursor.valid() && self.cursor.seq() >= cover && self.cursor.key() == self.key {
            match Meaning::of(self.cursor.kind(), self.cursor.value(), || self.now_micros)? {
                Meaning::Operand { .. } if self.keys_only => {
                    self.position = Position::Shown { skip: 0 };
                    return Ok(Verdict::Visible);
                }
                Meaning::Operand { skip } => {
                    self.operands.push(&self.cursor.value()[skip..]);
                    self.cursor.next()?;
                    continue;
                }
                Meaning::ExpiredOperand => {
                    self.cursor.next()?;
                    continue;
                }
                Meaning::Deleted => {}
                Meaning::Value { skip } if self.operands.is_empty() => {
                    self.position = Position::Shown { skip };
                    return Ok(Verdict::Visible);
                }
                Meaning::Value { skip } => base = Some(&self.cursor.value()[skip..]),
                Meaning::Pointer if self.keys_only => {
                    self.position = Position::Shown { skip: 0 };
                    return Ok(Verdict::Visible);
                }
                Meaning::Pointer => pointed = Some(self.follow()?),
            }
            break;
        }
        let shown = if self.operands.is_empty() {
            pointed
        } else {
            let mut operands = self.operands.list();
            operands.reverse();
            self.failed = Some(Side::Ahead);
            let merged = self.resolver().merge(&self.key, base.or(pointed.as_deref()), &operands)?;
            self.failed = None;
            Some(merged)
        };
        if shown.is_none() {
            return Ok(Verdict::Expired);
        }
        self.shared = shown;
        self.position = Position::Held(Side::Ahead);
        Ok(Verdict::Visible)
    }
}
