//! The search forward: the newest version of a key comes first.
//!
//! The cursor stays on the entry that it shows, so keys and values are not copied; the step after copies the
//! key once and passes over its older versions. After [`MAX_STEPS`] versions of one key that do not matter,
//! older or newer than what is wanted, a seek takes the cursor past the rest.

use super::{MAX_STEPS, Position, Side, VisibleIter};
use crate::cursor::Cursor;
use crate::error::Result;
use crate::read::resolve::Meaning;
use drumlin_types::Seq;

impl<C: Cursor> VisibleIter<C> {
    /// Finds the first visible key at or after the entry under the cursor. `passing`: the versions of `key`
    /// are done with.
    pub(super) fn search_forward(&mut self, mut passing: bool) -> Result<()> {
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
    pub(super) fn decide_newest_first(&mut self) -> Result<bool> {
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
}
