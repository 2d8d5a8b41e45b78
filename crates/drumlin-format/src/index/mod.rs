//! The index of a table. It tells which data block can hold a key, where that block is, and how many entries precede
//! it.
//!
//! There is one index entry, a *fence*, per data block. Its *separator* is at or after the block's last key, before the
//! next block's first key, and as short as possible. A lookup searches the first block whose separator is not less than
//! the key. If the versions of one key continue in the next block, the separator is that key and the fence has the
//! *continues* flag.
//!
//! The fences of a small table form one index block, the root. If the root would exceed [`FLAT_LIMIT`], the fences are
//! split into partitions of about [`PARTITION_TARGET`] bytes each. The root then holds one fence per partition, in the
//! same form. Each fence stores how many entries of the table precede its block, so the exact rank of any key costs at
//! most one read of a data block.
//!
//! ```text
//! index block  header | heads | rows | common | separators
//!
//! header       count u32 | level u8 | three zero bytes | common length u32 | zero u32
//!              | base offset u64 | base ordinal u64
//! heads        count x u64: the first eight bytes of the separator after the common prefix, zero padded,
//!              read as a big-endian number (stored little endian, like all numbers)
//! rows         count x (end u32 | ordinal u32 | raw u32 | key u32)
//!              end       end of child i, seal included, relative to the base offset; child i starts where
//!                        child i-1 ends, and child 0 at the base offset
//!              ordinal   number of entries before child i, minus the base ordinal
//!              raw       length of child i before compression
//!              key       end of separator i in `separators`; the top bit is the continues flag
//! common       the common prefix of all separators, common length bytes
//! separators   the rest of each separator
//! ```
//!
//! The children of a level 0 block are data blocks. Those of a level 1 block are index blocks of level 0.
//!
//! All widths are fixed, so a block is searched in place without decoding. A search starts where the key would be if
//! the heads were evenly spread (interpolation), widens an interval around that fence until it holds the result, and
//! halves it. So it takes a logarithmic number of comparisons for any keys. It compares the dense heads, which decides
//! most comparisons. Then it reads one row and its neighbour.

mod builder;
#[cfg(test)]
mod tests;
mod view;

pub use builder::{IndexBuilder, IndexError, Partitions, separator_len};
pub use view::{Fence, IndexLayout, IndexView, Target};

/// Maximum length of an index that is kept in one block.
pub const FLAT_LIMIT: usize = 64 << 10;
/// Target length of a partition.
pub const PARTITION_TARGET: usize = 16 << 10;
/// Length of a fence without its separator.
pub const FENCE_LEN: usize = 8 + ROW_LEN;

const HEADER_LEN: usize = 32;
const ROW_LEN: usize = 16;
/// The continues flag: the top bit of a row's key.
const CONTINUES: u32 = 1 << 31;
