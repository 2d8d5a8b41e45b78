//! Blocks fetched for many lookups at once.
//!
//! A lookup of one key reads its block and waits for the disk. Of many keys at a time, the blocks that are not in memory
//! can be read side by side before the lookups begin: [`Table::missing`] names the block that a lookup would read first,
//! [`read`] fetches such blocks and gives them to the cache. It is a favour only: a block that could not be
//! fetched, or is gone again, is read by the lookup itself, which also finds out about damage.

use super::block::Block;
use super::fences::FenceCursor;
use super::reader::Table;
use crate::error::Result;
use crate::slice::Slice;
use drumlin_env::sync::Arc;
use drumlin_env::{Env, ReadRequest};
use drumlin_format::filter::key_hash;
use drumlin_format::index::Fence;

/// A block that a lookup will want.
pub(crate) struct Missing {
    table: Arc<Table>,
    fences: FenceCursor,
    fence: Fence,
}

impl Missing {
    /// Table and place, to tell blocks apart.
    pub(crate) fn place(&self) -> (u64, u64) {
        (self.table.id().0, self.fence.offset)
    }

    /// What reading it takes of memory, at most: the block as it lies in the file, and what it is decompressed to.
    pub(crate) fn bytes(&self) -> usize {
        self.fence.sealed_len as usize + self.fence.raw_len as usize
    }
}

impl Table {
    /// The block that a lookup of `key` would read from the file, if there is one. `hash` is as for a lookup.
    pub(crate) fn missing(self: &Arc<Self>, key: &[u8], hash: u64) -> Result<Option<Missing>> {
        let hash = if self.foreign_seed { key_hash(key, self.properties().seed) } else { hash };
        if !self.filter.may_contain(hash, &self.blocks, &self.cache) {
            return Ok(None);
        }
        let mut fences = FenceCursor::default();
        fences.seek(self, key)?;
        let Some(fence) = fences.fence() else { return Ok(None) };
        if self.cache.peek(self.id(), fence.offset, fences.slot(self)).is_some() {
            return Ok(None);
        }
        Ok(Some(Missing { table: Arc::clone(self), fences, fence }))
    }
}

/// Fetches `missing`, which are all different, side by side.
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
            table.cache.insert(table.id(), fence.offset, fences.slot(table), Block::Data(block));
        }
    }
}
