//! Open table: footer, properties, index root, filter and range tombstones. Lookups are in `lookup`.

use super::block::{BlockFile, IndexBlock};
use super::block_cache::BlockCache;
use super::decode_error;
use super::filter::TableFilter;
use super::scan_length::ScanLength;
use crate::base::error::{Error, Result};
use crate::base::rangedel::{RangeTombstone, RangeTombstones};
use crate::base::slice::Slice;
use drumlin_env::sync::Arc;
use drumlin_env::{Env, FileKind};
use drumlin_format::index::Fence;
use drumlin_format::table::{FOOTER_LEN, Footer, Handle, Properties, decode_tombstones};
use drumlin_types::{Seq, TableId};
use std::fmt;
use std::path::Path;

/// Bytes read from the end of the file at once. For most tables they cover everything but the data.
const TAIL_BYTES: u64 = 64 << 10;

/// Bytes of an open table whatever it contains: itself, its file, its properties, its places in the table cache, and
/// what the allocator adds.
const TABLE_BYTES: usize = size_of::<Table>() + 600;

/// Open table. Cheap to share and immutable.
pub(crate) struct Table {
    pub(super) blocks: BlockFile,
    pub(super) cache: Arc<BlockCache>,
    pub(super) root: IndexBlock,
    pub(super) root_offset: u64,
    pub(super) filter: TableFilter,
    pub(super) scans: ScanLength,
    file_len: u64,
    properties: Properties,
    tombstones: Arc<RangeTombstones>,
    /// Bytes of memory that the open table takes. The cache is charged with them.
    held: usize,
    /// Whether the table's seed differs from that of the hashes that lookups pass.
    pub(super) foreign_seed: bool,
}

impl Table {
    /// Opens table `id`, whose file is `file_len` bytes long. `seed` is the seed of the hashes that lookups will
    /// pass.
    pub(crate) fn open(
        env: &Env,
        path: &Path,
        id: TableId,
        file_len: u64,
        cache: Arc<BlockCache>,
        seed: u64,
    ) -> Result<Table> {
        let file =
            env.fs().open(path, FileKind::Table).map_err(|e| Error::io(path, "cannot open table", e))?;
        Table::over(BlockFile { id, file }, file_len, cache, seed)
    }

    /// Reads the parts that an open table keeps in memory.
    pub(super) fn over(blocks: BlockFile, file_len: u64, cache: Arc<BlockCache>, seed: u64) -> Result<Table> {
        let id = blocks.id;
        if file_len < FOOTER_LEN as u64 {
            return Err(blocks.corruption(0, "table is shorter than its footer"));
        }
        let tail_offset = file_len.saturating_sub(TAIL_BYTES);
        let tail = FileTail {
            offset: tail_offset,
            bytes: blocks.read(tail_offset, (file_len - tail_offset) as usize)?,
        };
        let footer_offset = file_len - FOOTER_LEN as u64;
        let footer_bytes = &tail.bytes[tail.bytes.len() - FOOTER_LEN..];
        let footer = Footer::decode(footer_bytes, id.0, file_len)
            .map_err(|error| decode_error(blocks.file.path(), footer_offset, error))?;
        let properties = tail.block(&blocks, footer.properties)?;
        let properties = Properties::decode(&properties, footer_offset)
            .map_err(|damage| blocks.decode_error(footer.properties.offset, damage))?;
        let epochs = cache.epochs();
        let root = Slice::from(&*tail.block(&blocks, footer.root)?);
        let root = IndexBlock::parse(root, epochs)
            .map_err(|damage| blocks.decode_error(footer.root.offset, damage))?;
        let tombstones = match &properties.tombstones {
            Some((handle, _)) => read_tombstones(&blocks, &tail, *handle)?,
            None => RangeTombstones::default(),
        };
        let tombstones = Arc::new(tombstones);
        let filter = TableFilter::new(&properties.filter, footer_offset, epochs);
        filter.adopt(&tail.bytes, tail.offset, &blocks, &cache);
        let foreign_seed = properties.seed != seed;
        let root_offset = footer.root.offset;
        let held = TABLE_BYTES
            + blocks.file.path().as_os_str().len()
            + root.held_bytes()
            + filter.held_bytes()
            + tombstones.held_bytes()
            + properties.held_bytes();
        cache.hold_table(held);
        Ok(Table {
            blocks,
            cache,
            root,
            root_offset,
            filter,
            scans: ScanLength::default(),
            file_len,
            properties,
            tombstones,
            held,
            foreign_seed,
        })
    }

    /// Opens the table again from its file, without a cache.
    pub(super) fn reopened(&self) -> Result<Table> {
        let cache = Arc::new(BlockCache::new(0));
        Table::over(self.blocks.clone(), self.file_len, cache, self.properties.seed)
    }

    /// Returns the table's number.
    pub(crate) fn id(&self) -> TableId {
        self.blocks.id
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        self.blocks.file.path()
    }

    /// Returns the length of the file in bytes.
    pub(crate) fn file_len(&self) -> u64 {
        self.file_len
    }

    /// Returns the bytes of memory that the open table takes, besides cached blocks.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held
    }

    /// Returns the table's properties.
    pub(crate) fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Returns the table's range tombstones.
    pub(crate) fn range_tombstones(&self) -> &Arc<RangeTombstones> {
        &self.tombstones
    }

    /// Fails if a range tombstone has a sequence number outside `min..=max`, which the manifest records for the table.
    pub(crate) fn check_tombstones(&self, min: Seq, max: Seq) -> Result<()> {
        match self.tombstones.iter().all(|tombstone| (min..=max).contains(&tombstone.seq)) {
            true => Ok(()),
            false => {
                let what =
                    "a range tombstone's sequence number lies outside the range recorded for its table";
                let offset = self.properties.tombstones.as_ref().map_or(0, |(handle, _)| handle.offset);
                Err(self.blocks.corruption(offset, what))
            }
        }
    }

    #[cfg(test)]
    /// Returns whether the filter was found damaged and is not used.
    pub(crate) fn has_damaged_filter(&self) -> bool {
        self.filter.is_damaged()
    }

    /// Error for a data fence whose place holds a block of another type: two handles point to the same block.
    #[cold]
    pub(super) fn not_data(&self, fence: &Fence) -> Error {
        self.blocks.corruption(fence.offset, "fence points to a block that is not a data block")
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.cache.release_table(self.held);
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({}, {} entries)", self.id(), self.properties.entries)
    }
}

fn read_tombstones(blocks: &BlockFile, tail: &FileTail, handle: Handle) -> Result<RangeTombstones> {
    let bytes = tail.block(blocks, handle)?;
    let list = decode_tombstones(&bytes).map_err(|damage| blocks.decode_error(handle.offset, damage))?;
    let list: Vec<RangeTombstone> =
        list.into_iter().map(|t| RangeTombstone { range: t.range, seq: t.seq }).collect();
    Ok(RangeTombstones::new(list))
}

/// Last bytes of the file.
struct FileTail {
    offset: u64,
    bytes: Slice,
}

impl FileTail {
    /// Returns a block of a type that is never compressed, from the tail if it lies there, else from the file.
    fn block(&self, blocks: &BlockFile, handle: Handle) -> Result<Slice> {
        let start = handle.offset.checked_sub(self.offset).map(|start| start as usize);
        match start.and_then(|start| self.bytes.part(start..start + handle.sealed_len as usize)) {
            Some(sealed) => blocks.unseal_plain(handle, &sealed),
            None => blocks.read_plain(handle),
        }
    }
}
