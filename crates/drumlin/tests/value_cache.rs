//! Tests of the block cache with values of value files. It keeps values that lookups read, also when garbage
//! collection copies them, and no reader gets a wrong value from it.

use drumlin::{Db, Keyspace};
use drumlin_env::{Effect, Fault, FileKind, MemEnv, Op, Random, When};
use std::collections::BTreeMap;

fn open(mem: &MemEnv, mib: u64, options: &[(&str, &str)]) -> (Db, Keyspace) {
    let db =
        Db::builder("/s").env(mem.env()).memory_budget(mib << 20).expect("an option").open().expect("open");
    let keyspace = db.keyspace_with("k", options).expect("a keyspace");
    (db, keyspace)
}

/// A value that tells keys and rounds apart. Even keys have values that compress.
fn value(key: u32, round: u32, len: usize) -> Vec<u8> {
    let mut value = vec![0; len];
    let end = if key.is_multiple_of(2) { len / 8 } else { len };
    Random::new(u64::from(key) << 32 | u64::from(round), "value").fill(&mut value[..end]);
    value
}

/// Draws a key, half of the time one of 40.
fn draw(random: &mut Random) -> u32 {
    let most = if random.chance(1, 2) { 40 } else { 800 };
    random.index(most) as u32
}

/// Returns the hits and misses of lookups of values since the last call.
fn reads(db: &Db, last: &mut (u64, u64)) -> (u64, u64) {
    let metrics = db.metrics();
    let now = (metrics.value_cache_hits, metrics.value_cache_misses);
    let before = std::mem::replace(last, now);
    (now.0 - before.0, now.1 - before.1)
}

#[test]
fn lookups_add_values_and_scans_do_not() {
    for compression in ["none", "lz4"] {
        let mem = MemEnv::new(1);
        let (db, keys) = open(&mem, 64, &[("value_threshold", "1KiB"), ("compression", compression)]);
        let all: Vec<[u8; 4]> = (0..200u32).map(u32::to_be_bytes).collect();
        for (key, number) in all.iter().zip(0..) {
            keys.put(key, value(number, 0, 4096)).expect("a put");
        }
        keys.put("large", value(1, 0, 70_000)).expect("a put");
        db.flush().expect("flush");
        let mut last = (0, 0);
        let scan = |keys: &Keyspace| assert_eq!(keys.iter().filter(Result::is_ok).count(), 201);
        scan(&keys);
        let bytes = db.metrics().cache_bytes;
        let file_reads = mem.io_index();
        scan(&keys);
        let file_reads = mem.io_index() - file_reads;
        assert!(file_reads < 20, "{file_reads} reads for 201 values");
        assert_eq!(reads(&db, &mut last), (0, 0), "scans do not count");
        assert_eq!(db.metrics().cache_bytes, bytes, "a scan has added values");
        for (key, number) in all.iter().zip(0..) {
            let found = keys.get(key).expect("a get").expect("a value");
            assert!(*found == value(number, 0, 4096)[..]);
        }
        assert_eq!(reads(&db, &mut last), (0, 200));
        assert!(db.metrics().cache_bytes >= bytes + 200 * 4096);
        let file_reads = mem.io_index();
        for (found, number) in keys.multi_get(&all).expect("values").into_iter().zip(0..) {
            assert!(*found.expect("a value") == value(number, 0, 4096)[..]);
        }
        assert_eq!(reads(&db, &mut last), (200, 0));
        for (number, entry) in (0..200).zip(keys.iter()) {
            assert!(*entry.expect("an entry").1 == value(number, 0, 4096)[..]);
        }
        assert_eq!(mem.io_index(), file_reads, "all come from memory");
        for _ in 0..2 {
            assert_eq!(keys.get("large").expect("a get").expect("a value").len(), 70_000);
        }
        assert_eq!(reads(&db, &mut last), (0, 2), "a value of more than 64 KiB is not cached");
        // Verification reads the file even if the cache has its values.
        let file = mem.files().into_iter().find(|path| mem.kind_of(path) == Some(FileKind::Value));
        let file = file.expect("a value file");
        let byte = mem.peek(&file).expect("the file")[1000];
        assert!(mem.patch(&file, 1000, &[byte ^ 1]));
        assert!(!db.verify().expect("verify").findings.is_empty());
        assert_eq!(reads(&db, &mut last), (0, 0));
    }
}

#[test]
fn lookups_of_many_keys_add_values() {
    let mem = MemEnv::new(3);
    let options = [("value_threshold", "1KiB")];
    let (db, keys) = open(&mem, 64, &options);
    let all: Vec<[u8; 4]> = (0..200u32).map(u32::to_be_bytes).collect();
    for (key, number) in all.iter().zip(0..) {
        keys.put(key, value(number, 0, if number == 7 { 70_000 } else { 4096 })).expect("a put");
    }
    db.flush().expect("flush");
    drop(keys);
    db.close().expect("close");
    let (db, keys) = open(&mem, 64, &options);
    let mut last = (0, 0);
    for expected in [(0, 200), (199, 1)] {
        for (found, number) in keys.multi_get(&all).expect("values").into_iter().zip(0..) {
            let len = if number == 7 { 70_000 } else { 4096 };
            assert!(*found.expect("a value") == value(number, 0, len)[..]);
        }
        assert_eq!(reads(&db, &mut last), expected);
    }
}

#[test]
fn whether_a_key_exists_is_known_without_its_value() {
    let mem = MemEnv::new(5);
    let (db, keys) = open(&mem, 64, &[("value_threshold", "1KiB"), ("compression", "none")]);
    for number in 0..100u32 {
        keys.put(number.to_be_bytes(), value(number, 0, 4096)).expect("a put");
    }
    db.flush().expect("flush");
    keys.delete(7u32.to_be_bytes()).expect("a delete");
    let snapshot = db.snapshot();
    keys.delete(8u32.to_be_bytes()).expect("a delete");
    keys.put(200u32.to_be_bytes(), "new").expect("a put");
    // From now on no value can be read.
    let (op, kind) = (Some(Op::Read), Some(FileKind::Value));
    mem.inject(Fault { op, kind, when: When::From(0), effect: Effect::Fail(5) });
    for number in 0..300u32 {
        let key = number.to_be_bytes();
        let exists = number < 100 && number != 7;
        assert_eq!(snapshot.contains_key(&keys, key).expect("a lookup"), exists, "{number}");
        let exists = exists && number != 8 || number == 200;
        assert_eq!(keys.contains_key(key).expect("a lookup"), exists, "{number}");
    }
    assert_eq!(reads(&db, &mut (0, 0)), (0, 0));
    assert!(keys.get(9u32.to_be_bytes()).is_err());
}

/// A scan whose read-ahead fails reads the value alone. If that fails too, the scan returns an error.
#[test]
fn a_failed_read_ahead_is_no_error() {
    for (when, errors) in [(When::Nth(2), 0), (When::From(2), 1)] {
        let mem = MemEnv::new(4);
        let (db, keys) = open(&mem, 64, &[("value_threshold", "1KiB"), ("compression", "none")]);
        for number in 0..200u32 {
            keys.put(number.to_be_bytes(), value(number, 0, 4096)).expect("a put");
        }
        db.flush().expect("flush");
        let (op, kind) = (Some(Op::Read), Some(FileKind::Value));
        mem.inject(Fault { op, kind, when, effect: Effect::Fail(5) });
        let scanned: Vec<_> = keys.iter().collect();
        assert_eq!(scanned.iter().filter(|entry| entry.is_err()).count(), errors);
        // The scan ends at a value that cannot be read at all.
        assert_eq!(scanned.len() == 200, errors == 0, "{} entries", scanned.len());
        assert!(!mem.fired().is_empty(), "no read failed");
    }
}

/// When garbage collection copies a cached value, it puts the copy into the cache. The old value leaves the cache
/// with its file.
#[test]
fn copies_of_cached_values_are_cached() {
    let mem = MemEnv::new(2);
    // A single lifetime class, so that long-lived values share files with others.
    let options = [
        ("value_threshold", "1KiB"),
        ("file_bytes", "256KiB"),
        ("value_space_target", "1.1"),
        ("value_policy", "garbage-ratio"),
        ("compression", "none"),
    ];
    let (db, keys) = open(&mem, 64, &options);
    let put = |is_put: fn(&u32) -> bool, round| {
        for number in (0..400).filter(is_put) {
            keys.put(number.to_be_bytes(), value(number, round, 4096)).expect("a put");
        }
        db.flush().expect("flush");
    };
    let get = |number: u32| keys.get(number.to_be_bytes()).expect("a get").expect("a value");
    put(|_| true, 0);
    let hot = || (0..400u32).step_by(8);
    for _ in 0..3 {
        hot().for_each(|number| assert!(*get(number) == value(number, 0, 4096)[..]));
    }
    let held = db.metrics().cache_bytes;
    let mut last = (0, 0);
    reads(&db, &mut last);
    for round in 1..6 {
        // The hot values are not overwritten, so collections copy them.
        put(|number| !number.is_multiple_of(8), round);
        db.compact().expect("compact");
        hot().for_each(|number| assert!(*get(number) == value(number, 0, 4096)[..]));
    }
    db.wait_idle().expect("idle");
    assert!(db.metrics().value_bytes_copied > 50 * 4096, "{} bytes copied", db.metrics().value_bytes_copied);
    let (hits, misses) = reads(&db, &mut last);
    assert!(hits >= 225, "{hits} hits and {misses} misses");
    let bytes = db.metrics().cache_bytes;
    assert!(bytes < held + 50 * 4096, "values of deleted files stay: {held} bytes before, now {bytes}");
}

/// Lookups, scans and snapshots beside overwrites and collections, with a cache that holds a part of the values.
#[test]
fn no_reader_gets_a_wrong_value() {
    for seed in 1..4 {
        let mem = MemEnv::new(seed);
        mem.pace(20_000, 40_000);
        let options = [
            ("value_threshold", "256B"),
            ("memtable_bytes", "64KiB"),
            ("file_bytes", "32KiB"),
            ("value_space_target", "1.2"),
        ];
        let (db, keys) = open(&mem, 8, &options);
        let mut random = Random::new(seed, "operations");
        let (mut truth, mut old) = (BTreeMap::new(), None);
        for round in 0..6000u32 {
            mem.advance(2_000);
            let key = draw(&mut random);
            let written = value(key, round, 200 + random.index(4000));
            keys.put(key.to_be_bytes(), &written).expect("a put");
            truth.insert(key, written);
            if round % 1000 == 500 {
                old = Some((db.snapshot(), truth.clone()));
            }
            for _ in 0..3 {
                let key = draw(&mut random);
                let found = keys.get(key.to_be_bytes()).expect("a get");
                assert!(found.as_deref() == truth.get(&key).map(Vec::as_slice), "seed {seed}: key {key}");
                let Some((snapshot, then)) = &old else { continue };
                let found = snapshot.get(&keys, key.to_be_bytes()).expect("a get");
                assert!(found.as_deref() == then.get(&key).map(Vec::as_slice), "seed {seed}: old key {key}");
            }
            if round % 1500 == 0 {
                let scan = keys.iter().map(|entry| entry.expect("an entry"));
                assert!(scan.map(|(_, value)| value.to_vec()).eq(truth.values().cloned()), "seed {seed}");
            }
        }
        let metrics = db.metrics();
        assert!(metrics.value_cache_hits > 3000 && metrics.value_cache_misses > 300, "{metrics:?}");
        assert!(metrics.value_bytes_copied > 100_000, "{metrics:?}");
        assert_eq!(db.verify().expect("verify").findings, vec![]);
    }
}
