//! Each fault happens at the requested call, has the stated effect, and happens nowhere else.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use drumlin_env::{Effect, Env, Fault, FileKind, ImageMode, MemEnv, Op, SyncFailure, When};

use crate::{durable, file, world};

const EIO: i32 = 5;
const EINTR: i32 = 4;
const ENOSPC: i32 = 28;
const FILE: &str = "d/file";

fn rule(op: Op, when: When, effect: Effect) -> Fault {
    Fault { op: Some(op), kind: None, when, effect }
}

/// Makes one call of every operation on a file of this kind; returns the outcome of each.
fn every_call(env: &Env, kind: FileKind) -> BTreeMap<Op, io::Result<()>> {
    let fs = env.fs();
    let path = |name: &str| PathBuf::from(format!("d/{kind}-{name}"));
    let mut outcomes = BTreeMap::new();
    let mut note = |op, outcome: io::Result<()>| outcomes.insert(op, outcome).is_none();
    note(Op::CreateDir, fs.create_dir_all(&path("dir")));
    note(Op::RemoveDir, fs.remove_dir(&path("dir")));
    let spare = fs.create(&path("spare"), kind);
    let file = match spare {
        Ok(file) => {
            note(Op::Create, Ok(()));
            file
        }
        Err(error) => {
            note(Op::Create, Err(error));
            fs.create(&path("spare"), kind).unwrap()
        }
    };
    note(Op::Write, file.write_at(0, b"bytes"));
    note(Op::Read, file.read_at(0, &mut [0; 3]).map(|_| ()));
    note(Op::Allocate, file.allocate(0, 100));
    note(Op::SetLen, file.set_len(50));
    note(Op::Len, file.len().map(|_| ()));
    note(Op::SyncData, file.sync_data());
    note(Op::SyncAll, file.sync_all());
    note(Op::Close, file.close());
    note(Op::Open, fs.open(&path("spare"), kind).map(|_| ()));
    note(Op::OpenWrite, fs.open_write(&path("spare"), kind).map(|_| ()));
    note(Op::FileLen, fs.file_len(&path("spare")).map(|_| ()));
    note(Op::Link, fs.link(&path("spare"), &path("link")));
    note(Op::Unlink, fs.unlink(&path("spare"), kind));
    note(Op::Rename, fs.rename(&path("link"), &path("renamed")));
    note(Op::SyncDir, fs.sync_dir(Path::new("d")));
    note(Op::List, fs.list(Path::new("d")).map(|_| ()));
    note(Op::Exists, fs.exists(Path::new("d")).map(|_| ()));
    note(Op::FreeSpace, fs.free_space(Path::new("d")).map(|_| ()));
    note(Op::Lock, fs.lock(&path("lock")).map(|_| ()));
    outcomes
}

#[test]
fn every_operation_on_every_kind_fails_on_demand() {
    for kind in FileKind::ALL {
        let (_, env) = world();
        let outcomes = every_call(&env, kind);
        assert_eq!(outcomes.keys().copied().collect::<Vec<_>>(), Op::ALL);
        assert!(outcomes.values().all(Result::is_ok), "{outcomes:?}");
        for op in Op::ALL {
            let (mem, env) = world();
            mem.inject(rule(op, When::Nth(0), Effect::Fail(EIO)));
            let outcomes = every_call(&env, kind);
            assert_eq!(mem.fired().len(), 1);
            assert_eq!(mem.fired()[0].op, op);
            let error = outcomes[&op].as_ref().expect_err("the call was to fail");
            assert_eq!(error.raw_os_error(), Some(EIO), "{op:?} {kind}");
            let others = outcomes.iter().filter(|&(&other, outcome)| other != op && outcome.is_err());
            // A failed link leaves the rename without its source, and a directory that was not made is not removed.
            let pairs = [(Op::Link, Op::Rename), (Op::CreateDir, Op::RemoveDir)];
            let depends = |other: &Op| pairs.contains(&(op, *other));
            assert!(others.clone().all(|(other, _)| depends(other)), "{op:?} {kind}: {outcomes:?}");
        }
    }
}

#[test]
fn a_rule_hits_only_its_kind() {
    let (mem, env) = world();
    mem.inject(Fault {
        op: Some(Op::Write),
        kind: Some(FileKind::Log),
        when: When::From(1),
        effect: Effect::Fail(EIO),
    });
    let log = file(&env, "log", FileKind::Log, b"first");
    let table = file(&env, "table", FileKind::Table, b"first");
    assert!(log.write_at(0, b"x").is_err());
    assert!(log.write_at(0, b"x").is_err(), "from the second on");
    assert!(table.write_at(0, b"x").is_ok());
    assert!(log.sync_data().is_ok());
    assert_eq!(mem.fired().len(), 2);
    mem.clear_faults();
    assert!(log.write_at(0, b"x").is_ok());
}

#[test]
fn the_call_with_an_index_fails() {
    let calls = {
        let (mem, env) = world();
        every_call(&env, FileKind::Log);
        mem.io_index()
    };
    let (start, _) = world();
    for index in start.io_index()..calls {
        let (mem, env) = world();
        mem.fail_at(index, ENOSPC);
        let outcomes = every_call(&env, FileKind::Log);
        assert_eq!(mem.fired().iter().map(|fired| fired.index).collect::<Vec<_>>(), [index]);
        let first = outcomes.values().filter_map(|outcome| outcome.as_ref().err());
        assert!(first.clone().any(|error| error.kind() == io::ErrorKind::StorageFull), "{index}");
    }
}

#[test]
fn some_calls_fail_by_chance() {
    let (mem, env) = world();
    let log = file(&env, "log", FileKind::Log, b"x");
    mem.inject(rule(Op::Write, When::OneIn(4), Effect::Fail(EIO)));
    let failed = (0..400).filter(|_| log.write_at(0, b"x").is_err()).count();
    assert!((60..140).contains(&failed), "{failed}");
}

#[test]
fn short_and_interrupted_transfers_are_continued() {
    let (mem, env) = world();
    let data: Vec<u8> = (0..10_000).map(|n| n as u8).collect();
    mem.inject(rule(Op::Write, When::OneIn(2), Effect::Short));
    mem.inject(rule(Op::Read, When::OneIn(2), Effect::Short));
    mem.inject(rule(Op::Read, When::OneIn(3), Effect::Fail(EINTR)));
    mem.inject(rule(Op::Write, When::OneIn(3), Effect::Fail(EINTR)));
    mem.inject(rule(Op::SyncData, When::Nth(0), Effect::Fail(EINTR)));
    mem.inject(rule(Op::Close, When::Nth(0), Effect::Fail(EINTR)));
    for number in 0..20 {
        let log = file(&env, &number.to_string(), FileKind::Log, &data);
        log.sync_data().unwrap();
        env.fs().sync_dir(Path::new("d")).unwrap();
        assert!(mem.is_durable(log.path()), "an interrupted sync lost something");
        let mut read = vec![0; data.len()];
        log.read_exact_at(0, &mut read).unwrap();
        assert_eq!(read, data);
        log.close().unwrap();
    }
    assert!(mem.fired().len() > 25);
    assert!(mem.order_violations().is_empty());
}

#[test]
fn a_partial_write_leaves_a_part() {
    let (mem, env) = world();
    mem.inject(rule(Op::Write, When::Nth(0), Effect::Partial(ENOSPC)));
    let log = env.fs().create(Path::new(FILE), FileKind::Log).unwrap();
    assert_eq!(log.write_at(0, &[1; 100]).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(mem.peek(Path::new(FILE)).unwrap(), [1; 50]);
}

#[test]
fn reads_lie_on_demand() {
    let (mem, env) = world();
    let old: Vec<u8> = (0..3 * 4096u32).map(|n| (n / 7) as u8).collect();
    let log = durable(&env, "file", FileKind::Log, &old);
    let mut new = old.clone();
    new[4096..8192].fill(0xEE);
    log.write_at(0, &new).unwrap();
    let read = |effect| {
        mem.clear_faults();
        mem.inject(rule(Op::Read, When::Nth(0), effect));
        let mut buf = vec![0; 4096];
        log.read_exact_at(4096, &mut buf).unwrap();
        buf
    };
    for _ in 0..20 {
        let flipped = read(Effect::FlipBit);
        let bits: u32 = flipped.iter().zip(&new[4096..]).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(bits, 1);
        assert_ne!(read(Effect::Misdirected), new[4096..8192]);
    }
    assert_eq!(read(Effect::Stale), old[4096..8192]);
    assert_eq!(mem.peek(Path::new(FILE)).unwrap(), new, "the file itself is whole");
    log.sync_data().unwrap();
    assert_eq!(read(Effect::Stale), old[4096..8192]);
}

/// Returns a file with synced and unsynced bytes, whose next sync fails in the given way.
fn failing_sync(failure: SyncFailure) -> (MemEnv, drumlin_env::File) {
    let (mem, env) = world();
    let log = durable(&env, "file", FileKind::Table, b"old");
    log.write_at(0, b"new!").unwrap();
    mem.inject(rule(Op::SyncData, When::Nth(0), Effect::FailSync(EIO, failure)));
    assert_eq!(log.sync_data().unwrap_err().raw_os_error(), Some(EIO));
    (mem, log)
}

fn after_power_loss(mem: &MemEnv) -> Vec<u8> {
    mem.snapshot().image(ImageMode::None, 0).peek(Path::new(FILE)).unwrap()
}

#[test]
fn a_sync_that_loses_is_told_once() {
    let (mem, log) = failing_sync(SyncFailure::Lost);
    log.sync_data().unwrap();
    assert_eq!(mem.peek(Path::new(FILE)).unwrap(), b"new!");
    assert_eq!(after_power_loss(&mem), b"old");
    assert_eq!(mem.snapshot().image(ImageMode::All, 0).peek(Path::new(FILE)).unwrap(), b"new!");
    mem.evict();
    assert_eq!(mem.peek(Path::new(FILE)).unwrap(), b"old");
}

#[test]
fn a_sync_that_reverts_brings_the_old_content_back() {
    let (mem, log) = failing_sync(SyncFailure::Reverts);
    assert_eq!(mem.peek(Path::new(FILE)).unwrap(), b"old");
    log.write_at(0, b"again").unwrap();
    log.sync_data().unwrap();
    assert_eq!(after_power_loss(&mem), b"again");
}

#[test]
fn a_sticky_sync_fails_for_good() {
    let (mem, log) = failing_sync(SyncFailure::Sticky);
    for _ in 0..3 {
        assert_eq!(log.sync_data().unwrap_err().raw_os_error(), Some(EIO));
        assert!(log.sync_all().is_err());
    }
    assert_eq!(mem.peek(Path::new(FILE)).unwrap(), b"new!");
    assert_eq!(after_power_loss(&mem), b"old");
}

#[test]
fn a_failed_close_loses_what_was_not_synced() {
    let (mem, env) = world();
    let table = durable(&env, "file", FileKind::Table, b"old");
    table.write_at(0, b"new").unwrap();
    mem.inject(rule(Op::Close, When::Nth(0), Effect::Fail(EIO)));
    assert!(table.close().is_err());
    let again = env.fs().open_write(Path::new(FILE), FileKind::Table).unwrap();
    again.sync_data().unwrap();
    assert_eq!(after_power_loss(&mem), b"old");
}

#[test]
fn a_failed_directory_sync_is_not_made_good_by_the_next() {
    let (mem, env) = world();
    file(&env, "file", FileKind::Table, b"").sync_data().unwrap();
    mem.inject(rule(Op::SyncDir, When::Nth(0), Effect::Fail(EIO)));
    assert!(env.fs().sync_dir(Path::new("d")).is_err());
    env.fs().sync_dir(Path::new("d")).unwrap();
    assert!(mem.snapshot().image(ImageMode::None, 0).files().is_empty());
}

#[test]
fn a_full_disk_says_so_and_goes_on_when_space_is_back() {
    let (mem, env) = world();
    mem.set_capacity(8 * 4096);
    let table = file(&env, "file", FileKind::Table, &[1; 5 * 4096]);
    assert_eq!(env.fs().free_space(Path::new("d")).unwrap(), 3 * 4096);
    assert_eq!(table.write_at(5 * 4096, &[2; 4 * 4096]).unwrap_err().kind(), io::ErrorKind::StorageFull);
    // The bytes that fit were written.
    assert_eq!(mem.peek(Path::new(FILE)).unwrap().len(), 8 * 4096);
    assert!(table.allocate(0, 9 * 4096).is_err());
    table.allocate(0, 8 * 4096).unwrap();
    table.set_len(4096).unwrap();
    assert_eq!(mem.used_space(), 4096);
    table.allocate(0, 8 * 4096).unwrap();
    mem.set_capacity(None);
    table.write_at(5 * 4096, &[2; 40 * 4096]).unwrap();
}
