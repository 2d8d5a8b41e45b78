//! Repair of files and keyspaces whose names mislead: renamed log segments, manifests that were only begun, and names
//! of keyspaces that collide.

use drumlin::{Db, RepairReport, repair_in};
use drumlin_env::{FileKind, ImageMode, MemEnv};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

type Content = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

fn open(mem: &MemEnv, dir: &str) -> Db {
    Db::builder(dir).env(mem.env()).open().expect("open")
}

fn content(db: &Db) -> Content {
    let of = |name: &String| {
        let keys = db.keyspace(name).expect("keyspace");
        keys.iter()
            .map(|entry| entry.expect("sound"))
            .map(|(key, value)| (key.to_vec(), value.to_vec()))
            .collect()
    };
    db.keyspaces().iter().map(|name| (name.clone(), of(name))).collect()
}

/// Returns an image of a store with flushed and logged writes that was not closed, and its content.
fn store() -> (MemEnv, Content) {
    let mem = MemEnv::new(21);
    let db = open(&mem, "/s");
    let keys = db.keyspace("k").expect("keyspace");
    for n in 0..100u32 {
        keys.put(n.to_be_bytes(), "flushed").expect("put");
    }
    db.flush().expect("flush");
    for n in 50..200u32 {
        keys.put(n.to_be_bytes(), "logged").expect("put");
    }
    (mem.snapshot().image(ImageMode::All, 1), content(&db))
}

fn repaired(mem: &MemEnv) -> (RepairReport, Content) {
    let report = repair_in(&mem.env(), "/s", "/t", |_| {}).expect("repair");
    let db = open(mem, "/t");
    assert_eq!(db.verify().expect("verify").findings, vec![]);
    (report, content(&db))
}

fn files_of(mem: &MemEnv, kind: FileKind) -> Vec<PathBuf> {
    mem.files().into_iter().filter(|path| mem.kind_of(path) == Some(kind)).collect()
}

fn remove(mem: &MemEnv, path: &Path) {
    let kind = mem.kind_of(path).expect("there");
    mem.env().fs().unlink(path, kind).expect("removed");
}

fn lose_manifests(mem: &MemEnv) {
    files_of(mem, FileKind::Manifest).iter().for_each(|path| remove(mem, path));
}

/// A sound log segment is read under whatever name it has.
#[test]
fn a_renamed_log_segment_is_read() {
    let (mem, truth) = store();
    let logs: Vec<PathBuf> = files_of(&mem, FileKind::Log);
    for path in &logs {
        let bytes = mem.peek(path).expect("there");
        remove(&mem, path);
        mem.plant(&path.with_file_name("999999.log"), FileKind::Log, &bytes);
    }
    assert_eq!(logs.len(), 1);
    let (report, found) = repaired(&mem);
    assert!(found == truth, "{:?}", report.findings);
}

/// A store was killed while it wrote its next manifest, which never came into force. Without `CURRENT`, repair uses its
/// predecessor.
#[test]
fn a_manifest_that_was_only_begun_is_not_used() {
    let (mem, truth) = store();
    remove(&mem, Path::new("/s/CURRENT"));
    let current = files_of(&mem, FileKind::Manifest).pop().expect("a manifest");
    // The header holds the manifest's number, so it comes from a store whose manifest has a larger one.
    let other = MemEnv::new(3);
    for _ in 0..40 {
        open(&other, "/s").close().expect("close");
    }
    let newest = files_of(&other, FileKind::Manifest).pop().expect("a manifest");
    assert!(newest.file_name() > current.file_name(), "{} {}", newest.display(), current.display());
    let mut begun = other.peek(&newest).expect("there");
    // After the header.
    begun[32..].fill(0);
    mem.plant(&newest, FileKind::Manifest, &begun);
    let (report, found) = repaired(&mem);
    assert!(found == truth, "{:?}", report.findings);
    assert!(report.findings.iter().any(|finding| finding.contains("was never in force")));
}

/// Names of the greatest length that collide get a suffix in place of their end.
#[test]
fn long_names_that_collide_are_kept_apart() {
    let mem = MemEnv::new(46);
    let db = open(&mem, "/s");
    let name = "\u{e9}".repeat(127) + "a";
    db.keyspace(&name).expect("keyspace").put("k", "of the first").expect("put");
    db.flush().expect("flush");
    db.rename_keyspace(&name, "b").expect("rename");
    db.keyspace(&name).expect("keyspace").put("k", "of the second").expect("put");
    db.flush().expect("flush");
    let image = mem.snapshot().image(ImageMode::All, 1);
    lose_manifests(&image);
    let (_, found) = repaired(&image);
    let value = |name: &str| found.get(name).map(|map| map[&b"k"[..]].clone());
    let short = format!("{}-0", "\u{e9}".repeat(126));
    assert_eq!(value(&name).as_deref(), Some(&b"of the second"[..]), "{:?}", found.keys());
    assert_eq!(value(&short).as_deref(), Some(&b"of the first"[..]), "{:?}", found.keys());
}
