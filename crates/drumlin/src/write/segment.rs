//! Log segments as files: made, recycled, begun, and known to be on disk.
//!
//! A segment is *ready* when its file is there, reserved and mapped under a number of its own; it is *begun* when its
//! header is written; it is *known* when header and name last. Nothing waits for the last step when a segment is begun:
//!
//! 1. What is synced in a segment makes it known on the way, before anything in it counts as durable.
//! 2. The log floor in the manifest never names a segment that is not known, as recovery begins there.
//! 3. Power loss leaves of a segment that was not known nothing, or a file without a sound header of its own number. In
//!    it was nothing that anybody was promised.

use crate::error::{Error, ErrorKind, Result};
use crate::version::Obsolete;
use drumlin_env::sync::{Arc, Mutex, atomic};
use drumlin_env::{Env, File, FileKind};
use drumlin_format::log::SEGMENT_HEADER_LEN;
use drumlin_format::names::FileName;
use drumlin_types::LogNumber;
use std::path::{Path, PathBuf};

/// Bytes before a segment's first record.
pub(super) const HEADER_LEN: u64 = SEGMENT_HEADER_LEN as u64;

/// A log segment that is open for writing.
pub(crate) struct Segment {
    pub(crate) number: LogNumber,
    /// None in a store that was opened read-only: there is no segment then, and none is made.
    file: Option<File>,
    /// Global position of its first record.
    pub(crate) base: u64,
    /// Whether the length of its file lasts.
    is_settled: bool,
    /// Whether its name lasts.
    named: atomic::AtomicBool,
}

impl Segment {
    /// The file that takes records.
    pub(crate) fn file(&self) -> Result<&File> {
        self.file.as_ref().ok_or_else(Error::read_only)
    }

    /// The segment that begins at `base` in the file of `stored`.
    pub(super) fn begun(stored: &Stored, base: u64) -> Segment {
        let Stored { number, ref file, is_settled, is_named, .. } = *stored;
        Segment { number, file: file.clone(), base, is_settled, named: atomic::AtomicBool::new(is_named) }
    }

    /// Makes what was written to the segment durable, its header with it, but not its name.
    pub(crate) fn sync(&self) -> Result<()> {
        let file = self.file()?;
        file.sync_data().map_err(|e| Error::io(file.path(), "cannot sync the log", e))
    }

    /// Takes away everything from `offset` on, of a segment that is not written to any more.
    pub(crate) fn cut(&self, offset: u64) -> Result<()> {
        let file = self.file()?;
        file.set_len(offset).map_err(|e| Error::io(file.path(), "cannot cut a log segment", e))
    }

    /// Makes its header durable.
    pub(super) fn sync_header(&self) -> Result<()> {
        let file = self.file()?;
        // Of a recycled segment the old records need not last: they are in tables.
        let synced = if self.is_settled { file.sync_range(0, HEADER_LEN) } else { file.sync_data() };
        synced.map_err(|e| Error::io(file.path(), "cannot sync a log header", e))
    }
}

/// A segment on disk.
pub(super) struct Stored {
    pub(super) number: LogNumber,
    /// Length of its file.
    pub(super) bytes: u64,
    /// Open since it took records; none for a segment of an earlier opening. Recycled open it costs no opening, no mapping,
    /// and no page that the system has to fetch or clear.
    pub(super) file: Option<File>,
    /// Its length lasts.
    pub(super) is_settled: bool,
    /// Its name lasts.
    pub(super) is_named: bool,
    /// It is in memory, all of it.
    pub(super) is_mapped: bool,
}

/// What the log needs to know of its surroundings.
pub(crate) struct LogHome {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    /// Bytes of records in a segment.
    pub(crate) segment_bytes: u64,
    pub(crate) budget: DiskBudget,
    /// A sync of the directory failed: which names last is not known, whatever a later sync says.
    unnamed: Mutex<Option<Error>>,
}

/// What log and tables may take on disk.
#[derive(Default)]
pub(crate) struct DiskBudget {
    /// In bytes; 0 for no limit.
    pub(crate) limit: atomic::AtomicU64,
    /// Knows the bytes of all tables.
    pub(crate) tables: Arc<Obsolete>,
}

impl DiskBudget {
    pub(crate) fn new(limit: u64, tables: Arc<Obsolete>) -> DiskBudget {
        DiskBudget { limit: atomic::AtomicU64::new(limit), tables }
    }

    /// Fails when the budget does not allow so many bytes of log.
    pub(super) fn check(&self, log: u64) -> Result<()> {
        let limit = self.limit.load(atomic::Ordering::Relaxed);
        let tables = self.tables.bytes_on_disk();
        if limit == 0 || tables.saturating_add(log) <= limit {
            return Ok(());
        }
        let what =
            format!("disk_budget is {limit} bytes: tables take {tables} of it, and the log would take {log}");
        Err(Error::new(ErrorKind::NoSpace, what))
    }
}

impl LogHome {
    pub(crate) fn new(env: Env, dir: PathBuf, segment_bytes: u64, budget: DiskBudget) -> LogHome {
        LogHome { env, dir, segment_bytes, budget, unnamed: Mutex::new(None) }
    }

    pub(crate) fn path(&self, number: LogNumber) -> PathBuf {
        path_in(&self.dir, number)
    }

    /// Makes the file of segment `number`, of a recycled one when that is at hand. Its name does not last yet.
    pub(super) fn make(&self, number: LogNumber, recycled: Option<Stored>, capacity: u64) -> Result<Stored> {
        let is_settled = recycled.as_ref().is_some_and(|old| old.is_settled);
        let bytes = recycled.as_ref().map_or(HEADER_LEN + capacity, |old| old.bytes);
        let file = Some(self.make_file(number, recycled.as_ref(), capacity)?);
        Ok(Stored { number, bytes, file, is_settled, is_named: false, is_mapped: false })
    }

    fn make_file(&self, number: LogNumber, recycled: Option<&Stored>, capacity: u64) -> Result<File> {
        let path = self.path(number);
        let fail = |what: &str, e| Error::io(&path, what, e);
        let fs = self.env.fs();
        if let Some(Stored { file: Some(file), number: old, .. }) = recycled {
            return fs.rename_open(file, &path, FileKind::Log).map_err(|e| {
                // Neither name is left for a segment that nobody counts.
                self.give_up(*old);
                fail("cannot recycle a log segment", e)
            });
        }
        let made = fs.create(&path, FileKind::Log).map_err(|e| fail("cannot create a log segment", e))?;
        // The length must last before the segment counts for anything: its first sync sees to that.
        match made.allocate(0, HEADER_LEN + capacity) {
            Ok(()) => Ok(made),
            Err(e) => {
                self.give_up(number);
                Err(fail("cannot allocate a log segment", e))
            }
        }
    }

    /// Segment `number` was not made: no file of it stays. What cannot be removed goes when the store is opened again.
    pub(super) fn give_up(&self, number: LogNumber) {
        let _ = self.env.fs().unlink(&self.path(number), FileKind::Log);
    }

    /// Makes a file ready for the next segment, so that beginning it costs nothing: in the background, as this may
    /// take long.
    pub(super) fn make_ready(&self, number: LogNumber, recycled: Option<Stored>) -> Result<Stored> {
        let mut made = self.make(number, recycled, self.segment_bytes)?;
        let result = made.file.as_ref().map_or(Ok(()), |file| {
            if !made.is_settled {
                file.sync_data().map_err(|e| Error::io(file.path(), "cannot sync a log segment", e))?;
            }
            self.sync_names()?;
            map(file, true)
        });
        result.inspect_err(|_| self.give_up(number))?;
        (made.is_settled, made.is_named, made.is_mapped) = (true, true, true);
        Ok(made)
    }

    /// Makes the names of all segments last.
    fn sync_names(&self) -> Result<()> {
        if drumlin_types::bug!("B2") {
            return Ok(());
        }
        let mut unnamed = self.unnamed.lock();
        if let Some(error) = &*unnamed {
            return Err(error.clone());
        }
        let synced = self.env.fs().sync_dir(&self.dir);
        synced.map_err(|e| Error::io(&self.dir, "cannot sync the directory", e)).inspect_err(|error| {
            if error.kind() != ErrorKind::NoSpace {
                *unnamed = Some(error.clone());
            }
        })
    }

    /// Makes the names of `segments` last, where they do not yet.
    pub(super) fn name(&self, segments: &[Arc<Segment>]) -> Result<()> {
        if segments.iter().all(|segment| segment.named.load(atomic::Ordering::Acquire)) {
            return Ok(());
        }
        self.sync_names()?;
        segments.iter().for_each(|segment| segment.named.store(true, atomic::Ordering::Release));
        Ok(())
    }
}

/// Lets records be copied into `file` from now on. `fetch` when nobody waits for it: all its pages are brought in.
pub(super) fn map(file: &File, fetch: bool) -> Result<()> {
    file.map_writes(fetch).map_err(|e| Error::io(file.path(), "cannot map a log segment", e))
}

/// Path of a log segment, for messages.
pub(crate) fn path_in(dir: &Path, number: LogNumber) -> PathBuf {
    dir.join(FileName::Log(number).to_string())
}
