//! Blocks in memory (verified and decompressed) and the code that reads them.

use super::decode_error;
use super::pointers;
use crate::base::epoch::Epochs;
use crate::base::error::{Error, Result};
use crate::base::prefetch::{LINE, prefetch};
use crate::base::slice::Slice;
use drumlin_env::sync::Arc;
use drumlin_env::{File, local};
use drumlin_format::block::{BlockLayout, BlockView, GROUP};
use drumlin_format::compression::{Compression, Decompressor};
use drumlin_format::error::Corruption;
use drumlin_format::index::{Fence, IndexLayout, IndexView};
use drumlin_format::seal::{unseal_block, unseal_plain};
use drumlin_format::table::Handle;
use drumlin_types::{Seq, TableId};
use std::cell::{Cell, RefCell};
use std::io;
use std::ptr;

/// Number of entries of a block that a search prefetches at most.
const MOST_PREFETCHED: usize = 64;
/// Number of fences around the estimated result of a search that it prefetches. Rows and pointers of
/// `PREFETCHED_STEP` fences fill a CPU cache line each.
const PREFETCHED_FENCES: usize = 16;
const PREFETCHED_STEP: usize = 4;

/// Data block: entries in internal order.
#[derive(Clone, Debug)]
pub(super) struct DataBlock {
    pub(super) bytes: Slice,
    layout: BlockLayout,
}

impl DataBlock {
    pub(super) fn parse(bytes: Slice) -> Result<DataBlock, Corruption> {
        Ok(DataBlock { layout: BlockLayout::parse(&bytes)?, bytes })
    }

    #[inline]
    pub(super) fn view(&self) -> BlockView<'_> {
        self.layout.view(&self.bytes)
    }

    /// Returns the index of the first entry at or after (`key`, `seq`) in internal order, or the count when there is
    /// none.
    ///
    /// Prefetches the entries first: those that the search compares, group heads before others, and those after the
    /// result, which scans read next. So a search waits for memory once and not at each comparison.
    #[inline]
    pub(super) fn find(&self, key: &[u8], seq: Seq) -> Result<usize, Corruption> {
        /// Entries start with their lengths and the rest of their key. Most of these lie within this many bytes.
        const START: usize = 32;
        let (view, address) = (self.view(), self.bytes.as_ptr());
        let request = |start: usize| {
            let start = address.wrapping_add(start);
            prefetch(start);
            if start.addr() % LINE > LINE - START {
                prefetch(start.wrapping_add(START));
            }
        };
        view.starts(GROUP).take(MOST_PREFETCHED / 4).for_each(request);
        view.starts(1).take(MOST_PREFETCHED).for_each(request);
        view.find(key, seq)
    }

    /// Prefetches about `len` bytes of the entries, from offset `start` of the block on.
    #[inline]
    pub(super) fn prefetch_entries(&self, start: usize, len: usize) {
        let start = start.max(self.layout.directory_len());
        let end = (start + len).min(self.bytes.len());
        (start..end).step_by(LINE).for_each(|place| prefetch(self.bytes.as_ptr().wrapping_add(place)));
    }

    /// Prefetches what every search reads: the reference count and the directory of the block. Both lie at its start.
    #[inline]
    pub(super) fn prefetch(&self) {
        self.bytes.prefetch(self.layout.directory_len());
    }
}

/// Block as the cache holds it.
pub(super) type Cached = pointers::Cached<Block>;
/// Cached pointers to the blocks of one index block or filter module.
pub(super) type Pointers = pointers::Pointers<Block>;
/// Borrowed cached pointer to one block.
pub(super) type CachedPointer<'a> = pointers::CachedPointer<'a, Block>;
/// Owner of the pointer to a cached block; clears it on drop.
pub(super) type PointerOwner = pointers::PointerOwner<Block>;

/// Index block, with one cached pointer for each block that it points to.
#[derive(Clone, Debug)]
pub(super) struct IndexBlock {
    bytes: Slice,
    layout: IndexLayout,
    pub(super) pointers: Pointers,
}

impl IndexBlock {
    /// Parses a block whose readers pin `epochs`.
    pub(super) fn parse(bytes: Slice, epochs: &Epochs) -> Result<IndexBlock, Corruption> {
        let layout = IndexLayout::parse(&bytes)?;
        Ok(IndexBlock { pointers: Pointers::new(layout.count(), epochs), layout, bytes })
    }

    #[inline]
    pub(super) fn view(&self) -> IndexView<'_> {
        self.layout.view(&self.bytes)
    }

    /// Returns the index of the first fence whose separator is not less than `key`, or the count when there is none.
    ///
    /// Prefetches what it and its caller read of the fences near the estimated result: heads, rows and pointers. They
    /// lie in three places, which a search would otherwise wait for one after the other.
    pub(super) fn find(&self, key: &[u8]) -> Result<usize, Corruption> {
        let view = self.view();
        let target = match view.target(key) {
            Ok(target) => target,
            Err(outside) => return Ok(outside),
        };
        let guess = view.guess(target);
        let (near, address) = (guess.saturating_sub(PREFETCHED_FENCES / 2), self.bytes.as_ptr());
        for index in (near..near + PREFETCHED_FENCES).step_by(PREFETCHED_STEP) {
            view.places(index).into_iter().for_each(|place| prefetch(address.wrapping_add(place)));
            self.pointers.prefetch_pointer(index);
        }
        view.find_near(guess, target)
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the bytes of memory that the block keeps alive, including its cached pointers.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.held_bytes() + self.pointers.bytes()
    }
}

/// Block of any type that the cache can hold.
#[derive(Clone, Debug)]
pub(super) enum Block {
    Data(DataBlock),
    Index(Arc<IndexBlock>),
    /// Bits of a filter module.
    Filter(Slice),
    /// Value of a value file.
    Value(ValueBlock),
}

/// A verified and decompressed value, and the version that it belongs to.
#[derive(Clone, Debug)]
pub(super) struct ValueBlock {
    pub(super) seq: Seq,
    pub(super) value: Slice,
}

/// Reference to a block that a reader is using.
pub(super) enum BlockRef<'p> {
    /// Block borrowed through its cached pointer.
    Borrowed(&'p Block),
    /// Block from anywhere else: the map of the cache, or the file.
    Owned(Block),
}

impl BlockRef<'_> {
    /// Returns the block.
    #[inline]
    pub(super) fn block(&self) -> &Block {
        match self {
            BlockRef::Borrowed(block) => block,
            BlockRef::Owned(block) => block,
        }
    }

    /// Returns the block if it is a data block.
    #[inline]
    pub(super) fn data(&self) -> Option<&DataBlock> {
        match self.block() {
            Block::Data(block) => Some(block),
            _ => None,
        }
    }
}

impl Block {
    /// Returns whether an eviction costs more than one read of the block's length. True for index and filter blocks,
    /// since they serve many lookups.
    pub(super) fn is_important(&self) -> bool {
        matches!(self, Block::Index(_) | Block::Filter(_))
    }

    /// Returns the address of what a reader of the block reads first, apart from the block itself. Null if that depends
    /// on the key.
    pub(super) fn first_read(&self) -> *const u8 {
        match self {
            Block::Data(block) => block.bytes.counts(),
            Block::Index(block) => Arc::as_ptr(block).cast(),
            Block::Filter(_) | Block::Value(_) => ptr::null(),
        }
    }

    /// Returns the bytes of memory that the block keeps alive.
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Block::Data(block) => block.bytes.held_bytes(),
            Block::Index(block) => block.held_bytes(),
            Block::Filter(bits) => bits.held_bytes(),
            Block::Value(block) => block.value.held_bytes(),
        }
    }
}

/// Largest compressed block, in bytes, that is read into the thread's scratch buffer.
const SCRATCH_LIMIT: usize = 1 << 20;

/// Per-thread scratch memory for compressed blocks.
#[derive(Default)]
struct Scratch {
    sealed: Vec<u8>,
    decompressor: Decompressor,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
    /// Number of data blocks that this thread has read from files.
    static FETCHED: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of data blocks that this thread has read from files so far.
pub(crate) fn fetched_blocks() -> u64 {
    FETCHED.get()
}

/// File and number of a table: all that reading and verifying its blocks requires.
#[derive(Clone, Debug)]
pub(super) struct BlockFile {
    pub(super) id: TableId,
    pub(super) file: File,
}

impl BlockFile {
    pub(super) fn corruption(&self, offset: u64, what: &str) -> Error {
        Error::corruption(self.file.path(), offset, what)
    }

    pub(super) fn decode_error(&self, offset: u64, damage: Corruption) -> Error {
        decode_error(self.file.path(), offset, damage)
    }

    /// Reads `len` bytes into a new buffer. The caller has checked the range against the expected file length.
    pub(super) fn read(&self, offset: u64, len: usize) -> Result<Slice> {
        self.file.read_shared(offset, len).map(Slice::new).map_err(|error| self.read_error(offset, error))
    }

    fn read_into(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(offset, bytes).map_err(|error| self.read_error(offset, error))
    }

    fn read_error(&self, offset: u64, error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => self.corruption(offset, "table is shorter than expected"),
            _ => Error::io(self.file.path(), "cannot read table", error),
        }
    }

    /// Reads and verifies a block of a type that is never compressed.
    pub(super) fn read_plain(&self, handle: Handle) -> Result<Slice> {
        let sealed = self.read(handle.offset, handle.sealed_len as usize)?;
        self.unseal_plain(handle, &sealed)
    }

    /// Verifies a block of a type that is never compressed. The result shares the buffer of `sealed`.
    pub(super) fn unseal_plain(&self, handle: Handle, sealed: &Slice) -> Result<Slice> {
        let stored = unseal_plain(self.id.0, handle.offset, sealed)
            .map_err(|damage| self.decode_error(handle.offset, damage))?;
        Ok(sealed.part(0..stored.len()).unwrap_or_default())
    }

    /// Reads, verifies and decompresses a data block into a new buffer.
    pub(super) fn read_data(&self, fence: &Fence) -> Result<DataBlock> {
        FETCHED.set(FETCHED.get() + 1);
        let sealed_len = fence.sealed_len as usize;
        if fence.sealed_len >= fence.raw_len || sealed_len > SCRATCH_LIMIT {
            let sealed = self.read(fence.offset, sealed_len)?;
            return self.unseal_data(fence, &sealed);
        }
        // The block is compressed, so the sealed bytes are needed only until decompression.
        local::with(&SCRATCH, |scratch| {
            let Scratch { sealed, decompressor } = scratch;
            sealed.resize(sealed_len, 0);
            self.read_into(fence.offset, sealed)?;
            let (method, stored) = self.verified(fence, sealed)?;
            self.decompress(fence, method, stored, decompressor)
        })
    }

    /// Verifies a data block and decompresses it. An uncompressed block shares the buffer of `sealed`.
    pub(super) fn unseal_data(&self, fence: &Fence, sealed: &Slice) -> Result<DataBlock> {
        let (method, stored) = self.verified(fence, sealed)?;
        if method != Compression::None {
            return local::with(&SCRATCH, |s| self.decompress(fence, method, stored, &mut s.decompressor));
        }
        let raw = sealed.part(0..stored.len()).unwrap_or_default();
        DataBlock::parse(raw).map_err(|damage| self.decode_error(fence.offset, damage))
    }

    /// Verifies a data block and decompresses or copies it into a new buffer.
    pub(super) fn copy_data(&self, fence: &Fence, sealed: &[u8]) -> Result<DataBlock> {
        let (method, stored) = self.verified(fence, sealed)?;
        if method == Compression::None {
            let block = DataBlock::parse(Slice::from(stored));
            return block.map_err(|damage| self.decode_error(fence.offset, damage));
        }
        local::with(&SCRATCH, |s| self.decompress(fence, method, stored, &mut s.decompressor))
    }

    fn verified<'a>(&self, fence: &Fence, sealed: &'a [u8]) -> Result<(Compression, &'a [u8])> {
        unseal_block(self.id.0, fence.offset, sealed, u64::from(fence.raw_len))
            .map_err(|damage| self.decode_error(fence.offset, damage))
    }

    fn decompress(
        &self,
        fence: &Fence,
        method: Compression,
        stored: &[u8],
        decompressor: &mut Decompressor,
    ) -> Result<DataBlock> {
        let mut buffer: Arc<[u8]> = std::iter::repeat_n(0, fence.raw_len as usize).collect();
        let outcome = match Arc::get_mut(&mut buffer) {
            Some(raw) => decompressor.decompress(method, stored, raw),
            None => Ok(()),
        };
        let block = outcome.and_then(|()| DataBlock::parse(Slice::new(buffer)));
        block.map_err(|damage| self.decode_error(fence.offset, damage))
    }
}

/// A cached block fits into one CPU cache line. The atomics of the model checker are larger.
#[cfg(not(shuttle))]
const _: () = assert!(size_of::<Cached>() == 64);
