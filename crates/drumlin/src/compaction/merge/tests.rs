//! No compaction changes an answer, now or later. Random histories with expiry times are compacted in part at random
//! times, between snapshots that come and go. After each compaction the answers are compared with a direct definition.

use super::*;
use crate::base::error::ErrorKind;
use crate::base::merge_operator::{AddI64, Append};
use crate::base::resolve::Resolver;
use crate::base::slice::Slice;
use crate::base::snapshots::ReadPoint;
use crate::memtable::Memtable;
use crate::read::GetState;
use drumlin_types::contract::FileSpan;
use drumlin_types::{Key, KeyRange, LogNumber, TableId};
use std::collections::BTreeMap;

/// Seeded random numbers.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % n
    }
}

/// A write: its effect on the key, and its expiry time.
#[derive(Clone, Debug)]
enum Write {
    Put(Vec<u8>, Option<u64>),
    Delete,
    DeleteRange,
    Merge(Vec<u8>, Option<u64>),
}

const KEYS: [&[u8]; 2] = [b"k", b"l"];

/// All versions and range tombstones, by sequence number.
#[derive(Clone, Default, Debug)]
struct Content {
    versions: BTreeMap<Seq, (usize, Kind, Vec<u8>)>,
    tombstones: Vec<RangeTombstone>,
}

/// A store of two keys, with everything that was written to it.
struct Model {
    operator: Arc<dyn MergeOperator>,
    history: BTreeMap<Seq, (usize, Write)>,
    content: Content,
    snapshots: Vec<ReadPoint>,
    now: u64,
}

/// A value, none, or the operator's refusal.
type Answer = Result<Option<Vec<u8>>, ErrorKind>;

/// Moves to the next surviving entry, if there is one. Returns whether it did.
fn moves<C: Cursor>(stream: &mut MergeStream<C>) -> bool {
    loop {
        match stream.advance().expect("sound entries") {
            Advanced::Entry => return true,
            Advanced::Skipped => {}
            Advanced::End => return false,
        }
    }
}

fn everywhere() -> KeyRange {
    KeyRange::all()
}

impl Model {
    fn write(&mut self, draw: &mut Draw, text: bool) {
        let seq = self.history.len() as Seq + 1;
        let key = draw.below(2) as usize;
        let bytes = match draw.below(40) {
            0 => b"bad".to_vec(),
            _ if text => format!("{seq}").into_bytes(),
            n => n.to_string().into_bytes(),
        };
        // There are few different expiry times, so that some are equal, and some writes have expired when they are
        // made.
        let expiry = (draw.below(3) > 0).then(|| (self.now + draw.below(40)) & !7);
        let stamped = |kinds: [Kind; 2]| match expiry {
            None => (kinds[0], bytes.clone()),
            Some(expiry) => (kinds[1], [&expiry.to_le_bytes()[..], &bytes].concat()),
        };
        let (write, entry) = match draw.below(20) {
            0..5 => (Write::Put(bytes.clone(), expiry), Some(stamped([Kind::Put, Kind::PutExpiring]))),
            5..7 => (Write::Delete, Some((Kind::Delete, Vec::new()))),
            7 => (Write::DeleteRange, None),
            _ => (Write::Merge(bytes.clone(), expiry), Some(stamped([Kind::Merge, Kind::MergeExpiring]))),
        };
        match entry {
            Some((kind, value)) => drop(self.content.versions.insert(seq, (key, kind, value))),
            None => self.content.tombstones.push(RangeTombstone {
                range: KeyRange::new(Key::new(KEYS[key]), Some(Key::successor(KEYS[key]))),
                seq,
            }),
        }
        self.history.insert(seq, (key, write));
    }

    /// Computes the answer by definition: applies the versions in order and ignores expired ones.
    fn expected(&self, key: usize, point: ReadPoint) -> Answer {
        let living = |expiry: &Option<u64>| expiry.is_none_or(|expiry| point.micros < expiry);
        let (mut base, mut operands): (Option<&[u8]>, Vec<&[u8]>) = (None, Vec::new());
        for (_, write) in self.history.range(..=point.seq).map(|(_, w)| w).filter(|(of, _)| *of == key) {
            match write {
                Write::Merge(operand, expiry) if living(expiry) => operands.push(operand),
                Write::Merge(..) => {}
                Write::Put(value, expiry) => {
                    (base, operands) = (Some(&value[..]).filter(|_| living(expiry)), Vec::new());
                }
                Write::Delete | Write::DeleteRange => (base, operands) = (None, Vec::new()),
            }
        }
        if operands.is_empty() {
            return Ok(base.map(<[u8]>::to_vec));
        }
        self.operator.merge(KEYS[key], base, &operands).map(Some).ok_or(ErrorKind::MergeFailed)
    }

    fn found(&self, key: usize, point: ReadPoint) -> Answer {
        let mut state = GetState::new();
        let covers = self.content.tombstones.iter().filter(|t| t.seq <= point.seq);
        let covers = covers.filter(|t| t.range.contains(KEYS[key])).map(|t| t.seq);
        state.cover(covers.max().unwrap_or(0));
        for (seq, (of, kind, value)) in self.content.versions.range(..=point.seq).rev() {
            if *of == key {
                state.offer(*seq, *kind, || Slice::from(&value[..]));
            }
        }
        let resolver = Resolver {
            keyspace: &crate::base::name::KeyspaceName::new("test"),
            operator: Some(&*self.operator),
            operator_name: None,
            pointers: None,
        };
        let value = state.finish(KEYS[key], &resolver, || point.micros);
        value.map(|value| value.map(|v| v.to_vec())).map_err(|error| error.kind())
    }

    /// Compacts the versions of `ages`. Returns the number of merged entries.
    fn compact(&mut self, ages: std::ops::RangeInclusive<Seq>) -> u64 {
        let outside = |seqs: &mut dyn Iterator<Item = Seq>| {
            let seqs: Vec<Seq> = seqs.collect();
            let (min_seq, max_seq) = (*seqs.iter().min()?, *seqs.iter().max()?);
            Some(FileSpan { level: 1, table: TableId(1), range: everywhere(), min_seq, max_seq })
        };
        let Content { versions, tombstones } = &self.content;
        let all = || versions.keys().copied().chain(tombstones.iter().map(|t| t.seq));
        let older = outside(&mut all().filter(|seq| seq < ages.start()));
        let newer = outside(&mut all().filter(|seq| seq > ages.end()));
        let outside: Vec<FileSpan> = older.into_iter().chain(newer).collect();
        let (taken, kept) = tombstones.iter().cloned().partition(|t| ages.contains(&t.seq));
        let input = Memtable::new(LogNumber(1), 5);
        for (seq, (key, kind, value)) in versions.range(ages.clone()) {
            input.insert(KEYS[*key], *seq, *kind, value);
        }
        let rules = MergeRules {
            bases: None,
            readers: Readers { snapshots: self.snapshots.clone(), now_micros: self.now },
            guard: DropGuard::new(&outside, &everywhere()),
            operator: Some(self.operator.clone()),
            tombstones: Fragmented::new(taken),
            large: u64::MAX,
        };
        let mut cursor = Arc::new(input).cursor();
        cursor.seek_first().expect("a memtable");
        let mut next = Content { tombstones: kept, ..self.content.clone() };
        next.versions.retain(|seq, _| !ages.contains(seq));
        next.tombstones.extend(rules.surviving_tombstones());
        let mut stream = MergeStream::new(cursor, rules);
        while moves(&mut stream) {
            let key = KEYS.iter().position(|key| *key == stream.key()).expect("a known key");
            let entry = (key, stream.kind(), stream.value().to_vec());
            assert!(
                next.versions.insert(stream.seq(), entry).is_none(),
                "two versions have one sequence number"
            );
        }
        let counts = stream.counts();
        assert_eq!(counts.read, counts.written + counts.dropped());
        self.content = next;
        counts.merged
    }

    /// Compares the answers of every snapshot, and of the newest state now and at later times.
    fn check(&self, what: &str) {
        let later = (self.now..self.now + 50).map(|micros| ReadPoint { seq: Seq::MAX, micros });
        for point in self.snapshots.iter().copied().chain(later) {
            for key in 0..KEYS.len() {
                let (found, expected) = (self.found(key, point), self.expected(key, point));
                assert_eq!(found, expected, "{what}, {point:?}, {:?} of {:?}", self.content, self.history);
            }
        }
    }
}

/// An operator whose results tell a missing base from a present one, and that cannot join operands.
struct Marks;

impl MergeOperator for Marks {
    fn name(&self) -> &str {
        "marks"
    }

    fn merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let base = base.unwrap_or(b"none");
        let is_sound = operands.iter().all(|operand| *operand != b"bad");
        is_sound.then(|| [&[base], operands].concat().join(&b"+"[..]))
    }
}

#[test]
fn no_compaction_changes_an_answer_now_or_later() {
    let mut merged = 0;
    for seed in 0..600 {
        let draw = &mut Draw(seed);
        let operators: [Arc<dyn MergeOperator>; 3] =
            [Arc::new(Marks), Arc::new(Append::new(",")), Arc::new(AddI64::Text)];
        let number = draw.below(3) as usize;
        let mut model = Model {
            operator: operators[number].clone(),
            history: BTreeMap::new(),
            content: Content::default(),
            snapshots: Vec::new(),
            now: 100,
        };
        for step in 0..60 {
            match draw.below(12) {
                0..7 => model.write(draw, number < 2),
                7 => model.now += draw.below(20),
                8 => model.snapshots.push(ReadPoint { seq: model.history.len() as Seq, micros: model.now }),
                9 if !model.snapshots.is_empty() => {
                    let gone = draw.below(model.snapshots.len() as u64) as usize;
                    model.snapshots.remove(gone);
                }
                _ => {
                    let newest = model.history.len() as Seq;
                    let end = if draw.below(2) == 0 { newest } else { draw.below(newest + 1) };
                    let start = if draw.below(2) == 0 { 0 } else { draw.below(end + 1) };
                    let mut once = model.snapshots.clone();
                    once.dedup_by_key(|point| point.seq);
                    let all = std::mem::replace(&mut model.snapshots, once);
                    merged += model.compact(start..=end);
                    model.snapshots = all;
                    model.check(&format!("seed {seed}, step {step}, compaction of {start} to {end}"));
                }
            }
        }
    }
    assert!(merged > 1000, "only {merged} entries were merged");
}

/// Compacts `versions` of one key, newest first, under the snapshots at `snapshots` and a range tombstone at `deleted`.
/// Returns the sequence numbers that survive, each with those that became part of its history, and the lifetimes of
/// values that tombstones ended.
fn histories(versions: &[(Seq, Kind, u8)], snapshots: &[Seq], deleted: Option<Seq>) -> String {
    let input = Memtable::new(LogNumber(1), 5);
    for (seq, kind, len) in versions {
        input.insert(b"key", *seq, *kind, &vec![7; usize::from(*len)]);
    }
    let tombstones = deleted.map(|seq| RangeTombstone { range: everywhere(), seq });
    let rules = MergeRules {
        bases: None,
        readers: Readers {
            snapshots: snapshots.iter().map(|seq| ReadPoint { seq: *seq, micros: 0 }).collect(),
            now_micros: 0,
        },
        guard: DropGuard::new(&[], &everywhere()),
        operator: None,
        tombstones: Fragmented::new(tombstones.into_iter().collect()),
        large: 100,
    };
    let mut cursor = Arc::new(input).cursor();
    cursor.seek_first().expect("a memtable");
    let mut stream = MergeStream::new(cursor, rules);
    let mut text = String::new();
    let mut more = true;
    while more {
        more = moves(&mut stream);
        let seqs: Vec<Seq> = stream.superseded().iter().map(|version| version.seq).collect();
        if !seqs.is_empty() {
            text += &format!("{seqs:?}");
        }
        if !stream.ended().is_empty() {
            text += &format!(" ended {:?}", stream.ended());
        }
        if more {
            text += &format!(" {}", stream.seq());
        }
    }
    text.trim().to_owned()
}

#[test]
fn dropped_versions_become_part_of_the_history() {
    let put = |seq| (seq, Kind::Put, 100);
    let (small, delete) = (|seq| (seq, Kind::Put, 99), |seq| (seq, Kind::Delete, 0));
    assert_eq!(histories(&[put(9), put(7), put(4)], &[], None), "9[7, 4]");
    assert_eq!(histories(&[put(9), small(7), put(4)], &[], None), "9[4]", "small values do not count");
    assert_eq!(histories(&[small(9), put(7)], &[], None), "9", "a small value has no history");
    assert_eq!(histories(&[put(9), delete(7), put(4)], &[], None), "9", "a tombstone ends it");
    assert_eq!(histories(&[put(9), put(8), put(4)], &[], Some(6)), "9[8]", "so does a range tombstone");
    assert_eq!(
        histories(&[put(9), put(8), put(5), put(4)], &[6], None),
        "9[8] 5[4]",
        "each snapshot has its own"
    );
    assert_eq!(histories(&[put(9), delete(5), put(4), put(3)], &[6], None), "9 ended [1]");
    assert_eq!(histories(&[put(9), put(4)], &[6], Some(5)), "9", "covered in an older stripe");
    assert_eq!(histories(&[delete(9), put(4), put(3)], &[], None), "ended [5]", "the newest value was alive");
    assert_eq!(histories(&[delete(9), small(4), put(3)], &[], None), "ended [6]", "as far as is known");
}

/// Of many versions of a key the oldest are folded together, so that memory is bounded.
#[test]
fn the_list_of_dropped_versions_is_bounded() {
    let input = Memtable::new(LogNumber(1), 5);
    (1..=1000).for_each(|seq| input.insert(b"key", seq, Kind::Put, b"value"));
    let rules = MergeRules {
        bases: None,
        readers: Readers { snapshots: Vec::new(), now_micros: 0 },
        guard: DropGuard::new(&[], &everywhere()),
        operator: None,
        tombstones: Fragmented::new(Vec::new()),
        large: 1,
    };
    let mut cursor = Arc::new(input).cursor();
    cursor.seek_first().expect("a memtable");
    let mut stream = MergeStream::new(cursor, rules);
    assert!(moves(&mut stream) && !moves(&mut stream));
    let dropped = stream.superseded();
    assert_eq!(dropped.len(), super::MOST_SUPERSEDED);
    let last = dropped.last().and_then(|last| last.history).expect("it has the rest");
    assert_eq!(last.writes + dropped.len() as u64, 999);
}

/// An operator that refuses all operands.
struct Refuses;

impl MergeOperator for Refuses {
    fn name(&self) -> &str {
        "refuses"
    }

    fn merge(&self, _: &[u8], _: Option<&[u8]>, _: &[&[u8]]) -> Option<Vec<u8>> {
        None
    }
}

/// A step of a compaction that drops everything ends, too.
#[test]
fn a_long_run_of_dropped_entries_is_interrupted() {
    let input = Memtable::new(LogNumber(1), 5);
    let count = 4 * MOST_SKIPPED;
    for n in 0..count {
        input.insert(&n.to_be_bytes(), n + 1, Kind::Put, b"");
    }
    let tombstone = RangeTombstone { range: everywhere(), seq: count + 1 };
    let rules = MergeRules {
        bases: None,
        readers: Readers { snapshots: Vec::new(), now_micros: 0 },
        guard: DropGuard::new(&[], &everywhere()),
        operator: None,
        tombstones: Fragmented::new(vec![tombstone]),
        large: u64::MAX,
    };
    let mut cursor = Arc::new(input).cursor();
    cursor.seek_first().expect("a memtable");
    let mut stream = MergeStream::new(cursor, rules);
    let mut skipped = 0;
    while stream.advance().expect("sound entries") == Advanced::Skipped {
        skipped += 1;
        assert_eq!(stream.counts().read, skipped * MOST_SKIPPED);
    }
    assert_eq!((skipped, stream.counts().read, stream.counts().written), (4, count, 0));
}

/// A value in a value file is copied only if an operand is merged into it, and only as far as disk space allows.
#[test]
fn a_separated_base_stays_in_its_file_unless_it_is_merged() {
    let compact = |operator: Arc<dyn MergeOperator>, left: u64| {
        let input = Memtable::new(LogNumber(1), 5);
        for key in [b"a", b"b", b"c"] {
            input.insert(key, 2, Kind::Merge, b"operand");
            input.insert(key, 1, Kind::PutPointer, b"where");
        }
        let read: Arc<PointerReader> = Arc::new(|_, _, _, _| Ok(Slice::from(&b"ten bytes."[..])));
        let rules = MergeRules {
            bases: Some(BaseReader { read, left }),
            readers: Readers { snapshots: Vec::new(), now_micros: 0 },
            guard: DropGuard::new(&[], &everywhere()),
            operator: Some(operator),
            tombstones: Fragmented::new(Vec::new()),
            large: 1,
        };
        let mut cursor = Arc::new(input).cursor();
        cursor.seek_first().expect("a memtable");
        let mut stream = MergeStream::new(cursor, rules);
        let mut kinds = Vec::new();
        while moves(&mut stream) {
            kinds.push(stream.kind());
        }
        kinds
    };
    let (put, kept) = (Kind::Put, [Kind::Merge, Kind::PutPointer]);
    assert_eq!(compact(Arc::new(Marks), u64::MAX), [put; 3]);
    assert_eq!(compact(Arc::new(Marks), 11), [&[put, put], &kept[..]].concat(), "20 bytes were read");
    assert_eq!(compact(Arc::new(Marks), 0), [kept; 3].concat());
    assert_eq!(compact(Arc::new(Refuses), u64::MAX), [kept; 3].concat());
}
