//! File names in a store's directory. This module lists all file kinds.
//!
//! ```text
//! 000123.log         log segment            CURRENT            pointer to the current manifest
//! 000123.tbl         table                  MANIFEST-000123    manifest
//! 000123.val         value file             LOCK               locked while the store is open
//! 000123.map         map of a value file    000123.tmp         file being written; garbage after a crash
//! 000123.why         decision log
//! ```
//!
//! A number is padded with zeros to six digits; a longer number has no leading zeros. All kinds share one number space.
//! A name that [`FileName`]'s `Display` cannot produce does not belong to the store. Drumlin ignores such files.

use crate::limits::MAX_NUMBER;
use core::fmt;
use drumlin_types::{LogNumber, TableId, ValueFileId};

/// Minimum number of digits of a number.
const MIN_DIGITS: usize = 6;
/// Prefix of a manifest's name.
const MANIFEST_PREFIX: &str = "MANIFEST-";
/// Name of the pointer.
const POINTER_NAME: &str = "CURRENT";
/// Name of the lock.
const LOCK_NAME: &str = "LOCK";

/// A file of a store, identified by its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FileName {
    /// A log segment.
    Log(LogNumber),
    /// A table.
    Table(TableId),
    /// A value file.
    Value(ValueFileId),
    /// The map of a collected value file.
    Map(u64),
    /// A manifest.
    Manifest(u64),
    /// The pointer to the current manifest.
    Pointer,
    /// The lock file.
    Lock,
    /// A file that is being written and will be renamed.
    Temp(u64),
    /// A file of the decision log.
    Decisions(u64),
}

impl FileName {
    /// Returns one name of each kind, numbered `number` where the kind has a number.
    #[must_use]
    pub const fn all_kinds(number: u64) -> [FileName; 9] {
        [
            FileName::Log(LogNumber(number)),
            FileName::Table(TableId(number)),
            FileName::Value(ValueFileId(number)),
            FileName::Map(number),
            FileName::Manifest(number),
            FileName::Pointer,
            FileName::Lock,
            FileName::Temp(number),
            FileName::Decisions(number),
        ]
    }

    /// Parses `name`. Returns `None` if it does not belong to a store.
    #[must_use]
    pub fn parse(name: &str) -> Option<FileName> {
        match name {
            POINTER_NAME => return Some(FileName::Pointer),
            LOCK_NAME => return Some(FileName::Lock),
            _ => {}
        }
        if let Some(digits) = name.strip_prefix(MANIFEST_PREFIX) {
            return parse_number(digits).map(FileName::Manifest);
        }
        let (digits, suffix) = name.split_once('.')?;
        let number = parse_number(digits)?;
        let candidates = FileName::all_kinds(number).into_iter();
        candidates.filter(|file| file.suffix().is_some()).find(|file| file.suffix() == Some(suffix))
    }

    /// Returns the number in the name, if the kind has one.
    #[must_use]
    pub const fn number(&self) -> Option<u64> {
        match *self {
            FileName::Log(LogNumber(number))
            | FileName::Table(TableId(number))
            | FileName::Value(ValueFileId(number))
            | FileName::Map(number)
            | FileName::Manifest(number)
            | FileName::Temp(number)
            | FileName::Decisions(number) => Some(number),
            FileName::Pointer | FileName::Lock => None,
        }
    }

    /// Returns the extension, without the dot, if the kind has one.
    const fn suffix(&self) -> Option<&'static str> {
        match self {
            FileName::Log(_) => Some("log"),
            FileName::Table(_) => Some("tbl"),
            FileName::Value(_) => Some("val"),
            FileName::Map(_) => Some("map"),
            FileName::Temp(_) => Some("tmp"),
            FileName::Decisions(_) => Some("why"),
            FileName::Manifest(_) | FileName::Pointer | FileName::Lock => None,
        }
    }
}

fn parse_number(digits: &str) -> Option<u64> {
    let canonical = digits.len() == MIN_DIGITS || (digits.len() > MIN_DIGITS && !digits.starts_with('0'));
    let sound = canonical && digits.bytes().all(|byte| byte.is_ascii_digit());
    if sound { digits.parse().ok().filter(|number| *number <= MAX_NUMBER) } else { None }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.number(), self.suffix()) {
            (FileName::Manifest(number), ..) => write!(f, "{MANIFEST_PREFIX}{number:0MIN_DIGITS$}"),
            (_, Some(number), Some(suffix)) => write!(f, "{number:0MIN_DIGITS$}.{suffix}"),
            (FileName::Lock, ..) => f.write_str(LOCK_NAME),
            _ => f.write_str(POINTER_NAME),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    #[test]
    fn names_are_as_documented() {
        let names = FileName::all_kinds(123).map(|file| file.to_string());
        let expected = [
            "000123.log",
            "000123.tbl",
            "000123.val",
            "000123.map",
            "MANIFEST-000123",
            "CURRENT",
            "LOCK",
            "000123.tmp",
            "000123.why",
        ];
        assert_eq!(names, expected);
        assert_eq!(FileName::Table(TableId(u64::MAX)).to_string(), "18446744073709551615.tbl");
    }

    #[test]
    fn names_of_others_are_left_alone() {
        for name in [
            "",
            ".",
            "123.log",
            "0000123.log",
            "000123.sst",
            "000123.",
            "000123",
            ".log",
            "000123.log.bak",
            "+00123.log",
            "MANIFEST-",
            "MANIFEST-1",
            "MANIFEST-000001.tmp",
            "current",
            "LOCK.log",
            "18446744073709551616.tbl",
            "18446744073709551615.tbl",
            "72057594037927937.log",
            "00012\u{663}.log",
        ] {
            assert_eq!(FileName::parse(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn names_round_trip(bits in 8u32..64, noise in any::<u64>()) {
            for file in FileName::all_kinds(noise >> bits) {
                prop_assert_eq!(FileName::parse(&file.to_string()), Some(file));
            }
        }

        #[test]
        fn what_parses_prints_the_same(name in "(MANIFEST-)?[0-9]{0,9}(\\.(log|tbl|val|map|tmp|why))?") {
            if let Some(file) = FileName::parse(&name) {
                prop_assert_eq!(file.to_string(), name);
            }
        }
    }
}
