//! Point lookups: the search order over memtables and levels, and the state that collects the versions of one key.
//!
//! Order of a lookup:
//! 1. Memtables, newest first. All versions in one are newer than those in the next.
//! 2. Levels, from the top: in each run, the one file whose bounds contain the key. The runs of a level are not
//!    ordered by age. The lookup therefore visits their files by descending maximum sequence number. It leaves a level
//!    early only when the *newest base* is newer than anything that the remaining files can hold. The newest base is
//!    the newest version found that ends the history of the key: a put, a deletion or a range tombstone.
//! 3. A level or memtable that raises the newest base is the last one visited: by the recency invariant everything
//!    below is older. Operands alone do not end the search.
//!
//! [`GetState`] accepts versions in any order of sources and sorts them by sequence number at the end. Runs whose
//! ages interleave can hold operands newer and older than another run's put; both give the correct result.

use crate::base::error::Result;
use crate::base::resolve::{Meaning, Resolver, ValueRead};
use crate::base::slice::Slice;
use drumlin_types::{Kind, Seq, bug};
use std::cell::LazyCell;
use std::cmp::Reverse;

/// Whether a source must continue with older versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// Older versions may matter.
    Continue,
    /// No older version of this source matters.
    Done,
}

/// Memtable or file, as a point lookup uses it.
pub(crate) trait Source {
    /// Returns the largest sequence number of any version in it, including range tombstones.
    fn max_seq(&self) -> Seq;

    /// Prefetches what `lookup` reads first for a key with `hash`, so that several sources wait for memory at the same
    /// time.
    fn prefetch(&self, hash: u64) {
        let _ = hash;
    }

    /// Passes the newest range tombstone over `key` to `state`, then the versions of `key`, newest first, until
    /// `state` returns [`Flow::Done`]. Passes nothing newer than `snapshot`. `hash` is the key's hash for filters.
    fn lookup(&self, key: &[u8], hash: u64, snapshot: Seq, state: &mut GetState) -> Result<()>;
}

impl<S: Source + ?Sized> Source for &S {
    fn max_seq(&self) -> Seq {
        (**self).max_seq()
    }

    fn prefetch(&self, hash: u64) {
        (**self).prefetch(hash);
    }

    fn lookup(&self, key: &[u8], hash: u64, snapshot: Seq, state: &mut GetState) -> Result<()> {
        (**self).lookup(key, hash, snapshot, state)
    }
}

/// Versions of one key that a lookup has found.
///
/// Invariant: versions older than `newest_base` do not matter. `base` is the version at `newest_base`, or `None` if
/// that is a deletion or a range tombstone.
#[derive(Default)]
pub(crate) struct GetState {
    /// Sequence number of the newest version that ends the history of the key; 0 for none.
    newest_base: Seq,
    base: Option<(Kind, Slice)>,
    operands: Vec<(Seq, Kind, Slice)>,
}

impl GetState {
    /// Creates an empty state.
    pub(crate) fn new() -> GetState {
        GetState::default()
    }

    /// Adds a version that the snapshot sees. Calls `value` only if the version matters so far.
    pub(crate) fn offer(&mut self, seq: Seq, kind: Kind, value: impl FnOnce() -> Slice) -> Flow {
        if seq < self.newest_base {
            return Flow::Done;
        }
        match kind {
            Kind::Merge | Kind::MergeExpiring => {
                self.operands.push((seq, kind, value()));
                return Flow::Continue;
            }
            Kind::Delete | Kind::DeleteRange => self.base = None,
            Kind::Put | Kind::PutExpiring | Kind::PutPointer => self.base = Some((kind, value())),
        }
        self.newest_base = seq;
        Flow::Done
    }

    /// Adds a range tombstone over the key that the snapshot sees. It hides versions older than `seq`. 0 means that
    /// there is none.
    pub(crate) fn cover(&mut self, seq: Seq) {
        if seq > self.newest_base {
            self.newest_base = seq;
            self.base = None;
        }
    }

    /// Returns the number of operands found so far.
    pub(crate) fn operands(&self) -> usize {
        self.operands.len()
    }

    /// Removes the operands offered last, so that the first `operands` remain.
    pub(crate) fn take_back(&mut self, operands: usize) {
        self.operands.truncate(operands);
    }

    /// Returns whether a put, a deletion or a range tombstone was found. Older versions no longer matter then.
    pub(crate) fn has_base(&self) -> bool {
        self.newest_base > 0
    }

    /// Returns whether a version with this sequence number is hidden.
    pub(crate) fn hides(&self, seq: Seq) -> bool {
        seq < self.newest_base
    }

    /// Returns whether any version was found.
    pub(super) fn has_hit(&self) -> bool {
        self.has_base() || !self.operands.is_empty()
    }

    /// Returns whether a source that holds nothing newer than `max_seq` can be skipped.
    pub(super) fn outweighs(&self, max_seq: Seq) -> bool {
        self.newest_base > max_seq
    }

    /// Returns the value pointer that was found, and its sequence number.
    pub(crate) fn pointer(&self) -> Option<(Seq, &[u8])> {
        let (_, pointer) = self.base.as_ref().filter(|(kind, _)| *kind == Kind::PutPointer)?;
        Some((self.newest_base, pointer))
    }

    /// Replaces the value pointer by the value that it refers to.
    pub(crate) fn resolve(&mut self, value: Slice) {
        self.base = Some((Kind::Put, value));
    }

    /// Replaces a value pointer by the value that it refers to. The caller holds the tree with the pointer.
    #[inline]
    pub(crate) fn follow(
        &mut self,
        key: &[u8],
        resolver: &Resolver<'_>,
        purpose: ValueRead<'_>,
    ) -> Result<()> {
        if let Some((kind @ Kind::PutPointer, value)) = &mut self.base {
            (*kind, *value) = (Kind::Put, resolver.follow(key, self.newest_base, value, purpose)?);
        }
        Ok(())
    }

    /// Returns whether `key` has a value. `now` is as for [`finish`](GetState::finish).
    pub(crate) fn exists(
        self,
        key: &[u8],
        resolver: &Resolver<'_>,
        now: impl FnOnce() -> u64,
    ) -> Result<bool> {
        if !self.operands.is_empty() {
            return Ok(self.finish(key, resolver, now)?.is_some());
        }
        let Some((kind, value)) = &self.base else { return Ok(false) };
        Ok(matches!(Meaning::of(*kind, value, now)?, Meaning::Value { .. } | Meaning::Pointer))
    }

    /// Returns the value of `key`, if it has one. `now` returns microseconds since the Unix epoch. It is called at
    /// most once, and only if a version has an expiry.
    pub(crate) fn finish(
        mut self,
        key: &[u8],
        resolver: &Resolver<'_>,
        now: impl FnOnce() -> u64,
    ) -> Result<Option<Slice>> {
        let time = LazyCell::new(now);
        let base = match self.base {
            None => None,
            Some((kind, value)) => match Meaning::of(kind, &value, || *time)? {
                Meaning::Value { skip } => Some(value.skip(skip)),
                Meaning::Pointer => {
                    Some(resolver.follow(key, self.newest_base, &value, ValueRead::Lookup)?)
                }
                Meaning::Deleted | Meaning::Operand { .. } | Meaning::ExpiredOperand => None,
            },
        };
        if self.operands.is_empty() {
            return Ok(base);
        }
        self.operands.retain(|(seq, ..)| *seq > self.newest_base);
        self.operands.sort_unstable_by_key(|(seq, ..)| *seq);
        let mut living: Vec<&[u8]> = Vec::with_capacity(self.operands.len());
        for (_, kind, operand) in &self.operands {
            if let Meaning::Operand { skip } = Meaning::of(*kind, operand, || *time)? {
                living.push(&operand[skip..]);
            }
        }
        if living.is_empty() {
            return Ok(base);
        }
        resolver.merge(key, base.as_deref(), &living).map(Some)
    }
}

/// Looks up `key` in `memtables`, newest first, then in `levels`, from the top. Each level consists of the files
/// whose bounds contain `key`, at most one per run, in any order.
pub(crate) fn get<M: Source, F: Source>(
    key: &[u8],
    hash: u64,
    snapshot: Seq,
    memtables: impl IntoIterator<Item = M>,
    levels: impl IntoIterator<Item = impl IntoIterator<Item = F>>,
) -> Result<GetState> {
    get_with(key, hash, snapshot, memtables, levels, may_stop)
}

/// Looks up several keys by the same rules in one pass over memtables and files. It visits each file once, with all
/// the keys that need it. `keys` are in key order, with their hashes. Each of `levels` returns its files for the keys
/// still unresolved. A file comes with its largest sequence number and the keys that lie in its bounds.
pub(crate) fn get_many<M: Source, F: Copy, L>(
    keys: &[(&[u8], u64)],
    snapshot: Seq,
    memtables: &[M],
    levels: impl Iterator<Item = L>,
    lookup: impl Fn((F, usize), &mut GetState) -> Result<()>,
) -> Result<Vec<GetState>>
where
    L: FnOnce(&[usize]) -> Vec<(Seq, F, Vec<usize>)>,
{
    let mut states: Vec<GetState> = keys.iter().map(|_| GetState::new()).collect();
    let mut open: Vec<usize> = (0..keys.len()).collect();
    for memtable in memtables {
        for &i in &open {
            memtable.lookup(keys[i].0, keys[i].1, snapshot, &mut states[i])?;
        }
        open.retain(|&i| !states[i].has_base());
    }
    for files_of in levels {
        if open.is_empty() {
            break;
        }
        let mut files = files_of(&open);
        files.sort_by_key(|(max_seq, ..)| Reverse(*max_seq));
        for (max_seq, file, wanted) in files {
            for i in wanted {
                if !may_stop(&states[i], max_seq) {
                    lookup((file, i), &mut states[i])?;
                }
            }
        }
        open.retain(|&i| !states[i].has_base());
    }
    Ok(states)
}

/// Returns whether the lookup can leave a level whose remaining files hold nothing newer than `max_seq`.
fn may_stop(state: &GetState, max_seq: Seq) -> bool {
    state.outweighs(max_seq) || (bug!("get-stops-at-first-hit") && state.has_hit())
}

/// Runs [`get`] with the caller's rule for leaving a level early.
pub(super) fn get_with<M: Source, F: Source>(
    key: &[u8],
    hash: u64,
    snapshot: Seq,
    memtables: impl IntoIterator<Item = M>,
    levels: impl IntoIterator<Item = impl IntoIterator<Item = F>>,
    may_stop: impl Fn(&GetState, Seq) -> bool,
) -> Result<GetState> {
    let mut state = GetState::new();
    for memtable in memtables {
        memtable.lookup(key, hash, snapshot, &mut state)?;
        if state.has_base() {
            return Ok(state);
        }
    }
    let mut files: Vec<F> = Vec::new();
    for level in levels {
        // Most levels offer at most one file and need no list.
        let mut level = level.into_iter();
        let (Some(first), second) = (level.next(), level.next()) else { continue };
        let Some(second) = second else {
            if !may_stop(&state, first.max_seq()) {
                first.lookup(key, hash, snapshot, &mut state)?;
            }
            if state.has_base() {
                break;
            }
            continue;
        };
        files.extend([first, second]);
        files.extend(level);
        files.iter().for_each(|file| file.prefetch(hash));
        files.sort_unstable_by_key(|file| Reverse(file.max_seq()));
        for file in files.drain(..) {
            if may_stop(&state, file.max_seq()) {
                break;
            }
            file.lookup(key, hash, snapshot, &mut state)?;
        }
        if state.has_base() {
            break;
        }
    }
    Ok(state)
}
