//! Tests of stores opened read-only. All data is readable, nothing is written, and every write returns one clear error.
//!
//! The simulated disk fails every call that would change it. So the tests notice a stray write even if the engine
//! ignores its failure.

#![expect(clippy::disallowed_methods, reason = "tests read and change files on purpose")]

use drumlin::env::{Effect, Fault, FileKind, ImageMode, MemEnv, Op, TempDir, When};
use drumlin::{Batch, Builder, Db, Durability, ErrorKind, Result};
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

const HOME: &str = "/s";

/// Expected contents of a keyspace.
type Oracle = BTreeMap<Vec<u8>, Vec<u8>>;

/// File of the directory: its name, contents and modification time.
type Snapshot = Vec<(PathBuf, Vec<u8>, (i64, i64))>;

fn writable(mem: &MemEnv) -> Builder {
    let builder = Db::builder(HOME).env(mem.env());
    builder.set("memory_budget", "8MiB").and_then(|b| b.set("log_segment_bytes", "64KiB")).expect("options")
}

/// Creates tables in several levels, and commits that only the log has.
fn fill(db: &Db) -> Oracle {
    let keys = db.keyspace_with("k", &[("memtable_bytes", "16KiB"), ("file_bytes", "16KiB")]).expect("k");
    let mut oracle = Oracle::new();
    for i in 0..3000u32 {
        let (key, value) = ((i.wrapping_mul(2_654_435_761) >> 8).to_be_bytes(), i.to_string());
        keys.put(key, &value).expect("put");
        oracle.insert(key.to_vec(), value.into_bytes());
    }
    db.flush().expect("flush");
    let (from, to) = (0x0010_0000u32.to_be_bytes(), 0x0020_0000u32.to_be_bytes());
    keys.delete_range(&from[..]..&to[..]).expect("delete a range");
    oracle.retain(|key, _| key[..] < from[..] || key[..] >= to[..]);
    let mut batch = Batch::new();
    for (i, key) in oracle.keys().cloned().enumerate().step_by(7).collect::<Vec<_>>() {
        batch.put(&keys, &key, "from the log");
        if i % 2 == 0 {
            batch.delete(&keys, &key);
        }
    }
    for (i, (_, value)) in oracle.iter_mut().enumerate().step_by(7) {
        *value = if i % 2 == 0 { Vec::new() } else { b"from the log".to_vec() };
    }
    oracle.retain(|_, value| !value.is_empty());
    db.write_with(batch, Durability::Sync).expect("write");
    oracle
}

/// Checks that every way to read returns the contents of `oracle`.
fn reads(db: &Db, oracle: &Oracle) {
    let keys = db.keyspace("k").expect("k");
    let pair = |entry: Result<(drumlin::Slice, drumlin::Slice)>| {
        let (key, value) = entry.expect("entry");
        (key.to_vec(), value.to_vec())
    };
    assert!(keys.iter().map(pair).eq(oracle.clone()));
    assert!(keys.iter().rev().map(pair).eq(oracle.clone().into_iter().rev()));
    for (key, value) in oracle.iter().step_by(11) {
        assert_eq!(keys.get(key).expect("get").as_deref(), Some(&value[..]));
    }
    assert_eq!(keys.get("no such key").expect("get"), None);
    let few: Vec<&Vec<u8>> = oracle.keys().take(20).collect();
    let found = keys.multi_get(&few).expect("multi_get");
    assert!(few.iter().zip(found).all(|(key, value)| value.as_deref() == Some(&oracle[*key][..])));
    let snapshot = db.snapshot();
    assert_eq!(snapshot.range::<&[u8]>(&keys, ..).count(), oracle.len());
    let mut cursor = keys.cursor::<&[u8]>(..).expect("cursor");
    cursor.seek_last().expect("seek");
    assert_eq!(cursor.key(), oracle.keys().next_back().map(Vec::as_slice));
    let report = db.verify().expect("verify");
    assert_eq!(report.findings, vec![]);
    assert!(report.tables > 0 && report.log_records > 0, "{report:?}");
    let shape = db.tree();
    assert!(shape[0].levels.iter().any(|level| !level.runs.is_empty()));
    assert!(shape[0].sealed_bytes > 0, "replayed log entries must be in memory");
    assert!(!db.metrics().to_pairs().is_empty());
    assert_eq!(db.replay_decisions().differing, Vec::<String>::new());
    db.explain();
    db.wait_idle().expect("the store is idle");
}

/// Checks that every call that writes returns the error for read-only stores.
fn refuses(db: &Db) {
    let keys = db.keyspace("k").expect("k");
    let mut batch = Batch::new();
    batch.put(&keys, "a", "b");
    let refused = [
        ("put", keys.put("a", "b").map(drop)),
        ("unlogged", keys.put_with("a", "b", Durability::None).map(drop)),
        ("delete", keys.delete("a").map(drop)),
        ("delete_range", keys.delete_range("a".."b").map(drop)),
        ("write", db.write(batch).map(drop)),
        ("sync", db.sync()),
        ("flush", db.flush()),
        ("compact", db.compact()),
        ("checkpoint", db.checkpoint("/copy")),
        ("new keyspace", db.keyspace("new").map(drop)),
        ("drop_keyspace", db.drop_keyspace("k")),
        ("rename_keyspace", db.rename_keyspace("k", "l")),
        ("set_option", db.set_option("durability", "sync")),
        ("keyspace option", keys.set_option("max_runs", "32")),
        ("set_policy", keys.set_policy("tiering:4")),
    ];
    for (what, result) in refused {
        let error = result.map(|()| what).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{what}: {error}");
        assert!(error.to_string().contains("read-only"), "{what}: {error}");
    }
}

/// Makes every call that would change the disk fail.
fn freeze(mem: &MemEnv) {
    let changing = [
        Op::CreateDir,
        Op::RemoveDir,
        Op::Create,
        Op::OpenWrite,
        Op::Rename,
        Op::Link,
        Op::Unlink,
        Op::SyncDir,
        Op::Write,
        Op::Allocate,
        Op::SetLen,
        Op::SyncData,
        Op::SyncAll,
    ];
    for op in changing {
        let erofs = Effect::Fail(30);
        mem.inject(Fault { op: Some(op), kind: None, when: When::From(0), effect: erofs });
    }
}

fn content(mem: &MemEnv) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    mem.files().into_iter().map(|path| (path.clone(), mem.peek(&path))).collect()
}

#[test]
fn a_store_on_a_full_disk_shows_everything() {
    for closed in [false, true] {
        let mem = MemEnv::new(41);
        let db = writable(&mem).open().expect("open");
        let oracle = fill(&db);
        let last = db.visible_seq();
        if closed {
            db.close().expect("close");
        }
        let mem = mem.snapshot().image(ImageMode::All, 42);
        mem.set_capacity(mem.used_space());
        let before = content(&mem);
        let error = writable(&mem).open().map(drop).expect_err("no room to write");
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        let after_failure = content(&mem);
        freeze(&mem);
        let db = writable(&mem).read_only(true).open().expect("open");
        assert_eq!((db.visible_seq(), db.recovered_seq()), (last, last));
        assert_eq!(db.durable_seq() == last, closed, "all commits are durable only after a clean close");
        reads(&db, &oracle);
        refuses(&db);
        reads(&db, &oracle);
        db.close().expect("close");
        assert_eq!(mem.fired(), vec![]);
        assert!(content(&mem) == after_failure);
        // Files of the failed open do no harm. With free disk space the store opens and accepts writes.
        assert!(before.iter().all(|file| after_failure.contains(file)));
        let mem = mem.snapshot().image(ImageMode::All, 43);
        mem.set_capacity(None);
        let db = writable(&mem).open().expect("open");
        db.keyspace("k").and_then(|k| k.put("z", "z")).expect("writes again");
        assert_eq!(mem.order_violations(), Vec::<String>::new());
    }
}

#[test]
fn readers_share_and_keep_a_writer_out() {
    let mem = MemEnv::new(43);
    let kind = |result: Result<Db>| result.map(drop).expect_err("locked").kind();
    let missing = Db::builder(HOME).env(mem.env()).read_only(true).open();
    assert_eq!(kind(missing), ErrorKind::NotFound);
    assert_eq!(mem.files(), Vec::<PathBuf>::new());
    let db = writable(&mem).open().expect("open");
    let oracle = fill(&db);
    assert_eq!(kind(writable(&mem).read_only(true).open()), ErrorKind::Locked);
    drop(db);
    let one = writable(&mem).read_only(true).open().expect("open");
    let other = writable(&mem).read_only(true).open().expect("open");
    assert_eq!(kind(writable(&mem).open()), ErrorKind::Locked);
    drop(one);
    assert_eq!(kind(writable(&mem).open()), ErrorKind::Locked, "one reader is still open");
    assert_eq!(other.keyspace("k").expect("k").iter().count(), oracle.len());
    drop(other);
    drop(writable(&mem).open().expect("no reader is open"));
    // Without a lock file there is no lock, and a read-only open creates no lock file.
    let lock = Path::new(HOME).join("LOCK");
    mem.env().fs().unlink(&lock, FileKind::Lock).expect("unlink");
    let db = writable(&mem).read_only(true).open().expect("open");
    assert_eq!(db.keyspace("k").expect("k").iter().count(), oracle.len());
    assert!(!mem.files().contains(&lock));
}

#[test]
fn options_hold_for_the_handle_alone() {
    let mem = MemEnv::new(44);
    drop(writable(&mem).open().expect("open"));
    let of = |db: &Db| db.options().into_iter().find(|(name, _)| *name == "memory_budget").map(|o| o.1);
    let builder = writable(&mem).set("memory_budget", "16MiB").expect("an option");
    let db = builder.read_only(true).open().expect("open");
    assert_eq!(of(&db).as_deref(), Some("16MiB"));
    drop(db);
    let db = Db::builder(HOME).env(mem.env()).open().expect("open");
    assert_eq!(of(&db).as_deref(), Some("8MiB"));
}

#[test]
fn a_directory_without_write_permission() {
    let dir = TempDir::new("drumlin-read-only").expect("a directory");
    let home = dir.path().join("store");
    let db = Db::open(&home).expect("open");
    let oracle = fill(&db);
    drop(db);
    let files = || -> Snapshot {
        let entries = std::fs::read_dir(&home).expect("list").map(|entry| entry.expect("entry").path());
        let mut files: Snapshot = entries
            .map(|path| {
                let about = path.metadata().expect("metadata");
                (path.clone(), std::fs::read(&path).expect("read"), (about.mtime(), about.mtime_nsec()))
            })
            .collect();
        files.sort();
        files
    };
    let allow = |directory: u32, file: u32| {
        for (path, _, _) in files() {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(file)).expect("chmod");
        }
        std::fs::set_permissions(&home, std::fs::Permissions::from_mode(directory)).expect("chmod");
    };
    allow(0o555, 0o444);
    let before = files();
    let db = Db::builder(&home).read_only(true).open().expect("open");
    reads(&db, &oracle);
    refuses(&db);
    db.close().expect("close");
    assert!(files() == before, "the read-only store wrote to the directory");
    allow(0o755, 0o644);
    drop(Db::open(&home).expect("open"));
}
