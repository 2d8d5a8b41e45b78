//! Tests of value files, pointers and maps: golden bytes, round trips, and bytes that are damaged or hostile.

use super::*;
use crate::block::{BlockView, EntryCursor};
use crate::compression::{Compression, Decompressor};
use crate::seal::unseal_plain;
use crate::table::Handle;
use alloc::vec;
use drumlin_types::history::{History, WINDOWS};
use proptest::collection::vec as vec_of;
use proptest::prelude::*;

const FILE: ValueFileId = ValueFileId(7);

/// A version and its value.
type Version = (Vec<u8>, Seq, Vec<u8>);

fn header() -> ValueFileHeader {
    ValueFileHeader { file: FILE, created_seq: 1000, keyspace: KeyspaceId(3), class: 2 }
}

fn build(versions: &[Version], compression: Compression) -> (Vec<u8>, Vec<RecordPlace>, ValueFileSummary) {
    let settings = ValueFileSettings { header: header(), compression };
    let mut builder = ValueFileBuilder::new(Vec::new(), settings).expect("memory");
    let place = |(key, seq, value): &Version| builder.add(key, *seq, value).expect("in order");
    let places = versions.iter().map(place).collect();
    let (summary, bytes) = builder.finish().expect("not empty");
    (bytes, places, summary)
}

fn block_at(bytes: &[u8], handle: Handle) -> Result<&[u8], DecodeError> {
    let sealed = bytes.get(handle.offset as usize..handle.end() as usize);
    let sealed = sealed.ok_or(Corruption::new("block lies outside its file", handle.offset))?;
    Ok(unseal_plain(FILE.0, handle.offset, sealed)?)
}

/// Reads a whole file as garbage collection does: key blocks first, then each record.
fn read(bytes: &[u8]) -> Result<Vec<Version>, DecodeError> {
    ValueFileHeader::decode(bytes, FILE)?;
    let tail = bytes.len().saturating_sub(FOOTER_LEN);
    let footer =
        Footer::decode(VALUE_FOOTER, bytes.get(tail..).unwrap_or_default(), FILE.0, bytes.len() as u64)?;
    if footer.root.end() != tail as u64 {
        return Err(Corruption::new("bytes between properties and footer", tail as u64).into());
    }
    let properties = ValueFileProperties::decode(block_at(bytes, footer.root)?, footer.root.offset)?;
    let mut versions = Vec::new();
    let mut end = VALUE_HEADER_LEN as u64;
    for handle in properties.key_blocks() {
        let block = BlockView::parse(block_at(bytes, handle)?)?;
        block.validate()?;
        let mut cursor = EntryCursor::default();
        for index in 0..block.count() {
            cursor.load(block, index)?;
            let place = key_block_place(block, index)?;
            if place.offset != end {
                return Err(Corruption::new("records are not next to each other", place.offset).into());
            }
            end = place.end();
            let record = bytes.get(place.offset as usize..end as usize);
            let record = record.ok_or(Corruption::new("record lies outside its file", place.offset))?;
            let version =
                RecordKey { file_id: FILE.0, offset: place.offset, key: cursor.key(), seq: cursor.seq() };
            let record = Record::decode(record, &version)?;
            let mut value = vec![0; record.raw_len as usize];
            Decompressor::new().decompress(record.codec, record.stored, &mut value)?;
            versions.push((cursor.key().to_vec(), cursor.seq(), value));
        }
    }
    Ok(versions)
}

fn fixture() -> Vec<Version> {
    let value = |len: usize, byte: u8| vec![byte; len];
    vec![
        (b"ada".to_vec(), 9, b"1815".to_vec()),
        (b"ada".to_vec(), 4, value(300, 0xaa)),
        (b"grace".to_vec(), 12, Vec::new()),
        (b"grace hopper".to_vec(), 7, value(5000, 0x5a)),
    ]
}

/// The three sums are those of the design. They were computed independently of this code.
#[test]
fn a_record_is_bound_to_its_file_offset_key_and_version() {
    let record = |file_id, offset| {
        let mut out = Vec::new();
        let version = RecordKey { file_id, offset, key: b"ada", seq: 9 };
        encode_record_header(&mut out, &version, Compression::None, 4, b"1815");
        out.extend_from_slice(b"1815");
        out
    };
    let sum = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    assert_eq!(sum(&record(7, 32)), 0xceb5_b806);
    assert_eq!(sum(&record(8, 32)), 0x1652_42f5);
    assert_eq!(sum(&record(7, 33)), 0xdb0e_f90f);
    let bytes = record(7, 32);
    assert_eq!(bytes.len() as u64, record_len(4, 4));
    let version = RecordKey { file_id: 7, offset: 32, key: b"ada", seq: 9 };
    let found = Record::decode(&bytes, &version).expect("sound");
    assert_eq!((found.codec, found.raw_len, found.stored), (Compression::None, 4, &b"1815"[..]));
    for wrong in [
        RecordKey { file_id: 8, ..version },
        RecordKey { offset: 33, ..version },
        RecordKey { key: b"adb", ..version },
        RecordKey { key: b"ad", ..version },
        RecordKey { seq: 8, ..version },
    ] {
        assert!(Record::decode(&bytes, &wrong).is_err());
    }
}

#[test]
fn a_file_is_read_as_it_was_written() {
    for compression in Compression::ALL {
        let (bytes, places, summary) = build(&fixture(), compression);
        assert_eq!(read(&bytes).expect("sound"), fixture());
        assert_eq!(summary.file_len, bytes.len() as u64);
        assert_eq!(summary.checksum, crate::checksum::hash64(&bytes));
        let properties = summary.properties;
        assert_eq!((properties.records, properties.raw_bytes), (4, 5304));
        assert_eq!(properties.record_bytes, places.iter().map(RecordPlace::record_len).sum::<u64>());
        assert_eq!((properties.min_seq, properties.max_seq), (4, 12));
        assert_eq!(
            (&properties.first_key[..], &properties.last_key[..]),
            (&b"ada"[..], &b"grace hopper"[..])
        );
        assert_eq!(ValueFileHeader::decode(&bytes, FILE).expect("sound"), header());
    }
}

#[test]
fn each_changed_byte_and_each_truncation_of_a_file_is_an_error() {
    let (bytes, ..) = build(&fixture(), Compression::None);
    let mut copy = bytes.clone();
    for index in 0..bytes.len() {
        for mask in [0x01, 0x80] {
            copy[index] ^= mask;
            assert!(read(&copy).is_err(), "byte {index}");
            copy[index] ^= mask;
        }
        assert!(read(&bytes[..index]).is_err(), "cut to {index}");
    }
    assert!(ValueFileHeader::decode(&bytes, ValueFileId(8)).is_err());
}

#[test]
fn a_newer_file_is_not_called_corrupt() {
    let footer = Footer { root: Handle { offset: 64, sealed_len: 10 } };
    let mut bytes = footer.encode(VALUE_FOOTER, 7, 100);
    bytes[12] = VALUE_FILE_VERSION as u8 + 1;
    let sum = crate::checksum::checksum(7, 100, &[&bytes[..16]]);
    bytes[16..20].copy_from_slice(&sum.to_le_bytes());
    let len = 100 + FOOTER_LEN as u64;
    assert!(matches!(
        Footer::decode(VALUE_FOOTER, &bytes, 7, len),
        Err(DecodeError::NewerFormat { found: 2, .. })
    ));
    assert!(matches!(Footer::decode(MAP_FOOTER, &bytes, 7, len), Err(DecodeError::Corruption(_))));
}

#[test]
fn the_builder_rejects_what_readers_would() {
    let settings = ValueFileSettings { header: header(), compression: Compression::None };
    let builder = || ValueFileBuilder::new(Vec::new(), settings).expect("memory");
    assert_eq!(builder().finish().err(), Some(BuildError::Empty));
    let mut full = builder();
    full.add(b"b", 5, b"x").expect("first");
    assert_eq!(full.add(b"a", 9, b"x"), Err(BuildError::OutOfOrder));
    assert_eq!(full.add(b"b", 5, b"x"), Err(BuildError::OutOfOrder));
    assert_eq!(full.add(&vec![b'c'; drumlin_types::MAX_KEY_LEN + 1], 5, b"x"), Err(BuildError::TooLong));
    assert_eq!(full.add_stored(b"c", 5, Compression::None, 0, b"x"), Err(BuildError::TooLong));
    full.add(b"b", 4, b"y").expect("older version");
    let (_, bytes) = full.finish().expect("two records");
    assert_eq!(read(&bytes).expect("sound").len(), 2);
}

/// Many records make several key blocks.
#[test]
fn key_blocks_are_cut() {
    let key = |number: u32| format_key(number);
    let versions: Vec<Version> = (0..5000).map(|n| (key(n), 1 + u64::from(n), vec![n as u8; 40])).collect();
    let (bytes, _, summary) = build(&versions, Compression::None);
    let lens = &summary.properties.key_block_lens;
    assert!(lens.len() > 2 && lens.iter().all(|&len| len as usize <= KEY_BLOCK_BYTES), "{lens:?}");
    assert_eq!(read(&bytes).expect("sound"), versions);
}

fn format_key(number: u32) -> Vec<u8> {
    alloc::format!("key{number:06}").into_bytes()
}

fn history(writes: u64) -> History {
    let mut history = History { writes, ..History::default() };
    let kept = history.kept();
    history.gaps.iter_mut().take(kept).zip([600, 700, 200, 1, 1 << 40, 3, 90, 8]).for_each(|(a, b)| *a = b);
    if history.has_remainder() {
        history.oldest = 77;
        history.remainders = core::array::from_fn(|index| 0x3c00 + index as u16);
    }
    history
}

fn pointer(history: Option<History>) -> ValuePointer {
    let record = RecordPlace { offset: 300, raw_len: 5000, stored_len: 4096 };
    ValuePointer { place: Some(Place { file: ValueFileId(1), record }), history }
}

fn encoded(pointer: &ValuePointer) -> Vec<u8> {
    let mut out = Vec::new();
    pointer.encode_into(&mut out);
    out
}

#[test]
fn golden_pointers() {
    let plain = encoded(&pointer(None));
    assert_eq!(plain, [0, 1, 0xac, 2, 0x88, 0x27, 0x80, 0x20]);
    // The history of the design: three writes, at distances of 600, 700 and 200.
    let with_history = encoded(&pointer(Some(history(3))));
    assert_eq!(with_history[0], 1);
    assert_eq!(with_history[8..], [0x03, 0xd8, 0x04, 0xbc, 0x05, 0xc8, 0x01]);
    assert_eq!(encoded(&ValuePointer { place: None, history: None }), [2]);
}

#[test]
fn pointers_round_trip_and_each_has_one_encoding() {
    for writes in [0, 1, 3, 8, 9, 1 << 40] {
        let past = (writes > 0).then(|| history(writes));
        for has_place in [true, false] {
            let whole = ValuePointer { place: pointer(None).place.filter(|_| has_place), history: past };
            let bytes = encoded(&whole);
            assert_eq!(ValuePointer::decode(&bytes), Ok(whole));
            let front = ValuePointer::decode_without_history(&bytes).expect("sound");
            assert_eq!(front, ValuePointer { history: None, ..whole });
            for len in 0..bytes.len() {
                assert!(ValuePointer::decode(&bytes[..len]).is_err());
            }
            assert!(ValuePointer::decode(&[&bytes[..], &[0]].concat()).is_err());
        }
    }
}

/// The design allows about 50 bytes for realistic distances; a key with more than 8 writes has 20 bytes of remainders.
#[test]
fn histories_are_short() {
    let length = |writes| encoded(&pointer(Some(history(writes)))).len() - encoded(&pointer(None)).len();
    assert_eq!((length(1), length(8), length(9)), (3, 17, 17 + 1 + 2 * WINDOWS));
}

fn map_of(entries: &[(u64, NewPlace)]) -> Vec<u8> {
    let mut builder = MapBuilder::new(MapHeader { number: 7, collected: ValueFileId(3) });
    entries.iter().for_each(|&(old, new)| builder.add(old, new));
    let summary = builder.finish().expect("sound");
    assert_eq!(summary.entries, entries.len() as u64);
    summary.bytes
}

fn read_map(bytes: &[u8]) -> Result<(MapRoot, Vec<(u64, NewPlace)>), DecodeError> {
    MapHeader::decode(bytes, 7)?;
    let tail = bytes.len().saturating_sub(FOOTER_LEN);
    let footer = Footer::decode(MAP_FOOTER, bytes.get(tail..).unwrap_or_default(), 7, bytes.len() as u64)?;
    if footer.root.end() != tail as u64 {
        return Err(Corruption::new("bytes between root and footer", tail as u64).into());
    }
    let root = MapRoot::decode(block_at(bytes, footer.root)?, footer.root.offset)?;
    let mut entries = Vec::new();
    for block in &root.blocks {
        root.each_entry(block, block_at(bytes, block.handle)?, |old, new| {
            entries.push((old, new));
            true
        })?;
    }
    Ok((root, entries))
}

#[test]
fn a_map_finds_what_it_was_given() {
    let entries: Vec<(u64, NewPlace)> = (0..3000u64)
        .map(|n| (64 + n * 1000, NewPlace { file: ValueFileId(11 + n % 3), offset: 64 + n * 900 }))
        .collect();
    let bytes = map_of(&entries);
    let (root, found) = read_map(&bytes).expect("sound");
    assert_eq!(found, entries);
    assert_eq!(root.targets, [ValueFileId(11), ValueFileId(12), ValueFileId(13)]);
    assert!(root.blocks.len() > 2);
    let look = |old| {
        let block = root.block_of(old)?;
        root.find(block, block_at(&bytes, block.handle).expect("sound"), old).expect("sound")
    };
    for &(old, new) in &entries {
        assert_eq!(look(old), Some(new));
        assert_eq!(look(old + 1), None);
    }
    assert_eq!(look(63), None);
}

#[test]
fn each_changed_byte_of_a_map_is_an_error() {
    let place = |file, offset| NewPlace { file: ValueFileId(file), offset };
    let bytes = map_of(&[(64, place(9, 64)), (900, place(8, 64)), (901, place(9, 700))]);
    let mut copy = bytes.clone();
    for index in 0..bytes.len() {
        copy[index] ^= 0x40;
        assert!(read_map(&copy).is_err(), "byte {index}");
        copy[index] ^= 0x40;
        assert!(read_map(&bytes[..index]).is_err(), "cut to {index}");
    }
    let unsorted = |entries: &[(u64, NewPlace)]| {
        let mut builder = MapBuilder::new(MapHeader { number: 7, collected: ValueFileId(3) });
        entries.iter().for_each(|&(old, new)| builder.add(old, new));
        builder.finish().is_err()
    };
    assert!(unsorted(&[]) && unsorted(&[(5, place(1, 1)), (5, place(1, 2))]));
}

proptest! {
    #[test]
    fn any_versions_round_trip(
        keys in vec_of((vec_of(any::<u8>(), 0..20), 1u64..50, vec_of(any::<u8>(), 0..400)), 1..60),
        codec in 0u8..3,
    ) {
        let mut versions = keys;
        versions.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        versions.dedup_by(|a, b| a.0 == b.0 && a.1 == b.1);
        let compression = Compression::from_u8(codec).expect("a method");
        let (bytes, ..) = build(&versions, compression);
        prop_assert_eq!(read(&bytes).expect("sound"), versions);
    }

    #[test]
    fn hostile_bytes_are_an_error_or_the_only_encoding(bytes in vec_of(any::<u8>(), 0..80)) {
        if let Ok(pointer) = ValuePointer::decode(&bytes) {
            prop_assert_eq!(encoded(&pointer), bytes.clone());
        }
        if let Ok(properties) = ValueFileProperties::decode(&bytes, 500) {
            prop_assert_eq!(properties.encode(), bytes.clone());
        }
        let _ = MapRoot::decode(&bytes, 500);
        let version = RecordKey { file_id: 1, offset: 0, key: b"k", seq: 1 };
        let _ = Record::decode(&bytes, &version);
    }
}
