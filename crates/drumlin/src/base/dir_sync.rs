//! Syncs of a store's directory.
//!
//! A sync makes all directory entries durable. The system reports a failed one to one caller only, and a later sync
//! succeeds although entries may be missing on disk. So all parts of an open store sync its directory through one
//! [`DirSync`], which returns the first failure from then on.
//!
//! Invariants: after a failure no sync succeeds. Only one sync runs at a time, so no caller can miss the failure of
//! another one. A failure never counts as a lack of disk space, from which a store recovers.

use crate::base::error::{Error, ErrorKind, Result};
use drumlin_env::Env;
use drumlin_env::sync::Mutex;
use std::path::{Path, PathBuf};

/// Syncs one directory, and remembers a failure.
pub(crate) struct DirSync {
    env: Env,
    dir: PathBuf,
    failed: Mutex<Option<Error>>,
}

impl DirSync {
    pub(crate) fn new(env: Env, dir: PathBuf) -> DirSync {
        DirSync { env, dir, failed: Mutex::new(None) }
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes all directory entries durable. Fails if this or an earlier sync failed. A sync that got no file descriptor
    /// did nothing: it fails with `TooManyFiles`, and later ones may succeed.
    pub(crate) fn sync(&self) -> Result<()> {
        let mut failed = self.failed.lock();
        if let Some(error) = &*failed {
            return Err(error.clone());
        }
        let synced = self.env.fs().sync_dir(&self.dir);
        synced.map_err(|error| {
            let error = Error::io(&self.dir, "cannot sync the directory", error);
            if error.kind() == ErrorKind::TooManyFiles {
                return error;
            }
            let error = error.with_kind(ErrorKind::Io);
            *failed = Some(error.clone());
            error
        })
    }

    /// Returns the failure after which the directory entries are in doubt, if there was one.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failed.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_env::{Effect, Fault, MemEnv, Op, When};

    fn fail(mem: &MemEnv, errno: i32) {
        let when = When::Nth(0);
        mem.inject(Fault { op: Some(Op::SyncDir), kind: None, when, effect: Effect::Fail(errno) });
    }

    #[test]
    fn a_failed_sync_is_never_followed_by_one_that_succeeds() {
        // EIO, and a full disk.
        for errno in [5, 28] {
            let mem = MemEnv::new(1);
            mem.env().fs().create_dir_all(Path::new("/s")).expect("a directory");
            let sync = DirSync::new(mem.env(), "/s".into());
            sync.sync().expect("no fault");
            fail(&mem, errno);
            assert_eq!(sync.sync().expect_err("the fault").kind(), ErrorKind::Io);
            assert_eq!(sync.sync().expect_err("in doubt").kind(), ErrorKind::Io);
            assert!(sync.failure().is_some());
        }
    }

    #[test]
    fn a_sync_without_a_descriptor_is_repeated() {
        let mem = MemEnv::new(2);
        mem.env().fs().create_dir_all(Path::new("/s")).expect("a directory");
        let sync = DirSync::new(mem.env(), "/s".into());
        fail(&mem, 24);
        assert_eq!(sync.sync().expect_err("no descriptor").kind(), ErrorKind::TooManyFiles);
        sync.sync().expect("there is one again");
        assert!(sync.failure().is_none());
    }
}
