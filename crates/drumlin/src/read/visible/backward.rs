//! Backward search: the oldest version of a key comes first.
//!
//! Any version may turn out to be the relevant one. The search therefore copies the latest candidate and decides the
//! key when the cursor has moved to the previous key. It decides a key of more than [`MAX_STEPS`] versions from its
//! newest version, as the forward search does, and leaves it with a seek. It skips deleted and hidden entries like
//! the forward search.

use super::forward::Verdict;
use super::{MAX_STEPS, Position, Side, VisibleIter};
use crate::base::cursor::{Cursor, Direction};
use crate::base::error::Result;
use crate::base::resolve::Meaning;
use drumlin_types::{Key, KeyRange, Kind, Seq};

impl<C: Cursor> VisibleIter<C> {
    /// Finds the last visible key before `end`. The cursor is on the last entry before it.
    pub(super) fn search_before(&mut self, end: Option<Key>) -> Result<()> {
        self.reseeks.begin(Direction::Backward);
        self.walk.begin();
        self.search(Some(end))
    }

    /// Finds the last visible key at or before the entry under the cursor, which is the last entry of its key.
    pub(super) fn search_back(&mut self) -> Result<()> {
        self.reseeks.go_on(Direction::Backward);
        self.walk.begin();
        self.search(None)
    }

    /// Finds the last visible key at or before the entry under the cursor. Only hidden entries of that entry's key
    /// may come after it. If `edge` is set, no key exists from there back to that entry.
    fn search(&mut self, mut edge: Option<Option<Key>>) -> Result<()> {
        self.position = Position::Nowhere;
        // The first key of a search that starts in the middle is usually live.
        let mut in_dead = edge.is_some();
        while self.cursor.valid() && *self.cursor.key() >= *self.bounds.start {
            let cover = self.cover();
            if (in_dead || self.cursor.seq() < cover) && self.skip_back(cover, &mut edge)? {
                continue;
            }
            self.take_key();
            match self.decide_oldest_first(cover)? {
                Verdict::Visible => {
                    self.position = Position::Held(Side::Behind);
                    break;
                }
                Verdict::Deleted => {
                    edge.get_or_insert_with(|| Some(Key::successor(&self.key)));
                    in_dead = true;
                }
                Verdict::Expired => {
                    self.walk.forget();
                    edge = Some(Some(Key::new(&self.key)));
                }
            }
        }
        if self.walk.is_worth()
            && let Some(end) = edge
        {
            self.remember_behind(end);
        }
        Ok(())
    }

    /// Moves the cursor back from a deleted or hidden entry past others, if a dead span or a range tombstone allows
    /// it.
    #[cold]
    fn skip_back(&mut self, cover: Seq, edge: &mut Option<Option<Key>>) -> Result<bool> {
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
        // The key may have newer versions, which are not hidden.
        edge.get_or_insert_with(|| Some(Key::new(key)));
        self.reseeks.check(key)?;
        let passed = self.cursor.skip_back(&hidden)?;
        self.walk.pass(passed);
        Ok(true)
    }

    /// Remembers that no key exists between the current position of the search and `end`.
    #[cold]
    fn remember_behind(&mut self, end: Option<Key>) {
        let start = match self.position {
            Position::Nowhere => self.bounds.start.clone(),
            _ => Key::successor(&self.key),
        };
        self.walk.remember(KeyRange::new(start, end), self.snapshot);
    }

    /// Evaluates the versions of `key`. The cursor is on its oldest version, and `cover` is the newest tombstone over
    /// it. Holds the value if it is visible. Leaves the cursor on the last entry before the key in any case.
    fn decide_oldest_first(&mut self, cover: Seq) -> Result<Verdict> {
        let (mut base, mut base_seq) = (Meaning::Deleted, 0);
        let mut expired = false;
        self.operands.clear();
        self.shared = None;
        let mut steps = 0;
        while self.cursor.valid() && self.cursor.key() == self.key {
            steps += 1;
            if steps > MAX_STEPS {
                self.walk.pass(steps - 1);
                return self.decide_by_seek();
            }
            if (cover..=self.snapshot).contains(&self.cursor.seq()) {
                match Meaning::of(self.cursor.kind(), self.cursor.value(), || self.now_micros)? {
                    Meaning::Operand { skip } => self.operands.push(&self.cursor.value()[skip..]),
                    Meaning::ExpiredOperand => expired = true,
                    meaning => {
                        (base, base_seq) = (meaning, self.cursor.seq());
                        expired = self.cursor.kind() == Kind::PutExpiring;
                        self.operands.clear();
                        self.hold_value(meaning);
                    }
                }
            }
            if drumlin_types::bug!("backward-skips-a-version") {
                self.cursor.seek_before(&self.key)?;
                break;
            }
            self.cursor.prev()?;
        }
        let is_visible = self.settle(base, base_seq)?;
        // All versions but the one that is shown.
        self.walk.pass(steps.saturating_sub(usize::from(is_visible)));
        Ok(match is_visible {
            true => Verdict::Visible,
            false if expired => Verdict::Expired,
            false => Verdict::Deleted,
        })
    }

    /// Copies the value under the cursor if it is needed.
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

    /// Computes and holds the value of `base`, the version `base_seq` that the buffer holds, and the operands, oldest
    /// first. Returns whether there is one.
    fn settle(&mut self, base: Meaning, base_seq: Seq) -> Result<bool> {
        if self.operands.is_empty() && base == Meaning::Deleted {
            return Ok(false);
        }
        if self.keys_only {
            return Ok(true);
        }
        if base == Meaning::Pointer {
            self.failed = Some(Side::Behind);
            let mut ahead = std::mem::take(&mut self.ahead);
            let value = self.read_value(base_seq, &self.buffer, &mut ahead);
            self.ahead = ahead;
            self.shared = Some(value?);
            self.failed = None;
        }
        if !self.operands.is_empty() {
            let below = match (base, &self.shared) {
                (Meaning::Deleted, _) => None,
                (_, Some(pointed)) => Some(&**pointed),
                (_, None) => Some(&*self.buffer),
            };
            self.failed = Some(Side::Behind);
            let merged = self.resolver().merge(&self.key, below, &self.operands.list())?;
            self.failed = None;
            self.shared = Some(merged);
        }
        Ok(true)
    }

    /// Decides a key of many versions from its newest one. Leaves the cursor before the key.
    fn decide_by_seek(&mut self) -> Result<Verdict> {
        self.reseeks.check(&self.key)?;
        self.cursor.seek(&self.key, self.snapshot)?;
        let seen = self.cursor.valid() && self.cursor.key() == self.key;
        let cover = if seen { self.cover() } else { 0 };
        let verdict = match seen && self.cursor.seq() >= cover {
            true => self.decide_newest_first(cover)?,
            false => Verdict::Deleted,
        };
        if verdict == Verdict::Visible
            && let Position::Shown { skip } = self.position
        {
            self.hold_value(Meaning::Value { skip });
        }
        self.cursor.seek_before(&self.key)?;
        Ok(verdict)
    }
}
