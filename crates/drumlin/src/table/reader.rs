//! An open table: point lookups, ranks and sizes.

use super::block::{Block, BlockFile, DataBlock, IndexBlock};
use super::block_cache::BlockCache;
use super::cursor::{CursorOptions, TableCursor};
use super::decode_error;
use super::fences::FenceCursor;
use super::filter::TableFilter;
use super::read_ahead::ScanLength;
use super::slots::{BlockRef, Slot};
use crate::error::{Error, Result};
use crate::rangedel::{RangeTombstone, RangeTombstones};
use crate::slice::Slice;
use drumlin_env::sync::Arc;
use drumlin_env::{Env, FileKind};
use drumlin_format::block::{Entry, tag_of};
use drumlin_format::filter::key_hash;
use drumlin_format::index::Fence;
use drumlin_format::table::{FOOTER_LEN, Footer, Handle, Properties, decode_tombstones};
#[cfg(test)]
use drumlin_types::KeyRange;
use drumlin_types::{Kind, Seq, TableId};
use std::fmt;
use std::path::Path;

/// Bytes read from the end of the file at once: enough for all but the data of most tables.
const TAIL_BYTES: u64 = 64 << 10;

/// A version that a lookup found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    pub(crate) seq: Seq,
    pub(crate) kind: Kind,
    /// Shares the memory of its block.
    pub(crate) value: Slice,
}

/// How a lookup went, for the access statistics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lookup {
    /// The filter denied the key; no block was touched.
    Denied,
    /// The filter, if there is one, let the key pass, but no visible version is here.
    Absent,
    /// A version was found.
    Found,
}

/// An open table. Cheap to share; never changes.
pub(crate) struct Table {
    pub(super) blocks: BlockFile,
    pub(super) cache: Arc<BlockCache>,
    pub(super) root: IndexBlock,
    pub(super) root_offset: u64,
    pub(super) filter: TableFilter,
    pub(super) scans: ScanLength,
    file_len: u64,
    properties: Properties,
    tombstones: Arc<RangeTombstones>,
    /// Whether the hashes that lookups bring were made with another seed.
    pub(super) foreign_seed: bool,
}

impl Table {
    /// Opens table `id`, whose file is `file_len` long. `seed` is that of the hashes that lookups will bring.
    pub(crate) fn open(
        env: &Env,
        path: &Path,
        id: TableId,
        file_len: u64,
        cache: Arc<BlockCache>,
        seed: u64,
    ) -> Result<Table> {
        let file =
            env.fs().open(path, FileKind::Table).map_err(|e| Error::io(path, "cannot open table", e))?;
        Table::over(BlockFile { id, file }, file_len, cache, seed)
    }

    /// Reads what an open table holds, from the file.
    pub(super) fn over(blocks: BlockFile, file_len: u64, cache: Arc<BlockCache>, seed: u64) -> Result<Table> {
        let id = blocks.id;
        if file_len < FOOTER_LEN as u64 {
            return Err(blocks.corruption(0, "table is shorter than its footer"));
        }
        let tail_offset = file_len.saturating_sub(TAIL_BYTES);
        let tail =
            Tail { offset: tail_offset, bytes: blocks.read(tail_offset, (file_len - tail_offset) as usize)? };
        let footer_offset = file_len - FOOTER_LEN as u64;
        let footer_bytes = &tail.bytes[tail.bytes.len() - FOOTER_LEN..];
        let footer = Footer::decode(footer_bytes, id.0, file_len)
            .map_err(|error| decode_error(blocks.file.path(), footer_offset, error))?;
        let properties = tail.block(&blocks, footer.properties)?;
        let properties = Properties::decode(&properties, footer_offset)
            .map_err(|damage| blocks.decode_error(footer.properties.offset, damage))?;
        let root = Slice::from(&*tail.block(&blocks, footer.root)?);
        let root =
            IndexBlock::parse(root).map_err(|damage| blocks.decode_error(footer.root.offset, damage))?;
        let tombstones = match &properties.tombstones {
            Some((handle, _)) => read_tombstones(&blocks, &tail, *handle)?,
            None => RangeTombstones::default(),
        };
        let tombstones = Arc::new(tombstones);
        let filter = TableFilter::new(&properties.filter, footer_offset);
        filter.adopt(&tail.bytes, tail.offset, &blocks, &cache);
        let foreign_seed = properties.seed != seed;
        let root_offset = footer.root.offset;
        Ok(Table {
            blocks,
            cache,
            root,
            root_offset,
            filter,
            scans: ScanLength::default(),
            file_len,
            properties,
            tombstones,
            foreign_seed,
        })
    }

    /// The same table, opened again from its file, without any cache.
    pub(super) fn reopened(&self) -> Result<Table> {
        let cache = Arc::new(BlockCache::new(0));
        Table::over(self.blocks.clone(), self.file_len, cache, self.properties.seed)
    }

    /// Its number.
    pub(crate) fn id(&self) -> TableId {
        self.blocks.id
    }

    /// Its file.
    pub(crate) fn path(&self) -> &Path {
        self.blocks.file.path()
    }

    /// Length of its file.
    pub(crate) fn file_len(&self) -> u64 {
        self.file_len
    }

    /// What it says about itself.
    pub(crate) fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Its range tombstones.
    pub(crate) fn range_tombstones(&self) -> &Arc<RangeTombstones> {
        &self.tombstones
    }

    #[cfg(test)]
    /// Whether its filter has been found damaged and is not used.
    pub(crate) fn has_damaged_filter(&self) -> bool {
        self.filter.is_damaged()
    }

    #[cfg(test)]
    /// The newest version of `key` that `snapshot` sees. Range tombstones are not considered.
    pub(crate) fn get(&self, key: &[u8], hash: u64, snapshot: Seq) -> Result<Option<Found>> {
        let mut found = None;
        self.lookup(key, hash, snapshot, |version| {
            found = Some(version);
            false
        })?;
        Ok(found)
    }

    /// Gives the versions of `key` that `snapshot` sees to `take`, newest first, until it says `false`.
    ///
    /// `hash` is the key's hash under the store's seed. Range tombstones are not considered.
    pub(crate) fn lookup(
        &self,
        key: &[u8],
        hash: u64,
        snapshot: Seq,
        mut take: impl FnMut(Found) -> bool,
    ) -> Result<Lookup> {
        let hash = if self.foreign_seed { key_hash(key, self.properties.seed) } else { hash };
        if !self.filter.may_contain(hash, &self.blocks, &self.cache) {
            return Ok(Lookup::Denied);
        }
        let mut fences = FenceCursor::default();
        fences.seek(self, key)?;
        let mut outcome = Lookup::Absent;
        while let Some(fence) = fences.fence() {
            let cached = self.data_block(&fence, fences.slot(self))?;
            let Some(block) = cached.data() else { return Err(self.not_data(&fence)) };
            let view = block.view();
            let damage = |damage| self.blocks.decode_error(fence.offset, damage);
            let mut next = view.get(key, tag_of(hash), snapshot).map_err(damage)?;
            while let Some((index, entry)) = next {
                outcome = Lookup::Found;
                if !take(found(block, &entry)) {
                    return Ok(outcome);
                }
                next = view.next_version(index, key).map_err(damage)?;
            }
            // Only the last key of a block goes on in the next one.
            if !fence.continues || *fences.separator(self)? != *key {
                break;
            }
            fences.next(self)?;
        }
        Ok(outcome)
    }

    /// Number of entries whose key is smaller than `key`: exact, for at most one data block.
    pub(crate) fn rank(&self, key: &[u8]) -> Result<u64> {
        let mut fences = FenceCursor::default();
        fences.seek(self, key)?;
        let Some(fence) = fences.fence() else {
            return Ok(self.properties.entries);
        };
        let cached = self.data_block(&fence, fences.slot(self))?;
        let Some(block) = cached.data() else { return Err(self.not_data(&fence)) };
        let before = block.view().find(key, Seq::MAX);
        let before = before.map_err(|damage| self.blocks.decode_error(fence.offset, damage))?;
        Ok(fence.ordinal + before as u64)
    }

    #[cfg(test)]
    /// Entries in `range`, exact.
    pub(crate) fn entries_in(&self, range: &KeyRange) -> Result<u64> {
        let start = self.rank(&range.start)?;
        let end = range.end.as_ref().map_or(Ok(self.properties.entries), |end| self.rank(end))?;
        Ok(end.saturating_sub(start))
    }

    #[cfg(test)]
    /// About how much of the file `range` takes, by whole blocks; from the index alone.
    pub(crate) fn approximate_bytes(&self, range: &KeyRange) -> Result<u64> {
        let data_bytes = self.properties.data_bytes;
        if data_bytes == 0 {
            return Ok(0);
        }
        let place = |key: &[u8]| -> Result<u64> {
            let mut fences = FenceCursor::default();
            fences.seek(self, key)?;
            Ok(fences.fence().map_or(data_bytes, |fence| fence.offset))
        };
        let start = place(&range.start)?;
        let end = range.end.as_ref().map_or(Ok(data_bytes), |end| place(end))?;
        let share = u128::from(end.saturating_sub(start)) * u128::from(self.file_len);
        Ok((share / u128::from(data_bytes)) as u64)
    }

    /// A cursor over all entries. It is on none until a seek.
    pub(crate) fn cursor(self: &Arc<Table>, options: CursorOptions) -> TableCursor {
        TableCursor::new(Arc::clone(self), options)
    }

    /// The data block behind `fence`, from its slot, the cache or the file.
    fn data_block(&self, fence: &Fence, slot: Slot<'_>) -> Result<BlockRef> {
        if let Some(cached) = self.cache.get(self.id(), fence.offset, slot) {
            return Ok(cached);
        }
        let block = Block::Data(self.blocks.read_data(fence)?);
        self.cache.insert(self.id(), fence.offset, slot, block.clone());
        Ok(BlockRef::Owned(block))
    }

    /// Two handles of a table lead to the same place.
    #[cold]
    pub(super) fn not_data(&self, fence: &Fence) -> Error {
        self.blocks.corruption(fence.offset, "a fence points to a block that is not data")
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({}, {} entries)", self.id(), self.properties.entries)
    }
}

fn found(block: &DataBlock, entry: &Entry<'_>) -> Found {
    let value = entry.value_offset..entry.value_offset + entry.value.len();
    Found { seq: entry.seq, kind: entry.kind, value: block.bytes.part(value).unwrap_or_default() }
}

fn read_tombstones(blocks: &BlockFile, tail: &Tail, handle: Handle) -> Result<RangeTombstones> {
    let bytes = tail.block(blocks, handle)?;
    let list = decode_tombstones(&bytes).map_err(|damage| blocks.decode_error(handle.offset, damage))?;
    let list: Vec<RangeTombstone> =
        list.into_iter().map(|t| RangeTombstone { range: t.range, seq: t.seq }).collect();
    Ok(RangeTombstones::new(list))
}

/// The end of the file.
struct Tail {
    offset: u64,
    bytes: Slice,
}

impl Tail {
    /// A block that is never compressed, from the tail if it lies there.
    fn block(&self, blocks: &BlockFile, handle: Handle) -> Result<Slice> {
        let start = handle.offset.checked_sub(self.offset).map(|start| start as usize);
        match start.and_then(|start| self.bytes.part(start..start + handle.sealed_len as usize)) {
            Some(sealed) => blocks.unseal_plain(handle, &sealed),
            None => blocks.read_plain(handle),
        }
    }
}
