//! A backup of a running store: a checkpoint is a consistent copy made of links, which opens as a store of its own. It
//! shares tables with the store, so copy it to another disk.
//!
//! `cargo run --example backup -p drumlin`

use drumlin::{Db, Result};

fn main() -> Result<()> {
    let dir = drumlin::env::TempDir::new("drumlin-backup").expect("a temporary directory");
    let db = Db::open(dir.path().join("live"))?;
    let accounts = db.keyspace("accounts")?;
    for number in 0..1000u32 {
        accounts.put(number.to_be_bytes(), "open")?;
    }
    db.checkpoint(dir.path().join("monday"))?;
    // What is written later is not in the copy.
    accounts.delete_range(0u32.to_be_bytes()..500u32.to_be_bytes())?;

    let copy = Db::builder(dir.path().join("monday")).read_only(true).open()?;
    let report = copy.verify()?;
    println!("{} findings in the copy", report.findings.len());
    assert!(report.findings.is_empty());
    assert_eq!(copy.keyspace("accounts")?.len()?, 1000);
    assert_eq!(accounts.len()?, 500);
    Ok(())
}
