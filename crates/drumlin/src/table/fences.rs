//! Cursor over the fences (index entries) of a table, across both levels of its index.

use super::block::{Block, CachedPointer, IndexBlock};
use super::reader::Table;
use crate::base::error::{Error, Result};
use drumlin_env::sync::Arc;
use drumlin_format::error::Corruption;
use drumlin_format::index::Fence;
use drumlin_format::table::Handle;

/// Position among the fences of a table.
#[derive(Clone, Debug, Default)]
pub(super) struct FenceCursor {
    /// Index partition that `at` refers to; `None` when the index has one level.
    partition: Option<Partition>,
    at: usize,
    fence: Option<Fence>,
}

#[derive(Clone, Debug)]
struct Partition {
    /// Number of the root's fence that points to the partition.
    number: usize,
    offset: u64,
    block: Arc<IndexBlock>,
}

impl FenceCursor {
    /// Returns the current fence.
    pub(super) fn fence(&self) -> Option<Fence> {
        self.fence
    }

    /// Returns the cached pointer to the block behind the current fence.
    pub(super) fn pointer<'a>(&'a self, table: &'a Table) -> CachedPointer<'a> {
        self.block(table).pointers.pointer(self.at)
    }

    /// Returns the cached pointer to the block behind the next fence, or a null pointer at the end of an index block.
    pub(super) fn next_pointer<'a>(&'a self, table: &'a Table) -> CachedPointer<'a> {
        self.block(table).pointers.pointer(self.at + 1)
    }

    /// Returns the end offset of a read-ahead that starts with the block behind `fence`, the current fence. The read
    /// covers whole blocks of one index block, as many as come nearest to `bytes`.
    pub(super) fn reach(&self, table: &Table, fence: &Fence, bytes: u64) -> Result<u64> {
        let view = self.block(table).view();
        let mut end = fence.end();
        for at in self.at + 1..view.count() {
            let next = view.fence(at).map_err(|damage| self.damage(table, damage))?;
            if next.offset != end || next.offset + u64::from(next.sealed_len) / 2 > fence.offset + bytes {
                break;
            }
            table.check_data(&next)?;
            end = next.end();
        }
        Ok(end)
    }

    /// Returns the separator of the current fence.
    pub(super) fn separator(&self, table: &Table) -> Result<Vec<u8>> {
        self.block(table).view().separator(self.at).map_err(|damage| self.damage(table, damage))
    }

    fn damage(&self, table: &Table, damage: Corruption) -> Error {
        let offset = self.partition.as_ref().map_or(table.root_offset, |partition| partition.offset);
        table.blocks.decode_error(offset, damage)
    }

    /// Moves to the first fence whose separator is not smaller than `key`. Its block is the first that can hold
    /// `key`.
    pub(super) fn seek(&mut self, table: &Table, key: &[u8]) -> Result<()> {
        let in_root = table.root.find(key);
        let in_root = in_root.map_err(|damage| table.blocks.decode_error(table.root_offset, damage))?;
        if table.root.view().level() == 0 {
            return self.settle(table, in_root);
        }
        if !self.enter(table, in_root)? {
            return Ok(());
        }
        let at = self.block(table).find(key).map_err(|damage| self.damage(table, damage))?;
        self.settle(table, at)
    }

    /// Moves to the fence at this share of all fences, 0 to 1. Partitions count as equally large.
    pub(super) fn seek_share(&mut self, table: &Table, share: f64) -> Result<()> {
        let place = |share: f64, count: usize| {
            let at = share.clamp(0.0, 1.0) * count as f64;
            let whole = (at as usize).min(count.saturating_sub(1));
            (whole, at - whole as f64)
        };
        let (mut at, rest) = place(share, table.root.view().count());
        if table.root.view().level() == 1 {
            if !self.enter(table, at)? {
                return Ok(());
            }
            (at, _) = place(rest, self.block(table).view().count());
        }
        self.settle(table, at)
    }

    /// Moves to the first fence.
    pub(super) fn seek_first(&mut self, table: &Table) -> Result<()> {
        if table.root.view().level() == 1 && !self.enter(table, 0)? {
            return Ok(());
        }
        self.settle(table, 0)
    }

    /// Moves to the last fence.
    pub(super) fn seek_last(&mut self, table: &Table) -> Result<()> {
        if table.root.view().level() == 1 {
            let last = table.root.view().count().wrapping_sub(1);
            if !self.enter(table, last)? {
                return Ok(());
            }
        }
        let count = self.block(table).view().count();
        self.settle(table, count.wrapping_sub(1))
    }

    /// Moves to the next fence.
    pub(super) fn next(&mut self, table: &Table) -> Result<()> {
        self.settle(table, self.at + 1)?;
        if self.fence.is_none()
            && let Some(number) = self.partition.as_ref().map(|partition| partition.number)
            && self.enter(table, number + 1)?
        {
            self.settle(table, 0)?;
        }
        Ok(())
    }

    /// Moves to the previous fence.
    pub(super) fn prev(&mut self, table: &Table) -> Result<()> {
        if let Some(at) = self.at.checked_sub(1) {
            return self.settle(table, at);
        }
        self.fence = None;
        if let Some(number) = self.partition.as_ref().map(|partition| partition.number)
            && let Some(before) = number.checked_sub(1)
            && self.enter(table, before)?
        {
            let count = self.block(table).view().count();
            self.settle(table, count.wrapping_sub(1))?;
        }
        Ok(())
    }

    fn block<'a>(&'a self, table: &'a Table) -> &'a IndexBlock {
        self.partition.as_ref().map_or(&table.root, |partition| &partition.block)
    }

    /// Loads partition `number` and leaves the cursor on no fence. Returns `false` if there is no such partition.
    fn enter(&mut self, table: &Table, number: usize) -> Result<bool> {
        self.fence = None;
        if number >= table.root.view().count() {
            return Ok(false);
        }
        if self.partition.as_ref().is_none_or(|partition| partition.number != number) {
            let fence = table.root.view().fence(number);
            let fence = fence.map_err(|damage| table.blocks.decode_error(table.root_offset, damage))?;
            let block = table.partition(number, &fence)?;
            self.partition = Some(Partition { number, offset: fence.offset, block });
        }
        Ok(true)
    }

    /// Moves to fence `at` of the current index block, or to none if it does not exist.
    fn settle(&mut self, table: &Table, at: usize) -> Result<()> {
        self.fence = None;
        let view = self.block(table).view();
        if at < view.count() {
            let fence = view.fence(at).map_err(|damage| self.damage(table, damage))?;
            table.check_data(&fence)?;
            self.fence = Some(fence);
            self.at = at;
        }
        Ok(())
    }
}

impl Table {
    /// Returns index partition `number`, which `fence` of the root points to, from the cache or the file.
    pub(super) fn partition(&self, number: usize, fence: &Fence) -> Result<Arc<IndexBlock>> {
        let pointer = self.root.pointers.pointer(number);
        let pin = self.cache.epochs().pin();
        if let Some(cached) = self.cache.get(self.id(), fence.offset, pointer, &pin)
            && let Block::Index(block) = cached.block()
        {
            return Ok(Arc::clone(block));
        }
        drop(pin);
        let handle = Handle { offset: fence.offset, sealed_len: fence.sealed_len };
        if handle.end() > self.file_len() {
            return Err(self.blocks.corruption(self.root_offset, "index partition lies outside the file"));
        }
        let bytes = self.blocks.read_plain(handle)?;
        let block = IndexBlock::parse(bytes, self.cache.epochs())
            .map_err(|d| self.blocks.decode_error(fence.offset, d))?;
        if block.view().level() != 0 {
            return Err(self.blocks.corruption(fence.offset, "index has too many levels"));
        }
        let block = Arc::new(block);
        self.cache.insert(self.id(), fence.offset, pointer, Block::Index(Arc::clone(&block)));
        Ok(block)
    }

    /// Returns an error for a fence that points outside the data blocks.
    fn check_data(&self, fence: &Fence) -> Result<()> {
        if fence.end() > self.properties().data_bytes {
            return Err(self.blocks.corruption(self.root_offset, "fence points outside the data blocks"));
        }
        Ok(())
    }
}
