//! Targets of the manifest: the bytes of one edit, and a whole file.

use super::fields::NUMBER;
use crate::fuzz::mend;
use crate::fuzz::target::Target;
use drumlin_format::error::DecodeError;
use drumlin_format::manifest::{
    Change, Edit, FileRecord, KeyspaceLookups, MANIFEST_HEADER_LEN, ManifestHeader, ManifestScanner,
    ManifestWriter, MapRecord, TableLife, ValueFileRecord, ValueFileState, ValueRef, replay,
};
use drumlin_types::contract::RunTag;
use drumlin_types::{Key, KeyspaceId, LogNumber, RunId, TableId, ValueFileId};

pub(super) const TARGETS: &[Target] = &[
    Target {
        name: "manifest-edit",
        codecs: &["manifest"],
        run: edit,
        mend: mend::nothing,
        seeds: edit_seeds,
        cost: 1,
    },
    Target {
        name: "manifest",
        codecs: &["manifest", "frame", "file_header"],
        run: manifest,
        mend: mend_manifest,
        seeds: manifest_seeds,
        cost: 1,
    },
];

fn edit(input: &[u8]) -> bool {
    let Ok(edit) = Edit::decode(input) else { return false };
    // Each change takes at least a tag byte and a length byte.
    assert!(edit.changes.len() <= input.len() / 2);
    assert_eq!(edit.encode().as_deref(), Ok(input));
    true
}

fn edits() -> Vec<Edit> {
    let (keyspace, start) = (KeyspaceId(1), Key::new(b"a"));
    let file = file(&start);
    let value_file = |state| ValueFileRecord {
        keyspace,
        file: ValueFileId(600),
        state,
        class: 2,
        file_len: 1 << 26,
        entries: 9000,
        total_bytes: 1 << 25,
        dead_bytes: 1 << 20,
        dead_entries: 100,
        created_seq: 50_000,
        end_seq: u64::MAX,
        min_seq: 40_000,
        max_seq: 50_000,
        checksum: 0xfedc_ba98_7654_3210,
    };
    let state = vec![
        Change::CreateKeyspace { id: keyspace, name: "users".into() },
        Change::KeyspaceOption { id: keyspace, name: "filter_bits".into(), value: "10".into() },
        Change::StoreOption { name: "memory_budget".into(), value: "64MiB".into() },
        Change::AddRun { keyspace, run: RunId(7), level: 3, tag: RunTag(vec![1, 2, 3]) },
        Change::AddFile { keyspace, file: file.clone() },
        Change::AddFile { keyspace, file: FileRecord { end: None, start: Key::new(b"n"), ..file } },
        Change::Policy { keyspace, name: "arce".into(), blob: vec![0, 1, 2, 255] },
        Change::LogFloor(LogNumber(9)),
        Change::NextFile(700),
        Change::NextRun(8),
    ];
    let changes = vec![
        Change::RemoveFile { keyspace, table: TableId(12), start: start.clone() },
        Change::Flushed { keyspace, seq: 20_000 },
        Change::LastSeq(20_001),
        Change::ClockMark(1_700_000_000_000_000),
        Change::Lookups { keyspace, table: TableId(12), start, lookups: [1.0, 2.0, 0.5] },
        Change::KeyspaceLookups { keyspace, lookups: keyspace_lookups() },
        Change::TableLives { keyspace, lives: vec![TableLife { level: 2, tables: 70, lookups: 9000.5 }] },
        Change::ValueLifetimes { keyspace, blob: vec![1, 22, 64, 0] },
        Change::ValueFile(value_file(ValueFileState::Live)),
        Change::ValueFile(value_file(ValueFileState::Moved(None))),
        Change::ValueFile(value_file(ValueFileState::Moved(Some(map_record())))),
        Change::ValueFile(value_file(ValueFileState::Gone)),
        Change::ValueCounters { file: ValueFileId(600), dead_bytes: 1 << 21, dead_entries: 200 },
        Change::Extension { tag: 1000, critical: false, bytes: vec![9, 8, 7] },
        Change::RenameKeyspace { id: keyspace, name: "people".into() },
        Change::DropKeyspace { id: KeyspaceId(0) },
    ];
    vec![Edit { changes: state }, Edit { changes }, Edit::default()]
}

fn file(start: &Key) -> FileRecord {
    FileRecord {
        table: TableId(12),
        start: start.clone(),
        end: Some(Key::new(b"m\0")),
        level: 3,
        run: RunId(7),
        file_len: 1 << 21,
        bytes: 1 << 20,
        entries: 5000,
        keys: 4500,
        tombstones: 12,
        range_tombstones: 1,
        table_entries: 10_000,
        min_seq: 100,
        max_seq: 20_000,
        filter_bits: 9.5,
        fp_rate: 0.0125,
        checksum: 0x0123_4567_89ab_cdef,
        accounted: true,
        value_refs: vec![ValueRef { file: ValueFileId(5), entries: 10, bytes: 100_000 }],
        lookups: [12.5, 3.0, 0.0],
    }
}

fn map_record() -> MapRecord {
    MapRecord { number: 601, file_len: 8192, entries: 77, checksum: 0x1111_2222 }
}

fn keyspace_lookups() -> KeyspaceLookups {
    let buckets = vec![(Key::new(b"g"), 150.5), (Key::new(b"m"), 0.0)];
    KeyspaceLookups { totals: [900.0, 800.0], keys: 5000, first: 700.0, buckets }
}

fn edit_seeds() -> Vec<Vec<u8>> {
    edits().iter().map(|edit| edit.encode().expect("valid")).collect()
}

fn manifest(input: &[u8]) -> bool {
    let Ok(mut scanner) = ManifestScanner::new(input, NUMBER) else { return false };
    let (mut writer, mut again) = ManifestWriter::create(scanner.header());
    let mut edits = 0;
    while let Some(edit) = scanner.next() {
        let Ok(edit) = edit else {
            assert!(scanner.next().is_none(), "a scanner goes on after an error");
            return false;
        };
        edits += 1;
        assert!(edits <= input.len() / 32, "more edits than there is room for");
        // The reader does not return synced marks, only the bytes of the edits.
        assert_eq!(writer.offset(), again.len() as u64);
        again.extend(writer.append(&edit).expect("what was read can be written"));
        assert_eq!(again.len() as u64, scanner.offset());
    }
    let mut visited = 0;
    let end = replay(input, NUMBER, 0, |_| {
        visited += 1;
        Ok::<(), DecodeError>(())
    });
    if let Ok(end) = end {
        assert_eq!((end.end, end.edits), (scanner.offset(), edits as u64));
        assert_eq!(visited, edits);
    }
    assert!(replay(input, NUMBER, u64::MAX, |_| Ok::<(), DecodeError>(())).is_err());
    edits > 0
}

fn mend_manifest(input: &mut [u8]) {
    let chain = mend::header(input, NUMBER, MANIFEST_HEADER_LEN);
    mend::frames(input, NUMBER, MANIFEST_HEADER_LEN, Some(chain));
}

fn manifest_seeds() -> Vec<Vec<u8>> {
    let (mut writer, mut bytes) = ManifestWriter::create(ManifestHeader { number: NUMBER, store: 99 });
    for edit in edits() {
        writer.synced_to(writer.offset());
        bytes.extend(writer.append(&edit).expect("valid"));
    }
    vec![bytes]
}
