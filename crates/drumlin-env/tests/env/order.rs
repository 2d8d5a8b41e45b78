//! The order monitor accepts the right order and names the rule that a wrong one breaks.

use std::path::{Path, PathBuf};

use drumlin_env::{Effect, Env, Fault, FileKind, MemEnv, Note, Op, When};

use crate::{durable, file, world};

/// Steps that a test omits or reorders.
#[derive(Clone, Copy, Default)]
struct Mistakes {
    table_unsynced: bool,
    name_unsynced: bool,
    inputs_early: bool,
    manifest_unsynced: bool,
}

/// Runs a job that writes table 2, replaces table 1 with it, and deletes table 1.
fn replace_a_table(mistakes: Mistakes) -> MemEnv {
    let (mem, env) = world();
    let (one, two) = ([PathBuf::from("d/1.table")], [PathBuf::from("d/2.table")]);
    durable(&env, "1.table", FileKind::Table, b"one");
    let manifest = durable(&env, "manifest", FileKind::Manifest, b"");
    let edit = |adds: &[PathBuf], removes: &[PathBuf]| {
        env.note(Note::EditAdds { files: adds });
        env.note(Note::EditRemoves { files: removes });
        manifest.write_at(manifest.len().unwrap(), b"edit").unwrap();
        if !mistakes.manifest_unsynced || removes.is_empty() {
            manifest.sync_data().unwrap();
        }
    };
    edit(&one, &[]);
    env.note(Note::EditDurable { dir: Path::new("d") });
    let table = file(&env, "2.table", FileKind::Table, b"two");
    if !mistakes.table_unsynced {
        table.sync_data().unwrap();
    }
    if !mistakes.name_unsynced {
        env.fs().sync_dir(Path::new("d")).unwrap();
    }
    edit(&two, &one);
    if !mistakes.inputs_early {
        env.note(Note::EditDurable { dir: Path::new("d") });
    }
    env.fs().unlink(&one[0], FileKind::Table).unwrap();
    mem
}

/// Returns the broken rules.
fn rules(mem: &MemEnv) -> Vec<String> {
    let rule = |violation: &String| violation.split(':').next().unwrap_or_default().to_owned();
    mem.order_violations().iter().map(rule).collect()
}

fn broken_by(mistakes: Mistakes) -> Vec<String> {
    rules(&replace_a_table(mistakes))
}

#[test]
fn o1_files_are_durable_before_the_edit_and_go_after_it() {
    assert!(broken_by(Mistakes::default()).is_empty());
    assert_eq!(broken_by(Mistakes { table_unsynced: true, ..Default::default() }), ["O1"]);
    assert_eq!(broken_by(Mistakes { name_unsynced: true, ..Default::default() }), ["O1"]);
    assert_eq!(broken_by(Mistakes { inputs_early: true, ..Default::default() }), ["O1"]);
    assert_eq!(broken_by(Mistakes { manifest_unsynced: true, ..Default::default() }), ["O1"]);
}

#[test]
fn o1_a_referenced_file_stays() {
    let (mem, env) = world();
    durable(&env, "1.table", FileKind::Table, b"one");
    durable(&env, "manifest", FileKind::Manifest, b"edit");
    let files = [PathBuf::from("d/1.table")];
    env.note(Note::EditAdds { files: &files });
    durable(&env, "manifest2", FileKind::Manifest, b"edit");
    env.note(Note::EditDurable { dir: Path::new("d") });
    // One edit that drops and adds a file moves it to another level.
    env.note(Note::EditRemoves { files: &files });
    env.note(Note::EditAdds { files: &files });
    durable(&env, "manifest3", FileKind::Manifest, b"edit");
    env.note(Note::EditDurable { dir: Path::new("d") });
    assert!(rules(&mem).is_empty());
    env.fs().unlink(&files[0], FileKind::Table).unwrap();
    assert_eq!(rules(&mem), ["O1"]);
}

/// Writes two logs and acknowledges a record of the second; the first may be unsynced.
fn two_logs(sync_first: bool, sync_name: bool) -> MemEnv {
    let (mem, env) = world();
    let first = file(&env, "1.log", FileKind::Log, b"");
    env.note(Note::Logged { log: first.path(), first: 1 });
    first.write_at(0, b"record").unwrap();
    if sync_first {
        first.sync_data().unwrap();
    }
    let second = file(&env, "2.log", FileKind::Log, b"");
    env.note(Note::Logged { log: second.path(), first: 2 });
    second.write_at(0, b"record").unwrap();
    second.sync_data().unwrap();
    if sync_name {
        env.fs().sync_dir(Path::new("d")).unwrap();
    }
    env.note(Note::AckSynced { seq: 2 });
    mem
}

#[test]
fn o2_all_logs_up_to_the_acknowledged_record_survive() {
    assert!(rules(&two_logs(true, true)).is_empty());
    assert_eq!(rules(&two_logs(false, true)), ["O2"]);
    assert_eq!(rules(&two_logs(true, false)), ["O2", "O2"]);
}

#[test]
fn o2_later_records_and_released_logs_do_not_matter() {
    let (mem, env) = world();
    let log = durable(&env, "1.log", FileKind::Log, b"");
    env.note(Note::Logged { log: log.path(), first: 1 });
    log.write_at(0, b"record").unwrap();
    log.sync_data().unwrap();
    env.note(Note::Logged { log: log.path(), first: 5 });
    log.write_at(6, b"record").unwrap();
    env.note(Note::AckSynced { seq: 4 });
    assert!(rules(&mem).is_empty());
    env.note(Note::AckSynced { seq: 5 });
    assert_eq!(rules(&mem), ["O2"]);
    env.note(Note::LogObsolete { log: log.path() });
    durable(&env, "manifest", FileKind::Manifest, b"edit");
    env.note(Note::EditDurable { dir: Path::new("d") });
    env.note(Note::AckSynced { seq: 5 });
    env.fs().unlink(log.path(), FileKind::Log).unwrap();
    assert_eq!(rules(&mem), ["O2"], "nothing new");
}

/// Flushes, recycles and reuses a log.
fn recycle(durable_first: bool) -> MemEnv {
    let (mem, env) = world();
    let log = durable(&env, "1.log", FileKind::Log, b"");
    env.note(Note::Logged { log: log.path(), first: 1 });
    log.write_at(0, b"record").unwrap();
    log.sync_data().unwrap();
    env.note(Note::LogObsolete { log: log.path() });
    if durable_first {
        durable(&env, "manifest", FileKind::Manifest, b"edit");
        env.note(Note::EditDurable { dir: Path::new("d") });
    }
    env.fs().rename(Path::new("d/1.log"), Path::new("d/2.log")).unwrap();
    env.fs().sync_dir(Path::new("d")).unwrap();
    // Write through the old handle, whose path is out of date.
    env.note(Note::Logged { log: Path::new("d/2.log"), first: 2 });
    log.write_at(0, b"second").unwrap();
    log.sync_data().unwrap();
    env.note(Note::AckSynced { seq: 2 });
    mem
}

#[test]
fn a_log_is_recycled_after_its_edit() {
    assert!(rules(&recycle(true)).is_empty(), "{:?}", recycle(true).order_violations());
    assert!(rules(&recycle(false)).contains(&"O1".to_owned()));
}

#[test]
fn a_log_with_records_is_not_deleted_without_an_edit() {
    let (mem, env) = world();
    let log = durable(&env, "1.log", FileKind::Log, b"");
    env.note(Note::Logged { log: log.path(), first: 1 });
    env.fs().unlink(log.path(), FileKind::Log).unwrap();
    assert_eq!(rules(&mem), ["O1"]);
}

#[test]
fn recovery_settles_what_was_open() {
    let (mem, env) = world();
    let files = ["d/1.table", "d/1.log", "d/2.table"].map(PathBuf::from);
    durable(&env, "1.table", FileKind::Table, b"one");
    durable(&env, "1.log", FileKind::Log, b"records");
    durable(&env, "2.table", FileKind::Table, b"two");
    env.note(Note::EditAdds { files: &files[2..] });
    env.note(Note::EditRemoves { files: &files[..1] });
    // The edit failed; the store is reopened without it.
    env.note(Note::Recovered { files: &files[..2] });
    env.fs().unlink(&files[2], FileKind::Table).unwrap();
    assert!(rules(&mem).is_empty());
    env.note(Note::LogObsolete { log: &files[1] });
    durable(&env, "manifest", FileKind::Manifest, b"edit");
    env.note(Note::EditDurable { dir: Path::new("d") });
    env.fs().unlink(&files[1], FileKind::Log).unwrap();
    assert!(rules(&mem).is_empty());
    env.fs().unlink(&files[0], FileKind::Table).unwrap();
    assert_eq!(rules(&mem), ["O1"]);
}

#[test]
#[should_panic = "broken order: O6"]
fn a_violation_can_end_the_run_where_it_happens() {
    let (mem, env) = world();
    mem.stop_at_order_violation();
    let log = durable(&env, "1.log", FileKind::Log, b"torn");
    env.note(Note::LogSealed { log: log.path() });
    // This write panics.
    _ = log.write_at(4, b"more");
}

/// Rewrites a manifest; each step can be omitted.
fn move_pointer(manifest_synced: bool, pointer_synced: bool, dir_synced: bool) -> MemEnv {
    let (mem, env) = world();
    let manifest = file(&env, "manifest-2", FileKind::Manifest, b"all");
    if manifest_synced {
        manifest.sync_data().unwrap();
        env.fs().sync_dir(Path::new("d")).unwrap();
    }
    let pointer = file(&env, "CURRENT.tmp", FileKind::Pointer, b"manifest-2");
    if pointer_synced {
        pointer.sync_data().unwrap();
    }
    env.note(Note::PointerTo { manifest: manifest.path() });
    env.fs().rename(pointer.path(), Path::new("d/CURRENT")).unwrap();
    if dir_synced {
        env.fs().sync_dir(Path::new("d")).unwrap();
    }
    mem.plant(Path::new("d/manifest-1"), FileKind::Manifest, b"old");
    env.fs().unlink(Path::new("d/manifest-1"), FileKind::Manifest).unwrap();
    mem
}

#[test]
fn o3_the_pointer_moves_to_what_is_durable() {
    assert!(rules(&move_pointer(true, true, true)).is_empty());
    assert_eq!(rules(&move_pointer(false, true, true)), ["O3"]);
    assert_eq!(rules(&move_pointer(true, false, true)), ["O3"]);
    assert_eq!(rules(&move_pointer(true, true, false)), ["O3"]);
}

#[test]
fn o3_a_manifest_that_no_pointer_named_may_go() {
    let (mem, env) = world();
    let pointer = durable(&env, "CURRENT.tmp", FileKind::Pointer, b"manifest-1");
    env.fs().rename(pointer.path(), Path::new("d/CURRENT")).unwrap();
    let manifest = file(&env, "manifest-2", FileKind::Manifest, b"all");
    env.fs().unlink(manifest.path(), FileKind::Manifest).unwrap();
    assert!(rules(&mem).is_empty());
    let manifest = file(&env, "manifest-3", FileKind::Manifest, b"all");
    env.note(Note::PointerTo { manifest: manifest.path() });
    env.fs().unlink(manifest.path(), FileKind::Manifest).unwrap();
    assert_eq!(rules(&mem), ["O3"]);
}

#[test]
fn o3_the_pointer_of_a_checkpoint_concerns_only_its_own_directory() {
    let (mem, env) = world();
    env.fs().create_dir_all(Path::new("copy")).unwrap();
    let pointer = env.fs().create(Path::new("copy/CURRENT.tmp"), FileKind::Pointer).unwrap();
    pointer.write_at(0, b"manifest-2").unwrap();
    pointer.sync_data().unwrap();
    env.fs().rename(Path::new("copy/CURRENT.tmp"), Path::new("copy/CURRENT")).unwrap();
    mem.plant(Path::new("d/7.table"), FileKind::Table, b"unused");
    mem.plant(Path::new("copy/7.table"), FileKind::Table, b"unused");
    env.fs().unlink(Path::new("d/7.table"), FileKind::Table).unwrap();
    assert!(rules(&mem).is_empty());
    env.fs().unlink(Path::new("copy/7.table"), FileKind::Table).unwrap();
    assert_eq!(rules(&mem), ["O3"]);
}

#[test]
fn o4_a_number_is_used_once_also_after_a_crash() {
    let (mem, env) = world();
    durable(&env, "7.table", FileKind::Table, b"");
    durable(&env, "CURRENT", FileKind::Pointer, b"");
    let image = mem.snapshot().image(drumlin_env::ImageMode::None, 0);
    for (mem, env) in [(mem.clone(), env), (image.clone(), image.env())] {
        for (name, kind) in [("d/7.table", FileKind::Table), ("d/CURRENT", FileKind::Pointer)] {
            env.fs().unlink(Path::new(name), kind).unwrap();
            env.fs().create(Path::new(name), kind).unwrap();
        }
        assert_eq!(rules(&mem), ["O4"]);
    }
}

#[test]
fn o6_a_sealed_log_is_not_written() {
    let (mem, env) = world();
    let log = durable(&env, "1.log", FileKind::Log, b"torn");
    env.note(Note::LogSealed { log: log.path() });
    log.read_at(0, &mut [0; 4]).unwrap();
    assert!(rules(&mem).is_empty());
    log.write_at(4, b"more").unwrap();
    assert_eq!(rules(&mem), ["O6"]);
}

#[test]
fn o9_a_name_is_unlinked_once() {
    let (mem, env) = world();
    let unlink = |env: &Env| env.fs().unlink(Path::new("d/1.table"), FileKind::Table);
    durable(&env, "1.table", FileKind::Table, b"");
    mem.inject(Fault { op: Some(Op::Unlink), kind: None, when: When::Nth(0), effect: Effect::Fail(5) });
    assert!(unlink(&env).is_err());
    unlink(&env).unwrap();
    assert!(rules(&mem).is_empty(), "a failed call is made again");
    assert!(unlink(&env).is_err());
    assert_eq!(rules(&mem), ["O9"]);
}

#[test]
fn o10_a_failed_log_or_manifest_is_left_alone() {
    let spoil = |kind, op, again: fn(&drumlin_env::File) -> std::io::Result<()>| {
        let (mem, env) = world();
        let spoiled = durable(&env, "file", kind, b"bytes");
        mem.inject(Fault { op: Some(op), kind: None, when: When::Nth(0), effect: Effect::Fail(5) });
        assert!(spoiled.write_at(5, b"more").and_then(|()| spoiled.sync_data()).is_err());
        assert!(rules(&mem).is_empty());
        spoiled.read_at(0, &mut [0; 5]).unwrap();
        assert!(rules(&mem).is_empty());
        again(&spoiled).unwrap();
        rules(&mem)
    };
    for kind in [FileKind::Log, FileKind::Manifest] {
        for op in [Op::Write, Op::SyncData] {
            assert_eq!(spoil(kind, op, |file| file.write_at(5, b"more")), ["O10"], "{kind} {op:?}");
            assert_eq!(spoil(kind, op, |file| file.sync_data()), ["O10"], "{kind} {op:?}");
        }
    }
    assert!(spoil(FileKind::Table, Op::SyncData, |file| file.sync_data()).is_empty());
}

#[test]
fn o12_a_checkpoint_copies_what_is_synced() {
    let (mem, env) = world();
    let log = durable(&env, "1.log", FileKind::Log, &[1; 100]);
    log.write_at(100, &[2; 100]).unwrap();
    env.note(Note::LogCopied { log: log.path(), end: 100 });
    assert!(rules(&mem).is_empty());
    env.note(Note::LogCopied { log: log.path(), end: 150 });
    assert_eq!(rules(&mem), ["O12"]);
}

#[test]
fn o13_recovery_begins_with_a_segment_that_is_there() {
    let (mem, env) = world();
    let log = durable(&env, "1.log", FileKind::Log, &[1; 100]);
    log.write_at(60, &[2; 10]).unwrap();
    env.note(Note::LogBegins { log: log.path(), header: 60 });
    assert!(rules(&mem).is_empty());
    env.note(Note::LogBegins { log: log.path(), header: 61 });
    let unnamed = env.fs().create(&log.path().with_file_name("2.log"), FileKind::Log).unwrap();
    unnamed.write_at(0, &[1; 100]).unwrap();
    unnamed.sync_data().unwrap();
    env.note(Note::LogBegins { log: unnamed.path(), header: 60 });
    assert_eq!(rules(&mem), ["O13", "O13"]);
}

#[test]
fn a_copy_that_is_being_made_does_not_count_for_the_store() {
    let (mem, env) = world();
    env.fs().create_dir_all(Path::new("copy")).unwrap();
    let in_copy = |name: &str, kind| env.fs().create(&Path::new("copy").join(name), kind).unwrap();
    let manifest = durable(&env, "manifest", FileKind::Manifest, b"");
    env.note(Note::EditRemoves { files: &[] });
    manifest.write_at(0, b"edit").unwrap();
    manifest.sync_data().unwrap();
    // The pointer of the copy has no durable name yet.
    let pointer = in_copy("CURRENT.tmp", FileKind::Pointer);
    pointer.write_at(0, b"manifest").unwrap();
    pointer.sync_data().unwrap();
    env.fs().rename(pointer.path(), Path::new("copy/CURRENT")).unwrap();
    env.note(Note::EditDurable { dir: Path::new("d") });
    assert!(rules(&mem).is_empty());
    // A sync of the copy's manifest makes no edit of the store durable.
    env.note(Note::EditRemoves { files: &[] });
    in_copy("manifest", FileKind::Manifest).sync_data().unwrap();
    env.note(Note::EditDurable { dir: Path::new("d") });
    assert_eq!(rules(&mem), ["O1"]);
}
