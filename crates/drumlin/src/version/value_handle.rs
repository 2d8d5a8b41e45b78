//! Handles of value files.
//!
//! Every table that points to a value file holds its handle. When a durable edit removes the last table in the tree
//! that points to the file, the handle is *retired*. When the last tree that still holds such a table is dropped, the
//! file joins the queue of files to unlink ([`Obsolete`]).

use super::pins::Obsolete;
use drumlin_env::sync::{Arc, atomic};
use drumlin_format::manifest::{ValueFileRecord, ValueRef};
use drumlin_types::ValueFileId;

/// A value file, shared by every reference to it.
pub(crate) struct ValueFileHandle {
    record: ValueFileRecord,
    retired: atomic::AtomicBool,
    queue: Arc<Obsolete>,
}

impl ValueFileHandle {
    pub(crate) fn new(record: ValueFileRecord, queue: Arc<Obsolete>) -> Arc<ValueFileHandle> {
        queue.add(record.file_len);
        Arc::new(ValueFileHandle { record, retired: atomic::AtomicBool::new(false), queue })
    }

    pub(crate) fn id(&self) -> ValueFileId {
        self.record.file
    }

    /// Returns the manifest's record of the file.
    pub(crate) fn record(&self) -> &ValueFileRecord {
        &self.record
    }

    /// Retires the file: the durable manifest no longer refers to it. It is unlinked when the last tree that holds the
    /// handle is dropped.
    pub(crate) fn retire(&self) {
        self.retired.store(true, atomic::Ordering::Release);
        self.queue.retire_value(self.record.file);
    }
}

impl Drop for ValueFileHandle {
    fn drop(&mut self) {
        if *self.retired.get_mut() {
            self.queue.push_value(self.record.file, self.record.file_len);
        } else {
            self.queue.forget(self.record.file_len);
        }
    }
}

/// What a table holds of a value file.
#[derive(Clone)]
pub(crate) struct ValueFileUse {
    pub(crate) file: Arc<ValueFileHandle>,
    /// Number of entries that point to it.
    pub(crate) entries: u64,
    /// Bytes of the records that they point to.
    pub(crate) bytes: u64,
}

impl ValueFileUse {
    pub(crate) fn reference(&self) -> ValueRef {
        ValueRef { file: self.file.id(), entries: self.entries, bytes: self.bytes }
    }
}
