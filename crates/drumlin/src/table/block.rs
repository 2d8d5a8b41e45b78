//! Verified, decompressed blocks in memory, and how they get there.

use super::decode_error;
use super::slots::Slots;
use crate::error::{Error, Result};
use crate::slice::Slice;
use drumlin_env::File;
use drumlin_env::sync::Arc;
use drumlin_format::block::{BlockLayout, BlockView};
use drumlin_format::compression::{Compression, Decompressor};
use drumlin_format::error::Corruption;
use drumlin_format::index::{Fence, IndexLayout, IndexView};
use drumlin_format::seal::{unseal_block, unseal_plain};
use drumlin_format::table::Handle;
use drumlin_types::TableId;
use std::cell::{Cell, RefCell};
use std::io;

/// A data block.
#[derive(Clone, Debug)]
pub(super) struct DataBlock {
    pub(super) bytes: Slice,
    layout: BlockLayout,
}

impl DataBlock {
    fn parse(bytes: Slice) -> Result<DataBlock, Corruption> {
        Ok(DataBlock { layout: BlockLayout::parse(&bytes)?, bytes })
    }

    pub(super) fn view(&self) -> BlockView<'_> {
        self.layout.view(&self.bytes)
    }
}

/// A block of the index, and a slot for each of the blocks that it leads to.
#[derive(Clone, Debug)]
pub(super) struct IndexBlock {
    bytes: Slice,
    layout: IndexLayout,
    pub(super) slots: Slots,
}

impl IndexBlock {
    pub(super) fn parse(bytes: Slice) -> Result<IndexBlock, Corruption> {
        let layout = IndexLayout::parse(&bytes)?;
        Ok(IndexBlock { slots: Slots::new(layout.count()), layout, bytes })
    }

    pub(super) fn view(&self) -> IndexView<'_> {
        self.layout.view(&self.bytes)
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of memory that it keeps alive.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.held_bytes() + self.slots.bytes()
    }
}

/// Any block that the cache can hold.
#[derive(Clone, Debug)]
pub(super) enum Block {
    Data(DataBlock),
    Index(IndexBlock),
    /// The bits of a filter module.
    Filter(Slice),
}

impl Block {
    /// Whether losing it costs more than one read of its length: index and filters serve many lookups.
    pub(super) fn is_important(&self) -> bool {
        !matches!(self, Block::Data(_))
    }

    /// Bytes of memory that the block keeps alive.
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Block::Data(block) => block.bytes.held_bytes(),
            Block::Index(block) => block.held_bytes(),
            Block::Filter(bits) => bits.held_bytes(),
        }
    }
}

/// Longest compressed block that is read through working memory.
const SCRATCH_LIMIT: usize = 1 << 20;

/// Working memory for compressed blocks, one per thread.
#[derive(Default)]
struct Scratch {
    sealed: Vec<u8>,
    decompressor: Decompressor,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
    /// Data blocks that this thread has read from files.
    static FETCHED: Cell<u64> = const { Cell::new(0) };
}

/// Data blocks that this thread has read from files so far.
pub(crate) fn fetched_blocks() -> u64 {
    FETCHED.get()
}

/// A table's file and number: all that is needed to read and verify its blocks.
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

    /// Reads `len` bytes into a buffer of their own. The caller has checked that the file should have them.
    pub(super) fn read(&self, offset: u64, len: usize) -> Result<Slice> {
        self.file.read_shared(offset, len).map(Slice::new).map_err(|error| self.read_error(offset, error))
    }

    fn read_into(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(offset, bytes).map_err(|error| self.read_error(offset, error))
    }

    fn read_error(&self, offset: u64, error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => self.corruption(offset, "table is shorter than it was"),
            _ => Error::io(self.file.path(), "cannot read table", error),
        }
    }

    /// Reads and verifies a block that is never compressed.
    pub(super) fn read_plain(&self, handle: Handle) -> Result<Slice> {
        let sealed = self.read(handle.offset, handle.sealed_len as usize)?;
        self.unseal_plain(handle, &sealed)
    }

    /// Verifies a block that is never compressed; the result shares the buffer of `sealed`.
    pub(super) fn unseal_plain(&self, handle: Handle, sealed: &Slice) -> Result<Slice> {
        let stored = unseal_plain(self.id.0, handle.offset, sealed)
            .map_err(|damage| self.decode_error(handle.offset, damage))?;
        Ok(sealed.part(0..stored.len()).unwrap_or_default())
    }

    /// Reads, verifies and decompresses a data block into a buffer of its own.
    pub(super) fn read_data(&self, fence: &Fence) -> Result<DataBlock> {
        FETCHED.set(FETCHED.get() + 1);
        let sealed_len = fence.sealed_len as usize;
        if fence.sealed_len >= fence.raw_len || sealed_len > SCRATCH_LIMIT {
            let sealed = self.read(fence.offset, sealed_len)?;
            return self.unseal_data(fence, &sealed);
        }
        // Certainly compressed: the sealed bytes are needed for a moment only.
        SCRATCH.with_borrow_mut(|scratch| {
            let Scratch { sealed, decompressor } = scratch;
            sealed.resize(sealed_len, 0);
            self.read_into(fence.offset, sealed)?;
            let (method, stored) = self.verified(fence, sealed)?;
            self.decompress(fence, method, stored, decompressor)
        })
    }

    /// Verifies a data block; if it is not compressed the result shares the buffer of `sealed`.
    pub(super) fn unseal_data(&self, fence: &Fence, sealed: &Slice) -> Result<DataBlock> {
        let (method, stored) = self.verified(fence, sealed)?;
        if method != Compression::None {
            return SCRATCH.with_borrow_mut(|s| self.decompress(fence, method, stored, &mut s.decompressor));
        }
        let raw = sealed.part(0..stored.len()).unwrap_or_default();
        DataBlock::parse(raw).map_err(|damage| self.decode_error(fence.offset, damage))
    }

    /// Verifies a data block and decompresses, or copies, it into a buffer of its own.
    pub(super) fn copy_data(&self, fence: &Fence, sealed: &[u8]) -> Result<DataBlock> {
        let (method, stored) = self.verified(fence, sealed)?;
        if method == Compression::None {
            let block = DataBlock::parse(Slice::from(stored));
            return block.map_err(|damage| self.decode_error(fence.offset, damage));
        }
        SCRATCH.with_borrow_mut(|s| self.decompress(fence, method, stored, &mut s.decompressor))
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
