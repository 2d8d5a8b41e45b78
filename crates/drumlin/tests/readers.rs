//! Tests of resources that pinned readers hold. While a merge operator runs in a reader, obsolete files of other
//! keyspaces are still deleted. Readers release file handles that others need.

use drumlin::{Db, MergeOperator};
use drumlin_env::MemEnv;
use drumlin_env::sync::{Arc, Mutex};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Operator whose partial merge reports that it runs and then waits.
struct Waiting {
    runs: Mutex<Sender<()>>,
    go_on: Mutex<Receiver<()>>,
}

impl MergeOperator for Waiting {
    fn name(&self) -> &str {
        "waiting"
    }

    fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        Some([base.unwrap_or_default(), &operands.concat()].concat())
    }

    fn partial_merge(&self, _key: &[u8], left: &[u8], right: &[u8]) -> Option<Vec<u8>> {
        let _ = self.runs.lock().send(());
        // Fails once the test has let the operator go on.
        let _ = self.go_on.lock().recv();
        Some([left, right].concat())
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a reader waits in its operator beside another thread")]
fn a_slow_operator_holds_no_files_back() {
    let mem = MemEnv::threaded(1);
    let ((runs, is_running), (let_go, go_on)) = (channel(), channel());
    let operator = Waiting { runs: Mutex::new(runs), go_on: Mutex::new(go_on) };
    let builder = Db::builder("/s").env(mem.env()).set("memory_budget", "16MiB").expect("option");
    let db = builder.merge_operator("counters", Arc::new(operator)).open().expect("open");
    let (counters, other) = (db.keyspace("counters").expect("new"), db.keyspace("other").expect("new"));
    for _ in 0..200 {
        counters.merge("hot", "x").expect("merge");
    }
    let tables = || {
        let is_table = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "tbl");
        mem.files().iter().filter(|path| is_table(path)).count()
    };
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| counters.get("hot"));
        is_running.recv().expect("the operator runs");
        for round in 0..20u8 {
            for key in 0..200u32 {
                other.put(key.to_be_bytes(), [round; 500]).expect("put");
            }
            other.flush().expect("flush");
            db.compact().expect("compact");
            db.wait_idle().expect("idle");
        }
        let during = tables();
        drop(let_go);
        assert_eq!(reader.join().expect("no panic").expect("get").map(|value| value.len()), Some(200));
        assert!(during < 5, "{during} tables of 20 rounds are left");
    });
    db.close().expect("close");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "readers contend for file handles")]
fn readers_share_few_file_handles() {
    let mem = MemEnv::threaded(2);
    let open = || {
        Db::builder("/s").env(mem.env()).set("memory_budget", "8MiB").expect("option").open().expect("open")
    };
    let db = open();
    let options = [("memtable_bytes", "16KiB"), ("file_bytes", "16KiB"), ("compression", "none")];
    let keyspace = db.keyspace_with("k", &options).expect("new");
    for number in 0..3000u32 {
        keyspace.put(number.to_be_bytes(), [7; 500]).expect("put");
    }
    db.flush().expect("flush");
    drop(keyspace);
    db.close().expect("close");
    let db = open();
    db.wait_idle().expect("idle");
    let keyspace = db.keyspace("k").expect("there");
    assert!(keyspace.metrics().files >= 6, "fewer tables than the readers want");
    // Each reader needs one handle, while another one waits to be closed. A background lane may open a file as well.
    mem.set_open_files_limit(mem.open_files() + 6);
    let found = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..2u32 {
            let (keyspace, found) = (&keyspace, &found);
            scope.spawn(move || {
                for number in 0..5000u32 {
                    let key = (number.wrapping_mul(977) + thread * 1409) % 3000;
                    assert!(keyspace.get(key.to_be_bytes()).expect("a handle becomes free").is_some());
                    found.fetch_add(1, Relaxed);
                }
            });
        }
    });
    assert_eq!(found.load(Relaxed), 10_000);
    mem.set_open_files_limit(None);
    db.close().expect("close");
}

/// A scan that needs a handle to read range tombstones closes other tables. It does not itself pin their handles.
#[test]
fn scans_find_file_handles_for_range_tombstones() {
    let mem = MemEnv::new(3);
    let open = || {
        Db::builder("/s").env(mem.env()).set("memory_budget", "8MiB").expect("option").open().expect("open")
    };
    let db = open();
    let [a, b] = ["a", "b"].map(|name| db.keyspace(name).expect("new"));
    for keys in [&a, &b] {
        for number in 0..100u32 {
            keys.put(number.to_be_bytes(), "").expect("put");
        }
        let snapshot = db.snapshot();
        keys.delete_range(10u32.to_be_bytes()..20u32.to_be_bytes()).expect("delete");
        db.flush().expect("flush");
        drop(snapshot);
    }
    drop((a, b));
    db.close().expect("close");
    for scans_by_cursor in [false, true] {
        let db = open();
        let [a, b] = ["a", "b"].map(|name| db.keyspace(name).expect("there"));
        assert!(a.get(1u32.to_be_bytes()).expect("opens the table").is_some());
        mem.set_open_files_limit(mem.open_files());
        let first = match scans_by_cursor {
            true => b.cursor::<&[u8]>(..).expect("a cursor").seek_first().expect("an entry"),
            false => b.iter().next().transpose().expect("an entry").is_some(),
        };
        assert!(first);
        mem.set_open_files_limit(None);
        drop((a, b));
        db.close().expect("close");
    }
}
