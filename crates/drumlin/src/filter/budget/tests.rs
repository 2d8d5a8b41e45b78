//! Tests of [`super`]: jobs beside each other, jobs that end in any way, frozen keyspaces, dropped keyspaces.

use super::*;
use crate::api::db::Db;
use crate::api::keyspace::Keyspace;
use crate::filter::{Destination, JobFilters, MergedInputs, MergedPart};
use drumlin_env::MemEnv;

/// A store with a tree of some runs under `filter_mode = mnemosyne`.
fn filled(mem: &MemEnv) -> (Db, Keyspace) {
    let db = Db::builder("/s").env(mem.env()).open().expect("open");
    let options = [
        ("compaction", "leveling:4"),
        ("memtable_bytes", "64KiB"),
        ("file_bytes", "32KiB"),
        ("filter_mode", "mnemosyne"),
        ("filter_bits", "4"),
    ];
    let keys = db.keyspace_with("k", &options).expect("a keyspace");
    for number in 0..12_000_u32 {
        keys.put(number.wrapping_mul(2_654_435_761).to_be_bytes(), [1; 40]).expect("put");
    }
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    (db, keys)
}

fn begin(keys: &Keyspace, level: u8, inputs: MergedInputs) -> JobFilters {
    let destination = Destination { level, file_bytes: 32 << 10, design: Vec::new() };
    JobFilters::begin(&keys.store.filters, &keys.state, inputs, destination)
}

/// The compaction of the whole tree.
fn whole(keys: &Keyspace) -> MergedInputs {
    let tree = keys.state.view().tree.clone();
    let part = |(level, file): (u8, &Arc<FileMeta>)| MergedPart {
        level,
        file: file.clone(),
        range: file.bounds.clone(),
        entries: file.counts.entries,
    };
    MergedInputs::Parts(tree.files().map(|(level, _, file)| part((level, file))).collect(), 1.0)
}

fn allot(keys: &Keyspace, job: &mut JobFilters) -> f64 {
    job.allot(&keys.store.files.tables, 500, &Key::empty(), None, 500).bits
}

fn registered(keys: &Keyspace) -> usize {
    keys.store.filters.state.lock().jobs.len()
}

#[test]
fn a_job_keeps_its_price_when_others_begin() {
    let (_db, keys) = filled(&MemEnv::new(1));
    let mut large = begin(&keys, 3, whole(&keys));
    let before = keys.store.filters.state.lock().jobs.values().next().expect("a job").price;
    let bits = allot(&keys, &mut large);
    let _small = begin(&keys, 0, MergedInputs::Memtables(500));
    let state = keys.store.filters.state.lock();
    let prices: Vec<_> = state.jobs.values().map(|job| job.price).collect();
    assert_eq!(prices[0], before);
    assert_ne!(prices[0], prices[1], "a flush is not judged like a compaction of all keys");
    assert!(bits > 0.0);
}

#[test]
fn jobs_that_end_in_any_way_leave_nothing() {
    let (db, keys) = filled(&MemEnv::new(2));
    assert_eq!(registered(&keys), 0, "flushes and compactions have ended");
    let (large, small) = (begin(&keys, 3, whole(&keys)), begin(&keys, 0, MergedInputs::Memtables(500)));
    assert_eq!(registered(&keys), 2);
    let ledger =
        |keys: &Keyspace| keys.store.filters.ledger(&keys.store.filters.state.lock(), group(&keys.state));
    let beside = ledger(&keys);
    drop(small);
    large.end();
    large.end();
    assert_eq!(registered(&keys), 0, "dropped, and ended twice");
    let alone = ledger(&keys);
    assert!(beside.keys > alone.keys && alone.bits > 0.0, "{beside:?} {alone:?}");
    let running = begin(&keys, 3, whole(&keys));
    db.drop_keyspace("k").expect("dropped");
    assert_eq!(ledger(&keys), Ledger::default(), "jobs of a dropped keyspace do not count");
    drop(running);
    assert_eq!(registered(&keys), 0);
}

#[test]
fn a_frozen_keyspace_keeps_its_price_until_its_budget_changes() {
    let (_db, keys) = filled(&MemEnv::new(3));
    let price = |keys: &Keyspace| keys.store.filters.state.lock().prices[&group(&keys.state)];
    keys.set_option("adaptation", "frozen").expect("a live option");
    let before = price(&keys);
    drop(begin(&keys, 3, whole(&keys)));
    assert_eq!(price(&keys), before);
    keys.set_option("filter_bits", "8").expect("a live option");
    drop(begin(&keys, 3, whole(&keys)));
    assert_ne!(price(&keys), before);
}

#[test]
fn nothing_is_kept_of_many_dropped_keyspaces() {
    let db = Db::builder("/s").env(MemEnv::new(4).env()).open().expect("open");
    let options = [("filter_mode", "mnemosyne+"), ("filter_bits", "4")];
    for _ in 0..100 {
        let keys = db.keyspace_with("k", &options).expect("a keyspace");
        keys.put("a", "b").expect("put");
        db.flush().expect("flush");
        db.drop_keyspace("k").expect("dropped");
    }
    let keys = db.keyspace("default").expect("a keyspace");
    let state = keys.store.filters.state.lock();
    let most = KEPT_PER_KEYSPACE * 3;
    assert!(state.survival.len() <= most && state.prices.len() <= most && state.means.len() <= most);
}
