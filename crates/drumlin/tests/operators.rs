//! Tests of merge operators: the operator that a keyspace accepts, the effect of a malformed operand, and operators
//! that panic or return too much.

use drumlin::{AddI64, Append, Builder, Db, ErrorKind, Event, EventListener, Keyspace, MergeOperator};
use drumlin_env::MemEnv;
use drumlin_env::sync::Mutex;
use std::sync::Arc;

fn builder(mem: &MemEnv) -> Builder {
    Db::builder("/s").env(mem.env())
}

fn with(mem: &MemEnv, operator: impl MergeOperator + 'static) -> drumlin::Result<Db> {
    builder(mem).merge_operator("n", Arc::new(operator)).open()
}

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl EventListener for Heard {
    fn on_event(&self, event: &Event) {
        if let Event::OperatorUnused { keyspace, operator } | Event::OperatorPanicked { keyspace, operator } =
            event
        {
            self.0.lock().push(format!("{keyspace}: {operator}"));
        }
    }
}

#[test]
fn another_operator_is_refused_by_both_names() {
    let mem = MemEnv::new(81);
    let db = with(&mem, AddI64::Text).expect("open");
    let numbers = db.keyspace("n").expect("keyspace");
    numbers.put("k", "40").expect("put");
    numbers.merge("k", "2").expect("merge");
    db.flush().expect("flush");
    numbers.merge("k", "1").expect("merge");
    numbers.put("l", "7").expect("put");
    db.checkpoint("/copy").expect("checkpoint");
    drop((numbers, db));
    // After a clean close, once more, and after power loss. Includes a read-only open and a checkpoint.
    let mut mem = mem;
    for round in 0..3 {
        let error = with(&mem, Append::new(",")).expect_err("another operator");
        assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
        for part in ["\"n\"", "\"add-i64-text\"", "\"append:,\""] {
            assert!(error.to_string().contains(part), "{error}");
        }
        let append = || Arc::new(Append::new(","));
        let read_only = builder(&mem).merge_operator("n", append()).read_only(true).open();
        assert_eq!(read_only.expect_err("another operator").kind(), ErrorKind::InvalidOption);
        let copy = Db::builder("/copy").env(mem.env()).merge_operator("n", append()).open();
        assert_eq!(copy.expect_err("another operator").kind(), ErrorKind::InvalidOption);
        let db = with(&mem, AddI64::Text).expect("its own operator");
        let numbers = db.keyspace("n").expect("keyspace");
        assert_eq!(numbers.get("k").expect("get").as_deref(), Some(&b"43"[..]));
        if round == 1 {
            db.sync().expect("sync");
            mem = mem.snapshot().image(drumlin_env::ImageMode::None, 5);
        }
    }
}

#[test]
fn without_its_operator_a_keyspace_fails_by_name_and_loses_nothing() {
    let mem = MemEnv::new(82);
    let db = with(&mem, AddI64::Text).expect("open");
    let numbers = db.keyspace("n").expect("keyspace");
    numbers.merge("k", "2").expect("merge");
    numbers.put("l", "7").expect("put");
    drop((numbers, db));
    let db = builder(&mem).open().expect("a store opens without its operator");
    let numbers = db.keyspace("n").expect("keyspace");
    for error in [numbers.merge("k", "1").map(drop), numbers.get("k").map(drop)] {
        let error = error.expect_err("the operator was not supplied");
        assert!(error.to_string().contains("\"add-i64-text\""), "{error}");
    }
    assert_eq!(numbers.get("l").expect("get").as_deref(), Some(&b"7"[..]));
    numbers.put("m", "8").expect("put");
    db.flush().and_then(|()| db.compact()).expect("compact");
    assert_eq!(db.verify().expect("verify").findings, vec![]);
    drop((numbers, db));
    let db = with(&mem, AddI64::Text).expect("open");
    assert_eq!(db.keyspace("n").expect("n").get("k").expect("get").as_deref(), Some(&b"2"[..]));
}

#[test]
fn an_operator_serves_a_keyspace_that_is_made_later_and_is_reported_until_then() {
    let mem = MemEnv::new(83);
    let heard = Arc::new(Heard::default());
    let open = || {
        let builder = builder(&mem).listener(heard.clone());
        builder.merge_operator("later", Arc::new(AddI64::Text)).open().expect("open")
    };
    let said = || std::mem::take(&mut *heard.0.lock());
    drop(open());
    assert_eq!(said(), Vec::<String>::new(), "a new store has no keyspaces");
    let db = open();
    assert_eq!(said(), ["later: add-i64-text"]);
    let later = db.keyspace("later").expect("keyspace");
    later.merge("k", "3").expect("merge");
    assert_eq!(later.get("k").expect("get").as_deref(), Some(&b"3"[..]));
    drop((later, db));
    drop(open());
    assert_eq!(said(), Vec::<String>::new());
    let other = builder(&mem).merge_operator("later", Arc::new(Append::new(",")));
    assert_eq!(other.open().expect_err("another").kind(), ErrorKind::InvalidOption);
    // A keyspace without an operator takes the first one that is supplied.
    let db = builder(&mem).open().expect("open");
    db.keyspace("plain").expect("keyspace").put("k", "1").expect("put");
    drop(db);
    drop(builder(&mem).merge_operator("plain", Arc::new(AddI64::Text)).open().expect("the first"));
    let other = builder(&mem).merge_operator("plain", Arc::new(Append::new(",")));
    assert_eq!(other.open().expect_err("another").kind(), ErrorKind::InvalidOption);
}

/// Returns a key as text, with "!" for an error that carries its key.
fn show(entry: drumlin::Result<(drumlin::Slice, drumlin::Slice)>) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    match entry {
        Ok((key, value)) => format!("{}={}", text(&key), text(&value)),
        Err(error) => {
            let key = text(error.key().expect("an error of one key"));
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains(&key) && !shown.contains("many"), "no user bytes: {shown}");
            assert_eq!(error.kind(), ErrorKind::MergeFailed);
            format!("!{key}")
        }
    }
}

fn numbers_with_bad_operands(db: &Db) -> Keyspace {
    let numbers = db.keyspace("n").expect("keyspace");
    for key in ["kay-1", "kay-3", "kay-5"] {
        numbers.put(key, "5").expect("put");
    }
    for key in ["kay-2", "kay-4"] {
        numbers.put(key, "1").expect("put");
        // More versions than a scan skips one by one.
        for _ in 0..if key == "kay-4" { 20 } else { 1 } {
            numbers.merge(key, "many").expect("merges do not read");
        }
    }
    numbers
}

#[test]
fn a_scan_goes_on_behind_a_bad_operand() {
    for flushed in [false, true] {
        let mem = MemEnv::new(84);
        let db = with(&mem, AddI64::Text).expect("open");
        let numbers = numbers_with_bad_operands(&db);
        if flushed {
            db.flush().and_then(|()| db.compact()).expect("compactions keep malformed operands");
        }
        let forward = ["kay-1=5", "!kay-2", "kay-3=5", "!kay-4", "kay-5=5"];
        let mut backward = forward;
        backward.reverse();
        assert_eq!(numbers.iter().map(show).collect::<Vec<_>>(), forward);
        assert_eq!(numbers.iter().rev().map(show).collect::<Vec<_>>(), backward);
        assert_eq!(numbers.range("kay-2"..="kay-4").map(show).collect::<Vec<_>>(), forward[1..4]);
        for from_front in 0..=5 {
            let mut entries = numbers.iter();
            let mut seen: Vec<String> = entries.by_ref().take(from_front).map(show).collect();
            let rest: Vec<String> = entries.by_ref().rev().map(show).collect();
            seen.extend(rest.into_iter().rev());
            assert_eq!(seen, forward, "each key must come once, {from_front} of them from the front");
            assert!(entries.next().is_none() && entries.next_back().is_none());
        }
        assert_eq!(numbers.iter().keys_only().count(), 5, "keys need no operator");
        let error = numbers.get("kay-4").expect_err("bad operands");
        assert_eq!(error.key(), Some(&b"kay-4"[..]));
        let error = numbers.multi_get(["kay-1", "kay-2"]).expect_err("bad operands");
        assert_eq!(error.key(), Some(&b"kay-2"[..]));
    }
}

#[test]
fn a_cursor_goes_on_from_a_bad_operand_both_ways() {
    let mem = MemEnv::new(85);
    let db = with(&mem, AddI64::Text).expect("open");
    let numbers = numbers_with_bad_operands(&db);
    let mut cursor = numbers.cursor::<&str>(..).expect("cursor");
    for bad in ["kay-2", "kay-4"] {
        for arrive in 0..4 {
            let moved = match arrive {
                0 => cursor.seek(bad),
                1 => cursor.seek_before(format!("{bad}+")),
                2 => cursor.seek_before(bad).and_then(|_| cursor.next()),
                _ => cursor.seek(format!("{bad}+")).and_then(|_| cursor.prev()),
            };
            let error = moved.expect_err("a bad operand");
            assert_eq!((error.key(), cursor.entry()), (Some(bad.as_bytes()), None));
            let number: usize = bad[4..].parse().expect("a number");
            let is_forward = arrive % 2 == 0;
            let (step, next) =
                if is_forward { (cursor.next(), number + 1) } else { (cursor.prev(), number - 1) };
            assert!(step.expect("another key"));
            assert_eq!(cursor.key(), Some(format!("kay-{next}").as_bytes()));
            let back = if is_forward { cursor.prev() } else { cursor.next() };
            assert_eq!(back.expect_err("the same malformed operand").key(), Some(bad.as_bytes()));
            let through = if is_forward { cursor.prev() } else { cursor.next() };
            assert!(through.expect("a key on the other side"));
        }
    }
}

/// Two operators that join with different separators give different results, so they have different names.
#[test]
fn another_separator_is_another_operator() {
    let mem = MemEnv::new(3);
    let open = |separator: &str| {
        let operator = Arc::new(Append::new(separator));
        Db::builder("/s").env(mem.env()).merge_operator("tags", operator).open()
    };
    let db = open(",").expect("open");
    db.keyspace("tags").expect("keyspace").merge("k", "a").expect("merge");
    db.close().expect("close");
    let error = open(";").expect_err("another separator");
    assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
    assert!(error.to_string().contains("append:;"), "{error}");
    open(",").expect("the same separator");
    let names: std::collections::BTreeSet<String> = ["", ",", "\0", "\n", &"x".repeat(300), &"y".repeat(300)]
        .iter()
        .map(|separator| drumlin::MergeOperator::name(&Append::new(*separator)).to_owned())
        .collect();
    assert!(names.len() == 6 && names.iter().all(|name| name.len() <= 255), "{names:?}");
}

/// Options that make files small.
const TINY: &[(&str, &str)] = &[("memtable_bytes", "16KiB"), ("file_bytes", "16KiB")];

/// Merge operator that divides by the length of its operands. It panics if that is zero, unless it is fixed.
struct Divides(bool);

impl MergeOperator for Divides {
    fn name(&self) -> &str {
        "divides"
    }

    fn merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let length = operands.iter().map(|o| o.len()).sum::<usize>();
        let share = if self.0 { 100 / (length + 1) } else { 100 / length };
        Some(vec![share as u8; base.map_or(1, <[u8]>::len)])
    }
}

#[test]
fn an_operator_that_panics_fails_reads_alone_and_is_reported_once() {
    let mem = MemEnv::new(61);
    let reports = Arc::new(Heard::default());
    let open = |is_mended: bool| {
        let operator = Arc::new(Divides(is_mended));
        let builder = Db::builder("/s").env(mem.env()).merge_operator("n", operator);
        builder.listener(reports.clone()).open().expect("open")
    };
    let db = open(false);
    let numbers = db.keyspace_with("n", TINY).expect("keyspace");
    for key in ["k", "l", "m"] {
        numbers.put(key, "1").expect("put");
        db.flush().expect("flush");
    }
    // `k` has its operand and a base value in one memtable, `l` only an operand. The operator can combine that of
    // `m`.
    numbers.put("k", "22").expect("put");
    numbers.merge("k", "").expect("merge");
    numbers.merge("l", "").expect("merge");
    numbers.merge("m", "four").expect("merge");
    for _ in 0..2 {
        db.flush().expect("a flush keeps the operands");
        db.compact().expect("a compaction keeps the operands");
    }
    assert_eq!(*reports.0.lock(), ["n: divides"]);
    let panics = db.metrics().operator_panics;
    assert!((3..20).contains(&panics), "k in the flush, k and l in compactions: {panics}");
    let error = numbers.get("k").expect_err("it divides by zero");
    assert_eq!(error.kind(), ErrorKind::MergeFailed, "{error}");
    assert!(error.to_string().contains("\"divides\" panicked"), "{error}");
    assert_eq!(numbers.get("m").expect("get").as_deref(), Some(&[25][..]));
    // The panic does not fail recovery, which flushes the content of the log.
    numbers.merge("k", "").expect("merge");
    drop((numbers, db));
    let db = open(false);
    db.flush().expect("flush");
    drop(db);
    let db = open(true);
    db.compact().expect("the fixed operator can compact");
    let numbers = db.keyspace("n").expect("keyspace");
    assert_eq!(numbers.get("k").expect("get").as_deref(), Some(&[100, 100][..]));
    assert_eq!(numbers.get("l").expect("get").as_deref(), Some(&[100][..]));
    assert_eq!(db.metrics().operator_panics, 0);
}

#[test]
fn a_job_calls_an_operator_that_always_panics_a_few_times_only() {
    let mem = MemEnv::new(62);
    let operator = Arc::new(Divides(false));
    let db = Db::builder("/s").env(mem.env()).merge_operator("n", operator).open().expect("open");
    let numbers = db.keyspace("n").expect("keyspace");
    for key in 0..1000_u32 {
        numbers.put(key.to_be_bytes(), "1").expect("put");
        numbers.merge(key.to_be_bytes(), "").expect("merge");
    }
    db.flush().expect("flush");
    assert_eq!(db.metrics().operator_panics, 16);
    assert_eq!(db.metrics().entries_merged, 0);
}

/// Merge operator whose results are too long for a table. It panics when asked for its name once the store is open.
struct TooLong(Mutex<bool>);

impl MergeOperator for TooLong {
    fn name(&self) -> &str {
        assert!(!*self.0.lock(), "as the test wants");
        "too long"
    }

    fn merge(&self, key: &[u8], _: Option<&[u8]>, _: &[&[u8]]) -> Option<Vec<u8>> {
        match key {
            b"panics" => std::panic::panic_any(PanicsOnDrop),
            // These pages are never touched, so they take no memory.
            _ => Some(vec![0; u32::MAX as usize - key.len() * 10]),
        }
    }
}

/// Payload of a panic.
struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("as the test wants");
    }
}

#[test]
fn results_too_long_for_a_table_and_contrived_panics_fail_no_flush() {
    let operator = Arc::new(TooLong(Mutex::new(false)));
    let builder = Db::builder("/s").env(MemEnv::new(64).env()).merge_operator("n", operator.clone());
    let db = builder.open().expect("open");
    let numbers = db.keyspace("n").expect("keyspace");
    *operator.0.lock() = true;
    for len in [1, 10, 60, 100, 105, 110] {
        numbers.merge("k".repeat(len), "1").expect("merge");
    }
    numbers.merge("panics", "1").expect("merge");
    for _ in 0..2 {
        db.flush().expect("flush");
        db.compact().expect("compact");
    }
    assert_eq!(numbers.get("panics").expect_err("it panics").kind(), ErrorKind::MergeFailed);
    db.close().expect("close");
}
