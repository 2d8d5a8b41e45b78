//! The directory that holds the stores of a run.
//!
//! A run that is interrupted or killed cannot remove its stores. So a file in the directory stays locked while the
//! process lives, and the next run with the same parent directory removes what dead processes left.

use crate::engine::Result;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Start of the names of such directories.
pub(super) const PREFIX: &str = "drumlin-bench-";
/// File whose lock shows that the process lives. A directory without it is not removed: it was kept, or is not ours.
const RUNNING: &str = "running";

/// Directory that is removed when this is dropped.
pub(super) struct Stores {
    dir: PathBuf,
    /// `None` if the stores are kept.
    running: Option<File>,
}

impl Stores {
    /// Creates the directory `dir` for stores, and removes those of dead processes beside it. If `keep` is set, it
    /// stays after the run, also if the run is interrupted.
    pub(super) fn begin(dir: &Path, keep: bool) -> Result<Stores> {
        let create = || {
            fs::create_dir_all(dir)?;
            if keep {
                return Ok(None);
            }
            // The file gets its name once it is locked. Otherwise another process could take this one for dead.
            let (new, name) = (dir.join("starting"), dir.join(RUNNING));
            let file = File::create(&new)?;
            file.lock()?;
            fs::rename(new, name)?;
            Ok(Some(file))
        };
        dir.parent().into_iter().for_each(sweep);
        let running = create().map_err(|e: std::io::Error| format!("{}: {e}", dir.display()))?;
        Ok(Stores { dir: dir.to_owned(), running })
    }
}

impl Drop for Stores {
    fn drop(&mut self) {
        if self.running.is_some() {
            crate::measure::run::remove(&self.dir);
        }
    }
}

/// Removes the directories of dead processes in `parent`.
fn sweep(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let Ok(running) = File::open(entry.path().join(RUNNING)) else { continue };
        if running.try_lock().is_ok() {
            crate::measure::run::remove(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin::env::TempDir;

    #[test]
    fn stores_of_dead_processes_are_removed_and_others_stay() {
        let parent = TempDir::new("drumlin-bench").expect("a temporary directory");
        let dir = |name: &str| parent.path().join(format!("{PREFIX}{name}"));
        let (alive, kept) = (Stores::begin(&dir("alive"), false), Stores::begin(&dir("kept"), true));
        fs::create_dir_all(dir("dead").join("store")).expect("a directory");
        fs::write(dir("dead").join(RUNNING), "").expect("a file");
        fs::create_dir_all(parent.path().join("other")).expect("a directory");
        fs::write(parent.path().join("other").join(RUNNING), "").expect("a file");
        drop(kept);
        let last = Stores::begin(&dir("last"), false);
        let there = |name: &str| dir(name).exists();
        assert_eq!(["alive", "kept", "dead", "last"].map(there), [true, true, false, true]);
        assert!(parent.path().join("other").exists());
        drop((alive, last));
        assert_eq!(["alive", "kept", "dead", "last"].map(there), [false, true, false, false]);
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let parent = TempDir::new("drumlin-bench").expect("a temporary directory");
        fs::write(parent.path().join("file"), "").expect("a file");
        let failed = Stores::begin(&parent.path().join("file").join("stores"), false);
        assert!(failed.err().is_some_and(|what| what.contains("stores")));
    }
}
