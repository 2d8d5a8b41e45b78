//! Tests of a memtable that gains entries during a read: they are newer than the snapshot and must be invisible.

#![expect(clippy::disallowed_types, reason = "a test may use what it likes")]

use super::history::{Draw, History, options};
use super::vec_cursor::{Entry, VecCursor, sort};
use crate::base::cursor::Cursor;
use crate::base::error::Result;
use crate::base::rangedel::RangeTombstones;
use crate::read::{MergeCursor, VisibleIter};
use drumlin_types::{KeyRange, Kind, Seq};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

type Place = (Vec<u8>, Reverse<Seq>);

/// Entries that can be extended while cursors walk them.
type Memtable = Arc<Mutex<BTreeMap<Place, Entry>>>;

fn insert(memtable: &Memtable, entry: Entry) {
    memtable.lock().unwrap().insert((entry.key.clone(), Reverse(entry.seq)), entry);
}

/// Spreads the entries of `history` over a table and two memtables.
fn spread(draw: &mut Draw, history: &History) -> (MergeCursor<Box<dyn Cursor>>, [Memtable; 2]) {
    let memtables: [Memtable; 2] = Default::default();
    let mut table = Vec::new();
    for entry in &history.entries {
        match draw.below(3) {
            2 => table.push(entry.clone()),
            index => insert(&memtables[index], entry.clone()),
        }
    }
    sort(&mut table);
    let mut sources: Vec<Box<dyn Cursor>> = vec![Box::new(VecCursor::new(table))];
    for memtable in &memtables {
        sources.push(Box::new(LiveCursor { memtable: memtable.clone(), at: None }));
    }
    (MergeCursor::new(sources), memtables)
}

/// Writes to one of the memtables, in 60 % of the calls.
fn write(draw: &mut Draw, history: &History, memtables: &[Memtable; 2], seq: Seq) {
    if draw.chance(60) {
        let key = draw.pick(&history.pool).clone();
        let kind = *draw.pick(&[Kind::Put, Kind::Delete, Kind::Merge]);
        insert(&memtables[draw.below(2)], Entry { key, seq, kind, value: b"later".to_vec() });
    }
}

/// Cursor that searches for its neighbours at every step.
struct LiveCursor {
    memtable: Memtable,
    at: Option<Entry>,
}

impl LiveCursor {
    fn place(&self) -> Place {
        let entry = self.at.as_ref().expect("valid");
        (entry.key.clone(), Reverse(entry.seq))
    }

    fn go(&mut self, find: impl FnOnce(&BTreeMap<Place, Entry>) -> Option<&Entry>) -> Result<()> {
        self.at = find(&self.memtable.lock().unwrap()).cloned();
        Ok(())
    }
}

impl Cursor for LiveCursor {
    fn valid(&self) -> bool {
        self.at.is_some()
    }
    fn key(&self) -> &[u8] {
        &self.at.as_ref().expect("valid").key
    }
    fn seq(&self) -> Seq {
        self.at.as_ref().expect("valid").seq
    }
    fn kind(&self) -> Kind {
        self.at.as_ref().expect("valid").kind
    }
    fn value(&self) -> &[u8] {
        &self.at.as_ref().expect("valid").value
    }
    fn seek_first(&mut self) -> Result<()> {
        self.go(|map| map.values().next())
    }
    fn seek_last(&mut self) -> Result<()> {
        self.go(|map| map.values().next_back())
    }
    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        self.go(|map| map.range((key.to_vec(), Reverse(seq))..).next().map(|(_, entry)| entry))
    }
    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.go(|map| map.range(..(key.to_vec(), Reverse(Seq::MAX))).next_back().map(|(_, entry)| entry))
    }
    fn next(&mut self) -> Result<()> {
        let place = self.place();
        self.go(|map| map.range(place..).nth(1).map(|(_, entry)| entry))
    }
    fn prev(&mut self) -> Result<()> {
        let place = self.place();
        self.go(|map| map.range(..place).next_back().map(|(_, entry)| entry))
    }
}

#[test]
fn entries_written_during_a_walk_do_not_show() {
    for seed in 0..300 {
        let mut draw = Draw::new(seed);
        let history = History::random(&mut draw, 12, 60);
        let snapshot: Seq = 60;
        let expected: Vec<_> = history.visible(snapshot, &KeyRange::all()).into_iter().collect();
        let (cursor, memtables) = spread(&mut draw, &history);
        let tombstones = Arc::new(RangeTombstones::new(history.tombstones.clone()));
        let options = options(snapshot, KeyRange::all(), vec![(KeyRange::all(), tombstones)]);
        let mut view = VisibleIter::new(cursor, options);
        let mut at: Option<usize> = None;
        for turn in 0..150 {
            write(&mut draw, &history, &memtables, snapshot + 1 + turn);
            let to = match (draw.below(20), at) {
                (0, _) => view.seek_first().map(|()| Some(0)),
                (1, _) => view.seek_last().map(|()| expected.len().checked_sub(1)),
                (2..11, Some(at)) => view.next().map(|()| Some(at + 1)),
                (11.., Some(at)) => view.prev().map(|()| at.checked_sub(1)),
                _ => continue,
            };
            at = to.unwrap().filter(|&to| to < expected.len());
            let shown = view.valid().then(|| (view.key().to_vec(), view.value().to_vec()));
            assert_eq!(shown.as_ref(), at.map(|at| &expected[at]), "seed {seed}, turn {turn}");
        }
    }
}

#[test]
fn a_merge_passes_every_old_entry_once_while_new_ones_come() {
    for seed in 0..300 {
        let mut draw = Draw::new(seed);
        let history = History::random(&mut draw, 12, 60);
        let snapshot: Seq = 60;
        let mut expected = history.entries.clone();
        sort(&mut expected);
        let (mut cursor, memtables) = spread(&mut draw, &history);
        let mut at: Option<usize> = None;
        for turn in 0..150 {
            write(&mut draw, &history, &memtables, snapshot + 1 + turn);
            let forward = draw.chance(50);
            at = match (at, forward) {
                (None, true) => cursor.seek_first().map(|()| Some(0)),
                (None, false) => cursor.seek_last().map(|()| expected.len().checked_sub(1)),
                (Some(at), true) => cursor.next().map(|()| Some(at + 1)),
                (Some(at), false) => cursor.prev().map(|()| at.checked_sub(1)),
            }
            .unwrap();
            while cursor.valid() && cursor.seq() > snapshot {
                if forward { cursor.next() } else { cursor.prev() }.unwrap();
            }
            at = at.filter(|&at| at < expected.len());
            let shown = cursor.valid().then(|| (cursor.key().to_vec(), cursor.seq()));
            assert_eq!(
                shown,
                at.map(|at| (expected[at].key.clone(), expected[at].seq)),
                "seed {seed}, turn {turn}"
            );
        }
    }
}
