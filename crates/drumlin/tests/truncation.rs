//! Tests of truncated manifests and logs. Open fails with an error that names the file, and changes nothing.

use drumlin::{Db, Durability, repair_in};
use drumlin_env::{Disk, ImageMode, MemEnv};
use std::path::{Path, PathBuf};

const STORE: &str = "/s";

fn open(mem: &MemEnv) -> drumlin::Result<Db> {
    Db::builder(STORE).env(mem.env()).set("log_segment_bytes", "64KiB").expect("legal").open()
}

/// Creates a store with tables and a log, left by a process that died after a sync.
fn store(flushes: u64) -> Disk {
    let mem = MemEnv::new(7);
    let db = open(&mem).expect("open");
    db.set_option("durability", "sync").expect("set");
    for round in 0..=flushes {
        let keys = db.keyspace(&format!("k{round}")).expect("keyspace");
        for number in 0..100u64 {
            keys.put(number.to_be_bytes(), [round as u8; 50]).expect("put");
        }
        if round < flushes {
            db.flush().expect("flush");
        }
    }
    mem.snapshot()
}

fn named(mem: &MemEnv, part: &str) -> Vec<PathBuf> {
    let has = |path: &PathBuf| path.to_string_lossy().contains(part);
    mem.files().into_iter().filter(has).collect()
}

/// Returns the length of a file up to its last nonzero byte.
fn used(mem: &MemEnv, path: &Path) -> u64 {
    let bytes = mem.peek(path).expect("there");
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1)
}

/// Truncates `path` to `len` bytes. Open must fail with an error that names the file, and leave all files unchanged.
fn refused(disk: &Disk, path: &Path, len: u64) {
    let mem = disk.image(ImageMode::All, 1);
    assert!(mem.truncate_file(path, len), "it was there");
    let before = mem.files();
    let error = open(&mem).map(drop).expect_err("it was cut");
    assert!(error.is_corruption(), "{error}");
    assert_eq!(error.path(), Some(path), "cut to {len}: {error}");
    assert_eq!(mem.files(), before, "cut to {len}");
}

#[test]
fn a_manifest_that_was_cut_is_refused_and_nothing_is_deleted() {
    let disk = store(3);
    let mem = disk.image(ImageMode::All, 1);
    let manifest = named(&mem, "MANIFEST").pop().expect("one");
    let whole = mem.peek(&manifest).expect("there").len() as u64;
    for len in (0..used(&mem, &manifest)).step_by(8).chain([whole - 1]) {
        refused(&disk, &manifest, len);
    }
}

#[test]
fn a_log_segment_that_was_cut_is_refused() {
    let disk = store(1);
    let mem = disk.image(ImageMode::All, 1);
    let live = named(&mem, ".log").into_iter().max_by_key(|path| used(&mem, path)).expect("one");
    let whole = mem.peek(&live).expect("there").len() as u64;
    for len in (0..used(&mem, &live)).step_by(104).chain([4096, whole - 1]) {
        refused(&disk, &live, len);
    }
}

#[test]
fn a_closed_store_refuses_the_loss_of_any_end() {
    let mem = store(2).image(ImageMode::All, 1);
    let db = open(&mem).expect("open");
    db.keyspace("k0").expect("keyspace").put(b"last", b"one").expect("put");
    db.close().expect("close");
    let disk = mem.snapshot();
    open(&disk.image(ImageMode::All, 1)).expect("the undamaged store opens");
    for path in named(&mem, "MANIFEST").into_iter().chain(named(&mem, ".log")) {
        let used = used(&mem, &path);
        // Zeroes the last record of the file and all bytes behind it, as if they had never been written.
        for lost in [17u64, 40] {
            let mem = disk.image(ImageMode::All, 1);
            let at = used.saturating_sub(lost) & !7;
            mem.patch(&path, at, &vec![0; (used - at) as usize]);
            match open(&mem) {
                Err(error) => assert!(error.is_corruption(), "{error}"),
                // Only the last edit of the manifest may be lost. It only records that the store was closed.
                Ok(db) => {
                    let last = db.keyspace("k0").expect("keyspace").get(b"last").expect("get");
                    assert_eq!(last.as_deref(), Some(&b"one"[..]), "{}", path.display());
                }
            }
        }
    }
}

#[test]
fn a_table_that_the_manifest_cannot_know_is_evidence() {
    let disk = store(1);
    let mem = disk.image(ImageMode::All, 1);
    let table = named(&mem, ".tbl").pop().expect("one");
    mem.plant(Path::new("/s/009999.tbl"), drumlin_env::FileKind::Table, &mem.peek(&table).expect("there"));
    let error = open(&mem).map(drop).expect_err("an unreferenced table with a newer number");
    assert!(error.to_string().contains("009999.tbl"), "{error}");
}

/// The log of a closed store ends with a close record, and open reads little beyond it.
#[test]
fn little_of_a_closed_log_is_read_if_it_holds_little() {
    let mem = MemEnv::new(17);
    let open = |mem: &MemEnv| {
        Db::builder("/store")
            .env(mem.env())
            .set("log_segment_bytes", "16MiB")
            .expect("option")
            .open()
            .expect("open")
    };
    let read = |db: &Db| db.metrics().open_bytes_read;
    let db = open(&mem);
    db.keyspace("k").expect("keyspace").put("a", "1").expect("put");
    db.close().expect("close");
    let db = open(&mem);
    assert!(read(&db) < 1 << 20, "{} bytes", read(&db));
    db.keyspace("k").expect("keyspace").put("b", vec![7; 6 << 20]).expect("put");
    db.close().expect("close");
    let db = open(&mem);
    assert!((6 << 20..24 << 20).contains(&read(&db)), "{} bytes", read(&db));
    let keyspace = db.keyspace("k").expect("keyspace");
    assert_eq!(keyspace.get("a").expect("get").as_deref(), Some(&b"1"[..]));
    assert_eq!(keyspace.get("b").expect("get").map(|value| value.len()), Some(6 << 20));
    // Without a close record, open reads the whole segment, to search for records with a synced mark.
    let db = open(&mem.snapshot().image(ImageMode::All, 1));
    assert!(read(&db) > 16 << 20, "{} bytes", read(&db));
}

/// A store whose writes are all in tables needs nothing of its log, however much that holds.
#[test]
fn nothing_of_a_closed_log_is_read_if_all_is_in_tables() {
    let mem = MemEnv::new(18);
    let open = |mem: &MemEnv| {
        let builder = Db::builder("/store").env(mem.env()).set("log_segment_bytes", "1MiB").expect("option");
        builder.open().expect("open")
    };
    let mut db = open(&mem);
    for round in 0..4 {
        let keyspace = db.keyspace("k").expect("keyspace");
        for number in 0..40 {
            keyspace.put(format!("{round}-{number}"), [7; 40_000]).expect("put");
        }
        db.flush().expect("flush");
        db.wait_idle().expect("idle");
        let is_closed = round < 3;
        if is_closed {
            db.close().expect("close");
        }
        drop(keyspace);
        let mem = if is_closed { mem.clone() } else { mem.snapshot().image(ImageMode::All, 1) };
        db = open(&mem);
        let read = db.metrics().open_bytes_read;
        assert_eq!(read < 256 << 10, is_closed, "{read} bytes in round {round}");
        assert_eq!(db.keyspace("k").expect("keyspace").iter().count(), 40 * (round + 1));
    }
}

/// A power loss left a segment without its header, so recovery dropped it. If it came back after the next power loss,
/// a repair without a manifest could confuse its records with newer ones of the same sequence numbers.
#[test]
fn a_dropped_segment_does_not_come_back() {
    let open = |mem: &MemEnv| {
        let builder = Db::builder("/store").env(mem.env()).set("memory_budget", "8MiB").expect("option");
        builder.set("log_segment_bytes", "64KiB").expect("option").open().expect("open")
    };
    let mem = MemEnv::new(4);
    let db = open(&mem);
    let keyspace = db.keyspace("k").expect("keyspace");
    for number in 0..23 {
        keyspace.put_with(format!("old{number}"), [1; 5000], Durability::Buffered).expect("put");
    }
    let mem = mem.snapshot().image(ImageMode::All, 1);
    let logs: Vec<PathBuf> =
        mem.files().into_iter().filter(|path| path.extension().is_some_and(|end| end == "log")).collect();
    assert!(logs.len() >= 2, "{logs:?}");
    // The pages that the power loss took: the first records, and the header of the next segment.
    for (path, at) in [(&logs[0], 4096), (&logs[1], 0)] {
        mem.patch(path, at, &[0; 4096]);
    }
    let db = open(&mem);
    db.keyspace("k").expect("keyspace").put_with("new", "promised", Durability::Sync).expect("put");
    let mem = mem.snapshot().image(ImageMode::None, 1);
    assert!(mem.peek(&logs[1]).is_none(), "a dropped segment came back");
    let is_manifest = |path: &PathBuf| path.to_string_lossy().contains("MANIFEST");
    let manifest = mem.files().into_iter().rfind(is_manifest).expect("a manifest");
    let byte = mem.peek(&manifest).expect("there")[60];
    mem.patch(&manifest, 60, &[byte ^ 1]);
    repair_in(&mem.env(), "/store", "/repaired", |_| {}).expect("repair");
    let fixed = Db::builder("/repaired").env(mem.env()).open().expect("open");
    let found = fixed.keyspaces().iter().any(|name| {
        fixed.keyspace(name).expect("keyspace").get("new").expect("get").as_deref() == Some(b"promised")
    });
    assert!(found, "{:?}", fixed.keyspaces());
}
