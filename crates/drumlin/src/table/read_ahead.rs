//! Read-ahead of a cursor.
//!
//! A cursor that moves from block to block reads ahead. The window doubles each time, up to the cursor's limit; a
//! jump resets it. Reads cover whole blocks, the number of blocks that comes nearest to the window. Cursors of
//! compactions start with 32 KiB.
//!
//! Most scans end within a few blocks. Each table therefore estimates the length of its scans, in bytes of blocks. A
//! scan reads its first block alone, since that block may suffice. With the second block it reads the rest of the
//! estimated length. Beyond the estimate, or while it is unknown, the scan reads one more block, then two, four, and
//! so on.
//!
//! Reading one block too many is cheaper than one more access: it costs a copy from the page cache, or a transfer
//! without one. The estimate is therefore the upper quartile of the scan lengths. A longer scan raises it three times
//! as much as a shorter scan lowers it. A few scans of the whole table do not make all others read far ahead. Scans
//! that found everything in the cache do not count, nor do backward scans. For a table without an estimate, the
//! length of first scans of all tables serves; the block cache keeps it.
//!
//! Invariants: read-ahead changes no result. One read exceeds the cursor's limit by at most half a block, and covers
//! blocks of one index block only.

use super::fences::FenceCursor;
use super::reader::Table;
use crate::base::error::Result;
use crate::base::slice::Slice;
use drumlin_format::index::Fence;

/// Smallest limit on the read-ahead of a cursor in bytes, however small the memory budget. Compactions start with it.
const LEAST: usize = 32 << 10;
/// Largest limit on the read-ahead of a user scan, per run, in bytes.
const SCAN_MOST: usize = 256 << 10;
/// Largest limit on the read-ahead of a compaction, per run, in bytes.
const COMPACTION_MAX: usize = 1 << 20;

const fn within(bytes: usize, most: usize) -> usize {
    if bytes < LEAST {
        LEAST
    } else if bytes > most {
        most
    } else {
        bytes
    }
}

/// Cache and read-ahead options of a cursor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CursorOptions {
    /// Whether blocks read from the file enter the cache.
    pub(crate) fill_cache: bool,
    /// Whether another table replaces what is read. The cached blocks then make room for those of that table (`carry`).
    pub(crate) hands_over: bool,
    /// Upper bound on the read-ahead window in bytes; 0 disables read-ahead.
    pub(crate) readahead: usize,
    /// Minimum window of the first read-ahead, in bytes.
    pub(crate) first: usize,
}

impl CursorOptions {
    /// Options for user scans.
    #[cfg(test)]
    pub(crate) const SCAN: CursorOptions = CursorOptions::scan(SCAN_MOST);
    /// Options for work that reads everything once.
    pub(crate) const MERGE: CursorOptions =
        CursorOptions { hands_over: false, ..CursorOptions::merge(COMPACTION_MAX) };

    /// Options for checks: no memory beyond one block.
    pub(crate) const CHECK: CursorOptions =
        CursorOptions { fill_cache: false, hands_over: false, readahead: 0, first: 0 };

    /// Options for user scans that have `bytes` of memory per run.
    pub(crate) const fn scan(bytes: usize) -> CursorOptions {
        CursorOptions { fill_cache: true, hands_over: false, readahead: within(bytes, SCAN_MOST), first: 0 }
    }

    /// Options for compactions that have `bytes` of memory per run.
    pub(crate) const fn merge(bytes: usize) -> CursorOptions {
        CursorOptions {
            fill_cache: false,
            hands_over: true,
            readahead: within(bytes, COMPACTION_MAX),
            first: LEAST,
        }
    }

    /// Returns whether the cursor's scans count towards the table's estimated scan length.
    pub(super) fn learns(&self) -> bool {
        self.fill_cache
    }
}

/// Returns the estimated scan length of `table`: its own, or else that of first scans of all tables; 0 if unknown.
pub(super) fn known_length(table: &Table) -> u64 {
    let own = table.scans.bytes();
    u64::from(if own > 0 { own } else { table.cache.scans().bytes() })
}

/// Read-ahead state of a cursor: sealed blocks read in advance, and the current sequence of adjacent
/// blocks.
#[derive(Default)]
pub(super) struct ReadAhead {
    /// Bytes of the file from `start` on.
    buffer: Slice,
    start: u64,
    /// Offset at which the current sequence of blocks starts.
    begun: u64,
    /// End offset of the block loaded last.
    last_end: u64,
    /// Window of the previous read-ahead; 0 before the first.
    window: usize,
    /// Whether this sequence has read anything from the file.
    has_read: bool,
    /// Whether the cursor moves backward.
    goes_back: bool,
}

impl ReadAhead {
    /// Records a block that came from the cache.
    pub(super) fn passed(&mut self, table: &Table, fence: &Fence) {
        self.follow(table, fence);
    }

    /// Ends the current sequence: the cursor jumps or is dropped.
    pub(super) fn end(&mut self, table: &Table) {
        if self.has_read && !self.goes_back {
            let length = self.last_end - self.begun;
            if table.scans.bytes() == 0 {
                table.cache.scans().ended(length);
            }
            table.scans.ended(length);
        }
        self.has_read = false;
    }

    /// Returns the sealed bytes of the block behind `fence`, the current fence of `fences`. Uses the buffer, or reads
    /// ahead when due. `None` means that the caller reads the block itself.
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
        let known = if options.learns() { known_length(table) } else { 0 };
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

    /// Returns whether the block behind `fence` follows the previous one. If not, starts a new sequence with it.
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
