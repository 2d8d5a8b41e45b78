//! Builder of tables. It writes block by block to a [`Sink`]. The parent module describes the format.

use super::{
    FILTER_NONE, FOOTER_LEN, FilterDescriptor, Footer, Handle, ModuleDescriptor, Owner, Properties,
    Tombstone, ValueReference, encode_tombstones,
};
use crate::block::{BlockBuilder, HEADER_LEN, MAX_BLOCK_LEN, MAX_ENTRY_OVERHEAD, tag_of};
use crate::checksum::FileHasher;
use crate::compression::{Compression, Compressor};
use crate::filter::{MAX_MODULES, Method, Module, key_hash, may_contain};
use crate::index::{FENCE_LEN, IndexBuilder, separator_len};
use crate::seal::{SEAL_LEN, seal};
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;
use drumlin_types::{Key, KeyRange, Kind, MAX_KEY_LEN, Seq};

/// Maximum target length of data blocks. Larger settings are reduced to it.
pub const MAX_BLOCK_TARGET: usize = 16 << 20;

/// Destination of a file's bytes, from front to back.
pub trait Sink {
    /// Error of a failed append.
    type Error;
    /// Appends `bytes`.
    fn append(&mut self, bytes: &[u8]) -> Result<(), Self::Error>;
}

impl Sink for Vec<u8> {
    type Error = core::convert::Infallible;
    fn append(&mut self, bytes: &[u8]) -> Result<(), Self::Error> {
        self.extend_from_slice(bytes);
        Ok(())
    }
}

/// Settings of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableSettings {
    /// Number of the table. All checksums are bound to it.
    pub file_id: u64,
    /// Target length of data blocks before compression.
    pub block_bytes: usize,
    /// Compression of data blocks.
    pub compression: Compression,
    /// Seed of the hash for filter and tags.
    pub seed: u64,
    /// Newest sequence number of the store when the table is begun.
    pub created_seq: Seq,
}

/// Parameters of a filter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FilterSpec {
    /// Bits per distinct key, over all modules; 0 for no filter.
    pub bits_per_key: f64,
    /// Number of equally large modules, 1 to 4.
    pub modules: usize,
    /// Method of the filter.
    pub method: Method,
}

impl FilterSpec {
    /// Returns the parameters of a Bloom filter with `modules` modules.
    pub const fn bloom(bits_per_key: f64, modules: usize) -> FilterSpec {
        FilterSpec { bits_per_key, modules, method: Method::Bloom }
    }
}

impl From<f64> for FilterSpec {
    fn from(bits_per_key: f64) -> FilterSpec {
        FilterSpec::bloom(bits_per_key, 1)
    }
}

/// Reason why a table could not be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BuildError<E> {
    /// The sink failed.
    Sink(E),
    /// An entry is not after the previous one, or is of a kind that tables do not hold as an entry.
    OutOfOrder,
    /// The key exceeds the maximum key length, or key and value exceed the maximum block length.
    EntryTooLong,
    /// The entries or the index exceed the limits of a table.
    TableTooLarge,
    /// The table has neither entries nor range tombstones.
    Empty,
    /// The filter excludes a key of the table.
    FilterLies,
}

impl<E: fmt::Display> fmt::Display for BuildError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Sink(error) => error.fmt(f),
            BuildError::OutOfOrder => f.write_str("entries are added to a table out of order"),
            BuildError::EntryTooLong => f.write_str("an entry is too long for a table"),
            BuildError::TableTooLarge => f.write_str("a table has too many entries"),
            BuildError::Empty => f.write_str("a table has neither entries nor range tombstones"),
            BuildError::FilterLies => f.write_str("a filter excludes one of its keys"),
        }
    }
}

/// Result of building a table.
#[derive(Clone, PartialEq, Debug)]
pub struct TableSummary {
    /// Length of the file.
    pub file_len: u64,
    /// XXH3-64 of the whole file.
    pub checksum: u64,
    /// Properties of the table.
    pub properties: Properties,
}

/// A written data block whose separator is not known until the next block's first key is added.
struct Pending {
    offset: u64,
    end: u64,
    raw_len: u32,
    ordinal: u64,
}

/// Builds a table. Add entries in internal order and range tombstones in any order, then call `finish`.
pub struct TableBuilder<S> {
    sink: S,
    settings: TableSettings,
    properties: Properties,
    written: u64,
    hasher: FileHasher,
    block: BlockBuilder,
    /// Ordinal of the first entry of `block`.
    block_ordinal: u64,
    raw: Vec<u8>,
    compressor: Compressor,
    /// Offset of the data block that was closed last and is still in `raw`, until it is taken.
    closed: Option<u64>,
    pending: Option<Pending>,
    index: IndexBuilder,
    last_key: Vec<u8>,
    last_seq: Seq,
    /// Hashes of the distinct keys.
    hashes: Vec<u64>,
    tombstones: Vec<Tombstone>,
}

impl<S: Sink> TableBuilder<S> {
    /// Returns a builder of an empty table that writes to `sink`.
    pub fn new(sink: S, settings: TableSettings) -> TableBuilder<S> {
        let properties = Properties {
            compression: settings.compression,
            block_bytes: settings.block_bytes as u64,
            seed: settings.seed,
            created_seq: settings.created_seq,
            min_seq: Seq::MAX,
            ..Properties::default()
        };
        TableBuilder {
            sink,
            settings,
            properties,
            written: 0,
            hasher: FileHasher::new(),
            block: BlockBuilder::new(),
            block_ordinal: 0,
            raw: Vec::new(),
            compressor: Compressor::new(settings.compression),
            closed: None,
            pending: None,
            index: IndexBuilder::new(),
            last_key: Vec::new(),
            last_seq: 0,
            hashes: Vec::new(),
            tombstones: Vec::new(),
        }
    }

    /// Appends an entry, which must be after the previous one in internal order.
    pub fn add(
        &mut self,
        key: &[u8],
        seq: Seq,
        kind: Kind,
        value: &[u8],
    ) -> Result<(), BuildError<S::Error>> {
        let block_len = (key.len() + MAX_ENTRY_OVERHEAD + HEADER_LEN) as u64 + value.len() as u64;
        if key.len() > MAX_KEY_LEN || block_len > MAX_BLOCK_LEN {
            return Err(BuildError::EntryTooLong);
        }
        if kind == Kind::DeleteRange {
            return Err(BuildError::OutOfOrder);
        }
        if self.properties.entries == u64::from(u32::MAX) {
            return Err(BuildError::TableTooLarge);
        }
        let order = match self.properties.entries {
            0 => Ordering::Greater,
            _ => key.cmp(&self.last_key),
        };
        if order == Ordering::Less || (order == Ordering::Equal && seq >= self.last_seq) {
            return Err(BuildError::OutOfOrder);
        }
        let target = self.settings.block_bytes.min(MAX_BLOCK_TARGET).saturating_sub(SEAL_LEN);
        if !self.block.is_empty() && self.block.len_with(key.len(), value.len()) > target {
            self.close_block()?;
        }
        self.settle_pending(Some(key));
        if order == Ordering::Greater {
            self.hashes.push(key_hash(key, self.settings.seed));
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
        }
        if self.properties.entries == 0 {
            self.properties.key_bounds = Some((Key::new(key), Key::empty()));
        }
        let tag = tag_of(self.hashes.last().copied().unwrap_or(0));
        self.block.add(key, tag, seq, kind, value);
        self.last_seq = seq;
        self.count(key, seq, kind, value);
        Ok(())
    }

    fn count(&mut self, key: &[u8], seq: Seq, kind: Kind, value: &[u8]) {
        let properties = &mut self.properties;
        properties.entries += 1;
        properties.raw_bytes += (key.len() + value.len()) as u64;
        properties.min_seq = properties.min_seq.min(seq);
        properties.max_seq = properties.max_seq.max(seq);
        match kind {
            Kind::Delete => properties.deletes += 1,
            Kind::Merge => properties.merges += 1,
            Kind::PutExpiring => properties.expiring += 1,
            Kind::MergeExpiring => {
                properties.merges += 1;
                properties.expiring += 1;
            }
            Kind::PutPointer => properties.pointers += 1,
            Kind::Put | Kind::DeleteRange => {}
        }
    }

    /// Adds a range tombstone, at any time. An empty range is ignored.
    pub fn add_range_tombstone(&mut self, range: KeyRange, seq: Seq) {
        if !range.is_empty() {
            self.properties.min_seq = self.properties.min_seq.min(seq);
            self.properties.max_seq = self.properties.max_seq.max(seq);
            self.tombstones.push(Tombstone { range, seq });
        }
    }

    /// Sets the list of value files that the table's entries point to.
    pub fn set_value_files(&mut self, value_files: Vec<ValueReference>) {
        self.properties.value_files = value_files;
    }

    /// Sets the keyspace that the table belongs to.
    pub fn set_owner(&mut self, owner: Option<Owner>) {
        self.properties.owner = owner;
    }

    /// Returns the number of entries.
    pub fn entries(&self) -> u64 {
        self.properties.entries
    }

    /// Returns the number of distinct keys.
    pub fn keys(&self) -> u64 {
        self.hashes.len() as u64
    }

    /// Returns whether the table has neither entries nor range tombstones.
    pub fn is_empty(&self) -> bool {
        self.properties.entries == 0 && self.tombstones.is_empty()
    }

    /// Estimates the length of the file, without filter, if finished now.
    pub fn file_len_estimate(&self) -> u64 {
        let index = self.index.len() + FENCE_LEN;
        let open_block = if self.block.is_empty() { 0 } else { self.block.len() + SEAL_LEN };
        self.written + (open_block + index + FOOTER_LEN) as u64
    }

    /// Returns the memory in bytes that holds key hashes for the filter.
    pub fn hash_bytes(&self) -> usize {
        self.hashes.len() * size_of::<u64>()
    }

    /// Builds the filter, writes the remaining blocks, and returns the summary and the sink.
    pub fn finish(
        mut self,
        filter: impl Into<FilterSpec>,
    ) -> Result<(TableSummary, S), BuildError<S::Error>> {
        if self.is_empty() {
            return Err(BuildError::Empty);
        }
        self.end_block()?;
        self.settle_pending(None);
        self.properties.keys = self.hashes.len() as u64;
        self.properties.data_bytes = self.written;
        self.properties.data_blocks = self.index.count() as u64;
        if let Some((_, last)) = &mut self.properties.key_bounds {
            *last = Key::new(&self.last_key);
        }
        self.write_tombstones()?;
        self.write_filter(filter.into())?;
        let root = self.write_index()?;
        let properties = self.write_sealed(&self.properties.encode())?;
        let footer = Footer { properties, root }.encode(self.settings.file_id, self.written);
        self.write(&footer)?;
        let summary = TableSummary {
            file_len: self.written,
            checksum: self.hasher.finish(),
            properties: self.properties,
        };
        Ok((summary, self.sink))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), BuildError<S::Error>> {
        self.hasher.update(bytes);
        self.written += bytes.len() as u64;
        self.sink.append(bytes).map_err(BuildError::Sink)
    }

    /// Writes and seals an uncompressed block.
    fn write_sealed(&mut self, stored: &[u8]) -> Result<Handle, BuildError<S::Error>> {
        let offset = self.written;
        let sealed_len = u32::try_from(stored.len() + SEAL_LEN).map_err(|_| BuildError::TableTooLarge)?;
        self.write(stored)?;
        self.write(&seal(self.settings.file_id, offset, stored, Compression::None))?;
        Ok(Handle { offset, sealed_len })
    }

    /// Writes the open data block, if it has entries. The next entry begins another one.
    pub fn end_block(&mut self) -> Result<(), BuildError<S::Error>> {
        if self.block.is_empty() { Ok(()) } else { self.close_block() }
    }

    /// Returns the offset and the uncompressed bytes of the data block that was written last, if this call is the first
    /// since then.
    pub fn take_closed(&mut self) -> Option<(u64, &[u8])> {
        self.closed.take().map(|offset| (offset, &self.raw[..]))
    }

    fn close_block(&mut self) -> Result<(), BuildError<S::Error>> {
        self.closed = None;
        self.raw.clear();
        self.block.finish_into(&mut self.raw);
        let offset = self.written;
        let (method, stored) = self.compressor.compress(&self.raw);
        let seal = seal(self.settings.file_id, offset, stored, method);
        self.hasher.update(stored);
        self.hasher.update(&seal);
        self.written += (stored.len() + SEAL_LEN) as u64;
        self.sink.append(stored).map_err(BuildError::Sink)?;
        self.sink.append(&seal).map_err(BuildError::Sink)?;
        self.closed = Some(offset);
        self.pending = Some(Pending {
            offset,
            end: self.written,
            raw_len: self.raw.len() as u32,
            ordinal: self.block_ordinal,
        });
        self.block_ordinal = self.properties.entries;
        self.block.clear();
        Ok(())
    }

    /// Adds the fence of the previous block, once the next key is known or there is none.
    fn settle_pending(&mut self, next: Option<&[u8]>) {
        let Some(block) = self.pending.take() else { return };
        let continues = next == Some(&self.last_key[..]);
        let (len, raised) = match next {
            Some(next) if !continues => separator_len(&self.last_key, next),
            _ => (self.last_key.len(), false),
        };
        let last_byte = len.saturating_sub(1);
        if raised {
            self.last_key[last_byte] += 1;
        }
        let children = block.offset..block.end;
        self.index.add(&self.last_key[..len], continues, children, block.raw_len, block.ordinal);
        if raised {
            self.last_key[last_byte] -= 1;
        }
    }

    fn write_tombstones(&mut self) -> Result<(), BuildError<S::Error>> {
        let encoded = encode_tombstones(&mut self.tombstones);
        let hull = self.tombstones.iter().map(|t| t.range.clone()).reduce(|a, b| a.hull(&b));
        if let Some(hull) = hull {
            let handle = self.write_sealed(&encoded)?;
            self.properties.range_tombstones = self.tombstones.len() as u64;
            self.properties.tombstones = Some((handle, hull));
        }
        Ok(())
    }

    fn write_filter(&mut self, spec: FilterSpec) -> Result<(), BuildError<S::Error>> {
        if self.hashes.is_empty() || !spec.bits_per_key.is_finite() || spec.bits_per_key <= 0.0 {
            return Ok(());
        }
        let modules = self.filter_modules(&spec);
        let mut filter = FilterDescriptor {
            format: modules.first().map_or(FILTER_NONE, |module| module.method as u8),
            keys: self.hashes.len() as u64,
            false_positive_rate: 1.0,
            modules: Vec::with_capacity(modules.len()),
        };
        for (number, module) in modules.iter().enumerate().rev() {
            // A denied key would be lost to readers. Look up a sample of the keys, or all keys in debug builds.
            let step = if cfg!(debug_assertions) { 1 } else { 64 };
            let mut sample = self.hashes.iter().step_by(step);
            if !sample.all(|&hash| may_contain(module.method, &module.bits, number, module.probes, hash)) {
                return Err(BuildError::FilterLies);
            }
            let handle = self.write_sealed(&module.bits)?;
            filter.false_positive_rate *= module.false_positive_rate;
            let descriptor =
                ModuleDescriptor { offset: handle.offset, lines: module.lines(), probes: module.probes };
            filter.modules.insert(0, descriptor);
        }
        self.properties.filter = filter;
        Ok(())
    }

    /// Builds the modules of the filter, all by one method.
    fn filter_modules(&self, spec: &FilterSpec) -> Vec<Module> {
        let count = spec.modules.clamp(1, MAX_MODULES);
        let hashes =
            if drumlin_types::bug!("filter-misses-first-key") { &self.hashes[1..] } else { &self.hashes[..] };
        let build = |method: Method| -> Vec<Module> {
            let bits_per_key = spec.bits_per_key / count as f64;
            (0..count).map(|number| Module::build(method, hashes, number, bits_per_key)).collect()
        };
        let modules = build(spec.method);
        // The descriptor has one method for all modules. One of them may have become a Bloom filter on its own.
        match modules.iter().all(|module| module.method == modules[0].method) {
            true => modules,
            false => build(Method::Bloom),
        }
    }

    fn write_index(&mut self) -> Result<Handle, BuildError<S::Error>> {
        let index = core::mem::take(&mut self.index);
        let partitions = index.partitions();
        let mut encoded = Vec::new();
        if let [all] = partitions.ranges() {
            index.encode(all.clone(), 0, &mut encoded).map_err(|_| BuildError::TableTooLarge)?;
            return self.write_sealed(&encoded);
        }
        let mut root = IndexBuilder::new();
        for range in partitions.ranges() {
            encoded.clear();
            index.encode(range.clone(), 0, &mut encoded).map_err(|_| BuildError::TableTooLarge)?;
            let handle = self.write_sealed(&encoded)?;
            let separator = index.separator(range.end - 1);
            // The versions of one key may continue in the next partition too.
            let continues = range.end < index.count() && index.continues(range.end - 1);
            let children = handle.offset..handle.end();
            root.add(separator, continues, children, encoded.len() as u32, index.ordinal(range.start));
        }
        encoded.clear();
        let all = 0..root.count();
        root.encode(all, 1, &mut encoded).map_err(|_| BuildError::TableTooLarge)?;
        self.write_sealed(&encoded)
    }
}
