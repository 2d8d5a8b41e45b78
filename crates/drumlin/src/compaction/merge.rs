//! Which entries survive a compaction.
//!
//! The input is a cursor over all input entries of one key range, in internal order: the versions of a user key come
//! newest first. Snapshots divide the sequence numbers into *stripes*. Two versions in one stripe are visible to the
//! same snapshots, so the newer one hides the older one.
//!
//! 1. The newest version of a stripe survives; older ones of the stripe are dropped.
//! 2. A version under a newer range tombstone of the same stripe is dropped.
//! 3. A tombstone is dropped when no snapshot is older than it and no file outside the inputs holds an older version of
//!    its key ([`DropGuard`]).
//! 4. A value that has expired for all its readers counts as a tombstone with the same sequence number. An expired
//!    operand is dropped.
//! 5. Merge operands of one stripe are merged into their base value under three conditions: the base is among the
//!    inputs, or nothing older exists; it has the same expiry time; and the inputs are contiguous in age for the key. A
//!    base in a value file is read for that.
//!    Of the other operands, neighbours with the same expiry time are combined by partial merge, if the operator has
//!    one and the inputs are contiguous ([`operands`]). All other operands and their base stay as they are. After a few
//!    panics of the operator a job no longer calls it.
//!
//! Every entry that is read is either emitted or counted as dropped, by reason. Older versions with large values that a
//! newer large value hides are reported too, for the write history of their key.

mod operands;
#[cfg(test)]
mod tests;

use crate::base::cursor::Cursor;
use crate::base::error::Result;
use crate::base::merge_operator::MergeOperator;
use crate::base::metrics::MergeCounts;
use crate::base::rangedel::{Fragmented, RangeTombstone};
use crate::base::resolve::{Meaning, PointerReader, ValueRead};
use crate::base::snapshots::Readers;
use crate::value::Superseded;
use drumlin_env::sync::Arc;
use drumlin_format::value::ValuePointer;
use drumlin_policy::lifetime::history::{Version, fold};
use drumlin_types::contract::legal::DropGuard;
use drumlin_types::{Kind, Seq, bug};
use operands::{Base, OperandMerger, Owned};
use std::collections::VecDeque;

/// Rules that decide which entries survive.
pub(crate) struct MergeRules {
    /// Readers of the surviving entries: snapshots and the current time.
    pub(crate) readers: Readers,
    /// Files outside the inputs, which may hold older versions.
    pub(crate) guard: DropGuard,
    /// The keyspace's merge operator.
    pub(crate) operator: Option<Arc<dyn MergeOperator>>,
    /// Reads values that operands are merged into from value files.
    pub(crate) bases: Option<BaseReader>,
    /// Range tombstones of the inputs, clipped to the key range.
    pub(crate) tombstones: Fragmented,
    /// Length from which on a value is large, so that the history of its key is kept.
    pub(crate) large: u64,
}

/// Reads base values of merges from value files.
pub(crate) struct BaseReader {
    pub(crate) read: Arc<PointerReader>,
    /// Bytes that may still be read; the last value may exceed them. No disk space is reserved for the results, and the
    /// old values are freed after the results are written.
    pub(crate) left: u64,
}

impl MergeRules {
    /// Returns the meaning of a version of `stripe` to the first of its readers.
    fn meaning(&self, kind: Kind, value: &[u8], stripe: usize) -> Result<Meaning> {
        let horizon = || match bug!("expire-before-snapshot") {
            false => self.readers.horizon(stripe),
            true => self.readers.now_micros,
        };
        Meaning::of(kind, value, horizon)
    }

    /// Returns whether a range tombstone of the same stripe hides (`key`, `seq`).
    fn is_covered(&self, key: &[u8], seq: Seq, stripe: usize) -> bool {
        self.cover(key, stripe) > seq
    }

    /// Returns the newest range tombstone over `key` in a stripe; 0 for none.
    fn cover(&self, key: &[u8], stripe: usize) -> Seq {
        if self.tombstones.is_empty() {
            return 0;
        }
        self.tombstones.covering(key, self.readers.newest_in(stripe))
    }

    /// Returns whether a tombstone of `key` at `seq` may be dropped.
    fn may_drop_tombstone(&self, key: &[u8], seq: Seq, stripe: usize) -> bool {
        stripe == 0 && (self.guard.is_bottom(key, seq) || bug!("drop-tombstone-above-bottom"))
    }

    /// Returns the range tombstones that must be kept, sorted by start: over each key the newest of each stripe.
    pub(crate) fn surviving_tombstones(&self) -> Vec<RangeTombstone> {
        let mut kept: Vec<RangeTombstone> = Vec::new();
        // Indexes in `kept` of the tombstones over the previous fragment, newest first.
        let mut before: Vec<usize> = Vec::new();
        for (fragment, range) in self.tombstones.fragments() {
            let mut here = Vec::new();
            let mut reach = before.iter().copied().peekable();
            let mut snapshot = Some(Seq::MAX);
            while let Some(seen) = snapshot {
                let seq = self.tombstones.newest(fragment, seen);
                if seq == 0 {
                    break;
                }
                let stripe = self.readers.stripe(seq);
                snapshot = stripe.checked_sub(1).map(|older| self.readers.newest_in(older));
                if stripe == 0 && self.guard.oldest_in(&range) >= seq {
                    break;
                }
                while reach.next_if(|&place| kept[place].seq > seq).is_some() {}
                match reach.next_if(|&place| kept[place].seq == seq) {
                    Some(place) => {
                        kept[place].range.end = range.end.clone();
                        here.push(place);
                    }
                    None => {
                        here.push(kept.len());
                        kept.push(RangeTombstone { range: range.clone(), seq });
                    }
                }
            }
            before = here;
        }
        kept
    }
}

/// How the dropped versions of a stripe are recorded for the statistics of value lifetimes.
#[derive(Clone, Copy, PartialEq)]
enum Heir {
    /// They are not recorded.
    None,
    /// In the write history of the large value that was returned last.
    Value,
    /// As one lifetime: the newest large value among them lived until the tombstone with this sequence number.
    Tombstone(Seq),
}

/// Position of the stream.
#[derive(Clone, Copy, PartialEq)]
enum At {
    /// Nothing yet, or the end.
    Nothing,
    /// The cursor's entry, unchanged.
    Input,
    /// The cursor's entry, turned into a tombstone.
    Expired,
    /// The front of the queue of rewritten entries.
    Queue,
}

/// Number of entries dropped one after another after which [`MergeStream::advance`] returns without an entry, so that
/// its caller can stop in between.
const MOST_SKIPPED: u64 = 16_384;

/// Result of [`MergeStream::advance`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Advanced {
    /// The stream is on an entry.
    Entry,
    /// Entries were dropped. More may follow.
    Skipped,
    End,
}

/// The surviving entries of a compaction, in internal order.
pub(crate) struct MergeStream<C> {
    input: C,
    rules: MergeRules,
    counts: MergeCounts,
    key: Vec<u8>,
    has_key: bool,
    /// Stripe of the newest version of the current key that hides older versions of its stripe.
    hiding: Option<usize>,
    /// How dropped versions of the stripe are recorded.
    heir: Heir,
    superseded: Vec<Superseded>,
    ended: Vec<Seq>,
    queue: VecDeque<Owned>,
    at: At,
}

impl<C: Cursor> MergeStream<C> {
    /// Creates a stream over `input`, which must be on the first entry of the range or at its end.
    pub(crate) fn new(input: C, rules: MergeRules) -> MergeStream<C> {
        MergeStream {
            input,
            rules,
            counts: MergeCounts::default(),
            key: Vec::new(),
            has_key: false,
            hiding: None,
            heir: Heir::None,
            superseded: Vec::new(),
            ended: Vec::new(),
            queue: VecDeque::new(),
            at: At::Nothing,
        }
    }

    pub(crate) fn counts(&self) -> MergeCounts {
        self.counts
    }

    /// Returns the number of input entries read so far.
    #[inline]
    pub(crate) fn read(&self) -> u64 {
        self.counts.read
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(crate) fn seq(&self) -> Seq {
        match self.at {
            At::Queue => self.queue[0].seq,
            _ => self.input.seq(),
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self.at {
            At::Queue => self.queue[0].kind,
            At::Expired => Kind::Delete,
            _ => self.input.kind(),
        }
    }

    /// Returns whether the entry comes from a warm block. Entries that were rewritten count as cold.
    #[inline]
    pub(crate) fn is_warm(&self) -> bool {
        matches!(self.at, At::Input) && self.input.is_warm()
    }

    pub(crate) fn value(&self) -> &[u8] {
        match self.at {
            At::Queue => &self.queue[0].value,
            At::Expired => &[],
            _ => self.input.value(),
        }
    }

    /// Returns the older versions with large values that the last call of [`advance`](Self::advance) dropped, because
    /// the previously returned entry hides them.
    #[inline]
    pub(crate) fn superseded(&self) -> &[Superseded] {
        &self.superseded
    }

    /// Returns the lifetimes, in sequence numbers, of large values that the last call of [`advance`](Self::advance)
    /// dropped below a tombstone.
    #[inline]
    pub(crate) fn ended(&self) -> &[Seq] {
        &self.ended
    }

    /// Returns whether [`superseded`](Self::superseded) or [`ended`](Self::ended) returns anything.
    #[inline]
    pub(crate) fn has_dropped(&self) -> bool {
        !self.superseded.is_empty() || !self.ended.is_empty()
    }

    /// Moves to the next surviving entry, or ends after [`MOST_SKIPPED`] entries that were dropped.
    pub(crate) fn advance(&mut self) -> Result<Advanced> {
        self.superseded.clear();
        self.ended.clear();
        match self.at {
            At::Queue => {
                self.queue.pop_front();
            }
            At::Input | At::Expired => self.step()?,
            At::Nothing => {}
        }
        self.at = At::Nothing;
        let until = self.counts.read + MOST_SKIPPED;
        loop {
            if !self.queue.is_empty() {
                self.at = At::Queue;
                break;
            }
            if !self.input.valid() {
                return Ok(Advanced::End);
            }
            if self.judge()? {
                break;
            }
            if self.counts.read >= until && self.queue.is_empty() {
                return Ok(Advanced::Skipped);
            }
        }
        self.counts.written += 1;
        Ok(Advanced::Entry)
    }

    fn step(&mut self) -> Result<()> {
        self.counts.read += 1;
        self.input.next()
    }

    /// Decides about the entry under the cursor. Returns `true` if the stream is now on it, and `false` if it was
    /// consumed.
    fn judge(&mut self) -> Result<bool> {
        if !self.has_key || self.key != self.input.key() {
            self.key.clear();
            self.key.extend_from_slice(self.input.key());
            self.has_key = true;
            self.hiding = None;
            self.heir = Heir::None;
        }
        let seq = self.input.seq();
        let stripe = self.rules.readers.stripe(seq);
        if self.hiding == Some(stripe) {
            self.counts.superseded += 1;
            if self.heir != Heir::None {
                self.note_superseded(seq, stripe);
            }
            self.step()?;
            return Ok(false);
        }
        // This version is not hidden, so dropped versions below it do not belong to the previous heir.
        self.heir = Heir::None;
        if self.rules.is_covered(&self.key, seq, stripe) {
            self.hiding = Some(stripe);
            return self.drop_entry();
        }
        let kind = self.input.kind();
        let meaning = self.rules.meaning(kind, self.input.value(), stripe)?;
        match meaning {
            Meaning::ExpiredOperand => return self.drop_entry(),
            Meaning::Operand { .. } if self.rules.operator.is_some() => {
                self.merge_operands(stripe)?;
                return Ok(false);
            }
            Meaning::Operand { .. } => {}
            _ => self.hiding = Some(stripe),
        }
        if self.is_large(kind) {
            self.heir = Heir::Value;
        } else if kind == Kind::Delete && self.rules.large < u64::MAX {
            self.heir = Heir::Tombstone(seq);
        }
        let is_absent = meaning == Meaning::Deleted;
        if is_absent && self.rules.may_drop_tombstone(&self.key, seq, stripe) {
            self.counts.obsolete_tombstones += u64::from(kind == Kind::Delete);
            return self.drop_entry();
        }
        self.at = if is_absent && kind != Kind::Delete { At::Expired } else { At::Input };
        Ok(true)
    }

    /// Returns whether the entry under the cursor is a value that is, or will be, in a value file.
    #[inline]
    fn is_large(&self, kind: Kind) -> bool {
        match kind {
            Kind::PutPointer => true,
            // Stores that separate no values skip the call to the cursor.
            Kind::Put => self.rules.large < u64::MAX && self.input.value().len() as u64 >= self.rules.large,
            _ => false,
        }
    }

    /// Notes the dropped version under the cursor: for the history of the value that hides it, or as a lifetime that a
    /// tombstone ended. A tombstone ends a history.
    fn note_superseded(&mut self, seq: Seq, stripe: usize) {
        let kind = self.input.kind();
        if kind == Kind::Delete || self.rules.is_covered(&self.key, seq, stripe) {
            self.heir = Heir::None;
            return;
        }
        if !self.is_large(kind) {
            return;
        }
        if let Heir::Tombstone(end) = self.heir {
            self.ended.push(end.saturating_sub(seq));
            self.heir = Heir::None;
            return;
        }
        // A damaged pointer in a dropped version does not fail the compaction.
        let pointer = || ValuePointer::decode(self.input.value()).ok();
        let history = (kind == Kind::PutPointer).then(pointer).flatten().and_then(|pointer| pointer.history);
        let is_full = self.superseded.len() >= MOST_SUPERSEDED;
        match self.superseded.last_mut().filter(|_| is_full) {
            Some(last) => {
                let newer = Version { seq: last.seq, history: last.history.as_ref() };
                last.history = Some(fold(newer, Version { seq, history: history.as_ref() }));
            }
            None => self.superseded.push(Superseded { seq, history }),
        }
    }

    /// Drops the entry under the cursor, which no reader needs.
    fn drop_entry(&mut self) -> Result<bool> {
        self.counts.deleted += 1;
        self.step()?;
        Ok(false)
    }

    /// Takes the operands of this stripe and their base, and queues the entries that survive.
    fn merge_operands(&mut self, stripe: usize) -> Result<()> {
        let mut operands: Vec<Owned> = Vec::new();
        let mut base = Base::Unknown;
        let newest = self.input.seq();
        let mut oldest;
        let mut combine_at = COMBINED_FROM;
        // Entries taken from the input. Those that stay are counted when they are written; the difference counts as
        // merged.
        let mut taken = 0;
        loop {
            let cover = self.rules.cover(&self.key, stripe);
            if cover > self.input.seq() {
                // The base of the operands is the tombstone: an older version may lie outside the inputs.
                base = Base::None(None);
                oldest = cover;
                break;
            }
            oldest = self.input.seq();
            let kind = self.input.kind();
            let meaning = self.rules.meaning(kind, self.input.value(), stripe)?;
            if meaning == Meaning::ExpiredOperand {
                self.drop_entry()?;
            } else {
                let entry = Owned { seq: oldest, kind, value: self.input.value().to_vec() };
                self.step()?;
                taken += 1;
                match meaning {
                    Meaning::Operand { .. } => operands.push(entry),
                    Meaning::Value { .. } => base = Base::Value(entry),
                    Meaning::Pointer => base = Base::Pointer(entry),
                    Meaning::Deleted | Meaning::ExpiredOperand => {
                        let tombstone = Owned { kind: Kind::Delete, value: Vec::new(), ..entry };
                        base = Base::None(Some(tombstone));
                    }
                }
                if !matches!(meaning, Meaning::Operand { .. }) {
                    break;
                }
            }
            let same_key = self.input.valid() && self.input.key() == &self.key[..];
            if !same_key {
                if self.rules.guard.is_bottom(&self.key, oldest) {
                    base = Base::None(None);
                }
                break;
            }
            if self.rules.readers.stripe(self.input.seq()) != stripe {
                break;
            }
            // Combining early bounds the memory that a long chain of operands takes.
            if operands.len() >= combine_at && self.rules.guard.is_contiguous(&self.key, newest, oldest) {
                (operands, _) = self.combine(operands, Base::Unknown)?;
                combine_at = COMBINED_FROM.max(2 * operands.len());
            }
        }
        self.hiding = Some(stripe).filter(|_| !matches!(base, Base::Unknown));
        if self.rules.guard.is_contiguous(&self.key, newest, oldest) {
            (operands, base) = self.merge_into_base(operands, base)?;
        }
        if self.counts.operator_panics >= MAX_PANICS {
            self.rules.operator = None;
        }
        let below = match base {
            Base::Unknown | Base::None(None) => None,
            Base::None(Some(entry)) | Base::Value(entry) | Base::Pointer(entry) => Some(entry),
        };
        let before = self.queue.len();
        self.queue.extend(operands);
        self.queue.extend(below);
        self.counts.merged += taken - (self.queue.len() - before) as u64;
        Ok(())
    }

    /// Merges operands into `base`, which may be in a value file. If the operator refuses, the base stays there.
    fn merge_into_base(&mut self, operands: Vec<Owned>, base: Base) -> Result<(Vec<Owned>, Base)> {
        let Some(value) = self.read_base(&base, &operands) else { return self.combine(operands, base) };
        let (operands, merged) = self.combine(operands, Base::Value(value))?;
        let is_unchanged =
            matches!((&merged, &base), (Base::Value(new), Base::Pointer(old)) if new.seq == old.seq);
        Ok((operands, if is_unchanged { base } else { merged }))
    }

    /// Returns the value that a value pointer leads to if operands can be merged into it. A value that cannot be read,
    /// or whose result may find no disk space, stays where it is, and the operands stay too.
    fn read_base(&mut self, base: &Base, operands: &[Owned]) -> Option<Owned> {
        let (Base::Pointer(entry), Some(bases)) = (base, &mut self.rules.bases) else { return None };
        // The value does not expire, so only operands that do not expire are merged into it.
        if bases.left == 0 || operands.last().is_none_or(|oldest| oldest.kind != Kind::Merge) {
            return None;
        }
        let value = (bases.read)(&self.key, entry.seq, &entry.value, ValueRead::Merge).ok()?;
        bases.left = bases.left.saturating_sub(value.len() as u64);
        Some(Owned { seq: entry.seq, kind: Kind::Put, value: value.to_vec() })
    }

    /// Merges operands of the current key, newest first, into `base`, and combines the rest. Returns what is left of
    /// both.
    fn combine(&mut self, mut operands: Vec<Owned>, base: Base) -> Result<(Vec<Owned>, Base)> {
        let Some(operator) = self.rules.operator.as_deref() else { return Ok((operands, base)) };
        let merger = OperandMerger::new(operator, &self.key);
        let base = merger.merge_into(&mut operands, base)?;
        let operands = merger.combine(operands)?;
        let panicked = merger.panicked.get();
        self.counts.operator_panics += u64::from(panicked);
        Ok((operands, base))
    }
}

/// Maximum number of dropped versions of one key that are reported one by one. Older ones are folded into the history
/// of the last one.
const MOST_SUPERSEDED: usize = 256;

/// Number of panics of the operator after which a job keeps all further operands as they are.
const MAX_PANICS: u64 = 16;

/// Number of operands of one key at which they are combined before all of them are read.
const COMBINED_FROM: usize = 1024;
