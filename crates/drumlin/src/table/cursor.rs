//! Cursor over a table, in both directions.
//!
//! A cursor keeps one data block and its position among the fences. It reads ahead when it moves forward from block
//! to block (see `read_ahead`).
//!
//! Cursors of compactions use cached blocks but do not mark them as used and insert none. They tell which entries come
//! from blocks that readers keep in the cache; blocks of the outputs replace these (`carry`). Their uncompressed blocks
//! are slices of the read-ahead buffer. Blocks that enter the cache are copies, because a slice would keep the whole
//! buffer alive.
//!
//! A compaction gives the cursor the sequence numbers that the manifest records for the table
//! ([`TableCursor::within`]). It must not copy an entry outside them: levels are ordered by recorded sequence numbers,
//! so a newer version could end up below an older one.
//!
//! Invariants: the cursor is valid exactly when it is on an entry. It keeps an error, and every later call returns it
//! again.

use super::block::{Block, DataBlock};
use super::fences::FenceCursor;
use super::read_ahead::{CursorOptions, ReadAhead};
use super::reader::Table;
use crate::base::cursor::Cursor;
use crate::base::error::{Error, Result};
use crate::base::slice::Slice;
use drumlin_env::sync::Arc;
use drumlin_format::block::EntryCursor;
use drumlin_format::error::Corruption;
use drumlin_format::index::Fence;
use drumlin_types::{Kind, Seq, bug};

/// Number of entries before the end of a block at which a cursor begins to prefetch the next block.
const PREFETCH_BEFORE: usize = 8;
/// Distance in bytes at which steps forward prefetch the entries of the block, and the bytes that each step prefetches.
const PREFETCH_AHEAD: usize = 512;
const PREFETCH_STEP: usize = 128;

/// Cursor over a table.
pub(crate) struct TableCursor {
    table: Arc<Table>,
    options: CursorOptions,
    fences: FenceCursor,
    /// Block of the current fence.
    block: Option<DataBlock>,
    /// Whether that block is warm (`carry`). Always `false` for cursors that do not hand blocks over.
    is_warm: bool,
    index: usize,
    entry: EntryCursor,
    valid: bool,
    ahead: ReadAhead,
    /// Whether the next block is prefetched, if it is in the cache.
    has_prefetched: bool,
    /// Smallest and largest sequence number that an entry may have; `None` if they are not checked.
    recorded: Option<(Seq, Seq)>,
    error: Option<Error>,
}

impl Table {
    /// Returns a cursor over all entries. It is on no entry until a seek.
    pub(crate) fn cursor(self: &Arc<Table>, options: CursorOptions) -> TableCursor {
        TableCursor::new(Arc::clone(self), options)
    }
}

impl TableCursor {
    pub(super) fn new(table: Arc<Table>, options: CursorOptions) -> TableCursor {
        TableCursor {
            table,
            options,
            fences: FenceCursor::default(),
            block: None,
            is_warm: false,
            index: 0,
            entry: EntryCursor::default(),
            valid: false,
            ahead: ReadAhead::default(),
            has_prefetched: false,
            recorded: None,
            error: None,
        }
    }

    /// Returns the cursor with a check: an entry with a sequence number outside `min..=max` is an error.
    pub(crate) fn within(mut self, min: Seq, max: Seq) -> TableCursor {
        self.recorded = Some((min, max));
        self
    }

    /// Runs one move of the cursor and keeps its error.
    fn guarded(&mut self, body: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        self.valid = false;
        let result = body(self).inspect_err(|error| {
            self.valid = false;
            self.error = Some(error.clone());
        });
        if bug!("cursor-error-swallowed") { Ok(()) } else { result }
    }

    /// Loads the block of the current fence. Returns `false` if there is no fence.
    fn enter(&mut self) -> Result<bool> {
        self.entry.leave_block();
        self.block = None;
        self.has_prefetched = false;
        let Some(fence) = self.fences.fence() else { return Ok(false) };
        self.block = Some(self.load(&fence)?);
        Ok(true)
    }

    fn load(&mut self, fence: &Fence) -> Result<DataBlock> {
        let table = &self.table;
        let pointer = self.fences.pointer(table);
        let pin = table.cache.epochs().pin();
        self.is_warm = false;
        let cached = if self.options.fill_cache {
            table.cache.get(table.id(), fence.offset, pointer, &pin)
        } else {
            table.cache.peek(table.id(), fence.offset, pointer, &pin)
        };
        if cached.is_some() && self.options.hands_over {
            self.is_warm = table.cache.hand_over(table.id(), fence.offset);
        }
        if let Some(cached) = cached {
            self.ahead.passed(table, fence);
            let Some(block) = cached.data() else { return Err(table.not_data(fence)) };
            block.prefetch();
            return Ok(block.clone());
        }
        drop(pin);
        let sealed = self.ahead.take(table, &self.fences, fence, &self.options)?;
        let block = match sealed {
            None => table.blocks.read_data(fence)?,
            Some(sealed) if self.options.fill_cache => table.blocks.copy_data(fence, &sealed)?,
            Some(sealed) => table.blocks.unseal_data(fence, &sealed)?,
        };
        if self.options.fill_cache {
            table.cache.insert(table.id(), fence.offset, pointer, Block::Data(block.clone()));
        }
        Ok(block)
    }

    /// Prefetches the next block if the cursor, which moves forward, soon gets there. `left` entries follow in its
    /// block after this step.
    #[inline]
    fn prefetch_next(&mut self, left: usize) {
        if left <= PREFETCH_BEFORE && !self.has_prefetched {
            self.fences.next_pointer(&self.table).prefetch();
            self.has_prefetched = true;
        }
    }

    fn damage(&self, damage: Corruption) -> Error {
        let offset = self.fences.fence().map_or(0, |fence| fence.offset);
        self.table.blocks.decode_error(offset, damage)
    }

    /// Fails if a seek led to the wrong side of its key. A caller that seeks to get past entries relies on the side.
    fn check_order(&self, is_right: bool) -> Result<()> {
        match is_right {
            true => Ok(()),
            false => Err(self.damage(Corruption::new("keys of a table are out of order", 0))),
        }
    }

    fn check_recorded(&self, min: Seq, max: Seq) -> Result<()> {
        match (min..=max).contains(&self.entry.seq()) {
            true => Ok(()),
            false => {
                let what = "an entry's sequence number lies outside the range recorded for its table";
                Err(self.damage(Corruption::new(what, 0)))
            }
        }
    }

    fn count(&self) -> usize {
        self.block.as_ref().map_or(0, |block| block.view().count())
    }

    /// Moves to entry `index` of the current block.
    fn settle(&mut self, index: usize) -> Result<()> {
        let Some(block) = &self.block else { return Ok(()) };
        self.entry.load(block.view(), index).map_err(|damage| self.damage(damage))?;
        if let Some((min, max)) = self.recorded {
            self.check_recorded(min, max)?;
        }
        self.index = index;
        self.valid = true;
        Ok(())
    }

    fn find(&self, key: &[u8], seq: Seq) -> Result<usize> {
        let Some(block) = &self.block else { return Ok(0) };
        block.find(key, seq).map_err(|damage| self.damage(damage))
    }

    /// Moves to the last entry of the block before the current one.
    fn settle_in_previous_block(&mut self) -> Result<()> {
        let table = Arc::clone(&self.table);
        self.fences.prev(&table)?;
        if self.enter()? { self.settle(self.count() - 1) } else { Ok(()) }
    }
}

impl Drop for TableCursor {
    fn drop(&mut self) {
        self.ahead.end(&self.table);
    }
}

impl Cursor for TableCursor {
    fn valid(&self) -> bool {
        self.valid
    }

    fn key(&self) -> &[u8] {
        debug_assert!(self.valid);
        self.entry.key()
    }

    fn seq(&self) -> Seq {
        debug_assert!(self.valid);
        self.entry.seq()
    }

    fn kind(&self) -> Kind {
        debug_assert!(self.valid);
        self.entry.kind()
    }

    fn value(&self) -> &[u8] {
        debug_assert!(self.valid);
        let block = self.block.as_ref();
        block.and_then(|block| block.bytes.get(self.entry.value())).unwrap_or_default()
    }

    /// Returns the value, which shares the memory of the block.
    fn value_slice(&self) -> Slice {
        let block = self.block.as_ref().filter(|_| self.valid);
        block.and_then(|block| block.bytes.part(self.entry.value())).unwrap_or_default()
    }

    fn is_warm(&self) -> bool {
        self.is_warm
    }

    fn seek_first(&mut self) -> Result<()> {
        self.guarded(|this| {
            this.fences.seek_first(&this.table)?;
            if this.enter()? { this.settle(0) } else { Ok(()) }
        })
    }

    fn seek_last(&mut self) -> Result<()> {
        self.guarded(|this| {
            this.fences.seek_last(&this.table)?;
            if this.enter()? { this.settle(this.count() - 1) } else { Ok(()) }
        })
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        self.guarded(|this| {
            this.fences.seek(&this.table, key)?;
            // Repeats only when the versions of one key fill several blocks.
            while this.enter()? {
                let index = this.find(key, seq)?;
                if index < this.count() {
                    this.settle(index)?;
                    let (order, found) = (this.entry.key().cmp(key), this.entry.seq());
                    return this.check_order(order.is_gt() || order.is_eq() && found <= seq);
                }
                this.fences.next(&this.table)?;
            }
            Ok(())
        })
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.guarded(|this| {
            this.fences.seek(&this.table, key)?;
            if this.fences.fence().is_none() {
                this.fences.seek_last(&this.table)?;
            }
            if !this.enter()? {
                return Ok(());
            }
            match this.find(key, Seq::MAX)?.checked_sub(1) {
                Some(index) => this.settle(index)?,
                None => this.settle_in_previous_block()?,
            }
            this.check_order(!this.valid || this.entry.key() < key)
        })
    }

    fn next(&mut self) -> Result<()> {
        debug_assert!(self.valid || self.error.is_some());
        self.guarded(|this| {
            if let Some(left) = this.count().checked_sub(this.index + 2) {
                this.prefetch_next(left);
                if let Some(block) = &this.block {
                    block.prefetch_entries(this.entry.value().start + PREFETCH_AHEAD, PREFETCH_STEP);
                }
                return this.settle(this.index + 1);
            }
            this.fences.next(&this.table)?;
            if !this.enter()? {
                return Ok(());
            }
            if let Some(block) = &this.block {
                block.prefetch_entries(0, PREFETCH_AHEAD);
            }
            this.settle(0)
        })
    }

    fn prev(&mut self) -> Result<()> {
        debug_assert!(self.valid || self.error.is_some());
        self.guarded(|this| match this.index.checked_sub(1) {
            Some(index) => this.settle(index),
            None => this.settle_in_previous_block(),
        })
    }
}
