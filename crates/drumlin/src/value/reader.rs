//! Reads values from value files.
//!
//! A value file stays open after its first read; at most [`OPEN_FILES`] are. A caller holds a tree with the pointer
//! that it follows, so the file is not unlinked meanwhile. Every read verifies the checksum of the whole record, which
//! is bound to key, sequence number and place.

use crate::base::SET_ASIDE;
use crate::base::error::{Error, Result};
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
    /// Number of the last read.
    used: u64,
}

#[derive(Default)]
struct OpenFiles {
    files: BTreeMap<ValueFileId, OpenFile>,
    reads: u64,
}

/// The value files of a directory.
pub(crate) struct ValueFiles {
    env: Env,
    dir: PathBuf,
    open: Mutex<OpenFiles>,
    /// Whether a missing file may be one that was set aside.
    reads_set_aside: bool,
}

impl ValueFiles {
    pub(crate) fn new(env: Env, dir: PathBuf) -> Arc<ValueFiles> {
        Arc::new(ValueFiles { env, dir, open: Mutex::default(), reads_set_aside: false })
    }

    /// Returns the value files of a damaged store, with those that an open set aside.
    pub(crate) fn damaged(env: Env, dir: PathBuf) -> ValueFiles {
        ValueFiles { env, dir, open: Mutex::default(), reads_set_aside: true }
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
            return Err(Error::corruption(&self.dir, 0, "a value was collected although a reader sees it"));
        };
        self.with_record(&place, key, seq, value_of)
    }

    /// Reads and verifies the record at `place`, of the version `seq` of `key`, and returns what `take` makes of its
    /// bytes.
    pub(super) fn with_record<T>(
        &self,
        place: &Place,
        key: &[u8],
        seq: Seq,
        take: impl FnOnce(&Arc<[u8]>, Record<'_>) -> std::result::Result<T, Corruption>,
    ) -> Result<T> {
        let open = self.open(place.file)?;
        let offset = place.record.offset;
        let damaged = |damage: Corruption| Error::corruption(&open.path, damage.offset, damage.what);
        // A pointer may be intact and wrong. No memory is spent on a record that cannot exist.
        if place.record.end() > open.len {
            return Err(damaged(Corruption::new("a value lies behind the end of its file", offset)));
        }
        let bytes = open.file.read_shared(offset, place.record.record_len() as usize);
        let bytes = bytes.map_err(|error| Error::io(&open.path, "cannot read a value", error))?;
        let version = RecordKey { file_id: place.file.0, offset, key, seq };
        let record = Record::decode(&bytes, &version).map_err(damaged)?;
        if record.raw_len != place.record.raw_len {
            return Err(damaged(Corruption::new("a value has another length than its pointer says", offset)));
        }
        take(&bytes, record).map_err(|damage| damaged(Corruption::new(damage.what, offset)))
    }

    /// Forgets a value file that is about to be unlinked.
    pub(crate) fn remove(&self, id: ValueFileId) {
        let removed = self.open.lock().files.remove(&id);
        drop(removed);
    }

    fn open(&self, id: ValueFileId) -> Result<OpenFile> {
        let mut open = self.open.lock();
        open.reads += 1;
        let reads = open.reads;
        if let Some(found) = open.files.get_mut(&id) {
            found.used = reads;
            return Ok(found.clone());
        }
        drop(open);
        let mut path = self.path(id);
        if self.reads_set_aside && !self.env.fs().exists(&path).unwrap_or(true) {
            path.as_mut_os_string().push(SET_ASIDE);
        }
        let failed = |error| Error::io(&path, "cannot open a value file", error);
        let file = self.env.fs().open(&path, FileKind::Value).map_err(failed)?;
        let len = file.len().map_err(failed)?;
        let opened = OpenFile { file: Arc::new(file), path: Arc::new(path), len, used: reads };
        let mut open = self.open.lock();
        if open.files.len() >= OPEN_FILES {
            let oldest = open.files.iter().min_by_key(|(_, file)| file.used).map(|(id, _)| *id);
            let closed = oldest.and_then(|id| open.files.remove(&id));
            open.files.insert(id, opened.clone());
            drop(open);
            drop(closed);
            return Ok(opened);
        }
        open.files.insert(id, opened.clone());
        Ok(opened)
    }
}

/// Returns the value of `record`, which ends the buffer `bytes`.
fn value_of(bytes: &Arc<[u8]>, record: Record<'_>) -> std::result::Result<Slice, Corruption> {
    if record.codec == Compression::None {
        let start = bytes.len() - record.stored.len();
        return Ok(Slice::new(bytes.clone()).skip(start));
    }
    let mut value = vec![0; record.raw_len as usize];
    Decompressor::new().decompress(record.codec, record.stored, &mut value)?;
    Ok(Slice::from(value))
}
