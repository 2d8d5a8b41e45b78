//! Tests that compactions keep the block cache warm: what readers had cached of the inputs is cached of the outputs. It
//! is right while compactions run and after they fail.

use drumlin::env::{Effect, Fault, FileKind, MemEnv, Op, Random, When};
use drumlin::{Db, Keyspace};
use std::collections::BTreeMap;

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

/// With these memory budgets, the cache holds a third of the data, more than half of it, and all of it.
#[test]
fn a_compaction_of_the_whole_store_keeps_the_cache_warm() {
    for (mib, least) in [(8, 0.8), (12, 0.85), (24, 0.99)] {
        let (db, keyspace) = open(&MemEnv::new(1), mib);
        let mut random = Random::new(2, "reads");
        hit_ratio(&db, &keyspace, &mut random, 150_000);
        let before = hit_ratio(&db, &keyspace, &mut random, 1000);
        assert!(before > least, "{mib} MiB: {before:.3} before the compaction");
        let counts = db.metrics();
        db.compact().expect("a compaction");
        let [compacted, carried, evicted] = {
            let now = db.metrics();
            let [before, now] = [counts, now].map(|m| [m.compactions, m.cache_carried, m.cache_evictions]);
            [0, 1, 2].map(|at| now[at] - before[at])
        };
        assert!(
            compacted > 0 && carried > 100,
            "{mib} MiB: {compacted} compactions, {carried} blocks carried"
        );
        // A full cache makes room for what is carried, one that has room does not.
        assert_eq!(evicted > 0, mib < 24, "{mib} MiB: {evicted} blocks evicted");
        let after = hit_ratio(&db, &keyspace, &mut random, 1000);
        println!("{mib} MiB: {before:.3} before, {after:.3} after");
        assert!(after > before - 0.06, "{mib} MiB: {before:.3} before, {after:.3} after");
    }
}

/// Reads run beside compactions whose writes fail now and then. Their outputs are abandoned, with the blocks that they
/// had put into the cache, and other outputs take their place.
#[test]
fn answers_are_right_while_compactions_insert_blocks_and_fail() {
    for (seed, compression) in [(1, "none"), (2, "lz4"), (3, "none")] {
        let mem = MemEnv::new(seed);
        mem.pace(20_000, 40_000);
        let builder = Db::builder("/store").env(mem.env()).memory_budget(8 << 20).expect("an option");
        let db = builder.open().expect("the store opens");
        let options = [
            ("memtable_bytes", "32KiB"),
            ("file_bytes", "32KiB"),
            ("compaction", "tiering:3"),
            ("compression", compression),
        ];
        let keyspace = db.keyspace_with("k", &options).expect("a keyspace");
        let (mut random, mut oracle) = (Random::new(seed, "operations"), BTreeMap::new());
        let when = When::OneIn(8);
        mem.inject(Fault {
            op: Some(Op::Write),
            kind: Some(FileKind::Table),
            when,
            effect: Effect::Fail(28),
        });
        let mut failed_reads = 0;
        for version in 0..12_000_u32 {
            mem.advance(2_000);
            let most = if random.chance(1, 2) { 300 } else { 3000 };
            let key = format!("{:08}", random.index(most));
            let written = value(version);
            // A put may have been applied when it fails, so it is repeated until it succeeds.
            let done = (0..100).any(|_| keyspace.put(&key, written).is_ok());
            assert!(done, "seed {seed}: {key} cannot be written");
            oracle.insert(key, written);
            for _ in 0..3 {
                let most = if random.chance(1, 2) { 300 } else { 3000 };
                let key = format!("{:08}", random.index(most));
                match keyspace.get(&key) {
                    Ok(found) => {
                        assert_eq!(found.as_deref(), oracle.get(&key).map(|v| &v[..]), "seed {seed}: {key}")
                    }
                    Err(_) => failed_reads += 1,
                }
            }
        }
        println!(
            "seed {seed}: {} faults, {} compactions, {:?}",
            mem.fired().len(),
            db.metrics().compactions,
            db.metrics().cache_hits
        );
        assert_eq!(failed_reads, 0, "only writes fail");
        assert!(mem.fired().len() > 5, "seed {seed}: {} faults", mem.fired().len());
        assert!(db.metrics().compactions > 20, "seed {seed}: {:?}", db.metrics().compactions);
        mem.clear_faults();
        let mut entries = keyspace.iter();
        for (key, value) in &oracle {
            let entry = entries.next().expect("an entry").expect("no fault is left");
            assert_eq!((&entry.0[..], &entry.1[..]), (key.as_bytes(), &value[..]), "seed {seed}");
        }
        assert!(entries.next().is_none());
    }
}
