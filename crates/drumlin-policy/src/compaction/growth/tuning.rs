//! Chooses the next cycle: its length, its schedule and the size of a unit, from the store and its load.

use super::curve::SizeCurve;
use super::family::Family;
use super::position::{CycleRun, position};
use super::published;
use super::read_weight::{capped, choose, nearest, read_weight};
use super::shape::Shape;
use super::space::{Sizes, steady};
use super::tag::Cycle;
use alloc::vec::Vec;
use drumlin_types::contract::{PolicyInput, TreeView};

/// Number of recent flushes that the size of a unit is computed from.
const FLUSHES: usize = 16;
/// Most bytes of a flush in a saved state.
const MOST_FLUSHED: u64 = 1 << 48;
/// V1 gets a new run with each clear once the read weight is below this.
const TIERED_BELOW: f64 = 0.95;
/// V1 is a single run once the read weight is above this.
const LEVELED_ABOVE: f64 = 1.05;

/// What was measured of the store and its load.
#[derive(Debug)]
pub(super) struct Tuning {
    family: Family,
    /// Size curve as measured. A schedule keeps the one that it was made with.
    pub(super) curve: SizeCurve,
    /// Bytes of the last flushes, oldest first.
    flushes: Vec<u64>,
    /// Read weight, once it is known.
    pub(super) read_weight: Option<f64>,
    /// Operation mix for the published tuning.
    mix: Option<published::Mix>,
    /// Number of the last cycle that this policy began itself, not one that it found in the tree.
    begun: Option<u32>,
    /// Whether V1 gets a new run with each clear.
    pub(super) is_v1_tiered: bool,
}

impl Tuning {
    pub(super) fn new(family: Family) -> Tuning {
        Tuning {
            family,
            curve: SizeCurve::default(),
            flushes: Vec::new(),
            read_weight: None,
            mix: None,
            begun: None,
            is_v1_tiered: false,
        }
    }

    /// Updates the read weight and the operation mix from measurements.
    pub(super) fn measure(&mut self, input: &PolicyInput<'_>) {
        let measured = read_weight(input.load, input.costs, input.tree.false_positive_rate());
        self.read_weight = self.family.fixed_read_weight().or(measured).or(self.read_weight);
        self.mix = mix(input).or(self.mix);
    }

    /// Counts a flush of `bytes`.
    pub(super) fn note_flush(&mut self, bytes: u64) {
        if self.flushes.len() == FLUSHES {
            self.flushes.remove(0);
        }
        self.flushes.push(bytes.min(MOST_FLUSHED));
    }

    /// Returns the sizes of a cycle above the present V2 for units of `unit` bytes. If V2 is empty, the whole tree is
    /// about to go there: another policy has built it.
    pub(super) fn sizes(&self, tree: &TreeView, unit: u64, previous: Option<u16>) -> Sizes {
        let v2 = match tree.levels.last().map_or(0, |level| level.bytes()) {
            0 if !matches!(self.family, Family::Published) => tree.bytes(),
            bytes => bytes,
        };
        self.family.sizes(if unit == 0 { 0.0 } else { v2 as f64 / unit as f64 }, previous)
    }

    /// Returns n for the cycle after one of `before` units of this policy.
    fn units_after(&self, before: u16, sizes: &Sizes) -> u16 {
        match self.family {
            // The lazy policy has one n, whatever another policy of the same shape had before.
            Family::Lazy { .. } => sizes.units,
            _ => steady(before, sizes.units),
        }
    }

    /// Returns cycle `number` of a frozen policy, which follows `previous`. Its length follows the store.
    /// A weighted schedule also gets a larger k if it would keep too many runs.
    pub(super) fn frozen_cycle(&self, tree: &TreeView, previous: Cycle, number: u32) -> Cycle {
        let sizes = self.sizes(tree, previous.unit_bytes(), Some(previous.units));
        let units = self.units_after(previous.units, &sizes);
        let shape = match previous.shape {
            Shape::Weighted(k) => Shape::Weighted(capped(units, k, &previous.curve)),
            shape => shape,
        };
        Cycle { number, units, shape, ..previous }
    }

    /// Returns cycle `number`, which follows `previous`, with the sizes and the schedule that the store and its load
    /// ask for now. `flush` is the expected size of a flush, used if none was seen.
    pub(super) fn next_cycle(
        &mut self,
        tree: &TreeView,
        previous: Option<Cycle>,
        number: u32,
        flush: u64,
    ) -> Cycle {
        let unit_kib = self.next_unit_kib(previous.map(|cycle| cycle.unit_kib), flush);
        // The runs of a cycle that this policy did not begin may be partly cleared already.
        if let Some(cycle) = previous.filter(|cycle| self.begun == Some(cycle.number)) {
            self.learn(tree, &cycle);
        }
        self.begun = Some(number);
        // The length of another policy's cycles is irrelevant.
        let in_force = previous.filter(|cycle| self.family.allows(cycle.shape));
        let sizes = self.sizes(tree, u64::from(unit_kib) << 10, in_force.map(|cycle| cycle.units));
        let units = match in_force.filter(|cycle| !cycle.shape.is_published()) {
            Some(cycle) => self.units_after(cycle.units, &sizes),
            None => sizes.units,
        };
        let (shape, curve) = match in_force.map(|cycle| (cycle.shape, cycle.curve)) {
            Some((shape, _)) if shape.is_published() => {
                let delta = published::delta(self.curve.hot_share());
                (self.mix.map_or(shape, |mix| published::tuned(units, &mix, delta)), self.curve)
            }
            Some((Shape::Weighted(k), curve)) => {
                let measured = (self.read_weight.map(nearest), self.curve);
                let (k, curve) = choose(units, (k, curve), measured);
                (Shape::Weighted(k), curve)
            }
            _ => match self.family.shape() {
                Shape::Weighted(k) => (Shape::Weighted(capped(units, k, &self.curve)), self.curve),
                shape => (shape, self.curve),
            },
        };
        if let Some(weight) = self.read_weight {
            let is_light = weight < TIERED_BELOW || self.is_v1_tiered && weight < LEVELED_ABOVE;
            self.is_v1_tiered = is_light && self.family.keeps_v1();
        }
        Cycle { number, units, shape, curve, unit_kib }
    }

    /// Learns the size curve from the runs of the cycle that ends.
    fn learn(&mut self, tree: &TreeView, cycle: &Cycle) {
        let unit = cycle.unit_bytes();
        if unit == 0 || !self.family.is_tuned() {
            return;
        }
        let position = position(tree, cycle.number);
        let whole = position.current.iter().filter(|run| run.run.idle && !run.units.is_open);
        let size = |run: &CycleRun<'_>| (run.units.count(), run.run.bytes as f64 / unit as f64);
        self.curve.learn(&whole.map(size).collect::<Vec<_>>());
    }

    /// Returns the size of a unit of the next cycle. It changes by a factor of two at most: a few short flushes before
    /// the end of a cycle say little.
    fn next_unit_kib(&self, previous: Option<u32>, flush: u64) -> u32 {
        // Very short flushes are rounded up to one KiB, which predicts nothing about later ones.
        match (self.unit_kib(), previous.filter(|kib| *kib > 1)) {
            (Some(kib), Some(previous)) => kib.clamp(previous / 2, previous.saturating_mul(2)),
            (Some(kib), None) | (None, Some(kib)) => kib,
            (None, None) => in_kib(flush),
        }
    }

    /// Returns the mean of the last flushes that were at least half as large as the largest.
    fn unit_kib(&self) -> Option<u32> {
        let largest = self.flushes.iter().copied().max()?;
        let full: Vec<u64> = self.flushes.iter().copied().filter(|bytes| *bytes >= largest / 2).collect();
        Some(in_kib(full.iter().sum::<u64>() / full.len() as u64))
    }
}

impl Tuning {
    /// Appends the state to `bytes`.
    pub(super) fn save(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.curve.0);
        bytes.push(u8::from(self.is_v1_tiered));
        put_option(bytes, self.begun.map(|number| number.to_le_bytes()));
        put_option(bytes, self.read_weight.map(f64::to_le_bytes));
        put_option(bytes, self.mix.map(|mix| mix.encode()));
        bytes.push(self.flushes.len() as u8);
        bytes.extend(self.flushes.iter().flat_map(|flush| flush.to_le_bytes()));
    }

    /// Restores what [`Tuning::save`] appended, and returns the rest. `None` if it is damaged.
    pub(super) fn restore<'a>(&mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let (curve, bytes) = bytes.split_first_chunk()?;
        let (&is_v1_tiered, bytes) = bytes.split_first()?;
        let (begun, bytes) = take_option::<4>(bytes)?;
        let (read_weight, bytes) = take_option::<8>(bytes)?;
        let (mix, bytes) = take_option::<40>(bytes)?;
        let (&count, mut bytes) = bytes.split_first()?;
        let read_weight = read_weight.map(f64::from_le_bytes);
        let mix = mix.map(|mix| published::Mix::decode(&mix));
        let is_valid = usize::from(count) <= FLUSHES
            && is_v1_tiered <= 1
            && read_weight.is_none_or(|weight| weight.is_finite() && weight > 0.0)
            && mix.is_none_or(|mix| mix.is_valid());
        let mut flushes = Vec::new();
        for _ in 0..count {
            let (flush, rest) = bytes.split_first_chunk()?;
            let flush = u64::from_le_bytes(*flush);
            if flush > MOST_FLUSHED {
                return None;
            }
            flushes.push(flush);
            bytes = rest;
        }
        if !is_valid {
            return None;
        }
        self.curve = SizeCurve(*curve);
        self.is_v1_tiered = is_v1_tiered == 1 && self.family.keeps_v1();
        (self.begun, self.read_weight) = (begun.map(u32::from_le_bytes), read_weight);
        (self.mix, self.flushes) = (mix, flushes);
        Some(bytes)
    }
}

fn put_option<const N: usize>(bytes: &mut Vec<u8>, value: Option<[u8; N]>) {
    bytes.push(u8::from(value.is_some()));
    bytes.extend(value.into_iter().flatten());
}

fn take_option<const N: usize>(bytes: &[u8]) -> Option<(Option<[u8; N]>, &[u8])> {
    match bytes.split_first()? {
        (0, rest) => Some((None, rest)),
        (1, rest) => rest.split_first_chunk().map(|(value, rest)| (Some(*value), rest)),
        _ => None,
    }
}

/// Returns the operation mix of a load, if it has operations.
fn mix(input: &PolicyInput<'_>) -> Option<published::Mix> {
    let load = input.load;
    let all = load.writes + load.gets + load.seeks;
    (all.is_finite() && all > 0.0 && load.entry_bytes > 0.0).then(|| published::Mix {
        writes: load.writes / all,
        gets: load.gets / all,
        seeks: load.seeks / all,
        false_positives: input.tree.false_positive_rate(),
        page_entries: (4096.0 / load.entry_bytes).max(1.0),
    })
}

/// Returns KiB, at least one: 0 stands for a size that is not known.
fn in_kib(bytes: u64) -> u32 {
    u32::try_from(bytes >> 10).unwrap_or(u32::MAX).max(1)
}
