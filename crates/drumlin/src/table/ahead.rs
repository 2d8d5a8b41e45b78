//! Parallel reads of blocks for multi-key lookups.
//!
//! A lookup of one key reads its block and waits for the disk. A lookup of many keys can read the blocks that are not
//! in memory in parallel, before the single lookups start. [`Table::missing`] names the block that a lookup would
//! read first. [`read`] reads such blocks and inserts them into the cache.
//!
//! This is an optimization only. If a block could not be read or is evicted again, the lookup reads it itself and
//! reports damage.

use super::block::Block;
use super::fences::FenceCursor;
use super::reader::Table;
use crate::base::error::Result;
use crate::base::slice::Slice;
use drumlin_env::sync::Arc;
use drumlin_env::{Env, ReadRequest};
use drumlin_format::filter::key_hash;
use drumlin_format::index::Fence;

/// Block that a lookup needs and that is not in memory.
pub(crate) struct Missing {
    table: Arc<Table>,
    fences: FenceCursor,
    fence: Fence,
}

impl Missing {
    /// Returns table and offset, which identify the block.
    pub(crate) fn place(&self) -> (u64, u64) {
        (self.table.id().0, self.fence.offset)
    }

    /// Returns an upper bound on the memory that reading it takes: the sealed and the decompressed block.
    pub(crate) fn bytes(&self) -> usize {
        self.fence.sealed_len as usize + self.fence.raw_len as usize
    }
}

impl Table {
    /// Returns the block that a lookup of `key` would read from the file, if any. `hash` and `skips_filter` are the
    /// same as for a lookup.
    pub(crate) fn missing(
        self: &Arc<Self>,
        key: &[u8],
        hash: u64,
        skips_filter: bool,
    ) -> Result<Option<Missing>> {
        let hash = if self.foreign_seed { key_hash(key, self.properties().seed) } else { hash };
        let pin = self.cache.epochs().pin();
        if !skips_filter && !self.filter.may_contain(hash, &self.blocks, &self.cache, &pin) {
            return Ok(None);
        }
        let mut fences = FenceCursor::default();
        fences.seek(self, key)?;
        let Some(fence) = fences.fence() else { return Ok(None) };
        if self.cache.peek(self.id(), fence.offset, fences.pointer(self), &pin).is_some() {
            return Ok(None);
        }
        Ok(Some(Missing { table: Arc::clone(self), fences, fence }))
    }
}

/// Reads the blocks of `missing` in parallel. They must be distinct.
pub(crate) fn read(env: &Env, missing: &[Missing]) {
    let requests = missing.iter().map(|missing| ReadRequest {
        file: missing.table.blocks.file.clone(),
        offset: missing.fence.offset,
        len: missing.fence.sealed_len as usize,
    });
    for (missing, sealed) in missing.iter().zip(env.read_batch(requests.collect())) {
        let Missing { table, fences, fence } = missing;
        let Ok(sealed) = sealed else { continue };
        if let Ok(block) = table.blocks.unseal_data(fence, &Slice::from(sealed)) {
            table.cache.insert(table.id(), fence.offset, fences.pointer(table), Block::Data(block));
        }
    }
}
