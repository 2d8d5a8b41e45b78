//! Tests that compactions keep the block cache warm: what readers had cached of the inputs is cached of the outputs.

use drumlin::env::{MemEnv, Random};
use drumlin::{Db, Keyspace};

const KEYS: u32 = 100_000;

/// The value of a key. It tells the keys apart, and does not compress.
fn value(key: u32) -> [u8; 100] {
    let mut value = [0; 100];
    Random::new(u64::from(key), "value").fill(&mut value);
    value
}

/// A store of about 70,000 entries of 116 bytes, written in three passes over random keys.
fn open(mem: &MemEnv, mib: u64) -> (Db, Keyspace) {
    let builder = Db::builder("/store").env(mem.env()).memory_budget(mib << 20).expect("an option");
    let db = builder.open().expect("the store opens");
    let options = [("memtable_bytes", "2MiB"), ("file_bytes", "1MiB"), ("compaction", "tiering:8")];
    let keyspace = db.keyspace_with("k", &options).expect("a keyspace");
    let mut random = Random::new(1, "order");
    for _ in 0..3 {
        for key in (0..KEYS).filter(|_| random.chance(1, 3)) {
            keyspace.put(format!("{key:016}"), value(key)).expect("a put");
        }
        db.flush().expect("a flush");
    }
    db.wait_idle().expect("quiet");
    (db, keyspace)
}

/// Reads `count` keys, half of them from a tenth of the key space. Returns the share of block lookups that the cache
/// answered.
fn hit_ratio(db: &Db, keyspace: &Keyspace, random: &mut Random, count: u32) -> f64 {
    let before = db.metrics();
    for _ in 0..count {
        let most = if random.chance(1, 2) { KEYS / 10 } else { KEYS };
        let key = random.index(most as usize) as u32;
        let found = keyspace.get(format!("{key:016}")).expect("a get");
        assert!(found.is_none_or(|found| *found == value(key)), "another value of {key}");
    }
    let after = db.metrics();
    let (hits, misses) = (after.cache_hits - before.cache_hits, after.cache_misses - before.cache_misses);
    hits as f64 / (hits + misses) as f64
}

/// With these memory budgets, a third of the data fits into the cache, more than half, and all.
#[test]
fn a_compaction_of_the_whole_store_keeps_the_cache_warm() {
    for (mib, least) in [(8, 0.8), (12, 0.85), (24, 0.99)] {
        let (db, keyspace) = open(&MemEnv::new(1), mib);
        let mut random = Random::new(2, "reads");
        hit_ratio(&db, &keyspace, &mut random, 150_000);
        let before = hit_ratio(&db, &keyspace, &mut random, 1000);
        assert!(before > least, "{mib} MiB: {before:.3} before the compaction");
        let compacted = db.metrics().compactions;
        db.compact().expect("a compaction");
        assert!(db.metrics().compactions > compacted);
        let after = hit_ratio(&db, &keyspace, &mut random, 1000);
        println!("{mib} MiB: {before:.3} before, {after:.3} after");
        assert!(after > before - 0.06, "{mib} MiB: {before:.3} before, {after:.3} after");
    }
}
