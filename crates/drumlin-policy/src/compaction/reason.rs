//! Formats of the numbers in reasons: byte counts, counted nouns, and amounts of runs.

use super::stack::{StackRun, bytes};
use alloc::format;
use alloc::string::String;
use core::fmt;

/// Byte count formatted for reasons, with a binary unit and one decimal below 10.
pub(super) struct Size(pub(super) f64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut value, mut unit) = (self.0, "B");
        for next in ["KiB", "MiB", "GiB", "TiB"] {
            if value < 1024.0 {
                break;
            }
            (value, unit) = (value / 1024.0, next);
        }
        let digits = if value < 10.0 && unit != "B" { 1 } else { 0 };
        write!(f, "{value:.digits$} {unit}")
    }
}

/// Wraps `bytes` in a [`Size`].
pub(super) fn size(bytes: u64) -> Size {
    Size(bytes as f64)
}

/// Count with its noun: "1 run", "3 runs".
pub(super) struct Counted(pub(super) usize, pub(super) &'static str);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{}", self.0, self.1, if self.0 == 1 { "" } else { "s" })
    }
}

/// Formats runs for reasons: "3 runs, 96 MiB".
pub(super) fn amount(runs: &[StackRun<'_>]) -> String {
    format!("{}, {}", Counted(runs.len(), "run"), size(bytes(runs)))
}
