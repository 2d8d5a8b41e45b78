//! Tests of metrics: each keyspace has its own, and every wait for a sync is counted.

use drumlin::env::MemEnv;
use drumlin::{Db, Durability};

fn open(mem: &MemEnv) -> Db {
    Db::builder("/s").env(mem.env()).open().expect("the store opens")
}

#[test]
fn each_keyspace_counts_its_own() {
    let mem = MemEnv::new(1);
    let db = open(&mem);
    let (busy, idle) = (db.keyspace("busy").expect("keyspace"), db.keyspace("idle").expect("keyspace"));
    for number in 0..20_000_u32 {
        busy.put(number.to_be_bytes(), [1; 20]).expect("put");
        busy.get(number.to_be_bytes()).expect("get");
    }
    for _ in 0..1000 {
        assert!(busy.iter().next().is_some());
    }
    busy.flush().expect("flush");
    busy.put(7_u32.to_be_bytes(), "later").expect("put");
    busy.flush().expect("flush");
    busy.compact::<&[u8]>(..).expect("compact");
    let metrics = busy.metrics();
    let about = |count: u64, expected: u64| count.abs_diff(expected) < 128;
    assert!(about(metrics.gets, 20_000) && about(metrics.writes, 20_001), "{metrics:?}");
    assert!(about(metrics.scans, 1000), "{metrics:?}");
    // One operation in 64 is sampled on average.
    for (what, latency, operations) in [
        ("get", &metrics.get_latency, 20_000),
        ("put", &metrics.write_latency, 20_000),
        ("scan", &metrics.scan_latency, 1000),
    ] {
        let samples = latency.samples();
        assert!(samples > operations / 128 && samples < operations / 32, "{what}: {samples}");
    }
    assert_eq!((metrics.flushes, metrics.compactions, metrics.files, metrics.runs), (2, 1, 1, 1));
    assert!(metrics.flush_bytes_written > 100_000 && metrics.compaction_bytes_written > 100_000);
    assert_eq!(metrics.table_bytes, db.metrics().table_bytes);
    assert!(metrics.filter_bytes > 0 && metrics.filter_bytes == db.metrics().filter_bytes);
    let other = idle.metrics();
    assert_eq!((other.gets, other.writes, other.flushes, other.files), (0, 0, 0, 0));
    assert_eq!(other.write_latency.samples(), 0);
    // Metrics of a keyspace outlive it, and the store.
    db.drop_keyspace("busy").expect("drop");
    let gone = busy.metrics();
    assert_eq!((gone.files, gone.flushes), (0, 2));
    db.close().expect("close");
    assert_eq!(busy.metrics().flushes, 2);
}

#[test]
fn waits_for_syncs_are_counted() {
    let mem = MemEnv::new(2);
    let db = open(&mem);
    let keys = db.keyspace("k").expect("keyspace");
    for number in 0..10_u32 {
        keys.put_with(number.to_be_bytes(), "v", Durability::Sync).expect("put");
    }
    keys.put_with("buffered", "v", Durability::Buffered).expect("put");
    db.sync().expect("sync");
    assert_eq!(db.metrics().sync_waits, 11);
}
