//! The write-ahead log: a chain of segment files that hold records.
//!
//! ```text
//! segment   header block, 4096 bytes | record | record | ... | zeros, or bytes of the file's former use
//!
//! header     0  magic "drumlLOG", version, checksum   (`file_header`)
//!           16  number               u64   of this segment, also its epoch; never 0
//!           24  base                 u64   log position of the first record byte; the end of the predecessor
//!           32  predecessor          u64   number of the previous segment; 0 in the first segment of a store
//!           40  predecessor's last   u64   last sequence number in or before the predecessor
//!           48  file length          u64   length of the segment's file; 0 when unknown
//!           56  zeros
//!
//! record     0  checksums, length                   (`frame`)
//!           12  kind u8 | count u24        1 batch, 2 close, 3 end; count of operations in a batch, else 0
//!           16  synced mark          u64   log position below which all was durable when this was written
//!           24  first sequence       u64   sequence number of the first operation; 0 without operations
//!           32  payload, then zeros up to a multiple of 8
//! ```
//!
//! The `kind` byte is the high byte of the frame's 32-bit tag; `count` is its low 24 bits.
//!
//! Payloads:
//! - A *batch* record holds a write batch (`batch`).
//! - A *close* record says that the store was closed: everything before it is durable, and nothing follows in this
//!   segment. Its payload is empty or a [`Vouched`]: number and durable length of the manifest at that time, u64 each.
//! - An *end* record says that the segment is full and the log continues in the next one. Its payload is empty.
//!
//! A *log position* counts record bytes over all segments, so it is independent of segment sizes. Offset `o` of a
//! segment is log position `base + o - 4096`. Predecessor and base link the segments to a chain. Numbers rise along the
//! chain but have gaps, since log segments share one number space with other files.
//!
//! Segment files are recycled, so records of an older epoch may follow the last record. Each record's checksums are
//! bound to the epoch and the offset, which excludes stale records.
//!
//! A truncated segment is corrupt. A segment file receives its name only after its whole length is durable, and its
//! header stores that length. A shorter file has therefore been cut.
//!
//! Obligations of a writer, on which [`recover()`] relies:
//! - Before a record is acknowledged as durable, the header and the directory entry of its segment are durable.
//! - Before a record of the next segment is acknowledged as durable, the whole previous segment is durable.
//! - A synced mark never exceeds what is durable.
//! - Recovery ends with these steps, in order: sync everything that was replayed; make durable a new segment that names
//!   the end of the log; accept writes. After a process crash, replayed bytes may exist in the page cache only.
//!   Appending to them without a sync could leave a hole.
//! - Only segments below the floor are recycled, never those that recovery dropped.

mod record;
mod recover;

pub use record::{
    MAX_RECORD_OPERATIONS, MAX_RECORD_PAYLOAD, Record, RecordHeader, RecordKind, SegmentScanner, Tail,
    Vouched, encode_record, later_mark, next_record, record_len,
};
pub use recover::{LogDamage, Recovered, Replay, SegmentPrefix, recover};

use crate::bytes::{Reader, put_u64};
use crate::error::{Corruption, DecodeError};
use crate::file_header::{HeaderKind, PREFIX_LEN};
use crate::limits::{MAX_LEN, MAX_NUMBER, MAX_POSITION, MAX_SEQ};
use alloc::vec::Vec;
use drumlin_types::{LogNumber, Seq};

/// Length of a segment's header block.
pub const SEGMENT_HEADER_LEN: usize = 4096;
/// Version of the log format.
pub const LOG_VERSION: u32 = 1;

const HEADER: HeaderKind = HeaderKind {
    magic: *b"drumlLOG",
    len: SEGMENT_HEADER_LEN,
    version: LOG_VERSION,
    too_short: "log segment shorter than its header",
    wrong_magic: "not a log segment",
    version_name: "log format",
};

/// End of the segment that a new segment continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Predecessor {
    /// Number of the predecessor.
    pub number: LogNumber,
    /// Last sequence number logged in the predecessor, or before it if it holds none.
    pub last_seq: Seq,
}

/// Header of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    /// Number of the segment, which is also its epoch.
    pub number: LogNumber,
    /// Log position of the first record byte: the position at which the predecessor ended.
    pub base: u64,
    /// The previous segment; `None` in the first segment of a store.
    pub predecessor: Option<Predecessor>,
    /// Length of the segment's file, durable before this header was written; 0 when unknown.
    pub file_len: u64,
}

impl SegmentHeader {
    /// Encodes the header block.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut fields = Vec::with_capacity(40);
        put_u64(&mut fields, self.number.0);
        put_u64(&mut fields, self.base);
        put_u64(&mut fields, self.predecessor.map_or(0, |p| p.number.0));
        put_u64(&mut fields, self.predecessor.map_or(0, |p| p.last_seq));
        put_u64(&mut fields, self.file_len);
        HEADER.encode(self.number.0, &fields).0
    }

    /// Decodes the header of segment `number` from the start of the segment. A recycled file that still has the header
    /// of its former number is corrupt.
    pub fn decode(bytes: &[u8], number: LogNumber) -> Result<SegmentHeader, DecodeError> {
        let (mut reader, _) = HEADER.decode(bytes, number.0)?;
        if reader.u64()? != number.0 {
            return Err(Corruption::new("segment header names another segment", 16).into());
        }
        // The next segment could not name this one as its predecessor, since 0 means "no predecessor".
        if number.0 == 0 {
            return Err(Corruption::new("log segment without a number", 16).into());
        }
        let base = reader.u64_up_to(MAX_POSITION)?;
        let predecessor = match (reader.u64_up_to(MAX_NUMBER)?, reader.u64_up_to(MAX_SEQ)?) {
            (0, _) => None,
            (before, last_seq) => Some(Predecessor { number: LogNumber(before), last_seq }),
        };
        if predecessor.is_some_and(|p| p.number >= number) {
            return Err(Corruption::new("segment does not follow its predecessor", 32).into());
        }
        Ok(SegmentHeader { number, base, predecessor, file_len: reader.u64_up_to(MAX_LEN)? })
    }

    /// Returns the number in the header at the start of `bytes`, without verifying the header.
    #[must_use]
    pub fn named(bytes: &[u8]) -> Option<LogNumber> {
        let mut reader = Reader::new(bytes.get(PREFIX_LEN..)?);
        reader.u64().ok().map(LogNumber)
    }

    /// Returns the log position of `offset` in this segment.
    #[must_use]
    pub const fn position(&self, offset: u64) -> u64 {
        self.base.saturating_add(offset.saturating_sub(SEGMENT_HEADER_LEN as u64))
    }

    /// Returns the offset of log position `position` in this segment, or `None` if the position is before the segment.
    #[must_use]
    pub const fn offset(&self, position: u64) -> Option<u64> {
        match position.checked_sub(self.base) {
            Some(offset) => offset.checked_add(SEGMENT_HEADER_LEN as u64),
            None => None,
        }
    }

    /// Returns the last sequence number logged before this segment.
    #[must_use]
    pub fn last_seq_before(&self) -> Seq {
        self.predecessor.map_or(0, |p| p.last_seq)
    }
}
