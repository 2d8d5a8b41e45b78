//! Tests of the time to live of puts and merges, with snapshots and with flushes and compactions at any time.

use drumlin::{AddI64, Append, Batch, Db, ErrorKind, Keyspace, Snapshot};
use drumlin_env::MemEnv;
use std::sync::Arc;

const SECOND: u64 = 1_000_000;

fn open(mem: &MemEnv) -> Db {
    let builder = Db::builder("/s").env(mem.env()).merge_operator("n", Arc::new(AddI64::Text));
    builder.merge_operator("t", Arc::new(Append::new(","))).open().expect("open")
}

fn text(value: drumlin::Result<Option<drumlin::Slice>>) -> Option<String> {
    value.expect("get").map(|value| String::from_utf8(value.to_vec()).expect("text"))
}

/// Returns the value of `key` through `snapshot`, or at present. Checks that all ways to read agree.
fn shown(keys: &Keyspace, snapshot: Option<&Snapshot>, key: &str) -> Option<String> {
    let found = match snapshot {
        None => text(keys.get(key)),
        Some(snapshot) => text(snapshot.get(keys, key)),
    };
    let many = match snapshot {
        None => keys.multi_get([key, "no such key"]),
        Some(snapshot) => snapshot.multi_get(keys, [key, "no such key"]),
    };
    assert_eq!(text(many.map(|mut values| values.swap_remove(0))), found);
    let range = || match snapshot {
        None => keys.range(key..=key),
        Some(snapshot) => snapshot.range(keys, key..=key),
    };
    let only = |entry: Option<drumlin::Result<(drumlin::Slice, drumlin::Slice)>>| {
        text(entry.transpose().map(|entry| entry.map(|(_, value)| value)))
    };
    assert_eq!(only(range().next()), found);
    assert_eq!(only(range().next_back()), found);
    assert_eq!(range().keys_only().count(), usize::from(found.is_some()));
    assert_eq!(range().keys_only().rev().count(), usize::from(found.is_some()));
    let mut cursor = match snapshot {
        None => keys.cursor(key..=key),
        Some(snapshot) => snapshot.cursor(keys, key..=key),
    }
    .expect("cursor");
    assert_eq!(cursor.seek_first().expect("seek"), found.is_some());
    assert_eq!(cursor.entry().map(|(_, value)| value.to_vec()), found.clone().map(String::into_bytes));
    found
}

/// Changes to the tree between two reads: nothing, a flush, or a flush and a compaction.
const CARES: [fn(&Db); 3] =
    [|_| (), |db| db.flush().expect("flush"), |db| db.flush().and_then(|()| db.compact()).expect("compact")];

#[test]
fn operands_above_an_expiring_value_keep_their_own_lifetimes() {
    for care in CARES {
        let mem = MemEnv::new(71);
        let db = open(&mem);
        let texts = db.keyspace_with("t", &[("ttl_seconds", "64")]).expect("keyspace");
        texts.put("k", "v").expect("put");
        texts.set_option("ttl_seconds", "0").expect("a live option");
        texts.merge("k", "x").expect("merge");
        care(&db);
        assert_eq!(shown(&texts, None, "k").as_deref(), Some("v,x"));
        mem.advance(63 * SECOND);
        care(&db);
        assert_eq!(shown(&texts, None, "k").as_deref(), Some("v,x"));
        mem.advance(SECOND);
        assert_eq!(shown(&texts, None, "k").as_deref(), Some("x"), "the put has not expired");
        care(&db);
        assert_eq!(shown(&texts, None, "k").as_deref(), Some("x"));
        drop((texts, db));
        let db = open(&mem);
        assert_eq!(shown(&db.keyspace("t").expect("keyspace"), None, "k").as_deref(), Some("x"));
        assert_eq!(db.verify().expect("verify").findings, vec![]);
    }
}

/// A rate limiter counts the calls of the last minute. A minute after the last call, no data is left.
#[test]
fn merges_alone_count_over_a_sliding_window_and_leave_nothing() {
    for care in CARES {
        let mem = MemEnv::new(72);
        let db = open(&mem);
        let numbers = db.keyspace_with("n", &[("ttl_seconds", "64")]).expect("keyspace");
        let mut snapshots = Vec::new();
        for second in 0..200_u64 {
            for _ in 0..10 {
                numbers.merge("user", "1").expect("merge");
            }
            if second % 20 == 0 {
                care(&db);
            }
            // An operand expires after 64 to 65 seconds.
            let sum: u64 = shown(&numbers, None, "user").expect("a sum").parse().expect("a number");
            let (least, most) = ((second + 1).min(64) * 10, (second + 1).min(65) * 10);
            assert!((least..=most).contains(&sum), "{sum} after {second} seconds");
            if second % 50 == 49 {
                snapshots.push((db.snapshot(), sum));
            }
            mem.advance(SECOND);
        }
        let mut remaining = u64::MAX;
        for _ in 0..65 {
            mem.advance(SECOND);
            care(&db);
            let sum = shown(&numbers, None, "user").map_or(0, |sum| sum.parse().expect("a number"));
            assert!(sum <= remaining);
            remaining = sum;
            for (snapshot, sum) in &snapshots {
                assert_eq!(shown(&numbers, Some(snapshot), "user"), Some(sum.to_string()));
            }
        }
        assert_eq!(shown(&numbers, None, "user"), None);
        drop(snapshots);
        db.flush().and_then(|()| db.compact()).expect("compact");
        let files: usize =
            db.tree().iter().flat_map(|k| &k.levels).flat_map(|l| &l.runs).map(|r| r.files.len()).sum();
        assert_eq!(files, 0, "tables of expired data remain");
    }
}

#[test]
fn a_snapshot_sees_what_had_not_expired_when_it_was_taken() {
    for care in CARES {
        let mem = MemEnv::new(73);
        let db = open(&mem);
        let texts = db.keyspace_with("t", &[("ttl_seconds", "64")]).expect("keyspace");
        texts.put("k", "v").expect("put");
        texts.merge("k", "x").expect("merge");
        texts.put("other", "w").expect("put");
        care(&db);
        mem.advance(60 * SECOND);
        let (early, twin) = (db.snapshot(), db.snapshot());
        let mut open_before = texts.iter();
        let mut cursor = texts.cursor::<&str>(..).expect("cursor");
        assert!(cursor.seek("k").expect("seek"));
        mem.advance(4 * SECOND);
        let late = db.snapshot();
        assert_eq!(early.seq(), late.seq());
        for _ in 0..2 {
            care(&db);
            for snapshot in [&early, &twin] {
                assert_eq!(shown(&texts, Some(snapshot), "k").as_deref(), Some("v,x"));
                assert_eq!(shown(&texts, Some(snapshot), "other").as_deref(), Some("w"));
            }
            let operand_alone = shown(&texts, Some(&late), "k");
            assert!(operand_alone.is_none_or(|text| text == "x"));
            assert_eq!(shown(&texts, Some(&late), "other"), None);
            mem.advance(60 * SECOND);
            assert_eq!((shown(&texts, None, "k"), shown(&texts, None, "other")), (None, None));
        }
        let (key, value) = open_before.next().expect("an entry").expect("sound");
        assert_eq!((&*key, &*value), (&b"k"[..], &b"v,x"[..]), "an iterator must keep its read time");
        assert!(cursor.next().expect("next"));
        assert_eq!(cursor.entry(), Some((&b"other"[..], &b"w"[..])), "a cursor must keep its read time");
        drop((early, late));
        care(&db);
        assert_eq!(shown(&texts, Some(&twin), "k").as_deref(), Some("v,x"));
    }
}

/// A write may have a time to live of its own, longer or shorter than the keyspace's, or live for ever.
#[test]
fn writes_with_lifetimes_of_their_own() {
    for settle in [None, Some(false), Some(true)] {
        let mem = MemEnv::new(71);
        let db = open(&mem);
        let keys = db.keyspace_with("n", &[("ttl_seconds", "10")]).expect("keyspace");
        let seconds = std::time::Duration::from_secs;
        keys.put("usual", "1").expect("put");
        keys.put_with_ttl("short", "1", seconds(2)).expect("put");
        keys.put_with_ttl("long", "1", seconds(100)).expect("put");
        keys.put_with_ttl("ever", "1", None).expect("put");
        keys.put_with_ttl("never", "1", seconds(0)).expect("put");
        keys.merge_with_ttl("ever", "10", seconds(2)).expect("merge");
        let mut batch = Batch::new();
        batch.put_with_ttl(&keys, "batch", "1", seconds(2));
        batch.merge_with_ttl(&keys, "batch", "10", None);
        db.write(&batch).expect("write");
        match settle {
            None => {}
            Some(false) => db.flush().expect("flush"),
            Some(true) => db.compact().expect("compact"),
        }
        let now = |at: u64| {
            mem.advance(at * SECOND);
            ["usual", "short", "long", "ever", "never", "batch"].map(|key| shown(&keys, None, key))
        };
        let some = |number: &str| Some(number.to_owned());
        assert_eq!(now(1), [some("1"), some("1"), some("1"), some("11"), None, some("11")]);
        assert_eq!(now(4), [some("1"), None, some("1"), some("1"), None, some("10")]);
        assert_eq!(now(6), [None, None, some("1"), some("1"), None, some("10")]);
        assert_eq!(now(100), [None, None, None, some("1"), None, some("10")]);
        let error = keys.put_with_ttl("k", "v", seconds(3_153_600_001)).expect_err("over 100 years");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
}
