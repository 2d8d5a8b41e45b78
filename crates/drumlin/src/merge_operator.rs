//! Merge operators: how the operands written by `merge` turn into a value.
//!
//! A write of a merge operand does not read: it only adds the operand. Whoever reads the key, or merges the
//! tables that hold it, folds the operands onto the put that they build on, or onto nothing after a delete or
//! at the bottom of the tree. Each keyspace has at most one operator. It is a component given by code, not a
//! setting: the store keeps only its name, and refuses to open the keyspace with another one.
//!
//! What an operator must promise:
//! * The same arguments give the same answer, always: reads, merges and recovery repeat the fold.
//! * Folding in steps is the same as folding at once: `merge(base, [a, b])` equals `merge(merge(base, [a]),
//!   [b])`, and where `partial_merge(a, b)` gives `c`, `merge(base, [c])`.
//! * Bad operands give `None`, never a panic. A read then answers with an error of kind corruption; a merge
//!   of tables keeps the operands as they are.

use std::fmt;

/// Folds merge operands into values. See the module's text for what it must promise.
pub trait MergeOperator: Send + Sync {
    /// A lasting name: the store remembers it, and opens the keyspace only with an operator of that name.
    fn name(&self) -> &str;

    /// The value of `key` after `operands`, oldest first, were applied to `base`: the last value put, or
    /// `None` if there is none. `None` when the operands or the base are malformed.
    fn merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>>;

    /// One operand that does what `left` and then `right` do, if there is such a thing. Spares a hot key
    /// its long chain of operands: flushes and merges of tables join those whose base they do not see.
    fn partial_merge(&self, key: &[u8], left: &[u8], right: &[u8]) -> Option<Vec<u8>> {
        let _ = (key, left, right);
        None
    }
}

impl fmt::Debug for dyn MergeOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MergeOperator({})", self.name())
    }
}

/// Joins operands into a list: `base`, then each operand, with a separator between two. Empty ones count too.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Append {
    separator: Vec<u8>,
}

impl Append {
    /// Puts `separator` between two elements. It may be empty.
    pub fn new(separator: impl Into<Vec<u8>>) -> Append {
        Append { separator: separator.into() }
    }

    fn join<'a>(&self, parts: impl Iterator<Item = &'a [u8]> + Clone) -> Vec<u8> {
        let bytes: usize = parts.clone().map(|part| part.len() + self.separator.len()).sum();
        let mut joined = Vec::with_capacity(bytes);
        for (i, part) in parts.enumerate() {
            if i > 0 {
                joined.extend_from_slice(&self.separator);
            }
            joined.extend_from_slice(part);
        }
        joined
    }
}

impl MergeOperator for Append {
    fn name(&self) -> &str {
        "append"
    }

    fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        Some(self.join(base.into_iter().chain(operands.iter().copied())))
    }

    fn partial_merge(&self, _key: &[u8], left: &[u8], right: &[u8]) -> Option<Vec<u8>> {
        Some(self.join([left, right].into_iter()))
    }
}

/// Adds signed 64-bit integers. Without a base the sum starts at 0; it wraps around at the ends of the range,
/// so that the order of operands never matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddI64 {
    /// Values and operands are decimal text: `12`, `+1`, `-3`. The result has no plus sign.
    Text,
    /// Values and operands are eight bytes, little endian.
    LittleEndian,
}

impl AddI64 {
    fn decode(self, bytes: &[u8]) -> Option<i64> {
        match self {
            AddI64::Text => std::str::from_utf8(bytes).ok()?.parse().ok(),
            AddI64::LittleEndian => bytes.try_into().ok().map(i64::from_le_bytes),
        }
    }

    fn encode(self, number: i64) -> Vec<u8> {
        match self {
            AddI64::Text => number.to_string().into_bytes(),
            AddI64::LittleEndian => number.to_le_bytes().to_vec(),
        }
    }

    fn sum<'a>(self, mut numbers: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
        let sum = numbers.try_fold(0i64, |sum, number| Some(sum.wrapping_add(self.decode(number)?)))?;
        Some(self.encode(sum))
    }
}

impl MergeOperator for AddI64 {
    fn name(&self) -> &str {
        match self {
            AddI64::Text => "add-i64-text",
            AddI64::LittleEndian => "add-i64-le",
        }
    }

    fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.sum(base.into_iter().chain(operands.iter().copied()))
    }

    fn partial_merge(&self, _key: &[u8], left: &[u8], right: &[u8]) -> Option<Vec<u8>> {
        self.sum([left, right].into_iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What every operator promises, on all bases and all chains of up to three of `operands`.
    fn keeps_its_promises(operator: &dyn MergeOperator, bases: &[Option<&[u8]>], operands: &[&[u8]]) {
        for &base in bases {
            for &a in operands {
                for &b in operands {
                    let at_once = operator.merge(b"k", base, &[a, b]);
                    let stepwise = operator
                        .merge(b"k", base, &[a])
                        .and_then(|first| operator.merge(b"k", Some(&first), &[b]));
                    assert_eq!(at_once, stepwise);
                    if let Some(pair) = operator.partial_merge(b"k", a, b) {
                        assert_eq!(at_once, operator.merge(b"k", base, &[&pair]));
                        for &c in operands {
                            let left = operator.partial_merge(b"k", &pair, c);
                            let right = operator
                                .partial_merge(b"k", b, c)
                                .and_then(|tail| operator.partial_merge(b"k", a, &tail));
                            assert_eq!(left, right);
                            assert_eq!(left, operator.merge(b"k", None, &[a, b, c]));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn append() {
        let comma = Append::new(",");
        assert_eq!(comma.merge(b"k", Some(b"a"), &[b"b", b""]).as_deref(), Some(&b"a,b,"[..]));
        assert_eq!(comma.merge(b"k", None, &[b"b", b"c"]).as_deref(), Some(&b"b,c"[..]));
        assert_eq!(comma.merge(b"k", Some(b""), &[b"b"]).as_deref(), Some(&b",b"[..]));
        assert_eq!(Append::new("").merge(b"k", Some(b"a"), &[b"b"]).as_deref(), Some(&b"ab"[..]));
        for separator in ["", ",", "--"] {
            keeps_its_promises(
                &Append::new(separator),
                &[None, Some(b""), Some(b"x")],
                &[b"", b"y", b",", b"zz"],
            );
        }
    }

    #[test]
    fn add_text() {
        let add = AddI64::Text;
        assert_eq!(add.merge(b"k", None, &[b"+1"]).as_deref(), Some(&b"1"[..]));
        assert_eq!(add.merge(b"k", Some(b"40"), &[b"+3", b"-1"]).as_deref(), Some(&b"42"[..]));
        assert_eq!(add.merge(b"k", Some(b"9223372036854775807"), &[b"1"]).unwrap(), b"-9223372036854775808");
        for bad in [&b""[..], b"+", b"1.5", b" 1", b"9223372036854775808", b"\xff"] {
            assert_eq!(add.merge(b"k", Some(bad), &[b"1"]), None);
            assert_eq!(add.merge(b"k", Some(b"1"), &[b"1", bad]), None);
            assert_eq!(add.partial_merge(b"k", b"1", bad), None);
        }
        keeps_its_promises(&add, &[None, Some(b"7"), Some(b"-9223372036854775808")], &[b"-1", b"+5", b"0"]);
    }

    #[test]
    fn add_little_endian() {
        let add = AddI64::LittleEndian;
        let number = |n: i64| n.to_le_bytes();
        assert_eq!(add.merge(b"k", Some(&number(-5)), &[&number(3)]).unwrap(), number(-2));
        assert_eq!(add.merge(b"k", Some(&number(i64::MIN)), &[&number(-1)]).unwrap(), number(i64::MAX));
        assert_eq!(add.merge(b"k", Some(b"1234567"), &[&number(3)]), None);
        assert_eq!(add.merge(b"k", None, &[b""]), None);
        let (zero, top, minus) = (number(0), number(i64::MAX), number(-9));
        keeps_its_promises(&add, &[None, Some(&zero), Some(&top)], &[&zero, &top, &minus]);
    }
}
