//! Tests of calls that wait for background work that fails. A call fails only if the work that it waits for fails
//! repeatedly.

use drumlin::env::sync::Mutex;
use drumlin::env::{Effect, Fault, FileKind, MemEnv, Op, When};
use drumlin::{Db, ErrorKind, Event, EventListener};
use std::sync::Arc;

/// Error code `EIO`.
const IO_ERROR: i32 = 5;

#[test]
fn who_waits_for_a_flush_hears_that_it_fails() {
    let mem = MemEnv::new(9);
    let db = Db::builder("/store").env(mem.env()).open().expect("the store opens");
    let keyspace = db.keyspace("k").expect("a keyspace");
    keyspace.put("a", "1").expect("a put");
    let fault = Fault {
        op: Some(Op::Create),
        kind: Some(FileKind::Table),
        when: When::From(0),
        effect: Effect::Fail(IO_ERROR),
    };
    mem.inject(fault);
    assert_eq!(db.flush().expect_err("no table can be made").kind(), ErrorKind::Io);
    assert_eq!(keyspace.get("a").expect("reads go on").as_deref(), Some(&b"1"[..]));
    mem.clear_faults();
    db.flush().expect("the flush is repeated");
    db.wait_idle().expect("quiet");
}

#[test]
fn a_keyspace_whose_flushes_fail_holds_back_no_other() {
    let mem = MemEnv::new(63);
    let db = Db::builder("/s").env(mem.env()).open().expect("open");
    let long = db.keyspace_with("long", &[("compression", "none")]).expect("keyspace");
    let others = db.keyspace("o").expect("keyspace");
    mem.set_file_len_limit(FileKind::Table, 64 << 10);
    long.put("k", [7; 80 << 10]).expect("put");
    others.put("a", "1").expect("put");
    assert_eq!(long.flush().expect_err("the table is too long").kind(), ErrorKind::Io);
    others.flush().expect("only the other keyspace fails");
    others.put("b", "2").expect("put");
    others.compact::<&str>(..).expect("only the other keyspace fails");
    for result in [db.flush(), db.wait_idle()] {
        assert_eq!(result.expect_err("both keyspaces are waited for").kind(), ErrorKind::Io);
    }
    db.drop_keyspace("long").expect("drop");
    db.flush().expect("nothing fails any more");
    db.wait_idle().expect("idle");
}

#[test]
fn flushes_that_succeed_at_last_fail_nobody() {
    let mem = MemEnv::new(64);
    let db = Db::builder("/s").env(mem.env()).open().expect("open");
    for name in ["a", "b", "c", "d"] {
        db.keyspace(name).expect("keyspace").put("k", "v").expect("put");
    }
    for n in [0, 2, 4] {
        let (op, kind, effect) = (Some(Op::Create), Some(FileKind::Table), Effect::Fail(IO_ERROR));
        mem.inject(Fault { op, kind, when: When::Nth(n), effect });
    }
    db.flush().expect("each flush was repeated, and succeeded");
    assert_eq!(db.metrics().background_errors, 3);
    db.wait_idle().expect("idle");
}

#[test]
fn a_drop_whose_sync_fails_leaves_the_keyspace_readable() {
    let mem = MemEnv::new(10);
    let db = Db::builder("/store").env(mem.env()).open().expect("the store opens");
    let keyspace = db.keyspace("k").expect("a keyspace");
    keyspace.put("a", "1").expect("a put");
    mem.inject(Fault {
        op: Some(Op::SyncData),
        kind: Some(FileKind::Log),
        when: When::From(0),
        effect: Effect::Fail(IO_ERROR),
    });
    assert_eq!(db.drop_keyspace("k").expect_err("the log cannot be synced").kind(), ErrorKind::Poisoned);
    assert_eq!(keyspace.get("a").expect("reads go on").as_deref(), Some(&b"1"[..]));
    assert_eq!(db.keyspaces(), ["k"]);
}

/// A caller that waits for compactions does not wait for the back-off after earlier failures.
#[test]
fn who_waits_for_compactions_ends_their_back_off() {
    let mem = MemEnv::new(75);
    let db = Db::builder("/s").env(mem.env()).open().expect("open");
    let keys = db.keyspace("k").expect("keyspace");
    for round in 0..4u32 {
        (0..500u32).for_each(|n| _ = keys.put(n.to_be_bytes(), round.to_be_bytes()).expect("put"));
        db.flush().expect("flush");
    }
    let effect = Effect::Fail(IO_ERROR);
    mem.inject(Fault { op: Some(Op::Create), kind: Some(FileKind::Table), when: When::From(0), effect });
    assert_eq!(keys.compact::<&str>(..).expect_err("no table can be made").kind(), ErrorKind::Io);
    mem.clear_faults();
    let clock = mem.env().clock().clone();
    let began = clock.monotonic_micros();
    db.wait_idle().expect("idle");
    assert!(clock.monotonic_micros() - began < 500_000, "{} us", clock.monotonic_micros() - began);
}

/// Keeps all events.
#[derive(Default)]
struct RecordedEvents(Mutex<Vec<Event>>);

impl EventListener for RecordedEvents {
    fn on_event(&self, event: &Event) {
        self.0.lock().push(event.clone());
    }
}

#[test]
fn listeners_are_told_of_stops_flushes_and_compactions() {
    let (mem, told) = (MemEnv::new(73), Arc::new(RecordedEvents::default()));
    let builder = Db::builder("/s").env(mem.env()).set("memory_budget", "8MiB").expect("an option");
    let db = builder.listener(told.clone()).open().expect("open");
    let keys = db.keyspace_with("k", &[("compaction", "leveling:4")]).expect("keyspace");
    for n in 0..20_000u32 {
        keys.put(n.wrapping_mul(2_654_435_761).to_be_bytes(), [7; 1000]).expect("put");
    }
    // Memtables fill up while no table can be made.
    let effect = Effect::Fail(IO_ERROR);
    mem.inject(Fault { op: Some(Op::Create), kind: Some(FileKind::Table), when: When::From(0), effect });
    let refused = (0..20_000u32).find_map(|n| keys.put(n.to_be_bytes(), [7; 1000]).err());
    assert_eq!(refused.expect("memtables are full").kind(), ErrorKind::Io);
    mem.clear_faults();
    db.flush().expect("flush");
    db.compact().expect("compact");
    let events = told.0.lock().clone();
    let (mut stopped, mut stops, mut flushed, mut written) = ([false; 2], 0, 0, 0);
    for event in &events {
        match event {
            Event::WritesStopped { cause } => {
                stops += 1;
                assert!(!std::mem::replace(&mut stopped[*cause as usize], true), "it was stopped already");
            }
            Event::WritesResumed { cause, .. } => {
                assert!(std::mem::take(&mut stopped[*cause as usize]), "it was not stopped");
            }
            Event::Flushed { keyspace, bytes } if keyspace == "k" => flushed += bytes,
            Event::Compacted { keyspace, bytes_written, bytes_read, .. } if keyspace == "k" => {
                assert!(*bytes_read > 0);
                written += bytes_written;
            }
            _ => {}
        }
    }
    let metrics = db.metrics();
    assert!(stops > 0 && stopped == [false; 2], "{stops} stops");
    assert_eq!(stops, metrics.stalls_memory + metrics.stalls_runs);
    assert_eq!(flushed, metrics.flush_bytes_written);
    assert_eq!(written, metrics.compaction_bytes_written);
}
