//! Tests of extreme numbers in files with valid checksums. Opening and using such a store returns an error or works. It
//! never panics, hangs or uses unbounded memory.
//!
//! In the manifest of a small store, each varint and each eight bytes of each change become extreme in turn. A variant
//! that the decoder accepts is written as a manifest and opened. So changes that are added to the format later are
//! tested automatically. The log and the pointer have few numbers, so the tests list them.

use drumlin::env::{Env, FileKind, MemEnv};
use drumlin::{Db, Durability, Result};
use drumlin_format::log::{Predecessor, RecordHeader, RecordKind, SegmentHeader, encode_record};
use drumlin_format::manifest::{self, Change, Edit, FileRecord, ManifestHeader, ManifestWriter};
use drumlin_format::names::FileName;
use drumlin_format::pointer::Pointer;
use drumlin_types::{Key, KeyspaceId, LogNumber, RunId, Seq, TableId};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

const EXTREMES: [u64; 10] = [
    0,
    1,
    u32::MAX as u64 - 1,
    u32::MAX as u64,
    i64::MAX as u64,
    i64::MAX as u64 + 1,
    u64::MAX / 2 - 300,
    u64::MAX - 256,
    u64::MAX - 1,
    u64::MAX,
];

/// Number of changes of each kind to try.
const OF_A_KIND: usize = 2;

fn path(name: FileName) -> PathBuf {
    Path::new("/s").join(name.to_string())
}

/// Creates a store with tables in two keyspaces, range tombstones and a log.
fn store() -> MemEnv {
    let mem = MemEnv::new(81);
    let db =
        Db::builder("/s").env(mem.env()).set("memory_budget", "8MiB").and_then(|b| b.open()).expect("open");
    for name in ["a", "b"] {
        let keys =
            db.keyspace_with(name, &[("file_bytes", "4KiB"), ("compression", "none")]).expect("keyspace");
        (0..40u32).for_each(|n| _ = keys.put(n.to_be_bytes(), [3; 400]).expect("put"));
        keys.delete_range(5u32.to_be_bytes()..9u32.to_be_bytes()).expect("delete");
        db.flush().expect("flush");
    }
    db.keyspace("a").expect("a").put("logged", "1").expect("put");
    db.close().expect("close");
    mem
}

fn write(env: &Env, name: FileName, kind: FileKind, bytes: &[u8]) {
    let _ = env.fs().unlink(&path(name), kind);
    let file = env.fs().create(&path(name), kind).expect("create");
    file.write_at(0, bytes).expect("write");
}

/// Opens the store and uses it, as a program would.
fn use_it(env: &Env) -> Result<()> {
    let db = Db::builder("/s").env(env.clone()).set("memory_budget", "8MiB")?.open()?;
    for name in ["a", "new"] {
        let keys = db.keyspace(name)?;
        keys.put_with("k", "v", Durability::Sync)?;
        assert_eq!(keys.get("k")?.as_deref(), Some(&b"v"[..]));
        keys.iter().take(100).try_for_each(|entry| entry.map(drop))?;
        db.flush()?;
        keys.compact::<&str>(..)?;
    }
    let _ = (db.metrics(), db.explain(), db.tree());
    db.close()
}

/// Opens the store after `harm` has changed it. Returns `what` if that panicked.
fn panics(what: &str, mem: &MemEnv, harm: impl FnOnce(&Env)) -> Option<String> {
    let copy = mem.snapshot().image(drumlin::env::ImageMode::All, 1);
    let env = copy.env();
    harm(&env);
    let outcome = catch_unwind(AssertUnwindSafe(|| use_it(&env)));
    outcome.is_err().then(|| what.to_owned())
}

/// Returns the header and the edits of the store's manifest.
fn edits(mem: &MemEnv) -> (ManifestHeader, Vec<Edit>) {
    let pointer = Pointer::decode(&mem.peek(&path(FileName::Pointer)).expect("there")).expect("sound");
    let bytes = mem.peek(&path(FileName::Manifest(pointer.manifest))).expect("there");
    let mut edits = Vec::new();
    let end = manifest::replay::<drumlin_format::error::DecodeError>(&bytes, pointer.manifest, 0, |edit| {
        edits.push(edit);
        Ok(())
    });
    (end.expect("sound").header, edits)
}

fn put_manifest(env: &Env, header: ManifestHeader, edits: &[Edit]) {
    let (mut writer, mut bytes) = ManifestWriter::create(header);
    for edit in edits {
        let Ok(more) = writer.append(edit) else { return };
        bytes.extend(more);
    }
    let pointer = Pointer { manifest: header.number, synced: bytes.len() as u64 };
    bytes.resize(manifest::file_len(bytes.len() as u64) as usize, 0);
    write(env, FileName::Manifest(header.number), FileKind::Manifest, &bytes);
    write(env, FileName::Pointer, FileKind::Pointer, pointer.encode().as_bytes());
}

/// Returns all edits of one change that differ from `change` in one number, which is extreme.
fn variants(change: &Change) -> Vec<Change> {
    use drumlin_format::bytes::{Reader, put_slice, put_varint};
    let whole = Edit { changes: vec![change.clone()] }.encode().expect("it was read");
    let mut reader = Reader::new(&whole);
    let tag = reader.varint_u64().expect("a tag");
    let body = reader.slice().expect("a body");
    let mut found = Vec::new();
    for at in 0..body.len() {
        let mut number = Reader::new(&body[at..]);
        let varint = number.varint_u64().ok().map(|_| body.len() - at - number.remaining());
        for (width, extreme) in
            [varint, Some(8), Some(1)].into_iter().flatten().flat_map(|width| EXTREMES.map(|e| (width, e)))
        {
            let Some(rest) = body.get(at + width..) else { continue };
            let mut changed = body[..at].to_vec();
            match width {
                8 => changed.extend(extreme.to_le_bytes()),
                1 => changed.push(extreme as u8),
                _ => put_varint(&mut changed, extreme),
            }
            if varint == Some(width) {
                changed.truncate(at);
                put_varint(&mut changed, extreme);
            }
            changed.extend_from_slice(rest);
            let mut bytes = Vec::new();
            put_varint(&mut bytes, tag);
            put_slice(&mut bytes, &changed);
            if let Ok(Edit { changes }) = Edit::decode(&bytes) {
                found.extend(changes.into_iter().filter(|other| other != change));
            }
        }
    }
    let mut seen = BTreeSet::new();
    found.retain(|change| seen.insert(format!("{change:?}")));
    found
}

#[test]
fn extreme_numbers_of_the_manifest_are_an_error_or_harmless() {
    let mem = store();
    let (header, edits) = edits(&mem);
    let (mut tried, mut panicked, mut kinds) = (0, Vec::new(), BTreeMap::new());
    for (place, edit) in edits.iter().enumerate() {
        for (index, change) in edit.changes.iter().enumerate() {
            // There are many options, and their values are text.
            let kind = std::mem::discriminant(change);
            if matches!(change, Change::StoreOption { .. } | Change::KeyspaceOption { .. }) {
                continue;
            }
            let seen: &mut usize = kinds.entry(format!("{kind:?}")).or_default();
            *seen += 1;
            if *seen > OF_A_KIND {
                continue;
            }
            // The state of a policy is long and has its own decoder, so only some variants are tried.
            let step = if matches!(change, Change::Policy { .. }) { 37 } else { 1 };
            for variant in variants(change).into_iter().step_by(step) {
                let what = format!("{variant:?}");
                let mut edits = edits.clone();
                edits[place].changes[index] = variant;
                tried += 1;
                panicked.extend(panics(&what, &mem, |env| put_manifest(env, header, &edits)));
            }
        }
    }
    println!("extremes: {tried} manifests tried, {} kinds of changes", kinds.len());
    assert!(tried > 300 && kinds.len() >= 9, "{tried} manifests, {} kinds of changes", kinds.len());
    assert!(panicked.is_empty(), "{} panicked: {panicked:#?}", panicked.len());
}

#[test]
fn extreme_numbers_of_manifests_log_and_names_are_an_error_or_harmless() {
    let mem = store();
    let (header, edits) = edits(&mem);
    let mut panicked = Vec::new();
    let id = KeyspaceId(u32::MAX);
    for extreme in EXTREMES {
        // Changes that the manifest of a small store does not contain.
        let (run, table) = (RunId(extreme), TableId(extreme));
        let more = [
            vec![Change::CreateKeyspace { id, name: "last".to_owned() }],
            vec![Change::CreateKeyspace { id, name: "last".to_owned() }, Change::DropKeyspace { id }],
            vec![Change::LogFloor(LogNumber(extreme))],
            vec![Change::NextFile(extreme), Change::NextRun(extreme)],
            vec![Change::LastSeq(extreme), Change::ClockMark(extreme)],
            vec![Change::Flushed { keyspace: KeyspaceId(1), seq: extreme }],
            vec![Change::AddRun { keyspace: KeyspaceId(1), run, level: 3, tag: Default::default() }],
            vec![Change::RemoveFile { keyspace: KeyspaceId(1), table, start: Key::empty() }],
        ];
        for changes in more {
            let what = format!("{changes:?}");
            let edits = [&edits[..], &[Edit { changes }]].concat();
            panicked.extend(panics(&what, &mem, |env| put_manifest(env, header, &edits)));
        }
        // Files with numbers that no store uses.
        for name in FileName::all_kinds(extreme).into_iter().filter(|name| name.number().is_some()) {
            let what = format!("a file {name}");
            panicked.extend(panics(&what, &mem, |env| {
                if !env.fs().exists(&path(name)).expect("look") {
                    write(env, name, FileKind::Temp, b"");
                }
            }));
        }
        // Extreme numbers in the pointer.
        for pointer in
            [Pointer { manifest: extreme, synced: 0 }, Pointer { manifest: header.number, synced: extreme }]
        {
            panicked.extend(panics(&format!("{pointer:?}"), &mem, |env| {
                write(env, FileName::Pointer, FileKind::Pointer, pointer.encode().as_bytes());
                if pointer.manifest != header.number {
                    put_manifest(env, ManifestHeader { number: extreme, ..header }, &edits);
                }
            }));
        }
        panicked.extend(logs(extreme).into_iter().filter_map(|(what, number, bytes)| {
            panics(&what, &mem, |env| {
                let edits = [&edits[..], &[Edit { changes: vec![Change::LogFloor(number)] }]].concat();
                put_manifest(env, header, &edits);
                write(env, FileName::Log(number), FileKind::Log, &bytes);
            })
        }));
    }
    assert!(panicked.is_empty(), "{} panicked: {panicked:#?}", panicked.len());
}

/// Returns log segments with one extreme number each.
fn logs(extreme: u64) -> Vec<(String, LogNumber, Vec<u8>)> {
    let mut batch = drumlin_format::batch::BatchWriter::new();
    let operation = drumlin_format::batch::Operation {
        kind: drumlin_types::Kind::Put,
        keyspace: KeyspaceId(1),
        key: b"k",
        value: b"v",
    };
    batch.push(&operation).expect("valid");
    let own = LogNumber(200);
    let plain = SegmentHeader { number: own, base: 0, predecessor: None, file_len: 0 };
    let after = |number, last_seq| Some(Predecessor { number: LogNumber(number), last_seq });
    let headers = [
        (plain, 1000, 0),
        (SegmentHeader { base: extreme, ..plain }, 1000, 0),
        (SegmentHeader { predecessor: after(3, extreme), ..plain }, extreme, 0),
        (SegmentHeader { predecessor: after(extreme.min(199), 5), ..plain }, 1000, 0),
        (SegmentHeader { number: LogNumber(extreme), ..plain }, 1000, 0),
        (plain, extreme, 0),
        (SegmentHeader { base: extreme, ..plain }, extreme, extreme),
    ];
    let made = headers.into_iter().map(|(header, first_seq, synced_mark): (_, Seq, _)| {
        let mut bytes = header.encode();
        let record = RecordHeader { kind: RecordKind::Batch, synced_mark, first_seq, count: batch.count() };
        let offset = bytes.len() as u64;
        let _ = encode_record(&mut bytes, header.number, offset, &record, batch.payload());
        (format!("{header:?} {record:?}"), header.number, bytes)
    });
    made.collect()
}

/// The variants of a reference to an existing table include each of its numbers. Every store's manifest has such
/// references.
#[test]
fn variants_reach_each_number_of_a_reference() {
    let mem = store();
    let (_, edits) = edits(&mem);
    let file = edits.iter().flat_map(|edit| &edit.changes).find_map(|change| match change {
        Change::AddFile { file, .. } => Some((change, file.clone())),
        _ => None,
    });
    let (change, file) = file.expect("a store with tables");
    let differs = |of: fn(&FileRecord) -> u64| {
        variants(change).iter().any(|other| match other {
            Change::AddFile { file: other, .. } => of(other) != of(&file),
            _ => false,
        })
    };
    assert!(
        differs(|f| f.table.0) && differs(|f| f.run.0) && differs(|f| f.file_len) && differs(|f| f.bytes)
    );
    assert!(
        differs(|f| f.keys) && differs(|f| f.tombstones) && differs(|f| f.max_seq) && differs(|f| f.checksum)
    );
}
