//! Builds the cost model from what the engine measured.
//!
//! The mix of operations comes from counters. It is a mean over the present phase, decayed with a half-life of eight
//! flush intervals. Figures that nobody has measured yet have priors. The base of each cost is the measured mean
//! minus the cost of the covered runs, so the model agrees with the present measurement.

use crate::compaction::arce::measure::drift;
use crate::compaction::arce::measure::interference::Interference;
use crate::compaction::arce::measure::model::{CostModel, LinearCost, bounded, taken};
use crate::real;
use drumlin_types::contract::{CostView, Outcome, PlanResult, PolicyInput};

/// Prior shares of point lookups, seeks and writes.
const MIX: [f64; 3] = [0.4, 0.1, 0.5];
/// Priors in nanoseconds: filter and fence probe, block access, placing a cursor.
const PROBE: f64 = 100.0;
const BLOCK: f64 = 2000.0;
const CURSOR: f64 = 3000.0;
/// Priors: input bytes per second of a compaction slot, fixed nanoseconds of a piece, nanoseconds of a write.
const MERGE_SPEED: f64 = 150e6;
const MERGE_FIXED: f64 = 1e6;
const WRITE: f64 = 1000.0;
/// Prior: bytes of a written entry.
const ENTRY: f64 = 1024.0;
/// Half-life of the mix in flush intervals, and its minimum in operations, which keeps chance out of the mean. A new
/// phase starts a new mean.
const HALF_LIFE: f64 = 8.0;
const LEAST_HALF_LIFE: f64 = 16_384.0;
/// Weight of the newest flush or compaction in its mean.
const NEWEST_WEIGHT: f64 = 0.25;
/// After this many consecutive flushes that are all `SHIFT_FACTOR` times larger, or all `SHIFT_FACTOR` times smaller,
/// than expected, their own mean becomes the expectation.
const SHIFT_FLUSHES: f64 = 3.0;
const SHIFT_FACTOR: f64 = 2.0;
/// Operations that make a tick.
const TICK: f64 = 1024.0;
/// Operations that make a tick if they clearly show another mix.
const EARLY_TICK: f64 = 64.0;

/// Learned figures of load and costs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Estimate {
    /// Operation shares over the last flush intervals.
    pub(crate) mix: [f64; 3],
    /// Operations of the present phase that the mix averages.
    phase: f64,
    /// Operation shares of the last tick.
    pub(crate) fast: [f64; 3],
    /// Mean bytes and entries of a flush; 0 before the first flush.
    pub(crate) flush_bytes: f64,
    pub(crate) flush_entries: f64,
    /// The latest consecutive flushes that were much larger, or much smaller, than expected.
    shift: FlushSizeShift,
    /// Mean output bytes of compactions per input byte, and whether any compaction has been measured.
    pub(crate) shrink: f64,
    pub(crate) is_shrink_known: bool,
    /// Counter values at the last tick, and the number of operations in all ticks.
    counted: [u64; 3],
    pub(crate) operations: f64,
    /// Whether the mix was counted, before or after the last restart. Otherwise it is a prior, and the first tick
    /// replaces it.
    pub(crate) is_counted: bool,
    /// Operations of the last tick.
    pub(crate) last_tick: f64,
    pub(crate) interference: Interference,
}

impl Estimate {
    pub(crate) const PRIOR: Estimate = Estimate {
        mix: MIX,
        phase: 0.0,
        fast: MIX,
        flush_bytes: 0.0,
        flush_entries: 0.0,
        shift: FlushSizeShift::NONE,
        shrink: 1.0,
        is_shrink_known: false,
        counted: [0; 3],
        operations: 0.0,
        is_counted: false,
        last_tick: 0.0,
        interference: Interference::NOTHING,
    };

    /// Takes in the engine's counters. Returns whether a tick has passed.
    pub(crate) fn count(&mut self, input: &PolicyInput<'_>, interval_ops: f64) -> bool {
        let mut news = [0.0; 3];
        for (kind, new) in news.iter_mut().enumerate() {
            let counted = input.load.counted[kind];
            // A counter that went back has restarted at 0.
            let before = if counted < self.counted[kind] { 0 } else { self.counted[kind] };
            *new = (counted - before) as f64;
        }
        let sum: f64 = news.iter().sum();
        let clients = input.load.clients;
        let shows_another = || drift::stands_out(&news.map(|new| new / sum), &self.mix, sum, clients);
        if sum < EARLY_TICK || sum < TICK && !(self.is_counted && shows_another()) {
            return false;
        }
        self.counted = input.load.counted;
        self.operations += sum;
        self.last_tick = sum;
        // A young phase has a plain mean.
        let mean = self.phase / (self.phase + sum);
        let keep = real::decay(sum, (HALF_LIFE * interval_ops).max(LEAST_HALF_LIFE)).min(mean);
        self.phase += sum;
        self.is_counted = true;
        for (kind, new) in news.into_iter().enumerate() {
            self.fast[kind] = new / sum;
            self.mix[kind] = keep * self.mix[kind] + (1.0 - keep) * self.fast[kind];
        }
        true
    }

    /// Skips what the engine counted since the last call, so that later ticks do not include it.
    pub(crate) fn pass_over(&mut self, input: &PolicyInput<'_>) {
        self.counted = input.load.counted;
    }

    /// Starts a new phase whose `mix` was seen in this number of operations.
    pub(crate) fn begin_phase(&mut self, mix: [f64; 3], operations: f64) {
        (self.mix, self.phase) = (mix, operations);
        self.interference.forget();
    }

    /// Takes in what operations cost in a tick. `runs` is the read cost of the covered runs in uncached runs.
    pub(crate) fn cost(&mut self, costs: &CostView, slopes: [f64; 2], runs: f64) {
        let [points, seeks, writes] = self.mix;
        let measured = points * costs.get_ns + seeks * costs.scan_ns + writes * costs.write_ns;
        let of_runs = (points * slopes[0] + seeks * slopes[1]) * runs;
        self.interference.tick(self.last_tick, costs.busy_share, measured, of_runs);
    }

    /// Returns the figures that change with each count, for the saved state.
    pub(crate) fn numbers(&self) -> [f64; 10] {
        let ([f0, f1, f2], [c0, c1, c2]) = (self.fast, self.counted.map(|count| count as f64));
        let is_counted = f64::from(u8::from(self.is_counted));
        [f0, f1, f2, c0, c1, c2, self.operations, self.last_tick, is_counted, self.phase]
    }

    /// Restores [`Estimate::numbers`].
    pub(crate) fn restore(&mut self, numbers: [f64; 10]) {
        let [f0, f1, f2, c0, c1, c2, operations, last_tick, is_counted, phase] = numbers;
        self.fast = [f0, f1, f2];
        self.counted = [c0, c1, c2].map(|count| count as u64);
        (self.operations, self.last_tick, self.is_counted) = (operations, last_tick, is_counted == 1.0);
        self.phase = phase;
    }

    /// Returns the consecutive flushes of another size, for the saved state.
    pub(crate) fn shift_numbers(&self) -> [f64; 3] {
        let FlushSizeShift { count, sums: [bytes, entries] } = self.shift;
        [count, bytes, entries]
    }

    /// Restores [`Estimate::shift_numbers`]; invalid numbers count as no such flushes.
    pub(crate) fn restore_shift(&mut self, [count, bytes, entries]: [f64; 3]) {
        let is_sane =
            count.abs() < SHIFT_FLUSHES && [bytes, entries].iter().all(|sum| sum.is_finite() && *sum > 0.0);
        self.shift =
            if is_sane { FlushSizeShift { count, sums: [bytes, entries] } } else { FlushSizeShift::NONE };
    }

    /// Follows a restart of the engine's counters at 0.
    pub(crate) fn count_anew(&mut self) {
        self.counted = [0; 3];
    }

    /// Returns whether a counter is below its last value, which means that the store was reopened.
    pub(crate) fn is_behind(&self, counted: &[u64; 3]) -> bool {
        counted.iter().zip(self.counted).any(|(now, then)| *now < then)
    }

    /// Takes in flushes and finished compactions.
    pub(crate) fn observe(&mut self, outcome: &Outcome) {
        let blend = |old: &mut f64, new: f64| {
            *old = if *old > 0.0 { *old + NEWEST_WEIGHT * (new - *old) } else { new }
        };
        match outcome {
            Outcome::Flushed { bytes, entries } if *bytes > 0 && *entries > 0 => {
                let expected = if self.flush_bytes > 0.0 { self.flush_bytes } else { *bytes as f64 };
                blend(&mut self.flush_bytes, *bytes as f64);
                blend(&mut self.flush_entries, *entries as f64);
                if let Some([bytes, entries]) = self.shift.flushed([*bytes, *entries], expected) {
                    (self.flush_bytes, self.flush_entries) = (bytes, entries);
                }
            }
            Outcome::Plan { result: PlanResult::Done, bytes_in, bytes_out, .. } if *bytes_in > 0 => {
                let ratio = bounded(*bytes_out as f64 / *bytes_in as f64, 0.01, 1.0);
                self.shrink += NEWEST_WEIGHT * (ratio - self.shrink);
                self.is_shrink_known = true;
            }
            _ => {}
        }
    }

    /// Returns what a covered run adds to a point lookup and to a seek. A lookup searches the share `vain` of the
    /// runs beyond the first without finding its key. In the share `false_positives` of these it reads a block.
    pub(crate) fn slopes(&self, costs: &CostView, vain: f64, false_positives: f64) -> [f64; 2] {
        let probe = known(costs.probe_ns, PROBE);
        let block = known(costs.block_ns, BLOCK);
        [vain * (probe + false_positives * block), known(costs.cursor_ns, CURSOR)]
    }

    /// Returns the present model. `runs` is the read cost of the covered runs in uncached runs, and `slopes` the cost
    /// of one uncached run.
    pub(crate) fn model(&self, input: &PolicyInput<'_>, slopes: [f64; 2], runs: f64) -> CostModel {
        let (costs, limits) = (input.costs, input.limits);
        let flush_bytes = known(self.flush_bytes, limits.memtable_bytes as f64);
        let entries = known(self.flush_entries, flush_bytes / known(input.load.entry_bytes, ENTRY));
        let chi = self.interference.chi();
        // Measured means include the interference of compactions that ran meanwhile.
        let excess = 1.0 + chi * bounded(costs.busy_share, 0.0, 1.0);
        let base = |mean: f64, per_run: f64, prior: f64| {
            let base = if mean > 0.0 { (mean / excess - per_run * runs).max(0.0) } else { prior };
            LinearCost { base, per_run }
        };
        let rate = (input.load.gets + input.load.seeks + input.load.writes) / 1e9;
        let clients = input.load.clients.max(1.0);
        let mut model = CostModel {
            shares: self.mix,
            point: base(costs.get_ns, slopes[0], BLOCK),
            seek: base(costs.scan_ns, slopes[1], BLOCK),
            write: known(costs.write_ns / excess, WRITE),
            chi,
            think: 0.0,
            clients,
            taken: 0.0,
            flush_bytes,
            entry_bytes: flush_bytes / entries.max(1.0),
            interval_ops: 0.0,
            fill: 0.0,
            speed: known(costs.compaction_bytes_per_s, MERGE_SPEED) / 1e9,
            setup: known(costs.compaction_fixed_ns, MERGE_FIXED),
            slots: limits.slots,
            shrink: self.shrink,
            fresh: 1.0,
            lost: 1.0,
        };
        // The policy itself makes writers wait, so waiting time is not think time. A waiting writer keeps no core
        // busy either.
        let awake = (clients - input.load.waited).max(0.0);
        if rate > 0.0 {
            model.think = (awake / rate - model.operation(runs, 0.0, false)).max(0.0);
        }
        model.taken = taken(awake * model.busy(runs), f64::from(limits.cores));
        CostModel::new(model)
    }
}

/// Consecutive flushes that differ from the expectation in the same direction.
///
/// Waiting memtables are flushed together, so after a burst of writes the next flush may be sixty times smaller. A
/// decayed mean would need a dozen flushes to follow, and meanwhile a search for the new mix would look ahead by
/// wrong flush intervals.
#[derive(Clone, Copy, PartialEq, Debug)]
struct FlushSizeShift {
    /// Number of flushes, negative for smaller ones; sums of their bytes and entries.
    count: f64,
    sums: [f64; 2],
}

impl FlushSizeShift {
    const NONE: FlushSizeShift = FlushSizeShift { count: 0.0, sums: [0.0; 2] };

    /// Takes in the bytes and entries of a flush. Returns the new expectation when there is one.
    fn flushed(&mut self, flush: [u64; 2], expected: f64) -> Option<[f64; 2]> {
        let flush = flush.map(|figure| figure as f64);
        let side = match flush[0] {
            bytes if bytes > SHIFT_FACTOR * expected => 1.0,
            bytes if bytes * SHIFT_FACTOR < expected => -1.0,
            _ => {
                *self = FlushSizeShift::NONE;
                return None;
            }
        };
        if self.count * side < 0.0 {
            *self = FlushSizeShift::NONE;
        }
        self.count += side;
        self.sums.iter_mut().zip(flush).for_each(|(sum, figure)| *sum += figure);
        if self.count.abs() < SHIFT_FLUSHES {
            return None;
        }
        Some(core::mem::replace(self, FlushSizeShift::NONE).sums.map(|sum| sum / SHIFT_FLUSHES))
    }
}

/// Returns `figure`, or `prior` when it is unknown.
fn known(figure: f64, prior: f64) -> f64 {
    if figure.is_finite() && figure > 0.0 { figure } else { prior }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flushed(estimate: &mut Estimate, kib: &[u64]) -> [f64; 2] {
        for kib in kib {
            estimate.observe(&Outcome::Flushed { bytes: kib << 10, entries: *kib });
        }
        [estimate.flush_bytes / 1024.0, estimate.flush_entries]
    }

    /// After a burst of writes flushes are small at once. Three of them change the expectation, whatever it was.
    #[test]
    fn three_flushes_of_another_size_are_what_is_expected() {
        let mut estimate = Estimate::PRIOR;
        assert_eq!(flushed(&mut estimate, &[7600; 9]), [7600.0; 2]);
        assert!(flushed(&mut estimate, &[120, 130])[0] > 4000.0, "two may be chance");
        assert_eq!(flushed(&mut estimate, &[122]), [124.0; 2]);
        assert_eq!(flushed(&mut estimate, &[1000, 2000, 3000]), [2000.0; 2], "larger ones likewise");
    }

    #[test]
    fn flushes_of_changing_sizes_are_a_mean() {
        let mut estimate = Estimate::PRIOR;
        flushed(&mut estimate, &[1000]);
        for _ in 0..50 {
            let [mean, _] = flushed(&mut estimate, &[400, 400, 1900, 1900]);
            assert!((800.0..1600.0).contains(&mean), "{mean}: twice smaller, twice larger");
            assert!((400.0..1300.0).contains(&flushed(&mut estimate, &[300, 300, 600])[0]));
        }
    }

    /// A state saved between two of the three flushes continues with the count.
    #[test]
    fn flushes_that_may_tell_of_a_turn_are_saved() {
        let mut estimate = Estimate::PRIOR;
        flushed(&mut estimate, &[8000, 100, 100]);
        let mut other = Estimate { shift: FlushSizeShift::NONE, ..estimate };
        other.restore_shift(estimate.shift_numbers());
        assert_eq!(other, estimate);
        assert_eq!(flushed(&mut other, &[100]), [100.0; 2]);
        for damaged in [[f64::NAN, 1.0, 1.0], [3.0, 1.0, 1.0], [1.0, -1.0, 1.0], [1.0, 1.0, f64::INFINITY]] {
            other.restore_shift(damaged);
            assert_eq!(other.shift, FlushSizeShift::NONE);
        }
    }
}
