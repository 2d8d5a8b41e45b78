//! Merging iterator: many cursors as one, in internal order, in both directions.
//!
//! The cursor keeps one head for each source that has entries left (see `heads`). The least head is the current
//! entry. A step moves the source of the current entry and reinserts its head.
//!
//! Invariant: in forward direction, every other source is on its first entry after the current one, or past its end.
//! In backward direction, it is on its last entry before the current one, or before its beginning. A change of
//! direction is therefore one step of every source across the current entry, not a seek. Likewise, a seek in the
//! direction of travel moves only the sources that have not reached the target.
//!
//! A skip moves each source past hidden entries separately. A source may then be further on than its next entry. The
//! entries in between stay hidden from the reader as long as it lives.
//!
//! (key, seq) pairs are unique across the sources. A memtable may gain entries during the merge, all newer than the
//! reader's snapshot. The loops in `cross_forward` and `cross_backward` ensure that such an entry never makes the
//! cursor return to entries that it has passed.

use super::heads::{Head, Heads, prefix};
use super::sticky::Sticky;
use crate::base::cursor::{Cursor, Direction, Hidden};
use crate::base::error::Result;
use crate::base::slice::Slice;
use drumlin_types::{Kind, Seq};
use std::cmp::Ordering;

/// Merging iterator over cursors.
pub(crate) struct MergeCursor<C> {
    sources: Vec<C>,
    heads: Heads,
    direction: Direction,
    error: Sticky,
}

impl<C: Cursor> MergeCursor<C> {
    /// Creates a cursor that merges `sources`. It is invalid until a seek.
    pub(crate) fn new(sources: Vec<C>) -> MergeCursor<C> {
        MergeCursor {
            sources,
            heads: Heads::default(),
            direction: Direction::Forward,
            error: Sticky::default(),
        }
    }

    /// Runs `body` unless an earlier call failed. After an error the cursor is invalid.
    #[inline]
    fn guarded<T>(&mut self, body: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.error.check()?;
        let result = body(self);
        if result.is_err() {
            self.heads.clear();
        }
        self.error.keep(result)
    }

    fn current(&self) -> &C {
        let head = self.heads.first().expect("the cursor is valid");
        &self.sources[head.source]
    }

    /// Calls `seek` on every source and starts in `direction`.
    fn seek_all(&mut self, direction: Direction, mut seek: impl FnMut(&mut C) -> Result<()>) -> Result<()> {
        for source in &mut self.sources {
            seek(source)?;
        }
        self.restart(direction);
        Ok(())
    }

    /// Rebuilds the heads for `direction`.
    fn restart(&mut self, direction: Direction) {
        self.direction = direction;
        let sources = &self.sources;
        let heads = sources
            .iter()
            .enumerate()
            .filter(|(_, source)| source.valid())
            .map(|(index, source)| Head::new(source.key(), source.seq(), index));
        self.heads.rebuild(heads, |a, b| comes_before(sources, direction, a, b));
    }

    /// Moves the source of the current entry with `step` and restores the order. Returns the result of `step`.
    #[inline]
    fn move_first<T>(&mut self, index: usize, step: impl FnOnce(&mut C) -> Result<T>) -> Result<T> {
        let given = step(&mut self.sources[index])?;
        let (sources, direction) = (&self.sources, self.direction);
        let before = |a: Head, b: Head| comes_before(sources, direction, a, b);
        let source = &sources[index];
        if source.valid() {
            self.heads.replace_first(Head::new(source.key(), source.seq(), index), before);
        } else {
            self.heads.remove_first(before);
        }
        Ok(given)
    }

    /// Moves every other source across the current entry, which stays current.
    #[cold]
    fn turn(&mut self, direction: Direction) -> Result<()> {
        let Some(head) = self.heads.first() else { return Ok(()) };
        let key = self.sources[head.source].key().to_vec();
        for (index, source) in self.sources.iter_mut().enumerate() {
            if index == head.source {
                continue;
            }
            match direction {
                Direction::Forward => cross_forward(source, &key, head.seq)?,
                Direction::Backward => cross_backward(source, &key, head.seq)?,
            }
        }
        self.restart(direction);
        Ok(())
    }

    /// Calls `seek` on the sources that are before (`key`, `seq`), or on all sources if the target may be before the
    /// current entry.
    fn seek_with(&mut self, key: &[u8], seq: Seq, mut seek: impl FnMut(&mut C) -> Result<()>) -> Result<()> {
        let mut ahead = self.direction == Direction::Forward && self.valid();
        ahead = ahead && order(self.current(), key, seq) != Ordering::Greater;
        if !ahead {
            return self.seek_all(Direction::Forward, seek);
        }
        while let Some(head) = self.heads.first().filter(|h| is_behind(&self.sources, h, key, seq)) {
            self.move_first(head.source, &mut seek)?;
        }
        Ok(())
    }

    /// Moves one step in `direction`.
    #[inline]
    fn step(&mut self, direction: Direction) -> Result<()> {
        if self.direction != direction {
            self.turn(direction)?;
        }
        let Some(head) = self.heads.first() else { return Ok(()) };
        self.move_first(head.source, |source| match direction {
            Direction::Forward => source.next(),
            Direction::Backward => source.prev(),
        })
    }
}

/// Returns whether head `a` comes before head `b` in `direction`.
#[inline]
fn comes_before<C: Cursor>(sources: &[C], direction: Direction, a: Head, b: Head) -> bool {
    let (a, b) = match direction {
        Direction::Forward => (a, b),
        Direction::Backward => (b, a),
    };
    if a.prefix != b.prefix {
        return a.prefix < b.prefix;
    }
    match sources[a.source].key().cmp(sources[b.source].key()) {
        Ordering::Less => true,
        Ordering::Greater => false,
        // Newer first; the index only makes the order total.
        Ordering::Equal => (b.seq, a.source) < (a.seq, b.source),
    }
}

/// Moves `source` from before (`key`, `seq`) to the first entry after it.
fn cross_forward(source: &mut impl Cursor, key: &[u8], seq: Seq) -> Result<()> {
    if source.valid() {
        source.next()?;
    } else {
        source.seek(key, seq)?;
    }
    while source.valid() && order(source, key, seq) != Ordering::Greater {
        source.next()?;
    }
    Ok(())
}

/// Moves `source` from after (`key`, `seq`) to the last entry before it.
fn cross_backward(source: &mut impl Cursor, key: &[u8], seq: Seq) -> Result<()> {
    if !source.valid() {
        source.seek(key, seq)?;
    }
    if source.valid() {
        source.prev()?;
    } else {
        source.seek_last()?;
    }
    while source.valid() && order(source, key, seq) != Ordering::Less {
        source.prev()?;
    }
    Ok(())
}

/// Compares the entry of `source` with (`key`, `seq`), in internal order.
fn order(source: &impl Cursor, key: &[u8], seq: Seq) -> Ordering {
    source.key().cmp(key).then(seq.cmp(&source.seq()))
}

/// Returns whether the entry of `head` comes before (`key`, `seq`), in internal order.
fn is_behind<C: Cursor>(sources: &[C], head: &Head, key: &[u8], seq: Seq) -> bool {
    match head.prefix.cmp(&prefix(key)) {
        Ordering::Equal => order(&sources[head.source], key, seq) == Ordering::Less,
        unequal => unequal == Ordering::Less,
    }
}

impl<C: Cursor> Cursor for MergeCursor<C> {
    #[inline]
    fn valid(&self) -> bool {
        self.heads.first().is_some()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.current().key()
    }

    #[inline]
    fn seq(&self) -> Seq {
        self.heads.first().expect("the cursor is valid").seq
    }

    #[inline]
    fn kind(&self) -> Kind {
        self.current().kind()
    }

    #[inline(always)]
    fn value(&self) -> &[u8] {
        self.current().value()
    }

    fn value_slice(&self) -> Slice {
        self.current().value_slice()
    }

    #[inline]
    fn is_warm(&self) -> bool {
        self.current().is_warm()
    }

    fn seek_first(&mut self) -> Result<()> {
        self.guarded(|merge| merge.seek_all(Direction::Forward, C::seek_first))
    }

    fn seek_last(&mut self) -> Result<()> {
        self.guarded(|merge| merge.seek_all(Direction::Backward, C::seek_last))
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        self.guarded(|merge| merge.seek_with(key, seq, |source| source.seek(key, seq)))
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.guarded(|merge| {
            let mut ahead = merge.direction == Direction::Backward && merge.valid();
            ahead = ahead && merge.current().key() >= key;
            if !ahead {
                return merge.seek_all(Direction::Backward, |source| source.seek_before(key));
            }
            // Heads at or after (key, MAX) are not yet before every version of `key`.
            while let Some(head) =
                merge.heads.first().filter(|h| !is_behind(&merge.sources, h, key, Seq::MAX))
            {
                merge.move_first(head.source, |source| source.seek_before(key))?;
            }
            Ok(())
        })
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.guarded(|merge| merge.step(Direction::Forward))
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.guarded(|merge| merge.step(Direction::Backward))
    }

    fn seek_over(&mut self, key: &[u8], seq: Seq, hidden: &Hidden<'_>) -> Result<()> {
        self.guarded(|merge| merge.seek_with(key, seq, |source| source.seek_over(key, seq, hidden)))
    }

    fn skip(&mut self, hidden: &Hidden<'_>) -> Result<usize> {
        self.guarded(|merge| {
            if merge.direction != Direction::Forward {
                merge.turn(Direction::Forward)?;
            }
            let mut looked = 0;
            while let Some(head) = merge.heads.first().filter(|head| head.seq < hidden.below)
                && hidden.is_before_end(merge.current().key())
            {
                looked += merge.move_first(head.source, |source| source.skip(hidden))?;
            }
            Ok(looked)
        })
    }

    fn skip_back(&mut self, hidden: &Hidden<'_>) -> Result<usize> {
        self.guarded(|merge| {
            if merge.direction != Direction::Backward {
                merge.turn(Direction::Backward)?;
            }
            let mut looked = 0;
            while let Some(head) = merge.heads.first().filter(|head| head.seq < hidden.below)
                && merge.current().key() >= hidden.start
            {
                looked += merge.move_first(head.source, |source| source.skip_back(hidden))?;
            }
            Ok(looked)
        })
    }
}
