//! Tests of verification: it finds damage in the log, and takes nothing else for damage.

use drumlin::env::{Effect, Fault, FileKind, MemEnv, Op, When};
use drumlin::{Db, Durability, ErrorKind};

const TINY: &[(&str, &str)] = &[("memtable_bytes", "16KiB"), ("file_bytes", "16KiB")];

fn open(mem: &MemEnv) -> Db {
    Db::builder("/store").env(mem.env()).open().expect("the store opens")
}

#[test]
fn verify_reads_the_log() {
    let mem = MemEnv::new(10);
    let db = open(&mem);
    let keyspace = db.keyspace("k").expect("a keyspace");
    for key in 0..10u32 {
        keyspace.put_with(key.to_be_bytes(), "value", Durability::Sync).expect("a put");
    }
    let report = db.verify().expect("verified");
    assert_eq!((report.log_records, report.findings.len()), (10, 0));
    let is_log = |path: &std::path::PathBuf| mem.kind_of(path) == Some(FileKind::Log);
    let log = mem.files().into_iter().find(is_log).expect("a log");
    let bytes = mem.peek(&log).expect("its bytes");
    let value = bytes.windows(5).position(|window| window == b"value").expect("a record");
    mem.patch(&log, value as u64, b"V");
    let report = db.verify().expect("verified");
    let name = log.file_name().expect("a name").to_string_lossy();
    assert!(report.findings.iter().any(|finding| *finding.file == *name), "{report:?}");
}

#[test]
fn verify_finds_a_damaged_record_that_was_not_synced() {
    let mem = MemEnv::new(66);
    let db = open(&mem);
    let keys = db.keyspace("k").expect("keyspace");
    for value in ["first", "second"] {
        keys.put("k", value).expect("put");
    }
    let is_log = |path: &std::path::PathBuf| mem.kind_of(path) == Some(FileKind::Log);
    let has = |bytes: &[u8]| bytes.windows(6).position(|window| window == b"second");
    let mut logs = mem.files().into_iter().filter(is_log);
    let log = logs.find(|log| mem.peek(log).as_deref().and_then(has).is_some()).expect("a log");
    mem.patch(&log, has(&mem.peek(&log).expect("its bytes")).expect("a record") as u64, b"S");
    let report = db.verify().expect("verified");
    assert_eq!(report.findings.len(), 1, "{report:?}");
}

#[test]
fn verify_without_file_descriptors_fails_and_finds_nothing() {
    /// Error code `EMFILE`.
    const TOO_MANY_FILES: i32 = 24;
    let mem = MemEnv::new(67);
    let db = open(&mem);
    let keys = db.keyspace_with("k", TINY).expect("keyspace");
    for i in 0..500u32 {
        keys.put(i.to_be_bytes(), [3u8; 50]).expect("put");
    }
    db.compact().expect("compact");
    drop(keys);
    db.close().expect("close");
    let db = open(&mem);
    for kind in [FileKind::Table, FileKind::Log, FileKind::Manifest] {
        let (op, effect) = (Some(Op::Open), Effect::Fail(TOO_MANY_FILES));
        mem.inject(Fault { op, kind: Some(kind), when: When::From(0), effect });
        let error = db.verify().expect_err("no file can be opened");
        assert_eq!(error.kind(), ErrorKind::TooManyFiles, "{error}");
        assert!(error.to_string().contains("RLIMIT_NOFILE"), "{error}");
        mem.clear_faults();
    }
    assert_eq!(db.verify().expect("verified").findings, vec![]);
}
