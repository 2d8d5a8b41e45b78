//! Reducing the operands of one key and stripe, and their base, as far as expiry times and the operator allow.
//!
//! ```text
//! operands, oldest first      e1 e1 e2 e2 e3        on a value that expires at e1
//! merged into the value       -----                 the value at e1 with two operands
//! combined with each other          -----  --       one operand at e2, one at e3
//! ```
//!
//! Invariant: two entries become one only if both have the same expiry time; `crate::base::resolve` explains why no
//! answer can change then. Entries that the operator refuses to combine stay as they are. An operator that panics, or
//! returns a value that no entry can hold, refuses too: reads report that, and no flush fails because of it.

use crate::base::error::Result;
use crate::base::merge_operator::MergeOperator;
use crate::base::resolve::{NEVER, call_operator, parts, stamp};
use drumlin_format::batch::EXPIRY_LEN;
use drumlin_format::block::MAX_ENTRY_LEN;
use drumlin_types::{Kind, Seq, bug};
use std::cell::Cell;

/// A copied entry.
#[derive(Debug)]
pub(super) struct Owned {
    pub(super) seq: Seq,
    pub(super) kind: Kind,
    pub(super) value: Vec<u8>,
}

/// The base that operands apply to.
pub(super) enum Base {
    /// Unknown: it is in another stripe, or outside the inputs.
    Unknown,
    /// No value. There is a tombstone below the operands, or the operands are at the bottom.
    None(Option<Owned>),
    /// A value.
    Value(Owned),
    /// A pointer to a value.
    Pointer(Owned),
}

/// The operator, and the key that it applies to.
pub(super) struct OperandMerger<'a> {
    pub(super) operator: &'a dyn MergeOperator,
    pub(super) key: &'a [u8],
    /// Whether the operator has panicked. It is not called again for this key.
    pub(super) panicked: Cell<bool>,
}

/// Returns the expiry time of an operand or value, and its bytes without it.
fn bytes_of(entry: &Owned) -> Result<(u64, &[u8])> {
    parts(entry.kind, &entry.value)
}

/// Creates an entry with these bytes. It expires if `expiry` is a time.
fn entry(seq: Seq, [plain, expiring]: [Kind; 2], expiry: u64, bytes: Vec<u8>) -> Owned {
    if expiry == NEVER {
        return Owned { seq, kind: plain, value: bytes };
    }
    let mut value = Vec::with_capacity(8 + bytes.len());
    stamp(expiry, &bytes, &mut value);
    Owned { seq, kind: expiring, value }
}

impl<'a> OperandMerger<'a> {
    pub(super) fn new(operator: &'a dyn MergeOperator, key: &'a [u8]) -> OperandMerger<'a> {
        OperandMerger { operator, key, panicked: Cell::new(false) }
    }

    /// Returns the operator's result, or `None` if it refuses.
    fn call(&self, call: impl FnOnce(&'a dyn MergeOperator) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
        if self.panicked.get() {
            return None;
        }
        let result = call_operator(self.operator, call);
        self.panicked.set(result.is_err());
        let most = MAX_ENTRY_LEN - (self.key.len() + EXPIRY_LEN) as u64;
        result.ok().flatten().filter(|bytes| bytes.len() as u64 <= most)
    }

    /// Merges those of `operands`, newest first, that have the base's expiry time into `base`, and removes them.
    /// Without a base value the oldest operand starts one. Returns the new base.
    pub(super) fn merge_into(&self, operands: &mut Vec<Owned>, base: Base) -> Result<Base> {
        let below = match &base {
            Base::Unknown | Base::Pointer(_) => None,
            Base::None(_) => operands.last().map(|oldest| (oldest, false)),
            Base::Value(value) => Some((value, true)),
        };
        let Some((below, is_value)) = below else { return Ok(base) };
        let (expiry, bytes) = bytes_of(below)?;
        let mut kept = operands.len();
        while kept > 0 && (bytes_of(&operands[kept - 1])?.0 == expiry || bug!("merge-mixed-expiries")) {
            kept -= 1;
        }
        let merged = &operands[kept..];
        let Some(newest) = merged.first().map(|operand| operand.seq) else { return Ok(base) };
        let list = merged.iter().rev().map(|operand| Ok(bytes_of(operand)?.1)).collect::<Result<Vec<_>>>()?;
        let bytes = if bug!("merge-keeps-expiry-bytes") { &below.value[..] } else { bytes };
        let on = is_value.then_some(bytes);
        let Some(value) = self.call(|operator| operator.merge(self.key, on, &list)) else { return Ok(base) };
        operands.truncate(kept);
        Ok(Base::Value(entry(newest, [Kind::Put, Kind::PutExpiring], expiry, value)))
    }

    /// Combines neighbours among `operands` that have the same expiry time by partial merge, if the operator can.
    /// `operands` come newest first and are contiguous in age.
    pub(super) fn combine(&self, mut operands: Vec<Owned>) -> Result<Vec<Owned>> {
        loop {
            // Combining in pairs avoids copying the result once for each operand.
            let before = operands.len();
            let mut rest = operands.into_iter();
            let mut combined: Vec<Owned> = Vec::with_capacity(before.div_ceil(2));
            let mut newer = rest.next();
            while let Some(last) = newer.take() {
                let Some(older) = rest.next() else {
                    combined.push(last);
                    break;
                };
                match self.pair(&older, &last)? {
                    Some(pair) => {
                        combined.push(pair);
                        newer = rest.next();
                    }
                    None => {
                        combined.push(last);
                        newer = Some(older);
                    }
                }
            }
            operands = combined;
            if operands.len() == before {
                return Ok(operands);
            }
        }
    }

    /// Returns one operand with the effect of two neighbours.
    fn pair(&self, older: &Owned, newer: &Owned) -> Result<Option<Owned>> {
        let ((expiry, left), (other, right)) = (bytes_of(older)?, bytes_of(newer)?);
        if expiry != other {
            return Ok(None);
        }
        let combined = self.call(|operator| operator.partial_merge(self.key, left, right));
        Ok(combined.map(|bytes| entry(newer.seq, [Kind::Merge, Kind::MergeExpiring], expiry, bytes)))
    }
}
