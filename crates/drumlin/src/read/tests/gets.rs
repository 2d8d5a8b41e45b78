//! Tests of point lookups on random trees that keep the recency invariant, with runs of interleaving ages.

use super::history::{Draw, History, Join, NOW, options, pointers};
use super::vec_cursor::{Entry, VecCursor, sort};
use crate::base::cursor::Cursor;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::rangedel::{RangeTombstone, RangeTombstones};
use crate::base::resolve::Resolver;
use crate::read::get::get_with;
use crate::read::{ClippedCursor, Flow, GetState, MergeCursor, Source, VisibleIter, get};
use drumlin_types::{Key, KeyRange, Kind, Seq};
use std::cell::Cell;
use std::sync::Arc;

/// Memtable or file: bounds, sorted entries, range tombstones.
struct VecSource {
    bounds: KeyRange,
    entries: Vec<Entry>,
    tombstones: Arc<RangeTombstones>,
    max_seq: Seq,
    visits: Cell<usize>,
    fails: bool,
}

impl VecSource {
    fn new(bounds: KeyRange, mut entries: Vec<Entry>, tombstones: &[RangeTombstone]) -> VecSource {
        sort(&mut entries);
        let seqs = entries.iter().map(|e| e.seq).chain(tombstones.iter().map(|t| t.seq));
        VecSource {
            bounds,
            max_seq: seqs.max().unwrap_or(0),
            tombstones: Arc::new(RangeTombstones::new(tombstones.to_vec())),
            entries,
            visits: Cell::new(0),
            fails: false,
        }
    }
}

impl Source for VecSource {
    fn max_seq(&self) -> Seq {
        self.max_seq
    }

    fn lookup(&self, key: &[u8], _hash: u64, snapshot: Seq, state: &mut GetState) -> Result<()> {
        self.visits.set(self.visits.get() + 1);
        if self.fails {
            return Err(Error::new(ErrorKind::Io, "injected"));
        }
        state.cover(self.tombstones.covering(key, snapshot));
        for entry in self.entries.iter().filter(|e| e.key == key && e.seq <= snapshot) {
            if state.offer(entry.seq, entry.kind, || entry.value.clone().into()) == Flow::Done {
                break;
            }
        }
        Ok(())
    }
}

/// Memtables, newest first, and levels of files.
struct Tree {
    memtables: Vec<VecSource>,
    levels: Vec<Vec<VecSource>>,
}

impl Tree {
    /// Creates a tree of `history` that keeps the recency invariant. The key space is cut into columns; in each
    /// column, older operations lie in deeper levels. Within a level an operation may be in any run.
    fn random(draw: &mut Draw, history: &History) -> Tree {
        let last =
            history.entries.iter().map(|e| e.seq).chain(history.tombstones.iter().map(|t| t.seq)).max();
        let mut marks: Vec<Seq> =
            (0..2).map(|_| 1 + draw.below(last.unwrap_or(0) as usize + 1) as Seq).collect();
        marks.sort_unstable();
        let whole = KeyRange::all();
        let memtables = vec![
            cut_out(history, &whole, marks[1]..Seq::MAX, |_| true),
            cut_out(history, &whole, marks[0]..marks[1], |_| true),
        ];
        let mut edges: Vec<Key> =
            (0..draw.below(4)).map(|_| Key::from(draw.pick(&history.pool).clone())).collect();
        edges.sort();
        let starts = std::iter::once(Key::empty()).chain(edges.iter().cloned());
        let ends = edges.iter().cloned().map(Some).chain([None]);
        let depth = 1 + draw.below(4);
        let mut levels: Vec<Vec<VecSource>> = (0..depth).map(|_| Vec::new()).collect();
        for (start, end) in starts.zip(ends) {
            let column = KeyRange::new(start, end);
            let mut newest = marks[0];
            for (index, level) in levels.iter_mut().enumerate() {
                let oldest = if index + 1 == depth { 0 } else { draw.below(newest as usize + 1) as Seq };
                let runs = 1 + draw.below(4);
                let run_of: Vec<usize> = (0..newest).map(|_| draw.below(runs)).collect();
                for run in 0..runs {
                    level.push(cut_out(history, &column, oldest..newest, |seq| run_of[seq as usize] == run));
                }
                newest = oldest;
            }
        }
        Tree { memtables, levels }
    }

    /// Returns the files of each level that may hold `key`.
    fn candidates(&self, key: &[u8]) -> Vec<Vec<&VecSource>> {
        self.levels.iter().map(|level| level.iter().filter(|f| f.bounds.contains(key)).collect()).collect()
    }
}

/// Returns the operations of `history` inside `bounds` with a sequence number in `seqs` for which `wanted` holds.
fn cut_out(
    history: &History,
    bounds: &KeyRange,
    seqs: std::ops::Range<Seq>,
    wanted: impl Fn(Seq) -> bool,
) -> VecSource {
    let inside = |seq: Seq| seqs.contains(&seq) && wanted(seq);
    let entries = history.entries.iter().filter(|e| inside(e.seq) && bounds.contains(&e.key)).cloned();
    let clip = |t: &RangeTombstone| Some(RangeTombstone { range: t.range.intersect(bounds)?, seq: t.seq });
    let tombstones: Vec<RangeTombstone> =
        history.tombstones.iter().filter(|t| inside(t.seq)).filter_map(clip).collect();
    VecSource::new(bounds.clone(), entries.collect(), &tombstones)
}

/// Returns the value of `state`.
fn value(state: GetState, key: &[u8]) -> Option<Vec<u8>> {
    let pointers = pointers();
    let resolver = Resolver {
        keyspace: &crate::base::name::KeyspaceName::new("test"),
        operator: Some(&Join),
        operator_name: None,
        pointers: Some(&*pointers),
    };
    state.finish(key, &resolver, || NOW).unwrap().map(|value| value.to_vec())
}

/// Compares lookups of every key with the plain definition. Returns the number of wrong results.
fn wrong_answers(seed: u64, may_stop: impl Fn(&GetState, Seq) -> bool) -> usize {
    let mut draw = Draw::new(seed);
    let keys = *draw.pick(&[2, 6, 15]);
    let operations = draw.below(100);
    let history = History::random(&mut draw, keys, operations);
    let tree = Tree::random(&mut draw, &history);
    let mut wrong = 0;
    for snapshot in [0, draw.below(100) as Seq, draw.below(100) as Seq, Seq::MAX] {
        let expected = history.visible(snapshot, &KeyRange::all());
        for key in &history.pool {
            let state = get_with(key, 0, snapshot, &tree.memtables, tree.candidates(key), &may_stop).unwrap();
            wrong += usize::from(value(state, key).as_ref() != expected.get(key));
        }
    }
    wrong
}

#[test]
fn lookups_give_what_the_definition_says() {
    for seed in 0..600 {
        assert_eq!(wrong_answers(seed, GetState::outweighs), 0, "seed {seed}");
    }
}

#[test]
fn the_tests_notice_a_search_that_stops_at_the_first_hit_of_a_level() {
    let wrong: usize = (0..100).map(|seed| wrong_answers(seed, |state, _| state.has_hit())).sum();
    assert!(wrong > 0);
}

#[test]
fn the_tests_notice_a_search_that_stops_at_the_first_put_of_a_level() {
    let wrong: usize = (0..100).map(|seed| wrong_answers(seed, |state, _| state.has_base())).sum();
    assert!(wrong > 0);
}

#[test]
fn scans_and_lookups_agree_on_the_same_tree() {
    for seed in 0..100 {
        let mut draw = Draw::new(seed);
        let history = History::random(&mut draw, 10, 80);
        let tree = Tree::random(&mut draw, &history);
        let sources: Vec<&VecSource> = tree.memtables.iter().chain(tree.levels.iter().flatten()).collect();
        let cursors = sources.iter().map(|s| -> Box<dyn Cursor> {
            Box::new(ClippedCursor::new(VecCursor::new(s.entries.clone()), s.bounds.clone()))
        });
        let tombstones = sources.iter().map(|s| (s.bounds.clone(), s.tombstones.clone())).collect();
        let snapshot = draw.below(90) as Seq;
        let options = options(snapshot, KeyRange::all(), tombstones);
        let mut view = VisibleIter::new(MergeCursor::new(cursors.collect()), options);
        view.seek_first().unwrap();
        for key in &history.pool {
            let state = get(key, 0, snapshot, &tree.memtables, tree.candidates(key)).unwrap();
            let found = value(state, key);
            let shown = (view.valid() && view.key() == key).then(|| view.value().to_vec());
            assert_eq!(found, shown);
            if shown.is_some() {
                view.next().unwrap();
            }
        }
        assert!(!view.valid());
    }
}

fn file(entries: &[(Seq, Kind)]) -> VecSource {
    let version = |&(seq, kind): &(Seq, Kind)| Entry {
        key: b"k".to_vec(),
        seq,
        kind,
        value: format!("v{seq}").into_bytes(),
    };
    VecSource::new(KeyRange::all(), entries.iter().map(version).collect(), &[])
}

/// Looks up "k" in `levels`. Returns the value and the number of files visited in each level.
fn visits(levels: &[Vec<VecSource>]) -> (Option<String>, Vec<usize>) {
    let none: [VecSource; 0] = [];
    let state = get(b"k", 0, Seq::MAX, &none, levels.iter().map(|level| level.iter())).unwrap();
    let visits = levels.iter().map(|level| level.iter().map(|f| f.visits.get()).sum()).collect();
    (value(state, b"k").map(|v| String::from_utf8(v).unwrap()), visits)
}

#[test]
fn runs_whose_ages_do_not_interleave_cost_one_file() {
    let level = |newest: Seq| vec![file(&[(newest - 1, Kind::Put)]), file(&[(newest, Kind::Put)])];
    assert_eq!(visits(&[level(20), level(10)]), (Some("v20".into()), vec![1, 0]));
}

#[test]
fn interleaving_runs_are_searched_until_none_can_be_newer() {
    let other = Entry::put("other", 30, "x");
    let mut wide = file(&[(5, Kind::Put)]);
    wide.entries.push(other);
    wide.max_seq = 30;
    let level = vec![wide, file(&[(20, Kind::Put)]), file(&[(4, Kind::Put)])];
    assert_eq!(visits(&[level, vec![file(&[(1, Kind::Put)])]]), (Some("v20".into()), vec![2, 0]));
}

#[test]
fn operands_go_on_to_the_level_of_their_base() {
    let levels = [
        vec![file(&[(30, Kind::Merge), (26, Kind::Merge)]), file(&[(28, Kind::Merge)])],
        vec![],
        vec![file(&[(20, Kind::Merge), (10, Kind::Put)]), file(&[(9, Kind::Put)])],
        vec![file(&[(1, Kind::Put)])],
    ];
    assert_eq!(visits(&levels), (Some("v10+v20+v26+v28+v30".into()), vec![2, 0, 1, 0]));
}

#[test]
fn operands_below_another_runs_put_do_not_count() {
    let levels = [vec![file(&[(30, Kind::Merge), (10, Kind::Merge)]), file(&[(20, Kind::Put)])]];
    assert_eq!(visits(&levels).0, Some("v20+v30".into()));
}

#[test]
fn a_failing_file_fails_the_lookup() {
    let mut broken = file(&[(5, Kind::Put)]);
    broken.fails = true;
    let levels = [vec![file(&[(7, Kind::Merge)]), broken]];
    let none: [VecSource; 0] = [];
    let found = get(b"k", 0, Seq::MAX, &none, levels.iter().map(|level| level.iter()));
    assert_eq!(found.err().map(|error| error.kind()), Some(ErrorKind::Io));
}
