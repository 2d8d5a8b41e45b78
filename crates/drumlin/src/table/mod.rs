//! Table files (SSTables): written once, opened lazily, read through a block cache.
//!
//! `drumlin_format::table` describes the bytes. This module connects them to files and memory:
//! - [`TableWriter`] writes a table front to back and syncs it. An unfinished table leaves no file.
//! - [`Table`] is an open table. It holds the handles of the footer, the properties, the root of the index and the
//!   range tombstones; it reads everything else on demand. It serves point lookups, ranks, size estimates and
//!   verification.
//! - [`TableCursor`] iterates over a table in both directions.
//! - [`BlockCache`] holds data blocks, index partitions and filter modules, keyed by table and offset, and values of
//!   value files. A cached pointer beside each fence (index entry) leads to its block without a cache lookup.
//! - [`TableCache`] holds the open tables.
//!
//! Invariants:
//! - No byte is used before its checksum has been verified. The checksum is bound to table and offset.
//! - Blocks in the cache are verified and decompressed.
//! - An open table never changes.
//! - A filter's negative answer comes from verified bytes only. A filter that is absent, damaged or of an unknown
//!   format answers "perhaps" and never fails a read.
//! - Damage in any other block is an error that names the file and the offset of the block.

pub(crate) mod ahead;
mod block;
mod block_cache;
mod carry;
mod cursor;
mod fences;
mod filter;
mod lookup;
mod pointers;
mod read_ahead;
mod reader;
mod salvage;
mod scan_length;
mod table_cache;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

pub(crate) use block::fetched_blocks;
#[cfg(test)]
pub(crate) use block_cache::CacheStats;
pub(crate) use block_cache::{BlockCache, MOST_CACHED_VALUE};
pub(crate) use cursor::TableCursor;
pub(crate) use lookup::Lookup;
#[cfg(test)]
pub(crate) use lookup::LookupHit;
pub(crate) use read_ahead::CursorOptions;
pub(crate) use reader::Table;
pub(crate) use salvage::{Loss, Salvage, Version};
pub(crate) use table_cache::{OpenTable, TableCache, TablePointer};
pub(crate) use writer::{TableOptions, TableWriter};

use crate::base::error::{Error, ErrorKind};
use drumlin_format::error::DecodeError;
use drumlin_types::TableId;
use std::path::Path;

/// File name of table `id`.
pub(crate) fn table_file_name(id: TableId) -> String {
    drumlin_format::names::FileName::Table(id).to_string()
}

/// Error for bytes of `path` that do not decode. `offset` is the offset of the block that contains them.
fn decode_error(path: &Path, offset: u64, error: impl Into<DecodeError>) -> Error {
    match error.into() {
        DecodeError::Corruption(damage) => Error::corruption(path, offset, damage.what),
        newer @ DecodeError::NewerFormat { .. } => {
            Error::new(ErrorKind::NewerFormat, format!("{}: {newer}", path.display()))
        }
    }
}
