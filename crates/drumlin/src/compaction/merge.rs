//! What survives a merge.
//!
//! The input is a cursor over all input entries of one key range, in internal order. Per user key the
//! versions come newest first. Snapshots cut the sequence numbers into *stripes*: two versions in one
//! stripe are seen by the same snapshots, so the newer hides the older.
//!
//! 1. The newest version of a stripe survives; older ones of the stripe are dropped.
//! 2. A version under a newer range tombstone of the same stripe is dropped.
//! 3. A tombstone is dropped when no snapshot is older than it and no file outside the inputs holds an
//!    older version of its key ([`DropGuard`]).
//! 4. An expired value counts as a tombstone with the same sequence number.
//! 5. Merge operands of one stripe are folded into a value when what they build on is among the inputs
//!    (or nothing older exists) and the inputs are contiguous in age for the key. Where that is unknown,
//!    neighbours are joined if the operator makes one operand of two and the inputs are contiguous. All others
//!    and what they build on stay as they are.
//!
//! Every entry read is either emitted or counted as dropped, by reason.

use crate::cursor::Cursor;
use crate::error::{Error, ErrorKind, Result};
use crate::merge_operator::MergeOperator;
use crate::metrics::MergeCounts;
use crate::rangedel::{Fragmented, RangeTombstone};
use drumlin_env::sync::Arc;
use drumlin_types::contract::legal::DropGuard;
use drumlin_types::{Kind, Seq, bug};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What decides survival.
pub(crate) struct MergeRules {
    /// Live snapshots, ascending.
    pub(crate) snapshots: Vec<Seq>,
    /// Unix time in microseconds, for expiry.
    pub(crate) now_micros: u64,
    /// What lies outside the inputs.
    pub(crate) guard: DropGuard,
    /// The keyspace's merge operator.
    pub(crate) operator: Option<Arc<dyn MergeOperator>>,
    /// The inputs' range tombstones, clipped to the key range.
    pub(crate) tombstones: Fragmented,
}

impl MergeRules {
    /// Number of the stripe of `seq`: how many snapshots are older than it.
    fn stripe(&self, seq: Seq) -> usize {
        self.snapshots.partition_point(|&s| s < seq)
    }

    /// Whether a range tombstone of the same stripe hides (`key`, `seq`).
    fn is_covered(&self, key: &[u8], seq: Seq, stripe: usize) -> bool {
        self.cover(key, stripe) > seq
    }

    /// The newest range tombstone over `key` in a stripe; 0 for none.
    fn cover(&self, key: &[u8], stripe: usize) -> Seq {
        if self.tombstones.is_empty() {
            return 0;
        }
        let newest_in_stripe = self.snapshots.get(stripe).copied().unwrap_or(Seq::MAX);
        self.tombstones.covering(key, newest_in_stripe)
    }

    /// Whether a tombstone of `key` at `seq` may be dropped.
    fn may_drop_tombstone(&self, key: &[u8], seq: Seq, stripe: usize) -> bool {
        stripe == 0 && (self.guard.is_bottom(key, seq) || bug!("B16"))
    }

    /// The range tombstones that must be kept, by their starts: over each key the newest of each stripe.
    pub(crate) fn surviving_tombstones(&self) -> Vec<RangeTombstone> {
        let mut kept: Vec<RangeTombstone> = Vec::new();
        // Places in `kept` of those over the fragment before, newest first.
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
                let stripe = self.stripe(seq);
                snapshot = stripe.checked_sub(1).map(|older| self.snapshots[older]);
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

struct Owned {
    seq: Seq,
    kind: Kind,
    value: Vec<u8>,
}

/// What the stream is on.
#[derive(Clone, Copy, PartialEq)]
enum At {
    /// Nothing yet, or the end.
    Nothing,
    /// The cursor's entry, as it is.
    Input,
    /// The cursor's entry, turned into a tombstone.
    Expired,
    /// The front of the queue of rewritten entries.
    Queue,
}

/// The surviving entries of a merge, in internal order.
pub(crate) struct MergeStream<C> {
    input: C,
    rules: MergeRules,
    counts: MergeCounts,
    key: Vec<u8>,
    has_key: bool,
    /// Stripe of the newest version seen of the present key that hides older ones of its stripe.
    hiding: Option<usize>,
    queue: VecDeque<Owned>,
    at: At,
}

impl<C: Cursor> MergeStream<C> {
    /// A stream over `input`, which must be on the first entry of the range or at its end.
    pub(crate) fn new(input: C, rules: MergeRules) -> MergeStream<C> {
        MergeStream {
            input,
            rules,
            counts: MergeCounts::default(),
            key: Vec::new(),
            has_key: false,
            hiding: None,
            queue: VecDeque::new(),
            at: At::Nothing,
        }
    }

    pub(crate) fn counts(&self) -> MergeCounts {
        self.counts
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

    pub(crate) fn value(&self) -> &[u8] {
        match self.at {
            At::Queue => &self.queue[0].value,
            At::Expired => &[],
            _ => self.input.value(),
        }
    }

    /// To the next surviving entry; `false` at the end.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        match self.at {
            At::Queue => {
                self.queue.pop_front();
            }
            At::Input | At::Expired => self.step()?,
            At::Nothing => {}
        }
        self.at = At::Nothing;
        loop {
            if !self.queue.is_empty() {
                self.at = At::Queue;
                break;
            }
            if !self.input.valid() {
                return Ok(false);
            }
            if self.judge()? {
                break;
            }
        }
        self.counts.written += 1;
        Ok(true)
    }

    fn step(&mut self) -> Result<()> {
        self.counts.read += 1;
        self.input.next()
    }

    /// Judges the entry under the cursor: `true` when the stream is now on it, `false` when it was
    /// consumed.
    fn judge(&mut self) -> Result<bool> {
        if !self.has_key || self.key != self.input.key() {
            self.key.clear();
            self.key.extend_from_slice(self.input.key());
            self.has_key = true;
            self.hiding = None;
        }
        let seq = self.input.seq();
        let stripe = self.rules.stripe(seq);
        if self.hiding == Some(stripe) {
            self.counts.superseded += 1;
            self.step()?;
            return Ok(false);
        }
        if self.rules.is_covered(&self.key, seq, stripe) {
            self.counts.deleted += 1;
            self.hiding = Some(stripe);
            self.step()?;
            return Ok(false);
        }
        let kind = self.input.kind();
        if kind == Kind::Merge && self.rules.operator.is_some() {
            self.fold(stripe)?;
            return Ok(false);
        }
        if kind != Kind::Merge {
            self.hiding = Some(stripe);
        }
        let expired = kind == Kind::PutExpiring && is_expired(self.input.value(), self.rules.now_micros);
        if (kind == Kind::Delete || expired) && self.rules.may_drop_tombstone(&self.key, seq, stripe) {
            self.counts.deleted += 1;
            self.step()?;
            return Ok(false);
        }
        self.at = if expired { At::Expired } else { At::Input };
        Ok(true)
    }

    /// Takes the operands of this stripe and what they build on, and queues what survives of them.
    fn fold(&mut self, stripe: usize) -> Result<()> {
        let mut group: Vec<Owned> = Vec::new();
        // What the operands build on: `None` unknown, `Some(None)` nothing, `Some(Some(i))` a value.
        let mut base: Option<Option<usize>> = None;
        let mut oldest = self.input.seq();
        let newest = oldest;
        let mut join_at = JOINED_FROM;
        loop {
            let seq = self.input.seq();
            let cover = self.rules.cover(&self.key, stripe);
            if cover > seq {
                // They build on the tombstone: a version between it and them may lie outside.
                base = Some(None);
                oldest = cover;
                break;
            }
            oldest = seq;
            let kind = self.input.kind();
            let value = self.input.value().to_vec();
            let expired = kind == Kind::PutExpiring && is_expired(&value, self.rules.now_micros);
            group.push(Owned { seq, kind, value });
            self.step()?;
            match kind {
                Kind::Merge => {}
                Kind::Put => base = Some(Some(group.len() - 1)),
                Kind::Delete => base = Some(None),
                _ if expired => base = Some(None),
                _ => {}
            }
            if kind != Kind::Merge {
                break;
            }
            let same_key = self.input.valid() && self.input.key() == &self.key[..];
            if !same_key {
                if self.rules.guard.is_bottom(&self.key, oldest) {
                    base = Some(None);
                }
                break;
            }
            if self.rules.stripe(self.input.seq()) != stripe {
                break;
            }
            // So that a chain of any length takes little memory.
            if group.len() >= join_at {
                group = self.joined(group, newest, oldest)?;
                join_at = JOINED_FROM.max(2 * group.len());
            }
        }
        self.hiding =
            Some(stripe).filter(|_| group.last().is_some_and(|o| o.kind != Kind::Merge) || base.is_some());
        let folded = match base {
            Some(base) if self.rules.guard.is_contiguous(&self.key, newest, oldest) => {
                self.folded_value(&group, base)?
            }
            _ => None,
        };
        match folded {
            Some(value) => {
                self.counts.folded += group.len() as u64 - 1;
                self.queue.push_back(Owned { seq: newest, kind: Kind::Put, value });
            }
            None if base.is_none() => {
                let group = self.joined(group, newest, oldest)?;
                self.queue.extend(group);
            }
            None => self.queue.extend(group),
        }
        Ok(())
    }

    /// `group`, operands of the ages between `newest` and `oldest`, with neighbours made one where that is possible.
    fn joined(&mut self, mut group: Vec<Owned>, newest: Seq, oldest: Seq) -> Result<Vec<Owned>> {
        if group.len() < 2 || !self.rules.guard.is_contiguous(&self.key, newest, oldest) {
            return Ok(group);
        }
        loop {
            // Two and two, so that what is joined is not copied once for each operand.
            let before = group.len();
            let mut rest = group.into_iter();
            let mut joined: Vec<Owned> = Vec::with_capacity(before.div_ceil(2));
            let mut newer = rest.next();
            while let Some(mut last) = newer.take() {
                let Some(older) = rest.next() else {
                    joined.push(last);
                    break;
                };
                let pair =
                    self.asked(|operator, key| operator.partial_merge(key, &older.value, &last.value))?;
                match pair {
                    Some(value) => {
                        last.value = value;
                        newer = rest.next();
                    }
                    None => newer = Some(older),
                }
                joined.push(last);
            }
            group = joined;
            if group.len() == before {
                return Ok(group);
            }
            self.counts.folded += (before - group.len()) as u64;
        }
    }

    fn folded_value(&self, group: &[Owned], base: Option<usize>) -> Result<Option<Vec<u8>>> {
        let operands: Vec<&[u8]> =
            group.iter().rev().filter(|o| o.kind == Kind::Merge).map(|o| o.value.as_slice()).collect();
        let base = base.map(|i| group[i].value.as_slice());
        self.asked(|operator, key| operator.merge(key, base, &operands))
    }

    /// What the operator answers to `ask`. It is the program's code; what it says in its panic is not shown: it may
    /// hold user keys.
    fn asked(
        &self,
        ask: impl FnOnce(&dyn MergeOperator, &[u8]) -> Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>> {
        let Some(operator) = &self.rules.operator else { return Ok(None) };
        catch_unwind(AssertUnwindSafe(|| ask(&**operator, &self.key))).map_err(|_| {
            Error::new(ErrorKind::Bug, format!("the merge operator {:?} panicked", operator.name()))
        })
    }
}

/// Operands of one key from which on they are joined before all of them were read.
const JOINED_FROM: usize = 1024;

/// Whether a `PutExpiring` value has ended at `now_micros`.
pub(crate) fn is_expired(value: &[u8], now_micros: u64) -> bool {
    match value.first_chunk::<8>() {
        Some(expiry) => u64::from_le_bytes(*expiry) <= now_micros,
        None => false,
    }
}
