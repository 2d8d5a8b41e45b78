//! Which records of the log survive: a chain of segments, up to the first gap, unless what is behind the gap was
//! durable.
//!
//! How. The headers give the chain: it begins with the oldest segment that is still needed, and each next segment
//! is the one that names the last as its predecessor. Records are replayed in that order. A segment must end
//! exactly where its successor begins; where it does not, and at the end of the chain, replay stops at a position
//! `end`. Then every record behind `end`, in this segment and in all that were not replayed, is asked for its
//! synced mark. A mark beyond `end` says that bytes behind `end` were durable once: they are damaged or gone, and
//! recovery fails, naming the place. Otherwise nothing behind `end` was ever promised, and it is dropped.
//!
//! Two segments may name the same predecessor, or none: recovery dropped the older one, began the newer one in its place,
//! and died before the older was deleted. The newer one counts. Marks of the older are held only against the
//! position where it began, since the log has gone on from there.
//!
//! Invariants: a record is replayed only if all records before it were; recovering twice gives the same; memory
//! holds one segment at a time; nothing is written.

use super::{Predecessor, Record, SEGMENT_HEADER_LEN, SegmentHeader, SegmentScanner, Tail, later_mark};
use crate::error::{Corruption, DecodeError};
use alloc::vec::Vec;
use core::fmt;
use drumlin_types::{LogNumber, Seq};

/// Where recovery gets segments from and takes records to.
pub trait Replay {
    /// Its own errors.
    type Error: From<LogDamage>;

    /// The first [`SEGMENT_HEADER_LEN`] bytes of a segment, fewer if it is shorter.
    fn header(&mut self, number: LogNumber) -> Result<Vec<u8>, Self::Error>;

    /// A whole segment.
    fn segment(&mut self, number: LogNumber) -> Result<Vec<u8>, Self::Error>;

    /// The next record in log order. If recovery fails later on, what was replayed must not be used.
    fn record(&mut self, record: &Record<'_>) -> Result<(), Self::Error>;
}

/// The log cannot be recovered without losing what was durable, or cannot be understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogDamage {
    /// The segment at fault; it may be missing.
    pub segment: LogNumber,
    /// What is wrong, and where in the segment.
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

/// What was recovered.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recovered {
    /// Log position at which the log ends.
    pub end: u64,
    /// Last sequence number of the log, or of the log before the first segment if that holds none.
    pub last_seq: Seq,
    /// Records replayed, closing ones included.
    pub records: u64,
    /// Whether the store was closed in order.
    pub closed: bool,
    /// Whether something behind the end was dropped: a torn record, or segments that were begun.
    pub torn: bool,
    /// Segments replayed, oldest first. They must be made durable before anything builds on them.
    pub replayed: Vec<LogNumber>,
    /// Segments that play no part any more. They may be deleted once a new segment is durable, but never recycled:
    /// only segments below the floor may be.
    pub dropped: Vec<LogNumber>,
}

impl Recovered {
    /// The header of the segment in which the log goes on.
    #[must_use]
    pub fn next_header(&self, number: LogNumber) -> SegmentHeader {
        let predecessor =
            self.replayed.last().map(|&last| Predecessor { number: last, last_seq: self.last_seq });
        SegmentHeader { number, base: self.end, predecessor }
    }
}

/// A segment file and its header, if it has a sound one.
struct Found {
    number: LogNumber,
    header: Option<SegmentHeader>,
    /// It was made ready and never begun: there is nothing where the header goes, or that of a former life.
    is_blank: bool,
}

/// Where replay stopped.
struct Stop {
    segment: LogNumber,
    /// Offset in that segment.
    offset: u64,
}

/// Replays the log that consists of the segments `numbers`, those below `floor` excepted: no record in them is
/// needed. A `floor` other than 0 names a segment that was begun and is still there.
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
        let bytes = replay.header(number)?;
        let header = read_header(number, floor, &bytes)?;
        if header.is_none() {
            check_former(number, &bytes, all, replay)?;
        }
        found.push(Found { number, header, is_blank: header.is_none() && is_blank(&bytes) });
    }
    let chain = chain(&found, floor)?;
    let mut recovered = Recovered::default();
    let stop = replay_chain(&chain, &mut recovered, replay)?;
    for segment in found.iter().filter(|segment| !recovered.replayed.contains(&segment.number)) {
        judge_dropped(segment, &found, stop.as_ref(), recovered.end, replay)?;
        recovered.dropped.push(segment.number);
        recovered.torn |= !segment.is_blank;
    }
    Ok(recovered)
}

/// The header of segment `number`; `None` when it was never begun, or is damaged: marks will tell.
fn read_header(
    number: LogNumber,
    floor: LogNumber,
    bytes: &[u8],
) -> Result<Option<SegmentHeader>, LogDamage> {
    match SegmentHeader::decode(bytes, number) {
        Ok(header) => Ok(Some(header)),
        Err(error @ DecodeError::NewerFormat { .. }) => Err(LogDamage { segment: number, error }),
        // A recycled segment may still have its old header, but only one that was not needed any more.
        Err(DecodeError::Corruption(_)) => match SegmentHeader::named(bytes) {
            Some(other) if other >= floor && SegmentHeader::decode(bytes, other).is_ok() => {
                Err(LogDamage::corrupt(number, "log segment under the name of another", 0))
            }
            _ => Ok(None),
        },
    }
}

/// Recycling moves a file to its new name. So a segment with the header of a former life has left no file of that name,
/// or one that is the same; where another file has it, the two were exchanged.
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
        Some(former) if !is_sound(&replay.header(former)?, former) => {
            Err(LogDamage::corrupt(number, "log segment under the name of another", 0).into())
        }
        _ => Ok(()),
    }
}

/// Whether a segment was never begun, by what is where its header goes.
fn is_blank(bytes: &[u8]) -> bool {
    let is_former = |former| SegmentHeader::decode(bytes, former).is_ok();
    bytes.iter().all(|byte| *byte == 0) || SegmentHeader::named(bytes).is_some_and(is_former)
}

/// The segments in log order, from the first that is needed.
fn chain(found: &[Found], floor: LogNumber) -> Result<Vec<SegmentHeader>, LogDamage> {
    if floor.0 > 0 && found.first().is_none_or(|first| first.number != floor) {
        return Err(LogDamage::corrupt(floor, "log segment is missing", 0));
    }
    let first = if floor.0 > 0 {
        let Some(header) = found.first().and_then(|first| first.header) else {
            return Err(LogDamage::corrupt(floor, "header of a log segment is damaged", 0));
        };
        header
    } else {
        // Nothing was ever flushed, so the log begins with the store. Without any sound first segment the store
        // lost power before that was durable, or marks in later ones will tell.
        let mut headers = found.iter().rev().filter_map(|segment| segment.header);
        let Some(header) = headers.find(|header| header.predecessor.is_none()) else { return Ok(Vec::new()) };
        header
    };
    let mut chain = Vec::new();
    chain.push(first);
    let mut last = first;
    // Numbers rise along the chain, so each step ends nearer to the last segment.
    while let Some(next) = successor(found, last.number) {
        chain.push(next);
        last = next;
    }
    Ok(chain)
}

/// The newest segment that names `number` as its predecessor.
fn successor(found: &[Found], number: LogNumber) -> Option<SegmentHeader> {
    let mut headers = found.iter().rev().filter_map(|segment| segment.header);
    headers.find(|header| header.predecessor.is_some_and(|p| p.number == number))
}

/// Replays records up to the first gap, and says where that is.
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
        let bytes = replay.segment(header.number)?;
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
            // The segment ends at a gap, or it is the last.
            _ => {
                if later_mark(&bytes, header.number, offset).is_some_and(|mark| mark > recovered.end) {
                    return Err(lost(header.number, offset).into());
                }
                recovered.closed = matches!(tail, Tail::Ended { closed: true, .. }) && next.is_none();
                recovered.torn = matches!(tail, Tail::Torn { .. });
                break;
            }
        }
    }
    Ok(stop)
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
    // What lies behind the limit was dropped by an earlier recovery.
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

/// Accepts that `segment` is dropped, unless it shows that bytes behind `end` were durable.
fn judge_dropped<R: Replay>(
    segment: &Found,
    found: &[Found],
    stop: Option<&Stop>,
    end: u64,
    replay: &mut R,
) -> Result<(), R::Error> {
    // A sound segment that begins before `end` was dropped by an earlier recovery; the log has gone on since.
    let promised = segment.header.map_or(end, |header| header.base.min(end));
    let bytes = replay.segment(segment.number)?;
    let from = SEGMENT_HEADER_LEN as u64;
    if later_mark(&bytes, segment.number, from).is_none_or(|mark| mark <= promised) {
        return Ok(());
    }
    let Some(header) = segment.header else {
        return Err(LogDamage::corrupt(segment.number, "header of a log segment is damaged", 0).into());
    };
    let before = header.predecessor.map(|before| before.number);
    let known = |number: LogNumber| found.iter().find(|other| other.number == number);
    Err(match before.map(|number| (number, known(number))) {
        Some((number, None)) => LogDamage::corrupt(number, "log segment is missing", 0),
        Some((number, Some(Found { header: None, .. }))) => {
            LogDamage::corrupt(number, "header of a log segment is damaged", 0)
        }
        _ => stop.map_or(lost(segment.number, 0), |stop| lost(stop.segment, stop.offset)),
    }
    .into())
}

fn lost(segment: LogNumber, offset: u64) -> LogDamage {
    LogDamage::corrupt(segment, "log is damaged before a position that was durable", offset)
}
