//! The target of a whole store: opens, reads, verifies, writes and closes a directory with damaged files.
//!
//! The input is a list of damages to a fixture, not the files themselves, so that inputs stay short:
//!
//! ```text
//! input    flags u8 (1: mend the checksums of damaged files, 2: the store that was not closed) | damage | damage | ...
//! damage   file u8 | how u8 | offset u24 | length u8 | that many bytes
//! how      0 overwrite, 1 cut, 2 zero, 3 put another file in its place, 4 insert; of its remainder by 5
//! ```
//!
//! Whatever the files contain, every call returns an answer or an error, and no read reports a broken invariant.

use super::fields::Fields;
use crate::fuzz::mend;
use crate::fuzz::target::Target;
use drumlin::{Append, Db, ErrorKind};
use drumlin_env::sync::Arc;
use drumlin_env::{Disk, FileKind, ImageMode, MemEnv};
use drumlin_format::names::FileName;
use std::path::{Path, PathBuf};

pub(super) const TARGETS: &[Target] =
    &[Target { name: "store", codecs: &[], run: store, mend: mend::nothing, seeds, cost: 50 }];

/// Path of the store.
const STORE: &str = "/store";
/// Maximum number of damages in one input.
const MOST_DAMAGES: usize = 12;
/// Maximum number of entries that a store as small as the fixture can return.
const MOST_ENTRIES: usize = 20_000;
/// Header length of a log segment, and of any other file.
const SEGMENT_HEADER: usize = 4096;
const HEADER: usize = 32;

/// A sound store.
struct Fixture {
    disk: Disk,
    files: Vec<(PathBuf, FileKind, Vec<u8>)>,
}

thread_local! {
    static FIXTURES: [Fixture; 2] = [Fixture::make(true), Fixture::make(false)];
}

fn open(mem: &MemEnv) -> drumlin::Result<Db> {
    let builder = Db::builder(STORE).env(mem.env()).merge_operator("a", Arc::new(Append::new(",")));
    builder.set("memory_budget", "8MiB")?.set("log_segment_bytes", "64KiB")?.open()
}

impl Fixture {
    fn make(is_closed: bool) -> Fixture {
        let mem = MemEnv::new(7);
        let fill = || -> drumlin::Result<MemEnv> {
            let db = open(&mem)?;
            let small = [("memtable_bytes", "16KiB"), ("file_bytes", "4KiB"), ("compaction", "tiering:2")];
            let (a, b) = (db.keyspace_with("a", &small)?, db.keyspace("b")?);
            for round in 0..3 {
                for number in 0..60 {
                    a.put(format!("key-{:03}", number * 7 % 60), format!("value {round} {number}"))?;
                }
                a.merge("key-007", "more")?;
                a.delete_range(format!("key-01{round}").into_bytes()..b"key-015".to_vec())?;
                b.put("b", "1")?;
                db.flush()?;
            }
            db.wait_idle()?;
            a.put("last", "one")?;
            db.sync()?;
            b.delete("b")?;
            if !is_closed {
                return Ok(mem.snapshot().image(ImageMode::All, 7));
            }
            drop((a, b));
            db.close()?;
            Ok(mem.clone())
        };
        let left = fill().expect("a simulated disk without faults");
        let file = |path: PathBuf| {
            let (kind, bytes) = (left.kind_of(&path)?, left.peek(&path)?);
            (kind != FileKind::Lock).then_some((path, kind, bytes))
        };
        Fixture { disk: left.snapshot(), files: left.files().into_iter().filter_map(file).collect() }
    }

    /// Returns the disk with this damage.
    fn damaged(&self, mut fields: Fields<'_>, mends: bool) -> MemEnv {
        let mem = self.disk.image(ImageMode::All, 7);
        let mut files: Vec<Vec<u8>> = self.files.iter().map(|(_, _, bytes)| bytes.clone()).collect();
        let mut touched = vec![false; files.len()];
        for _ in 0..MOST_DAMAGES {
            if fields.0.is_empty() {
                break;
            }
            let at = usize::from(fields.u8()) % files.len();
            let how = fields.u8();
            let offset = usize::from(fields.u16()) | usize::from(fields.u8()) << 16;
            let len = usize::from(fields.u8());
            let piece = fields.bytes(len);
            touched[at] = true;
            if how % 5 == 3 {
                files[at] = self.files[offset % files.len()].2.clone();
            } else {
                damage(&mut files[at], how, offset, piece);
            }
        }
        for (at, (path, kind, _)) in self.files.iter().enumerate().filter(|(at, _)| touched[*at]) {
            if mends {
                mend_file(path, &mut files[at]);
            }
            mem.plant(path, *kind, &files[at]);
        }
        mem
    }
}

fn damage(bytes: &mut Vec<u8>, how: u8, offset: usize, piece: &[u8]) {
    // Most of a log is preallocated space without records.
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let offset = offset % (used + 64);
    let end = (offset + piece.len()).min(bytes.len());
    let offset = offset.min(end);
    match how % 5 {
        0 => bytes[offset..end].iter_mut().zip(piece).for_each(|(to, from)| *to = *from),
        1 => bytes.truncate(offset),
        2 => bytes[offset..end].fill(0),
        _ => drop(bytes.splice(offset..offset, piece.iter().copied())),
    }
}

fn mend_file(path: &Path, bytes: &mut [u8]) {
    let name = path.file_name().and_then(|name| name.to_str()).and_then(FileName::parse);
    let Some(name) = name else { return };
    let number = name.number().unwrap_or(0);
    match name {
        FileName::Log(_) => {
            mend::header(bytes, number, SEGMENT_HEADER);
            mend::frames(bytes, number, SEGMENT_HEADER, None);
        }
        FileName::Manifest(_) => {
            let chain = mend::header(bytes, number, HEADER);
            mend::frames(bytes, number, HEADER, Some(chain));
        }
        FileName::Decisions(_) => {
            mend::header(bytes, number, HEADER);
            mend::frames(bytes, number, HEADER, None);
        }
        FileName::Table(_) => mend::table(bytes, number),
        FileName::Pointer => mend::pointer(bytes),
        FileName::Value(_) | FileName::Map(_) | FileName::Lock | FileName::Temp(_) => {}
    }
}

/// Returns the value of an answer. Any error is acceptable except a broken invariant.
fn answered<T>(answer: drumlin::Result<T>) -> Option<T> {
    match answer {
        Ok(value) => Some(value),
        Err(error) => {
            assert!(error.kind() != ErrorKind::Bug, "{error}");
            None
        }
    }
}

fn store(input: &[u8]) -> bool {
    let mut fields = Fields(input);
    let flags = fields.u8();
    let which = usize::from(flags & 2 != 0);
    let mem = FIXTURES.with(|fixtures| fixtures[which].damaged(fields, flags & 1 != 0));
    let Some(db) = answered(open(&mem)) else { return false };
    read(&db);
    answered(db.verify());
    let _ = (db.explain(), db.tree(), db.replay_decisions());
    write(&db);
    let _ = db.close();
    if let Some(db) = answered(open(&mem)) {
        read(&db);
    }
    true
}

fn read(db: &Db) {
    for name in db.keyspaces() {
        let Some(keyspace) = answered(db.keyspace(&name)) else { continue };
        let forwards = keyspace.iter().take(MOST_ENTRIES);
        let seen = forwards.map_while(answered).count();
        let backwards = keyspace.iter().rev().take(MOST_ENTRIES).map_while(answered).count();
        assert!(seen.max(backwards) < MOST_ENTRIES, "a scan has no end");
        for key in ["key-007", "key-013", "last", "b", ""] {
            answered(keyspace.get(key));
        }
        answered(keyspace.multi_get(["key-000", "key-059", "nothing"]));
    }
}

fn write(db: &Db) {
    let Some(keyspace) = answered(db.keyspace("a")) else { return };
    answered(keyspace.put("new", "value"));
    answered(keyspace.delete_range("key-03".."key-04"));
    // These calls may report a broken invariant. A compaction counts the entries that it reads, and stops when a
    // table with sound checksums holds another number than recorded. Its inputs stay.
    let _ = (db.flush(), keyspace.compact::<&str>(..), db.wait_idle());
}

/// Returns sound stores, and the same stores with every file's checksums corrected, which changes nothing.
fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![vec![0], vec![2]];
    for flags in [1, 3] {
        let files = FIXTURES.with(|fixtures| fixtures[usize::from(flags & 2 != 0)].files.len());
        // Overwrite the start of each file with zero bytes of data.
        let damages = (0..files.min(MOST_DAMAGES) as u8).flat_map(|file| [file, 0, 0, 0, 0, 0]);
        seeds.push([flags].into_iter().chain(damages).collect());
    }
    seeds
}
