//! Records of a log segment: writing one, and walking over all of them.
//!
//! The scanner stops at the first place that holds no valid record, or behind a record that ends the segment. It
//! cannot know whether a bad place is a torn end or damage; [`later_mark`] and [`super::recover`] can.

use super::{SEGMENT_HEADER_LEN, SegmentHeader};
use crate::error::EncodeError;
use crate::frame::{self, Found, Frame, FrameFields};
use alloc::vec::Vec;
use drumlin_types::{LogNumber, Seq, bug};

/// Most operations in one record.
pub const MAX_RECORD_OPERATIONS: u32 = (1 << COUNT_BITS) - 1;
/// Longest payload of a record, in bytes.
pub const MAX_RECORD_PAYLOAD: usize = frame::MAX_PAYLOAD_LEN;
/// Bits of a frame's tag that hold the count; the kind is above them.
const COUNT_BITS: u32 = 24;

/// What a record is for. The numbers are part of the format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RecordKind {
    /// A write batch.
    Batch = 1,
    /// The store was closed: everything before is durable, and nothing follows in this segment.
    Close = 2,
    /// The segment is full: the log goes on in the next one.
    End = 3,
}

impl RecordKind {
    fn from_u8(byte: u8) -> Option<RecordKind> {
        [RecordKind::Batch, RecordKind::Close, RecordKind::End].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// What a record says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHeader {
    /// What it is for.
    pub kind: RecordKind,
    /// Log position below which all was durable when the record was written.
    pub synced_mark: u64,
    /// Sequence number of the first operation; 0 when there is none.
    pub first_seq: Seq,
    /// Operations in the payload: at least one in a batch, none in other kinds.
    pub count: u32,
}

impl RecordHeader {
    /// Sequence number of the last operation; 0 when there is none.
    #[must_use]
    pub const fn last_seq(&self) -> Seq {
        self.first_seq.saturating_add(self.count as u64).saturating_sub(1)
    }

    /// What makes it impossible, if anything does.
    fn fault(&self, payload: &[u8]) -> Option<&'static str> {
        let with_operations = self.count > 0 && self.first_seq > 0;
        let without = self.count == 0 && self.first_seq == 0 && payload.is_empty();
        match self.kind {
            RecordKind::Batch if !with_operations => Some("log record of a batch without operations"),
            RecordKind::Close | RecordKind::End if !without => Some("closing log record with operations"),
            _ if self.count > MAX_RECORD_OPERATIONS => Some("log record with more than 2^24 - 1 operations"),
            _ if self.first_seq.checked_add(u64::from(self.count)).is_none() => {
                Some("log record beyond the last sequence number")
            }
            _ => None,
        }
    }
}

/// A record as found in a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// The segment that holds it.
    pub segment: LogNumber,
    /// Its offset in the segment.
    pub offset: u64,
    /// Its position in the log.
    pub position: u64,
    /// What it says about itself.
    pub header: RecordHeader,
    /// Its payload: a batch, or nothing.
    pub payload: &'a [u8],
}

/// Bytes that a record with this much payload takes.
#[must_use]
pub const fn record_len(payload_len: usize) -> u64 {
    frame::frame_len(payload_len)
}

/// Appends to `out` the record that belongs at `offset` of the segment numbered `epoch`.
pub fn encode_record(
    out: &mut Vec<u8>,
    epoch: LogNumber,
    offset: u64,
    header: &RecordHeader,
    payload: &[u8],
) -> Result<(), EncodeError> {
    if let Some(what) = header.fault(payload) {
        return Err(EncodeError { what });
    }
    let fields = FrameFields {
        tag: (header.kind as u32) << COUNT_BITS | header.count,
        mark: header.synced_mark,
        word: header.first_seq,
    };
    frame::put_frame(out, file_id(epoch), offset, fields, payload).map(|_| ())
}

/// What the checksums of a segment's records are bound to.
fn file_id(epoch: LogNumber) -> u64 {
    if bug!("E12") { 0 } else { epoch.0 }
}

/// How the records of a segment end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tail {
    /// With a record that says so: nothing follows.
    Ended {
        /// Offset behind it.
        end: u64,
        /// Whether it was a close, rather than a full segment.
        closed: bool,
    },
    /// With zeros, or with the end of the bytes.
    Clean {
        /// Offset behind the last record.
        end: u64,
    },
    /// With something else: an unfinished record, one of an older epoch, or damage.
    Torn {
        /// Offset of the first byte that is no record.
        at: u64,
    },
    /// With a record that is intact and yet says what no record can say: damage for certain.
    Impossible {
        /// Its offset.
        at: u64,
        /// What it says.
        what: &'static str,
    },
}

impl Tail {
    /// Offset behind the last record.
    #[must_use]
    pub const fn end(&self) -> u64 {
        match *self {
            Tail::Ended { end, .. }
            | Tail::Clean { end }
            | Tail::Torn { at: end }
            | Tail::Impossible { at: end, .. } => end,
        }
    }
}

/// Walks over the records of one segment.
#[derive(Clone, Debug)]
pub struct SegmentScanner<'a> {
    bytes: &'a [u8],
    header: SegmentHeader,
    offset: u64,
    tail: Option<Tail>,
}

impl<'a> SegmentScanner<'a> {
    /// Walks over `bytes`, a segment from its start, whose header is `header`.
    #[must_use]
    pub const fn new(bytes: &'a [u8], header: SegmentHeader) -> SegmentScanner<'a> {
        SegmentScanner { bytes, header, offset: SEGMENT_HEADER_LEN as u64, tail: None }
    }

    /// How the segment ends; `None` until the walk is over.
    #[must_use]
    pub const fn tail(&self) -> Option<Tail> {
        self.tail
    }

    /// Offset behind the records walked over so far.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    fn record(&self, frame: &Frame<'a>) -> Result<Record<'a>, &'static str> {
        let Some(kind) = RecordKind::from_u8((frame.fields.tag >> COUNT_BITS) as u8) else {
            return Err("log record of unknown kind");
        };
        let header = RecordHeader {
            kind,
            synced_mark: frame.fields.mark,
            first_seq: frame.fields.word,
            count: frame.fields.tag & MAX_RECORD_OPERATIONS,
        };
        if let Some(what) = header.fault(frame.payload) {
            return Err(what);
        }
        let position = self.header.position(self.offset);
        // Nothing can have been durable at or behind a record before it was written.
        if header.synced_mark > position {
            return Err("log record with a synced mark beyond itself");
        }
        Ok(Record {
            segment: self.header.number,
            offset: self.offset,
            position,
            header,
            payload: frame.payload,
        })
    }

    fn stop(&mut self, tail: Tail) -> Option<Record<'a>> {
        self.tail = Some(tail);
        None
    }
}

impl<'a> Iterator for SegmentScanner<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        if self.tail.is_some() {
            return None;
        }
        let offset = self.offset;
        let frame = match frame::read_frame(self.bytes, file_id(self.header.number), offset) {
            Found::Frame(frame) => frame,
            Found::Blank => return self.stop(Tail::Clean { end: offset }),
            Found::Bad => return self.stop(Tail::Torn { at: offset }),
        };
        let record = match self.record(&frame) {
            Ok(record) => record,
            Err(what) => return self.stop(Tail::Impossible { at: offset, what }),
        };
        self.offset = frame.end;
        let end = frame.end;
        match record.header.kind {
            RecordKind::Batch => {}
            RecordKind::Close => self.tail = Some(Tail::Ended { end, closed: true }),
            RecordKind::End => self.tail = Some(Tail::Ended { end, closed: false }),
        }
        Some(record)
    }
}

/// The largest synced mark of any record at or behind `from` in `bytes`, the segment numbered `epoch` from its
/// start. A mark beyond the end of the readable log proves that durable bytes were lost.
#[must_use]
pub fn later_mark(bytes: &[u8], epoch: LogNumber, from: u64) -> Option<u64> {
    frame::later_mark(bytes, file_id(epoch), from.max(SEGMENT_HEADER_LEN as u64))
}
