//! Tests of the index: comparison with a sorted list, separators by brute force, golden and hostile bytes.

use super::*;
use crate::limits::MAX_LEN;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

fn separator(last: &[u8], next: &[u8]) -> Vec<u8> {
    let (len, raised) = separator_len(last, next);
    let mut separator = last[..len].to_vec();
    if raised {
        separator[len - 1] += 1;
    }
    separator
}

/// Builds fences with these separators. Child i has 100 + i sealed bytes and i + 1 entries.
fn build(separators: &[Vec<u8>]) -> IndexBuilder {
    let mut builder = IndexBuilder::new();
    let (mut offset, mut ordinal) = (1000u64, 0u64);
    for (i, separator) in separators.iter().enumerate() {
        let end = offset + 100 + i as u64;
        let continues = separators.get(i + 1) == Some(separator);
        builder.add(separator, continues, offset..end, 200 + i as u32, ordinal);
        offset = end;
        ordinal += i as u64 + 1;
    }
    builder
}

#[test]
fn golden_bytes() {
    let mut out = Vec::new();
    build(&[b"ab".to_vec(), b"ab".to_vec(), b"ac0123456789".to_vec()])
        .encode(1..3, 0, &mut out)
        .expect("small");
    #[rustfmt::skip]
    let golden = [
        2, 0, 0, 0,  0, 0, 0, 0,  1, 0, 0, 0,  0, 0, 0, 0,
        0x4c, 4, 0, 0, 0, 0, 0, 0,  1, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, b'b',  b'6', b'5', b'4', b'3', b'2', b'1', b'0', b'c',
        101, 0, 0, 0,  0, 0, 0, 0,  201, 0, 0, 0,  1, 0, 0, 0,
        203, 0, 0, 0,  2, 0, 0, 0,  202, 0, 0, 0,  12, 0, 0, 0,
        b'a',
        b'b', b'c', b'0', b'1', b'2', b'3', b'4', b'5', b'6', b'7', b'8', b'9',
    ];
    assert_eq!(out, golden);
    let view = IndexView::parse(&out).expect("sound");
    view.validate().expect("sound");
    let fence = Fence { offset: 1201, sealed_len: 102, raw_len: 202, ordinal: 3, continues: false };
    assert_eq!(view.fence(1), Ok(fence));
    assert_eq!(fence.end(), 1303);
    assert!(view.fence(2).is_err());
}

#[test]
fn separators_are_short() {
    let at = |last: &[u8], next: &[u8]| separator(last, next);
    assert_eq!(at(b"apple", b"banana"), b"b");
    assert_eq!(at(b"apple", b"apricot"), b"apq");
    assert_eq!(at(b"apple", b"applesauce"), b"apple");
    assert_eq!(at(b"abc", b"abd"), b"abc");
    assert_eq!(at(b"abcx", b"abd"), b"abcx");
    assert_eq!(at(b"abcxy", b"abd"), b"abcy");
    assert_eq!(at(b"ab\xff\xff\xff", b"ac"), b"ab\xff\xff\xff");
    assert_eq!(at(b"", b"a"), b"");
    assert_eq!(at(b"a\xffzz", b"b"), b"a\xff{");
}

#[test]
fn large_indexes_are_partitioned() {
    let names: Vec<Vec<u8>> = (0..3000u32).map(|i| alloc::format!("key-{i:010}").into_bytes()).collect();
    let small = build(&names[..1500]);
    assert_eq!(small.partitions().ranges().len(), 1);
    let large = build(&names);
    assert!(large.len() > FLAT_LIMIT);
    let partitions = large.partitions();
    assert_eq!(partitions.ranges().len(), 7);
    for range in partitions.ranges() {
        let mut out = Vec::new();
        large.encode(range.clone(), 0, &mut out).expect("small");
        assert!(out.len() <= PARTITION_TARGET);
        let view = IndexView::parse(&out).expect("sound");
        view.validate().expect("sound");
        assert_eq!(view.fence(0).expect("there").ordinal, large.ordinal(range.start));
    }
}

#[test]
fn far_children_are_cut_apart() {
    let mut builder = IndexBuilder::new();
    for i in 0..3u64 {
        builder.add(&[i as u8], false, i << 31..(i + 1) << 31, 1, i);
    }
    assert_eq!(builder.partitions().ranges(), [0..1, 1..2, 2..3]);
    assert_eq!(builder.encode(0..3, 0, &mut Vec::new()), Err(IndexError));
}

/// The bounds of the base hold for every fence: what validation accepts can be written with its first fence as base.
#[test]
fn no_fence_lies_past_the_longest_table() {
    let one = |offset: u64, ordinal: u64| {
        let mut builder = IndexBuilder::new();
        builder.add(b"a", false, offset..offset + 10, 20, ordinal);
        let mut block = Vec::new();
        builder.encode(0..1, 0, &mut block).map(|()| block)
    };
    for base in [(MAX_LEN - 9, 0), (0, MAX_LEN + 1)] {
        assert_eq!(one(base.0, base.1), Err(IndexError));
    }
    let valid = |block: &[u8]| IndexView::parse(block).expect("a sound header").validate().is_ok();
    let [near, last] = [one(MAX_LEN - 10, 0), one(0, MAX_LEN)].map(|block| block.expect("small"));
    assert!(valid(&near) && valid(&last));
    // The end of the only fence, relative to the base, is 10.
    let mut past = near;
    past[HEADER_LEN + 8] = 11;
    assert!(!valid(&past));
    // The ordinal of the only fence, relative to the base, becomes 1.
    let mut past = last;
    past[HEADER_LEN + 8 + 4] = 1;
    assert!(!valid(&past));
}

/// Calls every read operation on an index block of arbitrary bytes.
fn exercise(bytes: &[u8]) {
    let Ok(view) = IndexView::parse(bytes) else { return };
    let _ = view.validate();
    for index in 0..view.count().min(300) {
        let _ = view.fence(index);
        let _ = view.separator_rest(index);
    }
    for key in [&b""[..], b"key", &[1, 2, 0], &[255; 20]] {
        let _ = view.find(key);
        let Ok(target) = view.target(key) else { continue };
        for guess in [view.guess(target), view.count(), usize::MAX] {
            let _ = view.find_near(guess, target);
        }
    }
}

proptest! {
    #[test]
    fn find_agrees_with_a_sorted_list(
        separators in proptest::collection::vec(proptest::collection::vec(0u8..4, 0..14), 1..60),
        prefix in proptest::collection::vec(any::<u8>(), 0..5),
        keys in proptest::collection::vec(proptest::collection::vec(0u8..5, 0..16), 0..20),
    ) {
        let with_prefix = |key: &Vec<u8>| [&prefix[..], &key[..]].concat();
        let mut separators: Vec<Vec<u8>> = separators.iter().map(with_prefix).collect();
        separators.sort();
        let mut bytes = Vec::new();
        build(&separators).encode(0..separators.len(), 0, &mut bytes).expect("small");
        let view = IndexView::parse(&bytes).expect("sound");
        view.validate().expect("sound");
        let probes = keys.iter().cloned().chain(keys.iter().map(with_prefix)).chain(separators.iter().cloned());
        for key in probes {
            let expected = separators.iter().filter(|s| **s < key).count();
            prop_assert_eq!(view.find(&key), Ok(expected));
            let Ok(target) = view.target(&key) else { continue };
            prop_assert!(view.guess(target) < view.count());
            for guess in 0..view.count() {
                prop_assert_eq!(view.find_near(guess, target), Ok(expected), "from {}", guess);
            }
        }
        for (i, separator) in separators.iter().enumerate() {
            prop_assert_eq!(&[view.common(), view.separator_rest(i).expect("sound")].concat(), separator);
            let fence = view.fence(i).expect("sound");
            prop_assert_eq!((fence.raw_len, fence.sealed_len), (200 + i as u32, 100 + i as u32));
            prop_assert_eq!(fence.ordinal, (i * (i + 1) / 2) as u64);
        }
    }

    #[test]
    fn separators_separate(keys in proptest::collection::btree_set(proptest::collection::vec(
        prop_oneof![0u8..3, 253u8..], 0..5), 2..3))
    {
        let keys: Vec<Vec<u8>> = BTreeSet::into_iter(keys).collect();
        let separator = separator(&keys[0], &keys[1]);
        prop_assert!(keys[0] <= separator && separator < keys[1]);
        // Brute force: no shorter string separates the keys.
        let mut shorter = vec![Vec::new()];
        for _ in 0..separator.len() {
            prop_assert!(shorter.iter().all(|s| *s < keys[0] || *s >= keys[1]));
            let extended = shorter.iter().flat_map(|s: &Vec<u8>| {
                [0, 1, 2, 3, 253, 254, 255].map(|byte| [&s[..], &[byte]].concat())
            });
            shorter = extended.collect();
        }
    }

    #[test]
    fn hostile_bytes_do_no_harm(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        separators in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9), 1..20),
        place in any::<usize>(),
        mask in 1u8..,
    ) {
        exercise(&bytes);
        let mut separators = separators;
        separators.sort();
        let mut block = Vec::new();
        build(&separators).encode(0..separators.len(), 0, &mut block).expect("small");
        let place = place % block.len();
        exercise(&block[..place]);
        block[place] ^= mask;
        exercise(&block);
    }
}
