//! Point lookups, ranks and size estimates in an open table.
//!
//! A lookup first checks the filter. If the filter does not rule the key out, the lookup searches the index for the
//! fence of the block. It takes the block through its cached pointer, or from the cache or the file, and searches it.

use super::block::{Block, BlockRef, CachedPointer, DataBlock};
use super::fences::FenceCursor;
use super::reader::Table;
use crate::base::epoch::Pin;
use crate::base::error::Result;
use crate::base::slice::Slice;
use drumlin_format::block::{Entry, tag_of};
use drumlin_format::filter::key_hash;
use drumlin_format::index::Fence;
use drumlin_types::{KeyRange, Kind, Seq};

/// Version of a key that a lookup found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LookupHit {
    pub(crate) seq: Seq,
    pub(crate) kind: Kind,
    /// Shares the memory of its block.
    pub(crate) value: Slice,
}

/// Outcome of a lookup, for the lookup statistics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lookup {
    /// The filter ruled the key out; the lookup read no data block.
    Denied,
    /// The filter let the key pass, or there is none, but the table has no visible version.
    Absent,
    /// The lookup found a version.
    Found,
}

impl Table {
    #[cfg(test)]
    /// Returns the newest version of `key` that `snapshot` sees. Ignores range tombstones.
    pub(crate) fn get(&self, key: &[u8], hash: u64, snapshot: Seq) -> Result<Option<LookupHit>> {
        let mut found = None;
        self.lookup(key, hash, snapshot, false, |version| {
            found = Some(version);
            false
        })?;
        Ok(found)
    }

    /// Prefetches what `lookup` reads first of the filter for a key with this hash under the store's seed.
    pub(crate) fn prefetch_filter(&self, hash: u64, pin: &Pin<'_>) {
        if !self.foreign_seed {
            self.filter.prefetch(hash, pin);
        }
    }

    /// Passes the versions of `key` that `snapshot` sees to `take`, newest first, until it returns `false`.
    ///
    /// `hash` is the key's hash under the store's seed. With `skips_filter` the filter is not used. Ignores range
    /// tombstones.
    pub(crate) fn lookup(
        &self,
        key: &[u8],
        hash: u64,
        snapshot: Seq,
        skips_filter: bool,
        mut take: impl FnMut(LookupHit) -> bool,
    ) -> Result<Lookup> {
        let hash = if self.foreign_seed { key_hash(key, self.properties().seed) } else { hash };
        let pin = self.cache.epochs().pin();
        if !skips_filter && !self.filter.may_contain(hash, &self.blocks, &self.cache, &pin) {
            return Ok(Lookup::Denied);
        }
        let mut fences = FenceCursor::default();
        fences.seek(self, key)?;
        let mut outcome = Lookup::Absent;
        while let Some(fence) = fences.fence() {
            let cached = self.data_block(&fence, fences.pointer(self), &pin)?;
            let Some(block) = cached.data() else { return Err(self.not_data(&fence)) };
            block.prefetch();
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
            // Only the last key of a block can continue in the next block.
            if !fence.continues || *fences.separator(self)? != *key {
                break;
            }
            fences.next(self)?;
        }
        Ok(outcome)
    }

    /// Returns the exact number of entries whose key is smaller than `key`. Reads at most one data block.
    pub(crate) fn rank(&self, key: &[u8]) -> Result<u64> {
        let mut fences = FenceCursor::default();
        fences.seek(self, key)?;
        let Some(fence) = fences.fence() else {
            return Ok(self.properties().entries);
        };
        let pin = self.cache.epochs().pin();
        let cached = self.data_block(&fence, fences.pointer(self), &pin)?;
        let Some(block) = cached.data() else { return Err(self.not_data(&fence)) };
        let before = block.find(key, Seq::MAX);
        let before = before.map_err(|damage| self.blocks.decode_error(fence.offset, damage))?;
        Ok(fence.ordinal + before as u64)
    }

    /// Returns the number of entries in the blocks before the one that may hold `key`: fewer than its rank by less than
    /// a block. Reads the index only.
    pub(crate) fn rank_by_index(&self, key: &[u8]) -> Result<u64> {
        let mut fences = FenceCursor::default();
        fences.seek(self, key)?;
        Ok(fences.fence().map_or(self.properties().entries, |fence| fence.ordinal))
    }

    /// Returns a key between two blocks of the table, near this share of its blocks, 0 to 1. Reads the index only.
    pub(crate) fn key_near(&self, share: f64) -> Result<Option<Vec<u8>>> {
        let mut fences = FenceCursor::default();
        fences.seek_share(self, share)?;
        fences.fence().map(|_| fences.separator(self)).transpose()
    }

    #[cfg(test)]
    /// Returns the exact number of entries in `range`.
    pub(crate) fn entries_in(&self, range: &KeyRange) -> Result<u64> {
        let start = self.rank(&range.start)?;
        let end = range.end.as_ref().map_or(Ok(self.properties().entries), |end| self.rank(end))?;
        Ok(end.saturating_sub(start))
    }

    /// Estimates how many bytes of the file `range` occupies, in whole blocks. Reads the index only.
    pub(crate) fn approximate_bytes(&self, range: &KeyRange) -> Result<u64> {
        let data_bytes = self.properties().data_bytes;
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
        let share = u128::from(end.saturating_sub(start)) * u128::from(self.file_len());
        Ok((share / u128::from(data_bytes)) as u64)
    }

    /// Returns the data block behind `fence`, through its cached pointer, or from the cache or the file.
    fn data_block<'p>(
        &self,
        fence: &Fence,
        pointer: CachedPointer<'p>,
        pin: &'p Pin<'_>,
    ) -> Result<BlockRef<'p>> {
        if let Some(cached) = self.cache.get(self.id(), fence.offset, pointer, pin) {
            return Ok(cached);
        }
        let block = Block::Data(self.blocks.read_data(fence)?);
        self.cache.insert(self.id(), fence.offset, pointer, block.clone());
        Ok(BlockRef::Owned(block))
    }
}

fn found(block: &DataBlock, entry: &Entry<'_>) -> LookupHit {
    let value = entry.value_offset..entry.value_offset + entry.value.len();
    LookupHit { seq: entry.seq, kind: entry.kind, value: block.bytes.part(value).unwrap_or_default() }
}
