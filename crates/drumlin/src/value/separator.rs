//! Separates the large values of a flush or compaction from its tables.
//!
//! A put of at least the threshold goes to the open value file, and its entry becomes a pointer. Pointers of the inputs
//! are kept, except those into *collected* value files: such a value is copied to the open value file, so that the old
//! file loses its references. What one job copies is limited. Merge operands, values that expire and smaller values
//! stay in the table.
//!
//! A value file ends with the table that points to it, or earlier when it is full. So a new value file belongs to one
//! table at first, and a table can have several.
//!
//! Until the outputs are installed, the files belong to the separator. Dropping it removes them.

use super::reader::ValueFiles;
use super::writer::ValueWriter;
use crate::base::error::{Error, ErrorKind, Result};
use crate::version::{Obsolete, ValueFileHandle, ValueFileHandles, ValueFileUse};
use drumlin_env::Env;
use drumlin_env::sync::Arc;
use drumlin_format::compression::Compression;
use drumlin_format::manifest::{ValueFileRecord, ValueFileState};
use drumlin_format::table::ValueReference;
use drumlin_format::value::{Place, ValueFileHeader, ValueFileSettings, ValuePointer};
use drumlin_types::history::History;
use drumlin_types::{KeyspaceId, Kind, Seq, ValueFileId};
use std::collections::{BTreeMap, BTreeSet};

/// Size at which a value file is full.
const VALUE_FILE_BYTES: u64 = 64 << 20;

/// Number of value files at which a table ends. The manifest allows more, but an edit lists them all.
const MOST_REFERENCES: usize = 4096;

/// Which values a job separates, and how.
pub(crate) struct ValueSpec {
    /// Length of the smallest values that are separated; `None` if none are.
    pub(crate) threshold: Option<u64>,
    pub(crate) keyspace: KeyspaceId,
    pub(crate) compression: Compression,
    /// The store's newest sequence number when the job began.
    pub(crate) created_seq: Seq,
    /// Memory for the write buffer in bytes.
    pub(crate) write_bytes: usize,
    /// Value files that the inputs point to.
    pub(crate) inputs: ValueFileHandles,
    /// Those of them that are collected.
    pub(crate) collected: BTreeSet<ValueFileId>,
    /// Maximum number of bytes that are copied from them. The other values stay where they are.
    pub(crate) most_copied: u64,
}

/// Writes the separated values of one job.
pub(crate) struct Separator {
    env: Env,
    files: Arc<ValueFiles>,
    obsolete: Arc<Obsolete>,
    spec: ValueSpec,
    open: Option<ValueWriter>,
    /// Number of the next value file.
    next: Option<ValueFileId>,
    /// Entries and bytes of the open table in each value file.
    uses: BTreeMap<ValueFileId, (u64, u64)>,
    /// Finished value files.
    done: ValueFileHandles,
    pointer: Vec<u8>,
    /// Bytes of records written so far, and those of them that were copied.
    written: u64,
    copied: u64,
    installed: bool,
}

impl Separator {
    pub(crate) fn new(
        env: Env,
        files: Arc<ValueFiles>,
        obsolete: Arc<Obsolete>,
        spec: ValueSpec,
    ) -> Separator {
        Separator {
            env,
            files,
            obsolete,
            spec,
            open: None,
            next: None,
            uses: BTreeMap::new(),
            done: BTreeMap::new(),
            pointer: Vec::new(),
            written: 0,
            copied: 0,
            installed: false,
        }
    }

    /// Returns whether the next entry may begin a value file that has no number yet.
    #[inline]
    pub(crate) fn needs_number(&self) -> bool {
        (self.spec.threshold.is_some() || !self.spec.collected.is_empty()) && self.next.is_none()
    }

    /// Sets the number of the next value file.
    pub(crate) fn give_number(&mut self, id: ValueFileId) {
        debug_assert!(self.next.is_none(), "a file number would be lost");
        self.next = Some(id);
    }

    /// Returns the kind and value that the table holds for this entry.
    #[inline]
    pub(crate) fn separate<'a>(
        &'a mut self,
        key: &[u8],
        seq: Seq,
        kind: Kind,
        value: &'a [u8],
    ) -> Result<(Kind, &'a [u8])> {
        match kind {
            Kind::Put if self.spec.threshold.is_some_and(|least| value.len() as u64 >= least) => {
                self.write(key, seq, value)?;
                Ok((Kind::PutPointer, &self.pointer))
            }
            Kind::PutPointer => {
                let is_copied = self.copy_or_count(key, seq, value)?;
                Ok((kind, if is_copied { &self.pointer } else { value }))
            }
            _ => Ok((kind, value)),
        }
    }

    /// Writes `value` to the open value file, and the pointer to it to `pointer`.
    fn write(&mut self, key: &[u8], seq: Seq, value: &[u8]) -> Result<()> {
        let place = self.file()?.add(key, seq, value)?;
        self.point_to(place, None);
        Ok(())
    }

    /// Returns the value file to write to.
    fn file(&mut self) -> Result<&mut ValueWriter> {
        if self.open.as_ref().is_some_and(|open| open.size() >= VALUE_FILE_BYTES) {
            self.end_file()?;
        }
        if self.open.is_none() {
            self.open = Some(self.begin_file()?);
        }
        Ok(self.open.as_mut().expect("just opened"))
    }

    /// Encodes a pointer to `place` into `pointer`, and counts it.
    fn point_to(&mut self, place: Place, history: Option<History>) {
        self.pointer.clear();
        ValuePointer { place: Some(place), history }.encode_into(&mut self.pointer);
        self.written += place.record.record_len();
        self.count(place.file, place.record.record_len());
    }

    /// Copies the value of an input's pointer to the open value file if its file is collected; returns whether it did,
    /// and then `pointer` is the new one. Otherwise the old pointer is kept and counted.
    ///
    /// A value that cannot be read is no reason to fail: the compaction only has to copy its pointer. Then the rest of
    /// that file is not collected.
    fn copy_or_count(&mut self, key: &[u8], seq: Seq, pointer: &[u8]) -> Result<bool> {
        let damaged = |what: &str| Error::new(ErrorKind::Corruption, what);
        let pointer = ValuePointer::decode(pointer).map_err(|damage| damaged(damage.what))?;
        let Some(place) = pointer.place else { return Ok(false) };
        if !self.spec.inputs.contains_key(&place.file) {
            let id = place.file;
            return Err(damaged(&format!(
                "an entry points to value file {id}, which its table does not list"
            )));
        }
        let is_within = self.copied + place.record.record_len() <= self.spec.most_copied;
        if self.spec.collected.contains(&place.file) && is_within {
            match self.files.read_record(&place, key, seq) {
                Ok(value) => {
                    let copy = self.file()?.copy(key, seq, &value)?;
                    self.point_to(copy, pointer.history);
                    self.copied += copy.record.record_len();
                    return Ok(true);
                }
                Err(_) => drop(self.spec.collected.remove(&place.file)),
            }
        }
        self.count(place.file, place.record.record_len());
        Ok(false)
    }

    /// Returns whether the open table points to as many value files as a table should.
    pub(crate) fn is_table_full(&self) -> bool {
        self.uses.len() >= MOST_REFERENCES
    }

    fn count(&mut self, file: ValueFileId, bytes: u64) {
        let (entries, all) = self.uses.entry(file).or_default();
        *entries += 1;
        *all += bytes;
    }

    /// Ends the open value file with its table. Returns the value files that the table points to.
    pub(crate) fn end_table(&mut self) -> Result<Vec<ValueFileUse>> {
        self.end_file()?;
        let uses = std::mem::take(&mut self.uses).into_iter();
        let used = uses.map(|(id, (entries, bytes))| {
            let file = self.done.get(&id).or_else(|| self.spec.inputs.get(&id)).cloned();
            let missing = || Error::new(ErrorKind::Bug, format!("value file {id} has no handle"));
            Ok(ValueFileUse { file: file.ok_or_else(missing)?, entries, bytes })
        });
        used.collect()
    }

    /// Returns the bytes of finished value files.
    pub(crate) fn bytes_finished(&self) -> u64 {
        self.done.values().map(|file| file.record().file_len).sum()
    }

    /// Returns the approximate number of bytes written so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes_finished() + self.open.as_ref().map_or(0, ValueWriter::size)
    }

    /// Returns the bytes of records written so far, and those of them that were copied from collected files.
    pub(crate) fn record_bytes(&self) -> (u64, u64) {
        (self.written, self.copied)
    }

    /// Records that the outputs are part of a durable tree.
    pub(crate) fn installed(&mut self) {
        self.installed = true;
    }

    fn begin_file(&mut self) -> Result<ValueWriter> {
        let missing = || Error::new(ErrorKind::Bug, "a value file was started without a file number");
        let file = self.next.take().ok_or_else(missing)?;
        let ValueSpec { keyspace, compression, created_seq, write_bytes, .. } = self.spec;
        let header = ValueFileHeader { file, created_seq, keyspace, class: 0 };
        let settings = ValueFileSettings { header, compression };
        ValueWriter::create(&self.env, &self.files.path(file), settings, write_bytes)
    }

    fn end_file(&mut self) -> Result<()> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        let id = open.id();
        let summary = open.finish()?;
        let properties = summary.properties;
        let record = ValueFileRecord {
            keyspace: self.spec.keyspace,
            file: id,
            state: ValueFileState::Live,
            class: 0,
            file_len: summary.file_len,
            entries: properties.records,
            total_bytes: properties.record_bytes,
            dead_bytes: 0,
            dead_entries: 0,
            created_seq: self.spec.created_seq,
            end_seq: Seq::MAX,
            min_seq: properties.min_seq,
            max_seq: properties.max_seq,
            checksum: summary.checksum,
        };
        self.done.insert(id, ValueFileHandle::new(record, self.obsolete.clone()));
        Ok(())
    }
}

/// Returns the list of value files for the properties of a table.
pub(crate) fn references(uses: &[ValueFileUse]) -> Vec<ValueReference> {
    let reference = |used: &ValueFileUse| ValueReference {
        file: used.file.id(),
        entries: used.entries,
        bytes: used.bytes,
    };
    uses.iter().map(reference).collect()
}

impl Drop for Separator {
    fn drop(&mut self) {
        // During a panic, an edit that names the files may already be on disk. The next open decides about them.
        if self.installed || drumlin_env::is_unwinding() {
            return;
        }
        for file in self.done.values() {
            // Once no tree holds the file, it is unlinked, and tried again if that fails.
            file.retire();
        }
    }
}
