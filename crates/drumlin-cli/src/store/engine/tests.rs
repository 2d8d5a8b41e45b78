//! Tests of opening a store that cannot be written.

use super::*;
use drumlin::env::{Effect, Fault, FileKind, MemEnv, Op, When};

fn open_for(mem: &MemEnv, access: Access, settings: &[(&str, &str)]) -> Result<Box<dyn Store>> {
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let (path, keyspace) = ("/s".into(), "default".to_owned());
    open_with(Db::builder("/s").env(mem.env()), &OpenOptions { path, keyspace, settings, access })
}

fn is_readable(mem: &MemEnv) {
    let store = open_for(mem, Access::Read, &[]).expect("read-only");
    assert_eq!(store.get(b"k").expect("get"), Some(b"v".to_vec()));
    assert_eq!(store.scan(&Bounds::default(), Want::Keys, true).expect("scan").count(), 1);
    assert_eq!(store.verify().expect("verify").findings, vec![]);
    assert!(store.put(b"k", b"w", Durability::Sync).is_err());
    store.close().expect("close");
    // Commands that write, or that set a permanent option, report the error.
    assert!(open_for(mem, Access::Existing, &[]).is_err());
    assert!(open_for(mem, Access::Create, &[]).is_err());
    assert!(open_for(mem, Access::Read, &[("durability", "sync")]).is_err());
}

#[test]
fn what_only_reads_needs_no_space_and_no_permission() {
    let mem = MemEnv::new(1);
    let store = open_for(&mem, Access::Create, &[]).expect("open");
    store.put(b"k", b"v", Durability::Buffered).expect("put");
    store.close().expect("close");
    mem.set_capacity(mem.used_space());
    is_readable(&mem);
    mem.set_capacity(None);
    for (op, kind, code) in [
        (Op::Lock, Some(FileKind::Lock), 13),
        (Op::Create, Some(FileKind::Log), 13),
        (Op::Create, Some(FileKind::Manifest), 30),
    ] {
        // The fault rejects the lock for writing and allows the next lock, which is the one for reading.
        mem.inject(Fault { op: Some(op), kind, when: When::Nth(0), effect: Effect::Fail(code) });
        let store = open_for(&mem, Access::Read, &[]).expect("read-only");
        assert_eq!(store.get(b"k").expect("get"), Some(b"v".to_vec()));
        assert!(store.put(b"k", b"w", Durability::Sync).is_err(), "{op:?} {kind:?}");
        store.close().expect("close");
        mem.clear_faults();
    }
}

#[test]
fn other_trouble_is_told() {
    let mem = MemEnv::new(2);
    let missing = open_for(&mem, Access::Read, &[]).map(drop);
    assert!(matches!(missing, Err(Failure::Failed(what)) if what.contains("no store")));
    let store = open_for(&mem, Access::Create, &[]).expect("open");
    let locked = open_for(&mem, Access::Read, &[]).map(drop);
    assert!(matches!(locked, Err(Failure::Failed(what)) if what.contains("open already")));
    store.close().expect("close");
    mem.inject(Fault { op: Some(Op::Read), kind: None, when: When::Nth(0), effect: Effect::Fail(5) });
    assert!(open_for(&mem, Access::Read, &[]).is_err(), "a read that fails is no reason to go on");
}

#[test]
fn a_checkpoint_that_fails_at_any_call_leaves_nothing_it_made() {
    for index in 0.. {
        let mem = MemEnv::new(3);
        let store = open_for(&mem, Access::Create, &[]).expect("open");
        store.put(b"k", b"v", Durability::Buffered).expect("put");
        mem.env().fs().create_dir_all("/empty".as_ref()).expect("a directory");
        mem.fail_at(mem.io_index() + index, 28);
        if store.checkpoint("/a/b/copy".as_ref()).is_ok() {
            assert!(index > 10, "{index} calls");
            return;
        }
        assert!(!mem.env().fs().exists("/a".as_ref()).expect("a look"), "call {index}");
        mem.fail_at(mem.io_index() + index, 28);
        if store.checkpoint("/empty".as_ref()).is_err() {
            let listed = mem.env().fs().list("/empty".as_ref()).expect("it was there before");
            assert!(listed.is_empty(), "call {index}: {listed:?}");
        }
    }
}

#[test]
fn a_full_disk_is_said_once() {
    let mem = MemEnv::new(4);
    open_for(&mem, Access::Create, &[]).and_then(Store::close).expect("open");
    mem.set_capacity(mem.used_space());
    let Err(Failure::Failed(what)) = open_for(&mem, Access::Create, &[]).map(drop) else {
        panic!("no space is left")
    };
    assert_eq!(what.to_lowercase().matches("no space").count(), 1, "{what}");
}
