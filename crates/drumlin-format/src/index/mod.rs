//! The fence index: which data block can hold a key, where it lies, and how many entries come before it.
//!
//! There is one *fence* per data block. Its *separator* is at or after the block's last key and before the next
//! block's first, and as short as that allows. A key is looked for in the first block whose separator is not
//! smaller. Where the versions of one key go on in the next block, the separator is that key and the fence says
//! that it *continues*.
//!
//! Fences of a small table form one index block, the root. When that would exceed [`FLAT_LIMIT`], they are cut
//! into partitions of about [`PARTITION_TARGET`] bytes, and the root holds one fence per partition, in the same
//! form. Each fence knows how many entries of the table come before it, so the exact rank of any key costs at
//! most one data block.
//!
//! ```text
//! header     count u32 | level u8 | three zero bytes | common length u32 | zero u32
//!            | base offset u64 | base ordinal u64
//! heads      count x u64       first eight bytes of the separator after the common prefix, big endian as a
//!                              number, zero padded: most comparisons end here
//! ends       count+1 x u32     child i is stored at base offset + ends[i] and ends, seal included, at ends[i+1]
//! ordinals   count x u32       entries before child i, less the base ordinal
//! raw        count x u32       length of child i before compression
//! keys       count x u32       end of separator i in `separators`; the top bit says that it continues
//! common     common length bytes at the start of all separators
//! separators the rest of each
//! ```
//!
//! Level 0 points to data blocks, level 1 to index blocks of level 0. Columns have fixed widths, so that a block
//! is searched in place, without decoding it first.

mod builder;
#[cfg(test)]
mod tests;
mod view;

pub use builder::{IndexBuilder, IndexError, Partitions, separator_len};
pub use view::{Fence, IndexLayout, IndexView};

/// Longest index that is kept in one block.
pub const FLAT_LIMIT: usize = 64 << 10;
/// Length at which a partition is complete.
pub const PARTITION_TARGET: usize = 16 << 10;
/// Bytes that a fence takes beside its separator.
pub const FENCE_LEN: usize = 8 + 4 + 4 + 4 + 4;

const HEADER_LEN: usize = 32;
/// Top bit of the key column.
const CONTINUES: u32 = 1 << 31;
