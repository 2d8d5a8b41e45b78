//! The rules that schedules follow.

/// Least and most units of a cycle.
pub(super) const UNITS: core::ops::RangeInclusive<u16> = 4..=4096;
/// Bound of the exponents of the read weight, in quarters of a doubling.
pub(super) const MAX_EXPONENT: i8 = 32;

/// Rule that a schedule follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// At most this many runs, and the fewest bytes written.
    Leveling(u8),
    /// Each unit written at most this often, flush included, and the fewest runs.
    Tiering(u8),
    /// The least M + w * R, with the read weight w = 2^(k/4) for this k.
    Weighted(i8),
    /// Algorithm 1 of the paper with its skew adjustment. The last unit is merged before the clear.
    PublishedLeveling {
        /// Number of levels (l).
        levels: u8,
        /// By how much the threshold of the first level is raised (delta).
        delta: u8,
    },
    /// Algorithm 2 of the paper with this number of levels. The last unit is merged before the clear.
    PublishedTiering(u8),
}

impl Shape {
    /// Returns whether this is a schedule as printed in the paper.
    pub(super) fn is_published(self) -> bool {
        matches!(self, Shape::PublishedLeveling { .. } | Shape::PublishedTiering(_))
    }
}
