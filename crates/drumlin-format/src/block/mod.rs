//! The data block: a few kilobytes of entries in internal order (user key ascending, sequence number descending).
//!
//! ```text
//! block     header | tags | offsets | entries
//!
//! header    count u32 | flags u8 | three zero bytes | base seq u64
//! tags      count bytes: the low byte of each user key's hash (`filter`)
//! offsets   count x u16, or count x u32 when flag 1 is set: start of each entry, relative to `entries`
//! entries   per entry:
//!           shared varint | suffix length varint | value length varint | kind u8 | seq varint | suffix | value
//! ```
//!
//! The directory comes first: header, tags and offsets share the first cache lines. A point lookup compares tags and
//! then reads only the matching entry, and the head of that entry's group if the entry shares bytes with it.
//!
//! Keys are prefix-compressed in groups of sixteen entries (the restart interval of LevelDB). The first entry of a
//! group, its *head*, holds its whole key. Every other entry stores how many bytes its key shares with the *head*, not
//! with the previous entry, and the remaining suffix. Each entry can therefore be decoded on its own, in constant time
//! and in any order. The shared lengths are maximal, and never increase from one entry of a group to the next, apart
//! from the head, which shares 0 bytes.
//!
//! `seq` is the difference of the sequence number from the base, zigzag coded. The base is the sequence number of the
//! first entry. Flag 1 is set if and only if some offset exceeds 16 bits; all other flags are 0.
//!
//! Invariant: a block holds at least one entry. Reading is memory-safe and terminates for any bytes. [`BlockLayout`]
//! checks the header in constant time, and each entry is checked when it is decoded. [`BlockView::validate`] checks the
//! whole block. Since blocks are checksummed, readers need only the first two checks.

mod builder;
mod cursor;
#[cfg(test)]
mod tests;
mod validate;
mod view;

pub use builder::BlockBuilder;
pub use cursor::EntryCursor;
pub use view::{BlockLayout, BlockView, Entry};

/// Number of entries per group.
pub const GROUP: usize = 16;
/// Maximum length of a block before compression. Offsets and lengths are stored in 32 bits, here and in the index.
pub const MAX_BLOCK_LEN: u64 = u32::MAX as u64 - 1024;
/// Maximum number of bytes that an entry takes in a block in addition to its key and value.
pub const MAX_ENTRY_OVERHEAD: usize = 3 * 5 + 1 + 10 + 1 + 4;

/// Maximum number of bytes of an entry's key and value together, an expiry included: what a block can hold.
pub const MAX_ENTRY_LEN: u64 = MAX_BLOCK_LEN - (MAX_ENTRY_OVERHEAD + HEADER_LEN) as u64;

/// Length of the header.
pub const HEADER_LEN: usize = 16;
const FLAG_WIDE: u8 = 1;

/// Returns the tag of a key with this hash.
#[inline]
pub const fn tag_of(hash: u64) -> u8 {
    hash as u8
}

/// Returns the length of the longest common prefix.
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
