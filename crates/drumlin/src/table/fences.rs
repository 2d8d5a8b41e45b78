//! Walks the fences of a table, over both levels of its index.

use super::block::{Block, IndexBlock};
use super::reader::Table;
use super::slots::Slot;
use crate::error::{Error, Result};
use drumlin_format::error::Corruption;
use drumlin_format::index::Fence;
use drumlin_format::table::Handle;

/// A place among the fences of a table.
#[derive(Clone, Debug, Default)]
pub(super) struct FenceCursor {
    /// The partition that `at` counts in; `None` when the index is flat.
    partition: Option<Partition>,
    at: usize,
    fence: Option<Fence>,
}

#[derive(Clone, Debug)]
struct Partition {
    /// The fence of the root that points to it.
    number: usize,
    offset: u64,
    block: IndexBlock,
}

impl FenceCursor {
    /// The fence it is on.
    pub(super) fn fence(&self) -> Option<Fence> {
        self.fence
    }

    /// The slot for the block behind the fence it is on.
    pub(super) fn slot<'a>(&'a self, table: &'a Table) -> Slot<'a> {
        self.block(table).slots.slot(self.at)
    }

    /// The end of the whole blocks, from the one behind `fence` on, that it is on, that come nearest to `bytes`; all of one
    /// index block.
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

    /// The separator of the fence it is on.
    pub(super) fn separator(&self, table: &Table) -> Result<Vec<u8>> {
        self.block(table).view().separator(self.at).map_err(|damage| self.damage(table, damage))
    }

    fn damage(&self, table: &Table, damage: Corruption) -> Error {
        let offset = self.partition.as_ref().map_or(table.root_offset, |partition| partition.offset);
        table.blocks.decode_error(offset, damage)
    }

    /// To the first fence whose separator is not smaller than `key`: the first block that can hold it.
    pub(super) fn seek(&mut self, table: &Table, key: &[u8]) -> Result<()> {
        let in_root = table.root.view().find(key);
        let in_root = in_root.map_err(|damage| table.blocks.decode_error(table.root_offset, damage))?;
        if table.root.view().level() == 0 {
            return self.settle(table, in_root);
        }
        if !self.enter(table, in_root)? {
            return Ok(());
        }
        let at = self.block(table).view().find(key).map_err(|damage| self.damage(table, damage))?;
        self.settle(table, at)
    }

    /// To the first fence.
    pub(super) fn seek_first(&mut self, table: &Table) -> Result<()> {
        if table.root.view().level() == 1 && !self.enter(table, 0)? {
            return Ok(());
        }
        self.settle(table, 0)
    }

    /// To the last fence.
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

    /// To the following fence.
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

    /// To the preceding fence.
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

    /// Loads partition `number`; `false` if there is none. The cursor is on no fence then.
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

    /// To fence `at` of the current block; onto none if there is no such fence.
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
    /// Partition `number` of the index, which is behind `fence`, from the cache or the file.
    pub(super) fn partition(&self, number: usize, fence: &Fence) -> Result<IndexBlock> {
        let slot = self.root.slots.slot(number);
        if let Some(cached) = self.cache.get(self.id(), fence.offset, slot)
            && let Some(Block::Index(block)) = cached.block()
        {
            return Ok(block.clone());
        }
        let handle = Handle { offset: fence.offset, sealed_len: fence.sealed_len };
        if handle.end() > self.file_len() {
            return Err(self.blocks.corruption(self.root_offset, "index partition lies outside the file"));
        }
        let bytes = self.blocks.read_plain(handle)?;
        let block = IndexBlock::parse(bytes).map_err(|d| self.blocks.decode_error(fence.offset, d))?;
        if block.view().level() != 0 {
            return Err(self.blocks.corruption(fence.offset, "index has too many levels"));
        }
        self.cache.insert(self.id(), fence.offset, slot, Block::Index(block.clone()));
        Ok(block)
    }

    /// Refuses a fence whose block cannot lie among the data blocks.
    fn check_data(&self, fence: &Fence) -> Result<()> {
        if fence.end() > self.properties().data_bytes {
            return Err(self.blocks.corruption(self.root_offset, "fence points outside the data blocks"));
        }
        Ok(())
    }
}
