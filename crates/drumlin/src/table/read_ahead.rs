//! Blocks that a cursor reads before it is asked for them.
//!
//! A cursor that goes from block to block reads ahead: twice as much each time, up to its limit; a jump starts that over.
//! Whole blocks are read, those that come nearest to the length. Cursors of merges begin with 32 KiB.
//!
//! Most scans end within a few blocks. So a table keeps the length that scans of it have, in bytes of blocks: a scan reads
//! the first block alone, as it may be all it wants, and with the second the rest of that length. Beyond it, or where none
//! is known, it reads one more, then two, four, and so on. A block too many costs less than an access too many: a copy out
//! of the page cache, or a transfer where there is none. So the length kept is the upper quartile: it is raised by each
//! scan that took more three times as much as it is lowered by each that took less; a few scans of the whole table do not
//! have all others read far ahead. Scans that found all in the cache say nothing, nor do those that go backward. A table
//! that is not known yet is taken for what tables were at their first scans, a length that the block cache keeps for all.
//!
//! Invariants: how far is read changes no answer. What is read at once exceeds the cursor's limit by half a block at most,
//! and lies behind one index block.

use super::cursor::CursorOptions;
use super::fences::FenceCursor;
use super::reader::Table;
use crate::error::Result;
use crate::slice::Slice;
use drumlin_env::sync::atomic::{AtomicU32, Ordering::Relaxed};
use drumlin_format::index::Fence;

/// The length, in bytes of blocks, that scans of a table have. 0 where nothing is known.
#[derive(Debug, Default)]
pub(super) struct ScanLength(AtomicU32);

/// Least change of a length.
const STEP: u32 = 128;
/// How much more it is raised than lowered.
const RAISE: u32 = 3;
/// Most that is kept.
const LONGEST: u32 = 1 << 20;

impl ScanLength {
    /// That of `table`.
    pub(super) fn of(table: &Table) -> u64 {
        let own = table.scans.0.load(Relaxed);
        u64::from(if own > 0 { own } else { table.cache.scans().0.load(Relaxed) })
    }

    /// A scan took `bytes`, the first one is taken as it is. Of two that end at once one may be lost.
    fn ended(&self, bytes: u64) {
        let old = self.0.load(Relaxed);
        let step = (old / 32).max(STEP);
        let new = match u32::try_from(bytes).unwrap_or(LONGEST).min(LONGEST) {
            bytes if old == 0 => bytes,
            bytes if bytes > old => old + RAISE * step,
            _ => old.saturating_sub(step).max(1),
        };
        self.0.store(new.min(LONGEST), Relaxed);
    }
}

/// Sealed blocks read before they are asked for, and the row of blocks that the cursor is in.
#[derive(Default)]
pub(super) struct ReadAhead {
    /// Bytes of the file from `start` on.
    buffer: Slice,
    start: u64,
    /// Where the row of blocks begins.
    begun: u64,
    /// End of the block that was loaded last.
    last_end: u64,
    /// Length of the read-ahead before; 0 before the first.
    window: usize,
    /// Whether anything of this row was read from the file.
    has_read: bool,
    /// Whether the cursor came to this block from the one behind it.
    goes_back: bool,
}

impl ReadAhead {
    /// Notes a block that came from elsewhere.
    pub(super) fn passed(&mut self, table: &Table, fence: &Fence) {
        self.follow(table, fence);
    }

    /// The cursor goes elsewhere, or for good.
    pub(super) fn end(&mut self, table: &Table) {
        if self.has_read && !self.goes_back {
            let length = self.last_end - self.begun;
            if table.scans.0.load(Relaxed) == 0 {
                table.cache.scans().ended(length);
            }
            table.scans.ended(length);
        }
        self.has_read = false;
    }

    /// The sealed bytes of the block behind `fence`, which `fences` is on, if they are here or it is time to read ahead.
    pub(super) fn take(
        &mut self,
        table: &Table,
        fences: &FenceCursor,
        fence: &Fence,
        options: &CursorOptions,
    ) -> Result<Option<Slice>> {
        let is_next = self.follow(table, fence);
        if let Some(sealed) = self.part(fence) {
            return Ok(Some(sealed));
        }
        self.has_read |= options.learns();
        let len = fence.sealed_len as usize;
        if !is_next || options.readahead <= len {
            return Ok(None);
        }
        let known = if options.learns() { ScanLength::of(table) } else { 0 };
        let left = known.saturating_sub(fence.offset - self.begun).min(options.readahead as u64);
        let window = if left > len as u64 {
            left
        } else {
            self.window = (self.window * 2).max(options.first).min(options.readahead).max(len);
            self.window as u64
        };
        let end = fences.reach(table, fence, window)?;
        if end == fence.end() {
            return Ok(None);
        }
        let window = usize::try_from(end - fence.offset).unwrap_or(len);
        self.buffer = table.blocks.read(fence.offset, window)?;
        self.start = fence.offset;
        Ok(self.part(fence))
    }

    /// Whether the block behind `fence` is the next one; else a new row begins with it.
    fn follow(&mut self, table: &Table, fence: &Fence) -> bool {
        let is_next = fence.offset == self.last_end && fence.offset > 0;
        if !is_next {
            let goes_back = fence.end() == self.begun;
            self.goes_back |= goes_back;
            self.end(table);
            self.goes_back = goes_back;
            self.begun = fence.offset;
            self.window = 0;
        }
        self.last_end = fence.end();
        is_next
    }

    fn part(&self, fence: &Fence) -> Option<Slice> {
        let start = usize::try_from(fence.offset.checked_sub(self.start)?).ok()?;
        self.buffer.part(start..start.checked_add(fence.sealed_len as usize)?)
    }
}
