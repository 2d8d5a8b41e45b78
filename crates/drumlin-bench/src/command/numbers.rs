//! Parsers of numbers on the command line, each with its bounds. Values outside are rejected before anything runs: a
//! rate of 0 or a skew of 1, for example, would give meaningless figures.

use crate::sizes::parse_bytes;
use std::fmt::Display;
use std::ops::{Bound, RangeBounds};
use std::str::FromStr;

/// Largest count of entries or operations.
const MOST: u64 = 1_000_000_000_000;
/// Largest size of a key and of a value in bytes.
const MOST_KEY: usize = 64 << 10;
const MOST_VALUE: usize = 1 << 30;
/// Minimum memory in bytes: engines divide by fractions of it.
const LEAST_MEMORY: u64 = 1 << 10;
/// Minimum rate per second: at lower rates, a phase would do nothing for hours.
const LEAST_RATE: f64 = 0.001;

fn within<N: FromStr + PartialOrd + Display>(text: &str, bounds: impl RangeBounds<N>) -> Result<N, String> {
    let number = text.parse().map_err(|_| "it is not a number".to_owned())?;
    if bounds.contains(&number) {
        return Ok(number);
    }
    let least = match bounds.start_bound() {
        Bound::Included(least) => format!("at least {least}"),
        Bound::Excluded(least) => format!("above {least}"),
        Bound::Unbounded => String::new(),
    };
    let most = match bounds.end_bound() {
        Bound::Included(most) => format!(" and at most {most}"),
        Bound::Excluded(most) => format!(" and below {most}"),
        Bound::Unbounded => String::new(),
    };
    Err(format!("it must be {least}{most}"))
}

/// Parses a number of entries, operations or rounds.
pub(super) fn count(text: &str) -> Result<u64, String> {
    within(text, 1..=MOST)
}

/// Parses a number of items per call.
pub(super) fn items(text: &str) -> Result<u32, String> {
    within(text, 1..=1_000_000)
}

/// Parses a number of threads.
pub(super) fn threads(text: &str) -> Result<u32, String> {
    within(text, 1..=4096)
}

/// Parses a number of compaction slots.
pub(super) fn slots(text: &str) -> Result<u32, String> {
    within(text, 1..=64)
}

/// Parses a number of bytes of memory, or of a file, such as 64MiB.
pub(super) fn memory(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if bytes < LEAST_MEMORY { Err("it must be at least 1KiB".to_owned()) } else { Ok(bytes) }
}

/// Parses a key size. Each key contains an eight-byte number.
pub(super) fn key_size(text: &str) -> Result<usize, String> {
    within(text, 8..=MOST_KEY)
}

/// Parses a value size.
pub(super) fn value_size(text: &str) -> Result<usize, String> {
    within(text, 0..=MOST_VALUE)
}

/// Parses a rate per second.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    within(text, LEAST_RATE..=1e12)
}

/// Parses a duration in seconds, at most a day.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    within(text, (Bound::Excluded(0.0), Bound::Included(86_400.0)))
}

/// Parses a fraction of a size.
pub(super) fn share(text: &str) -> Result<f64, String> {
    within(text, 0.0..=1.0)
}

/// Parses a number of filter bits per key.
pub(super) fn bits(text: &str) -> Result<f64, String> {
    within(text, 0.0..=64.0)
}

/// Parses the skew of a zipf distribution. The method that draws from it is defined below 1; 0 is uniform.
pub(super) fn theta(text: &str) -> Result<f64, String> {
    within(text, 0.0..1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_outside_is_refused_with_the_bounds() {
        assert_eq!(count("0"), Err("it must be at least 1 and at most 1000000000000".to_owned()));
        assert_eq!(count("1"), Ok(1));
        assert!(count("18446744073709551615").is_err() && count("-1").is_err() && count("").is_err());
        assert_eq!(theta("1"), Err("it must be at least 0 and below 1".to_owned()));
        assert_eq!(theta("0.99"), Ok(0.99));
        assert_eq!(rate("0"), Err("it must be at least 0.001 and at most 1000000000000".to_owned()));
        for parse in [rate, share, bits, theta] {
            assert!(["nan", "inf", "-1"].iter().all(|text| parse(text).is_err()));
        }
        assert!(key_size("7").is_err() && value_size("0").is_ok() && value_size("2147483648").is_err());
        assert!(threads("4294967295").is_err() && items("0").is_err());
    }
}
