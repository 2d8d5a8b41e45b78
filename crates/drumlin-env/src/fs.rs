//! Files and directories.
//!
//! One set of calls over two worlds: the operating system and the simulated disk. What both share is written
//! here once: transfers that end early are continued, and interrupted calls are made again. Every call takes
//! part in the simulated disk's count of I/O calls, with the file's kind and the caller's place in the
//! source.
//!
//! Nothing is durable by itself. `sync_data` and `sync_all` cover the file's bytes and length,
//! [`Fs::sync_dir`] covers the names in a directory, and closing covers nothing.

use std::fmt;
use std::io;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::env::Backend;
use crate::holders::Hold;
use crate::mem::{MemFile, MemLock};
use crate::os::{self, OsFile, OsLock};
use crate::slow::Slow;

/// What a file is for. The simulated disk injects faults and counts sites by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// A segment of the write-ahead log.
    Log,
    /// A sorted table.
    Table,
    /// A value file.
    Value,
    /// A map of moved values.
    Map,
    /// A manifest.
    Manifest,
    /// The file that names the current manifest.
    Pointer,
    /// The file whose lock keeps other processes out.
    Lock,
    /// Anything that is renamed or thrown away before it counts.
    Temp,
    /// A file of the decision log.
    Decisions,
}

impl FileKind {
    /// Every kind.
    pub const ALL: [FileKind; 9] = [
        FileKind::Log,
        FileKind::Table,
        FileKind::Value,
        FileKind::Map,
        FileKind::Manifest,
        FileKind::Pointer,
        FileKind::Lock,
        FileKind::Temp,
        FileKind::Decisions,
    ];
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileKind::Log => "log",
            FileKind::Table => "table",
            FileKind::Value => "value",
            FileKind::Map => "map",
            FileKind::Manifest => "manifest",
            FileKind::Pointer => "pointer",
            FileKind::Lock => "lock",
            FileKind::Temp => "temp",
            FileKind::Decisions => "decisions",
        })
    }
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// The last part of the path.
    pub name: String,
    /// Length in bytes; 0 for a directory.
    pub len: u64,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// The file system of an [`crate::Env`].
#[derive(Clone, Debug)]
pub struct Fs {
    pub(crate) backend: Backend,
    /// Calls that made something last.
    pub(crate) syncs: Arc<AtomicU64>,
}

impl Fs {
    /// Makes a directory and its missing parents. Their names last once the directories that hold them are
    /// synced.
    #[track_caller]
    pub fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let at = Location::caller();
        retry(|| match &self.backend {
            Backend::Os(_) => os::create_dir_all(dir),
            Backend::Mem(mem) => mem.create_dir_all(dir, at),
        })
    }

    /// Makes a new file for reading and writing; fails when the name is taken.
    #[track_caller]
    pub fn create(&self, path: &Path, kind: FileKind) -> io::Result<File> {
        self.open_with(path, kind, Access::Create, Location::caller())
    }

    /// Opens a file for reading.
    #[track_caller]
    pub fn open(&self, path: &Path, kind: FileKind) -> io::Result<File> {
        self.open_with(path, kind, Access::Read, Location::caller())
    }

    /// Opens a file for reading past the page cache, where the file system lets one; elsewhere as [`Fs::open`].
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
        let raw = retry(|| match &self.backend {
            Backend::Os(_) => OsFile::open(path, access).map(|file| Raw::Os(Arc::new(file))),
            Backend::Mem(mem) => MemFile::open(mem, path, kind, access, at).map(Raw::Mem),
        })?;
        let slow = match &self.backend {
            Backend::Os(Some(slow)) => Some((slow.clone(), kind)),
            _ => None,
        };
        Ok(File { inner: Arc::new(Inner { path: path.to_owned(), raw, syncs: self.syncs.clone(), slow }) })
    }

    /// Gives the file at `from` the name `to`, replacing a file that has it.
    #[track_caller]
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let at = Location::caller();
        retry(|| match &self.backend {
            Backend::Os(_) => os::rename(from, to),
            Backend::Mem(mem) => mem.rename(from, to, at),
        })
    }

    /// Gives an open file the name `to`, replacing a file that has it, and gives a handle by that name. Where the
    /// system lets one it is the same open file, with its mapping.
    #[track_caller]
    pub fn rename_open(&self, file: &File, to: &Path, kind: FileKind) -> io::Result<File> {
        let at = Location::caller();
        match (&self.backend, &file.inner.raw) {
            (Backend::Os(_), Raw::Os(raw)) => {
                retry(|| os::rename(file.path(), to))?;
                let syncs = self.syncs.clone();
                let slow = file.inner.slow.clone();
                let inner = Inner { path: to.to_owned(), raw: Raw::Os(raw.clone()), syncs, slow };
                Ok(File { inner: Arc::new(inner) })
            }
            (Backend::Mem(mem), _) => {
                retry(|| mem.rename(file.path(), to, at))?;
                self.open_with(to, kind, Access::Write, at)
            }
            (Backend::Os(_), Raw::Mem(_)) => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Gives the file at `from` a second name; fails when `to` is taken.
    #[track_caller]
    pub fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let at = Location::caller();
        retry(|| match &self.backend {
            Backend::Os(_) => os::link(from, to),
            Backend::Mem(mem) => mem.link(from, to, at),
        })
    }

    /// Removes a file's name. Open handles go on working.
    #[track_caller]
    pub fn unlink(&self, path: &Path, kind: FileKind) -> io::Result<()> {
        let at = Location::caller();
        retry(|| match &self.backend {
            Backend::Os(_) => os::unlink(path),
            Backend::Mem(mem) => mem.unlink(path, kind, at),
        })
    }

    /// Makes the names in `dir` last: those created, renamed, linked and removed before this call.
    #[track_caller]
    pub fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.syncs.fetch_add(1, Relaxed);
        let at = Location::caller();
        retry(|| match &self.backend {
            Backend::Os(_) => os::sync_dir(dir),
            Backend::Mem(mem) => mem.sync_dir(dir, at),
        })
    }

    /// Calls so far that made files or names last, whether they succeeded or not.
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Relaxed)
    }

    /// The names in `dir`, sorted. Names that are not UTF-8 are left out: this project makes none.
    #[track_caller]
    pub fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let at = Location::caller();
        retry(|| match &self.backend {
            Backend::Os(_) => os::list(dir),
            Backend::Mem(mem) => mem.list(dir, at),
        })
    }

    /// Whether a file or directory has this name.
    #[track_caller]
    pub fn exists(&self, path: &Path) -> io::Result<bool> {
        let at = Location::caller();
        retry(|| match &self.backend {
            Backend::Os(_) => os::exists(path),
            Backend::Mem(mem) => mem.exists(path, at),
        })
    }

    /// Locks the file at `path`, made if it is missing, until the lock is dropped or its process ends. `None`
    /// when this process or another one holds it.
    #[track_caller]
    pub fn lock(&self, path: &Path) -> io::Result<Option<FileLock>> {
        self.lock_as(path, Hold::Alone, Location::caller())
    }

    /// Locks the file at `path`, which must exist, beside others who call this, until the lock is dropped or its
    /// process ends. Writes nothing. `None` when this process or another one holds it by [`Fs::lock`].
    #[track_caller]
    pub fn lock_shared(&self, path: &Path) -> io::Result<Option<FileLock>> {
        self.lock_as(path, Hold::Shared, Location::caller())
    }

    fn lock_as(&self, path: &Path, hold: Hold, at: Caller) -> io::Result<Option<FileLock>> {
        retry(|| match &self.backend {
            Backend::Os(_) => Ok(os::lock(path, hold)?.map(|lock| FileLock { _held: Held::Os(lock) })),
            Backend::Mem(mem) => {
                Ok(mem.lock(path, hold, at)?.map(|lock| FileLock { _held: Held::Mem(lock) }))
            }
        })
    }

    /// Bytes that can still be written to the disk that holds `dir`.
    #[track_caller]
    pub fn free_space(&self, dir: &Path) -> io::Result<u64> {
        let at = Location::caller();
        retry(|| match &self.backend {
            Backend::Os(_) => os::free_space(dir),
            Backend::Mem(mem) => mem.free_space(dir, at),
        })
    }

    /// The length of the file at `path`.
    #[track_caller]
    pub fn file_len(&self, path: &Path) -> io::Result<u64> {
        let at = Location::caller();
        retry(|| match &self.backend {
            Backend::Os(_) => os::file_len(path),
            Backend::Mem(mem) => mem.file_len(path, at),
        })
    }
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Create,
    Read,
    ReadDirect,
    Write,
}

/// The place in the source that made a call.
pub(crate) type Caller = &'static Location<'static>;

/// An open file. Clones share one handle; the last one to go closes it.
#[derive(Clone)]
pub struct File {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    raw: Raw,
    syncs: Arc<AtomicU64>,
    /// Set on a slowed device.
    slow: Option<(Arc<Slow>, FileKind)>,
}

enum Raw {
    /// Shared with handles by a later name.
    Os(Arc<OsFile>),
    Mem(MemFile),
}

impl File {
    /// Reads at `offset` into `buf`. Fewer bytes than asked for are no sign of the end of the file; 0 is.
    #[track_caller]
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.read_some(offset, buf, Location::caller())
    }

    fn read_some(&self, offset: u64, buf: &mut [u8], at: Caller) -> io::Result<usize> {
        self.wait(buf.len());
        retry(|| match &self.inner.raw {
            Raw::Os(file) => file.read_at(offset, buf),
            Raw::Mem(file) => file.read_at(offset, buf, at),
        })
    }

    /// Fills `buf` from `offset` on; [`io::ErrorKind::UnexpectedEof`] when the file ends before that.
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

    /// The `len` bytes at `offset`, in memory of their own; [`io::ErrorKind::UnexpectedEof`] when the file ends before
    /// that.
    #[track_caller]
    pub fn read_shared(&self, offset: u64, len: usize) -> io::Result<Arc<[u8]>> {
        if let Raw::Os(file) = &self.inner.raw
            && let Some(bytes) = file.read_shared(offset, len)?
        {
            self.wait(len);
            return Ok(bytes);
        }
        let mut buffer: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
        match Arc::get_mut(&mut buffer) {
            Some(bytes) => self.read_exact_at(offset, bytes)?,
            None => return Err(io::Error::other("a new buffer has another owner")),
        }
        Ok(buffer)
    }

    /// Waits as a slowed device does.
    fn wait(&self, bytes: usize) {
        if let Some((slow, kind)) = &self.inner.slow {
            slow.wait(*kind, bytes);
        }
    }

    /// Writes all of `data` at `offset`. After an error any part of it may have been written.
    #[track_caller]
    pub fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.wait(data.len());
        let at = Location::caller();
        let mut done = 0;
        while done < data.len() {
            let from = advance(offset, done)?;
            let written = retry(|| match &self.inner.raw {
                Raw::Os(file) => file.write_at(from, &data[done..]),
                Raw::Mem(file) => file.write_at(from, &data[done..], at),
            })?;
            match written {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                n => done += n,
            }
        }
        Ok(())
    }

    /// From now on writes inside the file's present length cost a copy instead of a system call, where the file system
    /// lets them, and no more can fail before the next sync. The file must be reserved to its end, must not be cut
    /// any more, and no two threads may write to the same bytes at the same time. What a kill or power loss leaves is
    /// no different. `fetch`: what is on disk is read now, so that no later write waits for it; a file that was only
    /// reserved has nothing there.
    pub fn map_writes(&self, fetch: bool) -> io::Result<()> {
        match &self.inner.raw {
            Raw::Os(file) => file.map_writes(fetch),
            Raw::Mem(_) => Ok(()),
        }
    }

    /// Reserves space for the range and extends the file to its end with zeros. Bytes already there stay.
    #[track_caller]
    pub fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let at = Location::caller();
        retry(|| match &self.inner.raw {
            Raw::Os(file) => file.allocate(offset, len),
            Raw::Mem(file) => file.allocate(offset, len, at),
        })
    }

    /// Cuts the file at `len`, or extends it to `len` with zeros.
    #[track_caller]
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        let at = Location::caller();
        retry(|| match &self.inner.raw {
            Raw::Os(file) => file.set_len(len),
            Raw::Mem(file) => file.set_len(len, at),
        })
    }

    /// The file's length in bytes.
    #[track_caller]
    #[expect(clippy::len_without_is_empty, reason = "a length that needs I/O is no collection's length")]
    pub fn len(&self) -> io::Result<u64> {
        let at = Location::caller();
        retry(|| match &self.inner.raw {
            Raw::Os(file) => file.len(),
            Raw::Mem(file) => file.len(at),
        })
    }

    /// Makes what was written before this call last: bytes, and the length needed to read them. Not the name.
    #[track_caller]
    pub fn sync_data(&self) -> io::Result<()> {
        self.inner.syncs.fetch_add(1, Relaxed);
        let at = Location::caller();
        retry(|| match &self.inner.raw {
            Raw::Os(file) => file.sync_data(),
            Raw::Mem(file) => file.sync(Sync::Data, at),
        })
    }

    /// As [`File::sync_data`] for the range alone, where the file is written through memory; elsewhere for all of it.
    /// The length must have lasted before.
    #[track_caller]
    pub fn sync_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.syncs.fetch_add(1, Relaxed);
        let at = Location::caller();
        retry(|| match &self.inner.raw {
            Raw::Os(file) => file.sync_range(offset, len),
            Raw::Mem(file) => file.sync_range(offset, len, at),
        })
    }

    /// As [`File::sync_data`], with all that describes the file, such as its times. Not the name.
    #[track_caller]
    pub fn sync_all(&self) -> io::Result<()> {
        self.inner.syncs.fetch_add(1, Relaxed);
        let at = Location::caller();
        retry(|| match &self.inner.raw {
            Raw::Os(file) => file.sync_all(),
            Raw::Mem(file) => file.sync(Sync::All, at),
        })
    }

    /// Closes the file and reports what only closing tells; some file systems report a failed write here
    /// first. With other clones left, the last one to go closes the file.
    #[track_caller]
    pub fn close(self) -> io::Result<()> {
        let at = Location::caller();
        match Arc::into_inner(self.inner).map(|inner| inner.raw) {
            None => Ok(()),
            Some(Raw::Os(file)) => Arc::into_inner(file).map_or(Ok(()), OsFile::close),
            Some(Raw::Mem(file)) => file.close(at),
        }
    }

    /// The file of the operating system; `None` in a simulated world.
    #[cfg(all(target_os = "linux", not(miri)))]
    pub(crate) fn os(&self) -> Option<&OsFile> {
        match &self.inner.raw {
            Raw::Os(file) => Some(file),
            Raw::Mem(_) => None,
        }
    }

    /// The path that the file was opened by.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "File({})", self.inner.path.display())
    }
}

/// What a sync covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    Data,
    All,
}

/// A held lock on a file. Dropping it gives the lock back.
pub struct FileLock {
    _held: Held,
}

#[expect(dead_code, reason = "held for what dropping them does")]
enum Held {
    Os(OsLock),
    Mem(MemLock),
}

impl fmt::Debug for FileLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileLock")
    }
}

fn advance(offset: u64, by: usize) -> io::Result<u64> {
    offset.checked_add(by as u64).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Calls again what a signal interrupted.
fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}
