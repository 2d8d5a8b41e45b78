//! Tests of data blocks: comparison with a sorted list, golden bytes, and hostile bytes.

use super::*;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use drumlin_types::{Kind, Seq};
use proptest::prelude::*;

type Versions = BTreeMap<(Vec<u8>, Reverse<Seq>), (Kind, Vec<u8>)>;

/// Returns a tag for a key. Any function of the key works as a tag; this one gives many keys the same tag.
fn tag(key: &[u8]) -> u8 {
    key.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte)) % 5
}

fn build(versions: &Versions) -> Vec<u8> {
    let mut builder = BlockBuilder::new();
    for ((key, Reverse(seq)), (kind, value)) in versions {
        let most = builder.len_with(key.len(), value.len());
        builder.add(key, tag(key), *seq, *kind, value);
        assert!(builder.len() <= most);
    }
    let mut block = Vec::new();
    builder.finish_into(&mut block);
    assert_eq!(block.len(), builder.len());
    block
}

fn versions() -> impl Strategy<Value = Versions> {
    let key = prop_oneof![
        proptest::collection::vec(0u8..3, 0..6),
        proptest::collection::vec(any::<u8>(), 0..40),
        (0u32..300).prop_map(|n| alloc::format!("user/{n:08}").into_bytes()),
    ];
    let kind = (0usize..Kind::ALL.len()).prop_map(|i| Kind::ALL[i]);
    let value = proptest::collection::vec(any::<u8>(), 0..30);
    let seq = prop_oneof![1u64..20, any::<u64>()];
    proptest::collection::btree_map((key, seq.prop_map(Reverse)), (kind, value), 1..120)
}

#[test]
fn golden_bytes() {
    let mut builder = BlockBuilder::new();
    builder.add(b"ada", 0xaa, 7, Kind::Put, b"1815");
    builder.add(b"ada", 0xaa, 5, Kind::Delete, b"");
    builder.add(b"adele", 0xbb, 300, Kind::Merge, b"+");
    let mut block = Vec::new();
    builder.finish_into(&mut block);
    #[rustfmt::skip]
    let golden = [
        3, 0, 0, 0,  0, 0, 0, 0,  7, 0, 0, 0, 0, 0, 0, 0,
        0xaa, 0xaa, 0xbb,  0, 0,  12, 0,  17, 0,
        0, 3, 4, 1, 0, b'a', b'd', b'a', b'1', b'8', b'1', b'5',
        3, 0, 0, 0, 3,
        2, 3, 1, 2, 0xca, 0x04, b'e', b'l', b'e', b'+',
    ];
    assert_eq!(block, golden);
    BlockView::parse(&block).expect("sound").validate().expect("sound");
}

/// A block with another base is rejected. Every base decodes to the same entries, so only the builder's base is valid.
#[test]
fn a_block_with_another_base_is_no_sound_one() {
    let mut builder = BlockBuilder::new();
    builder.add(b"ada", 0xaa, 7, Kind::Put, b"1815");
    let mut block = Vec::new();
    builder.finish_into(&mut block);
    let difference = block.len() - 1 - b"ada1815".len();
    (block[8], block[difference]) = (6, 2);
    let view = BlockView::parse(&block).expect("the header is sound");
    assert_eq!(view.entry(0).map(|entry| entry.seq), Ok(7));
    assert!(view.validate().is_err());
}

#[test]
fn large_blocks_have_wide_offsets() {
    let mut builder = BlockBuilder::new();
    let value = vec![7; 3000];
    for i in 0..40u32 {
        builder.add(&i.to_be_bytes(), i as u8, 1, Kind::Put, &value);
    }
    let mut block = Vec::new();
    builder.finish_into(&mut block);
    let view = BlockView::parse(&block).expect("sound");
    view.validate().expect("sound");
    for i in 0..40u32 {
        let (index, entry) = view.get(&i.to_be_bytes(), i as u8, 9).expect("sound").expect("there");
        assert_eq!((index, entry.value), (i as usize, &value[..]));
    }
}

#[test]
fn a_cleared_builder_starts_again() {
    let mut builder = BlockBuilder::new();
    builder.add(b"x", 1, 9, Kind::Put, b"y");
    let mut first = Vec::new();
    builder.finish_into(&mut first);
    builder.clear();
    assert!(builder.is_empty());
    builder.add(b"x", 1, 9, Kind::Put, b"y");
    let mut second = Vec::new();
    builder.finish_into(&mut second);
    assert_eq!(first, second);
}

#[test]
fn common_prefixes() {
    let long = [5u8; 40];
    for cut in 0..40 {
        let mut other = long;
        other[cut] = 6;
        assert_eq!(common_prefix(&long, &other), cut);
        assert_eq!(common_prefix(&long, &long[..cut]), cut);
    }
    assert_eq!(common_prefix(&long, &long), 40);
}

/// Calls every read operation on a block of arbitrary bytes.
fn exercise(block: &[u8]) {
    let Ok(view) = BlockView::parse(block) else { return };
    let mut cursor = EntryCursor::default();
    for index in (0..view.count().min(300)).chain((0..view.count().min(300)).rev()) {
        if cursor.load(view, index).is_ok() {
            assert!(block.get(cursor.value()).is_some());
        }
    }
    let _ = view.validate();
    for key in [&b""[..], b"user/00000100", &[1, 2, 0], &[255; 9]] {
        let _ = view.find(key, 7);
        let _ = view.get(key, tag(key), 7);
    }
}

proptest! {
    /// Both header decoders agree, on valid headers and on arbitrary bytes.
    #[test]
    fn headers_read_at_once_are_those_read_byte_by_byte(
        lengths in (0u64..300, 0u64..300, prop_oneof![0u64..300, 0u64..40_000]),
        kind in any::<u8>(),
        zigzag in prop_oneof![0u64..300, 0u64..1 << 30, any::<u64>()],
        tail in proptest::collection::vec(any::<u8>(), 0..12),
        noise in proptest::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut sound = Vec::new();
        for length in [lengths.0, lengths.1, lengths.2] {
            crate::bytes::put_varint(&mut sound, length);
        }
        sound.push(kind);
        crate::bytes::put_varint(&mut sound, zigzag);
        let len = sound.len();
        sound.extend(tail);
        prop_assert_eq!(super::view::both_headers(&sound)[1], Some((zigzag, len)));
        for bytes in [&sound, &noise] {
            let [short, any] = super::view::both_headers(bytes);
            prop_assert!(short.is_none() || short == any);
        }
        let usual = lengths.0 < 128 && lengths.1 < 128 && lengths.2 < 16_384 && zigzag < 1 << 28;
        if usual && sound.len() >= len + 4 {
            prop_assert!(super::view::both_headers(&sound)[0].is_some());
        }
    }

    #[test]
    fn a_block_gives_back_its_entries(versions in versions()) {
        let block = build(&versions);
        let view = BlockView::parse(&block).expect("sound");
        view.validate().expect("sound");
        prop_assert_eq!(view.count(), versions.len());
        let mut cursor = EntryCursor::default();
        let forward = versions.iter().enumerate();
        let backward = versions.iter().enumerate().rev();
        for (index, ((key, Reverse(seq)), (kind, value))) in forward.chain(backward) {
            cursor.load(view, index).expect("sound");
            prop_assert_eq!(cursor.key(), &key[..]);
            prop_assert_eq!((cursor.seq(), cursor.kind()), (*seq, *kind));
            prop_assert_eq!(&block[cursor.value()], &value[..]);
            prop_assert_eq!(view.tag(index), Some(tag(key)));
        }
    }

    #[test]
    fn find_and_get_agree_with_a_sorted_list(
        versions in versions(),
        other in proptest::collection::vec(any::<u8>(), 0..6),
        seq in 0u64..25,
    ) {
        let block = build(&versions);
        let view = BlockView::parse(&block).expect("sound");
        let near: Vec<Vec<u8>> = versions.keys().flat_map(|(key, _)| {
            let mut longer = key.clone();
            longer.push(0);
            [key.clone(), longer, key[..key.len() / 2].to_vec()]
        }).collect();
        for key in near.iter().chain([&other]) {
            for seq in [seq, 0, u64::MAX] {
                let target = (key.clone(), Reverse(seq));
                let index = versions.range(..&target).count();
                prop_assert_eq!(view.find(key, seq), Ok(index));
                let newest = versions.range(&target..).next().filter(|((k, _), _)| k == key);
                let got = view.get(key, tag(key), seq).expect("sound");
                prop_assert_eq!(
                    got.map(|(i, e)| (i, e.seq, e.kind, e.value)),
                    newest.map(|((_, Reverse(s)), (kind, value))| (index, *s, *kind, &value[..]))
                );
            }
        }
    }

    #[test]
    fn hostile_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200), count in 0u8..20) {
        let mut block = vec![count, 0, 0, 0, 0, 0, 0, 0];
        block.extend_from_slice(&bytes);
        exercise(&bytes);
        exercise(&block);
    }

    #[test]
    fn damaged_blocks_do_no_harm(versions in versions(), place in any::<usize>(), mask in 1u8..) {
        let mut block = build(&versions);
        let place = place % block.len();
        exercise(&block[..place]);
        block[place] ^= mask;
        exercise(&block);
    }
}
