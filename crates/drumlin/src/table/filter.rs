//! Filter of an open table, as lookups use it.
//!
//! Only verified bytes may rule a key out. A lookup that finds a module not in memory reads it from the file or goes on
//! without it. A read must pay off: it costs as much as the reads of several data blocks that the filter may save. The
//! first miss of the first module reads it. After that a module is read at one miss in as many as its length holds
//! [`BYTES_PER_MISS`], and a later module at most at one in [`LOAD_EVERY`]. So modules that evict each other cost
//! lookups of an open table at most about twice what lookups without them would. `multi_get` counts a miss twice, and a
//! table that is opened again starts to count anew.
//!
//! A damaged module is marked once and never read again. Lookups continue without it, `verify` reports it, and the
//! next compaction of the table builds a new filter.

use super::block::{Block, BlockFile, BlockRef, Pointers};
use super::block_cache::BlockCache;
use crate::base::epoch::{Epochs, Pin};
use crate::base::error::Result;
use crate::base::prefetch::prefetch;
use crate::base::slice::Slice;
use drumlin_env::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use drumlin_format::filter::{Method, first_read, may_contain};
use drumlin_format::table::{FilterDescriptor, Handle};

/// A later module that is not in memory is read at one in this many misses, or less often.
const LOAD_EVERY: u32 = 16;
/// A module that is not in memory is read at one in as many misses as its length holds this. A device transfers that
/// many bytes in about the time of one random read.
pub(super) const BYTES_PER_MISS: u64 = 64 << 10;

#[derive(Debug)]
struct ModuleState {
    handle: Handle,
    probes: u8,
    /// Number of lookups that did not find this module in memory, among those that may have read it.
    missed: AtomicU32,
    damaged: AtomicBool,
    pointers: Pointers,
}

/// The filter of an open table.
#[derive(Debug)]
pub(super) struct TableFilter {
    method: Method,
    modules: Vec<ModuleState>,
    /// Whether the descriptor itself is invalid.
    absurd: bool,
}

impl TableFilter {
    /// Creates the filter described by `descriptor`, in a file whose blocks end before `limit`. Its readers pin
    /// `epochs`.
    pub(super) fn new(descriptor: &FilterDescriptor, limit: u64, epochs: &Epochs) -> TableFilter {
        let states = descriptor.modules.iter().map(|module| {
            let handle = module.handle(limit)?;
            Some(ModuleState {
                handle,
                probes: module.probes,
                missed: AtomicU32::new(0),
                damaged: AtomicBool::new(false),
                pointers: Pointers::new(1, epochs),
            })
        });
        // Without a known method there are no modules.
        let method = descriptor.method().unwrap_or(Method::Bloom);
        match states.collect() {
            Some(modules) => TableFilter { method, modules, absurd: false },
            None => TableFilter { method, modules: Vec::new(), absurd: true },
        }
    }

    /// Returns whether a module is damaged or the descriptor is invalid.
    pub(super) fn is_damaged(&self) -> bool {
        self.absurd || self.modules.iter().any(|module| module.damaged.load(Ordering::Relaxed))
    }

    /// Returns the bytes of memory that the filter takes besides the bits, which are cached blocks.
    pub(super) fn held_bytes(&self) -> usize {
        let pointers = self.modules.iter().map(|module| module.pointers.bytes() + 16).sum::<usize>();
        size_of_val(&*self.modules) + pointers
    }

    /// Returns the method of the modules.
    pub(super) fn method(&self) -> Method {
        self.method
    }

    /// Returns the number of modules.
    pub(super) fn modules(&self) -> usize {
        self.modules.len()
    }

    /// Returns whether a key with this hash may be in the table.
    pub(super) fn may_contain(
        &self,
        hash: u64,
        blocks: &BlockFile,
        cache: &BlockCache,
        pin: &Pin<'_>,
    ) -> bool {
        for (number, module) in self.modules.iter().enumerate() {
            if module.damaged.load(Ordering::Relaxed) {
                continue;
            }
            if let Some(resident) = module.resident(number, blocks, cache, pin)
                && let Block::Filter(bits) = resident.block()
                && !may_contain(self.method, bits, number, module.probes, hash)
            {
                return false;
            }
        }
        true
    }

    /// Prefetches what `may_contain` reads first for this hash, if that is in memory.
    pub(super) fn prefetch(&self, hash: u64, pin: &Pin<'_>) {
        if let Some(module) = self.modules.first()
            && let Some(Block::Filter(bits)) = module.pointers.pointer(0).borrow(false, pin)
            && let Some(place) = first_read(self.method, bits.len(), 0, hash)
        {
            prefetch(bits.as_ptr().wrapping_add(place));
        }
    }

    /// Reads and verifies module `number`, bypassing the cache. Returns its bits and its number of probes.
    pub(super) fn bits(&self, number: usize, blocks: &BlockFile) -> Result<(Slice, u8)> {
        let module = &self.modules[number];
        Ok((blocks.read_plain(module.handle)?, module.probes))
    }

    /// Inserts the first module into the cache if `tail` contains all of it. `tail` starts at `tail_offset` in the
    /// file.
    pub(super) fn adopt(&self, tail: &Slice, tail_offset: u64, blocks: &BlockFile, cache: &BlockCache) {
        let Some(module) = self.modules.first() else { return };
        let Some(start) = module.handle.offset.checked_sub(tail_offset) else { return };
        let start = start as usize;
        let Some(sealed) = tail.part(start..start + module.handle.sealed_len as usize) else { return };
        match blocks.unseal_plain(module.handle, &sealed) {
            // Copied, so that the cache does not keep the whole tail in memory.
            Ok(bits) => {
                let bits = Block::Filter(Slice::from(&*bits));
                cache.insert(blocks.id, module.handle.offset, module.pointers.pointer(0), bits);
            }
            Err(_) => module.damaged.store(true, Ordering::Relaxed),
        }
    }
}

impl ModuleState {
    /// Returns the module's bits if they are in memory, or reads them if that pays off.
    fn resident<'p>(
        &'p self,
        number: usize,
        blocks: &BlockFile,
        cache: &BlockCache,
        pin: &'p Pin<'_>,
    ) -> Option<BlockRef<'p>> {
        let pointer = self.pointers.pointer(0);
        if let Some(bits) = cache.get(blocks.id, self.handle.offset, pointer, pin) {
            return Some(bits);
        }
        // A module that the cache cannot hold would cost each lookup more than the data block it may save.
        if !cache.admits(self.handle.sealed_len as usize) {
            return None;
        }
        let missed = self.missed.fetch_add(1, Ordering::Relaxed);
        let costs = u32::try_from(self.handle.sealed_len as u64 / BYTES_PER_MISS).unwrap_or(u32::MAX).max(1);
        let pays = match number {
            0 => missed.is_multiple_of(costs),
            _ => missed.wrapping_add(1).is_multiple_of(costs.max(LOAD_EVERY)),
        };
        if !pays {
            return None;
        }
        match blocks.read_plain(self.handle) {
            Ok(bits) => {
                cache.insert(blocks.id, self.handle.offset, pointer, Block::Filter(bits.clone()));
                Some(BlockRef::Owned(Block::Filter(bits)))
            }
            Err(error) => {
                // A failed read may succeed later. Damage is permanent.
                if error.is_corruption() {
                    self.damaged.store(true, Ordering::Relaxed);
                }
                None
            }
        }
    }
}
