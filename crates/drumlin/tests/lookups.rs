//! Point lookups, one by one and together: the same answers, counted at the files that they reach.

use drumlin::env::{MemEnv, Random};
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
    // In a table above, where it hides something.
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
    assert_eq!(sum(&db, |f| f.lookups_found), found, "counts outlive the process");
}
