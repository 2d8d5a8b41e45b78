//! Tests of many threads on one store. Batches are atomic, sequence numbers have no gaps, and snapshots do not change.

#![expect(clippy::disallowed_methods, reason = "threads are what is tested")]

use drumlin::env::TempDir;
use drumlin::{Batch, Db, Durability};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const WRITERS: u64 = 4;
const COMMITS: u64 = 10_000;

#[test]
fn writers_readers_and_swaps() {
    let dir = TempDir::new("drumlin-threads").expect("a directory");
    let db = Db::builder(dir.path())
        .set("memory_budget", "8MiB")
        .and_then(|b| b.set("log_segment_bytes", "64KiB"))
        .and_then(|b| b.set("compaction_slots", "2"))
        .and_then(|b| b.open())
        .expect("open");
    let small: &[(&str, &str)] = &[("memtable_bytes", "32KiB"), ("file_bytes", "32KiB")];
    let (a, b) = (db.keyspace_with("a", small).expect("a"), db.keyspace_with("b", small).expect("b"));
    let (stop, scans) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|w| {
                let (db, a, b) = (&db, &a, &b);
                scope.spawn(move || {
                    let mut last = 0;
                    for i in 0..COMMITS {
                        let mut batch = Batch::new();
                        let value = (w * COMMITS + i).to_be_bytes();
                        batch.put(a, [b"same", &w.to_be_bytes()[..]].concat(), value);
                        batch.put(b, [b"same", &w.to_be_bytes()[..]].concat(), value);
                        batch.put(
                            a,
                            [b"each", &w.to_be_bytes()[..], &i.to_be_bytes()[..]].concat(),
                            [5u8; 40],
                        );
                        let durability = if i % 100 == 0 { Durability::Sync } else { Durability::Buffered };
                        let seq = db.write_with(batch, durability).expect("write");
                        assert!(seq > last && db.visible_seq() >= seq);
                        last = seq;
                        let own =
                            a.get([b"same", &w.to_be_bytes()[..]].concat()).expect("get").expect("there");
                        assert_eq!(&*own, &value[..], "a writer does not see its own write");
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let snapshot = db.snapshot();
                for w in 0..WRITERS {
                    let key = [b"same", &w.to_be_bytes()[..]].concat();
                    let of = |k| snapshot.get(k, &key).expect("get").map(|v| v.to_vec());
                    assert_eq!(of(&a), of(&b), "a part of a batch is visible");
                }
                let count =
                    |k| snapshot.prefix(k, "same").map(|e| e.expect("entry").1.to_vec()).collect::<Vec<_>>();
                assert_eq!(count(&a), count(&b), "scans of one snapshot differ");
                scans.fetch_add(1, Ordering::Relaxed);
            }
        });
        scope.spawn(|| {
            for policy in
                ["leveling:3", "tiering:3", "universal", "lazy-leveling:3", "1-leveling"].iter().cycle()
            {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                a.set_policy(policy).expect("policy");
                b.set_policy(policy).expect("policy");
                a.flush().expect("flush");
            }
        });
        writers.into_iter().for_each(|w| w.join().expect("a writer"));
        stop.store(true, Ordering::Relaxed);
    });
    assert!(scans.load(Ordering::Relaxed) > 0);
    assert_eq!(db.visible_seq(), WRITERS * COMMITS * 3);
    assert_eq!(a.prefix("each").count() as u64, WRITERS * COMMITS);
    db.compact().expect("compact");
    assert_eq!(a.prefix("each").count() as u64, WRITERS * COMMITS);
    assert_eq!(db.verify().expect("verify").findings, vec![]);
}

/// Batches that need more than half of the memory of memtables are written beside threads that keep it full, and small
/// writes go on between them.
#[test]
fn large_batches_are_written_beside_many_small_writes() {
    let dir = TempDir::new("drumlin-large").expect("a directory");
    let builder = Db::builder(dir.path()).set("memory_budget", "8MiB").expect("an option");
    let db = builder.open().expect("open");
    let keys = db.keyspace("k").expect("a keyspace");
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for writer in 0..3u64 {
            let (keys, stop, written) = (&keys, &stop, &written);
            scope.spawn(move || {
                let mut n = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    keys.put([writer.to_be_bytes(), n.to_be_bytes()].concat(), [3; 2000]).expect("put");
                    n += 1;
                    written.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for large in 0..8u64 {
            let before = written.load(Ordering::Relaxed);
            let mut batch = Batch::new();
            (0..900u64).for_each(|n| {
                batch.put(&keys, [(100 + large).to_be_bytes(), n.to_be_bytes()].concat(), [4; 2000])
            });
            db.write(batch).expect("the batch is written");
            while written.load(Ordering::Relaxed) == before {
                std::thread::yield_now();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(db.metrics().background_errors, 0);
    let count = keys.iter().filter(|entry| entry.as_ref().is_ok_and(|(_, value)| value[0] == 4)).count();
    assert_eq!(count, 8 * 900);
}

/// Small writes go on beside several threads that write large batches, one of which always waits for memory.
#[test]
fn small_writes_go_on_beside_several_large_writers() {
    const LARGE: u64 = 12;
    let dir = TempDir::new("drumlin-small").expect("a directory");
    let builder = Db::builder(dir.path()).set("memory_budget", "8MiB").expect("an option");
    let db = builder.open().expect("open");
    let keys = db.keyspace("k").expect("a keyspace");
    let (running, begun, mut small) = (AtomicU64::new(4), AtomicU64::new(0), 0u64);
    std::thread::scope(|scope| {
        for writer in 0..4u64 {
            let (db, keys, running, begun) = (&db, &keys, &running, &begun);
            scope.spawn(move || {
                for large in 0..LARGE {
                    let mut batch = Batch::new();
                    (0..900u64).for_each(|n| {
                        batch.put(keys, [writer, large, n].map(u64::to_be_bytes).concat(), [4; 2000])
                    });
                    db.write(batch).expect("the batch is written");
                    begun.fetch_add(u64::from(large == 1), Ordering::Relaxed);
                }
                running.fetch_sub(1, Ordering::Relaxed);
            });
        }
        // From now on memtables are full, and large writes wait.
        while begun.load(Ordering::Relaxed) < 4 {
            std::thread::yield_now();
        }
        while running.load(Ordering::Relaxed) == 4 {
            keys.put([9u64, small].map(u64::to_be_bytes).concat(), [3; 20]).expect("put");
            small += 1;
        }
    });
    assert!(small >= 4, "{small} small writes while one of four threads wrote {LARGE} large batches");
}
