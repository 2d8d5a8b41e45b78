//! The optimal division of filter bits over tables.
//!
//! Table i has n distinct keys and the weight z, the number of lookups that probe it in vain. With b bits per key, z
//! rate(b) of them read an unneeded block. The problem (Mnemosyne, Eq. 4):
//!
//! ```text
//! minimise  sum z exp(-s b)   subject to   sum n b <= budget,   each b = 0 or LEAST_BITS <= b <= MOST_BITS
//! ```
//!
//! At the optimum one more bit saves the same number of blocks everywhere. This number is the *price*; its logarithm is
//! L. With r = ln(z / n), a table gets
//!
//! ```text
//! b = (r + ln s - L) / s,   clamped to LEAST_BITS..=MOST_BITS,   or 0 if r is below the cut
//! ```
//!
//! Tables are sorted by r, and those with filters are the first p. Prefix sums give the bits of the first p tables at
//! any price in O(log F), for F tables. Let p be the largest number for which the first p tables fit the budget at the
//! price at which table p is just worth one bit. The solver prices p and p + 1 tables and takes the cheaper. This is
//! optimal for tables of equal size. Otherwise a table cannot be split, and the result costs at most the weight of the
//! first table without a filter more than the optimum.
//!
//! Differences from the published algorithm: it drops tables below one bit (here below 0.48 bits, since one bit beats
//! none down to there), its loop starts at the wrong index, and its condition has the wrong sign. Its cut is the
//! density of the last table with a filter; a new table that is only a little less dense would get none.

use super::rate::{rate, worth_of_one_bit};
use super::{LEAST_BITS, MOST_BITS};
use crate::real;
use alloc::vec::Vec;

/// One table, or several of equal density.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Item {
    /// Number of distinct keys.
    pub keys: f64,
    /// Number of lookups that probe the table and do not find their key, in any unit that all items share.
    pub weight: f64,
}

impl Item {
    /// Returns ln(z / n), or `None` for a table that needs no filter.
    fn log_density(&self) -> Option<f64> {
        let valid = |x: f64| x > 0.0 && x.is_finite();
        (valid(self.keys) && valid(self.weight)).then(|| real::ln(self.weight) - real::ln(self.keys))
    }
}

/// Price of a filter bit: the number of unneeded blocks that one more bit saves, anywhere.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Price {
    /// Logarithm of the price, L.
    pub log: f64,
    /// Least ln(z / n) of a table with a filter: where one bit is just worth its price, but not below a table that the
    /// solution leaves without a filter, nor above one that has one. New tables are judged by it too.
    pub cut: f64,
    /// Slope of the filters' rate.
    pub slope: f64,
}

impl Price {
    /// Returns the bits per key for a table. `is_below_budget` decides for a table exactly at the cut: the budget holds
    /// either one more table like it, or none.
    pub fn bits(&self, item: &Item, is_below_budget: bool) -> f64 {
        let Some(density) = item.log_density() else { return 0.0 };
        if density < self.cut || (density == self.cut && !is_below_budget) {
            return 0.0;
        }
        self.unbounded_bits(density).clamp(LEAST_BITS, MOST_BITS)
    }

    /// Returns the price for weights that are `factor` times as large.
    pub fn times(&self, factor: f64) -> Price {
        let shift = real::ln(factor);
        Price { log: self.log + shift, cut: self.cut + shift, ..*self }
    }

    /// Returns the unneeded blocks that one more bit saves.
    pub fn blocks_per_bit(&self) -> f64 {
        real::exp(self.log)
    }

    fn unbounded_bits(&self, density: f64) -> f64 {
        (density + real::ln(self.slope) - self.log) / self.slope
    }
}

/// Returns the price at which filters of `items` take `budget` bits together, or `None` if no table gets a filter.
pub fn solve(items: &[Item], budget: f64, slope: f64) -> Option<Price> {
    let tables = Sorted::new(items, slope);
    if tables.log_density.is_empty() || budget.is_nan() {
        return None;
    }
    // At the price at which table p is just worth one bit, the bits of the first p tables grow with p. So the search is
    // binary.
    let log_worth = real::ln(worth_of_one_bit(slope));
    let (mut fits, mut fails) = (0, tables.log_density.len() + 1);
    while fails - fits > 1 {
        let count = (fits + fails) / 2;
        match tables.bits(tables.log_density[count - 1] + log_worth, count) <= budget {
            true => fits = count,
            false => fails = count,
        }
    }
    let candidates = [fits, fits + 1].into_iter().filter(|&count| {
        count > 0 && count <= tables.log_density.len() && tables.keys[count] * LEAST_BITS <= budget
    });
    let priced = candidates.map(|count| {
        let log = tables.price(budget, count);
        let worth = (log - log_worth).min(tables.log_density[count - 1]);
        let cut = tables.log_density.get(count).map_or(worth, |without| worth.max(without.next_up()));
        (tables.cost(log, count), Price { log, cut: cut.min(tables.log_density[count - 1]), slope })
    });
    priced.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, price)| price)
}

/// Tables with a positive weight, by falling ln(z / n), with prefix sums.
struct Sorted {
    slope: f64,
    log_slope: f64,
    log_density: Vec<f64>,
    /// Sums of n, of n r and of z over the first tables.
    keys: Vec<f64>,
    keys_times_log_density: Vec<f64>,
    weights: Vec<f64>,
}

impl Sorted {
    fn new(items: &[Item], slope: f64) -> Sorted {
        let mut tables: Vec<(f64, &Item)> =
            items.iter().filter_map(|item| Some((item.log_density()?, item))).collect();
        tables.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let sums = |of: fn(f64, &Item) -> f64| {
            let mut sum = 0.0;
            let rest = tables.iter().map(|(density, item)| {
                sum += of(*density, item);
                sum
            });
            core::iter::once(0.0).chain(rest).collect::<Vec<f64>>()
        };
        Sorted {
            slope,
            log_slope: real::ln(slope),
            keys: sums(|_, item| item.keys),
            keys_times_log_density: sums(|density, item| density * item.keys),
            weights: sums(|_, item| item.weight),
            log_density: tables.iter().map(|(density, _)| *density).collect(),
        }
    }

    /// Returns how many of the first `count` tables get the most bits, and how many get more than the least.
    fn clamped(&self, log: f64, count: usize) -> (usize, usize) {
        let first = |bits: f64| {
            let bound = log - self.log_slope + self.slope * bits;
            self.log_density[..count].partition_point(|density| *density > bound)
        };
        (first(MOST_BITS), first(LEAST_BITS))
    }

    /// Returns the bits of the first `count` tables at log-price `log`.
    fn bits(&self, log: f64, count: usize) -> f64 {
        let (most, free) = self.clamped(log, count);
        let middle = self.keys_times_log_density[free] - self.keys_times_log_density[most]
            + (self.keys[free] - self.keys[most]) * (self.log_slope - log);
        MOST_BITS * self.keys[most] + middle / self.slope + LEAST_BITS * (self.keys[count] - self.keys[free])
    }

    /// Returns the log-price at which the first `count` tables take `budget` bits, or all have the most bits.
    fn price(&self, budget: f64, count: usize) -> f64 {
        // At the low end all tables have the most bits, at the high end the least.
        let mut low = self.log_density[count - 1] + self.log_slope - self.slope * MOST_BITS;
        let mut high = self.log_density[0] + self.log_slope - self.slope * LEAST_BITS;
        if self.bits(low, count) <= budget {
            return low;
        }
        for _ in 0..64 {
            let middle = (low + high) / 2.0;
            match self.bits(middle, count) > budget {
                true => low = middle,
                false => high = middle,
            }
        }
        // With the clamped tables known, the price of the others is exact.
        let (most, free) = self.clamped(high, count);
        let keys = self.keys[free] - self.keys[most];
        if keys <= 0.0 {
            return high;
        }
        let bits = budget - MOST_BITS * self.keys[most] - LEAST_BITS * (self.keys[count] - self.keys[free]);
        (self.keys_times_log_density[free] - self.keys_times_log_density[most] - self.slope * bits) / keys
            + self.log_slope
    }

    /// Returns the unneeded blocks of all tables if the first `count` have filters, at log-price `log`.
    fn cost(&self, log: f64, count: usize) -> f64 {
        let (most, free) = self.clamped(log, count);
        let all = self.weights.last().copied().unwrap_or(0.0);
        self.weights[most] * rate(self.slope, MOST_BITS)
            + (self.keys[free] - self.keys[most]) * real::exp(log) / self.slope
            + (self.weights[count] - self.weights[free]) * rate(self.slope, LEAST_BITS)
            + (all - self.weights[count])
    }
}

#[cfg(test)]
mod tests;
