//! Table handles, and the one owner of the decision that a file is obsolete (order rule O9).
//!
//! Every version that refers to a table holds its handle. Once an installed edit leaves a table without
//! a reference, its handle is *retired*; when the last version that still holds it is dropped, the table
//! joins the queue of files to unlink. A maintenance step empties the queue.

use crate::error::Result;
use crate::table::{OpenTable, TableCache, TableSlot};
use drumlin_env::sync::{Arc, Mutex, atomic};
use drumlin_types::TableId;
use std::path::PathBuf;

/// A physical table: number and length, shared by every reference to it.
pub(crate) struct TableHandle {
    /// File number.
    pub(crate) id: TableId,
    /// Length of the file in bytes.
    pub(crate) len: u64,
    /// Leads to the open table.
    slot: TableSlot,
    retired: atomic::AtomicBool,
    queue: Arc<Obsolete>,
}

impl TableHandle {
    pub(crate) fn new(id: TableId, len: u64, queue: Arc<Obsolete>) -> Arc<TableHandle> {
        queue.bytes.fetch_add(len, atomic::Ordering::Relaxed);
        let slot = TableSlot::default();
        Arc::new(TableHandle { id, len, slot, retired: atomic::AtomicBool::new(false), queue })
    }

    /// The table, opened if it is not open.
    #[inline]
    pub(crate) fn open(&self, tables: &TableCache) -> Result<OpenTable> {
        tables.get(self.id, self.len, &self.slot)
    }

    /// No installed version refers to the table any more.
    pub(crate) fn retire(&self) {
        self.retired.store(true, atomic::Ordering::Release);
    }
}

impl Drop for TableHandle {
    fn drop(&mut self) {
        if *self.retired.get_mut() {
            self.queue.push_table(self.id, self.len);
        } else {
            self.queue.bytes.fetch_sub(self.len, atomic::Ordering::Relaxed);
        }
    }
}

impl std::fmt::Debug for TableHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.id)
    }
}

/// What may be unlinked: retired tables that nobody reads.
#[derive(Default)]
pub(crate) struct Obsolete {
    tables: Mutex<Vec<(TableId, u64)>>,
    files: Mutex<Vec<PathBuf>>,
    /// Bytes of all tables, those that wait here included.
    bytes: atomic::AtomicU64,
}

impl Obsolete {
    fn push_table(&self, id: TableId, len: u64) {
        self.tables.lock().push((id, len));
    }

    /// Queues another file, by path.
    pub(crate) fn push_file(&self, path: PathBuf) {
        self.files.lock().push(path);
    }

    /// The next table that may go now.
    pub(crate) fn next_table(&self) -> Option<(TableId, u64)> {
        let next = self.tables.lock().pop();
        if let Some((_, len)) = next {
            self.bytes.fetch_sub(len, atomic::Ordering::Relaxed);
        }
        next
    }

    /// Bytes of all finished tables on disk.
    pub(crate) fn bytes_on_disk(&self) -> u64 {
        self.bytes.load(atomic::Ordering::Relaxed)
    }

    /// The next other file that may go now.
    pub(crate) fn next_file(&self) -> Option<PathBuf> {
        self.files.lock().pop()
    }

    /// Takes the other files that may go now.
    pub(crate) fn take_files(&self) -> Vec<PathBuf> {
        std::mem::take(&mut *self.files.lock())
    }

    /// Whether nothing waits to be unlinked.
    pub(crate) fn is_empty(&self) -> bool {
        self.tables.lock().is_empty() && self.files.lock().is_empty()
    }
}
