//! The log on disk: preallocated, recycled segments.
//!
//! A log position is global: it counts the record bytes of all segments, so positions order all records. A segment
//! starts with a header that holds the number, the end and the last sequence number of the segment before it.
//!
//! [`LogTail`] is the part under the commit lock: the open segment and the position of the next record.
//! [`sync`](super::sync) tracks which part of the log is durable.

use super::budget::LogShare;
use super::segment::{HEADER_LEN, LogDirectory, Segment, Stored, map};
use crate::base::error::{Error, Result};
use drumlin_env::File;
use drumlin_env::sync::Arc;
use drumlin_format::log::{Predecessor, SegmentHeader};
use drumlin_types::{LogNumber, Seq};
use std::ops::Range;

/// Reserved space for one record.
pub(crate) struct Reservation {
    pub(crate) segment: Arc<Segment>,
    /// Global position of the record.
    pub(crate) position: u64,
    /// Global position of its end.
    pub(crate) end: u64,
    /// Whether the reservation opened a new segment. The caller then has the next one preallocated.
    pub(crate) has_begun: bool,
}

/// Number of bytes of the open segment that are prefaulted at once. They hold a thousand small commits or more, so
/// waking the preallocation lane for the next ones costs each commit little.
const PREFAULT_BYTES: u64 = 1 << 20;
/// The log is prefaulted if at least this many of its bytes are not durable. A sync also writes the prefaulted pages
/// that no record has reached, at most 2 [`PREFAULT_BYTES`], so it writes at most a quarter more.
const PREFAULT_ABOVE: u64 = 8 * PREFAULT_BYTES;

impl Reservation {
    /// Returns whether to prefault the log after this record: the record begins a segment or reaches a multiple of
    /// [`PREFAULT_BYTES`], the file is mapped, and the log, which is durable up to `durable_end`, is not often
    /// synced. A sync would write the prefaulted pages too, and write-protect them again.
    pub(crate) fn should_prefault(&self, durable_end: u64) -> bool {
        let offset = self.offset();
        let begins_part = self.has_begun
            || offset / PREFAULT_BYTES != (offset + (self.end - self.position)) / PREFAULT_BYTES;
        begins_part
            && self.position.saturating_sub(durable_end) >= PREFAULT_ABOVE
            && self.segment.file().is_ok_and(File::is_mapped)
    }
}

/// The end of the log, under the commit lock.
pub(crate) struct LogTail {
    pub(crate) segment: Arc<Segment>,
    /// Global position of the next record.
    position: u64,
    /// Last logged sequence number.
    last_seq: Seq,
    /// Number of record bytes that the open segment holds.
    capacity: u64,
    /// Offset up to which the open segment's file is prefaulted.
    prefaulted: u64,
    /// Closed segments that are not known to be durable in full, oldest first, with their end positions.
    unsynced: Vec<(Arc<Segment>, u64)>,
    /// Open and closed segments whose header or directory entry is not known to be durable, oldest first.
    starts_not_durable: Vec<Arc<Segment>>,
    /// Newest segment whose header and directory entry are durable. The same holds for all older segments since this
    /// opening of the store.
    durable_start: LogNumber,
    /// First segment that recovery found, and first segment of this opening. The segments between them may exist in the
    /// page cache only, if a process crashed before it made them durable.
    doubtful: Option<(LogNumber, LogNumber)>,
    /// Log floor that the manifest records. Older segments may be gone.
    recorded_floor: LogNumber,
    /// Preallocated file of the next segment.
    ready: Option<Stored>,
    /// Bytes of the file that is being preallocated.
    preallocating: u64,
    /// Whether the open segment takes deletions alone: the disk budget had no space for other writes when it began.
    is_for_deletes: bool,
    /// Whether to preallocate a file: a segment was opened since the last preallocation.
    wants_ready: bool,
    /// Files of segments whose records are all in tables. They are recycled.
    spare: Vec<Stored>,
    /// Segments that recovery would read, oldest first.
    live: Vec<Stored>,
    /// Number of threads that read the log. Meanwhile no segment is released.
    readers: usize,
    /// Floor below which segments are released when the last reader ends; 0 for none.
    due: LogNumber,
}

/// Number of record bytes in the open segment up to which close does not begin a new one. An open finds the close
/// record in its first read of a segment, which is longer.
const SHORT_LOG: u64 = 32 << 10;

impl LogTail {
    /// Starts the log in segment `header.number`, or continues it there after recovery. `older` are the durable
    /// segments before it that recovery would read, with the lengths of their files. The segment takes `capacity` bytes
    /// of records. Its directory entry becomes durable with the next sync of the directory, after which
    /// [`mark_entry_durable`](LogTail::mark_entry_durable) must be called. Until then the log claims more than is
    /// durable. Nothing relies on that before `CURRENT` points to the new manifest.
    pub(crate) fn begin(
        directory: &LogDirectory,
        header: &SegmentHeader,
        capacity: u64,
        older: Vec<(LogNumber, u64)>,
    ) -> Result<LogTail> {
        let made = directory.make_first(header, capacity)?;
        let segment = Arc::new(Segment::begun(&made, header.base));
        map(segment.file()?, false)?;
        let mut tail = LogTail::after(header, segment, capacity, older);
        tail.live.push(Stored { is_entry_durable: true, ..made });
        Ok(tail)
    }

    /// Records that the directory entry of the first segment is durable.
    pub(crate) fn mark_entry_durable(&self) {
        self.segment.mark_entry_durable();
    }

    /// Creates the end of a log in a store that is opened read-only. `header` is what the next segment would start
    /// with.
    pub(crate) fn ended(header: &SegmentHeader, older: Vec<(LogNumber, u64)>) -> LogTail {
        let nowhere = Stored {
            number: header.number,
            bytes: 0,
            file: None,
            is_recycled: false,
            is_entry_durable: true,
            is_mapped: false,
        };
        LogTail::after(header, Arc::new(Segment::begun(&nowhere, header.base)), 0, older)
    }

    fn after(
        header: &SegmentHeader,
        segment: Arc<Segment>,
        capacity: u64,
        live: Vec<(LogNumber, u64)>,
    ) -> LogTail {
        let old = |(number, bytes)| Stored {
            number,
            bytes,
            file: None,
            is_recycled: false,
            is_entry_durable: true,
            is_mapped: false,
        };
        LogTail {
            segment,
            position: header.base,
            prefaulted: 0,
            last_seq: header.last_seq_before(),
            capacity,
            unsynced: Vec::new(),
            starts_not_durable: Vec::new(),
            durable_start: header.number,
            doubtful: live.first().map(|(first, _)| (*first, header.number)),
            recorded_floor: LogNumber(0),
            ready: None,
            preallocating: 0,
            is_for_deletes: false,
            wants_ready: false,
            spare: Vec::new(),
            live: live.into_iter().map(old).collect(),
            readers: 0,
            due: LogNumber(0),
        }
    }

    /// Returns whether a record of `len` bytes begins a new segment.
    pub(crate) fn begins_segment(&self, len: u64) -> bool {
        self.position - self.segment.base + len > self.capacity
    }

    /// Reserves space for a record of `len` bytes, framing included, whose last operation is `last_seq`. `number`
    /// returns a fresh file number if a new segment is needed.
    pub(crate) fn reserve(
        &mut self,
        directory: &LogDirectory,
        share: LogShare,
        len: u64,
        last_seq: Seq,
        number: impl FnOnce() -> u64,
    ) -> Result<Reservation> {
        let has_begun = self.begins_segment(len);
        if self.is_for_deletes && share == LogShare::Writes && !has_begun {
            directory.budget.check(share, self.bytes_on_disk(), 0)?;
            self.is_for_deletes = false;
        }
        if has_begun {
            self.rotate(directory, share, directory.segment_bytes().max(len), number)?;
        }
        let position = self.position;
        self.last_seq = last_seq;
        self.position += len;
        Ok(Reservation { segment: self.segment.clone(), position, end: self.position, has_begun })
    }

    /// Begins a segment for the close record, unless the open one holds few records. It takes a file that is there, or
    /// a new one for `SHORT_LOG` bytes of records. For a store whose writes are all in tables: the next open then reads
    /// little. If it fails, for example for lack of space, the close record goes into the open segment.
    pub(crate) fn begin_for_close(&mut self, directory: &LogDirectory, number: impl FnOnce() -> u64) {
        if self.position - self.segment.base > SHORT_LOG {
            let _ = self.rotate(directory, LogShare::Close, SHORT_LOG, number);
        }
    }

    /// Opens a new segment that takes `capacity` bytes of records.
    fn rotate(
        &mut self,
        directory: &LogDirectory,
        share: LogShare,
        capacity: u64,
        number: impl FnOnce() -> u64,
    ) -> Result<()> {
        let wanted = HEADER_LEN + capacity;
        let is_reused = self.ready.iter().chain(&self.spare).any(|kept| kept.bytes >= wanted);
        // Below the limit, a segment that is reused takes no more disk space.
        let in_use = self.bytes_on_disk();
        if !is_reused || directory.budget.is_exceeded(in_use) {
            directory.budget.check_segment(share, in_use, if is_reused { 0 } else { wanted }, wanted)?;
        }
        let ready = self.ready.take_if(|ready| ready.bytes >= wanted);
        let made = match ready {
            Some(ready) => ready,
            None => {
                // File numbers rise along the log, so a file with a smaller number than this segment's can only be
                // recycled later.
                self.spare.extend(self.ready.take());
                let recycled = self.take_spare(wanted);
                directory.make(LogNumber(number()), recycled, capacity)?
            }
        };
        let predecessor = Predecessor { number: self.segment.number, last_seq: self.last_seq };
        let (number, base) = (made.number, self.position);
        let header = SegmentHeader { number, base, predecessor: Some(predecessor), file_len: 0 };
        let next = begin(&made, &header)
            .inspect_err(|_| directory.remove_file(&directory.path(made.number), made.bytes))?;
        let closed = std::mem::replace(&mut self.segment, next.clone());
        self.unsynced.push((closed, self.position));
        self.starts_not_durable.push(next);
        self.capacity = made.bytes - HEADER_LEN;
        self.prefaulted = 0;
        self.live.push(made);
        self.wants_ready = true;
        self.is_for_deletes = share == LogShare::Deletes
            && directory.budget.check(LogShare::Writes, self.bytes_on_disk(), 0).is_err();
        Ok(())
    }

    /// Returns the range of the open segment's file to prefault: the rest of the part that takes records, and the next
    /// part, without what is prefaulted already.
    pub(super) fn next_to_prefault(&self) -> Option<(Arc<Segment>, Range<u64>)> {
        let end = HEADER_LEN + self.capacity;
        let at = HEADER_LEN + self.position - self.segment.base;
        let range = at.max(self.prefaulted)..((at / PREFAULT_BYTES + 2) * PREFAULT_BYTES).min(end);
        (!range.is_empty()).then(|| (self.segment.clone(), range))
    }

    /// Records that `segment` is prefaulted up to the offset `end`, if it is still open.
    pub(super) fn prefaulted_to(&mut self, segment: &Arc<Segment>, end: u64) {
        if Arc::ptr_eq(&self.segment, segment) {
            self.prefaulted = self.prefaulted.max(end);
        }
    }

    /// Returns the offset up to which the open segment's file is prefaulted.
    #[cfg(test)]
    pub(crate) fn prefaulted(&self) -> u64 {
        self.prefaulted
    }

    fn take_spare(&mut self, wanted: u64) -> Option<Stored> {
        let at = self.spare.iter().position(|spare| spare.bytes >= wanted)?;
        Some(self.spare.swap_remove(at))
    }

    /// Returns what to make the next segment of, if one is to be preallocated: a recycled file, or `Some(None)` for a
    /// new file.
    pub(super) fn next_to_make(&mut self, directory: &LogDirectory) -> Option<Option<Stored>> {
        if !std::mem::take(&mut self.wants_ready) || self.ready.is_some() {
            return None;
        }
        let wanted = HEADER_LEN + directory.segment_bytes();
        let recycled = self.take_spare(wanted);
        // If there is no space, the commit that needs the segment reports it.
        let has_room = recycled.is_some()
            || directory.budget.check(LogShare::Writes, self.bytes_on_disk(), wanted).is_ok();
        if has_room {
            self.preallocating = recycled.as_ref().map_or(wanted, |old| old.bytes);
        }
        has_room.then_some(recycled)
    }

    /// Records that preallocation has failed.
    pub(super) fn not_made_ready(&mut self) {
        self.preallocating = 0;
    }

    /// Takes over a preallocated file. It becomes the next segment's, or is kept for recycling if the log has passed
    /// its number.
    pub(super) fn made_ready(&mut self, made: Stored) {
        self.preallocating = 0;
        match made.number > self.segment.number {
            true => self.ready = Some(made),
            false => self.spare.push(made),
        }
    }

    /// Returns the segments whose header or directory entry is not known to be durable.
    pub(super) fn starts_not_durable(&self) -> Vec<Arc<Segment>> {
        self.starts_not_durable.clone()
    }

    /// Records that segments up to `number` have a durable header and directory entry.
    pub(super) fn starts_durable(&mut self, number: LogNumber) {
        self.starts_not_durable.retain(|segment| segment.number > number);
        self.durable_start = self.durable_start.max(number);
    }

    /// Returns the log floor to record when `wanted` is the first segment still needed. The floor is a segment that
    /// exists and whose header and directory entry are durable. It never goes back: a memtable that stayed empty for
    /// long may ask for a segment that is gone, or that a flush is about to recycle.
    pub(crate) fn floor(&self, wanted: LogNumber) -> LogNumber {
        let mut floor = wanted.min(self.durable_start);
        if let Some((found, own)) = self.doubtful
            && floor < own
        {
            floor = floor.min(found);
        }
        if !drumlin_types::bug!("log-floor-goes-back") {
            floor = floor.max(self.recorded_floor);
        }
        self.live.first().map_or(floor, |oldest| floor.max(oldest.number))
    }

    /// Sets the log floor that the manifest records. It never goes back.
    pub(crate) fn set_recorded_floor(&mut self, floor: LogNumber) {
        self.recorded_floor = self.recorded_floor.max(floor);
    }

    /// Returns the global position of the next record.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Returns the segments below `floor` that recovery would still read.
    pub(crate) fn below(&self, floor: LogNumber) -> Vec<LogNumber> {
        self.live.iter().map(|stored| stored.number).filter(|number| *number < floor).collect()
    }

    /// Returns the last logged sequence number.
    pub(crate) fn last_seq(&self) -> Seq {
        self.last_seq
    }

    /// Returns whether recovery would read segment `number`. After a flush has released it, its file may be gone.
    pub(super) fn is_live(&self, number: LogNumber) -> bool {
        self.live.iter().any(|stored| stored.number == number)
    }

    /// Returns whether segment `number` is kept for recycling.
    pub(crate) fn is_spare(&self, number: LogNumber) -> bool {
        self.spare.iter().chain(&self.ready).any(|spare| spare.number == number)
    }

    /// Returns the bytes of all segments that recovery would read.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live.iter().map(|stored| stored.bytes).sum()
    }

    /// Returns the bytes of all segments, including those kept for recycling and the one being preallocated.
    pub(crate) fn bytes_on_disk(&self) -> u64 {
        let spare: u64 = self.spare.iter().chain(&self.ready).map(|spare| spare.bytes).sum();
        self.live_bytes() + spare + self.preallocating
    }

    /// Releases the segments below `floor`, whose records are all in tables. Keeps some files for recycling and returns
    /// the others, to be unlinked. While there are writes, it keeps as many as one flush frees, because the next
    /// memtable needs as many. When the log is otherwise empty, it keeps one.
    pub(crate) fn release_below(&mut self, floor: LogNumber) -> Released {
        if self.readers > 0 {
            self.due = self.due.max(floor);
            return Released::default();
        }
        let (old, live): (Vec<_>, Vec<_>) = self.live.drain(..).partition(|stored| stored.number < floor);
        self.live = live;
        let (closed, unsynced) = self.unsynced.drain(..).partition(|(segment, _)| segment.number < floor);
        self.unsynced = unsynced;
        let keep = if self.live.len() > 1 { old.len().max(SPARE_SEGMENTS) } else { 1 };
        // Files of an earlier opening have no open handle and are not recycled. The result of their last sync is not
        // known, nor whether they were copied with holes, which a full disk could not fill.
        let (old, mut files): (Vec<_>, Vec<_>) = old.into_iter().partition(|stored| stored.file.is_some());
        self.spare.extend(old);
        let keep = keep.saturating_sub(usize::from(self.ready.is_some()));
        let surplus = self.spare.len().saturating_sub(keep);
        files.extend(self.spare.drain(..surplus));
        Released { files, _closed: closed }
    }

    /// Keeps all live segments until [`end_reading`](LogTail::end_reading), for a thread that reads them. Returns their
    /// numbers.
    pub(crate) fn begin_reading(&mut self) -> Vec<LogNumber> {
        self.readers += 1;
        self.live.iter().map(|stored| stored.number).collect()
    }

    /// Ends a reading of the log, and releases what was to be released meanwhile.
    pub(crate) fn end_reading(&mut self) -> Released {
        self.readers -= 1;
        if self.readers > 0 || self.due == LogNumber(0) {
            return Released::default();
        }
        let due = std::mem::replace(&mut self.due, LogNumber(0));
        self.release_below(due)
    }

    /// Closes the files of closed segments that are durable, to free file descriptors. Their files are unlinked later
    /// instead of recycled. Returns the segments kept for recycling, to be unlinked.
    pub(crate) fn release_descriptors(&mut self) -> Released {
        let is_used = |number: LogNumber| {
            let not_durable =
                self.unsynced.iter().map(|(segment, _)| segment).chain(&self.starts_not_durable);
            number == self.segment.number || not_durable.into_iter().any(|segment| segment.number == number)
        };
        let idle: Vec<bool> = self.live.iter().map(|stored| !is_used(stored.number)).collect();
        for (stored, is_idle) in self.live.iter_mut().zip(idle) {
            if is_idle {
                stored.file = None;
            }
        }
        self.release_spares()
    }

    /// Gives up the files that are kept for later segments, to free disk space.
    pub(crate) fn release_spares(&mut self) -> Released {
        let files = self.spare.drain(..).chain(self.ready.take()).collect();
        Released { files, _closed: Vec::new() }
    }

    pub(super) fn to_sync(&self) -> Vec<Arc<Segment>> {
        let closed =
            if drumlin_types::bug!("closed-segments-not-synced") { &[][..] } else { &self.unsynced[..] };
        closed.iter().map(|(segment, _)| segment).chain([&self.segment]).cloned().collect()
    }

    /// Records that everything below `end` is durable. A closed segment that ends beyond `end` may still be written to:
    /// by a commit that reserved its space before the segment was closed.
    pub(super) fn synced_up_to(&mut self, end: u64) {
        self.unsynced.retain(|(_, segment_end)| *segment_end > end);
    }
}

/// Segments that the log no longer needs. Dropping it unmaps memory, which takes milliseconds, so it must be dropped
/// outside the commit lock.
#[derive(Default)]
pub(crate) struct Released {
    files: Vec<Stored>,
    _closed: Vec<(Arc<Segment>, u64)>,
}

impl Released {
    /// Returns the segments whose files are to be unlinked, with their lengths.
    pub(crate) fn files(&self) -> impl Iterator<Item = (LogNumber, u64)> {
        self.files.iter().map(|stored| (stored.number, stored.bytes))
    }
}

/// Smallest number of segments kept for recycling while there are writes.
const SPARE_SEGMENTS: usize = 2;

/// Writes the header of a new segment into the file of `made` and opens the segment.
fn begin(made: &Stored, header: &SegmentHeader) -> Result<Arc<Segment>> {
    let segment = Segment::begun(made, header.base);
    let file = segment.file()?;
    let header = SegmentHeader { file_len: made.bytes, ..*header };
    file.write_at(0, &header.encode()).map_err(|e| Error::io(file.path(), "cannot write a log header", e))?;
    if !made.is_mapped {
        // A new file has no pages on disk for a write to wait for. Clearing all its pages now would delay this commit
        // by tens of milliseconds.
        map(file, made.is_recycled)?;
    }
    Ok(Arc::new(segment))
}

impl Reservation {
    /// Returns the offset of the record in its segment's file.
    pub(crate) fn offset(&self) -> u64 {
        HEADER_LEN + (self.position - self.segment.base)
    }
}

/// Writes `record` into its reserved space. If a sync follows (`will_sync`), it writes by a system call instead of the
/// memory map. Each sync write-protects the mapped pages, so the next copy into one would cause a page fault.
pub(crate) fn write(reservation: &Reservation, record: &[u8], will_sync: bool) -> Result<()> {
    let offset = reservation.offset();
    let file = reservation.segment.file()?;
    let written = match will_sync {
        true => file.write_by_call_at(offset, record),
        false => file.write_at(offset, record),
    };
    written.map_err(|e| Error::io(file.path(), "cannot write to the log", e))
}
