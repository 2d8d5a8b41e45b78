//! Builder of data blocks. The parent module describes the format.

use super::{FLAG_WIDE, GROUP, HEADER_LEN, common_prefix};
use crate::bytes::{put_u16, put_u32, put_u64, put_varint, varint_len};
use alloc::vec::Vec;
use drumlin_types::{Kind, Seq};

/// Builds one block from entries, which must be added in internal order. Reusable after [`BlockBuilder::clear`].
#[derive(Default)]
pub struct BlockBuilder {
    tags: Vec<u8>,
    offsets: Vec<u32>,
    entries: Vec<u8>,
    head: Vec<u8>,
    base_seq: Seq,
}

impl BlockBuilder {
    /// Returns a builder of an empty block.
    pub fn new() -> BlockBuilder {
        BlockBuilder::default()
    }

    /// Appends an entry whose key has the tag `tag`.
    ///
    /// The caller must keep the order, and keep `len` within [`super::MAX_BLOCK_LEN`].
    pub fn add(&mut self, key: &[u8], tag: u8, seq: Seq, kind: Kind, value: &[u8]) {
        let shared = if self.tags.len().is_multiple_of(GROUP) {
            self.head.clear();
            self.head.extend_from_slice(key);
            0
        } else {
            common_prefix(&self.head, key)
        };
        if self.tags.is_empty() {
            self.base_seq = seq;
        }
        let suffix = &key[shared..];
        self.tags.push(tag);
        self.offsets.push(self.entries.len() as u32);
        put_varint(&mut self.entries, shared as u64);
        put_varint(&mut self.entries, suffix.len() as u64);
        put_varint(&mut self.entries, value.len() as u64);
        self.entries.push(kind as u8);
        put_varint(&mut self.entries, seq_to_zigzag(seq, self.base_seq));
        self.entries.extend_from_slice(suffix);
        self.entries.extend_from_slice(value);
    }

    /// Returns the number of entries.
    pub fn count(&self) -> usize {
        self.tags.len()
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.tags.is_empty()
    }

    /// Returns the exact length of the block if it were finished now.
    pub fn len(&self) -> usize {
        directory_len(self.tags.len(), self.is_wide()) + self.entries.len()
    }

    /// Returns an upper bound on the length after adding an entry with these lengths, as long as offsets have 16 bits.
    pub fn len_with(&self, key_len: usize, value_len: usize) -> usize {
        let lengths = varint_len(key_len as u64) * 2 + varint_len(value_len as u64);
        self.len() + 1 + 2 + lengths + 1 + 10 + key_len + value_len
    }

    fn is_wide(&self) -> bool {
        self.offsets.last().is_some_and(|&last| last > u32::from(u16::MAX))
    }

    /// Appends the finished block to `out`. The block must not be empty.
    pub fn finish_into(&self, out: &mut Vec<u8>) {
        debug_assert!(!self.is_empty());
        let wide = self.is_wide();
        out.reserve(self.len());
        put_u32(out, self.tags.len() as u32);
        out.extend_from_slice(&[if wide { FLAG_WIDE } else { 0 }, 0, 0, 0]);
        put_u64(out, self.base_seq);
        out.extend_from_slice(&self.tags);
        for &offset in &self.offsets {
            if wide { put_u32(out, offset) } else { put_u16(out, offset as u16) }
        }
        out.extend_from_slice(&self.entries);
    }

    /// Removes all entries and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.tags.clear();
        self.offsets.clear();
        self.entries.clear();
        self.head.clear();
    }
}

/// Returns the length of the part before the entries.
pub(super) const fn directory_len(count: usize, wide: bool) -> usize {
    HEADER_LEN + count * if wide { 5 } else { 3 }
}

/// Returns the zigzag code of the difference `seq - base`. Small differences of either sign become small numbers.
fn seq_to_zigzag(seq: Seq, base: Seq) -> u64 {
    let difference = seq.wrapping_sub(base) as i64;
    ((difference << 1) ^ (difference >> 63)) as u64
}

/// Inverse of [`seq_to_zigzag`], for any input.
#[inline]
pub(super) const fn seq_from_zigzag(zigzag: u64, base: Seq) -> Seq {
    base.wrapping_add((zigzag >> 1) ^ (zigzag & 1).wrapping_neg())
}
