//! End-to-end tests of the public API, on real files with threads and in simulation.

use drumlin::env::{Env, MemEnv, TempDir};
use drumlin::{Batch, Db, Durability, Keyspace};
use std::collections::BTreeMap;
use std::path::Path;

fn builder(env: Env, path: &Path) -> drumlin::Builder {
    let set = |b: drumlin::Builder, n: &str, v: &str| b.set(n, v).expect("a known option");
    let b = Db::builder(path).env(env);
    let b = set(b, "memory_budget", "8388608");
    set(b, "log_segment_bytes", "65536")
}

type Oracle = BTreeMap<Vec<u8>, Vec<u8>>;

struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

fn churn(keys: &Keyspace, oracle: &mut Oracle, draw: &mut Draw, operations: usize) {
    for _ in 0..operations {
        let key = format!("key{:06}", draw.below(5000)).into_bytes();
        match draw.below(20) {
            0..=1 => {
                keys.delete(&key).expect("delete");
                oracle.remove(&key);
            }
            2 if draw.below(10) == 0 => {
                let end = format!("key{:06}", draw.below(5000)).into_bytes();
                let (a, b) = if key < end { (key, end) } else { (end, key) };
                let b = b.min([a.clone(), vec![b'5']].concat());
                keys.delete_range(a.clone()..b.clone()).expect("delete_range");
                let gone: Vec<_> = oracle.range(a..b.clone()).map(|(k, _)| k.clone()).collect();
                gone.iter().for_each(|k| drop(oracle.remove(k)));
            }
            _ => {
                let value = vec![b'a' + draw.below(26) as u8; draw.below(200) as usize];
                keys.put(&key, &value).expect("put");
                oracle.insert(key, value);
            }
        }
    }
}

fn compare(keys: &Keyspace, oracle: &Oracle) {
    let mut draw = Draw(oracle.len() as u64);
    (0..10).for_each(|_| wander(keys, oracle, &mut draw));
    let found: Vec<_> =
        keys.iter().map(|e| e.expect("an entry")).map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
    let wanted: Vec<_> = oracle.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    assert_eq!(found.len(), wanted.len());
    assert!(found == wanted, "forward scan differs");
    let back: Vec<_> = keys.iter().rev().map(|e| e.expect("an entry").0.to_vec()).collect();
    assert!(back.iter().eq(oracle.keys().rev()), "backward scan differs");
    for i in (0..5000).step_by(7) {
        let key = format!("key{i:06}").into_bytes();
        assert_eq!(keys.get(&key).expect("get").map(|v| v.to_vec()), oracle.get(&key).cloned());
    }
}

/// Moves a cursor over a part of the keys at random and compares it with a position in the ordered map.
fn wander(keys: &Keyspace, oracle: &Oracle, draw: &mut Draw) {
    let key = |draw: &mut Draw| format!("key{:06}", draw.below(5000)).into_bytes();
    let (a, b) = (key(draw), key(draw));
    let (start, end) = if a < b { (a, b) } else { (b, a) };
    let inside: Vec<(&[u8], &[u8])> =
        oracle.range(start.clone()..end.clone()).map(|(k, v)| (&k[..], &v[..])).collect();
    let mut cursor = keys.cursor(start..end).expect("a cursor");
    assert_eq!(cursor.entry(), None);
    let mut at: Option<usize> = None;
    for _ in 0..200 {
        let target = key(draw);
        let lower = inside.partition_point(|(k, _)| *k < &target[..]);
        let moved = match draw.below(12) {
            0 => (cursor.seek_first(), Some(0)),
            1 => (cursor.seek_last(), inside.len().checked_sub(1)),
            2 => (cursor.seek(&target), Some(lower)),
            3 => (cursor.seek_before(&target), lower.checked_sub(1)),
            4..=8 => (cursor.next(), at.map(|at| at + 1)),
            _ => (cursor.prev(), at.and_then(|at| at.checked_sub(1))),
        };
        at = moved.1.filter(|at| *at < inside.len());
        assert_eq!(moved.0.expect("a move"), at.is_some());
        assert!(cursor.entry() == at.map(|at| inside[at]), "the cursor is on another entry");
    }
}

fn run(env: Env, path: &Path, rounds: usize, seed: u64) {
    let (mut oracle, mut draw) = (Oracle::new(), Draw(seed));
    for round in 0..rounds {
        let db = builder(env.clone(), path).open().expect("open");
        let keys = db
            .keyspace_with("main", &[("memtable_bytes", "64KiB"), ("file_bytes", "64KiB")])
            .expect("keyspace");
        compare(&keys, &oracle);
        for policy in ["leveling:4", "tiering:4", "1-leveling", "lazy-leveling:4", "universal"] {
            keys.set_policy(policy).expect("policy");
            churn(&keys, &mut oracle, &mut draw, 3000);
            compare(&keys, &oracle);
        }
        let report = db.verify().expect("verify");
        assert_eq!(report.findings, vec![], "round {round}");
        if round % 2 == 1 {
            db.compact().expect("compact");
            compare(&keys, &oracle);
        }
        db.wait_idle().expect("idle");
        assert_eq!(db.verify().expect("verify").findings, vec![]);
        if round % 3 != 2 {
            db.close().expect("close");
        }
    }
}

#[test]
fn a_store_on_real_files_equals_a_map() {
    let dir = TempDir::new("drumlin-basics").expect("a directory");
    run(Env::os(), dir.path(), 4, 1);
}

#[test]
fn a_simulated_store_equals_a_map() {
    for seed in 0..4 {
        let mem = MemEnv::new(seed);
        run(mem.env(), Path::new("/store"), 3, seed);
        assert_eq!(mem.order_violations(), Vec::<String>::new());
    }
}

#[test]
fn batches_are_atomic_over_keyspaces_and_snapshots_hold() {
    let dir = TempDir::new("drumlin-batch").expect("a directory");
    let db = Db::open(dir.path()).expect("open");
    let (a, b) = (db.keyspace("a").expect("a"), db.keyspace("b").expect("b"));
    let mut batch = Batch::new();
    batch.put(&a, "k", "1");
    batch.put(&b, "k", "2");
    let seq = db.write_with(batch, Durability::Sync).expect("write");
    assert_eq!((seq, db.visible_seq(), db.durable_seq()), (2, 2, 2));
    let snapshot = db.snapshot();
    a.put("k", "3").expect("put");
    b.delete("k").expect("delete");
    assert_eq!(snapshot.get(&a, "k").expect("get").as_deref(), Some(&b"1"[..]));
    assert_eq!(snapshot.get(&b, "k").expect("get").as_deref(), Some(&b"2"[..]));
    assert_eq!(a.get("k").expect("get").as_deref(), Some(&b"3"[..]));
    assert_eq!(b.get("k").expect("get"), None);
    let mut batch = Batch::new();
    batch.put(&a, "x", "");
    batch.put(&b, "x", "");
    assert!(db.write_with(batch, Durability::None).is_err());
}
