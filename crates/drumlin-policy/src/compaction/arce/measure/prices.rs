//! The read cost of a run by its size: blocks of small runs are usually cached.
//!
//! A reader that meets a run needs one of its blocks. How often that block must be fetched depends on how often it is
//! requested. A run of b bytes that covers the share w of the requested keys gets w requests per read, so the request
//! rate of each of its blocks is proportional to w/b. A cache keeps blocks that are requested often. By Che's
//! approximation a block requested at the rate r is missed with probability exp(-r T), where T is the time for which
//! the cache keeps a block that nobody requests. So
//!
//! ```text
//! m(b/w) = exp(-characteristic/(b/w)) ~ (1 + characteristic/(4 b/w))^-4        the share of reads that fetch a block
//! price  = cached + (1 - cached) m                         in units of a run that is never cached
//! ```
//!
//! The only unknown is `characteristic`, the size in bytes of a run of which a cache keeps about two thirds. It is
//! chosen so that the runs of the present tree miss as many blocks per seek as the engine counted. An *uncached run*
//! (`uncached` in names) is a run that is never cached. Its cost per seek is measured, as is the cost of a cursor in
//! cached blocks; `cached` is the ratio of the second to the first.
//!
//! Every run has the price 1 when nothing was counted, when nothing is fetched, or when nearly everything is fetched
//! from the start. Later measurements in which nearly everything is fetched do count, but slowly, and with the sizes
//! of the runs that exist then. After a compaction of the whole tree only large runs are left; all their blocks are
//! fetched, which says nothing about small runs to come.
//!
//! So a set of many small runs costs little and its compaction gains little, while two large runs justify a long
//! compaction. A mean over all runs would show neither.

use crate::compaction::arce::measure::model::bounded;
use drumlin_types::contract::CostView;

/// Prices of runs: their read cost relative to an uncached run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Prices {
    /// Size of a run, in bytes, of which about two thirds are cached; 0 when size makes no difference.
    characteristic: f64,
    /// Cost of a cached run relative to an uncached one, 0 to 1.
    cached: f64,
    /// Cost of an uncached run per seek, nanoseconds.
    uncached: f64,
}

/// Bounds on the share of fetched reads between which size makes a difference.
const LEAST_FETCHED: f64 = 0.02;
const MOST_FETCHED: f64 = 0.98;
/// Bounds of `characteristic` as powers of two, and the number of bisection steps between them.
const POWERS: (i32, i32) = (8, 50);
const HALVINGS: u32 = 24;
/// Weight of the newest `characteristic`. It is measured as a mean over past seeks, which met other runs than the
/// present ones.
const NEWEST_WEIGHT: f64 = 0.25;

impl Prices {
    /// Prices under which every run costs the same.
    pub(crate) const UNIFORM: Prices = Prices { characteristic: 0.0, cached: 1.0, uncached: 0.0 };

    /// Returns these prices, moved towards those under which `runs` (bytes and covered runs of each) cost what was
    /// measured.
    pub(crate) fn learned(self, costs: &CostView, runs: impl Iterator<Item = (f64, f64)> + Clone) -> Prices {
        let met: f64 = runs.clone().map(|(_, weight)| weight).sum();
        let fetched = costs.seek_blocks / met.max(1.0);
        let most = if self.are_uniform() { MOST_FETCHED } else { f64::MAX };
        if !(LEAST_FETCHED..=most).contains(&fetched) || costs.fetch_ns <= 0.0 {
            return Prices::UNIFORM;
        }
        let seek_blocks = costs.seek_blocks.min(MOST_FETCHED * met);
        let wanted = |characteristic: f64| {
            runs.clone().map(|(bytes, weight)| weight * missed(characteristic, bytes, weight)).sum::<f64>()
        };
        let power = |power: f64| crate::real::exp(power * core::f64::consts::LN_2);
        let (mut least, mut most) = (f64::from(POWERS.0), f64::from(POWERS.1));
        for _ in 0..HALVINGS {
            let middle = (least + most) / 2.0;
            if wanted(power(middle)) > seek_blocks { least = middle } else { most = middle }
        }
        let known = if self.characteristic > 0.0 {
            crate::real::ln(self.characteristic) / core::f64::consts::LN_2
        } else {
            least
        };
        let uncached = costs.cursor_cached_ns + costs.fetch_ns;
        let cached = bounded(costs.cursor_cached_ns / uncached, 0.0, 1.0);
        Prices {
            characteristic: power(known + NEWEST_WEIGHT * (least - known)),
            cached,
            uncached: bounded(uncached, 0.0, 1e9),
        }
    }

    /// Returns the price, 0 to 1, of a run of `bytes` that counts as `weight` covered runs.
    pub(crate) fn of(&self, bytes: f64, weight: f64) -> f64 {
        if self.characteristic <= 0.0 {
            1.0
        } else {
            self.cached + (1.0 - self.cached) * missed(self.characteristic, bytes, weight)
        }
    }

    /// Returns what an uncached run adds to a lookup and to a seek. `mean` is the cost of a run without regard to
    /// size. A lookup fetches a block in vain from a share `false_positives` of the runs.
    pub(crate) fn slopes(&self, mean: [f64; 2], false_positives: f64) -> [f64; 2] {
        if self.are_uniform() { mean } else { [mean[0].max(false_positives * self.uncached), self.uncached] }
    }

    /// Returns whether size makes no difference.
    pub(crate) fn are_uniform(&self) -> bool {
        self.characteristic <= 0.0
    }

    /// Returns the prices as numbers, for the saved state.
    pub(crate) fn numbers(&self) -> [f64; 3] {
        [self.characteristic, self.cached, self.uncached]
    }

    /// Restores [`Prices::numbers`].
    pub(crate) fn restored([characteristic, cached, uncached]: [f64; 3]) -> Prices {
        Prices {
            characteristic: bounded(characteristic, 0.0, 1e18),
            cached: bounded(cached, 0.0, 1.0),
            uncached: bounded(uncached, 0.0, 1e9),
        }
    }
}

/// Returns the share of reads that fetch a block of a run of `bytes` that counts as `weight` covered runs.
fn missed(characteristic: f64, bytes: f64, weight: f64) -> f64 {
    let root = 1.0 + characteristic * weight / (4.0 * bytes.max(1.0));
    let square = root * root;
    1.0 / (square * square)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = 1_048_576.0;

    fn costs(seek_blocks: f64) -> CostView {
        CostView { cursor_cached_ns: 1000.0, fetch_ns: 4000.0, seek_blocks, ..CostView::default() }
    }

    #[test]
    fn prices_add_up_to_what_was_counted() {
        // Twelve small runs and three large ones, one of which covers half the keys.
        let mut runs = std::vec![(MIB, 1.0); 12];
        runs.extend([(100.0 * MIB, 1.0), (1000.0 * MIB, 1.0), (50.0 * MIB, 0.5)]);
        for blocks in [0.5, 2.0, 2.6, 6.0, 13.0] {
            let prices = Prices::UNIFORM.learned(&costs(blocks), runs.iter().copied());
            let [_, uncached] = prices.slopes([1.0, 1.0], 0.01);
            let whole: f64 =
                runs.iter().map(|(bytes, weight)| weight * prices.of(*bytes, *weight) * uncached).sum();
            assert!((whole - 14.5 * 1000.0 - blocks * 4000.0).abs() < 10.0, "{blocks}: {whole}");
            assert!(prices.of(MIB, 1.0) < prices.of(100.0 * MIB, 1.0));
            // Half of the keys in half of the bytes are requested as often.
            assert_eq!(prices.of(50.0 * MIB, 0.5), prices.of(100.0 * MIB, 1.0));
        }
        let prices = Prices::UNIFORM.learned(&costs(2.5), runs.iter().copied());
        assert!(prices.of(MIB, 1.0) < 0.25 && prices.of(1000.0 * MIB, 1.0) > 0.9, "{prices:?}");
    }

    #[test]
    fn what_is_not_known_makes_no_difference() {
        let runs = [(MIB, 1.0), (100.0 * MIB, 1.0)];
        for costs in [CostView::default(), costs(0.0), costs(2.0), costs(f64::NAN), costs(f64::INFINITY)] {
            let prices = Prices::UNIFORM.learned(&costs, runs.iter().copied());
            assert_eq!((prices, prices.of(3.0, 1.0)), (Prices::UNIFORM, 1.0));
        }
        assert_eq!(Prices::UNIFORM.learned(&costs(1.0), core::iter::empty()), Prices::UNIFORM);
    }

    #[test]
    fn what_is_known_of_small_runs_outlasts_their_merge() {
        let mut runs = std::vec![(MIB, 1.0); 12];
        runs.extend([(100.0 * MIB, 1.0), (1000.0 * MIB, 1.0)]);
        let known = Prices::UNIFORM.learned(&costs(2.0), runs.iter().copied());
        assert!(known.of(MIB, 1.0) < 0.25, "{known:?}");
        let after = |runs: &[(f64, f64)], blocks: f64| {
            (0..100).fold(known, |prices, _| prices.learned(&costs(blocks), runs.iter().copied()))
        };
        // The measured mean of fetched blocks is late: there are fewer runs by now.
        for blocks in [1.0, 5.0] {
            let merged = after(&[(1112.0 * MIB, 1.0)], blocks);
            assert!(merged.of(MIB, 1.0) < 0.25 && merged.of(1000.0 * MIB, 1.0) > 0.9, "{merged:?}");
        }
        let uncached = after(&runs, 14.0);
        assert!(uncached.of(MIB, 1.0) > 0.9, "small ones are fetched too: {uncached:?}");
    }

    #[test]
    fn prices_stay_in_their_bounds() {
        for (characteristic, cached) in [(f64::NAN, f64::NAN), (1e300, 7.0), (-1.0, -1.0), (4096.0, 0.3)] {
            let prices = Prices::restored([characteristic, cached, 1.0]);
            for (bytes, weight) in [(0.0, 0.0), (1.0, 1e9), (1e18, 1.0), (f64::NAN, 1.0)] {
                assert!((0.0..=1.0).contains(&prices.of(bytes, weight)), "{prices:?} {bytes} {weight}");
            }
        }
    }
}
