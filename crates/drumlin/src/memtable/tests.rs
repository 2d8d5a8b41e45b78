//! Tests of the memtable against an ordered map, and under threads.
//!
//! Keys come from a small alphabet and have many lengths. Equal prefixes, keys that are prefixes of others, zero
//! bytes at the end, and many versions of one key are therefore all frequent.

use super::{MemCursor, Memtable};
use crate::base::cursor::{Cursor, Hidden};
use drumlin_types::{Key, KeyRange, Kind, LogNumber, Seq};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Internal order, as the ordered map implements it.
type Oracle = BTreeMap<(Vec<u8>, Reverse<Seq>), (Kind, Vec<u8>)>;

type OracleEntry<'a> = (&'a (Vec<u8>, Reverse<Seq>), &'a (Kind, Vec<u8>));

struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }

    fn key(&mut self) -> Vec<u8> {
        let len = [0, 1, 2, 7, 8, 9, 12][self.below(7) as usize];
        (0..len).map(|_| [0, 0, 1, b'a', 0xff][self.below(5) as usize]).collect()
    }
}

/// Creates `count` random entries in a memtable and in the oracle.
fn filled(seed: u64, count: u64) -> (Arc<Memtable>, Oracle, Draw) {
    let table = Arc::new(Memtable::new(LogNumber(1), 5));
    let mut oracle = Oracle::new();
    let mut draw = Draw(seed);
    let mut keys: Vec<Vec<u8>> = vec![Vec::new()];
    for seq in 1..=count {
        let key = match draw.below(3) {
            0 => keys[draw.below(keys.len() as u64) as usize].clone(),
            _ => draw.key(),
        };
        let kind = [Kind::Put, Kind::Delete, Kind::Merge, Kind::PutExpiring][draw.below(4) as usize];
        let value = vec![seq as u8; draw.below(40) as usize];
        table.insert(&key, seq, kind, &value);
        keys.push(key.clone());
        oracle.insert((key, Reverse(seq)), (kind, value));
    }
    (table, oracle, draw)
}

const ENTRIES: u64 = if cfg!(miri) { 40 } else { 3000 };
const PROBES: u64 = if cfg!(miri) { 15 } else { 3000 };

/// Entry: key, sequence number, kind, value.
type Row = (Vec<u8>, Seq, Kind, Vec<u8>);

/// Returns the row that `cursor` is on.
fn at(cursor: &MemCursor) -> Option<Row> {
    cursor.valid().then(|| (cursor.key().to_vec(), cursor.seq(), cursor.kind(), cursor.value().to_vec()))
}

fn row<'a>(((key, Reverse(seq)), (kind, value)): OracleEntry<'a>) -> Row {
    (key.clone(), *seq, *kind, value.clone())
}

#[test]
fn both_directions_and_counts() {
    let (table, oracle, _) = filled(11, ENTRIES);
    let mut cursor = table.cursor();
    assert!(!cursor.valid());
    cursor.seek_first().unwrap();
    for entry in &oracle {
        assert_eq!(at(&cursor), Some(row(entry)));
        cursor.next().unwrap();
    }
    assert_eq!(at(&cursor), None);
    cursor.seek_last().unwrap();
    for entry in oracle.iter().rev() {
        assert_eq!(at(&cursor), Some(row(entry)));
        cursor.prev().unwrap();
    }
    assert_eq!(at(&cursor), None);

    let deletes = oracle.values().filter(|(kind, _)| *kind == Kind::Delete).count();
    let payload: usize = oracle.iter().map(|((key, _), (_, value))| key.len() + value.len()).sum();
    assert_eq!((table.entries(), table.tombstones()), (oracle.len(), deletes));
    assert_eq!((table.min_seq(), table.max_seq(), table.is_empty()), (1, ENTRIES, false));
    assert!(table.bytes() >= payload + oracle.len() * 32, "links and headers count");
    assert!(table.bytes() <= payload + oracle.len() * 60 + 2000);
    assert!(table.held_bytes() >= table.bytes());
}

#[test]
fn seeks_agree_with_the_ordered_map() {
    let (table, oracle, mut draw) = filled(12, ENTRIES);
    let mut cursor = table.cursor();
    for _ in 0..PROBES {
        let key = draw.key();
        let seq = draw.below(ENTRIES + 2);
        let from = (key.clone(), Reverse(seq));
        cursor.seek(&key, seq).unwrap();
        assert_eq!(at(&cursor), oracle.range(from.clone()..).next().map(row));
        if cursor.valid() {
            cursor.prev().unwrap();
            assert_eq!(at(&cursor), oracle.range(..from).next_back().map(row));
        }
        cursor.seek_before(&key).unwrap();
        assert_eq!(at(&cursor), oracle.range(..(key.clone(), Reverse(Seq::MAX))).next_back().map(row));
        if cursor.valid() {
            cursor.next().unwrap();
            assert_eq!(at(&cursor), oracle.range((key, Reverse(Seq::MAX))..).next().map(row));
        }
    }
}

#[test]
fn point_reads_agree_with_the_ordered_map() {
    let (table, oracle, mut draw) = filled(13, ENTRIES);
    for _ in 0..PROBES {
        let key = draw.key();
        let snapshot = draw.below(ENTRIES + 2);
        let expected: Vec<_> =
            oracle.range((key.clone(), Reverse(snapshot))..=(key.clone(), Reverse(0))).map(row).collect();
        let found: Vec<_> = table
            .versions(&key, snapshot)
            .map(|e| (e.key.to_vec(), e.seq, e.kind, e.value.to_vec()))
            .collect();
        assert_eq!(found, expected);
        let newest = table.get(&key, snapshot);
        assert_eq!(newest.map(|e| (e.seq, e.kind, e.value)), expected.first().map(|e| (e.1, e.2, &e.3[..])));
    }
}

/// Ascending, descending, then keys in between: all ways of finding the neighbours of a new node.
#[test]
fn ordered_inserts() {
    let count: u32 = if cfg!(miri) { 12 } else { 2000 };
    let table = Arc::new(Memtable::new(LogNumber(1), 5));
    let ascending = count..2 * count;
    let descending = (0..count).rev();
    for (seq, n) in ascending.chain(descending).enumerate() {
        table.insert(&(2 * n).to_be_bytes(), 1 + seq as Seq, Kind::Put, b"even");
    }
    for n in 0..2 * count {
        table.insert(&(2 * n + 1).to_be_bytes(), 10_000 + Seq::from(n), Kind::Put, b"odd");
    }
    let mut cursor = table.cursor();
    cursor.seek_first().unwrap();
    for n in 0..4 * count {
        assert_eq!(cursor.key(), n.to_be_bytes());
        cursor.next().unwrap();
    }
    assert!(!cursor.valid());
}

/// An empty memtable returns nothing from every read.
#[test]
fn empty() {
    let table = Arc::new(Memtable::new(LogNumber(7), 5));
    let mut cursor = table.cursor();
    cursor.seek_first().unwrap();
    assert!(!cursor.valid());
    cursor.seek_last().unwrap();
    assert!(!cursor.valid());
    cursor.seek_before(b"x").unwrap();
    assert!(!cursor.valid());
    assert!(table.get(b"", Seq::MAX).is_none());
    assert!(table.range_tombstones().is_empty() && !table.has_range_tombstones());
    assert_eq!(
        (table.first_log(), table.entries(), table.min_seq(), table.max_seq()),
        (LogNumber(7), 0, 0, 0)
    );
    assert!(table.is_empty());
}

/// Values too big to share a chunk are read back unchanged and are counted.
#[test]
fn big_values() {
    let table = Memtable::new(LogNumber(1), 5);
    let lens = [300 << 10, 10, 2 << 20, 0];
    for (i, len) in lens.into_iter().enumerate() {
        table.insert(&[i as u8], 1, Kind::Put, &vec![i as u8; len]);
    }
    for (i, len) in lens.into_iter().enumerate() {
        let entry = table.get(&[i as u8], 1).unwrap();
        assert!(entry.value == vec![i as u8; len]);
    }
    assert!(table.bytes() > 2300 << 10 && table.held_bytes() < 2400 << 10);
}

#[test]
fn range_tombstones_are_seen_once_added() {
    let table = Memtable::new(LogNumber(1), 5);
    let range = |a: &str, b: &str| KeyRange::new(Key::new(a.as_bytes()), Some(Key::new(b.as_bytes())));
    table.insert_range_tombstone(range("m", "m"), 4);
    assert!(table.is_empty());
    let before = table.bytes();
    table.insert_range_tombstone(range("b", "f"), 5);
    assert_eq!(table.range_tombstones().covering(b"c", 9), 5);
    assert!(Arc::ptr_eq(&table.range_tombstones(), &table.range_tombstones()), "made once per change");
    table.insert_range_tombstone(range("c", "d"), 8);
    assert_eq!(table.range_tombstones().covering(b"c", 9), 8);
    assert_eq!(table.range_tombstones().covering(b"c", 7), 5);
    assert_eq!((table.min_seq(), table.max_seq(), table.entries(), table.is_empty()), (5, 8, 0, false));
    assert!(table.bytes() > before);
}

/// A cursor keeps its memtable alive.
#[test]
#[expect(clippy::disallowed_methods, reason = "moves the cursor to a real thread")]
fn cursor_outlives_its_owner() {
    let table = Arc::new(Memtable::new(LogNumber(1), 5));
    table.insert(b"k", 1, Kind::Put, b"v");
    let mut cursor: Box<dyn Cursor> = Box::new(table.cursor());
    drop(table);
    let walked = std::thread::spawn(move || {
        cursor.seek_first().unwrap();
        (cursor.key().to_vec(), cursor.value().to_vec())
    });
    assert_eq!(walked.join().unwrap(), (b"k".to_vec(), b"v".to_vec()));
}

/// Four threads insert, appending and in random order, on shared and on own keys, while two read. A reader finds
/// everything that was inserted before its read, always in order. At the end every entry is there.
#[test]
#[expect(clippy::disallowed_methods, reason = "races real threads")]
fn concurrent_inserts_and_reads() {
    const WRITERS: u64 = 4;
    let each: u64 = if cfg!(miri) { 12 } else { 4000 };
    // Sequence numbers of writer w are w+1, w+1+WRITERS, ..: unique, and computable from (writer, step).
    let seq = |writer: u64, step: u64| 1 + writer + step * WRITERS;
    let key = |writer: u64, step: u64| -> Vec<u8> {
        match step % 3 {
            0 => format!("append-{step:06}-{writer}").into_bytes(),
            1 => (step.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ writer).to_be_bytes().to_vec(),
            _ => format!("shared-{}", step % 16).into_bytes(),
        }
    };
    let table = Arc::new(Memtable::new(LogNumber(1), 5));
    let done: [AtomicU64; WRITERS as usize] = Default::default();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (table, done) = (&table, &done);
            table.begin_write();
            scope.spawn(move || {
                for step in 0..each {
                    table.insert(&key(writer, step), seq(writer, step), Kind::Put, &step.to_le_bytes());
                    done[writer as usize].store(step + 1, Ordering::Release);
                }
                table.end_write();
            });
        }
        for reader in 0..2 {
            let (table, done) = (&table, &done);
            scope.spawn(move || {
                let mut draw = Draw(reader);
                while !table.is_complete() {
                    let writer = draw.below(WRITERS);
                    let Some(last) = done[writer as usize].load(Ordering::Acquire).checked_sub(1) else {
                        continue;
                    };
                    let step = draw.below(last + 1);
                    let entry = table.get(&key(writer, step), seq(writer, step)).expect("inserted before");
                    assert_eq!((entry.seq, entry.value), (seq(writer, step), &step.to_le_bytes()[..]));
                    let mut cursor = table.cursor();
                    cursor.seek(&key(writer, step), seq(writer, step)).unwrap();
                    for _ in 0..20 {
                        let here = (cursor.key().to_vec(), Reverse(cursor.seq()));
                        cursor.next().unwrap();
                        if !cursor.valid() {
                            break;
                        }
                        assert!(here < (cursor.key().to_vec(), Reverse(cursor.seq())));
                    }
                }
            });
        }
    });
    let mut expected: Vec<_> = (0..WRITERS)
        .flat_map(|writer| (0..each).map(move |step| (key(writer, step), Reverse(seq(writer, step)))))
        .collect();
    expected.sort();
    let mut cursor = table.cursor();
    cursor.seek_first().unwrap();
    for (key, Reverse(seq)) in expected {
        assert_eq!((cursor.key(), cursor.seq()), (&key[..], seq));
        assert!(table.get(&key, seq).is_some_and(|entry| entry.seq == seq));
        cursor.next().unwrap();
    }
    assert!(!cursor.valid());
    assert_eq!(table.entries() as u64, WRITERS * each);
    assert_eq!((table.min_seq(), table.max_seq()), (1, WRITERS * each));
}

/// Returns the entries that a walk which skips the entries hidden by `(range, below)` meets, and the number of
/// entries that it walked singly.
fn skipping(table: &Arc<Memtable>, hidden: &Hidden<'_>, backward: bool) -> (Vec<(Vec<u8>, Seq)>, usize) {
    let mut cursor = table.cursor();
    let (mut met, mut walked) = (Vec::new(), 0);
    if backward { cursor.seek_last() } else { cursor.seek_first() }.unwrap();
    while cursor.valid() {
        let inside = cursor.key() >= hidden.start && hidden.is_before_end(cursor.key());
        if inside && cursor.seq() < hidden.below {
            walked += if backward { cursor.skip_back(hidden) } else { cursor.skip(hidden) }.unwrap();
            continue;
        }
        met.push((cursor.key().to_vec(), cursor.seq()));
        if backward { cursor.prev() } else { cursor.next() }.unwrap();
    }
    if backward {
        met.reverse();
    }
    (met, walked)
}

/// Walks that skip meet all entries that are not hidden, whatever was recorded before and wherever entries are
/// inserted.
#[test]
fn skips_pass_hidden_entries_only() {
    let rounds = if cfg!(miri) { 2 } else { 60 };
    for seed in 0..rounds {
        let mut draw = Draw(seed);
        let table = Arc::new(Memtable::new(LogNumber(1), 5));
        let mut entries: Vec<(Vec<u8>, Reverse<Seq>)> = Vec::new();
        let keys = 1 + draw.below(60);
        for seq in 1..=(if cfg!(miri) { 60 } else { 400 }) {
            let key = vec![draw.below(keys) as u8; 1 + draw.below(2) as usize];
            table.insert(&key, seq, Kind::Put, b"");
            entries.push((key, Reverse(seq)));
            if draw.below(6) > 0 {
                continue;
            }
            entries.sort();
            let (a, b) = (vec![draw.below(keys) as u8], vec![draw.below(keys) as u8]);
            let end = if draw.below(4) == 0 { None } else { Some(&**(&a).max(&b)) };
            // A record by an old reader hides nothing from a new one, and vice versa.
            let below = 1 + draw.below(seq + 1);
            let hidden = Hidden { start: (&a).min(&b), end, below };
            let expected = entries.iter().filter(|(key, Reverse(seq))| {
                **key < *hidden.start || !hidden.is_before_end(key) || *seq >= below
            });
            let expected: Vec<(Vec<u8>, Seq)> =
                expected.map(|(key, Reverse(seq))| (key.clone(), *seq)).collect();
            assert_eq!(skipping(&table, &hidden, draw.below(2) == 0).0, expected, "seed {seed}");
        }
    }
}

/// A part that was walked once costs nothing the next time, even after inserts.
#[test]
fn hidden_entries_are_walked_once() {
    for backward in [false, true] {
        let table = Arc::new(Memtable::new(LogNumber(1), 5));
        let count: u32 = if cfg!(miri) { 40 } else { 4000 };
        for n in 0..count {
            table.insert(&(n * 2).to_be_bytes(), Seq::from(n) + 1, Kind::Put, b"");
        }
        table.insert(&[0xff; 4], Seq::from(count) + 10, Kind::Put, b"");
        let hidden = Hidden { start: b"", end: None, below: Seq::from(count) + 1 };
        let walk = || skipping(&table, &hidden, backward);
        let (met, walked) = walk();
        assert_eq!((met.len(), walked as u32), (1, count + 1));
        for come in 0..3u32 {
            let key = (come * 200 % count + 1).to_be_bytes();
            assert!(walk().1 <= 4 * (come as usize + 1), "{}", walk().1);
            table.insert(&key, Seq::from(count) + 20 + Seq::from(come), Kind::Put, b"");
            assert_eq!(walk().0.len() as u32, come + 2);
        }
    }
}

/// Writers insert into parts that readers skip and record. A reader meets all entries that were published before its
/// read.
#[test]
#[expect(clippy::disallowed_methods, reason = "races real threads")]
fn entries_that_come_into_a_skipped_part_are_seen() {
    const OLD: u64 = 200;
    let total: u64 = if cfg!(miri) { 8 } else { 3000 };
    let table = Arc::new(Memtable::new(LogNumber(1), 5));
    for n in 0..OLD {
        table.insert(&(n * 16).to_be_bytes(), n + 1, Kind::Put, b"");
    }
    let (next, published) = (AtomicU64::new(OLD), AtomicU64::new(OLD));
    let hidden = Hidden { start: b"", end: None, below: OLD + 1 };
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (table, next, published) = (&table, &next, &published);
            scope.spawn(move || {
                let mut draw = Draw(writer);
                loop {
                    let seq = 1 + next.fetch_add(1, Ordering::Relaxed);
                    if seq > OLD + total {
                        break;
                    }
                    table.insert(&draw.below(OLD * 16).to_be_bytes(), seq, Kind::Put, b"");
                    // In order, as commits are.
                    while published
                        .compare_exchange(seq - 1, seq, Ordering::AcqRel, Ordering::Relaxed)
                        .is_err()
                    {
                        std::thread::yield_now();
                    }
                }
            });
        }
        for backward in [false, true] {
            let (table, published) = (&table, &published);
            scope.spawn(move || {
                loop {
                    let snapshot = published.load(Ordering::Acquire);
                    let met = skipping(table, &hidden, backward).0;
                    let seen = met.iter().filter(|(_, seq)| *seq <= snapshot).count() as u64;
                    assert_eq!(seen, snapshot - OLD);
                    if snapshot == OLD + total {
                        break;
                    }
                }
            });
        }
    });
}
