//! The two worlds behind the door: the machine that this process runs on, and a simulated one.
//!
//! Only this file chooses between them. `env`, `fs` and `clock` above it know no operating system. `os`, `host`,
//! `slow` and `mem` below it know no handle. Each function makes one `match` and one call. The worlds stand in an
//! enum and not behind a trait object, so a call to the operating system costs a branch and no indirect call.
//!
//! Nothing here repeats an interrupted call or continues a short transfer: `fs` does that for both worlds. The
//! simulated world receives the source location of each call; the operating system does not need it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::holders::Hold;
use crate::host;
use crate::kinds::{Access, Caller, DirEntry, FileKind, FileStatus, Sync};
use crate::mem::{MemFile, MemLock, World};
use crate::note::Note;
use crate::os::{self, LastDir, OsFile, OsLock};
use crate::slow::Slow;

/// World that a handle belongs to.
#[derive(Clone)]
pub(crate) enum Backend {
    Os(Arc<OsWorld>),
    Mem(Arc<World>),
}

/// State of one environment over the real machine.
#[derive(Default)]
pub(crate) struct OsWorld {
    last_dir: LastDir,
    /// Simulated device delay; set by [`crate::Env::slowed`].
    slow: Option<Arc<Slow>>,
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Os(_) => "Os",
            Backend::Mem(_) => "Mem",
        })
    }
}

impl Backend {
    pub(crate) fn os() -> Backend {
        Backend::Os(Arc::default())
    }

    /// Returns the machine with a slower device, see [`crate::Env::slowed`].
    pub(crate) fn slowed(micros: u64) -> Backend {
        let slow = Some(Arc::new(Slow::new(micros)));
        Backend::Os(Arc::new(OsWorld { last_dir: LastDir::default(), slow }))
    }

    pub(crate) fn is_simulated(&self) -> bool {
        matches!(self, Backend::Mem(_))
    }

    /// Returns the simulated world if it is a stepped one.
    pub(crate) fn stepped(&self) -> Option<Arc<World>> {
        match self {
            Backend::Os(_) => None,
            Backend::Mem(world) => world.is_stepped().then(|| world.clone()),
        }
    }

    /// Returns the world's time.
    pub(crate) fn time(&self) -> Time {
        match self {
            Backend::Os(_) => Time::Os,
            Backend::Mem(world) => Time::Mem(world.clone()),
        }
    }

    pub(crate) fn random_u64(&self, purpose: &'static str) -> u64 {
        match self {
            Backend::Os(_) => host::random_u64(),
            Backend::Mem(world) => world.random_u64(purpose),
        }
    }

    /// Counts a thread that is about to start. Fails when no more threads can start.
    pub(crate) fn begin_thread(&self) -> io::Result<()> {
        match self {
            Backend::Os(_) => Ok(()),
            Backend::Mem(world) => world.begin_thread(),
        }
    }

    #[inline]
    pub(crate) fn note(&self, note: Note<'_>) {
        if let Backend::Mem(world) = self {
            world.note(note);
        }
    }

    /// Runs `look`, whose calls a simulated world does not count.
    pub(crate) fn peek<T>(&self, look: impl FnOnce() -> T) -> T {
        match self {
            Backend::Os(_) => look(),
            Backend::Mem(world) => {
                let _peeking = world.begin_peek();
                look()
            }
        }
    }

    pub(crate) fn available_cores(&self) -> usize {
        match self {
            Backend::Os(_) => host::available_cores(),
            Backend::Mem(_) => 4,
        }
    }

    pub(crate) fn open_file_limit(&self) -> Option<u64> {
        match self {
            Backend::Os(_) => host::open_file_limit(),
            Backend::Mem(_) => None,
        }
    }

    pub(crate) fn file_size_limit(&self) -> Option<u64> {
        match self {
            Backend::Os(_) => host::file_size_limit(),
            Backend::Mem(_) => None,
        }
    }

    pub(crate) fn total_memory(&self) -> Option<u64> {
        match self {
            Backend::Os(_) => host::total_memory(),
            Backend::Mem(_) => Some(1 << 30),
        }
    }
}

/// Files and directories by path.
impl Backend {
    pub(crate) fn create_dir_all(&self, dir: &Path, at: Caller) -> io::Result<()> {
        match self {
            Backend::Os(_) => os::create_dir_all(dir),
            Backend::Mem(world) => world.create_dir_all(dir, at),
        }
    }

    pub(crate) fn open(
        &self,
        path: &Path,
        kind: FileKind,
        access: Access,
        at: Caller,
    ) -> io::Result<RawFile> {
        match self {
            Backend::Os(world) => {
                let file = Arc::new(OsFile::open(path, access)?);
                Ok(RawFile::Os { file, slow: world.slow.clone().map(|slow| (slow, kind)) })
            }
            Backend::Mem(world) => MemFile::open(world, path, kind, access, at).map(RawFile::Mem),
        }
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path, at: Caller) -> io::Result<()> {
        match self {
            Backend::Os(_) => os::rename(from, to),
            Backend::Mem(world) => world.rename(from, to, at),
        }
    }

    pub(crate) fn link(&self, from: &Path, to: &Path, at: Caller) -> io::Result<()> {
        match self {
            Backend::Os(_) => os::link(from, to),
            Backend::Mem(world) => world.link(from, to, at),
        }
    }

    pub(crate) fn unlink(&self, path: &Path, kind: FileKind, at: Caller) -> io::Result<()> {
        match self {
            Backend::Os(_) => os::unlink(path),
            Backend::Mem(world) => world.unlink(path, kind, at),
        }
    }

    pub(crate) fn remove_dir(&self, dir: &Path, at: Caller) -> io::Result<()> {
        match self {
            Backend::Os(_) => os::remove_dir(dir),
            Backend::Mem(world) => world.remove_dir(dir, at),
        }
    }

    pub(crate) fn sync_dir(&self, dir: &Path, at: Caller) -> io::Result<()> {
        match self {
            Backend::Os(world) => world.last_dir.sync(dir),
            Backend::Mem(world) => world.sync_dir(dir, at),
        }
    }

    pub(crate) fn list(&self, dir: &Path, at: Caller) -> io::Result<Vec<DirEntry>> {
        match self {
            Backend::Os(_) => os::list(dir),
            Backend::Mem(world) => world.list(dir, at),
        }
    }

    pub(crate) fn exists(&self, path: &Path, at: Caller) -> io::Result<bool> {
        match self {
            Backend::Os(_) => os::exists(path),
            Backend::Mem(world) => world.exists(path, at),
        }
    }

    /// Returns the path of `path` without symbolic links if it exists. The simulated file system has no links.
    pub(crate) fn link_target(&self, path: &Path) -> Option<PathBuf> {
        match self {
            Backend::Os(_) => os::link_target(path),
            Backend::Mem(_) => None,
        }
    }

    pub(crate) fn lock(&self, path: &Path, hold: Hold, at: Caller) -> io::Result<Option<RawLock>> {
        match self {
            Backend::Os(_) => Ok(os::lock(path, hold)?.map(RawLock::Os)),
            Backend::Mem(world) => Ok(world.lock(path, hold, at)?.map(RawLock::Mem)),
        }
    }

    pub(crate) fn free_space(&self, dir: &Path, at: Caller) -> io::Result<u64> {
        match self {
            Backend::Os(_) => os::free_space(dir),
            Backend::Mem(world) => world.free_space(dir, at),
        }
    }

    pub(crate) fn file_len(&self, path: &Path, at: Caller) -> io::Result<u64> {
        match self {
            Backend::Os(_) => os::file_len(path),
            Backend::Mem(world) => world.file_len(path, at),
        }
    }

    /// Returns a second handle of an open file. Returns `None` in a simulated world, whose files are opened anew;
    /// fails for a simulated file on the machine.
    pub(crate) fn share(&self, file: &RawFile) -> io::Result<Option<RawFile>> {
        match (self, file) {
            (Backend::Os(_), RawFile::Os { file, slow }) => {
                Ok(Some(RawFile::Os { file: file.clone(), slow: slow.clone() }))
            }
            (Backend::Os(_), RawFile::Mem(_)) => Err(io::ErrorKind::InvalidInput.into()),
            (Backend::Mem(_), _) => Ok(None),
        }
    }
}

/// An open file of either world.
pub(crate) enum RawFile {
    Os {
        /// Shared with handles of the same file under a later name.
        file: Arc<OsFile>,
        /// Simulated device delay, with the file's kind.
        slow: Option<(Arc<Slow>, FileKind)>,
    },
    Mem(MemFile),
}

impl RawFile {
    /// Adds the simulated device delay for a request of `bytes` bytes.
    #[inline]
    pub(crate) fn wait(&self, bytes: usize) {
        if let RawFile::Os { slow: Some((slow, kind)), .. } = self {
            slow.wait(*kind, bytes);
        }
    }

    #[inline]
    pub(crate) fn read_at(&self, offset: u64, buf: &mut [u8], at: Caller) -> io::Result<usize> {
        match self {
            RawFile::Os { file, .. } => file.read_at(offset, buf),
            RawFile::Mem(file) => file.read_at(offset, buf, at),
        }
    }

    /// Returns the `len` bytes at `offset` in newly allocated memory, or `None` where only [`RawFile::read_at`] reads
    /// them.
    #[inline]
    pub(crate) fn read_shared(&self, offset: u64, len: usize) -> io::Result<Option<Arc<[u8]>>> {
        match self {
            RawFile::Os { file, .. } => file.read_shared(offset, len),
            RawFile::Mem(_) => Ok(None),
        }
    }

    #[inline]
    pub(crate) fn write_at(&self, offset: u64, data: &[u8], at: Caller) -> io::Result<usize> {
        match self {
            RawFile::Os { file, .. } => file.write_at(offset, data),
            RawFile::Mem(file) => file.write_at(offset, data, at),
        }
    }

    #[inline]
    pub(crate) fn write_by_call_at(&self, offset: u64, data: &[u8], at: Caller) -> io::Result<usize> {
        match self {
            RawFile::Os { file, .. } => file.write_by_call_at(offset, data),
            RawFile::Mem(file) => file.write_at(offset, data, at),
        }
    }

    pub(crate) fn map_writes(&self, fetch: bool) -> io::Result<()> {
        match self {
            RawFile::Os { file, .. } => file.map_writes(fetch),
            RawFile::Mem(_) => Ok(()),
        }
    }

    pub(crate) fn is_mapped(&self) -> bool {
        match self {
            RawFile::Os { file, .. } => file.is_mapped(),
            RawFile::Mem(_) => false,
        }
    }

    pub(crate) fn prefault_writes(&self, offset: u64, len: u64) -> bool {
        match self {
            RawFile::Os { file, .. } => file.prefault_writes(offset, len),
            RawFile::Mem(_) => false,
        }
    }

    pub(crate) fn allocate(&self, offset: u64, len: u64, at: Caller) -> io::Result<()> {
        match self {
            RawFile::Os { file, .. } => file.allocate(offset, len),
            RawFile::Mem(file) => file.allocate(offset, len, at),
        }
    }

    pub(crate) fn set_len(&self, len: u64, at: Caller) -> io::Result<()> {
        match self {
            RawFile::Os { file, .. } => file.set_len(len),
            RawFile::Mem(file) => file.set_len(len, at),
        }
    }

    #[inline]
    pub(crate) fn len(&self, at: Caller) -> io::Result<u64> {
        match self {
            RawFile::Os { file, .. } => file.len(),
            RawFile::Mem(file) => file.len(at),
        }
    }

    #[inline]
    pub(crate) fn sync(&self, sync: Sync, at: Caller) -> io::Result<()> {
        match (self, sync) {
            (RawFile::Os { file, .. }, Sync::Data) => file.sync_data(),
            (RawFile::Os { file, .. }, Sync::All) => file.sync_all(),
            (RawFile::Mem(file), _) => file.sync(sync, at),
        }
    }

    #[inline]
    pub(crate) fn sync_range(&self, offset: u64, len: u64, at: Caller) -> io::Result<()> {
        match self {
            RawFile::Os { file, .. } => file.sync_range(offset, len),
            RawFile::Mem(file) => file.sync_range(offset, len, at),
        }
    }

    #[inline]
    pub(crate) fn start_write_back(&self, offset: u64, len: u64) {
        if let RawFile::Os { file, .. } = self {
            file.start_write_back(offset, len);
        }
    }

    #[inline]
    pub(crate) fn status(&self) -> io::Result<FileStatus> {
        match self {
            RawFile::Os { file, .. } => file.status(),
            RawFile::Mem(file) => Ok(file.status()),
        }
    }

    pub(crate) fn close(self, at: Caller) -> io::Result<()> {
        match self {
            RawFile::Os { file, .. } => Arc::into_inner(file).map_or(Ok(()), OsFile::close),
            RawFile::Mem(file) => file.close(at),
        }
    }

    /// Returns the operating system's file.
    #[cfg(all(target_os = "linux", not(miri)))]
    pub(crate) fn os(&self) -> Option<&OsFile> {
        match self {
            RawFile::Os { file, .. } => Some(file),
            RawFile::Mem(_) => None,
        }
    }
}

/// A held lock of either world.
pub(crate) enum RawLock {
    Os(OsLock),
    Mem(MemLock),
}

impl RawLock {
    pub(crate) fn is_in_place(&self) -> io::Result<bool> {
        match self {
            RawLock::Os(lock) => lock.is_in_place(),
            RawLock::Mem(lock) => Ok(lock.is_in_place()),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            RawLock::Os(lock) => lock.path(),
            RawLock::Mem(lock) => lock.path(),
        }
    }
}

/// Time of either world. It is no [`Backend`], so that a clock of the machine holds no world.
#[derive(Clone)]
pub(crate) enum Time {
    Os,
    Mem(Arc<World>),
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Time::Os => "Os",
            Time::Mem(_) => "Mem",
        })
    }
}

impl Time {
    #[inline]
    pub(crate) fn monotonic_nanos(&self) -> u64 {
        match self {
            Time::Os => host::monotonic_nanos(),
            Time::Mem(world) => world.monotonic_nanos(),
        }
    }

    #[inline]
    pub(crate) fn thread_cpu_nanos(&self) -> u64 {
        match self {
            Time::Os => host::thread_cpu_nanos(),
            Time::Mem(world) => world.monotonic_nanos(),
        }
    }

    pub(crate) fn unix_micros(&self) -> u64 {
        match self {
            Time::Os => host::unix_micros(),
            Time::Mem(world) => world.unix_micros(),
        }
    }

    #[inline]
    pub(crate) fn core_nanos(&self) -> u64 {
        match self {
            Time::Os => host::thread_cpu_nanos(),
            Time::Mem(_) => 0,
        }
    }

    pub(crate) fn sleep_micros(&self, micros: u64) {
        match self {
            Time::Os => host::sleep_micros(micros),
            Time::Mem(world) => world.sleep_micros(micros),
        }
    }
}
