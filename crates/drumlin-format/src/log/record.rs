//! Records of a log segment: the encoder of one record, and the scanner of all records of a segment.
//!
//! The scanner stops at the first place without a valid record, or after a record that ends the segment. It cannot tell
//! a torn end from corruption. [`later_mark`] and [`super::recover()`] can.

use super::{SEGMENT_HEADER_LEN, SegmentHeader};
use crate::error::EncodeError;
use crate::frame::{self, Found, Frame, FrameFields};
use crate::limits::{MAX_LEN, MAX_NUMBER, MAX_POSITION, MAX_SEQ};
use alloc::vec::Vec;
use drumlin_types::{LogNumber, Seq, bug};

/// Maximum number of operations in one record.
pub const MAX_RECORD_OPERATIONS: u32 = (1 << COUNT_BITS) - 1;
/// Maximum length of a record's payload, in bytes.
pub const MAX_RECORD_PAYLOAD: usize = frame::MAX_PAYLOAD_LEN;
/// Number of low bits of a frame's tag that hold the count. The kind is above them.
const COUNT_BITS: u32 = 24;

/// Type of a record. The numbers are part of the disk format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RecordKind {
    /// A write batch.
    Batch = 1,
    /// The store was closed: everything before is durable, and nothing follows in this segment.
    Close = 2,
    /// The segment is full: the log continues in the next one.
    End = 3,
}

impl RecordKind {
    fn from_u8(byte: u8) -> Option<RecordKind> {
        [RecordKind::Batch, RecordKind::Close, RecordKind::End].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// Header fields of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHeader {
    /// Type of the record.
    pub kind: RecordKind,
    /// Log position below which everything was durable when the record was written.
    pub synced_mark: u64,
    /// Sequence number of the first operation; 0 when there is none.
    pub first_seq: Seq,
    /// Number of operations in the payload: at least one in a batch, 0 in other kinds.
    pub count: u32,
}

impl RecordHeader {
    /// Returns the sequence number of the last operation; 0 when there is none.
    #[must_use]
    pub const fn last_seq(&self) -> Seq {
        self.first_seq.saturating_add(self.count as u64).saturating_sub(1)
    }

    /// Returns why no record can have this header and payload, if so.
    fn fault(&self, payload: &[u8]) -> Option<&'static str> {
        let with_operations = self.count > 0 && self.first_seq > 0;
        let is_bare = payload.is_empty() || self.kind == RecordKind::Close && payload.len() == Vouched::LEN;
        let without = self.count == 0 && self.first_seq == 0 && is_bare;
        match self.kind {
            RecordKind::Batch if !with_operations => Some("log record of a batch without operations"),
            RecordKind::Close | RecordKind::End if !without => Some("closing log record with operations"),
            _ if self.count > MAX_RECORD_OPERATIONS => Some("log record with more than 2^24 - 1 operations"),
            _ if self.first_seq > MAX_SEQ - u64::from(self.count) => {
                Some("log record beyond the last sequence number")
            }
            _ if self.synced_mark > MAX_POSITION => Some("log record beyond the last position"),
            _ => None,
        }
    }
}

/// Manifest state that a close record vouches for: the part of the manifest that was durable at the close.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vouched {
    /// Number of the current manifest.
    pub manifest: u64,
    /// Durable length of the manifest up to the end of its last edit, without padding.
    pub len: u64,
}

impl Vouched {
    const LEN: usize = 16;

    /// Encodes the payload of a close record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        [self.manifest.to_le_bytes(), self.len.to_le_bytes()].concat()
    }

    /// Decodes the payload of a close record. Returns `None` for an empty payload.
    #[must_use]
    pub fn decode(payload: &[u8]) -> Option<Vouched> {
        let mut reader = crate::bytes::Reader::new(payload);
        Some(Vouched { manifest: reader.u64_up_to(MAX_NUMBER).ok()?, len: reader.u64_up_to(MAX_LEN).ok()? })
    }
}

/// A record found in a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// The segment that holds the record.
    pub segment: LogNumber,
    /// Offset of the record in the segment.
    pub offset: u64,
    /// Log position of the record.
    pub position: u64,
    /// Header fields.
    pub header: RecordHeader,
    /// Payload: a batch, an encoded [`Vouched`], or nothing.
    pub payload: &'a [u8],
}

/// Returns the length of a record with a payload of `payload_len` bytes.
#[must_use]
pub const fn record_len(payload_len: usize) -> u64 {
    frame::frame_len(payload_len)
}

/// Appends to `out` the record for `offset` of the segment numbered `epoch`.
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

/// Returns the file id that the checksums of a segment's records are bound to.
fn file_id(epoch: LogNumber) -> u64 {
    if bug!("record-without-epoch") { 0 } else { epoch.0 }
}

/// End of the records of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tail {
    /// A close or end record: nothing follows.
    Ended {
        /// Offset after that record.
        end: u64,
        /// Whether it is a close record, rather than the end record of a full segment.
        closed: bool,
    },
    /// Zeros, or the end of the bytes.
    Clean {
        /// Offset after the last record.
        end: u64,
    },
    /// Other bytes: an unfinished record, a record of an older epoch, or corruption.
    Torn {
        /// Offset of the first byte that belongs to no record.
        at: u64,
    },
    /// A record with valid checksums and impossible contents: certain corruption.
    Impossible {
        /// Offset of that record.
        at: u64,
        /// The fault.
        what: &'static str,
    },
}

impl Tail {
    /// Returns the offset after the last record.
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

/// Iterator over the records of one segment.
#[derive(Clone, Debug)]
pub struct SegmentScanner<'a> {
    bytes: &'a [u8],
    header: SegmentHeader,
    offset: u64,
    tail: Option<Tail>,
}

impl<'a> SegmentScanner<'a> {
    /// Returns a scanner of `bytes`, which hold a segment from its start. `header` is the segment's header.
    #[must_use]
    pub const fn new(bytes: &'a [u8], header: SegmentHeader) -> SegmentScanner<'a> {
        SegmentScanner { bytes, header, offset: SEGMENT_HEADER_LEN as u64, tail: None }
    }

    /// Continues at `offset`, without looking at the bytes before it.
    pub fn resume(&mut self, offset: u64) {
        (self.offset, self.tail) = (offset, None);
    }

    /// Returns how the segment ends; `None` until the scan is over.
    #[must_use]
    pub const fn tail(&self) -> Option<Tail> {
        self.tail
    }

    /// Returns the offset after the records scanned so far.
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
        // When a record is written, nothing at or after its position can be durable.
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

/// Returns the offset of the next valid record at or after `from`. `bytes` hold the segment numbered `epoch` from its
/// start.
#[must_use]
pub fn next_record(bytes: &[u8], epoch: LogNumber, from: u64) -> Option<u64> {
    frame::next_frame(bytes, file_id(epoch), from.max(SEGMENT_HEADER_LEN as u64))
}

/// Returns the largest synced mark of any record at or after `from`. `bytes` hold the segment numbered `epoch` from
/// its start. A mark beyond the end of the readable log proves that durable bytes were lost.
#[must_use]
pub fn later_mark(bytes: &[u8], epoch: LogNumber, from: u64) -> Option<u64> {
    frame::later_mark(bytes, file_id(epoch), from.max(SEGMENT_HEADER_LEN as u64))
}
