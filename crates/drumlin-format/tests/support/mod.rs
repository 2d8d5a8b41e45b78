//! Code shared by the tests of this crate: seeded numbers, corruption, and one small fixture of each kind of file.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]

use drumlin_format::batch::{BatchWriter, Operation, range_end_value};
use drumlin_format::log::{
    LogDamage, Predecessor, Record, RecordHeader, RecordKind, Recovered, Replay, SegmentHeader,
    SegmentPrefix, encode_record, record_len, recover,
};
use drumlin_format::manifest::{
    Change, Edit, FileRecord, KeyspaceLookups, ManifestHeader, ManifestWriter, MapRecord, TableLife,
    ValueFileRecord, ValueFileState, ValueRef, file_len as manifest_file_len,
};
use drumlin_types::contract::RunTag;
use drumlin_types::{Key, KeyspaceId, Kind, LogNumber, RunId, TableId, ValueFileId};
use std::collections::BTreeMap;

/// A seeded stream of random numbers (splitmix64).
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Returns true once in `times` calls on average.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// Log segments by number.
pub type Files = BTreeMap<u64, Vec<u8>>;

/// A batch as it was written or read back.
#[derive(Clone, PartialEq, Debug)]
pub struct Written {
    pub position: u64,
    pub end: u64,
    pub first_seq: u64,
    pub payload: Vec<u8>,
}

/// Replays files into a list of batches.
pub struct Reading<'a> {
    files: &'a Files,
    records: Vec<Written>,
}

impl Replay for Reading<'_> {
    type Error = LogDamage;
    fn read(&mut self, number: LogNumber, _: Vec<u8>, most: u64) -> Result<SegmentPrefix, LogDamage> {
        Ok(SegmentPrefix::of(&self.files[&number.0], most))
    }
    fn record(&mut self, record: &Record<'_>) -> Result<(), LogDamage> {
        if record.header.kind == RecordKind::Batch {
            self.records.push(Written {
                position: record.position,
                end: record.position + record_len(record.payload.len()),
                first_seq: record.header.first_seq,
                payload: record.payload.to_vec(),
            });
        }
        Ok(())
    }
}

/// Recovers the log in `files` and returns its batches.
pub fn read_log(files: &Files, floor: LogNumber) -> Result<(Recovered, Vec<Written>), LogDamage> {
    let numbers: Vec<LogNumber> = files.keys().map(|number| LogNumber(*number)).collect();
    let mut reading = Reading { files, records: Vec::new() };
    recover(&numbers, floor, &mut reading).map(|recovered| (recovered, reading.records))
}

/// Changes each byte by each of three masks, and calls `check` with the changed copy and the byte's index.
pub fn each_changed_byte(bytes: &[u8], mut check: impl FnMut(&[u8], usize)) {
    let mut copy = bytes.to_vec();
    for index in 0..copy.len() {
        for mask in [0x01, 0x80, 0xff] {
            copy[index] ^= mask;
            check(&copy, index);
            copy[index] ^= mask;
        }
    }
}

/// Calls `check` with each proper prefix of `bytes`.
pub fn each_truncation(bytes: &[u8], mut check: impl FnMut(&[u8])) {
    (0..bytes.len()).for_each(|len| check(&bytes[..len]));
}

/// Returns a batch with an operation of each kind.
pub fn batch() -> BatchWriter {
    let mut batch = BatchWriter::new();
    let expiring = [&1_700_000_000_000_000u64.to_le_bytes()[..], b"soon gone"].concat();
    let (bounded, unbounded) = (range_end_value(Some(b"m")), range_end_value(None));
    let operations: [(Kind, u32, &[u8], &[u8]); 9] = [
        (Kind::Put, 0, b"ada", b"1815"),
        (Kind::Put, 300, b"", b""),
        (Kind::Delete, 0, b"bob", b""),
        (Kind::Merge, 1, b"hits", b"+1"),
        (Kind::PutExpiring, 0, b"session", &expiring),
        (Kind::PutPointer, 0, b"large", &[1, 2, 3]),
        (Kind::DeleteRange, 0, b"a", &bounded),
        (Kind::DeleteRange, u32::MAX, b"x", &unbounded),
        (Kind::MergeExpiring, 1, b"hits", &expiring),
    ];
    for (kind, keyspace, key, value) in operations {
        let operation = Operation { kind, keyspace: KeyspaceId(keyspace), key, value };
        batch.push(&operation).expect("valid");
    }
    batch
}

/// Returns a log of three segments in order. Each ends with an end or close record that carries a mark.
pub fn log() -> Vec<(LogNumber, Vec<u8>)> {
    let mut segments = Vec::new();
    let (mut base, mut seq, mut before) = (0, 0, None);
    for (index, number) in [3, 4, 9].into_iter().enumerate() {
        let mut header = SegmentHeader { number: LogNumber(number), base, predecessor: before, file_len: 0 };
        let mut bytes = header.encode();
        let mut put = |kind, first_seq, count, payload: &[u8]| {
            let offset = bytes.len() as u64;
            let header = RecordHeader { kind, synced_mark: header.position(offset), first_seq, count };
            encode_record(&mut bytes, LogNumber(number), offset, &header, payload).expect("valid");
            offset
        };
        for size in 0..3u64 {
            let mut batch = batch();
            let value = vec![b'v'; 20 * size as usize];
            let put_value = Operation { kind: Kind::Put, keyspace: KeyspaceId(0), key: b"k", value: &value };
            batch.push(&put_value).expect("valid");
            put(RecordKind::Batch, seq + 1, batch.count(), batch.payload());
            seq += u64::from(batch.count());
        }
        let last = if index == 2 { RecordKind::Close } else { RecordKind::End };
        put(last, 0, 0, &[]);
        base = header.position(bytes.len() as u64);
        before = Some(Predecessor { number: LogNumber(number), last_seq: seq });
        bytes.resize(bytes.len() + 64, 0);
        header.file_len = bytes.len() as u64;
        bytes[..4096].copy_from_slice(&header.encode());
        segments.push((LogNumber(number), bytes));
    }
    segments
}

pub fn file_record() -> FileRecord {
    FileRecord {
        table: TableId(12),
        start: Key::new(b"a"),
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
        value_refs: vec![
            ValueRef { file: ValueFileId(5), entries: 10, bytes: 100_000 },
            ValueRef { file: ValueFileId(600), entries: 1, bytes: 4096 },
        ],
        lookups: [12.5, 3.0, 0.0],
    }
}

pub fn value_file_record(state: ValueFileState) -> ValueFileRecord {
    ValueFileRecord {
        keyspace: KeyspaceId(1),
        file: ValueFileId(600),
        state,
        class: 2,
        file_len: 1 << 26,
        entries: 9000,
        total_bytes: (1 << 26) - 4096,
        dead_bytes: 1 << 20,
        dead_entries: 100,
        created_seq: 50_000,
        end_seq: u64::MAX,
        min_seq: 40_000,
        max_seq: 50_000,
        checksum: 0xfedc_ba98_7654_3210,
    }
}

/// Returns a change of each kind.
pub fn changes() -> Vec<Change> {
    let (keyspace, start) = (KeyspaceId(1), Key::new(b"a"));
    let (name, value) = ("memory_budget".to_string(), "64 MiB".to_string());
    let map = MapRecord { number: 601, file_len: 8192, entries: 77, checksum: 0x1111_2222_3333_4444 };
    vec![
        Change::CreateKeyspace { id: keyspace, name: "users".into() },
        Change::RenameKeyspace { id: keyspace, name: "people".into() },
        Change::DropKeyspace { id: KeyspaceId(0) },
        Change::KeyspaceOption { id: keyspace, name: "filter_bits".into(), value: String::new() },
        Change::AddRun { keyspace, run: RunId(7), level: 6, tag: RunTag(vec![1, 2, 3]) },
        Change::AddFile { keyspace, file: file_record() },
        Change::AddFile { keyspace, file: FileRecord { end: None, value_refs: vec![], ..file_record() } },
        Change::RemoveFile { keyspace, table: TableId(12), start: start.clone() },
        Change::Flushed { keyspace, seq: 20_000 },
        Change::LogFloor(LogNumber(9)),
        Change::NextFile(700),
        Change::NextRun(8),
        Change::NextKeyspace(4),
        Change::MergeOperator { keyspace, name: "add-i64-text".into() },
        Change::LastSeq(20_001),
        Change::LogEnd(70_000),
        Change::ClockMark(1_700_000_000_000_000),
        Change::Policy { keyspace, name: "arce".into(), blob: vec![0, 1, 2, 255] },
        Change::StoreOption { name, value },
        Change::Lookups { keyspace, table: TableId(12), start, lookups: [1.0, 2.0, 0.5] },
        Change::KeyspaceLookups {
            keyspace,
            lookups: KeyspaceLookups {
                totals: [900.0, 800.0],
                keys: 5000,
                first: 700.0,
                buckets: vec![(Key::new(b"g"), 150.5), (Key::new(b"m\0"), 0.0)],
            },
        },
        Change::TableLives {
            keyspace,
            lives: vec![
                TableLife { level: 0, tables: 300, lookups: 1500.5 },
                TableLife { level: 3, tables: 1, lookups: 0.0 },
            ],
        },
        Change::ValueLifetimes { keyspace, blob: vec![1, 22, 64, 0] },
        Change::ValueFile(value_file_record(ValueFileState::Live)),
        Change::ValueFile(value_file_record(ValueFileState::Moved(None))),
        Change::ValueFile(value_file_record(ValueFileState::Moved(Some(map)))),
        Change::ValueFile(value_file_record(ValueFileState::Gone)),
        Change::ValueCounters { file: ValueFileId(600), dead_bytes: 1 << 21, dead_entries: 200 },
        Change::Extension { tag: 1000, critical: false, bytes: vec![9, 8, 7] },
    ]
}

/// Returns the edits of [`manifest`].
pub fn edits() -> Vec<Edit> {
    let all = changes();
    let (first, second) = all.split_at(all.len() / 2);
    vec![Edit { changes: first.to_vec() }, Edit { changes: second.to_vec() }, Edit::default()]
}

pub const MANIFEST_NUMBER: u64 = 11;
pub const STORE: u64 = 0xabad_1dea_0000_0001;

/// Pads a manifest with zeros to the length of its file.
pub fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(manifest_file_len(bytes.len() as u64) as usize, 0);
}

/// Returns a manifest and the offset of its last edit. That edit is empty and carries the mark of all edits before it.
pub fn manifest() -> (Vec<u8>, u64) {
    let (mut writer, mut bytes) =
        ManifestWriter::create(ManifestHeader { number: MANIFEST_NUMBER, store: STORE });
    let mut last = 0;
    for edit in edits() {
        last = writer.offset();
        writer.synced_to(last);
        bytes.extend(writer.append(&edit).expect("valid"));
    }
    pad(&mut bytes);
    (bytes, last)
}
