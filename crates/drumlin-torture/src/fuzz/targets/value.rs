//! Targets of values apart from the tree: pointers, whole value files as garbage collection reads them, and maps.

use super::fields::NUMBER;
use crate::fuzz::mend;
use crate::fuzz::target::Target;
use drumlin_format::block::{BlockView, EntryCursor};
use drumlin_format::compression::{Compression, Decompressor};
use drumlin_format::seal::unseal_plain;
use drumlin_format::table::Handle;
use drumlin_format::value::{
    FOOTER_LEN, Footer, MAP_FOOTER, MAP_HEADER_LEN, MapBuilder, MapHeader, MapRoot, NewPlace, Place, Record,
    RecordKey, RecordPlace, VALUE_FOOTER, VALUE_HEADER_LEN, ValueFileBuilder, ValueFileHeader,
    ValueFileProperties, ValueFileSettings, ValuePointer, key_block_place,
};
use drumlin_types::history::History;
use drumlin_types::{KeyspaceId, ValueFileId};

pub(super) const TARGETS: &[Target] = &[
    Target {
        name: "value-pointer",
        codecs: &["value"],
        run: pointer,
        mend: mend::nothing,
        seeds: pointer_seeds,
        cost: 1,
    },
    Target {
        name: "value-file",
        codecs: &["value", "file_header", "block", "seal", "compression"],
        run: value_file,
        mend: mend_value_file,
        seeds: value_file_seeds,
        cost: 1,
    },
    Target {
        name: "value-map",
        codecs: &["value", "file_header", "seal"],
        run: map,
        mend: mend_map,
        seeds: map_seeds,
        cost: 1,
    },
];

fn pointer(input: &[u8]) -> bool {
    let front = ValuePointer::decode_without_history(input);
    let Ok(pointer) = ValuePointer::decode(input) else { return false };
    assert_eq!(front.map(|front| front.place), Ok(pointer.place));
    let mut again = Vec::new();
    pointer.encode_into(&mut again);
    assert_eq!(again, input);
    true
}

fn pointer_seeds() -> Vec<Vec<u8>> {
    let record = RecordPlace { offset: 70_000, raw_len: 5000, stored_len: 4100 };
    let place = Some(Place { file: ValueFileId(9), record });
    let few = History { writes: 2, gaps: [600, 7, 0, 0, 0, 0, 0, 0], ..History::default() };
    let many = History { writes: 90, gaps: [5; 8], oldest: 4000, remainders: [0x3c00; 10] };
    let pointers = [(place, None), (place, Some(few)), (place, Some(many)), (None, Some(few)), (None, None)];
    let encode = |(place, history)| {
        let mut out = Vec::new();
        ValuePointer { place, history }.encode_into(&mut out);
        out
    };
    pointers.into_iter().map(encode).collect()
}

fn block_at(bytes: &[u8], handle: Handle) -> Option<&[u8]> {
    let sealed = bytes.get(usize::try_from(handle.offset).ok()?..usize::try_from(handle.end()).ok()?)?;
    unseal_plain(NUMBER, handle.offset, sealed).ok()
}

fn value_file(input: &[u8]) -> bool {
    read_value_file(input).is_some()
}

/// Reads the key blocks and every record.
fn read_value_file(bytes: &[u8]) -> Option<()> {
    ValueFileHeader::decode(bytes, ValueFileId(NUMBER)).ok()?;
    let tail = bytes.len().checked_sub(FOOTER_LEN)?;
    let footer = Footer::decode(VALUE_FOOTER, &bytes[tail..], NUMBER, bytes.len() as u64).ok()?;
    let properties = block_at(bytes, footer.root)?;
    let properties = ValueFileProperties::decode(properties, footer.root.offset).ok()?;
    assert!(properties.key_blocks().all(|handle| handle.end() <= footer.root.offset));
    // The records of a sound file do not overlap, so their values are bounded by their compression.
    let mut raw_left = properties.raw_bytes.min(64 << 20);
    let mut cursor = EntryCursor::default();
    for handle in properties.key_blocks() {
        let block = BlockView::parse(block_at(bytes, handle)?).ok()?;
        block.validate().ok()?;
        cursor.leave_block();
        for index in 0..block.count() {
            cursor.load(block, index).ok()?;
            let place = key_block_place(block, index).ok()?;
            let record =
                bytes.get(usize::try_from(place.offset).ok()?..usize::try_from(place.end()).ok()?)?;
            let (offset, key, seq) = (place.offset, cursor.key(), cursor.seq());
            let record = Record::decode(record, &RecordKey { file_id: NUMBER, offset, key, seq }).ok()?;
            raw_left = raw_left.checked_sub(u64::from(record.raw_len))?;
            let mut value = vec![0; record.raw_len as usize];
            Decompressor::new().decompress(record.codec, record.stored, &mut value).ok()?;
        }
    }
    Some(())
}

fn mend_value_file(input: &mut [u8]) {
    mend::header(input, NUMBER, VALUE_HEADER_LEN);
    mend::value_footer(input, NUMBER);
}

fn value_file_seeds() -> Vec<Vec<u8>> {
    let header =
        ValueFileHeader { file: ValueFileId(NUMBER), created_seq: 70, keyspace: KeyspaceId(2), class: 1 };
    let build = |compression| {
        let settings = ValueFileSettings { header, compression };
        let mut builder = ValueFileBuilder::new(Vec::new(), settings).expect("memory");
        for (key, seq, len) in [("ada", 9, 40), ("ada", 3, 200), ("grace", 5, 0), ("hopper", 60, 900)] {
            builder.add(key.as_bytes(), seq, &vec![b'v'; len]).expect("in order");
        }
        builder.finish().expect("records").1
    };
    Compression::ALL.into_iter().map(build).collect()
}

fn map(input: &[u8]) -> bool {
    read_map(input).is_some()
}

fn read_map(bytes: &[u8]) -> Option<()> {
    let header = MapHeader::decode(bytes, NUMBER).ok()?;
    let tail = bytes.len().checked_sub(FOOTER_LEN)?;
    let footer = Footer::decode(MAP_FOOTER, &bytes[tail..], NUMBER, bytes.len() as u64).ok()?;
    let root = MapRoot::decode(block_at(bytes, footer.root)?, footer.root.offset).ok()?;
    let mut again = MapBuilder::new(header);
    for block in &root.blocks {
        let entries = block_at(bytes, block.handle)?;
        root.each_entry(block, entries, |old, new| {
            again.add(old, new);
            true
        })
        .ok()?;
        assert!(root.block_of(block.first) == Some(block));
    }
    // Blocks that were cut elsewhere are read, and overlap or not: only a map in order can be written again.
    if let Ok(again) = again.finish() {
        assert_eq!(again.entries, root.entries);
    }
    Some(())
}

fn mend_map(input: &mut [u8]) {
    mend::header(input, NUMBER, MAP_HEADER_LEN);
    mend::value_footer(input, NUMBER);
}

fn map_seeds() -> Vec<Vec<u8>> {
    let of = |count: u64| {
        let header = MapHeader { number: NUMBER, collected: ValueFileId(3) };
        let mut builder = MapBuilder::new(header);
        for n in 0..count {
            builder.add(64 + n * 500, NewPlace { file: ValueFileId(8 + n % 2), offset: 64 + n * 300 });
        }
        builder.finish().expect("entries").bytes
    };
    vec![of(1), of(40), of(1500)]
}
