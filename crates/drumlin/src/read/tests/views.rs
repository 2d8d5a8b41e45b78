//! Tests of user views against the plain definition: walks, both ends, errors, effort.

use super::history::{Draw, History, Spread, VecRun, key_pool, options};
use super::vec_cursor::{Entry, Fuse, Meter, VecCursor};
use crate::base::cursor::Cursor;
use crate::base::error::{ErrorKind, Result};
use crate::base::merge_operator::MergeOperator;
use crate::base::rangedel::{RangeTombstone, RangeTombstones};
use crate::ops::iter::Iter;
use crate::ops::scan::ScanSource;
use crate::read::coverage::Coverage;
use crate::read::visible::MAX_STEPS;
use crate::read::{DeadSpans, MergeCursor, RunCursor, TombstoneSource, VisibleIter};
use drumlin_types::{Key, KeyRange, Kind, Seq};
use std::collections::VecDeque;
use std::sync::Arc;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Moves `view` at random and compares it with the sorted pairs after every call.
fn walk(
    draw: &mut Draw,
    view: &mut VisibleIter<impl Cursor>,
    expected: &Pairs,
    pool: &[Vec<u8>],
    calls: usize,
) {
    let mut at: Option<usize> = None;
    for _ in 0..calls {
        let key = draw.pick(pool);
        let before = expected.partition_point(|(k, _)| k < key);
        let to = match (draw.below(12), at) {
            (0, _) => view.seek_first().map(|()| Some(0)),
            (1, _) => view.seek_last().map(|()| expected.len().checked_sub(1)),
            (2, _) => view.seek(key).map(|()| Some(before)),
            (3, _) => view.seek_before(key).map(|()| before.checked_sub(1)),
            (4..8, Some(at)) => view.next().map(|()| Some(at + 1)),
            (8.., Some(at)) => view.prev().map(|()| at.checked_sub(1)),
            _ => continue,
        };
        at = to.unwrap().filter(|&to| to < expected.len());
        let shown = view.valid().then(|| (view.key().to_vec(), view.value().to_vec()));
        assert_eq!(shown.as_ref(), at.map(|at| &expected[at]));
        if let Some((_, value)) = shown {
            assert_eq!(*view.value_slice(), *value);
        }
    }
}

fn random_spread(draw: &mut Draw) -> Spread {
    // Few keys give long chains of versions.
    let keys = *draw.pick(&[1, 3, 12, 25]);
    let operations = draw.below(120);
    let history = History::random(draw, keys, operations);
    let others = *draw.pick(&[0, 1, 3, 12]);
    Spread::random(draw, history, others)
}

fn random_bounds(draw: &mut Draw, spread: &Spread) -> KeyRange {
    if draw.chance(40) { KeyRange::all() } else { draw.range(&spread.history.pool) }
}

#[test]
fn walks_show_what_the_definition_says() {
    let mut shown = 0;
    for seed in 0..400 {
        let mut draw = Draw::new(seed);
        let spread = random_spread(&mut draw);
        for _ in 0..4 {
            let snapshot = draw.below(130) as Seq;
            let bounds = random_bounds(&mut draw, &spread);
            let expected: Pairs = spread.history.visible(snapshot, &bounds).into_iter().collect();
            shown += expected.len();
            let mut view = spread.view(snapshot, &bounds, &Fuse::none());
            walk(&mut draw, &mut view, &expected, &spread.history.pool, 60);
        }
    }
    assert!(shown > 2000, "{shown}");
}

/// Dead spans found by scans at one snapshot never hide anything at another.
#[test]
fn walks_that_share_spans_show_what_the_definition_says() {
    let mut used = 0;
    for seed in 0..400 {
        let mut draw = Draw::new(seed);
        let spread = random_spread(&mut draw);
        let dead = Arc::new(DeadSpans::new());
        for _ in 0..12 {
            let snapshot = 1 + draw.below(130) as Seq;
            let bounds = random_bounds(&mut draw, &spread);
            let expected: Pairs = spread.history.visible(snapshot, &bounds).into_iter().collect();
            let mut view = spread.view_with(snapshot, &bounds, &dead);
            walk(&mut draw, &mut view, &expected, &spread.history.pool, 40);
        }
        used += dead.counts().1;
    }
    assert!(used > 5000, "{used}");
}

/// Returns a run of files of 100 keys each, and a tombstone over most of them.
fn trimmed(files: usize, seq: Seq) -> (VecRun, TombstoneSource) {
    let key = |file: usize, i: usize| format!("{file:05}-{i:03}");
    let file = |f: usize| {
        let entries = (0..100).map(|i| Entry::put(&key(f, i), (f * 100 + i) as Seq + 1, "v")).collect();
        let end = Key::new(key(f + 1, 0).as_bytes());
        (KeyRange::new(Key::new(key(f, 0).as_bytes()), Some(end)), Arc::new(entries))
    };
    let run = VecRun { files: (0..files).map(file).collect(), meter: Arc::default(), fuse: Fuse::none() };
    let range = KeyRange::new(Key::new(key(0, 50).as_bytes()), Some(Key::new(key(files - 1, 50).as_bytes())));
    let tombstones = RangeTombstones::new(vec![RangeTombstone { range, seq }]);
    (run, (KeyRange::all(), Arc::new(tombstones)))
}

/// The cost of a range tombstone to a scan does not depend on the number of entries and files that it covers.
#[test]
fn covered_files_are_neither_opened_nor_walked() {
    let costs = [10, 1000].map(|files| {
        let (run, source) = trimmed(files, 1_000_000);
        let meter = run.meter.clone();
        let cursor = MergeCursor::new(vec![RunCursor::new(run)]);
        let mut view = VisibleIter::new(cursor, options(2_000_000, KeyRange::all(), vec![source]));
        let cost = || {
            let meters = [&meter.steps, &meter.seeks, &meter.opens];
            meters.map(Meter::take)
        };
        let mut costs = Vec::new();
        view.seek(b"00000-049").unwrap();
        costs.push(cost());
        view.next().unwrap();
        assert!(view.key().ends_with(b"-050") && !view.key().starts_with(b"00000"));
        costs.push(cost());
        view.prev().unwrap();
        assert_eq!(view.key(), b"00000-049");
        costs.push(cost());
        view.seek(b"00000-070").unwrap();
        assert!(view.key().ends_with(b"-050"));
        costs.push(cost());
        assert!(costs.iter().flatten().all(|&cost| cost <= 4), "{costs:?}");
        costs
    });
    assert_eq!(costs[0], costs[1]);
    // Entries newer than the tombstone are not skipped.
    let (run, source) = trimmed(10, 450);
    let cursor = MergeCursor::new(vec![RunCursor::new(run)]);
    let mut view = VisibleIter::new(cursor, options(2_000_000, KeyRange::all(), vec![source]));
    view.seek(b"00000-050").unwrap();
    assert_eq!(view.key(), b"00004-049");
    view.prev().unwrap();
    assert_eq!(view.key(), b"00000-049");
}

/// Head of a queue: the second scan skips the range that the first found empty, in both directions, and sees later
/// entries.
#[test]
fn a_scan_leaves_a_span_for_the_next() {
    let dead = Arc::new(DeadSpans::new());
    let key = |i: usize| format!("{i:06}");
    let delete = |i: usize| Entry { key: key(i).into(), seq: 10, kind: Kind::Delete, value: Vec::new() };
    let entries = |alive: usize| -> Vec<Entry> {
        let dead = (0..1000).flat_map(|i| [delete(i), Entry::put(&key(i), 5, "v")]);
        dead.filter(|e| *e.key != *key(alive).as_bytes()).collect()
    };
    let view = |older: Vec<Entry>, newer: Vec<Entry>, snapshot: Seq| {
        let meter: Arc<Meter> = Arc::default();
        let bounds = KeyRange::all();
        let files = |entries: Vec<Entry>| vec![(KeyRange::all(), Arc::new(entries))];
        let run = |entries| VecRun { files: files(entries), meter: meter.clone(), fuse: Fuse::none() };
        let cursor = MergeCursor::new(vec![RunCursor::new(run(older)), RunCursor::new(run(newer))]);
        let mut options = options(snapshot, bounds, Vec::new());
        options.dead = Some(dead.clone());
        (VisibleIter::new(cursor, options), meter)
    };
    let cost = |meter: &Meter| Meter::take(&meter.steps) + Meter::take(&meter.seeks);
    for backward in [false, true] {
        let walk = |newer: Vec<Entry>, snapshot: Seq| {
            let (mut view, meter) = view(entries(usize::MAX), newer, snapshot);
            if backward { view.seek_last() } else { view.seek_first() }.unwrap();
            (view.valid().then(|| view.key().to_vec()), cost(&meter))
        };
        let (first, second) = (walk(Vec::new(), 20), walk(Vec::new(), 21));
        assert_eq!((first.0, second.0), (None, None));
        assert!(second.1 <= 4, "{}", second.1);
        let later = vec![Entry::put(&key(500), 30, "back")];
        let (found, cost) = walk(later.clone(), 40);
        assert_eq!(found, Some(key(500).into_bytes()));
        assert!(cost <= 6, "{cost}");
        assert_eq!(walk(later, 29).0, None);
        // A reader with a snapshot before the deletes sees everything.
        assert_eq!(walk(Vec::new(), 9).0, Some(key(if backward { 999 } else { 0 }).into_bytes()));
    }
}

#[test]
fn keys_only_shows_the_same_keys_without_operator_or_value_files() {
    for seed in 0..200 {
        let mut draw = Draw::new(seed);
        let spread = random_spread(&mut draw);
        let snapshot = draw.below(130) as Seq;
        let bounds = random_bounds(&mut draw, &spread);
        let expected: Vec<Vec<u8>> = spread.history.visible(snapshot, &bounds).into_keys().collect();
        let mut options = options(snapshot, bounds, spread.tombstones.clone());
        (options.keys_only, options.operator, options.pointers) = (true, None, None);
        let mut view = VisibleIter::new(spread.cursor(&Fuse::none()), options);
        let (mut forward, mut backward) = (Vec::new(), Vec::new());
        view.seek_first().unwrap();
        while view.valid() {
            forward.push(view.key().to_vec());
            assert!(view.value_slice().is_empty());
            view.next().unwrap();
        }
        view.seek_last().unwrap();
        while view.valid() {
            backward.insert(0, view.key().to_vec());
            view.prev().unwrap();
        }
        assert_eq!((&forward, &backward), (&expected, &expected));
    }
}

fn range_iter(spread: &Spread, snapshot: Seq, bounds: &KeyRange, fuse: &Fuse) -> Iter {
    // Both ends are created beforehand. They are alike, so the order of requests does not matter.
    let mut views = vec![spread.view(snapshot, bounds, fuse), spread.view(snapshot, bounds, fuse)];
    Iter::new(Box::new(move || Ok(views.pop().expect("two ends"))), Arc::default(), None)
}

#[test]
fn both_ends_meet() {
    for seed in 0..400 {
        let mut draw = Draw::new(seed);
        let spread = random_spread(&mut draw);
        let snapshot = draw.below(130) as Seq;
        let bounds = random_bounds(&mut draw, &spread);
        let mut left: VecDeque<_> = spread.history.visible(snapshot, &bounds).into_iter().collect();
        let mut iter = range_iter(&spread, snapshot, &bounds, &Fuse::none());
        let front_percent = *draw.pick(&[0, 20, 50, 100]);
        for _ in 0..left.len() + 3 {
            let (item, expected) = match draw.chance(front_percent) {
                true => (iter.next(), left.pop_front()),
                false => (iter.next_back(), left.pop_back()),
            };
            let item = item.map(|item| item.unwrap()).map(|(key, value)| (key.to_vec(), value.to_vec()));
            assert_eq!(item, expected);
        }
    }
}

#[test]
fn an_error_is_never_taken_for_the_end() {
    let (mut failures, mut completed) = (0, 0);
    for seed in 0..60 {
        let mut draw = Draw::new(seed);
        let spread = random_spread(&mut draw);
        let bounds = random_bounds(&mut draw, &spread);
        let mut expected: Pairs = spread.history.visible(100, &bounds).into_iter().collect();
        for backward in [false, true] {
            for calls in (0..200).step_by(3) {
                let mut iter = range_iter(&spread, 100, &bounds, &Fuse::after(calls));
                let mut step = || if backward { iter.next_back() } else { iter.next() };
                let mut seen: Pairs = Vec::new();
                let end = loop {
                    match step() {
                        Some(Ok((key, value))) => seen.push((key.to_vec(), value.to_vec())),
                        end => break end,
                    }
                };
                if end.is_none() {
                    completed += 1;
                    assert_eq!(seen, expected);
                    continue;
                }
                failures += 1;
                assert!(expected.starts_with(&seen));
                assert_eq!(end.unwrap().unwrap_err().kind(), ErrorKind::Io);
                for _ in 0..3 {
                    assert!(iter.next().is_none() && iter.next_back().is_none(), "an error is shown once");
                }
            }
            expected.reverse();
        }
    }
    assert!(failures > 1000 && completed > 100, "{failures} {completed}");
}

#[test]
fn views_keep_their_error() {
    for calls in 0..12 {
        let entries = (0..10).map(|i| Entry::put(&format!("k{i}"), 1, "v")).collect();
        let cursor = VecCursor::with(Arc::new(entries), Arc::default(), Fuse::after(calls));
        let mut view = VisibleIter::new(cursor, options(9, KeyRange::all(), Vec::new()));
        let mut walk = || -> Result<()> {
            view.seek_first()?;
            for _ in 0..4 {
                view.next()?;
            }
            for _ in 0..3 {
                view.prev()?;
            }
            Ok(())
        };
        if walk().is_err() {
            assert!(!view.valid());
            assert!(view.seek_first().is_err() && view.seek_last().is_err() && view.seek(b"k1").is_err());
            assert!(view.next().is_err() && view.prev().is_err() && view.seek_before(b"k1").is_err());
            assert!(!view.valid());
        } else {
            assert!(calls >= 9, "{calls}");
            assert_eq!(view.key(), b"k1");
        }
    }
}

/// Returns a view of `entries` that counts the calls on them.
fn metered(entries: Vec<Entry>, snapshot: Seq) -> (VisibleIter<VecCursor>, Arc<Meter>) {
    let meter: Arc<Meter> = Arc::default();
    let cursor = VecCursor::with(Arc::new(entries), meter.clone(), Fuse::none());
    (VisibleIter::new(cursor, options(snapshot, KeyRange::all(), Vec::new())), meter)
}

#[test]
fn long_chains_are_passed_by_seeks() {
    let chain = (1..=1000).rev().map(|seq| Entry::put("b", seq, &seq.to_string()));
    let mut entries = vec![Entry::put("a", 1, "first")];
    entries.extend(chain);
    entries.push(Entry::put("c", 1, "last"));
    for snapshot in [1, 500, 1000] {
        let (mut view, meter) = metered(entries.clone(), snapshot);
        let effort = |view: &VisibleIter<VecCursor>, key: &str| {
            assert_eq!(view.key(), key.as_bytes());
            let (steps, seeks) = (Meter::take(&meter.steps), Meter::take(&meter.seeks));
            assert!(steps <= 2 * MAX_STEPS + 2 && seeks <= 3, "{steps} steps, {seeks} seeks to {key}");
        };
        view.seek_first().unwrap();
        effort(&view, "a");
        view.next().unwrap();
        effort(&view, "b");
        assert_eq!(view.value(), snapshot.to_string().as_bytes());
        view.next().unwrap();
        effort(&view, "c");
        view.prev().unwrap();
        effort(&view, "b");
        assert_eq!(view.value(), snapshot.to_string().as_bytes());
        view.prev().unwrap();
        effort(&view, "a");
    }
}

#[test]
fn single_versions_cost_one_step_each() {
    let entries = (0..100).map(|i| Entry::put(&format!("{i:03}"), 1, "v")).collect();
    let (mut view, meter) = metered(entries, 1);
    view.seek_first().unwrap();
    (0..99).for_each(|_| view.next().unwrap());
    assert_eq!(Meter::take(&meter.steps), 99);
    view.seek_last().unwrap();
    (0..99).for_each(|_| view.prev().unwrap());
    assert_eq!((view.key(), Meter::take(&meter.steps)), (&b"000"[..], 100));
    assert_eq!(Meter::take(&meter.seeks), 2);
}

#[test]
fn newer_versions_cost_one_step_each() {
    let entries = (0..100).flat_map(|i| [9, 1].map(|seq| Entry::put(&format!("{i:03}"), seq, "v")));
    let (mut view, meter) = metered(entries.collect(), 1);
    view.seek_first().unwrap();
    (0..99).for_each(|_| view.next().unwrap());
    assert_eq!((view.key(), Meter::take(&meter.steps)), (&b"099"[..], 199));
    view.seek_last().unwrap();
    (0..99).for_each(|_| view.prev().unwrap());
    assert_eq!((view.key(), Meter::take(&meter.steps)), (&b"000"[..], 200));
    assert_eq!(Meter::take(&meter.seeks), 2);
}

#[test]
fn keys_that_are_all_new_cost_one_step_each() {
    let entries = (0..100).map(|i| Entry::put(&format!("{i:03}"), 9, "v"));
    let (mut view, meter) = metered(entries.collect(), 1);
    view.seek_first().unwrap();
    view.seek_last().unwrap();
    assert!(!view.valid());
    assert_eq!((Meter::take(&meter.steps), Meter::take(&meter.seeks)), (200, 2));
}

#[test]
fn bounds_stop_the_search() {
    // The search does not continue through deleted keys beyond the bounds.
    let dead =
        |i: usize| Entry { key: format!("{i:04}").into(), seq: 2, kind: Kind::Delete, value: Vec::new() };
    let entries: Vec<Entry> = (0..1000).map(dead).collect();
    let meter: Arc<Meter> = Arc::default();
    let cursor = VecCursor::with(Arc::new(entries), meter.clone(), Fuse::none());
    let bounds = KeyRange::new(Key::new(b"0500"), Some(Key::new(b"0510")));
    let mut view = VisibleIter::new(cursor, options(9, bounds, Vec::new()));
    view.seek_first().unwrap();
    assert!(!view.valid());
    view.seek_last().unwrap();
    assert!(!view.valid());
    assert_eq!(Meter::take(&meter.steps), 20);
}

#[test]
fn both_ends_share_the_search() {
    // The front finds the only key. The back must not search the range before it again.
    let meter: Arc<Meter> = Arc::default();
    let mut entries: Vec<Entry> = (0..1000)
        .map(|i| Entry { key: format!("{i:04}").into(), seq: 2, kind: Kind::Delete, value: Vec::new() })
        .collect();
    entries[990].kind = Kind::Put;
    let run = VecRun {
        files: vec![(KeyRange::all(), Arc::new(entries))],
        meter: meter.clone(),
        fuse: Fuse::none(),
    };
    let mut iter = Iter::new(
        Box::new(move || {
            let cursor = ScanSource::Test(Box::new(RunCursor::new(run.clone())));
            Ok(VisibleIter::new(MergeCursor::new(vec![cursor]), options(9, KeyRange::all(), Vec::new())))
        }),
        Arc::default(),
        None,
    );
    assert_eq!(&*iter.next().unwrap().unwrap().0, b"0990");
    assert_eq!(Meter::take(&meter.steps), 990);
    assert!(iter.next_back().is_none());
    assert!(Meter::take(&meter.steps) <= 10);
    assert!(iter.next().is_none() && iter.next_back().is_none());
}

struct Refuse;

impl MergeOperator for Refuse {
    fn name(&self) -> &str {
        "refuse"
    }
    fn merge(&self, _: &[u8], _: Option<&[u8]>, _: &[&[u8]]) -> Option<Vec<u8>> {
        None
    }
}

#[test]
fn what_cannot_be_resolved_is_an_error() {
    let version = |kind: Kind, value: &str| Entry { key: b"k".to_vec(), seq: 5, kind, value: value.into() };
    let kind_of = |entry: Entry, operator: Option<Arc<dyn MergeOperator>>| {
        let mut options = options(9, KeyRange::all(), Vec::new());
        options.operator_name = operator.as_ref().map(|operator| Arc::from(operator.name()));
        (options.operator, options.pointers) = (operator, None);
        let mut both = [false, true].map(|backward| {
            let mut view = VisibleIter::new(VecCursor::new(vec![entry.clone()]), options.clone());
            let error = if backward { view.seek_last() } else { view.seek_first() }.unwrap_err();
            assert!(!view.valid());
            (error.kind(), error.to_string())
        });
        assert_eq!(both[0], both[1]);
        std::mem::replace(&mut both[0], (ErrorKind::Bug, String::new()))
    };
    let (kind, text) = kind_of(version(Kind::Merge, "+1"), None);
    assert_eq!(kind, ErrorKind::MergeOperatorMissing);
    assert!(text.contains("\"test\""), "{text}");
    let (kind, text) = kind_of(version(Kind::Merge, "+1"), Some(Arc::new(Refuse)));
    assert_eq!(kind, ErrorKind::MergeFailed);
    assert!(text.contains("\"refuse\""), "{text}");
    assert_eq!(kind_of(version(Kind::PutExpiring, "short"), None).0, ErrorKind::Corruption);
    assert_eq!(kind_of(version(Kind::PutPointer, "p"), None).0, ErrorKind::Corruption);
}

#[test]
fn coverage_agrees_with_every_source_asked_alone() {
    for seed in 0..300 {
        let mut draw = Draw::new(seed);
        let pool = key_pool(&mut draw, 15);
        let sources: Vec<TombstoneSource> = (0..draw.below(12))
            .map(|_| {
                let tombstones: Vec<RangeTombstone> = (0..draw.below(4))
                    .map(|_| RangeTombstone { range: draw.range(&pool), seq: 1 + draw.below(50) as Seq })
                    .collect();
                (draw.range(&pool), Arc::new(RangeTombstones::new(tombstones)))
            })
            .collect();
        let snapshot = draw.below(60) as Seq;
        let mut coverage = Coverage::new(sources.clone(), &KeyRange::all(), snapshot);
        for _ in 0..100 {
            let key = draw.pick(&pool);
            let alone = sources.iter().filter(|(bounds, _)| bounds.contains(key));
            let expected = alone.map(|(_, t)| t.covering(key, snapshot)).max().unwrap_or(0);
            assert_eq!(coverage.at(key), expected);
        }
    }
}
