//! Targets of the blocks of a table: entries, fences and range tombstones.

use crate::fuzz::mend;
use crate::fuzz::target::Target;
use drumlin_format::block::{BlockBuilder, BlockView, EntryCursor, tag_of};
use drumlin_format::filter::key_hash;
use drumlin_format::index::{IndexBuilder, IndexView};
use drumlin_format::limits::MAX_SEQ;
use drumlin_format::table::{Tombstone, decode_tombstones, encode_tombstones};
use drumlin_types::{Key, KeyRange, Kind};

pub(super) const TARGETS: &[Target] = &[
    Target {
        name: "block",
        codecs: &["block"],
        run: block,
        mend: mend::nothing,
        seeds: block_seeds,
        cost: 1,
    },
    Target {
        name: "index",
        codecs: &["index"],
        run: index,
        mend: mend::nothing,
        seeds: index_seeds,
        cost: 1,
    },
    Target {
        name: "tombstones",
        codecs: &["table"],
        run: tombstones,
        mend: mend::nothing,
        seeds: tombstone_seeds,
        cost: 1,
    },
];

/// Maximum number of entries read one by one from a block of arbitrary bytes.
const LOOKED_AT: usize = 300;

fn block(input: &[u8]) -> bool {
    let Ok(view) = BlockView::parse(input) else { return false };
    assert!(view.count() <= input.len());
    let mut cursor = EntryCursor::default();
    // Read forwards and backwards, as compactions and scans do.
    let forwards = 0..view.count().min(LOOKED_AT);
    for index in forwards.clone().chain(forwards.rev()) {
        let entry = view.entry(index);
        if cursor.load(view, index).is_ok() {
            let entry = entry.expect("the cursor read it");
            assert!(cursor.value().end <= input.len() && cursor.key().ends_with(entry.suffix));
            assert_eq!(input[cursor.value()], *entry.value);
            let key = cursor.key().to_vec();
            let tag = view.tag(index).expect("within the count");
            let _ =
                (view.find(&key, entry.seq), view.get(&key, tag, entry.seq), view.next_version(index, &key));
        }
    }
    for key in [&b""[..], b"k", &[0xff; 20]] {
        assert!(view.find(key, 5).is_ok_and(|found| found <= view.count()) || view.validate().is_err());
        let _ = view.get(key, tag_of(key_hash(key, 1)), u64::MAX);
    }
    assert!(view.entry(view.count()).is_err() && view.entry(usize::MAX).is_err());
    if view.validate().is_err() {
        return false;
    }
    // A sound block has one encoding.
    let mut builder = BlockBuilder::new();
    for index in 0..view.count() {
        cursor.load(view, index).expect("a valid block is read whole");
        let (key, seq) = (cursor.key().to_vec(), cursor.seq());
        assert_eq!(view.find(&key, seq), Ok(index));
        let tag = view.tag(index).expect("within the count");
        let found = view.get(&key, tag, seq).expect("a valid block is read whole");
        assert_eq!(found.map(|(at, _)| at), Some(index));
        builder.add(&key, tag, seq, cursor.kind(), &input[cursor.value()]);
    }
    let mut again = Vec::new();
    builder.finish_into(&mut again);
    assert_eq!(again, input);
    true
}

fn block_seeds() -> Vec<Vec<u8>> {
    let build = |entries: &[(&[u8], u64, Kind, &[u8])]| {
        let mut builder = BlockBuilder::new();
        for (key, seq, kind, value) in entries {
            builder.add(key, tag_of(key_hash(key, 1)), *seq, *kind, value);
        }
        let mut bytes = Vec::new();
        builder.finish_into(&mut bytes);
        bytes
    };
    let keys: Vec<Vec<u8>> = (0..20).map(|i| format!("key-{i:02}").into_bytes()).collect();
    let many: Vec<_> = keys.iter().map(|key| (&key[..], 9, Kind::Put, &b"value"[..])).collect();
    let versions: [(&[u8], u64, Kind, &[u8]); 4] = [
        (b"", 1 << 40, Kind::Merge, b"+1"),
        (b"", 3, Kind::Delete, b""),
        (b"a", u64::MAX, Kind::PutExpiring, b"12345678x"),
        (b"ab", 0, Kind::PutPointer, &[1; 200]),
    ];
    vec![build(&many), build(&versions)]
}

fn index(input: &[u8]) -> bool {
    let Ok(view) = IndexView::parse(input) else { return false };
    // Each fence takes 24 bytes.
    assert!(view.count() <= input.len() / 24);
    for index in 0..view.count().min(LOOKED_AT) {
        if let Ok(fence) = view.fence(index) {
            assert!(fence.end() >= fence.offset);
        }
        let separator = view.separator(index);
        assert!(separator.is_ok_and(|s| s.len() <= input.len()) || view.validate().is_err());
    }
    for key in [&b""[..], b"key", &[1, 2, 0], &[255; 20]] {
        assert!(view.find(key).is_ok_and(|found| found <= view.count()) || view.validate().is_err());
    }
    assert!(view.fence(view.count()).is_err() && view.fence(usize::MAX).is_err());
    if view.validate().is_err() {
        return false;
    }
    let mut builder = IndexBuilder::new();
    for index in 0..view.count() {
        let fence = view.fence(index).expect("a valid index is read whole");
        let separator = view.separator(index).expect("a valid index is read whole");
        assert!(view.find(&separator).is_ok_and(|found| found <= index));
        builder.add(&separator, fence.continues, fence.offset..fence.end(), fence.raw_len, fence.ordinal);
    }
    let mut again = Vec::new();
    builder.encode(0..view.count(), view.level(), &mut again).expect("what was read can be written");
    let again = IndexView::parse(&again).expect("what was written can be read");
    again.validate().expect("what was written is sound");
    for index in 0..view.count() {
        assert_eq!(again.fence(index), view.fence(index));
        assert_eq!(again.separator(index), view.separator(index));
    }
    true
}

fn index_seeds() -> Vec<Vec<u8>> {
    let build = |separators: &[&str], level| {
        let mut builder = IndexBuilder::new();
        let (mut offset, mut ordinal) = (1000, 0);
        for (i, separator) in separators.iter().enumerate() {
            let end = offset + 100 + i as u64;
            let continues = separators.get(i + 1) == Some(separator);
            builder.add(separator.as_bytes(), continues, offset..end, 200, ordinal);
            offset = end;
            ordinal += 1 + i as u64;
        }
        let mut bytes = Vec::new();
        builder.encode(0..separators.len(), level, &mut bytes).expect("small");
        bytes
    };
    vec![build(&["ab", "ab", "ac0123456789", "ad"], 0), build(&["", "m"], 1), build(&[], 0)]
}

fn tombstones(input: &[u8]) -> bool {
    let Ok(mut found) = decode_tombstones(input) else { return false };
    assert!(found.len() <= input.len() / 3);
    assert!(found.iter().all(|tombstone| !tombstone.range.is_empty()));
    let bytes = encode_tombstones(&mut found);
    assert_eq!(decode_tombstones(&bytes), Ok(found));
    true
}

fn tombstone_seeds() -> Vec<Vec<u8>> {
    let range = |start: &[u8], end: Option<&[u8]>| KeyRange::new(Key::new(start), end.map(Key::new));
    let mut tombstones = vec![
        Tombstone { range: range(b"a", Some(b"m")), seq: 9 },
        Tombstone { range: range(b"a", Some(b"c")), seq: 11 },
        Tombstone { range: range(b"x", None), seq: MAX_SEQ },
    ];
    vec![encode_tombstones(&mut tombstones), encode_tombstones(&mut Vec::new())]
}
