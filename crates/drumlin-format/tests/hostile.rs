//! Corrupt and hostile bytes for the manifest, its edits, the pointer and batches. Decoding returns an error or the
//! truth, never panics, and allocates no more memory than the length of the input justifies. `recovery.rs` covers the
//! log.

mod support;

use drumlin_format::batch::{BatchReader, BatchWriter, Operation, range_end};
use drumlin_format::bytes::{put_slice, put_varint};
use drumlin_format::error::DecodeError;
use drumlin_format::limits::MAX_RATE;
use drumlin_format::log::MAX_RECORD_OPERATIONS;
use drumlin_format::manifest::{
    self, Change, Edit, FileRecord, MAX_CHANGES, ManifestEnd, ManifestHeader, ManifestWriter, TableLife,
};
use drumlin_format::pointer::Pointer;
use drumlin_types::contract::RunTag;
use drumlin_types::{Key, KeyspaceId, Kind, MAX_KEY_LEN, RunId, TableId};
use proptest::collection::vec;
use proptest::prelude::*;
use support::Numbers;

fn read(bytes: &[u8], synced: u64) -> Result<(ManifestEnd, Vec<Edit>), DecodeError> {
    let mut edits = Vec::new();
    let end = manifest::replay(bytes, support::MANIFEST_NUMBER, synced, |edit| {
        edits.push(edit);
        Ok::<(), DecodeError>(())
    })?;
    Ok((end, edits))
}

#[test]
fn each_changed_byte_of_a_manifest_is_an_error_but_in_the_last_edit() {
    let (bytes, last) = support::manifest();
    let truth = support::edits();
    let used = last as usize + 32;
    let judge = |copy: &[u8], index: usize| match read(copy, 0) {
        Ok((end, edits)) => {
            assert!(index as u64 >= last && end.torn, "byte {index}");
            assert_eq!(edits, truth[..if index < used { 2 } else { 3 }]);
        }
        Err(error) => assert!(matches!(error, DecodeError::Corruption(_)), "byte {index}: {error}"),
    };
    let mut copy = bytes.clone();
    for index in 0..used + 64 {
        copy[index] ^= 0x80;
        judge(&copy, index);
        let is_noticed = read(&copy, used as u64).is_err();
        assert_eq!(is_noticed, index < used, "byte {index}: all of it was durable");
        copy[index] ^= 0x80;
    }
}

#[test]
fn each_truncation_of_a_manifest_is_an_error() {
    let (bytes, _) = support::manifest();
    for len in 0..bytes.len() {
        assert!(read(&bytes[..len], 0).is_err(), "cut to {len}");
    }
}

#[test]
fn a_manifest_under_another_number_is_damaged() {
    let (bytes, _) = support::manifest();
    let visit = |_| Ok::<(), DecodeError>(());
    assert!(manifest::replay(&bytes, support::MANIFEST_NUMBER + 1, 0, visit).is_err());
}

#[test]
fn an_edit_of_another_history_breaks_the_chain() {
    let header = ManifestHeader { number: support::MANIFEST_NUMBER, store: support::STORE };
    let manifest = |first| {
        let (mut writer, mut bytes) = ManifestWriter::create(header);
        bytes.extend(writer.append(&Edit { changes: vec![Change::NextFile(first)] }).expect("valid"));
        let second = bytes.len();
        bytes.extend(writer.append(&Edit { changes: vec![Change::NextRun(7)] }).expect("valid"));
        support::pad(&mut bytes);
        (bytes, second)
    };
    let ((mut bytes, second), (other, _)) = (manifest(1), manifest(2));
    assert_eq!(read(&bytes, 0).expect("sound").1.len(), 2);
    bytes[second..].copy_from_slice(&other[second..]);
    let error = read(&bytes, 0).expect_err("another history");
    assert!(error.to_string().starts_with("manifest edit does not follow the one before"), "{error}");
}

#[test]
fn each_changed_byte_and_truncation_of_a_pointer_is_an_error() {
    let content = Pointer { manifest: 1_234_567, synced: 89 }.encode();
    support::each_changed_byte(content.as_bytes(), |copy, index| {
        assert!(Pointer::decode(copy).is_err(), "byte {index}");
    });
    support::each_truncation(content.as_bytes(), |copy| assert!(Pointer::decode(copy).is_err()));
    assert!(Pointer::decode(format!("{content}\n").as_bytes()).is_err());
}

#[test]
fn a_newer_pointer_is_refused_by_name() {
    let text = "drumlin 2\nwhatever it says\n";
    let check = drumlin_format::checksum::checksum(0, 0, &[text.as_bytes()]);
    let content = format!("{text}check {check:08x}\n");
    let newer = DecodeError::NewerFormat { what: "pointer format", found: 2, known: 1 };
    assert_eq!(Pointer::decode(content.as_bytes()), Err(newer));
}

#[test]
fn changed_edits_decode_to_one_edit_or_none() {
    for change in support::changes() {
        let bytes = Edit { changes: vec![change] }.encode().expect("valid");
        // Without a checksum around them, changed bytes may decode to another edit, but only to one that encodes to
        // the same bytes.
        support::each_changed_byte(&bytes, |copy, _| {
            if let Ok(edit) = Edit::decode(copy) {
                assert_eq!(edit.encode().as_deref(), Ok(copy));
            }
        });
        support::each_truncation(&bytes[..], |copy| assert!(copy.is_empty() || Edit::decode(copy).is_err()));
    }
}

#[test]
fn unknown_changes_are_refused_when_critical_and_kept_otherwise() {
    let change = |critical| Change::Extension { tag: 99, critical, bytes: vec![1, 2] };
    let edit = Edit { changes: vec![change(false)] };
    assert_eq!(Edit::decode(&edit.encode().expect("valid")), Ok(edit));
    let critical = Edit { changes: vec![change(true)] }.encode().expect("valid");
    let newer = DecodeError::NewerFormat { what: "change of the manifest", found: 99, known: 24 };
    assert_eq!(Edit::decode(&critical), Err(newer));
    let known = Change::Extension { tag: 3, critical: true, bytes: vec![] };
    assert!(Edit { changes: vec![known] }.encode().is_err());
}

#[test]
fn what_would_not_decode_does_not_encode() {
    let keyspace = KeyspaceId(1);
    let record = support::file_record;
    let file = |file| Change::AddFile { keyspace, file };
    let long = "n".repeat(256);
    let bound = Key::new(&vec![1; MAX_KEY_LEN + 2]);
    let refused = [
        Change::CreateKeyspace { id: keyspace, name: String::new() },
        Change::CreateKeyspace { id: keyspace, name: long.clone() },
        Change::StoreOption { name: long, value: String::new() },
        Change::AddRun { keyspace, run: RunId(1), level: 7, tag: RunTag::default() },
        Change::AddRun { keyspace, run: RunId(1), level: 0, tag: RunTag(vec![0; 33]) },
        Change::RemoveFile { keyspace, table: TableId(1), start: bound.clone() },
        Change::TableLives { keyspace, lives: vec![TableLife { level: 7, ..TableLife::default() }] },
        Change::TableLives { keyspace, lives: vec![TableLife::default(); 2] },
        file(FileRecord { level: 7, ..record() }),
        file(FileRecord { end: Some(record().start), ..record() }),
        file(FileRecord { end: Some(bound), ..record() }),
        file(FileRecord { min_seq: record().max_seq + 1, ..record() }),
        file(FileRecord { entries: record().table_entries + 1, ..record() }),
    ];
    for change in refused {
        let text = format!("{change:?}");
        assert!(Edit { changes: vec![change] }.encode().is_err(), "{}", &text[..80.min(text.len())]);
    }
    let many = vec![Change::NextFile(1); MAX_CHANGES + 1];
    assert!(Edit { changes: many }.encode().is_err());
}

#[test]
fn rates_that_are_no_numbers_are_written_as_zero() {
    let odd = [f32::NAN, f32::INFINITY, -1.0];
    let file = FileRecord { filter_bits: f32::NAN, fp_rate: -0.0, lookups: odd, ..support::file_record() };
    let bytes =
        Edit { changes: vec![Change::AddFile { keyspace: KeyspaceId(1), file }] }.encode().expect("valid");
    let [Change::AddFile { file, .. }] = &Edit::decode(&bytes).expect("valid").changes[..] else { panic!() };
    assert_eq!((file.filter_bits.to_bits(), file.fp_rate.to_bits(), file.lookups), (0, 0, [0.0; 3]));
}

#[test]
fn hostile_counts_cost_no_memory() {
    // A table that claims 2^60 references to value files, and a million changes of two bytes each.
    let bytes =
        Edit { changes: vec![Change::AddFile { keyspace: KeyspaceId(1), file: support::file_record() }] };
    let bytes = bytes.encode().expect("valid");
    let mut body = bytes[2..].to_vec();
    // Three rates follow the references. Before them are two references of 5 bytes each.
    let at = body.len() - 12 - (1 + 1 + 3) - (2 + 1 + 2) - 1;
    assert_eq!(body[at], 2);
    body.truncate(at);
    put_varint(&mut body, 1 << 60);
    body.extend([0; 100]);
    let mut hostile = bytes[..1].to_vec();
    put_slice(&mut hostile, &body);
    let error = Edit::decode(&hostile).expect_err("too many");
    assert!(error.to_string().starts_with("count exceeds the bytes that are left"), "{error}");
    let error = Edit::decode(&[200, 1, 0].repeat(1 << 20)).expect_err("too many");
    assert!(error.to_string().starts_with("edit of too many changes"), "{error}");
}

#[test]
fn a_changed_batch_is_an_error_or_another_valid_batch() {
    let batch = support::batch();
    support::each_changed_byte(batch.payload(), |copy, _| {
        let operations: Result<Vec<_>, _> = BatchReader::new(copy, batch.count()).collect();
        if let Ok(operations) = operations {
            let mut again = BatchWriter::new();
            operations.iter().for_each(|operation| again.push(operation).expect("valid"));
            assert_eq!(again.payload(), copy);
        }
    });
    support::each_truncation(batch.payload(), |copy| {
        assert!(BatchReader::new(copy, batch.count()).any(|operation| operation.is_err()));
    });
    for count in [0, batch.count() - 1, batch.count() + 1, MAX_RECORD_OPERATIONS] {
        let mut reader = BatchReader::new(batch.payload(), count);
        assert_eq!(reader.by_ref().filter(Result::is_err).count(), 1, "{count}");
        assert_eq!(reader.next(), None);
    }
}

#[test]
fn operations_that_make_no_sense_are_refused() {
    let mut batch = BatchWriter::new();
    let long = vec![0; MAX_KEY_LEN + 1];
    let refused: [(Kind, &[u8], &[u8]); 6] = [
        (Kind::Put, &long, b""),
        (Kind::Delete, b"k", b"v"),
        (Kind::PutExpiring, b"k", b"1234567"),
        (Kind::MergeExpiring, b"k", b"1234567"),
        (Kind::DeleteRange, b"k", b""),
        (Kind::DeleteRange, b"k", &[1, 1]),
    ];
    for (kind, key, value) in refused {
        let operation = Operation { kind, keyspace: KeyspaceId(0), key, value };
        assert!(batch.push(&operation).is_err(), "{kind:?}");
    }
    assert!(batch.is_empty() && batch.payload().is_empty());
    assert_eq!(range_end(&[0]), Ok(Some(&b""[..])));
    assert_eq!(range_end(&[1]), Ok(None));
    assert!(range_end(&[2]).is_err());
}

#[test]
fn random_bytes_are_nothing() {
    let mut numbers = Numbers(5);
    for _ in 0..20_000 {
        let len = numbers.below(80) as usize;
        let bytes = numbers.bytes(len);
        assert!(Pointer::decode(&bytes).is_err());
        assert!(read(&bytes, 0).is_err());
        if let Ok(edit) = Edit::decode(&bytes) {
            assert_eq!(edit.encode().as_deref(), Ok(&bytes[..]));
        }
        BatchReader::new(&bytes, numbers.below(20) as u32).for_each(drop);
    }
}

fn any_operation() -> impl Strategy<Value = (Kind, u32, Vec<u8>, Vec<u8>)> {
    let kind = proptest::sample::select(&Kind::ALL[..]);
    (kind, any::<u32>(), vec(any::<u8>(), 0..40), vec(any::<u8>(), 0..300)).prop_map(
        |(kind, keyspace, key, value)| {
            let value = match kind {
                Kind::Delete => Vec::new(),
                Kind::DeleteRange => drumlin_format::batch::range_end_value(
                    Some(&value).filter(|v| v.len() > 9).map(|v| &v[..]),
                ),
                Kind::PutExpiring | Kind::MergeExpiring => [&[7; 8][..], &value].concat(),
                _ => value,
            };
            (kind, keyspace, key, value)
        },
    )
}

proptest! {
    #[test]
    fn batches_round_trip(operations in vec(any_operation(), 0..30)) {
        let mut batch = BatchWriter::new();
        let operations: Vec<Operation<'_>> = operations
            .iter()
            .map(|(kind, keyspace, key, value)| Operation { kind: *kind, keyspace: KeyspaceId(*keyspace), key, value })
            .collect();
        for operation in &operations {
            batch.push(operation).expect("valid");
        }
        let read: Result<Vec<_>, _> = batch.operations().collect();
        prop_assert_eq!(read, Ok(operations));
    }

    #[test]
    fn edits_round_trip(
        order in vec(0..support::changes().len(), 0..40),
        numbers in any::<[u64; 6]>(),
        rates in any::<[f32; 3]>(),
        name in "\\PC{1,20}",
        blob in vec(any::<u8>(), 0..100),
    ) {
        let [a, b, c, d, e, f] = numbers.map(|number| number >> 20);
        let rates = rates.map(|rate| if rate.is_finite() && rate > 0.0 { rate.min(MAX_RATE) } else { 0.0 });
        let all = support::changes();
        let mut edit = Edit { changes: order.iter().map(|index| all[*index].clone()).collect() };
        for change in &mut edit.changes {
            match change {
                Change::CreateKeyspace { name: slot, .. } | Change::StoreOption { name: slot, .. } => {
                    slot.clone_from(&name);
                }
                Change::Policy { blob: slot, .. } => slot.clone_from(&blob),
                Change::Extension { bytes, .. } => bytes.clone_from(&blob),
                Change::Lookups { lookups, .. } => *lookups = rates,
                Change::TableLives { lives, .. } => {
                    lives.iter_mut().zip(rates).for_each(|(life, rate)| life.lookups = rate);
                }
                Change::KeyspaceLookups { lookups, .. } => {
                    (lookups.totals, lookups.first) = ([rates[0], rates[1]], rates[2]);
                }
                Change::NextFile(slot)
                | Change::NextRun(slot)
                | Change::LastSeq(slot)
                | Change::ClockMark(slot) => *slot = a,
                Change::AddFile { file, .. } => {
                    (file.run, file.file_len, file.bytes, file.keys) = (RunId(a), b.max(c), b.min(c), d);
                    (file.min_seq, file.max_seq) = (e.min(f), e.max(f));
                    (file.table_entries, file.entries, file.lookups) = (a.max(b), a.min(b), rates);
                    file.start = Key::new(&blob);
                    file.end = file.end.is_some().then(|| Key::successor(&blob));
                }
                _ => {}
            }
        }
        let bytes = edit.encode().expect("valid");
        prop_assert_eq!(Edit::decode(&bytes), Ok(edit));
    }

    #[test]
    fn pointers_round_trip(manifest in any::<u64>(), synced in any::<u64>(), bits in 0u32..64) {
        let pointer = Pointer { manifest: manifest >> bits.max(8), synced: synced >> 20 };
        prop_assert_eq!(Pointer::decode(pointer.encode().as_bytes()), Ok(pointer));
    }
}
