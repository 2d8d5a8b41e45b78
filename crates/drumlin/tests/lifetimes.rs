//! Tests of lifetime classes: values with similar expected lifetimes share a value file, and pointers carry the write
//! history of their key. Reads give the same results as without classes.

use drumlin::{Db, Keyspace, Metrics};
use drumlin_env::{FileKind, ImageMode, MemEnv, Random};
use std::collections::BTreeMap;

const KEYS: u32 = 4000;
const BYTES: usize = 4096;

type Content = BTreeMap<u32, Vec<u8>>;

fn open(mem: &MemEnv) -> Db {
    let builder = Db::builder("/s").env(mem.env());
    builder.set("memory_budget", "512MiB").expect("an option").open().expect("open")
}

fn keyspace(db: &Db, policy: &str, target: &str) -> Keyspace {
    let options = [
        ("value_threshold", "1KiB"),
        ("memtable_bytes", "4MiB"),
        ("flush_bytes", "4MiB"),
        // A lifetime class has at least a sixteenth of this.
        ("file_bytes", "4MiB"),
        ("value_policy", policy),
        ("value_space_target", target),
    ];
    db.keyspace_with("k", &options).expect("a keyspace")
}

/// Returns a value that does not compress.
fn value(key: u32, round: u64) -> Vec<u8> {
    let mut random = Random::new(round << 32 | u64::from(key), "value");
    (0..BYTES / 8).flat_map(|_| random.next_u64().to_le_bytes()).collect()
}

fn check(keys: &Keyspace, truth: &Content) {
    assert_eq!(keys.iter().count(), truth.len());
    for (key, value) in truth {
        assert_eq!(keys.get(key.to_be_bytes()).expect("a get").as_deref(), Some(&value[..]), "key {key}");
    }
}

/// Updates keys in a fixed order, nine tenths of the updates on a tenth of the keys. Returns the metrics, and the
/// bytes of value records per live byte.
fn update(policy: &str) -> (Metrics, f64) {
    let mem = MemEnv::new(3);
    let db = open(&mem);
    let keys = keyspace(&db, policy, "1.25");
    let mut truth = Content::new();
    let mut random = Random::new(5, "keys");
    let mut put = |key: u32, round: u64| {
        let value = value(key, round);
        keys.put(key.to_be_bytes(), &value).expect("a put");
        truth.insert(key, value);
    };
    (0..KEYS).for_each(|key| put(key, 0));
    for round in 1..=10 * u64::from(KEYS) {
        let range = if random.below(10) < 9 { KEYS / 10 } else { KEYS };
        put(random.below(u64::from(range)) as u32, round);
        if round % 1000 == 0 {
            db.flush().expect("flush");
            db.wait_idle().expect("idle");
        }
    }
    check(&keys, &truth);
    let metrics = db.metrics();
    let space = metrics.value_record_bytes as f64 / (truth.len() * BYTES) as f64;
    let classes: std::collections::BTreeSet<u8> =
        db.tree()[0].value_files.iter().map(|file| file.class).collect();
    assert_eq!(classes.len() > 1, policy != "garbage-ratio", "{policy}: classes {classes:?}");
    (metrics, space)
}

#[test]
fn lifetime_classes_save_copies() {
    let [(lifetimes, space), (ratio, plain)] = ["lifetimes", "garbage-ratio"].map(update);
    for space in [space, plain] {
        assert!(space < 1.25 * (1.0 + 1.0 / 32.0), "{space} times their size");
    }
    let share = lifetimes.value_bytes_copied as f64 / ratio.value_bytes_copied as f64;
    assert!(share < 0.8, "{share} of what garbage alone makes it copy");
}

/// Live switches of the policy, frozen adaptation, restarts and power loss change no answer.
#[test]
fn nothing_depends_on_what_was_learned() {
    let mem = MemEnv::new(4);
    let mut truth = Content::new();
    let mut random = Random::new(6, "keys");
    for round in 0..8u64 {
        let db = open(&mem);
        let keys = keyspace(&db, "lifetimes", "1.5");
        for (number, policy) in
            ["garbage-ratio", "lifetimes", "mean-interval", "lifetimes"].iter().enumerate()
        {
            keys.set_option("value_policy", policy).expect("a live option");
            keys.set_option("adaptation", if number == 2 { "frozen" } else { "on" }).expect("a live option");
            for _ in 0..800 {
                let key = random.below(1000) as u32;
                if random.below(8) == 0 {
                    keys.delete(key.to_be_bytes()).expect("a delete");
                    truth.remove(&key);
                } else {
                    let value = value(key, round);
                    keys.put(key.to_be_bytes(), &value).expect("a put");
                    truth.insert(key, value);
                }
            }
            db.flush().expect("flush");
        }
        db.wait_idle().expect("idle");
        check(&keys, &truth);
        let files = &db.tree()[0].value_files;
        assert!(
            files.iter().any(|file| file.class > 0) && files.iter().any(|file| file.class == 0),
            "{files:?}"
        );
        let report = db.verify().expect("verify");
        assert_eq!(report.findings, []);
        db.close().expect("close");
    }
}

/// Dropping a keyspace drops its lifetime statistics too, and its name can be used again.
#[test]
fn a_dropped_keyspace_is_forgotten() {
    let mem = MemEnv::new(5);
    let db = open(&mem);
    for round in 0..3u64 {
        let keys = keyspace(&db, "lifetimes", "1.5");
        for key in 0..2000u32 {
            keys.put((key % 700).to_be_bytes(), value(key, round)).expect("a put");
        }
        db.flush().expect("flush");
        assert!(db.tree()[0].value_lifetimes.is_some());
        db.drop_keyspace("k").expect("drop");
    }
    assert!(db.tree().is_empty());
}

/// Items of two queues live for fixed numbers of writes, and their size shows to which queue they belong. The model
/// learns this, and the decision log explains its training. A power loss loses the counts since the training; a close
/// loses nothing.
#[test]
fn a_model_is_trained_explained_and_kept() {
    let mem = MemEnv::new(6);
    let db = open(&mem);
    let keys = keyspace(&db, "lifetimes", "1.5");
    for item in 0..120_000u64 {
        let value = if item % 2 == 0 { vec![1; 1100] } else { vec![2; 2200] };
        keys.put(item.to_be_bytes(), &value).expect("a put");
        let due = if item % 2 == 0 { 2000 } else { 20_000 };
        if let Some(old) = item.checked_sub(due) {
            keys.delete(old.to_be_bytes()).expect("a delete");
        }
    }
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    let decisions = db.explain();
    let mut trained = decisions.iter().filter(|decision| decision.what.contains("model of value lifetimes"));
    assert!(trained.any(|decision| decision.reason.contains("placed by the model")), "{decisions:?}");
    assert_eq!(keys.iter().count() as u64, 1000 + 10_000);
    let learned = |db: &Db| db.tree()[0].value_lifetimes.clone().expect("values were separated");
    let without_errors = |learned: String| learned.split("; mean error").next().map(str::to_owned);
    let before = learned(&db);
    let lost = mem.snapshot().image(ImageMode::None, 6);
    drop(keys);
    db.close().expect("close");
    assert_eq!(Some(learned(&open(&mem))), without_errors(before));
    // Twice: the first open writes a new manifest.
    for _ in 0..2 {
        let db = open(&lost);
        assert!(learned(&db).contains("placed by the model"), "{}", learned(&db));
    }
}

/// What was learned until a keyspace was frozen survives a crash, as the policy's state does.
#[test]
fn a_frozen_keyspace_keeps_what_it_knew_over_a_crash() {
    let mem = MemEnv::new(8);
    let db = open(&mem);
    let keys = keyspace(&db, "lifetimes", "1.5");
    for key in 0..4000u32 {
        keys.put((key % 700).to_be_bytes(), value(key, 0)).expect("a put");
    }
    db.flush().expect("flush");
    let learned = db.tree()[0].value_lifetimes.clone();
    keys.set_option("adaptation", "frozen").expect("a live option");
    let crashed = mem.snapshot().image(ImageMode::None, 8);
    let db = open(&crashed);
    let after = db.tree()[0].value_lifetimes.clone();
    assert!(after.is_some() && after == learned, "{after:?}, before the crash {learned:?}");
    let keys = db.keyspace("k").expect("there");
    for key in 0..1400u32 {
        keys.put((key % 700).to_be_bytes(), value(key, 1)).expect("a put");
    }
    db.flush().expect("flush");
    assert_eq!(db.tree()[0].value_lifetimes, after, "it learns nothing");
}

/// Each call of a flush that writes several value files fails once. After a reopen all values are there, and no value
/// file is left that no table points to.
#[test]
fn a_flush_of_several_value_files_may_fail_at_each_call() {
    const ENOSPC: i32 = 28;
    let load = |mem: &MemEnv| {
        let db = Db::builder("/s").env(mem.env()).set("memory_budget", "8MiB").expect("an option");
        let db = db.set("durability", "sync").expect("an option").open().expect("open");
        let options = [("value_threshold", "1KiB"), ("file_bytes", "64KiB"), ("value_space_target", "2")];
        let keys = db.keyspace_with("k", &options).expect("a keyspace");
        for key in 0..40 {
            keys.put(key.to_string(), value(key, 0)).expect("a put");
        }
        // The next flush knows the write history of half of its keys.
        db.flush().expect("flush");
        for key in 0..80 {
            keys.put(key.to_string(), value(key, 1)).expect("a put");
        }
        db
    };
    let mem = MemEnv::new(7);
    let db = load(&mem);
    let before = mem.io_index();
    db.flush().expect("flush");
    let calls = mem.io_index() - before;
    let classes: std::collections::BTreeSet<u8> =
        db.tree()[0].value_files.iter().map(|file| file.class).collect();
    assert!(classes.len() > 1, "{classes:?}");
    let mut failed = 0;
    for call in 0..calls {
        let mem = MemEnv::new(7);
        let db = load(&mem);
        mem.fail_at(mem.io_index() + call, ENOSPC);
        failed += u32::from(db.flush().is_err());
        mem.clear_faults();
        // Its last flush may fail too, if the store is poisoned.
        _ = db.close();
        let db = Db::builder("/s").env(mem.env()).open().expect("open");
        let keys = db.keyspace("k").expect("a keyspace");
        for key in 0..80 {
            assert_eq!(
                keys.get(key.to_string()).expect("a get").as_deref(),
                Some(&value(key, 1)[..]),
                "call {call}"
            );
        }
        db.wait_idle().expect("idle");
        let listed = db.tree()[0].value_files.len();
        db.close().expect("close");
        let on_disk =
            mem.files().into_iter().filter(|path| mem.kind_of(path) == Some(FileKind::Value)).count();
        assert_eq!(on_disk, listed, "call {call}");
    }
    assert!(failed > 4, "{failed} of {calls} calls failed the flush");
}
