//! Files and directories of the real operating system.

#![allow(unsafe_code)]

use std::fs::{self, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::IntoRawFd;
#[cfg(all(target_os = "linux", not(miri)))]
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

use crate::holders::{Hold, Holders};
use crate::host::file_size_limit;
use crate::kinds::{Access, DirEntry, FileStatus};
#[cfg(target_os = "linux")]
use crate::map::Mapping;
use crate::sync::plain::{Arc, Mutex, OnceLock};

pub(crate) fn create_dir_all(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)
}

pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
}

pub(crate) fn link(from: &Path, to: &Path) -> io::Result<()> {
    fs::hard_link(from, to)
}

pub(crate) fn unlink(path: &Path) -> io::Result<()> {
    fs::remove_file(path)
}

pub(crate) fn remove_dir(dir: &Path) -> io::Result<()> {
    fs::remove_dir(dir)
}

/// Returns `.` for an empty path, which is the parent of a relative path of one component.
fn dir_path(dir: &Path) -> &Path {
    if dir.as_os_str().is_empty() { Path::new(".") } else { dir }
}

/// The most recently synced directory, kept open, so that syncing a store's directory cannot fail for lack of a file
/// descriptor.
#[derive(Default)]
pub(crate) struct LastDir(Mutex<Option<OpenDir>>);

/// An open directory, with its device and inode.
type OpenDir = ((u64, u64), Arc<fs::File>);

impl LastDir {
    pub(crate) fn sync(&self, dir: &Path) -> io::Result<()> {
        let metadata = fs::metadata(dir_path(dir))?;
        let id = (metadata.dev(), metadata.ino());
        let kept = self.0.lock().as_ref().filter(|(kept, _)| *kept == id).map(|(_, file)| file.clone());
        let file = match kept {
            Some(file) => file,
            None => {
                let mut options = OpenOptions::new();
                options.read(true).custom_flags(OFlags::DIRECTORY.bits() as i32);
                let file = Arc::new(options.open(dir_path(dir))?);
                *self.0.lock() = Some((id, file.clone()));
                file
            }
        };
        file.sync_all()
    }
}

pub(crate) fn list(dir: &Path) -> io::Result<Vec<DirEntry>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(dir_path(dir))? {
        let entry = entry?;
        // A name that is not UTF-8 is no name of ours, but the directory is not empty.
        let name = entry.file_name().to_string_lossy().into_owned();
        // The entry may be gone by now: another thread deletes obsolete files.
        let metadata = match entry.metadata() {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let is_dir = metadata.is_dir();
        entries.push(DirEntry { name, len: if is_dir { 0 } else { metadata.len() }, is_dir });
    }
    entries.sort();
    Ok(entries)
}

pub(crate) fn exists(path: &Path) -> io::Result<bool> {
    fs::exists(path)
}

pub(crate) fn link_target(path: &Path) -> Option<PathBuf> {
    fs::canonicalize(path).ok()
}

pub(crate) fn free_space(dir: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(dir_path(dir))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

pub(crate) fn file_len(path: &Path) -> io::Result<u64> {
    let metadata = fs::metadata(path)?;
    if metadata.is_dir() { Err(Errno::ISDIR.into()) } else { Ok(metadata.len()) }
}

/// Device and inode of each file that this process has locked. Depending on platform and file system, a system lock
/// belongs to the process or to the open file. This set makes a second lock in one process fail on all of them.
static LOCKED: Mutex<Holders<(u64, u64)>> = Mutex::new(Holders::new());

/// A lock held by this process until dropped.
pub(crate) struct OsLock {
    file: fs::File,
    path: PathBuf,
    id: (u64, u64),
}

impl OsLock {
    pub(crate) fn is_in_place(&self) -> io::Result<bool> {
        match fs::metadata(&self.path) {
            Ok(metadata) => Ok((metadata.dev(), metadata.ino()) == self.id),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for OsLock {
    fn drop(&mut self) {
        let mut locked = LOCKED.lock();
        // If this fails, closing the file also releases the lock.
        let _ = self.file.unlock();
        locked.give_back(self.id);
    }
}

pub(crate) fn lock(path: &Path, hold: Hold) -> io::Result<Option<OsLock>> {
    let mut locked = LOCKED.lock();
    // Check before opening: where locks belong to the process, closing any handle of the file releases the lock.
    if let Ok(metadata) = fs::metadata(path)
        && !locked.admits((metadata.dev(), metadata.ino()), hold)
    {
        return Ok(None);
    }
    let writes = hold == Hold::Alone;
    let file = OpenOptions::new().read(true).write(writes).create(writes).truncate(false).open(path)?;
    let metadata = file.metadata()?;
    let id = (metadata.dev(), metadata.ino());
    let taken = match hold {
        Hold::Alone => file.try_lock(),
        Hold::Shared => file.try_lock_shared(),
    };
    match taken {
        // The path is another name of a file locked here; the system may let a process lock such a file twice.
        Ok(()) if !locked.take(id, hold) => Ok(None),
        Ok(()) => Ok(Some(OsLock { file, path: path.to_owned(), id })),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

/// An open file of the operating system.
pub(crate) struct OsFile {
    file: fs::File,
    /// Maximum length of the file. A write beyond it would raise a signal that ends the process.
    limit: u64,
    /// Block length of direct reads; `None` for a file read through the page cache.
    direct: Option<u64>,
    #[cfg(target_os = "linux")]
    mapping: OnceLock<Mapping>,
}

impl OsFile {
    pub(crate) fn open(path: &Path, access: Access) -> io::Result<OsFile> {
        let mut options = OpenOptions::new();
        options.read(true);
        match access {
            Access::Create => options.write(true).create_new(true),
            Access::Read | Access::ReadDirect => &mut options,
            Access::Write => options.write(true),
        };
        let direct = match access {
            Access::ReadDirect => open_direct(path)?,
            _ => None,
        };
        let block = direct.as_ref().map(crate::direct::block_of);
        let file = direct.map_or_else(|| options.open(path), Ok)?;
        let limit = match access {
            Access::Create | Access::Write => file_size_limit().unwrap_or(u64::MAX),
            Access::Read | Access::ReadDirect => u64::MAX,
        };
        Ok(OsFile {
            file,
            limit,
            direct: block,
            #[cfg(target_os = "linux")]
            mapping: OnceLock::new(),
        })
    }

    pub(crate) fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        match self.direct {
            Some(block) => crate::direct::read_at(&self.file, block, offset, buf),
            None => self.file.read_at(buf, offset),
        }
    }

    /// Returns the `len` bytes at `offset` in newly allocated memory, which is not zeroed first. Returns `None` for a
    /// file with direct reads.
    pub(crate) fn read_shared(&self, offset: u64, len: usize) -> io::Result<Option<Arc<[u8]>>> {
        if self.direct.is_some() {
            return Ok(None);
        }
        let mut buffer: Arc<[MaybeUninit<u8>]> = Arc::new_uninit_slice(len);
        let mut done = 0;
        while let Some(rest) = Arc::get_mut(&mut buffer).and_then(|all| all.get_mut(done..))
            && !rest.is_empty()
        {
            let at = offset.checked_add(done as u64).ok_or(io::ErrorKind::InvalidInput)?;
            match rustix::io::pread(&self.file, rest, at) {
                Ok(([], _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok((read, _)) => done += read.len(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        assert_eq!(done, len, "a buffer that nobody else has");
        // SAFETY: the system has written the first `done` bytes, which are all of them.
        Ok(Some(unsafe { buffer.assume_init() }))
    }

    /// Returns offset and length of the read that covers `len` bytes at `offset`; `None` for offsets beyond any file.
    pub(crate) fn aligned(&self, offset: u64, len: usize) -> Option<(u64, usize)> {
        crate::direct::around(offset, len, self.direct.unwrap_or(1))
    }

    /// Returns the file descriptor, for system calls made outside this module.
    #[cfg(all(target_os = "linux", not(miri)))]
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<usize> {
        #[cfg(target_os = "linux")]
        if self.mapping.get().is_some_and(|mapping| mapping.write(offset, data)) {
            return Ok(data.len());
        }
        self.write_by_call_at(offset, data)
    }

    pub(crate) fn write_by_call_at(&self, offset: u64, data: &[u8]) -> io::Result<usize> {
        self.check_end(offset.checked_add(data.len() as u64))?;
        self.file.write_at(data, offset)
    }

    /// Fails when `end` exceeds the maximum length of the file.
    fn check_end(&self, end: Option<u64>) -> io::Result<()> {
        match end {
            Some(end) if end <= self.limit => Ok(()),
            _ => Err(Errno::FBIG.into()),
        }
    }

    /// Makes later writes inside the present length go through memory, where that is safe.
    pub(crate) fn map_writes(&self, fetch: bool) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        {
            if self.mapping.get().is_none()
                && let Some(mapping) = Mapping::of(&self.file)?
            {
                self.mapping.get_or_init(|| mapping);
            }
            match self.mapping.get() {
                Some(mapping) if fetch => mapping.populate(),
                Some(mapping) => mapping.fetch_singly(),
                None => {}
            }
        }
        let _ = fetch;
        Ok(())
    }

    /// Returns whether writes inside the mapped length go through memory.
    pub(crate) fn is_mapped(&self) -> bool {
        #[cfg(target_os = "linux")]
        return self.mapping.get().is_some();
        #[cfg(not(target_os = "linux"))]
        false
    }

    /// Prefaults a range of a mapped file for writing. Returns whether that was done.
    pub(crate) fn prefault_writes(&self, offset: u64, len: u64) -> bool {
        #[cfg(target_os = "linux")]
        return self.mapping.get().is_some_and(|mapping| mapping.prefault_writes(offset, len));
        #[cfg(not(target_os = "linux"))]
        {
            let _ = (offset, len);
            false
        }
    }

    pub(crate) fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        self.check_end(offset.checked_add(len))?;
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), offset, len) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.extend_with_zeros(offset, len),
            Err(error) => Err(error.into()),
        }
    }

    /// Preallocates by writing zeros, for file systems that cannot reserve space.
    fn extend_with_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
        let end = offset.checked_add(len).ok_or(io::ErrorKind::InvalidInput)?;
        let mut at = self.len()?;
        while at < end {
            let n = (end - at).min(ZEROS.len() as u64);
            self.file.write_all_at(&ZEROS[..n as usize], at)?;
            at += n;
        }
        Ok(())
    }

    pub(crate) fn set_len(&self, len: u64) -> io::Result<()> {
        self.check_end(Some(len))?;
        self.file.set_len(len)
    }

    pub(crate) fn len(&self) -> io::Result<u64> {
        self.file.metadata().map(|metadata| metadata.len())
    }

    pub(crate) fn status(&self) -> io::Result<FileStatus> {
        // Asks for no times: from Linux 6.13 on, the first write after a call that read them changes the inode, and the
        // next sync of the file writes the file system's journal too.
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{AtFlags, StatxFlags, statx};
            match statx(&self.file, c"", AtFlags::EMPTY_PATH, StatxFlags::NLINK | StatxFlags::SIZE) {
                Ok(found) => return Ok(FileStatus { len: found.stx_size, is_named: found.stx_nlink > 0 }),
                // Some sandboxes refuse this call.
                Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let metadata = self.file.metadata()?;
        Ok(FileStatus { len: metadata.len(), is_named: metadata.nlink() > 0 })
    }

    pub(crate) fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    pub(crate) fn sync_range(&self, offset: u64, len: u64) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        if let Some(mapping) = self.mapping.get() {
            return mapping.sync(offset, len);
        }
        let _ = (offset, len);
        self.sync_data()
    }

    /// Linux begins to write dirty pages when a program says that it needs them no more. It keeps pages that are being
    /// written.
    pub(crate) fn start_write_back(&self, offset: u64, len: u64) {
        #[cfg(target_os = "linux")]
        if let Some(len) = std::num::NonZeroU64::new(len) {
            // Only a hint: the sync that follows reports errors.
            let _ = rustix::fs::fadvise(&self.file, offset, Some(len), rustix::fs::Advice::DontNeed);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (offset, len);
    }

    pub(crate) fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    pub(crate) fn close(self) -> io::Result<()> {
        let descriptor = self.file.into_raw_fd();
        // SAFETY: `into_raw_fd` gave this function sole ownership of the descriptor, which is not used again,
        // whatever the call returns.
        unsafe { rustix::io::try_close(descriptor) }.or_else(|error| match error {
            // The descriptor is closed even so; closing it again could close another thread's file.
            Errno::INTR => Ok(()),
            error => Err(error.into()),
        })
    }
}

/// Opens the file at `path` for direct reads, if its file system supports them.
fn open_direct(path: &Path) -> io::Result<Option<fs::File>> {
    #[cfg(target_os = "linux")]
    {
        let opened = OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path);
        match opened {
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => Ok(None),
            opened => opened.map(Some),
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = path;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temp::TempDir;

    #[test]
    fn writing_zeros_does_what_reserving_does() {
        let dir = TempDir::new("drumlin-os").unwrap();
        for (name, before, offset, len) in [("short", 10, 5, 100_000), ("long", 200_000, 0, 100_000)] {
            let file = OsFile::open(&dir.path().join(name), Access::Create).unwrap();
            assert_eq!(file.write_at(0, &vec![7; before]).unwrap(), before);
            file.extend_with_zeros(offset, len).unwrap();
            let mut content = vec![9; (offset + len).max(before as u64) as usize];
            assert_eq!(file.len().unwrap(), content.len() as u64);
            file.file.read_exact_at(&mut content, 0).unwrap();
            assert!(content[..before].iter().all(|&byte| byte == 7));
            assert!(content[before..].iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn write_back_changes_no_content() {
        let dir = TempDir::new("drumlin-os").unwrap();
        let file = OsFile::open(&dir.path().join("file"), Access::Create).unwrap();
        let part: Vec<u8> = (0..1u32 << 20).map(|at| (at * 7 / 3) as u8).collect();
        for number in 0..3u64 {
            let offset = number * part.len() as u64;
            assert_eq!(file.write_at(offset, &part).unwrap(), part.len());
            file.start_write_back(offset, part.len() as u64);
        }
        // Ranges that are empty or past the end are no error.
        file.start_write_back(0, 0);
        file.start_write_back(1 << 40, 1 << 20);
        file.sync_data().unwrap();
        assert_eq!(file.len().unwrap(), 3 << 20);
        let mut content = vec![0; 3 << 20];
        file.file.read_exact_at(&mut content, 0).unwrap();
        assert!(content.chunks(part.len()).all(|found| found == part));
    }

    #[test]
    fn a_lock_that_somebody_else_holds_is_not_given() {
        let dir = TempDir::new("drumlin-os").unwrap();
        let path = dir.path().join("LOCK");
        // A handle outside this module's set stands for another process.
        let other = fs::File::create(&path).unwrap();
        other.lock().unwrap();
        assert!(lock(&path, Hold::Alone).unwrap().is_none());
        assert!(lock(&path, Hold::Shared).unwrap().is_none());
        other.unlock().unwrap();
        let held = lock(&path, Hold::Alone).unwrap();
        assert!(held.is_some());
        assert!(matches!(other.try_lock(), Err(fs::TryLockError::WouldBlock)));
        drop(held);
        let readers = [lock(&path, Hold::Shared).unwrap(), lock(&path, Hold::Shared).unwrap()];
        assert!(readers.iter().all(Option::is_some));
        assert!(lock(&path, Hold::Alone).unwrap().is_none());
        assert!(matches!(other.try_lock(), Err(fs::TryLockError::WouldBlock)));
        other.try_lock_shared().unwrap();
    }
}
