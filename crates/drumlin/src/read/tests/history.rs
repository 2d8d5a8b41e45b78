//! Random histories of a keyspace, spread over sources, with the expected result of a reader.

use super::vec_cursor::{Entry, Fuse, Meter, VecCursor, sort};
use crate::base::cursor::Cursor;
use crate::base::error::Result;
use crate::base::merge_operator::MergeOperator;
use crate::base::rangedel::{RangeTombstone, RangeTombstones};
use crate::base::resolve::PointerReader;
use crate::base::slice::Slice;
use crate::ops::scan::{ScanSource, StoreView};
use crate::read::{
    DeadSpans, MergeCursor, OpenFile, RunCursor, TombstoneSource, VisibleIter, VisibleOptions,
};
use drumlin_types::{Key, KeyRange, Kind, Seq};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Seeded random numbers.
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Draw {
        Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    /// Returns a number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % n as u64) as usize
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    /// Returns a range between keys of `pool`, sometimes without an end. It may be empty.
    pub(crate) fn range(&mut self, pool: &[Vec<u8>]) -> KeyRange {
        let (a, b) = (self.pick(pool).clone(), self.pick(pool).clone());
        let end = (!self.chance(15)).then(|| Key::new((&a).max(&b)));
        KeyRange::new(Key::new((&a).min(&b)), end)
    }
}

/// Returns distinct keys, many of which share their first eight bytes or are prefixes of each other.
pub(crate) fn key_pool(draw: &mut Draw, count: usize) -> Vec<Vec<u8>> {
    let stems: [&[u8]; 5] = [b"", b"a", b"common-prefix-", b"commonly", b"\xff"];
    let mut pool: Vec<Vec<u8>> = Vec::new();
    while pool.len() < count {
        let mut key = draw.pick(&stems).to_vec();
        for _ in 0..draw.below(4) {
            key.push(*draw.pick(&[0, b'a', b'b', b'z', 0xff]));
        }
        pool.push(key);
        pool.sort();
        pool.dedup();
    }
    pool
}

/// Time at which the tests read. Expiry times lie around it.
pub(crate) const NOW: u64 = 1000;

/// All operations of a keyspace, in order.
pub(crate) struct History {
    pub(crate) pool: Vec<Vec<u8>>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) tombstones: Vec<RangeTombstone>,
}

impl History {
    /// Creates `operations` random operations on `keys` keys.
    pub(crate) fn random(draw: &mut Draw, keys: usize, operations: usize) -> History {
        let pool = key_pool(draw, keys);
        let (mut entries, mut tombstones) = (Vec::new(), Vec::new());
        for seq in 1..=operations as Seq {
            let text = format!("v{seq}");
            let (kind, value) = match draw.below(100) {
                0..8 => {
                    tombstones.push(RangeTombstone { range: draw.range(&pool), seq });
                    continue;
                }
                8..45 => (Kind::Put, text.into_bytes()),
                45..60 => (Kind::Delete, Vec::new()),
                60..75 => (Kind::Merge, text.into_bytes()),
                number @ 75..95 => {
                    let expiry = NOW + draw.below(3) as u64 - 1;
                    let kind = if number < 85 { Kind::MergeExpiring } else { Kind::PutExpiring };
                    (kind, [&expiry.to_le_bytes(), text.as_bytes()].concat())
                }
                _ => (Kind::PutPointer, text.into_bytes()),
            };
            entries.push(Entry { key: draw.pick(&pool).clone(), seq, kind, value });
        }
        History { pool, entries, tombstones }
    }

    /// Returns what a reader at `snapshot` and [`NOW`] sees, by the plain definition.
    pub(crate) fn visible(&self, snapshot: Seq, bounds: &KeyRange) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut seen: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for key in self.pool.iter().filter(|key| bounds.contains(key)) {
            let covers = self.tombstones.iter().filter(|t| t.seq <= snapshot && t.range.contains(key));
            let cover = covers.map(|t| t.seq).max().unwrap_or(0);
            let mut versions: Vec<&Entry> =
                self.entries.iter().filter(|e| e.key == *key && e.seq <= snapshot && e.seq > cover).collect();
            versions.sort_by_key(|e| e.seq);
            let mut value: Option<Vec<u8>> = None;
            for version in versions {
                value = match version.kind {
                    Kind::Put => Some(version.value.clone()),
                    Kind::PutExpiring => {
                        let expiry = u64::from_le_bytes(version.value[..8].try_into().unwrap());
                        (NOW < expiry).then(|| version.value[8..].to_vec())
                    }
                    Kind::PutPointer => Some(pointed(key, &version.value)),
                    Kind::Merge => Some(joined(value.as_deref(), &version.value)),
                    Kind::MergeExpiring => {
                        let expiry = u64::from_le_bytes(version.value[..8].try_into().unwrap());
                        match NOW < expiry {
                            true => Some(joined(value.as_deref(), &version.value[8..])),
                            false => value,
                        }
                    }
                    Kind::Delete | Kind::DeleteRange => None,
                };
            }
            seen.extend(value.map(|value| (key.clone(), value)));
        }
        seen
    }
}

fn pointed(key: &[u8], pointer: &[u8]) -> Vec<u8> {
    [b"value of ", key, b" at ", pointer].concat()
}

fn joined(base: Option<&[u8]>, operand: &[u8]) -> Vec<u8> {
    [base.unwrap_or(b"none"), b"+", operand].concat()
}

/// Merge operator that concatenates operands, so that their order and number are visible.
pub(crate) struct Join;

impl MergeOperator for Join {
    fn name(&self) -> &str {
        "join"
    }

    fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        operands
            .iter()
            .fold(base.map(<[u8]>::to_vec), |value, operand| Some(joined(value.as_deref(), operand)))
    }
}

/// Resolves the pointers of random histories.
pub(crate) fn pointers() -> Arc<PointerReader> {
    Arc::new(|key, _, pointer, _| Ok(Slice::from(pointed(key, pointer))))
}

/// Returns options to read `bounds` at `snapshot`.
pub(crate) fn options(snapshot: Seq, bounds: KeyRange, tombstones: Vec<TombstoneSource>) -> VisibleOptions {
    VisibleOptions {
        snapshot,
        now_micros: NOW,
        bounds,
        keys_only: false,
        keyspace: Arc::new(crate::base::name::KeyspaceName::new("test")),
        operator: Some(Arc::new(Join)),
        operator_name: None,
        pointers: Some(pointers()),
        value_window: 0,
        tombstones,
        dead: None,
    }
}

/// Run: for each file its bounds and the entries of its table.
#[derive(Clone)]
pub(crate) struct VecRun {
    pub(crate) files: Vec<(KeyRange, Arc<Vec<Entry>>)>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) fuse: Fuse,
}

impl OpenFile for VecRun {
    type Cursor = Box<dyn Cursor>;
    fn open(&self, index: usize) -> Result<Box<dyn Cursor>> {
        self.meter.opens.fetch_add(1, Relaxed);
        self.fuse.check()?;
        let entries = self.files[index].1.clone();
        Ok(Box::new(VecCursor::with(entries, self.meter.clone(), self.fuse.clone())))
    }
    fn bounds(&self, index: usize) -> &KeyRange {
        &self.files[index].0
    }
    fn len(&self) -> usize {
        self.files.len()
    }
    fn max_seq(&self, index: usize) -> Seq {
        self.files[index].1.iter().map(|entry| entry.seq).max().unwrap_or(0)
    }
    fn is_narrowed(&self, index: usize) -> bool {
        let (bounds, table) = &self.files[index];
        table.iter().any(|entry| !bounds.contains(&entry.key))
    }
}

enum Spot {
    Memtable(Arc<Vec<Entry>>),
    Run(VecRun),
}

/// History spread over memtables and runs, regardless of age.
pub(crate) struct Spread {
    spots: Vec<Spot>,
    /// The history with each range tombstone clipped to the files that hold it.
    pub(crate) history: History,
    pub(crate) tombstones: Vec<TombstoneSource>,
}

impl Spread {
    /// Spreads `history` over one memtable and `others` further memtables and runs. The tables of the runs also hold
    /// entries and tombstones outside the bounds of their files, which must be invisible.
    pub(crate) fn random(draw: &mut Draw, history: History, others: usize) -> Spread {
        let mut shares: Vec<Vec<Entry>> = vec![Vec::new(); others + 1];
        for entry in &history.entries {
            shares[draw.below(others + 1)].push(entry.clone());
        }
        let mut spread = Spread { spots: Vec::new(), history, tombstones: Vec::new() };
        let given = std::mem::take(&mut spread.history.tombstones);
        let (of_memtables, of_runs) = given.into_iter().partition::<Vec<_>, _>(|_| draw.chance(50));
        spread.hold(&KeyRange::all(), of_memtables);
        let mut rest = shares.pop().unwrap();
        for share in shares {
            if draw.chance(30) {
                spread.add_memtable(share);
            } else {
                rest.extend(spread.add_run(draw, share, &of_runs));
            }
        }
        spread.add_memtable(rest);
        spread
    }

    fn add_memtable(&mut self, mut entries: Vec<Entry>) {
        sort(&mut entries);
        self.spots.push(Spot::Memtable(Arc::new(entries)));
    }

    /// Adds a run of the entries that its files can hold. Returns the rest.
    fn add_run(&mut self, draw: &mut Draw, share: Vec<Entry>, tombstones: &[RangeTombstone]) -> Vec<Entry> {
        let mut cuts: Vec<Key> =
            (0..draw.below(5)).map(|_| Key::from(draw.pick(&self.history.pool).clone())).collect();
        cuts.sort();
        let starts = std::iter::once(Key::empty()).chain(cuts.iter().cloned());
        let ends = cuts.iter().cloned().map(Some).chain([None]);
        let bounds: Vec<KeyRange> = starts.zip(ends).map(|(start, end)| KeyRange::new(start, end)).collect();
        let bounds: Vec<KeyRange> = bounds.into_iter().filter(|b| !b.is_empty() && draw.chance(80)).collect();
        let (mut files, mut rest) = (Vec::new(), share);
        for bounds in bounds {
            let (mut table, others) = rest.into_iter().partition::<Vec<_>, _>(|e| bounds.contains(&e.key));
            rest = others;
            for key in self.history.pool.iter().filter(|key| !bounds.contains(key)) {
                if draw.chance(40) {
                    let seq = 1 + draw.below(200) as Seq;
                    table.push(Entry { key: key.clone(), seq, kind: Kind::Put, value: b"stale".to_vec() });
                }
            }
            sort(&mut table);
            let held = tombstones.iter().filter(|_| draw.chance(40)).cloned().collect();
            self.hold(&bounds, held);
            files.push((bounds, Arc::new(table)));
        }
        self.spots.push(Spot::Run(VecRun { files, meter: Arc::default(), fuse: Fuse::none() }));
        rest
    }

    /// Makes a file or memtable with these bounds hold `tombstones`.
    fn hold(&mut self, bounds: &KeyRange, tombstones: Vec<RangeTombstone>) {
        self.tombstones.push((bounds.clone(), Arc::new(RangeTombstones::new(tombstones.clone()))));
        let clipped = tombstones
            .into_iter()
            .filter_map(|t| Some(RangeTombstone { range: t.range.intersect(bounds)?, seq: t.seq }));
        self.history.tombstones.extend(clipped);
    }

    /// Returns a merging cursor over all sources, whose calls burn `fuse`.
    pub(crate) fn cursor(&self, fuse: &Fuse) -> MergeCursor<ScanSource> {
        let sources = self.spots.iter().map(|spot| {
            ScanSource::Test(match spot {
                Spot::Memtable(entries) => {
                    Box::new(VecCursor::with(entries.clone(), Arc::default(), fuse.clone()))
                }
                Spot::Run(run) => Box::new(RunCursor::new(VecRun { fuse: fuse.clone(), ..run.clone() })),
            })
        });
        MergeCursor::new(sources.collect())
    }

    /// Returns the view of a reader of `bounds` at `snapshot` that uses `dead` spans.
    pub(crate) fn view_with(&self, snapshot: Seq, bounds: &KeyRange, dead: &Arc<DeadSpans>) -> StoreView {
        let mut options = options(snapshot, bounds.clone(), self.tombstones.clone());
        options.dead = Some(dead.clone());
        VisibleIter::new(self.cursor(&Fuse::none()), options)
    }

    /// Returns the view of a reader of `bounds` at `snapshot`.
    pub(crate) fn view(&self, snapshot: Seq, bounds: &KeyRange, fuse: &Fuse) -> StoreView {
        VisibleIter::new(self.cursor(fuse), options(snapshot, bounds.clone(), self.tombstones.clone()))
    }
}
