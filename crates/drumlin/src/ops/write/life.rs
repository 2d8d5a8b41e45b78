//! Tests of a commit between its reservation and its end: drops, panics and closes at that time.

use super::*;
use crate::api::db::Db;
use crate::api::keyspace::Keyspace;
use drumlin_env::sync::atomic::{AtomicBool, Ordering};
use drumlin_env::{FileKind, MemEnv, Op, TempDir};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

fn reserve(keys: &Keyspace) -> Result<Reserved> {
    let keyspaces = [keys.state.clone()];
    let request = Request {
        keyspaces: &keyspaces,
        operations: 1,
        record_len: Some(format::record_len(9)),
        only_deletes: false,
    };
    keys.store.commit_lock.reserve(&request, &keys.store.publisher, || keys.store.files.fresh_number())
}

fn end(keys: &Keyspace, reserved: &Reserved) -> Result<()> {
    ReservedCommit { store: &keys.store, reserved, has_ended: false }.end(Ok(())).map(drop)
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a commit ends on another thread")]
fn a_drop_waits_for_the_commits_that_have_their_place() {
    let mem = MemEnv::new(7);
    let db = Db::builder("/s").env(mem.env()).open().expect("open");
    let keys = db.keyspace("k").expect("keyspace");
    let reserved = reserve(&keys).expect("a place");
    let (has_ended, is_dropped) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Runs until the drop waits, or until it has wrongly completed.
            while !keys.store.publisher.is_awaited() && !is_dropped.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            has_ended.store(true, Ordering::SeqCst);
            end(&keys, &reserved).expect("published");
        });
        db.drop_keyspace("k").expect("drop");
        let waited = has_ended.load(Ordering::SeqCst);
        is_dropped.store(true, Ordering::SeqCst);
        assert!(waited, "the drop did not wait: a commit may copy into a recycled segment");
    });
    // A throttled writer reaches this point when it saw the keyspace before the drop.
    let late = reserve(&keys).err().expect("the keyspace is dropped");
    assert_eq!(late.kind(), ErrorKind::KeyspaceDropped, "{late}");
}

#[test]
fn a_write_that_panics_ends_and_poisons() {
    let mem = MemEnv::new(8);
    let db = Db::builder("/s").env(mem.env()).open().expect("open");
    let keys = db.keyspace("k").expect("keyspace");
    keys.put("first", "1").expect("put");
    mem.record(|call| {
        assert!(call.site.op != Op::Write || call.site.kind != Some(FileKind::Log), "as the test wants");
        false
    });
    assert!(catch_unwind(AssertUnwindSafe(|| keys.put("second", "2"))).is_err());
    mem.record(|_| false);
    let active = keys.state.active();
    assert!(active.is_complete(), "a flush would wait for the failed write");
    keys.store.publisher.wait_ended().expect("no commit is in progress");
    assert_eq!(keys.put("third", "3").expect_err("the log has a hole").kind(), ErrorKind::Poisoned);
    assert_eq!(keys.get("first").expect("get").as_deref(), Some(&b"1"[..]));
    assert_eq!(db.close().expect_err("it is poisoned").kind(), ErrorKind::Poisoned);
    drop(keys);
    let db = Db::builder("/s").env(mem.env()).open().expect("open again");
    assert_eq!(db.keyspace("k").expect("keyspace").iter().count(), 1);
}

#[test]
fn a_write_that_panics_beside_a_poisoning_stays_invisible() {
    let mem = MemEnv::new(9);
    let db = Db::builder("/s").env(mem.env()).open().expect("open");
    let keys = db.keyspace("k").expect("keyspace");
    let visible = keys.put("first", "1").expect("put");
    let [second, third] = [(); 2].map(|()| reserve(&keys).expect("a place"));
    // As a thread does that is about to tell the publisher.
    assert!(keys.store.health.poison(&Error::new(ErrorKind::Io, "a disk")));
    let panics = || {
        let _under_way = ReservedCommit { store: &keys.store, reserved: &second, has_ended: false };
        panic!("as the test wants");
    };
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert_eq!(db.visible_seq(), visible, "half of a write is visible");
    end(&keys, &third).expect_err("nothing is published behind the write that panicked");
    assert_eq!(db.visible_seq(), visible);
    keys.store.publisher.wait_ended().expect("no commit is in progress");
}

#[test]
fn a_directory_stays_locked_while_a_write_goes_on() {
    let dir = TempDir::new("drumlin-life").expect("a temporary directory");
    let path = dir.path().join("s");
    let db = Db::open(&path).expect("open");
    let keys = db.keyspace("k").expect("keyspace");
    keys.put("first", "1").expect("put");
    let reserved = reserve(&keys).expect("a place");
    keys.store.publisher.set_longest(Duration::from_millis(1));
    let error = db.close().expect_err("a write goes on");
    assert!(error.to_string().contains("stays locked"), "{error}");
    assert_eq!(Db::open(&path).expect_err("it may write to the log").kind(), ErrorKind::Locked);
    end(&keys, &reserved).expect("published");
    drop(keys);
    let db = Db::open(&path).expect("open again");
    assert_eq!(db.keyspace("k").expect("keyspace").iter().count(), 1);
}

/// Uses the store in a thread-local destructor, after the engine's own thread locals are gone.
struct UseAtExit(Keyspace);

impl Drop for UseAtExit {
    fn drop(&mut self) {
        self.0.put("late", "2").expect("put");
        self.0.merge("late", "3").expect_err("there is no operator");
        assert_eq!(self.0.get("early").expect("get").as_deref(), Some(&[1; 3000][..]));
        assert_eq!(self.0.iter().count(), 2);
    }
}

thread_local! {
    static LAST: RefCell<Option<UseAtExit>> = const { RefCell::new(None) };
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the destructors are those of another thread")]
fn a_thread_may_use_the_store_to_its_very_end() {
    let dir = TempDir::new("drumlin-life").expect("a temporary directory");
    let db = Db::open(dir.path().join("s")).expect("open");
    let keys = db.keyspace_with("k", &[("compression", "lz4")]).expect("keyspace");
    let used = keys.clone();
    let thread = std::thread::spawn(move || {
        LAST.with_borrow_mut(|last| *last = Some(UseAtExit(used.clone())));
        // Creates the engine's thread locals, which are destroyed before the one above.
        used.put("early", [1; 3000]).expect("put");
        used.flush().expect("flush");
        assert!(used.contains_key("early").expect("get"));
    });
    thread.join().expect("no panic");
    assert_eq!(keys.get("late").expect("get").as_deref(), Some(&b"2"[..]));
}

/// A reservation that panics concerns its own commit only, whichever thread makes it.
#[test]
#[expect(clippy::disallowed_methods, reason = "commits of several threads")]
fn a_reservation_that_panics_stops_no_other_commit() {
    for round in 0..10 {
        let mem = MemEnv::threaded(round);
        let builder = Db::builder("/s").env(mem.env());
        let builder = builder.set("memory_budget", "8MiB").and_then(|b| b.set("log_segment_bytes", "64KiB"));
        let db = builder.and_then(crate::Builder::open).expect("open");
        let keys = db.keyspace("k").expect("keyspace");
        keys.put("first", "1").expect("put");
        mem.record(|call| {
            let begins = call.site.op == Op::Create && call.site.kind == Some(FileKind::Log);
            assert!(!begins, "as the test wants");
            false
        });
        let locked = keys.store.commit_lock.state.lock();
        // The second commit needs a new segment.
        let lens = [10_usize, 200_000, 20];
        let commits = lens.map(|len| {
            let keys = keys.clone();
            std::thread::spawn(move || {
                catch_unwind(AssertUnwindSafe(|| keys.put(len.to_be_bytes(), vec![7; len])))
                    .is_ok_and(|put| put.is_ok())
            })
        });
        std::thread::sleep(Duration::from_micros(100 * round));
        drop(locked);
        let ended = commits.map(|commit| commit.join().expect("caught"));
        assert_eq!(ended, [true, false, true], "round {round}");
        mem.record(|_| false);
        keys.put("later", "3").expect("put");
        assert!(keys.state.active().is_complete());
        assert_eq!(keys.iter().count(), 4);
        db.close().expect("close");
        drop(keys);
        let db = Db::builder("/s").env(mem.env()).open().expect("open again");
        assert_eq!(db.keyspace("k").expect("keyspace").iter().count(), 4);
    }
}

/// A reservation that panics after it took log space leaves a hole, so the store is poisoned.
#[test]
fn a_reservation_that_leaves_a_hole_poisons_the_store() {
    let mem = MemEnv::new(11);
    let db = Db::builder("/s").env(mem.env()).open().expect("open");
    let keys = db.keyspace("k").expect("keyspace");
    keys.put("first", "1").expect("put");
    let panics = || {
        let _reserving = Reserving(&keys.store);
        keys.store.publisher.fail(Error::new(ErrorKind::Bug, "a hole").with_kind(ErrorKind::Poisoned));
        panic!("as the test wants");
    };
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert_eq!(keys.put("second", "2").expect_err("the log has a hole").kind(), ErrorKind::Poisoned);
    assert_eq!(db.flush().expect_err("it is poisoned").kind(), ErrorKind::Poisoned);
    assert_eq!(db.close().expect_err("it is poisoned").kind(), ErrorKind::Poisoned);
}

/// A write that was admitted before the log failed reserves no place in it.
#[test]
fn nothing_is_reserved_after_the_log_failed() {
    let mem = MemEnv::new(12);
    let db = Db::builder("/s").env(mem.env()).open().expect("open");
    let keys = db.keyspace("k").expect("keyspace");
    keys.put("first", "1").expect("put");
    let position = || keys.store.commit_lock.state.lock().log.position();
    let before = position();
    keys.store.publisher.fail(Error::new(ErrorKind::Io, "a sync failed"));
    assert_eq!(reserve(&keys).err().expect("the log has failed").kind(), ErrorKind::Poisoned);
    assert_eq!(position(), before);
}

/// A write that waits because too many are under way waits for other commits.
#[test]
#[expect(clippy::disallowed_methods, reason = "commits of several threads")]
fn a_wait_for_room_among_the_commits_is_counted() {
    let mem = MemEnv::threaded(10);
    let db = Db::builder("/s").env(mem.env()).open().expect("open");
    let keys = db.keyspace("k").expect("keyspace");
    let under_way: Vec<Reserved> =
        std::iter::from_fn(|| keys.store.publisher.has_room().then(|| reserve(&keys).expect("a place")))
            .collect();
    std::thread::scope(|scope| {
        let put = scope.spawn(|| keys.put("waits", "1").expect("put"));
        while !keys.store.publisher.is_awaited() {
            std::thread::yield_now();
        }
        mem.advance(300_000);
        under_way.iter().for_each(|reserved| end(&keys, reserved).expect("published"));
        put.join().expect("no panic");
    });
    assert!(db.metrics().commit_wait_longest_micros >= 300_000, "{:?}", db.metrics());
}
