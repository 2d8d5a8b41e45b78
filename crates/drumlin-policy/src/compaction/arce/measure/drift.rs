//! Decides when to search again.
//!
//! Every trigger compares the present with the state at the last search. A drift is a change of the operation mix. It
//! must last two ticks and exceed the sampling noise of the operations counted meanwhile. A large drift is therefore
//! seen at once, and a small one only after many operations. A drift ends the present *phase*; the lengths of past
//! phases limit how far later searches look ahead.

use crate::real;
use alloc::vec::Vec;
use drumlin_types::contract::total_variation;

/// Total variation between two mixes above which the mix has drifted.
const MIX: f64 = 0.1;
/// The total variation must exceed that by this many times 1 / sqrt(n) for a mix of n operations: five standard
/// deviations.
const DOUBT: f64 = 2.5;
/// Operations that a thread may have counted but not yet reported, perhaps all of one kind. With several clients, the
/// total variation must exceed the effect of these, scaled by the square root of the number of other clients.
const UNREPORTED: f64 = 128.0;
/// Operations of a phase up to which the mix of the last search follows the counted mix. A drift is detected after
/// few operations, so the mix known at that time is rough.
const YOUNG: f64 = 2048.0;
/// Relative change of runs, costs and measured figures that starts a search.
const SURPRISE: f64 = 0.25;
/// Relative change of the tree's size that starts a search.
const GROWTH: f64 = 0.1;
/// Flushes that a tree must hold before its growth counts.
const LEAST_FLUSHES: f64 = 8.0;
/// Time and operations after which a search is due in any case.
const LONG_MICROS: u64 = 300_000_000;
const LONG_OPERATIONS: f64 = 1e5;
/// Predictions are judged over this share of the horizon, and over this many flush intervals at least. A prediction
/// is a mean, and the number of runs rises and falls with long compactions.
const JUDGED_INTERVALS: f64 = 16.0;
const JUDGED_SHARE: f64 = 1.0 / 16.0;
/// Number of phase lengths kept.
const PHASES: usize = 4;
/// Factor by which the operations of a flush interval must change to start a search.
const INTERVAL_RATIO: f64 = 2.0;
/// Growth of the horizon since the last search, above which the phase has lasted longer than expected.
const OUTLASTS: f64 = 2.0;

/// Reason for a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trigger {
    /// No search since the store was opened or an option changed.
    Fresh,
    /// The mix of operations changed.
    Mix,
    /// Runs or costs differ from the prediction.
    Surprise,
    /// The tree grew or shrank.
    Size,
    /// Measured costs or the number of clients changed.
    Costs,
    /// Flush intervals hold another number of operations.
    IntervalOps,
    /// The phase has lasted longer than expected.
    Outlasts,
    /// The last search is long ago.
    Age,
}

impl Trigger {
    /// All triggers. The saved state holds positions in this list, so new ones go to its end.
    pub(crate) const ALL: [Trigger; 8] = [
        Trigger::Fresh,
        Trigger::Mix,
        Trigger::Surprise,
        Trigger::Size,
        Trigger::Costs,
        Trigger::Outlasts,
        Trigger::Age,
        Trigger::IntervalOps,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Trigger::Fresh => "the first since the store was opened",
            Trigger::Mix => "the mix of operations changed",
            Trigger::Surprise => "runs or costs differed from the prediction",
            Trigger::Size => "the size of the tree changed",
            Trigger::Costs => "measured costs changed",
            Trigger::IntervalOps => "the number of operations per flush changed",
            Trigger::Outlasts => "the phase lasted longer than expected",
            Trigger::Age => "the last search was long ago",
        }
    }
}

/// Figures of one moment that triggers compare.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct TriggerInputs {
    pub(crate) now: u64,
    pub(crate) operations: f64,
    pub(crate) mix: [f64; 3],
    /// Bytes of the tree, and the same in flushes.
    pub(crate) bytes: f64,
    pub(crate) flushes: f64,
    /// Compaction speed, cost of a run per lookup and per seek, clients.
    pub(crate) costs: [f64; 4],
    /// Covered runs, and cost of an operation.
    pub(crate) runs: f64,
    pub(crate) cost: f64,
    /// Operations of a flush interval, and flush intervals that searches look ahead.
    pub(crate) interval_ops: f64,
    pub(crate) horizon: f64,
}

/// State of the triggers.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Drift {
    /// Figures at the last search.
    basis: Option<TriggerInputs>,
    /// Covered runs and cost that this search predicted; 0 until it ends.
    predicted: [f64; 2],
    /// Number of consecutive ticks with another mix (`drifting_ticks`), and operations of each kind in all of them
    /// but the first, which may still contain the previous mix.
    drifting: [f64; 3],
    drifting_ticks: f64,
    /// Operations since the judgement began, and the sums of runs and of cost over them.
    judged: [f64; 3],
    /// Operation count at the start of the present phase.
    phase_began: f64,
    /// Operations of the last phases, the latest last.
    pub(crate) phases: Vec<f64>,
}

impl Drift {
    /// Records the figures at the start of a search.
    pub(crate) fn searched(&mut self, inputs: TriggerInputs) {
        self.basis = Some(inputs);
        self.predicted = [0.0; 2];
        self.judged = [0.0; 3];
    }

    /// Returns the mix after the drift and the operations that show it. Resets the drift.
    pub(crate) fn drifted(&mut self) -> ([f64; 3], f64) {
        let sum: f64 = self.drifting.iter().sum();
        self.drifting_ticks = 0.0;
        (core::mem::take(&mut self.drifting).map(|count| count / sum.max(1.0)), sum)
    }

    /// Records the predictions of the search that ended.
    pub(crate) fn predicted(&mut self, runs: f64, cost: f64) {
        self.predicted = [runs, cost];
        self.judged = [0.0; 3];
    }

    /// Makes a search due at the next tick, after options or the policy changed.
    pub(crate) fn forget(&mut self) {
        self.basis = None;
    }

    /// Takes in a tick of `operations` with the mix `fast`. Returns why a search is due, if one is.
    pub(crate) fn tick(
        &mut self,
        inputs: &TriggerInputs,
        fast: [f64; 3],
        operations: f64,
    ) -> Option<Trigger> {
        if self.basis.is_none() {
            return (inputs.flushes >= 1.0).then_some(Trigger::Fresh);
        }
        if let Some(trigger) = self.tick_mix(inputs, fast, operations) {
            return Some(trigger);
        }
        self.judged[0] += operations;
        self.judged[1] += operations * inputs.runs;
        self.judged[2] += operations * inputs.cost;
        let intervals = (inputs.horizon * JUDGED_SHARE).max(JUDGED_INTERVALS);
        if self.judged[0] >= intervals * inputs.interval_ops {
            let [runs, cost] = [self.judged[1], self.judged[2]].map(|sum| sum / self.judged[0]);
            self.judged = [0.0; 3];
            let wrong = |found: f64, expected: f64| expected > 0.0 && differ(found, expected, SURPRISE);
            if wrong(runs, self.predicted[0]) || wrong(cost, self.predicted[1]) {
                return Some(Trigger::Surprise);
            }
        }
        let basis = self.basis.as_ref()?;
        if inputs.flushes >= LEAST_FLUSHES && differ(inputs.bytes, basis.bytes, GROWTH) {
            return Some(Trigger::Size);
        }
        // M and the horizon count flush intervals, whose operations depend on the share of writes, even on a very
        // small one.
        if inputs.interval_ops.max(basis.interval_ops)
            > INTERVAL_RATIO * inputs.interval_ops.min(basis.interval_ops)
        {
            return Some(Trigger::IntervalOps);
        }
        if inputs.costs.iter().zip(basis.costs).any(|(now, then)| differ(*now, then, SURPRISE)) {
            return Some(Trigger::Costs);
        }
        if inputs.horizon > OUTLASTS * basis.horizon {
            return Some(Trigger::Outlasts);
        }
        let is_old = inputs.now.saturating_sub(basis.now) >= LONG_MICROS
            && inputs.operations - basis.operations >= LONG_OPERATIONS;
        is_old.then_some(Trigger::Age)
    }

    /// As [`Drift::tick`], while a search is running: only a new mix justifies the next search then.
    pub(crate) fn tick_mix(
        &mut self,
        inputs: &TriggerInputs,
        fast: [f64; 3],
        operations: f64,
    ) -> Option<Trigger> {
        let basis = self.basis.as_ref()?.mix;
        let [.., clients] = inputs.costs;
        if !self.drifts(&basis, fast, operations, clients) {
            let is_young = inputs.operations - self.phase_began < YOUNG;
            if let Some(basis) = self.basis.as_mut().filter(|_| is_young && self.drifting_ticks == 0.0) {
                basis.mix = inputs.mix;
            }
            return None;
        }
        self.end_phase(inputs.operations);
        Some(Trigger::Mix)
    }

    /// Adds a tick to the drift in progress. Returns whether the mix differs from `basis` by more than chance.
    fn drifts(&mut self, basis: &[f64; 3], fast: [f64; 3], operations: f64, clients: f64) -> bool {
        if total_variation(&fast, basis) <= MIX || operations <= 0.0 {
            (self.drifting, self.drifting_ticks) = ([0.0; 3], 0.0);
            return false;
        }
        self.drifting_ticks += 1.0;
        if self.drifting_ticks < 2.0 {
            return false;
        }
        for (sum, share) in self.drifting.iter_mut().zip(fast) {
            *sum += share * operations;
        }
        let sum: f64 = self.drifting.iter().sum();
        stands_out(&self.drifting.map(|count| count / sum), basis, sum, clients)
    }

    /// Returns the state as numbers; the phases are saved separately.
    pub(crate) fn numbers(&self) -> [f64; Drift::NUMBERS] {
        let b = self.basis.unwrap_or_default();
        let known = f64::from(u8::from(self.basis.is_some()));
        let ([d0, d1, d2], d3) = (self.drifting, self.drifting_ticks);
        let ([m0, m1, m2], [c0, c1, c2, c3]) = (b.mix, b.costs);
        let ([p0, p1], [j0, j1, j2]) = (self.predicted, self.judged);
        let (now, began) = (b.now as f64, self.phase_began);
        let basis = [b.operations, b.bytes, b.flushes, b.runs, b.cost, b.interval_ops, b.horizon];
        let [b0, b1, b2, b3, b4, b5, b6] = basis;
        [
            known, d0, d1, d2, d3, now, began, m0, m1, m2, c0, c1, c2, c3, p0, p1, j0, j1, j2, b0, b1, b2,
            b3, b4, b5, b6,
        ]
    }

    /// Length of [`Drift::numbers`].
    pub(crate) const NUMBERS: usize = 26;

    /// Restores [`Drift::numbers`].
    pub(crate) fn restore(&mut self, numbers: [f64; Drift::NUMBERS]) {
        let [known, d0, d1, d2, d3, now, began, m0, m1, m2, c0, c1, c2, c3, rest @ ..] = numbers;
        let [p0, p1, j0, j1, j2, rest @ ..] = rest;
        let [operations, bytes, flushes, runs, cost, interval_ops, horizon] = rest;
        let (mix, costs) = ([m0, m1, m2], [c0, c1, c2, c3]);
        let now = now as u64;
        let basis =
            TriggerInputs { now, operations, mix, bytes, flushes, costs, runs, cost, interval_ops, horizon };
        self.basis = (known == 1.0).then_some(basis);
        (self.drifting, self.drifting_ticks, self.phase_began) = ([d0, d1, d2], d3, began);
        (self.predicted, self.judged) = ([p0, p1], [j0, j1, j2]);
    }

    fn end_phase(&mut self, operations: f64) {
        if self.phases.len() == PHASES {
            self.phases.remove(0);
        }
        self.phases.push(self.lasted(operations).max(1.0));
        self.phase_began = operations;
    }

    /// Returns the operations of the present phase so far.
    pub(crate) fn lasted(&self, operations: f64) -> f64 {
        operations - self.phase_began
    }

    /// Returns how many more operations the present phase is expected to last, once any phase has ended. The
    /// expectation is the geometric mean of the last phases, or the age of the present phase if that is larger.
    pub(crate) fn expected(&self, operations: f64) -> Option<f64> {
        if self.phases.is_empty() {
            return None;
        }
        let sum: f64 = self.phases.iter().map(|length| real::ln(*length)).sum();
        let usual = real::exp(sum / self.phases.len() as f64);
        Some(usual.max(self.lasted(operations)))
    }
}

/// Returns whether `mix`, seen in this number of operations of `clients` clients, differs from `basis` by more than
/// chance.
pub(crate) fn stands_out(mix: &[f64; 3], basis: &[f64; 3], operations: f64, clients: f64) -> bool {
    let above = total_variation(mix, basis) - MIX;
    let late = UNREPORTED * real::square_root((clients - 1.0).max(0.0));
    above * operations > DOUBT * real::square_root(operations) + late
}

fn differ(a: f64, b: f64, share: f64) -> bool {
    (a - b).abs() > share * b.abs()
}

#[cfg(test)]
mod tests;
