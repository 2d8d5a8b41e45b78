//! Operations on any keyspaces of one store that become visible, and durable, together.
//!
//! Operations are encoded as they are added; the encoded form is the payload of the log record. An invalid argument is
//! remembered and reported when the operations are written.

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::resolve::stamp;
use crate::disk::Files;
use crate::keyspace::KeyspaceState;
use drumlin_env::sync::Arc;
use drumlin_format::MAX_BOUND_LEN;
use drumlin_format::batch::EXPIRY_LEN;
use drumlin_format::batch::{BatchWriter, Operation, range_end_value};
use drumlin_format::block::MAX_ENTRY_LEN;
use drumlin_types::{KeyRange, Kind, MAX_KEY_LEN};
use std::time::Duration;

/// Longest time to live: 100 years, as for the option `ttl_seconds`.
const MAX_TTL: Duration = Duration::from_secs(3_153_600_000);

/// Time to live of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ttl {
    /// That of the keyspace, the option `ttl_seconds`.
    Keyspace,
    Never,
    After(Duration),
}

impl From<Option<Duration>> for Ttl {
    fn from(ttl: Option<Duration>) -> Ttl {
        ttl.map_or(Ttl::Never, Ttl::After)
    }
}

/// Limits that operations are checked against when they are added.
pub(crate) struct WriteLimits<'a> {
    /// Source of the clock from which expiry times are computed.
    pub(crate) files: &'a Files,
    /// Largest accepted value, in bytes.
    pub(crate) max_value: u64,
}

/// Operations to be written atomically.
#[derive(Default)]
pub(crate) struct Operations {
    pub(crate) writer: BatchWriter,
    pub(crate) keyspaces: Vec<Arc<KeyspaceState>>,
    pub(crate) user_bytes: u64,
    /// Number of operations that delete.
    deletes: u64,
    scratch: Vec<u8>,
    /// First invalid argument. Writing the operations reports it.
    bad: Option<Error>,
}

impl Operations {
    /// Removes all operations. Keeps up to `most` bytes of memory for the next ones.
    pub(crate) fn clear(&mut self, most: usize) {
        if self.size() > most {
            self.writer = BatchWriter::new();
        }
        self.writer.clear();
        self.keyspaces.clear();
        self.user_bytes = 0;
        self.deletes = 0;
        self.bad = None;
        if self.scratch.capacity() > most {
            self.scratch = Vec::new();
        }
    }

    /// Returns the number of operations.
    pub(crate) fn len(&self) -> usize {
        self.writer.count() as usize
    }

    /// Returns whether there are no operations.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the length of the encoded operations in bytes.
    pub(crate) fn size(&self) -> usize {
        self.writer.payload().len()
    }

    /// Writes `value` under `key`.
    pub(crate) fn put(
        &mut self,
        bounds: &WriteLimits<'_>,
        keyspace: &Arc<KeyspaceState>,
        key: &[u8],
        value: &[u8],
        ttl: Ttl,
    ) {
        match self.lifetime(keyspace, ttl) {
            None => self.add(bounds, keyspace, Kind::Put, key, value),
            Some(ttl) => self.add_expiring(bounds, keyspace, (Kind::PutExpiring, ttl, 1), key, value),
        }
    }

    /// Removes `key`.
    pub(crate) fn delete(&mut self, bounds: &WriteLimits<'_>, keyspace: &Arc<KeyspaceState>, key: &[u8]) {
        self.add(bounds, keyspace, Kind::Delete, key, &[]);
    }

    /// Adds a merge operand for `key`. The keyspace's merge operator combines it with the value.
    pub(crate) fn merge(
        &mut self,
        bounds: &WriteLimits<'_>,
        keyspace: &Arc<KeyspaceState>,
        key: &[u8],
        operand: &[u8],
        ttl: Ttl,
    ) {
        if keyspace.operator.is_none() {
            let kept = keyspace.operator_name.as_deref();
            let kept = kept.map(|name| format!(": {name:?} was not given when the store was opened"));
            let kept = kept.unwrap_or_default();
            let what = format!("keyspace {:?} has no merge operator{kept}", keyspace.name);
            self.bad.get_or_insert_with(|| Error::new(ErrorKind::MergeOperatorMissing, what));
            return;
        }
        match self.lifetime(keyspace, ttl) {
            None => self.add(bounds, keyspace, Kind::Merge, key, operand),
            Some(ttl) => {
                let kind = (Kind::MergeExpiring, ttl, operand_granule(ttl));
                self.add_expiring(bounds, keyspace, kind, key, operand);
            }
        }
    }

    /// Removes every key of `range`. An empty range removes nothing.
    pub(crate) fn delete_range(
        &mut self,
        bounds: &WriteLimits<'_>,
        keyspace: &Arc<KeyspaceState>,
        range: &KeyRange,
    ) {
        if range.is_empty() {
            return;
        }
        // The end of a range may be one byte longer than the longest key: the successor of such a key.
        let end = range.end.as_ref().map_or(0, |end| end.len().saturating_sub(MAX_BOUND_LEN - MAX_KEY_LEN));
        let longest = range.start.len().max(end);
        if self.accepts(bounds, keyspace, longest, 0) {
            let end = range_end_value(range.end.as_deref());
            self.push(keyspace, Kind::DeleteRange, &range.start, &end);
        }
    }

    /// Returns the time to live of an entry of `keyspace` in microseconds; `None` if it does not expire.
    fn lifetime(&mut self, keyspace: &KeyspaceState, ttl: Ttl) -> Option<u64> {
        match ttl {
            Ttl::Keyspace => match keyspace.options.load().ttl_seconds {
                0 => None,
                seconds => Some(seconds.saturating_mul(1_000_000)),
            },
            Ttl::Never => None,
            Ttl::After(_) if drumlin_types::bug!("own-ttl-ignored") => self.lifetime(keyspace, Ttl::Keyspace),
            Ttl::After(ttl) => {
                if ttl > MAX_TTL {
                    let (seconds, most) = (ttl.as_secs(), MAX_TTL.as_secs());
                    self.refuse(format!("a time to live of {seconds} s is longer than {most} s"));
                }
                Some(u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX))
            }
        }
    }

    /// Adds an entry of `kind` that expires after `ttl` microseconds. Its expiry time is rounded up to a multiple of
    /// `granule`, a power of two.
    fn add_expiring(
        &mut self,
        bounds: &WriteLimits<'_>,
        keyspace: &Arc<KeyspaceState>,
        (kind, ttl, granule): (Kind, u64, u64),
        key: &[u8],
        value: &[u8],
    ) {
        let below = granule - 1;
        let expiry = bounds.files.unix_micros().saturating_add(ttl).saturating_add(below) & !below;
        let mut stamped = std::mem::take(&mut self.scratch);
        stamp(expiry, value, &mut stamped);
        self.add(bounds, keyspace, kind, key, &stamped);
        self.scratch = stamped;
    }

    /// Adds an entry whose value is already encoded: plain, or with its expiry time in front.
    pub(crate) fn add(
        &mut self,
        bounds: &WriteLimits<'_>,
        keyspace: &Arc<KeyspaceState>,
        kind: Kind,
        key: &[u8],
        value: &[u8],
    ) {
        if self.accepts(bounds, keyspace, key.len(), value.len()) {
            self.push(keyspace, kind, key, value);
        }
    }

    fn push(&mut self, keyspace: &KeyspaceState, kind: Kind, key: &[u8], value: &[u8]) {
        match self.writer.push(&Operation { kind, keyspace: keyspace.id, key, value }) {
            Ok(()) => {
                self.user_bytes += (key.len() + value.len()) as u64;
                self.deletes += u64::from(matches!(kind, Kind::Delete | Kind::DeleteRange));
            }
            Err(error) => self.refuse(error.what.to_owned()),
        }
    }

    fn accepts(
        &mut self,
        bounds: &WriteLimits<'_>,
        keyspace: &Arc<KeyspaceState>,
        key: usize,
        value: usize,
    ) -> bool {
        if key > MAX_KEY_LEN {
            self.refuse(format!("a key of {key} bytes is longer than {MAX_KEY_LEN}"));
        } else if value as u64 > bounds.max_value.min(longest_value(key)) {
            let most = bounds.max_value;
            self.refuse(match value as u64 > longest_value(key) {
                true => format!(
                    "a value of {value} bytes is longer than {}, the longest possible under a key of {key} bytes",
                    longest_value(key)
                ),
                false => format!(
                    "a value of {value} bytes is longer than {most}, a quarter of memory_budget; raise \
                     memory_budget to store it"
                ),
            });
        }
        if self.bad.is_some() {
            return false;
        }
        if !self.keyspaces.iter().any(|k| Arc::ptr_eq(k, keyspace)) {
            self.keyspaces.push(keyspace.clone());
        }
        true
    }

    fn refuse(&mut self, what: String) {
        self.bad.get_or_insert_with(|| Error::new(ErrorKind::InvalidArgument, what));
    }

    /// Returns whether all operations delete.
    pub(crate) fn only_delete(&self) -> bool {
        self.deletes == self.len() as u64
    }

    /// Returns the first invalid argument as an error.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.bad {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}

/// Returns the granule of expiry times for operands with TTL `ttl`, in microseconds: the largest power of two that is
/// at most 1/64 of the TTL. Operands can be combined only if they expire at the same time. So a key that is merged into
/// all the time keeps at most 129 operands, instead of one for each merge.
fn operand_granule(ttl: u64) -> u64 {
    1 << (ttl / 64).max(1).ilog2()
}

/// Returns the length of the longest value, without its expiry, that a table can hold under a key of `key` bytes.
fn longest_value(key: usize) -> u64 {
    MAX_ENTRY_LEN - (key + EXPIRY_LEN) as u64
}
