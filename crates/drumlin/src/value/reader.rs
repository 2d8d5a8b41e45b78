//! Reads values from value files.
//!
//! A value file stays open after its first read. At most [`OPEN_FILES`] are open, and at most an eighth of the files
//! that the process may open. After a close of the store files stay open, four times as many, since they may be
//! unlinked. When no descriptor is left before a close, all of them are closed. A caller holds a tree with the
//! pointer that it follows, so the file is not unlinked meanwhile. Every read verifies the checksum of the whole
//! record, which is bound to key, sequence number and place.
//!
//! The block cache holds values that were looked up. Scans take values from it and add none, so a scan of many values
//! leaves other blocks in place. A scan reads ahead (`base/value_read_ahead.rs`). Lookups of many keys read the values
//! that are not cached together.

use crate::base::SET_ASIDE;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::resolve::{PointerReader, ValueRead};
use crate::base::slice::Slice;
use crate::base::value_read_ahead::{RecordAt, ValueReadAhead};
use crate::table::{BlockCache, MOST_CACHED_VALUE};
use drumlin_env::sync::{Arc, Mutex};
use drumlin_env::{Env, File, FileKind, ReadRequest};
use drumlin_format::compression::{Compression, Decompressor};
use drumlin_format::error::Corruption;
use drumlin_format::names::FileName;
use drumlin_format::value::{Place, Record, RecordKey, ValuePointer};
use drumlin_types::{Seq, ValueFileId};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Maximum number of open value files.
const OPEN_FILES: usize = 256;
/// Multiple of the limit on open files that may stay open after a close.
const KEPT_SHARE: usize = 4;
/// Maximum number of records that are read in parallel. Together they take at most one part in `BATCH_SHARE` of the
/// block cache, unless it is one record, and they are in at most one part in `BATCH_FILES` of the files that may be
/// open.
const BATCH_RECORDS: usize = 64;
const BATCH_SHARE: usize = 8;
const BATCH_FILES: usize = 8;

/// An open value file.
#[derive(Clone)]
struct OpenFile {
    file: Arc<File>,
    path: Arc<PathBuf>,
    len: u64,
    /// Value of [`OpenFiles::reads`] at the last read of the file.
    last_read: u64,
}

#[derive(Default)]
struct OpenFiles {
    files: BTreeMap<ValueFileId, OpenFile>,
    reads: u64,
    /// Whether files stay open: the store is closed, and its files may be removed.
    keeps_all: bool,
}

/// The value files of a directory.
pub(crate) struct ValueFiles {
    env: Env,
    dir: PathBuf,
    open: Mutex<OpenFiles>,
    /// Maximum number of open files.
    most_open: usize,
    /// Whether a missing file may be one that was set aside.
    reads_set_aside: bool,
    /// Holds values that were looked up.
    cache: Option<Arc<BlockCache>>,
}

impl ValueFiles {
    /// Returns the value files of an open store.
    pub(crate) fn new(env: Env, dir: PathBuf, cache: Arc<BlockCache>) -> Arc<ValueFiles> {
        let files = ValueFiles::damaged(env, dir);
        Arc::new(ValueFiles { reads_set_aside: false, cache: Some(cache), ..files })
    }

    /// Returns the value files of a damaged store, with those that an open set aside.
    pub(crate) fn damaged(env: Env, dir: PathBuf) -> ValueFiles {
        let limit =
            env.open_file_limit().map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let most_open = (limit / 8).clamp(1, OPEN_FILES);
        let open = Mutex::default();
        ValueFiles { env, dir, open, most_open, reads_set_aside: true, cache: None }
    }

    /// Returns the path of a value file.
    pub(crate) fn path(&self, id: ValueFileId) -> PathBuf {
        self.dir.join(FileName::Value(id).to_string())
    }

    /// Returns the function that follows value pointers.
    pub(crate) fn reader(self: &Arc<Self>) -> Arc<PointerReader> {
        let files = Arc::clone(self);
        Arc::new(move |key, seq, pointer, purpose| files.read(key, seq, pointer, purpose))
    }

    /// Returns the value that the encoded `pointer`, the version `seq` of `key`, refers to.
    pub(crate) fn read(&self, key: &[u8], seq: Seq, pointer: &[u8], purpose: ValueRead<'_>) -> Result<Slice> {
        let place = self.place(pointer)?;
        match purpose {
            ValueRead::Check => self.read_record(&place, key, seq)?.value(),
            ValueRead::Merge => match self.cached(&place, seq, false) {
                Some(value) => Ok(value),
                None => self.read_record(&place, key, seq)?.value(),
            },
            ValueRead::Scan(ahead) => match self.cached(&place, seq, true) {
                Some(value) => {
                    ahead.skip(place.file, place.record.end());
                    Ok(value)
                }
                None => self.read_ahead(&place, key, seq, ahead)?.value(),
            },
            ValueRead::Lookup => match self.look_up(&place, seq) {
                Some(value) => Ok(value),
                None => {
                    let value = self.read_record(&place, key, seq)?.value()?;
                    self.add_to_cache(&place, seq, &value);
                    Ok(value)
                }
            },
        }
    }

    /// Returns the values of `wanted`, for lookups. Those that are not cached are read in parallel and added to the
    /// cache. `None` stands for a value that must be read by itself: it is too large for the cache, or its read failed.
    pub(crate) fn read_many(&self, wanted: &[WantedValue<'_>]) -> Vec<Option<Slice>> {
        let mut values = vec![None; wanted.len()];
        let mut missing = Vec::new();
        for (index, wanted) in wanted.iter().enumerate() {
            let Ok(place) = self.place(wanted.pointer) else { continue };
            if place.record.raw_len as usize > MOST_CACHED_VALUE {
                continue;
            }
            values[index] = self.look_up(&place, wanted.seq);
            if values[index].is_none() {
                missing.push((index, place));
            }
        }
        missing.sort_by_key(|(_, place)| (place.file, place.record.offset));
        let most_bytes = self.cache.as_ref().map_or(0, |cache| cache.capacity() / BATCH_SHARE) as u64;
        let mut rest = missing.as_slice();
        while !rest.is_empty() {
            let (part, behind) = rest.split_at(batch_len(rest, most_bytes, self.most_open));
            rest = behind;
            let open: Vec<(usize, &Place, OpenFile)> = part
                .iter()
                .filter_map(|(index, place)| Some((*index, place, self.open_for(place).ok()?)))
                .collect();
            let requests = open.iter().map(|(_, place, open)| ReadRequest {
                file: (*open.file).clone(),
                offset: place.record.offset,
                len: place.record.record_len() as usize,
            });
            for ((index, place, open), bytes) in open.iter().zip(self.env.read_batch(requests.collect())) {
                let WantedValue { key, seq, .. } = wanted[*index];
                let Ok(bytes) = bytes else { continue };
                let stored = open.decode(place, key, seq, Slice::from(bytes));
                if let Ok(value) = stored.and_then(StoredValue::value) {
                    self.add_to_cache(place, seq, &value);
                    values[*index] = Some(value);
                }
            }
        }
        values
    }

    /// Decodes a pointer that a reader sees.
    fn place(&self, pointer: &[u8]) -> Result<Place> {
        let pointer = ValuePointer::decode_without_history(pointer);
        let pointer = pointer.map_err(|damage| Error::corruption(&self.dir, 0, damage.what))?;
        let missing = || Error::corruption(&self.dir, 0, "a value pointer that a reader sees has no place");
        pointer.place.ok_or_else(missing)
    }

    /// Returns the value of the version `seq` at `place`, if it is cached. With `marks` the value counts as used.
    fn cached(&self, place: &Place, seq: Seq, marks: bool) -> Option<Slice> {
        let value = self.cache.as_ref()?.value(place.file, place.record.offset, seq, marks)?;
        (value.len() == place.record.raw_len as usize).then_some(value)
    }

    /// Returns the same for a lookup, and counts it.
    fn look_up(&self, place: &Place, seq: Seq) -> Option<Slice> {
        let value = self.cached(place, seq, true);
        self.cache.iter().for_each(|cache| cache.count_value(value.is_some()));
        value
    }

    fn add_to_cache(&self, place: &Place, seq: Seq, value: &Slice) {
        let cache = self.cache.iter();
        cache.for_each(|cache| cache.insert_value(place.file, place.record.offset, seq, value.clone()));
    }

    /// Reads the record at `place` for a scan, with read-ahead.
    fn read_ahead(
        &self,
        place: &Place,
        key: &[u8],
        seq: Seq,
        ahead: &mut ValueReadAhead,
    ) -> Result<StoredValue> {
        let open = self.open_for(place)?;
        let Place { file, record } = *place;
        let len = record.record_len() as usize;
        let at = RecordAt { file, offset: record.offset, len, file_len: open.len };
        let bytes = ahead.record(at, |bytes| open.read(record.offset, bytes))?;
        open.decode(place, key, seq, bytes)
    }

    /// Notes that the value at `from` was copied to `to`. If readers have asked for it more than once, the cache gets
    /// the copy.
    pub(super) fn carry(&self, seq: Seq, from: &Place, to: &Place, value: StoredValue) {
        let Some(cache) = &self.cache else { return };
        if cache.hand_over_value(from.file, from.record.offset)
            && let Ok(value) = value.value()
        {
            cache.carry_value(to.file, to.record.offset, seq, value);
        }
    }

    /// Reads and verifies the record at `place`, which holds the version `seq` of `key`.
    pub(super) fn read_record(&self, place: &Place, key: &[u8], seq: Seq) -> Result<StoredValue> {
        let open = self.open_for(place)?;
        let bytes = open.read(place.record.offset, place.record.record_len() as usize)?;
        open.decode(place, key, seq, bytes)
    }

    /// Opens the file of a record. A pointer may be intact and wrong. No memory is spent on a record that cannot exist.
    fn open_for(&self, place: &Place) -> Result<OpenFile> {
        let open = self.open(place.file)?;
        if place.record.end() > open.len {
            let what = "a value pointer reaches past the end of its value file";
            return Err(Error::corruption(&open.path, place.record.offset, what));
        }
        Ok(open)
    }

    /// Forgets a value file that is about to be unlinked.
    pub(crate) fn remove(&self, id: ValueFileId) {
        let removed = self.open.lock().files.remove(&id);
        drop(removed);
        self.cache.iter().for_each(|cache| cache.forget_values(id));
    }

    /// Opens the first of the files `ids` and lets all files stay open, since the next open of the store may remove
    /// them: at most half of the files that the process may open. Ignores a file that cannot be opened.
    pub(crate) fn keep_all(&self, ids: impl Iterator<Item = ValueFileId>) {
        self.open.lock().keeps_all = true;
        ids.take(KEPT_SHARE * self.most_open).for_each(|id| drop(self.open(id)));
    }

    /// Closes all files, to free their descriptors.
    pub(crate) fn relieve(&self) {
        let mut open = self.open.lock();
        let closed = if open.keeps_all { BTreeMap::new() } else { std::mem::take(&mut open.files) };
        drop(open);
        drop(closed);
    }

    fn open(&self, id: ValueFileId) -> Result<OpenFile> {
        let mut open = self.open.lock();
        open.reads += 1;
        let last_read = open.reads;
        if let Some(found) = open.files.get_mut(&id) {
            found.last_read = last_read;
            return Ok(found.clone());
        }
        drop(open);
        let mut opened = self.open_file(id);
        if opened.as_ref().is_err_and(|error| error.kind() == ErrorKind::TooManyFiles) {
            self.relieve();
            opened = self.open_file(id);
        }
        let opened = OpenFile { last_read, ..opened? };
        let mut open = self.open.lock();
        let oldest = open.files.iter().min_by_key(|(_, file)| file.last_read).map(|(id, _)| *id);
        if open.keeps_all && open.files.len() >= KEPT_SHARE * self.most_open {
            // No file that stays open may be closed, so this one is closed after the read.
            return Ok(opened);
        }
        let is_full = open.files.len() >= self.most_open && !open.keeps_all;
        let closed = oldest.filter(|_| is_full).and_then(|id| open.files.remove(&id));
        open.files.insert(id, opened.clone());
        drop(open);
        drop(closed);
        Ok(opened)
    }

    fn open_file(&self, id: ValueFileId) -> Result<OpenFile> {
        let mut path = self.path(id);
        if self.reads_set_aside && !self.env.fs().exists(&path).unwrap_or(true) {
            path.as_mut_os_string().push(SET_ASIDE);
        }
        let failed = |error| Error::io(&path, "cannot open a value file", error);
        let file = self.env.fs().open(&path, FileKind::Value).map_err(failed)?;
        let len = file.len().map_err(failed)?;
        Ok(OpenFile { file: Arc::new(file), path: Arc::new(path), len, last_read: 0 })
    }
}

/// Returns how many of `records`, which are sorted by file, are read in parallel; at least one.
fn batch_len(records: &[(usize, Place)], most_bytes: u64, most_open: usize) -> usize {
    let (mut bytes, mut files, mut last) = (0, 0, None);
    let fits = |(_, place): &&(usize, Place)| {
        bytes += place.record.record_len();
        files += usize::from(last.replace(place.file) != Some(place.file));
        bytes <= most_bytes && files <= (most_open / BATCH_FILES).max(1)
    };
    records.iter().take(BATCH_RECORDS).take_while(fits).count().max(1)
}

impl OpenFile {
    fn read(&self, offset: u64, len: usize) -> Result<Slice> {
        let bytes = self.file.read_shared(offset, len);
        bytes.map(Slice::new).map_err(|error| Error::io(&self.path, "cannot read a value", error))
    }

    /// Verifies the record in `bytes`, which was read at `place` and holds the version `seq` of `key`.
    fn decode(&self, place: &Place, key: &[u8], seq: Seq, bytes: Slice) -> Result<StoredValue> {
        let offset = place.record.offset;
        let damaged = |damage: Corruption| Error::corruption(&self.path, damage.offset, damage.what);
        let version = RecordKey { file_id: place.file.0, offset, key, seq };
        let record = Record::decode(&bytes, &version).map_err(damaged)?;
        if record.raw_len != place.record.raw_len {
            return Err(damaged(Corruption::new("the length of a value differs from its pointer", offset)));
        }
        let (codec, raw_len, start) = (record.codec, record.raw_len, bytes.len() - record.stored.len());
        Ok(StoredValue { codec, raw_len, stored: bytes.skip(start), path: self.path.clone(), offset })
    }
}

/// A value that is read together with others: the version `seq` of `key`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedValue<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) seq: Seq,
    /// The encoded pointer.
    pub(crate) pointer: &'a [u8],
}

/// A verified value as its file stores it.
pub(super) struct StoredValue {
    pub(super) codec: Compression,
    /// Length of the value.
    pub(super) raw_len: u32,
    pub(super) stored: Slice,
    path: Arc<PathBuf>,
    offset: u64,
}

impl StoredValue {
    /// Decompresses the value.
    fn value(self) -> Result<Slice> {
        if self.codec == Compression::None {
            return Ok(self.stored);
        }
        let mut value = vec![0; self.raw_len as usize];
        let decompressed = Decompressor::new().decompress(self.codec, &self.stored, &mut value);
        decompressed.map_err(|damage| Error::corruption(&self.path, self.offset, damage.what))?;
        Ok(Slice::from(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_env::MemEnv;

    /// An iterator goes on after a close, and reads more value files than may stay open.
    #[test]
    fn a_bounded_number_of_files_stays_open_after_a_close() {
        let mem = MemEnv::new(1);
        mem.env().fs().create_dir_all("/db".as_ref()).expect("room");
        let files = ValueFiles { most_open: 1, ..ValueFiles::damaged(mem.env(), PathBuf::from("/db")) };
        for number in 1..=20 {
            mem.plant(&files.path(ValueFileId(number)), FileKind::Value, &[0; 100]);
        }
        for number in 1..=3 {
            files.open(ValueFileId(number)).expect("there");
            assert_eq!(mem.open_files(), 1);
        }
        files.keep_all([ValueFileId(7)].into_iter());
        for number in (1..=20).chain(1..=20) {
            files.open(ValueFileId(number)).expect("a descriptor is left");
            assert!(mem.open_files() <= KEPT_SHARE, "{} files are open", mem.open_files());
        }
        assert_eq!(mem.open_files(), KEPT_SHARE);
    }
}
