//! Tests of finished tables that no tree refers to. Open sets them aside under another name.

use drumlin::Db;
use drumlin_env::{ImageMode, MemEnv};
use std::path::{Path, PathBuf};

const STORE: &str = "/s";
const ASIDE: &str = ".tbl.lost";

fn open(mem: &MemEnv) -> Db {
    Db::builder(STORE).env(mem.env()).open().expect("open")
}

fn tables(mem: &MemEnv) -> Vec<PathBuf> {
    mem.files().into_iter().filter(|path| path.to_string_lossy().contains(".tbl")).collect()
}

/// Returns a store that lost power during a flush, after the table was durable. The log lost the flushed commit.
fn interrupted_flush() -> MemEnv {
    let mem = MemEnv::new(5);
    let db = open(&mem);
    let keys = db.keyspace("k").expect("keyspace");
    keys.put("key", "value").expect("put");
    mem.record(|_| true);
    db.flush().expect("flush");
    mem.record(|_| false);
    let images = mem.taken().into_iter().map(|(_, disk)| disk.image(ImageMode::None, 6));
    let has_orphan = |image: &MemEnv| {
        let opened = image.snapshot().image(ImageMode::All, 7);
        drop(open(&opened));
        tables(&opened).iter().any(|path| path.to_string_lossy().ends_with(ASIDE))
    };
    images.into_iter().find(has_orphan).expect("a moment at which the table is durable and the log is not")
}

#[test]
fn a_table_is_set_aside() {
    let mem = interrupted_flush();
    let [table] = &tables(&mem)[..] else { panic!("one table is left: {:?}", tables(&mem)) };
    let content = mem.peek(table);
    drop(open(&mem));
    let aside = table.with_extension("tbl.lost");
    assert_eq!(tables(&mem), vec![aside.clone()]);
    assert_eq!(mem.peek(&aside), content);
}

#[test]
fn a_table_with_both_names_keeps_the_other_one() {
    let mem = interrupted_flush();
    let [table] = &tables(&mem)[..] else { panic!("one table is left: {:?}", tables(&mem)) };
    let (table, aside) = (table.clone(), table.with_extension("tbl.lost"));
    // A power loss may tear the rename: it keeps the new name, and the old one too.
    let fs = mem.env().fs().clone();
    fs.link(&table, &aside).expect("link");
    fs.sync_dir(Path::new(STORE)).expect("sync");
    let content = mem.peek(&table);
    drop(open(&mem));
    assert_eq!(mem.order_violations(), Vec::<String>::new());
    assert_eq!(tables(&mem), vec![aside.clone()]);
    // The old name stays away after another power loss, and after another open.
    let mem = mem.snapshot().image(ImageMode::None, 8);
    assert_eq!(tables(&mem), vec![aside.clone()]);
    drop(open(&mem));
    assert_eq!(tables(&mem), vec![aside.clone()]);
    assert_eq!(mem.peek(&aside), content);
    assert_eq!(mem.order_violations(), Vec::<String>::new());
}
