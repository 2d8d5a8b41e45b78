//! Limits on what elective compactions may rewrite, and back-off after failures.
//!
//! The rewrite budget is a token bucket in bytes. It gains `max_write_amp` per flushed byte, 0.25 per byte that reads
//! fetched from the device, and the size N of the tree per day. It holds at most 2 N. Every compaction pays its
//! bytes. Elective ones may only spend what is there; those that are a must may overdraw the budget to -N. Over any
//! interval, elective bytes are therefore at most 2 N + max_write_amp * flushed + reads / 4 + N * days: reads alone
//! cannot keep a tree in compaction for ever.
//!
//! Readers pay first. The gain of a compaction is the reads to come, and no one knows whether they come. So an
//! elective compaction starts only after readers have lost its time, times a *price*, to runs beyond the first. With r
//! for the share of the mean operation (reads and writes, without think time) that these runs take,
//!
//! ```text
//! price = max(taken, min(1, (0.1 / r)^2))
//! ```
//!
//! Here `taken` is what a compaction takes from clients per unit of its time ([`CostModel::taken`]): a tenth, or all of
//! it if there is no idle core. If the price is `taken`, the loss is at most about twice that of a policy that knows
//! the reads to come, as in the ski rental problem. Where runs cost readers little, the price is higher: then the CPU
//! time of an idle core, writes to the disk and cold blocks in the cache outweigh what they gain.
//!
//! An account sums up what readers have lost over all operations, as the compaction time that it pays for. It holds
//! at most the time of compacting the whole tree. Runs that a running compaction will remove no longer count. Each
//! compaction spends its time from the account, a must as much of it as there is. A compaction that is withdrawn gets
//! nothing back. A new policy begins with a full account. Without the account, a small flush in a load of lookups
//! would start a compaction of the whole tree at once, even if the load ended right after it.

use crate::compaction::arce::measure::model::{CostModel, Met, bounded};
use crate::real;
use alloc::vec::Vec;
use drumlin_types::RunId;

/// Bytes gained per byte that reads fetched from the device.
const PER_READ: f64 = 0.25;
const DAY_MICROS: f64 = 86_400e6;

/// Share of the mean operation up to which readers pay a compaction's whole time, even if a core is idle.
const LITTLE: f64 = 0.1;

/// Returns what readers pay for each unit of a compaction's time, when runs beyond the first take this `share` of the
/// mean operation and a compaction takes `taken` per unit of its own time from clients.
fn price(share: f64, taken: f64) -> f64 {
    let ratio = LITTLE / share.max(1e-3); // a share that is not a number counts as none
    bounded(ratio * ratio, taken, 1.0)
}

/// The rewrite budget.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct RewriteBudget {
    left: f64,
    /// Bytes gained per flushed byte.
    pub(crate) amp: f64,
    /// Nanoseconds of compaction time for which readers have paid and that no compaction has spent; infinite if
    /// readers need not pay.
    paid: f64,
    /// The latest loss of readers, and its price.
    offer: Offer,
}

/// What readers lose to runs, and the price that they pay for compactions.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Offer {
    /// Share of the mean operation's time that runs beyond the first take.
    pub(crate) share: f64,
    /// Lost time that pays for a unit of a compaction's time.
    pub(crate) price: f64,
}

impl RewriteBudget {
    /// Creates a budget of `left` bytes for which readers need not pay.
    pub(crate) fn new(left: f64, amp: f64) -> RewriteBudget {
        RewriteBudget { left: bounded(left, -1e18, 1e18), amp, paid: f64::INFINITY, offer: Offer::default() }
    }

    /// Sets the nanoseconds of compaction time for which readers have paid.
    pub(crate) fn with_paid(self, paid: f64) -> RewriteBudget {
        RewriteBudget { paid, ..self }
    }

    /// Returns the nanoseconds of compaction time for which readers have paid and that no compaction has spent.
    pub(crate) fn paid(&self) -> f64 {
        self.paid
    }

    /// Returns what readers last offered.
    pub(crate) fn offer(&self) -> Offer {
        self.offer
    }

    /// Credits what `operations` operations that met the runs `met` lost to runs beyond the first, at the price of this
    /// moment.
    pub(crate) fn pay(&mut self, operations: f64, met: Met, model: &CostModel, tree: f64) {
        let extra = met.cost * (1.0 - 1.0 / met.runs.max(1.0));
        let lost_each = model.run_per_operation() * extra.max(0.0);
        let share = lost_each / model.operation(met.cost, 0.0, false).max(1.0);
        let lost = operations.max(0.0) * lost_each;
        self.offer = Offer { share, price: price(share, model.taken) };
        if self.paid.is_finite() {
            self.paid = (self.paid + lost / self.offer.price).min(model.compaction_ns(tree));
        }
    }

    /// Returns the bytes that an elective compaction may read: those left for which readers have paid.
    pub(crate) fn affordable(&self, model: &CostModel) -> f64 {
        // Without rounding up, the account at its cap could miss the whole tree by a fraction of a byte for ever.
        let paid = real::ceil((self.paid - model.setup).max(0.0) * model.speed);
        self.left.min(paid)
    }

    /// Spends what readers have paid for a compaction of `bytes`. Returns the nanoseconds spent.
    pub(crate) fn spend(&mut self, bytes: f64, model: &CostModel) -> f64 {
        if !self.paid.is_finite() {
            return 0.0;
        }
        let spent = model.compaction_ns(bytes).min(self.paid);
        self.paid -= spent;
        spent
    }

    pub(crate) fn left(&self) -> f64 {
        self.left
    }

    fn gain(&mut self, bytes: f64, tree: f64) {
        self.left = (self.left + bytes).min(2.0 * tree);
    }

    /// Credits `bytes` that were flushed; the tree now holds `tree` bytes.
    pub(crate) fn flushed(&mut self, bytes: f64, tree: f64) {
        self.gain(self.amp * bytes, tree);
    }

    /// Credits `micros` microseconds, during which reads fetched `read` bytes from the device.
    pub(crate) fn passed(&mut self, micros: f64, read: f64, tree: f64) {
        self.gain(PER_READ * read.max(0.0) + tree * micros.max(0.0) / DAY_MICROS, tree);
    }

    /// Charges a compaction of `bytes` that starts. Returns the charge, which is less if the budget is at its lower
    /// bound.
    pub(crate) fn merged(&mut self, bytes: f64, tree: f64) -> f64 {
        let before = self.left;
        self.left = (self.left - bytes).max(self.left.min(-tree));
        before - self.left
    }
}

/// First back-off after a refused or failed compaction; doubles up to `LONGEST_PAUSE`. Microseconds.
const FIRST_PAUSE: u64 = 1_000_000;
const LONGEST_PAUSE: u64 = 60_000_000;
/// Number of compactions in back-off that are remembered.
const MOST_BACK_OFFS: usize = 8;

/// Compactions that were refused or failed and are in back-off.
#[derive(Clone, Debug, Default)]
pub(crate) struct BackOffs(Vec<Rest>);

#[derive(Clone, Copy, Debug)]
struct Rest {
    ends: (RunId, RunId),
    until: u64,
    pause: u64,
}

impl BackOffs {
    /// Starts or doubles the back-off of the compaction between the runs `ends`.
    pub(crate) fn failed(&mut self, ends: (RunId, RunId), now: u64) {
        let pause = match self.0.iter().position(|rest| rest.ends == ends) {
            Some(at) => (self.0.remove(at).pause * 2).min(LONGEST_PAUSE),
            None => FIRST_PAUSE,
        };
        if self.0.len() == MOST_BACK_OFFS {
            self.0.remove(0);
        }
        self.0.push(Rest { ends, until: now.saturating_add(pause), pause });
    }

    /// Returns the entries as four numbers each, for the saved state.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = [f64; 4]> {
        self.0.iter().map(|r| [r.ends.0.0 as f64, r.ends.1.0 as f64, r.until as f64, r.pause as f64])
    }

    /// Restores one entry of [`BackOffs::numbers`].
    pub(crate) fn push(&mut self, [newest, oldest, until, pause]: [f64; 4]) {
        let ends = (RunId(newest as u64), RunId(oldest as u64));
        let pause = (pause as u64).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.0.push(Rest { ends, until: until as u64, pause });
        self.0.truncate(MOST_BACK_OFFS);
    }

    /// Returns whether the compaction between the runs `ends` is in back-off.
    pub(crate) fn holds(&self, ends: (RunId, RunId), now: u64) -> bool {
        self.0.iter().any(|rest| rest.ends == ends && rest.until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SplitMix;
    use crate::compaction::arce::measure::model::paper::thirds;
    use crate::compaction::arce::measure::model::{LinearCost, taken};

    /// A run costs an operation 100 ns, as much as the rest of it; a compaction takes 1 ms, and 1 ns per byte.
    fn model() -> CostModel {
        let point = LinearCost { base: 100.0, per_run: 100.0 };
        CostModel { shares: [1.0, 0.0, 0.0], point, setup: 1e6, speed: 1.0, ..thirds() }
    }

    #[test]
    fn readers_pay_a_tenth_of_a_compaction_before_it_starts() {
        let model = model();
        let (tree, met) = (1e8, |runs: f64| Met { runs, cost: runs });
        let mut budget = RewriteBudget::new(1e12, 20.0).with_paid(0.0);
        assert_eq!(budget.affordable(&model), 0.0);
        budget.pay(1e6, met(1.0), &model, tree);
        budget.pay(1e6, met(0.5), &model, tree);
        assert_eq!(budget.paid(), 0.0, "a single run costs nothing more");
        // Two runs beyond the first, 100 ns each, for 5000 operations: 1 ms, a tenth of 10 ms.
        budget.pay(5000.0, met(3.0), &model, tree);
        assert!((budget.affordable(&model) - 9e6).abs() < 1.0, "{}", budget.affordable(&model));
        let spent = budget.spend(4e6, &model);
        assert!((spent - 5e6).abs() < 1e-2 && (budget.affordable(&model) - 4e6).abs() < 1.0, "{spent}");
        budget.pay(1e12, met(3.0), &model, tree);
        assert!((budget.affordable(&model) - tree).abs() < 1.0, "at most the whole tree");
        assert_eq!(RewriteBudget::new(500.0, 20.0).affordable(&model), 500.0, "nobody need pay");
        assert_eq!(budget.spend(1e12, &model), model.compaction_ns(tree), "not below 0");
    }

    #[test]
    fn readers_who_would_gain_little_pay_more() {
        for (share, paid) in [(0.0, 1.0), (0.1, 1.0), (0.2, 0.25), (0.5, 0.1), (1.0, 0.1)] {
            assert!((price(share, 0.1) - paid).abs() < 1e-9, "{share}: {}", price(share, 0.1));
        }
        assert_eq!((price(0.2, 0.5), price(0.9, 1.0), price(f64::NAN, 0.1)), (0.5, 1.0, 1.0));
        // Two runs beyond the first take 200 of 2000 ns: 5000 operations pay for 1 ms, not for 10.
        let point = LinearCost { base: 1700.0, per_run: 100.0 };
        let model = CostModel { point, ..model() };
        let mut budget = RewriteBudget::new(1e12, 20.0).with_paid(0.0);
        budget.pay(5000.0, Met { runs: 3.0, cost: 3.0 }, &model, 1e8);
        assert!((budget.paid() - 1e6).abs() < 1e-3, "{}", budget.paid());
    }

    #[test]
    fn what_is_paid_for_stays_paid_for_when_the_price_changes() {
        let (idle, full) = (model(), CostModel { taken: 1.0, ..model() });
        let (tree, met) = (1e8, Met { runs: 3.0, cost: 3.0 });
        let mut budget = RewriteBudget::new(1e12, 20.0).with_paid(0.0);
        // 200 ns for each operation: half of the time of the whole tree at the full price.
        budget.pay(250_000.0, met, &full, tree);
        let half = budget.affordable(&full);
        assert!((half - 49e6).abs() < 1.0, "{half}");
        budget.pay(0.0, met, &idle, tree);
        assert_eq!((budget.affordable(&idle), budget.affordable(&full)), (half, half));
        budget.pay(25_000.0, met, &idle, tree);
        assert!((budget.affordable(&full) - 99e6).abs() < 1.0, "with an idle core a tenth pays for as much");
    }

    #[test]
    fn compactions_take_time_from_clients() {
        assert_eq!((taken(1.0, 4.0), taken(3.0, 4.0)), (0.1, 0.1));
        assert_eq!((taken(4.0, 4.0), taken(8.0, 4.0)), (1.0, 1.0), "no core is idle");
        assert_eq!((taken(3.5, 4.0), taken(1.0, 1.0)), (0.5, 1.0));
        let point = LinearCost { base: 1000.0, per_run: 100.0 };
        let busy = |think: f64| CostModel { think, point, ..model() }.busy(0.0);
        assert_eq!((busy(0.0), busy(3000.0)), (1.0, 1.0));
        assert!((busy(7000.0) - 0.5).abs() < 1e-9 && busy(1e12) < 1e-6, "{}", busy(7000.0));
    }

    #[test]
    fn elective_bytes_stay_below_their_bound() {
        let mut dice = SplitMix::new(5);
        for _ in 0..200 {
            let tree = 1000.0 + dice.below(100_000) as f64;
            let amp = 3.0 + dice.below(40) as f64;
            let mut budget = RewriteBudget::new(2.0 * tree, amp);
            let (mut flushed, mut reads, mut days, mut elective) = (0.0, 0.0, 0.0, 0.0);
            for _ in 0..300 {
                let bytes = dice.below(3000) as f64;
                match dice.below(4) {
                    0 => {
                        budget.flushed(bytes, tree);
                        flushed += bytes;
                    }
                    1 => {
                        budget.passed(bytes * 1e6, bytes, tree);
                        days += bytes * 1e6 / DAY_MICROS;
                        reads += bytes;
                    }
                    2 => {
                        let before = budget.left();
                        let charged = budget.merged(bytes * 9.0, tree);
                        // A refused compaction is refunded its charge, not its bytes.
                        assert!(
                            (before - charged - budget.left()).abs() < 1e-6 && charged <= bytes * 9.0 + 1e-6
                        );
                    }
                    _ if bytes * 10.0 <= budget.left() => {
                        budget.merged(bytes * 10.0, tree);
                        elective += bytes * 10.0;
                    }
                    _ => {}
                }
                assert!(budget.left() >= -tree && budget.left() <= 2.0 * tree);
                let bound = 2.0 * tree + amp * flushed + PER_READ * reads + tree * days;
                assert!(elective <= bound * (1.0 + 1e-12), "{elective} of {bound}");
            }
        }
    }

    #[test]
    fn pauses_double_up_to_a_minute() {
        let (mut resting, ends) = (BackOffs::default(), (RunId(1), RunId(2)));
        let mut now = 0;
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            resting.failed(ends, now);
            assert!(resting.holds(ends, now + seconds * 1_000_000 - 1));
            assert!(!resting.holds(ends, now + seconds * 1_000_000));
            assert!(!resting.holds((RunId(1), RunId(3)), now));
            now += seconds * 1_000_000;
        }
    }
}
