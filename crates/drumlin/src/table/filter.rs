//! A table's filter as lookups use it.
//!
//! Only verified bytes may say "no". The first module is fetched when it is not in memory; a later one is skipped,
//! and fetched at every sixteenth such occasion. Damage is noted once and the module is not tried again: reads go
//! on without it, `verify` reports it, and the next merge of the table builds a new one.

use super::block::{Block, BlockFile};
use super::block_cache::BlockCache;
use super::slots::{BlockRef, Slots};
use crate::error::Result;
use crate::slice::Slice;
use drumlin_env::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use drumlin_format::filter::may_contain;
use drumlin_format::table::{FilterDescriptor, Handle};

/// A later module that is not in memory is fetched at one occasion in this many.
const LOAD_EVERY: u32 = 16;

#[derive(Debug)]
struct ModuleState {
    handle: Handle,
    probes: u8,
    /// How often it was not in memory.
    missed: AtomicU32,
    damaged: AtomicBool,
    slots: Slots,
}

/// The filter of an open table.
#[derive(Debug, Default)]
pub(super) struct TableFilter {
    modules: Vec<ModuleState>,
    /// Whether the descriptor itself could not be believed.
    absurd: bool,
}

impl TableFilter {
    /// The filter described by `descriptor`, in a file whose blocks end before `limit`.
    pub(super) fn new(descriptor: &FilterDescriptor, limit: u64) -> TableFilter {
        let states = descriptor.modules.iter().map(|module| {
            let handle = module.handle(limit)?;
            Some(ModuleState {
                handle,
                probes: module.probes,
                missed: AtomicU32::new(0),
                damaged: AtomicBool::new(false),
                slots: Slots::new(1),
            })
        });
        match states.collect() {
            Some(modules) => TableFilter { modules, absurd: false },
            None => TableFilter { modules: Vec::new(), absurd: true },
        }
    }

    /// Whether some module is damaged or the descriptor absurd.
    pub(super) fn is_damaged(&self) -> bool {
        self.absurd || self.modules.iter().any(|module| module.damaged.load(Ordering::Relaxed))
    }

    /// Number of modules.
    pub(super) fn modules(&self) -> usize {
        self.modules.len()
    }

    /// Whether a key with this hash may be in the table.
    pub(super) fn may_contain(&self, hash: u64, blocks: &BlockFile, cache: &BlockCache) -> bool {
        for (number, module) in self.modules.iter().enumerate() {
            if module.damaged.load(Ordering::Relaxed) {
                continue;
            }
            if let Some(resident) = module.resident(number, blocks, cache)
                && let Some(Block::Filter(bits)) = resident.block()
                && !may_contain(bits, number, module.probes, hash)
            {
                return false;
            }
        }
        true
    }

    /// Reads and verifies module `number`, past the cache: its bits and number of probes.
    pub(super) fn bits(&self, number: usize, blocks: &BlockFile) -> Result<(Slice, u8)> {
        let module = &self.modules[number];
        Ok((blocks.read_plain(module.handle)?, module.probes))
    }

    /// Takes the first module into the cache if it lies whole in `tail`, which begins at `tail_offset`.
    pub(super) fn adopt(&self, tail: &Slice, tail_offset: u64, blocks: &BlockFile, cache: &BlockCache) {
        let Some(module) = self.modules.first() else { return };
        let Some(start) = module.handle.offset.checked_sub(tail_offset) else { return };
        let start = start as usize;
        let Some(sealed) = tail.part(start..start + module.handle.sealed_len as usize) else { return };
        match blocks.unseal_plain(module.handle, &sealed) {
            // A copy: the tail itself should not stay in memory.
            Ok(bits) => {
                let bits = Block::Filter(Slice::from(&*bits));
                cache.insert(blocks.id, module.handle.offset, module.slots.slot(0), bits);
            }
            Err(_) => module.damaged.store(true, Ordering::Relaxed),
        }
    }
}

impl ModuleState {
    /// The module's bits if they are in memory, or are worth fetching.
    fn resident(&self, number: usize, blocks: &BlockFile, cache: &BlockCache) -> Option<BlockRef> {
        let slot = self.slots.slot(0);
        if let Some(bits) = cache.get(blocks.id, self.handle.offset, slot) {
            return Some(bits);
        }
        // A module that cannot stay would cost every lookup more than the block that it may save.
        if !cache.admits(self.handle.sealed_len as usize) {
            return None;
        }
        if number > 0
            && !self.missed.fetch_add(1, Ordering::Relaxed).wrapping_add(1).is_multiple_of(LOAD_EVERY)
        {
            return None;
        }
        match blocks.read_plain(self.handle) {
            Ok(bits) => {
                cache.insert(blocks.id, self.handle.offset, slot, Block::Filter(bits.clone()));
                Some(BlockRef::Owned(Block::Filter(bits)))
            }
            Err(error) => {
                // A failed read may succeed later; damage stays.
                if error.is_corruption() {
                    self.damaged.store(true, Ordering::Relaxed);
                }
                None
            }
        }
    }
}
