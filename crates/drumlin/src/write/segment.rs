//! Log segments as files: allocation, recycling, and when each of their parts becomes durable.
//!
//! A segment file is written under a temporary name and gets its own name only when its length is durable. A segment
//! file that is too short was therefore truncated by somebody: that is damage, and never the effect of a crash.
//!
//! | state | in the code | what holds |
//! |---|---|---|
//! | preallocated | `LogTail::ready` | the file has the next number and its length, and is mapped; it has no header |
//! | open | `LogTail::segment` | its header is written; commits write records |
//! | durable start | `LogTail::durable_start` | header and directory entry are durable, so recovery may start there |
//!
//! The flags `is_entry_durable` and `entry_durable` say whether the directory entry is durable. The length of the file
//! always is, so a sync of the header's range makes the header durable.
//!
//! The first segment after an open has a durable header before it gets its name. Its directory entry becomes durable
//! with the sync of the directory for the new manifest, before `CURRENT` changes. Opening a later segment does not wait
//! for its durable start. Three rules make that safe:
//!
//! 1. A sync of records in a segment first makes its header and directory entry durable. Only then do the records count
//!    as durable.
//! 2. The log floor in the manifest never names a segment without a durable start, because recovery begins there.
//! 3. After power loss a segment without a durable start is missing, or its file has no valid header with its own
//!    number. It held no record that was reported as durable.

use super::budget::DiskBudget;
use crate::base::dir_lock::{DirLock, check_file};
use crate::base::dir_sync::DirSync;
use crate::base::error::{Error, ErrorKind, Result};
use drumlin_env::sync::{Arc, atomic};
use drumlin_env::{DirEntry, Env, File, FileKind};
use drumlin_format::log::{SEGMENT_HEADER_LEN, SegmentHeader};
use drumlin_format::names::FileName;
use drumlin_types::LogNumber;
use std::path::{Path, PathBuf};

/// Offset of a segment's first record in its file.
pub(super) const HEADER_LEN: u64 = SEGMENT_HEADER_LEN as u64;

/// A log segment that is open for writing. `Arc` stores its reference counts directly before this value, and each
/// commit changes them. The alignment puts them on other cache lines than the fields, which are only read.
#[repr(align(128))]
pub(crate) struct Segment {
    pub(crate) number: LogNumber,
    /// File of the segment; `None` in a store that was opened read-only, which has no open segment and never creates
    /// one.
    file: Option<File>,
    /// Global position of its first record.
    pub(crate) base: u64,
    /// Length of its file in bytes.
    bytes: u64,
    /// Whether its directory entry is durable.
    entry_durable: atomic::AtomicBool,
}

impl Segment {
    /// Returns the file that takes records.
    pub(crate) fn file(&self) -> Result<&File> {
        self.file.as_ref().ok_or_else(Error::read_only)
    }

    /// Creates the open segment in the file of `stored`. Its first record gets the global position `base`.
    pub(super) fn begun(stored: &Stored, base: u64) -> Segment {
        let Stored { number, bytes, ref file, is_entry_durable, .. } = *stored;
        let entry_durable = atomic::AtomicBool::new(is_entry_durable);
        Segment { number, file: file.clone(), base, bytes, entry_durable }
    }

    /// Records that its directory entry is durable.
    pub(super) fn mark_entry_durable(&self) {
        self.entry_durable.store(true, atomic::Ordering::Release);
    }

    /// Makes the segment's records and header durable, but not its directory entry.
    pub(crate) fn sync(&self) -> Result<()> {
        let file = self.file()?;
        file.sync_data().map_err(|e| failed_sync(Error::io(file.path(), "cannot sync the log", e)))
    }

    /// Returns an error if its file was removed or truncated by somebody.
    pub(super) fn check(&self) -> Result<()> {
        check_file(self.file()?, self.bytes)
    }

    /// Makes its header durable.
    pub(super) fn sync_header(&self) -> Result<()> {
        let file = self.file()?;
        // Its records need not become durable, nor the old ones of a recycled segment, which are in tables.
        file.sync_range(0, HEADER_LEN)
            .map_err(|e| failed_sync(Error::io(file.path(), "cannot sync a log header", e)))
    }
}

/// A segment on disk.
pub(super) struct Stored {
    pub(super) number: LogNumber,
    /// Length of its file in bytes.
    pub(super) bytes: u64,
    /// Handle of the file, kept open since it took records; `None` for a segment of an earlier opening of the store. An
    /// open file can be recycled without opening or mapping it again, and its pages are already in memory.
    pub(super) file: Option<File>,
    /// Whether it is recycled, so that its pages may have to be read from disk.
    pub(super) is_recycled: bool,
    /// Whether its directory entry is durable.
    pub(super) is_entry_durable: bool,
    /// Whether the whole file is mapped and in memory.
    pub(super) is_mapped: bool,
}

/// Returns the error of a failed data sync. A failed data sync is permanent: the content of the disk is unknown. So
/// `TooManyFiles`, which callers retry, becomes an I/O error.
fn failed_sync(error: Error) -> Error {
    if error.kind() == ErrorKind::TooManyFiles { error.with_kind(ErrorKind::Io) } else { error }
}

/// What the log needs to create files: directory, segment size, disk budget and directory lock.
pub(crate) struct LogDirectory {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    /// Bytes of records in a segment, if no disk budget limits them.
    usual_segment: u64,
    pub(crate) budget: Arc<DiskBudget>,
    /// Lock that keeps other processes out of the directory.
    lock: Arc<DirLock>,
    /// Syncs of the directory.
    pub(crate) entries: Arc<DirSync>,
}

/// Capacity of the first segment after an open, in bytes, if the disk or its budget has no space for a whole one.
const LEAST_FIRST: u64 = 64 << 10;

impl LogDirectory {
    pub(crate) fn new(
        env: Env,
        dir: PathBuf,
        usual_segment: u64,
        budget: Arc<DiskBudget>,
        lock: Arc<DirLock>,
    ) -> LogDirectory {
        let entries = Arc::new(DirSync::new(env.clone(), dir.clone()));
        LogDirectory { env, dir, usual_segment, budget, lock, entries }
    }

    /// Returns the bytes of records in a segment.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.usual_segment.min(self.budget.segment_most().saturating_sub(HEADER_LEN).max(1))
    }

    /// Returns an error if the directory lock was lost.
    pub(super) fn check_lock(&self) -> Result<()> {
        self.lock.check()
    }

    pub(crate) fn path(&self, number: LogNumber) -> PathBuf {
        path_in(&self.dir, number)
    }

    /// Returns the capacity of the first segment after an open, in bytes, given that `held` bytes of tables and log are
    /// on disk. A store must still open if its disk budget or the disk is full: its user may have to delete something.
    /// A whole segment leaves as much space again for the manifest and the flush of what is replayed.
    pub(crate) fn first_capacity(&self, held: u64) -> u64 {
        let usual = self.segment_bytes();
        let whole = HEADER_LEN + usual;
        let free = self.env.fs().free_space(&self.dir).unwrap_or(u64::MAX);
        match self.budget.allows(held + whole) && free / 2 >= whole {
            true => usual,
            false => usual.min(LEAST_FIRST),
        }
    }

    /// Makes the file of segment `number`, by recycling if `recycled` is given. Its directory entry is not durable yet.
    pub(super) fn make(&self, number: LogNumber, recycled: Option<Stored>, capacity: u64) -> Result<Stored> {
        let is_recycled = recycled.is_some();
        let bytes = recycled.as_ref().map_or(HEADER_LEN + capacity, |old| old.bytes);
        let file = Some(match recycled {
            Some(old) => self.recycle_file(number, &old, capacity)?,
            None => self.make_file(number, capacity, None)?,
        });
        Ok(Stored { number, bytes, file, is_recycled, is_entry_durable: false, is_mapped: false })
    }

    /// Makes the file of the first segment after an open, with its durable header. Its directory entry is not durable
    /// yet.
    pub(super) fn make_first(&self, header: &SegmentHeader, capacity: u64) -> Result<Stored> {
        let bytes = HEADER_LEN + capacity;
        let header = SegmentHeader { file_len: bytes, ..*header };
        let file = self.make_file(header.number, capacity, Some(&header.encode()))?;
        let number = header.number;
        Ok(Stored {
            number,
            bytes,
            file: Some(file),
            is_recycled: false,
            is_entry_durable: false,
            is_mapped: false,
        })
    }

    fn recycle_file(&self, number: LogNumber, recycled: &Stored, capacity: u64) -> Result<File> {
        let path = self.path(number);
        let fail = |what: &str, e| Error::io(&path, what, e);
        let fs = self.env.fs();
        if let Stored { file: Some(file), number: old, bytes, .. } = recycled {
            return fs.rename_open(file, &path, FileKind::Log).map_err(|e| {
                // No file may stay that the log does not count, under the old name or the new one.
                self.remove_file(&self.path(*old), *bytes);
                self.remove_file(&path, *bytes);
                fail("cannot recycle a log segment", e)
            });
        }
        self.make_file(number, capacity, None)
    }

    /// Makes a new file, which begins with `header` if that is given. Its length and the header are durable.
    fn make_file(&self, number: LogNumber, capacity: u64, header: Option<&[u8]>) -> Result<File> {
        let path = self.path(number);
        let fail = |what: &str, e| Error::io(&path, what, e);
        let fs = self.env.fs();
        let temp = self.dir.join(FileName::Temp(number.0).to_string());
        let made = fs.create(&temp, FileKind::Log).map_err(|e| fail("cannot create a log segment", e))?;
        let sized = made.allocate(0, HEADER_LEN + capacity);
        let sized = sized.map_err(|e| fail("cannot allocate a log segment", e));
        let named = sized.and_then(|()| {
            if let Some(header) = header {
                made.write_at(0, header).map_err(|e| fail("cannot write a log header", e))?;
            }
            made.sync_data().map_err(|e| fail("cannot sync a log segment", e))?;
            fs.rename_open(&made, &path, FileKind::Log).map_err(|e| fail("cannot rename a log segment", e))
        });
        named.inspect_err(|_| self.remove_file(&temp, HEADER_LEN + capacity))
    }

    /// Removes the file of a segment that could not be made, which may have `bytes` bytes. If that fails, the file
    /// counts against the disk budget, and maintenance tries again.
    pub(super) fn remove_file(&self, path: &Path, bytes: u64) {
        let removed = self.env.fs().unlink(path, FileKind::Log);
        if removed.is_err_and(|error| error.kind() != std::io::ErrorKind::NotFound) {
            self.budget.count_until_removed(path, bytes);
        }
    }

    /// Preallocates the file of the next segment, so that opening it costs nothing. Runs in the background, as it may
    /// take long.
    pub(super) fn make_ready(&self, number: LogNumber, recycled: Option<Stored>) -> Result<Stored> {
        let mut made = self.make(number, recycled, self.segment_bytes())?;
        let result = made.file.as_ref().map_or(Ok(()), |file| {
            self.sync_dir_entries()?;
            map(file, true)
        });
        result.inspect_err(|_| self.remove_file(&self.path(number), made.bytes))?;
        (made.is_entry_durable, made.is_mapped) = (true, true);
        Ok(made)
    }

    /// Makes the directory entries of all segments durable.
    fn sync_dir_entries(&self) -> Result<()> {
        if drumlin_types::bug!("no-log-dir-sync") {
            return Ok(());
        }
        self.entries.sync()
    }

    /// Makes the directory entries of `segments` durable, if they are not yet.
    pub(super) fn sync_entries(&self, segments: &[Arc<Segment>]) -> Result<()> {
        if segments.iter().all(|segment| segment.entry_durable.load(atomic::Ordering::Acquire)) {
            return Ok(());
        }
        self.sync_dir_entries()?;
        segments.iter().for_each(|segment| segment.mark_entry_durable());
        Ok(())
    }
}

/// Maps `file` so that records can be copied into it. With `fetch`, all its pages are brought into memory; that takes
/// long, so it is only for calls that no commit waits for.
pub(super) fn map(file: &File, fetch: bool) -> Result<()> {
    file.map_writes(fetch).map_err(|e| Error::io(file.path(), "cannot map a log segment", e))
}

/// Returns the path of a log segment.
pub(crate) fn path_in(dir: &Path, number: LogNumber) -> PathBuf {
    dir.join(FileName::Log(number).to_string())
}

/// Returns the numbers of the log segments among `entries`, in order.
pub(crate) fn log_numbers(entries: &[DirEntry]) -> Vec<LogNumber> {
    let number = |entry: &DirEntry| match FileName::parse(&entry.name) {
        Some(FileName::Log(number)) => Some(number),
        _ => None,
    };
    let mut numbers: Vec<LogNumber> = entries.iter().filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}
