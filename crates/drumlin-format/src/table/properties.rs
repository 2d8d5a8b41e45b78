//! What a table says about itself.
//!
//! ```text
//! entries, keys, deletes, merges, expiring, pointers, range tombstones      varints
//! raw bytes, data bytes, data blocks                                        varints
//! min seq, max seq, created seq                                             varints
//! compression u8 | block bytes varint | seed u64
//! first key slice | last key slice                                          if there are entries
//! tombstone block: offset varint, sealed length varint
//!   | start slice | has end bool | end slice                                if there are range tombstones
//! filter slice: format u8 | keys varint | false-positive rate u64 (bits of the float)
//!   | module count u8 | per module: offset varint, lines varint, probes u8
//! value files: count varint | per file: number varint, entries varint, bytes varint
//! ```

use super::{FILTER_BLOOM, FILTER_NONE, Handle};
use crate::MAX_BOUND_LEN;
use crate::bytes::{Reader, put_bool, put_slice, put_u64, put_varint};
use crate::compression::Compression;
use crate::error::Corruption;
use crate::filter::{LINE_BYTES, MAX_LINES, MAX_MODULES, MAX_PROBES};
use crate::seal::SEAL_LEN;
use alloc::vec::Vec;
use drumlin_types::{Key, KeyRange, MAX_KEY_LEN, Seq, ValueFileId};

/// A value file that the table points to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueReference {
    /// The value file.
    pub file: ValueFileId,
    /// Entries of the table that point to it.
    pub entries: u64,
    /// Stored bytes of the values pointed to.
    pub bytes: u64,
}

/// Where a filter module lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModuleDescriptor {
    /// Offset in the file.
    pub offset: u64,
    /// Lines of 64 bytes; the block is these and a seal.
    pub lines: u64,
    /// Probes per key.
    pub probes: u8,
}

impl ModuleDescriptor {
    /// Where the module lies, if the descriptor can be believed for a file whose filters end before `limit`.
    pub fn handle(&self, limit: u64) -> Option<Handle> {
        if self.lines == 0 || self.lines > MAX_LINES || self.probes == 0 || self.probes > MAX_PROBES {
            return None;
        }
        let sealed_len = (self.lines as usize * LINE_BYTES + SEAL_LEN) as u32;
        Handle { offset: self.offset, sealed_len }.check(limit, 0).ok()
    }
}

/// The table's filter.
#[derive(Clone, PartialEq, Debug)]
pub struct FilterDescriptor {
    /// 0 none, 1 blocked Bloom; others are unknown to this build and of no use.
    pub format: u8,
    /// Distinct keys in it.
    pub keys: u64,
    /// Share of absent keys that pass all modules, as built; 1 without a filter.
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
    /// Bits per key as built.
    pub fn bits_per_key(&self) -> f64 {
        let lines: u64 = self.modules.iter().map(|module| module.lines).sum();
        if self.keys == 0 { 0.0 } else { (lines * 8 * LINE_BYTES as u64) as f64 / self.keys as f64 }
    }

    /// Bytes of all modules.
    pub fn bytes(&self) -> u64 {
        self.modules.iter().map(|module| module.lines.saturating_mul(LINE_BYTES as u64)).sum()
    }
}

/// Counts, bounds and places of a table.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Properties {
    /// Entries; range tombstones are none.
    pub entries: u64,
    /// Distinct user keys.
    pub keys: u64,
    /// Entries that delete their key.
    pub deletes: u64,
    /// Merge operands.
    pub merges: u64,
    /// Entries whose value ends by itself.
    pub expiring: u64,
    /// Entries that point to a value file.
    pub pointers: u64,
    /// Range tombstones.
    pub range_tombstones: u64,
    /// Bytes of all keys and values.
    pub raw_bytes: u64,
    /// Stored bytes of the data blocks, which lie at the start of the file.
    pub data_bytes: u64,
    /// Number of data blocks.
    pub data_blocks: u64,
    /// Smallest sequence number, range tombstones included.
    pub min_seq: Seq,
    /// Largest sequence number, range tombstones included.
    pub max_seq: Seq,
    /// The store's newest sequence number when the table was begun.
    pub created_seq: Seq,
    /// Compression that was asked for.
    pub compression: Compression,
    /// Target length of data blocks.
    pub block_bytes: u64,
    /// Seed of the hash that filter and tags are made of.
    pub seed: u64,
    /// First and last key of the entries.
    pub key_bounds: Option<(Key, Key)>,
    /// Where the range tombstones lie, and the smallest range that holds them all.
    pub tombstones: Option<(Handle, KeyRange)>,
    /// The filter.
    pub filter: FilterDescriptor,
    /// Exactly the value files that entries point to; pointers hold an index into this list.
    pub value_files: Vec<ValueReference>,
}

impl Properties {
    /// Whether each user key has one version only.
    pub fn unique_keys(&self) -> bool {
        self.entries == self.keys
    }

    /// Whether there are merge operands.
    pub fn has_merge(&self) -> bool {
        self.merges > 0
    }

    /// Whether some values end by themselves.
    pub fn has_expiring(&self) -> bool {
        self.expiring > 0
    }

    /// The smallest range that holds all entries and range tombstones.
    pub fn bounds(&self) -> KeyRange {
        let nothing = KeyRange::new(Key::empty(), Some(Key::empty()));
        let entries = self.key_bounds.as_ref().map(|(first, last)| KeyRange::inclusive(first, last));
        let tombstones = self.tombstones.as_ref().map(|(_, range)| range.clone());
        entries.unwrap_or_else(|| nothing.clone()).hull(&tombstones.unwrap_or(nothing))
    }

    /// The properties' bytes.
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
        out
    }

    /// Decodes the properties of a table whose blocks end before `limit`.
    pub fn decode(bytes: &[u8], limit: u64) -> Result<Properties, Corruption> {
        let mut reader = Reader::new(bytes);
        let r = &mut reader;
        let mut properties = Properties {
            entries: r.varint_u64()?,
            keys: r.varint_u64()?,
            deletes: r.varint_u64()?,
            merges: r.varint_u64()?,
            expiring: r.varint_u64()?,
            pointers: r.varint_u64()?,
            range_tombstones: r.varint_u64()?,
            raw_bytes: r.varint_u64()?,
            data_bytes: r.varint_u64()?,
            data_blocks: r.varint_u64()?,
            min_seq: r.varint_u64()?,
            max_seq: r.varint_u64()?,
            created_seq: r.varint_u64()?,
            ..Properties::default()
        };
        properties.compression =
            Compression::from_u8(r.u8()?).ok_or_else(|| r.damage("unknown compression"))?;
        properties.block_bytes = r.varint_u64()?;
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
            let file = ValueFileId(r.varint_u64()?);
            let reference = ValueReference { file, entries: r.varint_u64()?, bytes: r.varint_u64()? };
            properties.value_files.push(reference);
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
    let handle =
        Handle { offset: reader.varint_u64()?, sealed_len: reader.varint_u32()? }.check(limit, at)?;
    // A cut behind the longest key divides a tombstone there.
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

/// An unknown format is no damage: its filter cannot be used, and that is all.
fn decode_filter(bytes: &[u8]) -> Result<FilterDescriptor, Corruption> {
    let mut reader = Reader::new(bytes);
    let mut filter = FilterDescriptor { format: reader.u8()?, ..FilterDescriptor::default() };
    if filter.format != FILTER_BLOOM {
        return Ok(filter);
    }
    filter.keys = reader.varint_u64()?;
    filter.false_positive_rate = f64::from_bits(reader.u64()?);
    if !(0.0..=1.0).contains(&filter.false_positive_rate) {
        return Err(reader.damage("false-positive rate is no share"));
    }
    let modules = reader.u8()?;
    if usize::from(modules) > MAX_MODULES {
        return Err(reader.damage("too many filter modules"));
    }
    for _ in 0..modules {
        let module = ModuleDescriptor {
            offset: reader.varint_u64()?,
            lines: reader.varint_u64()?,
            probes: reader.u8()?,
        };
        filter.modules.push(module);
    }
    reader.finish()?;
    Ok(filter)
}
