//! Tests of the files that a writer leaves behind.

use super::*;
use crate::base::error::ErrorKind;
use drumlin_env::{Effect, Fault, FileKind, Op, When};

fn create(mem: &MemEnv, options: TableOptions) -> Result<TableWriter, Error> {
    mem.env().fs().create_dir_all("/db".as_ref()).expect("room");
    TableWriter::create(&mem.env(), "/db/000012.table".as_ref(), ID, options)
}

fn fill(writer: &mut TableWriter, entries: u32) -> Result<(), Error> {
    (0..entries).try_for_each(|i| writer.add(&i.to_be_bytes(), 1, Kind::Put, &[7; 100], false))
}

#[test]
fn a_finished_table_is_durable_with_its_directory() {
    let mem = MemEnv::new(1);
    let mut writer = create(&mem, TableOptions::default()).expect("room");
    assert!(writer.is_empty());
    fill(&mut writer, 30_000).expect("room");
    assert_eq!((writer.entries(), writer.keys(), writer.hash_bytes()), (30_000, 30_000, 240_000));
    let estimate = writer.size();
    let summary = writer.finish(8.0).expect("room");
    let rest = summary.file_len - estimate;
    assert!(rest < 30_000 + 100_000, "the filter, and what the index was underestimated by: {rest}");
    let path = "/db/000012.table".as_ref();
    assert_eq!(mem.env().fs().file_len(path).expect("there"), summary.file_len);
    mem.env().fs().sync_dir("/".as_ref()).expect("room");
    mem.env().fs().sync_dir("/db".as_ref()).expect("room");
    assert!(mem.is_durable(path));
}

#[test]
fn an_unfinished_table_leaves_no_file() {
    let mem = MemEnv::new(1);
    let mut writer = create(&mem, TableOptions::default()).expect("room");
    fill(&mut writer, 20_000).expect("room");
    assert_eq!(mem.files().len(), 1);
    drop(writer);
    assert_eq!(mem.files().len(), 0);
    let empty = create(&mem, TableOptions::default()).expect("room").finish(8.0);
    assert_eq!(empty.expect_err("nothing in it").kind(), ErrorKind::Bug);
    assert_eq!(mem.files().len(), 0);
}

#[test]
fn a_name_that_is_taken_is_left_alone() {
    let mem = MemEnv::new(1);
    let mut writer = create(&mem, TableOptions::default()).expect("room");
    fill(&mut writer, 1).expect("room");
    let len = writer.finish(8.0).expect("room").file_len;
    let taken = create(&mem, TableOptions::default());
    assert_eq!(taken.err().expect("taken").kind(), ErrorKind::Io);
    assert_eq!(mem.env().fs().file_len("/db/000012.table".as_ref()).expect("there"), len);
}

#[test]
fn each_failure_is_reported_and_cleaned_up() {
    let enospc = 28;
    for op in [Op::Create, Op::Write, Op::SyncData, Op::Close] {
        for nth in 0..4 {
            let mem = MemEnv::new(1);
            let effect = Effect::Fail(enospc);
            mem.inject(Fault { op: Some(op), kind: Some(FileKind::Table), when: When::Nth(nth), effect });
            let outcome = create(&mem, TableOptions::default()).and_then(|mut writer| {
                fill(&mut writer, 30_000)?;
                writer.finish(8.0)
            });
            let fired = !mem.fired().is_empty();
            assert_eq!(fired, nth == 0 || op == Op::Write, "{op:?} {nth}");
            match outcome {
                Ok(_) => assert!(!fired),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NoSpace);
                    assert!(error.path().is_some());
                    assert!(mem.files().is_empty());
                }
            }
        }
    }
}

#[test]
fn misuse_is_an_error() {
    let mem = MemEnv::new(1);
    let mut writer = create(&mem, TableOptions::default()).expect("room");
    writer.add(b"b", 5, Kind::Put, b"", false).expect("first");
    assert_eq!(writer.add(b"a", 5, Kind::Put, b"", false).expect_err("order").kind(), ErrorKind::Bug);
    let long = vec![0; drumlin_types::MAX_KEY_LEN + 1];
    let error = writer.add(&long, 5, Kind::Put, b"", false).expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}
