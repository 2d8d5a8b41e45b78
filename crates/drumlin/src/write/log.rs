//! The log on disk: preallocated, recycled segments, and shared syncs.
//!
//! A log position is global: it counts record bytes over all segments, so it orders everything. A segment
//! starts with a header that names its predecessor's number, end and last sequence number.
//!
//! - [`LogTail`] is the part under the commit lane's lock: the open segment and the next free place.
//! - [`Log`] is shared: what is durable, and the one sync at a time that makes more so.

use super::publish::{Published, Publisher};
use crate::error::{Error, ErrorKind, Result};
use crate::version::Obsolete;
use drumlin_env::sync::{Arc, Condvar, Mutex, atomic};
use drumlin_env::{Env, File, FileKind};
use drumlin_format::log::{Predecessor, SEGMENT_HEADER_LEN, SegmentHeader};
use drumlin_format::names::FileName;
use drumlin_types::{LogNumber, Seq};
use std::path::{Path, PathBuf};

/// Bytes before a segment's first record.
const HEADER_LEN: u64 = SEGMENT_HEADER_LEN as u64;

/// A log segment that is open for writing.
pub(crate) struct Segment {
    pub(crate) number: LogNumber,
    /// None in a store that was opened read-only: there is no segment then, and none is made.
    file: Option<File>,
    /// Global position of its first record.
    pub(crate) base: u64,
}

impl Segment {
    /// The file that takes records.
    pub(crate) fn file(&self) -> Result<&File> {
        self.file.as_ref().ok_or_else(Error::read_only)
    }

    /// Makes what was written to the segment durable.
    pub(crate) fn sync(&self) -> Result<()> {
        let file = self.file()?;
        file.sync_data().map_err(|e| Error::io(file.path(), "cannot sync the log", e))
    }
}

/// A place for one record.
pub(crate) struct Reservation {
    pub(crate) segment: Arc<Segment>,
    /// Global position of the record.
    pub(crate) position: u64,
    /// Global position after it.
    pub(crate) end: u64,
}

/// The end of the log, under the commit lane's lock.
pub(crate) struct LogTail {
    pub(crate) segment: Arc<Segment>,
    /// Global position of the next record.
    position: u64,
    /// Last logged sequence number.
    last_seq: Seq,
    /// Room for records in the open segment.
    capacity: u64,
    /// Closed segments that are not yet known to be durable whole, oldest first, with their end positions.
    unsynced: Vec<(Arc<Segment>, u64)>,
    /// Segments whose records are all in tables, to be recycled.
    spare: Vec<Stored>,
    /// All segments that recovery would read, oldest first.
    live: Vec<Stored>,
}

/// A segment on disk.
struct Stored {
    number: LogNumber,
    /// Length of its file.
    bytes: u64,
    /// Open since it took records. Recycled open it costs no opening, no mapping, and no page that the system has to
    /// fetch or clear.
    file: Option<File>,
}

/// What the log needs to know of its surroundings.
pub(crate) struct LogHome {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    /// Bytes of records in a segment.
    pub(crate) segment_bytes: u64,
    pub(crate) budget: DiskBudget,
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
    fn check(&self, log: u64) -> Result<()> {
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
    pub(crate) fn path(&self, number: LogNumber) -> PathBuf {
        path_in(&self.dir, number)
    }

    /// Makes segment `number` ready for records, in a recycled file when one is at hand.
    fn make(&self, header: &SegmentHeader, recycled: Option<&Stored>, capacity: u64) -> Result<File> {
        let path = self.path(header.number);
        let fail = |what: &str, e| Error::io(&path, what, e);
        let fs = self.env.fs();
        let file = match recycled {
            Some(Stored { file: Some(file), .. }) => fs
                .rename_open(file, &path, FileKind::Log)
                .map_err(|e| fail("cannot recycle a log segment", e))?,
            Some(Stored { number, .. }) => {
                fs.rename(&self.path(*number), &path).map_err(|e| fail("cannot recycle a log segment", e))?;
                fs.open_write(&path, FileKind::Log).map_err(|e| fail("cannot open a log segment", e))?
            }
            None => {
                let file =
                    fs.create(&path, FileKind::Log).map_err(|e| fail("cannot create a log segment", e))?;
                if let Err(e) = file.allocate(0, HEADER_LEN + capacity) {
                    let _ = fs.unlink(&path, FileKind::Log);
                    return Err(fail("cannot allocate a log segment", e));
                }
                file
            }
        };
        file.write_at(0, &header.encode()).map_err(|e| fail("cannot write a log header", e))?;
        // Of a recycled segment the old records need not last: they are in tables.
        let synced = match recycled {
            Some(_) => file.sync_range(0, HEADER_LEN),
            None => file.sync_data(),
        };
        synced.map_err(|e| fail("cannot sync a log header", e))?;
        if !drumlin_types::bug!("B2") {
            fs.sync_dir(&self.dir).map_err(|e| Error::io(&self.dir, "cannot sync the directory", e))?;
        }
        // A fresh segment has nothing on disk that a write could wait for, and to clear all its pages now would make this
        // commit wait for tens of milliseconds.
        file.map_writes(recycled.is_some()).map_err(|e| fail("cannot map a log segment", e))?;
        Ok(file)
    }
}

impl LogTail {
    /// Begins, or goes on with, the log in segment `header.number`. `older` are the durable segments before
    /// it that recovery would read, with the lengths of their files.
    pub(crate) fn begin(
        home: &LogHome,
        header: &SegmentHeader,
        mut older: Vec<(LogNumber, u64)>,
    ) -> Result<LogTail> {
        let file = home.make(header, None, home.segment_bytes)?;
        older.push((header.number, HEADER_LEN + home.segment_bytes));
        let mut tail = LogTail::after(header, Some(file.clone()), home.segment_bytes, older);
        tail.live.iter_mut().filter(|stored| stored.number == header.number).for_each(|stored| {
            stored.file = Some(file.clone());
        });
        Ok(tail)
    }

    /// The end of a log that is only read. `header` is what the next segment would begin with.
    pub(crate) fn ended(header: &SegmentHeader, older: Vec<(LogNumber, u64)>) -> LogTail {
        LogTail::after(header, None, 0, older)
    }

    fn after(
        header: &SegmentHeader,
        file: Option<File>,
        capacity: u64,
        live: Vec<(LogNumber, u64)>,
    ) -> LogTail {
        LogTail {
            segment: Arc::new(Segment { number: header.number, file, base: header.base }),
            position: header.base,
            last_seq: header.last_seq_before(),
            capacity,
            unsynced: Vec::new(),
            spare: Vec::new(),
            live: live.into_iter().map(|(number, bytes)| Stored { number, bytes, file: None }).collect(),
        }
    }

    /// Room for a record of `len` bytes, framing included, whose last operation is `last_seq`. `number`
    /// gives a fresh file number when a new segment is needed.
    pub(crate) fn reserve(
        &mut self,
        home: &LogHome,
        len: u64,
        last_seq: Seq,
        number: impl FnOnce() -> u64,
    ) -> Result<Reservation> {
        if self.position - self.segment.base + len > self.capacity {
            self.rotate(home, len, LogNumber(number()))?;
        }
        let position = self.position;
        self.last_seq = last_seq;
        self.position += len;
        Ok(Reservation { segment: self.segment.clone(), position, end: self.position })
    }

    fn rotate(&mut self, home: &LogHome, len: u64, number: LogNumber) -> Result<()> {
        let predecessor = Predecessor { number: self.segment.number, last_seq: self.last_seq };
        let header = SegmentHeader { number, base: self.position, predecessor: Some(predecessor) };
        let capacity = home.segment_bytes.max(len);
        let wanted = HEADER_LEN + capacity;
        let recycled =
            self.spare.iter().position(|spare| spare.bytes >= wanted).map(|i| self.spare.swap_remove(i));
        if recycled.is_none() {
            home.budget.check(self.bytes_on_disk() + wanted)?;
        }
        let file = home.make(&header, recycled.as_ref(), capacity)?;
        let next = Segment { number, file: Some(file.clone()), base: self.position };
        let closed = std::mem::replace(&mut self.segment, Arc::new(next));
        self.unsynced.push((closed, self.position));
        let bytes = recycled.map_or(wanted, |old| old.bytes);
        self.capacity = bytes - HEADER_LEN;
        self.live.push(Stored { number, bytes, file: Some(file) });
        Ok(())
    }

    /// Global position of the next record.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The segments below `floor` that recovery would still read.
    pub(crate) fn below(&self, floor: LogNumber) -> Vec<LogNumber> {
        self.live.iter().map(|stored| stored.number).filter(|number| *number < floor).collect()
    }

    /// Last logged sequence number.
    pub(crate) fn last_seq(&self) -> Seq {
        self.last_seq
    }

    /// Whether segment `number` is kept for recycling.
    pub(crate) fn is_spare(&self, number: LogNumber) -> bool {
        self.spare.iter().any(|spare| spare.number == number)
    }

    /// Bytes of all segments that recovery would read.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live.iter().map(|stored| stored.bytes).sum()
    }

    /// Bytes of all segments, those kept for recycling included.
    pub(crate) fn bytes_on_disk(&self) -> u64 {
        self.live_bytes() + self.spare.iter().map(|spare| spare.bytes).sum::<u64>()
    }

    /// Segments below `floor` hold nothing that is not in tables: keeps some for recycling and gives the others,
    /// to be unlinked. Under writes as many are kept as one flush sets free, for the next memtable needs as many; when
    /// there is nothing left in the log, one.
    pub(crate) fn release_below(&mut self, floor: LogNumber) -> Vec<LogNumber> {
        let (old, live): (Vec<_>, Vec<_>) = self.live.drain(..).partition(|stored| stored.number < floor);
        self.live = live;
        self.unsynced.retain(|(segment, _)| segment.number >= floor);
        let keep = if self.live.len() > 1 { old.len().max(SPARE_SEGMENTS) } else { 1 };
        self.spare.extend(old);
        let surplus = self.spare.len().saturating_sub(keep);
        self.spare.drain(..surplus).map(|spare| spare.number).collect()
    }

    fn to_sync(&self) -> Vec<Arc<Segment>> {
        let closed = if drumlin_types::bug!("B3") { &[][..] } else { &self.unsynced[..] };
        closed.iter().map(|(segment, _)| segment).chain([&self.segment]).cloned().collect()
    }

    /// Everything below `end` is durable. A closed segment that ends later may still be written to, by a
    /// commit that reserved its place before the segment was closed.
    fn synced_up_to(&mut self, end: u64) {
        self.unsynced.retain(|(_, segment_end)| *segment_end > end);
    }
}

/// Segments kept for recycling under writes, at least.
const SPARE_SEGMENTS: usize = 2;

/// What of the log is durable.
pub(crate) struct Log {
    durable_end: atomic::AtomicU64,
    durable_seq: atomic::AtomicU64,
    syncing: Mutex<bool>,
    synced: Condvar,
}

impl Log {
    pub(crate) fn new(durable: Published) -> Log {
        Log {
            durable_end: atomic::AtomicU64::new(durable.log_end),
            durable_seq: atomic::AtomicU64::new(durable.seq),
            syncing: Mutex::new(false),
            synced: Condvar::new(),
        }
    }

    /// Global position up to which the log is durable.
    pub(crate) fn durable_end(&self) -> u64 {
        self.durable_end.load(atomic::Ordering::Acquire)
    }

    /// Last sequence number that would survive power loss, counting logged writes.
    pub(crate) fn durable_seq(&self) -> Seq {
        self.durable_seq.load(atomic::Ordering::Acquire)
    }

    /// Every commit up to `seq` is in durable tables.
    pub(crate) fn in_tables(&self, seq: Seq) {
        self.durable_seq.fetch_max(seq, atomic::Ordering::AcqRel);
    }

    /// Makes the log durable up to global position `end`, which must be published. One thread syncs for
    /// all that wait; those whose records were written after it began go again. Returns the number of
    /// syncs this call made.
    pub(crate) fn sync_to(
        &self,
        end: u64,
        publisher: &Publisher,
        tail: &Mutex<super::lane::LaneState>,
    ) -> Result<u64> {
        let mut calls = 0;
        let mut syncing = self.syncing.lock();
        loop {
            if self.durable_end() >= end {
                return Ok(calls);
            }
            if !*syncing {
                *syncing = true;
                drop(syncing);
                let result = self.sync_once(publisher, tail, &mut calls);
                syncing = self.syncing.lock();
                *syncing = false;
                self.synced.notify_all();
                result?;
            } else {
                syncing = self.synced.wait(syncing);
            }
        }
    }

    fn sync_once(
        &self,
        publisher: &Publisher,
        tail: &Mutex<super::lane::LaneState>,
        calls: &mut u64,
    ) -> Result<()> {
        let (segments, published) = {
            let lane = tail.lock();
            (lane.log.to_sync(), publisher.published())
        };
        for segment in &segments {
            if !drumlin_types::bug!("B1") {
                segment.sync()?;
            }
            *calls += 1;
        }
        tail.lock().log.synced_up_to(published.log_end);
        self.durable_end.fetch_max(published.log_end, atomic::Ordering::AcqRel);
        self.durable_seq.fetch_max(published.seq, atomic::Ordering::AcqRel);
        Ok(())
    }
}

impl Reservation {
    /// Offset of the record in its segment.
    pub(crate) fn offset(&self) -> u64 {
        HEADER_LEN + (self.position - self.segment.base)
    }
}

/// Writes `record` at its reserved place.
pub(crate) fn write(reservation: &Reservation, record: &[u8]) -> Result<()> {
    let offset = reservation.offset();
    let file = reservation.segment.file()?;
    file.write_at(offset, record).map_err(|e| Error::io(file.path(), "cannot write to the log", e))
}

/// Path of a log segment, for messages.
pub(crate) fn path_in(dir: &Path, number: LogNumber) -> PathBuf {
    dir.join(FileName::Log(number).to_string())
}
