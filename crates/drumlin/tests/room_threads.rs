//! Many threads fill a small disk budget, which is lowered below its use afterwards. Deletions then free the store.

#![expect(clippy::disallowed_methods, reason = "threads are what is tested")]

use drumlin::env::TempDir;
use drumlin::{Db, Error, ErrorKind, Keyspace};
use std::path::Path;
use std::time::Duration;

const BUDGET: u64 = 8 << 20;
const LOWERED: u64 = 6 << 20;
/// Number of calls of each thread that were accepted or refused.
const CALLS: u64 = 12_000;

/// Returns the bytes of tables and log.
fn on_disk(dir: &Path) -> u64 {
    let counts = |path: &Path| path.extension().is_some_and(|name| name == "tbl" || name == "log");
    let entries = std::fs::read_dir(dir).expect("the directory").flatten();
    // A file may be unlinked meanwhile.
    entries.filter(|e| counts(&e.path())).map(|e| e.metadata().map_or(0, |m| m.len())).sum()
}

/// Overwrites few keys, and deletes a range now and then. Returns the number of writes that were refused.
fn fill(keys: &Keyspace, first: u64) -> u64 {
    let mut refused = 0;
    for n in (first..).step_by(4).take(CALLS as usize) {
        let key = (n % 6000).to_be_bytes();
        let written = match n % 41 {
            0 => keys.delete_range(key..(n % 6000 + 50).to_be_bytes()),
            _ => keys.put(key, [7; 400]),
        };
        match written.as_ref().map_err(Error::kind) {
            Ok(_) => {}
            // Memtables are full, or the budget is used up.
            Err(ErrorKind::Busy | ErrorKind::NoSpace) => refused += 1,
            Err(_) => panic!("write {n}: {}", written.expect_err("refused")),
        }
    }
    refused
}

/// Deletes everything until the store takes a write again.
fn empty(db: &Db, keyspaces: &[Keyspace]) -> drumlin::Result<u64> {
    for keys in keyspaces {
        keys.delete_range::<&[u8]>(..)?;
    }
    db.flush()?;
    keyspaces[0].put("key", "value")
}

#[test]
fn a_budget_filled_by_threads_and_then_lowered_is_freed_by_deleting() {
    for policy in ["arce", "leveling", "tiering:8", "universal"] {
        let dir = TempDir::new("drumlin-room").expect("a directory");
        let settings = [
            ("memory_budget", "8MiB"),
            ("disk_budget", "8MiB"),
            ("log_segment_bytes", "256KiB"),
            ("write_timeout_ms", "300"),
        ];
        let builder = Db::builder(dir.path());
        let builder = settings.iter().try_fold(builder, |b, (name, value)| b.set(name, value));
        let db = builder.and_then(drumlin::Builder::open).expect("open");
        let options = [("compaction", policy), ("compression", "none"), ("memtable_bytes", "64KiB")];
        let keyspaces = ["a", "b"].map(|name| db.keyspace_with(name, &options).expect("keyspace"));
        let refused: u64 = std::thread::scope(|scope| {
            let keyspaces = &keyspaces;
            let threads = [0, 1, 2, 3].map(|n| scope.spawn(move || fill(&keyspaces[n as usize % 2], n)));
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        assert!(refused > 0, "{policy}: the budget was never used up");
        let _ = db.wait_idle();
        let used = on_disk(dir.path());
        assert!(used <= BUDGET, "{policy}: {used} bytes on disk");
        db.set_option("disk_budget", &LOWERED.to_string()).expect("lowered");
        let mut emptied = empty(&db, &keyspaces);
        for _ in 0..40 {
            if emptied.is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(250));
            emptied = empty(&db, &keyspaces);
        }
        emptied.unwrap_or_else(|error| panic!("{policy}: the store stays full: {error}"));
        let _ = db.wait_idle();
        let used = on_disk(dir.path());
        assert!(used <= LOWERED, "{policy}: {used} bytes on disk");
        assert_eq!(db.verify().expect("verify").findings, vec![], "{policy}");
        drop(keyspaces);
        db.close().expect("close");
        Db::open(dir.path()).expect("open");
    }
}
