//! Point lookups: the level rule, and the state that collects the versions of one key.
//!
//! How a lookup goes:
//! 1. Memtables, newest first. All versions in one are newer than those in the next.
//! 2. Level by level, the top one first: of each run the one file whose bounds hold the key. Runs of a level
//!    are in no age order, so its files are visited by falling largest sequence number, and the level
//!    is left early only when the *floor*, the newest version found that ends the history of the key, is
//!    newer than anything that the files not yet visited can hold.
//! 3. A level (or memtable) that raised the floor is the last one: by the recency invariant everything below
//!    is older. Operands alone do not end the search.
//!
//! [`GetState`] takes versions in any order of sources and orders them by sequence number at the end. Runs
//! whose ages interleave can hold operands above and below another run's put; both come out right.

use super::resolve::{Meaning, Resolver};
use crate::error::Result;
use crate::slice::Slice;
use drumlin_types::{Kind, Seq, bug};
use std::cmp::Reverse;

/// Whether a source need go on to offer older versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// Older versions may matter.
    Continue,
    /// No older version of this source matters.
    Done,
}

/// A memtable, or a file of a level, as a lookup sees it.
pub(crate) trait Source {
    /// Largest sequence number of any version in it, range tombstones included.
    fn max_seq(&self) -> Seq;

    /// Gives `state` the newest range tombstone over `key`, and then the versions of `key`, newest first,
    /// until it says [`Flow::Done`]; all of them no newer than `snapshot`. `hash` is the key's hash for
    /// filters.
    fn lookup(&self, key: &[u8], hash: u64, snapshot: Seq, state: &mut GetState) -> Result<()>;
}

impl<S: Source + ?Sized> Source for &S {
    fn max_seq(&self) -> Seq {
        (**self).max_seq()
    }

    fn lookup(&self, key: &[u8], hash: u64, snapshot: Seq, state: &mut GetState) -> Result<()> {
        (**self).lookup(key, hash, snapshot, state)
    }
}

/// The versions of one key that a lookup has found.
///
/// Invariant: versions older than `floor` do not matter; `base` is the version at `floor`, or `None` when
/// that is a deletion or a range tombstone.
#[derive(Default)]
pub(crate) struct GetState {
    floor: Seq,
    base: Option<(Kind, Slice)>,
    operands: Vec<(Seq, Slice)>,
}

impl GetState {
    /// Nothing found yet.
    pub(crate) fn new() -> GetState {
        GetState::default()
    }

    /// Takes a version that the snapshot sees. `value` is called only if the version matters so far.
    pub(crate) fn offer(&mut self, seq: Seq, kind: Kind, value: impl FnOnce() -> Slice) -> Flow {
        if seq < self.floor {
            return Flow::Done;
        }
        match kind {
            Kind::Merge => {
                self.operands.push((seq, value()));
                return Flow::Continue;
            }
            Kind::Delete | Kind::DeleteRange => self.base = None,
            Kind::Put | Kind::PutExpiring | Kind::PutPointer => self.base = Some((kind, value())),
        }
        self.floor = seq;
        Flow::Done
    }

    /// Takes a range tombstone over the key that the snapshot sees: versions older than `seq` are hidden. 0
    /// stands for "none".
    pub(crate) fn cover(&mut self, seq: Seq) {
        if seq > self.floor {
            self.floor = seq;
            self.base = None;
        }
    }

    /// Whether a put, a deletion or a range tombstone was found: older versions no longer matter.
    pub(crate) fn is_settled(&self) -> bool {
        self.floor > 0
    }

    /// Whether any version at all was found.
    pub(super) fn has_hit(&self) -> bool {
        self.is_settled() || !self.operands.is_empty()
    }

    /// Whether a source that holds nothing newer than `max_seq` can be left out.
    pub(super) fn outweighs(&self, max_seq: Seq) -> bool {
        self.floor > max_seq
    }

    /// The value of `key`, if it has one. `now` gives microseconds since the Unix epoch.
    pub(crate) fn finish(
        mut self,
        key: &[u8],
        resolver: &Resolver<'_>,
        now: impl FnOnce() -> u64,
    ) -> Result<Option<Slice>> {
        let base = match self.base {
            None => None,
            Some((kind, value)) => match Meaning::of(kind, &value, now)? {
                Meaning::Value { skip } => Some(value.skip(skip)),
                Meaning::Pointer => Some(resolver.follow(key, &value)?),
                Meaning::Absent | Meaning::Operand => None,
            },
        };
        self.operands.retain(|(seq, _)| *seq > self.floor);
        if self.operands.is_empty() {
            return Ok(base);
        }
        self.operands.sort_unstable_by_key(|(seq, _)| *seq);
        let operands: Vec<&[u8]> = self.operands.iter().map(|(_, operand)| &**operand).collect();
        resolver.merge(key, base.as_deref(), &operands).map(Some)
    }
}

/// Looks `key` up: in `memtables`, newest first, then in `levels`, the top one first, each given as the
/// files, one per run at most, whose bounds hold `key`, in any order.
pub(crate) fn get<M: Source, F: Source>(
    key: &[u8],
    hash: u64,
    snapshot: Seq,
    memtables: impl IntoIterator<Item = M>,
    levels: impl IntoIterator<Item = impl IntoIterator<Item = F>>,
) -> Result<GetState> {
    get_with(key, hash, snapshot, memtables, levels, may_stop)
}

/// Looks several keys up, by the same rules, in one pass over memtables and files: each file is visited once, with all
/// the keys that want it. `keys` are in key order, with their hashes. Each of `levels` gives, for the keys that are
/// still open, its files with their largest sequence numbers and those of the keys that lie in their bounds.
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
        open.retain(|&i| !states[i].is_settled());
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
        open.retain(|&i| !states[i].is_settled());
    }
    Ok(states)
}

/// Whether a level whose unvisited files hold nothing newer than `max_seq` can be left.
fn may_stop(state: &GetState, max_seq: Seq) -> bool {
    state.outweighs(max_seq) || (bug!("E5") && state.has_hit())
}

/// [`get`] with the rule for leaving a level early given by the caller.
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
        if state.is_settled() {
            return Ok(state);
        }
    }
    let mut files: Vec<F> = Vec::new();
    for level in levels {
        // Most levels offer one file at most, and need no list.
        let mut level = level.into_iter();
        let (Some(first), second) = (level.next(), level.next()) else { continue };
        let Some(second) = second else {
            if !may_stop(&state, first.max_seq()) {
                first.lookup(key, hash, snapshot, &mut state)?;
            }
            if state.is_settled() {
                break;
            }
            continue;
        };
        files.extend([first, second]);
        files.extend(level);
        files.sort_unstable_by_key(|file| Reverse(file.max_seq()));
        for file in files.drain(..) {
            if may_stop(&state, file.max_seq()) {
                break;
            }
            file.lookup(key, hash, snapshot, &mut state)?;
        }
        if state.is_settled() {
            break;
        }
    }
    Ok(state)
}
