//! Tests of queues: popped entries do not slow down reads of the head.

use drumlin::env::MemEnv;
use drumlin::{Db, Keyspace};
use std::path::Path;

fn store() -> Db {
    let env = MemEnv::new(5).env();
    let builder = Db::builder(Path::new("/queue")).env(env);
    builder.set("memory_budget", "64MiB").expect("a known option").open().expect("a new store")
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Returns the first key. Checks that an iterator and a cursor agree on it.
fn head(queue: &Keyspace) -> Option<Vec<u8>> {
    let first = queue.iter().next().map(|entry| entry.expect("an entry").0.to_vec());
    let mut cursor = queue.cursor::<&[u8]>(..).expect("a cursor");
    cursor.seek_first().expect("a seek");
    assert_eq!(cursor.key(), first.as_deref());
    first
}

/// Way to remove the head of a queue.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Trim {
    OneByOne,
    ByRange,
}

/// Pops `count` entries. Returns the number of entries that reads of the head skip, at 20 points, and the store.
fn passed(count: u64, trim: Trim, memtable_bytes: &str) -> (Vec<u64>, Db) {
    let db = store();
    let options = [("memtable_bytes", memtable_bytes)];
    let queue = db.keyspace_with("queue", &options).expect("a keyspace");
    for n in 0..count + 10 {
        queue.put(key(n), b"some value of a few bytes").expect("put");
    }
    let early = db.snapshot();
    let (mut costs, mut before) = (Vec::new(), 0);
    for n in 0..count {
        match trim {
            Trim::OneByOne => {
                queue.delete(key(n)).expect("delete");
            }
            Trim::ByRange if n % 20 == 19 => {
                queue.delete_range(key(0)..key(n + 1)).expect("delete_range");
            }
            Trim::ByRange => {}
        }
        if (n + 1) % (count / 20) == 0 {
            // The first read walks over the newly popped entries. Later reads can skip them.
            for _ in 0..3 {
                assert_eq!(head(&queue), Some(key(n + 1).to_vec()));
            }
            before = db.metrics().scan_entries_passed;
            (0..10).for_each(|_| assert_eq!(head(&queue), Some(key(n + 1).to_vec())));
            costs.push(db.metrics().scan_entries_passed - before);
        }
    }
    let all: u64 = before;
    assert!(all <= 16 * count, "{all} entries passed for {count}");
    // Snapshots stay intact, and reads see entries that are pushed at the front.
    let first = early.range::<&[u8]>(&queue, ..).next().map(|entry| entry.expect("an entry").0.to_vec());
    assert_eq!(first, Some(key(0).to_vec()));
    queue.put(key(count / 2), b"again").expect("put");
    assert_eq!(head(&queue), Some(key(count / 2).to_vec()));
    (costs, db)
}

/// Scans count each old version that they skip once, and not the one that they show.
#[test]
fn scans_count_the_old_versions_that_they_skip() {
    let db = store();
    let keys = db.keyspace("k").expect("a keyspace");
    for round in 0..3u8 {
        for n in 0..100 {
            keys.put(key(n), [round]).expect("put");
        }
    }
    let mut before = 0;
    let mut grown = || {
        let now = db.metrics().scan_entries_passed;
        now - std::mem::replace(&mut before, now)
    };
    assert_eq!(grown(), 0);
    assert_eq!((keys.iter().count(), grown()), (100, 200));
    assert_eq!((keys.iter().rev().count(), grown()), (100, 200));
    for n in 0..100 {
        keys.delete(key(n)).expect("delete");
    }
    assert_eq!((keys.iter().next().is_none(), grown()), (true, 400));
}

/// A read of the head skips about as many entries after 500 pops as after 20,000, in memtables and in tables.
#[test]
fn the_head_of_a_queue_does_not_pay_for_what_was_popped() {
    for trim in [Trim::OneByOne, Trim::ByRange] {
        for memtable_bytes in ["32MiB", "64KiB"] {
            let (costs, db) = passed(20_000, trim, memtable_bytes);
            let most = costs.iter().max().expect("20 costs");
            // Ten reads by an iterator and ten by a cursor.
            assert!(*most <= 20 * 80, "{trim:?} {memtable_bytes}: {costs:?}");
            assert!(db.metrics().scan_spans_skipped > 0);
        }
    }
}
