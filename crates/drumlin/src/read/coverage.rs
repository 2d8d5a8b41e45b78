//! Newest range tombstone over a key, for a walk over many keys.
//!
//! Each source of range tombstones applies only within its bounds. Sources are grouped into lanes. A lane here is a
//! list of sources with disjoint ascending bounds, so a lookup costs two binary searches per lane instead of per
//! source. A caller that lists its sources run by run gets one lane per run. Any other order is also correct, but
//! gives more lanes.
//!
//! The result is the same for all keys between two neighbouring edges of bounds and fragments. The last such stretch
//! is cached: a scan searches once per stretch and otherwise makes one or two comparisons.

use crate::base::cursor::Hidden;
use crate::base::rangedel::RangeTombstones;
use drumlin_types::{Key, KeyRange, Seq};
use std::sync::Arc;

/// Range tombstones, with the bounds of the file reference that holds them.
pub(crate) type TombstoneSource = (KeyRange, Arc<RangeTombstones>);

/// Range tombstones that a snapshot sees.
pub(crate) struct Coverage {
    /// Lanes of sources; the bounds in a lane are disjoint and ascending.
    lanes: Vec<Vec<TombstoneSource>>,
    snapshot: Seq,
    /// Last range of keys looked up, with the sequence number that covers it.
    stretch: Option<Stretch>,
}

struct Stretch {
    range: KeyRange,
    seq: Seq,
}

impl Coverage {
    /// Creates the coverage of `sources` over keys of `range`, as of `snapshot`.
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

    /// Returns the sequence number of the newest tombstone over `key`; 0 if there is none. Older versions are hidden.
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

    /// Returns which entries of `bounds` around `key` the newest tombstone over `key` hides; `None` if there is no
    /// tombstone. `key` must be in `bounds`.
    pub(crate) fn hidden<'a>(&'a mut self, key: &[u8], bounds: &'a KeyRange) -> Option<Hidden<'a>> {
        let below = self.at(key);
        let stretch = self.stretch.as_ref().filter(|_| below > 0)?;
        Some(hidden(&stretch.range, bounds, below))
    }

    /// Finds and caches the stretch of `key`. Returns the sequence number of its tombstone.
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

/// Returns the entries older than `below` whose keys are in both ranges, as hidden.
pub(super) fn hidden<'a>(range: &'a KeyRange, bounds: &'a KeyRange, below: Seq) -> Hidden<'a> {
    let end = match (&range.end, &bounds.end) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.as_ref().or(b.as_ref()),
    };
    Hidden { start: (&range.start).max(&bounds.start), end: end.map(|end| &**end), below }
}

impl Stretch {
    /// Cuts the stretch at the edges of the ranges around `key`. `at` is the last range that starts at or before
    /// `key`, and `next` is the range after it. Returns whether `key` is in `at`.
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

    /// Reduces the stretch to the part from `start` to before `end`.
    fn cut(&mut self, start: Option<&Key>, end: Option<&Key>) {
        if let Some(start) = start.filter(|start| **start > self.range.start) {
            self.range.start = start.clone();
        }
        if let Some(end) = end.filter(|end| self.range.is_before_end(end)) {
            self.range.end = Some(end.clone());
        }
    }
}

/// Returns whether every key of `range` comes after those of `earlier`.
fn is_after(range: &KeyRange, earlier: &KeyRange) -> bool {
    earlier.end.as_ref().is_some_and(|end: &Key| *end <= range.start)
}
