//! The mean price over the recent past, for tables that live long.
//!
//! When most keys are compacted into one run, the tree holds little else, and the price of that moment gives the run
//! the whole budget. Later, new small runs above it are worth many bits per key. The large run keeps what it has, so
//! the average rises far above the budget. A table should therefore be judged by the mean of the logarithm of the
//! price over its coming life. The mean over the past stands in for that. It is an exponential mean whose time
//! constant is as many flushed keys as the store holds, about the life of the largest run in a leveled tree. A
//! shorter mean sees only the end of that life, when runs have piled up and bits are dearest, and gives the largest
//! run too few.
//!
//! A compaction of the share f of all keys is judged by the price of the moment and, with weight f, by the mean:
//! small tables are soon compacted again, so the moment counts for them. Its pieces (subcompactions) have the same f.
//!
//! For a manual compaction, the *price alone* takes the place of the mean: the price at which the keyspace has the
//! budget if it is one run. Its caller wants few runs to read from. The mean is that of the many runs of the load
//! before, which the reads after it never meet.
//!
//! The price per bit is in lookups; it grows with their number and falls with the number of keys. So the mean is taken
//! of the price over the lookups per key.
//!
//! This differs from the look-ahead of Mo et al. (*How to Grow an LSM-tree?*, SIGMOD 2025, section 5.4), which needs a
//! compaction policy that knows its coming trees.

use super::price::Price;
use crate::real;

/// Time constant of the mean: flushed keys, as a share of all keys.
const HORIZON: f64 = 1.0;

/// Running mean of the logarithm of the price.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct MeanPrice {
    /// Mean of the logarithm of the price over the lookups per key.
    log: Option<f64>,
}

impl MeanPrice {
    /// Adds the price at a flush that writes the share `flushed` of all keys. `per_key` is the number of lookups per
    /// key.
    pub fn note(&mut self, price: &Price, per_key: f64, flushed: f64) {
        let now = price.log - real::ln(per_key);
        let old = self.log.unwrap_or(now);
        self.log = Some(old + (flushed / HORIZON).clamp(0.0, 1.0) * (now - old));
    }

    /// Returns the price for a compaction of the share `merged` of all keys. `alone` is the price alone, for a manual
    /// compaction.
    pub fn for_job(&self, price: &Price, alone: Option<&Price>, per_key: f64, merged: f64) -> Price {
        let mean = self.log.map(|log| log + real::ln(per_key));
        let Some(life) = alone.map(|alone| alone.log).or(mean) else { return *price };
        let shift = merged.clamp(0.0, 1.0) * (life - price.log);
        Price { log: price.log + shift, cut: price.cut + shift, ..*price }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::rate::BLOOM;

    #[test]
    fn large_jobs_go_by_the_mean_and_small_ones_by_the_moment() {
        let price = |log| Price { log, cut: log + 1.0, slope: BLOOM };
        let mut mean = MeanPrice::default();
        assert_eq!(mean.for_job(&price(3.0), None, 2.0, 1.0), price(3.0), "nothing is known yet");
        mean.note(&price(1.0), 1.0, 0.01);
        mean.note(&price(2.0), 1.0, 0.5);
        let judged = |merged| mean.for_job(&price(0.0), None, 1.0, merged).log;
        assert!((judged(1.0) - 1.5).abs() < 1e-9 && (judged(0.5) - 0.75).abs() < 1e-9);
        assert_eq!(judged(0.0), 0.0);
        let all = mean.for_job(&price(0.0), None, 1.0, 1.0);
        assert!((all.cut - all.log - 1.0).abs() < 1e-9, "the cut moves with the price");
        // A whole horizon forgets what was before.
        mean.note(&price(-1.0), 1.0, 1.2);
        assert!((mean.for_job(&price(0.0), None, 1.0, 1.0).log + 1.0).abs() < 1e-9);
    }

    #[test]
    fn neither_more_lookups_nor_more_keys_change_the_mean() {
        let price = |log: f64| Price { log, cut: log, slope: BLOOM };
        let mut mean = MeanPrice::default();
        mean.note(&price(0.0), 1.0, 1.0);
        // Eight times the lookups per key: the same tables get the same bits at eight times the price.
        let later = mean.for_job(&price(real::ln(4.0)), None, 8.0, 1.0);
        assert!((later.log - real::ln(8.0)).abs() < 1e-9);
    }

    #[test]
    fn manual_compactions_go_by_the_price_alone() {
        let price = |log: f64| Price { log, cut: log, slope: BLOOM };
        let mut mean = MeanPrice::default();
        let judged =
            |mean: &MeanPrice, merged| mean.for_job(&price(0.0), Some(&price(-1.0)), 1.0, merged).log;
        assert_eq!(judged(&mean, 1.0), -1.0, "there is no mean yet");
        mean.note(&price(4.0), 1.0, 1.0);
        assert_eq!([1.0, 0.5, 0.0].map(|merged| judged(&mean, merged)), [-1.0, -0.5, 0.0]);
    }
}
