//! Hand-made logs: which chain of segments recovery follows, and which chains it rejects.

mod support;

use drumlin_format::log::{
    LogDamage, Predecessor, RecordHeader, RecordKind, Recovered, SegmentHeader, encode_record, record_len,
};
use drumlin_types::LogNumber;
use support::{Files, read_log};

/// Length of each hand-made record: a header and eight bytes.
const RECORD: u64 = record_len(8);

/// Builds a segment that begins at `base` and follows `predecessor` (number, last sequence number).
///
/// It holds one batch of one operation for each (sequence number, mark).
fn segment(
    number: u64,
    base: u64,
    predecessor: Option<(u64, u64)>,
    records: &[(u64, u64)],
) -> (u64, Vec<u8>) {
    let predecessor =
        predecessor.map(|(number, last_seq)| Predecessor { number: LogNumber(number), last_seq });
    let mut bytes = SegmentHeader { number: LogNumber(number), base, predecessor, file_len: 0 }.encode();
    for (first_seq, synced_mark) in records.iter().copied() {
        let header = RecordHeader { kind: RecordKind::Batch, synced_mark, first_seq, count: 1 };
        put(&mut bytes, number, &header, &first_seq.to_le_bytes());
    }
    (number, bytes)
}

fn put(bytes: &mut Vec<u8>, number: u64, header: &RecordHeader, payload: &[u8]) {
    let offset = bytes.len() as u64;
    encode_record(bytes, LogNumber(number), offset, header, payload).expect("valid");
}

fn sequences<const N: usize>(segments: [(u64, Vec<u8>); N]) -> Result<(Vec<u64>, Recovered), LogDamage> {
    let (recovered, records) = read_log(&Files::from(segments), LogNumber(0))?;
    Ok((records.iter().map(|record| record.first_seq).collect(), recovered))
}

fn damage<const N: usize>(segments: [(u64, Vec<u8>); N]) -> String {
    sequences(segments).expect_err("damage").to_string()
}

#[test]
fn records_follow_each_other_over_segments() {
    let first = segment(1, 0, None, &[(1, 0), (2, 0)]);
    let second = segment(5, 2 * RECORD, Some((1, 2)), &[(7, 2 * RECORD)]);
    let (sequences, recovered) = sequences([first, second]).expect("sound");
    assert_eq!(sequences, [1, 2, 7]);
    assert_eq!((recovered.end, recovered.last_seq, recovered.torn), (3 * RECORD, 7, false));
    let next = recovered.next_header(LogNumber(9));
    assert_eq!(next.predecessor, Some(Predecessor { number: LogNumber(5), last_seq: 7 }));
    assert_eq!(next.base, 3 * RECORD);
}

/// Each open begins a segment. Those of opens that were interrupted before the first write are not kept.
#[test]
fn segments_without_records_at_the_end_are_dropped() {
    let first = || segment(1, 0, None, &[(1, 0), (2, 0)]);
    let base = 2 * RECORD;
    let chained = [first(), segment(2, base, Some((1, 2)), &[]), segment(3, base, Some((2, 2)), &[])];
    let (replayed, recovered) = sequences(chained).expect("sound");
    assert_eq!((replayed, recovered.replayed.clone()), (vec![1, 2], vec![LogNumber(1)]));
    assert_eq!((recovered.dropped.clone(), recovered.torn), (vec![LogNumber(3), LogNumber(2)], false));
    let next = recovered.next_header(LogNumber(4));
    assert_eq!((next.base, next.predecessor.map(|before| before.number)), (base, Some(LogNumber(1))));
    // The next segment takes their place, also if they could not be removed.
    let kept = [first(), segment(2, base, Some((1, 2)), &[]), segment(4, base, Some((1, 2)), &[(3, base)])];
    let (replayed, recovered) = sequences(kept).expect("sound");
    assert_eq!((replayed, recovered.replayed), (vec![1, 2, 3], vec![LogNumber(1), LogNumber(4)]));
    // The floor may name the first one.
    let (_, recovered) =
        sequences([segment(1, 0, None, &[]), segment(2, 0, Some((1, 0)), &[])]).expect("sound");
    assert_eq!((recovered.replayed, recovered.dropped), (vec![LogNumber(1)], vec![LogNumber(2)]));
}

#[test]
fn sequence_numbers_never_fall() {
    let message = damage([segment(1, 0, None, &[(1, 0), (3, 0), (2, 0)])]);
    assert_eq!(message, "log segment 1: log record does not follow the one before at offset 4176");
}

#[test]
fn a_segment_ends_with_the_sequence_that_its_successor_names() {
    let first = segment(1, 0, None, &[(1, 0), (2, 0)]);
    let message = damage([first, segment(2, 2 * RECORD, Some((1, 3)), &[(7, 0)])]);
    assert!(message.starts_with("log segment 1: log segment does not end with"), "{message}");
}

#[test]
fn records_behind_the_successors_base_are_not_replayed() {
    let first = || segment(1, 0, None, &[(1, 0), (2, 0), (3, 0)]);
    let second = segment(2, 2 * RECORD, Some((1, 2)), &[(9, 2 * RECORD)]);
    assert_eq!(sequences([first(), second]).expect("sound").0, [1, 2, 9]);
    // A base inside a record is a gap. Recovery drops the successor, unless a mark in it proves that the gap was
    // durable.
    let unsynced = segment(2, 2 * RECORD + 8, Some((1, 2)), &[(9, 0)]);
    let (replayed, recovered) = sequences([first(), unsynced]).expect("nothing promised");
    assert_eq!((replayed, recovered.dropped), (vec![1, 2], vec![LogNumber(2)]));
    let synced = segment(2, 2 * RECORD + 8, Some((1, 2)), &[(9, 2 * RECORD + 8)]);
    assert!(damage([first(), synced]).starts_with("log segment 1: log is damaged before a position"));
}

#[test]
fn the_newest_of_two_successors_counts() {
    let first = || segment(1, 0, None, &[(1, 0), (2, 0)]);
    let base = 2 * RECORD;
    let newest = || segment(3, base, Some((1, 2)), &[(5, base), (6, base), (7, base)]);
    let unsynced = segment(2, base, Some((1, 2)), &[(3, 0), (4, base)]);
    let (replayed, recovered) = sequences([first(), unsynced, newest()]).expect("nothing promised");
    assert_eq!((replayed, recovered.dropped), (vec![1, 2, 5, 6, 7], vec![LogNumber(2)]));
    // The log continued past that mark, but with other records than those that were durable.
    let synced = segment(2, base, Some((1, 2)), &[(3, 0), (4, base + RECORD)]);
    assert!(damage([first(), synced, newest()]).contains("log is damaged before a position"));
}

#[test]
fn nothing_is_read_behind_a_close() {
    let close = RecordHeader { kind: RecordKind::Close, synced_mark: RECORD, first_seq: 0, count: 0 };
    let more = RecordHeader { kind: RecordKind::Batch, synced_mark: 0, first_seq: 2, count: 1 };
    let (number, mut bytes) = segment(1, 0, None, &[(1, 0)]);
    put(&mut bytes, number, &close, &[]);
    put(&mut bytes, number, &more, b"anything");
    let (replayed, recovered) = sequences([(number, bytes)]).expect("sound");
    assert_eq!((replayed, recovered.closed, recovered.records), (vec![1], true, 2));
}

#[test]
fn an_intact_record_that_cannot_be_is_damage_not_a_torn_end() {
    let message = damage([segment(1, 0, None, &[(1, 0), (2, RECORD + 1)])]);
    assert_eq!(message, "log segment 1: log record with a synced mark beyond itself at offset 4136");
}

#[test]
fn records_that_cannot_be_are_not_written() {
    let sound = RecordHeader { kind: RecordKind::Batch, synced_mark: 0, first_seq: 1, count: 1 };
    for (header, payload) in [
        (RecordHeader { count: 0, ..sound }, &b""[..]),
        (RecordHeader { first_seq: 0, ..sound }, b""),
        (RecordHeader { count: 1 << 24, ..sound }, b""),
        (RecordHeader { first_seq: u64::MAX, ..sound }, b""),
        (RecordHeader { kind: RecordKind::Close, ..sound }, b""),
        (RecordHeader { kind: RecordKind::End, first_seq: 0, count: 0, ..sound }, b"x"),
    ] {
        let mut out = Vec::new();
        assert!(encode_record(&mut out, LogNumber(1), 4096, &header, payload).is_err(), "{header:?}");
        assert!(out.is_empty());
    }
}

#[test]
fn a_segment_that_was_made_ready_and_never_begun_is_no_torn_end() {
    let log = || [segment(5, 0, None, &[(1, 0)]), (9, vec![0; 4096])];
    let (_, recovered) = sequences(log()).expect("sound");
    assert!(!recovered.torn && recovered.dropped == [LogNumber(9)], "{recovered:?}");
    // The same in a recycled file that still has its former header.
    let recycled = (9, segment(2, 0, None, &[(1, 0)]).1);
    let files = Files::from([segment(5, 0, None, &[(1, 0)]), recycled]);
    let (recovered, _) = read_log(&files, LogNumber(5)).expect("sound");
    assert!(!recovered.torn && recovered.dropped == [LogNumber(9)], "{recovered:?}");
    // Corrupt bytes in place of the header are reported.
    let (_, recovered) = sequences([segment(5, 0, None, &[(1, 0)]), (9, vec![7; 4096])]).expect("sound");
    assert!(recovered.torn);
}

#[test]
fn a_needed_segment_exchanged_with_a_released_one_is_damage() {
    let (_, released) = segment(1, 0, None, &[(1, 0)]);
    let (_, needed) = segment(9, RECORD, Some((5, 2)), &[(3, 0)]);
    let files = Files::from([(1, needed), segment(5, 0, None, &[(2, 0)]), (9, released)]);
    let error = read_log(&files, LogNumber(5)).expect_err("exchanged");
    assert!(error.to_string().contains("has the name of another"), "{error}");
}
