//! The data block: a few kilobytes of entries in internal order (user key ascending, sequence number descending).
//!
//! ```text
//! header    count u32 | flags u8 | three zero bytes | base seq u64
//! tags      count bytes: the low byte of each user key's hash
//! offsets   count x u16, or u32 when flag 1 is set: where each entry starts, from the start of `entries`
//! entries   shared varint | suffix length varint | value length varint | kind u8 | seq varint | suffix | value
//! ```
//!
//! *Directory first:* header, tags and offsets share the first cache lines, so a point lookup compares tags and
//! then touches just the entry it wants, and that entry's group head if it shares bytes with it.
//!
//! *Groups:* every sixteenth entry is a group head and holds its whole key. Any other entry holds the length that
//! it shares with its *head*, not with its neighbour, and the rest. So each entry decodes on its own, in constant
//! time and in any direction. Shared lengths are maximal and fall, or stay, from one entry of a group to the next.
//!
//! The sequence number is stored as the zigzag-coded difference from the base, which is the first entry's.
//!
//! Invariant: a block holds at least one entry. Reading is memory-safe and ends for any bytes: a [`BlockLayout`]
//! is checked in constant time, every entry when it is decoded; [`BlockView::validate`] checks all there is to
//! check. Blocks come checksummed, so a reader needs no more than the first two.

mod builder;
mod cursor;
#[cfg(test)]
mod tests;
mod view;

pub use builder::BlockBuilder;
pub use cursor::EntryCursor;
pub use view::{BlockLayout, BlockView, Entry};

/// Entries per group.
pub const GROUP: usize = 16;
/// Longest block before compression: its places are stored as 32 bits, here and in the fences.
pub const MAX_BLOCK_LEN: u64 = u32::MAX as u64 - 1024;
/// Most bytes that an entry adds to a block beside its key and value.
pub const MAX_ENTRY_OVERHEAD: usize = 3 * 5 + 1 + 10 + 1 + 4;

/// Length of the header.
pub const HEADER_LEN: usize = 16;
const FLAG_WIDE: u8 = 1;

/// The tag of a key with this hash.
#[inline]
pub const fn tag_of(hash: u64) -> u8 {
    hash as u8
}

/// Length of the longest common prefix.
#[inline]
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let (a_words, _) = a.as_chunks::<8>();
    let (b_words, _) = b.as_chunks::<8>();
    let words = a_words.iter().zip(b_words);
    let mut len = 0;
    for (x, y) in words {
        let difference = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if difference != 0 {
            return len + difference.trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    len + a[len..].iter().zip(&b[len..]).take_while(|(x, y)| x == y).count()
}
