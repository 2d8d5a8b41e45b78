//! The log on disk: preallocated, recycled segments, and shared syncs.
//!
//! A log position is global: it counts record bytes over all segments, so it orders everything. A segment
//! starts with a header that names its predecessor's number, end and last sequence number.
//!
//! - [`LogTail`] is the part under the commit lane's lock: the open segment and the next free place.
//! - [`Log`] is shared: what is durable, and the one sync at a time that makes more so.

use super::publish::{Published, Publisher};
use super::segment::{HEADER_LEN, LogHome, Segment, Stored, map};
use crate::error::{Error, Result};
use drumlin_env::sync::{Arc, Condvar, Mutex, atomic};
use drumlin_format::log::{Predecessor, SegmentHeader};
use drumlin_types::{LogNumber, Seq};

/// A place for one record.
pub(crate) struct Reservation {
    pub(crate) segment: Arc<Segment>,
    /// Global position of the record.
    pub(crate) position: u64,
    /// Global position after it.
    pub(crate) end: u64,
    /// A segment was begun for it: the file of the next one is to be made ready.
    pub(crate) has_begun: bool,
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
    /// Begun segments that are not yet known to be on disk, oldest first.
    unknown: Vec<Arc<Segment>>,
    /// The newest segment that is known, as are all before it from the first of this opening on.
    known: LogNumber,
    /// First of the segments that recovery found, and of this opening. Those between may be in memory alone, after the
    /// end of a process that had not made them known.
    doubtful: Option<(LogNumber, LogNumber)>,
    /// The file of the next segment, made ahead.
    ready: Option<Stored>,
    /// A file is to be made ready: a segment was begun since one was.
    wants_ready: bool,
    /// Segments whose records are all in tables, to be recycled.
    spare: Vec<Stored>,
    /// All segments that recovery would read, oldest first.
    live: Vec<Stored>,
}

impl LogTail {
    /// Begins, or goes on with, the log in segment `header.number`. `older` are the durable segments before
    /// it that recovery would read, with the lengths of their files.
    pub(crate) fn begin(
        home: &LogHome,
        header: &SegmentHeader,
        older: Vec<(LogNumber, u64)>,
    ) -> Result<LogTail> {
        let made = home.make(header.number, None, home.segment_bytes)?;
        let segment = begin(&made, header)?;
        segment.sync()?;
        home.name(std::slice::from_ref(&segment))?;
        let mut tail = LogTail::after(header, segment, home.segment_bytes, older);
        tail.live.push(Stored { is_settled: true, is_named: true, ..made });
        Ok(tail)
    }

    /// The end of a log that is only read. `header` is what the next segment would begin with.
    pub(crate) fn ended(header: &SegmentHeader, older: Vec<(LogNumber, u64)>) -> LogTail {
        let nowhere = Stored {
            number: header.number,
            bytes: 0,
            file: None,
            is_settled: true,
            is_named: true,
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
            is_settled: true,
            is_named: true,
            is_mapped: false,
        };
        LogTail {
            segment,
            position: header.base,
            last_seq: header.last_seq_before(),
            capacity,
            unsynced: Vec::new(),
            unknown: Vec::new(),
            known: header.number,
            doubtful: live.first().map(|(first, _)| (*first, header.number)),
            ready: None,
            wants_ready: false,
            spare: Vec::new(),
            live: live.into_iter().map(old).collect(),
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
        let has_begun = self.position - self.segment.base + len > self.capacity;
        if has_begun {
            self.rotate(home, len, number)?;
        }
        let position = self.position;
        self.last_seq = last_seq;
        self.position += len;
        Ok(Reservation { segment: self.segment.clone(), position, end: self.position, has_begun })
    }

    fn rotate(&mut self, home: &LogHome, len: u64, number: impl FnOnce() -> u64) -> Result<()> {
        let capacity = home.segment_bytes.max(len);
        let wanted = HEADER_LEN + capacity;
        let ready = self.ready.take_if(|ready| ready.bytes >= wanted);
        let made = match ready {
            Some(ready) => ready,
            None => {
                // Numbers rise along the log: a file that was made before this one is for later.
                self.spare.extend(self.ready.take());
                let recycled = self.take_spare(wanted);
                if recycled.is_none() {
                    home.budget.check(self.bytes_on_disk() + wanted)?;
                }
                home.make(LogNumber(number()), recycled, capacity)?
            }
        };
        let predecessor = Predecessor { number: self.segment.number, last_seq: self.last_seq };
        let header =
            SegmentHeader { number: made.number, base: self.position, predecessor: Some(predecessor) };
        let next = begin(&made, &header).inspect_err(|_| home.give_up(made.number))?;
        let closed = std::mem::replace(&mut self.segment, next.clone());
        self.unsynced.push((closed, self.position));
        self.unknown.push(next);
        self.capacity = made.bytes - HEADER_LEN;
        self.live.push(made);
        self.wants_ready = true;
        Ok(())
    }

    fn take_spare(&mut self, wanted: u64) -> Option<Stored> {
        let at = self.spare.iter().position(|spare| spare.bytes >= wanted)?;
        Some(self.spare.swap_remove(at))
    }

    /// A file to make the next segment of, if one is to be made ready: a recycled one, or none at hand.
    pub(super) fn next_to_make(&mut self, home: &LogHome) -> Option<Option<Stored>> {
        if !std::mem::take(&mut self.wants_ready) || self.ready.is_some() {
            return None;
        }
        let wanted = HEADER_LEN + home.segment_bytes;
        let recycled = self.take_spare(wanted);
        // Without room for it, whoever needs it says so.
        let has_room = recycled.is_some() || home.budget.check(self.bytes_on_disk() + wanted).is_ok();
        has_room.then_some(recycled)
    }

    /// A file is ready for the next segment; or for a later one, if the log has gone on without it.
    pub(super) fn made_ready(&mut self, made: Stored) {
        match made.number > self.segment.number {
            true => self.ready = Some(made),
            false => self.spare.push(made),
        }
    }

    /// Begun segments that are not known to be on disk yet.
    pub(super) fn unknown(&self) -> Vec<Arc<Segment>> {
        self.unknown.clone()
    }

    /// Header and name of segment `number`, and of all before it, last.
    pub(super) fn know(&mut self, number: LogNumber) {
        self.unknown.retain(|segment| segment.number > number);
        self.known = self.known.max(number);
    }

    /// The log floor where `wanted` would do: a segment that is known, and still there. A memtable that was empty for
    /// long asks for one that is not.
    pub(crate) fn floor(&self, wanted: LogNumber) -> LogNumber {
        let mut floor = wanted.min(self.known);
        if let Some((found, own)) = self.doubtful
            && floor < own
        {
            floor = floor.min(found);
        }
        self.live.first().map_or(floor, |oldest| floor.max(oldest.number))
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
        self.spare.iter().chain(&self.ready).any(|spare| spare.number == number)
    }

    /// Bytes of all segments that recovery would read.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live.iter().map(|stored| stored.bytes).sum()
    }

    /// Bytes of all segments, those kept for recycling included.
    pub(crate) fn bytes_on_disk(&self) -> u64 {
        self.live_bytes() + self.spare.iter().chain(&self.ready).map(|spare| spare.bytes).sum::<u64>()
    }

    /// Segments below `floor` hold nothing that is not in tables: keeps some for recycling and gives the others,
    /// to be unlinked. Under writes as many are kept as one flush sets free, for the next memtable needs as many; when
    /// there is nothing left in the log, one.
    pub(crate) fn release_below(&mut self, floor: LogNumber) -> Released {
        let (mut old, live): (Vec<_>, Vec<_>) = self.live.drain(..).partition(|stored| stored.number < floor);
        self.live = live;
        let (closed, unsynced) = self.unsynced.drain(..).partition(|(segment, _)| segment.number < floor);
        self.unsynced = unsynced;
        let keep = if self.live.len() > 1 { old.len().max(SPARE_SEGMENTS) } else { 1 };
        // They were known, so what recycles them need not make their length last again.
        old.iter_mut().for_each(|stored| stored.is_settled = true);
        // Those of an earlier opening have no file open, and are not recycled: nobody knows what their last sync said, nor
        // whether they were copied with holes, which a full disk could not fill.
        let (old, mut files): (Vec<_>, Vec<_>) = old.into_iter().partition(|stored| stored.file.is_some());
        self.spare.extend(old);
        let keep = keep.saturating_sub(usize::from(self.ready.is_some()));
        let surplus = self.spare.len().saturating_sub(keep);
        files.extend(self.spare.drain(..surplus));
        Released { files, _closed: closed }
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

/// What the log needs no more. To drop it takes milliseconds, as memory is unmapped: not under the lane's lock.
pub(crate) struct Released {
    files: Vec<Stored>,
    _closed: Vec<(Arc<Segment>, u64)>,
}

impl Released {
    /// The segments whose files are to be unlinked.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = LogNumber> {
        self.files.iter().map(|stored| stored.number)
    }
}

/// Segments kept for recycling under writes, at least.
const SPARE_SEGMENTS: usize = 2;

/// What of the log is durable.
pub(crate) struct Log {
    durable_end: atomic::AtomicU64,
    durable_seq: atomic::AtomicU64,
    turn: Mutex<Turn>,
    synced: Condvar,
}

/// Syncs of the log take turns. A system tells of lost pages once, to whoever syncs next, and takes them for written
/// afterwards: so nobody may sync after one that failed, nor beside it.
#[derive(Default)]
struct Turn {
    taken: bool,
    failed: Option<Error>,
}

impl Log {
    pub(crate) fn new(durable: Published) -> Log {
        Log {
            durable_end: atomic::AtomicU64::new(durable.log_end),
            durable_seq: atomic::AtomicU64::new(durable.seq),
            turn: Mutex::new(Turn::default()),
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
    pub(crate) fn sync_to(&self, end: u64, publisher: &Publisher, lane: &super::CommitLane) -> Result<u64> {
        let mut calls = 0;
        while self.take_turn(|| self.durable_end() >= end)? {
            let result = self.sync_once(publisher, lane, &mut calls);
            self.end_turn(result)?;
        }
        Ok(calls)
    }

    /// Makes header and name of all begun segments last, so that recovery may begin in any of them.
    pub(crate) fn know_segments(&self, lane: &super::CommitLane) -> Result<()> {
        self.take_turn(|| false)?;
        self.end_turn(lane.know_segments())
    }

    /// Makes what was written to `segment` last.
    pub(crate) fn sync_segment(&self, segment: &Segment) -> Result<()> {
        self.take_turn(|| false)?;
        self.end_turn(segment.sync())
    }

    /// Waits until it is this thread's turn to sync, unless `done` holds before: `false` then. Fails when a sync failed.
    fn take_turn(&self, done: impl Fn() -> bool) -> Result<bool> {
        let mut turn = self.turn.lock();
        loop {
            if done() {
                return Ok(false);
            }
            if let Some(error) = &turn.failed {
                return Err(error.clone());
            }
            if !turn.taken {
                turn.taken = true;
                return Ok(true);
            }
            turn = self.synced.wait(turn);
        }
    }

    fn end_turn(&self, result: Result<()>) -> Result<()> {
        let mut turn = self.turn.lock();
        turn.taken = false;
        if let Err(error) = &result {
            turn.failed.get_or_insert_with(|| error.clone());
        }
        self.synced.notify_all();
        result
    }

    /// Something of the log failed: nothing of it is synced from now on.
    pub(crate) fn give_up(&self, error: &Error) {
        self.turn.lock().failed.get_or_insert_with(|| error.clone());
        self.synced.notify_all();
    }

    fn sync_once(&self, publisher: &Publisher, lane: &super::CommitLane, calls: &mut u64) -> Result<()> {
        let (segments, published) = {
            let lane = lane.state.lock();
            (lane.log.to_sync(), publisher.published())
        };
        for segment in &segments {
            if !drumlin_types::bug!("B1") {
                segment.sync()?;
            }
            *calls += 1;
        }
        lane.home.name(&segments)?;
        let mut state = lane.state.lock();
        state.log.synced_up_to(published.log_end);
        if let Some(last) = segments.last() {
            state.log.know(last.number);
        }
        drop(state);
        self.durable_end.fetch_max(published.log_end, atomic::Ordering::AcqRel);
        self.durable_seq.fetch_max(published.seq, atomic::Ordering::AcqRel);
        Ok(())
    }
}

/// Begins the segment of `header` in the file of `made`.
fn begin(made: &Stored, header: &SegmentHeader) -> Result<Arc<Segment>> {
    let segment = Segment::begun(made, header.base);
    let file = segment.file()?;
    file.write_at(0, &header.encode()).map_err(|e| Error::io(file.path(), "cannot write a log header", e))?;
    if !made.is_mapped {
        // A fresh file has nothing on disk that a write could wait for, and to clear all its pages now would make this
        // commit wait for tens of milliseconds.
        map(file, made.is_settled)?;
    }
    Ok(Arc::new(segment))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    /// The system tells of lost pages once: whoever waited while a sync failed would have its own sync succeed.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "waits on real threads")]
    fn who_waits_while_a_sync_fails_is_told() {
        let log = Log::new(Published { seq: 0, log_end: 0 });
        assert!(log.take_turn(|| false).expect("it is free"));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| log.take_turn(|| log.durable_end() >= 7));
            let error = Error::new(ErrorKind::Io, "a page is lost");
            assert!(log.end_turn(Err(error)).is_err());
            let told = waiting.join().expect("no panic").expect_err("nobody syncs any more");
            assert!(told.to_string().contains("a page is lost"), "{told}");
        });
        assert!(!log.take_turn(|| true).expect("what is durable already needs no sync"));
    }
}
