//! Reads a whole table and checks it.
//!
//! Besides checksums it checks: the order over all blocks, separators, ordinals, tags, counts and bounds against the
//! properties, every key against every filter module, the list of value files, and the range tombstones. It reads the
//! file again and uses nothing from memory.

use super::block::DataBlock;
use super::fences::FenceCursor;
use super::reader::Table;
use crate::base::error::{Error, Result};
use drumlin_format::block::{EntryCursor, tag_of};
use drumlin_format::checksum::FileHasher;
use drumlin_format::filter::{key_hash, may_contain};
use drumlin_format::index::Fence;
use drumlin_format::value::ValuePointer;
use drumlin_types::{Kind, Seq, ValueFileId};
use std::collections::BTreeMap;

/// Read size, in bytes, for the checksum of the file.
const CHUNK: u64 = 1 << 20;

/// Contents of a verified table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct VerifyCounts {
    /// Number of entries.
    pub(crate) entries: u64,
    /// Number of distinct keys.
    pub(crate) keys: u64,
    /// Number of data blocks.
    pub(crate) data_blocks: u64,
    /// Number of range tombstones.
    pub(crate) range_tombstones: u64,
    /// Length of the file in bytes.
    pub(crate) bytes: u64,
    /// XXH3-64 of the file, for comparison with the manifest.
    pub(crate) checksum: u64,
}

impl Table {
    /// Reads every byte and runs all checks. The error names the first damage.
    pub(crate) fn verify(&self) -> Result<VerifyCounts> {
        let checksum = self.file_checksum()?;
        // Reopens the table: its state in memory may be sound while the file is damaged.
        let table = self.reopened()?;
        table.verify_index_blocks()?;
        let mut walk = EntryWalk::new(&table)?;
        let mut fences = FenceCursor::default();
        fences.seek_first(&table)?;
        while let Some(fence) = fences.fence() {
            let block = table.blocks.read_data(&fence)?;
            walk.block(&fence, fences.separator(&table)?, &block)?;
            fences.next(&table)?;
        }
        walk.finish()?;
        Ok(VerifyCounts {
            entries: walk.entries,
            keys: walk.keys,
            data_blocks: walk.blocks,
            range_tombstones: table.properties().range_tombstones,
            bytes: table.file_len(),
            checksum,
        })
    }

    fn file_checksum(&self) -> Result<u64> {
        let actual = self.blocks.file.len().map_err(|e| Error::io(self.path(), "cannot measure table", e))?;
        if actual != self.file_len() {
            return Err(self.blocks.corruption(actual.min(self.file_len()), "table has the wrong length"));
        }
        let mut hasher = FileHasher::new();
        let mut offset = 0;
        while offset < actual {
            let len = CHUNK.min(actual - offset);
            hasher.update(&self.blocks.read(offset, len as usize)?);
            offset += len;
        }
        Ok(hasher.finish())
    }

    fn verify_index_blocks(&self) -> Result<()> {
        let root = self.root.view();
        root.validate().map_err(|damage| self.blocks.decode_error(self.root_offset, damage))?;
        if root.level() == 1 {
            for number in 0..root.count() {
                let fence = root
                    .fence(number)
                    .map_err(|damage| self.blocks.decode_error(self.root_offset, damage))?;
                let partition = self.partition(number, &fence)?;
                let view = partition.view();
                view.validate().map_err(|damage| self.blocks.decode_error(fence.offset, damage))?;
                let last = view.count().checked_sub(1).map(|last| view.separator(last)).transpose();
                let last = last.map_err(|damage| self.blocks.decode_error(fence.offset, damage))?;
                let expected = root.separator(number);
                let expected =
                    expected.map_err(|damage| self.blocks.decode_error(self.root_offset, damage))?;
                if last.as_ref() != Some(&expected) {
                    return Err(self
                        .blocks
                        .corruption(fence.offset, "index partition does not match the index root"));
                }
            }
        }
        Ok(())
    }
}

/// State of the walk over all entries.
struct EntryWalk<'a> {
    table: &'a Table,
    /// Bits and number of probes of each filter module.
    modules: Vec<(crate::base::slice::Slice, u8)>,
    entries: u64,
    keys: u64,
    blocks: u64,
    raw_bytes: u64,
    of_kind: [u64; Kind::ALL.len()],
    /// Entries that point to each value file, and the bytes of their values.
    value_files: BTreeMap<ValueFileId, (u64, u64)>,
    seqs: Option<(Seq, Seq)>,
    end: u64,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
    last_seq: Seq,
    /// Separator of the previous block. `continues` says whether its last key continues in the next block.
    separator: Vec<u8>,
    continues: bool,
}

impl<'a> EntryWalk<'a> {
    fn new(table: &'a Table) -> Result<EntryWalk<'a>> {
        if table.filter.is_damaged() {
            return Err(table.blocks.corruption(0, "filter is damaged"));
        }
        let modules = (0..table.filter.modules()).map(|number| table.filter.bits(number, &table.blocks));
        Ok(EntryWalk {
            table,
            modules: modules.collect::<Result<_>>()?,
            entries: 0,
            keys: 0,
            blocks: 0,
            raw_bytes: 0,
            of_kind: [0; Kind::ALL.len()],
            value_files: BTreeMap::new(),
            seqs: None,
            end: 0,
            first_key: Vec::new(),
            last_key: Vec::new(),
            last_seq: 0,
            separator: Vec::new(),
            continues: false,
        })
    }

    fn damage(&self, offset: u64, what: &str) -> Error {
        self.table.blocks.corruption(offset, what)
    }

    fn block(&mut self, fence: &Fence, separator: Vec<u8>, block: &DataBlock) -> Result<()> {
        let view = block.view();
        let decode = |damage| self.table.blocks.decode_error(fence.offset, damage);
        view.validate().map_err(decode)?;
        if fence.offset != self.end || fence.ordinal != self.entries {
            return Err(self.damage(fence.offset, "index entry has a wrong offset or entry number"));
        }
        let mut entry = EntryCursor::default();
        for index in 0..view.count() {
            entry.load(view, index).map_err(decode)?;
            let same_key = self.entries > 0 && entry.key() == self.last_key;
            let is_first = index == 0 && self.blocks > 0;
            if is_first && (same_key != self.continues || (!same_key && entry.key() <= &self.separator[..])) {
                return Err(
                    self.damage(fence.offset, "first key of the block is not above the separator before it")
                );
            }
            self.entry(fence, view.tag(index), &entry, same_key)?;
            if entry.kind() == Kind::PutPointer {
                self.pointer(fence, view.entry(index).map_err(decode)?.value)?;
            }
        }
        if self.last_key > separator || (fence.continues && self.last_key != separator) {
            return Err(self.damage(fence.offset, "last key does not fit the separator"));
        }
        self.separator = separator;
        self.continues = fence.continues;
        self.end = fence.end();
        self.blocks += 1;
        Ok(())
    }

    fn entry(&mut self, fence: &Fence, tag: Option<u8>, entry: &EntryCursor, same_key: bool) -> Result<()> {
        let in_order = match self.entries {
            0 => true,
            _ if same_key => entry.seq() < self.last_seq,
            _ => entry.key() > &self.last_key[..],
        };
        if !in_order {
            return Err(self.damage(fence.offset, "blocks are out of order"));
        }
        let hash = key_hash(entry.key(), self.table.properties().seed);
        if tag != Some(tag_of(hash)) {
            return Err(self.damage(fence.offset, "hash tag does not match its key"));
        }
        if self.entries == 0 {
            self.first_key.extend_from_slice(entry.key());
        }
        if !same_key {
            self.keys += 1;
            for (number, (bits, probes)) in self.modules.iter().enumerate() {
                if !may_contain(self.table.filter.method(), bits, number, *probes, hash) {
                    return Err(self.damage(fence.offset, "filter excludes a key that the table contains"));
                }
            }
            self.last_key.clear();
            self.last_key.extend_from_slice(entry.key());
        }
        self.last_seq = entry.seq();
        self.entries += 1;
        self.raw_bytes += (entry.key().len() + entry.value().len()) as u64;
        self.of_kind[entry.kind() as usize] += 1;
        let (min, max) = self.seqs.unwrap_or((entry.seq(), entry.seq()));
        self.seqs = Some((min.min(entry.seq()), max.max(entry.seq())));
        Ok(())
    }

    /// Counts a pointer for its value file.
    fn pointer(&mut self, fence: &Fence, pointer: &[u8]) -> Result<()> {
        let pointer = ValuePointer::decode(pointer);
        let pointer = pointer.map_err(|damage| self.damage(fence.offset, damage.what))?;
        if let Some(place) = pointer.place {
            let counted = self.value_files.entry(place.file).or_insert((0, 0));
            counted.0 += 1;
            counted.1 += place.record.record_len();
        }
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        let properties = self.table.properties();
        let counts = [self.entries, self.keys, self.blocks, self.raw_bytes, self.end];
        let expected = [
            properties.entries,
            properties.keys,
            properties.data_blocks,
            properties.raw_bytes,
            properties.data_bytes,
        ];
        let of = |kind: Kind| self.of_kind[kind as usize];
        let both = of(Kind::MergeExpiring);
        let kinds = [
            of(Kind::Delete),
            of(Kind::Merge) + both,
            of(Kind::PutExpiring) + both,
            of(Kind::PutPointer),
            of(Kind::DeleteRange),
        ];
        let expected_kinds =
            [properties.deletes, properties.merges, properties.expiring, properties.pointers, 0];
        if counts != expected || kinds != expected_kinds || self.continues {
            return Err(self.damage(0, "counts differ from the properties"));
        }
        let listed = properties.value_files.iter().map(|used| (used.file, (used.entries, used.bytes)));
        if !listed.eq(self.value_files.iter().map(|(file, counted)| (*file, *counted))) {
            return Err(self.damage(0, "value files differ from the properties"));
        }
        let tombstones = self.table.range_tombstones();
        let all =
            tombstones.iter().map(|t| t.seq).chain(self.seqs.into_iter().flat_map(|(min, max)| [min, max]));
        let seqs = all.fold(None, |range: Option<(Seq, Seq)>, seq| {
            let (min, max) = range.unwrap_or((seq, seq));
            Some((min.min(seq), max.max(seq)))
        });
        if seqs != Some((properties.min_seq, properties.max_seq)) {
            return Err(self.damage(0, "sequence numbers differ from the properties"));
        }
        let bounds = properties.key_bounds.as_ref().map(|(first, last)| (&**first, &**last));
        if bounds != (self.entries > 0).then_some((&self.first_key[..], &self.last_key[..])) {
            return Err(self.damage(0, "first or last key differs from the properties"));
        }
        let hull = tombstones.iter().map(|t| t.range.clone()).reduce(|a, b| a.hull(&b));
        let claimed = properties.tombstones.as_ref().map(|(_, range)| range.clone());
        if hull != claimed || tombstones.iter().count() as u64 != properties.range_tombstones {
            return Err(self.damage(0, "range tombstones differ from the properties"));
        }
        Ok(())
    }
}
