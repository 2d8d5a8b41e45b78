//! Tests of the decision log. It survives restarts, is bounded, replays to the same decisions, and its failures never
//! affect the store.

use drumlin::env::{Effect, Fault, FileKind, MemEnv, When};
use drumlin::{Db, Keyspace};
use drumlin_format::checksum::checksum;

fn open(mem: &MemEnv) -> Db {
    Db::builder("/store").env(mem.env()).open().expect("the store opens")
}

fn fill(db: &Db, rounds: u32) -> Keyspace {
    let options = [("memtable_bytes", "4KiB"), ("compaction", "tiering:3")];
    let keyspace = db.keyspace_with("k", &options).expect("a keyspace");
    for round in 0..rounds {
        for key in 0..40u32 {
            keyspace.put(key.to_be_bytes(), [round as u8; 100]).expect("a put");
        }
    }
    db.flush().expect("a flush");
    db.wait_idle().expect("quiet");
    keyspace
}

fn logs(mem: &MemEnv) -> Vec<std::path::PathBuf> {
    mem.files().into_iter().filter(|path| path.extension().is_some_and(|suffix| suffix == "why")).collect()
}

#[test]
fn decisions_outlive_the_process_and_repeat_themselves() {
    let mem = MemEnv::new(1);
    let db = open(&mem);
    fill(&db, 20);
    let first = db.explain();
    assert!(
        first.iter().any(|d| d.what.starts_with("flush of 40 entries") || d.what.starts_with("flush of"))
    );
    assert!(first.iter().any(|d| d.what.starts_with("policy call: 1 plan,")), "{first:?}");
    assert!(first.windows(2).all(|pair| pair[0].micros <= pair[1].micros));
    db.close().expect("closed");

    let db = open(&mem);
    assert!(db.explain().starts_with(&first), "earlier decisions are missing");
    fill(&db, 20).set_policy("leveling").expect("a policy");
    let second = db.explain();
    assert!(second.len() > first.len() && second.starts_with(&first));
    assert!(second.iter().any(|d| d.what == "policy leveling"));
    let report = db.replay_decisions();
    assert!(report.decisions >= 4, "{report:?}");
    assert_eq!(report.differing, Vec::<String>::new());
}

/// Changes the format version of the decision log at `path`.
fn make_version(mem: &MemEnv, path: &std::path::Path, version: u32) {
    let mut header = mem.peek(path).expect("its bytes")[..32].to_vec();
    header[8..12].copy_from_slice(&version.to_le_bytes());
    let number = u64::from_le_bytes(header[16..24].try_into().expect("eight bytes"));
    let sum = checksum(number, 0, &[&header[..12], &header[16..]]);
    header[12..16].copy_from_slice(&sum.to_le_bytes());
    mem.patch(path, 0, &header);
}

#[test]
fn decisions_of_another_version_are_left_out_and_told_in_one_line() {
    let mem = MemEnv::new(5);
    let db = open(&mem);
    fill(&db, 20);
    let (first, made) = (db.explain(), db.replay_decisions().decisions);
    db.close().expect("closed");
    let path = logs(&mem).pop().expect("a decision log");

    make_version(&mem, &path, 1);
    let db = open(&mem);
    assert!(db.explain().starts_with(&first), "earlier decisions cannot be read");
    let report = db.replay_decisions();
    assert_eq!((report.differing, report.left_out.len()), (vec![], 1));
    let told = "the decision log has version 1, this build can replay version 5";
    assert_eq!(report.left_out[0], format!("{made} left out: {told}"));
    db.close().expect("closed");

    make_version(&mem, &path, 9);
    let db = open(&mem);
    assert!(db.explain().iter().all(|record| !first.contains(record)));
    let report = db.replay_decisions();
    let told =
        "a decision log: decision log format 9 is newer than 5, the newest that this version understands";
    assert_eq!((report.differing, report.left_out), (vec![], vec![told.to_owned()]));
}

#[test]
fn damage_shortens_the_log_and_nothing_else() {
    let mem = MemEnv::new(2);
    let db = open(&mem);
    fill(&db, 12);
    let whole = db.explain();
    db.close().expect("closed");
    let path = logs(&mem).pop().expect("a decision log");
    let bytes = mem.peek(&path).expect("its bytes");
    for at in (0..bytes.len()).step_by(331) {
        mem.plant(&path, FileKind::Decisions, &bytes);
        mem.patch(&path, at as u64, &[bytes[at] ^ 0x55]);
        let db = open(&mem);
        let found = db.explain();
        let damaged = found.len();
        assert!(whole.starts_with(&found[..damaged.min(whole.len())]), "byte {at}");
        assert!(damaged < whole.len(), "byte {at}");
        db.close().expect("closed");
    }
}

#[test]
fn the_log_is_bounded() {
    let mem = MemEnv::new(3);
    for _ in 0..20 {
        let db = open(&mem);
        fill(&db, 2);
        db.close().expect("closed");
    }
    assert!(logs(&mem).len() <= 8, "{:?}", logs(&mem));
}

#[test]
fn a_failing_disk_costs_records_only() {
    /// Error code `ENOSPC`.
    const NO_SPACE: i32 = 28;
    let mem = MemEnv::new(4);
    let db = open(&mem);
    let (effect, when) = (Effect::Fail(NO_SPACE), When::From(0));
    mem.inject(Fault { op: None, kind: Some(FileKind::Decisions), when, effect });
    fill(&db, 12);
    assert!(!mem.fired().is_empty());
    assert!(!db.explain().is_empty());
    db.close().expect("closed");
    mem.clear_faults();
    let db = open(&mem);
    assert_eq!(db.explain(), []);
    let keyspace = db.keyspace("k").expect("a keyspace");
    assert_eq!(keyspace.iter().count(), 40);
}
