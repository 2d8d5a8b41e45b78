//! The lock that keeps other processes out of the store's directory, and the check that it is still in place.
//!
//! Another program may remove the lock file or empty the directory while the store is open. The open files go on
//! working, but nothing written to them outlives the process, and another process may open the directory. So each sync
//! checks that the path still leads to the locked file, before anything counts as durable.

use crate::base::error::{Error, ErrorKind, Result};
use drumlin_env::sync::Mutex;
use drumlin_env::{File, FileLock};

/// Lock on a store's directory.
#[derive(Debug, Default)]
pub(crate) struct DirLock(Mutex<Option<FileLock>>);

impl DirLock {
    /// Holds `lock`. `None` is for a read-only store that has no file to lock.
    pub(crate) fn new(lock: Option<FileLock>) -> DirLock {
        DirLock(Mutex::new(lock))
    }

    /// Returns an error when the lock file was removed or replaced.
    pub(crate) fn check(&self) -> Result<()> {
        let lock = self.0.lock();
        let Some(lock) = &*lock else { return Ok(()) };
        match lock.is_in_place() {
            Ok(true) => Ok(()),
            Ok(false) => {
                let what = "the lock file was removed or replaced while the store was open";
                Err(Error::file(ErrorKind::Io, lock.path(), what))
            }
            Err(error) => Err(Error::io(lock.path(), "cannot check the lock file", error)),
        }
    }

    /// Releases the lock.
    pub(crate) fn release(&self) {
        self.0.lock().take();
    }
}

/// Returns an error when an open file was unlinked, or is shorter than the `len` bytes that were written or reserved.
pub(crate) fn check_file(file: &File, len: u64) -> Result<()> {
    let status = file.status().map_err(|e| Error::io(file.path(), "cannot check a file", e))?;
    if !status.is_named {
        let what = "the file was removed while the store was open";
        return Err(Error::file(ErrorKind::Io, file.path(), what));
    }
    if status.len < len {
        let what = format!("the file was cut to {} of {len} bytes while the store was open", status.len);
        return Err(Error::file(ErrorKind::Io, file.path(), what));
    }
    Ok(())
}
