//! Tests of jobs that write value files and fail: nothing of theirs stays.

use drumlin::{Db, ErrorKind};
use drumlin_env::{Effect, Fault, FileKind, MemEnv, Op, When};
use std::path::PathBuf;

const NO_SPACE: i32 = 28;

fn value_files(mem: &MemEnv) -> Vec<PathBuf> {
    mem.files().into_iter().filter(|path| mem.kind_of(path) == Some(FileKind::Value)).collect()
}

/// A flush that fails after it has finished its value files removes them itself. Maintenance would take their removal
/// for space that was freed.
#[test]
fn a_failed_flush_leaves_no_value_files() {
    let mem = MemEnv::new(2);
    let db =
        Db::builder("/s").env(mem.env()).memory_budget(8 << 20).expect("an option").open().expect("open");
    let keys = db.keyspace_with("k", &[("value_threshold", "100B")]).expect("a keyspace");
    for number in 0..300_u32 {
        keys.put(number.to_be_bytes(), [number as u8; 1000]).expect("a put");
    }
    mem.inject(Fault {
        op: Some(Op::SyncData),
        kind: Some(FileKind::Table),
        when: When::From(0),
        effect: Effect::Fail(NO_SPACE),
    });
    let failed = db.flush().expect_err("the table cannot be synced");
    assert_eq!(failed.kind(), ErrorKind::NoSpace, "{failed}");
    assert_eq!(value_files(&mem), Vec::<PathBuf>::new());
    // If it cannot remove a file, maintenance does.
    mem.inject(Fault {
        op: Some(Op::Unlink),
        kind: Some(FileKind::Value),
        when: When::Nth(0),
        effect: Effect::Fail(5),
    });
    db.flush().expect_err("the table cannot be synced");
    assert!(mem.fired().iter().any(|fired| fired.op == Op::Unlink), "a value file could be removed");
    mem.clear_faults();
    db.flush().expect("there is space again");
    db.wait_idle().expect("idle");
    assert_eq!(value_files(&mem).len() as u64, db.metrics().value_files);
    assert_eq!(db.verify().expect("a report").findings, vec![]);
}
