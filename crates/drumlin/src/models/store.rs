//! Concurrency models of a whole store on a simulated disk. The store's lanes run on threads of the model.

use crate::api::batch::Batch;
use crate::api::db::Db;
use crate::api::keyspace::Keyspace;
use crate::background::{Lane, Step};
use crate::base::error::Result;
use crate::jobs::flush::FlushLane;
use crate::options::Durability;
use crate::write::request::{Request, Reserved};
use drumlin_env::sync::Arc;
use drumlin_env::{Effect, Fault, FileKind, ImageMode, MemEnv, Op, SyncFailure, When};
use drumlin_types::Kind;
use shuttle::thread;

/// Error code of the operating system for an I/O error.
const EIO: i32 = 5;

fn open(mem: &MemEnv) -> Result<Db> {
    let builder = Db::builder("/s").env(mem.env()).set("memory_budget", "8MiB")?;
    builder.set("log_segment_bytes", "64KiB")?.set("compaction_slots", "1")?.open()
}

fn keyspaces(db: &Db) -> Result<[Keyspace; 2]> {
    let small = [("memtable_bytes", "4KiB")];
    Ok([db.keyspace_with("a", &small)?, db.keyspace_with("b", &small)?])
}

/// Reserves a place in the commit order for one operation on `keyspace`, with a record of `len` bytes.
fn reserve(keyspace: &Keyspace, len: u64) -> Reserved {
    let request = Request {
        keyspaces: &[keyspace.state.clone()],
        operations: 1,
        record_len: Some(len),
        only_deletes: false,
    };
    let store = &keyspace.store;
    store.commit_lock.reserve(&request, &store.publisher, || store.files.fresh_number()).expect("a place")
}

/// A new segment was begun after the record of a commit in progress. The log floor, computed while that commit ends,
/// does not pass its record.
pub(super) fn the_log_floor_spares_every_commit() {
    let mem = MemEnv::threaded(1);
    let db = open(&mem).expect("open");
    let [a, b] = keyspaces(&db).expect("keyspaces");
    let store = a.store.clone();
    let whole = store.commit_lock.directory.segment_bytes();
    let commits = [a, b].map(|keyspace| reserve(&keyspace, whole));
    let segments: Vec<_> =
        commits.iter().map(|commit| commit.log.as_ref().expect("it is logged").segment.number).collect();
    assert!(segments[0] < segments[1], "both commits are in the same segment");
    let writer = store.clone();
    let writer = thread::spawn(move || {
        for commit in commits {
            for (_, memtable) in commit.memtables.iter() {
                memtable.insert(b"key", commit.first_seq, Kind::Put, b"value");
                memtable.end_write();
            }
            writer.publisher.finish(commit.number, || 0).expect("published");
        }
    });
    let floor = store.log_floor(&[]);
    assert!(floor <= segments[0], "the log floor {floor:?} passes a commit in {:?}", segments[0]);
    writer.join().expect("the writer");
}

/// A memtable that stayed empty while the log moved on gets its first write, and the manifest is replaced, while a
/// flush recycles the segments that it no longer needs. The log floor does not go back to one of them.
pub(super) fn the_log_floor_never_goes_back() {
    let mem = MemEnv::threaded(1);
    let db = open(&mem).expect("open");
    let [a, b] = keyspaces(&db).expect("keyspaces");
    let store = a.store.clone();
    // Stops the lanes. The model steps a flush lane itself.
    store.background.stop();
    // Each value takes more than half of a segment, and seals the memtable of the one before.
    for key in 0..4_u8 {
        a.put([key], [1; 40_000]).expect("put");
    }
    // The floor passes only segments whose directory entries are durable.
    db.sync().expect("sync");
    let flush = FlushLane::new(Arc::clone(&store));
    let flush = thread::spawn(move || while flush.step() == Step::More {});
    let late = b.clone();
    let writer = thread::spawn(move || late.put("late", "3").map(|_| ()));
    store.replace_manifest(&mut store.control.lock()).expect("a manifest");
    flush.join().expect("the lane");
    writer.join().expect("the writer").expect("put");
    // These segments are made of the recycled ones.
    for key in 0..4_u8 {
        a.put([key], [2; 40_000]).expect("put");
    }
    let image = mem.snapshot().image(ImageMode::All, 1);
    drop((a, b, store, db));
    let db = open(&image).expect("open again");
    assert!(db.keyspace("b").expect("keyspace").contains_key("late").expect("get"));
}

/// Commits reserve for each other beside a thread that holds the commit lock and serves none. Each gets its own answer.
pub(super) fn commits_serve_each_other() {
    let mem = MemEnv::threaded(1);
    let db = open(&mem).expect("open");
    let [a, b] = keyspaces(&db).expect("keyspaces");
    let before = db.visible_seq();
    let writers = [("x", &a), ("y", &b), ("z", &a)].map(|(key, keyspace)| {
        let keyspace = keyspace.clone();
        thread::spawn(move || keyspace.put(key, key).expect("put"))
    });
    drop(a.store.commit_lock.state.lock());
    let mut seqs = writers.map(|writer| writer.join().expect("a writer"));
    seqs.sort_unstable();
    assert_eq!(seqs, [1, 2, 3].map(|n| before + n), "a commit got another's sequence number");
    for (key, keyspace) in [("x", &a), ("y", &b), ("z", &a)] {
        assert_eq!(keyspace.get(key).expect("get").as_deref(), Some(key.as_bytes()));
    }
    let image = mem.snapshot().image(ImageMode::All, 1);
    drop((a, b, db));
    let db = open(&image).expect("open again");
    assert_eq!(db.visible_seq(), before + 3);
}

/// Once a keyspace is dropped, no commit that writes to it is in progress, and none begins.
pub(super) fn a_drop_outlasts_every_write() {
    let mem = MemEnv::threaded(1);
    let db = open(&mem).expect("open");
    let [a, b] = keyspaces(&db).expect("keyspaces");
    let writers = [a.clone(), b.clone()]
        .map(|keyspace| thread::spawn(move || keyspace.put("key", "value").map(|_| ())));
    let before = a.state.active();
    db.drop_keyspace("a").expect("drop");
    assert!(before.is_complete(), "a commit still copies into a segment that may be recycled");
    let [first, second] = writers.map(|writer| writer.join().expect("a writer"));
    second.expect("its keyspace is there");
    assert!(first.is_ok() == before.holds_writes(), "{first:?}");
    assert!(!a.state.active().holds_writes(), "a commit wrote to the dropped keyspace");
    let image = mem.snapshot().image(ImageMode::All, 1);
    drop((a, b, db));
    let db = open(&image).expect("open again");
    assert_eq!(db.keyspaces(), ["b"]);
    assert!(db.keyspace("b").expect("keyspace").contains_key("key").expect("get"));
}

/// A scan of a keyspace that is dropped meanwhile sees all keys or returns an error.
pub(super) fn a_scan_sees_all_or_hears_of_the_drop() {
    let mem = MemEnv::threaded(1);
    let db = open(&mem).expect("open");
    let [a, _] = keyspaces(&db).expect("keyspaces");
    a.put("key", "value").expect("put");
    let scanned = a.clone();
    let scan = thread::spawn(move || {
        let by_cursor = scanned.cursor::<&str>(..).and_then(|mut cursor| cursor.seek_first());
        let by_iterator = scanned.iter().next().map(|entry| entry.is_ok());
        (by_cursor, by_iterator)
    });
    db.drop_keyspace("a").expect("drop");
    let (by_cursor, by_iterator) = scan.join().expect("a scan");
    assert_ne!(by_cursor.ok(), Some(false), "a cursor saw a keyspace that is being dropped as empty");
    assert!(by_iterator.is_some(), "an iterator saw a keyspace that is being dropped as empty");
}

/// While a checkpoint waits for the memtables that it sealed, no later commit is flushed.
pub(super) fn a_flush_keeps_to_the_ceiling() {
    let mem = MemEnv::threaded(1);
    let db = open(&mem).expect("open");
    let [a, _] = keyspaces(&db).expect("keyspaces");
    a.put("before", "0").expect("put");
    // Stops the lanes. The model steps a flush lane itself.
    a.store.background.stop();
    let flush = FlushLane::new(Arc::clone(&a.store));
    let flush = thread::spawn(move || while flush.step() == Step::More {});
    let (_, ceiling) = a.store.hold_flushes().expect("nobody else makes one");
    a.put("after", [1; 5000]).expect("put");
    let after = a.state.active();
    // This write seals the memtable of the one before.
    a.put("more", "2").expect("put");
    flush.join().expect("the lane");
    assert!(after.max_seq() > ceiling && after.is_sealed());
    let waits = a.state.view().sealed.iter().any(|memtable| Arc::ptr_eq(memtable, &after));
    assert!(waits, "a flush passed the ceiling");
}

/// A checkpoint contains each batch completely or not at all, despite concurrent writes and flushes.
pub(super) fn a_checkpoint_is_one_moment() {
    let mem = MemEnv::threaded(1);
    let db = open(&mem).expect("open");
    let [a, b] = keyspaces(&db).expect("keyspaces");
    // Gives the checkpoint a memtable to wait for.
    a.put("before", "0").expect("put");
    let (first, second) = (a.clone(), b.clone());
    let writer = thread::spawn(move || {
        let mut batch = Batch::new();
        batch.put(&first, "half", [1; 5000]);
        batch.put(&second, "half", "2");
        first.store.write(&batch.operations, Durability::Buffered).expect("write");
        // This write seals the memtable with the first half of the batch.
        first.put("more", "3").expect("put");
    });
    db.checkpoint("/copy").expect("checkpoint");
    writer.join().expect("the writer");
    drop((a, b, db));
    let copy = Db::builder("/copy").env(mem.env()).open().expect("open the copy");
    let [a, b] = keyspaces(&copy).expect("keyspaces");
    let halves = [a, b].map(|keyspace| keyspace.contains_key("half").expect("get"));
    assert!(halves[0] == halves[1], "the checkpoint contains half of a batch: {halves:?}");
}

/// A program moves data to another keyspace and drops the old one. A checkpoint contains the data in one of them.
pub(super) fn a_checkpoint_holds_a_keyspace_or_what_followed_its_drop() {
    let mem = MemEnv::threaded(1);
    let db = open(&mem).expect("open");
    let [a, b] = keyspaces(&db).expect("keyspaces");
    a.put("key", "value").expect("put");
    let moves = db.clone();
    let mover = thread::spawn(move || {
        b.put("key", "value").expect("put");
        moves.drop_keyspace("a").expect("drop");
    });
    db.checkpoint("/copy").expect("checkpoint");
    mover.join().expect("the mover");
    drop((a, db));
    let copy = Db::builder("/copy").env(mem.env()).open().expect("open the copy");
    let holds =
        |name: &str| copy.open_keyspace(name).is_ok_and(|keys| keys.contains_key("key").expect("get"));
    assert!(holds("a") || holds("b"), "the checkpoint lacks the data");
}

/// A sync of the log fails, and the operating system then treats the pages as written. A writer that waits for that
/// sync is acknowledged only if its commit is durable.
pub(super) fn a_failed_sync_is_told_to_all() {
    let mem = MemEnv::threaded(1);
    let db = open(&mem).expect("open");
    let [a, b] = keyspaces(&db).expect("keyspaces");
    db.sync().expect("sync");
    mem.inject(Fault {
        op: Some(Op::SyncData),
        kind: Some(FileKind::Log),
        when: When::Nth(0),
        effect: Effect::FailSync(EIO, SyncFailure::Lost),
    });
    let writers = [a, b]
        .map(|keyspace| thread::spawn(move || keyspace.put_with("key", "value", Durability::Sync).is_ok()));
    let told = writers.map(|writer| writer.join().expect("a writer"));
    let image = mem.snapshot().image(ImageMode::None, 1);
    drop(db);
    let db = open(&image).expect("open again");
    for (keyspace, told) in keyspaces(&db).expect("keyspaces").iter().zip(told) {
        assert!(!told || keyspace.contains_key("key").expect("get"), "an acknowledged commit is lost");
    }
}
