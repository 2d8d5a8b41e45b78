//! Reads everything that is readable in a damaged table.
//!
//! Each data block is checked separately, so a damaged block costs only its own entries. The footer, properties,
//! index and range tombstones are used as far as they are sound. Where the index is damaged, data blocks are found
//! one after another (`drumlin_format::table::find_block`). This search ends at the first damaged block, because the
//! start of the next block is unknown.
//!
//! Damage is never an error here. Each unreadable part becomes a [`Loss`], with its key range and its number of
//! entries as far as the rest of the table shows them.

use super::block::{BlockFile, DataBlock, IndexBlock};
use crate::base::epoch::Epochs;
use crate::base::error::{Error, Result};
use crate::base::rangedel::RangeTombstone;
use crate::base::slice::Slice;
use drumlin_env::{Env, FileKind};
use drumlin_format::block::EntryCursor;
use drumlin_format::compression::expand;
use drumlin_format::index::Fence;
use drumlin_format::seal::unseal;
use drumlin_format::table::{FOOTER_LEN, Footer, Handle, Properties, decode_tombstones, find_block};
use drumlin_types::{Key, KeyRange, Kind, Seq, TableId};
use std::collections::VecDeque;
use std::path::Path;

/// Window sizes in bytes of the search for a block without a fence: first attempt, then maximum.
const WINDOWS: [u64; 2] = [64 << 10, 1 << 20];
/// Maximum uncompressed length in bytes of a block without a fence.
const LONGEST: usize = 64 << 20;

/// Version of a key.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) key: Vec<u8>,
    pub(crate) seq: Seq,
    pub(crate) kind: Kind,
    pub(crate) value: Slice,
}

/// Part of a table that cannot be read.
#[derive(Clone, Debug)]
pub(crate) struct Loss {
    /// Offset in the file.
    pub(crate) offset: u64,
    /// Number of lost entries, if known.
    pub(crate) entries: Option<u64>,
    /// Range of the keys that the part may have held.
    pub(crate) range: KeyRange,
    pub(crate) what: String,
}

/// Part of the data still to be read.
enum BlockSpan {
    /// Block with a fence. `last` is an upper bound on its keys. `until` is the number of entries before the next
    /// block.
    Block { fence: Fence, last: Key, until: Option<u64> },
    /// Blocks between the offsets `from` and `to` that have no fence. Their last key and number of entries may be
    /// unknown.
    Scan { from: u64, to: u64, last: Option<Key>, entries: Option<u64> },
}

/// Reader of a damaged table.
pub(crate) struct Salvage {
    blocks: BlockFile,
    pub(crate) properties: Option<Properties>,
    pub(crate) tombstones: Vec<RangeTombstone>,
    /// Range that unreadable range tombstones may have covered.
    pub(crate) lost_tombstones: Option<KeyRange>,
    /// Losses so far.
    pub(crate) losses: Vec<Loss>,
    spans: VecDeque<BlockSpan>,
    read: VecDeque<Version>,
    /// All keys up to this one have been read or are lost.
    last: Key,
}

impl Salvage {
    /// Opens the remains of table `id` in the file at `path`.
    pub(crate) fn open(env: &Env, path: &Path, id: TableId) -> Result<Salvage> {
        let fail = |e| Error::io(path, "cannot open table", e);
        let file = env.fs().open(path, FileKind::Table).map_err(fail)?;
        let len = file.len().map_err(fail)?;
        let mut salvage = Salvage {
            blocks: BlockFile { id, file },
            properties: None,
            tombstones: Vec::new(),
            lost_tombstones: None,
            losses: Vec::new(),
            spans: VecDeque::new(),
            read: VecDeque::new(),
            last: Key::empty(),
        };
        salvage.look(len);
        Ok(salvage)
    }

    /// Returns whether the file at `path` is table `id`, according to its footer.
    pub(crate) fn is(env: &Env, path: &Path, id: TableId) -> bool {
        let Ok(file) = env.fs().open(path, FileKind::Table) else { return false };
        let Ok(len) = file.len() else { return false };
        footer(&BlockFile { id, file }, len).is_ok()
    }

    fn look(&mut self, len: u64) {
        let footer = footer(&self.blocks, len);
        let limit = len.saturating_sub(FOOTER_LEN as u64);
        let properties = footer.as_ref().map_err(Clone::clone).and_then(|footer| {
            let bytes = self.blocks.read_plain(footer.properties)?;
            Properties::decode(&bytes, limit)
                .map_err(|d| self.blocks.decode_error(footer.properties.offset, d))
        });
        match properties {
            Ok(properties) => self.properties = Some(properties),
            Err(error) => self.lose_tombstones(KeyRange::all(), &error),
        }
        if let Some((handle, range)) = self.properties.as_ref().and_then(|p| p.tombstones.clone()) {
            match self.read_tombstones(handle) {
                Ok(tombstones) => self.tombstones = tombstones,
                Err(error) => self.lose_tombstones(range, &error),
            }
        }
        let root = footer.and_then(|footer| self.index(footer.root));
        let entries = self.properties.as_ref().map(|p| p.entries);
        let data = self.properties.as_ref().map_or(limit, |p| p.data_bytes.min(limit));
        match root {
            Ok(root) => self.spans_of(&root, data, entries),
            Err(error) => {
                self.lose_index(&error);
                self.spans.push_back(BlockSpan::Scan { from: 0, to: data, last: None, entries });
            }
        }
    }

    /// Records that range tombstones within `range`, if there were any, cannot be read.
    fn lose_tombstones(&mut self, range: KeyRange, error: &Error) {
        self.lost_tombstones = Some(range.clone());
        let what = format!("range tombstones: {}", error.text_without_place());
        self.losses.push(Loss { offset: error.offset().unwrap_or(0), entries: Some(0), range, what });
    }

    fn read_tombstones(&self, handle: Handle) -> Result<Vec<RangeTombstone>> {
        let bytes = self.blocks.read_plain(handle)?;
        let list = decode_tombstones(&bytes).map_err(|d| self.blocks.decode_error(handle.offset, d))?;
        Ok(list.into_iter().map(|t| RangeTombstone { range: t.range, seq: t.seq }).collect())
    }

    fn index(&self, handle: Handle) -> Result<IndexBlock> {
        let bytes = self.blocks.read_plain(handle)?;
        // Its pointers to cached blocks are not used.
        let block = IndexBlock::parse(bytes, &Epochs::new())
            .map_err(|d| self.blocks.decode_error(handle.offset, d))?;
        block.view().validate().map_err(|d| self.blocks.decode_error(handle.offset, d))?;
        Ok(block)
    }

    /// Records a lost index block as a loss without entries.
    fn lose_index(&mut self, error: &Error) {
        let (offset, range) = (error.offset().unwrap_or(0), KeyRange::new(Key::empty(), Some(Key::empty())));
        let what = format!("index: {}", error.text_without_place());
        self.losses.push(Loss { offset, entries: Some(0), range, what });
    }

    fn spans_of(&mut self, root: &IndexBlock, data: u64, entries: Option<u64>) {
        let fences = fences(root);
        if root.view().level() == 0 {
            return self.blocks_of(fences, entries);
        }
        let mut from = 0;
        // Ordinal of the first entry of the unreadable partitions before this one, their last key, and the ordinal
        // behind their last entry.
        let mut gap: Option<(u64, Key, Option<u64>)> = None;
        for (number, (fence, last)) in fences.iter().enumerate() {
            let until = fences.get(number + 1).map(|(next, _)| next.ordinal).or(entries);
            let handle = Handle { offset: fence.offset, sealed_len: fence.sealed_len };
            match self.index(handle) {
                Ok(partition) => {
                    let inner = self::fences(&partition);
                    // The blocks of unreadable partitions end where those of the next readable one start.
                    let to = inner.first().map_or(from, |(fence, _)| fence.offset);
                    self.scan_gap(gap.take(), from, to);
                    from = inner.last().map_or(from, |(fence, _)| fence.end());
                    self.blocks_of(inner, until);
                }
                Err(error) => {
                    self.lose_index(&error);
                    let first = gap.map_or(fence.ordinal, |(first, ..)| first);
                    gap = Some((first, last.clone(), until));
                }
            }
        }
        self.scan_gap(gap, from, data);
    }

    /// Schedules a search for the blocks of consecutive unreadable partitions, which lie between `from` and `to`.
    fn scan_gap(&mut self, gap: Option<(u64, Key, Option<u64>)>, from: u64, to: u64) {
        if let Some((first, last, until)) = gap {
            let entries = until.map(|until| until.saturating_sub(first));
            self.spans.push_back(BlockSpan::Scan { from, to, last: Some(last), entries });
        }
    }

    fn blocks_of(&mut self, fences: Vec<(Fence, Key)>, entries: Option<u64>) {
        let ordinals: Vec<u64> = fences.iter().map(|(fence, _)| fence.ordinal).collect();
        for (number, (fence, last)) in fences.into_iter().enumerate() {
            let until = ordinals.get(number + 1).copied().or(entries);
            self.spans.push_back(BlockSpan::Block { fence, last, until });
        }
    }

    /// Returns the next version, in internal order; `None` after the last readable one.
    pub(crate) fn next(&mut self) -> Option<Version> {
        loop {
            if let Some(version) = self.read.pop_front() {
                return Some(version);
            }
            match self.spans.pop_front()? {
                BlockSpan::Block { fence, last, until } => {
                    let entries = until.map(|until| until.saturating_sub(fence.ordinal));
                    match self.blocks.read_data(&fence).and_then(|block| self.versions(&block, fence.offset))
                    {
                        Ok(versions) => self.read.extend(versions),
                        Err(error) => {
                            self.lose(fence.offset, entries, Some(&last), error.text_without_place())
                        }
                    }
                    self.last = last;
                }
                BlockSpan::Scan { from, to, last, entries } => self.scan_on(from, to, last, entries),
            }
        }
    }

    /// Reads the block at `from`, if it can be found, and puts the rest of the span back.
    fn scan_on(&mut self, from: u64, to: u64, last: Option<Key>, entries: Option<u64>) {
        if from >= to || entries == Some(0) {
            if entries.is_some_and(|entries| entries > 0) {
                let what = "the blocks found hold fewer entries than the index had".to_owned();
                self.lose(from, entries, last.as_ref(), what);
            }
            self.last = last.unwrap_or_else(|| self.last.clone());
            return;
        }
        let found = WINDOWS.iter().find_map(|window| self.find(from, (to - from).min(*window)));
        match found {
            Some((len, versions)) => {
                let entries = entries.map(|entries| entries.saturating_sub(versions.len() as u64));
                self.last = versions.last().map_or_else(|| self.last.clone(), |v| Key::new(&v.key));
                self.read.extend(versions);
                self.spans.push_front(BlockSpan::Scan { from: from + len, to, last, entries });
            }
            None => {
                let what = "no block found here; later blocks cannot be located without the index".to_owned();
                self.lose(from, entries, last.as_ref(), what);
                self.last = last.unwrap_or_else(|| self.last.clone());
            }
        }
    }

    fn find(&self, from: u64, most: u64) -> Option<(u64, Vec<Version>)> {
        let bytes = self.blocks.read(from, most as usize).ok()?;
        let len = find_block(self.blocks.id.0, from, &bytes)?;
        let (method, stored) = unseal(self.blocks.id.0, from, bytes.get(..len)?).ok()?;
        let raw = expand(method, stored, LONGEST)?;
        let block = DataBlock::parse(Slice::from(&*raw)).ok()?;
        let versions = self.versions(&block, from).ok()?;
        // Rejects what follows the data, such as a filter, which may look like a block.
        let is_after = versions.first().is_some_and(|first| first.key.as_slice() >= self.last.as_bytes());
        is_after.then_some((len as u64, versions))
    }

    fn versions(&self, block: &DataBlock, offset: u64) -> Result<Vec<Version>> {
        let view = block.view();
        let damage = |d| self.blocks.decode_error(offset, d);
        view.validate().map_err(damage)?;
        let mut entry = EntryCursor::default();
        let mut versions = Vec::with_capacity(view.count());
        for index in 0..view.count() {
            entry.load(view, index).map_err(damage)?;
            let value = block.bytes.part(entry.value()).unwrap_or_default();
            versions.push(Version { key: entry.key().to_vec(), seq: entry.seq(), kind: entry.kind(), value });
        }
        Ok(versions)
    }

    fn lose(&mut self, offset: u64, entries: Option<u64>, last: Option<&Key>, what: String) {
        let range = KeyRange::new(self.last.clone(), last.map(|last| Key::successor(last.as_bytes())));
        self.losses.push(Loss { offset, entries, range, what });
    }
}

fn footer(blocks: &BlockFile, len: u64) -> Result<Footer> {
    let offset = len.saturating_sub(FOOTER_LEN as u64);
    let bytes = blocks.read(offset, (len - offset) as usize)?;
    Footer::decode(&bytes, blocks.id.0, len).map_err(|e| super::decode_error(blocks.file.path(), offset, e))
}

/// Returns the fences of a sound index block, each with its separator.
fn fences(block: &IndexBlock) -> Vec<(Fence, Key)> {
    let view = block.view();
    let one = |number| Some((view.fence(number).ok()?, Key::new(&view.separator(number).ok()?)));
    (0..view.count()).filter_map(one).collect()
}
