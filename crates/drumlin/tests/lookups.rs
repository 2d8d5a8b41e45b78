//! Tests of point lookups, single and in batches. Both give the same results, and both count in the lookup statistics
//! of the files that they probe.

use drumlin::env::{MemEnv, Random, TempDir};
use drumlin::{Db, FileShape, Keyspace};

fn open(mem: &MemEnv) -> (Db, Keyspace) {
    let db = Db::builder("/store").env(mem.env()).open().expect("the store opens");
    let options = [("memtable_bytes", "4KiB"), ("file_bytes", "4KiB"), ("compaction", "tiering:3")];
    let keyspace = db.keyspace_with("k", &options).expect("a keyspace");
    (db, keyspace)
}

fn files(db: &Db) -> Vec<FileShape> {
    let shapes = db.tree();
    shapes.into_iter().flat_map(|k| k.levels).flat_map(|l| l.runs).flat_map(|r| r.files).collect()
}

#[test]
fn several_keys_get_what_each_gets_alone() {
    for seed in 0..12 {
        let mut random = Random::new(seed, "keys");
        let (db, keyspace) = open(&MemEnv::new(seed));
        let mut snapshots = Vec::new();
        for _ in 0..800 {
            let key = format!("{:03}", random.index(150));
            match random.index(12) {
                0 => keyspace.delete(&key).map(drop),
                1 => keyspace.delete_range(key.clone()..format!("{key}~")).map(drop),
                2 if snapshots.len() < 3 => {
                    snapshots.push(db.snapshot());
                    Ok(())
                }
                _ => keyspace.put(&key, vec![b'v'; random.index(90)]).map(drop),
            }
            .expect("a write");
            if random.chance(1, 40) {
                let keys: Vec<String> =
                    (0..random.index(40)).map(|_| format!("{:03}", random.index(160))).collect();
                let together = keyspace.multi_get(&keys).expect("several keys");
                let alone: Vec<_> = keys.iter().map(|key| keyspace.get(key).expect("a key")).collect();
                assert_eq!(together, alone);
                for snapshot in &snapshots {
                    let together = snapshot.multi_get(&keyspace, &keys).expect("several keys");
                    let alone: Vec<_> =
                        keys.iter().map(|key| snapshot.get(&keyspace, key).expect("a key")).collect();
                    assert_eq!(together, alone);
                }
            }
        }
    }
}

#[test]
fn lookups_are_counted_where_they_go_and_kept() {
    const ROUNDS: u64 = 400;
    let mem = MemEnv::new(1);
    let (db, keyspace) = open(&mem);
    for key in 0..20u32 {
        keyspace.put(format!("{key:02}"), "value").expect("a put");
    }
    db.flush().expect("a flush");
    // The tombstone is in a newer table and hides an older value.
    keyspace.delete("05").expect("a delete");
    db.flush().expect("a flush");
    db.wait_idle().expect("quiet");
    for _ in 0..ROUNDS {
        assert!(keyspace.get("03").expect("a get").is_some());
        assert!(keyspace.get("05").expect("a get").is_none());
        assert!(keyspace.get("03x").expect("a get").is_none());
        assert!(keyspace.get("zz").expect("beyond all files").is_none());
    }
    let sum = |db: &Db, count: fn(&FileShape) -> f64| files(db).iter().map(count).sum::<f64>();
    let near = |counted: f64, lookups: u64| {
        assert!((counted / lookups as f64 - 1.0).abs() < 0.35, "{counted} counted of {lookups}");
    };
    near(sum(&db, |f| f.lookups_found), 2 * ROUNDS);
    near(sum(&db, |f| f.lookups_dead), ROUNDS);
    near(sum(&db, |f| f.lookups_empty), ROUNDS);
    let found = sum(&db, |f| f.lookups_found);
    drop(keyspace);
    db.close().expect("closed");
    let (db, _) = open(&mem);
    assert_eq!(sum(&db, |f| f.lookups_found), found, "lookup counts were lost at close");
}

/// On real files with a cold block cache, `multi_get` reads blocks in parallel, with and without the page cache.
#[test]
fn keys_read_from_disk_together_are_the_right_ones() {
    for reads in ["direct", "buffered"] {
        let dir = TempDir::new("drumlin-lookups").expect("a directory");
        let open = || {
            let builder = Db::builder(dir.path()).set("memory_budget", "8MiB").expect("an option");
            builder.set("table_reads", reads).expect("an option").open().expect("the store opens")
        };
        let value = |n: usize| vec![n as u8; 100 + n % 300];
        let db = open();
        let keyspace = db.keyspace_with("k", &[("memtable_bytes", "256KiB")]).expect("a keyspace");
        for n in 0..8000 {
            keyspace.put(format!("{:05}", n * 7919 % 8000), value(n * 7919 % 8000)).expect("a put");
        }
        db.close().expect("closed");
        let db = open();
        let keyspace = db.keyspace("k").expect("a keyspace");
        for round in 0..20 {
            let numbers: Vec<usize> = (0..64).map(|n| (n * 997 + round * 131) % 9000).collect();
            let keys: Vec<String> = numbers.iter().map(|n| format!("{n:05}")).collect();
            let found = keyspace.multi_get(&keys).expect("many keys");
            for (n, found) in numbers.iter().zip(found) {
                assert_eq!(found.as_deref(), (*n < 8000).then(|| value(*n)).as_deref(), "{reads} {n}");
            }
        }
        assert_eq!(db.verify().expect("verified").findings, vec![]);
    }
}
