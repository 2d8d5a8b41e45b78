//! Temporary directory for a test or a command.

use std::io;
use std::path::{Path, PathBuf};

/// A new directory. Dropping it removes the directory and its contents.
#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
    keep: bool,
}

impl TempDir {
    /// Creates a directory whose name starts with `prefix` in the system's temporary directory.
    pub fn new(prefix: &str) -> io::Result<TempDir> {
        TempDir::new_in(&std::env::temp_dir(), prefix)
    }

    /// Creates a directory whose name starts with `prefix` in `parent`.
    pub fn new_in(parent: &Path, prefix: &str) -> io::Result<TempDir> {
        loop {
            let path = parent.join(format!("{prefix}-{:016x}", crate::host::random_u64()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(TempDir { path, keep: false }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the directory on disk, for inspection after a failure, and returns its path.
    pub fn keep(mut self) -> PathBuf {
        self.keep = true;
        self.path.clone()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if !self.keep {
            // A failure here is harmless: no code depends on the removal.
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
