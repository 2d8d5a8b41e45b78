//! The write-ahead log: segments of records.
//!
//! ```text
//! segment   header block, 4096 bytes | record | record | ... | zeros, or what the file held before
//!
//! header     0  magic, version, checksum            (`file_header`)
//!           16  number               u64   also the segment's epoch
//!           24  base                 u64   log position of the first record byte; where the predecessor ended
//!           32  predecessor          u64   number of the segment before; 0 for the first of a store
//!           40  predecessor's last   u64   last sequence number in or before the predecessor
//!           48  zeros
//!
//! record     0  checksums, length                   (`frame`)
//!           12  kind u8 | count u24        count of operations
//!           16  synced mark          u64   log position below which all was durable when this was written
//!           24  first sequence       u64   of the first operation; 0 without any
//!           32  payload (`batch`), zeros up to a multiple of 8
//! ```
//!
//! A *log position* counts record bytes over all segments, so it names a place in the log whatever the sizes of
//! the segments: offset `o` of a segment is position `base + o - 4096`. Segments form a chain by predecessor and
//! base. Numbers rise along the chain but are not dense: they share one number space with other files.
//!
//! Segments are recycled: behind the last record lie records of an older epoch. The epoch and the offset are in
//! each record's checksums, so those never pass.
//!
//! What a writer owes, so that [`recover`] can keep its promise:
//! - the header and the segment's directory entry are durable before a record in it is acknowledged as durable;
//! - a segment is durable as a whole before a record of the next one is acknowledged as durable;
//! - a mark is never ahead of what is durable;
//! - after recovery: everything that was replayed is made durable, then a new segment that names the end of the
//!   log is, and only then is a write accepted. What was read back after a killed process may be in the page
//!   cache only; building on it without a sync could leave a hole;
//! - only segments below the floor are recycled, never those that recovery dropped.

mod record;
mod recover;

pub use record::{
    MAX_RECORD_OPERATIONS, MAX_RECORD_PAYLOAD, Record, RecordHeader, RecordKind, SegmentScanner, Tail,
    encode_record, later_mark, record_len,
};
pub use recover::{LogDamage, Recovered, Replay, recover};

use crate::bytes::{Reader, put_u64};
use crate::error::{Corruption, DecodeError};
use crate::file_header::{HeaderKind, PREFIX_LEN};
use alloc::vec::Vec;
use drumlin_types::{LogNumber, Seq};

/// Bytes of the block that opens a segment.
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

/// The end of the segment that a new one continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Predecessor {
    /// Its number.
    pub number: LogNumber,
    /// The last sequence number logged in it, or before it if it holds none.
    pub last_seq: Seq,
}

/// What a segment says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    /// The segment's number, which is its epoch.
    pub number: LogNumber,
    /// Log position of its first record byte: the position at which the predecessor ended.
    pub base: u64,
    /// The segment before it; `None` in the first of a store.
    pub predecessor: Option<Predecessor>,
}

impl SegmentHeader {
    /// The header block.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut fields = Vec::with_capacity(32);
        put_u64(&mut fields, self.number.0);
        put_u64(&mut fields, self.base);
        put_u64(&mut fields, self.predecessor.map_or(0, |p| p.number.0));
        put_u64(&mut fields, self.predecessor.map_or(0, |p| p.last_seq));
        HEADER.encode(self.number.0, &fields).0
    }

    /// Reads the header of segment `number` from the segment's bytes. A recycled file that still has the header
    /// of its former number is damage.
    pub fn decode(bytes: &[u8], number: LogNumber) -> Result<SegmentHeader, DecodeError> {
        let (mut reader, _) = HEADER.decode(bytes, number.0)?;
        if reader.u64()? != number.0 {
            return Err(Corruption::new("segment header names another segment", 16).into());
        }
        let base = reader.u64()?;
        let predecessor = match (reader.u64()?, reader.u64()?) {
            (0, _) => None,
            (before, last_seq) => Some(Predecessor { number: LogNumber(before), last_seq }),
        };
        if predecessor.is_some_and(|p| p.number >= number) {
            return Err(Corruption::new("segment does not follow its predecessor", 32).into());
        }
        Ok(SegmentHeader { number, base, predecessor })
    }

    /// The number that the header in `bytes` names, whether sound or not.
    fn named(bytes: &[u8]) -> Option<LogNumber> {
        let mut reader = Reader::new(bytes.get(PREFIX_LEN..)?);
        reader.u64().ok().map(LogNumber)
    }

    /// Log position of `offset` in this segment.
    #[must_use]
    pub const fn position(&self, offset: u64) -> u64 {
        self.base.saturating_add(offset.saturating_sub(SEGMENT_HEADER_LEN as u64))
    }

    /// Offset of log position `position` in this segment, if it does not lie before it.
    #[must_use]
    pub const fn offset(&self, position: u64) -> Option<u64> {
        match position.checked_sub(self.base) {
            Some(offset) => offset.checked_add(SEGMENT_HEADER_LEN as u64),
            None => None,
        }
    }

    /// The last sequence number logged before this segment.
    #[must_use]
    pub fn last_seq_before(&self) -> Seq {
        self.predecessor.map_or(0, |p| p.last_seq)
    }
}
