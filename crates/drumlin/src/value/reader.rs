//! Reads values from value files.
//!
//! A value file stays open after its first read. At most [`OPEN_FILES`] are open, and at most an eighth of the files
//! that the process may open. When no descriptor is left, all of them are closed. A caller holds a tree with the
//! pointer that it follows, so the file is not unlinked meanwhile. Every read verifies the checksum of the whole
//! record, which is bound to key, sequence number and place.

use crate::base::SET_ASIDE;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::resolve::PointerReader;
use crate::base::slice::Slice;
use drumlin_env::sync::{Arc, Mutex};
use drumlin_env::{Env, File, FileKind};
use drumlin_format::compression::{Compression, Decompressor};
use drumlin_format::error::Corruption;
use drumlin_format::names::FileName;
use drumlin_format::value::{Place, Record, RecordKey, ValuePointer};
use drumlin_types::{Seq, ValueFileId};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Maximum number of open value files.
const OPEN_FILES: usize = 256;

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
}

impl ValueFiles {
    pub(crate) fn new(env: Env, dir: PathBuf) -> Arc<ValueFiles> {
        Arc::new(ValueFiles { reads_set_aside: false, ..ValueFiles::damaged(env, dir) })
    }

    /// Returns the value files of a damaged store, with those that an open set aside.
    pub(crate) fn damaged(env: Env, dir: PathBuf) -> ValueFiles {
        let limit =
            env.open_file_limit().map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let most_open = (limit / 8).clamp(1, OPEN_FILES);
        ValueFiles { env, dir, open: Mutex::default(), most_open, reads_set_aside: true }
    }

    /// Returns the path of a value file.
    pub(crate) fn path(&self, id: ValueFileId) -> PathBuf {
        self.dir.join(FileName::Value(id).to_string())
    }

    /// Returns the function that follows value pointers.
    pub(crate) fn reader(self: &Arc<Self>) -> Arc<PointerReader> {
        let files = Arc::clone(self);
        Arc::new(move |key, seq, pointer| files.read(key, seq, pointer))
    }

    /// Returns the value that the encoded `pointer`, the version `seq` of `key`, refers to.
    pub(crate) fn read(&self, key: &[u8], seq: Seq, pointer: &[u8]) -> Result<Slice> {
        let pointer = ValuePointer::decode_without_history(pointer);
        let pointer = pointer.map_err(|damage| Error::corruption(&self.dir, 0, damage.what))?;
        let Some(place) = pointer.place else {
            return Err(Error::corruption(&self.dir, 0, "a value pointer that a reader sees has no place"));
        };
        self.read_record(&place, key, seq)?.value()
    }

    /// Reads and verifies the record at `place`, which holds the version `seq` of `key`.
    pub(super) fn read_record(&self, place: &Place, key: &[u8], seq: Seq) -> Result<StoredValue> {
        let open = self.open(place.file)?;
        let offset = place.record.offset;
        let damaged = |damage: Corruption| Error::corruption(&open.path, damage.offset, damage.what);
        // A pointer may be intact and wrong. No memory is spent on a record that cannot exist.
        if place.record.end() > open.len {
            let what = "a value pointer reaches past the end of its value file";
            return Err(damaged(Corruption::new(what, offset)));
        }
        let bytes = open.file.read_shared(offset, place.record.record_len() as usize);
        let bytes = bytes.map_err(|error| Error::io(&open.path, "cannot read a value", error))?;
        let version = RecordKey { file_id: place.file.0, offset, key, seq };
        let record = Record::decode(&bytes, &version).map_err(damaged)?;
        if record.raw_len != place.record.raw_len {
            return Err(damaged(Corruption::new("the length of a value differs from its pointer", offset)));
        }
        let (codec, raw_len, start) = (record.codec, record.raw_len, bytes.len() - record.stored.len());
        Ok(StoredValue { codec, raw_len, stored: Slice::new(bytes).skip(start), path: open.path, offset })
    }

    /// Forgets a value file that is about to be unlinked.
    pub(crate) fn remove(&self, id: ValueFileId) {
        let removed = self.open.lock().files.remove(&id);
        drop(removed);
    }

    /// Opens the files `ids` and lets all files stay open, since the next open of the store may remove them. Ignores a
    /// file that cannot be opened.
    pub(crate) fn keep_all(&self, ids: impl Iterator<Item = ValueFileId>) {
        self.open.lock().keeps_all = true;
        ids.for_each(|id| drop(self.open(id)));
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
