//! Dead spans: key ranges that a scan found empty, remembered so that later scans need not walk their tombstones.
//!
//! A queue deletes at its head, one key after another. Until a compaction drops the tombstones, the first live key
//! lies behind all of them. A scan that passes many dead entries between one live key and the next therefore
//! remembers the range between them, with its own snapshot `s`. No key of that range existed at `s`.
//!
//! This allows one conclusion: a reader whose snapshot is `s` or later may ignore every entry of the span whose
//! sequence number is at most `s`. All entries up to `s` were in place during the scan, and together they say that
//! the keys do not exist. The result therefore follows from the later entries alone, as after a range tombstone. A
//! reader with an earlier snapshot must not use the span. A scan ends a span at a value that has only expired, since
//! expiry depends on the time of the reader, not on its snapshot.
//!
//! A scan that uses a span hides all of these entries while it is in the span, including values. A source that
//! skipped may be the one that held their tombstones.
//!
//! Spans are an in-memory cache. They are few, small and disjoint, and the newest scan wins where two overlap.
//! Readers load the list without a lock. A scan that finds another scan updating the list does not wait for it.

use crate::base::cursor::Hidden;
use crate::read::coverage::hidden;
use arc_swap::ArcSwap;
use drumlin_env::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering::Relaxed},
};
use drumlin_types::{Key, KeyRange, Seq, bug};

/// Number of entries that a search passes before it remembers the span. Walking fewer entries again is cheaper than a
/// lookup. Tests have few entries.
pub(super) const WORTH: usize = if cfg!(any(test, sim)) { 4 } else { 64 };

/// Maximum number of spans of a keyspace.
const MOST: usize = 128;
/// Maximum length in bytes of the keys that bound a span. It limits the memory.
const LONGEST_KEY: usize = 1 << 10;

/// Key range without live keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DeadSpan {
    range: KeyRange,
    /// Snapshot at which no key of the range exists.
    seq: Seq,
    /// Time at which the scan evaluated expiry, in microseconds since the Unix epoch.
    time: u64,
}

impl DeadSpan {
    /// Returns the entries within `bounds` that the span hides.
    pub(crate) fn hidden<'a>(&'a self, bounds: &'a KeyRange) -> Hidden<'a> {
        hidden(&self.range, bounds, self.seq + 1)
    }
}

/// All dead spans of a keyspace, shared by its scans.
pub(crate) struct DeadSpans {
    /// Disjoint, in key order.
    spans: ArcSwap<Vec<Arc<DeadSpan>>>,
    /// Held by the scan that updates the list.
    update: Mutex<()>,
    /// Number of entries that scans passed without showing them.
    walked: AtomicU64,
    /// Number of times that a scan used a span.
    used: AtomicU64,
}

impl DeadSpans {
    pub(crate) fn new() -> DeadSpans {
        DeadSpans {
            spans: ArcSwap::from_pointee(Vec::new()),
            update: Mutex::new(()),
            walked: AtomicU64::new(0),
            used: AtomicU64::new(0),
        }
    }

    /// Returns the number of entries that scans passed without showing them, and the number of uses of spans.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.walked.load(Relaxed), self.used.load(Relaxed))
    }

    /// Returns the span that contains `key`, for a reader at `snapshot` that evaluates expiry at `time`.
    pub(crate) fn find(&self, key: &[u8], snapshot: Seq, time: u64) -> Option<Arc<DeadSpan>> {
        let spans = self.spans.load();
        let before = spans.partition_point(|span| *span.range.start <= *key);
        let span = &spans[before.checked_sub(1)?];
        let usable = (span.seq <= snapshot || bug!("skip-newer-than-snapshot")) && span.time <= time;
        if !usable || !span.range.is_before_end(key) {
            return None;
        }
        self.used.fetch_add(1, Relaxed);
        Some(span.clone())
    }

    /// Remembers that a scan at `snapshot`, which evaluated expiry at `time`, saw no key in `range`.
    pub(crate) fn remember(&self, range: KeyRange, snapshot: Seq, time: u64) {
        let long = range.start.len().max(range.end.as_ref().map_or(0, |end| end.len())) > LONGEST_KEY;
        if long || range.is_empty() {
            return;
        }
        let Some(_update) = self.update.try_lock() else { return };
        let spans = self.spans.load();
        let overlapping = spans.iter().filter(|span| span.range.overlaps(&range));
        if overlapping.clone().any(|span| span.seq > snapshot) {
            return;
        }
        let mut list: Vec<Arc<DeadSpan>> = Vec::with_capacity(spans.len() + 2);
        for span in spans.iter() {
            if !span.range.overlaps(&range) {
                list.push(span.clone());
                continue;
            }
            let (before, behind) = span.range.subtract(&range);
            let rests = [before, behind].into_iter().flatten();
            list.extend(rests.map(|range| Arc::new(DeadSpan { range, seq: span.seq, time: span.time })));
        }
        let at = list.partition_point(|span| span.range.start < range.start);
        list.insert(at, Arc::new(DeadSpan { range, seq: snapshot, time }));
        while list.len() > MOST {
            let oldest = (0..list.len()).min_by_key(|&i| list[i].seq).unwrap_or(0);
            list.remove(oldest);
        }
        self.spans.store(Arc::new(list));
    }
}

/// Use of dead spans by one scan, which also adds new ones.
pub(super) struct DeadSpanCursor {
    spans: Option<Arc<DeadSpans>>,
    /// Time at which the scan evaluates expiry.
    time: u64,
    /// Span used last. Sources may have skipped its tombstones. Until the scan leaves the span, the span must hide
    /// what those tombstones hide.
    active: Option<Arc<DeadSpan>>,
    /// Start of the range to remember: the start of the current search, or just after the last key that is not simply
    /// dead.
    edge: Vec<u8>,
    /// Whether `edge` is set for the current search.
    has_edge: bool,
    /// Number of entries that the current search has passed.
    passed: usize,
    /// Number of entries passed earlier and not yet added to `walked`.
    uncounted: usize,
}

impl DeadSpanCursor {
    pub(super) fn new(spans: Option<Arc<DeadSpans>>, time: u64) -> DeadSpanCursor {
        DeadSpanCursor {
            spans,
            time,
            active: None,
            edge: Vec::new(),
            has_edge: false,
            passed: 0,
            uncounted: 0,
        }
    }

    /// Starts a search.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.has_edge = false;
        self.uncounted += std::mem::take(&mut self.passed);
    }

    /// Records that the search passed `entries` that it does not show.
    #[inline]
    pub(super) fn pass(&mut self, entries: usize) {
        self.passed += entries;
    }

    /// Sets the edge to `key`, unless it is set. No key between `key` and the end of the search exists.
    pub(super) fn set_edge(&mut self, key: &[u8]) {
        if self.spans.is_some() && !self.has_edge {
            self.edge.clear();
            self.edge.extend_from_slice(key);
            self.has_edge = true;
        }
    }

    /// Sets the edge directly after `key`, unless it is set.
    pub(super) fn set_edge_behind(&mut self, key: &[u8]) {
        if self.spans.is_some() && !self.has_edge {
            self.set_edge(key);
            self.edge.push(0);
        }
    }

    /// Restarts the span, because the search met a value that has expired.
    pub(super) fn forget(&mut self) {
        self.begin();
    }

    /// Returns the span around `key` if it hides an entry of `seq` from a reader at `snapshot`. The scan uses it from
    /// then on.
    pub(super) fn span(&mut self, key: &[u8], seq: Seq, snapshot: Seq) -> Option<Arc<DeadSpan>> {
        if !self.active.as_ref().is_some_and(|span| span.range.contains(key)) {
            let found = self.spans.as_ref()?.find(key, snapshot, self.time)?;
            self.active = (seq <= found.seq).then_some(found);
        }
        self.active.clone().filter(|span| seq <= span.seq)
    }

    /// Returns the sequence number below which entries of `key` are hidden, by the range tombstone `cover` or by the
    /// span in use.
    #[inline]
    pub(super) fn cover(&mut self, key: &[u8], cover: Seq) -> Seq {
        if self.active.is_none() { cover } else { self.cover_in_span(key, cover) }
    }

    fn cover_in_span(&mut self, key: &[u8], cover: Seq) -> Seq {
        match &self.active {
            Some(span) if span.range.contains(key) => cover.max(span.seq + 1),
            _ => {
                self.active = None;
                cover
            }
        }
    }

    /// Returns whether the finished search passed enough entries to remember a span.
    #[inline]
    pub(super) fn is_worth(&self) -> bool {
        self.passed >= WORTH
    }

    /// Returns the edge, if it is set.
    pub(super) fn edge(&self) -> Option<Key> {
        self.has_edge.then(|| Key::new(&self.edge))
    }

    /// Remembers that `range` holds no key at `snapshot`.
    pub(super) fn remember(&mut self, range: KeyRange, snapshot: Seq) {
        self.uncounted += std::mem::take(&mut self.passed);
        self.count();
        if let Some(spans) = &self.spans {
            spans.remember(range, snapshot, self.time);
        }
    }

    fn count(&mut self) {
        if let Some(spans) = &self.spans {
            spans.walked.fetch_add(std::mem::take(&mut self.uncounted) as u64, Relaxed);
        }
    }
}

impl Drop for DeadSpanCursor {
    fn drop(&mut self) {
        self.uncounted += self.passed;
        if self.uncounted > 0 {
            self.count();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: &str, end: Option<&str>) -> KeyRange {
        KeyRange::new(Key::new(start.as_bytes()), end.map(|end| Key::new(end.as_bytes())))
    }

    #[test]
    fn the_newest_scan_wins_and_the_rest_stays() {
        let spans = DeadSpans::new();
        let at = |key: &str, snapshot| spans.find(key.as_bytes(), snapshot, 7).map(|span| span.seq);
        spans.remember(range("b", Some("f")), 10, 7);
        spans.remember(range("d", Some("h")), 20, 7);
        assert_eq!(
            ["a", "b", "d", "g", "h"].map(|key| at(key, 30)),
            [None, Some(10), Some(20), Some(20), None]
        );
        // Earlier readers do not use it, and a newer span stays.
        assert_eq!([at("d", 19), at("b", 10)], [None, Some(10)]);
        spans.remember(range("a", None), 15, 7);
        assert_eq!([at("a", 30), at("d", 30)], [None, Some(20)]);
        spans.remember(range("a", None), 20, 7);
        assert_eq!(["a", "d", "z"].map(|key| at(key, 30)), [Some(20); 3]);
        assert_eq!(spans.spans.load().len(), 1);
    }

    #[test]
    fn readers_of_an_earlier_time_do_not_use_a_span() {
        let spans = DeadSpans::new();
        spans.remember(range("a", None), 5, 100);
        assert_eq!([99, 100, 101].map(|time| spans.find(b"b", 5, time).is_some()), [false, true, true]);
        spans.remember(range("c", None), 6, 90);
        assert!(spans.find(b"d", 6, 90).is_some() && spans.find(b"b", 6, 90).is_none());
    }

    #[test]
    fn the_list_stays_small() {
        let spans = DeadSpans::new();
        for i in 0..1000u32 {
            let start = Key::new(&(i * 7 % 1000 * 2).to_be_bytes());
            let end = Some(Key::new(&(i * 7 % 1000 * 2 + 1).to_be_bytes()));
            spans.remember(KeyRange::new(start, end), Seq::from(i), 0);
            let list = spans.spans.load();
            assert!(list.len() <= MOST);
            assert!(list.windows(2).all(|pair| !pair[0].range.overlaps(&pair[1].range)));
            assert!(list.is_sorted_by(|a, b| a.range.start < b.range.start));
        }
        spans.remember(KeyRange::new(Key::new(&[1; 5000]), None), 2000, 0);
        assert!(spans.find(&[2], 5000, 0).is_none());
    }
}
