//! Tests of opens, drops and syncs that are interrupted or find no disk space: the store stays usable, and takes no
//! more disk space with each attempt.

use drumlin::env::{Effect, Fault, FileKind, ImageMode, MemEnv, Op, When};
use drumlin::{Db, ErrorKind};

fn open(mem: &MemEnv, settings: &[(&str, &str)]) -> drumlin::Result<Db> {
    let builder = Db::builder("/s").env(mem.env()).set("memory_budget", "8MiB");
    settings.iter().fold(builder, |b, (name, value)| b.and_then(|b| b.set(name, value)))?.open()
}

/// Returns the bytes of log segments on disk.
fn log_bytes(mem: &MemEnv) -> u64 {
    let is_log = |path: &std::path::PathBuf| mem.kind_of(path) == Some(FileKind::Log);
    mem.files().into_iter().filter(is_log).map(|path| mem.peek(&path).map_or(0, |c| c.len() as u64)).sum()
}

fn fail(mem: &MemEnv, op: Op, kind: Option<FileKind>, when: When) {
    mem.inject(Fault { op: Some(op), kind, when, effect: Effect::Fail(5) });
}

#[test]
fn opens_that_fail_gather_no_log_segments() {
    let mem = MemEnv::new(70);
    let db = open(&mem, &[("log_segment_bytes", "64KiB")]).expect("open");
    let keys = db.keyspace("k").expect("keyspace");
    for n in 0..50u32 {
        keys.put(n.to_be_bytes(), [2; 3000]).expect("put");
    }
    // The process dies, and the next opens cannot write its tables.
    let mem = mem.snapshot().image(ImageMode::All, 1);
    let before = log_bytes(&mem);
    fail(&mem, Op::Create, Some(FileKind::Table), When::From(0));
    for attempt in 0..10 {
        assert!(open(&mem, &[]).is_err(), "{attempt}: no table could be made");
    }
    let after = log_bytes(&mem);
    assert!(after <= before + (200 << 10), "{before} bytes of log before ten opens, {after} after");
    mem.clear_faults();
    let db = open(&mem, &[]).expect("open");
    assert_eq!(db.keyspace("k").expect("keyspace").iter().count(), 50);
}

#[test]
fn a_store_on_a_full_disk_opens() {
    let mem = MemEnv::new(71);
    let settings = [("log_segment_bytes", "1MiB")];
    let db = open(&mem, &settings).expect("open");
    let keys = db.keyspace("k").expect("keyspace");
    for n in 0..50u32 {
        keys.put(n.to_be_bytes(), [2; 3000]).expect("put");
    }
    drop(keys);
    db.close().expect("close");
    mem.set_capacity(mem.used_space() + (400 << 10));
    let db = open(&mem, &settings).expect("a small segment fits");
    let keys = db.keyspace("k").expect("keyspace");
    assert_eq!(keys.iter().count(), 50);
    keys.delete(7u32.to_be_bytes()).expect("a deletion");
    assert_eq!(keys.iter().count(), 49);
}

#[test]
fn a_dropped_keyspace_releases_its_log() {
    let mem = MemEnv::new(72);
    let settings = [("log_segment_bytes", "64KiB"), ("disk_budget", "1MiB")];
    let db = open(&mem, &settings).expect("open");
    let keys = db.keyspace("k").expect("keyspace");
    // The log grows up to the budget, since flushes fail.
    fail(&mem, Op::Create, Some(FileKind::Table), When::From(0));
    let refused = (0..1000u32).find_map(|n| keys.put(n.to_be_bytes(), [2; 20_000]).err()).expect("refused");
    assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
    let written = log_bytes(&mem);
    db.drop_keyspace("k").expect("drop");
    // The next open reads none of it.
    let after = mem.snapshot().image(ImageMode::All, 2);
    let read = open(&after, &[]).expect("open").metrics().open_bytes_read;
    assert!(read < written / 2, "{written} bytes of log before the drop, {read} read after it");
    assert_eq!(mem.order_violations(), Vec::<String>::new());
}

/// A directory sync that failed in the background counts for flushes too: the names of their tables may be lost.
#[test]
fn a_directory_sync_that_failed_in_the_background_stops_the_store() {
    let mem = MemEnv::new(73);
    let db = open(&mem, &[("log_segment_bytes", "64KiB")]).expect("open");
    let keys = db.keyspace("k").expect("keyspace");
    fail(&mem, Op::SyncDir, None, When::Nth(0));
    // Buffered writes sync nothing, so the preallocation of a segment meets the fault.
    let failed = || mem.fired().iter().any(|fired| fired.op == Op::SyncDir);
    (0..100_000u32).take_while(|n| !failed() && keys.put(n.to_be_bytes(), [2; 1000]).is_ok()).for_each(drop);
    assert!(failed(), "no directory was synced");
    mem.clear_faults();
    assert!(db.flush().is_err() || keys.put("a", "b").is_err(), "a later sync must not clear the failure");
    assert!(keys.put("a", "b").is_err(), "the store accepts no writes");
}
