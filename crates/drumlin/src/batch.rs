//! A write batch: operations on any keyspaces of one store that become visible, and durable, together.
//!
//! Operations are encoded as they are added; the encoded form is the payload of the log record.

use crate::error::{Error, ErrorKind, Result};
use crate::keyspace::{Keyspace, KeyspaceState};
use drumlin_env::sync::Arc;
use drumlin_format::MAX_BOUND_LEN;
use drumlin_format::batch::{BatchWriter, Operation, range_end_value};
use drumlin_types::{Key, KeyRange, Kind, MAX_KEY_LEN, MAX_VALUE_LEN};
use std::ops::{Bound, RangeBounds};

/// Operations to be written as one.
#[derive(Default)]
pub struct Batch {
    pub(crate) writer: BatchWriter,
    pub(crate) keyspaces: Vec<Arc<KeyspaceState>>,
    pub(crate) user_bytes: u64,
    scratch: Vec<u8>,
    /// The first bad argument; writing the batch reports it.
    bad: Option<Error>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Empties it, and keeps up to `most` bytes of memory for the next operations.
    pub(crate) fn clear(&mut self, most: usize) {
        if self.size() > most {
            self.writer = BatchWriter::new();
        }
        self.writer.clear();
        self.keyspaces.clear();
        self.user_bytes = 0;
        self.bad = None;
        if self.scratch.capacity() > most {
            self.scratch = Vec::new();
        }
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.writer.count() as usize
    }

    /// Whether there are no operations.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the encoded operations.
    pub fn size(&self) -> usize {
        self.writer.payload().len()
    }

    /// Writes `value` under `key`.
    pub fn put(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let ttl = keyspace.state.options.load().ttl_seconds;
        let value = value.as_ref();
        if ttl == 0 {
            return self.add(keyspace, Kind::Put, key.as_ref(), value);
        }
        let expiry = keyspace.store.unix_micros().saturating_add(ttl.saturating_mul(1_000_000));
        let mut stamped = std::mem::take(&mut self.scratch);
        stamped.clear();
        stamped.extend_from_slice(&expiry.to_le_bytes());
        stamped.extend_from_slice(value);
        self.add(keyspace, Kind::PutExpiring, key.as_ref(), &stamped);
        self.scratch = stamped;
    }

    /// Removes `key`.
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) {
        self.add(keyspace, Kind::Delete, key.as_ref(), &[]);
    }

    /// Adds `operand` to what is under `key` by the keyspace's merge operator.
    pub fn merge(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) {
        if keyspace.state.operator.is_none() {
            self.refuse(format!("keyspace {:?} has no merge operator", keyspace.name()));
            return;
        }
        self.add(keyspace, Kind::Merge, key.as_ref(), operand.as_ref());
    }

    /// Removes every key of `range`. An empty range removes nothing.
    pub fn delete_range<K: AsRef<[u8]>>(&mut self, keyspace: &Keyspace, range: impl RangeBounds<K>) {
        let range = key_range(range);
        if range.is_empty() {
            return;
        }
        // What ends behind the longest key ends one byte behind it.
        let end = range.end.as_ref().map_or(0, |end| end.len().saturating_sub(MAX_BOUND_LEN - MAX_KEY_LEN));
        let longest = range.start.len().max(end);
        if self.accepts(keyspace, longest, 0) {
            let end = range_end_value(range.end.as_deref());
            self.push(keyspace, Kind::DeleteRange, &range.start, &end);
        }
    }

    /// Writes an entry as it was found, expiry and all.
    pub(crate) fn restore(&mut self, keyspace: &Keyspace, kind: Kind, key: &[u8], value: &[u8]) {
        self.add(keyspace, kind, key, value);
    }

    fn add(&mut self, keyspace: &Keyspace, kind: Kind, key: &[u8], value: &[u8]) {
        if self.accepts(keyspace, key.len(), value.len()) {
            self.push(keyspace, kind, key, value);
        }
    }

    fn push(&mut self, keyspace: &Keyspace, kind: Kind, key: &[u8], value: &[u8]) {
        match self.writer.push(&Operation { kind, keyspace: keyspace.state.id, key, value }) {
            Ok(()) => self.user_bytes += (key.len() + value.len()) as u64,
            Err(error) => self.refuse(error.what.to_owned()),
        }
    }

    fn accepts(&mut self, keyspace: &Keyspace, key: usize, value: usize) -> bool {
        if key > MAX_KEY_LEN {
            self.refuse(format!("a key of {key} bytes is longer than {MAX_KEY_LEN}"));
        } else if value as u64 > MAX_VALUE_LEN.min(keyspace.store.max_batch_bytes()) {
            let most = keyspace.store.max_batch_bytes();
            self.refuse(format!(
                "a value of {value} bytes is longer than {most}, a quarter of memory_budget; raise memory_budget to store it"
            ));
        }
        if self.bad.is_some() {
            return false;
        }
        if !self.keyspaces.iter().any(|k| Arc::ptr_eq(k, &keyspace.state)) {
            self.keyspaces.push(keyspace.state.clone());
        }
        true
    }

    fn refuse(&mut self, what: String) {
        self.bad.get_or_insert_with(|| Error::new(ErrorKind::InvalidArgument, what));
    }

    pub(crate) fn check(&self) -> Result<()> {
        match &self.bad {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batch({} operations, {} bytes)", self.len(), self.size())
    }
}

/// The half-open range of keys that `range` means.
pub(crate) fn key_range<K: AsRef<[u8]>>(range: impl RangeBounds<K>) -> KeyRange {
    let start = match range.start_bound() {
        Bound::Included(key) => Key::new(key.as_ref()),
        Bound::Excluded(key) => Key::successor(key.as_ref()),
        Bound::Unbounded => Key::empty(),
    };
    let end = match range.end_bound() {
        Bound::Included(key) => Some(Key::successor(key.as_ref())),
        Bound::Excluded(key) => Some(Key::new(key.as_ref())),
        Bound::Unbounded => None,
    };
    KeyRange::new(start, end)
}
