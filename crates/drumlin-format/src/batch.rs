//! The payload of a log record: the operations of one write batch.
//!
//! ```text
//! batch       operation | operation | ...        the count is in the record's header
//! operation   kind u8 | keyspace varint | key slice | value slice, but for Delete
//! value       Delete        none
//!             DeleteRange   0 | end of the range      or 1 alone: no end
//!             PutExpiring   expiry u64 | value
//! ```
//!
//! Operation number `i` has the sequence number `first + i`. A range tombstone keeps this value form in memory
//! and in tables too, see [`range_end`].
//!
//! Invariant: what [`BatchWriter`] takes, [`BatchReader`] gives back, and nothing else gets past the reader.

use crate::bytes::{MAX_VARINT_32_LEN, MAX_VARINT_64_LEN, Reader, put_slice, put_varint};
use crate::error::{Corruption, EncodeError};
use crate::{MAX_BOUND_LEN, log};
use alloc::vec::Vec;
use drumlin_types::{KeyspaceId, Kind, MAX_KEY_LEN, MAX_VALUE_LEN};

/// Bytes of the expiry time in front of an expiring value.
pub const EXPIRY_LEN: usize = 8;
/// First byte of the value of a range tombstone with an end.
const BOUNDED: u8 = 0;
/// The only byte of the value of a range tombstone without an end.
const UNBOUNDED: u8 = 1;

/// One operation of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation<'a> {
    /// What it does.
    pub kind: Kind,
    /// Where.
    pub keyspace: KeyspaceId,
    /// The key, or the start of the range.
    pub key: &'a [u8],
    /// The value in the form that its kind demands; empty for a delete.
    pub value: &'a [u8],
}

impl Operation<'_> {
    fn fault(&self) -> Option<&'static str> {
        let fits = |len: usize| len as u64 <= MAX_VALUE_LEN;
        if self.key.len() > MAX_KEY_LEN {
            return Some("key longer than a key can be");
        }
        match self.kind {
            Kind::Delete if !self.value.is_empty() => Some("delete with a value"),
            Kind::DeleteRange if range_end(self.value).is_err() => {
                Some("range tombstone without a valid end")
            }
            Kind::PutExpiring if self.value.len() < EXPIRY_LEN => Some("expiring value without expiry time"),
            _ if !fits(self.value.len()) => Some("value longer than a value can be"),
            _ => None,
        }
    }
}

/// The value form of a range tombstone that ends at `end`.
#[must_use]
pub fn range_end_value(end: Option<&[u8]>) -> Vec<u8> {
    match end {
        None => [UNBOUNDED].into(),
        Some(end) => {
            let mut value = Vec::with_capacity(1 + end.len());
            value.push(BOUNDED);
            value.extend_from_slice(end);
            value
        }
    }
}

/// The end of the range of a range tombstone, from its value form; `None` when it has no end.
pub fn range_end(value: &[u8]) -> Result<Option<&[u8]>, Corruption> {
    match value.split_first() {
        Some((&UNBOUNDED, [])) => Ok(None),
        Some((&BOUNDED, end)) if end.len() <= MAX_BOUND_LEN => Ok(Some(end)),
        _ => Err(Corruption::new("range tombstone without a valid end", 0)),
    }
}

/// Collects operations into a payload.
#[derive(Clone, Default, Debug)]
pub struct BatchWriter {
    payload: Vec<u8>,
    count: u32,
}

impl BatchWriter {
    /// An empty batch.
    #[must_use]
    pub const fn new() -> BatchWriter {
        BatchWriter { payload: Vec::new(), count: 0 }
    }

    /// Appends an operation. One that is refused changes nothing.
    pub fn push(&mut self, operation: &Operation<'_>) -> Result<(), EncodeError> {
        if let Some(what) = operation.fault() {
            return Err(EncodeError { what });
        }
        if self.count == log::MAX_RECORD_OPERATIONS {
            return Err(EncodeError { what: "batch of more than 2^24 - 1 operations" });
        }
        let before = self.payload.len();
        if before == 0 {
            // A batch of one operation, the most common, gets its memory at once.
            let lengths = 2 * MAX_VARINT_32_LEN + MAX_VARINT_64_LEN;
            self.payload.reserve(1 + lengths + operation.key.len() + operation.value.len());
        }
        self.payload.push(operation.kind as u8);
        put_varint(&mut self.payload, u64::from(operation.keyspace.0));
        put_slice(&mut self.payload, operation.key);
        if operation.kind != Kind::Delete {
            put_slice(&mut self.payload, operation.value);
        }
        if self.payload.len() > log::MAX_RECORD_PAYLOAD {
            self.payload.truncate(before);
            return Err(EncodeError { what: "batch longer than 4 GiB" });
        }
        self.count += 1;
        Ok(())
    }

    /// Operations so far.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Whether there is no operation.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The payload so far.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The operations so far.
    #[must_use]
    pub fn operations(&self) -> BatchReader<'_> {
        BatchReader::new(&self.payload, self.count)
    }

    /// Empties the batch, keeping its memory.
    pub fn clear(&mut self) {
        self.payload.clear();
        self.count = 0;
    }
}

/// Walks over the operations of a payload. After an error it ends.
#[derive(Clone, Debug)]
pub struct BatchReader<'a> {
    reader: Reader<'a>,
    left: u32,
}

impl<'a> BatchReader<'a> {
    /// Walks over the `count` operations in `payload`.
    #[must_use]
    pub const fn new(payload: &'a [u8], count: u32) -> BatchReader<'a> {
        BatchReader { reader: Reader::new(payload), left: count }
    }

    fn operation(&mut self) -> Result<Operation<'a>, Corruption> {
        let at = self.reader.offset();
        let kind = self.reader.u8()?;
        let kind = Kind::from_u8(kind).ok_or(Corruption::new("operation of unknown kind", at))?;
        let keyspace = KeyspaceId(self.reader.varint_u32()?);
        let key = self.reader.slice_up_to(MAX_KEY_LEN)?;
        let value = if kind == Kind::Delete { &[] } else { self.reader.slice()? };
        let operation = Operation { kind, keyspace, key, value };
        match operation.fault() {
            Some(what) => Err(Corruption::new(what, at)),
            None => Ok(operation),
        }
    }
}

impl<'a> Iterator for BatchReader<'a> {
    type Item = Result<Operation<'a>, Corruption>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            let rest = core::mem::replace(&mut self.reader, Reader::new(&[]));
            return rest.finish().err().map(Err);
        }
        self.left -= 1;
        let operation = self.operation();
        if operation.is_err() {
            *self = BatchReader::new(&[], 0);
        }
        Some(operation)
    }
}
