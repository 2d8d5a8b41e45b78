//! Targets of the table: its footer, its properties, and the whole file as a reader reads it.

use super::fields::{Fields, NUMBER};
use crate::fuzz::mend;
use crate::fuzz::target::Target;
use drumlin_format::block::{BlockView, EntryCursor};
use drumlin_format::compression::{Compression, Decompressor};
use drumlin_format::error::DecodeError;
use drumlin_format::filter::{Method, key_hash, may_contain};
use drumlin_format::index::{Fence, IndexView};
use drumlin_format::seal::{unseal_block, unseal_plain};
use drumlin_format::table::{
    FOOTER_LEN, FilterSpec, Footer, Handle, Properties, TableBuilder, TableSettings, ValueReference,
    decode_tombstones,
};
use drumlin_types::{Key, KeyRange, Kind, ValueFileId};

pub(super) const TARGETS: &[Target] = &[
    Target {
        name: "table-footer",
        codecs: &["table"],
        run: footer,
        mend: mend_footer,
        seeds: footer_seeds,
        cost: 1,
    },
    Target {
        name: "table-properties",
        codecs: &["table"],
        run: properties,
        mend: mend::nothing,
        seeds: property_seeds,
        cost: 1,
    },
    Target {
        name: "table",
        codecs: &["table", "block", "index", "filter", "seal", "compression"],
        run: table,
        mend: mend_table,
        seeds: table_seeds,
        cost: 1,
    },
];

/// The input gives the file's length and the footer.
fn footer(input: &[u8]) -> bool {
    let mut fields = Fields(input);
    let file_len = fields.u64();
    let Ok(footer) = Footer::decode(fields.0, NUMBER, file_len) else { return false };
    let at = file_len - FOOTER_LEN as u64;
    assert_eq!(footer.encode(NUMBER, at), fields.0);
    assert!(footer.root.end() <= at && footer.properties.end() <= at);
    true
}

fn mend_footer(input: &mut [u8]) {
    let Some(len) = input.first_chunk().map(|eight| u64::from_le_bytes(*eight)) else { return };
    mend::footer_at(input, NUMBER, len.saturating_sub(FOOTER_LEN as u64), 8);
}

fn footer_seeds() -> Vec<Vec<u8>> {
    let handle = |offset, sealed_len| Handle { offset, sealed_len };
    let footer = Footer { properties: handle(700, 200), root: handle(400, 300) };
    vec![[&1000u64.to_le_bytes()[..], &footer.encode(NUMBER, 1000 - FOOTER_LEN as u64)].concat()]
}

/// The input gives the end of the table's blocks, in four bytes, and the properties.
fn properties(input: &[u8]) -> bool {
    let mut fields = Fields(input);
    let limit = u64::from(fields.u32());
    let Ok(properties) = Properties::decode(fields.0, limit) else { return false };
    for module in &properties.filter.modules {
        assert!(module.handle(limit).is_none_or(|handle| handle.end() <= limit));
    }
    let bits = properties.filter.bits_per_key();
    assert!(bits >= 0.0 && bits.is_finite());
    let _ = (properties.filter.bytes(), properties.bounds(), properties.unique_keys());
    // A filter in an unknown format is not encoded again.
    let again = Properties::decode(&properties.encode(), limit);
    assert!(again == Ok(properties.clone()) || properties.filter.format > 1);
    true
}

fn property_seeds() -> Vec<Vec<u8>> {
    let of_table = |bytes: &Vec<u8>| {
        let limit = bytes.len() - FOOTER_LEN;
        let footer = Footer::decode(&bytes[limit..], NUMBER, bytes.len() as u64).expect("sound");
        let block = &bytes[footer.properties.offset as usize..footer.properties.end() as usize];
        let stored = unseal_plain(NUMBER, footer.properties.offset, block).expect("sound");
        [&(limit as u32).to_le_bytes()[..], stored].concat()
    };
    table_seeds().iter().map(of_table).collect()
}

/// A table in memory, read block by block.
struct Reading<'a> {
    bytes: &'a [u8],
    decompressor: Decompressor,
    /// Bytes that blocks may still decompress to; limited since an index may name one block many times.
    budget: u64,
    entries: u64,
}

impl<'a> Reading<'a> {
    fn sealed(&self, handle: Handle) -> Option<&'a [u8]> {
        self.bytes.get(usize::try_from(handle.offset).ok()?..usize::try_from(handle.end()).ok()?)
    }

    fn plain(&self, handle: Handle) -> Option<&'a [u8]> {
        unseal_plain(NUMBER, handle.offset, self.sealed(handle)?).ok()
    }

    /// Returns whether everything below the index at `handle` can be read.
    fn index(&mut self, handle: Handle, level: u8, seed: u64, filters: &[(&[u8], u8)]) -> Option<()> {
        let view = IndexView::parse(self.plain(handle)?).ok()?;
        if view.level() != level {
            return None;
        }
        view.validate().ok()?;
        for at in 0..view.count() {
            let fence = view.fence(at).ok()?;
            let child = Handle { offset: fence.offset, sealed_len: fence.sealed_len };
            self.budget = self.budget.checked_sub(u64::from(fence.raw_len))?;
            match level {
                0 => self.block(&fence, child, seed, filters)?,
                _ => self.index(child, 0, seed, filters)?,
            }
        }
        Some(())
    }

    fn block(&mut self, fence: &Fence, child: Handle, seed: u64, filters: &[(&[u8], u8)]) -> Option<()> {
        let raw_len = u64::from(fence.raw_len);
        let (method, stored) = unseal_block(NUMBER, child.offset, self.sealed(child)?, raw_len).ok()?;
        let mut raw = vec![0; fence.raw_len as usize];
        self.decompressor.decompress(method, stored, &mut raw).ok()?;
        let view = BlockView::parse(&raw).ok()?;
        view.validate().ok()?;
        let mut cursor = EntryCursor::default();
        for index in 0..view.count() {
            cursor.load(view, index).expect("a valid block is read whole");
            let hash = key_hash(cursor.key(), seed);
            for (module, (bits, probes)) in filters.iter().enumerate() {
                let _ = may_contain(Method::Bloom, bits, module, *probes, hash);
                let _ = may_contain(Method::Ribbon, bits, module, *probes, hash);
            }
        }
        self.entries += view.count() as u64;
        Some(())
    }
}

/// Maximum decompressed size of a table of the targets, as a multiple of its length.
const EXPANSION: u64 = 16;

fn table(input: &[u8]) -> bool {
    read_table(input).is_some()
}

fn read_table(bytes: &[u8]) -> Option<()> {
    let limit = bytes.len().checked_sub(FOOTER_LEN)?;
    let footer = match Footer::decode(&bytes[limit..], NUMBER, bytes.len() as u64) {
        Ok(footer) => footer,
        Err(DecodeError::NewerFormat { .. } | DecodeError::Corruption(_)) => return None,
    };
    let budget = (bytes.len() as u64).saturating_mul(EXPANSION);
    let mut reading = Reading { bytes, decompressor: Decompressor::new(), budget, entries: 0 };
    let properties = Properties::decode(reading.plain(footer.properties)?, limit as u64).ok()?;
    let mut filters = Vec::new();
    for module in &properties.filter.modules {
        filters.push((reading.plain(module.handle(limit as u64)?)?, module.probes));
    }
    if let Some((handle, _)) = &properties.tombstones {
        let found = decode_tombstones(reading.plain(*handle)?).ok()?;
        assert!(found.len() <= bytes.len());
    }
    let level = IndexView::parse(reading.plain(footer.root)?).ok()?.level();
    reading.index(footer.root, level, properties.seed, &filters)?;
    (reading.entries == properties.entries).then_some(())
}

fn mend_table(input: &mut [u8]) {
    mend::table(input, NUMBER);
}

fn builder(compression: Compression) -> TableBuilder<Vec<u8>> {
    let settings =
        TableSettings { file_id: NUMBER, block_bytes: 256, compression, seed: 99, created_seq: 1000 };
    TableBuilder::new(Vec::new(), settings)
}

fn table_seeds() -> Vec<Vec<u8>> {
    let mut plain = builder(Compression::None);
    for number in 0..24u64 {
        let kind = [Kind::Put, Kind::Merge, Kind::Delete][number as usize % 3];
        let value: &[u8] = if kind == Kind::Delete { b"" } else { b"value of some length" };
        plain.add(format!("key-{:03}", number / 2).as_bytes(), 100 - number, kind, value).expect("in order");
    }
    plain.add_range_tombstone(KeyRange::new(Key::new(b"a"), Some(Key::new(b"b"))), 7);
    plain.add_range_tombstone(KeyRange::new(Key::new(b"x"), None), 8);
    let mut packed = builder(Compression::Lz4);
    for number in 0..16u64 {
        packed.add(format!("{number:02}").as_bytes(), 5, Kind::Put, &[b'v'; 60]).expect("in order");
    }
    let mut pointing = builder(Compression::Zstd);
    pointing.add(b"large", 5, Kind::PutPointer, &[0, 1, 2]).expect("in order");
    pointing.set_value_files(vec![ValueReference { file: ValueFileId(4), entries: 1, bytes: 9000 }]);
    let mut tombstones = builder(Compression::None);
    tombstones.add_range_tombstone(KeyRange::all(), 7);
    let two = FilterSpec::bloom(12.0, 2);
    let none = FilterSpec::bloom(0.0, 1);
    [(plain, two), (packed, FilterSpec::from(10.0)), (pointing, none), (tombstones, none)]
        .into_iter()
        .map(|(builder, filter)| builder.finish(filter).expect("not empty").1)
        .collect()
}
