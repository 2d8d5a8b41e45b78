//! Tests of the compaction pipeline in the engine. Several slots run pieces (subcompactions) of several plans. All
//! three modes give the same results. The decision log proves that plans waited, started early, and folded.

use drumlin::Db;
use drumlin::env::MemEnv;

const KEYS: u32 = 900;

/// Expected keys with their values.
type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Runs a store whose compactions often conflict: small files, and compactions of many steps.
fn busy(mode: &str, workers: u32, policy: &str, seed: u64) -> (Vec<String>, Entries) {
    let mem = MemEnv::new(seed);
    let builder = Db::builder("/store").env(mem.env()).set("compaction_slots", &workers.to_string());
    let builder = builder.and_then(|b| b.set("pipeline", mode)).expect("options");
    let db = builder.open().expect("the store opens");
    let options = [("memtable_bytes", "8KiB"), ("file_bytes", "4KiB"), ("compaction", policy)];
    let keyspace = db.keyspace_with("k", &options).expect("a keyspace");
    for write in 0..9000u32 {
        let key = write.wrapping_mul(2_654_435_761) % KEYS;
        if write % 11 == 0 {
            keyspace.delete(key.to_be_bytes()).expect("a delete");
        } else {
            keyspace.put(key.to_be_bytes(), [write as u8; 60]).expect("a put");
        }
    }
    let said = db.explain().into_iter().map(|d| d.what).collect();
    db.flush().expect("a flush");
    db.wait_idle().expect("quiet");
    let mut held = Vec::new();
    for key in 0..KEYS {
        if let Some(value) = keyspace.get(key.to_be_bytes()).expect("a get") {
            held.push((key.to_be_bytes().to_vec(), value.to_vec()));
        }
    }
    db.close().expect("closed");
    (said, held)
}

#[test]
fn plans_wait_are_merged_ahead_and_fold() {
    let (mut waits, mut ahead, mut folds) = (0, 0, 0);
    for (seed, policy) in
        [(1, "chaos"), (2, "leveling:3"), (3, "1-leveling:static"), (4, "chaos"), (5, "chaos")]
    {
        let (said, _) = busy("pipelined", 4, policy, seed);
        let count = |what: &str| said.iter().filter(|line| line.contains(what)).count();
        waits += count(", waits for #");
        ahead += count(" starts early");
        folds += count(" folds ");
    }
    assert!(waits > 0 && ahead > 0 && folds > 0, "waits {waits}, ahead {ahead}, folds {folds}");
}

#[test]
fn answers_do_not_depend_on_the_pipeline() {
    for policy in ["chaos", "tiering:3", "1-leveling:static"] {
        let expected = busy("pipelined", 1, policy, 7).1;
        assert!(expected.len() > 500, "{policy}");
        for (mode, workers) in [("pipelined", 4), ("split", 1), ("split", 4), ("unsplit", 3)] {
            assert!(busy(mode, workers, policy, 8).1 == expected, "{policy}, {mode}, {workers} workers");
        }
    }
}
