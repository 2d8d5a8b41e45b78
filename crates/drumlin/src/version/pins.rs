//! Table handles, and the one owner of the decision that a file is obsolete (order rule O9).
//!
//! Every version that refers to a table holds its handle. When an installed edit removes the last reference to a table,
//! the handle is *retired*. When the last version that still holds the handle is dropped, the table joins the queue of
//! files to unlink. A maintenance step empties the queue.

use crate::base::error::Result;
use crate::table::{OpenTable, TableCache, TableSlot};
use drumlin_env::sync::{Arc, Mutex, Weak, atomic};
use drumlin_types::TableId;
use std::path::PathBuf;

/// A physical table: its number and length, shared by every reference to it.
pub(crate) struct TableHandle {
    /// File number.
    pub(crate) id: TableId,
    /// Length of the file in bytes.
    pub(crate) len: u64,
    /// Slot that caches the open table.
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

    /// Returns the open table, opening it if necessary.
    #[inline]
    pub(crate) fn open(&self, tables: &TableCache) -> Result<OpenTable> {
        tables.get(self.id, self.len, &self.slot)
    }

    /// Marks the table as retired: no installed version refers to it any more.
    pub(crate) fn retire(self: &Arc<Self>) {
        self.retired.store(true, atomic::Ordering::Release);
        let mut retired = self.queue.retired.lock();
        retired.retain(|handle| handle.strong_count() > 0);
        retired.push(Arc::downgrade(self));
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

/// Files that may be unlinked: retired tables that nobody reads, and other files.
#[derive(Default)]
pub(crate) struct Obsolete {
    tables: Mutex<Vec<(TableId, u64)>>,
    files: Mutex<Vec<PathBuf>>,
    /// Retired tables that may still be read.
    retired: Mutex<Vec<Weak<TableHandle>>>,
    /// Bytes of all tables, including those queued here.
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

    /// Takes the next table that may be unlinked.
    pub(crate) fn next_table(&self) -> Option<(TableId, u64)> {
        let next = self.tables.lock().pop();
        if let Some((_, len)) = next {
            self.bytes.fetch_sub(len, atomic::Ordering::Relaxed);
        }
        next
    }

    /// Returns the bytes of all finished tables on disk.
    pub(crate) fn bytes_on_disk(&self) -> u64 {
        self.bytes.load(atomic::Ordering::Relaxed)
    }

    /// Takes the next other file that may be unlinked.
    pub(crate) fn next_file(&self) -> Option<PathBuf> {
        self.files.lock().pop()
    }

    /// Takes all other files that may be unlinked.
    pub(crate) fn take_files(&self) -> Vec<PathBuf> {
        std::mem::take(&mut *self.files.lock())
    }

    /// Returns the retired tables that are still read.
    pub(crate) fn pinned(&self) -> Vec<Arc<TableHandle>> {
        self.retired.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns whether no file is queued.
    pub(crate) fn is_empty(&self) -> bool {
        self.tables.lock().is_empty() && self.files.lock().is_empty()
    }
}
