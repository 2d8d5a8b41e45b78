//! Separates the large values of a flush or compaction from its tables.
//!
//! A put whose value is at least as long as the threshold goes to an open value file, and its entry becomes a pointer.
//! Pointers of the inputs are kept, except those into *collected* value files: such a value is copied to an open value
//! file, so that the old file loses its references. What one job copies is limited. Merge operands, values that expire
//! and smaller values stay in the table.
//!
//! Each lifetime class has an open value file of its own ([`Placement`]). Versions that only snapshots need go to the
//! file of the first class. A new value is written when its entry comes. A pointer *waits* until the job has met all
//! older versions of its key that it drops: they become part of the pointer's history, which decides about the class of
//! a copy.
//!
//! A value file ends with the table that points to it, or earlier when it is full. So a new value file belongs to one
//! table at first, and a table can have several.
//!
//! Until the outputs are installed, the files belong to the separator. Dropping it removes them.

use super::lifetimes::{Placed, Placement};
use super::reader::ValueFiles;
use super::writer::ValueWriter;
use crate::base::error::{Error, ErrorKind, Result};
use crate::version::{Obsolete, ValueFileHandle, ValueFileHandles, ValueFileUse};
use drumlin_env::sync::Arc;
use drumlin_env::{Env, FileKind};
use drumlin_format::compression::Compression;
use drumlin_format::manifest::{ValueFileRecord, ValueFileState};
use drumlin_format::table::ValueReference;
use drumlin_format::value::{Place, ValueFileHeader, ValueFileSettings, ValuePointer};
use drumlin_policy::lifetime::history::{Version, fold};
use drumlin_types::history::History;
use drumlin_types::{KeyspaceId, Kind, Seq, ValueFileId};
use std::collections::{BTreeMap, BTreeSet};

/// Number of value files at which a table ends. The manifest allows more, but an edit lists them all.
const MOST_REFERENCES: usize = 4096;

/// File numbers to have before an entry is added: the waiting pointer and the entry may each begin a value file.
const NUMBERS: usize = 2;

/// Smallest write buffer of a value file in bytes.
const LEAST_WRITE_BYTES: usize = 64 << 10;

/// Largest and smallest number of key bytes at which a value file ends.
const MOST_KEY_BYTES: usize = 4 << 20;
const LEAST_KEY_BYTES: usize = 64 << 10;
/// The keys of all open value files of a job take at most this many times the memory of the write buffers, unless that
/// is less than `LEAST_KEY_BYTES` for each.
const KEY_BUFFERS: usize = 2;

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
    /// Classes of the values.
    pub(crate) placement: Placement,
}

/// A pointer that waits for the older versions of its key.
pub(crate) struct Waiting {
    pub(crate) key: Vec<u8>,
    pub(crate) seq: Seq,
    pointer: ValuePointer,
    /// Sequence number of the oldest version that the job dropped in favour of this one, or else its own.
    oldest: Seq,
    /// Whether it is the newest version of its key in the job. Only snapshots need the others.
    is_newest: bool,
    /// The encoded pointer of the input, unless the value is new.
    encoded: Vec<u8>,
    /// Whether the job has written the value.
    is_written: bool,
    /// The class of a new value that is the newest version of its key.
    placed: Option<Placed>,
    /// Whether the history differs from that of `encoded`.
    is_changed: bool,
}

/// An older version that a job drops in favour of a newer one of the same key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Superseded {
    pub(crate) seq: Seq,
    pub(crate) history: Option<History>,
}

/// Writes the separated values of one job.
pub(crate) struct Separator {
    env: Env,
    files: Arc<ValueFiles>,
    obsolete: Arc<Obsolete>,
    spec: ValueSpec,
    /// The open value file of each class.
    open: Vec<Option<ValueWriter>>,
    /// Numbers of the next value files.
    next: Vec<ValueFileId>,
    /// Entries and bytes of the open table in each value file.
    uses: BTreeMap<ValueFileId, (u64, u64)>,
    /// Finished value files.
    done: ValueFileHandles,
    pointer: Vec<u8>,
    /// Buffers for the next waiting pointer.
    buffers: [Vec<u8>; 2],
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
        let classes = spec.placement.classes.max(1);
        Separator {
            env,
            files,
            obsolete,
            spec,
            open: (0..classes).map(|_| None).collect(),
            next: Vec::new(),
            uses: BTreeMap::new(),
            done: BTreeMap::new(),
            pointer: Vec::new(),
            buffers: Default::default(),
            written: 0,
            copied: 0,
            installed: false,
        }
    }

    /// Returns whether the next entry may begin value files that have no number yet.
    #[inline]
    pub(crate) fn needs_number(&self) -> bool {
        (self.spec.threshold.is_some() || !self.spec.collected.is_empty()) && self.next.len() < NUMBERS
    }

    /// Adds the number of a value file to come.
    pub(crate) fn give_number(&mut self, id: ValueFileId) {
        debug_assert!(self.next.len() < NUMBERS, "a file number would be lost");
        self.next.push(id);
    }

    /// Returns whether an entry may be separated, is a pointer, or says something about lifetimes.
    #[inline]
    pub(crate) fn concerns(&self, kind: Kind, len: usize) -> bool {
        match (kind, self.spec.threshold) {
            (Kind::PutPointer, _) | (Kind::Delete, Some(_)) => true,
            (Kind::Put, Some(least)) => len as u64 >= least,
            _ => false,
        }
    }

    /// Returns a waiting pointer if the table gets one for this entry. A new value is written to a value file.
    /// `is_newest` tells whether the entry is the first of its key.
    pub(crate) fn separate(
        &mut self,
        key: &[u8],
        seq: Seq,
        kind: Kind,
        value: &[u8],
        is_newest: bool,
    ) -> Result<Option<Waiting>> {
        match kind {
            Kind::Put if self.spec.threshold.is_some_and(|least| value.len() as u64 >= least) => {
                let placement = &self.spec.placement;
                let is_placed = is_newest && placement.predicts();
                let placed = is_placed.then(|| placement.of_new(key, seq, value.len() as u64));
                let class = placed.as_ref().map_or(0, |placed| placed.class);
                let place = self.file(class)?.add(key, seq, value)?;
                self.written += place.record.record_len();
                let pointer = ValuePointer { place: Some(place), history: None };
                let waiting = self.waiting(key, seq, pointer, &[]);
                Ok(Some(Waiting { is_written: true, is_newest, placed, ..waiting }))
            }
            Kind::PutPointer => {
                let pointer = ValuePointer::decode(value).map_err(|damage| damaged(damage.what))?;
                let waiting = self.waiting(key, seq, pointer, value);
                Ok(Some(Waiting { is_newest, ..waiting }))
            }
            Kind::Delete if is_newest && self.spec.threshold.is_some() => {
                self.spec.placement.deleted(key, seq);
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    fn waiting(&mut self, key: &[u8], seq: Seq, pointer: ValuePointer, encoded: &[u8]) -> Waiting {
        let mut buffers = std::mem::take(&mut self.buffers);
        for (buffer, bytes) in buffers.iter_mut().zip([key, encoded]) {
            buffer.clear();
            buffer.extend_from_slice(bytes);
        }
        let [key, encoded] = buffers;
        Waiting {
            key,
            seq,
            pointer,
            oldest: seq,
            is_newest: true,
            encoded,
            is_written: false,
            placed: None,
            is_changed: false,
        }
    }

    /// Takes back the buffers of a pointer that was settled.
    pub(crate) fn recycle(&mut self, settled: Waiting) {
        self.buffers = [settled.key, settled.encoded];
    }

    /// Adds versions that the job dropped, newest first, to the history of a waiting pointer.
    pub(crate) fn supersede(&self, waiting: &mut Waiting, older: &[Superseded]) {
        for version in older {
            if version.seq >= waiting.oldest {
                continue;
            }
            let newer = Version { seq: waiting.seq, history: waiting.pointer.history.as_ref() };
            let older = Version { seq: version.seq, history: version.history.as_ref() };
            waiting.pointer.history = Some(fold(newer, older));
            waiting.is_changed = true;
            if waiting.is_newest {
                self.spec.placement.superseded(&waiting.key, waiting.oldest, version.seq);
            }
            waiting.oldest = version.seq;
        }
    }

    /// Notes the lifetimes of values that were deleted.
    pub(crate) fn ended(&self, lifetimes: &[Seq]) {
        lifetimes.iter().for_each(|lifetime| self.spec.placement.ended(*lifetime));
    }

    /// Returns the encoded pointer of a version that no longer waits. Copies the value of an input's pointer if its
    /// file is collected.
    ///
    /// A value that cannot be read is no reason to fail: the compaction only has to keep its pointer. Then the rest of
    /// that file is not collected.
    pub(crate) fn settle(&mut self, waiting: &Waiting) -> Result<&[u8]> {
        let Waiting { seq, pointer, .. } = waiting;
        let mut pointer = *pointer;
        if let Some(placed) = &waiting.placed {
            self.spec.placement.flushed(placed, *seq, waiting.oldest);
        }
        let copy = if waiting.is_written { None } else { self.copy(waiting)? };
        let is_kept = !waiting.is_written && !waiting.is_changed && copy.is_none();
        pointer.place = copy.or(pointer.place);
        self.pointer.clear();
        match is_kept {
            true => self.pointer.extend_from_slice(&waiting.encoded),
            false => pointer.encode_into(&mut self.pointer),
        }
        if let Some(place) = pointer.place
            && !(is_kept && drumlin_types::bug!("kept-pointer-not-counted"))
        {
            self.count(place.file, place.record.record_len());
        }
        Ok(&self.pointer)
    }

    /// Copies the value of an input's pointer to the open file of its class if its file is collected. Returns the new
    /// place.
    fn copy(&mut self, waiting: &Waiting) -> Result<Option<Place>> {
        let (key, seq, pointer) = (waiting.key.as_slice(), waiting.seq, &waiting.pointer);
        let Some(place) = pointer.place else { return Ok(None) };
        if !self.spec.inputs.contains_key(&place.file) {
            let id = place.file;
            return Err(damaged(&format!(
                "an entry points to value file {id}, which its table does not list"
            )));
        }
        let len = place.record.record_len();
        if !self.spec.collected.contains(&place.file) || self.copied + len > self.spec.most_copied {
            return Ok(None);
        }
        let Ok(value) = self.files.read_record(&place, key, seq) else {
            self.spec.collected.remove(&place.file);
            return Ok(None);
        };
        let version = Version { seq, history: pointer.history.as_ref() };
        let class = match waiting.is_newest && self.spec.placement.predicts() {
            true => self.spec.placement.of_copy(key, version, place.record.raw_len.into()).class,
            false => 0,
        };
        let copy = self.file(class)?.copy(key, seq, &value)?;
        self.written += copy.record.record_len();
        self.copied += copy.record.record_len();
        self.files.carry(seq, &place, &copy, value);
        Ok(Some(copy))
    }

    /// Returns the value file of `class` to write to.
    fn file(&mut self, class: usize) -> Result<&mut ValueWriter> {
        let class = class.min(self.open.len() - 1);
        if self.open[class].as_ref().is_some_and(ValueWriter::is_full) {
            self.end_file(class)?;
        }
        if self.open[class].is_none() {
            self.open[class] = Some(self.begin_file(class)?);
        }
        Ok(self.open[class].as_mut().expect("just opened"))
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

    /// Ends the open value files with their table. Returns the value files that the table points to.
    pub(crate) fn end_table(&mut self) -> Result<Vec<ValueFileUse>> {
        self.open.iter_mut().flatten().try_for_each(ValueWriter::seal)?;
        (0..self.open.len()).try_for_each(|class| self.end_file(class))?;
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
        self.bytes_finished() + self.open.iter().flatten().map(ValueWriter::size).sum::<u64>()
    }

    /// Returns the bytes of records written so far, and those of them that were copied from collected files.
    pub(crate) fn record_bytes(&self) -> (u64, u64) {
        (self.written, self.copied)
    }

    /// Records that the outputs are part of a durable tree.
    pub(crate) fn installed(&mut self) {
        self.installed = true;
    }

    fn begin_file(&mut self, class: usize) -> Result<ValueWriter> {
        let missing = || Error::new(ErrorKind::Bug, "a value file was started without a file number");
        let file = self.next.pop().ok_or_else(missing)?;
        let ValueSpec { keyspace, compression, created_seq, write_bytes, .. } = self.spec;
        let header =
            ValueFileHeader { file, created_seq, keyspace, class: self.spec.placement.number(class) };
        let settings = ValueFileSettings { header, compression };
        let most_key_bytes =
            (KEY_BUFFERS * write_bytes / self.open.len()).clamp(LEAST_KEY_BYTES, MOST_KEY_BYTES);
        let write_bytes = (write_bytes / self.open.len()).max(LEAST_WRITE_BYTES).min(write_bytes);
        ValueWriter::create(&self.env, &self.files.path(file), settings, write_bytes, most_key_bytes)
    }

    fn end_file(&mut self, class: usize) -> Result<()> {
        let Some(mut open) = self.open[class].take() else { return Ok(()) };
        let id = open.id();
        // Copies may be in the cache.
        let summary = open.finish().inspect_err(|_| self.files.remove(id))?;
        let properties = summary.properties;
        let record = ValueFileRecord {
            keyspace: self.spec.keyspace,
            file: id,
            state: ValueFileState::Live,
            class: self.spec.placement.number(class),
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

fn damaged(what: &str) -> Error {
    Error::new(ErrorKind::Corruption, what)
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
        // The writers remove their files; copies may be in the cache.
        self.open.iter().flatten().for_each(|open| self.files.remove(open.id()));
        for file in self.done.values() {
            self.files.remove(file.id());
            // Not left to maintenance, which would take the removal for space that a compaction has freed.
            if self.env.fs().unlink(&self.files.path(file.id()), FileKind::Value).is_err() {
                file.retire();
            }
        }
    }
}
