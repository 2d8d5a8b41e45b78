//! Tests of free disk space. Compactions whose output may not fit do not start, flushes take precedence, and all work
//! resumes when there is free space.

use drumlin::env::{Effect, Fault, FileKind, MemEnv, Op, When};
use drumlin::{Db, ErrorKind, Keyspace};

const SMALL: &[(&str, &str)] = &[
    ("memtable_bytes", "16KiB"),
    ("file_bytes", "64KiB"),
    ("compression", "none"),
    ("compaction", "tiering:8"),
];

fn open(mem: &MemEnv, budget: &str) -> (Db, Keyspace) {
    let builder = Db::builder("/s").env(mem.env());
    let settings = [("memory_budget", "8MiB"), ("log_segment_bytes", "64KiB"), ("disk_budget", budget)];
    let builder = settings.iter().try_fold(builder, |b, (name, value)| b.set(name, value)).expect("options");
    let db = builder.open().expect("open");
    let keys = db.keyspace_with("k", SMALL).expect("keyspace");
    (db, keys)
}

fn put(keys: &Keyspace, n: u32) -> drumlin::Result<u64> {
    keys.put(n.wrapping_mul(2_654_435_761).to_be_bytes(), [n as u8; 100])
}

/// Returns the bytes of tables and log, including unfinished tables.
fn on_disk(mem: &MemEnv) -> u64 {
    let counts =
        |path: &std::path::PathBuf| matches!(mem.kind_of(path), Some(FileKind::Table | FileKind::Log));
    let lens =
        mem.files().into_iter().filter(counts).map(|path| mem.peek(&path).map_or(0, |c| c.len() as u64));
    lens.sum()
}

/// A few keys are overwritten repeatedly, in a budget that their old versions would fill. Compactions free the space,
/// even without reads.
#[test]
fn what_was_overwritten_makes_room_before_flushes_fail() {
    let mem = MemEnv::new(52);
    let (db, keys) = open(&mem, "3MiB");
    keys.set_option("compaction", "arce").expect("arce");
    // Flushes exceed the budget before the number of runs throttles writers.
    keys.set_option("memtable_bytes", "1MiB").expect("memtables");
    let mut refused = 0;
    for n in 0..100_000u32 {
        if put(&keys, n % 4000).is_err() {
            // Background work may be behind, and policies are called once a second. Afterwards there is free space.
            mem.advance(2_000_000);
            let _ = db.wait_idle();
            put(&keys, n % 4000).unwrap_or_else(|error| panic!("{n}: {error}"));
            refused += 1;
        }
        assert!(n % 64 > 0 || on_disk(&mem) <= 3 << 20, "{n}: {} on disk", on_disk(&mem));
    }
    assert!(refused < 10, "{refused} writes were refused");
    assert_eq!(keys.iter().count(), 4000);
    let freed = |d: &&drumlin::DecisionRecord| d.reason.contains("disk space is short");
    assert!(db.explain().iter().any(|d| freed(&d)), "no compaction was made to free disk space");
}

#[test]
fn a_merge_that_may_not_fit_is_not_begun() {
    let mem = MemEnv::new(51);
    let (db, keys) = open(&mem, "0");
    let mut written = 0;
    for _ in 0..4 {
        for _ in 0..2000 {
            put(&keys, written).expect("put");
            written += 1;
        }
        db.flush().expect("flush");
    }
    db.wait_idle().expect("idle");
    mem.set_capacity(mem.used_space() + (160 << 10));
    let error = db.compact().expect_err("no room");
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert_eq!(db.metrics().background_errors, 0, "a compaction filled the disk");
    let told: Vec<_> = db.explain().into_iter().filter(|d| d.what.contains("waits for disk space")).collect();
    assert!((1..5).contains(&told.len()), "each waiting piece must be logged once: {told:?}");
    for decision in &told {
        let numbers: Vec<u64> = decision.reason.split(' ').filter_map(|word| word.parse().ok()).collect();
        assert!(matches!(numbers[..], [wanted, left] if wanted > left && left <= 320 << 10), "{decision:?}");
    }
    // Flushes continue in the space that compactions leave free.
    let flushed = db.metrics().flushes;
    for _ in 0..100 {
        put(&keys, written).expect("put");
        written += 1;
    }
    db.flush().expect("flush");
    assert!(db.metrics().flushes > flushed);
    // The compaction, whose caller is gone, gives way to smaller ones that fit.
    db.wait_idle().expect("idle");
    assert_eq!(db.compact().expect_err("still no free space").kind(), ErrorKind::NoSpace);
    assert_eq!(keys.iter().count(), written as usize);
    let merged = db.metrics().compactions;
    // The store notices when other programs free disk space.
    mem.set_capacity(None);
    mem.advance(2_000_000);
    db.compact().expect("there is room");
    assert!(db.metrics().compactions > merged);
    assert_eq!(keys.iter().count(), written as usize);
    assert_eq!(db.verify().expect("verify").findings, vec![]);
    assert_eq!(mem.order_violations(), Vec::<String>::new());
}

#[test]
fn the_budget_is_kept_and_can_be_raised() {
    const BUDGET: u64 = 3 << 20;
    let mem = MemEnv::new(52);
    let (db, keys) = open(&mem, "3MiB");
    let mut written = 0;
    let error = loop {
        match put(&keys, written) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        if written % 50 == 0 {
            assert!(on_disk(&mem) <= BUDGET, "{} bytes after {written} writes", on_disk(&mem));
        }
        assert!(written < 100_000, "the budget never ran out");
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(on_disk(&mem) > BUDGET / 2, "only {} bytes are in use", on_disk(&mem));
    assert_eq!(keys.iter().count(), written as usize, "some entries cannot be read");
    let refused = put(&keys, written).expect_err("still full");
    assert_eq!(refused.kind(), ErrorKind::NoSpace);
    db.set_option("disk_budget", "64MiB").expect("a live option");
    for _ in 0..1000 {
        put(&keys, written).expect("there is room");
        written += 1;
    }
    db.flush().expect("flush");
    db.compact().expect("compact");
    assert_eq!(keys.iter().count(), written as usize);
    db.close().expect("close");
    let (db, keys) = open(&mem, "64MiB");
    assert_eq!(keys.iter().count(), written as usize);
    assert_eq!(db.verify().expect("verify").findings, vec![]);
}

#[test]
fn a_manifest_without_room_refuses_the_edit_and_no_more() {
    let mem = MemEnv::new(53);
    let (db, keys) = open(&mem, "0");
    keys.put("a", "1").expect("put");
    mem.set_capacity(mem.used_space());
    let mut made = Vec::new();
    let error = loop {
        let name = format!("keyspace-{}", made.len());
        match db.keyspace(&name) {
            Ok(_) => made.push(name),
            Err(error) => break error,
        }
        assert!(made.len() < 1000, "the manifest never ran out of space");
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    let options = |n: u32| ["sync", "buffered"][n as usize % 2];
    let refused = (0..1000).find_map(|n| db.set_option("durability", options(n)).err()).expect("no room");
    assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
    let refused = (0..).find_map(|n: usize| match made.get(n) {
        Some(name) => db.drop_keyspace(name).err().map(|error| (n, error)),
        None => Some((n, db.drop_keyspace("k").expect_err("no room"))),
    });
    let (dropped, error) = refused.expect("an error");
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    // The store is not poisoned, and the refused calls had no effect.
    keys.put("b", "2").expect("writes go on");
    mem.set_capacity(None);
    let late = db.keyspace("late").expect("free space again");
    late.put("c", "3").expect("put");
    if let Some(name) = made.get(dropped) {
        db.keyspace(name).and_then(|kept| kept.put("d", "4")).expect("it was not dropped");
    }
    db.flush().expect("flush");
    let before = db.keyspaces();
    db.close().expect("close");
    let (db, keys) = open(&mem, "0");
    assert_eq!(db.keyspaces(), before);
    assert_eq!(keys.get("b").expect("get").as_deref(), Some(&b"2"[..]));
    assert_eq!(db.verify().expect("verify").findings, vec![]);
    assert_eq!(mem.order_violations(), Vec::<String>::new());
}

/// Deleting everything frees a full disk budget: files that a range tombstone covers are dropped without a compaction.
#[test]
fn a_full_budget_is_freed_by_deleting_a_range() {
    let mem = MemEnv::new(58);
    let (db, keys) = open(&mem, "64MiB");
    keys.set_option("memtable_bytes", "512KiB").expect("an option");
    let large = |n: u32| keys.put(n.wrapping_mul(2_654_435_761).to_be_bytes(), [n as u8; 2000]);
    let mut count = 0;
    while large(count).is_ok() {
        count += 1;
    }
    assert!(count > 20_000, "{count} entries fill the budget");
    let snapshot = db.snapshot();
    keys.delete_range::<&[u8]>(..).expect("a range delete takes little space");
    db.flush().expect("a flush of deletions may take some of what is left to compactions");
    let before = on_disk(&mem);
    // A snapshot still sees the entries, so their files stay.
    let seen = snapshot.range::<&[u8]>(&keys, ..).filter(|entry| entry.is_ok()).count() as u32;
    assert_eq!(seen, count);
    drop(snapshot);
    keys.delete_range::<&[u8]>(..).expect("delete");
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    assert!(on_disk(&mem) < before / 4, "{} of {before} bytes are left", on_disk(&mem));
    assert_eq!(keys.iter().count(), 0);
    for n in 0..count / 2 {
        large(n).unwrap_or_else(|error| panic!("{n}: {error}"));
    }
}

/// Returns the number of tables on disk that belong to no tree.
fn left_over(mem: &MemEnv, db: &Db) -> usize {
    let is_table = |path: &std::path::PathBuf| mem.kind_of(path) == Some(FileKind::Table);
    let runs = db.tree().into_iter().flat_map(|shape| shape.levels).flat_map(|level| level.runs);
    mem.files().into_iter().filter(is_table).count() - runs.map(|run| run.files.len()).sum::<usize>()
}

/// Tables that cannot be removed count against the budget. They are removed while the store is open, once that works.
#[test]
fn tables_that_cannot_be_removed_count_until_they_are() {
    const BUDGET: u64 = 3 << 20;
    let mem = MemEnv::new(59);
    let (db, keys) = open(&mem, "3MiB");
    let effect = Effect::Fail(5);
    mem.inject(Fault { op: Some(Op::Unlink), kind: Some(FileKind::Table), when: When::From(0), effect });
    let mut written = 0;
    while written < 100_000 && (written == 0 || put(&keys, written % 2000).is_ok()) {
        if written % 1000 == 999 {
            db.compact().map_or_else(|error| assert_eq!(error.kind(), ErrorKind::NoSpace), |()| ());
        }
        assert!(on_disk(&mem) <= BUDGET, "{} bytes after {written} writes", on_disk(&mem));
        written += 1;
    }
    assert!(written < 100_000, "the files that stay use the budget up");
    assert!(left_over(&mem, &db) > 0);
    let failed = db.metrics().unlinks_failed;
    assert!(failed > 0);
    let is_told = |d: &drumlin::DecisionRecord| d.what.contains("failed removals");
    assert!(db.explain().iter().any(is_told));
    mem.clear_faults();
    for _ in 0..100 {
        mem.advance(1_000_000);
        // Not `wait_idle`: it returns at once while a flush lacks disk space.
        let _ = db.step_background(1000).expect("steps");
        let _ = keys.get("a").expect("get");
    }
    assert_eq!(left_over(&mem, &db), 0);
    assert!(db.metrics().unlinks_failed < failed + 50, "attempts are spaced");
    put(&keys, 1).expect("there is room again");
    db.wait_idle().expect("idle");
    assert_eq!(keys.iter().count(), 2000.min(written as usize - 1));
    assert_eq!(db.verify().expect("verify").findings, vec![]);
    assert_eq!(mem.order_violations(), Vec::<String>::new());
}

/// An unfinished table that cannot be removed is removed later, like an obsolete one.
#[test]
fn unfinished_tables_that_cannot_be_removed_are_removed_later() {
    let mem = MemEnv::new(66);
    let (db, keys) = open(&mem, "64MiB");
    (0..1000).for_each(|n| _ = put(&keys, n).expect("put"));
    let fails = |op, errno| Fault {
        op: Some(op),
        kind: Some(FileKind::Table),
        when: When::From(0),
        effect: Effect::Fail(errno),
    };
    mem.inject(fails(Op::Write, 28));
    mem.inject(fails(Op::Unlink, 5));
    assert_eq!(db.flush().expect_err("no table can be written").kind(), ErrorKind::NoSpace);
    assert!(left_over(&mem, &db) > 0);
    mem.clear_faults();
    for _ in 0..100 {
        mem.advance(1_000_000);
        let _ = db.step_background(1000).expect("steps");
    }
    assert_eq!(left_over(&mem, &db), 0);
    db.flush().expect("flush");
    assert_eq!(keys.iter().count(), 1000);
}

/// The disk itself is full, and no budget is set. The sealed memtables together do not fit, but one of them does, and
/// each flush releases log segments for the next one.
#[test]
fn on_a_full_disk_memtables_are_flushed_one_at_a_time() {
    let mem = MemEnv::new(67);
    let (db, keys) = open(&mem, "0");
    let value =
        |n: u32| (0..100).map(|at| (n.wrapping_mul(2_654_435_761) >> (at % 25)) as u8).collect::<Vec<u8>>();
    let effect = Effect::Fail(28);
    mem.inject(Fault { op: Some(Op::Create), kind: Some(FileKind::Table), when: When::From(0), effect });
    (0..3000u32).for_each(|n| _ = keys.put(n.to_be_bytes(), value(n)).expect("put"));
    mem.clear_faults();
    mem.set_capacity(mem.used_space() + (160 << 10));
    let flushed = db.metrics().flushes;
    for _ in 0..20 {
        mem.advance(2_000_000);
        let _ = db.step_background(100).expect("steps");
    }
    assert!(db.metrics().flushes > flushed + 3, "{} flushes", db.metrics().flushes - flushed);
    db.flush().expect("flush");
    assert_eq!(keys.iter().count(), 3000);
}

/// Neither another option nor reopening makes a store of a full budget exceed it: only lowering the budget allows that.
#[test]
fn a_full_budget_is_not_an_exceeded_one() {
    const BUDGET: u64 = 3 << 20;
    // Bytes of the first log segment of a reopened store.
    const FIRST: u64 = 68 << 10;
    for reopens in [false, true] {
        let mem = MemEnv::new(68);
        let (mut db, mut keys) = open(&mem, "3MiB");
        let written = (0..50_000).take_while(|n| put(&keys, *n).is_ok()).count() as u32;
        assert!(written < 50_000, "the budget is used up");
        let mut most = BUDGET;
        for n in 0..written {
            let _ = keys.delete(n.wrapping_mul(2_654_435_761).to_be_bytes());
            if n % 16 == 0 {
                assert!(on_disk(&mem) <= most, "{n}, reopened {reopens}: {} bytes", on_disk(&mem));
            }
            // Deletions may use a part of the budget that other writes may not.
            if n % (written / 16) == 0 && !reopens {
                db.set_option("write_timeout_ms", "1000").expect("an option");
            } else if n == written / 8 && reopens {
                drop(keys);
                db.close().expect("close");
                (db, keys) = open(&mem, "3MiB");
                most += FIRST;
            }
        }
        db.close().expect("close");
    }
}

/// A budget may be lowered to little more than what is in use, which leaves compactions no disk space. Deletions then
/// use two log segments more at most, and a deleted range frees the store.
#[test]
fn a_budget_lowered_to_little_more_than_its_use() {
    const SEGMENT: u64 = 104 << 10;
    for percent in [101, 103, 110] {
        let mem = MemEnv::new(69);
        let (db, keys) = open(&mem, "16MiB");
        keys.set_policy("arce").expect("arce");
        (0..8000u32).for_each(|n| _ = keys.put(n.to_be_bytes(), [7; 400]).expect("put"));
        db.flush().expect("flush");
        db.wait_idle().expect("idle");
        let used = on_disk(&mem);
        let budget = used * percent / 100;
        db.set_option("disk_budget", &budget.to_string()).expect("lowered");
        for n in 0..3000u32 {
            let _ = keys.delete(n.to_be_bytes());
            if n % 100 == 0 {
                let most = budget.max(used + 2 * SEGMENT);
                assert!(on_disk(&mem) <= most, "{percent} %, {n}: {} of {budget} bytes", on_disk(&mem));
            }
        }
        let mut takes_writes = (0..20).map(|n| {
            keys.delete_range::<&[u8]>(..).and_then(|_| db.flush()).and_then(|()| put(&keys, n))?;
            db.wait_idle()
        });
        assert!(takes_writes.any(|result| result.is_ok()), "{percent} %: the store stays full");
        assert!(on_disk(&mem) <= budget, "{percent} %: {} of {budget} bytes", on_disk(&mem));
    }
}

/// Ways to free a store of `live` keys that has used up its disk budget.
const WAYS: [&str; 4] = ["delete the range", "delete each key", "flush", "write"];

/// Overwrites `live` keys in order until the disk is full or 20,000 writes are done, frees the store in one of the
/// [`WAYS`], and returns an error if it takes no writes afterwards.
fn fill_and_free(
    policy: &str,
    [memory, disk, segment, memtable]: [&str; 4],
    way: &str,
) -> Result<(), String> {
    let mem = MemEnv::new(60);
    let settings = [("memory_budget", memory), ("disk_budget", disk), ("log_segment_bytes", segment)];
    let builder = Db::builder("/s").env(mem.env());
    let builder = settings.iter().try_fold(builder, |b, (name, value)| b.set(name, value)).expect("options");
    let db = builder.open().expect("open");
    let options = [("compaction", policy), ("memtable_bytes", memtable), ("compression", "none")];
    let keys = db.keyspace_with("k", &options).expect("keyspace");
    // A quarter to half of the budget is live.
    let live = disk.trim_end_matches("MiB").parse::<u32>().expect("MiB") * 500;
    let written = (0..20_000).take_while(|n| keys.put((n % live).to_be_bytes(), [7; 400]).is_ok()).count();
    match way {
        "delete the range" => {
            keys.delete_range::<&[u8]>(..).map_err(|error| format!("{error}"))?;
        }
        "delete each key" => {
            // Some deletions may be refused.
            (0..live).for_each(|key| _ = keys.delete(key.to_be_bytes()));
        }
        _ => {}
    }
    let mut last = None;
    for _ in 0..20 {
        let flushed = if way == "write" { Ok(()) } else { db.flush() };
        let Err(error) = flushed.and_then(|()| keys.put("a", "b")) else { return Ok(()) };
        last = Some(error);
        mem.advance(1_000_000);
        db.step_background(1000).expect("steps");
    }
    Err(format!(
        "{policy}, {disk} of disk, {segment} a segment, {way}: full after {written} writes: {last:?}"
    ))
}

/// A disk budget that is small beside the memory budget: garbage in it is freed, whatever the policy.
#[test]
fn a_budget_below_the_memory_budget_frees_itself() {
    let sizes = [
        ["8MiB", "2MiB", "64KiB", "32KiB"],
        ["64MiB", "8MiB", "256KiB", "0"],
        ["64MiB", "8MiB", "2MiB", "0"],
        ["64MiB", "8MiB", "1MiB", "0"],
        ["64MiB", "12MiB", "2MiB", "0"],
    ];
    let mut failures = Vec::new();
    for policy in ["arce", "leveling", "tiering:8", "universal"] {
        for size in sizes {
            failures.extend(WAYS.iter().filter_map(|way| fill_and_free(policy, size, way).err()));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Opening a store does not fail because its disk budget is used up, and takes little more.
#[test]
fn opening_a_full_store_takes_a_small_log_segment() {
    let mem = MemEnv::new(61);
    let budget = 8 << 20;
    let open = || {
        let builder = Db::builder("/s").env(mem.env());
        let settings = [("memory_budget", "8MiB"), ("log_segment_bytes", "1MiB"), ("disk_budget", "8MiB")];
        let builder = settings.iter().try_fold(builder, |b, (name, value)| b.set(name, value));
        builder.and_then(drumlin::Builder::open).expect("open")
    };
    let db = open();
    let keys = db.keyspace_with("k", &[("compression", "none")]).expect("keyspace");
    (0..100_000u32).take_while(|n| keys.put(n.to_be_bytes(), [7; 400]).is_ok()).for_each(drop);
    assert!(keys.put("more", [7; 4000]).is_err(), "the budget is used up");
    drop(keys);
    db.close().expect("close");
    for opened in 1..=5 {
        open().close().expect("close");
        let (most, used) = (budget + opened * (68 << 10), on_disk(&mem));
        assert!(used <= most, "{used} bytes after opening {opened} times, at most {most}");
    }
}

/// One keyspace has garbage that its policy does not compact by itself, while another keyspace is written.
#[test]
fn the_garbage_of_another_keyspace_makes_room() {
    let mem = MemEnv::new(62);
    let (db, garbage) = open(&mem, "4MiB");
    // Fewer than 64 runs, so the policy compacts nothing.
    garbage.set_option("compaction", "tiering:64").expect("a policy");
    garbage.set_option("memtable_bytes", "64KiB").expect("memtables");
    let live = db.keyspace_with("live", SMALL).expect("keyspace");
    // Overwrites fill three quarters of the budget.
    (0..100_000u32).take_while(|_| on_disk(&mem) < 3 << 20).for_each(|n| {
        put(&garbage, n % 1000).expect("put");
    });
    let mut refused = 0;
    for n in 0..10_000 {
        let mut attempts = 0;
        while let Err(error) = put(&live, n) {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{n}: {error}");
            assert!(attempts < 10, "{n}: {error}");
            mem.advance(1_000_000);
            db.step_background(1000).expect("steps");
            (attempts, refused) = (attempts + 1, refused + 1);
        }
    }
    assert!(on_disk(&mem) <= 4 << 20, "{} on disk", on_disk(&mem));
    assert!(refused < 20, "{refused} writes were refused");
    assert_eq!((garbage.iter().count(), live.iter().count()), (1000, 10_000));
    let freed = |d: &drumlin::DecisionRecord| d.keyspace == "k" && d.reason.contains("the disk is full");
    assert!(db.explain().iter().any(freed), "the garbage was compacted for another reason");
}

/// Once the budget is raised, writes are accepted without a flush or a compaction in between.
#[test]
fn a_raised_budget_is_in_effect_at_once() {
    let mem = MemEnv::new(63);
    let (db, keys) = open(&mem, "2MiB");
    let written = (0..100_000).take_while(|n| put(&keys, *n).is_ok()).count() as u32;
    assert!(put(&keys, written).is_err(), "the budget is used up");
    db.set_option("disk_budget", "8MiB").expect("raised");
    (written..written + 2000).for_each(|n| {
        put(&keys, n).unwrap_or_else(|error| panic!("{n}: {error}"));
    });
}

/// Opens a store of 8 MiB of disk with one keyspace under `policy`, and log segments of `segment` bytes. Fills it with
/// live data. Returns the number of keys.
fn full_of_live_data(mem: &MemEnv, policy: &str, segment: &str) -> (Db, Keyspace, u32) {
    let settings = [("memory_budget", "8MiB"), ("disk_budget", "8MiB"), ("log_segment_bytes", segment)];
    let builder = Db::builder("/s").env(mem.env());
    let builder = settings.iter().try_fold(builder, |b, (name, value)| b.set(name, value)).expect("options");
    let db = builder.open().expect("open");
    let options = [("compaction", policy), ("memtable_bytes", "64KiB"), ("compression", "none")];
    let keys = db.keyspace_with("k", &options).expect("keyspace");
    let mut n = 0u32;
    let mut attempts = 0;
    while attempts < 5 {
        match keys.put(n.to_be_bytes(), [7; 400]) {
            Ok(_) => (n, attempts) = (n + 1, 0),
            Err(_) => {
                attempts += 1;
                mem.advance(1_000_000);
                db.step_background(1000).expect("steps");
            }
        }
    }
    (db, keys, n)
}

/// Repeats `write` while the disk budget refuses it.
fn persist(mem: &MemEnv, db: &Db, what: &str, write: impl Fn() -> drumlin::Result<u64>) {
    for _ in 0..20 {
        match write() {
            Ok(_) => return,
            Err(error) => assert_eq!(error.kind(), ErrorKind::NoSpace, "{what}: {error}"),
        }
        mem.advance(1_000_000);
        db.step_background(1000).expect("steps");
    }
    panic!("{what} stays refused: {}", write().expect_err("refused"));
}

/// A store full of live data takes deletions of single keys until it has space again, whatever the policy. This holds
/// also if the budget has space for four log segments of the size that was asked for.
#[test]
fn deleting_key_by_key_frees_a_store_full_of_live_data() {
    let policies = ["arce", "leveling", "tiering:8", "universal"];
    for (policy, segment) in policies.iter().flat_map(|p| [(p, "256KiB"), (p, "2MiB")]) {
        let mem = MemEnv::new(66);
        let (db, keys, live) = full_of_live_data(&mem, policy, segment);
        assert!(live > 100, "{policy}, {segment}: only {live} entries fit");
        for n in 0..live {
            persist(&mem, &db, &format!("{policy}: deletion {n} of {live}"), || keys.delete(n.to_be_bytes()));
        }
        for n in 0..live / 2 {
            persist(&mem, &db, &format!("{policy}: put {n}"), || keys.put(n.to_be_bytes(), [8; 400]));
        }
        assert_eq!(keys.iter().count() as u32, live / 2, "{policy}");
        assert!(on_disk(&mem) <= 8 << 20, "{policy}: {} on disk", on_disk(&mem));
    }
}

/// After the budget was lowered below what is in use, deletions free the store, although the log holds much of it.
#[test]
fn a_budget_lowered_below_its_use_is_reached_by_deleting() {
    let policies = ["arce", "leveling", "tiering:8", "universal"];
    // The lower budget is less than the tables alone take.
    for (policy, budget, bytes) in policies.iter().flat_map(|p| [(p, "4MiB", 4 << 20), (p, "6MiB", 6 << 20)])
    {
        let mem = MemEnv::new(67);
        let (db, keys, live) = full_of_live_data(&mem, policy, "256KiB");
        db.set_option("disk_budget", budget).expect("lowered");
        persist(&mem, &db, policy, || keys.delete_range::<&[u8]>(..));
        for n in 0..live / 4 {
            let what = format!("{policy}, {budget}: put {n}");
            persist(&mem, &db, &what, || keys.put(n.to_be_bytes(), [8; 400]));
        }
        assert!(on_disk(&mem) <= bytes, "{policy}, {budget}: {} on disk", on_disk(&mem));
    }
}

/// An edit that finds no disk space is not taken for written, wherever the manifest stops: also if it cannot grow.
#[test]
fn an_edit_without_space_for_the_manifest_to_grow_is_not_written() {
    let mut refused = 0;
    for edits in 300..345 {
        let mem = MemEnv::new(1);
        let db = Db::builder("/s").env(mem.env()).open().expect("open");
        let keys = db.keyspace("k").expect("a keyspace");
        for edit in 0..edits {
            keys.set_option("max_runs", ["64", "65"][edit % 2]).expect("a live option");
        }
        keys.put("a", "b").expect("put");
        mem.set_capacity(mem.used_space() + 8192);
        refused += u32::from(db.flush().is_err());
        assert_eq!(mem.order_violations(), Vec::<String>::new(), "{edits} edits");
        mem.set_capacity(None);
        db.flush().expect("there is space");
        assert_eq!(keys.get("a").expect("get").as_deref(), Some(&b"b"[..]));
    }
    assert!(refused > 0, "no flush found the disk full");
}
