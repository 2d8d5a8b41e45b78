//! Checks of every install, in builds with debug assertions. The tree that an install would create is compared with the
//! current tree before anything is durable.
//!
//! 1. *Outputs*: each new table of up to [`MAX_READ_BACK`] entries is read back in full. Counts, sequence numbers,
//!    bounds and checksum must match its reference.
//! 2. *Bounds*: a reference to a part of a table lies inside the table's bounds.
//! 3. *Entry counts*: a reference has as many entries inside its bounds as it claims.
//! 4. *Recency*: of two versions of a key in different levels, the one in the upper level is newer.
//! 5. *Equal answers*: for each key, the newest state and every snapshot give the same answer before and after. The
//!    newest state is compared now, and after each expiry that is still to come.
//!
//! Legality is not checked again on the tree that a piece is installed into. Data that arrived from above after its
//! plan was admitted is newer key by key, although the ranges of sequence numbers may overlap, and the legality rule
//! looks only at those ranges. Checks 4 and 5 look at the versions themselves.
//!
//! The checks open tables separately and read them through [`drumlin_env::Env::peek`]. A simulated disk neither counts
//! such reads nor reacts to them, so the store's own reads are the same as without the checks. Trees of up to
//! [`MAX_ENTRIES`] entries are compared in full. Of a larger tree only the keys of one randomly chosen file are
//! compared.
//!
//! Architecture invariant: this module sees trees, and not why they change.

use crate::base::cursor::Cursor;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::rangedel::RangeTombstones;
use crate::base::resolve::{ValueRead, parts};
use crate::base::slice::Slice;
use crate::base::snapshots::{ReadPoint, Readers, SnapshotList};
use crate::disk::Files;
use crate::keyspace::KeyspaceState;
use crate::memtable::Memtable;
use crate::read::{ClippedCursor, Flow, GetState};
use crate::table::{BlockCache, CursorOptions, Table};
use crate::version::{FileMeta, Run, Tree};
use drumlin_env::sync::Arc;
use drumlin_types::{KeyRange, Kind, Seq, TableId};
use std::collections::{BTreeMap, BTreeSet};

/// Largest number of entries read of each tree. Trees in simulated runs are smaller; the cost on real trees must stay
/// bounded.
const MAX_ENTRIES: u64 = 4 << 10;
/// Largest table that is read back, in entries.
const MAX_READ_BACK: u64 = 64 << 10;

/// Two trees of one keyspace: the current one, and the one that an install would create.
pub(crate) struct Audit<'a> {
    pub(crate) files: &'a Files,
    pub(crate) snapshots: &'a SnapshotList,
    pub(crate) keyspace: &'a KeyspaceState,
    pub(crate) before: &'a Tree,
    /// Memtables whose content moves into the tree.
    pub(crate) flushed: &'a [Arc<Memtable>],
    pub(crate) after: &'a Tree,
}

/// An audit and the tables that it has opened.
struct Auditor<'a> {
    audit: &'a Audit<'a>,
    cache: Arc<BlockCache>,
    tables: BTreeMap<TableId, Arc<Table>>,
}

/// A source of versions: a file of a level, or a memtable.
struct AuditSource {
    /// 0 for memtables, 1 for level 0 and so on.
    place: usize,
    cursor: Box<dyn Cursor>,
    tombstones: Arc<RangeTombstones>,
    bounds: KeyRange,
}

/// A version of a key, with its place.
struct AuditVersion {
    place: usize,
    seq: Seq,
    kind: Kind,
    value: Vec<u8>,
}

fn bug(what: String) -> Error {
    Error::new(ErrorKind::Bug, format!("install check: {what}"))
}

impl Audit<'_> {
    /// Returns the first violation as an error. If a table cannot be read or is damaged, the audit passes: an install
    /// does not have to read its tables, and damage is not a defect of the install.
    pub(crate) fn run(&self) -> Result<()> {
        let cache = Arc::new(BlockCache::new(0));
        let mut auditor = Auditor { audit: self, cache, tables: BTreeMap::new() };
        self.files.env.peek(|| match auditor.check() {
            Err(error) if error.kind() != ErrorKind::Bug => Ok(()),
            checked => checked,
        })
    }
}

impl Auditor<'_> {
    fn table(&mut self, file: &FileMeta) -> Result<Arc<Table>> {
        if let Some(table) = self.tables.get(&file.id()) {
            return Ok(table.clone());
        }
        let Audit { files, .. } = self.audit;
        let (path, cache) = (files.table_path(file.id()), self.cache.clone());
        let table = Table::open(&files.env, &path, file.id(), file.table.len, cache, files.filter_seed)?;
        let table = Arc::new(table);
        self.tables.insert(file.id(), table.clone());
        Ok(table)
    }

    fn check(&mut self) -> Result<()> {
        let Audit { before, after, .. } = *self.audit;
        let known: BTreeSet<_> = before.files().map(|(_, _, f)| f.id()).collect();
        for file in changed_files(after, before) {
            if !known.contains(&file.id()) {
                self.read_back(file)?;
            }
            self.check_reference(file)?;
        }
        self.compare()
    }

    /// Checks that a new table matches its reference.
    fn read_back(&mut self, file: &FileMeta) -> Result<()> {
        if file.table_entries > MAX_READ_BACK {
            return Ok(());
        }
        let table = self.table(file)?;
        let unsound = |error: Error| bug(format!("the new table {} is damaged: {error}", file.id()));
        let counts = table.verify().map_err(unsound)?;
        let properties = table.properties();
        let claims = [
            ("entries", file.table_entries, counts.entries),
            ("bytes", file.table.len, counts.bytes),
            ("checksum", file.checksum, counts.checksum),
            ("smallest sequence number", file.min_seq, properties.min_seq),
            ("largest sequence number", file.max_seq, properties.max_seq),
        ];
        match claims.iter().find(|(_, claimed, found)| claimed != found) {
            None => Ok(()),
            Some((what, claimed, found)) => {
                Err(bug(format!("{} has {what} {found}, but its reference claims {claimed}", file.id())))
            }
        }
    }

    /// Checks that a new or changed reference lies inside its table and has as many entries as it claims.
    fn check_reference(&mut self, file: &FileMeta) -> Result<()> {
        let table = self.table(file)?;
        let properties = table.properties();
        let points = properties.key_bounds.as_ref().map(|(first, last)| KeyRange::inclusive(first, last));
        let tombstones = properties.tombstones.as_ref().map(|(_, range)| range.clone());
        let whole = points.into_iter().chain(tombstones).reduce(|a, b| a.hull(&b));
        if !whole.is_some_and(|whole| whole.covers(&file.bounds)) {
            return Err(bug(format!("a reference to {} exceeds the bounds of the table", file.id())));
        }
        let until = file.bounds.end.as_ref().map_or(Ok(file.table_entries), |end| table.rank(end))?;
        let entries = until.saturating_sub(table.rank(&file.bounds.start)?);
        if entries != file.counts.entries {
            let claimed = file.counts.entries;
            return Err(bug(format!(
                "a reference to {} has {entries} entries and claims {claimed}",
                file.id()
            )));
        }
        Ok(())
    }

    /// Compares both trees key by key.
    fn compare(&mut self) -> Result<()> {
        let Audit { files, snapshots, keyspace, before, flushed, after } = *self.audit;
        let range = self.range();
        let mut before = self.sources(before, flushed, &range)?;
        let mut after = self.sources(after, &[], &range)?;
        let Readers { snapshots, now_micros } = snapshots.readers(|| files.unix_micros());
        let mut read = 0;
        while let Some(key) = [before.least(), after.least()].into_iter().flatten().min() {
            let (old, new) = (before.take(&key)?, after.take(&key)?);
            read += old.len().max(new.len()) as u64;
            if read > MAX_ENTRIES {
                break;
            }
            check_recency(&new)?;
            let untouched = before.covering.is_empty() && after.covering.is_empty();
            if untouched && same_versions(&old, &new) {
                continue;
            }
            // Between two expiry times no answer changes because of expiry.
            let expiries = old.iter().filter_map(|v| parts(v.kind, &v.value).ok()).map(|(expiry, _)| expiry);
            let times = std::iter::once(now_micros).chain(expiries.filter(|at| *at > now_micros));
            let newest = times.map(|micros| ReadPoint { seq: Seq::MAX, micros });
            for point in snapshots.iter().copied().chain(newest) {
                let was = self.answer(&before, &key, &old, point);
                let is = self.answer(&after, &key, &new, point);
                if let (Ok(_), Err(error)) = (&was, &is)
                    && error.is_corruption()
                {
                    return Err(bug(format!(
                        "a value can no longer be read: {}",
                        error.text_without_place()
                    )));
                }
                // If the versions cannot be resolved, there is no answer to compare.
                if let (Ok(was), Ok(is)) = (was, is)
                    && was != is
                {
                    let what = match (was.is_some(), is.is_some()) {
                        (true, false) => "a value is gone",
                        (false, true) => "a value appears",
                        _ => "a value changes",
                    };
                    let ReadPoint { seq, micros } = point;
                    return Err(bug(format!(
                        "{what} as of #{seq} and {micros} us in keyspace {}",
                        keyspace.name
                    )));
                }
            }
        }
        Ok(())
    }

    /// Returns the keys to compare: those of changed files, or in a large tree the first keys of a randomly chosen
    /// file. A flush changes all keys.
    fn range(&self) -> KeyRange {
        let Audit { before, flushed, after, .. } = *self.audit;
        let files: Vec<&Arc<FileMeta>> = after.files().map(|(_, _, f)| f).collect();
        let entries: u64 = files.iter().map(|f| f.counts.entries).sum();
        if entries <= MAX_ENTRIES {
            let changed = changed_files(before, after).chain(changed_files(after, before));
            let hull = changed.map(|file| file.bounds.clone()).reduce(|a, b| a.hull(&b));
            return hull.filter(|_| flushed.is_empty()).unwrap_or_else(KeyRange::all);
        }
        let drawn = self.audit.files.env.random_u64("audit") % files.len() as u64;
        let mut range = files[drawn as usize].bounds.clone();
        // Files behind the last compared entry are not opened: their indexes would take memory for nothing.
        let mut within: Vec<_> = files.iter().filter(|f| range.contains(&f.bounds.start)).collect();
        within.sort_by(|a, b| a.bounds.start.cmp(&b.bounds.start));
        let mut entries = 0;
        for file in within {
            if entries > MAX_ENTRIES && file.bounds.start > range.start {
                range.end = Some(file.bounds.start.clone());
                break;
            }
            entries += file.counts.entries;
        }
        range
    }

    fn sources(&mut self, tree: &Tree, memtables: &[Arc<Memtable>], range: &KeyRange) -> Result<AllVersions> {
        let mut sources = Vec::new();
        for memtable in memtables {
            sources.push(AuditSource {
                place: 0,
                cursor: Box::new(ClippedCursor::new(memtable.cursor(), range.clone())),
                tombstones: memtable.range_tombstones(),
                bounds: range.clone(),
            });
        }
        for (level, _, file) in tree.files() {
            let Some(bounds) = file.bounds.intersect(range) else { continue };
            let table = self.table(file)?;
            table.check_tombstones(file.min_seq, file.max_seq)?;
            let cursor = table.cursor(CursorOptions::CHECK).within(file.min_seq, file.max_seq);
            sources.push(AuditSource {
                place: 1 + usize::from(level),
                cursor: Box::new(ClippedCursor::new(cursor, bounds.clone())),
                tombstones: table.range_tombstones().clone(),
                bounds,
            });
        }
        AllVersions::new(sources)
    }

    fn answer(
        &self,
        sources: &AllVersions,
        key: &[u8],
        versions: &[AuditVersion],
        point: ReadPoint,
    ) -> Result<Option<Slice>> {
        let mut state = GetState::new();
        state.cover(sources.covering(key, point.seq));
        for version in versions.iter().filter(|version| version.seq <= point.seq) {
            if state.offer(version.seq, version.kind, || Slice::from(&*version.value)) == Flow::Done {
                break;
            }
        }
        let resolver = self.audit.keyspace.resolver();
        // Values come from the files, and the cache stays as it is.
        state.follow(key, &resolver, ValueRead::Check)?;
        state.finish(key, &resolver, || point.micros)
    }
}

/// Returns the files of `tree` that are not at the same place in `other`.
fn changed_files<'a>(tree: &'a Tree, other: &'a Tree) -> impl Iterator<Item = &'a Arc<FileMeta>> {
    let known: BTreeSet<_> = other.files().map(|(level, run, f)| (level, run.id, Arc::as_ptr(f))).collect();
    let changed = move |(level, run, f): &(u8, &Arc<Run>, &'a Arc<FileMeta>)| {
        !known.contains(&(*level, run.id, Arc::as_ptr(f)))
    };
    tree.files().filter(changed).map(|(_, _, f)| f)
}

/// Checks the versions of one key, given newest first: no version in an upper place is older than one in a lower place.
fn check_recency(versions: &[AuditVersion]) -> Result<()> {
    for pair in versions.windows(2) {
        if pair[0].place > pair[1].place {
            let ([above, below], [newer, older]) =
                ([pair[1].place - 1, pair[0].place - 1], [pair[0].seq, pair[1].seq]);
            let what = format!("level {below} holds #{newer} of a key that has #{older} in level {above}");
            return Err(bug(what));
        }
    }
    Ok(())
}

/// All versions of a tree and of memtables above it.
struct AllVersions {
    sources: Vec<AuditSource>,
    /// Current keys of the sources, with the numbers of the sources.
    heads: BTreeSet<(Vec<u8>, usize)>,
    /// Numbers of the sources that have range tombstones.
    covering: Vec<usize>,
}

impl AllVersions {
    fn new(mut sources: Vec<AuditSource>) -> Result<AllVersions> {
        let mut heads = BTreeSet::new();
        for (number, source) in sources.iter_mut().enumerate() {
            source.cursor.seek_first()?;
            if source.cursor.valid() {
                heads.insert((source.cursor.key().to_vec(), number));
            }
        }
        let covering = (0..sources.len()).filter(|i| !sources[*i].tombstones.is_empty()).collect();
        Ok(AllVersions { sources, heads, covering })
    }

    fn least(&self) -> Option<Vec<u8>> {
        self.heads.first().map(|(key, _)| key.clone())
    }

    /// Takes the versions of `key`, newest first.
    fn take(&mut self, key: &[u8]) -> Result<Vec<AuditVersion>> {
        let mut versions = Vec::new();
        while let Some((head, number)) = self.heads.pop_first() {
            if head != key {
                self.heads.insert((head, number));
                break;
            }
            let AuditSource { place, cursor, .. } = &mut self.sources[number];
            while cursor.valid() && cursor.key() == key {
                let (seq, kind, value) = (cursor.seq(), cursor.kind(), cursor.value().to_vec());
                versions.push(AuditVersion { place: *place, seq, kind, value });
                cursor.next()?;
            }
            if cursor.valid() {
                self.heads.insert((cursor.key().to_vec(), number));
            }
        }
        versions.sort_by_key(|version| std::cmp::Reverse(version.seq));
        Ok(versions)
    }

    /// Returns the newest range tombstone over `key` that is visible at `seq`; 0 for none.
    fn covering(&self, key: &[u8], seq: Seq) -> Seq {
        let sources = self.covering.iter().map(|number| &self.sources[*number]);
        let over = sources.filter(|source| source.bounds.contains(key));
        over.map(|source| source.tombstones.covering(key, seq)).max().unwrap_or(0)
    }
}

/// Returns whether two lists hold the same versions, regardless of their places.
fn same_versions(a: &[AuditVersion], b: &[AuditVersion]) -> bool {
    let content = |v: &AuditVersion| (v.seq, v.kind);
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| content(a) == content(b) && a.value == b.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version((place, seq): (usize, Seq)) -> AuditVersion {
        AuditVersion { place, seq, kind: Kind::Put, value: Vec::new() }
    }

    #[test]
    fn recency_is_judged_between_places_only() {
        let judge = |versions: &[(usize, Seq)]| {
            check_recency(&versions.iter().copied().map(version).collect::<Vec<_>>()).is_ok()
        };
        assert!(judge(&[]));
        assert!(judge(&[(1, 9), (1, 7), (3, 5), (7, 1)]));
        assert!(judge(&[(0, 9), (1, 8)]));
        assert!(!judge(&[(3, 9), (1, 7)]));
        assert!(!judge(&[(1, 9), (3, 7), (2, 5)]));
    }
}
