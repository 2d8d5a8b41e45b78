//! Builder of the index, flat or partitioned. The parent module describes the format.

use super::{CONTINUES, FENCE_LEN, FLAT_LIMIT, HEADER_LEN, PARTITION_TARGET};
use crate::block::common_prefix;
use crate::bytes::{put_u32, put_u64};
use crate::limits::MAX_LEN;
use alloc::vec::Vec;
use core::ops::Range;

/// Error: the table is too large for its index. It has more than 2^32 entries or 4 GiB of index, or it is longer than
/// [`MAX_LEN`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexError;

/// Returns the length of the shortest separator of `last` and `next`, and whether its final byte is raised.
///
/// If raised, the separator is `last[..len]` with the final byte increased by one. Otherwise it is all of `last`.
/// `last` must be less than `next`. The separator is at least `last` and less than `next`.
pub fn separator_len(last: &[u8], next: &[u8]) -> (usize, bool) {
    let common = common_prefix(last, next);
    if last.len() <= common + 1 {
        return (last.len(), false);
    }
    // With the byte at `common` raised, the separator stays below `next` in two cases: the raised byte is less than
    // next's byte there, or it equals that byte and `next` continues after it.
    let next_byte = next.get(common).copied().unwrap_or(0);
    if last[common] < 0xff && (last[common] + 1 < next_byte || next.len() > common + 1) {
        return (common + 1, true);
    }
    match (common + 1..last.len() - 1).find(|&i| last[i] != 0xff) {
        Some(place) => (place + 1, true),
        None => (last.len(), false),
    }
}

#[derive(Clone, Copy)]
struct IndexRow {
    /// End of the separator in the shared buffer.
    separator_end: usize,
    continues: bool,
    offset: u64,
    raw_len: u32,
    ordinal: u64,
}

/// Collects the fences of a table, or those of its partitions.
#[derive(Default)]
pub struct IndexBuilder {
    rows: Vec<IndexRow>,
    separators: Vec<u8>,
    /// End of the last child.
    end: u64,
}

/// Division of the fences into index blocks.
pub struct Partitions(Vec<Range<usize>>);

impl Partitions {
    /// Returns the ranges of fences of the blocks, in order. A single range means that the index is flat.
    pub fn ranges(&self) -> &[Range<usize>] {
        &self.0
    }
}

impl IndexBuilder {
    /// Returns a builder without fences.
    pub fn new() -> IndexBuilder {
        IndexBuilder::default()
    }

    /// Appends the fence of a child that is stored at `offset..end`, directly after the previous child.
    pub fn add(&mut self, separator: &[u8], continues: bool, child: Range<u64>, raw_len: u32, ordinal: u64) {
        debug_assert!(self.rows.is_empty() || self.end == child.start, "children lie next to each other");
        self.separators.extend_from_slice(separator);
        let separator_end = self.separators.len();
        self.rows.push(IndexRow { separator_end, continues, offset: child.start, raw_len, ordinal });
        self.end = child.end;
    }

    /// Returns the number of fences.
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// Returns an upper bound on the encoded length of all fences in one block.
    pub fn len(&self) -> usize {
        encoded_len(self.rows.len(), self.separators.len())
    }

    /// Returns whether there are no fences.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the separator of fence `index`.
    pub fn separator(&self, index: usize) -> &[u8] {
        &self.separators[self.separator_start(index)..self.rows[index].separator_end]
    }

    /// Returns whether the child after fence `index` continues with versions of its separator.
    pub fn continues(&self, index: usize) -> bool {
        self.rows[index].continues
    }

    /// Returns the number of entries before fence `index`.
    pub fn ordinal(&self, index: usize) -> u64 {
        self.rows[index].ordinal
    }

    fn separator_start(&self, index: usize) -> usize {
        if index == 0 { 0 } else { self.rows[index - 1].separator_end }
    }

    fn child_end(&self, index: usize) -> u64 {
        self.rows.get(index + 1).map_or(self.end, |next| next.offset)
    }

    /// Divides the fences into blocks: one block if it stays small, else several.
    pub fn partitions(&self) -> Partitions {
        let flat = self.cut(FLAT_LIMIT);
        Partitions(if flat.len() == 1 { flat } else { self.cut(PARTITION_TARGET) })
    }

    fn cut(&self, limit: usize) -> Vec<Range<usize>> {
        let mut ranges = Vec::new();
        let mut start = 0;
        for index in 0..self.rows.len() {
            let separators = self.rows[index].separator_end - self.separator_start(start);
            let too_long = encoded_len(index + 1 - start, separators) > limit;
            let too_far = self.child_end(index) - self.rows[start].offset > u64::from(u32::MAX);
            if index > start && (too_long || too_far) {
                ranges.push(start..index);
                start = index;
            }
        }
        ranges.push(start..self.rows.len());
        ranges
    }

    /// Appends the index block of the fences in `range` to `out`.
    pub fn encode(&self, range: Range<usize>, level: u8, out: &mut Vec<u8>) -> Result<(), IndexError> {
        let rows = &self.rows[range.clone()];
        let common = match (rows.first(), rows.last()) {
            (Some(_), Some(_)) => common_prefix(self.separator(range.start), self.separator(range.end - 1)),
            _ => 0,
        };
        let base_offset = rows.first().map_or(0, |row| row.offset);
        let base_ordinal = rows.first().map_or(0, |row| row.ordinal);
        let (end, last) = (range.end.checked_sub(1).map_or(0, |last| self.child_end(last)), rows.last());
        if !rows.is_empty() && (end > MAX_LEN || last.is_some_and(|row| row.ordinal > MAX_LEN)) {
            return Err(IndexError);
        }
        put_u32(out, rows.len() as u32);
        out.extend_from_slice(&[level, 0, 0, 0]);
        put_u32(out, common as u32);
        put_u32(out, 0);
        put_u64(out, base_offset);
        put_u64(out, base_ordinal);
        for index in range.clone() {
            put_u64(out, head_of(&self.separator(index)[common..]));
        }
        let narrow = |wide: u64| u32::try_from(wide).map_err(|_| IndexError);
        let mut separator_end = 0;
        for index in range.clone() {
            let row = &self.rows[index];
            separator_end += (self.separator(index).len() - common) as u64;
            let key = narrow(separator_end)?;
            if key >= CONTINUES {
                return Err(IndexError);
            }
            put_u32(out, narrow(self.child_end(index) - base_offset)?);
            put_u32(out, narrow(row.ordinal - base_ordinal)?);
            put_u32(out, row.raw_len);
            put_u32(out, if row.continues { key | CONTINUES } else { key });
        }
        if !rows.is_empty() {
            out.extend_from_slice(&self.separator(range.start)[..common]);
        }
        for index in range {
            out.extend_from_slice(&self.separator(index)[common..]);
        }
        Ok(())
    }
}

const fn encoded_len(count: usize, separators: usize) -> usize {
    HEADER_LEN + count * FENCE_LEN + separators
}

/// Returns the first eight bytes, zero padded, as a number that sorts like the bytes.
#[inline]
pub(super) fn head_of(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(head) => u64::from_be_bytes(*head),
        None => {
            let mut head = [0; 8];
            head[..bytes.len()].copy_from_slice(bytes);
            u64::from_be_bytes(head)
        }
    }
}
