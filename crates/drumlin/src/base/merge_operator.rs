//! Merge operators: user code that combines the operands written by `merge` into a value.
//!
//! A write of a merge operand does not read the key; it only adds the operand. Reads and compactions combine the
//! operands with the put below them. After a delete, or at the bottom of the tree, they combine them without a base
//! value. Each keyspace has at most one operator. The operator is code that the program supplies, not a setting. The
//! store keeps only its name and refuses to open the keyspace with an operator of another name.
//!
//! An operator must fulfill this contract:
//! * It is deterministic: equal arguments give equal results. Reads, compactions and recovery repeat the merge.
//! * It is associative: `merge(base, [a, b])` equals `merge(merge(base, [a]), [b])`. Where `partial_merge(a, b)`
//!   returns `c`, it also equals `merge(base, [c])`.
//! * Malformed operands give `None`, never a panic. A read then fails with `MergeFailed`. A flush or compaction keeps
//!   the operands unchanged, also after a panic.

use crate::base::error::{Error, ErrorKind, Result};
use drumlin_env::sync::Arc;
use drumlin_format::checksum::checksum;
use std::fmt;

/// Maximum length of an operator's name, in bytes.
const MAX_NAME: usize = 255;

/// Combines merge operands into values. [`Builder::merge_operator`](crate::Builder::merge_operator) gives a keyspace
/// its operator. [`AddI64`] and [`Append`] are ready to use.
///
/// # Contract
/// - It is deterministic: equal arguments give equal results. Reads, flushes and compactions repeat the merge, on
///   several threads at the same time.
/// - It is associative: `merge(base, [a, b])` equals `merge(merge(base, [a]), [b])`. Where `partial_merge(a, b)`
///   returns `c`, it also equals `merge(base, [c])`.
/// - It does not call the store.
/// - Malformed operands give `None`. A read of the key then fails with `MergeFailed`, and compactions keep the
///   operands.
/// - It does not panic. If it does, a read fails with `MergeFailed`. Flushes and compactions keep the operands and
///   report [`Event::OperatorPanicked`](crate::Event::OperatorPanicked). In programs built with `panic = "abort"` a
///   panic ends the process.
///
/// ```
/// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
/// /// Keeps the largest operand, bytewise.
/// struct Max;
///
/// impl drumlin::MergeOperator for Max {
///     fn name(&self) -> &str {
///         "max"
///     }
///     fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
///         base.iter().chain(operands).max().map(|largest| largest.to_vec())
///     }
///     fn partial_merge(&self, _key: &[u8], left: &[u8], right: &[u8]) -> Option<Vec<u8>> {
///         Some(left.max(right).to_vec())
///     }
/// }
///
/// let db = drumlin::Db::builder(dir.path()).merge_operator("best", std::sync::Arc::new(Max)).open()?;
/// let best = db.keyspace("best")?;
/// best.merge("ada", "17")?;
/// best.merge("ada", "12")?;
/// assert_eq!(best.get("ada")?.as_deref(), Some(&b"17"[..]));
/// # Ok::<(), drumlin::Error>(())
/// ```
///
/// # Time to live
/// An operand written into a keyspace with a time to live (`ttl_seconds`) expires after that time, or up to 1/64 of it
/// later. An expired operand counts as if it had never been written. The value below it and the other operands keep
/// their own times to live. So a counter that only receives merges is the sum over a sliding window, and an operator
/// may receive operands without the value that was put before them. The timing of flushes and compactions never changes
/// the result of a read.
pub trait MergeOperator: Send + Sync {
    /// Returns the stable name of the operator, 1 to 255 bytes. The store keeps it with the keyspace and refuses an
    /// operator of another name. Change the name when the meaning of operands or values changes. To change the operator
    /// of a keyspace, copy its entries into a new keyspace with the new operator, drop the old one, and rename the new
    /// one ([`Db::rename_keyspace`](crate::Db::rename_keyspace)).
    fn name(&self) -> &str;

    /// Returns the value of `key` after applying `operands`, oldest first, to `base`. `base` is the last value put, or
    /// `None` if there is none. The result is `None` when the operands or the base are malformed.
    fn merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>>;

    /// Returns one operand that has the effect of `left` followed by `right`, if there is one. Flushes and compactions
    /// use it to combine operands whose base value they do not see. That keeps the chain of operands of a hot key
    /// short, so implement it if the operator allows. By default it returns `None`.
    fn partial_merge(&self, key: &[u8], left: &[u8], right: &[u8]) -> Option<Vec<u8>> {
        let _ = (key, left, right);
        None
    }
}

/// The merge operator of a keyspace: the name that the store keeps, and the code, if the program gives it.
#[derive(Clone, Default)]
pub(crate) struct Operator {
    pub(crate) name: Option<Arc<str>>,
    pub(crate) code: Option<Arc<dyn MergeOperator>>,
}

impl Operator {
    /// Returns the operator of `keyspace`, whose stored name is `kept`, when the program supplies `code`. The first
    /// operator that is supplied fixes the stored name. Without code, calls that need the operator return an error.
    pub(crate) fn new(
        keyspace: &str,
        kept: Option<&str>,
        code: Option<Arc<dyn MergeOperator>>,
    ) -> Result<Operator> {
        let refused = |what| Err(Error::new(ErrorKind::InvalidOption, what));
        match (kept, code.as_ref().map(|code| code.name())) {
            (Some(kept), Some(given)) if kept != given && !drumlin_types::bug!("operator-name-unchecked") => {
                refused(format!(
                    "keyspace {keyspace:?} was written with merge operator {kept:?} and cannot be opened with {given:?}"
                ))
            }
            (_, Some(given)) if given.is_empty() || given.len() > MAX_NAME => refused(format!(
                "the name of the merge operator of keyspace {keyspace:?} has {} bytes, not 1 to {MAX_NAME}",
                given.len()
            )),
            (kept, given) => Ok(Operator { name: given.or(kept).map(Arc::from), code }),
        }
    }
}

impl fmt::Debug for dyn MergeOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MergeOperator({})", self.name())
    }
}

/// Merge operator that concatenates `base` and all operands, with a separator between elements. Empty elements count
/// too. Its name contains the separator, so a store refuses to open a keyspace with another one.
///
/// ```
/// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
/// let append = std::sync::Arc::new(drumlin::Append::new(","));
/// let db = drumlin::Db::builder(dir.path()).merge_operator("tags", append).open()?;
/// let tags = db.keyspace("tags")?;
/// tags.merge("ada", "poet")?;
/// tags.merge("ada", "programmer")?;
/// assert_eq!(tags.get("ada")?.as_deref(), Some(&b"poet,programmer"[..]));
/// # Ok::<(), drumlin::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Append {
    separator: Vec<u8>,
    name: String,
}

impl Append {
    /// Creates the operator with `separator` between elements. The separator may be empty.
    pub fn new(separator: impl Into<Vec<u8>>) -> Append {
        let separator = separator.into();
        let mut name = format!("append:{}", separator.escape_ascii());
        if name.len() > MAX_NAME {
            name = format!("append:#{:08x}", checksum(0, separator.len() as u64, &[&separator]));
        }
        Append { separator, name }
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
        &self.name
    }

    fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        Some(self.join(base.into_iter().chain(operands.iter().copied())))
    }

    fn partial_merge(&self, _key: &[u8], left: &[u8], right: &[u8]) -> Option<Vec<u8>> {
        Some(self.join([left, right].into_iter()))
    }
}

/// Merge operator that adds signed 64-bit integers. Without a base the sum starts at 0. It wraps around on overflow, so
/// the order of operands never matters. See [`Keyspace::merge`](crate::Keyspace::merge) for an example.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddI64 {
    /// Values and operands are decimal text, such as `12`, `+1` or `-3`. The result has no plus sign.
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

    /// Checks the contract of an operator, on all bases and all chains of up to three of `operands`.
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
