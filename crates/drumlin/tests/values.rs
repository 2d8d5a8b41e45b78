//! Tests of value files: large values are stored outside the tree, and reads give the same results.

use drumlin::{Builder, Db, ErrorKind, Keyspace, MergeOperator, repair_in};
use drumlin_env::{FileKind, ImageMode, MemEnv, Random};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const STORE: &str = "/s";

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// Appends each operand to the value.
struct Append;

impl MergeOperator for Append {
    fn name(&self) -> &str {
        "append"
    }

    fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        Some([base.unwrap_or_default(), &operands.concat()].concat())
    }
}

fn open(mem: &MemEnv) -> Db {
    open_with(Db::builder(STORE).env(mem.env()))
}

fn open_with(builder: Builder) -> Db {
    let options = [("memory_budget", "8MiB"), ("log_segment_bytes", "64KiB"), ("durability", "sync")];
    let builder = options.iter().try_fold(builder, |b, (name, value)| b.set(name, value));
    builder.expect("options").open().expect("open")
}

fn keyspace(db: &Db, threshold: &str) -> Keyspace {
    let options = [("value_threshold", threshold), ("file_bytes", "64KiB"), ("compression", "lz4")];
    db.keyspace_with("k", &options).expect("a keyspace")
}

fn files(mem: &MemEnv, kind: FileKind) -> Vec<PathBuf> {
    let all = mem.files().into_iter().filter(|path| path.starts_with(STORE));
    all.filter(|path| mem.kind_of(path) == Some(kind)).collect()
}

fn content(keys: &Keyspace) -> Content {
    keys.iter().map(|entry| entry.expect("an entry")).map(|(k, v)| (k.to_vec(), v.to_vec())).collect()
}

/// A value whose length and bytes depend on its key and round. Some compress well and some not at all.
fn value(number: u32, round: u32, random: &mut Random) -> Vec<u8> {
    let len = [10, 600, 3000, 20_000][(number % 4) as usize] + round as usize;
    match number.is_multiple_of(3) {
        true => vec![(number + round) as u8; len],
        false => (0..len).map(|_| random.below(256) as u8).collect(),
    }
}

fn fill(keys: &Keyspace, truth: &mut Content, numbers: std::ops::Range<u32>, round: u32) {
    let mut random = Random::new(u64::from(round), "values");
    for number in numbers {
        let value = value(number, round, &mut random);
        keys.put(number.to_be_bytes(), &value).expect("a put");
        truth.insert(number.to_be_bytes().to_vec(), value);
    }
}

fn check(keys: &Keyspace, truth: &Content) {
    assert!(content(keys) == *truth, "a scan differs");
    let back: Vec<_> = keys.iter().rev().map(|entry| entry.expect("an entry").1.to_vec()).collect();
    assert!(back.iter().eq(truth.values().rev()), "a backward scan differs");
    let all: Vec<&[u8]> = truth.keys().map(Vec::as_slice).collect();
    let got = keys.multi_get(&all).expect("values");
    for ((key, expected), many) in truth.iter().zip(got) {
        assert!(keys.get(key).expect("a get").as_deref() == Some(&expected[..]), "a get differs");
        assert!(many.as_deref() == Some(&expected[..]), "a get of many differs");
    }
}

#[test]
fn readers_find_values_wherever_they_are() {
    let mem = MemEnv::new(1);
    let mut truth = Content::new();
    let db = open(&mem);
    let keys = keyspace(&db, "512B");
    fill(&keys, &mut truth, 0..200, 1);
    db.flush().expect("flush");
    assert!(!files(&mem, FileKind::Value).is_empty(), "no value is apart");
    let before = (db.snapshot(), truth.clone());
    fill(&keys, &mut truth, 50..150, 2);
    keys.delete(7u32.to_be_bytes()).expect("a delete");
    truth.remove(&7u32.to_be_bytes()[..]);
    check(&keys, &truth);
    db.flush().expect("flush");
    db.compact().expect("compact");
    check(&keys, &truth);
    let old: Content = (before.0.iter(&keys))
        .map(|entry| entry.expect("an entry"))
        .map(|(k, v)| (k.to_vec(), v.to_vec()))
        .collect();
    assert!(old == before.1, "the snapshot sees other values");
    drop(before);
    let report = db.verify().expect("verify");
    assert_eq!(report.findings, vec![]);
    assert!(report.values > 100, "{} values were verified", report.values);
    drop(keys);
    db.close().expect("close");
    let db = open(&mem);
    let keys = db.keyspace("k").expect("the keyspace");
    check(&keys, &truth);
    assert!(mem.order_violations().is_empty(), "{:?}", mem.order_violations());
}

#[test]
fn a_value_file_goes_when_no_table_points_to_it() {
    let mem = MemEnv::new(2);
    let db = open(&mem);
    let keys = keyspace(&db, "512B");
    let mut truth = Content::new();
    fill(&keys, &mut truth, 0..100, 1);
    db.flush().expect("flush");
    let first = files(&mem, FileKind::Value);
    fill(&keys, &mut truth, 0..100, 2);
    db.flush().expect("flush");
    let iter = keys.iter();
    db.compact().expect("compact");
    db.wait_idle().expect("idle");
    assert!(first.iter().all(|file| files(&mem, FileKind::Value).contains(file)), "an iterator holds them");
    drop(iter);
    keys.put("z", "").expect("a put");
    db.flush().expect("flush");
    db.compact().expect("compact");
    db.wait_idle().expect("idle");
    let left = files(&mem, FileKind::Value);
    assert!(!left.is_empty() && first.iter().all(|file| !left.contains(file)), "{first:?} {left:?}");
    truth.insert(b"z".to_vec(), Vec::new());
    check(&keys, &truth);
    drop(keys);
    db.drop_keyspace("k").expect("drop");
    db.wait_idle().expect("idle");
    assert_eq!(files(&mem, FileKind::Value), Vec::<PathBuf>::new());
    assert!(mem.order_violations().is_empty(), "{:?}", mem.order_violations());
}

/// A changed threshold applies to the values that compactions rewrite. Values in value files stay there.
#[test]
fn compactions_separate_what_lies_in_the_tree() {
    let mem = MemEnv::new(3);
    let db = open(&mem);
    let keys = keyspace(&db, "0");
    let mut truth = Content::new();
    fill(&keys, &mut truth, 0..100, 1);
    db.flush().expect("flush");
    assert_eq!(files(&mem, FileKind::Value).len(), 0);
    keys.set_option("value_threshold", "1KiB").expect("a live option");
    // All tables overlap, so there is no trivial move.
    (0..120).step_by(3).for_each(|number| fill(&keys, &mut truth, number..number + 1, 2));
    db.flush().expect("flush");
    db.compact().expect("compact");
    db.wait_idle().expect("idle");
    check(&keys, &truth);
    let len = |path: &PathBuf| mem.peek(path).map_or(0, |bytes| bytes.len());
    let (values, tables): (usize, usize) = (
        files(&mem, FileKind::Value).iter().map(len).sum(),
        files(&mem, FileKind::Table).iter().map(len).sum(),
    );
    assert!(values > 8 * tables, "{values} bytes of values, {tables} of tables");
    keys.set_option("value_threshold", "0").expect("a live option");
    fill(&keys, &mut truth, 0..10, 3);
    db.compact().expect("compact");
    check(&keys, &truth);
}

/// Compactions merge operands into values in value files, and the results are in value files again.
#[test]
fn operands_apply_to_values_in_value_files() {
    let mem = MemEnv::new(4);
    let db = open_with(Db::builder(STORE).env(mem.env()).merge_operator("k", Arc::new(Append)));
    let keys = keyspace(&db, "100B");
    keys.set_option("compression", "none").expect("a live option");
    let mut truth = Content::new();
    for number in 0..20u32 {
        keys.put(number.to_be_bytes(), vec![b'x'; 500]).expect("a put");
        truth.insert(number.to_be_bytes().to_vec(), vec![b'x'; 500]);
    }
    db.flush().expect("flush");
    for round in 0..3 {
        for number in (0..20u32).step_by(2) {
            keys.merge(number.to_be_bytes(), "+").expect("an operand");
            truth.get_mut(&number.to_be_bytes()[..]).expect("a value").push(b'+');
        }
        check(&keys, &truth);
        db.flush().expect("flush");
        if round > 0 {
            db.compact().expect("compact");
        }
        check(&keys, &truth);
    }
    let metrics = db.metrics();
    assert!(metrics.entries_merged >= 10, "{} operands were merged", metrics.entries_merged);
    assert_eq!(metrics.value_bytes_referenced / 500, 20, "a value left the value files");
    assert_eq!(db.verify().expect("verify").findings, vec![]);
}

#[test]
fn a_checkpoint_and_a_repair_have_all_values() {
    let mem = MemEnv::new(5);
    let db = open(&mem);
    let keys = keyspace(&db, "512B");
    let mut truth = Content::new();
    fill(&keys, &mut truth, 0..120, 1);
    db.flush().expect("flush");
    fill(&keys, &mut truth, 100..140, 2);
    db.checkpoint(Path::new("/copy")).expect("a checkpoint");
    drop(keys);
    db.close().expect("close");
    let copy = Db::builder("/copy").env(mem.env()).open().expect("open the copy");
    check(&copy.keyspace("k").expect("the keyspace"), &truth);
    assert_eq!(copy.verify().expect("verify").findings, vec![]);
    copy.close().expect("close");
    let report = repair_in(&mem.env(), Path::new(STORE), Path::new("/r"), |_| ()).expect("a repair");
    assert_eq!(report.keyspaces[0].lost, 0, "{report:?}");
    let repaired = Db::builder("/r").env(mem.env()).open().expect("open the repaired store");
    check(&repaired.keyspace("k").expect("the keyspace"), &truth);
}

/// Repairs the store, whose manifest is lost, and checks that its only keyspace has all of `truth`.
fn check_repair(mem: &MemEnv, truth: &Content) {
    let report = repair_in(&mem.env(), Path::new(STORE), Path::new("/r"), |_| ()).expect("a repair");
    assert!(report.keyspaces.iter().all(|keyspace| keyspace.lost == 0), "{report:?}");
    let repaired = Db::builder("/r").env(mem.env()).open().expect("open the repaired store");
    let [name] = <[String; 1]>::try_from(repaired.keyspaces()).expect("one keyspace");
    check(&repaired.keyspace(&name).expect("the keyspace"), truth);
}

/// A compaction has copied values. The first value file and the manifest are gone, but a table that points to that
/// file is left. Repair finds two pointers to a value and follows the one that is still valid.
#[test]
fn a_repair_reads_copies_of_values_whose_first_file_is_gone() {
    let mem = MemEnv::new(22);
    let db = open(&mem);
    let keys = keyspace(&db, "512B");
    keys.set_option("value_space_target", "1.1").expect("a live option");
    let mut truth = Content::new();
    fill(&keys, &mut truth, 0..40, 1);
    db.flush().expect("flush");
    let old = files(&mem, FileKind::Table).into_iter();
    let old: Vec<_> = old.map(|path| (path.clone(), mem.peek(&path).expect("a table"))).collect();
    for round in 2..5 {
        (0..40).filter(|n| n % 5 != 0).for_each(|n| fill(&keys, &mut truth, n..n + 1, round));
        db.flush().expect("flush");
    }
    db.compact().expect("compact");
    db.wait_idle().expect("idle");
    assert!(db.metrics().value_bytes_copied > 0, "no value was copied");
    drop(keys);
    db.close().expect("close");
    let kept = files(&mem, FileKind::Table);
    assert!(old.iter().all(|(path, _)| !kept.contains(path)));
    old.iter().for_each(|(path, bytes)| mem.plant(path, FileKind::Table, bytes));
    for path in mem.files().into_iter().filter(|path| path.starts_with(STORE)) {
        if path.to_string_lossy().contains("MANIFEST") {
            mem.env().fs().unlink(&path, FileKind::Manifest).expect("removed");
        }
    }
    check_repair(&mem, &truth);
}

/// The log still has whole values. A table points to their value file, but that file and the manifest are gone.
#[test]
fn a_repair_takes_values_from_the_log_before_pointers_that_lead_nowhere() {
    let mem = MemEnv::new(23);
    let db = open(&mem);
    let keys = keyspace(&db, "512B");
    let mut truth = Content::new();
    for number in 0..20u32 {
        let value = vec![number as u8; 700];
        keys.put(number.to_be_bytes(), &value).expect("a put");
        truth.insert(number.to_be_bytes().to_vec(), value);
    }
    db.flush().expect("flush");
    let mem = mem.snapshot().image(ImageMode::None, 1);
    assert!(!files(&mem, FileKind::Value).is_empty() && !files(&mem, FileKind::Log).is_empty());
    for kind in [FileKind::Value, FileKind::Manifest] {
        for path in files(&mem, kind) {
            mem.env().fs().unlink(&path, kind).expect("removed");
        }
    }
    check_repair(&mem, &truth);
}

/// A damaged value is an error that names file and offset, and other values stay readable. Repair loses that value
/// only.
#[test]
fn a_damaged_value_is_found_and_named() {
    let mem = MemEnv::new(6);
    let db = open(&mem);
    let keys = keyspace(&db, "100B");
    for number in 0..30u32 {
        keys.put(number.to_be_bytes(), vec![number as u8; 4000 + number as usize]).expect("a put");
    }
    keys.set_option("compression", "none").expect("a live option");
    keys.put("noise", vec![1; 5000]).expect("a put");
    db.flush().expect("flush");
    drop(keys);
    db.close().expect("close");
    let damaged = files(&mem, FileKind::Value).remove(0);
    let bytes = mem.peek(&damaged).expect("the file");
    // A byte of the fourth value. A compaction can copy the first three before it reads this one.
    let place = 3 * 4020 + 100;
    assert!(mem.patch(&damaged, place as u64, &[bytes[place] ^ 1]));
    let db = open(&mem);
    let keys = db.keyspace("k").expect("the keyspace");
    let outcomes: Vec<_> = (0..30u32).map(|number| keys.get(number.to_be_bytes())).collect();
    let errors: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].kind(), ErrorKind::Corruption);
    assert_eq!(errors[0].path(), Some(damaged.as_path()));
    assert!(errors[0].offset().is_some() && errors[0].key().is_some(), "{:?}", errors[0]);
    let findings = db.verify().expect("verify").findings;
    assert_eq!(findings.len(), 1, "{findings:?}");
    // Scans in both directions return one error and go on behind the key.
    for scan in [keys.iter().collect::<Vec<_>>(), keys.iter().rev().collect()] {
        let errors = scan.iter().filter(|entry| entry.is_err()).count();
        assert_eq!((errors, scan.len()), (1, 31));
    }
    // A compaction that would collect the file keeps the pointer to the damaged value, and does not fail.
    keys.set_option("value_space_target", "1.1").expect("a live option");
    for round in 0..4u8 {
        for number in 5..30u32 {
            keys.put(number.to_be_bytes(), vec![round; 4000]).expect("a put");
        }
        db.flush().expect("flush");
        db.compact().expect("compact");
    }
    let damages = (0..30u32).filter(|number| keys.get(number.to_be_bytes()).is_err()).count();
    assert_eq!(damages, 1, "the damaged value was not overwritten");
    assert!(db.metrics().value_bytes_copied > 0, "its file was not collected");
    drop(keys);
    db.close().expect("close");
    let report = repair_in(&mem.env(), Path::new(STORE), Path::new("/r"), |_| ()).expect("a repair");
    assert_eq!(report.keyspaces[0].lost, damages as u64, "{report:?}");
}

#[test]
fn a_missing_value_file_is_an_error_of_the_open() {
    let mem = MemEnv::new(7);
    let db = open(&mem);
    let keys = keyspace(&db, "100B");
    keys.put("a", vec![7; 1000]).expect("a put");
    db.flush().expect("flush");
    drop(keys);
    db.close().expect("close");
    let gone = files(&mem, FileKind::Value).remove(0);
    let content = mem.peek(&gone).expect("the file");
    mem.env().fs().unlink(&gone, FileKind::Value).expect("unlink");
    let error = Db::builder(STORE).env(mem.env()).open().expect_err("a file is missing");
    assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(gone.as_path())));
    mem.plant(&gone, FileKind::Value, &content[..content.len() - 1]);
    let error = Db::builder(STORE).env(mem.env()).open().expect_err("a file is too short");
    assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(gone.as_path())));
}

/// After a power loss at any call, the store has every value that was acknowledged as durable, and all files are sound.
#[test]
fn power_loss_loses_no_value() {
    // Runs the load and returns each write with the number of calls after it.
    let run = |mem: &MemEnv| {
        let db = open(mem);
        let keys = keyspace(&db, "512B");
        keys.set_option("value_space_target", "1.1").expect("a live option");
        let mut writes = Vec::new();
        for round in 1..4 {
            let mut random = Random::new(u64::from(round), "values");
            // Leaves live values in each file, so that none becomes garbage as a whole.
            for number in (0..24u32).filter(|n| round == 1 || n % 5 != round % 5) {
                let value = value(number, round, &mut random);
                keys.put(number.to_be_bytes(), &value).expect("a put");
                writes.push((mem.io_index(), number, value));
            }
            db.flush().expect("flush");
        }
        db.compact().expect("compact");
        db.wait_idle().expect("idle");
        assert!(db.metrics().value_bytes_copied > 0, "no compaction collected a value file");
        drop(keys);
        db.close().expect("close");
        writes
    };
    let calls = {
        let mem = MemEnv::new(8);
        run(&mem);
        mem.io_index()
    };
    let mut checked = 0;
    for at in (1..calls).step_by(2) {
        let mem = MemEnv::new(8);
        mem.take_snapshot_at(at);
        let writes = run(&mem);
        let Some((_, disk)) = mem.taken().pop() else { continue };
        let image = disk.image(ImageMode::None, at);
        let db = open(&image);
        if db.keyspaces().is_empty() {
            assert!(writes.iter().all(|(index, ..)| *index > at), "call {at}: the keyspace is gone");
            continue;
        }
        let keys = db.keyspace("k").expect("the keyspace");
        for number in 0..24u32 {
            let of_key: Vec<_> = writes.iter().filter(|(_, of, _)| *of == number).collect();
            let acknowledged = of_key.iter().rposition(|(index, ..)| *index <= at);
            let found = keys.get(number.to_be_bytes()).expect("a get");
            let place = of_key.iter().position(|(.., value)| found.as_deref() == Some(&value[..]));
            assert!(found.is_none() || place.is_some(), "call {at}: key {number} has a wrong value");
            assert!(place >= acknowledged, "call {at}: key {number} has an old value");
            checked += usize::from(place.is_some());
        }
        assert_eq!(db.verify().expect("verify").findings, vec![], "call {at}");
        db.wait_idle().expect("idle");
        assert!(image.order_violations().is_empty(), "call {at}: {:?}", image.order_violations());
    }
    assert!(checked > 100, "{checked} values were checked");
}

/// Compactions copy values out of files with much garbage. The space stays near the target, no value is lost, and none
/// comes back. A snapshot keeps its values.
#[test]
fn compactions_collect_value_files() {
    let mem = MemEnv::new(9);
    let db = open(&mem);
    let keys = keyspace(&db, "100B");
    let mut truth = Content::new();
    fill(&keys, &mut truth, 0..300, 1);
    db.flush().expect("flush");
    let mut before = Some((db.snapshot(), truth.clone()));
    let mut largest = 0.0f64;
    for round in 2..14 {
        // Values of each file become garbage at different times, and some never do.
        let changes = |n: &u32| !n.is_multiple_of(5) && (n * 7 + round * 13).is_multiple_of(2 + n % 6);
        (0..300).filter(changes).for_each(|n| fill(&keys, &mut truth, n..n + 1, round));
        db.flush().expect("flush");
        db.compact().expect("compact");
        check(&keys, &truth);
        if round == 4
            && let Some((snapshot, then)) = before.take()
        {
            let old = snapshot.iter(&keys).map(|entry| entry.expect("an entry"));
            let old: Content = old.map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
            assert!(old == then, "the snapshot sees other values");
        }
        let metrics = db.metrics();
        let space = metrics.value_record_bytes as f64 / metrics.value_bytes_referenced as f64;
        largest = largest.max(space);
        assert!(metrics.value_files > 0 && metrics.value_bytes_copied <= metrics.value_bytes_written);
    }
    let metrics = db.metrics();
    assert!(metrics.value_bytes_copied > 0, "nothing was copied");
    // Garbage is at most what was written. With a target of 1.5, at most twice as many bytes are copied.
    let written = metrics.value_bytes_written - metrics.value_bytes_copied;
    assert!(metrics.value_bytes_copied <= 2 * written, "{} copied, {written}", metrics.value_bytes_copied);
    assert!(largest < 2.6, "the values took {largest} times their size");
    db.wait_idle().expect("idle");
    let on_disk: usize =
        files(&mem, FileKind::Value).iter().map(|path| mem.peek(path).map_or(0, |bytes| bytes.len())).sum();
    assert!(on_disk as u64 >= metrics.value_record_bytes, "{on_disk} {}", metrics.value_record_bytes);
    assert_eq!(db.verify().expect("verify").findings, vec![]);
    drop(keys);
    db.close().expect("close");
    check(&open(&mem).keyspace("k").expect("the keyspace"), &truth);
    assert!(mem.order_violations().is_empty(), "{:?}", mem.order_violations());
}

/// Iterators of a closed store read their values, although the next open removes the files.
#[test]
fn iterators_outlive_the_store() {
    let mem = MemEnv::new(10);
    let db = open(&mem);
    let keys = keyspace(&db, "100B");
    let mut truth = Content::new();
    fill(&keys, &mut truth, 0..80, 1);
    db.flush().expect("flush");
    let old = keys.iter();
    let expected = truth.clone();
    fill(&keys, &mut truth, 0..80, 2);
    db.flush().expect("flush");
    db.compact().expect("compact");
    let new = keys.iter();
    drop(keys);
    db.close().expect("close");
    let db = open(&mem);
    let keys = db.keyspace("k").expect("the keyspace");
    let again = truth.clone();
    fill(&keys, &mut truth, 0..80, 3);
    db.flush().expect("flush");
    db.compact().expect("compact");
    db.wait_idle().expect("idle");
    for (iter, expected) in [(old, expected), (new, again)] {
        let found: Content =
            iter.map(|entry| entry.expect("an entry")).map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
        assert!(found == expected, "an iterator sees other values");
    }
    check(&keys, &truth);
}

/// With few file descriptors, the store closes value files to open others.
#[test]
fn few_descriptors_are_enough() {
    let mem = MemEnv::new(11);
    let db = open(&mem);
    let keys = keyspace(&db, "100B");
    let mut truth = Content::new();
    for round in 0..12u32 {
        fill(&keys, &mut truth, round * 10..round * 10 + 10, round);
        db.flush().expect("flush");
    }
    check(&keys, &truth);
    mem.set_open_files_limit(mem.open_files() + 1);
    fill(&keys, &mut truth, 0..30, 20);
    check(&keys, &truth);
    db.flush().expect("flush");
    db.compact().expect("compact");
    check(&keys, &truth);
    mem.set_open_files_limit(None);
    assert_eq!(db.verify().expect("verify").findings, vec![]);
}

/// Returns the bytes of all records for each byte that tables point to.
fn space_factor(db: &Db) -> f64 {
    let metrics = db.metrics();
    metrics.value_record_bytes as f64 / metrics.value_bytes_referenced as f64
}

/// Compactions start by themselves when values take more space than the target, under every policy.
#[test]
fn value_files_are_collected_without_being_asked() {
    for policy in ["arce", "1-leveling", "tiering", "universal", "lazy-leveling"] {
        let mem = MemEnv::new(12);
        let db = open(&mem);
        let options = [
            ("value_threshold", "100B"),
            ("file_bytes", "64KiB"),
            ("memtable_bytes", "256KiB"),
            ("compaction", policy),
            ("value_space_target", "1.3"),
        ];
        let keys = db.keyspace_with("k", &options).expect("a keyspace");
        let mut truth = Content::new();
        for round in 1..12 {
            let changes = |n: &u32| round == 1 || (n * 7 + round * 13).is_multiple_of(2 + n % 5);
            (0..400).filter(changes).for_each(|n| fill(&keys, &mut truth, n..n + 1, round));
            db.flush().expect("flush");
            db.wait_idle().expect("idle");
            let live: usize = truth.values().map(Vec::len).filter(|&len| len >= 100).sum();
            let metrics = db.metrics();
            let space = metrics.value_record_bytes as f64 / live as f64;
            // A compaction starts 1/64 above the target. The rest of the margin is for the headers of records.
            assert!(space < 1.3 * (1.0 + 1.0 / 32.0), "{policy}, round {round}: {space} times their size");
        }
        let metrics = db.metrics();
        let written = metrics.value_bytes_written - metrics.value_bytes_copied;
        let copied = metrics.value_bytes_copied as f64;
        assert!(copied > 0.0 && copied <= written as f64 / 0.3, "{policy}: {copied} copied, {written}");
        check(&keys, &truth);
    }
}

/// Garbage that arises while compactions run is collected in the end.
#[test]
fn value_files_are_collected_after_a_busy_phase() {
    for seed in 0..6 {
        let mem = MemEnv::new(20 + seed);
        let db = open(&mem);
        let options = [
            ("value_threshold", "100B"),
            ("file_bytes", "64KiB"),
            ("memtable_bytes", "256KiB"),
            ("value_space_target", "1.5"),
        ];
        let keys = db.keyspace_with("k", &options).expect("a keyspace");
        let mut truth = Content::new();
        let mut random = Random::new(seed, "keys");
        fill(&keys, &mut truth, 0..300, 1);
        for round in 2..30 {
            for _ in 0..60 {
                let n = random.below(300) as u32;
                fill(&keys, &mut truth, n..n + 1, round);
            }
        }
        db.flush().expect("flush");
        db.wait_idle().expect("idle");
        let live: usize = truth.values().map(Vec::len).filter(|&len| len >= 100).sum();
        let space = db.metrics().value_record_bytes as f64 / live as f64;
        assert!(space < 1.5 * (1.0 + 1.0 / 32.0), "seed {seed}: {space} times their size");
        check(&keys, &truth);
    }
}

/// Without disk space, garbage collection makes no copies, and nothing waits for ever. Once there is space, values
/// take no more than their target.
#[test]
fn value_files_are_collected_once_there_is_room() {
    let mem = MemEnv::new(14);
    let db = open(&mem);
    let options = [("value_threshold", "100B"), ("file_bytes", "64KiB"), ("value_space_target", "1.2")];
    let keys = db.keyspace_with("k", &options).expect("a keyspace");
    let mut truth = Content::new();
    fill(&keys, &mut truth, 0..200, 1);
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    // The budget is lower than the space in use while garbage arises.
    db.set_option("disk_budget", "1MiB").expect("a live option");
    for round in 2..5 {
        (0..200).filter(|n| n % 4 != round % 4).for_each(|n| {
            let value = value(n, round, &mut Random::new(u64::from(round), "values"));
            if keys.put(n.to_be_bytes(), &value).is_ok() {
                truth.insert(n.to_be_bytes().to_vec(), value);
            }
        });
        _ = db.flush();
        _ = db.wait_idle();
    }
    db.set_option("disk_budget", "0").expect("a live option");
    fill(&keys, &mut truth, 0..200, 9);
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    check(&keys, &truth);
    assert!(space_factor(&db) < 1.2 * (1.0 + 1.0 / 32.0), "{}", space_factor(&db));
}

/// A value that cannot be read keeps its file, and compactions do not try for ever to collect it.
#[test]
fn what_cannot_be_collected_is_left_alone() {
    let mem = MemEnv::new(13);
    let db = open(&mem);
    let options = [("value_threshold", "100B"), ("file_bytes", "64KiB"), ("value_space_target", "1.1")];
    let keys = db.keyspace_with("k", &options).expect("a keyspace");
    let mut truth = Content::new();
    fill(&keys, &mut truth, 0..200, 1);
    db.flush().expect("flush");
    for path in files(&mem, FileKind::Value) {
        let bytes = mem.peek(&path).expect("bytes");
        for at in (100..bytes.len()).step_by(1000) {
            assert!(mem.patch(&path, at as u64, &[bytes[at] ^ 0x55]));
        }
    }
    (0..200).filter(|n| n % 5 != 0).for_each(|n| fill(&keys, &mut truth, n..n + 1, 2));
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    let compactions = db.metrics().compactions;
    assert!(compactions < 14, "{compactions} compactions: three tries, and what found the garbage");
    // A flush without new garbage causes no further try. Another space target does.
    keys.put(b"new", b"small").expect("a put");
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    let more = db.metrics().compactions;
    assert!(more <= compactions + 1, "{compactions} compactions, then {more}");
    keys.set_option("value_space_target", "1.2").expect("a live option");
    db.wait_idle().expect("idle");
    assert!(db.metrics().compactions <= more + 8);
    assert!(space_factor(&db) > 1.1, "the damaged records are still there");
    for number in (0..200u32).filter(|n| n % 5 != 0) {
        let expected = &truth[number.to_be_bytes().as_slice()];
        assert_eq!(keys.get(number.to_be_bytes()).expect("a get").as_deref(), Some(&expected[..]));
    }
}
