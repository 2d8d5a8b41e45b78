//! Tests of invalid input and hard limits. Each works or returns one clear error. Nothing panics and no data is lost.

#![expect(clippy::disallowed_methods, reason = "tests read and damage files on purpose")]

use drumlin::env::{Effect, Env, Fault, FileKind, ImageMode, MemEnv, Op, TempDir, When};
use drumlin::{AddI64, Batch, Db, Durability, ErrorKind, repair};
use std::path::Path;
use std::sync::Arc;

fn small(env: Env, path: &Path) -> Db {
    Db::builder(path)
        .env(env)
        .set("memory_budget", "8MiB")
        .and_then(|b| b.set("log_segment_bytes", "64KiB"))
        .and_then(|b| b.open())
        .expect("open")
}

const TINY: &[(&str, &str)] = &[("memtable_bytes", "16KiB"), ("file_bytes", "16KiB")];

#[test]
fn keys_and_values_at_their_limits() {
    let dir = TempDir::new("drumlin-limits").expect("a directory");
    let db = Db::open(dir.path()).expect("open");
    let keys = db.keyspace("k").expect("keyspace");
    let long = vec![7u8; 1 << 20];
    keys.put(b"", b"the empty key").expect("an empty key is a key");
    keys.put(&long, b"").expect("1 MiB of key");
    let error = keys.put(vec![7u8; (1 << 20) + 1], b"").expect_err("one byte more");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let big = vec![1u8; 20 << 20];
    keys.put(b"big", &big).expect("20 MiB of value");
    let error = keys.put(b"huge", vec![0u8; 129 << 20]).expect_err("over a quarter of the budget");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("memory_budget"), "{error}");
    for round in 0..2 {
        assert_eq!(keys.get(b"").expect("get").as_deref(), Some(&b"the empty key"[..]));
        assert_eq!(keys.get(&long).expect("get").as_deref(), Some(&b""[..]));
        assert_eq!(keys.get(b"big").expect("get").expect("there").len(), big.len());
        let order: Vec<usize> = keys.iter().map(|e| e.expect("entry").0.len()).collect();
        assert_eq!(order, [0, 1 << 20, 3]);
        if round == 0 {
            db.flush().expect("flush");
            db.compact().expect("compact");
        }
    }
    assert_eq!(db.verify().expect("verify").findings, vec![]);
}

#[test]
fn directories_that_are_no_stores() {
    let dir = TempDir::new("drumlin-open").expect("a directory");
    let kind = |result: drumlin::Result<Db>| result.map(|_| ()).expect_err("an error").kind();
    let missing = dir.path().join("missing");
    assert_eq!(kind(Db::builder(&missing).create_if_missing(false).open()), ErrorKind::NotFound);
    let foreign = dir.path().join("foreign");
    std::fs::create_dir(&foreign).expect("mkdir");
    std::fs::write(foreign.join("letter.txt"), "dear diary").expect("write");
    assert_eq!(kind(Db::open(&foreign)), ErrorKind::NotAStore);
    let store = dir.path().join("store");
    let db = Db::open(&store).expect("open");
    assert_eq!(kind(Db::open(&store)), ErrorKind::Locked);
    drop(db);
    drop(Db::open(&store).expect("the lock went with its holder"));
    let pointer = store.join("CURRENT");
    let content = std::fs::read(&pointer).expect("read");
    std::fs::write(&pointer, &content[..5]).expect("write");
    assert_eq!(kind(Db::open(&store)), ErrorKind::Corruption);
    std::fs::write(&pointer, String::from_utf8_lossy(&content).replacen("drumlin 1", "drumlin 9", 1))
        .expect("write");
    assert!(matches!(kind(Db::open(&store)), ErrorKind::NewerFormat | ErrorKind::Corruption));
    std::fs::write(&pointer, &content).expect("write");
    drop(Db::open(&store).expect("whole again"));
}

#[test]
fn options_out_of_bounds_change_nothing() {
    let dir = TempDir::new("drumlin-options").expect("a directory");
    let refused = |name: &str, value: &str| {
        let error = Db::builder(dir.path()).set(name, value).map(|_| ()).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
        error.to_string()
    };
    assert!(refused("memory_budget", "1").contains("memory_budget"));
    assert!(refused("memory_budgte", "1GiB").contains("memory_budget"));
    let db = Db::open(dir.path()).expect("open");
    let keys = db.keyspace("k").expect("keyspace");
    assert_eq!(keys.set_policy("leveling:1").expect_err("too small").kind(), ErrorKind::InvalidOption);
    assert_eq!(keys.set_policy("levelling").expect_err("unknown").kind(), ErrorKind::InvalidOption);
    assert_eq!(keys.policy(), "arce");
    keys.set_policy("tiering:4").expect("known");
    drop((keys, db));
    let db = Db::open(dir.path()).expect("open");
    assert_eq!(db.keyspace("k").expect("keyspace").policy(), "tiering:4");
}

#[test]
fn merges_and_expiry() {
    let mem = MemEnv::new(5);
    let open =
        || Db::builder("/s").env(mem.env()).merge_operator("n", Arc::new(AddI64::Text)).open().expect("open");
    let db = open();
    let numbers = db.keyspace_with("n", TINY).expect("keyspace");
    let plain = db.keyspace_with("p", &[("ttl_seconds", "10")]).expect("keyspace");
    assert_eq!(plain.merge("k", "1").expect_err("no operator").kind(), ErrorKind::MergeOperatorMissing);
    for i in 0..300 {
        numbers.merge(format!("k{}", i % 3), "+1").expect("merge");
        if i % 50 == 0 {
            db.flush().expect("flush");
        }
    }
    let sum = |db: &Db| db.keyspace("n").expect("n").get("k1").expect("get").map(|v| v.to_vec());
    assert_eq!(sum(&db), Some(b"100".to_vec()));
    db.compact().expect("compact");
    assert_eq!(sum(&db), Some(b"100".to_vec()));
    plain.put("short", "lived").expect("put");
    assert!(plain.get("short").expect("get").is_some());
    mem.advance(9_000_000);
    assert!(plain.get("short").expect("get").is_some());
    mem.advance(1_100_000);
    assert_eq!(plain.get("short").expect("get"), None);
    assert_eq!(plain.iter().count(), 0);
    db.compact().expect("compact");
    assert_eq!(db.metrics().entries_deleted, 1);
    db.close().expect("close");
    assert_eq!(sum(&open()), Some(b"100".to_vec()));
}

#[test]
fn a_failed_log_sync_poisons_and_reads_go_on() {
    let mem = MemEnv::new(6);
    let db = small(mem.env(), Path::new("/s"));
    let keys = db.keyspace("k").expect("keyspace");
    keys.put_with("a", "1", Durability::Sync).expect("put");
    mem.inject(Fault {
        op: Some(Op::SyncData),
        kind: Some(FileKind::Log),
        when: When::Nth(0),
        effect: Effect::Fail(5),
    });
    assert_eq!(keys.put_with("b", "2", Durability::Sync).expect_err("EIO").kind(), ErrorKind::Poisoned);
    assert_eq!(keys.put("c", "3").expect_err("poisoned").kind(), ErrorKind::Poisoned);
    assert_eq!(keys.get("a").expect("get").as_deref(), Some(&b"1"[..]));
    assert_eq!(db.flush().expect_err("poisoned").kind(), ErrorKind::Poisoned);
    drop((keys, db));
    mem.clear_faults();
    let db = small(mem.env(), Path::new("/s"));
    let keys = db.keyspace("k").expect("keyspace");
    assert_eq!(keys.get("a").expect("get").as_deref(), Some(&b"1"[..]));
    assert_eq!(keys.get("c").expect("get"), None);
    keys.put("c", "4").expect("writes again");
    assert_eq!(mem.order_violations(), Vec::<String>::new());
}

/// Makes calls of `op` on files of `kind`, or on all files, fail with EIO. `when` selects the calls.
fn fail(mem: &MemEnv, op: Op, kind: Option<FileKind>, when: When) {
    mem.inject(Fault { op: Some(op), kind, when, effect: Effect::Fail(5) });
}

#[test]
fn nothing_is_written_behind_an_edit_that_failed() {
    let mem = MemEnv::new(16);
    let db = small(mem.env(), Path::new("/s"));
    let keys = db.keyspace("k").expect("keyspace");
    keys.put_with("a", "1", Durability::Sync).expect("put");
    fail(&mem, Op::Write, Some(FileKind::Manifest), When::Nth(0));
    assert_eq!(db.set_option("background_rate", "2MiB").expect_err("EIO").kind(), ErrorKind::Io);
    for _ in 0..2 {
        let poisoned = |result: drumlin::Result<()>| result.expect_err("poisoned").kind();
        assert_eq!(poisoned(db.set_option("background_rate", "3MiB")), ErrorKind::Poisoned);
        assert_eq!(poisoned(keys.set_option("filter_bits", "9")), ErrorKind::Poisoned);
        assert_eq!(poisoned(db.keyspace("l").map(|_| ())), ErrorKind::Poisoned);
    }
    drop((keys, db));
    mem.clear_faults();
    let db = small(mem.env(), Path::new("/s"));
    assert_eq!(db.keyspace("k").expect("keyspace").get("a").expect("get").as_deref(), Some(&b"1"[..]));
}

#[test]
fn names_that_could_not_be_made_last_stay_in_doubt() {
    let mem = MemEnv::new(17);
    let db = small(mem.env(), Path::new("/s"));
    let keys = db.keyspace_with("k", TINY).expect("keyspace");
    fail(&mem, Op::SyncDir, None, When::Nth(0));
    let put = |n: u32| keys.put_with(n.to_be_bytes(), [1; 1000], Durability::Sync);
    let failed = (0..1000).find_map(|n| put(n).err()).expect("a write that fails");
    assert_eq!(failed.kind(), ErrorKind::Poisoned, "{failed}");
    assert!(put(1000).is_err() && db.flush().is_err(), "a later directory sync must not clear the failure");
}

#[test]
fn what_was_replayed_counts_as_durable_only_once_it_is() {
    let mem = MemEnv::new(18);
    let db = small(mem.env(), Path::new("/s"));
    let keys = db.keyspace("k").expect("keyspace");
    keys.put_with("a", "1", Durability::Sync).expect("put");
    for n in 0..50u32 {
        keys.put(n.to_be_bytes(), [2; 3000]).expect("put");
    }
    // The process dies, and the next open cannot write its tables.
    let mem = mem.snapshot().image(ImageMode::All, 19);
    fail(&mem, Op::Create, Some(FileKind::Table), When::From(0));
    let opened = Db::builder("/s").env(mem.env()).open();
    assert_eq!(opened.map(|_| ()).expect_err("EIO").kind(), ErrorKind::Io);
    for mode in [ImageMode::None, ImageMode::All] {
        let after = mem.snapshot().image(mode, 20);
        let db = small(after.env(), Path::new("/s"));
        let keys = db.keyspace("k").expect("keyspace");
        assert_eq!(keys.get("a").expect("get").as_deref(), Some(&b"1"[..]), "{mode:?}");
        let rest = keys.iter().count();
        assert!(mode == ImageMode::None || rest == 51, "{rest}");
        // A power loss now must keep everything that this open has shown.
        let later = after.snapshot().image(ImageMode::None, 21);
        assert_eq!(small(later.env(), Path::new("/s")).keyspace("k").expect("k").iter().count(), rest);
    }
}

/// Opens the store again, writes durably after the recovered data, and loses power. The recovered data and the new
/// write must be there. The store must also open after a power loss at any call in between.
fn builds_on_what_lasts(mem: &MemEnv, why: &str) {
    mem.record(|_| true);
    let db = small(mem.env(), Path::new("/s"));
    let keys = db.keyspace("k").expect("keyspace");
    let shown = keys.iter().count();
    // Keeps the recovered log out of tables until the commit.
    fail(mem, Op::Create, Some(FileKind::Table), When::From(0));
    keys.put_with("later", "3", Durability::Sync).expect("put");
    mem.clear_faults();
    for (index, disk) in mem.taken() {
        let opened = Db::builder("/s").env(disk.image(ImageMode::None, index).env()).open();
        assert!(opened.is_ok(), "{why}, power was lost at {index}: {:?}", opened.err());
    }
    let after = mem.snapshot().image(ImageMode::None, 25);
    let found = small(after.env(), Path::new("/s")).keyspace("k").expect("keyspace").iter().count();
    assert_eq!(found, shown + 1, "{why}");
}

#[test]
fn a_record_of_a_clean_end_counts_only_once_it_lasts() {
    let written = || {
        let mem = MemEnv::new(24);
        let db = small(mem.env(), Path::new("/s"));
        let keys = db.keyspace("k").expect("keyspace");
        (0..20u32).for_each(|n| _ = keys.put(n.to_be_bytes(), [2; 3000]).expect("put"));
        (mem, db)
    };
    // The process dies at each call of a close.
    let (mem, db) = written();
    mem.record(|_| true);
    db.close().expect("close");
    let pictures = mem.taken();
    assert!(pictures.len() > 3, "a close writes, syncs, and updates the manifest");
    for (index, disk) in pictures {
        builds_on_what_lasts(
            &disk.image(ImageMode::All, index),
            &format!("the process died at call {index}"),
        );
    }
    // The first or the second log sync of a close fails.
    for nth in 0..2 {
        let (mem, db) = written();
        fail(&mem, Op::SyncData, Some(FileKind::Log), When::Nth(nth));
        db.close().expect_err("EIO");
        mem.clear_faults();
        builds_on_what_lasts(&mem, &format!("sync {nth} failed"));
    }
}

#[test]
fn every_directory_above_a_new_store_lasts() {
    let mem = MemEnv::new(22);
    let path = Path::new("/a/b/c");
    let db = small(mem.env(), path);
    db.keyspace("k").expect("keyspace").put_with("a", "1", Durability::Sync).expect("put");
    db.checkpoint("/x/y/z").expect("a checkpoint");
    let after = mem.snapshot().image(ImageMode::None, 23);
    for path in [path, Path::new("/x/y/z")] {
        let opened = Db::builder(path).env(after.env()).create_if_missing(false).open().expect("it is there");
        assert_eq!(opened.keyspace("k").expect("k").get("a").expect("get").as_deref(), Some(&b"1"[..]));
    }
}

#[test]
fn a_full_disk_loses_nothing_and_passes() {
    let mem = MemEnv::new(7);
    let db = small(mem.env(), Path::new("/s"));
    let keys = db.keyspace_with("k", TINY).expect("keyspace");
    mem.set_capacity(mem.used_space() + (600 << 10));
    let mut written = 0u32;
    let error = loop {
        match keys.put(written.to_be_bytes(), [9u8; 400]) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 100_000, "the disk never filled");
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    for i in 0..written {
        assert!(keys.get(i.to_be_bytes()).expect("get").is_some(), "{i} of {written}");
    }
    mem.set_capacity(None);
    mem.advance(120_000_000);
    let mut tries = 0;
    while keys.put(written.to_be_bytes(), [9u8; 400]).is_err() {
        db.step_background(1000).expect("steps");
        mem.advance(2_000_000);
        tries += 1;
        assert!(tries < 100, "writes never resumed");
    }
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    assert_eq!(keys.iter().count(), written as usize + 1);
    assert_eq!(db.verify().expect("verify").findings, vec![]);
}

#[test]
fn a_damaged_table_is_named_and_the_rest_stays_readable() {
    let mem = MemEnv::new(8);
    let db = small(mem.env(), Path::new("/s"));
    let keys = db.keyspace_with("k", TINY).expect("keyspace");
    for i in 0..2000u32 {
        keys.put(i.to_be_bytes(), [3u8; 50]).expect("put");
    }
    db.compact().expect("compact");
    let number = db.tree()[0].levels.iter().flat_map(|l| &l.runs).next().expect("a run").files[0].table;
    db.close().expect("close");
    let table = Path::new("/s").join(format!("{number:06}.tbl"));
    mem.patch(&table, 700, &[0xff, 0xfe, 0xfd]);
    let db = small(mem.env(), Path::new("/s"));
    let report = db.verify().expect("verify");
    let name = table.file_name().expect("name").to_string_lossy().into_owned();
    assert!(report.findings.iter().any(|f| f.file == name), "{:?}", report.findings);
    let keys = db.keyspace("k").expect("keyspace");
    let (mut good, mut bad) = (0, 0);
    for i in 0..2000u32 {
        match keys.get(i.to_be_bytes()) {
            Ok(value) => {
                assert_eq!(value.as_deref(), Some(&[3u8; 50][..]));
                good += 1;
            }
            Err(error) => {
                assert!(error.is_corruption() && error.path().is_some(), "{error}");
                bad += 1;
            }
        }
    }
    assert!(good > 1500 && bad > 0, "{good} readable, {bad} not");
    let mut scan = keys.iter().skip_while(Result::is_ok);
    assert!(scan.next().expect("an error").is_err());
    assert!(scan.next().is_none(), "the error ended it");
}

#[test]
fn a_directory_with_a_name_that_is_not_utf_8_is_not_empty() {
    use std::os::unix::ffi::OsStrExt;
    let dir = TempDir::new("drumlin-limits").expect("a directory");
    let (store, copy) = (dir.path().join("store"), dir.path().join("copy"));
    std::fs::create_dir(&copy).expect("a directory");
    std::fs::write(copy.join(std::ffi::OsStr::from_bytes(b"\xff")), "mine").expect("a file");
    let db = Db::open(&store).expect("open");
    assert_eq!(db.checkpoint(&copy).expect_err("it holds a file").kind(), ErrorKind::InvalidArgument);
    assert_eq!(repair(&store, &copy).expect_err("it holds a file").kind(), ErrorKind::InvalidArgument);
    assert_eq!(Db::open(&copy).expect_err("it is no store").kind(), ErrorKind::NotAStore);
}

#[cfg(unix)]
#[test]
fn a_target_inside_the_store_is_refused_by_any_of_its_names() {
    let dir = TempDir::new("drumlin-inside").expect("a directory");
    let live = dir.path().join("live");
    let db = Db::open(&live).expect("open");
    std::os::unix::fs::symlink(&live, dir.path().join("link")).expect("link");
    for name in
        ["live/copy", "new/../live/copy", "./live/./new/../copy", "link/copy", "new/../link/copy", "link"]
    {
        let refused = db.checkpoint(dir.path().join(name)).expect_err("inside the store");
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{name}");
        assert!(refused.to_string().contains("the directory of the store"), "{name}: {refused}");
    }
    assert!(!dir.path().join("new").exists());
    // A path with `..` leads past missing directories, which are not made.
    std::fs::create_dir(dir.path().join("other")).expect("a directory");
    std::fs::write(dir.path().join("other/file"), "not a store").expect("a file");
    let refused = db.checkpoint(dir.path().join("new/../other")).expect_err("it is not empty");
    assert!(refused.to_string().contains("exists and is not empty"), "{refused}");
    assert_eq!(std::fs::read_dir(dir.path().join("other")).expect("list").count(), 1);
    db.checkpoint(dir.path().join("live/new/../../beside")).expect("it lies outside");
    assert!(!live.join("new").exists() && dir.path().join("beside/CURRENT").exists());
    db.checkpoint(dir.path().join("link/../live-copy")).expect("a name that begins alike lies outside");
}

#[test]
fn checkpoint_and_repair() {
    let dir = TempDir::new("drumlin-care").expect("a directory");
    let (live, copy, fixed) = (dir.path().join("live"), dir.path().join("copy"), dir.path().join("fixed"));
    let db = small(Env::os(), &live);
    let keys = db.keyspace_with("k", TINY).expect("keyspace");
    for i in 0..3000u32 {
        keys.put(i.to_be_bytes(), i.to_le_bytes()).expect("put");
    }
    keys.delete_range(100u32.to_be_bytes()..200u32.to_be_bytes()).expect("delete");
    db.checkpoint(&copy).expect("checkpoint");
    keys.put("later", "not in the copy").expect("put");
    let there = Db::open(&copy).expect("the copy opens");
    assert_eq!(there.keyspace("k").expect("k").iter().count(), 2900);
    assert_eq!(there.verify().expect("verify").findings, vec![]);
    assert_eq!(repair(&live, &fixed).expect_err("open").kind(), ErrorKind::Locked);
    drop(there);
    drop(keys);
    db.close().expect("close");
    std::fs::remove_file(live.join("CURRENT")).expect("remove");
    assert_eq!(Db::open(&live).map(|_| ()).expect_err("no pointer").kind(), ErrorKind::Corruption);
    let report = repair(&live, &fixed).expect("repair");
    assert!(report.findings.iter().any(|l| l.contains("manifest")), "{:?}", report.findings);
    let fixed = Db::open(&fixed).expect("open");
    assert_eq!(fixed.keyspaces(), ["k"]);
    let saved = fixed.keyspace("k").expect("k");
    assert_eq!(saved.get("later").expect("get").as_deref(), Some(&b"not in the copy"[..]));
    assert_eq!(saved.iter().count(), 2901);
}

#[test]
fn none_is_promised_by_a_flush_and_not_before() {
    let mem = MemEnv::new(9);
    let db = small(mem.env(), Path::new("/s"));
    let keys = db.keyspace("k").expect("keyspace");
    keys.put_with("flushed", "1", Durability::None).expect("put");
    db.flush().expect("flush");
    keys.put_with("not", "2", Durability::None).expect("put");
    let mut batch = Batch::new();
    batch.put(&keys, "logged", "3");
    db.write_with(batch, Durability::Sync).expect("write");
    let cut = mem.snapshot().image(drumlin::env::ImageMode::None, 1);
    let after = small(cut.env(), Path::new("/s"));
    let keys = after.keyspace("k").expect("keyspace");
    assert_eq!(keys.get("flushed").expect("get").as_deref(), Some(&b"1"[..]));
    assert_eq!(keys.get("logged").expect("get").as_deref(), Some(&b"3"[..]));
    assert_eq!(keys.get("not").expect("get"), None);
}

#[test]
fn unlogged_writes_that_a_close_loses_do_not_count_as_recovered() {
    let mem = MemEnv::new(65);
    let db = small(mem.env(), Path::new("/s"));
    let keys = db.keyspace("k").expect("keyspace");
    let logged = keys.put("logged", "1").expect("put");
    let lost = keys.put_with("lost", "2", Durability::None).expect("put");
    db.sync().expect("sync");
    assert_eq!((db.visible_seq(), db.durable_seq()), (lost, logged));
    drop(keys);
    db.close().expect("close");
    let db = small(mem.env(), Path::new("/s"));
    assert_eq!((db.recovered_seq(), db.visible_seq()), (logged, logged));
    let keys = db.keyspace("k").expect("keyspace");
    assert_eq!(keys.get("lost").expect("get"), None);
    let flushed = keys.put_with("flushed", "3", Durability::None).expect("put");
    db.flush().expect("flush");
    assert_eq!((flushed, db.durable_seq()), (logged + 1, flushed));
    drop(keys);
    db.close().expect("close");
    assert_eq!(small(mem.env(), Path::new("/s")).recovered_seq(), flushed);
}

#[test]
fn a_flush_of_all_keyspaces_makes_every_commit_durable() {
    let mem = MemEnv::new(68);
    let db = small(mem.env(), Path::new("/s"));
    let [a, b] = ["a", "b"].map(|name| db.keyspace(name).expect("keyspace"));
    a.put_with("0", "v", Durability::Sync).expect("put");
    b.put_with("1", "v", Durability::Buffered).expect("put");
    let last = a.put_with("2", "v", Durability::None).expect("put");
    db.flush().expect("flush");
    assert_eq!(db.durable_seq(), last, "whichever keyspace is flushed last");
}

/// Merge operator that adds, with or without partial merges.
struct Adds {
    joins: bool,
}

impl drumlin::MergeOperator for Adds {
    fn name(&self) -> &str {
        "adds"
    }

    fn merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        AddI64::Text.merge(key, base, operands)
    }

    fn partial_merge(&self, key: &[u8], left: &[u8], right: &[u8]) -> Option<Vec<u8>> {
        AddI64::Text.partial_merge(key, left, right).filter(|_| self.joins)
    }
}

#[test]
fn operands_whose_base_is_elsewhere_are_joined_where_the_operator_can() {
    let entries = |db: &Db| -> u64 {
        let shape = db.tree().into_iter().find(|k| k.name == "n").expect("the keyspace");
        shape.levels.iter().flat_map(|l| &l.runs).flat_map(|r| &r.files).map(|f| f.entries).sum()
    };
    // Entries that remain of 3000 operands after each of three flushes. A snapshot lies inside the second flush.
    for (joins, left) in [(true, [1, 1, 2, 1]), (false, [1, 3000, 3000, 3000])] {
        let mem = MemEnv::new(64);
        let builder = Db::builder("/s").env(mem.env()).set("memory_budget", "64MiB").expect("an option");
        let db = builder.merge_operator("n", Arc::new(Adds { joins })).open().expect("open");
        let options = [("memtable_bytes", "8MiB"), ("compaction", "tiering:10")];
        let numbers = db.keyspace_with("n", &options).expect("keyspace");
        numbers.put("k", "7").expect("put");
        db.flush().expect("flush");
        assert_eq!(entries(&db), left[0]);
        let mut snapshot = None;
        for (round, left) in left[1..].iter().enumerate() {
            let before = entries(&db);
            for n in 0..3000 {
                if (round, n) == (1, 1000) {
                    snapshot = Some(db.snapshot());
                }
                numbers.merge("k", "1").expect("merge");
            }
            db.flush().expect("flush");
            db.wait_idle().expect("idle");
            assert_eq!(entries(&db) - before, *left, "flush {round}");
            let sum = 7 + 3000 * (round + 1);
            assert_eq!(numbers.get("k").expect("get").as_deref(), Some(sum.to_string().as_bytes()));
        }
        let snapshot = snapshot.expect("taken in the second round");
        assert_eq!(snapshot.get(&numbers, "k").expect("get").as_deref(), Some(&b"4007"[..]));
        assert_eq!(db.verify().expect("verify").findings, vec![]);
        drop(snapshot);
        db.compact().expect("compact");
        assert_eq!(entries(&db), 1);
        assert_eq!(numbers.get("k").expect("get").as_deref(), Some(&b"9007"[..]));
    }
}

#[test]
fn keyspaces_of_another_store_are_refused() {
    let mem = MemEnv::new(65);
    let [a, b] = ["/a", "/b"].map(|path| small(mem.env(), Path::new(path)));
    let [of_a, of_b] = [&a, &b].map(|db| db.keyspace("k").expect("keyspace"));
    of_a.put("k", "a").expect("put");
    of_b.put("k", "b").expect("put");
    let mut batch = Batch::new();
    batch.put(&of_a, "l", "a");
    batch.put(&of_b, "l", "b");
    let snapshot = a.snapshot();
    let refused = [
        a.write(batch).map(drop),
        snapshot.get(&of_b, "k").map(drop),
        snapshot.multi_get(&of_b, ["k"]).map(drop),
        snapshot.cursor::<&str>(&of_b, ..).map(drop),
        snapshot.range::<&str>(&of_b, ..).next().expect("an error").map(drop),
        snapshot.prefix(&of_b, "k").next_back().expect("an error").map(drop),
    ];
    for result in refused {
        let error = result.expect_err("a handle of another store");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains("another open store"), "{error}");
    }
    for (keys, value) in [(of_a, b"a"), (of_b, b"b")] {
        assert_eq!(keys.get("k").expect("get").as_deref(), Some(&value[..]));
        assert_eq!(keys.get("l").expect("get"), None, "a part of the refused batch was written");
    }
}

/// The longest key works at the inclusive end of a range delete, and where a compaction cuts a range delete after it.
#[test]
fn range_deletes_reach_over_the_longest_key() {
    let mem = MemEnv::new(66);
    let db = Db::builder("/s").env(mem.env()).open().expect("open");
    let keys =
        db.keyspace_with("k", &[("compaction", "tiering:2"), ("file_bytes", "64KiB")]).expect("keyspace");
    let longest = vec![b'k'; 1 << 20];
    let fill = || {
        for n in 0..200u32 {
            keys.put([b'a' + (n % 26) as u8, n as u8], vec![n as u8; 4000]).expect("put");
        }
        keys.put(&longest, b"long").expect("put");
    };
    fill();
    db.flush().expect("flush");
    let snapshot = db.snapshot();
    keys.delete_range(b"b".to_vec()..=longest.clone()).expect("an end one byte longer than the longest key");
    assert_eq!(keys.get(&longest).expect("get"), None);
    let again = db.snapshot();
    fill();
    keys.delete_range(b"c".as_slice()..b"x").expect("a range over it");
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    db.compact().expect("compact");
    assert_eq!(db.verify().expect("verify").findings, vec![]);
    assert_eq!(snapshot.get(&keys, &longest).expect("get").as_deref(), Some(&b"long"[..]));
    assert_eq!(again.get(&keys, &longest).expect("get"), None);
    let first = |keys: &drumlin::Keyspace| keys.range(b"b".as_slice()..).map(|e| e.expect("entry").0).next();
    assert!(first(&keys).is_some_and(|key| key.starts_with(b"b")));
    drop((snapshot, again));
    drop((keys, db));
    let db = Db::builder("/s").env(mem.env()).open().expect("open again");
    let keys = db.keyspace("k").expect("keyspace");
    assert_eq!(keys.get(&longest).expect("get"), None);
    assert_eq!(db.verify().expect("verify").findings, vec![]);
}
