//! Payload of a log record: the operations of one write batch.
//!
//! ```text
//! batch       operation | operation | ...        the record's header holds their number
//! operation   kind u8 | keyspace varint | key slice | value slice (absent for Delete)
//!
//! value of
//!   DeleteRange     0 | end of the range         or the byte 1 alone: the range has no end
//!   PutExpiring     expiry u64 | value           expiry in microseconds since the Unix epoch
//!   MergeExpiring   expiry u64 | operand
//!   other kinds     the value, operand or pointer itself
//! ```
//!
//! Operation `i` of a batch, counted from 0, has the sequence number `first + i`, where `first` is in the record's
//! header. Memtables and tables keep the value of a range tombstone in the same form, see [`range_end`].
//!
//! Invariant: [`BatchReader`] returns exactly the operations that [`BatchWriter`] accepted, and rejects all other
//! bytes.

use crate::bytes::{MAX_VARINT_32_LEN, MAX_VARINT_64_LEN, Reader, put_slice, put_varint};
use crate::error::{Corruption, EncodeError};
use crate::{MAX_BOUND_LEN, log};
use alloc::vec::Vec;
use drumlin_types::{KeyspaceId, Kind, MAX_KEY_LEN, MAX_VALUE_LEN};

/// Length of the expiry time before an expiring value or operand.
pub const EXPIRY_LEN: usize = 8;
/// First byte of the value of a range tombstone with an end.
const BOUNDED: u8 = 0;
/// The only byte of the value of a range tombstone without an end.
const UNBOUNDED: u8 = 1;

/// One operation of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation<'a> {
    /// Type of the operation.
    pub kind: Kind,
    /// Keyspace that it applies to.
    pub keyspace: KeyspaceId,
    /// Key, or start of the range.
    pub key: &'a [u8],
    /// Value in the form that its kind requires; empty for a delete.
    pub value: &'a [u8],
}

impl Operation<'_> {
    fn fault(&self) -> Option<&'static str> {
        let fits = |len: usize| len as u64 <= MAX_VALUE_LEN;
        if self.key.len() > MAX_KEY_LEN {
            return Some("key exceeds the maximum length");
        }
        match self.kind {
            Kind::Delete if !self.value.is_empty() => Some("delete with a value"),
            Kind::DeleteRange if range_end(self.value).is_err() => {
                Some("range tombstone without a valid end")
            }
            Kind::PutExpiring | Kind::MergeExpiring if self.value.len() < EXPIRY_LEN => {
                Some("expiring entry without expiry time")
            }
            _ if !fits(self.value.len()) => Some("value exceeds the maximum length"),
            _ => None,
        }
    }
}

/// Returns the value of a range tombstone that ends at `end`.
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

/// Returns the end of a range tombstone, given its value; `None` when it has no end.
pub fn range_end(value: &[u8]) -> Result<Option<&[u8]>, Corruption> {
    match value.split_first() {
        Some((&UNBOUNDED, [])) => Ok(None),
        Some((&BOUNDED, end)) if end.len() <= MAX_BOUND_LEN => Ok(Some(end)),
        _ => Err(Corruption::new("range tombstone without a valid end", 0)),
    }
}

/// Encodes operations into a payload.
#[derive(Clone, Default, Debug)]
pub struct BatchWriter {
    payload: Vec<u8>,
    count: u32,
}

impl BatchWriter {
    /// Returns an empty batch.
    #[must_use]
    pub const fn new() -> BatchWriter {
        BatchWriter { payload: Vec::new(), count: 0 }
    }

    /// Appends an operation. A rejected operation leaves the batch unchanged.
    pub fn push(&mut self, operation: &Operation<'_>) -> Result<(), EncodeError> {
        if let Some(what) = operation.fault() {
            return Err(EncodeError { what });
        }
        if self.count == log::MAX_RECORD_OPERATIONS {
            return Err(EncodeError { what: "batch of more than 2^24 - 1 operations" });
        }
        let before = self.payload.len();
        if before == 0 {
            // Most batches hold one operation. Reserve its memory at once.
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

    /// Returns the number of operations.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Returns whether the batch holds no operation.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the payload of the operations so far.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Returns an iterator over the operations so far.
    #[must_use]
    pub fn operations(&self) -> BatchReader<'_> {
        BatchReader::new(&self.payload, self.count)
    }

    /// Removes all operations and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.payload.clear();
        self.count = 0;
    }
}

/// Iterator over the operations of a payload. It ends after an error.
#[derive(Clone, Debug)]
pub struct BatchReader<'a> {
    reader: Reader<'a>,
    left: u32,
}

impl<'a> BatchReader<'a> {
    /// Returns an iterator over the `count` operations in `payload`.
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
