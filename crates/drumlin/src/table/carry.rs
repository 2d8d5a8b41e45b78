//! Keeps the block cache warm through a compaction.
//!
//! When a compaction ends, its inputs leave the cache with their tables. Readers would then fetch again what they had
//! cached. So while the compaction writes, it inserts output blocks whose entries come from *warm* input blocks: those
//! that readers have asked for more than once while the cache remembered them. (RocksDB's `prepopulate_block_cache`
//! inserts all blocks of flushes, or of flushes and compactions.)
//!
//! The entries of a warm block may be spread over several output blocks, between entries of cold ones. Each warm entry
//! adds its bytes to a credit, and a block is inserted if it has warm entries and the credit covers it. If one run
//! holds most of the data, nearly each output block has the entries of one input block, and is inserted if that one was
//! warm. Otherwise warm entries are scattered, and a block is inserted only after enough warm bytes have gone by.
//!
//! When the compaction reads a warm input block, it sets the block's rounds (which protect it from eviction) to zero,
//! so the cache evicts it to make room. While a piece runs, readers still need the block, and each use gives it a round
//! again. A compaction that fails leaves it with the rounds that readers gave it since.
//!
//! Memtables, and entries that a merge operator has rewritten, count as cold.
//!
//! Invariants: a compaction inserts no more bytes of entries than it has read from warm blocks. A block is inserted as
//! it is written. Blocks of a table that is abandoned leave the cache.

use super::block::{Block, DataBlock};
use super::block_cache::BlockCache;
use crate::base::slice::Slice;
use drumlin_env::sync::Arc;
use drumlin_types::TableId;

/// The credit is at most this many times the bytes of a block. More would let warm entries of distant keys pay for a
/// block that is mostly cold.
const MOST_CREDIT: usize = 2;

/// Warm entries of a table that is being written.
pub(super) struct Carry {
    cache: Arc<BlockCache>,
    table: TableId,
    /// Bytes of the entries of the open block: all, and warm ones.
    all: usize,
    warm: usize,
    /// Bytes of warm entries that are not spent on an inserted block.
    credit: usize,
    /// Whether any block was inserted.
    has_inserted: bool,
}

impl Carry {
    /// Starts with a table without entries.
    pub(super) fn new(cache: Arc<BlockCache>, table: TableId) -> Carry {
        Carry { cache, table, all: 0, warm: 0, credit: 0, has_inserted: false }
    }

    /// Adds an entry of `bytes` to the open block.
    #[inline]
    pub(super) fn add(&mut self, bytes: usize, is_warm: bool) {
        self.all += bytes;
        if is_warm {
            self.warm += bytes;
        }
    }

    /// Ends the open block, which was written at `offset`. Inserts it if its entries are warm.
    pub(super) fn end_block(&mut self, offset: u64, raw: &[u8]) {
        let (all, warm) = (std::mem::take(&mut self.all), std::mem::take(&mut self.warm));
        self.credit = (self.credit + warm).min(MOST_CREDIT * all);
        if warm == 0 || self.credit < all {
            return;
        }
        if self.cache.admits(raw.len())
            && let Ok(block) = DataBlock::parse(Slice::from(raw))
            && self.cache.carry(self.table, offset, Block::Data(block))
        {
            self.credit -= all;
            self.has_inserted = true;
        }
    }

    /// Drops what was inserted, since the table is abandoned.
    pub(super) fn abandon(&self) {
        if self.has_inserted {
            self.cache.forget_table(self.table);
        }
    }
}
