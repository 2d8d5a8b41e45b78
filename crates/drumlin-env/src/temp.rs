//! A directory for the time of a test or a command.

use std::io;
use std::path::{Path, PathBuf};

/// A new directory, removed with all it holds when dropped.
#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
    keep: bool,
}

impl TempDir {
    /// Makes a directory whose name starts with `prefix`, where the system keeps temporary files.
    pub fn new(prefix: &str) -> io::Result<TempDir> {
        TempDir::new_in(&std::env::temp_dir(), prefix)
    }

    /// Makes a directory whose name starts with `prefix`, in `parent`.
    pub fn new_in(parent: &Path, prefix: &str) -> io::Result<TempDir> {
        loop {
            let path = parent.join(format!("{prefix}-{:016x}", crate::os::random_u64()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(TempDir { path, keep: false }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the directory where it is, for a look after a failure.
    pub fn keep(mut self) -> PathBuf {
        self.keep = true;
        self.path.clone()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if !self.keep {
            // Nothing can be done about a failure here, and nothing depends on it.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_with_all_it_holds_unless_kept() {
        let dir = TempDir::new("drumlin-temp").unwrap();
        let path = dir.path().to_owned();
        std::fs::create_dir(path.join("sub")).unwrap();
        std::fs::write(path.join("sub/file"), b"x").unwrap();
        drop(dir);
        assert!(!path.exists());
        let kept = TempDir::new("drumlin-temp").unwrap().keep();
        assert!(kept.exists());
        std::fs::remove_dir(kept).unwrap();
    }
}
