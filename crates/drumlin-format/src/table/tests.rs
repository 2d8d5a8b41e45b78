//! Tests of whole tables: round trips, golden bytes, and every kind of corruption.

use super::*;
use crate::block::{BlockView, EntryCursor, tag_of};
use crate::checksum::hash64;
use crate::compression::{Compression, Decompressor};
use crate::filter::{Method, key_hash, may_contain};
use crate::index::{Fence, IndexView};
use crate::seal::{unseal_block, unseal_plain};
use alloc::collections::BTreeMap;
use alloc::vec;
use core::cmp::Reverse;
use drumlin_types::{Key, KeyRange, Kind, Seq, ValueFileId};
use proptest::prelude::*;

type Entry = ((Vec<u8>, Reverse<Seq>), (Kind, Vec<u8>));
type Entries = BTreeMap<(Vec<u8>, Reverse<Seq>), (Kind, Vec<u8>)>;

/// Full contents of a table.
#[derive(Clone, PartialEq, Debug)]
struct Contents {
    entries: Vec<Entry>,
    tombstones: Vec<Tombstone>,
    properties: Properties,
}

fn block(file: &[u8], handle: Handle) -> Option<&[u8]> {
    file.get(handle.offset as usize..handle.end() as usize)
}

/// Reads a whole table and verifies every part.
fn read(file: &[u8], file_id: u64) -> Result<Contents, DecodeError> {
    let bad = |what| DecodeError::from(Corruption::new(what, 0));
    let footer_start = file.len().checked_sub(FOOTER_LEN).ok_or(bad("short"))?;
    let footer = Footer::decode(&file[footer_start..], file_id, file.len() as u64)?;
    let plain = |handle: Handle| -> Result<&[u8], DecodeError> {
        let sealed = block(file, handle).ok_or(bad("outside"))?;
        Ok(unseal_plain(file_id, handle.offset, sealed)?)
    };
    let properties = Properties::decode(plain(footer.properties)?, footer_start as u64)?;
    let mut tombstones = Vec::new();
    if let Some((handle, _)) = &properties.tombstones {
        tombstones = decode_tombstones(plain(*handle)?)?;
    }
    let mut fences: Vec<Fence> = Vec::new();
    let root = IndexView::parse(plain(footer.root)?)?;
    root.validate()?;
    for i in 0..root.count() {
        let fence = root.fence(i)?;
        if root.level() == 0 {
            fences.push(fence);
            continue;
        }
        let part = IndexView::parse(plain(Handle { offset: fence.offset, sealed_len: fence.sealed_len })?)?;
        part.validate()?;
        for j in 0..part.count() {
            fences.push(part.fence(j)?);
        }
    }
    let mut entries: Vec<Entry> = Vec::new();
    for fence in fences {
        let handle = Handle { offset: fence.offset, sealed_len: fence.sealed_len };
        let sealed = block(file, handle).ok_or(bad("outside"))?;
        let (method, stored) = unseal_block(file_id, fence.offset, sealed, u64::from(fence.raw_len))?;
        let mut raw = vec![0; fence.raw_len as usize];
        Decompressor::new().decompress(method, stored, &mut raw)?;
        let view = BlockView::parse(&raw)?;
        view.validate()?;
        assert_eq!(fence.ordinal, entries.len() as u64);
        let mut cursor = EntryCursor::default();
        for i in 0..view.count() {
            cursor.load(view, i)?;
            assert_eq!(view.tag(i), Some(tag_of(key_hash(cursor.key(), properties.seed))));
            let version = (cursor.key().to_vec(), Reverse(cursor.seq()));
            entries.push((version, (cursor.kind(), raw[cursor.value()].to_vec())));
        }
    }
    for (number, module) in properties.filter.modules.iter().enumerate() {
        let bits = plain(module.handle(file.len() as u64).ok_or(bad("odd module"))?)?;
        for ((key, _), _) in &entries {
            let hash = key_hash(key, properties.seed);
            let method = properties.filter.method().expect("a known method");
            assert!(may_contain(method, bits, number, module.probes, hash));
        }
    }
    Ok(Contents { entries, tombstones, properties })
}

fn settings(compression: Compression, block_bytes: usize) -> TableSettings {
    TableSettings { file_id: 12, block_bytes, compression, seed: 99, created_seq: 1000 }
}

fn build(
    entries: &Entries,
    tombstones: &[(KeyRange, Seq)],
    settings: TableSettings,
    filter: FilterSpec,
) -> (Vec<u8>, TableSummary) {
    let mut builder = TableBuilder::new(Vec::new(), settings);
    for ((key, Reverse(seq)), (kind, value)) in entries {
        builder.add(key, *seq, *kind, value).expect("in order");
    }
    for (range, seq) in tombstones {
        builder.add_range_tombstone(range.clone(), *seq);
    }
    builder.set_value_files(vec![ValueReference { file: ValueFileId(5), entries: 1, bytes: 2 }]);
    let (summary, file) = builder.finish(filter).expect("sound");
    (file, summary)
}

/// Returns `count` keys with one to three versions each.
fn sample(count: u32) -> Entries {
    let mut entries = Entries::new();
    for i in 0..count {
        let key = alloc::format!("user/{:06}", i * 3).into_bytes();
        for version in 0..=i % 3 {
            let kind = [Kind::Put, Kind::Delete, Kind::Merge][version as usize];
            let value = if kind == Kind::Delete { Vec::new() } else { vec![i as u8; (i % 40) as usize] };
            entries.insert((key.clone(), Reverse(u64::from(10 + version * 7 + i))), (kind, value));
        }
    }
    entries
}

#[test]
fn golden_bytes() {
    let mut entries = Entries::new();
    entries.insert((b"ada".to_vec(), Reverse(7)), (Kind::Put, b"1815".to_vec()));
    let range = KeyRange::new(Key::new(b"b"), Some(Key::new(b"c")));
    let settings = TableSettings {
        file_id: 12,
        block_bytes: 4096,
        compression: Compression::None,
        seed: 0x0123_4567_89ab_cdef,
        created_seq: 6,
    };
    let (file, summary) = build(&entries, &[(range, 9)], settings, FilterSpec::from(10.0));
    assert_eq!(summary.file_len, file.len() as u64);
    assert_eq!(summary.checksum, hash64(&file));
    #[rustfmt::skip]
    let golden_start = [
        // Data block at 0.
        1, 0, 0, 0,  0, 0, 0, 0,  7, 0, 0, 0, 0, 0, 0, 0,
        0x60,  0, 0,
        0, 3, 4, 1, 0, b'a', b'd', b'a', b'1', b'8', b'1', b'5',
        0,  0x3f, 0x50, 0xbd, 0x82,
        // Range tombstones at 36.
        1,  1, b'b', 1, 1, b'c', 9,
    ];
    assert_eq!(file[..golden_start.len()], golden_start);
    assert_eq!((summary.file_len, summary.checksum), (285, 0xd20e_f310_a061_1ff4));
}

#[test]
fn counts_and_bounds() {
    let entries = sample(30);
    let open_end = KeyRange::new(Key::new(b"zz"), None);
    let range = KeyRange::new(Key::new(b"a"), Some(Key::new(b"b")));
    let nothing = KeyRange::new(Key::new(b"q"), Some(Key::new(b"q")));
    let tombstones = [(open_end, 500), (nothing, 1), (range.clone(), 3), (range, 3)];
    let (file, summary) =
        build(&entries, &tombstones, settings(Compression::None, 512), FilterSpec::from(8.0));
    let properties = read(&file, 12).expect("sound").properties;
    assert_eq!(properties, summary.properties);
    assert_eq!(
        (properties.entries, properties.keys, properties.deletes, properties.merges),
        (60, 30, 20, 10)
    );
    assert_eq!((properties.expiring, properties.pointers, properties.range_tombstones), (0, 0, 2));
    assert_eq!((properties.min_seq, properties.max_seq, properties.created_seq), (3, 500, 1000));
    assert_eq!(properties.bounds(), KeyRange::new(Key::new(b"a"), None));
    assert_eq!(properties.filter.keys, 30);
    assert!(!properties.unique_keys() && properties.has_merge() && !properties.has_expiring());
    let raw: usize = entries.iter().map(|((key, _), (_, value))| key.len() + value.len()).sum();
    assert_eq!(properties.raw_bytes, raw as u64);
    assert_eq!(properties.value_files, [ValueReference { file: ValueFileId(5), entries: 1, bytes: 2 }]);
}

#[test]
fn a_tombstone_with_an_impossible_sequence_number_is_damage() {
    let range = KeyRange::new(Key::new(b"a"), None);
    let encoded = |seq| encode_tombstones(&mut vec![Tombstone { range: range.clone(), seq }]);
    let most = crate::limits::MAX_SEQ;
    assert_eq!(decode_tombstones(&encoded(most)).map(|found| found[0].seq), Ok(most));
    assert!(decode_tombstones(&encoded(most + 1)).is_err());
    assert!(decode_tombstones(&encoded(u64::MAX)).is_err());
}

#[test]
fn tables_of_tombstones_alone() {
    let range = KeyRange::new(Key::new(b"a"), Some(Key::new(b"b")));
    let (file, summary) = build(
        &Entries::new(),
        &[(range.clone(), 3)],
        settings(Compression::None, 512),
        FilterSpec::from(8.0),
    );
    let contents = read(&file, 12).expect("sound");
    assert_eq!(contents.tombstones, [Tombstone { range: range.clone(), seq: 3 }]);
    assert_eq!(summary.properties.bounds(), range);
    assert_eq!(
        (summary.properties.filter.format, summary.properties.filter.bits_per_key()),
        (FILTER_NONE, 0.0)
    );
}

#[test]
fn misuse_is_refused() {
    let new = || TableBuilder::new(Vec::new(), settings(Compression::None, 512));
    assert_eq!(new().finish(8.0).err(), Some(BuildError::Empty));
    let mut builder = new();
    builder.add(b"b", 5, Kind::Put, b"").expect("first");
    assert_eq!(builder.add(b"a", 9, Kind::Put, b""), Err(BuildError::OutOfOrder));
    assert_eq!(builder.add(b"b", 5, Kind::Put, b""), Err(BuildError::OutOfOrder));
    assert_eq!(builder.add(b"b", 6, Kind::Put, b""), Err(BuildError::OutOfOrder));
    assert_eq!(builder.add(b"c", 1, Kind::DeleteRange, b""), Err(BuildError::OutOfOrder));
    let long = vec![b'x'; drumlin_types::MAX_KEY_LEN + 1];
    assert_eq!(builder.add(&long, 1, Kind::Put, b""), Err(BuildError::EntryTooLong));
    builder.add(b"b", 4, Kind::Put, b"").expect("an older version");
    assert_eq!(builder.entries(), 2);
}

#[test]
fn large_tables_have_two_index_levels() {
    let entries = sample(12_000);
    let (file, summary) = build(&entries, &[], settings(Compression::Lz4, 256), FilterSpec::bloom(12.0, 3));
    let contents = read(&file, 12).expect("sound");
    assert_eq!(contents.entries, entries.into_iter().collect::<Vec<_>>());
    assert!(summary.properties.data_blocks > 2500);
    let modules = &summary.properties.filter.modules;
    assert_eq!(modules.len(), 3);
    assert!(modules[0].offset > modules[1].offset && modules[1].offset > modules[2].offset);
    let built = summary.properties.filter.bits_per_key();
    assert!((12.0..12.2).contains(&built), "{built}");
}

#[test]
fn an_entry_may_be_longer_than_a_block() {
    let mut entries = sample(20);
    entries.insert((b"user/000007".to_vec(), Reverse(1)), (Kind::Put, vec![3; 100_000]));
    for compression in Compression::ALL {
        let (file, _) = build(&entries, &[], settings(compression, 512), FilterSpec::from(0.0));
        assert_eq!(read(&file, 12).expect("sound").entries.len(), entries.len());
    }
}

#[test]
fn all_damage_is_found() {
    let range = KeyRange::new(Key::new(b"m"), Some(Key::new(b"p")));
    let filter = FilterSpec::bloom(4.0, 2);
    let (file, _) = build(&sample(25), &[(range, 77)], settings(Compression::Lz4, 256), filter);
    assert!(read(&file, 12).is_ok());
    assert!(read(&file, 13).is_err());
    for len in 0..file.len() {
        assert!(read(&file[..len], 12).is_err(), "cut to {len}");
    }
    for place in 0..file.len() {
        for mask in [0x01, 0x80, 0xff] {
            let mut bad = file.clone();
            bad[place] ^= mask;
            assert!(read(&bad, 12).is_err(), "byte {place} xor {mask}");
        }
    }
}

#[test]
fn a_newer_version_is_refused() {
    let (mut file, _) = build(&sample(3), &[], settings(Compression::None, 512), FilterSpec::from(0.0));
    let end = file.len();
    let start = end - FOOTER_LEN;
    file[end - 16..end - 12].copy_from_slice(&2u32.to_le_bytes());
    let sum = checksum(12, start as u64, &[&file[start..end - 12]]);
    file[end - 12..end - 8].copy_from_slice(&sum.to_le_bytes());
    let newer = DecodeError::NewerFormat { what: "table version", found: 2, known: 1 };
    assert_eq!(read(&file, 12), Err(newer));
}

/// A filter with too many lines is rejected, since the sum of the lines of all modules must not overflow.
#[test]
fn a_filter_of_more_lines_than_there_can_be_is_refused() {
    let module = ModuleDescriptor { offset: 0, lines: u64::MAX, probes: 7 };
    let filter = FilterDescriptor {
        format: Method::Bloom as u8,
        keys: 1,
        false_positive_rate: 0.5,
        modules: vec![module; 2],
    };
    let properties = Properties { filter, ..Properties::default() };
    let read = Properties::decode(&properties.encode(), 1000);
    assert!(read.map(|properties| properties.filter.bits_per_key()).is_err());
}

#[test]
fn an_unknown_filter_is_no_damage() {
    let mut properties =
        build(&sample(3), &[], settings(Compression::None, 512), FilterSpec::from(8.0)).1.properties;
    properties.filter.format = 9;
    let again = Properties::decode(&properties.encode(), 1 << 20).expect("sound");
    assert_eq!((again.filter.format, again.filter.modules.len()), (9, 0));
}

proptest! {
    #[test]
    fn tables_give_back_what_they_got(
        keys in proptest::collection::btree_map(
            (proptest::collection::vec(0u8..4, 0..7), (1u64..9).prop_map(Reverse)),
            (
                (0usize..6).prop_map(|i| [&Kind::ALL[..5], &[Kind::MergeExpiring]].concat()[i]),
                proptest::collection::vec(any::<u8>(), 0..50),
            ),
            1..150,
        ),
        tombstones in proptest::collection::vec(
            (
                proptest::collection::vec(0u8..4, 0..4),
                proptest::option::of(proptest::collection::vec(0u8..4, 0..4)),
                1u64..99,
            ),
            0..5,
        ),
        block_bytes in prop_oneof![Just(64usize), Just(300), Just(4096)],
        compression in (0usize..3).prop_map(|i| Compression::ALL[i]),
        modules in 1usize..=4,
        bits_per_key in 0.0f64..16.0,
    ) {
        let tombstones: Vec<(KeyRange, Seq)> = tombstones.into_iter().map(|(start, end, seq)| {
            (KeyRange::new(Key::from(start), end.map(Key::from)), seq)
        }).collect();
        let filter = FilterSpec::bloom(bits_per_key, modules);
        let (file, summary) = build(&keys, &tombstones, settings(compression, block_bytes), filter);
        let contents = read(&file, 12).expect("sound");
        prop_assert_eq!(&contents.properties, &summary.properties);
        prop_assert_eq!(contents.entries, keys.into_iter().collect::<Vec<_>>());
        let mut expected: Vec<(KeyRange, Seq)> = tombstones.into_iter().filter(|(r, _)| !r.is_empty()).collect();
        let mut got: Vec<(KeyRange, Seq)> = contents.tombstones.into_iter().map(|t| (t.range, t.seq)).collect();
        for list in [&mut expected, &mut got] {
            list.sort_by(|a, b| (&a.0.start, &a.0.end, a.1).cmp(&(&b.0.start, &b.0.end, b.1)));
        }
        expected.dedup();
        prop_assert_eq!(got, expected);
    }

    #[test]
    fn hostile_properties_do_no_harm(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        place in any::<usize>(),
        mask in 1u8..,
    ) {
        let _ = Properties::decode(&bytes, 1 << 20);
        let _ = decode_tombstones(&bytes);
        let summary = build(&sample(3), &[], settings(Compression::None, 512), FilterSpec::from(8.0)).1;
        let mut encoded = summary.properties.encode();
        let place = place % encoded.len();
        encoded[place] ^= mask;
        let _ = Properties::decode(&encoded, 1 << 20);
        let _ = Properties::decode(&encoded[..place], 1 << 20);
    }
}

/// A compaction may end an output file right after a key of maximum length, inside a range tombstone.
#[test]
fn range_tombstones_begin_and_end_behind_the_longest_key() {
    let longest = vec![b'k'; drumlin_types::MAX_KEY_LEN];
    let behind = Key::successor(&longest);
    let mut entries = Entries::new();
    entries.insert((longest.clone(), Reverse(7)), (Kind::Put, b"long".to_vec()));
    let tombstones = [
        (KeyRange::new(Key::new(b"a"), Some(behind.clone())), 9),
        (KeyRange::new(behind.clone(), None), 11),
        (KeyRange::new(behind, Some(Key::new(b"l"))), 9),
    ];
    let (file, _) = build(&entries, &tombstones, settings(Compression::None, 4096), FilterSpec::from(10.0));
    let contents = read(&file, 12).expect("a table that can be read again");
    let found: Vec<_> = contents.tombstones.into_iter().map(|t| (t.range, t.seq)).collect();
    assert_eq!(found, tombstones);
}

#[test]
fn a_table_of_a_tombstone_behind_the_longest_key_alone_is_read() {
    let behind = Key::successor(&vec![b'k'; drumlin_types::MAX_KEY_LEN]);
    let tombstones = [(KeyRange::new(behind, Some(Key::new(b"l"))), 9)];
    let settings = settings(Compression::None, 4096);
    let (file, _) = build(&Entries::new(), &tombstones, settings, FilterSpec::from(10.0));
    assert_eq!(read(&file, 12).expect("a sound table").tombstones.len(), 1);
}
