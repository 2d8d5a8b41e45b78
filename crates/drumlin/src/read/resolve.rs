//! What a version means to a reader, and how operands become a value. Shared by scans and point lookups,
//! so that both give the same answer.

use crate::error::{Error, ErrorKind, Result};
use crate::merge_operator::MergeOperator;
use crate::slice::Slice;
use drumlin_types::Kind;

/// Reads the value that a pointer names: (user key, encoded pointer) to value.
pub(crate) type PointerReader = dyn Fn(&[u8], &[u8]) -> Result<Slice> + Send + Sync;

/// Bytes of the expiry time in front of an expiring value.
const EXPIRY_LEN: usize = 8;

/// What one version says about its key at the time of the read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Meaning {
    /// The key does not exist.
    Absent,
    /// The key has the value that follows the first `skip` bytes.
    Value { skip: usize },
    /// The key has the value that the pointer names.
    Pointer,
    /// The key's older versions, changed by this operand.
    Operand,
}

impl Meaning {
    /// The meaning of a version; `now` gives the time in microseconds since the Unix epoch and is asked
    /// only for a value that expires.
    #[inline]
    pub(crate) fn of(kind: Kind, value: &[u8], now: impl FnOnce() -> u64) -> Result<Meaning> {
        match kind {
            Kind::Put => Ok(Meaning::Value { skip: 0 }),
            // A range tombstone covers the key that it starts with.
            Kind::Delete | Kind::DeleteRange => Ok(Meaning::Absent),
            Kind::Merge => Ok(Meaning::Operand),
            Kind::PutPointer => Ok(Meaning::Pointer),
            Kind::PutExpiring => match value.first_chunk::<EXPIRY_LEN>() {
                Some(expiry) if now() >= u64::from_le_bytes(*expiry) => Ok(Meaning::Absent),
                Some(_) => Ok(Meaning::Value { skip: EXPIRY_LEN }),
                None => {
                    Err(Error::new(ErrorKind::Corruption, "an expiring value is too short for its expiry"))
                }
            },
        }
    }
}

/// Makes values of merge operands and pointers, for the reads of one view of a keyspace.
pub(crate) struct Resolver<'a> {
    /// Name of the keyspace, for errors.
    pub(crate) keyspace: &'a str,
    /// The keyspace's merge operator, if it has one.
    pub(crate) operator: Option<&'a dyn MergeOperator>,
    /// Reads values from value files.
    pub(crate) pointers: Option<&'a PointerReader>,
}

impl Resolver<'_> {
    /// The value of `key` after `operands`, oldest first, on top of `base`.
    pub(crate) fn merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Slice> {
        let Some(operator) = self.operator else {
            let what =
                format!("keyspace \"{}\" holds merge operands but has no merge operator", self.keyspace);
            return Err(Error::new(ErrorKind::InvalidOption, what));
        };
        operator.merge(key, base, operands).map(Slice::from).ok_or_else(|| {
            let (name, keyspace) = (operator.name(), self.keyspace);
            let what = format!("merge operator \"{name}\" refused operands of keyspace \"{keyspace}\"");
            Error::new(ErrorKind::Corruption, what)
        })
    }

    /// The value that `pointer`, a version of `key`, names.
    pub(crate) fn follow(&self, key: &[u8], pointer: &[u8]) -> Result<Slice> {
        match self.pointers {
            Some(read) => read(key, pointer),
            None => {
                let what =
                    format!("keyspace \"{}\" holds a value pointer but has no value files", self.keyspace);
                Err(Error::new(ErrorKind::Corruption, what))
            }
        }
    }
}

/// Operands of one key, copied back to back.
#[derive(Default)]
pub(crate) struct Operands {
    bytes: Vec<u8>,
    /// Where each operand ends in `bytes`.
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

    /// The operands in the order in which they were pushed.
    pub(crate) fn list(&self) -> Vec<&[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end]).collect()
    }
}
