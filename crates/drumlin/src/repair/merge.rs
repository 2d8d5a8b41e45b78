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
    /// Versions with the same sequence numbers, from other tables: pointers to copies of a value, and the operand that
    /// a merged value contains. One may be readable where the other is not.
    pub(super) alternatives: Vec<Version>,
    /// Versions that the oldest one of `versions` hides, newest first.
    hidden: Vec<Version>,
    pub(super) is_certain: bool,
    /// Whether there is a value, a deletion or a range tombstone below the operands.
    has_base: bool,
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
            let (versions, alternatives) = self.versions(&key);
            if let Some(saved) = self.settle(&key, versions) {
                return Some(Saved { alternatives, ..saved });
            }
        }
    }

    /// Returns what takes the place of `saved`, whose value cannot be read: the operand with the value's sequence
    /// number, and the versions below it. Compaction merged these into the value. Some may be gone, so they are never
    /// certain. Returns `None` if the operand or a base for it is missing.
    pub(super) fn unmerge(&self, mut saved: Saved) -> Option<Saved> {
        let unreadable = (!saved.versions.is_empty()).then(|| saved.versions.remove(0))?;
        let is_merged = |version: &&Version| version.seq == unreadable.seq && is_operand(version.kind);
        let operand = saved.alternatives.iter().find(is_merged)?.clone();
        let newer = saved.versions.into_iter().rev();
        let versions = newer.chain([operand]).chain(saved.hidden).collect();
        let unmerged = self.settle(&unreadable.key, versions).filter(|unmerged| unmerged.has_base)?;
        Some(Saved { alternatives: saved.alternatives, is_certain: false, ..unmerged })
    }

    /// Returns all versions of `key`, newest first, and their alternatives.
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

    /// Ends an input whose table was read to its end. Fewer or more entries than the manifest gives count as a loss.
    /// If the table has other losses, only fewer do, and not if some loss is of an unknown number of entries.
    fn close(&mut self, input: Input) -> Input {
        let Input::Open { source, salvage, read, mut told, .. } = input else { return input };
        let name = name_of(&source);
        self.files.of(&name).entries += read;
        self.bytes += source.len;
        if let Some(entries) = source.entries
            && !match salvage.losses.iter().map(|loss| loss.entries).sum::<Option<u64>>() {
                _ if salvage.losses.is_empty() => read == entries,
                Some(lost) => read.saturating_add(lost) >= entries,
                None => true,
            }
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
        let (mut seen, mut versions) = (Vec::new(), versions.into_iter());
        // Sequence number of the version that hides all older ones. A lost part with newer entries may have held a
        // newer one.
        let mut base = deleted;
        for version in versions.by_ref() {
            if version.seq < deleted {
                break;
            }
            if version.kind == Kind::Delete {
                base = base.max(version.seq);
                break;
            }
            let is_base = !is_operand(version.kind);
            base = if is_base { base.max(version.seq) } else { base };
            seen.push(version);
            if is_base {
                break;
            }
        }
        let is_shadowed = |shadow: &Shadow| shadow.max_seq > base && shadow.range.contains(key);
        let is_certain = !self.shadows.iter().any(is_shadowed);
        seen.reverse();
        let (hidden, has_base) = (versions.collect(), base > 0);
        let saved = Saved { versions: seen, alternatives: Vec::new(), hidden, is_certain, has_base };
        (!saved.versions.is_empty()).then_some(saved)
    }
}

/// Returns one version for each sequence number of `all`, the versions of one key, newest first, and the alternatives
/// to pointers. A value that is there in whole, as in the log, goes before pointers to it. Both go before the operand
/// with their number: a compaction has merged it with what was below, of which the rest may be gone.
fn chosen(mut all: Vec<Version>) -> (Vec<Version>, Vec<Version>) {
    let rank = |kind: Kind| match kind {
        Kind::PutPointer => 1,
        kind if is_operand(kind) => 2,
        _ => 0,
    };
    all.sort_by_key(|version| (Reverse(version.seq), rank(version.kind)));
    let (mut versions, mut alternatives): (Vec<Version>, Vec<Version>) = (Vec::new(), Vec::new());
    for version in all {
        match versions.last() {
            // Tables that a compaction had read have the versions that its outputs have.
            Some(last) if last.seq == version.seq => {
                alternatives.extend((last.kind == Kind::PutPointer).then_some(version));
            }
            _ => versions.push(version),
        }
    }
    (versions, alternatives)
}

fn is_operand(kind: Kind) -> bool {
    matches!(kind, Kind::Merge | Kind::MergeExpiring)
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
    use drumlin_types::KeyspaceId;
    use std::collections::BTreeMap;

    fn version(seq: Seq, kind: Kind, value: &str) -> Version {
        Version { key: b"k".to_vec(), seq, kind, value: Slice::from(value.as_bytes()) }
    }

    /// Passes the merge of `versions` and its first key to `check`.
    fn with_merge(versions: &[Version], check: impl FnOnce(&Merge, Saved)) {
        let (env, mut files, destination) =
            (Env::os(), FileReports::default(), Destination::Keyspace(KeyspaceId(1)));
        let mut logged =
            Logged { versions: BTreeMap::from([(destination, versions.to_vec())]), ..Logged::default() };
        let mut merge = Merge::new(&env, &mut files, destination, Vec::new(), &mut logged);
        let saved = merge.next().expect("the key has a value");
        check(&merge, saved);
    }

    fn values(saved: &Saved) -> Vec<&[u8]> {
        saved.versions.iter().map(|version| &version.value[..]).collect()
    }

    #[test]
    fn the_operands_of_an_unreadable_merged_value_take_its_place() {
        let operands = [version(9, Kind::Merge, "nine"), version(7, Kind::Merge, "seven")];
        let merged = [version(9, Kind::PutPointer, "merged 9"), version(7, Kind::PutPointer, "merged 7")];
        let (base, newer) = (version(5, Kind::Put, "base"), version(12, Kind::Merge, "twelve"));
        let all = [&operands[..], &merged[..], &[base, newer.clone()]].concat();
        with_merge(&all, |merge, saved| {
            assert_eq!(values(&saved), [&b"merged 9"[..], b"twelve"]);
            assert!(saved.is_certain);
            let saved = merge.unmerge(saved).expect("an operand and a merged value are left");
            assert_eq!(values(&saved), [&b"merged 7"[..], b"nine", b"twelve"]);
            let saved = merge.unmerge(saved).expect("two operands and a value are left");
            assert_eq!(values(&saved), [&b"base"[..], b"seven", b"nine", b"twelve"]);
            assert!(!saved.is_certain, "a version between them may be lost");
        });
        let (merged, deletion) = (merged[..1].to_vec(), version(3, Kind::Delete, ""));
        with_merge(&[&operands[..], &merged, &[deletion]].concat(), |merge, saved| {
            let saved = merge.unmerge(saved).expect("two operands on a deletion are left");
            assert_eq!(values(&saved), [&b"seven"[..], b"nine"]);
        });
        with_merge(&[&operands[..], &merged].concat(), |merge, saved| {
            assert!(merge.unmerge(saved).is_none(), "the operands have no base");
        });
        with_merge(&[&merged[..], &operands[1..], &[newer]].concat(), |merge, saved| {
            assert!(merge.unmerge(saved).is_none(), "the operand of the merged value is lost");
        });
    }

    #[test]
    fn a_merged_value_goes_before_the_operand_that_it_contains() {
        let found = |versions: &[Version]| {
            let (versions, alternatives) = chosen(versions.to_vec());
            let text = |version: &Version| String::from_utf8_lossy(&version.value).into_owned();
            (versions.iter().map(text).collect::<Vec<_>>(), alternatives.iter().map(text).collect::<Vec<_>>())
        };
        let (operand, merged) = (version(9, Kind::Merge, "operand"), version(9, Kind::PutPointer, "merged"));
        let base = version(5, Kind::PutPointer, "base");
        let (whole, copy) = (version(9, Kind::Put, "whole"), version(9, Kind::PutPointer, "copy"));
        let all = found(&[operand.clone(), base.clone(), merged.clone()]);
        assert_eq!(all, (vec!["merged".into(), "base".into()], vec!["operand".into()]));
        assert_eq!(found(&[operand.clone(), base]).0, ["operand", "base"]);
        assert_eq!(found(&[merged.clone(), operand, whole]), (vec!["whole".into()], vec![]));
        assert_eq!(found(&[merged, copy]), (vec!["merged".into()], vec!["copy".into()]));
    }
}
