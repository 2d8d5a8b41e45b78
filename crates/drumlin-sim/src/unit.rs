//! Equal flushes over all keys with instant compactions, which show the shape of a policy exactly.
//!
//! Every flush is one unit and keys are unique, so compactions add sizes up. A policy then compacts an exact number
//! of units, which can also be computed by hand.

use crate::world::World;
use alloc::string::String;
use alloc::vec::Vec;
use drumlin_types::contract::{CompactionPolicy, LimitView};

/// Bytes of a unit: small enough for exact sums, large enough for exact halves.
const UNIT: u64 = 1 << 20;

/// Result of a number of flushes under a policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnitReport {
    /// Units read and written by compactions, without trivial moves.
    pub merged: u64,
    /// Number of executed plans.
    pub plans: u64,
    /// Final runs as level and units, by level, newest first within a level.
    pub runs: Vec<(u8, u64)>,
}

/// Flushes `count` units, and after each lets `policy` decide until it returns no more plans.
pub fn unit_flushes(policy: &mut dyn CompactionPolicy, count: u32) -> Result<UnitReport, String> {
    let limits = LimitView { memtable_bytes: UNIT, file_bytes: u64::MAX, ..LimitView::default() };
    let mut world = World::new(limits);
    for _ in 0..count {
        world.flush(policy, 0, 1 << 20);
        world.settle(policy, 10_000)?;
    }
    let mut runs: Vec<(u8, u64, u64)> = Vec::new();
    for (level, view) in world.tree().levels.iter().enumerate() {
        runs.extend(view.runs.iter().map(|run| (level as u8, run.max_seq(), run.bytes() / UNIT)));
    }
    runs.sort_by_key(|&(level, age, _)| (level, core::cmp::Reverse(age)));
    Ok(UnitReport {
        merged: world.totals.merged / UNIT,
        plans: world.totals.plans,
        runs: runs.into_iter().map(|(level, _, units)| (level, units)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_policy::by_name;
    use std::vec::Vec;

    fn report(name: &str, count: u32) -> UnitReport {
        unit_flushes(&mut *by_name(name).unwrap(), count).unwrap()
    }

    /// Closed form of tiering: each full power of T units is compacted once.
    fn tiered(ratio: u64, count: u64) -> u64 {
        let powers = core::iter::successors(Some(ratio), |p| Some(p * ratio)).take_while(|p| *p <= count);
        powers.map(|p| p * (count / p)).sum()
    }

    #[test]
    fn units_merged_are_exact() {
        for (name, hundred, thousand) in [
            ("tiering:4", 260, 3720),
            ("fluid:4/4", 260, 3720),
            ("ucs:2", 260, 3720),
            ("leveling:4", 617, 10010),
            ("fluid:4/1", 617, 10010),
            ("ucs:-2", 617, 10010),
            ("lazy-leveling:4", 300, 4656),
            ("fluid:4/2", 456, 6420),
            ("ucs:0", 552, 8120),
            ("universal", 393, 20991),
            ("tiering:10", 200, 3000),
            ("fluid:40,40,41/6,6,6", 492, 7485),
        ] {
            let merged = (report(name, 100).merged, report(name, 1000).merged);
            assert_eq!(merged, (hundred, thousand), "{name} {:?}", report(name, 100).runs);
        }
        for count in [1, 9, 77, 256, 500] {
            assert_eq!(report("tiering:4", count).merged, tiered(4, u64::from(count)));
            assert_eq!(report("tiering:3", count).merged, tiered(3, u64::from(count)));
        }
    }

    #[test]
    fn the_last_shapes_are_exact() {
        let sizes =
            |name: &str, count| report(name, count).runs.iter().map(|run| run.1).collect::<Vec<u64>>();
        assert_eq!(sizes("universal", 100), [4, 8, 31, 57]);
        assert_eq!(sizes("fluid:40,40,41/6,6,6", 100), [6, 7, 7, 80]);
        // The runs of tiering are the base-T digits of the count.
        assert_eq!(report("tiering:4", 100).runs, [(1, 4), (2, 16), (2, 16), (3, 64)]);
    }
}
