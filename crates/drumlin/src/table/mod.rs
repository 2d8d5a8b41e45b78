//! Tables as the engine sees them: written once, opened lazily, read through a cache.
//!
//! The bytes are described in `drumlin_format::table`. Here they meet files and memory:
//! - [`TableWriter`] writes a table front to back and syncs it; a table that is not finished leaves no file.
//! - [`Table`] is an open table. It holds the footer's places, the properties, the root of the index and the range
//!   tombstones; everything else is read when needed. It answers point lookups, ranks and sizes, and verifies.
//! - [`TableCursor`] walks a table both ways.
//! - [`BlockCache`] holds data blocks, index partitions and filter modules, by table and offset. A slot beside each
//!   fence leads to its block without asking the cache.
//! - [`TableCache`] holds the open tables.
//!
//! Invariants: no byte is used before its checksum, which is bound to table and offset, has been verified; blocks
//! in the cache are verified and decompressed. An open table never changes. A filter's "no" comes from verified
//! bytes only; a filter that is absent, damaged or unknown says "perhaps", and never makes a read fail. Any damage
//! of other blocks is an error that names the file and the offset of the block.

pub(crate) mod ahead;
mod block;
mod block_cache;
mod cursor;
mod fences;
mod filter;
mod read_ahead;
mod reader;
mod slots;
mod table_cache;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

pub(crate) use block::fetched_blocks;
pub(crate) use block_cache::BlockCache;
#[cfg(test)]
pub(crate) use block_cache::CacheStats;
pub(crate) use cursor::{CursorOptions, TableCursor};
#[cfg(test)]
pub(crate) use reader::Found;
pub(crate) use reader::{Lookup, Table};
pub(crate) use table_cache::{OpenTable, TableCache, TableSlot};
pub(crate) use writer::{TableOptions, TableWriter};

use crate::error::{Error, ErrorKind};
use drumlin_format::error::DecodeError;
use drumlin_types::TableId;
use std::path::Path;

/// Name of the file of table `id`.
pub(crate) fn table_file_name(id: TableId) -> String {
    drumlin_format::names::FileName::Table(id).to_string()
}

/// The error for bytes of `path` that do not decode; `offset` is that of the block they are in.
fn decode_error(path: &Path, offset: u64, error: impl Into<DecodeError>) -> Error {
    match error.into() {
        DecodeError::Corruption(damage) => Error::corruption(path, offset, damage.what),
        newer @ DecodeError::NewerFormat { .. } => {
            Error::new(ErrorKind::NewerFormat, format!("{}: {newer}", path.display()))
        }
    }
}
