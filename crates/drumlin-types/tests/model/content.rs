//! Contents of tables, and the compaction of the model: shadowing, dropping tombstones, combining merge operands.
//!
//! Keys are small numbers. A range tombstone is modelled as one deletion per covered key, all with the same sequence
//! number; to a reader that is equivalent. A value is the list of the sequence numbers that made it: a put and the
//! merge operands on top of it.

use drumlin_types::contract::legal::DropGuard;
use drumlin_types::{Key, KeyRange, Seq};

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Act {
    Put(Vec<Seq>),
    Delete,
    Operand(Vec<Seq>),
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Version {
    pub(crate) key: u8,
    pub(crate) seq: Seq,
    pub(crate) act: Act,
}

/// Versions of a table, by ascending key and descending sequence number.
pub(crate) type Content = Vec<Version>;

pub(crate) fn key(k: u8) -> Key {
    Key::new(&[k])
}

pub(crate) fn keys(from: u8, to: u8) -> KeyRange {
    KeyRange::new(key(from), Some(key(to)))
}

pub(crate) fn sort(content: &mut Content) {
    content.sort_by(|a, b| a.key.cmp(&b.key).then(b.seq.cmp(&a.seq)));
}

pub(crate) fn hull(content: &Content) -> Option<KeyRange> {
    Some(keys(content.first()?.key, content.last()?.key + 1))
}

/// Returns the value that a reader of all `versions` of one key sees. The versions are ordered newest first.
pub(crate) fn value<'a>(versions: impl IntoIterator<Item = &'a Version>) -> Option<Vec<Seq>> {
    let mut operands: Vec<&[Seq]> = Vec::new();
    let mut base = None;
    for version in versions {
        match &version.act {
            Act::Operand(list) => operands.push(list),
            Act::Delete => break,
            Act::Put(list) => {
                base = Some(list);
                break;
            }
        }
    }
    if base.is_none() && operands.is_empty() {
        return None;
    }
    let oldest_first = operands.into_iter().rev().flatten();
    Some(base.into_iter().flatten().chain(oldest_first).copied().collect())
}

/// Compacts sorted `content` as an executor would.
///
/// Drops versions that no snapshot can see, and tombstones with no older version outside. Combines merge operands with
/// no version between them outside.
pub(crate) fn merge(content: &Content, snapshots: &[Seq], guard: &DropGuard) -> Content {
    let mut merged = Content::new();
    for versions in content.chunk_by(|a, b| a.key == b.key) {
        merge_key(versions, snapshots, guard, &mut merged);
    }
    merged
}

fn merge_key(versions: &[Version], snapshots: &[Seq], guard: &DropGuard, merged: &mut Content) {
    // Whether some snapshot sees `older` but not `newer`.
    let is_parted = |older: Seq, newer: Seq| snapshots.iter().any(|s| (older..newer).contains(s));
    let first = merged.len();
    let mut shadow: Option<Seq> = None;
    for version in versions {
        let seq = version.seq;
        if shadow.is_some_and(|newer| !is_parted(seq, newer)) {
            continue;
        }
        if !matches!(version.act, Act::Operand(_)) {
            shadow = Some(seq);
        }
        let above = if merged.len() > first { merged.last_mut() } else { None };
        if let Some(Version { seq: newest, act, .. }) = above
            && let Act::Operand(operands) = act
            && !is_parted(seq, *newest)
            && guard.is_contiguous(&[version.key], *newest, seq)
        {
            let list = |base: &[Seq]| base.iter().chain(operands.iter()).copied().collect();
            *act = match &version.act {
                Act::Operand(base) => Act::Operand(list(base)),
                Act::Put(base) => Act::Put(list(base)),
                Act::Delete => Act::Put(list(&[])),
            };
            continue;
        }
        let is_needless = version.act == Act::Delete
            && guard.is_bottom(&[version.key], seq)
            && snapshots.iter().all(|&snapshot| snapshot >= seq);
        if !is_needless {
            merged.push(version.clone());
        }
    }
}
