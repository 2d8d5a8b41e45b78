//! What a run costs a reader by its size: the blocks of small runs are in the cache.
//!
//! A reader that meets a run needs a block of it. How often that block has to be fetched follows from how often it is
//! wanted: a run of b bytes that covers the share w of the wanted keys is wanted w times per read, so each of its blocks
//! w/b times, and a cache keeps what is wanted often. With Che's approximation a block that is wanted at the rate r is
//! missed with the probability exp(-r T), T being the time for which the cache keeps a block that nobody wants. So
//!
//! ```text
//! m(b/w) = exp(-turn/(b/w)) ~ (1 + turn/(4 b/w))^-4        the share of reads that fetch
//! price  = cached + (1 - cached) m                         of the cost of a run that is never cached
//! ```
//!
//! with one unknown, `turn`: the bytes of which a cache keeps about two thirds. It is chosen so that the runs of the present
//! tree miss as many blocks per seek as were counted. A *dear* run is one that is never cached; what it costs a seek is
//! measured, as are cursors in cached blocks: `cached` is the ratio of both. Where nothing was counted, or nothing is
//! fetched, every run has the price 1; so it has where nearly all is fetched from the first. Later on that is learned
//! from as well, but slowly, and by the sizes of the runs there are: where only large ones are left after a merge of
//! the tree all is fetched, and says nothing of the small ones to come.
//!
//! A run of many small ones costs little, and a merge of them gains little, while two large runs are worth a long merge:
//! a mean over all runs sees neither.

use super::model::bounded;
use drumlin_types::contract::CostView;

/// The prices of runs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Prices {
    /// Bytes; 0 when size makes no difference.
    turn: f64,
    /// Cost of a cached run by that of a dear one, 0 to 1.
    cached: f64,
    /// What a dear run costs a seek, nanoseconds.
    dear: f64,
}

/// Shares of fetched reads between which size makes a difference.
const LEAST_FETCHED: f64 = 0.02;
const MOST_FETCHED: f64 = 0.98;
/// Bounds of `turn` as powers of two, and halvings of the span between them.
const POWERS: (i32, i32) = (8, 50);
const HALVINGS: u32 = 24;
/// Weight of news about `turn`, whose measure is a mean over seeks that met other runs than there are now.
const NEWS: f64 = 0.25;

impl Prices {
    /// Every run costs the same.
    pub(crate) const EVEN: Prices = Prices { turn: 0.0, cached: 1.0, dear: 0.0 };

    /// These prices, brought nearer to those under which `runs`, bytes and covered runs of each, cost what was measured.
    pub(crate) fn learned(self, costs: &CostView, runs: impl Iterator<Item = (f64, f64)> + Clone) -> Prices {
        let met: f64 = runs.clone().map(|(_, weight)| weight).sum();
        let fetched = costs.seek_blocks / met.max(1.0);
        let most = if self.are_even() { MOST_FETCHED } else { f64::MAX };
        if !(LEAST_FETCHED..=most).contains(&fetched) || costs.fetch_ns <= 0.0 {
            return Prices::EVEN;
        }
        let seek_blocks = costs.seek_blocks.min(MOST_FETCHED * met);
        let wanted =
            |turn: f64| runs.clone().map(|(bytes, weight)| weight * missed(turn, bytes, weight)).sum::<f64>();
        let power = |power: f64| super::real::exp(power * core::f64::consts::LN_2);
        let (mut least, mut most) = (f64::from(POWERS.0), f64::from(POWERS.1));
        for _ in 0..HALVINGS {
            let middle = (least + most) / 2.0;
            if wanted(power(middle)) > seek_blocks { least = middle } else { most = middle }
        }
        let known =
            if self.turn > 0.0 { super::real::ln(self.turn) / core::f64::consts::LN_2 } else { least };
        let dear = costs.cursor_cached_ns + costs.fetch_ns;
        let cached = bounded(costs.cursor_cached_ns / dear, 0.0, 1.0);
        Prices { turn: power(known + NEWS * (least - known)), cached, dear: bounded(dear, 0.0, 1e9) }
    }

    /// The price of a run of `bytes` that counts as `weight` covered runs: 0 to 1.
    pub(crate) fn of(&self, bytes: f64, weight: f64) -> f64 {
        if self.turn <= 0.0 {
            1.0
        } else {
            self.cached + (1.0 - self.cached) * missed(self.turn, bytes, weight)
        }
    }

    /// What a dear run costs a lookup and a seek, if runs cost `mean` without regard to their sizes and a lookup
    /// fetches a block of one in `1 / false_positives`.
    pub(crate) fn slopes(&self, mean: [f64; 2], false_positives: f64) -> [f64; 2] {
        if self.are_even() { mean } else { [mean[0].max(false_positives * self.dear), self.dear] }
    }

    /// Whether size makes no difference.
    pub(crate) fn are_even(&self) -> bool {
        self.turn <= 0.0
    }

    /// As numbers.
    pub(crate) fn numbers(&self) -> [f64; 3] {
        [self.turn, self.cached, self.dear]
    }

    /// Takes back [`Prices::numbers`].
    pub(crate) fn restored([turn, cached, dear]: [f64; 3]) -> Prices {
        Prices {
            turn: bounded(turn, 0.0, 1e18),
            cached: bounded(cached, 0.0, 1.0),
            dear: bounded(dear, 0.0, 1e9),
        }
    }
}

/// The share of reads that fetch a block of a run of `bytes` that counts as `weight` runs.
fn missed(turn: f64, bytes: f64, weight: f64) -> f64 {
    let root = 1.0 + turn * weight / (4.0 * bytes.max(1.0));
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
        // Twelve small runs and three large ones, of which one covers half the keys.
        let mut runs = std::vec![(MIB, 1.0); 12];
        runs.extend([(100.0 * MIB, 1.0), (1000.0 * MIB, 1.0), (50.0 * MIB, 0.5)]);
        for blocks in [0.5, 2.0, 2.6, 6.0, 13.0] {
            let prices = Prices::EVEN.learned(&costs(blocks), runs.iter().copied());
            let [_, dear] = prices.slopes([1.0, 1.0], 0.01);
            let whole: f64 =
                runs.iter().map(|(bytes, weight)| weight * prices.of(*bytes, *weight) * dear).sum();
            assert!((whole - 14.5 * 1000.0 - blocks * 4000.0).abs() < 10.0, "{blocks}: {whole}");
            assert!(prices.of(MIB, 1.0) < prices.of(100.0 * MIB, 1.0));
            // Half the keys in half the bytes are wanted as often.
            assert_eq!(prices.of(50.0 * MIB, 0.5), prices.of(100.0 * MIB, 1.0));
        }
        let prices = Prices::EVEN.learned(&costs(2.5), runs.iter().copied());
        assert!(prices.of(MIB, 1.0) < 0.25 && prices.of(1000.0 * MIB, 1.0) > 0.9, "{prices:?}");
    }

    #[test]
    fn what_is_not_known_makes_no_difference() {
        let runs = [(MIB, 1.0), (100.0 * MIB, 1.0)];
        for costs in [CostView::default(), costs(0.0), costs(2.0), costs(f64::NAN), costs(f64::INFINITY)] {
            let prices = Prices::EVEN.learned(&costs, runs.iter().copied());
            assert_eq!((prices, prices.of(3.0, 1.0)), (Prices::EVEN, 1.0));
        }
        assert_eq!(Prices::EVEN.learned(&costs(1.0), core::iter::empty()), Prices::EVEN);
    }

    #[test]
    fn what_is_known_of_small_runs_outlasts_their_merge() {
        let mut runs = std::vec![(MIB, 1.0); 12];
        runs.extend([(100.0 * MIB, 1.0), (1000.0 * MIB, 1.0)]);
        let known = Prices::EVEN.learned(&costs(2.0), runs.iter().copied());
        assert!(known.of(MIB, 1.0) < 0.25, "{known:?}");
        let after = |runs: &[(f64, f64)], blocks: f64| {
            (0..100).fold(known, |prices, _| prices.learned(&costs(blocks), runs.iter().copied()))
        };
        // The mean of the blocks is late: there are fewer runs by now.
        for blocks in [1.0, 5.0] {
            let merged = after(&[(1112.0 * MIB, 1.0)], blocks);
            assert!(merged.of(MIB, 1.0) < 0.25 && merged.of(1000.0 * MIB, 1.0) > 0.9, "{merged:?}");
        }
        let uncached = after(&runs, 14.0);
        assert!(uncached.of(MIB, 1.0) > 0.9, "small ones are fetched too: {uncached:?}");
    }

    #[test]
    fn prices_stay_in_their_bounds() {
        for (turn, cached) in [(f64::NAN, f64::NAN), (1e300, 7.0), (-1.0, -1.0), (4096.0, 0.3)] {
            let prices = Prices::restored([turn, cached, 1.0]);
            for (bytes, weight) in [(0.0, 0.0), (1.0, 1e9), (1e18, 1.0), (f64::NAN, 1.0)] {
                assert!((0.0..=1.0).contains(&prices.of(bytes, weight)), "{prices:?} {bytes} {weight}");
            }
        }
    }
}
