//! When to search again (arce.md 3.7.6).
//!
//! Everything is compared with how it was at the last search. A drift of the mix must last two ticks, and
//! stand out of the noise of the operations that were sampled meanwhile: a large one is seen at once, a
//! small one when enough operations show it. It also ends a phase, whose length bounds later horizons.

use super::real;
use alloc::vec::Vec;
use drumlin_types::contract::total_variation;

/// Total variation of the mix that counts as a drift.
const MIX: f64 = 0.1;
/// So many times 1 / sqrt(n) the mix of n operations has to be above that: five standard deviations.
const DOUBT: f64 = 2.5;
/// Operations that a thread has not told of yet, when there are others: all of one kind perhaps.
const UNTOLD: f64 = 128.0;
/// Operations of a phase up to which the mix that was searched for follows what is counted: a drift is seen by so few that
/// the mix they tell of is a rough one.
const YOUNG: f64 = 2048.0;
/// Relative change of runs, costs and measured figures.
const SURPRISE: f64 = 0.25;
/// Relative change of the tree's size.
const GROWTH: f64 = 0.1;
/// Flushes that a tree must hold before its growth counts.
const LEAST_FLUSHES: f64 = 8.0;
/// Time and operations after which a search is due in any case.
const LONG_MICROS: u64 = 300_000_000;
const LONG_OPERATIONS: f64 = 1e5;
/// Windows over which predictions are judged at least, and the share of the horizon that they cover: what
/// is predicted is a mean, and runs come and go with long merges.
const JUDGED_WINDOWS: f64 = 16.0;
const JUDGED_SHARE: f64 = 1.0 / 16.0;
/// Phase lengths that are kept.
const PHASES: usize = 4;
/// Change of the operations of a window.
const WINDOWS: f64 = 2.0;
/// Growth of the horizon since the last search, by which a phase outlasts what was expected of it.
const OUTLASTS: f64 = 2.0;

/// Why a search is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trigger {
    /// There was none since the store was opened, or an option changed.
    Fresh,
    /// The mix of operations is another one.
    Mix,
    /// Runs or costs are not as predicted.
    Surprise,
    /// The tree grew or shrank.
    Size,
    /// Measured costs or the number of clients changed.
    Costs,
    /// The phase lasts longer than expected.
    Outlasts,
    /// It is long ago.
    Age,
}

impl Trigger {
    pub(crate) const ALL: [Trigger; 7] = [
        Trigger::Fresh,
        Trigger::Mix,
        Trigger::Surprise,
        Trigger::Size,
        Trigger::Costs,
        Trigger::Outlasts,
        Trigger::Age,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Trigger::Fresh => "none since the store was opened",
            Trigger::Mix => "another mix of operations",
            Trigger::Surprise => "runs or costs are not as predicted",
            Trigger::Size => "the tree changed its size",
            Trigger::Costs => "measured costs changed",
            Trigger::Outlasts => "the phase lasts longer than expected",
            Trigger::Age => "the last one is long ago",
        }
    }
}

/// What searches are compared by.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Picture {
    pub(crate) now: u64,
    pub(crate) operations: f64,
    pub(crate) mix: [f64; 3],
    /// Bytes of the tree, and flushes in it.
    pub(crate) bytes: f64,
    pub(crate) flushes: f64,
    /// Merge speed, slopes of lookups and seeks, clients.
    pub(crate) costs: [f64; 4],
    /// Covered runs and the cost of an operation.
    pub(crate) runs: f64,
    pub(crate) cost: f64,
    /// Operations of a window, and the windows that searches look ahead.
    pub(crate) window_ops: f64,
    pub(crate) horizon: f64,
}

/// The memory of the triggers.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Drift {
    /// How everything was at the last search.
    basis: Option<Picture>,
    /// What that search predicted: covered runs and cost; 0 before it ended.
    predicted: [f64; 2],
    /// The ticks since the mix seems to be another one, and operations of each kind in all but the first of
    /// them: that one may hold some of the mix before.
    drifting: [f64; 3],
    drifting_ticks: f64,
    /// Sums of runs and cost over operations, since the judgement began.
    judged: [f64; 3],
    phase_began: f64,
    /// Operations between drifts, the latest last.
    pub(crate) phases: Vec<f64>,
}

impl Drift {
    /// A search begins with this picture.
    pub(crate) fn searched(&mut self, picture: Picture) {
        self.basis = Some(picture);
        self.predicted = [0.0; 2];
        self.judged = [0.0; 3];
    }

    /// The mix that the present one drifted to, and the operations that show it; the next drift is counted from
    /// here on.
    pub(crate) fn drifted(&mut self) -> ([f64; 3], f64) {
        let sum: f64 = self.drifting.iter().sum();
        self.drifting_ticks = 0.0;
        (core::mem::take(&mut self.drifting).map(|count| count / sum.max(1.0)), sum)
    }

    /// The search ended with these predictions.
    pub(crate) fn predicted(&mut self, runs: f64, cost: f64) {
        self.predicted = [runs, cost];
        self.judged = [0.0; 3];
    }

    /// Options or the policy changed: search at the next chance.
    pub(crate) fn forget(&mut self) {
        self.basis = None;
    }

    /// Takes in a tick of `operations` with the mix `fast`. Why a search is due, if one is.
    pub(crate) fn tick(&mut self, picture: &Picture, fast: [f64; 3], operations: f64) -> Option<Trigger> {
        if self.basis.is_none() {
            return (picture.flushes >= 1.0).then_some(Trigger::Fresh);
        }
        if let Some(trigger) = self.tick_mix(picture, fast, operations) {
            return Some(trigger);
        }
        self.judged[0] += operations;
        self.judged[1] += operations * picture.runs;
        self.judged[2] += operations * picture.cost;
        let windows = (picture.horizon * JUDGED_SHARE).max(JUDGED_WINDOWS);
        if self.judged[0] >= windows * picture.window_ops {
            let [runs, cost] = [self.judged[1], self.judged[2]].map(|sum| sum / self.judged[0]);
            self.judged = [0.0; 3];
            let wrong = |found: f64, expected: f64| expected > 0.0 && differ(found, expected, SURPRISE);
            if wrong(runs, self.predicted[0]) || wrong(cost, self.predicted[1]) {
                return Some(Trigger::Surprise);
            }
        }
        let basis = self.basis.as_ref()?;
        if picture.flushes >= LEAST_FLUSHES && differ(picture.bytes, basis.bytes, GROWTH) {
            return Some(Trigger::Size);
        }
        if picture.costs.iter().zip(basis.costs).any(|(now, then)| differ(*now, then, SURPRISE)) {
            return Some(Trigger::Costs);
        }
        // What a tuple says is in windows, and these hang on the share of writes, however small it is.
        if picture.window_ops.max(basis.window_ops) > WINDOWS * picture.window_ops.min(basis.window_ops) {
            return Some(Trigger::Costs);
        }
        if picture.horizon > OUTLASTS * basis.horizon {
            return Some(Trigger::Outlasts);
        }
        let is_old = picture.now.saturating_sub(basis.now) >= LONG_MICROS
            && picture.operations - basis.operations >= LONG_OPERATIONS;
        is_old.then_some(Trigger::Age)
    }

    /// The same while a search is under way: another mix alone is a reason for the next one.
    pub(crate) fn tick_mix(&mut self, picture: &Picture, fast: [f64; 3], operations: f64) -> Option<Trigger> {
        let basis = self.basis.as_ref()?.mix;
        let [.., clients] = picture.costs;
        if !self.drifts(&basis, fast, operations, clients) {
            let is_young = picture.operations - self.phase_began < YOUNG;
            if let Some(basis) = self.basis.as_mut().filter(|_| is_young && self.drifting_ticks == 0.0) {
                basis.mix = picture.mix;
            }
            return None;
        }
        self.end_phase(picture.operations);
        Some(Trigger::Mix)
    }

    /// Takes a tick into the judgement whether the mix is another one than `basis`.
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

    /// As numbers; the phases are apart.
    pub(crate) fn numbers(&self) -> [f64; Drift::NUMBERS] {
        let b = self.basis.unwrap_or_default();
        let known = f64::from(u8::from(self.basis.is_some()));
        let ([d0, d1, d2], d3) = (self.drifting, self.drifting_ticks);
        let ([m0, m1, m2], [c0, c1, c2, c3]) = (b.mix, b.costs);
        let ([p0, p1], [j0, j1, j2]) = (self.predicted, self.judged);
        let (now, began) = (b.now as f64, self.phase_began);
        let basis = [b.operations, b.bytes, b.flushes, b.runs, b.cost, b.window_ops, b.horizon];
        let [b0, b1, b2, b3, b4, b5, b6] = basis;
        [
            known, d0, d1, d2, d3, now, began, m0, m1, m2, c0, c1, c2, c3, p0, p1, j0, j1, j2, b0, b1, b2,
            b3, b4, b5, b6,
        ]
    }

    /// How many they are.
    pub(crate) const NUMBERS: usize = 26;

    /// Takes back [`Drift::numbers`].
    pub(crate) fn restore(&mut self, numbers: [f64; Drift::NUMBERS]) {
        let [known, d0, d1, d2, d3, now, began, m0, m1, m2, c0, c1, c2, c3, rest @ ..] = numbers;
        let [p0, p1, j0, j1, j2, rest @ ..] = rest;
        let [operations, bytes, flushes, runs, cost, window_ops, horizon] = rest;
        let (mix, costs) = ([m0, m1, m2], [c0, c1, c2, c3]);
        let now = now as u64;
        let basis = Picture { now, operations, mix, bytes, flushes, costs, runs, cost, window_ops, horizon };
        self.basis = (known == 1.0).then_some(basis);
        (self.drifting, self.drifting_ticks, self.phase_began) = ([d0, d1, d2], d3, began);
        (self.predicted, self.judged) = ([p0, p1], [j0, j1, j2]);
    }

    fn end_phase(&mut self, operations: f64) {
        if self.phases.len() == PHASES {
            self.phases.remove(0);
        }
        self.phases.push((operations - self.phase_began).max(1.0));
        self.phase_began = operations;
    }

    /// How many operations more the present phase is expected to last, once any phase has ended: as long as
    /// the geometric mean of the last ones, or, when it has lasted longer already, as long again.
    pub(crate) fn expected(&self, operations: f64) -> Option<f64> {
        if self.phases.is_empty() {
            return None;
        }
        let sum: f64 = self.phases.iter().map(|length| real::ln(*length)).sum();
        let usual = real::exp(sum / self.phases.len() as f64);
        Some(usual.max(operations - self.phase_began))
    }
}

/// Whether `mix`, seen in so many operations of so many clients, is another one than `basis`, and not only by chance.
pub(crate) fn stands_out(mix: &[f64; 3], basis: &[f64; 3], operations: f64, clients: f64) -> bool {
    let above = total_variation(mix, basis) - MIX;
    let late = UNTOLD * real::square_root((clients - 1.0).max(0.0));
    above * operations > DOUBT * real::square_root(operations) + late
}

fn differ(a: f64, b: f64, share: f64) -> bool {
    (a - b).abs() > share * b.abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A B C D E F G H I J, as shares of lookups, seeks and writes.
    const MIXES: [(char, [f64; 3]); 10] = [
        ('A', [1.0, 98.0, 1.0]),
        ('B', [1.0, 1.0, 98.0]),
        ('C', [98.0, 1.0, 1.0]),
        ('D', [49.0, 49.0, 2.0]),
        ('E', [49.0, 2.0, 49.0]),
        ('F', [2.0, 49.0, 49.0]),
        ('G', [20.0, 40.0, 40.0]),
        ('H', [40.0, 40.0, 20.0]),
        ('I', [40.0, 20.0, 40.0]),
        ('J', [34.0, 33.0, 33.0]),
    ];

    fn mix(name: char) -> [f64; 3] {
        MIXES.iter().find(|(n, _)| *n == name).unwrap().1.map(|percent| percent / 100.0)
    }

    #[test]
    fn the_changes_of_the_paper_are_all_seen() {
        let (mut least, mut most) = (1.0f64, 0.0f64);
        for plan in ["ABDJCE", "JEBFDC", "GHI"] {
            let names: std::vec::Vec<char> = plan.chars().collect();
            for pair in names.windows(2) {
                let change = total_variation(&mix(pair[0]), &mix(pair[1]));
                least = least.min(change);
                most = most.max(change);
            }
        }
        assert!((least - 0.20).abs() < 0.005 && (most - 0.97).abs() < 0.005, "{least} {most}");
    }

    fn picture(operations: f64, name: char) -> Picture {
        Picture {
            operations,
            mix: mix(name),
            bytes: 1e9,
            flushes: 100.0,
            window_ops: 6000.0,
            ..Picture::default()
        }
    }

    #[test]
    fn a_drift_lasts_two_ticks_and_ends_a_phase() {
        let mut drift = Drift::default();
        assert_eq!(drift.tick(&picture(0.0, 'A'), mix('A'), 4096.0), Some(Trigger::Fresh));
        drift.searched(picture(0.0, 'A'));
        for (at, name, expected) in [
            (1.0, 'A', None),
            (2.0, 'B', None),
            (3.0, 'A', None),
            (4.0, 'B', None),
            (5.0, 'B', Some(Trigger::Mix)),
        ] {
            assert_eq!(drift.tick(&picture(at * 5000.0, name), mix(name), 5000.0), expected, "{at}");
        }
        assert_eq!(drift.phases, [25_000.0]);
        assert_eq!(drift.drifted(), (mix('B'), 5000.0));
        assert_eq!(Drift::default().expected(1e9), None);
        drift.phases = std::vec::Vec::from([100.0, 1000.0, 10_000.0]);
        assert!((drift.expected(25_500.0).unwrap() - 1000.0).abs() < 1e-6);
        assert_eq!(drift.expected(45_000.0), Some(20_000.0), "what lasted long lasts as long again");
    }

    /// The ticks of `operations` in which a mix that is off by `share` is seen.
    fn ticks_to_see(share: f64, operations: f64) -> Option<usize> {
        let mut drift = Drift::default();
        drift.searched(picture(0.0, 'J'));
        let [points, seeks, writes] = mix('J');
        let off = [points - share, seeks + share, writes];
        (1..100).find(|_| drift.tick(&picture(0.0, 'J'), off, operations) == Some(Trigger::Mix))
    }

    #[test]
    fn a_drift_is_seen_as_soon_as_it_stands_out_of_the_noise() {
        assert_eq!(ticks_to_see(0.33, 64.0), Some(3), "0.23 above the bound: 118 operations");
        assert_eq!(ticks_to_see(0.2, 64.0), Some(11), "0.1 above it: 625");
        assert!(
            stands_out(&mix('B'), &mix('F'), 256.0, 1.0) && stands_out(&mix('B'), &mix('F'), 1024.0, 4.0)
        );
        assert!(
            !stands_out(&mix('B'), &mix('F'), 256.0, 4.0),
            "three threads that write told of it, and no other"
        );
        assert_eq!(ticks_to_see(0.2, 100_000.0), Some(2), "a single tick never does");
        assert_eq!(ticks_to_see(0.1, 1e6), None);
    }

    /// At 20 looks a second these are six minutes of each mix.
    #[test]
    fn no_drift_is_seen_where_there_is_none() {
        const TICK: usize = 64;
        let mut dice = crate::SplitMix::new(11);
        let mut draw = |name: char, operations: usize| {
            let ([points, seeks, _], mut counts) = (mix(name), [0.0; 3]);
            for _ in 0..operations {
                let at = dice.below(1 << 20) as f64 / (1 << 20) as f64;
                counts[if at < points { 0 } else { 1 + usize::from(at >= points + seeks) }] += 1.0;
            }
            counts.map(|count| count / operations as f64)
        };
        for (name, _) in MIXES {
            let mut drift = Drift::default();
            // A search goes by what the two ticks showed that told of the new mix.
            let mut mean = draw(name, TICK);
            drift.searched(Picture { mix: mean, ..picture(0.0, name) });
            for ticks in 1..7200 {
                let fast = draw(name, TICK);
                let weight = 1.0 / f64::from(ticks + 1);
                mean.iter_mut().zip(fast).for_each(|(mean, fast)| *mean += weight * (fast - *mean));
                let seen = Picture { mix: mean, ..picture(f64::from(ticks) * TICK as f64, name) };
                assert_ne!(drift.tick(&seen, fast, TICK as f64), Some(Trigger::Mix), "{name} {ticks}");
            }
        }
    }

    /// Another search begins while the mix changes, with some of the new mix in its own: the drift is still seen.
    #[test]
    fn a_search_in_between_hides_no_drift() {
        let mut drift = Drift::default();
        drift.searched(picture(0.0, 'A'));
        assert_eq!(drift.tick(&picture(1000.0, 'A'), mix('B'), 1024.0), None);
        drift.searched(picture(1000.0, 'A'));
        assert_eq!(drift.tick(&picture(2000.0, 'A'), mix('B'), 1024.0), Some(Trigger::Mix));
        assert_eq!(drift.drifted(), (mix('B'), 1024.0));
    }

    #[test]
    fn other_triggers() {
        let basis = Picture {
            costs: [1.0, 1.0, 1.0, 4.0],
            runs: 5.0,
            cost: 100.0,
            horizon: 100.0,
            ..picture(0.0, 'J')
        };
        let tick = |change: fn(&mut Picture)| {
            let mut drift = Drift::default();
            drift.searched(basis);
            drift.predicted(5.0, 100.0);
            let mut next = basis;
            change(&mut next);
            drift.tick(&next, mix('J'), 1e6)
        };
        assert_eq!(tick(|_| ()), None);
        assert_eq!(tick(|p| p.bytes *= 1.09), None);
        assert_eq!(tick(|p| p.bytes *= 1.11), Some(Trigger::Size));
        assert_eq!(tick(|p| p.costs[3] = 6.0), Some(Trigger::Costs));
        assert_eq!(tick(|p| p.window_ops *= 1.9), None);
        assert_eq!(tick(|p| p.window_ops *= 2.1), Some(Trigger::Costs));
        assert_eq!(tick(|p| p.window_ops /= 2.1), Some(Trigger::Costs));
        assert_eq!(tick(|p| p.horizon = 201.0), Some(Trigger::Outlasts));
        assert_eq!(tick(|p| p.runs = 7.0), Some(Trigger::Surprise));
        assert_eq!(tick(|p| (p.now, p.operations) = (LONG_MICROS, 1e5)), Some(Trigger::Age));
        assert_eq!(tick(|p| (p.now, p.operations) = (LONG_MICROS, 9e4)), None);
    }
}
