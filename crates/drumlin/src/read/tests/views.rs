//! What users see, against the plain definition: walks, both ends, errors, effort.

use super::history::{Draw, History, Spread, VecRun, key_pool, options};
use super::vec_cursor::{Entry, Fuse, Meter, VecCursor};
use crate::cursor::Cursor;
use crate::error::{ErrorKind, Result};
use crate::iter::Iter;
use crate::merge_operator::MergeOperator;
use crate::rangedel::{RangeTombstone, RangeTombstones};
use crate::read::coverage::Coverage;
use crate::read::visible::MAX_STEPS;
use crate::read::{MergeCursor, RunCursor, TombstoneSource, VisibleIter};
use crate::scan::ScanSource;
use drumlin_types::{Key, KeyRange, Kind, Seq};
use std::collections::VecDeque;
use std::sync::Arc;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Walks `view` at random and compares it with the sorted pairs after every call.
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
    // Few keys make long chains of versions.
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
    // Both ends are made beforehand, in whatever order they are asked for: they are alike.
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
                for _ in 0..3 {
                    assert_eq!(iter.next().unwrap().unwrap_err().kind(), ErrorKind::Io);
                    assert_eq!(iter.next_back().unwrap().unwrap_err().kind(), ErrorKind::Io);
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

/// A view of `entries` that counts the calls on them.
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
    // Deleted keys beyond the bounds are not searched through.
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
    // The front finds the only key; the back must not search the ground before it.
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
    assert_eq!(kind, ErrorKind::InvalidOption);
    assert!(text.contains("\"test\""), "{text}");
    let (kind, text) = kind_of(version(Kind::Merge, "+1"), Some(Arc::new(Refuse)));
    assert_eq!(kind, ErrorKind::Corruption);
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
