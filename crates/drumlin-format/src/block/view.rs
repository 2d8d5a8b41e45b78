//! Reader of data blocks in place. The parent module describes the format.

use super::builder::{directory_len, seq_from_zigzag};
use super::{FLAG_WIDE, GROUP, HEADER_LEN, common_prefix};
use crate::bytes::Reader;
use crate::error::Corruption;
use core::cmp::Ordering;
use drumlin_types::{Kind, Seq};

/// A verified block header. Cheap to copy, so that a cache can store it beside the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockLayout {
    count: u32,
    pub(super) wide: bool,
    pub(super) base_seq: Seq,
}

impl BlockLayout {
    /// Verifies the header of `bytes`: the directory that it describes lies inside the block.
    pub fn parse(bytes: &[u8]) -> Result<BlockLayout, Corruption> {
        let mut reader = Reader::new(bytes);
        let count = reader.u32()?;
        let [flags, rest @ ..] = reader.array::<4>()?;
        if flags & !FLAG_WIDE != 0 || rest != [0; 3] {
            return Err(Corruption::new("block has unknown flags", 4));
        }
        let layout = BlockLayout { count, wide: flags & FLAG_WIDE != 0, base_seq: reader.u64()? };
        if count == 0 {
            return Err(Corruption::new("block holds no entries", 0));
        }
        if count as usize > bytes.len() || layout.directory_len() > bytes.len() {
            return Err(Corruption::new("block is shorter than its directory", 0));
        }
        Ok(layout)
    }

    /// Returns the length of the header and the directory, with which the block starts.
    #[inline]
    pub fn directory_len(self) -> usize {
        directory_len(self.count as usize, self.wide)
    }

    /// Returns the block with this layout. `bytes` must be the parsed ones; other bytes give errors.
    #[inline]
    pub fn view(self, bytes: &[u8]) -> BlockView<'_> {
        BlockView { bytes, layout: self }
    }
}

/// One entry, borrowed from its block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// Number of bytes of the key that the entry shares with the group's head.
    pub shared: usize,
    /// Rest of the key.
    pub suffix: &'a [u8],
    /// Sequence number.
    pub seq: Seq,
    /// Kind.
    pub kind: Kind,
    /// Value.
    pub value: &'a [u8],
    /// Offset of the value in the block.
    pub value_offset: usize,
}

/// Header of an entry: the fields before its suffix and value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct EntryHeader {
    shared: usize,
    suffix_len: usize,
    value_len: usize,
    kind: u8,
    zigzag: u64,
    /// Encoded length of the header.
    len: usize,
}

impl EntryHeader {
    /// Decodes the header at the start of `bytes` without a branch per byte.
    ///
    /// Returns `None` if the header does not have the usual form: key lengths of one byte, a value length of one or two
    /// bytes, a sequence number of at most four bytes, and enough bytes after it.
    #[inline]
    fn short(bytes: &[u8]) -> Option<EntryHeader> {
        let word = u64::from_le_bytes(*bytes.first_chunk::<8>()?);
        let byte = |at: u32| (word >> (8 * at)) & 0xff;
        if word & 0x8080 != 0 {
            return None;
        }
        let (value_len, kind_at) = match (byte(2), byte(3)) {
            (value_len @ ..0x80, _) => (value_len, 3),
            (low, high @ 1..0x80) => (low & 0x7f | high << 7, 4),
            _ => return None,
        };
        let varint = u32::from_le_bytes(*bytes.get(kind_at + 1..)?.first_chunk::<4>()?);
        let ends = !varint & 0x8080_8080;
        if ends == 0 {
            return None;
        }
        let seq_len = ends.trailing_zeros() as usize / 8 + 1;
        let bits = varint & (u32::MAX >> (32 - 8 * seq_len));
        // A last byte of zero is not the shortest form. `any` rejects it.
        if seq_len > 1 && bits >> (8 * (seq_len - 1)) == 0 {
            return None;
        }
        let groups = [bits & 0x7f, bits >> 1 & 0x7f << 7, bits >> 2 & 0x7f << 14, bits >> 3 & 0x7f << 21];
        Some(EntryHeader {
            shared: byte(0) as usize,
            suffix_len: byte(1) as usize,
            value_len: value_len as usize,
            kind: byte(kind_at as u32) as u8,
            zigzag: u64::from(groups.into_iter().fold(0, |sum, group| sum | group)),
            len: kind_at + 1 + seq_len,
        })
    }

    /// Decodes any header at the start of `bytes`, which begin at offset `start` of the block.
    fn any(bytes: &[u8], start: usize) -> Result<EntryHeader, Corruption> {
        let mut reader = Reader::at(bytes, start as u64);
        Ok(EntryHeader {
            shared: reader.varint_u32()? as usize,
            suffix_len: reader.varint_u32()? as usize,
            value_len: reader.varint_u32()? as usize,
            kind: reader.u8()?,
            zigzag: reader.varint_u64()?,
            len: bytes.len() - reader.remaining(),
        })
    }
}

/// A borrowed block.
#[derive(Clone, Copy)]
pub struct BlockView<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) layout: BlockLayout,
}

impl<'a> BlockView<'a> {
    /// Verifies the header of `bytes`.
    pub fn parse(bytes: &'a [u8]) -> Result<BlockView<'a>, Corruption> {
        Ok(BlockLayout::parse(bytes)?.view(bytes))
    }

    /// Returns the number of entries, at least one.
    #[inline]
    pub fn count(&self) -> usize {
        self.layout.count as usize
    }

    fn tags(&self) -> &'a [u8] {
        self.bytes.get(HEADER_LEN..HEADER_LEN + self.count()).unwrap_or_default()
    }

    /// Returns the tag of entry `index`.
    pub fn tag(&self, index: usize) -> Option<u8> {
        self.tags().get(index).copied()
    }

    /// Returns the offset of entry `index` in the block.
    #[inline]
    pub(super) fn start(&self, index: usize) -> Result<usize, Corruption> {
        let outside = Corruption::new("entry number outside its block", 0);
        if index >= self.count() {
            return Err(outside);
        }
        let offsets = HEADER_LEN + self.count();
        let offset = if self.layout.wide {
            let place = self.bytes.get(offsets + 4 * index..).and_then(<[u8]>::first_chunk::<4>);
            u32::from_le_bytes(*place.ok_or(outside)?) as usize
        } else {
            let place = self.bytes.get(offsets + 2 * index..).and_then(<[u8]>::first_chunk::<2>);
            usize::from(u16::from_le_bytes(*place.ok_or(outside)?))
        };
        Ok(self.layout.directory_len() + offset)
    }

    /// Returns the offsets in the block of every `step`-th entry, from the first on. They are not verified.
    #[inline]
    pub fn starts(&self, step: usize) -> impl Iterator<Item = usize> {
        let (block, count) = (*self, self.count());
        (0..count).step_by(step.max(1)).map_while(move |index| block.start(index).ok())
    }

    /// Decodes entry `index`.
    #[inline]
    pub fn entry(&self, index: usize) -> Result<Entry<'a>, Corruption> {
        self.entry_inline(index)
    }

    /// Does what `entry` does, but always inlined: a step of a scan then keeps the entry in registers.
    #[inline(always)]
    pub(super) fn entry_inline(&self, index: usize) -> Result<Entry<'a>, Corruption> {
        let start = self.start(index)?;
        let outside = Corruption::new("entry lies outside its block", start as u64);
        let bytes = self.bytes.get(start..).ok_or(outside)?;
        let header = match EntryHeader::short(bytes) {
            Some(header) => header,
            None => EntryHeader::any(bytes, start)?,
        };
        let EntryHeader { shared, suffix_len, value_len, kind, zigzag, len } = header;
        let kind = Kind::from_u8(kind).ok_or(Corruption::new("unknown kind of entry", start as u64))?;
        let seq = seq_from_zigzag(zigzag, self.layout.base_seq);
        if shared > 0 && index.is_multiple_of(GROUP) {
            return Err(Corruption::new("group head shares bytes", start as u64));
        }
        let (_, rest) = bytes.split_at_checked(len).ok_or(outside)?;
        let (suffix, rest) = rest.split_at_checked(suffix_len).ok_or(outside)?;
        let (value, _) = rest.split_at_checked(value_len).ok_or(outside)?;
        let value_offset = start + len + suffix_len;
        Ok(Entry { shared, suffix, seq, kind, value, value_offset })
    }

    /// Returns the whole key of the head of entry `index`'s group.
    #[inline]
    pub fn head(&self, index: usize) -> Result<&'a [u8], Corruption> {
        Ok(self.entry(index - index % GROUP)?.suffix)
    }

    /// Returns the bytes that `entry`, whose index is `index`, shares with its head.
    #[inline]
    pub(super) fn shared(&self, index: usize, entry: &Entry<'a>) -> Result<&'a [u8], Corruption> {
        if entry.shared == 0 {
            return Ok(&[]);
        }
        let head = self.head(index)?;
        head.get(..entry.shared).ok_or(Corruption::new("entry shares more bytes than its head has", 0))
    }

    /// Returns the newest version of `key` that is visible at `snapshot`, with its index. `tag` is the tag of `key`.
    ///
    /// Tags are compared eight at a time. Only entries with a matching tag are decoded.
    pub fn get(&self, key: &[u8], tag: u8, snapshot: Seq) -> Result<Option<(usize, Entry<'a>)>, Corruption> {
        const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
        let tags = self.tags();
        let wanted = u64::from_le_bytes([tag; 8]);
        let (words, rest) = tags.as_chunks::<8>();
        for (word_index, word) in words.iter().enumerate() {
            let difference = u64::from_le_bytes(*word) ^ wanted;
            // Sets the high bit of each byte that is zero.
            let mut equal = !(((difference & LOW) + LOW) | difference | LOW);
            while equal != 0 {
                let index = word_index * 8 + equal.trailing_zeros() as usize / 8;
                if let Some(entry) = self.version_at(index, key, snapshot)? {
                    return Ok(Some((index, entry)));
                }
                equal &= equal - 1;
            }
        }
        for (place, _) in rest.iter().enumerate().filter(|&(_, &t)| t == tag) {
            let index = words.len() * 8 + place;
            if let Some(entry) = self.version_at(index, key, snapshot)? {
                return Ok(Some((index, entry)));
            }
        }
        Ok(None)
    }

    /// Returns entry `index` if it is a version of `key` that `snapshot` sees.
    #[inline]
    fn version_at(&self, index: usize, key: &[u8], snapshot: Seq) -> Result<Option<Entry<'a>>, Corruption> {
        self.touch(index);
        let entry = self.entry(index)?;
        let Some((start, end)) = key.split_at_checked(entry.shared) else {
            return Ok(None);
        };
        // The head and the entry may lie far apart in the block. Load both before comparing either.
        let shared = self.shared(index, &entry)?;
        let is_version = entry.seq <= snapshot && end == entry.suffix && start == shared;
        Ok(is_version.then_some(entry))
    }

    /// Reads a byte of entry `index` and one of its group's head, behind their lengths. Otherwise a comparison of keys
    /// that extend to a second CPU cache line would wait for memory twice, because the lengths tell where a key is.
    #[inline]
    fn touch(&self, index: usize) {
        const BEHIND: usize = 31;
        let byte = |index: usize| {
            let start = self.start(index).unwrap_or(usize::MAX - BEHIND);
            self.bytes.get(start + BEHIND).copied().unwrap_or_default()
        };
        core::hint::black_box(byte(index) ^ byte(index - index % GROUP));
    }

    /// Returns the entry after entry `index` if it is a version of `key` too.
    pub fn next_version(&self, index: usize, key: &[u8]) -> Result<Option<(usize, Entry<'a>)>, Corruption> {
        let next = index + 1;
        if next >= self.count() {
            return Ok(None);
        }
        Ok(self.version_at(next, key, Seq::MAX)?.map(|entry| (next, entry)))
    }

    /// Returns the index of the first entry at or after (`key`, `seq`) in internal order, or the count when there is
    /// none.
    pub fn find(&self, key: &[u8], seq: Seq) -> Result<usize, Corruption> {
        let groups = self.count().div_ceil(GROUP);
        // Find the first group whose head is at or after the target.
        let (mut low, mut high) = (0, groups);
        while low < high {
            let middle = low.midpoint(high);
            let head = self.entry(middle * GROUP)?;
            if is_before(head.suffix, head.seq, key, seq) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if low == 0 {
            return Ok(0);
        }
        self.find_in_group((low - 1) * GROUP, key, seq)
    }

    /// Returns the result of `find` within the group whose head is at `head_index`. The head is before the target.
    fn find_in_group(&self, head_index: usize, key: &[u8], seq: Seq) -> Result<usize, Corruption> {
        let head = self.entry(head_index)?.suffix;
        let common = common_prefix(head, key);
        let (mut low, mut high) = (head_index + 1, (head_index + GROUP).min(self.count()));
        while low < high {
            let middle = low.midpoint(high);
            let entry = self.entry(middle)?;
            // Shared lengths are maximal. An entry that shares less with the head than the key does is greater than the
            // key. One that shares more is smaller than the key, as the head is.
            let before = match entry.shared.cmp(&common) {
                Ordering::Less => false,
                Ordering::Greater => true,
                Ordering::Equal => is_before(entry.suffix, entry.seq, &key[common..], seq),
            };
            if before {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }
}

/// Returns whether one version comes before another in internal order.
#[inline]
pub(super) fn is_before(key: &[u8], seq: Seq, other_key: &[u8], other_seq: Seq) -> bool {
    match key.cmp(other_key) {
        Ordering::Less => true,
        Ordering::Equal => seq > other_seq,
        Ordering::Greater => false,
    }
}

/// Decodes a header in both ways, for the test that compares them. Returns the zigzag code and the length of each.
#[cfg(test)]
pub(super) fn both_headers(bytes: &[u8]) -> [Option<(u64, usize)>; 2] {
    let (short, any) = (EntryHeader::short(bytes), EntryHeader::any(bytes, 0).ok());
    if short.is_some() && short != any {
        return [Some((u64::MAX, usize::MAX)), None];
    }
    let figures = |header: EntryHeader| (header.zigzag, header.len);
    [short.map(figures), any.map(figures)]
}
