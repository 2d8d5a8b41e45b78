//! The output of a flush or a piece (subcompaction): tables that are cut at the target size, between user keys.
//!
//! A range tombstone that spans a cut is split there, so the bounds of the outputs are disjoint. A table's bounds are
//! the hull of its point entries and of its parts of range tombstones.
//!
//! Until the outputs are installed they belong to this set. Dropping the set removes the files.

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::rangedel::RangeTombstone;
use crate::disk::Files;
use crate::filter::{JobFilters, Lineage, MergedPart};
use crate::table::{TableCache, TableWriter};
use crate::value::{Separator, Superseded, ValueSpec, Waiting, references};
use crate::version::{Counts, FileMeta, TableHandle, ValueFileUse};
use drumlin_env::sync::{Arc, atomic};
use drumlin_format::table::{FilterSpec, Owner, TableSummary};
use drumlin_types::{Key, KeyRange, Kind, Seq, TableId, ValueFileId, bug};
use std::collections::VecDeque;

/// Parameters of the output tables.
pub(crate) struct OutputSpec {
    pub(crate) table: crate::table::TableOptions,
    /// Size in bytes at which a table is cut.
    pub(crate) file_bytes: u64,
    /// Filters of the tables.
    pub(crate) filters: JobFilters,
    /// Keyspace that the tables belong to.
    pub(crate) owner: Option<Owner>,
    /// Which values are separated.
    pub(crate) values: ValueSpec,
}

/// Tables that are being written.
pub(crate) struct Outputs {
    files: Arc<Files>,
    table: crate::table::TableOptions,
    file_bytes: u64,
    filters: JobFilters,
    owner: Option<Owner>,
    values: Separator,
    open: Option<UnfinishedTable>,
    /// The last entry, if it is a pointer that waits for the older versions of its key.
    waiting: Option<(Waiting, bool)>,
    /// Number of the next table.
    next: Option<TableId>,
    /// Range tombstones that are not in a table yet, sorted by start.
    tombstones: VecDeque<RangeTombstone>,
    done: Vec<Arc<FileMeta>>,
    /// Number of input entries that the job has read.
    read: u64,
    installed: bool,
}

struct UnfinishedTable {
    id: TableId,
    writer: TableWriter,
    points: Option<(Key, Vec<u8>)>,
}

impl UnfinishedTable {
    fn add(&mut self, key: &[u8], seq: Seq, kind: Kind, value: &[u8], is_warm: bool) -> Result<()> {
        self.writer.add(key, seq, kind, value, is_warm)?;
        match &mut self.points {
            Some((_, last)) => {
                last.clear();
                last.extend_from_slice(key);
            }
            points => *points = Some((Key::new(key), key.to_vec())),
        }
        Ok(())
    }

    /// Finishes the table with these range tombstones, before `end`. Returns its bounds.
    fn finish(
        &mut self,
        tombstones: Vec<RangeTombstone>,
        end: Option<&[u8]>,
        filters: &mut JobFilters,
        tables: &TableCache,
        read: u64,
    ) -> Result<(KeyRange, TableSummary)> {
        let mut bounds = self.points.as_ref().map(|(first, last)| KeyRange::inclusive(first, last));
        for RangeTombstone { range, seq } in tombstones {
            self.writer.add_range_tombstone(range.clone(), seq)?;
            bounds = Some(match bounds {
                Some(bounds) => bounds.hull(&range),
                None => range,
            });
        }
        let keys = self.writer.keys();
        let Some((first, _)) = self.points.as_ref().filter(|_| keys > 0) else {
            return Ok((bounds.unwrap_or_else(KeyRange::all), self.writer.finish(0.0)?));
        };
        let granted = filters.allot(tables, keys, first, end, read);
        let summary = self.writer.finish(FilterSpec {
            bits_per_key: granted.allotment.bits,
            modules: 1,
            method: granted.method,
        })?;
        filters.built(keys, &summary.properties.filter, &granted);
        Ok((bounds.unwrap_or_else(KeyRange::all), summary))
    }
}

impl Outputs {
    /// Creates a set with the range tombstones `tombstones`, sorted by start.
    pub(crate) fn new(files: Arc<Files>, spec: OutputSpec, tombstones: Vec<RangeTombstone>) -> Outputs {
        debug_assert!(tombstones.is_sorted_by(|a, b| a.range.start <= b.range.start));
        let OutputSpec { table, file_bytes, filters, owner, values } = spec;
        let values = Separator::new(files.env.clone(), files.values.clone(), files.obsolete.clone(), values);
        Outputs {
            files,
            table,
            file_bytes,
            filters,
            owner,
            values,
            open: None,
            waiting: None,
            next: None,
            tombstones: tombstones.into(),
            done: Vec::new(),
            read: 0,
            installed: false,
        }
    }

    /// Returns whether the next call of [`add`](Outputs::add) or [`finish`](Outputs::finish) needs no further file
    /// number: each file that it may write to is open or has its number.
    #[inline]
    pub(crate) fn has_numbers(&self) -> bool {
        self.has_table() && !self.values.needs_number()
    }

    fn has_table(&self) -> bool {
        let is_open =
            |open: &UnfinishedTable| open.writer.size() < self.file_bytes && !self.values.is_table_full();
        self.next.is_some() || self.open.as_ref().is_some_and(is_open)
    }

    /// Sets the number of the next table, or of the next value file if there is a table.
    pub(crate) fn give_number(&mut self, number: u64) {
        if self.has_table() {
            self.values.give_number(ValueFileId(number));
            return;
        }
        debug_assert!(self.next.is_none(), "a table number would be lost");
        self.next = Some(TableId(number));
    }

    /// Notes the number of input entries that the job has read so far.
    #[inline]
    pub(crate) fn note_read(&mut self, read: u64) {
        self.read = read;
    }

    /// Adds an entry. Entries come in internal order. `is_warm` tells whether it comes from a warm block.
    pub(crate) fn add(
        &mut self,
        key: &[u8],
        seq: Seq,
        kind: Kind,
        value: &[u8],
        is_warm: bool,
    ) -> Result<()> {
        let last = self.waiting.as_ref().map(|(waiting, _)| waiting.key.as_slice());
        let cut = self.open.as_ref().is_some_and(|open| {
            let last = last.or(open.points.as_ref().map(|(_, last)| last.as_slice()));
            (open.writer.size() >= self.file_bytes || self.values.is_table_full())
                && last.is_some_and(|last| last != key || bug!("key-split-over-tables"))
        });
        if self.waiting.is_some() {
            self.settle()?;
        }
        if cut {
            self.cut(Some(key))?;
        }
        if self.open.is_none() {
            self.open = Some(self.start()?);
        }
        if self.values.concerns(kind, value.len()) {
            let before = self.open.as_ref().and_then(|open| open.points.as_ref());
            let is_newest = before.is_none_or(|(_, last)| last != key);
            if let Some(waiting) = self.values.separate(key, seq, kind, value, is_newest)? {
                self.waiting = Some((waiting, is_warm));
                return Ok(());
            }
        }
        self.open.as_mut().expect("just opened").add(key, seq, kind, value, is_warm)
    }

    /// Notes older versions of the last entry that the job dropped in favour of it.
    #[inline]
    pub(crate) fn supersede(&mut self, older: &[Superseded]) {
        if let Some((waiting, _)) = self.waiting.as_mut().filter(|_| !older.is_empty()) {
            self.values.supersede(waiting, older);
        }
    }

    /// Notes the lifetimes of values that were deleted.
    #[inline]
    pub(crate) fn ended(&self, lifetimes: &[Seq]) {
        self.values.ended(lifetimes);
    }

    /// Writes the entry of the pointer that waits.
    fn settle(&mut self) -> Result<()> {
        let Some((waiting, is_warm)) = self.waiting.take() else { return Ok(()) };
        let pointer = self.values.settle(&waiting)?;
        let open = self.open.as_mut().expect("a pointer waits for its table");
        open.add(&waiting.key, waiting.seq, Kind::PutPointer, pointer, is_warm)?;
        self.values.recycle(waiting);
        Ok(())
    }

    /// Finishes the last table. The caller makes the directory entries of all tables durable.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.settle()?;
        if self.open.is_none() && !self.tombstones.is_empty() {
            self.open = Some(self.start()?);
        }
        self.cut(None)
    }

    /// Returns the finished files, in key order.
    pub(crate) fn files(&self) -> &[Arc<FileMeta>] {
        &self.done
    }

    /// Returns the approximate number of bytes written so far.
    pub(crate) fn bytes(&self) -> u64 {
        let done: u64 = self.done.iter().map(|file| file.table.len).sum();
        done + self.open.as_ref().map_or(0, |open| open.writer.size()) + self.values.bytes()
    }

    /// Returns the bytes of values written so far to value files, and those of them that were copied.
    pub(crate) fn value_bytes(&self) -> (u64, u64) {
        self.values.record_bytes()
    }

    /// Returns the bytes of finished files.
    pub(crate) fn bytes_finished(&self) -> u64 {
        let tables: u64 = self.done.iter().map(|file| file.table.len).sum();
        tables + self.values.bytes_finished()
    }

    /// Records that the outputs are part of a durable tree. They are then no longer removed with this set.
    pub(crate) fn installed(&mut self) {
        self.installed = true;
        self.values.installed();
        self.filters.installed();
    }

    /// Returns the lookup statistics that the finished outputs take over, and the parts of files that were merged.
    pub(crate) fn end_merge(&mut self) -> (Lineage, Vec<MergedPart>) {
        self.filters.finish(&self.files.tables, &self.done)
    }

    /// Explains the filter bits of the outputs, if tables may differ in them.
    pub(crate) fn explain_filters(&self) -> Option<(String, String)> {
        self.filters.explain()
    }

    fn start(&mut self) -> Result<UnfinishedTable> {
        let missing = || Error::new(ErrorKind::Bug, "a table was started without a file number");
        let id = self.next.take().ok_or_else(missing)?;
        let path = self.files.table_path(id);
        let mut writer = TableWriter::create(&self.files.env, &path, id, self.table)?;
        writer.set_owner(self.owner.clone())?;
        writer.carry_to(Arc::clone(&self.files.cache), id);
        Ok(UnfinishedTable { id, writer, points: None })
    }

    /// Finishes the open table before `boundary`, with the range tombstones up to there.
    fn cut(&mut self, boundary: Option<&[u8]>) -> Result<()> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        let tombstones = self.tombstones_before(boundary);
        let finished = self.values.end_table().and_then(|values| {
            open.writer.set_value_files(references(&values))?;
            let (bounds, summary) =
                open.finish(tombstones, boundary, &mut self.filters, &self.files.tables, self.read)?;
            Ok((bounds, summary, values))
        });
        match finished {
            Ok((bounds, summary, values)) => {
                self.done.push(Arc::new(self.file(open.id, bounds, &summary, values)));
                Ok(())
            }
            Err(error) => {
                self.abandon(open);
                Err(error)
            }
        }
    }

    /// Removes the file of a table that will not be finished. If that fails, maintenance tries again.
    fn abandon(&self, open: UnfinishedTable) {
        let len = open.writer.size();
        if open.writer.abandon().is_err() {
            TableHandle::new(open.id, len, self.files.obsolete.clone()).retire();
        }
    }

    /// Takes the range tombstones before `boundary`. Tombstones that span it are split there.
    fn tombstones_before(&mut self, boundary: Option<&[u8]>) -> Vec<RangeTombstone> {
        let Some(at) = boundary else { return std::mem::take(&mut self.tombstones).into() };
        let (mut here, mut over) = (Vec::new(), Vec::new());
        while let Some(tombstone) = self.tombstones.pop_front_if(|tombstone| *tombstone.range.start < *at) {
            if tombstone.range.end.as_deref().is_none_or(|end| end > at) {
                let (before, rest) = split(tombstone, at);
                here.push(before);
                over.push(rest);
            } else {
                here.push(tombstone);
            }
        }
        over.into_iter().rev().for_each(|rest| self.tombstones.push_front(rest));
        here
    }

    fn file(
        &self,
        id: TableId,
        bounds: KeyRange,
        summary: &TableSummary,
        values: Vec<ValueFileUse>,
    ) -> FileMeta {
        let properties = &summary.properties;
        FileMeta {
            table: TableHandle::new(id, summary.file_len, self.files.obsolete.clone()),
            bounds,
            counts: Counts {
                bytes: summary.file_len,
                entries: properties.entries,
                keys: properties.keys,
                tombstones: properties.deletes,
                range_tombstones: properties.range_tombstones,
            },
            table_entries: properties.entries,
            min_seq: properties.min_seq,
            max_seq: properties.max_seq,
            filter_bits: properties.filter.bits_per_key() as f32,
            fp_rate: properties.filter.false_positive_rate as f32,
            checksum: summary.checksum,
            accounted: true,
            values: values.into(),
            access: Arc::default(),
            skips_filter: atomic::AtomicBool::new(false),
        }
    }
}

fn split(tombstone: RangeTombstone, at: &[u8]) -> (RangeTombstone, RangeTombstone) {
    let at = Key::new(at);
    let here = KeyRange::new(tombstone.range.start, Some(at.clone()));
    let rest = KeyRange::new(at, tombstone.range.end);
    (RangeTombstone { range: here, seq: tombstone.seq }, RangeTombstone { range: rest, seq: tombstone.seq })
}

impl Drop for Outputs {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            self.abandon(open);
        }
        // During a panic, an edit that names the files may already be on disk. The next open decides about them.
        if self.installed || drumlin_env::is_unwinding() {
            return;
        }
        for file in &self.done {
            // Maintenance tries again.
            if self.files.remove_table(file.id()).is_err() {
                file.table.retire();
            }
        }
    }
}
