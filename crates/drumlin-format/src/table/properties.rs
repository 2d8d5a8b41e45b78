//! The properties block of a table: counts, bounds, and the places of other blocks.
//!
//! ```text
//! counts            entries, keys, deletes, merges, expiring, pointers, range tombstones    varint each
//! sizes             raw bytes, data bytes, data blocks                                      varint each
//! sequence numbers  min seq, max seq, created seq                                           varint each
//! settings          compression u8 | block bytes varint | seed u64
//! key bounds        first key slice | last key slice                          only if entries > 0
//! tombstone block   offset varint | sealed length varint                      only if range tombstones > 0
//!                   | start slice | has end u8, 0 or 1 | end slice (if has end is 1)
//! filter            slice of: format u8, and unless the format is 0:
//!                   keys varint | false-positive rate u64 (bits of an f64) | module count u8, at most 4
//!                   | per module: offset varint, lines varint (at most 2^26 - 17), probes u8
//! value files       count varint | per file: number varint, entries varint, bytes varint
//! owner             0, or 1 | keyspace varint | name slice
//! ```
//!
//! The fields are stored in this order. Formats of filters are 0 (none), 1 (blocked Bloom) and 2 (Ribbon). Others are
//! reserved; a reader ignores such a filter.

use super::{FILTER_NONE, Handle};
use crate::MAX_BOUND_LEN;
use crate::bytes::{Reader, put_bool, put_slice, put_u64, put_varint};
use crate::compression::Compression;
use crate::error::Corruption;
use crate::filter::{LINE_BYTES, MAX_LINES, MAX_MODULES, MAX_PROBES, Method};
use crate::limits::{MAX_KEYSPACE, MAX_LEN, MAX_NUMBER, MAX_POSITION, MAX_SEQ};
use crate::manifest::MAX_NAME_LEN;
use crate::seal::SEAL_LEN;
use alloc::string::String;
use alloc::vec::Vec;
use drumlin_types::{Key, KeyRange, KeyspaceId, MAX_KEY_LEN, Seq, ValueFileId};

/// Reference from the table to a value file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueReference {
    /// Number of the value file.
    pub file: ValueFileId,
    /// Number of entries of the table that point to it.
    pub entries: u64,
    /// Stored bytes of the values that they point to.
    pub bytes: u64,
}

/// Place and parameters of a filter module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModuleDescriptor {
    /// Offset in the file.
    pub offset: u64,
    /// Number of 64-byte lines. The block consists of these and a seal.
    pub lines: u64,
    /// Number of probes per key; 1 in a Ribbon filter.
    pub probes: u8,
}

impl ModuleDescriptor {
    /// Returns the place of the module, or `None` if the descriptor is invalid for a file whose filters end before
    /// `limit`.
    pub fn handle(&self, limit: u64) -> Option<Handle> {
        if self.lines == 0 || self.lines > MAX_LINES || self.probes == 0 || self.probes > MAX_PROBES {
            return None;
        }
        let sealed_len = (self.lines as usize * LINE_BYTES + SEAL_LEN) as u32;
        Handle { offset: self.offset, sealed_len }.check(limit, 0).ok()
    }
}

/// Descriptor of the table's filter.
#[derive(Clone, PartialEq, Debug)]
pub struct FilterDescriptor {
    /// Format: 0 none, else the number of a [`Method`]. A filter of any other format is unknown to this build and is
    /// not used.
    pub format: u8,
    /// Number of distinct keys in it.
    pub keys: u64,
    /// False-positive rate over all modules, as built; 1 without a filter.
    pub false_positive_rate: f64,
    /// Modules, first to last; empty for an unknown format.
    pub modules: Vec<ModuleDescriptor>,
}

impl Default for FilterDescriptor {
    fn default() -> FilterDescriptor {
        FilterDescriptor { format: FILTER_NONE, keys: 0, false_positive_rate: 1.0, modules: Vec::new() }
    }
}

impl FilterDescriptor {
    /// Returns the method, or `None` without a filter that this build knows.
    pub const fn method(&self) -> Option<Method> {
        Method::from_u8(self.format)
    }

    /// Returns the bits per key, as built.
    pub fn bits_per_key(&self) -> f64 {
        let lines: u64 = self.modules.iter().map(|module| module.lines).sum();
        if self.keys == 0 { 0.0 } else { (lines * 8 * LINE_BYTES as u64) as f64 / self.keys as f64 }
    }

    /// Returns the total length of all modules in bytes.
    pub fn bytes(&self) -> u64 {
        self.modules.iter().map(|module| module.lines.saturating_mul(LINE_BYTES as u64)).sum()
    }
}

/// Counts, bounds and places of a table.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Properties {
    /// Number of entries, without range tombstones.
    pub entries: u64,
    /// Number of distinct user keys.
    pub keys: u64,
    /// Number of point tombstones.
    pub deletes: u64,
    /// Number of merge operands, including expiring ones.
    pub merges: u64,
    /// Number of values and merge operands that expire.
    pub expiring: u64,
    /// Number of entries that point to a value file.
    pub pointers: u64,
    /// Number of range tombstones.
    pub range_tombstones: u64,
    /// Total length of all keys and values, in bytes.
    pub raw_bytes: u64,
    /// Stored length of the data blocks, which lie at the start of the file.
    pub data_bytes: u64,
    /// Number of data blocks.
    pub data_blocks: u64,
    /// Smallest sequence number, including range tombstones.
    pub min_seq: Seq,
    /// Largest sequence number, including range tombstones.
    pub max_seq: Seq,
    /// Newest sequence number of the store when the table was begun.
    pub created_seq: Seq,
    /// Requested compression.
    pub compression: Compression,
    /// Target length of data blocks before compression.
    pub block_bytes: u64,
    /// Seed of the hash for filter and tags.
    pub seed: u64,
    /// First and last key of the entries.
    pub key_bounds: Option<(Key, Key)>,
    /// Place of the range tombstone block, and the smallest range that contains all range tombstones.
    pub tombstones: Option<(Handle, KeyRange)>,
    /// The filter.
    pub filter: FilterDescriptor,
    /// The value files that entries point to, and no others.
    pub value_files: Vec<ValueReference>,
    /// The keyspace that the table was written for. Repair uses it when there is no manifest.
    pub owner: Option<Owner>,
}

/// A keyspace, identified by number and name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Number of the keyspace.
    pub id: KeyspaceId,
    /// Name of the keyspace.
    pub name: String,
}

impl Properties {
    /// Returns the bytes of memory that bounds, filter modules, value files and the owner's name take on the heap.
    pub fn held_bytes(&self) -> usize {
        let keys = self.key_bounds.iter().map(|(first, last)| first.len() + last.len()).sum::<usize>();
        let range = self.tombstones.iter().map(|(_, range)| {
            let end = range.end.as_ref().map_or(0, |end| end.len());
            range.start.len() + end
        });
        let lists = size_of_val(&*self.filter.modules) + size_of_val(&*self.value_files);
        keys + range.sum::<usize>() + lists + self.owner.as_ref().map_or(0, |owner| owner.name.len())
    }

    /// Returns whether each user key has only one version.
    pub fn unique_keys(&self) -> bool {
        self.entries == self.keys
    }

    /// Returns whether there are merge operands.
    pub fn has_merge(&self) -> bool {
        self.merges > 0
    }

    /// Returns whether some values or merge operands expire.
    pub fn has_expiring(&self) -> bool {
        self.expiring > 0
    }

    /// Returns the smallest range that contains all entries and range tombstones.
    pub fn bounds(&self) -> KeyRange {
        let nothing = KeyRange::new(Key::empty(), Some(Key::empty()));
        let entries = self.key_bounds.as_ref().map(|(first, last)| KeyRange::inclusive(first, last));
        let tombstones = self.tombstones.as_ref().map(|(_, range)| range.clone());
        entries.unwrap_or_else(|| nothing.clone()).hull(&tombstones.unwrap_or(nothing))
    }

    /// Encodes the properties.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let counts = [self.entries, self.keys, self.deletes, self.merges, self.expiring, self.pointers];
        let sizes = [self.range_tombstones, self.raw_bytes, self.data_bytes, self.data_blocks];
        let seqs = [self.min_seq, self.max_seq, self.created_seq];
        for number in counts.into_iter().chain(sizes).chain(seqs) {
            put_varint(&mut out, number);
        }
        out.push(self.compression as u8);
        put_varint(&mut out, self.block_bytes);
        put_u64(&mut out, self.seed);
        if let Some((first, last)) = &self.key_bounds {
            put_slice(&mut out, first);
            put_slice(&mut out, last);
        }
        if let Some((handle, range)) = &self.tombstones {
            put_varint(&mut out, handle.offset);
            put_varint(&mut out, u64::from(handle.sealed_len));
            put_slice(&mut out, &range.start);
            put_bool(&mut out, range.end.is_some());
            if let Some(end) = &range.end {
                put_slice(&mut out, end);
            }
        }
        put_slice(&mut out, &encode_filter(&self.filter));
        put_varint(&mut out, self.value_files.len() as u64);
        for reference in &self.value_files {
            put_varint(&mut out, reference.file.0);
            put_varint(&mut out, reference.entries);
            put_varint(&mut out, reference.bytes);
        }
        put_bool(&mut out, self.owner.is_some());
        if let Some(owner) = &self.owner {
            put_varint(&mut out, u64::from(owner.id.0));
            put_slice(&mut out, owner.name.as_bytes());
        }
        out
    }

    /// Decodes the properties of a table whose blocks end before `limit`.
    pub fn decode(bytes: &[u8], limit: u64) -> Result<Properties, Corruption> {
        let mut reader = Reader::new(bytes);
        let r = &mut reader;
        let mut properties = Properties {
            entries: r.varint_up_to(MAX_LEN)?,
            keys: r.varint_up_to(MAX_LEN)?,
            deletes: r.varint_up_to(MAX_LEN)?,
            merges: r.varint_up_to(MAX_LEN)?,
            expiring: r.varint_up_to(MAX_LEN)?,
            pointers: r.varint_up_to(MAX_LEN)?,
            range_tombstones: r.varint_up_to(MAX_LEN)?,
            raw_bytes: r.varint_up_to(MAX_POSITION)?,
            data_bytes: r.varint_up_to(MAX_LEN)?,
            data_blocks: r.varint_up_to(MAX_LEN)?,
            min_seq: r.varint_up_to(MAX_SEQ)?,
            max_seq: r.varint_up_to(MAX_SEQ)?,
            created_seq: r.varint_up_to(MAX_SEQ)?,
            ..Properties::default()
        };
        properties.compression =
            Compression::from_u8(r.u8()?).ok_or_else(|| r.damage("unknown compression"))?;
        properties.block_bytes = r.varint_up_to(MAX_LEN)?;
        properties.seed = r.u64()?;
        if properties.entries > 0 {
            let first = Key::new(r.slice_up_to(MAX_KEY_LEN)?);
            let last = Key::new(r.slice_up_to(MAX_KEY_LEN)?);
            properties.key_bounds = Some((first, last));
        }
        if properties.range_tombstones > 0 {
            properties.tombstones = Some(decode_tombstone_place(r, limit)?);
        }
        properties.filter = decode_filter(r.slice()?)?;
        let value_files = r.count(3)?;
        for _ in 0..value_files {
            let file = ValueFileId(r.varint_up_to(MAX_NUMBER)?);
            let reference =
                ValueReference { file, entries: r.varint_up_to(MAX_LEN)?, bytes: r.varint_up_to(MAX_LEN)? };
            properties.value_files.push(reference);
        }
        if r.bool()? {
            let id = KeyspaceId(r.varint_up_to(u64::from(MAX_KEYSPACE))? as u32);
            let name = core::str::from_utf8(r.slice_up_to(MAX_NAME_LEN)?);
            let name = name.map_err(|_| Corruption::new("keyspace name is not UTF-8", 0))?;
            properties.owner = Some(Owner { id, name: name.into() });
        }
        reader.finish()?;
        properties.check(limit)?;
        Ok(properties)
    }

    fn check(&self, limit: u64) -> Result<(), Corruption> {
        let at = |what| Corruption::new(what, 0);
        let of_a_kind = [self.deletes, self.merges, self.expiring, self.pointers];
        if self.keys > self.entries || of_a_kind.iter().any(|&count| count > self.entries) {
            return Err(at("counts of the table disagree"));
        }
        if (self.entries == 0) != (self.keys == 0) || (self.entries == 0) != (self.data_blocks == 0) {
            return Err(at("counts of the table disagree"));
        }
        if self.key_bounds.as_ref().is_some_and(|(first, last)| first > last) || self.min_seq > self.max_seq {
            return Err(at("bounds of the table are reversed"));
        }
        if self.data_bytes > limit {
            return Err(at("data blocks lie outside the file"));
        }
        Ok(())
    }
}

fn decode_tombstone_place(reader: &mut Reader<'_>, limit: u64) -> Result<(Handle, KeyRange), Corruption> {
    let at = reader.offset();
    let handle = Handle { offset: reader.varint_up_to(MAX_LEN)?, sealed_len: reader.varint_u32()? }
        .check(limit, at)?;
    // An output file may end right after a key of maximum length, and then a tombstone begins at its successor.
    let start = Key::new(reader.slice_up_to(MAX_BOUND_LEN)?);
    let end = if reader.bool()? { Some(Key::new(reader.slice_up_to(MAX_BOUND_LEN)?)) } else { None };
    Ok((handle, KeyRange::new(start, end)))
}

fn encode_filter(filter: &FilterDescriptor) -> Vec<u8> {
    let mut out = Vec::new();
    out.push(filter.format);
    if filter.format == FILTER_NONE {
        return out;
    }
    put_varint(&mut out, filter.keys);
    put_u64(&mut out, filter.false_positive_rate.to_bits());
    out.push(filter.modules.len() as u8);
    for module in &filter.modules {
        put_varint(&mut out, module.offset);
        put_varint(&mut out, module.lines);
        out.push(module.probes);
    }
    out
}

/// Decodes the filter descriptor. An unknown format is not an error: the filter is not used.
fn decode_filter(bytes: &[u8]) -> Result<FilterDescriptor, Corruption> {
    let mut reader = Reader::new(bytes);
    let mut filter = FilterDescriptor { format: reader.u8()?, ..FilterDescriptor::default() };
    if filter.method().is_none() {
        return Ok(filter);
    }
    filter.keys = reader.varint_up_to(MAX_LEN)?;
    filter.false_positive_rate = f64::from_bits(reader.u64()?);
    if !(0.0..=1.0).contains(&filter.false_positive_rate) {
        return Err(reader.damage("false-positive rate is not in 0..=1"));
    }
    let modules = reader.u8()?;
    if usize::from(modules) > MAX_MODULES {
        return Err(reader.damage("too many filter modules"));
    }
    for _ in 0..modules {
        let module = ModuleDescriptor {
            offset: reader.varint_up_to(MAX_LEN)?,
            lines: reader.varint_up_to(MAX_LEN)?,
            probes: reader.u8()?,
        };
        if module.lines > MAX_LINES {
            return Err(reader.damage("filter module of impossible length"));
        }
        filter.modules.push(module);
    }
    reader.finish()?;
    Ok(filter)
}
