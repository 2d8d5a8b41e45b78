//! Targets of the log: header and records of a segment, the operations in them, and recovery over several segments.

use super::fields::{Fields, NUMBER};
use crate::fuzz::mend;
use crate::fuzz::target::Target;
use drumlin_format::batch::{BatchReader, BatchWriter, Operation, range_end_value};
use drumlin_format::log::{
    LogDamage, MAX_RECORD_OPERATIONS, Predecessor, Record, RecordHeader, RecordKind, Replay,
    SEGMENT_HEADER_LEN, SegmentHeader, SegmentPrefix, SegmentScanner, encode_record, later_mark, record_len,
    recover,
};
use drumlin_types::{KeyspaceId, Kind, LogNumber};
use std::collections::BTreeMap;

pub(super) const TARGETS: &[Target] = &[
    Target {
        name: "log-header",
        codecs: &["log", "file_header"],
        run: header,
        mend: mend_header,
        seeds: header_seeds,
        cost: 1,
    },
    Target {
        name: "log-records",
        codecs: &["log", "frame"],
        run: records,
        mend: mend_records,
        seeds: record_seeds,
        cost: 1,
    },
    Target {
        name: "log-recovery",
        codecs: &["log", "frame", "file_header"],
        run: recovery,
        mend: mend_segments,
        seeds: recovery_seeds,
        cost: 1,
    },
    Target {
        name: "batch",
        codecs: &["batch"],
        run: batch,
        mend: mend::nothing,
        seeds: batch_seeds,
        cost: 1,
    },
];

/// Log position at which the segment of the targets begins.
const BASE: u64 = 1 << 20;

/// Pads the input, which is the header block without its trailing zeros.
fn padded(input: &[u8]) -> Vec<u8> {
    let mut block = input.to_vec();
    block.resize(SEGMENT_HEADER_LEN.max(input.len()), 0);
    block
}

fn header(input: &[u8]) -> bool {
    assert!(input.len() >= SEGMENT_HEADER_LEN || SegmentHeader::decode(input, LogNumber(NUMBER)).is_err());
    let block = padded(input);
    let Ok(header) = SegmentHeader::decode(&block, LogNumber(NUMBER)) else { return false };
    assert_eq!(SegmentHeader::decode(&header.encode(), LogNumber(NUMBER)), Ok(header));
    assert!(header.predecessor.is_none_or(|before| before.number < header.number));
    let _ = (header.position(u64::MAX), header.offset(u64::MAX), header.last_seq_before());
    true
}

/// Corrects the checksum, which also covers the zeros that the target adds.
fn mend_header(input: &mut [u8]) {
    let mut block = padded(input);
    mend::header(&mut block, NUMBER, SEGMENT_HEADER_LEN);
    let len = input.len();
    input.copy_from_slice(&block[..len]);
}

fn segment_header() -> SegmentHeader {
    let before = Predecessor { number: LogNumber(NUMBER - 1), last_seq: 100 };
    SegmentHeader { number: LogNumber(NUMBER), base: BASE, predecessor: Some(before), file_len: 0 }
}

fn header_seeds() -> Vec<Vec<u8>> {
    let first = SegmentHeader { base: 0, predecessor: None, ..segment_header() };
    [segment_header(), first].iter().map(|header| header.encode()[..48].to_vec()).collect()
}

/// The input is the content after the header.
fn records(input: &[u8]) -> bool {
    let header = segment_header();
    let mut bytes = vec![0; SEGMENT_HEADER_LEN];
    bytes.extend_from_slice(input);
    let mut scanner = SegmentScanner::new(&bytes, header);
    let mut count = 0;
    let mut end = SEGMENT_HEADER_LEN as u64;
    while let Some(record) = scanner.next() {
        count += 1;
        assert!(count <= input.len() as u64 / record_len(0), "more records than there is room for");
        assert_eq!(record.offset, end);
        end = scanner.offset();
        let mut again = Vec::new();
        encode_record(&mut again, header.number, record.offset, &record.header, record.payload)
            .expect("what was read can be written");
        assert_eq!(again.len() as u64, end - record.offset);
        let read = SegmentScanner::new(&[vec![0; SEGMENT_HEADER_LEN], again].concat(), header).count();
        // A record is bound to its offset; at another offset it is invalid.
        assert_eq!(read == 1, record.offset == SEGMENT_HEADER_LEN as u64);
        let operations = BatchReader::new(record.payload, record.header.count).count();
        assert!(operations as u64 <= u64::from(record.header.count) + 1);
    }
    let tail = scanner.tail().expect("the walk is over");
    assert_eq!(tail.end(), end);
    let _ = later_mark(&bytes, header.number, end);
    assert!(later_mark(&bytes, header.number, u64::MAX).is_none());
    count > 0
}

fn mend_records(input: &mut [u8]) {
    let mut bytes = vec![0; SEGMENT_HEADER_LEN];
    bytes.extend_from_slice(input);
    mend::frames(&mut bytes, NUMBER, SEGMENT_HEADER_LEN, None);
    input.copy_from_slice(&bytes[SEGMENT_HEADER_LEN..]);
}

/// Returns a segment with a few batches from sequence number `first` on, ended by a record of kind `last`.
fn segment(header: &SegmentHeader, first: u64, last: RecordKind) -> (Vec<u8>, u64) {
    let mut bytes = header.encode();
    let mut seq = first;
    let put = |bytes: &mut Vec<u8>, kind, first_seq, count, payload: &[u8]| {
        let offset = bytes.len() as u64;
        let record = RecordHeader { kind, synced_mark: header.position(offset), first_seq, count };
        encode_record(bytes, header.number, offset, &record, payload).expect("valid");
    };
    for size in 0..2 {
        let mut batch = all_kinds();
        let value = vec![b'v'; 20 * size];
        let operation = Operation { kind: Kind::Put, keyspace: KeyspaceId(0), key: b"k", value: &value };
        batch.push(&operation).expect("valid");
        put(&mut bytes, RecordKind::Batch, seq, batch.count(), batch.payload());
        seq += u64::from(batch.count());
    }
    if last != RecordKind::Batch {
        put(&mut bytes, last, 0, 0, &[]);
    }
    (bytes, seq - 1)
}

fn record_seeds() -> Vec<Vec<u8>> {
    let kinds = [RecordKind::Batch, RecordKind::Close, RecordKind::End];
    let records = |kind| segment(&segment_header(), 101, kind).0.split_off(SEGMENT_HEADER_LEN);
    kinds.into_iter().map(records).collect()
}

/// Returns a batch with an operation of each kind.
fn all_kinds() -> BatchWriter {
    let mut batch = BatchWriter::new();
    let (bounded, unbounded) = (range_end_value(Some(b"m")), range_end_value(None));
    let operations: [(Kind, u32, &[u8], &[u8]); 7] = [
        (Kind::Put, 0, b"ada", b"1815"),
        (Kind::Delete, 300, b"", b""),
        (Kind::Merge, 1, b"hits", b"+1"),
        (Kind::PutExpiring, 0, b"session", b"12345678soon gone"),
        (Kind::PutPointer, 0, b"large", &[1, 2, 3]),
        (Kind::DeleteRange, 0, b"a", &bounded),
        (Kind::DeleteRange, u32::MAX, b"x", &unbounded),
    ];
    for (kind, keyspace, key, value) in operations {
        let operation = Operation { kind, keyspace: KeyspaceId(keyspace), key, value };
        batch.push(&operation).expect("valid");
    }
    batch
}

/// The input gives the count, in three bytes, and the payload.
fn batch(input: &[u8]) -> bool {
    let mut fields = Fields(input);
    let count = u32::from(fields.u16()) | u32::from(fields.u8()) << 16;
    let payload = fields.0;
    let mut writer = BatchWriter::new();
    let (mut seen, mut sound) = (0, true);
    for operation in BatchReader::new(payload, count) {
        seen += 1;
        // Each operation takes at least three bytes, and there is at most one error.
        assert!(seen <= payload.len() / 3 + 1, "more operations than there is room for");
        match operation {
            Ok(operation) => writer.push(&operation).expect("what was read can be written"),
            Err(_) => {
                assert!(sound, "a reader goes on after an error");
                sound = false;
            }
        }
    }
    if sound {
        assert_eq!((writer.payload(), writer.count()), (payload, count));
    }
    sound
}

fn batch_seeds() -> Vec<Vec<u8>> {
    let batch = all_kinds();
    let with = |count: u32, payload: &[u8]| [&count.to_le_bytes()[..3], payload].concat();
    assert!(batch.count() < MAX_RECORD_OPERATIONS);
    vec![with(batch.count(), batch.payload()), with(0, &[])]
}

/// Segments by number.
type Files = BTreeMap<u64, Vec<u8>>;

/// Maximum number of segments in an input.
const MOST_SEGMENTS: usize = 6;
/// Bytes of a segment's description before its records.
const DESCRIPTION_LEN: usize = 9;

/// Description of one segment in the input, and the position of its records.
struct Described {
    number: u64,
    state: u8,
    header: SegmentHeader,
    records: std::ops::Range<usize>,
}

/// Parses `floor u8`, then for each segment `number u8, state u8, base u16 / 8, predecessor u8, last seq u16, length
/// u16` and its records.
fn described(input: &[u8]) -> (u64, Vec<Described>) {
    let mut fields = Fields(input);
    let floor = u64::from(fields.u8());
    let mut segments = Vec::new();
    while !fields.0.is_empty() && segments.len() < MOST_SEGMENTS {
        let (number, state) = (u64::from(fields.u8()), fields.u8() % 8);
        let base = u64::from(fields.u16()) * 8;
        let before = LogNumber(u64::from(fields.u8()));
        let last_seq = u64::from(fields.u16());
        let len = usize::from(fields.u16()).min(fields.0.len());
        let start = input.len() - fields.0.len();
        fields.bytes(len);
        let predecessor = (before.0 > 0).then_some(Predecessor { number: before, last_seq });
        let header = SegmentHeader { number: LogNumber(number), base, predecessor, file_len: 0 };
        segments.push(Described { number, state, header, records: start..start + len });
    }
    (floor, segments)
}

fn files(input: &[u8]) -> (u64, Files) {
    let (floor, segments) = described(input);
    let mut files = Files::new();
    for Described { number, state, header, records } in segments {
        let mut bytes = header.encode();
        match state {
            // A segment that was never begun, belongs to a former life, is damaged, or is cut within its header.
            4 => bytes.fill(0),
            5 => bytes = SegmentHeader { number: LogNumber(number + 1), ..header }.encode(),
            6 => bytes[20] ^= 1,
            7 => bytes.truncate(records.len() % SEGMENT_HEADER_LEN),
            _ => {}
        }
        bytes.extend_from_slice(&input[records]);
        files.insert(number, bytes);
    }
    (floor, files)
}

/// Replays the log from files, and checks the records that it receives.
struct Reading<'a> {
    files: &'a Files,
    position: u64,
    last_seq: u64,
    records: u64,
}

impl Replay for Reading<'_> {
    type Error = LogDamage;

    fn read(&mut self, number: LogNumber, _: Vec<u8>, most: u64) -> Result<SegmentPrefix, LogDamage> {
        Ok(SegmentPrefix::of(&self.files[&number.0], most))
    }

    fn record(&mut self, record: &Record<'_>) -> Result<(), LogDamage> {
        assert!(self.records == 0 || record.position == self.position, "records leave a gap");
        self.position = record.position + record_len(record.payload.len());
        self.records += 1;
        if record.header.count > 0 {
            assert!(record.header.first_seq > self.last_seq, "sequence numbers do not rise");
            self.last_seq = record.header.last_seq();
        }
        Ok(())
    }
}

fn recovery(input: &[u8]) -> bool {
    let (floor, files) = files(input);
    let numbers: Vec<LogNumber> = files.keys().map(|number| LogNumber(*number)).collect();
    let mut reading = Reading { files: &files, position: 0, last_seq: 0, records: 0 };
    let Ok(recovered) = recover(&numbers, LogNumber(floor), &mut reading) else { return false };
    let room: usize = files.values().map(Vec::len).sum();
    assert!(reading.records <= room as u64 / record_len(0), "more records than there is room for");
    assert_eq!(recovered.records, reading.records);
    assert!(reading.records == 0 || recovered.end == reading.position);
    assert!(recovered.last_seq >= reading.last_seq);
    let needed = numbers.iter().filter(|number| number.0 >= floor).count();
    assert_eq!(recovered.replayed.len() + recovered.dropped.len(), needed);
    // The log continues behind the recovered part; after that nothing counts as torn.
    let next = numbers.last().map_or(1, |last| last.0 + 1);
    let mut files = files.clone();
    files.insert(next, recovered.next_header(LogNumber(next)).encode());
    recovered.dropped.iter().for_each(|dropped| drop(files.remove(&dropped.0)));
    let numbers: Vec<LogNumber> = files.keys().map(|number| LogNumber(*number)).collect();
    let mut reading = Reading { files: &files, position: 0, last_seq: 0, records: 0 };
    let again = recover(&numbers, LogNumber(floor), &mut reading);
    let again = again.expect("a log that was recovered is recovered again");
    assert_eq!((again.end, again.last_seq), (recovered.end, recovered.last_seq));
    assert_eq!((again.records, again.torn), (recovered.records, false));
    recovered.records > 0
}

fn mend_segments(input: &mut [u8]) {
    for Described { number, records, .. } in described(input).1 {
        let mut bytes = vec![0; SEGMENT_HEADER_LEN];
        bytes.extend_from_slice(&input[records.clone()]);
        mend::frames(&mut bytes, number, SEGMENT_HEADER_LEN, None);
        input[records].copy_from_slice(&bytes[SEGMENT_HEADER_LEN..]);
    }
}

/// Returns three consecutive segments: two full ones, and one that was closed.
fn recovery_seeds() -> Vec<Vec<u8>> {
    let mut chain = Vec::new();
    let (mut base, mut before) = (0, None);
    for number in [3, 4, 9] {
        let header = SegmentHeader { number: LogNumber(number), base, predecessor: before, file_len: 0 };
        let last_seq = header.last_seq_before();
        let kind = if number == 9 { RecordKind::Close } else { RecordKind::End };
        let (bytes, seq) = segment(&header, last_seq + 1, kind);
        let records = &bytes[SEGMENT_HEADER_LEN..];
        let before_number = before.map_or(0, |before: Predecessor| before.number.0);
        chain.extend([number as u8, 0]);
        chain.extend(((base / 8) as u16).to_le_bytes());
        chain.push(before_number as u8);
        chain.extend((last_seq as u16).to_le_bytes());
        chain.extend((records.len() as u16).to_le_bytes());
        chain.extend(records);
        base = header.position(bytes.len() as u64);
        before = Some(Predecessor { number: LogNumber(number), last_seq: seq });
    }
    let first_len = DESCRIPTION_LEN + usize::from(u16::from_le_bytes([chain[7], chain[8]]));
    let from_store = [&[0][..], &chain].concat();
    let from_floor = [&[4][..], &chain[first_len..]].concat();
    vec![from_store, from_floor]
}
