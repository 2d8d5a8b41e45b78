//! Reader of index blocks in place. The parent module describes the format.

use super::builder::head_of;
use super::{CONTINUES, FENCE_LEN, HEADER_LEN, ROW_LEN};
use crate::bytes::Reader;
use crate::error::Corruption;
use crate::limits::MAX_LEN;
use alloc::vec::Vec;
use core::cmp::Ordering;

/// A verified index block header. Cheap to copy, so that a cache can store it beside the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexLayout {
    count: u32,
    level: u8,
    common: u32,
    base_offset: u64,
    base_ordinal: u64,
}

/// Place of a data block, or of a partition of the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fence {
    /// Offset in the file.
    pub offset: u64,
    /// Stored length, including the seal.
    pub sealed_len: u32,
    /// Length before compression.
    pub raw_len: u32,
    /// Number of entries of the table that precede the block.
    pub ordinal: u64,
    /// Whether the next block continues with versions of the key that is this fence's separator.
    pub continues: bool,
}

impl Fence {
    /// Returns the first offset after the block.
    pub const fn end(&self) -> u64 {
        self.offset + self.sealed_len as u64
    }
}

impl IndexLayout {
    /// Verifies the header of `bytes`: the fences that it describes lie inside the block.
    pub fn parse(bytes: &[u8]) -> Result<IndexLayout, Corruption> {
        let mut reader = Reader::new(bytes);
        let count = reader.u32()?;
        let [level, rest @ ..] = reader.array::<4>()?;
        let common = reader.u32()?;
        let zero = reader.u32()?;
        let layout =
            IndexLayout { count, level, common, base_offset: reader.u64()?, base_ordinal: reader.u64()? };
        if level > 1 || rest != [0; 3] || zero != 0 {
            return Err(Corruption::new("index block has an unknown level", 4));
        }
        if layout.separators_start() > bytes.len() as u64 {
            return Err(Corruption::new("index block is shorter than its fences", 0));
        }
        // No offset or ordinal computed from the base may overflow.
        if layout.base_offset > MAX_LEN || layout.base_ordinal > MAX_LEN {
            return Err(Corruption::new("index block has an impossible base", 16));
        }
        Ok(layout)
    }

    /// Returns 0 when the children are data blocks, 1 when they are index blocks.
    pub const fn level(self) -> u8 {
        self.level
    }

    /// Returns the number of fences.
    pub const fn count(self) -> usize {
        self.count as usize
    }

    fn common_start(self) -> u64 {
        HEADER_LEN as u64 + u64::from(self.count) * FENCE_LEN as u64
    }

    fn separators_start(self) -> u64 {
        self.common_start() + u64::from(self.common)
    }

    /// Returns the block with this layout. `bytes` must be the parsed ones; other bytes give errors.
    #[inline]
    pub fn view(self, bytes: &[u8]) -> IndexView<'_> {
        IndexView { bytes, layout: self }
    }
}

/// First step away from the guess of a search. The heads of as many fences fill a CPU cache line.
const FIRST_STEP: usize = 8;
/// Factor from one step to the next.
const WIDENING: usize = 4;

/// What a search in an index block compares.
#[derive(Clone, Copy, Debug)]
pub struct Target<'k> {
    /// First eight bytes of the rest, as a number.
    head: u64,
    /// Key without the common prefix of the block.
    rest: &'k [u8],
}

/// A borrowed index block.
#[derive(Clone, Copy)]
pub struct IndexView<'a> {
    bytes: &'a [u8],
    layout: IndexLayout,
}

impl<'a> IndexView<'a> {
    /// Verifies the header of `bytes`.
    pub fn parse(bytes: &'a [u8]) -> Result<IndexView<'a>, Corruption> {
        Ok(IndexLayout::parse(bytes)?.view(bytes))
    }

    /// Returns the number of fences.
    #[inline]
    pub fn count(&self) -> usize {
        self.layout.count as usize
    }

    /// Returns 0 when the children are data blocks, 1 when they are index blocks.
    pub fn level(&self) -> u8 {
        self.layout.level
    }

    /// Returns row `index`: end, ordinal, raw length, key.
    #[inline]
    fn row(&self, index: usize) -> Result<[u32; 4], Corruption> {
        let place = HEADER_LEN + 8 * self.count() + ROW_LEN * index;
        let row = self.bytes.get(place..).and_then(<[u8]>::first_chunk::<ROW_LEN>);
        let (numbers, _) = row.ok_or(Corruption::new("fence lies outside its block", 0))?.as_chunks::<4>();
        Ok([0, 1, 2, 3].map(|column: usize| u32::from_le_bytes(numbers[column])))
    }

    /// Returns where the child and the separator before number `index` end.
    #[inline]
    fn starts(&self, index: usize) -> Result<(u32, u32), Corruption> {
        match index.checked_sub(1) {
            Some(before) => self.row(before).map(|[end, _, _, key]| (end, key & !CONTINUES)),
            None => Ok((0, 0)),
        }
    }

    #[inline]
    fn head(&self, index: usize) -> u64 {
        let place = HEADER_LEN + 8 * index;
        self.bytes.get(place..).and_then(<[u8]>::first_chunk::<8>).map_or(0, |head| u64::from_le_bytes(*head))
    }

    /// Returns the common prefix of all separators.
    pub fn common(&self) -> &'a [u8] {
        let start = self.layout.common_start() as usize;
        self.bytes.get(start..start + self.layout.common as usize).unwrap_or_default()
    }

    /// Returns separator `index` without the common prefix.
    pub fn separator_rest(&self, index: usize) -> Result<&'a [u8], Corruption> {
        let [_, _, _, key] = self.row(index)?;
        let (start, end) = (self.starts(index)?.1 as usize, (key & !CONTINUES) as usize);
        let base = self.layout.separators_start() as usize;
        let separators = self.bytes.get(base..).unwrap_or_default();
        separators.get(start..end).ok_or(Corruption::new("separator lies outside its block", base as u64))
    }

    /// Returns the whole separator `index`.
    pub fn separator(&self, index: usize) -> Result<Vec<u8>, Corruption> {
        Ok([self.common(), self.separator_rest(index)?].concat())
    }

    /// Returns fence `index`.
    #[inline]
    pub fn fence(&self, index: usize) -> Result<Fence, Corruption> {
        if index >= self.count() {
            return Err(Corruption::new("fence number outside its block", 0));
        }
        let [end, ordinal, raw_len, key] = self.row(index)?;
        let (start, _) = self.starts(index)?;
        let Some(sealed_len) = end.checked_sub(start) else {
            return Err(Corruption::new("fence ends before it starts", 0));
        };
        Ok(Fence {
            offset: self.layout.base_offset + u64::from(start),
            sealed_len,
            raw_len,
            ordinal: self.layout.base_ordinal + u64::from(ordinal),
            continues: key & CONTINUES != 0,
        })
    }

    /// Returns the index of the first fence whose separator is not less than `key`, or the count when there is none.
    pub fn find(&self, key: &[u8]) -> Result<usize, Corruption> {
        match self.target(key) {
            Ok(target) => self.find_near(self.guess(target), target),
            Err(outside) => Ok(outside),
        }
    }

    /// Returns what a search for `key` compares: the part after the common prefix. Fails with the result of the search
    /// if the common prefix decides it.
    #[inline]
    pub fn target<'k>(&self, key: &'k [u8]) -> Result<Target<'k>, usize> {
        let common = self.common();
        match key[..key.len().min(common.len())].cmp(common) {
            Ordering::Equal => Ok(Target { head: head_of(&key[common.len()..]), rest: &key[common.len()..] }),
            Ordering::Less => Err(0),
            Ordering::Greater => Err(self.count()),
        }
    }

    /// Returns an estimate of the result of a search: where `target` would be if the separators between the first and
    /// the last one were evenly spread.
    #[inline]
    pub fn guess(&self, target: Target<'_>) -> usize {
        let Some(last) = self.count().checked_sub(1) else { return 0 };
        let (low, high) = (self.head(0), self.head(last));
        if target.head <= low || high <= low {
            return 0;
        }
        let share = (target.head - low) as f64 / (high - low) as f64;
        ((share * last as f64) as usize).min(last)
    }

    /// Returns the result of the search for `target`. The nearer `guess` is to it, the fewer comparisons are made, and
    /// the nearer they are in memory.
    pub fn find_near(&self, guess: usize, target: Target<'_>) -> Result<usize, Corruption> {
        let count = self.count();
        if guess >= count {
            return Ok(count);
        }
        // The result is in low..=high. Widens the interval around the guess, then halves it.
        let (mut low, mut high) = (0, count);
        let mut step = FIRST_STEP;
        if self.is_before(guess, target)? {
            low = guess + 1;
            while let Some(probe) = low.checked_add(step).filter(|&probe| probe < count) {
                if !self.is_before(probe, target)? {
                    high = probe;
                    break;
                }
                (low, step) = (probe + 1, step * WIDENING);
            }
        } else {
            high = guess;
            while let Some(probe) = high.checked_sub(step) {
                if self.is_before(probe, target)? {
                    low = probe + 1;
                    break;
                }
                (high, step) = (probe, step * WIDENING);
            }
        }
        while low < high {
            let middle = low.midpoint(high);
            if self.is_before(middle, target)? {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Returns whether separator `index` is less than `target`.
    #[inline]
    fn is_before(&self, index: usize, target: Target<'_>) -> Result<bool, Corruption> {
        Ok(match self.head(index).cmp(&target.head) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => self.separator_rest(index)? < target.rest,
        })
    }

    /// Returns the offsets of what a search reads of fence `index`: its head, and its row.
    #[inline]
    pub fn places(&self, index: usize) -> [usize; 2] {
        [HEADER_LEN + 8 * index, HEADER_LEN + 8 * self.count() + ROW_LEN * index]
    }

    /// Verifies all fences: separators are in order and fill the block, heads match them, ordinals rise, and none lies
    /// past the end of the longest table.
    pub fn validate(&self) -> Result<(), Corruption> {
        let at = |what| Corruption::new(what, 0);
        let mut previous: Option<(&[u8], Fence)> = None;
        let mut length = self.layout.separators_start() as usize;
        for index in 0..self.count() {
            let rest = self.separator_rest(index)?;
            let fence = self.fence(index)?;
            length += rest.len();
            if self.head(index) != head_of(rest) {
                return Err(at("head of a fence differs from its separator"));
            }
            if fence.end() > MAX_LEN || fence.ordinal > MAX_LEN {
                return Err(at("fence lies past the end of the longest table"));
            }
            if let Some((before, fence_before)) = previous {
                if before > rest || (before == rest && !fence_before.continues) {
                    return Err(at("separators are out of order"));
                }
                if fence.ordinal <= fence_before.ordinal {
                    return Err(at("ordinals do not rise"));
                }
            }
            previous = Some((rest, fence));
        }
        if length != self.bytes.len() {
            return Err(at("index block has the wrong length"));
        }
        Ok(())
    }
}
