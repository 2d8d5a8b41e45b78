//! Tests of changes to a store's files by other programs while it is open. A lost write is never acknowledged.

#![expect(clippy::disallowed_methods, reason = "tests remove and cut files on purpose")]

use drumlin::env::{Effect, Env, Fault, FileKind, MemEnv, Op, TempDir, When};
use drumlin::{Db, Durability, ErrorKind, Keyspace};
use std::fs;
use std::path::Path;

fn open(dir: &Path) -> (Db, Keyspace) {
    let db = Db::builder(dir)
        .set("memory_budget", "8MiB")
        .and_then(|b| b.set("log_segment_bytes", "64KiB"))
        .and_then(|b| b.open())
        .expect("open");
    let keys = db.keyspace("k").expect("keyspace");
    keys.put_with("before", "1", Durability::Sync).expect("put");
    (db, keys)
}

/// Damages an open store with `harm`. The next synced write must fail with an error that contains `named`, and all
/// later writes must fail too.
fn refuses(named: &str, harm: impl FnOnce(&Path)) {
    let dir = TempDir::new("drumlin-outside").expect("a directory");
    let store = dir.path().join("s");
    let (_db, keys) = open(&store);
    harm(&store);
    let error = keys.put_with("after", "2", Durability::Sync).expect_err("a lost write is not acknowledged");
    assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
    assert!(error.to_string().contains(named), "{error}");
    assert_eq!(keys.put("later", "3").expect_err("no more writes").kind(), ErrorKind::Poisoned);
    assert_eq!(keys.get("before").expect("reads go on").as_deref(), Some(&b"1"[..]));
}

fn files(dir: &Path, prefix: &str) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(dir).expect("list").map(|entry| entry.expect("entry").path());
    let is_wanted = |path: &std::path::PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().contains(prefix))
    };
    entries.filter(is_wanted).collect()
}

#[test]
fn a_lock_file_that_was_removed_ends_writes() {
    refuses("LOCK", |dir| fs::remove_file(dir.join("LOCK")).expect("remove"));
}

#[test]
fn a_lock_file_that_was_replaced_ends_writes() {
    refuses("LOCK", |dir| {
        fs::write(dir.join("other"), "").expect("write");
        fs::rename(dir.join("other"), dir.join("LOCK")).expect("rename");
    });
}

#[test]
fn a_directory_that_was_moved_ends_writes() {
    refuses("LOCK", |dir| fs::rename(dir, dir.with_extension("moved")).expect("rename"));
}

#[test]
fn a_log_that_was_removed_ends_writes() {
    refuses("removed", |dir| {
        files(dir, ".log").iter().for_each(|path| fs::remove_file(path).expect("remove"));
    });
}

#[test]
fn a_directory_that_was_emptied_ends_writes() {
    refuses("LOCK", |dir| {
        files(dir, "").iter().for_each(|path| fs::remove_file(path).expect("remove"));
    });
}

/// Access to a mapped page behind the end of a file kills the process. So the cut keeps the page of the next record.
#[test]
fn a_log_that_was_cut_ends_writes() {
    refuses("cut to", |dir| {
        for path in files(dir, ".log") {
            let file = Env::os().fs().open_write(&path, FileKind::Log).expect("open");
            file.set_len(32 << 10).expect("cut");
        }
    });
}

/// The flush of the only keyspace does not sync the log, so this checks the manifest alone.
#[test]
fn an_edit_of_a_manifest_that_was_removed_is_not_acknowledged() {
    let dir = TempDir::new("drumlin-outside").expect("a directory");
    let (db, keys) = open(&dir.path().join("s"));
    keys.put("more", "2").expect("put");
    for path in files(&dir.path().join("s"), "MANIFEST") {
        fs::remove_file(path).expect("remove");
    }
    let error = db.flush().expect_err("the edit of the flush is lost");
    assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
    assert!(error.to_string().contains("removed"), "{error}");
}

const TINY: &[(&str, &str)] =
    &[("memtable_bytes", "8KiB"), ("file_bytes", "4KiB"), ("compaction", "tiering:2"), ("max_runs", "8")];

/// Writes until a write fails, which must happen before `most` writes, with an error that names the limit.
fn writers_hear_of(mem: &MemEnv, op: Op) {
    const EMFILE: i32 = 24;
    let db =
        Db::builder("/s").env(mem.env()).set("memory_budget", "8MiB").and_then(|b| b.open()).expect("open");
    let keys = db.keyspace_with("k", TINY).expect("keyspace");
    let put = |n: u32| keys.put(n.wrapping_mul(2_654_435_761).to_be_bytes(), [7; 500]);
    for n in 0..1000 {
        put(n).expect("put");
    }
    mem.inject(Fault {
        op: Some(op),
        kind: Some(FileKind::Table),
        when: When::From(0),
        effect: Effect::Fail(EMFILE),
    });
    let error = (1000..100_000).find_map(|n| put(n).err()).expect("a write fails");
    assert_eq!(error.kind(), ErrorKind::TooManyFiles, "{error}");
    assert!(error.to_string().contains("RLIMIT_NOFILE"), "{error}");
    assert_eq!(db.compact().expect_err("no table can be opened").kind(), ErrorKind::TooManyFiles);
    mem.clear_faults();
    mem.advance(600_000_000);
    db.flush().expect("flushes work once there are descriptors");
    db.compact().expect("compactions work too");
    put(100_000).expect("writes work too");
    assert_eq!(db.verify().expect("verify").findings, vec![]);
    assert_eq!(mem.order_violations(), Vec::<String>::new());
}

#[test]
fn writers_hear_of_flushes_without_descriptors() {
    writers_hear_of(&MemEnv::new(71), Op::Create);
}

#[test]
fn writers_hear_of_merges_without_descriptors() {
    writers_hear_of(&MemEnv::new(72), Op::Open);
}

/// A file that cannot be opened for a while neither poisons the store nor loses data.
#[test]
fn a_descriptor_that_is_missing_for_a_moment_harms_nothing() {
    let mut failures = 0;
    for call in 0..90u64 {
        let mem = MemEnv::new(73);
        let db = Db::builder("/s").env(mem.env()).set("memory_budget", "8MiB").and_then(|b| b.open());
        let db = db.expect("open");
        let keys = db.keyspace_with("k", TINY).expect("keyspace");
        let ops = [Op::Create, Op::Open, Op::SyncDir];
        mem.inject(Fault {
            op: Some(ops[call as usize % ops.len()]),
            kind: None,
            when: When::Nth(call / ops.len() as u64),
            effect: Effect::Fail(24),
        });
        let mut written = Vec::new();
        for n in 0..300u32 {
            match keys.put(n.wrapping_mul(2_654_435_761).to_be_bytes(), [7; 500]) {
                Ok(_) => written.push(n),
                Err(error) => assert_eq!(error.kind(), ErrorKind::TooManyFiles, "call {call}: {error}"),
            }
        }
        failures += u64::from(db.metrics().background_errors > 0) + u64::from(written.len() < 300);
        db.flush().unwrap_or_else(|error| panic!("call {call}: {error}"));
        for n in written {
            let value = keys.get(n.wrapping_mul(2_654_435_761).to_be_bytes()).expect("get");
            assert_eq!(value.as_deref(), Some(&[7; 500][..]), "call {call}");
        }
    }
    assert!(failures > 25, "{failures} of 90 calls failed");
}

/// The log grows while flushes fail, until its open files leave no descriptor for a flush. But only a flush shortens
/// the log, so the store must free a descriptor itself.
#[test]
fn a_long_log_does_not_keep_all_descriptors() {
    let mem = MemEnv::new(81);
    let builder = Db::builder("/s").env(mem.env());
    let settings = [("memory_budget", "8MiB"), ("log_segment_bytes", "64KiB")];
    let builder = settings.iter().try_fold(builder, |b, (name, value)| b.set(name, value)).expect("options");
    let db = builder.open().expect("open");
    let keys = db.keyspace_with("k", TINY).expect("keyspace");
    let put = |n: u32| keys.put(n.to_be_bytes(), [7; 500]);
    let effect = Effect::Fail(5);
    mem.inject(Fault { op: Some(Op::Create), kind: Some(FileKind::Table), when: When::From(0), effect });
    let written = (0..4000).take_while(|n| put(*n).is_ok()).count();
    assert!(mem.open_files() > 20, "{} files are open", mem.open_files());
    mem.set_open_files_limit(mem.open_files());
    mem.clear_faults();
    for _ in 0..20 {
        mem.advance(2_000_000);
        let _ = db.wait_idle();
    }
    db.flush().expect("flushes get a descriptor");
    db.compact().expect("compactions get descriptors");
    put(5000).expect("put");
    assert_eq!(keys.iter().count(), written + 1);
    drop(keys);
    db.close().expect("close");
    assert_eq!(mem.order_violations(), Vec::<String>::new());
}
