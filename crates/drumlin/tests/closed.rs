//! Tests of handles to a closed store. An operation that begins after close fails with `Closed`. Methods that cannot
//! fail return the state at close. Iterators and cursors that were open can still read their pinned view.
//!
//! The tables below contain every public method of the handles. The tests read the list of methods from the source
//! files, so a method that is in no table fails the test.

#![expect(clippy::disallowed_methods, reason = "the list of methods is read from the sources")]

use drumlin::env::sync::{Arc, Mutex};
use drumlin::env::{Env, MemEnv, TempDir};
use drumlin::{
    Batch, Db, Durability, ErrorKind, Event, EventListener, Iter, Keyspace, RangeCursor, Snapshot,
};
use std::collections::BTreeSet;
use std::path::Path;

/// Handles to a store that another handle has closed.
struct Handles {
    db: Db,
    keys: Keyspace,
    snapshot: Snapshot,
}

/// Call that can fail.
type Fallible = Box<dyn FnOnce(&Handles) -> drumlin::Result<()>>;

/// Expected behavior of a method on a closed store.
enum Does {
    /// The method fails with `Closed`.
    Fails(Fallible),
    /// The method cannot fail.
    Tells(Box<dyn FnOnce(&Handles)>),
}

fn fails<T>(call: impl FnOnce(&Handles) -> drumlin::Result<T> + 'static) -> Does {
    Does::Fails(Box::new(move |handles| call(handles).map(drop)))
}

fn tells<T>(call: impl FnOnce(&Handles) -> T + 'static) -> Does {
    Does::Tells(Box::new(move |handles| drop(call(handles))))
}

/// Returns the error of an iterator that begins after close. Checks that the iterator ends after it, at both ends.
fn first(entries: Iter) -> drumlin::Result<()> {
    let mut entries = entries;
    let error = entries.next().expect("an error, not the end").expect_err("the store is closed");
    assert!(entries.next().is_none() && entries.next_back().is_none(), "an error is shown once");
    Err(error)
}

fn all() -> std::ops::RangeFull {
    ..
}

fn of_db() -> Vec<(&'static str, Does)> {
    vec![
        ("keyspace", fails(|h| h.db.keyspace("k"))),
        ("keyspace_with", fails(|h| h.db.keyspace_with("new", &[("file_bytes", "8KiB")]))),
        ("open_keyspace", fails(|h| h.db.open_keyspace("k"))),
        ("create_keyspace", fails(|h| h.db.create_keyspace("new", &[]))),
        ("drop_keyspace", fails(|h| h.db.drop_keyspace("k"))),
        ("rename_keyspace", fails(|h| h.db.rename_keyspace("k", "l"))),
        ("write", fails(|h| h.db.write(batch(&h.keys)))),
        ("write_with", fails(|h| h.db.write_with(Batch::new(), Durability::Sync))),
        ("sync", fails(|h| h.db.sync())),
        ("flush", fails(|h| h.db.flush())),
        ("compact", fails(|h| h.db.compact())),
        ("wait_idle", fails(|h| h.db.wait_idle())),
        ("checkpoint", fails(|h| h.db.checkpoint("/copy"))),
        ("verify", fails(|h| h.db.verify())),
        ("set_option", fails(|h| h.db.set_option("durability", "sync"))),
        ("step_background", fails(|h| h.db.step_background(10))),
        ("check_writable", fails(|h| h.db.check_writable())),
        ("path", tells(|h| assert_eq!(h.db.path(), Path::new("/s")))),
        ("close", tells(|h| h.db.clone().close().expect("closing again does nothing"))),
        ("keyspaces", tells(|h| assert_eq!(h.db.keyspaces(), ["k"]))),
        ("snapshot", tells(|h| h.db.snapshot())),
        ("visible_seq", tells(|h| assert_eq!(h.db.visible_seq(), 3))),
        ("durable_seq", tells(|h| assert_eq!(h.db.durable_seq(), 3))),
        ("recovered_seq", tells(|h| assert_eq!(h.db.recovered_seq(), 0))),
        ("metrics", tells(|h| assert_eq!(h.db.metrics().snapshots, 1))),
        ("tree", tells(|h| assert_eq!(h.db.tree().len(), 1))),
        ("explain", tells(|h| h.db.explain())),
        ("replay_decisions", tells(|h| h.db.replay_decisions())),
        ("options", tells(|h| h.db.options())),
    ]
}

fn of_keyspace() -> Vec<(&'static str, Does)> {
    vec![
        ("put", fails(|h| h.keys.put("a", "1"))),
        ("put_with", fails(|h| h.keys.put_with("a", "1", Durability::None))),
        ("put_with_ttl", fails(|h| h.keys.put_with_ttl("a", "1", None))),
        ("merge_with_ttl", fails(|h| h.keys.merge_with_ttl("a", "1", None))),
        ("clear", fails(|h| h.keys.clear())),
        ("delete", fails(|h| h.keys.delete("a"))),
        ("delete_with", fails(|h| h.keys.delete_with("a", Durability::None))),
        ("delete_range", fails(|h| h.keys.delete_range("a".."b"))),
        ("merge", fails(|h| h.keys.merge("a", "1"))),
        ("get", fails(|h| h.keys.get("a"))),
        ("contains_key", fails(|h| h.keys.contains_key("a"))),
        ("probed_tables", fails(|h| h.keys.probed_tables("a"))),
        ("multi_get", fails(|h| h.keys.multi_get(["a", "b"]))),
        ("range", fails(|h| first(h.keys.range("a".."z")))),
        ("prefix", fails(|h| first(h.keys.prefix("a")))),
        ("iter", fails(|h| first(h.keys.iter()))),
        ("cursor", fails(|h| h.keys.cursor::<&str>(all()))),
        ("set_policy", fails(|h| h.keys.set_policy("tiering:4"))),
        ("set_option", fails(|h| h.keys.set_option("file_bytes", "8KiB"))),
        ("delete_range_with", fails(|h| h.keys.delete_range_with::<&str>(all(), Durability::Sync))),
        ("merge_with", fails(|h| h.keys.merge_with("a", "1", Durability::Sync))),
        ("first_key_value", fails(|h| h.keys.first_key_value())),
        ("last_key_value", fails(|h| h.keys.last_key_value())),
        ("is_empty", fails(|h| h.keys.is_empty())),
        ("len", fails(|h| h.keys.len())),
        ("approximate_len", fails(|h| h.keys.approximate_len())),
        ("approximate_size", fails(|h| h.keys.approximate_size::<&str>(all()))),
        ("flush", fails(|h| h.keys.flush())),
        ("compact", fails(|h| h.keys.compact::<&str>(all()))),
        ("name", tells(|h| assert_eq!(h.keys.name(), "k"))),
        ("metrics", tells(|h| assert_eq!(h.keys.metrics().files, 0))),
        ("policy", tells(|h| assert!(h.keys.policy().starts_with("arce")))),
        ("policy_state", tells(|h| h.keys.policy_state())),
        ("options", tells(|h| h.keys.options())),
    ]
}

fn of_snapshot() -> Vec<(&'static str, Does)> {
    vec![
        ("get", fails(|h| h.snapshot.get(&h.keys, "a"))),
        ("contains_key", fails(|h| h.snapshot.contains_key(&h.keys, "a"))),
        ("iter", fails(|h| first(h.snapshot.iter(&h.keys)))),
        ("multi_get", fails(|h| h.snapshot.multi_get(&h.keys, ["a"]))),
        ("range", fails(|h| first(h.snapshot.range::<&str>(&h.keys, all())))),
        ("prefix", fails(|h| first(h.snapshot.prefix(&h.keys, "a")))),
        ("cursor", fails(|h| h.snapshot.cursor::<&str>(&h.keys, all()))),
        ("first_key_value", fails(|h| h.snapshot.first_key_value(&h.keys))),
        ("last_key_value", fails(|h| h.snapshot.last_key_value(&h.keys))),
        ("is_empty", fails(|h| h.snapshot.is_empty(&h.keys))),
        ("seq", tells(|h| assert_eq!(h.snapshot.seq(), 3))),
    ]
}

/// Method of a cursor that was open when the store was closed. The function returns the key at which it ends.
type Move = (&'static str, fn(&mut RangeCursor) -> Option<String>);

fn key(cursor: &RangeCursor) -> Option<String> {
    cursor.key().map(|key| String::from_utf8_lossy(key).into_owned())
}

const OF_CURSOR: &[Move] = &[
    ("seek_first", |c| c.seek_first().expect("pinned").then(|| key(c)).flatten()),
    ("next", |c| c.next().expect("pinned").then(|| key(c)).flatten()),
    ("seek_last", |c| c.seek_last().expect("pinned").then(|| key(c)).flatten()),
    ("prev", |c| c.prev().expect("pinned").then(|| key(c)).flatten()),
    ("seek", |c| c.seek("c").expect("pinned").then(|| key(c)).flatten()),
    ("seek_before", |c| c.seek_before("b").expect("pinned").then(|| key(c)).flatten()),
    ("entry", |c| c.entry().map(|(key, _)| String::from_utf8_lossy(key).into_owned())),
    ("key", |c| key(c)),
    ("value", |c| (c.value() == Some(b"1")).then(|| key(c)).flatten()),
];

fn batch(keys: &Keyspace) -> Batch {
    let mut batch = Batch::new();
    ["a", "b", "c"].iter().for_each(|key| batch.put(keys, key, "1"));
    batch
}

/// Creates a store with three keys and closes it through another handle.
fn closed(mem: &MemEnv) -> Handles {
    let db = Db::builder("/s").env(mem.env()).open().expect("open");
    let keys = db.keyspace("k").expect("keyspace");
    db.write(batch(&keys)).expect("write");
    let handles = Handles { snapshot: db.snapshot(), db: db.clone(), keys };
    db.close().expect("close");
    handles
}

/// Returns the public methods of `handle` in the source files, without constructors.
fn methods(handle: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the sources are there") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("text");
                let start = format!("\nimpl {handle} {{\n");
                for block in text.split(&start).skip(1) {
                    let block = block.split("\n}\n").next().unwrap_or_default();
                    // A method takes `self`. Its arguments may be on separate lines.
                    for method in block.split("\n    pub fn ").skip(1) {
                        let head = method.split('{').next().unwrap_or_default();
                        let name = head.split(['(', '<']).next().unwrap_or_default();
                        let takes_self = ["(self", "(&self", "(&mut self", " self,", "&self,", "&mut self,"];
                        if takes_self.iter().any(|form| head.contains(form)) {
                            found.insert(name.to_owned());
                        }
                    }
                }
            }
        }
    }
    assert!(!found.is_empty(), "no methods of {handle} were found");
    found
}

fn names<T>(table: &[(&'static str, T)]) -> BTreeSet<String> {
    table.iter().map(|(name, _)| (*name).to_owned()).collect()
}

#[test]
fn every_operation_that_begins_after_close_fails_with_closed() {
    for (handle, table) in [("Db", of_db()), ("Keyspace", of_keyspace()), ("Snapshot", of_snapshot())] {
        assert_eq!(names(&table), methods(handle), "the table of {handle} must list each public method");
        for (name, does) in table {
            let mem = MemEnv::new(1);
            let handles = closed(&mem);
            let (files, calls) = (mem.files(), mem.io_index());
            match does {
                Does::Tells(call) => call(&handles),
                Does::Fails(call) => {
                    let error = call(&handles).expect_err(name);
                    assert_eq!(error.kind(), ErrorKind::Closed, "{handle}::{name}: {error}");
                    assert_eq!(mem.io_index(), calls, "{handle}::{name} did I/O");
                }
            }
            assert_eq!(mem.files(), files, "{handle}::{name} made or removed files");
            // The store can be opened again, and its contents are those at close.
            let again = Db::builder("/s").env(mem.env()).open().expect("open again");
            assert_eq!(again.keyspace("k").expect("keyspace").iter().count(), 3, "{handle}::{name}");
        }
    }
}

/// Listener that keeps the numbers of each `Closed` event.
#[derive(Default)]
struct Ends(Mutex<Vec<(u64, u64)>>);

impl EventListener for Ends {
    fn on_event(&self, event: &Event) {
        if let Event::Closed { iterators, snapshots } = event {
            self.0.lock().push((*iterators, *snapshots));
        }
    }
}

const KEYS: u32 = 20_000;
/// Upper bound on the steps of an iterator, above the number of entries.
const END: usize = KEYS as usize + 1;

/// Checks that iterators and cursors that were open at close still read their pinned view. One of them has not made a
/// step before. Meanwhile the store is opened again and compactions remove its files.
fn pinned_views(env: &Env, path: &Path) {
    let ends = Arc::new(Ends::default());
    let open = || {
        let builder = Db::builder(path).env(env.clone()).listener(ends.clone());
        builder.set("memory_budget", "8MiB").and_then(|b| b.open()).expect("open")
    };
    let db = open();
    let small = [("file_bytes", "64KiB"), ("memtable_bytes", "256KiB")];
    let keys = db.keyspace_with("k", &small).expect("keyspace");
    let fill = |keys: &Keyspace, value: &[u8]| {
        for key in 0..KEYS {
            keys.put(key.to_be_bytes(), value).expect("put");
        }
    };
    fill(&keys, &[1; 100]);
    db.flush().expect("flush");
    keys.put(5_u32.to_be_bytes(), "in memory").expect("put");
    let (mut begun, untouched, mut both) = (keys.iter(), keys.iter(), keys.iter());
    let mut cursor = keys.cursor::<&[u8]>(all()).expect("a cursor");
    begun.next().expect("an entry").expect("no error");
    both.next_back().expect("an entry").expect("no error");
    let snapshot = db.snapshot();
    assert_eq!((db.metrics().iterators, db.metrics().snapshots), (4, 1));
    drop(keys);
    db.close().expect("close");
    assert_eq!(*ends.0.lock(), [(4, 1)]);
    // The next open changes all values and removes the files that held the old ones.
    let db = open();
    let keys = db.keyspace("k").expect("keyspace");
    fill(&keys, &[2; 100]);
    db.compact().expect("compact");
    db.wait_idle().expect("idle");
    let old = |entries: Vec<drumlin::Result<(drumlin::Slice, drumlin::Slice)>>, wanted: u32| {
        assert_eq!(entries.len(), wanted as usize);
        for entry in entries {
            let (key, value) = entry.expect("a pinned view");
            let is_late = *key == 5_u32.to_be_bytes();
            assert_eq!(&*value, if is_late { &b"in memory"[..] } else { &[1; 100][..] }, "{key:?}");
        }
    };
    old(begun.take(END).collect(), KEYS - 1);
    old(untouched.rev().take(END).collect(), KEYS);
    old(both.take(END).collect(), KEYS - 1);
    let mut seen = 0;
    let mut more = cursor.seek_first().expect("a pinned view");
    while more {
        seen += u32::from(cursor.entry().is_some_and(|(_, value)| value != [2; 100]));
        more = cursor.next().expect("a pinned view");
    }
    assert_eq!(seen, KEYS);
    drop((cursor, snapshot, keys));
    db.close().expect("close");
    assert_eq!(*ends.0.lock(), [(4, 1), (0, 0)]);
}

#[test]
fn what_was_open_keeps_its_view_in_simulation() {
    let mem = MemEnv::new(2);
    pinned_views(&mem.env(), Path::new("/s"));
    assert_eq!(mem.order_violations(), Vec::<String>::new());
}

#[test]
fn what_was_open_keeps_its_view_on_real_files() {
    let dir = TempDir::new("drumlin-closed").expect("a directory");
    pinned_views(&Env::os(), &dir.path().join("s"));
}

#[test]
fn each_move_of_a_cursor_goes_on_after_close() {
    let listed: BTreeSet<String> = OF_CURSOR.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(listed, methods("RangeCursor"), "the table must list each method");
    assert_eq!(
        methods("Iter"),
        BTreeSet::from(["keys_only".to_owned()]),
        "methods of an iterator besides its steps"
    );
    let mem = MemEnv::new(3);
    let db = Db::builder("/s").env(mem.env()).open().expect("open");
    let keys = db.keyspace("k").expect("keyspace");
    db.write(batch(&keys)).expect("write");
    let mut cursor = keys.cursor::<&str>(all()).expect("a cursor");
    let entries = keys.iter();
    db.close().expect("close");
    let found: Vec<_> = OF_CURSOR.iter().map(|(_, go)| go(&mut cursor)).collect();
    let wanted = ["a", "b", "c", "b", "c", "a", "a", "a", "a"].map(|key| Some(key.to_owned()));
    assert_eq!(found, wanted);
    assert!(entries.keys_only().all(|entry| entry.expect("a pinned view").1.is_empty()));
}

#[test]
fn what_was_open_keeps_its_view_of_a_dropped_keyspace() {
    let mem = MemEnv::new(4);
    let db = Db::builder("/s").env(mem.env()).open().expect("open");
    let keys = db.keyspace("k").expect("keyspace");
    db.write(batch(&keys)).expect("write");
    db.flush().expect("flush");
    keys.put("d", "1").expect("put");
    let (entries, mut cursor) = (keys.iter(), keys.cursor::<&str>(all()).expect("a cursor"));
    db.drop_keyspace("k").expect("drop");
    db.step_background(1000).expect("steps");
    assert_eq!(entries.map_while(Result::ok).count(), 4, "a pinned view");
    assert!(cursor.seek("c").expect("a pinned view"));
    let kind = first(keys.iter()).expect_err("it was dropped").kind();
    assert_eq!(kind, ErrorKind::KeyspaceDropped);
}

#[test]
fn an_open_that_cannot_start_its_threads_lets_go_of_the_directory() {
    for threads in 0..8 {
        let mem = MemEnv::threaded(5);
        let open = || Db::builder("/s").env(mem.env()).set("compaction_slots", "2").and_then(|b| b.open());
        open().expect("open").keyspace("k").expect("keyspace").put("a", "1").expect("put");
        mem.limit_threads(threads);
        if let Err(error) = open() {
            assert_eq!(error.kind(), ErrorKind::Io, "{error}");
            assert!(error.to_string().contains("cannot start thread"), "{error}");
        }
        mem.limit_threads(None);
        let db = open().unwrap_or_else(|error| panic!("after {threads} threads: {error}"));
        assert_eq!(db.keyspace("k").expect("keyspace").iter().count(), 1);
    }
}

/// An iterator that was opened before a compaction and a drop reads the tables of its view, which the next open
/// removes.
#[test]
fn pinned_views_outlive_compaction_drop_and_reopening() {
    let mem = MemEnv::new(23);
    let builder = || Db::builder("/s").env(mem.env());
    let db = builder().open().expect("open");
    let [kept, gone] = ["kept", "gone"].map(|name| db.keyspace(name).expect("a keyspace"));
    for keys in [&kept, &gone] {
        for number in 0..500u32 {
            keys.put(number.to_be_bytes(), [1; 100]).expect("put");
        }
        keys.flush().expect("flush");
    }
    let (first, second) = (kept.iter(), gone.iter());
    kept.delete_range::<&[u8]>(..).expect("delete");
    kept.compact::<&[u8]>(..).expect("compact");
    db.drop_keyspace("gone").expect("drop");
    drop((kept, gone));
    db.close().expect("close");
    let again = builder().open().expect("open again");
    again.wait_idle().expect("idle");
    for iter in [first, second] {
        let read = iter.inspect(|entry| assert!(entry.is_ok(), "{entry:?}")).count();
        assert_eq!(read, 500);
    }
}

/// Closes a store at the first event that it waits for.
struct Closes {
    at: fn(&drumlin::Event) -> bool,
    db: drumlin_env::sync::Mutex<Option<Db>>,
}

impl Closes {
    fn at(at: fn(&drumlin::Event) -> bool) -> std::sync::Arc<Closes> {
        std::sync::Arc::new(Closes { at, db: drumlin_env::sync::Mutex::new(None) })
    }
}

impl drumlin::EventListener for Closes {
    fn on_event(&self, event: &drumlin::Event) {
        if (self.at)(event)
            && let Some(db) = self.db.lock().take()
        {
            let _ = db.close();
        }
    }
}

/// A flush tells its end on its own thread. A listener that closes the store there does not wait for that thread.
#[test]
fn a_listener_may_close_the_store_when_a_flush_ends() {
    let dir = drumlin::env::TempDir::new("drumlin-close-flush").expect("a directory");
    let path = dir.path().join("store");
    let listener = Closes::at(|event| matches!(event, drumlin::Event::Flushed { .. }));
    let db = Db::builder(&path).listener(listener.clone()).open().expect("open");
    let keys = db.keyspace("k").expect("a keyspace");
    keys.put("key", "value").expect("put");
    *listener.db.lock() = Some(db.clone());
    // The flush ends, or the close comes first.
    let flushed = db.flush();
    drop(keys);
    let closed = db.close();
    drop(listener);
    let again = Db::open(&path).unwrap_or_else(|error| panic!("{flushed:?}; {closed:?}; {error}"));
    assert_eq!(again.keyspace("k").expect("k").get("key").expect("get").as_deref(), Some(&b"value"[..]));
}

/// A listener runs on a background thread, which cannot wait for its own end.
#[test]
fn a_listener_may_close_the_store() {
    let dir = drumlin::env::TempDir::new("drumlin-close").expect("a directory");
    let path = dir.path().join("store");
    let listener = Closes::at(|event| matches!(event, drumlin::Event::BackgroundError { .. }));
    let builder = Db::builder(&path).set("disk_budget", "8MiB").expect("an option");
    let builder = builder.set("log_segment_bytes", "64KiB").expect("an option");
    let builder = builder.set("memory_budget", "8MiB").expect("an option");
    let db = builder.listener(listener.clone()).open().expect("open");
    let keys = db.keyspace_with("k", &[("compression", "none")]).expect("a keyspace");
    *listener.db.lock() = Some(db.clone());
    let mut number = 0u32;
    // Until the budget is full, a flush fails, and the listener closes the store.
    let error = loop {
        let mut value = [0; 1000];
        value[..4].copy_from_slice(&number.wrapping_mul(2_654_435_761).to_be_bytes());
        match keys.put(number.to_be_bytes(), value) {
            Ok(_) => number += 1,
            Err(error) => break error,
        }
    };
    drop(keys);
    let closed = db.close();
    drop(listener);
    let again = Db::open(&path);
    assert!(again.is_ok(), "{error}; {closed:?}; {:?}", again.err());
}
