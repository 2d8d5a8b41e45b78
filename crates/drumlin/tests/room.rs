//! Room on the disk: merges that may not fit are not begun, flushes come first, and all goes on when there is room.

use drumlin::env::{FileKind, MemEnv};
use drumlin::{Db, ErrorKind, Keyspace};

const SMALL: &[(&str, &str)] = &[
    ("memtable_bytes", "16KiB"),
    ("file_bytes", "64KiB"),
    ("compression", "none"),
    ("compaction", "tiering:8"),
];

fn open(mem: &MemEnv, budget: &str) -> (Db, Keyspace) {
    let builder = Db::builder("/s").env(mem.env());
    let settings = [("memory_budget", "8MiB"), ("log_segment_bytes", "64KiB"), ("disk_budget", budget)];
    let builder = settings.iter().try_fold(builder, |b, (name, value)| b.set(name, value)).expect("options");
    let db = builder.open().expect("open");
    let keys = db.keyspace_with("k", SMALL).expect("keyspace");
    (db, keys)
}

fn put(keys: &Keyspace, n: u32) -> drumlin::Result<u64> {
    keys.put(n.wrapping_mul(2_654_435_761).to_be_bytes(), [n as u8; 100])
}

/// Bytes of tables and log, half-made tables included.
fn on_disk(mem: &MemEnv) -> u64 {
    let counts =
        |path: &std::path::PathBuf| matches!(mem.kind_of(path), Some(FileKind::Table | FileKind::Log));
    let lens =
        mem.files().into_iter().filter(counts).map(|path| mem.peek(&path).map_or(0, |c| c.len() as u64));
    lens.sum()
}

#[test]
fn a_merge_that_may_not_fit_is_not_begun() {
    let mem = MemEnv::new(51);
    let (db, keys) = open(&mem, "0");
    let mut written = 0;
    for _ in 0..4 {
        for _ in 0..2000 {
            put(&keys, written).expect("put");
            written += 1;
        }
        db.flush().expect("flush");
    }
    db.wait_idle().expect("idle");
    mem.set_capacity(mem.used_space() + (160 << 10));
    let error = db.compact().expect_err("no room");
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert_eq!(db.metrics().background_errors, 0, "no merge ran into the end of the disk");
    let told: Vec<_> = db.explain().into_iter().filter(|d| d.what.contains("waits for room")).collect();
    assert!((1..5).contains(&told.len()), "said once a piece: {told:?}");
    for decision in &told {
        let numbers: Vec<u64> = decision.reason.split(' ').filter_map(|word| word.parse().ok()).collect();
        assert!(matches!(numbers[..], [wanted, left] if wanted > left && left <= 320 << 10), "{decision:?}");
    }
    // Flushes go on in the room that merges leave.
    let flushed = db.metrics().flushes;
    for _ in 0..100 {
        put(&keys, written).expect("put");
        written += 1;
    }
    db.flush().expect("flush");
    assert!(db.metrics().flushes > flushed);
    assert_eq!(db.wait_idle().expect_err("still none").kind(), ErrorKind::NoSpace);
    assert_eq!(keys.iter().count(), written as usize);
    let merged = db.metrics().merges;
    // Space that others free is found by itself.
    mem.set_capacity(None);
    mem.advance(2_000_000);
    db.wait_idle().expect("idle");
    assert!(db.metrics().merges > merged);
    assert_eq!(keys.iter().count(), written as usize);
    assert_eq!(db.verify().expect("verify").findings, vec![]);
    assert_eq!(mem.order_violations(), Vec::<String>::new());
}

#[test]
fn the_budget_is_kept_and_can_be_raised() {
    const BUDGET: u64 = 3 << 20;
    let mem = MemEnv::new(52);
    let (db, keys) = open(&mem, "3MiB");
    let mut written = 0;
    let error = loop {
        match put(&keys, written) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        if written % 50 == 0 {
            assert!(on_disk(&mem) <= BUDGET, "{} bytes after {written} writes", on_disk(&mem));
        }
        assert!(written < 100_000, "the budget never ran out");
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(on_disk(&mem) > BUDGET / 2, "{} bytes are no full disk", on_disk(&mem));
    assert_eq!(keys.iter().count(), written as usize, "everything can be read");
    let refused = put(&keys, written).expect_err("still full");
    assert_eq!(refused.kind(), ErrorKind::NoSpace);
    db.set_option("disk_budget", "64MiB").expect("a live option");
    for _ in 0..1000 {
        put(&keys, written).expect("there is room");
        written += 1;
    }
    db.flush().expect("flush");
    db.compact().expect("compact");
    assert_eq!(keys.iter().count(), written as usize);
    db.close().expect("close");
    let (db, keys) = open(&mem, "64MiB");
    assert_eq!(keys.iter().count(), written as usize);
    assert_eq!(db.verify().expect("verify").findings, vec![]);
}
