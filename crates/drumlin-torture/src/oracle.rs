//! Expected answers of the store: all versions of all keys, in memory, outside the simulated world.
//!
//! A [`Map`] is one life of a keyspace, from its creation to its drop. It holds every version of each key with its
//! sequence number. After a crash, logged maps share one cut, the last surviving commit. All writes of an unlogged
//! map bypass the log, so it has its own cut after a crash.
//!
//! [`Oracle::find_cut`] judges a recovered store: it searches for a commit that explains all of the store, and names
//! the failure when none does.

use crate::failure::{Failure, Verdict};
use crate::ops::{Bounds, Change, Item, Ttl};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// A sequence number of the store.
pub type Seq = u64;
/// Content of a keyspace.
pub type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// Effect of a version.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Says {
    Value(Vec<u8>),
    Gone,
    /// Merges this operand into the older versions.
    Operand(Vec<u8>),
}

/// A version of a key. Once it expires, a value counts as deleted and an operand has no effect.
#[derive(Clone, Debug)]
struct Version {
    seq: Seq,
    says: Says,
    expiry: u64,
}

/// Expiry of a version without TTL.
const NEVER: u64 = u64::MAX;

/// Versions of a key, oldest first.
type History = Vec<Version>;

/// One life of a keyspace.
#[derive(Clone, Debug, Default)]
pub struct Map {
    /// Whether the keyspace holds counters and its merge operator adds; otherwise it holds text and appends.
    pub counts: bool,
    /// Whether all its writes bypass the log.
    pub unlogged: bool,
    /// TTL of new writes in seconds; 0 means no expiry.
    pub ttl: u64,
    /// Whether any write so far had a TTL.
    expires: bool,
    versions: BTreeMap<Vec<u8>, History>,
    /// Last sequence number of each of its commits, if it is unlogged.
    ends: Vec<Seq>,
}

impl Map {
    /// Creates a keyspace without entries.
    pub fn new(counts: bool, unlogged: bool) -> Map {
        Map { counts, unlogged, ..Map::default() }
    }

    /// Returns the value of `key` at sequence number `seq` and time `now`.
    pub fn get(&self, key: &[u8], seq: Seq, now: u64) -> Option<Cow<'_, [u8]>> {
        self.at(self.versions.get(key)?, seq, now)
    }

    /// Returns the entries within `bounds` at `seq` and time `now`.
    pub fn scan<'a>(
        &'a self,
        bounds: &'a Bounds,
        seq: Seq,
        now: u64,
    ) -> impl DoubleEndedIterator<Item = (&'a [u8], Cow<'a, [u8]>)> {
        let start = bounds.start.as_deref().unwrap_or_default().as_bytes();
        let inside =
            move |key: &[u8]| key >= start && bounds.end.as_ref().is_none_or(|end| key < end.as_bytes());
        let live = move |(key, versions): (&'a Vec<u8>, &'a History)| {
            Some((&key[..], self.at(versions, seq, now).filter(|_| inside(key))?))
        };
        self.versions.iter().filter_map(live)
    }

    /// Resolves `versions` at `seq` and time `now`.
    fn at<'a>(&self, versions: &'a [Version], seq: Seq, now: u64) -> Option<Cow<'a, [u8]>> {
        let seen = &versions[..versions.partition_point(|version| version.seq <= seq)];
        let lives = |version: &&Version| now < version.expiry;
        let floor = seen.iter().rposition(|version| !matches!(version.says, Says::Operand(_)));
        let base = match floor.map(|floor| &seen[floor]).filter(lives).map(|version| &version.says) {
            Some(Says::Value(value)) => Some(&value[..]),
            _ => None,
        };
        let operands = seen[floor.map_or(0, |floor| floor + 1)..].iter().filter(lives);
        let mut value = base.map(Cow::Borrowed);
        for version in operands {
            if let Says::Operand(operand) = &version.says {
                value = Some(Cow::Owned(self.merged(value.as_deref(), operand)));
            }
        }
        value
    }

    fn merged(&self, base: Option<&[u8]>, operand: &[u8]) -> Vec<u8> {
        if !self.counts {
            return [base.unwrap_or_default(), operand].concat();
        }
        let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse::<i64>().ok();
        let (base, operand) = (base.and_then(number).unwrap_or(0), number(operand).unwrap_or(0));
        base.wrapping_add(operand).to_string().into_bytes()
    }

    fn add(&mut self, key: &[u8], seq: Seq, says: Says, expiry: u64) {
        self.versions.entry(key.to_vec()).or_default().push(Version { seq, says, expiry });
    }

    /// Returns the expiry of a write at time `now`. For an operand, rounds it up to a multiple of the largest power
    /// of two microseconds that is at most 1/64 of its TTL.
    fn expiry(&mut self, now: u64, ttl: Ttl, is_operand: bool) -> u64 {
        let lifetime = match ttl {
            Ttl::Keyspace if self.ttl == 0 => return NEVER,
            Ttl::Keyspace => self.ttl * 1_000_000,
            Ttl::Never => return NEVER,
            Ttl::Micros(micros) => micros,
        };
        self.expires = true;
        let granule = if is_operand { ((lifetime / 64 + 1).next_power_of_two() / 2).max(1) } else { 1 };
        (now + lifetime).next_multiple_of(granule)
    }

    /// Applies one operation, written at time `now`.
    pub fn apply(&mut self, item: &Item, seq: Seq, now: u64) {
        match &item.change {
            Change::Put(key, value) => {
                let expiry = self.expiry(now, item.ttl, false);
                self.add(key.as_bytes(), seq, Says::Value(value.bytes(self.counts)), expiry);
            }
            Change::Delete(key) => self.add(key.as_bytes(), seq, Says::Gone, NEVER),
            Change::DeleteRange(bounds) => {
                let gone: Vec<Vec<u8>> = self.scan(bounds, seq, now).map(|(key, _)| key.to_vec()).collect();
                gone.iter().for_each(|key| self.add(key, seq, Says::Gone, NEVER));
            }
            Change::Merge(key, operand) => {
                let expiry = self.expiry(now, item.ttl, true);
                let operand = operand.bytes(self.counts);
                let says = match self.expires {
                    true => Says::Operand(operand),
                    // Without expiry, compute the merged value at once.
                    false => {
                        let base = self.get(key.as_bytes(), seq, now);
                        Says::Value(self.merged(base.as_deref(), &operand))
                    }
                };
                self.add(key.as_bytes(), seq, says, expiry);
            }
        }
    }

    /// Returns all entries at `seq` and time `now`.
    pub fn content(&self, seq: Seq, now: u64) -> Content {
        let all = Bounds::default();
        self.scan(&all, seq, now).map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
    }

    fn cut(&self, seq: Seq) -> Map {
        let mut versions = self.versions.clone();
        versions.values_mut().for_each(|all| all.retain(|version| version.seq <= seq));
        versions.retain(|_, all| !all.is_empty());
        Map { versions, ends: self.ends.iter().copied().filter(|end| *end <= seq).collect(), ..*self }
    }
}

/// Promises of the store at the time of a cut.
#[derive(Clone, Debug, Default)]
pub struct Promise {
    /// Every commit up to here survives a power loss.
    pub synced: Seq,
    /// Every logged commit up to here survives the end of the process.
    pub buffered: Seq,
    /// Last sequence number of the last commit passed to the store.
    pub issued: Seq,
    /// Unlogged writes up to here survive, by keyspace.
    pub flushed: BTreeMap<String, Seq>,
    /// Possible lives of each keyspace; `None` means that the keyspace does not exist. A name that is absent here
    /// must be absent in the store.
    pub lives: BTreeMap<String, Vec<Option<usize>>>,
    /// Names of renamed keyspaces. A keyspace that is absent here has its own name.
    pub renamed: BTreeMap<String, Renamed>,
    /// Number of operations begun.
    pub operations: usize,
}

/// Suffix of the other name of a keyspace.
const OTHER: char = '~';

/// Returns the other name of the keyspace that a workload calls `name`.
pub fn other_name(name: &str) -> String {
    format!("{name}{OTHER}")
}

/// Returns what a workload calls the keyspace that the store calls `name`.
pub fn own_name(name: &str) -> &str {
    name.strip_suffix(OTHER).unwrap_or(name)
}

/// Name that the store gives a keyspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Renamed {
    /// The other name.
    Other,
    /// A rename to the other name (`true`) or back (`false`) is under way, so the keyspace has either name.
    UnderWay(bool),
}

impl Promise {
    /// Checks the names that the store gives its keyspaces. A rename syncs the log first. So if one that was under way
    /// is done, every earlier commit survives a power loss.
    pub fn check_names(&mut self, names: &[String]) -> Result<(), Failure> {
        let mut owns = BTreeSet::new();
        for name in names {
            let (own, is_other) = (own_name(name), own_name(name) != name);
            let fits = match self.renamed.get(own) {
                None => !is_other,
                Some(Renamed::Other) => is_other,
                Some(Renamed::UnderWay(to_other)) => {
                    if *to_other == is_other {
                        self.synced = self.synced.max(self.buffered);
                    }
                    true
                }
            };
            if !fits {
                return Err(Verdict::Wrong.of(format!("a keyspace is called {name}")));
            }
            if !owns.insert(own) {
                return Err(Verdict::Wrong.of(format!("keyspace {own} is there under both names")));
            }
        }
        Ok(())
    }

    /// Learns the names that the store gives its keyspaces.
    pub fn learn_names(&mut self, names: &[String]) {
        let others = names.iter().map(|name| own_name(name)).zip(names).filter(|(own, name)| own != name);
        self.renamed = others.map(|(own, _)| (own.to_owned(), Renamed::Other)).collect();
    }
}

/// Position of a recovered store in the history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Last logged commit in the store.
    pub seq: Seq,
    /// Last unlogged commit in the store, by keyspace.
    pub unlogged: BTreeMap<String, Seq>,
    /// Life of each existing keyspace.
    pub lives: BTreeMap<String, usize>,
}

/// All writes so far.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    /// Every life of every keyspace.
    pub maps: BTreeMap<String, Vec<Map>>,
    /// Last sequence numbers of the logged commits.
    commits: Vec<Seq>,
}

impl Oracle {
    /// Returns the present life of a keyspace.
    pub fn map(&self, name: &str) -> Option<&Map> {
        self.maps.get(name)?.last()
    }

    /// Returns whether a keyspace bypasses the log.
    pub fn has_unlogged(&self) -> bool {
        self.maps.values().filter_map(|lives| lives.last()).any(|map| map.unlogged)
    }

    /// Records a commit at time `now` whose first operation has sequence number `first`; returns its last sequence
    /// number.
    pub fn commit(&mut self, items: &[Item], first: Seq, now: u64) -> Seq {
        let mut unlogged = false;
        for (item, seq) in items.iter().zip(first..) {
            if let Some(map) = self.maps.get_mut(&item.keyspace).and_then(|lives| lives.last_mut()) {
                map.apply(item, seq, now);
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

    /// Returns the oracle of a store recovered at `cut`. Lives keep their numbers, since earlier snapshots refer to
    /// them.
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

    /// Finds the commit that explains the store's content `found` under `promise`. `power` says that the power was
    /// lost. `visible` is the store's highest visible sequence number, and `now` the time when `found` was read.
    pub fn find_cut(
        &self,
        found: &BTreeMap<String, Content>,
        promise: &Promise,
        power: bool,
        (visible, now): (Seq, u64),
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
                cut.unlogged.insert(name.clone(), map.own_cut(name, content, promise, (visible, now))?);
                continue;
            }
            for key in map.keys_with(content) {
                map.narrow((name, key, now), content, &candidates, &mut possible)?;
            }
        }
        match possible.iter().rposition(|possible| *possible) {
            Some(last) => {
                // The last promised write may be an unlogged one.
                let logged = self.commits.iter().rev().find(|end| **end <= candidates[last]);
                cut.seq = logged.copied().unwrap_or(0);
                Ok(cut)
            }
            None => Err(self.explain_hole(&cut, found, (least, now), promise)),
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
                return Err(Verdict::Resurrected.of(format!("the dropped keyspace {name} reappeared")));
            };
            lives.insert(name.clone(), life);
        }
        for (name, allowed) in &promise.lives {
            if !found.contains_key(name) && !allowed.contains(&None) {
                return Err(Verdict::Lost.of(format!("keyspace {name} is missing")));
            }
        }
        Ok(lives)
    }

    /// Explains a state that no commit explains: the store may hold a part of one.
    fn explain_hole(
        &self,
        cut: &Cut,
        found: &BTreeMap<String, Content>,
        (least, now): (Seq, u64),
        promise: &Promise,
    ) -> Failure {
        let explains = |seq: Seq| {
            cut.lives.iter().all(|(name, life)| {
                let map = &self.maps[name][*life];
                map.unlogged || map.content(seq, now) == found[name]
            })
        };
        if let Some(seq) = (least..=promise.issued).find(|seq| explains(*seq)) {
            return Verdict::Split.of(format!("the store holds a part of a commit: it ends at {seq}"));
        }
        if let Some(seq) = (0..least).rev().find(|seq| explains(*seq)) {
            return Verdict::Lost.of(format!("the store ends at {seq}, but {least} was promised"));
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

    /// Keeps only the candidate cuts that explain what was found under `key`.
    fn narrow(
        &self,
        (name, key, now): (&str, &[u8], u64),
        content: &Content,
        candidates: &[Seq],
        possible: &mut [bool],
    ) -> Result<(), Failure> {
        let found = content.get(key).map(Vec::as_slice);
        let versions = self.versions.get(key).map(Vec::as_slice).unwrap_or_default();
        let mut any = false;
        if versions.last().is_none_or(|version| version.seq <= candidates[0]) {
            any = self.at(versions, Seq::MAX, now).as_deref() == found;
        } else {
            for (candidate, possible) in candidates.iter().zip(possible) {
                let explains = self.at(versions, *candidate, now).as_deref() == found;
                any |= explains;
                *possible &= explains;
            }
        }
        if any {
            return Ok(());
        }
        let shown = String::from_utf8_lossy(key);
        let wanted = self.at(versions, candidates[0], now);
        let what = format!(
            "keyspace {name}, key {shown}: found {}, but as of {} it is {}",
            show(found),
            candidates[0],
            show(wanted.as_deref())
        );
        let value = |version: &Version| self.at(versions, version.seq, 0);
        let old = found.is_some() && versions.iter().any(|version| value(version).as_deref() == found);
        let verdict = match found {
            None => Verdict::Lost,
            Some(_) if old => Verdict::Resurrected,
            Some(_) => Verdict::Wrong,
        };
        Err(verdict.of(what))
    }

    /// Finds the cut of an unlogged map.
    fn own_cut(
        &self,
        name: &str,
        content: &Content,
        promise: &Promise,
        (visible, now): (Seq, u64),
    ) -> Result<Seq, Failure> {
        let most = promise.issued.min(visible);
        let least = promise.flushed.get(name).copied().unwrap_or(0);
        let after = self.ends.iter().rev().copied().filter(|end| *end > least && *end <= most);
        let mut candidates = after.chain([least]);
        candidates.find(|seq| self.content(*seq, now) == *content).ok_or_else(|| {
            let at_least = self.content(least, now);
            let what = format!("unlogged keyspace {name} is no prefix of its writes at or after {least}");
            let missing = at_least.keys().any(|key| !content.contains_key(key));
            if missing { Verdict::Lost.of(what) } else { Verdict::Hole.of(what) }
        })
    }
}

/// Formats a value for a test message.
pub fn show(value: Option<&[u8]>) -> String {
    match value {
        None => "nothing".into(),
        Some(bytes) if bytes.len() <= 24 => format!("{:?}", String::from_utf8_lossy(bytes)),
        Some(bytes) => format!("{:?}.. of {} bytes", String::from_utf8_lossy(&bytes[..20]), bytes.len()),
    }
}
