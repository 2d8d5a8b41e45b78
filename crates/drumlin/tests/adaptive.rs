//! Tests of the adaptive policy (ARCE) inside the engine. It is the default, measures the load, searches for
//! parameters, explains itself, and keeps its state over a restart.

use drumlin::env::{ImageMode, MemEnv};
use drumlin::{Db, ErrorKind, Keyspace};
use std::path::Path;

fn open(mem: &MemEnv) -> Db {
    let builder = Db::builder(Path::new("/store")).env(mem.env());
    let builder =
        builder.set("memory_budget", "8MiB").and_then(|b| b.set("compaction_slots", "2")).expect("options");
    builder.open().expect("open")
}

fn keyspace(db: &Db) -> Keyspace {
    db.keyspace_with("main", &[("memtable_bytes", "32KiB"), ("file_bytes", "64KiB")]).expect("keyspace")
}

fn key(n: u64) -> Vec<u8> {
    format!("key{:06}", n.wrapping_mul(2_654_435_761) % 20_000).into_bytes()
}

fn write(keys: &Keyspace, from: u64, count: u64) {
    for n in from..from + count {
        keys.put(key(n), n.to_be_bytes().repeat(8)).expect("put");
    }
}

/// Writes for eight seconds of virtual time, with scans in between.
fn busy(mem: &MemEnv, keys: &Keyspace, from: u64) {
    for n in 0..8000 {
        write(keys, from + n, 1);
        mem.advance(1000);
        if n % 4 == 0 {
            assert!(keys.range(key(from + n)..).next().is_some());
        }
    }
}

fn runs(db: &Db) -> usize {
    let shape = db.tree().into_iter().find(|k| k.name == "main").expect("the keyspace");
    shape.levels.iter().map(|level| level.runs.len()).sum()
}

#[test]
fn reads_are_seen_and_merged_for() {
    let mem = MemEnv::new(11);
    let db = open(&mem);
    let keys = keyspace(&db);
    assert_eq!(keys.policy(), "arce");
    write(&keys, 0, 8000);
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    // Many long scans, with virtual time between them.
    for n in 0..20_000 {
        assert!(keys.range(key(n)..).next().is_some() || n > 0);
        if n % 500 == 0 {
            mem.env().clock().sleep_micros(400_000);
        }
    }
    write(&keys, 8000, 600);
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    assert!(runs(&db) <= 6, "{} runs after many scans", runs(&db));
    let state = keys.policy_state();
    assert!(state.contains("last search"), "{state}");
    let decisions = db.explain();
    assert!(decisions.iter().any(|d| d.reason.contains("elective")), "no compaction was made for readers");
    let is_followed = |line: &str| line.trim_start().starts_with('#') && line.contains(" expected, took ");
    assert!(state.lines().any(is_followed), "no compaction says what it saved: {state}");
    assert!(decisions.iter().any(|d| d.what == "search"));
    for n in 0..8600 {
        assert!(keys.get(key(n)).expect("get").is_some());
    }
    assert_eq!(db.verify().expect("verify").findings, vec![]);
    let tuple = |state: &str| state.lines().next().map(str::to_owned);
    let before = tuple(&keys.policy_state());
    drop(keys);
    db.close().expect("close");
    let db = open(&mem);
    let keys = keyspace(&db);
    write(&keys, 8600, 10);
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    assert_eq!(tuple(&keys.policy_state()), before, "the parameters changed over a restart");
}

#[test]
fn options_steer_it_and_bad_ones_change_nothing() {
    let mem = MemEnv::new(12);
    let db = open(&mem);
    let keys = keyspace(&db);
    let has_pin = cfg!(feature = "experiments");
    let bad = [
        ("max_runs", "4", "8"),
        ("max_write_amp", "2", "3"),
        ("arce_pin", "8/24/2", "M/c/q/rho"),
        ("arce_pin", "0/24/2/1", "M/c/q/rho"),
    ];
    for (name, value, bounds) in bad.into_iter().filter(|(name, ..)| has_pin || *name != "arce_pin") {
        let error = keys.set_option(name, value).expect_err("out of bounds");
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
        assert!(error.to_string().contains(name) && error.to_string().contains(bounds), "{error}");
    }
    let pinned = match has_pin {
        true => keys.set_option("arce_pin", "3/none/1/none"),
        false => keys.set_policy("arce:3/none/1/none"),
    };
    pinned.expect("a pin");
    keys.set_option("max_runs", "8").expect("fewer runs");
    write(&keys, 0, 6000);
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    assert!(keys.policy_state().starts_with("tuple M/c/q/rho: 3/none/1/none"), "{}", keys.policy_state());
    assert!(runs(&db) <= 16, "{} runs", runs(&db));
    // Switches to another policy and back. Searches and write throttle of the old policy must not remain.
    for policy in
        ["tiering:4", "adaptive-ucs", "vertiorizon:1.5", "horizontal-tiering:2", "arce:20/48/2/1", "arce"]
    {
        keys.set_policy(policy).expect("policy");
        write(&keys, 6000, 2000);
        db.wait_idle().expect("idle");
        assert_eq!(keys.policy(), policy);
    }
    for n in 0..8000 {
        assert!(keys.get(key(n)).expect("get").is_some());
    }
}

/// A frozen policy continues to compact but does not search, also after restarts and power loss, until it is unfrozen.
#[test]
fn a_frozen_policy_keeps_what_it_has_found() {
    let mem = MemEnv::new(14);
    let db = open(&mem);
    let keys = keyspace(&db);
    let searches = |db: &Db| db.explain().into_iter().filter(|d| d.what == "search").count();
    let tuple = |keys: &Keyspace| keys.policy_state().lines().next().map(str::to_owned);
    busy(&mem, &keys, 0);
    let found = searches(&db);
    assert!(found > 0, "the policy has not searched");
    keys.set_option("adaptation", "frozen").expect("a live option");
    let (before, merges) = (tuple(&keys), db.metrics().compactions);
    let after_power_loss = mem.snapshot().image(ImageMode::None, 1);
    busy(&mem, &keys, 8000);
    db.wait_idle().expect("idle");
    assert_eq!((searches(&db), tuple(&keys)), (found, before.clone()));
    assert!(db.metrics().compactions > merges, "the frozen policy does not compact");
    drop(keys);
    db.close().expect("close");
    for mem in [&mem, &after_power_loss] {
        let db = open(mem);
        let keys = keyspace(&db);
        // Searches that the decision log lists from before this open.
        let told = searches(&db);
        busy(mem, &keys, 16_000);
        db.wait_idle().expect("idle");
        assert_eq!((searches(&db), tuple(&keys)), (told, before.clone()), "the policy is no longer frozen");
        keys.set_option("adaptation", "on").expect("thawed");
        busy(mem, &keys, 24_000);
        db.wait_idle().expect("idle");
        assert!(searches(&db) > told, "the unfrozen policy does not search");
    }
}

/// Reads for eight seconds of virtual time. A write each second triggers a policy call.
fn looks_up(mem: &MemEnv, keys: &Keyspace) {
    for n in 0..32_000 {
        keys.get(key(n)).expect("get");
        mem.advance(250);
        if n % 4000 == 0 {
            write(keys, n, 1);
        }
    }
}

/// A frozen policy also keeps its measured load, under any new load and over a restart.
#[test]
fn a_frozen_policy_keeps_its_picture_of_the_load() {
    let mem = MemEnv::new(15);
    let db = open(&mem);
    let keys = keyspace(&db);
    let shares = |keys: &Keyspace| {
        let state = keys.policy_state();
        let load = state.lines().find(|line| line.starts_with("load: ")).map(str::to_owned);
        load.and_then(|load| Some(load.split_once(';')?.0.to_owned())).expect("the load")
    };
    busy(&mem, &keys, 0);
    db.wait_idle().expect("idle");
    keys.set_option("adaptation", "frozen").expect("a live option");
    let before = shares(&keys);
    let asked = db.metrics().policy_calls;
    looks_up(&mem, &keys);
    assert!(db.metrics().policy_calls > asked, "the frozen policy was not called");
    assert_eq!(shares(&keys), before);
    drop(keys);
    db.close().expect("close");
    let db = open(&mem);
    let keys = keyspace(&db);
    looks_up(&mem, &keys);
    assert_eq!(shares(&keys), before, "after a restart");
    keys.set_option("adaptation", "on").expect("thawed");
    looks_up(&mem, &keys);
    assert_ne!(shares(&keys), before, "the unfrozen policy does not learn");
}

#[test]
fn a_sorted_load_is_not_rewritten() {
    let mem = MemEnv::new(13);
    let db = open(&mem);
    let keys = keyspace(&db);
    for n in 0..12_000u64 {
        keys.put(format!("key{n:08}"), [7; 60]).expect("put");
    }
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    let metrics = db.metrics();
    assert_eq!(metrics.compaction_bytes_written, 0);
    assert!(runs(&db) <= 4, "{} runs", runs(&db));
    assert_eq!(keys.iter().count(), 12_000);
}

#[test]
fn fewer_runs_than_there_are_may_be_asked_for() {
    let mem = MemEnv::new(15);
    let db = open(&mem);
    let keys = keyspace(&db);
    write(&keys, 0, 12_000);
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    let before = runs(&db);
    assert!(before > 12, "{before} runs");
    keys.set_option("max_runs", "8").expect("fewer than there are");
    // Writes are throttled, but never blocked forever, while compactions reduce the number of runs.
    write(&keys, 12_000, 3000);
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    assert!(runs(&db) <= 8, "{} runs of {before} are left", runs(&db));
    for n in (0..15_000).step_by(97) {
        assert!(keys.get(key(n)).expect("get").is_some());
    }
}

/// Alternates writes with scans that start at the first key.
#[test]
fn scans_from_the_first_key_are_merged_for() {
    let mem = MemEnv::new(16);
    let db = open(&mem);
    let keys = keyspace(&db);
    let scan = |from: u64, count: u64| {
        for n in from..from + count {
            assert!(if n % 2 == 0 { keys.iter().next() } else { keys.prefix(b"key").next() }.is_some());
            if n % 500 == 0 {
                mem.env().clock().sleep_micros(400_000);
            }
        }
    };
    // Runs until there are enough samples of readers, so that samples of writers no longer substitute for them.
    write(&keys, 0, 10);
    scan(0, 10_000);
    write(&keys, 10, 8000);
    db.flush().expect("flush");
    scan(10_000, 20_000);
    write(&keys, 8010, 600);
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    assert!(runs(&db) <= 6, "{} runs after many scans", runs(&db));
}

/// Writes some keys and looks up others.
#[test]
fn runs_that_nobody_reads_are_bounded_too() {
    let mem = MemEnv::new(17);
    let db = open(&mem);
    let options = [("memtable_bytes", "32KiB"), ("file_bytes", "64KiB"), ("max_runs", "16")];
    let keys = db.keyspace_with("main", &options).expect("keyspace");
    for n in 0..100 {
        keys.put(format!("a{n:03}"), [n; 8]).expect("put");
    }
    let mut most = 0;
    for n in 0..40_000 {
        write(&keys, n, 1);
        assert!(keys.get(format!("a{:03}", n % 100)).expect("get").is_some());
        if n % 50 == 0 {
            mem.advance(10_000);
            most = most.max(runs(&db));
        }
    }
    assert!(most <= 24, "{most} runs");
    let reasons = db.explain();
    assert!(
        reasons.iter().any(|d| d.reason.contains("counted over all keys")),
        "no decision counted runs by all keys"
    );
}
