//! The tag of a run: which units of which cycle it holds, and the schedule of that cycle.
//!
//! The tree alone gives the position in a schedule: no crash can separate the two, and no counter can be wrong. So
//! every run above the two last levels carries its units and everything that [`Schedule`](super::schedule::Schedule)
//! is made of. A merged run carries the hull of its inputs' units.
//!
//! ```text
//! version 1 | cycle 4 | n 2 | shape 1 | bound or k 1 | size curve 12 | unit bytes / 1024: 4 | lo 2 | hi 2 | open 1
//! ```
//!
//! Numbers are little-endian. A tag that does not parse is no error: its run counts as one of an older cycle.

use super::curve::{DOUBLINGS, SizeCurve};
use super::published::MOST_LEVELS;
use super::shape::{MAX_EXPONENT, Shape, UNITS};
use alloc::vec::Vec;
use drumlin_types::contract::RunTag;

const VERSION: u8 = 1;
const CYCLE_BYTES: usize = 24;
const TAG_BYTES: usize = 1 + CYCLE_BYTES + 5;
const _: () = assert!(TAG_BYTES <= RunTag::MAX);

/// What is fixed for a cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cycle {
    /// Number of the cycle. Each clear begins the next one.
    pub(super) number: u32,
    /// Units of the cycle (n).
    pub(super) units: u16,
    /// Rule of the schedule.
    pub(super) shape: Shape,
    /// Size curve of the schedule.
    pub(super) curve: SizeCurve,
    /// Bytes of a unit in KiB; 0 when no full flush was seen yet, so that every flush counts as one unit.
    pub(super) unit_kib: u32,
}

impl Cycle {
    /// Returns the encoded cycle, which is also the saved state of a policy.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(TAG_BYTES);
        bytes.push(VERSION);
        bytes.extend(self.number.to_le_bytes());
        bytes.extend(self.units.to_le_bytes());
        let (shape, number) = match self.shape {
            Shape::Leveling(bound) => (0, bound),
            Shape::Tiering(bound) => (1, bound),
            Shape::Weighted(k) => (2, k.to_le_bytes()[0]),
            Shape::PublishedTiering(levels) => (3, levels),
            Shape::PublishedLeveling { levels, delta } => (4, levels << 4 | delta & 15),
        };
        bytes.extend([shape, number]);
        bytes.extend(self.curve.0);
        bytes.extend(self.unit_kib.to_le_bytes());
        bytes
    }

    /// Parses what [`Cycle::encode`] returned, and returns the rest.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Cycle, &[u8])> {
        let (&version, rest) = bytes.split_first()?;
        let (body, rest) = rest.split_at_checked(CYCLE_BYTES).filter(|_| version == VERSION)?;
        let (number, body) = body.split_first_chunk::<4>()?;
        let (units, body) = body.split_first_chunk::<2>()?;
        let (&[shape, bound], body) = body.split_first_chunk::<2>()?;
        let (curve, body) = body.split_first_chunk::<DOUBLINGS>()?;
        let unit_kib = u32::from_le_bytes(body.try_into().ok()?);
        let units = u16::from_le_bytes(*units);
        let shape = match shape {
            0 => Shape::Leveling(bound),
            1 => Shape::Tiering(bound),
            2 => Shape::Weighted(i8::from_le_bytes([bound])),
            3 => Shape::PublishedTiering(bound),
            4 => Shape::PublishedLeveling { levels: bound >> 4, delta: bound & 15 },
            _ => return None,
        };
        let is_valid = match shape {
            Shape::Leveling(bound) | Shape::Tiering(bound) => BOUNDS.contains(&bound),
            Shape::Weighted(k) => (-MAX_EXPONENT..=MAX_EXPONENT).contains(&k),
            Shape::PublishedTiering(levels) | Shape::PublishedLeveling { levels, .. } => {
                (1..=MOST_LEVELS).contains(&levels)
            }
        };
        let number = u32::from_le_bytes(*number);
        let cycle = Cycle { number, units, shape, curve: SizeCurve(*curve), unit_kib };
        (is_valid && UNITS.contains(&units)).then_some((cycle, rest))
    }

    /// Returns the bytes of a unit; 0 when they are not known.
    pub(super) fn unit_bytes(&self) -> u64 {
        u64::from(self.unit_kib) << 10
    }
}

/// Bounds of l: the most runs of `horizontal-leveling`, and the most writes of a unit of `horizontal-tiering`.
pub(super) const BOUNDS: core::ops::RangeInclusive<u8> = 1..=5;

/// Units that a run holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Units {
    pub(super) lo: u16,
    pub(super) hi: u16,
    /// Whether the run is only a part of unit `hi`. Flushes that are too short for a unit stay open until they add up
    /// to one.
    pub(super) is_open: bool,
}

impl Units {
    /// Returns the number of units.
    pub(super) fn count(&self) -> u16 {
        self.hi - self.lo + 1
    }
}

/// Returns the tag of a run with these units of `cycle`.
pub(super) fn encode(cycle: &Cycle, units: &Units) -> RunTag {
    let mut bytes = cycle.encode();
    bytes.extend(units.lo.to_le_bytes());
    bytes.extend(units.hi.to_le_bytes());
    bytes.push(u8::from(units.is_open));
    RunTag(bytes)
}

/// Parses the tag of a run.
pub(super) fn decode(tag: &RunTag) -> Option<(Cycle, Units)> {
    let (cycle, rest) = Cycle::decode(&tag.0)?;
    let &[lo_low, lo_high, hi_low, hi_high, open] = rest else { return None };
    let units = Units {
        lo: u16::from_le_bytes([lo_low, lo_high]),
        hi: u16::from_le_bytes([hi_low, hi_high]),
        is_open: open == 1,
    };
    (1 <= units.lo && units.lo <= units.hi && open <= 1).then_some((cycle, units))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycle(shape: Shape) -> Cycle {
        let curve = SizeCurve([255, 200, 150, 100, 50, 0, 0, 1, 2, 3, 4, 5]);
        Cycle { number: 70_000, units: 4096, shape, curve, unit_kib: 65_537 }
    }

    #[test]
    fn tags_come_back() {
        for shape in [
            Shape::Leveling(1),
            Shape::Tiering(5),
            Shape::Weighted(-32),
            Shape::Weighted(32),
            Shape::PublishedTiering(12),
            Shape::PublishedLeveling { levels: 12, delta: 15 },
        ] {
            let units = Units { lo: 3, hi: 4095, is_open: true };
            let tag = encode(&cycle(shape), &units);
            assert!(tag.0.len() <= RunTag::MAX);
            assert_eq!(decode(&tag), Some((cycle(shape), units)));
            let bytes = cycle(shape).encode();
            assert_eq!(Cycle::decode(&bytes), Some((cycle(shape), &[][..])));
        }
    }

    #[test]
    fn wrong_tags_are_no_tags() {
        let good = encode(&cycle(Shape::Tiering(2)), &Units { lo: 1, hi: 1, is_open: false });
        for length in 0..good.0.len() {
            assert_eq!(decode(&RunTag(good.0[..length].to_vec())), None);
        }
        let with = |at: usize, byte: u8| {
            let mut bytes = good.0.clone();
            bytes[at] = byte;
            decode(&RunTag(bytes))
        };
        // Version, n, shape, bound, lo and hi, open.
        for (at, byte) in [(0, 2), (5, 3), (7, 5), (8, 0), (8, 6), (25, 0), (25, 2), (29, 2)] {
            assert!(with(at, byte).is_none(), "{at} {byte}");
        }
        assert!(with(6, 0xff).is_none(), "n above 4096");
        let mut long = good.0.clone();
        long.push(0);
        assert_eq!(decode(&RunTag(long)), None);
    }
}
