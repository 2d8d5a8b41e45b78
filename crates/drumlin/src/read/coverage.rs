//! The newest range tombstone over a key, for a walk over many keys.
//!
//! Each source of range tombstones counts only inside its bounds. Sources are arranged in lanes, each a
//! list of sources with disjoint ascending bounds, so that a lookup costs two binary searches per lane,
//! not one per source. A caller that lists its sources run by run gets one lane per run; any other
//! order is right too, with more lanes.
//!
//! The answer is the same for all keys between two neighbouring edges of bounds and fragments. The last
//! such stretch is remembered: a scan searches once per stretch and else makes one or two comparisons.

use crate::rangedel::RangeTombstones;
use drumlin_types::{Key, KeyRange, Seq};
use std::sync::Arc;

/// Range tombstones, and the bounds of the file reference that holds them.
pub(crate) type TombstoneSource = (KeyRange, Arc<RangeTombstones>);

/// The range tombstones that a snapshot sees.
pub(crate) struct Coverage {
    /// Each lane: sources with disjoint bounds, ascending.
    lanes: Vec<Vec<TombstoneSource>>,
    snapshot: Seq,
    /// Keys from the first key to before the second are covered by the sequence number.
    stretch: Option<Stretch>,
}

struct Stretch {
    range: KeyRange,
    seq: Seq,
}

impl Coverage {
    /// The tombstones of `sources` over keys of `range`, as of `snapshot`.
    pub(crate) fn new(sources: Vec<TombstoneSource>, range: &KeyRange, snapshot: Seq) -> Coverage {
        let mut lanes: Vec<Vec<TombstoneSource>> = Vec::new();
        for source in sources {
            if source.1.is_empty() || !source.0.overlaps(range) {
                continue;
            }
            match lanes.last_mut() {
                Some(lane) if lane.last().is_some_and(|(last, _)| is_after(&source.0, last)) => {
                    lane.push(source)
                }
                _ => lanes.push(vec![source]),
            }
        }
        Coverage { lanes, snapshot, stretch: None }
    }

    /// The newest tombstone over `key`; 0 when there is none. Versions older than it are hidden.
    #[inline]
    pub(crate) fn at(&mut self, key: &[u8]) -> Seq {
        if self.lanes.is_empty() {
            return 0;
        }
        match &self.stretch {
            Some(stretch) if stretch.range.contains(key) => stretch.seq,
            _ => self.look_up(key),
        }
    }

    /// Finds the stretch of `key`, remembers it, and gives its tombstone.
    fn look_up(&mut self, key: &[u8]) -> Seq {
        let mut stretch = Stretch { range: KeyRange::all(), seq: 0 };
        for lane in &self.lanes {
            let after = lane.partition_point(|(bounds, _)| *bounds.start <= *key);
            let (before, behind) = lane.split_at(after);
            let within = stretch.narrow(
                before.last().map(|(bounds, _)| bounds),
                behind.first().map(|(bounds, _)| bounds),
                key,
            );
            if within && let Some((_, tombstones)) = before.last() {
                let seq =
                    tombstones.covering_between(key, self.snapshot, |start, end| stretch.cut(start, end));
                stretch.seq = stretch.seq.max(seq);
            }
        }
        let seq = stretch.seq;
        self.stretch = Some(stretch);
        seq
    }
}

impl Stretch {
    /// Cuts the stretch at the edges of the ranges around `key`: `at`, the last one that starts at or
    /// before it, and `next`, the following one. True when `key` is in `at`.
    fn narrow(&mut self, at: Option<&KeyRange>, next: Option<&KeyRange>, key: &[u8]) -> bool {
        let mut within = false;
        let (mut start, mut end) = (None, next.map(|next| &next.start));
        if let Some(at) = at {
            within = at.is_before_end(key);
            (start, end) = if within { (Some(&at.start), at.end.as_ref()) } else { (at.end.as_ref(), end) };
        }
        self.cut(start, end);
        within
    }

    /// Leaves of the stretch what lies from `start` to before `end`.
    fn cut(&mut self, start: Option<&Key>, end: Option<&Key>) {
        if let Some(start) = start.filter(|start| **start > self.range.start) {
            self.range.start = start.clone();
        }
        if let Some(end) = end.filter(|end| self.range.is_before_end(end)) {
            self.range.end = Some(end.clone());
        }
    }
}

/// Whether every key of `range` comes after those of `earlier`.
fn is_after(range: &KeyRange, earlier: &KeyRange) -> bool {
    earlier.end.as_ref().is_some_and(|end: &Key| *end <= range.start)
}
