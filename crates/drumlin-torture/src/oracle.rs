//! What the store must answer: all versions of all keys, in memory, outside the simulated world.
//!
//! A [`Map`] is one life of a keyspace: from its creation to its drop. It holds, for each key, every version with
//! its sequence number. Logged maps share one cut after a crash, the last surviving commit. The writes of an unlogged
//! map are all made without the log, so that after a crash it has a cut of its own.
//!
//! [`Oracle::find_cut`] judges a recovered store: it looks for a commit that explains all of it, and names what is
//! wrong when there is none.

use crate::failure::{Failure, Verdict};
use crate::ops::{Bounds, Change, Item};
use std::collections::{BTreeMap, BTreeSet};

/// A sequence number, as the store counts them.
pub type Seq = u64;
/// The content of a keyspace.
pub type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// The versions of a key, oldest first; none for a deletion.
type History = Vec<(Seq, Option<Vec<u8>>)>;

/// One life of a keyspace.
#[derive(Clone, Debug, Default)]
pub struct Map {
    /// Whether it holds numbers and its merge operator adds; otherwise it holds text and appends.
    pub counts: bool,
    /// Whether all its writes bypass the log.
    pub unlogged: bool,
    versions: BTreeMap<Vec<u8>, History>,
    /// Ends of its commits, when it is unlogged.
    ends: Vec<Seq>,
}

impl Map {
    /// A keyspace without entries.
    pub fn new(counts: bool, unlogged: bool) -> Map {
        Map { counts, unlogged, ..Map::default() }
    }

    /// The value of `key` as of `seq`.
    pub fn get(&self, key: &[u8], seq: Seq) -> Option<&[u8]> {
        at(self.versions.get(key)?, seq)
    }

    /// The entries of `bounds` as of `seq`.
    pub fn scan<'a>(
        &'a self,
        bounds: &'a Bounds,
        seq: Seq,
    ) -> impl DoubleEndedIterator<Item = (&'a [u8], &'a [u8])> {
        let start = bounds.start.as_deref().unwrap_or_default().as_bytes();
        let inside =
            move |key: &[u8]| key >= start && bounds.end.as_ref().is_none_or(|end| key < end.as_bytes());
        let live = move |(key, versions): (&'a Vec<u8>, &'a Vec<_>)| {
            Some((&key[..], at(versions, seq).filter(|_| inside(key))?))
        };
        self.versions.iter().filter_map(live)
    }

    fn add(&mut self, key: &[u8], seq: Seq, value: Option<Vec<u8>>) {
        self.versions.entry(key.to_vec()).or_default().push((seq, value));
    }

    /// Applies one operation.
    pub fn apply(&mut self, change: &Change, seq: Seq) {
        match change {
            Change::Put(key, value) => self.add(key.as_bytes(), seq, Some(value.bytes(self.counts))),
            Change::Delete(key) => self.add(key.as_bytes(), seq, None),
            Change::DeleteRange(bounds) => {
                let gone: Vec<Vec<u8>> = self.scan(bounds, seq).map(|(key, _)| key.to_vec()).collect();
                gone.iter().for_each(|key| self.add(key, seq, None));
            }
            Change::Merge(key, operand) => {
                let base = self.get(key.as_bytes(), seq);
                let value = if self.counts {
                    let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse::<i64>().ok();
                    let base = base.and_then(number).unwrap_or(0);
                    base.wrapping_add(operand.tag as i64).to_string().into_bytes()
                } else {
                    [base.unwrap_or_default(), &operand.bytes(false)].concat()
                };
                self.add(key.as_bytes(), seq, Some(value));
            }
        }
    }

    /// All entries as of `seq`.
    pub fn content(&self, seq: Seq) -> Content {
        let all = Bounds::default();
        self.scan(&all, seq).map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
    }

    fn cut(&self, seq: Seq) -> Map {
        let mut versions = self.versions.clone();
        versions.values_mut().for_each(|all| all.retain(|(of, _)| *of <= seq));
        versions.retain(|_, all| !all.is_empty());
        Map { versions, ends: self.ends.iter().copied().filter(|end| *end <= seq).collect(), ..*self }
    }
}

fn at(versions: &[(Seq, Option<Vec<u8>>)], seq: Seq) -> Option<&[u8]> {
    let count = versions.partition_point(|(of, _)| *of <= seq);
    versions[..count].last()?.1.as_deref()
}

/// What was promised when a cut was made.
#[derive(Clone, Debug, Default)]
pub struct Promise {
    /// Every commit up to here survives power loss.
    pub synced: Seq,
    /// Every logged commit up to here survives the end of the process.
    pub buffered: Seq,
    /// The end of the last commit that was handed to the store.
    pub issued: Seq,
    /// Unlogged writes up to here survive, by keyspace.
    pub flushed: BTreeMap<String, Seq>,
    /// Which lives of a keyspace there may be; none is "there is no such keyspace". A name that is missing here must
    /// be missing in the store.
    pub lives: BTreeMap<String, Vec<Option<usize>>>,
    /// The number of operations that were begun.
    pub operations: usize,
}

/// Where a recovered store stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// The last logged commit in it.
    pub seq: Seq,
    /// The last unlogged commit in it, by keyspace.
    pub unlogged: BTreeMap<String, Seq>,
    /// The life of each keyspace that is there.
    pub lives: BTreeMap<String, usize>,
}

/// All that was written.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    /// Every life of every keyspace.
    pub maps: BTreeMap<String, Vec<Map>>,
    /// Ends of the logged commits.
    commits: Vec<Seq>,
}

impl Oracle {
    /// The present life of a keyspace.
    pub fn map(&self, name: &str) -> Option<&Map> {
        self.maps.get(name)?.last()
    }

    /// Records a commit, whose first operation has sequence number `first`; its end.
    pub fn commit(&mut self, items: &[Item], first: Seq) -> Seq {
        let mut unlogged = false;
        for (item, seq) in items.iter().zip(first..) {
            if let Some(map) = self.maps.get_mut(&item.keyspace).and_then(|lives| lives.last_mut()) {
                map.apply(&item.change, seq);
                unlogged |= map.unlogged;
            }
        }
        let end = first + items.len() as u64 - 1;
        match items.first() {
            Some(item) if unlogged => {
                let lives = self.maps.get_mut(&item.keyspace).and_then(|lives| lives.last_mut());
                lives.into_iter().for_each(|map| map.ends.push(end));
            }
            _ => self.commits.push(end),
        }
        end
    }

    /// The oracle of a store that was recovered at `cut`. Lives keep their numbers: pictures from before refer to them.
    pub fn recovered(&self, cut: &Cut) -> Oracle {
        let mut maps = self.maps.clone();
        for (name, life) in &cut.lives {
            let seq = cut.unlogged.get(name).copied().unwrap_or(cut.seq);
            let lives = maps.entry(name.clone()).or_default();
            lives.truncate(life + 1);
            lives.iter_mut().skip(*life).for_each(|map| *map = map.cut(seq));
        }
        Oracle { maps, commits: self.commits.iter().copied().filter(|end| *end <= cut.seq).collect() }
    }

    /// The commit that explains `found`, under `promise`; `power` when the power was lost. The store says that it
    /// shows nothing after `visible`.
    pub fn find_cut(
        &self,
        found: &BTreeMap<String, Content>,
        promise: &Promise,
        power: bool,
        visible: Seq,
    ) -> Result<Cut, Failure> {
        let mut cut = Cut { lives: self.lives(found, promise)?, ..Cut::default() };
        let mut least = if power { promise.synced } else { promise.buffered };
        for (name, allowed) in &promise.lives {
            // A drop is durable only after everything before it.
            if allowed.len() == 2 && allowed[0].is_some() && !found.contains_key(name) {
                least = least.max(promise.buffered);
            }
        }
        let mut candidates: Vec<Seq> = self
            .commits
            .iter()
            .copied()
            .filter(|end| *end > least && *end <= promise.issued.min(visible))
            .collect();
        candidates.insert(0, least);
        let mut possible = vec![true; candidates.len()];
        for (name, life) in &cut.lives {
            let map = &self.maps[name][*life];
            let (content, unlogged) = (&found[name], map.unlogged);
            if unlogged {
                cut.unlogged.insert(name.clone(), map.own_cut(name, content, promise, visible)?);
                continue;
            }
            for key in map.keys_with(content) {
                map.narrow(name, key, content, &candidates, &mut possible)?;
            }
        }
        match possible.iter().rposition(|possible| *possible) {
            Some(last) => {
                // What was promised may end in an unlogged write.
                let logged = self.commits.iter().rev().find(|end| **end <= candidates[last]);
                cut.seq = logged.copied().unwrap_or(0);
                Ok(cut)
            }
            None => Err(self.explain_hole(&cut, found, least, promise)),
        }
    }

    fn lives(
        &self,
        found: &BTreeMap<String, Content>,
        promise: &Promise,
    ) -> Result<BTreeMap<String, usize>, Failure> {
        let mut lives = BTreeMap::new();
        for name in found.keys() {
            let allowed = promise.lives.get(name).map(Vec::as_slice).unwrap_or_default();
            let Some(life) = allowed.iter().find_map(|life| *life) else {
                return Err(Verdict::Resurrected.of(format!("keyspace {name} is back")));
            };
            lives.insert(name.clone(), life);
        }
        for (name, allowed) in &promise.lives {
            if !found.contains_key(name) && !allowed.contains(&None) {
                return Err(Verdict::Lost.of(format!("keyspace {name} is gone")));
            }
        }
        Ok(lives)
    }

    /// No commit explains the state: a part of one may.
    fn explain_hole(
        &self,
        cut: &Cut,
        found: &BTreeMap<String, Content>,
        least: Seq,
        promise: &Promise,
    ) -> Failure {
        let explains = |seq: Seq| {
            cut.lives.iter().all(|(name, life)| {
                let map = &self.maps[name][*life];
                map.unlogged || map.content(seq) == found[name]
            })
        };
        if let Some(seq) = (least..=promise.issued).find(|seq| explains(*seq)) {
            return Verdict::Split.of(format!("the store holds a part of a commit: it ends at {seq}"));
        }
        if let Some(seq) = (0..least).rev().find(|seq| explains(*seq)) {
            return Verdict::Lost.of(format!("the store ends at {seq}, and {least} was promised"));
        }
        let range = format!("{least} to {}", promise.issued);
        Verdict::Hole
            .of(format!("no commit from {range} explains all keys, though each key is explained by one"))
    }
}

impl Map {
    fn keys_with<'a>(&'a self, content: &'a Content) -> BTreeSet<&'a [u8]> {
        self.versions.keys().chain(content.keys()).map(Vec::as_slice).collect()
    }

    /// Leaves only those candidates possible that explain what was found under `key`.
    fn narrow(
        &self,
        name: &str,
        key: &[u8],
        content: &Content,
        candidates: &[Seq],
        possible: &mut [bool],
    ) -> Result<(), Failure> {
        let found = content.get(key).map(Vec::as_slice);
        let versions = self.versions.get(key).map(Vec::as_slice).unwrap_or_default();
        let mut any = false;
        if versions.last().is_none_or(|(seq, _)| *seq <= candidates[0]) {
            any = at(versions, Seq::MAX) == found;
        } else {
            for (candidate, possible) in candidates.iter().zip(possible) {
                let explains = at(versions, *candidate) == found;
                any |= explains;
                *possible &= explains;
            }
        }
        if any {
            return Ok(());
        }
        let shown = String::from_utf8_lossy(key);
        let wanted = at(versions, candidates[0]);
        let what = format!(
            "keyspace {name}, key {shown}: found {}, but as of {} it is {}",
            show(found),
            candidates[0],
            show(wanted)
        );
        let old = found.is_some() && versions.iter().any(|(_, value)| value.as_deref() == found);
        let verdict = match found {
            None => Verdict::Lost,
            Some(_) if old => Verdict::Resurrected,
            Some(_) => Verdict::Wrong,
        };
        Err(verdict.of(what))
    }

    /// The cut of an unlogged map.
    fn own_cut(
        &self,
        name: &str,
        content: &Content,
        promise: &Promise,
        visible: Seq,
    ) -> Result<Seq, Failure> {
        let most = promise.issued.min(visible);
        let least = promise.flushed.get(name).copied().unwrap_or(0);
        let after = self.ends.iter().rev().copied().filter(|end| *end > least && *end <= most);
        let mut candidates = after.chain([least]);
        candidates.find(|seq| self.content(*seq) == *content).ok_or_else(|| {
            let at_least = self.content(least);
            let what = format!("unlogged keyspace {name} is no prefix of its writes at or after {least}");
            let missing = at_least.keys().any(|key| !content.contains_key(key));
            if missing { Verdict::Lost.of(what) } else { Verdict::Hole.of(what) }
        })
    }
}

/// A value in a message of the tests.
pub fn show(value: Option<&[u8]>) -> String {
    match value {
        None => "nothing".into(),
        Some(bytes) if bytes.len() <= 24 => format!("{:?}", String::from_utf8_lossy(bytes)),
        Some(bytes) => format!("{:?}.. of {} bytes", String::from_utf8_lossy(&bytes[..20]), bytes.len()),
    }
}
