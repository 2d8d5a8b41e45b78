//! Tests of checkpoints: use of the target directory, traces of failures, and operations that wait for a checkpoint.

use crate::api::db::Db;
use crate::base::error::ErrorKind;
use drumlin_env::{Effect, Fault, FileKind, MemEnv, Op, When};

#[test]
fn a_checkpoint_that_is_refused_leaves_the_one_under_way_alone() {
    let mem = MemEnv::new(31);
    let db = Db::builder("/s").env(mem.env()).open().expect("open");
    let keys = db.keyspace("k").expect("keyspace");
    keys.put(b"a", b"1").expect("put");
    let (pending, seq) = keys.store.hold_flushes().expect("nothing else is under way");
    assert_eq!(pending.len(), 1);
    assert_eq!(db.checkpoint("/b").expect_err("one is under way").kind(), ErrorKind::Busy);
    assert_eq!(keys.store.control.lock().flush_ceiling, seq, "later commits are no longer held back");
    keys.store.control.lock().flush_ceiling = drumlin_types::Seq::MAX;
    db.flush().expect("flush");
    // An earlier failed flush does not affect a checkpoint that waits for no flush.
    keys.store.health.disk_full.store(true, drumlin_env::sync::atomic::Ordering::Release);
    db.checkpoint("/c").expect("nothing is under way any more");
}

#[test]
fn a_target_inside_the_store_is_refused() {
    let db = Db::builder("/s").env(MemEnv::new(33).env()).open().expect("open");
    for path in ["/s", "/s/copy", "/s/a/copy"] {
        let refused = db.checkpoint(path).expect_err("inside the store");
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{path}: {refused}");
    }
    db.checkpoint("/s-copy").expect("beside the store");
}

#[test]
fn a_checkpoint_that_finds_its_target_filled_by_another_is_refused() {
    let db = Db::builder("/s").env(MemEnv::new(34).env()).open().expect("open");
    let keys = db.keyspace("k").expect("keyspace");
    keys.put("key", "value").expect("put");
    db.checkpoint("/copy").expect("the first one");
    // It saw the directory empty, and then waited until the first one was done.
    let late = keys
        .store
        .make_target("/copy".as_ref(), &mut super::Made::default())
        .expect_err("it is filled by now");
    assert_eq!(late.kind(), ErrorKind::InvalidArgument, "{late}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "two stores checkpoint on threads of their own")]
fn of_two_stores_that_copy_to_one_directory_one_succeeds() {
    let mem = MemEnv::threaded(35);
    let stores: Vec<Db> =
        ["/a", "/b"].iter().map(|path| Db::builder(path).env(mem.env()).open().expect("open")).collect();
    for (flushes, db) in [1, 9].into_iter().zip(&stores) {
        let keys = db.keyspace("k").expect("keyspace");
        for n in 0..flushes {
            keys.put([n], [flushes]).expect("put");
            db.flush().expect("flush");
        }
    }
    for round in 0..100 {
        let path = format!("/copy{round}");
        let start = std::sync::Barrier::new(2);
        let copy = |db: &Db| {
            start.wait();
            db.checkpoint(&path)
        };
        let done: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = stores.iter().map(|db| scope.spawn(|| copy(db))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let winner = done.iter().position(Result::is_ok).expect("one succeeds");
        let refused = done[1 - winner].as_ref().expect_err("the other does not");
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
        let keys =
            Db::builder(&path).env(mem.env()).open().expect("open the copy").keyspace("k").expect("keyspace");
        assert_eq!(keys.iter().count(), [1, 9][winner]);
    }
}

#[test]
fn a_lock_file_that_is_removed_or_replaced_fails_the_checkpoint() {
    let mem = MemEnv::new(36);
    let env = mem.env();
    let db = Db::builder("/s").env(mem.env()).open().expect("open");
    let keys = db.keyspace("k").expect("keyspace");
    keys.put("key", "value").expect("put");
    let store = &keys.store;
    // Of the target: another store has taken its place.
    let mut made = super::Made::default();
    store.make_target("/copy".as_ref(), &mut made).expect("a directory");
    env.fs().unlink("/copy/LOCK".as_ref(), FileKind::Lock).expect("unlink");
    let other = Db::builder("/copy").env(mem.env()).open().expect("open");
    other.keyspace("mine").expect("keyspace").put("a", "1").expect("put");
    let seq = store.publisher.visible();
    let error = store.copy_to("/copy".as_ref(), seq, &mut made).expect_err("the target was replaced");
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    made.remove(&env, "/copy".as_ref());
    drop(other);
    let other = Db::builder("/copy").env(mem.env()).create_if_missing(false).open().expect("it is untouched");
    assert_eq!(other.keyspaces(), ["mine"]);
    // Of the store itself.
    env.fs().unlink("/s/LOCK".as_ref(), FileKind::Lock).expect("unlink");
    assert_eq!(db.checkpoint("/late").expect_err("the store was replaced").kind(), ErrorKind::Io);
    assert!(!env.fs().exists("/late".as_ref()).expect("a look"));
}

#[test]
fn an_unfinished_checkpoint_is_locked_and_one_without_descriptors_can_be_made_again() {
    let mem = MemEnv::new(37);
    let db = Db::builder("/s").env(mem.env()).open().expect("open");
    let keys = db.keyspace("k").expect("keyspace");
    keys.put("key", "value").expect("put");
    db.flush().expect("flush");
    let mut made = super::Made::default();
    keys.store.make_target("/copy".as_ref(), &mut made).expect("a directory");
    let (trees, ..) = keys.store.pin_trees(keys.store.publisher.visible());
    let (_, _, file) = trees[0].files().next().expect("a table");
    let from = keys.store.files.table_path(file.id());
    let to = std::path::Path::new("/copy").join(from.file_name().expect("a name"));
    mem.env().fs().link(&from, &to).expect("a link");
    for read_only in [false, true] {
        let open = Db::builder("/copy").env(mem.env()).read_only(read_only).open();
        assert_eq!(open.expect_err("it is being made").kind(), ErrorKind::Locked);
    }
    mem.set_open_files_limit(mem.open_files() + 1);
    assert_eq!(db.checkpoint("/c").expect_err("no descriptor").kind(), ErrorKind::TooManyFiles);
    mem.set_open_files_limit(None);
    db.checkpoint("/c").expect("the same path");
}

#[test]
fn pinned_tables_stay_while_the_store_goes_on() {
    let mem = MemEnv::new(32);
    let db = Db::builder("/s").env(mem.env()).open().expect("open");
    let keys = db.keyspace("k").expect("keyspace");
    for value in ["1", "2"] {
        keys.put("key", value).expect("put");
        db.flush().expect("flush");
    }
    let store = &keys.store;
    let (trees, ..) = store.pin_trees(store.publisher.visible());
    keys.compact::<&[u8]>(..).expect("compact");
    let paths: Vec<_> = trees
        .iter()
        .flat_map(|tree| tree.files().map(|(_, _, file)| store.files.table_path(file.id())))
        .collect();
    let left = || paths.iter().filter(|path| mem.env().fs().exists(path).expect("a look")).count();
    assert!(!paths.is_empty() && left() == paths.len(), "{} of {} tables", left(), paths.len());
    drop(trees);
    db.wait_idle().expect("idle");
    assert_eq!(left(), 0, "the compaction replaced all of them");
}

/// A rename promises that the data are there under the new name. A copy of an earlier moment cannot keep that.
#[test]
#[expect(clippy::disallowed_methods, reason = "a rename waits on another thread")]
fn a_rename_waits_for_the_checkpoint_under_way() {
    let db = Db::builder("/s").env(MemEnv::new(7).env()).open().expect("open");
    let keys = db.keyspace("new").expect("keyspace");
    keys.put("early", "1").expect("put");
    let store = &keys.store;
    let under_way = store.drops.read();
    let (pending, seq) = store.hold_flushes().expect("the only checkpoint");
    keys.put("late", "2").expect("put");
    std::thread::scope(|scope| {
        let renames = scope.spawn(|| db.rename_keyspace("new", "live"));
        (0..1000).for_each(|_| std::thread::yield_now());
        store.wait_flushed(&pending).expect("flushed");
        store.copy_to("/copy".as_ref(), seq, &mut super::Made::default()).expect_err("no directory");
        let mut made = super::Made::default();
        store.make_target("/copy".as_ref(), &mut made).expect("a directory");
        store.copy_to("/copy".as_ref(), seq, &mut made).expect("a copy");
        drop(made);
        store.control.lock().flush_ceiling = drumlin_types::Seq::MAX;
        drop(under_way);
        renames.join().expect("no panic").expect("renamed");
    });
    assert_eq!(db.keyspaces(), ["live"]);
    let copy = Db::builder("/copy").env(store.files.env.clone()).open().expect("open the copy");
    assert_eq!(copy.keyspaces(), ["new"], "the copy has the name of its moment");
    assert_eq!(copy.keyspace("new").expect("keyspace").iter().count(), 1);
}

#[test]
fn a_checkpoint_that_failed_is_repeated_in_the_same_directory() {
    let mem = MemEnv::new(38);
    let db = Db::builder("/s").env(mem.env()).open().expect("open");
    let keys = db.keyspace("k").expect("keyspace");
    keys.put("key", "value").expect("put");
    db.flush().expect("flush");
    let fault = Fault {
        op: Some(Op::Create),
        kind: Some(FileKind::Log),
        when: When::Nth(0),
        effect: Effect::Fail(5),
    };
    mem.inject(fault);
    assert_eq!(db.checkpoint("/copy").expect_err("no log").kind(), ErrorKind::Io);
    db.checkpoint("/copy").expect("the second one");
    assert_eq!(mem.order_violations(), Vec::<String>::new());
}
