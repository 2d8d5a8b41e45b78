//! Rules that resolve the versions of one key to a value. Point lookups, scans and compactions share them, so that all
//! of them give the same result.
//!
//! # Time to live
//! An expiry time belongs to one version, a put or a merge operand. For a reader at time `t`:
//! - a put whose expiry is at most `t` counts as a deletion;
//! - an operand whose expiry is at most `t` counts as if it had never been written;
//! - the value is that of the newest put or deletion, changed by the unexpired operands above it, oldest first.
//!
//! A version never changes the expiry of another. So a counter with a time to live is the sum over a sliding window. An
//! operand can outlive the put that it was merged into.
//!
//! # Why flushes and compactions change no result
//! The rule above determines a result from the reader's time and the versions that its snapshot sees. It judges the
//! expiry of each version on its own. A compaction makes three changes to versions that the same readers see:
//! 1. It drops an expired operand and turns an expired put into a deletion. It does so only if the version has expired
//!    at the *horizon*. The horizon is the earliest time of any snapshot that sees the version, or else the time at
//!    which the compaction began. Every reader of the result is at the horizon or later: a snapshot keeps its time, and
//!    later snapshots and reads have later times, since the store's clock never goes back. So the version has expired
//!    for all.
//! 2. It merges an operand into the version directly below only if both have the same expiry. So at any time both count
//!    or neither does. If both count, the operator's associativity makes the results equal.
//! 3. It turns an operand without a base into a put with the operand's expiry. Before the expiry, both resolve to the
//!    operator's result without a base. After it, both resolve to no value.

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::merge_operator::MergeOperator;
use crate::base::name::KeyspaceName;
use crate::base::slice::Slice;
use crate::base::value_read_ahead::ValueReadAhead;
use drumlin_format::batch::EXPIRY_LEN;
use drumlin_types::{Kind, Seq};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Function that reads the value of a value pointer, given the user key, the sequence number, the encoded pointer and
/// what the value is read for. The caller holds a tree with the pointer, so that the value file stays.
pub(crate) type PointerReader = dyn Fn(&[u8], Seq, &[u8], ValueRead<'_>) -> Result<Slice> + Send + Sync;

/// What a value is read for, which decides how the cache is used.
pub(crate) enum ValueRead<'a> {
    /// A lookup: it adds the value to the cache, and counts as a hit or a miss.
    Lookup,
    /// A scan: it takes values from the cache, adds none, and reads ahead.
    Scan(&'a mut ValueReadAhead),
    /// A compaction that merges operands into the value: it takes the value from the cache without marking it as used.
    Merge,
    /// A check of the file: it reads the file, whatever the cache has.
    Check,
}

/// Expiry of a version that does not expire.
pub(crate) const NEVER: u64 = u64::MAX;

/// Effect of one version on its key, at the time of the read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Meaning {
    /// The key does not exist: the version is a tombstone or an expired put.
    Deleted,
    /// The key has a value, which follows the first `skip` bytes of the entry.
    Value { skip: usize },
    /// The key has the value that the value pointer refers to.
    Pointer,
    /// The operand changes the result of the older versions. It follows the first `skip` bytes of the entry.
    Operand { skip: usize },
    /// The operand has expired. The older versions decide.
    ExpiredOperand,
}

impl Meaning {
    /// Returns the meaning of a version. `now` returns the time in microseconds since the Unix epoch. It is called only
    /// for a version that has an expiry.
    #[inline]
    pub(crate) fn of(kind: Kind, value: &[u8], now: impl FnOnce() -> u64) -> Result<Meaning> {
        match kind {
            Kind::Put => Ok(Meaning::Value { skip: 0 }),
            // A range tombstone includes its start key.
            Kind::Delete | Kind::DeleteRange => Ok(Meaning::Deleted),
            Kind::Merge => Ok(Meaning::Operand { skip: 0 }),
            Kind::PutPointer => Ok(Meaning::Pointer),
            Kind::PutExpiring | Kind::MergeExpiring => {
                let has_expired = now() >= expiry(value)?;
                Ok(match (kind, has_expired) {
                    (Kind::PutExpiring, true) => Meaning::Deleted,
                    (Kind::PutExpiring, false) => Meaning::Value { skip: EXPIRY_LEN },
                    (_, true) => Meaning::ExpiredOperand,
                    (_, false) => Meaning::Operand { skip: EXPIRY_LEN },
                })
            }
        }
    }
}

/// Decodes the expiry time in front of an expiring value or operand.
fn expiry(value: &[u8]) -> Result<u64> {
    let short = || Error::new(ErrorKind::Corruption, "an expiring entry is too short for its expiry");
    value.first_chunk::<EXPIRY_LEN>().map(|bytes| u64::from_le_bytes(*bytes)).ok_or_else(short)
}

/// Returns the expiry of a version, and its value or operand.
pub(crate) fn parts(kind: Kind, value: &[u8]) -> Result<(u64, &[u8])> {
    match kind {
        Kind::PutExpiring | Kind::MergeExpiring => Ok((expiry(value)?, &value[EXPIRY_LEN..])),
        _ => Ok((NEVER, value)),
    }
}

/// Writes `expiry` and `bytes` to `out`, in the form of an expiring entry.
pub(crate) fn stamp(expiry: u64, bytes: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&expiry.to_le_bytes());
    out.extend_from_slice(bytes);
}

/// The merge operator panicked.
#[derive(Debug)]
pub(crate) struct Panicked;

/// Calls the merge operator through `call` and catches its panic.
pub(crate) fn call_operator<'a>(
    operator: &'a dyn MergeOperator,
    call: impl FnOnce(&'a dyn MergeOperator) -> Option<Vec<u8>>,
) -> std::result::Result<Option<Vec<u8>>, Panicked> {
    catch_unwind(AssertUnwindSafe(|| call(operator))).map_err(|payload| {
        // The payload comes from user code too, and may panic when it is dropped. The payload of that second panic is
        // leaked.
        if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(second);
        }
        Panicked
    })
}

/// Resolves merge operands and value pointers to values, for the reads of one view of a keyspace.
pub(crate) struct Resolver<'a> {
    /// Name of the keyspace, for errors.
    pub(crate) keyspace: &'a KeyspaceName,
    /// The keyspace's merge operator, if the program supplied one.
    pub(crate) operator: Option<&'a dyn MergeOperator>,
    /// Stored name of the keyspace's operator, for errors.
    pub(crate) operator_name: Option<&'a str>,
    /// Reads values from value files.
    pub(crate) pointers: Option<&'a PointerReader>,
}

impl Resolver<'_> {
    /// Returns the value of `key` after applying the unexpired `operands`, oldest first, to `base`. Errors carry the
    /// key.
    pub(crate) fn merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Slice> {
        self.merge_any(key, base, operands).map_err(|error| error.with_key(key))
    }

    fn merge_any(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Slice> {
        let Some(operator) = self.operator else {
            let missing = match self.operator_name {
                Some(name) => {
                    format!("its merge operator \"{name}\" was not supplied when the store was opened")
                }
                None => "has no merge operator".to_owned(),
            };
            let what = format!("keyspace \"{}\" holds merge operands but {missing}", self.keyspace);
            return Err(Error::new(ErrorKind::MergeOperatorMissing, what));
        };
        let (name, keyspace) = (self.operator_name.unwrap_or_default(), self.keyspace);
        // The errors omit the message of a panic: the operator is user code, and its message may contain user keys.
        match call_operator(operator, |operator| operator.merge(key, base, operands)) {
            Ok(Some(value)) => Ok(Slice::from(value)),
            Ok(None) => {
                let what = format!("merge operator \"{name}\" refused operands of keyspace \"{keyspace}\"");
                Err(Error::new(ErrorKind::MergeFailed, what))
            }
            Err(Panicked) => {
                let what = format!("the merge operator \"{name}\" panicked in keyspace \"{keyspace}\"");
                Err(Error::new(ErrorKind::MergeFailed, what))
            }
        }
    }

    /// Reads the value that `pointer`, the version `seq` of `key`, refers to.
    pub(crate) fn follow(
        &self,
        key: &[u8],
        seq: Seq,
        pointer: &[u8],
        purpose: ValueRead<'_>,
    ) -> Result<Slice> {
        match self.pointers {
            // Damage concerns this key only. Other errors may hit any key, so a scan does not go on after them.
            Some(read) => read(key, seq, pointer, purpose).map_err(|error| match error.is_corruption() {
                true => error.with_key(key),
                false => error,
            }),
            None => {
                let what =
                    format!("keyspace \"{}\" holds a value pointer but has no value files", self.keyspace);
                Err(Error::new(ErrorKind::Corruption, what))
            }
        }
    }
}

/// Operands of one key, copied one after the other into one buffer.
#[derive(Default)]
pub(crate) struct Operands {
    bytes: Vec<u8>,
    /// End of each operand in `bytes`.
    ends: Vec<usize>,
}

impl Operands {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(crate) fn push(&mut self, operand: &[u8]) {
        self.bytes.extend_from_slice(operand);
        self.ends.push(self.bytes.len());
    }

    /// Returns the operands in the order in which they were pushed.
    pub(crate) fn list(&self) -> Vec<&[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end]).collect()
    }
}
