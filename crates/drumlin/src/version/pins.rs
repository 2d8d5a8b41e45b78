//! Table handles, and the one owner of the decision that a file is obsolete (order rule O9).
//!
//! Every tree that refers to a table holds its handle. When a durable edit removes the last reference to a table, the
//! handle is *retired*. When the last tree that still holds the handle is dropped, the table joins the queue of files
//! to unlink. A maintenance step empties the queue. A file that cannot be unlinked is tried again later.

use crate::base::epoch::{Epochs, Pin};
use crate::base::error::Result;
use crate::table::{OpenTable, Table, TableCache, TablePointer};
use drumlin_env::sync::{Arc, Mutex, Weak, atomic};
use drumlin_types::{TableId, ValueFileId};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// A physical table: its number and length, shared by every reference to it.
pub(crate) struct TableHandle {
    /// File number.
    pub(crate) id: TableId,
    /// Length of the file in bytes.
    pub(crate) len: u64,
    /// Cached pointer to the open table.
    pointer: TablePointer,
    retired: atomic::AtomicBool,
    queue: Arc<Obsolete>,
}

impl TableHandle {
    pub(crate) fn new(id: TableId, len: u64, queue: Arc<Obsolete>) -> Arc<TableHandle> {
        queue.bytes.fetch_add(len, atomic::Ordering::Relaxed);
        let pointer = TablePointer::new(&queue.epochs);
        Arc::new(TableHandle { id, len, pointer, retired: atomic::AtomicBool::new(false), queue })
    }

    /// Returns the open table, opening it if necessary. The caller is not pinned.
    pub(crate) fn open(&self, tables: &TableCache) -> Result<Arc<Table>> {
        tables.open(self.id, self.len, &self.pointer)
    }

    /// Returns the open table to a pinned reader, opening it if necessary.
    ///
    /// # Errors
    /// [`TooManyFiles`](crate::ErrorKind::TooManyFiles) if no file handle is left. A call of `open` without a pin may
    /// succeed, since it closes other tables.
    #[inline]
    pub(crate) fn open_pinned<'p>(&'p self, tables: &TableCache, pin: &'p Pin<'_>) -> Result<OpenTable<'p>> {
        tables.get(self.id, self.len, &self.pointer, pin)
    }

    /// Returns the table, if it is open.
    pub(crate) fn peek<'p>(&'p self, pin: &'p Pin<'_>) -> Option<&'p Table> {
        self.pointer.peek(pin)
    }

    /// Retires the table: the durable manifest no longer refers to it. It is unlinked when the last tree that holds the
    /// handle is dropped.
    pub(crate) fn retire(self: &Arc<Self>) {
        self.retired.store(true, atomic::Ordering::Release);
        self.queue.retired.lock().push(Arc::downgrade(self));
    }
}

impl Drop for TableHandle {
    fn drop(&mut self) {
        if *self.retired.get_mut() {
            self.queue.push(ObsoleteFile::Table(self.id), self.len);
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

/// Retired tables, with those that are gone swept out whenever the list has doubled. So retiring many tables at once
/// takes time in proportion to their number.
#[derive(Default)]
struct RetiredTables {
    handles: Vec<Weak<TableHandle>>,
    sweep_at: usize,
}

impl RetiredTables {
    fn push(&mut self, handle: Weak<TableHandle>) {
        if self.handles.len() >= self.sweep_at {
            self.handles.retain(|handle| handle.strong_count() > 0);
            self.sweep_at = (self.handles.len() * 2).max(64);
        }
        self.handles.push(handle);
    }
}

/// A file that may be unlinked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ObsoleteFile {
    Table(TableId),
    Value(ValueFileId),
    Other(PathBuf),
}

/// A queued file.
struct Queued {
    file: ObsoleteFile,
    /// Bytes that count until the file is gone.
    len: u64,
    /// Number of failed attempts, and the monotonic time of the next one in microseconds.
    attempts: u32,
    due: u64,
}

/// Delay of the second attempt to unlink a file, in microseconds. It doubles up to `RETRY_LAST`.
const RETRY_FIRST: u64 = 1_000_000;
const RETRY_LAST: u64 = 60_000_000;

/// Time of the next attempt while one is under way.
const UNLINKING: u64 = u64::MAX;

/// Files that may be unlinked: retired tables that nobody reads, and other files. A file leaves the queue when it is
/// unlinked. Until then its bytes count.
pub(crate) struct Obsolete {
    /// Epochs that readers of the tables pin.
    pub(crate) epochs: Arc<Epochs>,
    queue: Mutex<Vec<Queued>>,
    /// Retired tables that may still be read.
    retired: Mutex<RetiredTables>,
    /// Retired value files that may still be read.
    retired_values: Mutex<BTreeSet<ValueFileId>>,
    /// Bytes of all tables, and of other files that are queued here.
    bytes: atomic::AtomicU64,
}

impl Default for Obsolete {
    fn default() -> Obsolete {
        Obsolete {
            epochs: Epochs::new(),
            queue: Mutex::default(),
            retired: Mutex::default(),
            retired_values: Mutex::default(),
            bytes: atomic::AtomicU64::new(0),
        }
    }
}

impl Obsolete {
    /// Adds a file to the bytes on disk.
    pub(super) fn add(&self, len: u64) {
        self.bytes.fetch_add(len, atomic::Ordering::Relaxed);
    }

    /// Subtracts the bytes of a file whose handle is dropped while the store keeps the file.
    pub(super) fn forget(&self, len: u64) {
        self.bytes.fetch_sub(len, atomic::Ordering::Relaxed);
    }

    fn push(&self, file: ObsoleteFile, len: u64) {
        self.queue.lock().push(Queued { file, len, attempts: 0, due: 0 });
    }

    /// Queues another file, by path. Its `len` bytes count until it is unlinked.
    pub(crate) fn push_file(&self, path: PathBuf, len: u64) {
        self.bytes.fetch_add(len, atomic::Ordering::Relaxed);
        self.push(ObsoleteFile::Other(path), len);
    }

    /// Returns the next file to unlink at `now`. It stays queued, but is returned only once until the result is
    /// recorded by [`removed`](Obsolete::removed) or [`failed`](Obsolete::failed).
    pub(crate) fn next(&self, now: u64) -> Option<ObsoleteFile> {
        let mut queue = self.queue.lock();
        let queued = queue.iter_mut().rfind(|queued| queued.due <= now)?;
        queued.due = UNLINKING;
        Some(queued.file.clone())
    }

    /// Records that `file` is unlinked.
    pub(crate) fn removed(&self, file: &ObsoleteFile) {
        let mut queue = self.queue.lock();
        if let Some(at) = queue.iter().rposition(|queued| queued.file == *file) {
            let Queued { len, .. } = queue.swap_remove(at);
            drop(queue);
            self.bytes.fetch_sub(len, atomic::Ordering::Relaxed);
        }
    }

    /// Records that `file` could not be unlinked at `now`. Returns the number of failed attempts and the time of the
    /// next one.
    pub(crate) fn failed(&self, file: &ObsoleteFile, now: u64) -> Option<(u32, u64)> {
        let mut queue = self.queue.lock();
        if drumlin_types::bug!("failed-unlink-not-counted") {
            let at = queue.iter().rposition(|queued| queued.file == *file)?;
            self.bytes.fetch_sub(queue.swap_remove(at).len, atomic::Ordering::Relaxed);
            return None;
        }
        let queued = queue.iter_mut().rfind(|queued| queued.file == *file)?;
        queued.due = now.saturating_add((RETRY_FIRST << queued.attempts.min(6)).min(RETRY_LAST));
        queued.attempts += 1;
        Some((queued.attempts, queued.due))
    }

    /// Returns the time of the next attempt after a failure.
    pub(crate) fn next_retry(&self) -> Option<u64> {
        let queue = self.queue.lock();
        let waits = |queued: &&Queued| queued.attempts > 0 && queued.due < UNLINKING;
        queue.iter().filter(waits).map(|queued| queued.due).min()
    }

    /// Returns the bytes of all finished tables on disk, and of other files that wait to be unlinked.
    pub(crate) fn bytes_on_disk(&self) -> u64 {
        self.bytes.load(atomic::Ordering::Relaxed)
    }

    /// Takes all other files that may be unlinked. The caller unlinks them.
    pub(crate) fn take_files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        self.queue.lock().retain(|queued| match &queued.file {
            ObsoleteFile::Table(_) | ObsoleteFile::Value(_) => true,
            ObsoleteFile::Other(path) => {
                self.bytes.fetch_sub(queued.len, atomic::Ordering::Relaxed);
                files.push(path.clone());
                false
            }
        });
        files
    }

    /// Notes that a value file is retired.
    pub(super) fn retire_value(&self, id: ValueFileId) {
        self.retired_values.lock().insert(id);
    }

    /// Queues a retired value file that nobody reads any more.
    pub(super) fn push_value(&self, id: ValueFileId, len: u64) {
        self.retired_values.lock().remove(&id);
        self.push(ObsoleteFile::Value(id), len);
    }

    /// Returns the retired value files that are still read.
    pub(crate) fn pinned_values(&self) -> Vec<ValueFileId> {
        self.retired_values.lock().iter().copied().collect()
    }

    /// Returns the retired tables that are still read.
    pub(crate) fn pinned(&self) -> Vec<Arc<TableHandle>> {
        self.retired.lock().handles.iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns whether every queued file has been tried in vain.
    pub(crate) fn all_tried(&self) -> bool {
        self.queue.lock().iter().all(|queued| queued.attempts > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_until_the_file_is_gone() {
        let queue = Arc::new(Obsolete::default());
        let handle = TableHandle::new(TableId(1), 100, queue.clone());
        handle.retire();
        assert_eq!(queue.next(0), None, "a version holds it");
        drop(handle);
        queue.push_file("log".into(), 10);
        assert!(!queue.all_tried());
        let other = queue.next(0).expect("a file");
        assert_eq!((&other, queue.bytes_on_disk()), (&ObsoleteFile::Other("log".into()), 110));
        let table = queue.next(0).expect("a table");
        assert_eq!(queue.next(0), None, "each is in one hand");
        queue.removed(&other);
        assert_eq!(queue.bytes_on_disk(), 100);
        let mut now = 0;
        let mut delays = Vec::new();
        for attempts in 1..9 {
            let (failed, due) = queue.failed(&table, now).expect("it is queued");
            assert_eq!((failed, queue.next_retry()), (attempts, Some(due)));
            assert_eq!(queue.next(due - 1), None);
            assert_eq!(queue.next(due), Some(table.clone()));
            delays.push((due - now) / RETRY_FIRST);
            now = due;
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert!(queue.all_tried() && queue.bytes_on_disk() == 100, "nobody waits for it, but it counts");
        queue.removed(&table);
        assert_eq!((queue.bytes_on_disk(), queue.next(u64::MAX - 1)), (0, None));
    }
}
