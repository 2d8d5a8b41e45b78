//! The write history of a key. The pointer to a value in a value file carries it, so that the lifetime of the value can
//! be predicted without a lookup.
//!
//! The history of a version lists the older writes of its key that compactions and flushes have dropped in favour of
//! newer ones. It holds their number, the distances between the newest eight, and decayed sums of all others (the
//! exponentially decayed write counters of DumpKV, PVLDB 18, 2024, equation 1). Distances are differences of sequence
//! numbers.
//!
//! Invariant of a valid history: `writes > 0`; the first `kept()` gaps are positive and the others are 0; `oldest` and
//! the remainders are 0 unless there are more writes than gaps, and then `oldest` is positive.

/// Number of past writes whose distances are kept.
pub const KEPT_GAPS: usize = 8;
/// Number of windows over which older writes are counted.
pub const WINDOWS: usize = 10;

/// Past writes of a key, seen from one of its versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct History {
    /// Number of past writes.
    pub writes: u64,
    /// Distance from this version to the newest past write, from that one to the next older one, and so on.
    pub gaps: [u64; KEPT_GAPS],
    /// Distance from the oldest write that has a gap to the oldest write of all.
    pub oldest: u64,
    /// Per window, the decayed number of the writes that have no gap, at the time of the oldest write that has one.
    /// Half-precision floating-point numbers (IEEE 754 binary16), finite and not negative.
    pub remainders: [u16; WINDOWS],
}

impl History {
    /// Returns how many gaps are in use.
    #[must_use]
    pub fn kept(&self) -> usize {
        usize::try_from(self.writes).unwrap_or(KEPT_GAPS).min(KEPT_GAPS)
    }

    /// Returns whether some past writes have no gap of their own.
    #[must_use]
    pub const fn has_remainder(&self) -> bool {
        self.writes > KEPT_GAPS as u64
    }
}
