//! Log recovery: replays the chain of segments up to the first gap, and fails if bytes after the gap were durable.
//!
//! Algorithm:
//! 1. Build the chain from the segment headers. It begins with the oldest segment that is still needed. The next
//!    segment is always the one that names the last one as its predecessor.
//! 2. Replay the records in chain order. A segment must end exactly where its successor begins. Replay stops where it
//!    does not, or at the end of the chain. The log position there is `end`.
//! 3. Scan every record after `end`, in this segment and in all segments that were not replayed, for its synced mark. A
//!    mark beyond `end` proves that bytes after `end` were durable: they are corrupt or missing, and recovery fails
//!    with an error that names the place. Otherwise nothing after `end` was acknowledged as durable, and it is dropped.
//!
//! Nothing follows a close record. So the last segment of a closed store is not scanned behind it, and if the record is
//! near its beginning, only that is read.
//!
//! Two segments may name the same predecessor, or both none. In that case an earlier recovery dropped the older segment
//! and began the newer one in its place, and the process died before the older file was deleted. The newer segment
//! counts. Marks of the older one are compared only with the position where it began, since the log has continued from
//! there.
//!
//! Segments at the end of the chain that hold no record are dropped too. Each open begins a segment, so a store whose
//! opens are interrupted, one after the other, would otherwise gather segments.
//!
//! Invariants: a record is replayed only after all records before it. Recovering twice gives the same result. At most
//! one segment is in memory at a time. Recovery writes nothing.

use super::{
    Predecessor, Record, RecordKind, SEGMENT_HEADER_LEN, SegmentHeader, SegmentScanner, Tail, Vouched,
    later_mark,
};
use crate::error::{Corruption, DecodeError};
use alloc::vec::Vec;
use core::fmt;
use drumlin_types::{LogNumber, Seq};

/// Source of segments and destination of records for [`recover`].
pub trait Replay {
    /// Error type of the implementation.
    type Error: From<LogDamage>;

    /// Returns the first `most` bytes of a segment, or all if it is shorter. `begun` holds the first of them, which
    /// need not be read again.
    fn read(&mut self, number: LogNumber, begun: Vec<u8>, most: u64) -> Result<SegmentPrefix, Self::Error>;

    /// Receives the next record in log order. If recovery fails later, the replayed records must not be used.
    fn record(&mut self, record: &Record<'_>) -> Result<(), Self::Error>;
}

/// The first bytes of a segment file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentPrefix {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Length of the file.
    pub file_len: u64,
}

impl SegmentPrefix {
    /// Returns the first `most` bytes of the segment `file`.
    #[must_use]
    pub fn of(file: &[u8], most: u64) -> SegmentPrefix {
        let len = usize::try_from(most).map_or(file.len(), |most| most.min(file.len()));
        SegmentPrefix { bytes: file[..len].to_vec(), file_len: file.len() as u64 }
    }
}

/// Bytes of the last segment that are read at first. If the close record is not among them, the whole segment is read:
/// to decode more records twice would cost more than it saves.
const FIRST_READ: u64 = 64 << 10;

/// The log cannot be recovered without losing durable data, or it cannot be decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogDamage {
    /// Segment at fault. It may be missing.
    pub segment: LogNumber,
    /// The fault, and its offset in the segment.
    pub error: DecodeError,
}

impl LogDamage {
    fn corrupt(segment: LogNumber, what: &'static str, offset: u64) -> LogDamage {
        LogDamage { segment, error: Corruption::new(what, offset).into() }
    }
}

impl fmt::Display for LogDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "log segment {}: {}", self.segment.0, self.error)
    }
}

impl core::error::Error for LogDamage {}

/// Result of a recovery.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recovered {
    /// Log position at which the log ends.
    pub end: u64,
    /// Last sequence number of the log. If the log holds no operation, the one before its first segment.
    pub last_seq: Seq,
    /// Number of replayed records, including close and end records.
    pub records: u64,
    /// Number of these records that hold operations.
    pub commits: u64,
    /// Whether the store was closed cleanly.
    pub closed: bool,
    /// Whether anything after the end was dropped: a torn record, or segments that had been begun.
    pub torn: bool,
    /// Manifest state in the last replayed close record.
    pub vouched: Option<Vouched>,
    /// Replayed segments, oldest first. Make them durable, or flush their commits, before new records are acknowledged.
    pub replayed: Vec<LogNumber>,
    /// Segments that are no longer part of the log. They may be deleted once a new segment is durable. They must not be
    /// recycled, since only segments below the floor may be.
    pub dropped: Vec<LogNumber>,
    /// First of them that was begun and has no valid header.
    pub headless: Option<LogNumber>,
}

impl Recovered {
    /// Returns the header for the segment in which the log continues.
    #[must_use]
    pub fn next_header(&self, number: LogNumber) -> SegmentHeader {
        let predecessor =
            self.replayed.last().map(|&last| Predecessor { number: last, last_seq: self.last_seq });
        SegmentHeader { number, base: self.end, predecessor, file_len: 0 }
    }
}

/// A segment file and its header, if the header is valid.
struct FoundSegment {
    number: LogNumber,
    header: Option<SegmentHeader>,
    /// Whether the segment was preallocated and never begun: its header is blank or that of its former use.
    is_blank: bool,
}

/// Position at which replay stopped.
struct Stop {
    segment: LogNumber,
    /// Offset in that segment.
    offset: u64,
}

/// Replays the log that consists of the segments `numbers`.
///
/// Segments below `floor` are ignored, since none of their records is needed. A `floor` other than 0 names a segment
/// that was begun and must exist.
pub fn recover<R: Replay>(
    numbers: &[LogNumber],
    floor: LogNumber,
    replay: &mut R,
) -> Result<Recovered, R::Error> {
    let all = numbers;
    let mut numbers: Vec<LogNumber> = all.iter().copied().filter(|number| *number >= floor).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut found = Vec::with_capacity(numbers.len());
    for number in numbers {
        let bytes = replay.read(number, Vec::new(), SEGMENT_HEADER_LEN as u64)?.bytes;
        if bytes.len() < SEGMENT_HEADER_LEN {
            return Err(LogDamage::corrupt(
                number,
                "log segment is shorter than its header",
                bytes.len() as u64,
            )
            .into());
        }
        let header = read_header(number, floor, &bytes)?;
        if header.is_none() {
            check_former(number, &bytes, all, replay)?;
        }
        found.push(FoundSegment { number, header, is_blank: header.is_none() && is_blank(&bytes) });
    }
    let chain = chain(&found, floor)?;
    let mut recovered = Recovered::default();
    let stop = replay_chain(&chain, &mut recovered, replay)?;
    let not_replayed = |segment: &&FoundSegment| !recovered.replayed.contains(&segment.number);
    let dropped: Vec<&FoundSegment> = found.iter().filter(not_replayed).collect();
    drop_empty(&chain, &mut recovered);
    for segment in dropped {
        judge_dropped(segment, &found, stop.as_ref(), recovered.end, replay)?;
        recovered.dropped.push(segment.number);
        if segment.header.is_none() && !segment.is_blank {
            recovered.headless.get_or_insert(segment.number);
        }
        recovered.torn |= !segment.is_blank;
    }
    Ok(recovered)
}

/// Returns the header of segment `number`. Returns `None` when the segment was never begun or its header is corrupt;
/// the synced marks of other records distinguish the two.
fn read_header(
    number: LogNumber,
    floor: LogNumber,
    bytes: &[u8],
) -> Result<Option<SegmentHeader>, LogDamage> {
    match SegmentHeader::decode(bytes, number) {
        Ok(header) => Ok(Some(header)),
        Err(error @ DecodeError::NewerFormat { .. }) => Err(LogDamage { segment: number, error }),
        // A recycled segment may still have its old header, but only the header of a segment that was no longer needed.
        Err(DecodeError::Corruption(_)) => match SegmentHeader::named(bytes) {
            Some(other) if other >= floor && SegmentHeader::decode(bytes, other).is_ok() => {
                Err(LogDamage::corrupt(number, "log segment file has the name of another", 0))
            }
            _ => Ok(None),
        },
    }
}

/// Detects that two segment files were exchanged.
///
/// Recycling renames a file. If a segment has the header of its former number, then either no file of that number
/// exists, or that file has the same header. An existing file with a different header shows that the two were
/// exchanged.
fn check_former<R: Replay>(
    number: LogNumber,
    bytes: &[u8],
    all: &[LogNumber],
    replay: &mut R,
) -> Result<(), R::Error> {
    let is_sound = |bytes: &[u8], number| SegmentHeader::decode(bytes, number).is_ok();
    let former =
        SegmentHeader::named(bytes).filter(|former| is_sound(bytes, *former) && all.contains(former));
    match former {
        Some(former)
            if !is_sound(&replay.read(former, Vec::new(), SEGMENT_HEADER_LEN as u64)?.bytes, former) =>
        {
            Err(LogDamage::corrupt(number, "log segment file has the name of another", 0).into())
        }
        _ => Ok(()),
    }
}

/// Returns whether a segment was never begun, judged by the bytes in place of its header.
fn is_blank(bytes: &[u8]) -> bool {
    let is_former = |former| SegmentHeader::decode(bytes, former).is_ok();
    bytes.iter().all(|byte| *byte == 0) || SegmentHeader::named(bytes).is_some_and(is_former)
}

/// Returns the headers of the segments in log order, from the first one that is needed.
fn chain(found: &[FoundSegment], floor: LogNumber) -> Result<Vec<SegmentHeader>, LogDamage> {
    if floor.0 > 0 && found.first().is_none_or(|first| first.number != floor) {
        return Err(LogDamage::corrupt(floor, "log segment is missing", 0));
    }
    let first = if floor.0 > 0 {
        let Some(header) = found.first().and_then(|first| first.header) else {
            return Err(LogDamage::corrupt(floor, "header of a log segment is damaged", 0));
        };
        header
    } else {
        // Nothing was ever flushed, so the log begins with the store. If there is no valid first segment, the store
        // lost power before that segment was durable. If it was durable, the marks of later segments prove the loss.
        let mut headers = found.iter().rev().filter_map(|segment| segment.header);
        let Some(header) = headers.find(|header| header.predecessor.is_none()) else { return Ok(Vec::new()) };
        header
    };
    let mut chain = Vec::new();
    chain.push(first);
    let mut last = first;
    // Numbers rise along the chain, so this loop ends.
    while let Some(next) = successor(found, last.number) {
        chain.push(next);
        last = next;
    }
    Ok(chain)
}

/// Returns the newest segment that names `number` as its predecessor.
fn successor(found: &[FoundSegment], number: LogNumber) -> Option<SegmentHeader> {
    let mut headers = found.iter().rev().filter_map(|segment| segment.header);
    headers.find(|header| header.predecessor.is_some_and(|p| p.number == number))
}

/// Replays records up to the first gap and returns the position of the gap.
fn replay_chain<R: Replay>(
    chain: &[SegmentHeader],
    recovered: &mut Recovered,
    replay: &mut R,
) -> Result<Option<Stop>, R::Error> {
    let Some(first) = chain.first() else { return Ok(None) };
    recovered.end = first.base;
    recovered.last_seq = first.last_seq_before();
    let mut stop = None;
    for (index, header) in chain.iter().enumerate() {
        let next = chain.get(index + 1);
        let segment = match next {
            Some(_) => replay.read(header.number, Vec::new(), u64::MAX)?,
            None => last_segment(header, replay)?,
        };
        check_len(header, &segment)?;
        let bytes = segment.bytes;
        recovered.replayed.push(header.number);
        let (tail, offset) = replay_segment(header, next, &bytes, recovered, replay)?;
        recovered.end = header.position(offset);
        stop = Some(Stop { segment: header.number, offset });
        match next {
            Some(next) if next.base == recovered.end => {
                if next.last_seq_before() != recovered.last_seq {
                    let what = "log segment does not end with the sequence number that its successor names";
                    return Err(LogDamage::corrupt(header.number, what, offset).into());
                }
            }
            // The segment ends at a gap, or it is the last one.
            _ => {
                recovered.closed = matches!(tail, Tail::Ended { closed: true, .. }) && next.is_none();
                let is_lost =
                    || later_mark(&bytes, header.number, offset).is_some_and(|mark| mark > recovered.end);
                if !recovered.closed && is_lost() {
                    return Err(lost(header.number, offset).into());
                }
                recovered.torn = matches!(tail, Tail::Torn { .. });
                break;
            }
        }
    }
    Ok(stop)
}

/// Drops the last replayed segments as long as they hold no record, but never the first of the chain, which the floor
/// may name.
fn drop_empty(chain: &[SegmentHeader], recovered: &mut Recovered) {
    if recovered.torn {
        return;
    }
    while let [_, .., last] = recovered.replayed[..]
        && chain.iter().any(|header| header.number == last && header.base == recovered.end)
    {
        recovered.replayed.pop();
        recovered.dropped.push(last);
    }
}

/// Returns the last segment: its beginning if that holds its close record, otherwise all of it.
fn last_segment<R: Replay>(header: &SegmentHeader, replay: &mut R) -> Result<SegmentPrefix, R::Error> {
    let segment = replay.read(header.number, Vec::new(), FIRST_READ)?;
    if segment.file_len <= FIRST_READ {
        return Ok(segment);
    }
    let mut scanner = SegmentScanner::new(&segment.bytes, *header);
    while scanner.next().is_some() {}
    match scanner.tail() {
        Some(Tail::Ended { closed: true, .. }) => Ok(segment),
        _ => replay.read(header.number, segment.bytes, u64::MAX),
    }
}

/// Rejects a truncated segment: a segment received its name only when its length was the one in its header.
fn check_len(header: &SegmentHeader, segment: &SegmentPrefix) -> Result<(), LogDamage> {
    let len = segment.file_len;
    match len < header.file_len {
        true => Err(LogDamage::corrupt(header.number, "log segment is shorter than its header says", len)),
        false => Ok(()),
    }
}

/// Replays the records of one segment that lie before its successor's base.
fn replay_segment<R: Replay>(
    header: &SegmentHeader,
    next: Option<&SegmentHeader>,
    bytes: &[u8],
    recovered: &mut Recovered,
    replay: &mut R,
) -> Result<(Tail, u64), R::Error> {
    let limit = match next.map(|next| header.offset(next.base)) {
        None => u64::MAX,
        Some(Some(offset)) => offset,
        Some(None) => SEGMENT_HEADER_LEN as u64,
    };
    let mut scanner = SegmentScanner::new(bytes, *header);
    let mut end = scanner.offset();
    // An earlier recovery dropped the records after the limit.
    while end < limit
        && let Some(record) = scanner.next()
        && scanner.offset() <= limit
    {
        if record.header.count > 0 {
            if record.header.first_seq <= recovered.last_seq {
                let what = "log record does not follow the one before";
                return Err(LogDamage::corrupt(header.number, what, record.offset).into());
            }
            recovered.last_seq = record.header.last_seq();
            recovered.commits += 1;
        }
        if record.header.kind == RecordKind::Close {
            recovered.vouched = Vouched::decode(record.payload);
        }
        replay.record(&record)?;
        recovered.records += 1;
        end = scanner.offset();
    }
    match scanner.tail() {
        Some(Tail::Impossible { at, what }) => Err(LogDamage::corrupt(header.number, what, at).into()),
        tail => Ok((tail.unwrap_or(Tail::Clean { end }), end)),
    }
}

/// Accepts that `segment` is dropped, or fails if one of its marks proves that bytes after `end` were durable.
fn judge_dropped<R: Replay>(
    segment: &FoundSegment,
    found: &[FoundSegment],
    stop: Option<&Stop>,
    end: u64,
    replay: &mut R,
) -> Result<(), R::Error> {
    // If a valid segment begins before `end`, an earlier recovery dropped it and the log has continued since.
    let promised = segment.header.map_or(end, |header| header.base.min(end));
    let whole = replay.read(segment.number, Vec::new(), u64::MAX)?;
    segment.header.map_or(Ok(()), |header| check_len(&header, &whole))?;
    let from = SEGMENT_HEADER_LEN as u64;
    if later_mark(&whole.bytes, segment.number, from).is_none_or(|mark| mark <= promised) {
        return Ok(());
    }
    let Some(header) = segment.header else {
        return Err(LogDamage::corrupt(segment.number, "header of a log segment is damaged", 0).into());
    };
    let before = header.predecessor.map(|before| before.number);
    let known = |number: LogNumber| found.iter().find(|other| other.number == number);
    Err(match before.map(|number| (number, known(number))) {
        Some((number, None)) => LogDamage::corrupt(number, "log segment is missing", 0),
        Some((number, Some(FoundSegment { header: None, .. }))) => {
            LogDamage::corrupt(number, "header of a log segment is damaged", 0)
        }
        _ => stop.map_or(lost(segment.number, 0), |stop| lost(stop.segment, stop.offset)),
    }
    .into())
}

fn lost(segment: LogNumber, offset: u64) -> LogDamage {
    LogDamage::corrupt(segment, "log is damaged before a position that was durable", offset)
}
