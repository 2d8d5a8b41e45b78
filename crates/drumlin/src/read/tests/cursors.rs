//! Tests of merging, run and clipped cursors against a sorted list.

use super::history::{Draw, VecRun, key_pool};
use super::vec_cursor::{Entry, Fuse, Meter, VecCursor, sort};
use crate::base::cursor::Cursor;
use crate::read::{ClippedCursor, MergeCursor, RunCursor};
use drumlin_types::{Key, KeyRange, Kind, Seq};
use std::cmp::Reverse;
use std::sync::Arc;

/// Moves `cursor` at random and compares it with the sorted list after every call.
fn walk(draw: &mut Draw, cursor: &mut impl Cursor, expected: &[Entry], pool: &[Vec<u8>], calls: usize) {
    let mut at: Option<usize> = None;
    assert!(!cursor.valid());
    for _ in 0..calls {
        let key = draw.pick(pool);
        let to = match (draw.below(10), at) {
            (0, _) => cursor.seek_first().map(|()| Some(0)),
            (1, _) => cursor.seek_last().map(|()| expected.len().checked_sub(1)),
            (2, _) => {
                let seq = draw.below(60) as Seq;
                let to = expected.partition_point(|e| (&e.key, Reverse(e.seq)) < (key, Reverse(seq)));
                cursor.seek(key, seq).map(|()| Some(to))
            }
            (3, _) => {
                let to = expected.partition_point(|e| e.key < *key).checked_sub(1);
                cursor.seek_before(key).map(|()| to)
            }
            (4..7, Some(at)) => cursor.next().map(|()| Some(at + 1)),
            (7.., Some(at)) => cursor.prev().map(|()| at.checked_sub(1)),
            _ => continue,
        };
        at = to.unwrap().filter(|&to| to < expected.len());
        assert_eq!(cursor.valid(), at.is_some());
        if let Some(at) = at {
            let shown = Entry {
                key: cursor.key().to_vec(),
                seq: cursor.seq(),
                kind: cursor.kind(),
                value: cursor.value().to_vec(),
            };
            assert_eq!(shown, expected[at]);
        }
    }
}

fn random_entries(draw: &mut Draw, pool: &[Vec<u8>], count: usize) -> Vec<Entry> {
    let mut entries: Vec<Entry> = (1..=count as Seq)
        .map(|seq| Entry {
            key: draw.pick(pool).clone(),
            seq,
            kind: *draw.pick(&Kind::ALL),
            value: seq.to_le_bytes().to_vec(),
        })
        .collect();
    sort(&mut entries);
    entries
}

#[test]
fn merges_walk_like_a_sorted_list() {
    for seed in 0..200 {
        let mut draw = Draw::new(seed);
        let (keys, count) = (1 + draw.below(20), draw.below(60));
        let pool = key_pool(&mut draw, keys);
        let entries = random_entries(&mut draw, &pool, count);
        let sources = draw.below(20);
        let mut shares: Vec<Vec<Entry>> = vec![Vec::new(); sources];
        let mut expected = Vec::new();
        for entry in entries.into_iter().filter(|_| sources > 0) {
            shares[draw.below(sources)].push(entry.clone());
            expected.push(entry);
        }
        let mut merge = MergeCursor::new(shares.into_iter().map(VecCursor::new).collect());
        walk(&mut draw, &mut merge, &expected, &pool, 300);
    }
}

#[test]
fn clipped_cursors_show_only_their_range() {
    for seed in 0..200 {
        let mut draw = Draw::new(seed);
        let pool = key_pool(&mut draw, 12);
        let entries = random_entries(&mut draw, &pool, 30);
        let bounds = draw.range(&pool);
        let expected: Vec<Entry> = entries.iter().filter(|e| bounds.contains(&e.key)).cloned().collect();
        let mut clipped = ClippedCursor::new(VecCursor::new(entries), bounds);
        walk(&mut draw, &mut clipped, &expected, &pool, 200);
    }
}

#[test]
fn runs_walk_like_the_sorted_list_of_their_files() {
    for seed in 0..300 {
        let mut draw = Draw::new(seed);
        let pool = key_pool(&mut draw, 15);
        let mut cuts: Vec<&Vec<u8>> = (0..2 * draw.below(5)).map(|_| draw.pick(&pool)).collect();
        cuts.sort();
        let (mut files, mut expected) = (Vec::new(), Vec::new());
        for pair in cuts.chunks(2) {
            let bounds = KeyRange::new(Key::new(pair[0]), Some(Key::new(pair[1])));
            let count = draw.below(30);
            let table = random_entries(&mut draw, &pool, count);
            expected.extend(table.iter().filter(|e| bounds.contains(&e.key)).cloned());
            files.push((bounds, Arc::new(table)));
        }
        let run = VecRun { files, meter: Arc::default(), fuse: Fuse::none() };
        walk(&mut draw, &mut RunCursor::new(run), &expected, &pool, 200);
    }
}

#[test]
fn files_are_opened_when_reached() {
    let meter: Arc<Meter> = Arc::default();
    let files = ["b", "d", "f", "h"].map(|start| {
        let table = vec![Entry::put(start, 1, "v")];
        (KeyRange::inclusive(start.as_bytes(), start.as_bytes()), Arc::new(table))
    });
    let run = VecRun { files: files.to_vec(), meter: meter.clone(), fuse: Fuse::none() };
    let mut cursor = RunCursor::new(run);
    assert_eq!(Meter::take(&meter.opens), 0);
    cursor.seek(b"e", Seq::MAX).unwrap();
    assert_eq!((cursor.key(), Meter::take(&meter.opens)), (&b"f"[..], 1));
    cursor.next().unwrap();
    assert_eq!((cursor.key(), Meter::take(&meter.opens)), (&b"h"[..], 1));
    cursor.seek(b"h", Seq::MAX).unwrap();
    assert_eq!(Meter::take(&meter.opens), 0);
    cursor.seek_before(b"b").unwrap();
    assert_eq!((cursor.valid(), Meter::take(&meter.opens)), (false, 0));
}

#[test]
fn keys_with_different_prefixes_are_not_compared_in_full() {
    for sources in [4, 16] {
        let meter: Arc<Meter> = Arc::default();
        let source = |s: usize| {
            let entries = (0..1000).map(|i| Entry {
                key: ((i * sources + s) as u64).to_be_bytes().to_vec(),
                seq: 1,
                kind: Kind::Put,
                value: Vec::new(),
            });
            VecCursor::with(Arc::new(entries.collect()), meter.clone(), Fuse::none())
        };
        let mut merge = MergeCursor::new((0..sources).map(source).collect());
        merge.seek_first().unwrap();
        let mut entries = 0;
        while merge.valid() {
            entries += 1;
            merge.next().unwrap();
        }
        assert_eq!(entries, 1000 * sources);
        // Each entry's key is read once, for its prefix.
        assert_eq!(Meter::take(&meter.key_reads), entries);
    }
}

#[test]
fn a_seek_ahead_moves_only_what_is_behind() {
    let meter: Arc<Meter> = Arc::default();
    let source = |keys: &[&str]| {
        let entries = keys.iter().map(|key| Entry::put(key, 1, "v")).collect();
        VecCursor::with(Arc::new(entries), meter.clone(), Fuse::none())
    };
    let mut merge = MergeCursor::new(vec![source(&["a", "b", "c"]), source(&["m", "x"]), source(&["n"])]);
    merge.seek(b"a", Seq::MAX).unwrap();
    assert_eq!(Meter::take(&meter.seeks), 3);
    merge.seek(b"d", Seq::MAX).unwrap();
    assert_eq!((merge.key(), Meter::take(&meter.seeks)), (&b"m"[..], 1));
    merge.seek_last().unwrap();
    assert_eq!(Meter::take(&meter.seeks), 3);
    merge.seek_before(b"x").unwrap();
    assert_eq!((merge.key(), Meter::take(&meter.seeks)), (&b"n"[..], 1));
}

#[test]
fn errors_stick() {
    let source = |fuse: &Fuse, keys: [&str; 3]| {
        let entries = keys.iter().map(|key| Entry::put(key, 1, "v")).collect();
        VecCursor::with(Arc::new(entries), Arc::default(), fuse.clone())
    };
    let mut failed = 0;
    for calls in 0..30 {
        let fuse = Fuse::after(calls);
        let mut merge =
            MergeCursor::new(vec![source(&fuse, ["a", "c", "e"]), source(&fuse, ["b", "d", "f"])]);
        let mut walk = || {
            merge.seek_first()?;
            for _ in 0..4 {
                merge.next()?;
            }
            for _ in 0..3 {
                merge.prev()?;
            }
            merge.seek_before(b"c")
        };
        if walk().is_err() {
            failed += 1;
            for _ in 0..2 {
                assert!(!merge.valid());
                assert!(merge.next().is_err() && merge.prev().is_err());
                assert!(merge.seek_first().is_err() && merge.seek_last().is_err());
                assert!(merge.seek(b"a", 1).is_err() && merge.seek_before(b"z").is_err());
                assert!(!merge.valid());
            }
        } else {
            assert_eq!(merge.key(), b"b");
        }
    }
    assert!((10..30).contains(&failed), "{failed}");
}

#[test]
fn a_run_keeps_the_error_of_a_file() {
    let file = |start: &str| {
        let table = vec![Entry::put(start, 2, "v"), Entry::put(start, 1, "v")];
        (KeyRange::inclusive(start.as_bytes(), start.as_bytes()), Arc::new(table))
    };
    // Calls of the walk: open, seek, step, step, open, seek, step, step.
    for calls in 0..8 {
        let files = vec![file("a"), file("b")];
        let run = VecRun { files, meter: Arc::default(), fuse: Fuse::after(calls) };
        let mut cursor = RunCursor::new(run);
        let mut seen = 0;
        let mut moved = cursor.seek_first();
        while moved.is_ok() && cursor.valid() {
            seen += 1;
            moved = cursor.next();
        }
        assert!(moved.is_err());
        assert_eq!(seen, [0, 0, 1, 2, 2, 2, 3, 4][calls]);
        assert!(!cursor.valid());
        assert!(cursor.seek_first().is_err() && cursor.seek(b"a", 9).is_err() && cursor.next().is_err());
        assert!(cursor.seek_last().is_err() && cursor.seek_before(b"z").is_err() && cursor.prev().is_err());
        assert!(!cursor.valid());
    }
}

#[test]
fn a_run_that_cannot_open_a_file_is_no_longer_on_the_one_before() {
    let files = ["a", "b"].map(|start| {
        let bounds = KeyRange::inclusive(start.as_bytes(), start.as_bytes());
        (bounds, Arc::new(vec![Entry::put(start, 1, "v")]))
    });
    let run = VecRun { files: files.to_vec(), meter: Arc::default(), fuse: Fuse::after(2) };
    let mut cursor = RunCursor::new(run);
    cursor.seek_first().unwrap();
    assert!(cursor.valid());
    assert!(cursor.seek(b"b", 1).is_err());
    assert!(!cursor.valid());
}
