//! Tests of repair. A damaged block loses only its own entries, keyspaces stay separate, and deleted data does not come
//! back. A report that says that nothing is lost is correct.

use drumlin::{Batch, Db, Keyspace, RepairReport, repair_in};
use drumlin_env::sync::Mutex;
use drumlin_env::{Disk, Effect, Fault, FileKind, ImageMode, MemEnv, Op, Random, When};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const STORE: &str = "/s";
const TARGET: &str = "/r";
/// Length of a table, in bytes, from which on it has more than one block.
const LARGE: usize = 8 << 10;

type Content = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

fn open(mem: &MemEnv, path: &str) -> drumlin::Result<Db> {
    Db::builder(path).env(mem.env()).set("log_segment_bytes", "64KiB").expect("legal").open()
}

fn content(db: &Db) -> Content {
    let of = |name: String| {
        let entries = db.keyspace(&name).expect("keyspace").iter();
        let entries = entries.map(|entry| entry.expect("an entry"));
        (name, entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect())
    };
    db.keyspaces().into_iter().map(of).collect()
}

fn put(keys: &Keyspace, numbers: std::ops::Range<u32>, round: u8) {
    for number in numbers {
        keys.put(number.to_be_bytes(), [round; 40]).expect("put");
    }
}

/// Store with two keyspaces that share keys, a dropped keyspace, deleted keys, and writes that only the log has.
struct Fixture {
    disk: Disk,
    truth: Content,
    /// All values that each key ever had.
    ever: BTreeMap<(String, Vec<u8>), Vec<Vec<u8>>>,
    files: Vec<(PathBuf, FileKind)>,
}

fn fixture(is_closed: bool) -> Fixture {
    let mem = MemEnv::new(11);
    let db = open(&mem, STORE).expect("open");
    let small: &[(&str, &str)] = &[("block_bytes", "512B"), ("compression", "none")];
    let a = db.keyspace_with("a", small).expect("a");
    let b = db.keyspace_with("b", &[("block_bytes", "512B"), ("compression", "lz4")]).expect("b");
    let gone = db.keyspace_with("gone", small).expect("gone");
    for (round, keys) in [(1, &a), (2, &b), (3, &gone)] {
        put(keys, 0..600, round);
    }
    db.flush().expect("flush");
    for number in (0..600u32).step_by(3) {
        a.delete(number.to_be_bytes()).expect("delete");
    }
    b.delete_range(100u32.to_be_bytes()..200u32.to_be_bytes()).expect("delete");
    put(&a, 600..700, 4);
    db.flush().expect("flush");
    db.drop_keyspace("gone").expect("drop");
    put(&b, 150..170, 5);
    put(&a, 650..800, 6);
    db.set_option("durability", "sync").expect("set");
    put(&a, 800..801, 7);
    let truth = content(&db);
    let mut ever: BTreeMap<(String, Vec<u8>), Vec<Vec<u8>>> = BTreeMap::new();
    for (name, range, round) in [
        ("a", 0..600, 1u8),
        ("b", 0..600, 2),
        ("gone", 0..600, 3),
        ("a", 600..700, 4),
        ("b", 150..170, 5),
        ("a", 650..800, 6),
        ("a", 800..801, 7),
    ] {
        for number in range {
            let number: u32 = number;
            let key = (name.to_owned(), number.to_be_bytes().to_vec());
            ever.entry(key).or_default().push(vec![round; 40]);
        }
    }
    let mem = match is_closed {
        true => {
            drop((a, b, gone));
            db.close().expect("close");
            mem
        }
        false => mem.snapshot().image(ImageMode::All, 1),
    };
    let files = mem.files().into_iter().filter_map(|path| Some((path.clone(), mem.kind_of(&path)?)));
    let files = files.filter(|(_, kind)| *kind != FileKind::Lock && *kind != FileKind::Decisions).collect();
    Fixture { disk: mem.snapshot(), truth, ever, files }
}

fn repaired(mem: &MemEnv) -> (RepairReport, Content) {
    let report = repair_in(&mem.env(), STORE, TARGET, |_| {}).expect("repair");
    let db = open(mem, TARGET).expect("the repaired store opens");
    assert_eq!(db.verify().expect("verify").findings, vec![]);
    (report, content(&db))
}

fn named(mem: &MemEnv, part: &str) -> Vec<PathBuf> {
    let has = |path: &PathBuf| path.starts_with(STORE) && path.to_string_lossy().contains(part);
    mem.files().into_iter().filter(has).collect()
}

/// Returns the original name of a recovered keyspace. Only the log has entries of the dropped keyspace, and it stores
/// its number but not its name.
fn owner(name: &str) -> String {
    if name == "recovered-2" { "gone" } else { name }.to_owned()
}

fn remove(mem: &MemEnv, path: &Path) {
    let kind = mem.kind_of(path).expect("there");
    mem.env().fs().unlink(path, kind).expect("removed");
}

#[test]
fn a_sound_store_is_saved_whole_and_nothing_is_lost() {
    for is_closed in [true, false] {
        let fixture = fixture(is_closed);
        let mem = fixture.disk.image(ImageMode::All, 1);
        let before: Vec<_> = fixture.files.iter().map(|(path, _)| mem.peek(path)).collect();
        let (report, found) = repaired(&mem);
        assert_eq!(found, fixture.truth);
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        assert_eq!(report.nothing_lost(), is_closed, "the end of a log that was not closed is not proven");
        assert_eq!(report.entries(), fixture.truth.values().map(|k| k.len() as u64).sum::<u64>());
        assert!(report.keyspaces.iter().all(|k| k.doubtful == 0 && k.lost == 0 && !k.lost_more));
        let after: Vec<_> = fixture.files.iter().map(|(path, _)| mem.peek(path)).collect();
        assert_eq!(after, before, "repair changed the old store");
    }
}

#[test]
fn a_damaged_block_costs_its_own_entries() {
    let fixture = fixture(true);
    for table in named(&fixture.disk.image(ImageMode::All, 1), ".tbl") {
        let mem = fixture.disk.image(ImageMode::All, 1);
        if mem.peek(&table).expect("there").len() < LARGE {
            continue;
        }
        mem.patch(&table, 700, &[0xAA; 8]);
        let (report, found) = repaired(&mem);
        assert!(!report.nothing_lost());
        let lost = report.lost();
        assert!((1..=40).contains(&lost), "{}: {lost} of one block", table.display());
        for (name, entries) in &fixture.truth {
            let missing = entries.iter().filter(|(key, value)| found[name].get(*key) != Some(value)).count();
            assert!(missing as u64 <= lost, "{name}: {missing} missing, {lost} reported");
            assert!(
                found[name]
                    .keys()
                    .all(|key| entries.contains_key(key) || report.keyspaces.iter().any(|k| k.doubtful > 0))
            );
        }
    }
}

#[test]
fn a_table_without_its_index_is_read_block_by_block() {
    let fixture = fixture(true);
    for table in named(&fixture.disk.image(ImageMode::All, 1), ".tbl") {
        for from_end in [10u64, 60, 200, 400] {
            let mem = fixture.disk.image(ImageMode::All, 1);
            let len = mem.peek(&table).expect("there").len() as u64;
            if len < LARGE as u64 {
                continue;
            }
            mem.patch(&table, len - from_end, &[0x55; 4]);
            let (report, found) = repaired(&mem);
            assert!(!report.nothing_lost(), "the report says that nothing is lost");
            for (name, entries) in &fixture.truth {
                for (key, value) in entries {
                    assert_eq!(
                        found[name].get(key),
                        Some(value),
                        "{} {from_end} from its end",
                        table.display()
                    );
                }
            }
        }
    }
}

#[test]
fn without_current_the_newest_manifest_is_used() {
    for is_closed in [true, false] {
        let fixture = fixture(is_closed);
        let mem = fixture.disk.image(ImageMode::All, 1);
        remove(&mem, Path::new("/s/CURRENT"));
        let (report, found) = repaired(&mem);
        assert_eq!(found, fixture.truth, "deleted keys or dropped keyspaces came back");
        assert!(!report.nothing_lost(), "a newer manifest may be missing");
        assert!(report.findings.iter().any(|finding| finding.contains("manifest")));
    }
}

/// A directory without `CURRENT` does not count as empty if it has a store's log or manifest, however long the first
/// record of the log is.
#[test]
fn a_store_without_current_is_not_taken_for_an_empty_directory() {
    for bytes in [None, Some(1), Some(5000), Some(100_000)] {
        let disk = MemEnv::new(4);
        let db = Db::builder("/s").env(disk.env()).open().expect("open");
        let keys = db.keyspace("k").expect("a keyspace");
        if let Some(bytes) = bytes {
            keys.put("key", vec![7; bytes]).expect("put");
        }
        let mem = disk.snapshot().image(ImageMode::All, 1);
        remove(&mem, Path::new("/s/CURRENT"));
        let opened = Db::builder("/s").env(mem.env()).open();
        let refused = opened.map(|_| ()).expect_err("it is no empty directory").to_string();
        // Without a write, the manifest is the evidence of a store, not the log.
        let why = match bytes {
            Some(_) => "the directory holds a log",
            None => "CURRENT is missing, but MANIFEST-",
        };
        assert!(refused.contains(why), "{bytes:?} bytes: {refused}");
        let opened = Db::builder("/s").env(mem.env()).read_only(true).open();
        let refused = opened.map(|_| ()).expect_err("it is a store").to_string();
        assert!(
            refused.contains("CURRENT is missing, but the directory holds"),
            "{bytes:?} bytes: {refused}"
        );
        assert!(!mem.env().fs().exists(Path::new("/s/CURRENT")).expect("a look"), "nothing is created");
    }
}

#[test]
fn without_a_manifest_keyspaces_stay_apart() {
    let fixture = fixture(true);
    let mem = fixture.disk.image(ImageMode::All, 1);
    for path in named(&mem, "MANIFEST").into_iter().chain(named(&mem, "CURRENT")) {
        remove(&mem, &path);
    }
    let (report, found) = repaired(&mem);
    assert!(!report.nothing_lost());
    for (name, entries) in &fixture.truth {
        for (key, value) in entries {
            assert_eq!(found[name].get(key), Some(value), "{name}");
        }
    }
    for (name, entries) in &found {
        for (key, value) in entries {
            let was = fixture.ever.get(&(owner(name), key.clone()));
            assert!(
                was.is_some_and(|values| values.contains(value)),
                "{name} holds an entry that was never written"
            );
        }
    }
}

#[test]
fn a_bad_record_costs_itself_and_not_the_rest_of_the_log() {
    let fixture = fixture(false);
    let mem = fixture.disk.image(ImageMode::All, 1);
    let used = |path: &PathBuf| mem.peek(path).map_or(0, |b| b.iter().rposition(|b| *b != 0).unwrap_or(0));
    let log = named(&mem, ".log").into_iter().max_by_key(used).expect("a log");
    // Each record of the fixture's puts has a header of 32 bytes and a payload of about fifty.
    for at in (4096 + 8..used(&log) as u64 - 200).step_by(1000) {
        let mem = fixture.disk.image(ImageMode::All, 1);
        let old = mem.peek(&log).expect("there")[at as usize];
        mem.patch(&log, at, &[old ^ 0xFF]);
        let (report, found) = repaired(&mem);
        let missing: usize = fixture
            .truth
            .iter()
            .map(|(name, entries)| {
                entries.iter().filter(|(key, value)| found[name].get(*key) != Some(value)).count()
            })
            .sum();
        assert!(missing <= 1, "{missing} keys lost by one byte at {at}");
        assert!(missing == 0 || !report.nothing_lost());
        assert!(found.keys().eq(fixture.truth.keys()), "a dropped keyspace came back");
    }
}

#[test]
fn drawn_damages_are_told_and_cost_no_more_than_they_must() {
    let mut random = Random::new(0xD4A6, "damage");
    for is_closed in [true, false] {
        let fixture = fixture(is_closed);
        for case in 0..150 {
            let mem = fixture.disk.image(ImageMode::All, 1);
            let (path, kind) = fixture.files[random.index(fixture.files.len())].clone();
            let bytes = mem.peek(&path).expect("there");
            let at = random.below(bytes.len().max(1) as u64);
            let what = match random.below(5) {
                0 => {
                    mem.truncate_file(&path, at);
                    "cut"
                }
                1 => {
                    let end = (at as usize + 512).min(bytes.len());
                    mem.patch(&path, at, &vec![0; end - at as usize]);
                    "zeroed"
                }
                2 => {
                    remove(&mem, &path);
                    "removed"
                }
                3 => {
                    let others: Vec<_> =
                        fixture.files.iter().filter(|(p, k)| *k == kind && *p != path).collect();
                    if let Some((other, _)) = others.get(random.index(others.len().max(1))) {
                        mem.plant(&path, kind, &mem.peek(other).expect("there"));
                        mem.plant(other, kind, &bytes);
                    }
                    "exchanged"
                }
                _ => {
                    mem.patch(&path, at, &[bytes.get(at as usize).copied().unwrap_or(0) ^ 0xFF]);
                    "flipped"
                }
            };
            let (report, found) = repaired(&mem);
            let place = format!("case {case}: {} {what} at {at}: {:?}", path.display(), report.findings);
            let is_whole = found == fixture.truth;
            // Without a clean close, damage to the last record of a log or the last edit of a manifest looks like a
            // torn write.
            let is_tail = !is_closed && what != "cut" && matches!(kind, FileKind::Log | FileKind::Manifest);
            assert!(is_whole || !report.nothing_lost() || is_tail, "data was lost and not reported: {place}");
            let has_manifest = !matches!(kind, FileKind::Manifest | FileKind::Pointer);
            for (name, entries) in &found {
                for (key, value) in entries {
                    let was = fixture.ever.get(&(owner(name), key.clone()));
                    assert!(
                        was.is_some_and(|values| values.contains(value)),
                        "an entry that was never written: {name} {place}"
                    );
                    let is_back = !fixture.truth.get(name).is_some_and(|truth| truth.contains_key(key));
                    let is_told = report.keyspaces.iter().any(|k| k.name == *name && k.doubtful > 0);
                    assert!(
                        !is_back || is_told,
                        "deleted data came back and was not reported: {name} {place}"
                    );
                }
            }
            if has_manifest {
                assert!(!found.contains_key("gone"), "a dropped keyspace is back: {place}");
            }
        }
    }
}

#[test]
fn an_unfinished_repair_opens_nowhere() {
    let fixture = fixture(true);
    let count = {
        let mem = fixture.disk.image(ImageMode::All, 1);
        let before = mem.io_index();
        repair_in(&mem.env(), STORE, TARGET, |_| {}).expect("repair");
        mem.io_index() - before
    };
    let whole = |db: &Db| content(db) == fixture.truth;
    for cut in (0..count).step_by(3) {
        let mem = fixture.disk.image(ImageMode::All, 1);
        mem.inject(Fault { op: None, kind: None, when: When::From(cut), effect: Effect::Fail(5) });
        let _ = repair_in(&mem.env(), STORE, TARGET, |_| {});
        for mode in ImageMode::ALL {
            let left = mem.snapshot().image(mode, cut);
            if left.files().iter().all(|path| !path.starts_with(TARGET)) {
                continue;
            }
            match Db::builder(TARGET).env(left.env()).create_if_missing(false).open() {
                Ok(db) => assert!(whole(&db), "call {cut}, {mode:?}: an incomplete store opens"),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
}

#[test]
fn operands_are_saved_with_their_base() {
    let mem = MemEnv::new(5);
    let open = |path: &str| {
        let builder = Db::builder(path).env(mem.env());
        builder.merge_operator("n", drumlin::env::sync::Arc::new(drumlin::AddI64::Text)).open().expect("open")
    };
    let db = open(STORE);
    let counts = db.keyspace("n").expect("n");
    counts.put("x", "5").expect("put");
    db.flush().expect("flush");
    for number in ["1", "2"] {
        let mut batch = Batch::new();
        batch.merge(&counts, "x", number);
        batch.merge(&counts, "y", number);
        db.write(batch).expect("write");
    }
    db.flush().expect("flush");
    drop(counts);
    db.close().expect("close");
    let report = repair_in(&mem.env(), STORE, TARGET, |_| {}).expect("repair");
    assert!(report.nothing_lost(), "{:?}", report.findings);
    let counts = open(TARGET).keyspace("n").expect("n");
    assert_eq!(counts.get("x").expect("get").as_deref(), Some(&b"8"[..]));
    assert_eq!(counts.get("y").expect("get").as_deref(), Some(&b"3"[..]));
}

/// Operands stay above the value that they build on, each with its own expiry, even if tables and log separate them.
#[test]
fn operands_are_saved_with_their_base_and_their_lifetimes() {
    use drumlin::{AddI64, MergeOperator};
    let operator: std::sync::Arc<dyn MergeOperator> = std::sync::Arc::new(AddI64::Text);
    let with = |mem: &MemEnv, path: &str| {
        let builder = Db::builder(path).env(mem.env()).merge_operator("n", operator.clone());
        builder.open().expect("open")
    };
    let mem = MemEnv::new(12);
    let db = with(&mem, STORE);
    let counts = db.keyspace("n").expect("keyspace");
    counts.put("plain", "1").expect("put");
    counts.put("expiring", "1").expect("put");
    db.flush().expect("flush");
    counts.merge("plain", "10").expect("merge");
    counts.set_option("ttl_seconds", "64").expect("a live option");
    counts.merge("expiring", "10").expect("merge");
    counts.merge("alone", "10").expect("merge");
    db.flush().expect("flush");
    counts.merge("expiring", "100").expect("merge");
    drop(counts);
    db.close().expect("close");
    let report = repair_in(&mem.env(), STORE, TARGET, |_| {}).expect("repair");
    assert!(report.nothing_lost(), "{:?}", report.findings);
    let db = with(&mem, TARGET);
    let counts = db.keyspace("n").expect("keyspace");
    let value =
        |key: &str| counts.get(key).expect("get").map(|v| String::from_utf8(v.to_vec()).expect("text"));
    let values = || ["plain", "expiring", "alone"].map(value);
    assert_eq!(values(), [Some("11".into()), Some("111".into()), Some("10".into())]);
    mem.advance(70_000_000);
    assert_eq!(values(), [Some("11".into()), Some("1".into()), None]);
}

/// Fills the manifests and the pointer with damage from their first byte on.
fn lose_manifests(mem: &MemEnv) {
    for path in mem.files() {
        let name = path.to_string_lossy().into_owned();
        if name.contains("MANIFEST") || name.contains("CURRENT") {
            let len = mem.peek(&path).expect("a file").len();
            mem.patch(&path, 0, &vec![0xEE; len]);
        }
    }
}

#[test]
fn operands_of_one_key_may_take_several_batches() {
    let mem = MemEnv::new(41);
    let builder = |path: &str| {
        let builder = Db::builder(path).env(mem.env()).set("memory_budget", "8MiB").expect("an option");
        builder.merge_operator("k", std::sync::Arc::new(drumlin::Append::new(b",")))
    };
    let db = builder(STORE).open().expect("open");
    let keys = db.keyspace("k").expect("keyspace");
    for number in 0..3000u32 {
        keys.merge("list", [number as u8; 1000]).expect("merge");
    }
    let before = keys.get("list").expect("get").expect("a value");
    drop(keys);
    db.close().expect("close");
    let report = repair_in(&mem.env(), STORE, TARGET, |_| {}).expect("repair");
    assert!(report.nothing_lost(), "{:?}", report.findings);
    let db = builder(TARGET).open().expect("open");
    let after = db.keyspace("k").expect("keyspace").get("list").expect("get").expect("a value");
    assert!(*before == *after);
}

#[test]
fn values_larger_than_the_memory_budget_now_allows_are_saved() {
    let mem = MemEnv::new(42);
    let open = |path: &str, budget: &str| {
        Db::builder(path).env(mem.env()).set("memory_budget", budget).expect("an option").open()
    };
    let db = open(STORE, "64MiB").expect("open");
    db.keyspace("k").expect("keyspace").put("large", vec![7; 10 << 20]).expect("put");
    db.close().expect("close");
    open(STORE, "8MiB").expect("open").close().expect("close");
    let report = repair_in(&mem.env(), STORE, TARGET, |_| {}).expect("repair");
    assert!(report.nothing_lost(), "{:?}", report.findings);
    let db = Db::builder(TARGET).env(mem.env()).open().expect("open");
    assert_eq!(db.options().iter().find(|(name, _)| *name == "memory_budget").expect("an option").1, "8MiB");
    let value = db.keyspace("k").expect("keyspace").get("large").expect("get").expect("a value");
    assert_eq!(value.len(), 10 << 20);
}

/// The limits of the old store hold for the new one, and not for the repair that writes it.
#[test]
fn limits_on_disk_space_and_time_do_not_fail_a_repair() {
    let mem = MemEnv::new(47);
    // With little memory four log segments fit into the budget.
    let builder = Db::builder(STORE).env(mem.env()).set("memory_budget", "8MiB").expect("an option");
    let db = builder.set("log_segment_bytes", "64KiB").expect("an option").open().expect("open");
    let keys = db.keyspace_with("k", &[("compression", "none")]).expect("keyspace");
    for number in 0..3000u32 {
        keys.put(number.to_be_bytes(), [number as u8; 1000]).expect("put");
    }
    let limits = [("disk_budget", "1MiB"), ("background_rate", "1MiB"), ("write_timeout_ms", "1")];
    limits.iter().for_each(|(name, value)| db.set_option(name, value).expect("a live option"));
    let truth = content(&db);
    drop(keys);
    let _ = db.close();
    let (report, found) = repaired(&mem);
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert!(found == truth, "entries were lost");
    let db = Db::builder(TARGET).env(mem.env()).open().expect("open");
    for (name, value) in limits {
        let options = db.options();
        let (_, kept) = options.iter().find(|(option, _)| *option == name).expect("an option");
        assert!(kept.starts_with(value), "{name} = {kept}");
    }
}

#[test]
fn the_name_of_the_merge_operator_is_saved() {
    let mem = MemEnv::new(43);
    let with = |path: &str, operator: std::sync::Arc<dyn drumlin::MergeOperator>| {
        Db::builder(path).env(mem.env()).merge_operator("k", operator).open()
    };
    let append = || std::sync::Arc::new(drumlin::Append::new(b","));
    let db = with(STORE, append()).expect("open");
    let keys = db.keyspace("k").expect("keyspace");
    keys.merge("list", "1").expect("merge");
    keys.merge("list", "2").expect("merge");
    drop(keys);
    db.close().expect("close");
    repair_in(&mem.env(), STORE, TARGET, |_| {}).expect("repair");
    let error = with(TARGET, std::sync::Arc::new(drumlin::AddI64::Text)).expect_err("another operator");
    assert_eq!(error.kind(), drumlin::ErrorKind::InvalidOption, "{error}");
    let db = with(TARGET, append()).expect("open");
    let value = db.keyspace("k").expect("keyspace").get("list").expect("get");
    assert_eq!(value.as_deref(), Some(&b"1,2"[..]));
}

/// Without a manifest, two keyspaces that would get the same name do not mix.
#[test]
fn names_that_collide_are_kept_apart() {
    // A keyspace has the name that repair gives to one whose name is lost.
    let mem = MemEnv::new(44);
    let db = open(&mem, STORE).expect("open");
    let [first, second] = ["recovered-1", "b"].map(|name| db.keyspace(name).expect("keyspace"));
    first.put("k", "of the first").expect("put");
    db.flush().expect("flush");
    second.put("k", "of the second").expect("put");
    db.sync().expect("sync");
    let image = mem.snapshot().image(ImageMode::None, 1);
    lose_manifests(&image);
    repair_in(&image.env(), STORE, TARGET, |_| {}).expect("repair");
    let found = content(&open(&image, TARGET).expect("open"));
    let mut values: Vec<Vec<u8>> = found.values().flat_map(|map| map.values().cloned()).collect();
    values.sort();
    assert_eq!(values, [b"of the first".to_vec(), b"of the second".to_vec()], "{:?}", found.keys());

    // A keyspace was dropped and created again, while an iterator of the first one pins its tables.
    let mem = MemEnv::new(45);
    let db = open(&mem, STORE).expect("open");
    let old = db.keyspace("a").expect("keyspace");
    old.put("old", "dropped").expect("put");
    db.flush().expect("flush");
    let pinned = old.iter();
    db.drop_keyspace("a").expect("drop");
    db.keyspace("a").expect("keyspace").put("k", "new").expect("put");
    db.flush().expect("flush");
    let image = mem.snapshot().image(ImageMode::All, 1);
    lose_manifests(&image);
    repair_in(&image.env(), STORE, TARGET, |_| {}).expect("repair");
    let found = content(&open(&image, TARGET).expect("open"));
    let only: BTreeMap<Vec<u8>, Vec<u8>> = [(b"k".to_vec(), b"new".to_vec())].into();
    assert_eq!(found["a"], only, "{:?}", found.keys());
    drop(pinned);
}

/// A rename writes no table. Without a manifest, repair takes the name from the newest table, and reports that older
/// tables have another one.
#[test]
fn the_newest_table_names_a_renamed_keyspace() {
    let mem = MemEnv::new(47);
    let db = open(&mem, STORE).expect("open");
    let keys = db.keyspace("before").expect("keyspace");
    put(&keys, 0..10, 1);
    db.flush().expect("flush");
    db.rename_keyspace("before", "after").expect("rename");
    put(&keys, 10..20, 2);
    db.flush().expect("flush");
    let image = mem.snapshot().image(ImageMode::All, 1);
    lose_manifests(&image);
    let report = repair_in(&image.env(), STORE, TARGET, |_| {}).expect("repair");
    let found = content(&open(&image, TARGET).expect("open"));
    assert_eq!(found.keys().collect::<Vec<_>>(), ["after"]);
    assert_eq!(found["after"].len(), 20);
    let both = |finding: &String| finding.contains("\"before\"") && finding.contains("\"after\"");
    assert!(report.findings.iter().any(both), "{:?}", report.findings);
    assert!(!report.nothing_lost(), "the last rename may be missing");
}

/// The manifest lost its last edits, so it does not list the newest tables. Repair reads them nevertheless.
#[test]
fn tables_of_lost_edits_are_read() {
    let mem = MemEnv::new(46);
    let db = open(&mem, STORE).expect("open");
    let keys = db.keyspace_with("k", &[("compression", "none")]).expect("keyspace");
    for round in 0..4 {
        put(&keys, 0..300, round);
        db.flush().expect("flush");
    }
    let manifest = mem.files().into_iter().find(|path| path.to_string_lossy().contains("MANIFEST"));
    let manifest = manifest.expect("a manifest");
    let bytes = mem.peek(&manifest).expect("its bytes");
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    keys.compact::<&[u8]>(..).expect("compact");
    db.wait_idle().expect("idle");
    put(&keys, 300..400, 9);
    db.flush().expect("flush");
    let truth = content(&db);
    drop(keys);
    let image = mem.snapshot().image(ImageMode::All, 1);
    let len = image.peek(&manifest).expect("its bytes").len();
    image.patch(&manifest, end as u64, &vec![0; len - end]);
    assert!(open(&image, STORE).is_err(), "a table is missing");
    let report = repair_in(&image.env(), STORE, TARGET, |_| {}).expect("repair");
    assert!(!report.nothing_lost());
    let found = content(&open(&image, TARGET).expect("open"));
    assert_eq!(found, truth, "{:?}", report.findings);
}

#[test]
fn a_target_inside_the_damaged_store_is_refused() {
    let mem = MemEnv::new(77);
    drop(Db::builder(STORE).env(mem.env()).open().expect("open"));
    for target in [STORE.to_owned(), format!("{STORE}/repaired")] {
        let refused = repair_in(&mem.env(), STORE, &target, |_| {}).expect_err("inside the store");
        let what = if target == STORE { "the directory of the store itself" } else { "inside the directory" };
        assert!(refused.to_string().contains(what), "{target}: {refused}");
    }
}

/// Reading a damaged store takes long. A store that is created in the target meanwhile must not be mixed with the files
/// of the repair.
#[test]
fn a_repair_claims_its_target_before_it_reads_the_store() {
    let mem = MemEnv::new(91);
    let db = open(&mem, STORE).expect("open");
    put(&db.keyspace("k").expect("keyspace"), 0..100, 1);
    drop(db);
    // Whether the target is claimed, and the files read before.
    let seen: Arc<Mutex<(bool, Vec<PathBuf>)>> = Arc::default();
    let heard = seen.clone();
    mem.record(move |call| {
        let mut seen = heard.lock();
        seen.0 |= call.site.op == Op::Create && call.path == Path::new(TARGET).join("UNFINISHED");
        if call.site.op == Op::Read && !seen.0 {
            seen.1.push(call.path.to_owned());
        }
        false
    });
    repair_in(&mem.env(), STORE, TARGET, |_| {}).expect("repair");
    assert_eq!(*seen.lock(), (true, Vec::new()));
}
