//! The search backward: the oldest version of a key comes first.
//!
//! Every version may be the one that counts, so the latest candidate is copied, and the key is decided only
//! when the cursor has left it to the one before. A key of more than [`MAX_STEPS`] versions is decided from
//! its newest one, as in the search forward, and left by a seek.

use super::{MAX_STEPS, Position, Side, VisibleIter};
use crate::cursor::Cursor;
use crate::error::Result;
use crate::read::resolve::Meaning;

impl<C: Cursor> VisibleIter<C> {
    /// Finds the last visible key at or before the entry under the cursor, which is the last of its key.
    pub(super) fn search_backward(&mut self) -> Result<()> {
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
            steps += 1;
            if steps > MAX_STEPS {
                return self.decide_by_seek();
            }
            if (cover..=self.snapshot).contains(&self.cursor.seq()) {
                match Meaning::of(self.cursor.kind(), self.cursor.value(), || self.now_micros)? {
                    Meaning::Operand => self.operands.push(self.cursor.value()),
                    meaning => {
                        base = meaning;
                        self.operands.clear();
                        self.hold_value(meaning);
                    }
                }
            }
            if drumlin_types::bug!("B18") {
                self.cursor.seek_before(&self.key)?;
                break;
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
