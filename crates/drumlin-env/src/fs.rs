//! Files and directories.
//!
//! One set of calls serves the operating system and the simulated disk. `backend` chooses between the two. This module
//! holds what both share: it continues short transfers and repeats interrupted calls. The simulated disk counts every
//! call as an I/O call and records the file's kind and the caller's source location.
//!
//! No call is durable by itself. `sync_data` and `sync_all` cover the file's bytes and length. [`Fs::sync_dir`]
//! covers the entries of a directory. Closing a file covers nothing.

use std::fmt;
use std::io;
use std::panic::Location;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::backend::{Backend, RawFile, RawLock};
use crate::holders::Hold;
use crate::kinds::{Access, Caller, DirEntry, FileKind, FileStatus, Sync};
#[cfg(all(target_os = "linux", not(miri)))]
use crate::os::OsFile;

/// The file system of an [`crate::Env`].
#[derive(Clone, Debug)]
pub struct Fs {
    pub(crate) backend: Backend,
    /// Number of sync calls.
    pub(crate) syncs: Arc<AtomicU64>,
}

impl Fs {
    /// Creates a directory and its missing parents. The new entries become durable when their parent directories are
    /// synced.
    #[track_caller]
    pub fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let at = Location::caller();
        retry(|| self.backend.create_dir_all(dir, at))
    }

    /// Creates a new file for reading and writing. Fails when the name exists.
    #[track_caller]
    pub fn create(&self, path: &Path, kind: FileKind) -> io::Result<File> {
        self.open_with(path, kind, Access::Create, Location::caller())
    }

    /// Opens a file for reading.
    #[track_caller]
    pub fn open(&self, path: &Path, kind: FileKind) -> io::Result<File> {
        self.open_with(path, kind, Access::Read, Location::caller())
    }

    /// Opens a file for direct reads, past the page cache. Opens it as [`Fs::open`] does where the file system has
    /// none.
    #[track_caller]
    pub fn open_direct(&self, path: &Path, kind: FileKind) -> io::Result<File> {
        self.open_with(path, kind, Access::ReadDirect, Location::caller())
    }

    /// Opens an existing file for reading and writing.
    #[track_caller]
    pub fn open_write(&self, path: &Path, kind: FileKind) -> io::Result<File> {
        self.open_with(path, kind, Access::Write, Location::caller())
    }

    fn open_with(&self, path: &Path, kind: FileKind, access: Access, at: Caller) -> io::Result<File> {
        let raw = retry(|| self.backend.open(path, kind, access, at))?;
        Ok(self.file(path, raw))
    }

    fn file(&self, path: &Path, raw: RawFile) -> File {
        File { inner: Arc::new(Inner { path: path.to_owned(), raw, syncs: self.syncs.clone() }) }
    }

    /// Renames the file `from` to `to`, replacing an existing file.
    #[track_caller]
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let at = Location::caller();
        retry(|| self.backend.rename(from, to, at))
    }

    /// Renames an open file to `to`, replacing an existing file, and returns a handle with the new path. On the
    /// operating system the handle shares the open file and its mapping.
    #[track_caller]
    pub fn rename_open(&self, file: &File, to: &Path, kind: FileKind) -> io::Result<File> {
        let at = Location::caller();
        let shared = self.backend.share(&file.inner.raw)?;
        retry(|| self.backend.rename(file.path(), to, at))?;
        match shared {
            Some(raw) => Ok(self.file(to, raw)),
            None => self.open_with(to, kind, Access::Write, at),
        }
    }

    /// Adds `to` as a second name (hard link) of the file `from`. Fails when `to` exists.
    #[track_caller]
    pub fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let at = Location::caller();
        retry(|| self.backend.link(from, to, at))
    }

    /// Removes a file's directory entry. Open handles stay usable.
    #[track_caller]
    pub fn unlink(&self, path: &Path, kind: FileKind) -> io::Result<()> {
        let at = Location::caller();
        retry(|| self.backend.unlink(path, kind, at))
    }

    /// Removes an empty directory. Fails when it is not empty.
    #[track_caller]
    pub fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let at = Location::caller();
        retry(|| self.backend.remove_dir(dir, at))
    }

    /// Makes the entries of `dir` durable: all that were created, renamed, linked or removed before this call.
    #[track_caller]
    pub fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.syncs.fetch_add(1, Relaxed);
        let at = Location::caller();
        retry(|| self.backend.sync_dir(dir, at))
    }

    /// Returns the number of sync calls so far, of files and directories, including failed ones.
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Relaxed)
    }

    /// Returns the entries of `dir`, sorted. Omits names that are not UTF-8, since Drumlin creates none.
    #[track_caller]
    pub fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let at = Location::caller();
        retry(|| self.backend.list(dir, at))
    }

    /// Returns whether a file or directory has this name.
    #[track_caller]
    pub fn exists(&self, path: &Path) -> io::Result<bool> {
        let at = Location::caller();
        retry(|| self.backend.exists(path, at))
    }

    /// Returns the absolute path of `path` without `.`, `..` and symbolic links. Parts that do not exist stay as they
    /// are.
    pub fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        let mut real = PathBuf::new();
        for part in std::path::absolute(path)?.components() {
            match part {
                Component::ParentDir => drop(real.pop()),
                part => real.push(part),
            }
            if let Some(target) = self.backend.link_target(&real) {
                real = target;
            }
        }
        Ok(real)
    }

    /// Locks the file at `path` exclusively until the lock is dropped or the process ends. Creates a missing file.
    /// Returns `None` when this process or another one holds the lock.
    #[track_caller]
    pub fn lock(&self, path: &Path) -> io::Result<Option<FileLock>> {
        self.lock_as(path, Hold::Alone, Location::caller())
    }

    /// Locks the file at `path` in shared mode until the lock is dropped or the process ends. The file must exist;
    /// the call writes nothing. Returns `None` when this process or another one holds it by [`Fs::lock`].
    #[track_caller]
    pub fn lock_shared(&self, path: &Path) -> io::Result<Option<FileLock>> {
        self.lock_as(path, Hold::Shared, Location::caller())
    }

    fn lock_as(&self, path: &Path, hold: Hold, at: Caller) -> io::Result<Option<FileLock>> {
        let held = retry(|| self.backend.lock(path, hold, at))?;
        Ok(held.map(|held| FileLock { held }))
    }

    /// Returns the free bytes of the disk that holds `dir`.
    #[track_caller]
    pub fn free_space(&self, dir: &Path) -> io::Result<u64> {
        let at = Location::caller();
        retry(|| self.backend.free_space(dir, at))
    }

    /// Returns the length of the file at `path`.
    #[track_caller]
    pub fn file_len(&self, path: &Path) -> io::Result<u64> {
        let at = Location::caller();
        retry(|| self.backend.file_len(path, at))
    }
}

/// An open file. Clones share one handle; dropping the last one closes it.
#[derive(Clone)]
pub struct File {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    raw: RawFile,
    syncs: Arc<AtomicU64>,
}

impl File {
    /// Reads at `offset` into `buf`. May return fewer bytes before the end of the file; only 0 means the end.
    #[track_caller]
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.read_some(offset, buf, Location::caller())
    }

    fn read_some(&self, offset: u64, buf: &mut [u8], at: Caller) -> io::Result<usize> {
        self.inner.raw.wait(buf.len());
        retry(|| self.inner.raw.read_at(offset, buf, at))
    }

    /// Fills `buf` from `offset` on. Fails with [`io::ErrorKind::UnexpectedEof`] when the file ends earlier.
    #[track_caller]
    pub fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let at = Location::caller();
        let mut done = 0;
        while done < buf.len() {
            match self.read_some(advance(offset, done)?, &mut buf[done..], at)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => done += n,
            }
        }
        Ok(())
    }

    /// Returns the `len` bytes at `offset` in newly allocated memory. Fails with [`io::ErrorKind::UnexpectedEof`]
    /// when the file ends earlier.
    #[track_caller]
    pub fn read_shared(&self, offset: u64, len: usize) -> io::Result<Arc<[u8]>> {
        if let Some(bytes) = self.inner.raw.read_shared(offset, len)? {
            self.inner.raw.wait(len);
            return Ok(bytes);
        }
        let mut buffer: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
        match Arc::get_mut(&mut buffer) {
            Some(bytes) => self.read_exact_at(offset, bytes)?,
            None => return Err(io::Error::other("a new buffer has another owner")),
        }
        Ok(buffer)
    }

    /// Writes all of `data` at `offset`. After an error, any part of it may be written.
    #[track_caller]
    pub fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let at = Location::caller();
        self.write_parts(offset, data, |offset, part| self.inner.raw.write_at(offset, part, at))
    }

    /// Writes like [`write_at`](File::write_at), but by a system call even if the file is mapped. This is the faster
    /// way if a sync follows: a sync of a page that was changed through a mapping protects the page again, and the next
    /// copy into it is a page fault.
    #[track_caller]
    pub fn write_by_call_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let at = Location::caller();
        self.write_parts(offset, data, |offset, part| self.inner.raw.write_by_call_at(offset, part, at))
    }

    fn write_parts(
        &self,
        offset: u64,
        data: &[u8],
        write: impl Fn(u64, &[u8]) -> io::Result<usize>,
    ) -> io::Result<()> {
        self.inner.raw.wait(data.len());
        let mut done = 0;
        while done < data.len() {
            let from = advance(offset, done)?;
            match retry(|| write(from, &data[done..]))? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                n => done += n,
            }
        }
        Ok(())
    }

    /// Maps the file into memory, where the file system permits it. Later writes inside the file's present length
    /// then cost a copy instead of a system call, and cannot fail before the next sync.
    ///
    /// The file must be preallocated to its end and must not be truncated any more. No two threads may write to the
    /// same bytes at the same time. A process kill or power loss leaves the same as without a mapping. With `fetch`,
    /// the call reads in the data on disk now, so that no later write waits for it; a file that was only preallocated
    /// has no such data.
    pub fn map_writes(&self, fetch: bool) -> io::Result<()> {
        self.inner.raw.map_writes(fetch)
    }

    /// Returns whether [`map_writes`](File::map_writes) has mapped the file.
    pub fn is_mapped(&self) -> bool {
        self.inner.raw.is_mapped()
    }

    /// Prefaults a range of a mapped file for writing, so that later copies into it cause no page faults. The next sync
    /// writes the whole range, so call this only for a range that is about to be written. Returns `false`, having done
    /// nothing, where the system cannot do it, in a simulation, and for a file that is not mapped.
    pub fn prefault_writes(&self, offset: u64, len: u64) -> bool {
        self.inner.raw.prefault_writes(offset, len)
    }

    /// Preallocates space for the range and extends the file to the range's end with zeros. Keeps existing bytes.
    #[track_caller]
    pub fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let at = Location::caller();
        retry(|| self.inner.raw.allocate(offset, len, at))
    }

    /// Truncates the file to `len`, or extends it to `len` with zeros.
    #[track_caller]
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        let at = Location::caller();
        retry(|| self.inner.raw.set_len(len, at))
    }

    /// Returns the file's length in bytes.
    #[track_caller]
    #[expect(clippy::len_without_is_empty, reason = "a length that needs I/O is no collection's length")]
    pub fn len(&self) -> io::Result<u64> {
        let at = Location::caller();
        retry(|| self.inner.raw.len(at))
    }

    /// Makes earlier writes durable: their bytes and the length needed to read them, but not the directory entry.
    #[track_caller]
    pub fn sync_data(&self) -> io::Result<()> {
        self.inner.syncs.fetch_add(1, Relaxed);
        let at = Location::caller();
        retry(|| self.inner.raw.sync(Sync::Data, at))
    }

    /// Makes earlier writes to the range durable. A file without a memory mapping syncs all of its data, as
    /// [`File::sync_data`] does. The file's length must already be durable.
    #[track_caller]
    pub fn sync_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.syncs.fetch_add(1, Relaxed);
        let at = Location::caller();
        retry(|| self.inner.raw.sync_range(offset, len, at))
    }

    /// Asks the system to begin to write the range to the device, so that a later sync waits for less. Makes nothing
    /// durable, and does nothing where the system has no such call. The range should be new: data of it that are on the
    /// device already may leave the page cache.
    pub fn start_write_back(&self, offset: u64, len: u64) {
        self.inner.raw.start_write_back(offset, len);
    }

    /// Makes earlier writes durable, with all metadata of the file such as its times, but not the directory entry.
    #[track_caller]
    pub fn sync_all(&self) -> io::Result<()> {
        self.inner.syncs.fetch_add(1, Relaxed);
        let at = Location::caller();
        retry(|| self.inner.raw.sync(Sync::All, at))
    }

    /// Closes the file and returns the error of closing; some file systems report a failed write only here. While
    /// clones exist, only the last one closes the file.
    #[track_caller]
    pub fn close(self) -> io::Result<()> {
        let at = Location::caller();
        match Arc::into_inner(self.inner).map(|inner| inner.raw) {
            None => Ok(()),
            Some(raw) => raw.close(at),
        }
    }

    /// Returns the operating system's file; `None` in a simulated world.
    #[cfg(all(target_os = "linux", not(miri)))]
    pub(crate) fn os(&self) -> Option<&OsFile> {
        self.inner.raw.os()
    }

    /// Returns the present length of the file and whether it still has a name. The simulated disk does not count this
    /// call and injects no faults into it: it accompanies a call, such as a sync, that is counted.
    pub fn status(&self) -> io::Result<FileStatus> {
        self.inner.raw.status()
    }

    /// Returns the path that the file was opened by.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "File({})", self.inner.path.display())
    }
}

/// A held lock on a file. Dropping it releases the lock.
pub struct FileLock {
    held: RawLock,
}

impl FileLock {
    /// Returns whether the locked path still refers to the locked file. If not, the lock excludes nobody.
    pub fn is_in_place(&self) -> io::Result<bool> {
        self.held.is_in_place()
    }

    /// Returns the path that was locked.
    pub fn path(&self) -> &Path {
        self.held.path()
    }
}

impl fmt::Debug for FileLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileLock")
    }
}

fn advance(offset: u64, by: usize) -> io::Result<u64> {
    offset.checked_add(by as u64).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Repeats a call while a signal interrupts it.
fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}
