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
//! rows       count x (end u32 | ordinal u32 | raw u32 | key u32)
//!            end       child i ends, seal included, at base offset + end; it starts where child i-1 ends
//!            ordinal   entries before child i, less the base ordinal
//!            raw       length of child i before compression
//!            key       end of separator i in `separators`; the top bit says that it continues
//! common     common length bytes at the start of all separators
//! separators the rest of each
//! ```
//!
//! Level 0 points to data blocks, level 1 to index blocks of level 0. Widths are fixed, so that a block is searched
//! in place, without decoding it first: through the dense heads, and then in one row and its neighbour.

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
pub const FENCE_LEN: usize = 8 + ROW_LEN;

const HEADER_LEN: usize = 32;
const ROW_LEN: usize = 16;
/// Top bit of a row's key.
const CONTINUES: u32 = 1 << 31;
