//! Tests of the public handles: separate calls to open and to create keyspaces, typed options, reused batches,
//! estimates, first and last entries, and reads through snapshots.

use drumlin::env::MemEnv;
use drumlin::{Batch, Db, Durability, ErrorKind, Options};

fn open() -> Db {
    Db::builder("/s").env(MemEnv::new(61).env()).open().expect("open")
}

#[test]
fn keyspaces_are_opened_and_created_apart() {
    let db = open();
    assert_eq!(db.open_keyspace("k").expect_err("none yet").kind(), ErrorKind::NotFound);
    assert!(db.keyspaces().is_empty(), "opening creates nothing");
    let keys = db.create_keyspace("k", &[("file_bytes", "8KiB")]).expect("created");
    keys.put("a", "1").expect("put");
    assert_eq!(db.create_keyspace("k", &[]).expect_err("there is one").kind(), ErrorKind::AlreadyExists);
    let refused = db.create_keyspace("l", &[("file_bytes", "nothing")]).expect_err("an option out of bounds");
    assert_eq!((refused.kind(), db.keyspaces().len()), (ErrorKind::InvalidOption, 1));
    assert!(db.open_keyspace("k").expect("it exists").contains_key("a").expect("get"));
    db.drop_keyspace("k").expect("drop");
    assert_eq!(db.open_keyspace("k").expect_err("dropped").kind(), ErrorKind::NotFound);
}

#[test]
fn typed_options_are_set_and_kept() {
    let mem = MemEnv::new(62);
    let mut options = Options::default();
    (options.memory_budget, options.durability) = (64 << 20, Durability::Sync);
    let builder = Db::builder("/s").env(mem.env()).options(&options).expect("legal");
    builder.memory_budget(32 << 20).expect("legal").open().expect("open").close().expect("close");
    let db = Db::builder("/s").env(mem.env()).open().expect("open");
    let value = |name: &str| db.options().into_iter().find(|(n, _)| *n == name).expect("an option").1;
    assert_eq!((value("memory_budget").as_str(), value("durability").as_str()), ("32MiB", "sync"));
    options.memory_budget = 1;
    let refused = Db::builder("/t").options(&options).expect_err("out of bounds");
    assert_eq!(refused.kind(), ErrorKind::InvalidOption, "{refused}");
}

#[test]
fn a_batch_is_written_again_and_cleared() {
    let db = open();
    let keys = db.keyspace("k").expect("keyspace");
    let mut batch = Batch::new();
    batch.put(&keys, "a", "1");
    let first = db.write(&batch).expect("write");
    let second = db.write_with(&batch, Durability::Sync).expect("write");
    assert!(second > first);
    batch.clear();
    assert!(batch.is_empty());
    batch.delete(&keys, "a");
    db.write(batch).expect("write");
    assert!(keys.is_empty().expect("no error"));
}

#[test]
fn estimates_and_ends() {
    let db = open();
    let keys = db.keyspace_with("k", &[("compression", "none")]).expect("keyspace");
    assert!(keys.is_empty().expect("no error") && keys.first_key_value().expect("no error").is_none());
    for number in 0..10_000u32 {
        keys.put(number.to_be_bytes(), [7; 100]).expect("put");
    }
    assert_eq!(keys.approximate_len().expect("no error"), 10_000, "in memory each entry counts");
    assert_eq!(keys.approximate_size::<&[u8]>(..).expect("no error"), 0, "nothing is in tables");
    db.flush().expect("flush");
    assert_eq!(keys.approximate_len().expect("no error"), 10_000);
    let whole = keys.approximate_size::<&[u8]>(..).expect("no error");
    let tenth = keys.approximate_size(1000u32.to_be_bytes()..2000u32.to_be_bytes()).expect("no error");
    assert!((1_000_000..1_300_000).contains(&whole), "{whole} bytes");
    assert!((whole / 12..whole / 8).contains(&tenth), "{tenth} of {whole} bytes");
    let (first, last) = (keys.first_key_value().expect("get"), keys.last_key_value().expect("get"));
    assert_eq!(&*first.expect("an entry").0, 0u32.to_be_bytes());
    assert_eq!(&*last.expect("an entry").0, 9999u32.to_be_bytes());
}

#[test]
fn a_snapshot_reads_as_a_keyspace_does() {
    let db = open();
    let keys = db.keyspace("k").expect("keyspace");
    keys.put("a", "1").expect("put");
    let snapshot = db.snapshot();
    keys.delete_range_with::<&str>(.., Durability::Sync).expect("delete");
    assert!(snapshot.contains_key(&keys, "a").expect("get") && !keys.contains_key("a").expect("get"));
    assert_eq!(snapshot.iter(&keys).count(), 1);
    let values = snapshot.multi_get(&keys, vec!["a".to_owned(), "b".to_owned()]).expect("multi_get");
    assert_eq!((values[0].as_deref(), values[1].as_deref()), (Some(&b"1"[..]), None));
}
