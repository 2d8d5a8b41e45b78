//! Merges the entries of one keyspace from tables and log: the newest value of each key, and whether it is certain.
//!
//! A table is opened when the merge reaches its first key and closed after its last one, so few tables are open at a
//! time.
//!
//! A lost part leaves a *shadow*: the range of keys that it may have held, and the largest sequence number that it may
//! have held. A value of a key in that range is in doubt if the lost part may have held a newer version.

use super::log::Logged;
use super::report::FileReports;
use super::source::{Destination, RepairSource};
use crate::base::rangedel::{RangeTombstone, RangeTombstones};
use crate::table::{Loss, Salvage, Version};
use drumlin_env::Env;
use drumlin_types::{KeyRange, Kind, Seq};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Versions of one key that a reader would need.
pub(super) struct Saved {
    /// A value, or operands; oldest first. The value that operands apply to comes first if there is one.
    pub(super) versions: Vec<Version>,
    /// Other pointers to the values of these versions, from other tables: a compaction may have copied a value, and
    /// either copy may be gone.
    pub(super) copies: Vec<Version>,
    pub(super) is_certain: bool,
}

/// Losses found during the merge.
#[derive(Default)]
pub(super) struct Lost {
    pub(super) entries: u64,
    /// Whether parts with an unknown number of entries were lost.
    pub(super) more: bool,
    pub(super) findings: Vec<String>,
}

/// Range of keys whose newest version may be lost.
struct Shadow {
    range: KeyRange,
    max_seq: Seq,
}

/// Merge of one keyspace.
pub(super) struct Merge<'a> {
    env: &'a Env,
    files: &'a mut FileReports,
    heap: BinaryHeap<Reverse<InputPosition>>,
    inputs: Vec<Input>,
    tombstones: RangeTombstones,
    shadows: Vec<Shadow>,
    pub(super) lost: Lost,
    /// Bytes of the tables that have been read to their end.
    pub(super) bytes: u64,
}

/// Position of an input: its next version, or the lower bound on its keys if it is not open yet. Versions of one key
/// are ordered newest first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct InputPosition {
    key: Vec<u8>,
    seq: Reverse<Seq>,
    input: usize,
}

enum Input {
    Waiting(RepairSource),
    Open { source: RepairSource, salvage: Box<Salvage>, next: Option<Version>, read: u64, told: usize },
    Log(VecDeque<Version>),
    Done,
}

impl<'a> Merge<'a> {
    /// Creates the merge of the entries that `sources` and the log hold for `destination`.
    pub(super) fn new(
        env: &'a Env,
        files: &'a mut FileReports,
        destination: Destination,
        sources: Vec<RepairSource>,
        logged: &mut Logged,
    ) -> Merge<'a> {
        let mut merge = Merge {
            env,
            files,
            heap: BinaryHeap::new(),
            inputs: Vec::new(),
            tombstones: RangeTombstones::default(),
            shadows: Vec::new(),
            lost: Lost::default(),
            bytes: 0,
        };
        let mut tombstones = logged.tombstones.remove(&destination).unwrap_or_default();
        if let Some(max_seq) = logged.lost_up_to {
            merge.shadows.push(Shadow { range: KeyRange::all(), max_seq });
            merge.lost.more = true;
        }
        for source in sources {
            merge.look(&source, &mut tombstones);
            merge.wait(
                InputPosition { key: source.first.clone(), seq: Reverse(Seq::MAX), input: 0 },
                Input::Waiting(source),
            );
        }
        merge.tombstones = RangeTombstones::new(tombstones);
        let mut versions = logged.versions.remove(&destination).unwrap_or_default();
        versions.sort_by(|a, b| (&a.key, Reverse(a.seq)).cmp(&(&b.key, Reverse(b.seq))));
        if let Some(first) = versions.first() {
            merge.wait(
                InputPosition { key: first.key.clone(), seq: Reverse(first.seq), input: 0 },
                Input::Log(versions.into()),
            );
        }
        merge
    }

    /// Adds `input` at `place`.
    fn wait(&mut self, place: InputPosition, input: Input) {
        self.heap.push(Reverse(InputPosition { input: self.inputs.len(), ..place }));
        self.inputs.push(input);
    }

    /// Reads the range tombstones of `source`. They hide keys of other tables, so all are read before the first key.
    fn look(&mut self, source: &RepairSource, tombstones: &mut Vec<RangeTombstone>) {
        let Ok(salvage) = Salvage::open(self.env, &source.path, source.id) else { return };
        tombstones.extend(salvage.tombstones.iter().filter_map(|tombstone| tombstone.clip(&source.bounds)));
        if let Some(range) = salvage.lost_tombstones.and_then(|range| range.intersect(&source.bounds)) {
            self.shadows.push(Shadow { range, max_seq: source.max_seq });
            self.lost.more = true;
        }
    }

    /// Returns the next key that has a value.
    pub(super) fn next(&mut self) -> Option<Saved> {
        loop {
            let Reverse(place) = self.heap.peek()?;
            let key = place.key.clone();
            let (versions, copies) = self.versions(&key);
            if let Some(saved) = self.settle(&key, versions) {
                return Some(Saved { copies, ..saved });
            }
        }
    }

    /// Returns all versions of `key`, newest first, and further pointers to the values of some of them.
    fn versions(&mut self, key: &[u8]) -> (Vec<Version>, Vec<Version>) {
        let mut all: Vec<Version> = Vec::new();
        while let Some(Reverse(place)) = self.heap.peek()
            && place.key == key
        {
            let Some(Reverse(InputPosition { input, .. })) = self.heap.pop() else { break };
            all.extend(self.step(input));
        }
        chosen(all)
    }

    /// Returns the version at the position of `input`, if there is one. Moves the input on and puts its new position
    /// into the heap.
    fn step(&mut self, input: usize) -> Option<Version> {
        let (taken, next) = match std::mem::replace(&mut self.inputs[input], Input::Done) {
            Input::Waiting(source) => (None, self.open(source)),
            Input::Open { source, mut salvage, next, mut read, mut told } => {
                let following = following(&mut salvage, &source);
                read += u64::from(next.is_some());
                self.tell(&source, &salvage.losses, &mut told);
                let is_over = following.is_none();
                let open = Input::Open { source, salvage, next: following, read, told };
                (next, if is_over { self.close(open) } else { open })
            }
            Input::Log(mut versions) => (versions.pop_front(), Input::Log(versions)),
            Input::Done => (None, Input::Done),
        };
        let place = match &next {
            Input::Open { next: Some(next), .. } => Some((next.key.clone(), next.seq)),
            Input::Log(versions) => versions.front().map(|next| (next.key.clone(), next.seq)),
            _ => None,
        };
        if let Some((key, seq)) = place {
            self.heap.push(Reverse(InputPosition { key, seq: Reverse(seq), input }));
        }
        self.inputs[input] = next;
        taken
    }

    /// Opens the table of `source` at its first entry inside the bounds.
    fn open(&mut self, source: RepairSource) -> Input {
        let mut salvage = match Salvage::open(self.env, &source.path, source.id) {
            Ok(salvage) => Box::new(salvage),
            Err(error) => {
                let all = Loss {
                    offset: 0,
                    entries: source.entries,
                    range: KeyRange::all(),
                    what: error.text_without_place(),
                };
                self.tell(&source, &[all], &mut 0);
                self.bytes += source.len;
                return Input::Done;
            }
        };
        let (next, mut told) = (following(&mut salvage, &source), 0);
        self.tell(&source, &salvage.losses, &mut told);
        let is_over = next.is_none();
        let open = Input::Open { source, salvage, next, read: 0, told };
        if is_over { self.close(open) } else { open }
    }

    /// Ends an input whose table was read to its end. Fewer or more entries than the manifest gives count as a loss,
    /// unless the table has other losses.
    fn close(&mut self, input: Input) -> Input {
        let Input::Open { source, salvage, read, mut told, .. } = input else { return input };
        let name = name_of(&source);
        self.files.of(&name).entries += read;
        self.bytes += source.len;
        if let Some(entries) = source.entries
            && salvage.losses.is_empty()
            && read != entries
        {
            let what = format!("holds {read} entries, the manifest says {entries}");
            let entries = Some(entries.saturating_sub(read));
            let loss = Loss { offset: 0, entries, range: KeyRange::all(), what };
            self.tell(&source, &[loss], &mut 0);
        }
        self.tell(&source, &salvage.losses, &mut told);
        Input::Done
    }

    /// Records the losses after the first `told`.
    fn tell(&mut self, source: &RepairSource, losses: &[Loss], told: &mut usize) {
        let name = name_of(source);
        for loss in losses.iter().skip(*told) {
            self.files.of(&name).damages += 1;
            self.lost.findings.push(format!("{name}, offset {}: {}", loss.offset, loss.what));
            let Some(range) = loss.range.intersect(&source.bounds) else { continue };
            self.shadows.push(Shadow { range, max_seq: source.max_seq });
            match loss.entries {
                Some(entries) => {
                    self.files.of(&name).lost += entries;
                    self.lost.entries += entries;
                }
                None => self.lost.more = true,
            }
        }
        *told = losses.len();
    }

    /// Returns what a reader sees of `versions`, all versions of `key`. Returns `None` if the key is deleted.
    fn settle(&self, key: &[u8], versions: Vec<Version>) -> Option<Saved> {
        let deleted = self.tombstones.covering(key, Seq::MAX);
        let mut seen = Vec::new();
        // Sequence number of the version that hides all older ones. A lost part with newer entries may have held a
        // newer one.
        let mut base = deleted;
        for version in versions {
            if version.seq < deleted {
                break;
            }
            if version.kind == Kind::Delete {
                base = base.max(version.seq);
                break;
            }
            let is_base = !matches!(version.kind, Kind::Merge | Kind::MergeExpiring);
            base = if is_base { base.max(version.seq) } else { base };
            seen.push(version);
            if is_base {
                break;
            }
        }
        let is_shadowed = |shadow: &Shadow| shadow.max_seq > base && shadow.range.contains(key);
        let is_certain = !self.shadows.iter().any(is_shadowed);
        seen.reverse();
        (!seen.is_empty()).then_some(Saved { versions: seen, copies: Vec::new(), is_certain })
    }
}

/// Returns one version for each sequence number of `all`, the versions of one key, newest first, and further pointers
/// to their values. A value that is there in whole, as in the log, goes before pointers to it. Both go before the
/// operand with their number: a compaction has merged it with what was below, of which the rest may be gone.
fn chosen(mut all: Vec<Version>) -> (Vec<Version>, Vec<Version>) {
    let rank = |kind: Kind| match kind {
        Kind::PutPointer => 1,
        Kind::Merge | Kind::MergeExpiring => 2,
        _ => 0,
    };
    all.sort_by_key(|version| (Reverse(version.seq), rank(version.kind)));
    let (mut versions, mut copies): (Vec<Version>, Vec<Version>) = (Vec::new(), Vec::new());
    for version in all {
        match versions.last() {
            // Tables that a compaction had read have the versions that its outputs have.
            Some(last) if last.seq == version.seq => {
                let is_copy = version.kind == Kind::PutPointer && last.kind == Kind::PutPointer;
                copies.extend(is_copy.then_some(version));
            }
            _ => versions.push(version),
        }
    }
    (versions, copies)
}

/// Returns the file name of `source`.
fn name_of(source: &RepairSource) -> String {
    source.path.file_name().map_or_else(|| source.id.to_string(), |name| name.to_string_lossy().into_owned())
}

/// Returns the next version inside the bounds.
fn following(salvage: &mut Salvage, source: &RepairSource) -> Option<Version> {
    loop {
        let version = salvage.next()?;
        if !source.bounds.is_before_end(&version.key) {
            return None;
        }
        if source.bounds.contains(&version.key) {
            return Some(version);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::slice::Slice;

    #[test]
    fn a_merged_value_goes_before_the_operand_that_it_contains() {
        let version = |seq, kind, value: &str| {
            let value = Slice::from(value.as_bytes());
            Version { key: b"k".to_vec(), seq, kind, value }
        };
        let found = |versions: &[Version]| {
            let (versions, copies) = chosen(versions.to_vec());
            let text = |version: &Version| String::from_utf8_lossy(&version.value).into_owned();
            (versions.iter().map(text).collect::<Vec<_>>(), copies.iter().map(text).collect::<Vec<_>>())
        };
        let (operand, merged) = (version(9, Kind::Merge, "operand"), version(9, Kind::PutPointer, "merged"));
        let base = version(5, Kind::PutPointer, "base");
        let (whole, copy) = (version(9, Kind::Put, "whole"), version(9, Kind::PutPointer, "copy"));
        assert_eq!(found(&[operand.clone(), base.clone(), merged.clone()]).0, ["merged", "base"]);
        assert_eq!(found(&[operand.clone(), base]).0, ["operand", "base"]);
        assert_eq!(found(&[merged.clone(), operand, whole]), (vec!["whole".into()], vec![]));
        assert_eq!(found(&[merged, copy]), (vec!["merged".into()], vec!["copy".into()]));
    }
}
